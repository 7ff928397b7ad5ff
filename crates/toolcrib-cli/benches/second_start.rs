//! How soon a gateway that has seen its servers before answers a client, and whether it starts
//! any of them for that: `cargo bench -p toolcrib-cli --bench second_start`.
//!
//! Thirty servers, the built-in ones under other names, are listed once. Then the gateway is
//! started again and again, and timed from its start to the answer to `tools/list` and to a
//! search.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const SERVERS: usize = 30;
const RUNS: usize = 20;
const KINDS: [&str; 6] = ["files", "git", "sqlite", "notes", "data", "time"];

fn main() {
    // Cargo runs benches as tests too, and passes what it was given.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("mcp.json");
    let program = env!("CARGO_BIN_EXE_toolcrib");
    let servers: serde_json::Map<String, Value> = (0..SERVERS)
        .map(|at| {
            let kind = KINDS[at % KINDS.len()];
            (format!("{kind}{at}"), json!({"command": program, "args": ["builtin", kind]}))
        })
        .collect();
    std::fs::write(&config, json!({"mcpServers": &servers}).to_string()).unwrap();

    let first = Instant::now();
    let mut gateway = Gateway::start(home.path(), &config);
    for name in servers.keys() {
        assert!(gateway.wait_for(name), "{name} was not listed");
    }
    println!("first start: the last of {SERVERS} servers is found after {:?}", first.elapsed());
    gateway.end();

    let (mut lists, mut searches, mut started) = (Vec::new(), Vec::new(), 0);
    for _ in 0..RUNS {
        let begin = Instant::now();
        let mut gateway = Gateway::start(home.path(), &config);
        gateway.ask("tools/list", json!({}));
        lists.push(begin.elapsed());
        let found = gateway.search("convert a time between time zones");
        searches.push(begin.elapsed());
        assert!(found.contains("convert_time"), "{found}");
        started += gateway.children();
        gateway.end();
    }
    report("tools/list", &mut lists, Duration::from_millis(100));
    report("a search", &mut searches, Duration::from_millis(200));
    println!("servers started by it: {started}");
    assert_eq!(started, 0, "a second start must not start servers");
}

fn report(what: &str, times: &mut [Duration], target: Duration) {
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "second start to {what}: median {median:?}, worst {worst:?} of {RUNS} (target {target:?})"
    );
}

struct Gateway {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next: u64,
}

impl Gateway {
    fn start(home: &Path, config: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_toolcrib"))
            .args(["serve", "--stdio", "--config"])
            .arg(config)
            .env("HOME", home)
            .env_remove("XDG_CACHE_HOME")
            .env_remove("XDG_DATA_HOME")
            .current_dir(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = process.stdin.take().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let mut gateway = Self { process, stdin, stdout, next: 0 };
        gateway.ask(
            "initialize",
            json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "bench", "version": "0"},
            }),
        );
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        writeln!(gateway.stdin, "{ready}").unwrap();
        gateway
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let request =
            json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        writeln!(self.stdin, "{request}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the gateway has ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == self.next {
                return message["result"].clone();
            }
        }
    }

    fn search(&mut self, query: &str) -> String {
        let params = json!({"name": "tool_search", "arguments": {"query": query}});
        self.ask("tools/call", params)["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// Waits until the tools of a server can be found.
    fn wait_for(&mut self, server: &str) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(60) {
            let params = json!({"name": "load_tools", "arguments": {"group_id": server}});
            if self.ask("tools/call", params)["isError"] != true {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// How many processes it has started.
    fn children(&self) -> usize {
        let task = format!("/proc/{0}/task/{0}/children", self.process.id());
        let children = std::fs::read_to_string(task).unwrap_or_default();
        children.split_whitespace().count()
    }

    fn end(mut self) {
        drop(self.stdin);
        self.process.wait().unwrap();
    }
}
