//! The gateway as a client over stdio sees it.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Client, LONG, Odd, RICH, crib, gateway, modern, names, text};
use tokio::sync::Notify;
use tokio::time::timeout;
use toolcrib_gateway::{Endpoint, Gateway, GatewayError, Options};

const VERBS: [&str; 3] = ["tool_search", "load_tools", "call_tool"];

#[tokio::test]
async fn a_version_is_agreed_upon() {
    let (gateway, ..) = gateway().await;
    for (asked, agreed) in [
        (json!("2024-11-05"), "2024-11-05"),
        (json!("2025-11-25"), "2025-11-25"),
        (json!("2026-07-28"), "2025-11-25"),
        (json!("1.0"), "2025-11-25"),
        (json!(7), "2025-11-25"),
    ] {
        let mut client = Client::connect(&gateway, Endpoint::Meta);
        let answer = client.request("initialize", json!({"protocolVersion": asked})).await;
        let result = &answer["result"];
        assert_eq!(result["protocolVersion"], agreed);
        assert_eq!(result["serverInfo"]["name"], "toolcrib");
        assert_eq!(result["capabilities"]["tools"]["listChanged"], true);
        let instructions = result["instructions"].as_str().unwrap();
        assert!(instructions.contains("mcp:odd") && instructions.len() < 1_800, "{instructions}");
    }
}

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
async fn where_calls_are_passed_on_arguments_are_not_touched() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    for arguments in [json!({"n": "3", "other": null}), json!({"n": [1]})] {
        let echoed = client.call("odd__echo", arguments.clone()).await;
        assert_eq!(echoed["result"]["structuredContent"]["arguments"], arguments);
    }
}

#[tokio::test]
async fn one_server_has_its_own_words_and_an_unknown_one_is_named() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Server("odd".into()));
    let opened = client.request("initialize", json!({})).await;
    assert_eq!(opened["result"]["instructions"], "The odd server.");
    let client = Client::connect(&gateway, Endpoint::Server("other".into()));
    match client.serving.await.unwrap() {
        Err(GatewayError::UnknownServer { server, known }) => {
            assert_eq!((&*server, &*known), ("other", "odd"));
        }
        other => panic!("{other:?}"),
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
async fn requests_of_the_stateless_era_carry_what_they_need() {
    let (gateway, ..) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Meta);
    let found = client.request("server/discover", json!({"_meta": modern()})).await;
    let result = &found["result"];
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(
        (&result["resultType"], &result["cacheScope"]),
        (&json!("complete"), &json!("private"))
    );
    assert!(result["ttlMs"].as_u64().is_some() && result["instructions"].as_str().is_some());
    let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "toolcrib");
    let listed = client.request("tools/list", json!({"_meta": modern()})).await;
    let result = &listed["result"];
    assert_eq!(names(&result["tools"]), VERBS);
    assert_eq!(result["resultType"], "complete");
    assert!(result["ttlMs"].as_u64().is_some() && result["cacheScope"].is_string());
    let mut without = modern();
    without.as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    let refused = client.request("tools/list", json!({"_meta": without})).await;
    assert_eq!(refused["error"]["code"], -32602);
    let mut other = modern();
    other["io.modelcontextprotocol/protocolVersion"] = json!("2030-01-01");
    let refused = client.request("tools/list", json!({"_meta": other})).await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"]["requested"], "2030-01-01");
    assert_eq!(refused["error"]["data"]["supported"][0], "2026-07-28");
    let gone = client.request("ping", json!({"_meta": modern()})).await;
    assert_eq!(gone["error"]["code"], -32601);
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

#[tokio::test]
async fn a_bad_line_is_answered_and_the_connection_goes_on() {
    let (_, _, crib) = gateway().await;
    let mut options = Options::default();
    options.line_bytes = 200;
    let gateway = Gateway::new(crib, options).unwrap();
    let mut client = Client::connect(&gateway, Endpoint::Meta);
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "x".repeat(500));
    for (line, id, code) in [
        ("not json", Value::Null, -32700),
        ("[]", Value::Null, -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, Value::Null, -32600),
        ("{}", Value::Null, -32600),
        (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":[]}"#, json!("a"), -32602),
        (&long, Value::Null, -32600),
    ] {
        client.write(line).await;
        let answer = client.read().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{line}");
    }
    client.write(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#).await;
    client.write("\r\n").await;
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn at_the_end_of_the_input_what_runs_may_finish() {
    let (_, odd, crib) = gateway().await;
    let mut options = Options::default();
    options.drain = Duration::from_millis(100);
    let gateway = Gateway::new(crib, options).unwrap();
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    client.send("tools/call", json!({"name": "odd__block"})).await;
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    let id =
        client.send("tools/call", json!({"name": "odd__count", "arguments": {"n": 500}})).await;
    client.close().await;
    assert_eq!(client.read().await["id"], id, "the other one never ends");
    assert_eq!(client.read_line().await, None);
    client.serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn more_requests_than_may_run_wait_their_turn() {
    let (_, _, crib) = gateway().await;
    let mut options = Options::default();
    options.requests_in_flight = 2;
    let gateway = Gateway::new(crib, options).unwrap();
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    let params = json!({"name": "odd__count", "arguments": {"n": 20}});
    let mut ids = Vec::new();
    for _ in 0..50 {
        ids.push(client.send("tools/call", params.clone()).await);
    }
    let mut answered = Vec::new();
    for _ in 0..50 {
        answered.push(client.read().await["id"].as_u64().unwrap());
    }
    answered.sort_unstable();
    assert_eq!(answered, ids);
}

#[tokio::test]
async fn what_waits_its_turn_keeps_nothing_else_waiting() {
    let (_, odd, crib) = gateway().await;
    let mut options = Options::default();
    options.requests_in_flight = 1;
    let gateway = Gateway::new(crib, options).unwrap();
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    let first = client.send("tools/call", json!({"name": "odd__block"})).await;
    let second = client.send("tools/call", json!({"name": "odd__block"})).await;
    let third = client.send("tools/call", json!({"name": "odd__rich"})).await;
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    for id in [second, first] {
        client.notify("notifications/cancelled", json!({"requestId": id})).await;
    }
    assert_eq!(client.read().await["id"], third);
}

#[tokio::test]
async fn whoever_sends_nonsense_and_reads_nothing_is_not_listened_to_for_ever() {
    let (gateway, ..) = gateway().await;
    let (mut to, input) = tokio::io::duplex(1 << 16);
    let (output, _from) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(async move {
        gateway.serve_on(input, output, Endpoint::Meta, std::future::pending()).await
    });
    // Each line of two bytes is answered with more than a hundred.
    let nonsense = "x\n".repeat(1 << 20);
    let written = tokio::io::AsyncWriteExt::write_all(&mut to, nonsense.as_bytes());
    assert!(timeout(Duration::from_secs(5), written).await.is_err(), "all of it was taken in");
    serving.abort();
}
