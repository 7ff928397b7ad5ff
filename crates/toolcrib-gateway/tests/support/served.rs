//! A gateway on a port of its own, and what its clients read.

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use toolcrib_gateway::{Gateway, GatewayError, HttpOptions};

use super::{LONG, modern, rpc};

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
        let name = match method {
            "resources/read" => &params["uri"],
            _ if method.starts_with("tasks/") => &params["taskId"],
            _ => &params["name"],
        };
        if let Some(name) = name.as_str() {
            request = request.header("mcp-name", name);
        }
        request.body(rpc(1, method, params))
    }
}

/// Status and JSON of an answer: of the last message, if they are several.
pub async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let mut response = request.send().await.unwrap();
    let status = response.status().as_u16();
    if response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream") {
        return (status, events(&mut response, usize::MAX).await.pop().unwrap_or_default());
    }
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
            let data = event.unwrap().data;
            // Some have but an id.
            if !data.is_empty() {
                out.push(serde_json::from_str(&data).unwrap());
            }
        }
    }
    out
}
