//! An MCP client over HTTP, of either era, that answers what it is asked.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use serde_json::{Value, json};
use toolcrib_wire::version::{header, meta};
use toolcrib_wire::{Era, Events};

/// Rounds of questions that one call may take.
const MOST_ROUNDS: usize = 5;

const MOST_BYTES: usize = 256 << 20;

/// How the gateway is spoken to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// `/mcp`, by `call_tool`.
    Verbs,
    /// `/mcp/full`, by the tools' own names.
    Full,
}

/// The eras take turns.
pub(crate) fn era_of(number: usize) -> Era {
    [Era::Sessions, Era::Stateless][number % 2]
}

/// What came of a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The text of its result.
    Said(String),
    /// The reason it gives for having none.
    Failed(String),
}

/// One client. It says its own name to whatever asks it.
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    era: Era,
    way: Way,
    name: String,
    capabilities: Value,
    session: Option<String>,
    last: u64,
}

impl Client {
    pub(crate) async fn connect(
        address: SocketAddr,
        era: Era,
        way: Way,
        name: String,
        can_be_asked: bool,
    ) -> anyhow::Result<Self> {
        let url =
            format!("http://{address}{}", if way == Way::Verbs { "/mcp" } else { "/mcp/full" });
        let http = reqwest::Client::builder().no_proxy().build()?;
        let capabilities = if can_be_asked { json!({"elicitation": {}}) } else { json!({}) };
        let mut client = Self { http, url, era, way, name, capabilities, session: None, last: 0 };
        if era == Era::Sessions {
            let params = json!({
                "protocolVersion": era.newest(),
                "capabilities": client.capabilities,
                "clientInfo": {"name": client.name, "version": "1"},
            });
            let greeting = client.request("initialize", params).await.context("initialize")?;
            anyhow::ensure!(greeting.is_ok(), "no session: {greeting:?}");
            client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        }
        Ok(client)
    }

    /// Calls a tool of a server and reads the text of the result.
    pub(crate) async fn call(
        &mut self,
        server: &str,
        tool: &str,
        arguments: Value,
    ) -> anyhow::Result<Answer> {
        let name = format!("{server}__{tool}");
        let mut params = match self.way {
            Way::Full => json!({"name": name, "arguments": arguments}),
            Way::Verbs => json!({
                "name": "call_tool",
                "arguments": {"tool_name": name, "arguments": arguments},
            }),
        };
        for _ in 0..MOST_ROUNDS {
            let mut result = match self.request("tools/call", params.clone()).await? {
                Ok(result) => result,
                Err(error) => return Ok(Answer::Failed(error["message"].to_string())),
            };
            if result["resultType"] == "input_required" {
                let asked = result["inputRequests"].as_object().cloned().unwrap_or_default();
                let answers = asked.into_iter().map(|(key, _)| (key, self.answer()));
                params["inputResponses"] = answers.collect();
                params["requestState"] = result["requestState"].clone();
                continue;
            }
            let is_error = result["isError"] == true;
            let text = text_of(result.get_mut("content").map(Value::take).unwrap_or_default());
            return Ok(if is_error { Answer::Failed(text) } else { Answer::Said(text) });
        }
        bail!("{name} asks again and again")
    }

    /// Ends its session.
    pub(crate) async fn leave(self) -> anyhow::Result<()> {
        if let Some(session) = &self.session {
            let request = self.http.delete(&self.url).header(header::SESSION_ID, session);
            request.header(header::PROTOCOL_VERSION, self.era.newest()).send().await?;
        }
        Ok(())
    }

    /// What it answers a question with.
    fn answer(&self) -> Value {
        json!({"action": "accept", "content": {"username": self.name, "email": "a@example.com"}})
    }

    async fn request(
        &mut self,
        method: &str,
        mut params: Value,
    ) -> anyhow::Result<Result<Value, Value>> {
        self.last += 1;
        let id = self.last;
        if self.era == Era::Stateless {
            params["_meta"] = json!({
                meta::PROTOCOL_VERSION: self.era.newest(),
                meta::CLIENT_INFO: {"name": self.name, "version": "1"},
                meta::CLIENT_CAPABILITIES: self.capabilities,
            });
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let mut response = self.post(&message).await?;
        if let Some(session) = response.headers().get(header::SESSION_ID) {
            self.session = Some(session.to_str()?.to_owned());
        }
        let is_stream = response.headers().get(CONTENT_TYPE).is_some_and(|kind| {
            kind.to_str().is_ok_and(|kind| kind.starts_with("text/event-stream"))
        });
        if !is_stream {
            let status = response.status();
            let body = response.bytes().await?;
            let answer = serde_json::from_slice(&body).with_context(|| {
                let begin = String::from_utf8_lossy(&body[..body.len().min(300)]);
                format!("{status}: {begin}")
            })?;
            return outcome(id, answer);
        }
        let mut events = Events::new(MOST_BYTES);
        while let Some(bytes) = response.chunk().await? {
            events.push(&bytes);
            while let Some(event) = events.next() {
                let data = event?.data;
                // Only a place to come back to.
                if data.is_empty() {
                    continue;
                }
                let message: Value = serde_json::from_str(&data)?;
                match (message.get("method"), message.get("id")) {
                    (Some(_), Some(asked)) => {
                        let answer =
                            json!({"jsonrpc": "2.0", "id": asked, "result": self.answer()});
                        self.post(&answer).await?;
                    }
                    (Some(_), None) => {}
                    (None, _) => return outcome(id, message),
                }
            }
        }
        bail!("the stream ended without an answer")
    }

    async fn post(&self, message: &Value) -> anyhow::Result<reqwest::Response> {
        let mut request = self.http.post(&self.url).timeout(Duration::from_secs(120));
        request = request.header(ACCEPT, "application/json, text/event-stream");
        request = request.header(CONTENT_TYPE, "application/json").body(message.to_string());
        if let Some(session) = &self.session {
            request = request.header(header::SESSION_ID, session);
        }
        if self.era == Era::Stateless || self.session.is_some() {
            request = request.header(header::PROTOCOL_VERSION, self.era.newest());
        }
        if self.era == Era::Stateless {
            let method = message["method"].as_str().unwrap_or_default();
            request = request.header(header::METHOD, method);
            if let Some(name) = message["params"]["name"].as_str() {
                request = request.header(header::NAME, name);
            }
        }
        Ok(request.send().await?)
    }
}

/// The text of a result's content, which may be long and is not copied.
fn text_of(content: Value) -> String {
    let Value::Array(blocks) = content else { return String::new() };
    let mut texts =
        blocks.into_iter().filter_map(|mut block| match block.get_mut("text")?.take() {
            Value::String(text) => Some(text),
            _ => None,
        });
    let first = texts.next().unwrap_or_default();
    texts.fold(first, |all, text| all + "\n" + &text)
}

fn outcome(id: u64, mut answer: Value) -> anyhow::Result<Result<Value, Value>> {
    if answer["id"] != id {
        bail!("the answer to {id} has the id {}: {answer}", answer["id"]);
    }
    match answer.get_mut("error") {
        Some(error) => Ok(Err(error.take())),
        None => Ok(Ok(answer["result"].take())),
    }
}
