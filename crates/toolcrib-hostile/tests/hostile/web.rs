//! A client over HTTP that looks at every byte.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use toolcrib_wire::Era;

use crate::raw::{LONG, command, request};

/// A server over HTTP. It ends with this.
pub(crate) struct Web {
    pub(crate) child: Child,
    address: String,
    era: Era,
    pub(crate) session: Option<String>,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Where it should.
    Whole,
    /// The connection broke.
    Broken,
    /// It has not.
    Open,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Zero if not even that came.
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) end: End,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The messages, if it is a stream of events.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), "text/event-stream", "{self:?}");
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }
}

impl Web {
    pub(crate) fn start(era: Era, args: &[&str]) -> Self {
        let mut child = command(&[&["--http", "0"], args].concat()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://").unwrap().strip_suffix("/mcp").unwrap();
        Self { address: address.to_owned(), child, era, session: None }
    }

    pub(crate) fn greeted(era: Era, args: &[&str]) -> Self {
        let mut web = Self::start(era, args);
        let reply = web.greet(LONG);
        assert_eq!(reply.status, 200, "{reply:?}");
        web
    }

    pub(crate) fn greet(&mut self, limit: Duration) -> Reply {
        let method = if self.era == Era::Sessions { "initialize" } else { "server/discover" };
        let reply = self.ask(method, json!({}), limit);
        let session = reply.header("mcp-session-id");
        self.session = (!session.is_empty()).then(|| session.to_owned());
        reply
    }

    pub(crate) fn ask(&self, method: &str, params: Value, limit: Duration) -> Reply {
        self.post(&request(self.era, 7, method, params), limit)
    }

    pub(crate) fn call(&self, limit: Duration) -> Reply {
        let params = json!({"name": "echo", "arguments": {"text": "hello"}});
        self.ask("tools/call", params, limit)
    }

    /// Calls `echo`, which must go well.
    pub(crate) fn echoes(&self) {
        let reply = self.call(LONG);
        assert_eq!(reply.json()["result"]["content"][0]["text"], "hello", "{reply:?}");
        assert_eq!((reply.status, reply.end), (200, End::Whole));
    }

    pub(crate) fn post(&self, message: &Value, limit: Duration) -> Reply {
        self.send("POST", &message.to_string(), limit)
    }

    /// Sends a request and reads what comes within the limit.
    pub(crate) fn send(&self, verb: &str, body: &str, limit: Duration) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let session = self.session.as_ref().map(|it| format!("mcp-session-id: {it}\r\n"));
        let head = format!(
            "{verb} /mcp HTTP/1.1\r\nhost: {}\r\naccept: application/json, text/event-stream\r\n\
             content-type: application/json\r\nconnection: close\r\n{}content-length: {}\r\n\r\n",
            self.address,
            session.unwrap_or_default(),
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        let end = Instant::now() + limit;
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        let is_open = loop {
            let left = end.saturating_duration_since(Instant::now());
            stream.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
            match stream.read(&mut chunk) {
                Ok(0) => break false,
                Ok(count) => bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break true,
                Err(_) => break false,
            }
            if left.is_zero() {
                break true;
            }
        };
        read(&bytes, is_open)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn read(bytes: &[u8], is_open: bool) -> Reply {
    let unended = if is_open { End::Open } else { End::Broken };
    let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Reply { status: 0, headers: Vec::new(), body: Vec::new(), end: unended };
    };
    let head = String::from_utf8(bytes[..at].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let pairs = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    let headers: Vec<(String, String)> =
        pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let rest = &bytes[at + 4..];
    let mut reply = Reply { status, headers, body: Vec::new(), end: unended };
    if reply.header("transfer-encoding") == "chunked" {
        let is_whole = unchunk(rest, &mut reply.body);
        reply.end = if is_whole { End::Whole } else { unended };
    } else {
        let length: usize = reply.header("content-length").parse().unwrap_or(0);
        reply.end = if rest.len() >= length { End::Whole } else { unended };
        reply.body = rest.to_vec();
    }
    reply
}

/// Joins chunks; says whether the last one has come.
fn unchunk(mut bytes: &[u8], body: &mut Vec<u8>) -> bool {
    loop {
        let Some(at) = bytes.windows(2).position(|two| two == b"\r\n") else { return false };
        let size = std::str::from_utf8(&bytes[..at]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return true;
        }
        let rest = &bytes[at + 2..];
        body.extend_from_slice(&rest[..size.min(rest.len())]);
        let Some(next) = rest.get(size + 2..) else { return false };
        bytes = next;
    }
}
