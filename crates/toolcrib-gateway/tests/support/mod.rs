//! A toolset that does whatever a server might, and a client that writes and reads real bytes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use toolcrib_core::{Annotations, GroupId, Naming, Schema, Settings, ToolName, ToolSpec};
use toolcrib_gateway::{Endpoint, Gateway, GatewayError, HttpOptions, Options};
use toolcrib_runtime::{CallError, Crib, Invocation, Listing, RpcError, ToolResult, Toolset};

pub const LONG: Duration = Duration::from_secs(60);

/// A result with something of everything, spelled oddly.
pub const RICH: &str = r#"{ "content":[{"type":"text","text":"a","x-new":1.0},{"type":"image","data":"aGk=","mimeType":"image/png"}],"structuredContent":{"n":12345678901234567890123},"_meta":{"k":1},"vendor":[] }"#;

/// A server of the given name with tools that misbehave.
#[derive(Clone)]
pub struct Odd {
    pub name: &'static str,
    pub extra_tools: usize,
    pub cancelled: Arc<AtomicUsize>,
    pub blocking: Arc<Notify>,
    pub release: Arc<Notify>,
    /// The list is given only after this.
    pub gate: Option<Arc<Notify>>,
}

impl Odd {
    pub fn new(name: &'static str) -> Self {
        let (cancelled, blocking, release) = Default::default();
        Self { name, extra_tools: 0, cancelled, blocking, release, gate: None }
    }
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Toolset for Odd {
    fn id(&self) -> GroupId {
        GroupId::server(self.name)
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        Box::pin(async {
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            let tool = |name: &str, about: &str| {
                let schema: Schema = json!({"type": "object",
                    "properties": {"n": {"type": "integer"}}, "required": []})
                .into();
                ToolSpec::new(ToolName::mcp(self.name, name), schema).with_description(about)
            };
            let mut tools = vec![
                tool("echo", "Gives the arguments back."),
                tool("rich", "A result with everything in it.").with_extra(
                    r#"{"title":"Rich","outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"x":1},"_meta":{"v":1}}"#,
                ),
                tool("count", "Counts aloud, with progress."),
                tool("block", "Never answers."),
                tool("refuse", "Refuses to be called."),
                tool("wait", "Answers when it is let."),
                tool("fail", "Fails.").with_annotations(Annotations {
                    read_only: Some(true),
                    ..Default::default()
                }),
            ];
            tools
                .extend((0..self.extra_tools).map(|n| tool(&format!("extra_{n:05}"), "One more.")));
            let mut listing = Listing::new(tools);
            listing.description = Some(format!("The {} server.", self.name));
            Ok(listing)
        })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async move {
            let raw = |text: String| RawValue::from_string(text).unwrap();
            match invocation.tool.tool() {
                "echo" => {
                    let meta = invocation.caller.meta().map(RawValue::get).unwrap_or("null");
                    let meta: Value = serde_json::from_str(meta).unwrap();
                    Ok(ToolResult::data(json!({"arguments": invocation.arguments, "meta": meta})))
                }
                "rich" => Ok(ToolResult::from_json(raw(RICH.to_owned()))),
                "count" => {
                    let n = invocation.arguments["n"].as_u64().unwrap_or(0);
                    for at in 0..n {
                        if let Some(listener) = invocation.caller.listener() {
                            let params =
                                format!(r#"{{"progressToken":0,"progress":{at},"x":1.0}}"#);
                            listener.hear("notifications/progress", &raw(params));
                        }
                        if at % 7 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    Ok(ToolResult::text("done"))
                }
                "block" => {
                    let _noted = OnDrop(self.cancelled.clone());
                    self.blocking.notify_one();
                    std::future::pending().await
                }
                "wait" => {
                    self.blocking.notify_one();
                    self.release.notified().await;
                    Ok(ToolResult::text("waited"))
                }
                "refuse" => Ok(ToolResult::refused(
                    RpcError::new(-32042, "not today").with_data(&json!({"why": [1]})),
                )),
                "fail" => Err(CallError::Tell("it failed".to_owned())),
                _ => Ok(ToolResult::text("extra")),
            }
        })
    }
}

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

/// A gateway on a port of its own.
pub struct Served {
    pub url: String,
    client: reqwest::Client,
    pub serving: JoinHandle<Result<(), GatewayError>>,
    shutdown: Option<oneshot::Sender<()>>,
}

impl Served {
    pub async fn start(gateway: &Gateway, options: HttpOptions) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (shutdown, ended) = oneshot::channel::<()>();
        let gateway = gateway.clone();
        let serving = tokio::spawn(async move {
            let ended = async move {
                let _ = ended.await;
            };
            gateway.serve_http(listener, options, ended).await
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { url, client, serving, shutdown: Some(shutdown) }
    }

    pub fn shut_down(&mut self) {
        let _ = self.shutdown.take().unwrap().send(());
    }

    pub fn post(&self, path: &str) -> reqwest::RequestBuilder {
        self.client
            .post(format!("{}{path}", self.url))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .timeout(LONG)
    }

    pub fn other(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url)).timeout(LONG)
    }

    /// Opens a session; its id.
    pub async fn session(&self, path: &str) -> String {
        let body = rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
        let response = self.post(path).body(body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
    }

    /// A request in a session.
    pub fn within(
        &self,
        path: &str,
        session: &str,
        method: &str,
        params: Value,
    ) -> reqwest::RequestBuilder {
        self.post(path).header("mcp-session-id", session).body(rpc(1, method, params))
    }

    /// A request of the stateless era, with all it needs.
    pub fn modern(&self, path: &str, method: &str, mut params: Value) -> reqwest::RequestBuilder {
        for (key, value) in modern().as_object().unwrap() {
            params["_meta"][key] = value.clone();
        }
        let mut request = self
            .post(path)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        if let Some(name) = params["name"].as_str() {
            request = request.header("mcp-name", name);
        }
        request.body(rpc(1, method, params))
    }
}

pub fn rpc(id: u64, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// Status and JSON of an answer.
pub async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let body = response.text().await.unwrap();
    (status, serde_json::from_str(&body).unwrap_or_else(|_| Value::from(body)))
}

/// The messages of a stream of events, up to `most` of them.
pub async fn events(response: &mut reqwest::Response, most: usize) -> Vec<Value> {
    let mut read = toolcrib_wire::Events::new(1 << 20);
    let mut out = Vec::new();
    while out.len() < most {
        match timeout(LONG, response.chunk()).await.expect("an event in time").unwrap() {
            Some(bytes) => read.push(&bytes),
            None => break,
        }
        while let Some(event) = read.next() {
            out.push(serde_json::from_str(&event.unwrap().data).unwrap());
        }
    }
    out
}
