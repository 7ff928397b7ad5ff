//! What a gateway learns from use is there in the next run, and gone when it is not wanted.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::support::{Folder, builtin, sample};

/// A gateway over stdio, and its client.
struct Gateway {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Gateway {
    fn start(folder: &Folder) -> Self {
        let mut command = folder.command("serve --stdio");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut gateway = Self { child, to, from };
        gateway.request("initialize", json!({"protocolVersion": "2025-11-25"}));
        gateway
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let to = self.to.as_mut().unwrap();
        writeln!(to, "{request}").unwrap();
        to.flush().unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "it has ended");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == 1 {
                return message["result"].clone();
            }
        }
    }

    fn call(&mut self, name: &str, arguments: Value) -> String {
        let result = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        assert_ne!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn end(mut self) {
        drop(self.to.take());
        assert!(self.child.wait().unwrap().success());
    }
}

const QUERY: &str = "encode +text";

/// A run of the gateway in which one tool is found and called.
fn use_once(folder: &Folder) {
    let mut gateway = Gateway::start(folder);
    let found = gateway.call("tool_search", json!({"query": QUERY}));
    assert!(found.contains("data__encode_text"), "{found}");
    let call = json!({"tool_name": "data__encode_text",
        "arguments": {"text": "hunter2", "encoding": "hex"}});
    gateway.call("call_tool", call);
    gateway.end();
}

fn folder(more: &str) -> Folder {
    let servers = format!("{more}{}{}", builtin("data", "data"), builtin("time", "time"));
    let folder = Folder::new(&[("toolcrib.toml", &servers)]);
    // From here on every tool is known.
    folder.text("servers");
    folder
}

/// What use adds to the tool's score, by the reasons given.
fn lifts(folder: &Folder, options: &str) -> Vec<String> {
    let page = folder.json(&format!("search encode~+text --explain --json {options}"));
    let mut rows = page["results"].as_array().unwrap().iter();
    let row = rows.find(|row| row["tool"] == "encode_text").unwrap();
    assert_eq!(row["score"], row["explanation"]["total"], "{row}");
    let lifts = row["explanation"]["lifts"].as_array().unwrap().iter();
    lifts.map(|lift| lift["reason"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_was_called_after_a_query_is_lifted_in_the_next_run_and_can_be_forgotten() {
    let folder = folder("");
    use_once(&folder);
    assert_eq!(lifts(&folder, ""), [""; 0], "once is not enough");
    use_once(&folder);
    let usage = folder.json("usage --json");
    let row = &usage["rows"][0];
    assert_eq!((&usage["calls"], &usage["learning"]), (&json!(2), &json!(true)));
    assert_eq!((&row["query"], &row["tool"]), (&json!(QUERY), &json!("data/encode_text")));
    assert!(!usage.to_string().contains("hunter2"), "{usage}");
    let text = folder.text("usage");
    assert!(text.contains("encode +text  data/encode_text  today"), "{text}");
    assert!(text.ends_with("\n1 row, 2 calls in all.\n"), "{text}");

    assert_eq!(lifts(&folder, ""), ["chosen 2 of 2 times after queries like this"]);
    assert_eq!(lifts(&folder, "--without-usage"), [""; 0]);
    let measured = folder.json("eval --from-usage --json");
    assert_eq!(measured["runs"][0]["mean"]["queries"], 1, "{measured}");

    assert_eq!(folder.json("usage clear --json"), json!({"forgotten": 1}));
    assert_eq!(folder.json("usage --json")["rows"], json!([]));
    assert_eq!(lifts(&folder, ""), [""; 0]);
    assert!(folder.fails(2, "eval --from-usage").contains("nothing was learned from use yet"));
}

#[test]
fn nothing_is_kept_where_nothing_is_to_be_learned() {
    let folder = folder("[search]\nlearn = false\n");
    use_once(&folder);
    use_once(&folder);
    let usage = folder.json("usage --json");
    assert_eq!(usage, json!({"learning": false, "calls": 0, "rows": []}));
    assert!(folder.text("usage").contains("Learning is off"));
    assert_eq!(lifts(&folder, ""), [""; 0]);
}

#[test]
fn where_nothing_was_kept_nothing_is_made() {
    let bare = sample();
    assert_eq!(bare.text("usage"), "Nothing was learned from use yet.\n");
    assert_eq!(bare.json("usage clear --json"), json!({"forgotten": 0}));
    assert!(!bare.path("home/.cache/toolcrib").exists());
}
