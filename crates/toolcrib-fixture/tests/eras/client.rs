//! A client that writes and reads real bytes, in either era and over either transport.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use toolcrib_wire::{Era, Events};

/// How long anything may take to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(8);

/// What went wrong, in words.
pub(crate) type Outcome<T = ()> = Result<T, String>;

/// Where the server is.
pub(crate) enum Place {
    Pipes(Box<dyn AsyncWrite + Send + Unpin>, Box<dyn AsyncRead + Send + Unpin>),
    Url(String),
}

pub(crate) struct Client {
    pub(crate) era: Era,
    line: Line,
    inbox: UnboundedReceiver<Value>,
    /// What came and was not waited for yet.
    unread: Vec<Value>,
    next: u64,
}

enum Line {
    Pipes { to: Option<Box<dyn AsyncWrite + Send + Unpin>>, reading: AbortHandle },
    Http(Web),
}

struct Web {
    http: reqwest::Client,
    url: String,
    session: Option<String>,
    came: UnboundedSender<Value>,
    /// The streams of requests, and under 0 that of notices.
    streams: HashMap<u64, AbortHandle>,
}

impl Client {
    /// Connects; in the era of sessions, opens one. It can be asked anything.
    pub(crate) async fn open(place: Place, era: Era) -> Outcome<Self> {
        let (came, inbox) = unbounded_channel();
        let line = match place {
            Place::Pipes(to, from) => {
                let reading = tokio::spawn(read_lines(from, came)).abort_handle();
                Line::Pipes { to: Some(to), reading }
            }
            Place::Url(url) => {
                let http = reqwest::Client::builder().no_proxy().build();
                let http = http.map_err(|error| error.to_string())?;
                Line::Http(Web { http, url, session: None, came, streams: HashMap::new() })
            }
        };
        let mut client = Self { era, line, inbox, unread: Vec::new(), next: 0 };
        if era == Era::Sessions {
            client.greet().await?;
        }
        Ok(client)
    }

    async fn greet(&mut self) -> Outcome {
        let params = json!({
            "protocolVersion": Era::Sessions.newest(),
            "capabilities": capabilities(),
            "clientInfo": {"name": "eras", "version": "1"},
        });
        self.next += 1;
        let request = message(self.next, "initialize", params);
        match &mut self.line {
            Line::Pipes { .. } => self.write(&request).await?,
            Line::Http(web) => {
                let response = web.post(&request).send().await.map_err(|it| it.to_string())?;
                let session = response.headers().get("mcp-session-id");
                web.session = session.and_then(|it| it.to_str().ok()).map(str::to_owned);
                read_response(response, web.came.clone()).await;
            }
        }
        let greeting = self.answer(self.next).await?;
        check(greeting["result"]["protocolVersion"] == Era::Sessions.newest(), &greeting)?;
        self.notify("notifications/initialized", json!({})).await?;
        if let Line::Http(web) = &mut self.line {
            web.listen().await?;
        }
        Ok(())
    }

    /// Sends a request; its id.
    pub(crate) async fn send(&mut self, method: &str, mut params: Value) -> Outcome<u64> {
        self.next += 1;
        if self.era == Era::Stateless {
            let about = json!({
                "io.modelcontextprotocol/protocolVersion": Era::Stateless.newest(),
                "io.modelcontextprotocol/clientInfo": {"name": "eras", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": capabilities(),
            });
            for (key, value) in about.as_object().into_iter().flatten() {
                params["_meta"][key] = value.clone();
            }
        }
        let request = message(self.next, method, params);
        match &mut self.line {
            Line::Pipes { .. } => self.write(&request).await?,
            Line::Http(web) => {
                let (post, came) = (web.post(&request), web.came.clone());
                let id = self.next;
                let reading = tokio::spawn(async move {
                    match post.send().await {
                        Ok(response) => read_response(response, came).await,
                        Err(error) => {
                            let _ = came.send(json!({"id": id, "lost": error.to_string()}));
                        }
                    }
                });
                web.streams.insert(self.next, reading.abort_handle());
            }
        }
        Ok(self.next)
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) -> Outcome {
        self.tell(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await
    }

    /// Answers a question of the server's.
    pub(crate) async fn respond(&mut self, question: &Value, result: Value) -> Outcome {
        self.tell(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await
    }

    async fn tell(&mut self, message: &Value) -> Outcome {
        match &mut self.line {
            Line::Pipes { .. } => self.write(message).await,
            Line::Http(web) => {
                let sent = web.post(message).send().await.map_err(|it| it.to_string())?;
                check(sent.status().is_success(), &json!({"status": sent.status().as_u16()}))
            }
        }
    }

    async fn write(&mut self, message: &Value) -> Outcome {
        let Line::Pipes { to: Some(to), .. } = &mut self.line else {
            return Err("the pipes are closed".to_owned());
        };
        let text = format!("{message}\n");
        to.write_all(text.as_bytes()).await.map_err(|error| error.to_string())?;
        to.flush().await.map_err(|error| error.to_string())
    }

    /// Takes back a request, in the way of its era and transport.
    pub(crate) async fn cancel(&mut self, id: u64) -> Outcome {
        match &mut self.line {
            Line::Http(web) if self.era == Era::Stateless => {
                if let Some(stream) = web.streams.remove(&id) {
                    stream.abort();
                }
                Ok(())
            }
            _ => self.notify("notifications/cancelled", json!({"requestId": id})).await,
        }
    }

    /// Goes away without another word, but for the end of a session where that takes one.
    pub(crate) async fn leave(mut self) {
        match &mut self.line {
            Line::Pipes { to, reading } => {
                if let Some(mut to) = to.take() {
                    let _ = to.shutdown().await;
                }
                reading.abort();
            }
            Line::Http(web) => {
                web.streams.drain().for_each(|(_, stream)| stream.abort());
                if let Some(session) = &web.session {
                    let end = web.http.delete(&web.url).header("mcp-session-id", session);
                    let _ = end.send().await;
                }
            }
        }
    }

    /// The next message like that; what else comes stays for later.
    pub(crate) async fn wait(&mut self, fits: impl Fn(&Value) -> bool) -> Outcome<Value> {
        if let Some(at) = self.unread.iter().position(&fits) {
            return Ok(self.unread.remove(at));
        }
        let end = Instant::now() + PATIENCE;
        loop {
            match timeout_at(end, self.inbox.recv()).await {
                Ok(Some(message)) if fits(&message) => return Ok(message),
                Ok(Some(message)) => self.unread.push(message),
                Ok(None) => {
                    return Err(format!("the connection has ended; unread: {}", self.rest()));
                }
                Err(_) => return Err(format!("nothing came; unread: {}", self.rest())),
            }
        }
    }

    fn rest(&self) -> String {
        let text = Value::from(self.unread.clone()).to_string();
        text.chars().take(300).collect()
    }

    /// The whole answer to a request.
    pub(crate) async fn answer(&mut self, id: u64) -> Outcome<Value> {
        self.wait(|message| message["id"] == id && message.get("method").is_none()).await
    }

    /// Whether something like that has come already.
    pub(crate) fn has(&mut self, fits: impl Fn(&Value) -> bool) -> bool {
        while let Ok(message) = self.inbox.try_recv() {
            self.unread.push(message);
        }
        self.unread.iter().any(fits)
    }

    /// The result of a request.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Outcome<Value> {
        let id = self.send(method, params).await?;
        result(self.answer(id).await?)
    }

    /// The code of the error a request gets.
    pub(crate) async fn refused(&mut self, method: &str, params: Value) -> Outcome<i64> {
        let id = self.send(method, params).await?;
        let answer = self.answer(id).await?;
        answer["error"]["code"].as_i64().ok_or_else(|| format!("not refused: {answer}"))
    }

    /// The next notification of a method.
    pub(crate) async fn told(&mut self, method: &str) -> Outcome<Value> {
        let told = self.wait(|message| message["method"] == method).await;
        told.map_err(|error| format!("{method}: {error}"))
    }

    /// The result of a request that asks on its way; `say` gives the answers.
    pub(crate) async fn converse(
        &mut self,
        method: &str,
        params: Value,
        mut say: impl FnMut(&str, &Value) -> Value,
    ) -> Outcome<Value> {
        let mut asked = self.pose(method, params.clone()).await?;
        loop {
            match asked {
                Asked::Done(result) => return Ok(result),
                Asked::Open(open) => {
                    let answers = open.answers(&mut say);
                    asked = self.go_on(method, &params, open, answers).await?;
                }
            }
        }
    }

    /// Sends a request and waits for what it asks, or for its end.
    pub(crate) async fn pose(&mut self, method: &str, params: Value) -> Outcome<Asked> {
        let id = self.send(method, params).await?;
        self.asked(id).await
    }

    /// Gives answers, and waits for what is asked next.
    pub(crate) async fn go_on(
        &mut self,
        method: &str,
        params: &Value,
        open: Open,
        answers: Value,
    ) -> Outcome<Asked> {
        let id = self.give(method, params, open, answers).await?;
        self.asked(id).await
    }

    /// Gives answers; the id of the request that goes on.
    pub(crate) async fn give(
        &mut self,
        method: &str,
        params: &Value,
        open: Open,
        answers: Value,
    ) -> Outcome<u64> {
        match open {
            Open::Question { id, question } => {
                self.respond(&question, answers["question"].clone()).await?;
                Ok(id)
            }
            Open::Round(result) => {
                let mut params = params.clone();
                params["inputResponses"] = answers;
                if let Some(state) = result.get("requestState") {
                    params["requestState"] = state.clone();
                }
                self.send(method, params).await
            }
        }
    }

    async fn asked(&mut self, id: u64) -> Outcome<Asked> {
        let is_session = self.era == Era::Sessions;
        let is_question = |it: &Value| it.get("method").is_some() && it.get("id").is_some();
        let came = self
            .wait(|it| {
                (it["id"] == id && it.get("method").is_none()) || (is_session && is_question(it))
            })
            .await?;
        if is_question(&came) {
            return Ok(Asked::Open(Open::Question { id, question: came }));
        }
        let result = result(came)?;
        Ok(match result["resultType"].as_str() {
            Some("input_required") if self.era == Era::Stateless => {
                Asked::Open(Open::Round(result))
            }
            _ => Asked::Done(result),
        })
    }
}

/// What came of a request so far.
pub(crate) enum Asked {
    Done(Value),
    Open(Open),
}

impl Asked {
    pub(crate) fn open(self) -> Outcome<Open> {
        match self {
            Self::Open(open) => Ok(open),
            Self::Done(result) => Err(format!("nothing was asked: {result}")),
        }
    }
}

/// Questions that wait for an answer, in the way of the client's era.
pub(crate) enum Open {
    Question { id: u64, question: Value },
    Round(Value),
}

impl Open {
    pub(crate) fn answers(&self, mut say: impl FnMut(&str, &Value) -> Value) -> Value {
        let mut say = |it: &Value| say(it["method"].as_str().unwrap_or_default(), &it["params"]);
        match self {
            Self::Question { question, .. } => json!({"question": say(question)}),
            Self::Round(result) => {
                let asked = result["inputRequests"].as_object();
                asked.into_iter().flatten().map(|(key, it)| (key.clone(), say(it))).collect()
            }
        }
    }
}

impl Web {
    fn post(&self, message: &Value) -> reqwest::RequestBuilder {
        let params = &message["params"];
        let is_stateless = params["_meta"].get("io.modelcontextprotocol/protocolVersion").is_some();
        let mut post = self
            .http
            .post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            post = post
                .header("mcp-session-id", session)
                .header("mcp-protocol-version", Era::Sessions.newest());
        }
        if is_stateless {
            let method = message["method"].as_str().unwrap_or_default();
            post = post
                .header("mcp-protocol-version", Era::Stateless.newest())
                .header("mcp-method", method);
            let about = match method {
                "tools/call" | "prompts/get" => params["name"].as_str(),
                "resources/read" => params["uri"].as_str(),
                _ => None,
            };
            if let Some(about) = about {
                post = post.header("mcp-name", about);
            }
        }
        post.body(message.to_string())
    }

    /// Opens the stream of notices.
    async fn listen(&mut self) -> Outcome {
        let get = self
            .http
            .get(&self.url)
            .header("accept", "text/event-stream")
            .header("mcp-protocol-version", Era::Sessions.newest())
            .header("mcp-session-id", self.session.as_deref().unwrap_or_default());
        let response = get.send().await.map_err(|error| error.to_string())?;
        check(response.status() == 200, &json!({"status of GET": response.status().as_u16()}))?;
        let reading = tokio::spawn(read_response(response, self.came.clone()));
        self.streams.insert(0, reading.abort_handle());
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        match &mut self.line {
            Line::Pipes { reading, .. } => reading.abort(),
            Line::Http(web) => web.streams.drain().for_each(|(_, stream)| stream.abort()),
        }
    }
}

async fn read_lines(from: impl AsyncRead + Unpin, came: UnboundedSender<Value>) {
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message = serde_json::from_str(&line).unwrap_or_else(|_| json!({"garbled": line}));
        if came.send(message).is_err() {
            return;
        }
    }
}

async fn read_response(mut response: reqwest::Response, came: UnboundedSender<Value>) {
    let kind = response.headers().get("content-type").and_then(|it| it.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        let text = response.text().await.unwrap_or_default();
        if !text.is_empty() {
            let message = serde_json::from_str(&text).unwrap_or_else(|_| json!({"garbled": text}));
            let _ = came.send(message);
        }
        return;
    }
    let mut events = Events::new(1 << 20);
    while let Ok(Some(bytes)) = response.chunk().await {
        events.push(&bytes);
        while let Some(Ok(event)) = events.next() {
            if event.data.trim().is_empty() {
                continue;
            }
            let message = serde_json::from_str(&event.data);
            let _ = came.send(message.unwrap_or_else(|_| json!({"garbled": event.data})));
        }
    }
}

fn capabilities() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

fn message(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn result(mut answer: Value) -> Outcome<Value> {
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(format!("refused: {answer}")),
    }
}

/// Says what was seen where it is not as it should be.
#[track_caller]
pub(crate) fn check(is_right: bool, seen: &Value) -> Outcome {
    let at = std::panic::Location::caller();
    let file = at.file().rsplit('/').next().unwrap_or_default();
    if is_right { Ok(()) } else { Err(format!("{file}:{}: {seen}", at.line())) }
}
