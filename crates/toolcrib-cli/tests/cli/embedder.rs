//! An embedder behind an address, as `[search]` names it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Folder, Output, listen, odd_server, script};

/// A request: where to, with which authorization, about which texts.
type Asked = (String, String, Vec<String>);

/// An endpoint for which `zyx` means the same as everything about tides.
struct Web {
    address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Web {
    fn new() -> Self {
        let (address, asked) = listen(answer);
        Self { address: address.to_string(), asked }
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// The texts of every request since the last look.
    fn texts(&self) -> Vec<Vec<String>> {
        self.asked().into_iter().map(|(_, _, texts)| texts).collect()
    }

    fn config(&self, path: &str, more: &str) -> String {
        let url = format!("http://{}{path}", self.address);
        format!("[search]\nembedder = {{ url = '{url}', model = 'm'{more} }}\n")
    }
}

fn answer(mut stream: TcpStream, noted: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut lines, mut length) = (Vec::<String>::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or_default() == 0 {
            return;
        }
        let line = line.trim_end().to_owned();
        if let Some(bytes) = line.to_lowercase().strip_prefix("content-length: ") {
            length = bytes.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let inputs = body["input"].as_array().unwrap();
    let texts: Vec<String> = inputs.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
    let path = lines[0].split(' ').nth(1).unwrap().to_owned();
    let key = lines.iter().find(|line| line.to_lowercase().starts_with("authorization: "));
    let key = key.map_or("", |line| &line["authorization: ".len()..]).to_owned();
    let about = |text: &String| text.contains("tide") || text.contains("zyx");
    let row = |text: &String| if about(text) { [1.0, 0.1] } else { [0.0, 1.0] };
    let rows: Vec<[f64; 2]> = texts.iter().map(row).collect();
    let reply = if path.ends_with("/api/embed") {
        json!({"model": "m", "embeddings": rows})
    } else {
        let row = |(at, row): (usize, &[f64; 2])| json!({"index": at, "embedding": row});
        json!({"data": rows.iter().enumerate().map(row).collect::<Vec<_>>()})
    };
    noted.lock().unwrap().push((path, key, texts));
    let (reply, head) = (reply.to_string(), "HTTP/1.1 200 OK\r\nconnection: close\r\n");
    let _ = write!(stream, "{head}content-length: {}\r\n\r\n{reply}", reply.len());
}

const SEA: &str = r#"{"server": "sea", "tools": [
    {"name": "high_water", "description": "When the tide comes in.", "inputSchema": {"type": "object"}},
    {"name": "list_boats", "description": "Boats in a harbour.", "inputSchema": {"type": "object"}},
    {"name": "list_crews", "description": "People on a boat.", "inputSchema": {"type": "object"}}]}"#;

fn folder(config: &str) -> Folder {
    let config = format!("tools = ['sea.json']\n{config}");
    Folder::new(&[("toolcrib.toml", &config), ("sea.json", SEA)])
}

fn with_key(folder: &Folder, args: &str) -> Output {
    let mut command = folder.command(args);
    command.env("EMBED_KEY", "hunter2");
    let output = Folder::output(command);
    assert!(!output.stdout.contains("hunter2") && !output.stderr.contains("hunter2"));
    output
}

fn best(output: &Output) -> String {
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    value["results"][0]["tool"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_tool_that_shares_no_word_with_the_query_comes_first_by_its_vector() {
    for (path, target) in [("", "/api/embed"), ("/v1", "/v1/embeddings")] {
        let web = Web::new();
        let folder = folder(&web.config(path, ", key = '${EMBED_KEY}'"));
        assert_eq!(best(&with_key(&folder, "search zyx --json")), "high_water");
        let asked = web.asked();
        assert!(asked.iter().all(|(to, key, _)| to == target && key == "Bearer hunter2"));
        let documents = [
            "sea: high water. When the tide comes in.",
            "sea: list boats. Boats in a harbour.",
            "sea: list crews. People on a boat.",
        ];
        assert_eq!(asked[0].2, documents);
        assert_eq!(asked[1].2, ["zyx"]);

        // The next run has the vectors of the tools, and compares one.
        assert_eq!(best(&with_key(&folder, "search zyx --json")), "high_water");
        assert_eq!(web.texts(), [vec![documents[0]], vec!["zyx"]]);
    }
}

#[test]
fn words_alone_ask_nobody() {
    let web = Web::new();
    let folder = folder("[search]\nembedder = 'none'\n");
    assert_eq!(best(&folder.run("search zyx --json")), "");
    assert_eq!(best(&folder.run("search boats --json")), "list_boats");
    assert!(web.asked().is_empty());
    assert!(!folder.path("home/.cache/toolcrib/vectors.db").exists());
}

#[test]
fn an_embedder_that_fails_is_told_of_and_done_without() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let entry = format!("{{ url = 'http://{nobody}', model = 'm', key = '${{EMBED_KEY}}' }}");
    let folder = folder(&format!("[search]\nembedder = {entry}\n"));
    let output = with_key(&folder, "search boats --json");
    assert_eq!(best(&output), "list_boats");
    let warning = "warning: the embedder fails: it can't be reached: ";
    assert!(output.stderr.starts_with(warning), "{}", output.stderr);
    assert!(output.stderr.ends_with("; tools are ranked by the built-in table\n"));

    let output = folder.run("search boats --json");
    assert_eq!(best(&output), "list_boats");
    let reason = "the embedder can't be used: environment variable `EMBED_KEY` is not set";
    assert!(output.stderr.contains(reason), "{}", output.stderr);
    let checked = folder.run("config check");
    assert_eq!(checked.stdout, "toolcrib.toml can be used, with 1 warning: preset crib\n");
    assert!(checked.stderr.contains(reason), "{}", checked.stderr);
}

#[test]
fn what_is_wrong_with_an_embedder_is_placed() {
    for (text, expected) in [
        (
            "embedder = 'sk-0123'",
            "`search.embedder`: there is no such embedder; expected `static`, `none`, or a table with `url` and `model`",
        ),
        ("embedder = 7", "`search.embedder`: invalid type, expected `static`, `none`, or a table"),
        ("embedder = { url = 'http://h' }", "missing field `model`"),
        (
            "embedder = { url = 'h', model = 'm' }",
            "`search.embedder.url`: expected an address that starts with http:// or https://",
        ),
        (
            "embedder = { url = 'http://h', model = '' }",
            "`search.embedder.model`: expected the name of a model",
        ),
        (
            "embedder = { url = 'http://h', model = 'm', timeout_ms = 0 }",
            "`search.embedder.timeout_ms`: expected milliseconds, from 1 to 60000",
        ),
        (
            "embedder = { url = 'http://h', model = 'm', format = 'x' }",
            "unknown variant `x`, expected `openai` or `ollama`",
        ),
        (
            "embedder = { url = 'http://h', modle = 'm' }",
            "`search.embedder.modle`: there is no such key; did you mean `model`?",
        ),
        (
            "embedder = { url = 'http://h', model = 'm', key = 7 }",
            "`search.embedder.key`: invalid type, expected a string",
        ),
    ] {
        let folder = folder(&format!("[search]\n{text}\n"));
        let message = folder.fails(2, "config check");
        assert!(message.contains("toolcrib.toml, line 3, column "), "{text}: {message}");
        assert!(message.contains(expected), "{text}: {message}");
        assert!(!message.contains("sk-0123"), "{message}");
    }
}

#[test]
fn what_is_in_force_is_shown_without_the_key() {
    let web = Web::new();
    let shown = folder(&web.config("/v1", ", key = 'hunter2'")).text("config show");
    assert!(shown.contains("[search.embedder]\n") && shown.contains("key = \"(hidden)\""));
    assert!(!shown.contains("hunter2") && shown.contains("timeout_ms = 1500"), "{shown}");
    assert!(Folder::new(&[]).text("config show").contains("embedder = \"static\""));
}

#[test]
fn doctor_asks_the_embedder() {
    let web = Web::new();
    let healthy = folder(&web.config("/v1", ""));
    let report = healthy.json("doctor --json");
    let of = |report: &Value| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["kind"] == "embedder").unwrap().clone()
    };
    let check = of(&report);
    let summary = check["summary"].as_str().unwrap();
    let start = format!("m at http://{}/v1/embeddings: 2 dimensions, ", web.address);
    assert!(check["ok"] == true && summary.starts_with(&start), "{check}");
    assert_eq!(web.texts().len(), 2);

    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = folder(&format!("search.embedder = {{ url = 'http://{nobody}', model = 'm' }}"));
    let output = dead.run("doctor --json");
    let check = of(&serde_json::from_str(&output.stdout).unwrap());
    assert_eq!((output.code, &check["ok"]), (Some(1), &json!(false)));
    let what = check["findings"][0]["what"].as_str().unwrap();
    assert!(what.starts_with("it can't be reached: "), "{what}");
}

#[test]
fn the_gateway_ranks_by_vectors_once_it_has_them() {
    let web = Web::new();
    let tools: Value = serde_json::from_str(SEA).unwrap();
    let server = script("sea", &odd_server(&tools["tools"].to_string(), r#"{"content":[]}"#));
    let config = format!("{}{server}", web.config("", ""));
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    let mut command = folder.command("serve --stdio");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |id: u64, method: &str, params: Value| -> Value {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{request}").unwrap();
        loop {
            let line = output.next().unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    };
    let client = json!({"name": "test", "version": "1"});
    ask(
        1,
        "initialize",
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client}),
    );
    let began = Instant::now();
    let mut id = 1;
    loop {
        id += 1;
        let call = json!({"name": "tool_search", "arguments": {"query": "zyx"}});
        let found = ask(id, "tools/call", call);
        let text = found["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        let found: Value = serde_json::from_str(&text).unwrap_or_default();
        if found["tools"][0]["name"] == "sea__high_water" {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{text}");
        thread::sleep(Duration::from_millis(50));
    }
    let texts = web.texts();
    assert_eq!(texts[0].len(), 3, "{texts:?}");
    assert_eq!(texts[1..], [["zyx"]], "the query is asked about once");
    drop(input);
    assert!(child.wait().unwrap().success());
}
