//! Calls: found, made, passed on, cancelled.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Client, LONG, Odd, RICH, crib, gateway, modern, names, text};
use tokio::sync::Notify;
use tokio::time::timeout;
use toolcrib_gateway::{Endpoint, Gateway, Options};

const VERBS: [&str; 3] = ["tool_search", "load_tools", "call_tool"];

#[tokio::test]
async fn a_model_finds_loads_and_calls_through_three_verbs() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    assert_eq!(client.tools().await, VERBS);
    let found = client.call("tool_search", json!({"query": "give the arguments back"})).await;
    let found: Value = serde_json::from_str(text(&found)).unwrap();
    assert_eq!(found["tools"][0]["name"], "odd__echo");
    let called =
        client.call("call_tool", json!({"tool_name": "odd__echo", "arguments": {"n": "3"}})).await;
    assert_eq!(called["result"]["structuredContent"]["arguments"], json!({"n": 3}));
    let direct = client.call("odd__echo", json!({"n": 4})).await;
    assert_eq!(direct["result"]["structuredContent"]["arguments"], json!({"n": 4}));
    assert_eq!(client.tools().await, VERBS, "a load changes nothing here");
    let wrong =
        client.call("call_tool", json!({"tool_name": "odd__echo", "arguments": {"n": []}})).await;
    assert_eq!(wrong["result"]["isError"], true);
    assert!(text(&wrong).contains("integer"), "{wrong}");
    let unknown = client.call("odd__ecko", json!({})).await;
    assert!(text(&unknown).contains("odd__echo"), "{unknown}");
}

#[tokio::test]
async fn any_time_to_wait_will_do() {
    let (_, _, crib) = gateway().await;
    let mut options = Options::default();
    options.start_wait = Duration::MAX;
    let gateway = Gateway::new(crib, options).unwrap();
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    let missed = client.call("nothing", json!({})).await;
    assert!(missed["error"]["message"].as_str().unwrap().contains("Unknown tool"), "{missed}");
}

#[tokio::test]
async fn results_are_passed_on_as_they_came() {
    let (gateway, ..) = gateway().await;
    for (endpoint, name) in [
        (Endpoint::Meta, "odd__rich"),
        (Endpoint::Full, "odd__rich"),
        (Endpoint::Server("odd".into()), "rich"),
    ] {
        let mut client = Client::open(&gateway, endpoint).await;
        client.send("tools/call", json!({"name": name})).await;
        let line = client.read_line().await.unwrap();
        assert!(line.contains(RICH), "{line}");
        let params = json!({"name": name, "_meta": modern()});
        client.send("tools/call", params).await;
        let line = client.read_line().await.unwrap();
        let rest = RICH.strip_prefix('{').unwrap();
        assert!(line.contains(&format!(r#"{{"resultType":"complete",{rest}"#)), "{line}");
    }
}

#[tokio::test]
async fn refusals_failures_and_unknown_tools_keep_their_form() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    let refused = json!({"code": -32042, "message": "not today", "data": {"why": [1]}});
    let call = client.call("call_tool", json!({"tool_name": "odd__refuse", "arguments": {}})).await;
    assert_eq!(call["error"], refused);
    let failed = client.call("odd__fail", json!({})).await;
    assert_eq!((&failed["result"]["isError"], text(&failed)), (&json!(true), "it failed"));
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    assert_eq!(client.call("odd__refuse", json!({})).await["error"], refused);
    let unknown = client.call("nothing", json!({})).await;
    assert_eq!(unknown["error"], json!({"code": -32602, "message": "Unknown tool: nothing"}));
    assert_eq!(client.request("tools/call", json!({})).await["error"]["code"], -32602);
    assert_eq!(client.request("resources/list", json!({})).await["error"]["code"], -32601);
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn where_calls_are_passed_on_arguments_are_not_touched() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    for arguments in [json!({"n": "3", "other": null}), json!({"n": [1]})] {
        let echoed = client.call("odd__echo", arguments.clone()).await;
        assert_eq!(echoed["result"]["structuredContent"]["arguments"], arguments);
    }
}

#[tokio::test]
async fn what_the_client_says_beside_the_arguments_is_passed_on() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Meta);
    let mut meta = modern();
    meta["traceparent"] = json!("00-1-2-03");
    meta["progressToken"] = json!(9);
    let params = json!({"name": "call_tool", "_meta": meta,
        "arguments": {"tool_name": "odd__echo", "arguments": {}}});
    let called = client.request("tools/call", params).await;
    let passed = &called["result"]["structuredContent"]["meta"];
    assert_eq!(*passed, json!({"traceparent": "00-1-2-03"}));
}

#[tokio::test]
async fn progress_comes_in_order_and_before_the_result() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    for stateless in [false, true] {
        let mut meta = if stateless { modern() } else { json!({}) };
        meta["progressToken"] = json!("mine");
        let params = json!({"name": "odd__count", "arguments": {"n": 200}, "_meta": meta});
        let id = client.send("tools/call", params).await;
        for at in 0..200 {
            let note = client.read().await;
            let expected = json!({"progressToken": "mine", "progress": at, "x": 1.0});
            assert_eq!(
                (&note["method"], &note["params"]),
                (&json!("notifications/progress"), &expected)
            );
        }
        assert_eq!(client.read().await["id"], id);
    }
    let silent = client.call("odd__count", json!({"n": 5})).await;
    assert_eq!(text(&silent), "done");
}

#[tokio::test]
async fn a_cancelled_call_ends_and_gets_no_answer() {
    let (gateway, odd, _) = gateway().await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    let id = client.send("tools/call", json!({"name": "odd__block", "arguments": {}})).await;
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    let again = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "odd__echo"}});
    client.write(&again.to_string()).await;
    assert_eq!(client.read().await["error"]["code"], -32600, "the id is taken");
    client.notify("notifications/cancelled", json!({"requestId": id})).await;
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    let dropped = async {
        while odd.cancelled.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, dropped).await.unwrap();
    assert!(gateway.metrics_text().contains(r#"tool="block",outcome="cancelled"} 1"#));
}

#[tokio::test]
async fn in_the_stateless_era_no_request_changes_the_next() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Meta);
    let search = |query: &str| json!({"name": "tool_search", "arguments": {"query": query}, "_meta": modern()});
    let first = client.request("tools/call", search("echo")).await;
    let listed = client.request("tools/list", json!({"_meta": modern()})).await;
    let second = client.request("tools/call", search("echo")).await;
    assert_eq!(first["result"], second["result"]);
    assert!(!text(&second).contains("loaded before"));
    let again = client.request("tools/list", json!({"_meta": modern()})).await;
    assert_eq!(listed["result"], again["result"]);
}

#[tokio::test]
async fn two_clients_have_two_ledgers() {
    let (gateway, ..) = gateway().await;
    let mut one = Client::open(&gateway, Endpoint::Inject).await;
    let mut two = Client::open(&gateway, Endpoint::Inject).await;
    one.send(
        "tools/call",
        json!({"name": "tool_search", "arguments": {"query": "select:odd__echo"}}),
    )
    .await;
    assert_eq!(one.read().await["method"], "notifications/tools/list_changed");
    assert!(one.read().await["result"].is_object());
    assert_eq!(one.tools().await, ["tool_search", "load_tools", "odd__echo"]);
    assert_eq!(two.tools().await, ["tool_search", "load_tools"]);
    let modern = one.request("tools/list", json!({"_meta": modern()})).await;
    assert_eq!(modern["error"]["code"], -32022);
    assert!(modern["error"]["message"].as_str().unwrap().contains("use /mcp"));
}

#[tokio::test]
async fn a_miss_waits_for_servers_that_are_starting_and_a_hit_does_not() {
    let (_, _, crib) = gateway().await;
    let gate = Arc::new(Notify::new());
    let mut slow = Odd::new("slow");
    slow.gate = Some(gate.clone());
    crib.add_soon(slow);
    let mut options = Options::default();
    options.start_wait = LONG;
    let gateway = Gateway::new(crib, options).unwrap();
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    let begun = Instant::now();
    let hit = client.call("tool_search", json!({"query": "select:odd__echo"})).await;
    assert!(text(&hit).contains("odd__echo") && begun.elapsed() < LONG / 2);
    for call in [
        json!({"name": "tool_search", "arguments": {"query": "select:slow__echo"}}),
        json!({"name": "slow__echo", "arguments": {"n": 1}}),
        json!({"name": "load_tools", "arguments": {"group_id": "slow"}}),
    ] {
        client.send("tools/call", call).await;
    }
    let mut full = Client::open(&gateway, Endpoint::Full).await;
    full.send("tools/call", json!({"name": "slow__echo"})).await;
    let mut one = Client::open(&gateway, Endpoint::Server("slow".into())).await;
    one.send("tools/list", json!({})).await;
    // All of them wait: nothing is answered before this.
    for client in [&mut client, &mut full, &mut one] {
        assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    }
    gate.notify_one();
    assert!(text(&full.read().await).contains("arguments"));
    assert_eq!(names(&one.read().await["result"]["tools"])[0], "block");
    for _ in 0..3 {
        let answer = client.read().await;
        let answer = answer["result"].to_string();
        assert!(answer.contains("slow__") || answer.contains("arguments"), "{answer}");
        assert!(!answer.contains("isError"), "{answer}");
    }
}

#[tokio::test]
async fn a_miss_waits_no_longer_than_told() {
    let crib = crib().await;
    let mut slow = Odd::new("slow");
    slow.gate = Some(Arc::new(Notify::new()));
    crib.add_soon(slow);
    let mut options = Options::default();
    options.start_wait = Duration::from_millis(50);
    let gateway = Gateway::new(crib, options).unwrap();
    assert_eq!(gateway.starting(), ["slow"]);
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    let miss = client.call("tool_search", json!({"query": "send mail"})).await;
    assert!(text(&miss).contains("still starting"), "{miss}");
}
