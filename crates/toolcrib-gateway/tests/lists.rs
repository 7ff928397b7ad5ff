//! What clients list: few tokens, the same bytes, and word when they change.

mod support;

use std::sync::Arc;

use serde_json::{Value, json};
use support::{Client, Odd, crib, gateway, modern, names, text};
use tokio::sync::Notify;
use toolcrib_core::{EagerRules, Policy, PolicyRules};
use toolcrib_gateway::{Endpoint, Gateway, Options};
use toolcrib_tokens::Tokenizer;

/// Names that a machine full of servers might have.
const SERVERS: [&str; 20] = [
    "github",
    "gitlab",
    "slack",
    "linear",
    "notion",
    "postgres",
    "filesystem",
    "playwright",
    "sentry",
    "stripe",
    "figma",
    "jira",
    "confluence",
    "salesforce",
    "kubernetes",
    "terraform",
    "elasticsearch",
    "google-drive",
    "home-assistant",
    "weather",
];

async fn gateway_over(servers: impl Iterator<Item = &'static str>, options: Options) -> Gateway {
    let crib = crib().await;
    for name in servers {
        let mut odd = Odd::new(name);
        odd.extra_tools = 100;
        crib.add(odd).await;
    }
    Gateway::new(crib, options).expect("settings that work")
}

async fn line(gateway: &Gateway, endpoint: Endpoint, method: &str) -> String {
    let mut client = Client::connect(gateway, endpoint);
    client.send(method, json!({})).await;
    client.read_line().await.expect("an answer")
}

#[tokio::test]
async fn the_verbs_take_few_tokens_however_many_tools_there_are() {
    let gateway = gateway_over(SERVERS.into_iter(), Options::default()).await;
    let line = line(&gateway, Endpoint::Meta, "tools/list").await;
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(names(&answer["result"]["tools"]), ["tool_search", "load_tools", "call_tool"]);
    let tokens = Tokenizer::O200K.count(&answer["result"]["tools"].to_string()).tokens;
    assert!(tokens <= 450, "{tokens} tokens: {line}");
}

#[tokio::test]
async fn the_same_tools_give_the_same_bytes_in_whatever_order_they_come() {
    let one = gateway_over(SERVERS.into_iter(), Options::default()).await;
    let two = gateway_over(SERVERS.into_iter().rev(), Options::default()).await;
    for endpoint in ["meta", "full", "inject", "s/slack"] {
        for method in ["tools/list", "initialize"] {
            let endpoint: Endpoint = endpoint.parse().unwrap();
            let left = line(&one, endpoint.clone(), method).await;
            assert_eq!(left, line(&two, endpoint.clone(), method).await, "{endpoint} {method}");
            assert_eq!(left, line(&one, endpoint, method).await);
        }
    }
}

#[tokio::test]
async fn instructions_fit_where_clients_cut_them() {
    for count in [1, 5, 20] {
        let gateway = gateway_over(SERVERS.into_iter().take(count), Options::default()).await;
        let line = line(&gateway, Endpoint::Meta, "initialize").await;
        let answer: Value = serde_json::from_str(&line).unwrap();
        let instructions = answer["result"]["instructions"].as_str().unwrap();
        assert!(instructions.len() < 1_800 && instructions.contains("github"), "{instructions}");
    }
}

#[tokio::test]
async fn eager_tools_follow_the_verbs_in_full() {
    let mut options = Options::default();
    options.settings.eager =
        EagerRules { always: vec!["slack/rich".into()], ..EagerRules::default() };
    let gateway = gateway_over(SERVERS.into_iter(), options).await;
    let answer: Value =
        serde_json::from_str(&line(&gateway, Endpoint::Meta, "tools/list").await).unwrap();
    let tools = &answer["result"]["tools"];
    assert_eq!(names(tools), ["tool_search", "load_tools", "call_tool", "slack__rich"]);
    assert_eq!(tools[3]["title"], "Rich");
}

#[tokio::test]
async fn what_a_policy_hides_is_nowhere() {
    let rules = PolicyRules {
        deny_servers: vec!["slack".into()],
        deny_tools: vec!["sentry/*".into(), "block".into()],
        ..Default::default()
    };
    let mut options = Options::default();
    options.policy = Policy::new(rules).unwrap();
    let gateway = gateway_over(["slack", "sentry", "github"].into_iter(), options).await;
    for endpoint in ["meta", "full", "inject"] {
        for method in ["tools/list", "initialize", "server/discover"] {
            let line = line(&gateway, endpoint.parse().unwrap(), method).await;
            for hidden in ["slack", "sentry", "block"] {
                assert!(!line.contains(hidden), "{hidden} in {endpoint} {method}: {line}");
            }
        }
    }
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    for name in ["slack__echo", "sentry__echo", "github__block"] {
        assert_eq!(client.call(name, json!({})).await["error"]["code"], -32602, "{name}");
    }
    for server in ["slack", "mcp:slack", "sentry", "mcp:sentry"] {
        let (input, output) = (tokio::io::empty(), tokio::io::sink());
        let endpoint = Endpoint::Server(server.into());
        let refused = gateway.serve_on(input, output, endpoint, std::future::pending()).await;
        assert!(refused.is_err(), "{server}");
    }
}

#[tokio::test]
async fn lists_have_one_page() {
    let gateway = gateway_over(["github"].into_iter(), Options::default()).await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    let refused = client.request("tools/list", json!({"cursor": "x"})).await;
    assert_eq!(refused["error"]["code"], -32602);
    let found = client.call("github__extra_00099", json!({})).await;
    assert_eq!(text(&found), "extra");
}

#[tokio::test]
async fn verbs_say_what_they_do_to_the_world() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    let listed = client.request("tools/list", json!({})).await;
    for tool in listed["result"]["tools"].as_array().unwrap() {
        assert_eq!(tool["_meta"], json!({"anthropic/alwaysLoad": true}));
        let runs = tool["name"] == "call_tool";
        let expected = if runs {
            json!({"destructiveHint": true, "openWorldHint": true})
        } else {
            json!({"readOnlyHint": true, "openWorldHint": false})
        };
        assert_eq!(tool["annotations"], expected);
        assert_eq!(tool["inputSchema"]["type"], "object");
    }
}

#[tokio::test]
async fn the_full_list_has_every_tool_whole() {
    let (gateway, ..) = gateway().await;
    for (endpoint, prefix) in [(Endpoint::Full, "odd__"), (Endpoint::Server("odd".into()), "")] {
        let mut client = Client::open(&gateway, endpoint).await;
        let listed = client.request("tools/list", json!({})).await;
        let tools = &listed["result"]["tools"];
        let expected = ["block", "count", "echo", "fail", "refuse", "rich", "wait"];
        assert_eq!(names(tools), expected.map(|name| format!("{prefix}{name}")));
        assert_eq!(
            tools[5],
            json!({"name": format!("{prefix}rich"), "description": "A result with everything in it.",
                "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": []},
                "title": "Rich", "outputSchema": {"type": "object"},
                "annotations": {"readOnlyHint": true, "x": 1}, "_meta": {"v": 1}})
        );
        assert_eq!(tools[3]["annotations"], json!({"readOnlyHint": true}));
    }
}

#[tokio::test]
async fn a_change_of_the_list_is_told_in_both_eras() {
    let (gateway, _, crib) = gateway().await;
    let mut old = Client::open(&gateway, Endpoint::Full).await;
    old.notify("notifications/initialized", json!({})).await;
    assert_eq!(old.tools().await.len(), 7);
    let mut new = Client::connect(&gateway, Endpoint::Full);
    let params = json!({"_meta": modern(), "notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let id = new.send("subscriptions/listen", params).await;
    let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
    let ack = new.read().await;
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(ack["params"], json!({"_meta": meta, "notifications": {"toolsListChanged": true}}));
    crib.add(Odd::new("even")).await;
    assert_eq!(old.read().await["method"], "notifications/tools/list_changed");
    assert_eq!(old.tools().await.len(), 14);
    let told = new.read().await;
    assert_eq!(
        (&told["method"], &told["params"]["_meta"]),
        (&json!("notifications/tools/list_changed"), &meta)
    );
    new.shut_down();
    let ended = new.read().await;
    assert_eq!(
        (&ended["id"], &ended["result"]),
        (&json!(id), &json!({"resultType": "complete", "_meta": meta}))
    );
    assert_eq!(new.read_line().await, None);
    new.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_verbs_are_the_same_before_and_after_the_servers_have_started() {
    let crib = crib().await;
    let gate = Arc::new(Notify::new());
    let mut slow = Odd::new("slow");
    slow.gate = Some(gate.clone());
    slow.extra_tools = 50;
    let listing = crib.add_soon(slow);
    let gateway = Gateway::new(crib, Options::default()).unwrap();
    let mut client = Client::connect(&gateway, Endpoint::Meta);
    let opened = client.request("initialize", json!({})).await;
    assert!(opened["result"]["instructions"].as_str().unwrap().contains("slow"));
    let before = client.request("tools/list", json!({})).await;
    assert!(before["result"]["tools"][0]["description"].as_str().unwrap().contains("slow"));
    gate.notify_one();
    listing.await.unwrap();
    let after = client.request("tools/list", json!({})).await;
    assert_eq!(before["result"], after["result"]);
}
