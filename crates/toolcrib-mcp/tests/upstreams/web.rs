//! A small HTTP server that answers as a test wants it to, and remembers what it was asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedReceiver;
use toolcrib_mcp::ServerConfig;

pub(crate) struct Web {
    address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Streams without an end that the client has left.
    left: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) verb: String,
    pub(crate) path: String,
    headers: HashMap<String, String>,
    pub(crate) body: Value,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    /// The tool that is called.
    pub(crate) fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }

    /// An answer to it.
    pub(crate) fn answer(&self, result: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result})
    }
}

/// What is answered.
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

enum Body {
    Whole(String),
    /// Events as they come, until there are no more.
    Live(UnboundedReceiver<Value>),
    /// Nothing, not even a status.
    Never,
    /// Pieces, each after a pause, and whether the stream ends then.
    Stream(Vec<(Duration, String)>, bool),
}

impl Reply {
    pub(crate) fn json(status: u16, body: Value) -> Self {
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        Self { status, headers: vec![kind], body: Body::Whole(body.to_string()) }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Body::Whole(String::new()) }
    }

    pub(crate) fn never() -> Self {
        Self { body: Body::Never, ..Self::empty(200) }
    }

    /// Events, and then the end of the stream.
    pub(crate) fn events(events: impl IntoIterator<Item = Value>) -> Self {
        Self::stream(events.into_iter().map(|event| format!("data: {event}\n\n")), true)
    }

    pub(crate) fn stream(pieces: impl IntoIterator<Item = String>, ends: bool) -> Self {
        let kind = ("content-type".to_owned(), "text/event-stream".to_owned());
        let pieces = pieces.into_iter().map(|piece| (Duration::from_millis(5), piece)).collect();
        Self { status: 200, headers: vec![kind], body: Body::Stream(pieces, ends) }
    }

    /// Events that are still to come, until the sender is dropped.
    pub(crate) fn live(events: UnboundedReceiver<Value>) -> Self {
        Self { body: Body::Live(events), ..Self::stream([], true) }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Web {
    pub(crate) async fn serve(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve_at("127.0.0.1:0", answer).await
    }

    pub(crate) async fn serve_at(
        address: &str,
        answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let left = Arc::<AtomicUsize>::default();
        let connections = Arc::<AtomicUsize>::default();
        let (answer, noted, leaving) = (Arc::new(answer), seen.clone(), left.clone());
        let accepted = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (answer, noted, leaving) = (answer.clone(), noted.clone(), leaving.clone());
                tokio::spawn(async move { talk(stream, &*answer, &noted, &leaving).await });
            }
        });
        Self { address, seen, left, connections }
    }

    pub(crate) fn config(&self) -> ServerConfig {
        ServerConfig::http("fixture", format!("http://{}/mcp", self.address))
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// How many streams without an end the client has left.
    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }

    /// How many connections have been made to it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// How often a method was asked for, or a verb used.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.seen().iter().filter(|seen| seen.method() == what || seen.verb == what).count()
    }
}

/// Answers what any server is asked; calls are answered with the tool's name.
pub(crate) fn usual(seen: &Seen) -> Reply {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    match seen.method() {
        "initialize" => Reply::json(
            200,
            seen.answer(json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "serverInfo": {"name": "web", "version": "1"},
            })),
        ),
        "tools/list" => Reply::json(200, seen.answer(json!({"tools": [tool("act"), tool("two")]}))),
        "tools/call" => {
            let content = json!([{"type": "text", "text": seen.tool()}]);
            Reply::json(200, seen.answer(json!({"content": content})))
        }
        _ if seen.verb == "GET" => Reply::empty(405),
        _ => Reply::empty(202),
    }
}

async fn talk(
    mut stream: TcpStream,
    answer: &(dyn Fn(&Seen) -> Reply + Send + Sync),
    noted: &Mutex<Vec<Seen>>,
    left: &AtomicUsize,
) -> Option<()> {
    let mut bytes = Vec::new();
    loop {
        let seen = read(&mut stream, &mut bytes).await?;
        noted.lock().unwrap().push(seen.clone());
        let Reply { status, headers, body } = answer(&seen);
        let mut head = format!("HTTP/1.1 {status} X\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        match body {
            Body::Whole(text) => {
                head += &format!("content-length: {}\r\n\r\n{text}", text.len());
                stream.write_all(head.as_bytes()).await.ok()?;
            }
            Body::Never => std::future::pending().await,
            Body::Live(mut events) => {
                head += "transfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).await.ok()?;
                while let Some(event) = events.recv().await {
                    let event = format!("data: {event}\n\n");
                    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                    stream.write_all(chunk.as_bytes()).await.ok()?;
                }
                stream.write_all(b"0\r\n\r\n").await.ok()?;
            }
            Body::Stream(pieces, ends) => {
                head += "transfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).await.ok()?;
                for (pause, piece) in pieces {
                    tokio::time::sleep(pause).await;
                    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
                    stream.write_all(chunk.as_bytes()).await.ok()?;
                }
                if !ends {
                    // Until the client goes.
                    let _ = stream.read_u8().await;
                    left.fetch_add(1, Ordering::SeqCst);
                    return None;
                }
                stream.write_all(b"0\r\n\r\n").await.ok()?;
            }
        }
    }
}

async fn read(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Seen> {
    let head = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.lines();
    let mut first = lines.next()?.split(' ');
    let (verb, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let pairs = lines.filter_map(|line| line.split_once(": "));
    let headers: HashMap<String, String> =
        pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    while bytes.len() < head + length {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = serde_json::from_slice(&bytes[head..head + length]).unwrap_or_default();
    bytes.drain(..head + length);
    Some(Seen { verb, path, headers, body })
}
