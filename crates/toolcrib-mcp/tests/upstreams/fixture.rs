//! An MCP server with one flag for each way to behave.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

/// How to behave. What is not said is done well.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Flags {
    /// Where to write down what happens.
    state: PathBuf,
    /// The method that is never answered.
    hang_at: String,
    /// Milliseconds before `initialize` is answered.
    slow_start: u64,
    /// What to say on standard error before exiting at once; not once the file `mended` exists.
    exit_with: Option<String>,
    /// Which pages to list: `repeat` its cursor, or `endless`.
    pages: String,
    /// Lists things that are no tools.
    malformed: bool,
    /// Speaks 2026-07-28 only.
    stateless: bool,
    /// Has more than tools.
    rest: bool,
    /// Speaks both.
    both: bool,
    /// `ttlMs` of the list.
    ttl: Option<u64>,
    /// Leaves a process behind that ignores SIGTERM.
    grandchild: bool,
    /// Goes on when its input ends, and ignores SIGTERM itself.
    stubborn: bool,
    /// What to print on standard output between messages.
    noise: bool,
    /// Bytes of which its list has so many more.
    bulk: usize,
}

struct Server {
    flags: Flags,
    out: Mutex<std::io::Stdout>,
    /// Tools added while it runs.
    added: AtomicU64,
    /// Calls under way.
    running: AtomicU64,
    /// Who waits for an answer of the client's.
    asked: Mutex<Option<mpsc::Sender<Value>>>,
    /// The same by the id of the question.
    askers: Mutex<HashMap<String, mpsc::Sender<Value>>>,
}

pub(crate) fn serve(flags: &str) -> ! {
    let flags: Flags = serde_json::from_str(flags).unwrap();
    let server = Arc::new(Server {
        flags,
        out: Mutex::new(std::io::stdout()),
        added: AtomicU64::new(0),
        running: AtomicU64::new(0),
        asked: Mutex::default(),
        askers: Mutex::default(),
    });
    server.note("starts", std::process::id());
    server.note("events", "start");
    if let Some(text) = &server.flags.exit_with
        && !server.flags.state.join("mended").exists()
    {
        let mut stderr = std::io::stderr();
        writeln!(stderr, "the line before\n{text}\n}}").unwrap();
        exit(3);
    }
    if server.flags.grandchild {
        let script = "trap '' TERM; while true; do sleep 1; done";
        #[expect(clippy::zombie_processes, reason = "to be left behind is what it is for")]
        let child = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
        server.note("grandchildren", child.id());
    }
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let message: Value = serde_json::from_str(&line).unwrap();
        server.note("heard", message["method"].as_str().unwrap_or("an answer"));
        let server = server.clone();
        if message["method"] == "tools/call" {
            std::thread::spawn(move || server.take(&message));
        } else {
            server.take(&message);
        }
    }
    if server.flags.stubborn {
        // A shell that ignores the signal, in this process's place.
        use std::os::unix::process::CommandExt;
        let script = "trap '' TERM; while true; do sleep 1; done";
        let _ = Command::new("/bin/sh").args(["-c", script]).exec();
    }
    exit(0)
}

impl Server {
    fn note(&self, file: &str, what: impl std::fmt::Display) {
        let path = self.flags.state.join(file);
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(format!("{what}\n").as_bytes()).unwrap();
    }

    fn say(&self, message: &Value) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let noise = if self.flags.noise { "\n{\"half\": \nwarming up...\n\u{1b}[0m\n" } else { "" };
        out.write_all(format!("{noise}{message}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    }

    fn take(self: &Arc<Self>, message: &Value) {
        let (id, method) = (&message["id"], message["method"].as_str().unwrap_or_default());
        if !method.is_empty() && method == self.flags.hang_at {
            return;
        }
        let answer = match method {
            "" => {
                self.note("answers", message);
                if let Some(asker) = self.askers.lock().unwrap().remove(&id.to_string()) {
                    asker.send(message.clone()).unwrap();
                    return;
                }
                if let Some(asked) = &*self.asked.lock().unwrap() {
                    asked.send(message.clone()).unwrap();
                }
                return;
            }
            "notifications/progress" => return self.note("progress", &message["params"]),
            "notifications/cancelled" => {
                return self.note("cancelled", &message["params"]["requestId"]);
            }
            "initialize" if !self.flags.stateless => {
                std::thread::sleep(Duration::from_millis(self.flags.slow_start));
                self.note("events", "greeting");
                self.note("greetings", &message["params"]["capabilities"]);
                Ok(json!({
                    "protocolVersion": message["params"]["protocolVersion"],
                    "capabilities": self.capabilities(),
                    "serverInfo": {"name": "fixture", "title": "Fixture", "version": "1.2.3"},
                    "instructions": "Tools to test with. There is more to say.",
                }))
            }
            "server/discover" if self.flags.stateless || self.flags.both => Ok(json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities(),
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "f", "version": "2"}},
                "ttlMs": 1000, "resultType": "complete",
            })),
            "tools/list" => Ok(self.list(&message["params"])),
            "tools/call" => {
                if self.running.fetch_add(1, Ordering::SeqCst) > 0 {
                    self.note("overlaps", message["params"]["name"].as_str().unwrap());
                }
                let answer = self.call(id, &message["params"]);
                self.running.fetch_sub(1, Ordering::SeqCst);
                match answer {
                    Some(answer) => answer,
                    None => return,
                }
            }
            "ping" => Ok(json!({})),
            "subscriptions/listen" => {
                return self.note("listens", &message["params"]["notifications"]);
            }
            _ => {
                let rest = self.flags.rest.then(|| self.rest(method, &message["params"])).flatten();
                rest.ok_or(json!({"code": -32601, "message": "no such method"}))
            }
        };
        if !id.is_null() {
            self.say(&match answer {
                Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
            });
        }
    }

    fn capabilities(&self) -> Value {
        if self.flags.rest {
            return json!({"tools": {}, "resources": {"subscribe": true}, "prompts": {}, "logging": {}});
        }
        json!({"tools": {"listChanged": true}})
    }

    /// What is answered beside tools.
    fn rest(&self, method: &str, params: &Value) -> Option<Value> {
        let added = self.added.load(Ordering::SeqCst);
        Some(match method {
            "resources/list" => json!({"resources": [{"uri": "mem://a", "name": "a"}]}),
            "resources/templates/list" => json!({"resourceTemplates": []}),
            "prompts/list" => {
                let prompts = (0..=added).map(|number| json!({"name": format!("p{number}")}));
                json!({"prompts": prompts.collect::<Vec<Value>>()})
            }
            "prompts/get" => json!({"messages": [], "for": params["name"], "x": 1.0}),
            "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => {
                let what = params.get("uri").or(params.get("level")).unwrap();
                self.note(method.rsplit('/').next().unwrap(), what.as_str().unwrap());
                json!({})
            }
            _ => return None,
        })
    }

    fn list(&self, params: &Value) -> Value {
        let tool = |name: &str, hints: Value| json!({"name": name, "description": format!("Does {name}."), "inputSchema": {"type": "object"}, "annotations": hints, "x-vendor": 1.0});
        if !self.flags.pages.is_empty() {
            let page: u64 = params["cursor"].as_str().map_or(0, |at| at.parse().unwrap());
            let next = if self.flags.pages == "repeat" { 1 } else { page + 1 };
            let name = format!("tool_{page}");
            return json!({"tools": [tool(&name, json!({}))], "nextCursor": next.to_string()});
        }
        let mut tools: Vec<Value> =
            ["act", "die", "hang", "progress", "refuse", "grow", "ask", "flood"]
                .map(|name| tool(name, json!({})))
                .into();
        tools.push(tool("look", json!({"readOnlyHint": true})));
        tools.push(tool("put", json!({"idempotentHint": true})));
        if self.flags.bulk > 0 {
            tools.push(tool("bulk", json!({"title": "x".repeat(self.flags.bulk)})));
        }
        for number in 0..self.added.load(Ordering::SeqCst) {
            tools.push(tool(&format!("added_{number}"), json!({})));
        }
        if self.flags.malformed {
            tools.insert(0, json!({"name": "schemaless", "inputSchema": 7}));
            tools.insert(2, json!({"description": "nameless"}));
            tools.insert(3, json!("what?"));
            tools.push(tool("look", json!({})));
        }
        let mut page = json!({"tools": tools});
        if let Some(ttl) = self.flags.ttl {
            page["ttlMs"] = json!(ttl);
        }
        page
    }

    fn call(&self, id: &Value, params: &Value) -> Option<Result<Value, Value>> {
        let (name, arguments) = (params["name"].as_str().unwrap(), &params["arguments"]);
        self.note("executed", name);
        let pause = Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0));
        let count = arguments["count"].as_u64().unwrap_or(1);
        let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
        Some(Ok(match name {
            "act" | "look" | "put" => {
                std::thread::sleep(pause);
                text(format!("{name} {arguments} {}", params["_meta"]))
            }
            "die" => {
                std::thread::sleep(pause);
                let mut stderr = std::io::stderr();
                writeln!(stderr, "fatal: out of luck with {:?}", std::env::var("TOKEN")).unwrap();
                exit(9)
            }
            "hang" => return None,
            "progress" => {
                for number in 1..=count {
                    std::thread::sleep(pause);
                    let token = &params["_meta"]["progressToken"];
                    let params = json!({"progressToken": token, "progress": number, "x": [number]});
                    self.say(&json!({"method": "notifications/progress", "params": params}));
                }
                text(format!("{count} steps"))
            }
            "refuse" => {
                let data = json!({"big": 18446744073709551615_u64, "why": ["a"]});
                return Some(Err(json!({"code": 404, "message": "not today", "data": data})));
            }
            "grow" => {
                self.added.fetch_add(1, Ordering::SeqCst);
                for _ in 0..count {
                    self.say(&json!({"method": "notifications/tools/list_changed"}));
                }
                text("grown".to_owned())
            }
            "tell" => {
                if arguments["adds"] == true {
                    self.added.fetch_add(1, Ordering::SeqCst);
                }
                let (method, params) = (&arguments["method"], &arguments["params"]);
                self.say(&json!({"method": method, "params": params}));
                text("told".to_owned())
            }
            "ask" => {
                let (sender, answers) = mpsc::channel();
                *self.asked.lock().unwrap() = Some(sender);
                self.say(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
                self.say(&json!({"jsonrpc": "2.0", "id": 7, "method": "roots/list"}));
                let limit = Duration::from_secs(20);
                let answers = [answers.recv_timeout(limit), answers.recv_timeout(limit)];
                text(format!("{} {}", answers[0].clone().unwrap(), answers[1].clone().unwrap()))
            }
            "elicit" => {
                std::thread::sleep(pause);
                self.elicit(id, arguments)
            }
            "talk" => {
                let params = json!({"level": "info", "data": arguments["marker"]});
                self.say(&json!({"method": "notifications/message", "params": params}));
                std::thread::sleep(pause);
                text("talked".to_owned())
            }
            "odd" => arguments["result"].clone(),
            "rounds" => self.rounds(params),
            "flood" => {
                let answer = json!({"id": id, "result": text("x".repeat(65 << 20))});
                self.say(&answer);
                return None;
            }
            "noise" => {
                let (begin, rest) = ("x".repeat(970), "x".repeat(3 << 20));
                let token = std::env::var("TOKEN").unwrap_or_default();
                writeln!(self.out.lock().unwrap(), "  {begin}{token}{rest}").unwrap();
                text("after noise".to_owned())
            }
            "raw" => {
                // As text, since a value would round the number.
                let mut out = self.out.lock().unwrap();
                let result = r#"{ "content":[{"type":"new-kind","x":1}],"structuredContent":{"n":12345678901234567890123,"f":1.0}, "vendor":{"b":1,"a":2},"isError":false }"#;
                writeln!(out, r#"{{"id":{id},"result":{result},"jsonrpc":"2.0"}}"#).unwrap();
                return None;
            }
            "last" => {
                self.say(&json!({"id": id, "result": text("x".repeat(150 << 10))}));
                exit(0)
            }
            "ask_much" => {
                let (sender, answers) = mpsc::channel();
                *self.asked.lock().unwrap() = Some(sender);
                let params = json!({"fill": "x".repeat(600 << 10)});
                self.say(&json!({"method": "notifications/message", "params": params}));
                self.say(&json!({"id": id, "method": "roots/list", "params": params}));
                text(answers.recv_timeout(Duration::from_secs(20)).unwrap().to_string())
            }
            "backwards" => {
                let mut out = self.out.lock().unwrap();
                let result = text(arguments.to_string());
                writeln!(out, r#"{{"result":{result},"jsonrpc":"2.0","id":{id}}}"#).unwrap();
                return None;
            }
            _ => return Some(Err(json!({"code": -32602, "message": "no such tool"}))),
        }))
    }

    /// Asks the user `count` times at once, and answers with what it is told. By `mode`: asks
    /// `twice` under each id, takes its questions `back`, or asks `late`, when it has answered.
    fn elicit(&self, call: &Value, arguments: &Value) -> Value {
        let mode = arguments["mode"].as_str().unwrap_or_default();
        let count = arguments["count"].as_u64().unwrap_or(1);
        let ids: Vec<Value> = match arguments["ids"].as_array() {
            Some(ids) => ids.clone(),
            None => (0..count).map(|number| json!(format!("{call}-{number}"))).collect(),
        };
        if mode == "late" {
            self.say(&json!({"id": call, "result": {"content": []}}));
        }
        let (sender, answers) = mpsc::channel();
        for id in &ids {
            self.askers.lock().unwrap().insert(id.to_string(), sender.clone());
            let mut params = json!({"message": arguments["marker"], "id": id});
            if let Some(token) = arguments.get("token") {
                params["_meta"] = json!({"progressToken": token, "x": 1});
            }
            let method = "elicitation/create";
            let question = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            self.say(&question);
            if mode == "twice" {
                self.say(&question);
            }
        }
        if mode == "back" {
            std::thread::sleep(Duration::from_millis(300));
            for id in &ids {
                let params = json!({"requestId": id});
                self.say(&json!({"method": "notifications/cancelled", "params": params}));
            }
            std::thread::sleep(Duration::from_millis(300));
            return json!({"content": [], "structuredContent": {"answers": []}});
        }
        let limit = Duration::from_secs(20);
        let told: Vec<Value> =
            ids.iter().map(|_| answers.recv_timeout(limit).unwrap_or_default()).collect();
        json!({"content": [], "structuredContent": {"answers": told}})
    }

    /// Asks in rounds, as is done without sessions, by `mode`.
    fn rounds(&self, params: &Value) -> Value {
        self.note("rounds", params);
        let asks = |requests: Value, state: Value| {
            let mut result = json!({"resultType": "input_required"});
            for (key, value) in [("inputRequests", requests), ("requestState", state)] {
                if !value.is_null() {
                    result[key] = value;
                }
            }
            result
        };
        let question =
            |method: &str, message: &str| json!({"method": method, "params": {"message": message}});
        let elicit = |message| question("elicitation/create", message);
        let is_asked = !params["inputResponses"].is_null();
        match (params["arguments"]["mode"].as_str().unwrap(), params["requestState"].as_str()) {
            ("two", None) => asks(json!({"a": elicit("1"), "b": elicit("2")}), json!("first")),
            ("two", Some("first")) => asks(json!({"c": elicit("3")}), json!("second")),
            ("stateless", None) if !is_asked => asks(json!({"a": elicit("1")}), json!(null)),
            ("endless", _) => asks(json!({"a": elicit("again")}), json!("more")),
            ("many", _) => {
                let many: serde_json::Map<_, _> =
                    (0..17).map(|number| (number.to_string(), elicit("x"))).collect();
                asks(many.into(), json!(null))
            }
            ("sampling", None) => {
                asks(json!({"a": question("sampling/createMessage", "1")}), json!("s"))
            }
            ("later", None) => asks(json!(null), json!("wait")),
            ("die", None) => asks(json!({"a": elicit("1")}), json!("die")),
            ("die", _) => exit(9),
            _ => json!({"content": [], "structuredContent": params, "resultType": "complete"}),
        }
    }
}
