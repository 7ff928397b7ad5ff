//! The server over HTTP: what the conformance suite does not look at.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use toolcrib_fixture::{Eras, Server, http};

async fn serve() -> String {
    serve_as(Eras::Both).await
}

async fn serve_as(eras: Eras) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(http::serve(Arc::new(Server::new(None).speaking(eras)), listener));
    url
}

async fn post(url: &str, headers: &[(&'static str, &str)], message: Value) -> Response {
    let mut request = Client::new().post(url).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(message.to_string()).send().await.unwrap()
}

async fn body(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

async fn begin(url: &str) -> String {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}});
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let response = post(url, &[], message).await;
    response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
}

fn call(id: u64, name: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name}})
}

#[tokio::test]
async fn sessions_are_kept_apart() {
    let url = serve().await;
    let (one, other) = (begin(&url).await, begin(&url).await);
    let mut asking = post(&url, &[("mcp-session-id", &one)], call(1, "test_elicitation")).await;
    let mut seen = String::new();
    while !seen.contains("elicitation/create") {
        seen.push_str(&String::from_utf8_lossy(&asking.chunk().await.unwrap().unwrap()));
    }
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}});
    let refused = post(&url, &[("mcp-session-id", &other)], answer.clone()).await;
    assert_eq!(refused.status(), 400, "nothing was asked of the other one");
    let taken = post(&url, &[("mcp-session-id", &one)], answer).await;
    assert_eq!(taken.status(), 202);
    assert!(asking.text().await.unwrap().contains("action=decline"));
    let gone = Client::new().delete(&url).header("mcp-session-id", &one).send().await.unwrap();
    assert_eq!(gone.status(), 204);
    assert_eq!(post(&url, &[("mcp-session-id", &one)], call(2, "greet")).await.status(), 404);
    assert_eq!(post(&url, &[("mcp-session-id", &other)], call(2, "greet")).await.status(), 200);
}

#[tokio::test]
async fn a_request_that_stands_alone_says_everything_twice() {
    let url = serve().await;
    let mut message = call(1, "test_header_parameters");
    message["params"]["arguments"] = json!({"region": "eu"});
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let all = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "test_header_parameters"),
        ("mcp-param-region", "eu"),
    ];
    let answer = body(post(&url, &all, message.clone()).await).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    for at in 0..all.len() {
        let mut fewer = all.to_vec();
        let (missing, _) = fewer.remove(at);
        let response = post(&url, &fewer, message.clone()).await;
        assert_eq!(response.status(), 400, "{missing}");
        assert_eq!(body(response).await["error"]["code"], -32020, "{missing}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_stops_its_request() {
    let url = serve().await;
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call")];
    let alone = |name: &str, arguments: Value| {
        let mut message = call(1, name);
        message["params"]["arguments"] = arguments;
        message["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        message
    };
    let slow = [headers[0], headers[1], ("mcp-name", "test_slow")];
    let leaving = post(&url, &slow, alone("test_slow", json!({"ms": 60_000})));
    let left = tokio::time::timeout(std::time::Duration::from_millis(300), leaving).await;
    assert!(left.is_err());
    let stopped = [headers[0], headers[1], ("mcp-name", "test_stopped_calls")];
    for tries in 0.. {
        let answer = body(post(&url, &stopped, alone("test_stopped_calls", json!({}))).await).await;
        if answer["result"]["content"][0]["text"] == "1" {
            break;
        }
        assert!(tries < 100, "it still runs: {answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_server_of_one_era_refuses_the_other() {
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }});
    let headers = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "server/discover")];
    let old = serve_as(Eras::Sessions).await;
    assert_eq!(post(&old, &headers, discover.clone()).await.status(), 400);
    begin(&old).await;

    let new = serve_as(Eras::Stateless).await;
    assert_eq!(post(&new, &headers, discover).await.status(), 200);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let refused = post(&new, &[], message).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(body(refused).await["error"]["code"], -32022);
    let get = Client::new().get(&new).header("accept", "text/event-stream");
    assert_eq!(get.header("mcp-session-id", "x").send().await.unwrap().status(), 405);
}
