//! A client over standard input and output that looks at every byte.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::{Value, json};
use toolcrib_wire::Era;

/// How long anything may take: the machine may be busy.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// How long to look for what must not come.
pub(crate) const SHORT: Duration = Duration::from_millis(300);

pub(crate) const BOTH: [Era; 2] = [Era::Sessions, Era::Stateless];

/// The command with these arguments, in a process group of its own.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib-hostile"));
    command.args(args).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A server and what it says. Its whole process group ends with this.
pub(crate) struct Raw {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    chunks: Receiver<Vec<u8>>,
    unread: Vec<u8>,
    era: Era,
    asked: u64,
}

impl Raw {
    /// A server that was not spoken to yet.
    pub(crate) fn start(era: Era, args: &[&str]) -> Self {
        let mut child = command(args).spawn().unwrap();
        let stdin = child.stdin.take();
        let chunks = follow(child.stdout.take().unwrap());
        Self { child, stdin, chunks, unread: Vec::new(), era, asked: 0 }
    }

    /// A server that was greeted.
    pub(crate) fn greeted(era: Era, args: &[&str]) -> Self {
        let mut raw = Self::start(era, args);
        let answer = raw.greet();
        assert!(answer["result"].is_object(), "{answer}");
        raw
    }

    /// Greets the server in its era and waits for its answer.
    pub(crate) fn greet(&mut self) -> Value {
        let id = self.ask_greeting();
        let answer = self.answer(id);
        if self.era == Era::Sessions {
            self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        answer
    }

    pub(crate) fn ask_greeting(&mut self) -> u64 {
        match self.era {
            Era::Sessions => self.ask(
                "initialize",
                json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "raw", "version": "1"},
                }),
            ),
            Era::Stateless => self.ask("server/discover", json!({})),
        }
    }

    pub(crate) fn say(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    /// Sends a request of the era; its id is given back.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.asked += 1;
        let message = request(self.era, self.asked, method, params);
        self.say(&message);
        self.asked
    }

    pub(crate) fn ask_call(&mut self, tool: &str, arguments: Value) -> u64 {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// What a call comes to.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.ask_call(tool, arguments);
        self.answer(id)
    }

    /// Calls `echo`, which must go well.
    pub(crate) fn echoes(&mut self) {
        let answer = self.call("echo", json!({"text": "hello"}));
        assert_eq!(text(&answer), "hello", "{answer}");
    }

    pub(crate) fn list(&mut self, params: Value) -> Value {
        let id = self.ask("tools/list", params);
        self.answer(id)["result"].clone()
    }

    /// The next line as it is; none if it does not come in time, or there are no more.
    pub(crate) fn line_within(&mut self, limit: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + limit;
        let mut seen = 0;
        loop {
            if let Some(at) = self.unread[seen..].iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.unread.drain(..=seen + at).collect();
                line.pop();
                return Some(line);
            }
            seen = self.unread.len();
            let left = end.saturating_duration_since(Instant::now());
            self.unread.extend(self.chunks.recv_timeout(left).ok()?);
        }
    }

    /// The next line, which must be a message.
    pub(crate) fn message(&mut self) -> Value {
        let line = self.line_within(LONG).expect("there are no more lines");
        serde_json::from_slice(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The answer to a request; what comes before it is passed over.
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let line = self.line_within(LONG).expect("there is no answer");
            match serde_json::from_slice::<Value>(&line) {
                Ok(message) if message["id"] == id && message.get("method").is_none() => {
                    return message;
                }
                _ => {}
            }
        }
    }

    /// Whether the server is there and answers, but not what was asked before.
    pub(crate) fn answers_only_a_ping(&mut self) {
        let id = self.ask("ping", json!({}));
        assert_eq!(self.message()["id"], id);
        assert_eq!(self.line_within(SHORT), None);
    }

    /// What is left, to the end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while let Ok(chunk) = self.chunks.recv_timeout(LONG) {
            self.unread.extend(chunk);
        }
        std::mem::take(&mut self.unread)
    }

    /// How the process ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        ended(&mut self.child)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        std::thread::sleep(SHORT);
        self.child.try_wait().unwrap().is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = kill_process_group(self.pid(), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Waits for the end of a process.
pub(crate) fn ended(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + LONG;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < end, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads in a thread, so that one can stop waiting.
pub(crate) fn follow(mut from: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, chunks) = channel();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    chunks
}

pub(crate) fn request(era: Era, id: u64, method: &str, mut params: Value) -> Value {
    if era == Era::Stateless {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "raw", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// What a call says.
pub(crate) fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default()
}
