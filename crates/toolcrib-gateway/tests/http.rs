//! The gateway as clients over HTTP see it.

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use support::{LONG, Odd, RICH, Served, answer, crib, events, gateway, modern, names, rpc, text};
use tokio::time::timeout;
use toolcrib_gateway::{Gateway, GatewayError, HttpOptions, Options, TokenHash};

async fn served() -> (Served, Odd, toolcrib_runtime::Crib) {
    let (gateway, odd, crib) = gateway().await;
    (Served::start(&gateway, HttpOptions::default()).await, odd, crib)
}

#[tokio::test]
async fn a_stateless_request_needs_nothing_but_itself() {
    let (served, ..) = served().await;
    let (status, found) = answer(served.modern("/mcp", "server/discover", json!({}))).await;
    assert_eq!((status, &found["result"]["supportedVersions"][0]), (200, &json!("2026-07-28")));
    let (status, listed) = answer(served.modern("/mcp", "tools/list", json!({}))).await;
    assert_eq!((status, names(&listed["result"]["tools"]).len()), (200, 3));
    let call = json!({"name": "odd__rich"});
    let response = served.modern("/mcp/full", "tools/call", call).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let body = response.text().await.unwrap();
    let rest = RICH.strip_prefix('{').unwrap();
    assert!(body.contains(&format!(r#"{{"resultType":"complete",{rest}"#)), "{body}");
    let (status, unknown) = answer(served.modern("/mcp", "resources/list", json!({}))).await;
    assert_eq!((status, &unknown["error"]["code"]), (404, &json!(-32601)));
    let (status, unknown) =
        answer(served.modern("/mcp/full", "tools/call", json!({"name": "x"}))).await;
    assert_eq!((status, &unknown["error"]["code"]), (200, &json!(-32602)));
    let (status, inject) = answer(served.modern("/mcp/inject", "tools/list", json!({}))).await;
    assert_eq!((status, &inject["error"]["code"]), (400, &json!(-32022)));
}

#[tokio::test]
async fn headers_must_say_what_the_body_says() {
    let (served, ..) = served().await;
    let body = |name: &str| rpc(1, "tools/call", json!({"name": name, "_meta": modern()}));
    let post = |pairs: &[(&str, &str)], body: String| {
        let mut request = served.post("/mcp/full").body(body);
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        answer(request)
    };
    let version = ("mcp-protocol-version", "2026-07-28");
    let method = ("mcp-method", "tools/call");
    for pairs in [
        &[version, method, ("mcp-name", "odd__fail")][..],
        &[version, ("mcp-method", "tools/list"), ("mcp-name", "odd__echo")],
        &[("mcp-protocol-version", "2025-11-25"), method, ("mcp-name", "odd__echo")],
        &[version, method],
        &[version, ("mcp-name", "odd__echo")],
        &[method, ("mcp-name", "odd__echo")],
        &[version, method, ("mcp-name", "odd__echo"), ("mcp-name", "odd__fail")],
    ] {
        let (status, refused) = post(pairs, body("odd__echo")).await;
        assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32020)), "{pairs:?}");
        assert_eq!(refused["id"], 1);
    }
    let base64 = ("mcp-name", "=?base64?b2RkX19lY2hv?=");
    assert_eq!(post(&[version, method, base64], body("odd__echo")).await.0, 200);
    let (status, refused) =
        post(&[("mcp-protocol-version", "2031-01-01")], rpc(1, "ping", json!({}))).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32022)));
    assert_eq!(refused["error"]["data"]["requested"], "2031-01-01");
    let (status, refused) =
        post(&[version, ("mcp-method", "tools/list")], rpc(1, "tools/list", json!({}))).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32602)));
}

#[tokio::test]
async fn strangers_are_turned_away() {
    let (served, ..) = served().await;
    let ping = || served.modern("/mcp", "server/discover", json!({}));
    assert_eq!(answer(ping()).await.0, 200);
    assert_eq!(answer(ping().header("host", "evil.example")).await.0, 403);
    assert_eq!(answer(ping().header("origin", "https://evil.example")).await.0, 403);
    assert_eq!(answer(ping().header("origin", "http://localhost:1234")).await.0, 200);
    let (_, listed) = answer(served.other(Method::GET, "/metrics")).await;
    assert!(listed.as_str().unwrap().contains("toolcrib_calls"));
}

#[tokio::test]
async fn tokens_are_needed_where_there_are_any() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    options.tokens = vec![TokenHash::of("first"), TokenHash::of("second").named("ci")];
    let served = Served::start(&gateway, options).await;
    let response = served.post("/mcp").body(rpc(1, "initialize", json!({}))).send().await.unwrap();
    assert_eq!(response.status(), 401);
    assert!(response.headers()["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
    assert_eq!(answer(served.other(Method::GET, "/metrics")).await.0, 401);
    assert_eq!(answer(served.other(Method::GET, "/healthz")).await.0, 200);
    let open = served.post("/mcp").bearer_auth("first").body(rpc(1, "initialize", json!({})));
    let open = open.send().await.unwrap();
    let session = open.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let list = |token| served.within("/mcp", &session, "tools/list", json!({})).bearer_auth(token);
    assert_eq!(answer(list("first")).await.0, 200);
    assert_eq!(answer(list("second")).await.0, 404, "another caller's session is unknown");
    assert_eq!(answer(list("third")).await.0, 401);
}

#[tokio::test]
async fn an_open_address_needs_tokens() {
    let (gateway, ..) = gateway().await;
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let served = gateway.serve_http(listener, HttpOptions::default(), std::future::pending()).await;
    assert!(matches!(served, Err(GatewayError::Unguarded { .. })));
}

#[tokio::test]
async fn what_is_too_large_or_no_message_is_refused() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    options.body_bytes = 1_000;
    let served = Served::start(&gateway, options).await;
    let long = rpc(1, "ping", json!({"x": "x".repeat(2_000)}));
    assert_eq!(answer(served.post("/mcp").body(long)).await.0, 413);
    for (body, code) in
        [("nonsense", -32700), ("[]", -32600), (r#"[{"id":1,"method":"ping"}]"#, -32600)]
    {
        let (status, refused) = answer(served.post("/mcp").body(body)).await;
        assert_eq!((status, &refused["error"]["code"]), (400, &json!(code)), "{body}");
    }
    let response = served.post("/mcp").body(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(answer(response).await.0, 202);
    let plain = served.other(Method::POST, "/mcp").body(rpc(1, "initialize", json!({})));
    assert_eq!(answer(plain).await.0, 415);
    assert_eq!(answer(served.other(Method::PUT, "/mcp")).await.0, 405);
    assert_eq!(answer(served.other(Method::GET, "/mcp")).await.0, 400);
    let (status, unknown) = answer(served.post("/mcp/s/none").body("{}")).await;
    assert_eq!(status, 404);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("odd"), "{unknown}");
}

#[tokio::test]
async fn progress_turns_the_answer_into_a_stream() {
    let (served, ..) = served().await;
    let session = served.session("/mcp/full").await;
    let params =
        json!({"name": "odd__count", "arguments": {"n": 200}, "_meta": {"progressToken": 5}});
    for request in [
        served.within("/mcp/full", &session, "tools/call", params.clone()),
        served.modern("/mcp/full", "tools/call", params.clone()),
    ] {
        let mut response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let seen = events(&mut response, usize::MAX).await;
        assert_eq!(seen.len(), 201);
        for (at, note) in seen[..200].iter().enumerate() {
            assert_eq!(note["params"], json!({"progressToken": 5, "progress": at, "x": 1.0}));
        }
        assert_eq!(text(&seen[200]), "done");
    }
    // A client that reads no stream gets the result alone.
    let request = served.within("/mcp/full", &session, "tools/call", params).build().unwrap();
    let (url, body) = (request.url().clone(), request.body().unwrap().as_bytes().unwrap().to_vec());
    let plain = served.other(Method::POST, url.path()).header("content-type", "application/json");
    let plain = plain.header("accept", "application/json").header("mcp-session-id", &session);
    let (status, only) = answer(plain.body(body)).await;
    assert_eq!((status, text(&only)), (200, "done"));
}

#[tokio::test]
async fn whoever_hangs_up_cancels_in_the_stateless_era_only() {
    let (served, odd, _) = served().await;
    let session = served.session("/mcp/full").await;
    let call = json!({"name": "odd__block"});
    let kept =
        tokio::spawn(served.within("/mcp/full", &session, "tools/call", call.clone()).send());
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    kept.abort();
    let dropped = tokio::spawn(served.modern("/mcp/full", "tools/call", call).send());
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    dropped.abort();
    let cancelled = |many: usize| {
        let odd = odd.clone();
        let wait = async move {
            while odd.cancelled.load(Ordering::SeqCst) < many {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LONG, wait)
    };
    cancelled(1).await.unwrap();
    assert_eq!(odd.cancelled.load(Ordering::SeqCst), 1, "the session's goes on");
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let cancel =
        served.post("/mcp/full").header("mcp-session-id", &session).body(cancel.to_string());
    assert_eq!(answer(cancel).await.0, 202);
    cancelled(2).await.unwrap();
}

#[tokio::test]
async fn changes_are_told_on_streams_that_stay_open() {
    let (mut served, _, crib) = served().await;
    let session = served.session("/mcp/full").await;
    let notices = served.other(Method::GET, "/mcp/full").header("mcp-session-id", &session);
    let mut notices = notices.header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(notices.status(), 200);
    let params = json!({"notifications": {"toolsListChanged": true}});
    let mut listening =
        served.modern("/mcp/full", "subscriptions/listen", params).send().await.unwrap();
    assert_eq!(
        events(&mut listening, 1).await[0]["method"],
        "notifications/subscriptions/acknowledged"
    );
    crib.add(Odd::new("even")).await;
    assert_eq!(events(&mut notices, 1).await[0]["method"], "notifications/tools/list_changed");
    let told = &events(&mut listening, 1).await[0];
    assert_eq!(told["params"]["_meta"], json!({"io.modelcontextprotocol/subscriptionId": 1}));
    served.shut_down();
    let last = events(&mut listening, usize::MAX).await;
    assert_eq!(last[0]["result"]["resultType"], "complete");
    assert_eq!(events(&mut notices, usize::MAX).await, Vec::<Value>::new());
    timeout(LONG, &mut served.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn it_says_when_it_is_ready_and_what_it_has_done() {
    let (gateway, _, crib) = gateway().await;
    let gate = std::sync::Arc::new(tokio::sync::Notify::new());
    let mut slow = Odd::new("slow");
    slow.gate = Some(gate.clone());
    let listing = crib.add_soon(slow);
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let ready = || answer(served.other(Method::GET, "/readyz"));
    assert_eq!(ready().await, (503, json!("starting: slow\n")));
    gate.notify_one();
    listing.await.unwrap();
    assert_eq!(ready().await, (200, json!("ready\n")));
    answer(served.modern(
        "/mcp",
        "tools/call",
        json!({"name": "tool_search", "arguments": {"query": "x"}}),
    ))
    .await;
    answer(served.modern("/mcp", "tools/call", json!({"name": "odd__fail"}))).await;
    let (_, metrics) = answer(served.other(Method::GET, "/metrics")).await;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "toolcrib_searches_total 1",
        r#"toolcrib_calls_total{server="odd",tool="fail",outcome="error"} 1"#,
        r#"toolcrib_upstreams{server="slow",state="ready"} 1"#,
        "toolcrib_calls_in_flight 0",
        "toolcrib_tools 14",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn scripts_of_a_page_that_was_allowed_may_read_answers_and_no_others() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    options.allowed_origins = vec!["https://app.example".to_owned()];
    options.tokens = vec![TokenHash::of("a")];
    let served = Served::start(&gateway, options).await;
    let ask = |origin: &'static str| {
        let ask = served.other(Method::OPTIONS, "/mcp").header("origin", origin);
        ask.header("access-control-request-method", "POST").send()
    };
    let allowed = ask("https://app.example").await.unwrap();
    assert_eq!(allowed.status(), 204);
    assert_eq!(allowed.headers()["access-control-allow-origin"], "https://app.example");
    let local = ask("http://localhost:3000").await.unwrap();
    assert!(!local.headers().contains_key("access-control-allow-origin"));
    assert_eq!(ask("https://evil.example").await.unwrap().status(), 403);
    let sent = served.post("/mcp").header("origin", "https://app.example").bearer_auth("a");
    let sent = sent.body(rpc(1, "initialize", json!({}))).send().await.unwrap();
    assert_eq!(sent.status(), 200);
    assert_eq!(sent.headers()["access-control-allow-origin"], "https://app.example");
}

#[tokio::test]
async fn what_runs_when_it_ends_may_finish() {
    let (mut served, odd, _) = served().await;
    let call = json!({"name": "odd__wait"});
    let calling = tokio::spawn(answer(served.modern("/mcp/full", "tools/call", call)));
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    served.shut_down();
    odd.release.notify_one();
    let (status, finished) = timeout(LONG, calling).await.unwrap().unwrap();
    assert_eq!((status, text(&finished)), (200, "waited"));
    timeout(LONG, &mut served.serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn many_clients_at_once_each_get_their_own_answers() {
    let (served, ..) = served().await;
    let served = std::sync::Arc::new(served);
    let clients = (0..20).map(|client| {
        let served = served.clone();
        tokio::spawn(async move {
            let session = served.session("/mcp").await;
            for round in 0..10 {
                let n = client * 100 + round;
                let call = json!({"name": "call_tool",
                    "arguments": {"tool_name": "odd__echo", "arguments": {"n": n}}});
                let asked = if round % 2 == 0 {
                    served.within("/mcp", &session, "tools/call", call)
                } else {
                    served.modern("/mcp", "tools/call", call)
                };
                let (_, echoed) = answer(asked).await;
                assert_eq!(echoed["result"]["structuredContent"]["arguments"]["n"], n);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        timeout(LONG, client).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn headers_repeat_the_arguments_that_a_schema_names() {
    let crib = crib().await;
    let mut odd = Odd::new("odd");
    odd.extra_tools = 1;
    crib.add(odd).await;
    let gateway = Gateway::new(crib, Options::default()).unwrap();
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let call = |path: &str, name: &str, header: Option<&str>| {
        let params = json!({"name": name, "arguments": {"n": 7}});
        let mut request = served.modern(path, "tools/call", params);
        if let Some(value) = header {
            request = request.header("Mcp-Param-N", value);
        }
        answer(request)
    };
    for (path, name) in [
        ("/mcp/full", "odd__extra_00000"),
        ("/mcp/s/odd", "extra_00000"),
        ("/mcp", "odd__extra_00000"),
    ] {
        assert_eq!(call(path, name, Some("7")).await.0, 200, "{path}");
        let (status, refused) = call(path, name, Some("8")).await;
        assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32020)), "{path}");
        // On `/mcp` no schema was shown that would name the header.
        let expected = if path == "/mcp" { 200 } else { 400 };
        assert_eq!(call(path, name, None).await.0, expected, "{path}");
    }
    let session = served.session("/mcp/full").await;
    let params = json!({"name": "odd__extra_00000", "arguments": {"n": 7}});
    let old = served.within("/mcp/full", &session, "tools/call", params);
    assert_eq!(answer(old).await.0, 200, "earlier versions know nothing of it");
}
