//! The gateway as a client over stdio sees it.

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Client, LONG, gateway, modern, names};
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
async fn whoever_listens_may_still_call() {
    let (_, _, crib) = gateway().await;
    let mut options = Options::default();
    options.requests_in_flight = 1;
    let gateway = Gateway::new(crib, options).unwrap();
    let mut client = Client::connect(&gateway, Endpoint::Full);
    let wanted = json!({"toolsListChanged": true});
    for _ in 0..2 {
        let params = json!({"notifications": wanted, "_meta": support::modern()});
        client.send("subscriptions/listen", params).await;
        let told = client.read().await;
        assert!(told.get("id").is_none(), "{told}");
    }
    let params = json!({"name": "odd__rich", "_meta": support::modern()});
    assert!(client.request("tools/call", params).await["result"].is_object());
}

#[tokio::test]
async fn whoever_sends_nonsense_and_reads_nothing_is_not_listened_to_for_ever() {
    let (gateway, ..) = gateway().await;
    let (mut to, input) = tokio::io::duplex(1 << 16);
    let (output, _from) = tokio::io::duplex(1 << 16);
    let serving = tokio::spawn(async move {
        gateway.serve_on(input, output, Endpoint::Meta, std::future::pending()).await
    });
    // Each line is answered with one as long.
    let nonsense = format!("\"{}\"\n", "x".repeat(100_000)).repeat(400);
    let written = tokio::io::AsyncWriteExt::write_all(&mut to, nonsense.as_bytes());
    assert!(timeout(Duration::from_secs(3), written).await.is_err(), "all of it was taken in");
    serving.abort();
}

#[tokio::test]
async fn whoever_stops_serving_leaves_nothing_behind() {
    let (gateway, odd, _) = gateway().await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    client.send("tools/call", json!({"name": "odd__block"})).await;
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    client.serving.abort();
    assert_eq!(client.read_line().await, None, "the output is closed");
    let dropped = async {
        while odd.cancelled.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, dropped).await.unwrap();
}
