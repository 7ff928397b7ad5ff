//! A toolset that does whatever a server might, and a client that writes and reads real bytes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod asking;
mod odd;
mod offered;
mod served;
mod shelf;

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use toolcrib_core::{Naming, Settings};
use toolcrib_gateway::{Endpoint, Gateway, GatewayError, Options};
use toolcrib_runtime::Crib;

#[allow(unused_imports, reason = "each test file uses a part")]
pub use asking::Asking;
#[allow(unused_imports, reason = "each test file uses a part")]
pub use odd::{Odd, RICH};
#[allow(unused_imports, reason = "each test file uses a part")]
pub use offered::{Offered, VENDOR, raw};
#[allow(unused_imports, reason = "each test file uses a part")]
pub use served::{Served, answer, events};
#[allow(unused_imports, reason = "each test file uses a part")]
pub use shelf::Shelf;

pub const LONG: Duration = Duration::from_secs(60);

pub async fn crib() -> Crib {
    Crib::builder(Settings::default()).naming(Naming::Gateway).build().await.unwrap()
}

/// A gateway over one odd server called `odd`.
pub async fn gateway() -> (Gateway, Odd, Crib) {
    let crib = crib().await;
    let odd = Odd::new("odd");
    crib.add(odd.clone()).await;
    (Gateway::new(crib.clone(), Options::default()).unwrap(), odd, crib)
}

/// The `_meta` of a request of the stateless era.
pub fn modern() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A client on stdio.
pub struct Client {
    to: DuplexStream,
    from: Lines<BufReader<DuplexStream>>,
    pub serving: JoinHandle<Result<(), GatewayError>>,
    shutdown: Option<oneshot::Sender<()>>,
    next: u64,
}

impl Client {
    pub fn connect(gateway: &Gateway, endpoint: Endpoint) -> Self {
        let (to, their_input) = tokio::io::duplex(1 << 20);
        let (their_output, from) = tokio::io::duplex(1 << 20);
        let (shutdown, ended) = oneshot::channel::<()>();
        let gateway = gateway.clone();
        let serving = tokio::spawn(async move {
            let ended = async move {
                if ended.await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            gateway.serve_on(their_input, their_output, endpoint, ended).await
        });
        let from = BufReader::new(from).lines();
        Self { to, from, serving, shutdown: Some(shutdown), next: 0 }
    }

    /// Connects and initializes.
    pub async fn open(gateway: &Gateway, endpoint: Endpoint) -> Self {
        let mut client = Self::connect(gateway, endpoint);
        client.request("initialize", json!({"protocolVersion": "2025-06-18"})).await;
        client.notify("notifications/initialized", json!({})).await;
        client
    }

    pub async fn write(&mut self, text: &str) {
        self.to.write_all(text.as_bytes()).await.unwrap();
        self.to.write_all(b"\n").await.unwrap();
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
            .await;
    }

    /// Sends a request; its id.
    pub async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.write(&request.to_string()).await;
        self.next
    }

    pub async fn read_line(&mut self) -> Option<String> {
        timeout(LONG, self.from.next_line()).await.expect("an answer in time").unwrap()
    }

    pub async fn read(&mut self) -> Value {
        serde_json::from_str(&self.read_line().await.expect("the connection is open")).unwrap()
    }

    /// The whole answer to a request; nothing else may come before it.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        let answer = self.read().await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub async fn call(&mut self, name: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({"name": name, "arguments": arguments})).await
    }

    pub async fn tools(&mut self) -> Vec<String> {
        let listed = self.request("tools/list", json!({})).await;
        names(&listed["result"]["tools"])
    }

    pub fn shut_down(&mut self) {
        let _ = self.shutdown.take().unwrap().send(());
    }

    /// Ends the input.
    pub async fn close(&mut self) {
        self.to.shutdown().await.unwrap();
    }
}

pub fn names(tools: &Value) -> Vec<String> {
    let tools = tools.as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// The text of a result.
pub fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

pub fn rpc(id: u64, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}
