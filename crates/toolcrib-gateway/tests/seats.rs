//! Callers that may see different tools at one gateway.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use support::{Odd, Offered, Served, answer, crib, names};
use tokio::sync::Notify;
use toolcrib_core::{Policy, PolicyRules};
use toolcrib_gateway::{Gateway, HttpOptions, Options, TokenHash};
use toolcrib_runtime::{Breaker, Crib, Health};

const PATHS: [&str; 4] = ["/mcp", "/mcp/full", "/mcp/inject", "/mcp/s/alpha"];

fn policy(rules: PolicyRules) -> Policy {
    Policy::new(rules).unwrap()
}

fn denying(tools: &[&str], servers: &[&str]) -> Policy {
    let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    policy(PolicyRules {
        deny_tools: own(tools),
        deny_servers: own(servers),
        ..PolicyRules::default()
    })
}

/// Over the servers `alpha` and `beta`, with tokens `all`; `alpha`, whose bearer sees nothing of
/// beta and not alpha's `rich`; and `beta`, whose bearer sees nothing of alpha. Nobody sees
/// `refuse`, and one called `ci` nothing of beta.
async fn served() -> (Served, Crib) {
    let crib = crib().await;
    for name in ["alpha", "beta"] {
        crib.add(Odd::new(name)).await;
    }
    let mut options = Options::default();
    let rules = json!({"deny_tools": ["refuse"],
        "rules": [{"servers": ["beta"], "callers": ["ci"], "then": "deny"}]});
    options.policy = policy(serde_json::from_value(rules).unwrap());
    let gateway = Gateway::new(crib.clone(), options).unwrap();
    let mut options = HttpOptions::default();
    options.tokens = vec![
        TokenHash::of("all"),
        TokenHash::of("ci").named("ci"),
        TokenHash::of("ann").named("ann"),
        TokenHash::of("alpha").named("alpha").narrowed(denying(&["rich"], &["beta"])),
        TokenHash::of("beta").narrowed(policy(PolicyRules {
            allow_servers: Some(vec!["beta".to_owned()]),
            ..PolicyRules::default()
        })),
    ];
    (Served::start(&gateway, options).await, crib)
}

async fn full(served: &Served, token: &str) -> Vec<String> {
    let list = served.modern("/mcp/full", "tools/list", json!({}));
    names(&answer(list.bearer_auth(token)).await.1["result"]["tools"])
}

fn call(served: &Served, path: &str, name: &str, arguments: Value) -> RequestBuilder {
    served.modern(path, "tools/call", json!({"name": name, "arguments": arguments}))
}

async fn session(served: &Served, path: &str, token: &str) -> String {
    let body = support::rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
    let response = served.post(path).bearer_auth(token).body(body).send().await.unwrap();
    response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_token_lists_what_its_policy_and_the_gateways_admit() {
    let (served, crib) = served().await;
    for _ in 0..2 {
        let all = full(&served, "all").await;
        let of = |server: &str| -> Vec<String> {
            all.iter().filter(|name| name.starts_with(server)).cloned().collect()
        };
        assert!(all.contains(&"alpha__rich".to_owned()));
        assert!(!all.iter().any(|name| name.ends_with("refuse")), "{all:?}");
        let alpha: Vec<String> =
            of("alpha").into_iter().filter(|name| name != "alpha__rich").collect();
        assert_eq!(full(&served, "alpha").await, alpha);
        assert_eq!(full(&served, "beta").await, of("beta"));
        // Once more with another catalog.
        crib.add(Odd::new("gamma")).await;
        assert!(full(&served, "all").await.len() > all.len());
        crib.remove(&toolcrib_core::GroupId::server("gamma"));
    }
}

#[tokio::test]
async fn a_session_is_its_callers_alone() {
    let (served, _crib) = served().await;
    for path in ["/mcp", "/mcp/full"] {
        let session = session(&served, path, "alpha").await;
        for token in ["all", "beta"] {
            for request in [
                served.within(path, &session, "tools/list", json!({})),
                served.other(Method::GET, path).header("mcp-session-id", &session),
                served.other(Method::DELETE, path).header("mcp-session-id", &session),
            ] {
                assert_eq!(answer(request.bearer_auth(token)).await.0, 404, "{path} {token}");
            }
        }
        let own = served.within(path, &session, "tools/list", json!({}));
        let (status, listed) = answer(own.bearer_auth("alpha")).await;
        assert_eq!(status, 200);
        assert!(!listed.to_string().contains("beta"), "{listed}");
    }
}

#[tokio::test]
async fn what_one_may_not_see_is_as_good_as_not_there() {
    let (with, _crib) = served().await;
    // Where there is no `beta` at all, and no `rich`.
    let crib = crib().await;
    crib.add(Odd::new("alpha")).await;
    let mut options = Options::default();
    options.policy = denying(&["refuse", "rich"], &[]);
    let gateway = Gateway::new(crib.clone(), options).unwrap();
    let mut options = HttpOptions::default();
    options.tokens = vec![TokenHash::of("alpha")];
    let without = Served::start(&gateway, options).await;

    let search = |query: &str| ("tool_search", json!({"query": query}));
    let asked = [
        search("a result with everything in it"),
        search("select:alpha__rich,beta__echo"),
        search("select:rich"),
        search("beta"),
        ("load_tools", json!({"group": "beta"})),
        ("call_tool", json!({"tool_name": "beta__echo", "arguments": {}})),
        ("call_tool", json!({"tool_name": "alpha__rich", "arguments": {}})),
        ("call_tool", json!({"tool_name": "rich", "arguments": {}})),
        ("alpha__rich", json!({})),
        ("beta__echo", json!({"n": "x"})),
        ("rich", json!({})),
    ];
    for path in PATHS.iter().filter(|path| **path != "/mcp/inject") {
        for (name, arguments) in &asked {
            let ask = |served: &Served| {
                answer(call(served, path, name, arguments.clone()).bearer_auth("alpha"))
            };
            assert_eq!(ask(&with).await, ask(&without).await, "{path} {name} {arguments}");
        }
        for method in ["tools/list", "server/discover"] {
            let ask = |served: &Served| {
                answer(served.modern(path, method, json!({})).bearer_auth("alpha"))
            };
            assert_eq!(ask(&with).await, ask(&without).await, "{path} {method}");
        }
    }
    let body = support::rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
    for path in ["/mcp", "/mcp/inject", "/mcp/s/beta", "/mcp/s/nobody"] {
        let ask =
            |served: &Served| answer(served.post(path).bearer_auth("alpha").body(body.clone()));
        let (one, two) = (ask(&with).await, ask(&without).await);
        assert_eq!(one, two, "{path}");
    }
    let ready = |served: &Served| answer(served.other(Method::GET, "/readyz").bearer_auth("alpha"));
    assert_eq!(ready(&with).await, ready(&without).await);
}

#[tokio::test]
async fn a_caller_waits_for_no_server_it_may_not_see() {
    let (served, crib) = served().await;
    let mut slow = Odd::new("gamma");
    slow.gate = Some(std::sync::Arc::new(Notify::new()));
    let _starting = crib.add_soon(slow);
    let ready =
        |token: &'static str| answer(served.other(Method::GET, "/readyz").bearer_auth(token));
    assert_eq!(ready("all").await.1, json!("starting: gamma\n"));
    assert_eq!(ready("beta").await.1, json!("starting\n"));
    let (_, listed) =
        answer(served.modern("/mcp", "tools/list", json!({})).bearer_auth("beta")).await;
    assert_eq!(listed["result"]["ttlMs"], 60_000);
    let begun = std::time::Instant::now();
    let missed = answer(call(&served, "/mcp/full", "nothing", json!({})).bearer_auth("beta")).await;
    assert!(missed.1["error"].is_object() && begun.elapsed().as_millis() < 2_000);
}

#[tokio::test]
async fn how_servers_are_doing_is_told_of_those_a_caller_may_see() {
    let (served, crib) = served().await;
    let offered = Offered::full("gamma");
    let (remaining, reason) = (Duration::from_millis(1_500), "it failed 5 times".to_owned());
    let breaker = Breaker::Open { remaining, reason };
    *offered.health.lock().unwrap() = Health { breaker, running: 1, waiting: 2, connections: 3 };
    let mut gamma = Odd::offering("gamma", &offered);
    gamma.held = &["new", "refuse"];
    crib.add(gamma).await;
    let mut slow = Odd::new("delta");
    slow.gate = Some(std::sync::Arc::new(Notify::new()));
    let _starting = crib.add_soon(slow);
    let (status, told) = answer(served.other(Method::GET, "/servers").bearer_auth("all")).await;
    // Nobody hears of what a policy hides, whether it is held back or not.
    let expected = json!({"servers": [
        {"name": "alpha", "state": "ready", "tools": 6},
        {"name": "beta", "state": "ready", "tools": 6},
        {"name": "delta", "state": "starting", "tools": 0},
        {"name": "gamma", "state": "ready", "tools": 6, "held": ["new"],
         "error": "it failed 5 times", "breaker": "open", "retry_in_ms": 1500, "running": 1,
         "waiting": 2, "connections": 3},
    ]});
    assert_eq!((status, told), (200, expected));
    for (token, seen) in [
        ("alpha", json!([["alpha", 5], ["delta", 0], ["gamma", 5]])),
        ("beta", json!([["beta", 6]])),
        ("ci", json!([["alpha", 6], ["delta", 0], ["gamma", 6]])),
    ] {
        let (_, told) = answer(served.other(Method::GET, "/servers").bearer_auth(token)).await;
        let rows = told["servers"].as_array().unwrap();
        let rows: Vec<_> = rows.iter().map(|row| json!([row["name"], row["tools"]])).collect();
        assert_eq!(Value::from(rows), seen, "{token}");
        for word in ["held", "failed"] {
            assert!(!told.to_string().contains(word), "{token}: {told}");
        }
    }
    assert_eq!(answer(served.other(Method::GET, "/servers")).await.0, 401);
    let metrics = answer(served.other(Method::GET, "/metrics").bearer_auth("all")).await.1;
    for line in [
        r#"toolcrib_upstream_breaker{server="gamma"} 2"#,
        r#"toolcrib_upstream_calls_running{server="gamma"} 1"#,
        r#"toolcrib_upstream_calls_waiting{server="gamma"} 2"#,
        r#"toolcrib_upstream_connections{server="gamma"} 3"#,
    ] {
        assert!(metrics.as_str().unwrap().contains(line), "{line} in {metrics}");
    }
    *offered.health.lock().unwrap() = Health::default();
    let metrics = answer(served.other(Method::GET, "/metrics").bearer_auth("all")).await.1;
    let line = r#"toolcrib_upstream_breaker{server="gamma"} 0"#;
    assert!(metrics.as_str().unwrap().contains(line), "{metrics}");
}

#[tokio::test]
async fn numbers_are_for_who_may_see_all() {
    let (served, _crib) = served().await;
    let echoed = answer(call(&served, "/mcp/full", "beta__echo", json!({})).bearer_auth("beta"));
    assert!(echoed.await.1["result"].is_object());
    let metrics =
        |token: &'static str| answer(served.other(Method::GET, "/metrics").bearer_auth(token));
    for token in ["all", "ann"] {
        let (status, text) = metrics(token).await;
        assert!(status == 200 && text.as_str().unwrap().contains("beta"), "{token}: {text}");
    }
    for token in ["alpha", "ci"] {
        let (status, text) = metrics(token).await;
        assert!(status == 403 && !text.as_str().unwrap().contains("beta"), "{token}: {text}");
    }
}

#[tokio::test]
async fn instructions_of_a_server_are_for_who_may_see_all_its_tools() {
    let crib = crib().await;
    crib.add(Odd::offering("alpha", &Offered::full("alpha"))).await;
    let gateway = Gateway::new(crib, Options::default()).unwrap();
    let mut options = HttpOptions::default();
    options.tokens =
        vec![TokenHash::of("all"), TokenHash::of("some").narrowed(denying(&["rich"], &[]))];
    let served = Served::start(&gateway, options).await;
    for (token, are_there) in [("all", true), ("some", false)] {
        let discover = served.modern("/mcp/s/alpha", "server/discover", json!({}));
        let body = support::rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
        for request in [discover, served.post("/mcp/s/alpha").body(body)] {
            let (status, told) = answer(request.bearer_auth(token)).await;
            assert_eq!(status, 200);
            assert_eq!(told.to_string().contains("How to use it"), are_there, "{token}: {told}");
        }
    }
}
