//! The server over stdio, in both eras.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use tokio::time::{Duration, timeout};
use toolcrib_fixture::{Eras, Server, stdio};

struct Client {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
}

impl Client {
    fn new(page_size: Option<usize>) -> Self {
        Self::of(Server::new(page_size))
    }

    fn of(server: Server) -> Self {
        let (near, far) = tokio::io::duplex(1 << 20);
        let (input, output) = tokio::io::split(far);
        tokio::spawn(stdio::serve(Arc::new(server), input, output));
        let (output, input) = tokio::io::split(near);
        Self { input, output: BufReader::new(output).lines() }
    }

    /// A client whose session has begun.
    async fn in_session() -> Self {
        let mut client = Self::new(None);
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "test", "version": "1"},
        });
        let greeting = client.ask(0, "initialize", params).await;
        assert_eq!(greeting["result"]["protocolVersion"], "2025-11-25");
        client.send(json!({"method": "notifications/initialized"})).await;
        client
    }

    async fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = "2.0".into();
        self.input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = timeout(Duration::from_secs(10), self.output.next_line()).await;
        serde_json::from_str(&line.expect("an answer in time").unwrap().unwrap()).unwrap()
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) -> Value {
        self.send(json!({"id": id, "method": method, "params": params})).await;
        self.next().await
    }

    /// Asks without a session.
    async fn ask_alone(&mut self, id: u64, method: &str, mut params: Value) -> Value {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        });
        self.ask(id, method, params).await
    }
}

fn text(message: &Value) -> &str {
    message["result"]["content"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_session_is_asked_by_a_request() {
    let mut client = Client::in_session().await;
    let name = "test_input_required_result_multi_round";
    let first = client.ask(1, "tools/call", json!({"name": name})).await;
    assert_eq!(first["method"], "elicitation/create");
    let answer = json!({"action": "accept", "content": {"name": "Ada"}});
    client.send(json!({"id": first["id"], "result": answer})).await;
    let second = client.next().await;
    let answer = json!({"action": "accept", "content": {"color": "blue"}});
    client.send(json!({"id": second["id"], "result": answer})).await;
    assert_eq!(text(&client.next().await), r#""Ada" likes "blue""#);
}

#[tokio::test]
async fn without_a_session_the_same_tool_asks_by_its_result() {
    let mut client = Client::new(None);
    let name = "test_input_required_result_multi_round";
    let first = client.ask_alone(1, "tools/call", json!({"name": name})).await;
    assert_eq!(first["result"]["resultType"], "input_required");
    let params = json!({
        "name": name,
        "inputResponses": {"step1": {"action": "accept", "content": {"name": "Ada"}}},
        "requestState": first["result"]["requestState"],
    });
    let second = client.ask_alone(2, "tools/call", params).await;
    assert!(second["result"]["inputRequests"]["step2"].is_object(), "{second}");
    let params = json!({
        "name": name,
        "inputResponses": {"step2": {"action": "accept", "content": {"color": "blue"}}},
        "requestState": second["result"]["requestState"],
    });
    assert_eq!(text(&client.ask_alone(3, "tools/call", params).await), r#""Ada" likes "blue""#);
}

#[tokio::test]
async fn a_client_is_asked_only_what_it_says_it_can() {
    let mut client = Client::new(None);
    let refused = client.ask_alone(1, "tools/call", json!({"name": "test_sampling"})).await;
    assert_eq!(refused["error"]["code"], -32021);
    assert_eq!(refused["error"]["data"], json!({"requiredCapabilities": {"sampling": {}}}));
}

#[tokio::test]
async fn changes_are_told_in_either_era() {
    let mut client = Client::in_session().await;
    let params = json!({"uri": "test://watched-resource"});
    client.ask(1, "resources/subscribe", params.clone()).await;
    let change = json!({"name": "test_trigger_resource_change"});
    client.send(json!({"id": 2, "method": "tools/call", "params": change})).await;
    let mut told = [client.next().await, client.next().await];
    told.sort_by_key(|message| message["id"].is_number());
    assert_eq!(told[0]["method"], "notifications/resources/updated");
    assert_eq!(told[0]["params"], params);

    let mut client = Client::new(None);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let acknowledged = client.ask_alone(7, "subscriptions/listen", filter).await;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    client.ask_alone(8, "tools/call", json!({"name": "test_trigger_prompt_change"})).await;
    let call = client.ask_alone(9, "tools/call", json!({"name": "test_trigger_tool_change"}));
    let mut told = [call.await, client.next().await];
    told.sort_by_key(|message| message["id"].is_number());
    assert_eq!(told[0]["method"], "notifications/tools/list_changed");
    assert_eq!(told[0]["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 7);
}

#[tokio::test]
async fn a_call_can_be_stopped() {
    let mut client = Client::in_session().await;
    let slow = json!({"name": "test_slow", "arguments": {"ms": 60_000}});
    client.send(json!({"id": 1, "method": "tools/call", "params": slow})).await;
    client.ask(2, "ping", json!({})).await;
    client.send(json!({"method": "notifications/cancelled", "params": {"requestId": 1}})).await;
    for id in 3.. {
        let answer = client.ask(id, "tools/call", json!({"name": "test_stopped_calls"})).await;
        assert_eq!(answer["id"], id, "a stopped call is not answered");
        if text(&answer) == "1" {
            break;
        }
        assert!(id < 1000, "it was never stopped");
    }
}

#[tokio::test]
async fn lists_come_in_pages_if_told() {
    let mut client = Client::new(Some(2));
    let (mut cursor, mut sizes) = (Value::Null, Vec::new());
    for id in 1.. {
        let mut params = json!({});
        if !cursor.is_null() {
            params["cursor"] = cursor;
        }
        let page = client.ask_alone(id, "prompts/list", params).await;
        sizes.push(page["result"]["prompts"].as_array().unwrap().len());
        cursor = page["result"]["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(sizes, [2, 2, 1]);
    let wrong = client.ask_alone(9, "prompts/list", json!({"cursor": "x"})).await;
    assert_eq!(wrong["error"]["code"], -32602);
}

#[tokio::test]
async fn a_server_of_one_era_refuses_the_other() {
    let mut old = Client::of(Server::new(None).speaking(Eras::Sessions));
    let refused = old.ask_alone(1, "server/discover", json!({})).await;
    assert_eq!(refused["error"]["code"], -32600);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let greeting = old.ask(2, "initialize", params.clone()).await;
    assert_eq!(greeting["result"]["protocolVersion"], "2025-11-25");
    // It does not look for versions of requests.
    let answer = old.ask_alone(3, "tools/call", json!({"name": "test_simple_text"})).await;
    assert!(answer["result"].get("resultType").is_none(), "{answer}");

    let mut new = Client::of(Server::new(None).speaking(Eras::Stateless));
    let refused = new.ask(1, "initialize", params).await;
    assert_eq!(refused["error"]["code"], -32022);
    assert_eq!(refused["error"]["data"]["supported"], json!(["2026-07-28"]));
    let discovered = new.ask_alone(2, "server/discover", json!({})).await;
    assert_eq!(discovered["result"]["supportedVersions"], json!(["2026-07-28"]));
}
