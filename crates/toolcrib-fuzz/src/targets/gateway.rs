//! Requests to a gateway, over both transports.

use std::time::Duration;

use fastrand::Rng;
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use toolcrib_core::{GroupId, Naming, Schema, Settings, ToolName, ToolSpec};
use toolcrib_fuzz::{Corpus, Hunt};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options};
use toolcrib_runtime::{CallError, Crib, Invocation, Listing, ToolResult, Toolset};

use super::{Hunted, runtime};

/// Gives arguments back, talks while it works, or never answers.
#[derive(Clone)]
struct Tools;

impl Toolset for Tools {
    fn id(&self) -> GroupId {
        GroupId::server("files")
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let schema: Schema = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "x-mcp-header": "Path"},
                "lines": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "deep": {"$ref": "#/$defs/node"},
            },
            "required": ["path"],
            "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        })
        .into();
        let tool = |name: &str, about: &str| {
            ToolSpec::new(ToolName::mcp("files", name), schema.clone()).with_description(about)
        };
        let tools = vec![
            tool("read_file", "Read a file."),
            tool("count", "Counts aloud."),
            tool("wait", "Never answers."),
        ];
        Box::pin(async { Ok(Listing::new(tools)) })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async move {
            match invocation.tool.tool() {
                "wait" => std::future::pending().await,
                "count" => {
                    let note = r#"{"progressToken":0,"progress":1}"#.to_owned();
                    if let (Some(listener), Ok(note)) =
                        (invocation.caller.listener(), RawValue::from_string(note))
                    {
                        listener.hear("notifications/progress", &note);
                    }
                    Ok(ToolResult::text("counted"))
                }
                _ => Ok(ToolResult::data(json!({"arguments": invocation.arguments}))),
            }
        })
    }
}

async fn gateway() -> Gateway {
    let crib = Crib::builder(Settings::default()).naming(Naming::Gateway).build().await;
    #[expect(clippy::expect_used, reason = "a test program may end here")]
    let crib = crib.expect("settings that work");
    crib.add(Tools).await;
    let mut options = Options::default();
    options.start_wait = Duration::ZERO;
    options.drain = Duration::from_millis(2);
    options.line_bytes = 32 << 10;
    #[expect(clippy::expect_used, reason = "a test program may end here")]
    Gateway::new(crib, options).expect("settings that work")
}

/// Requests of both eras, one of each kind.
fn requests() -> Vec<Value> {
    let about = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}},
    });
    let plain = |method: &str, params: Value| json!({"method": method, "params": params});
    let call = |name: &str, arguments: Value| {
        plain("tools/call", json!({"name": name, "arguments": arguments}))
    };
    let path = json!({"path": "a", "lines": [1, 2], "deep": {"next": {}}});
    let reference = json!({"type": "ref/prompt", "name": "files__about"});
    let mut all = vec![
        plain(
            "initialize",
            json!({"protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}, "roots": {"listChanged": true}},
            "clientInfo": {"name": "fuzz", "version": "0"}}),
        ),
        plain("ping", json!({})),
        plain("logging/setLevel", json!({"level": "debug"})),
        plain("tools/list", json!({"cursor": null})),
        call("tool_search", json!({"query": "read file", "limit": 5})),
        call("tool_search", json!({"query": "select:read_file,files__count"})),
        call("tool_search", json!({"query": "/read.*/"})),
        call("load_tools", json!({"group": "files", "names": ["read_file"]})),
        call("call_tool", json!({"name": "files__read_file", "arguments": path})),
        call("files__count", path.clone()),
        call("read_file", path.clone()),
        call("files__wait", path),
        plain("resources/list", json!({})),
        plain("resources/templates/list", json!({})),
        plain("resources/read", json!({"uri": "crib://files/file:///a%20b"})),
        plain("resources/subscribe", json!({"uri": "crib://files/x"})),
        plain("prompts/list", json!({"cursor": "v1.0.00000000"})),
        plain("prompts/get", json!({"name": "files__about", "arguments": {"a": "b"}})),
        plain(
            "completion/complete",
            json!({"ref": reference, "argument": {"name": "a", "value": "b"}}),
        ),
        plain("server/discover", json!({})),
        plain(
            "subscriptions/listen",
            json!({"notifications":
            {"toolsListChanged": true, "resourceSubscriptions": ["crib://files/x"]}}),
        ),
        plain("tasks/get", json!({"taskId": "files:1"})),
    ];
    for request in all.clone() {
        let mut with_token = request.clone();
        with_token["params"]["_meta"] = about.clone();
        with_token["params"]["_meta"]["progressToken"] = json!("token");
        with_token["params"]["requestState"] = json!("e30.abc");
        with_token["params"]["inputResponses"] = json!({"q1": {"action": "accept"}});
        all.push(with_token);
    }
    for (at, request) in all.iter_mut().enumerate() {
        request["jsonrpc"] = "2.0".into();
        request["id"] = if at % 3 == 0 { json!(format!("r{at}")) } else { json!(at) };
    }
    all.extend([
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 11}}),
        json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": 1, "progress": 1}}),
        json!({"jsonrpc": "2.0", "id": 1, "result": {"action": "accept", "content": {}}}),
        json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no", "data": {}}}),
    ]);
    all
}

fn corpus() -> Corpus {
    let whole: Vec<String> = requests().iter().map(Value::to_string).collect();
    let words = [
        "tools/call",
        "tool_search",
        "call_tool",
        "load_tools",
        "files__read_file",
        "\"id\":",
        "\"method\":",
        "\"params\":",
        "\"_meta\":",
        "\"jsonrpc\":\"2.0\"",
        "2026-07-28",
        "2025-11-25",
        "initialize",
        "requestState",
        "inputResponses",
        "crib://",
        "\"name\":",
    ];
    Corpus::new(whole.iter().map(String::as_str), words)
}

/// Some lines, most of them wrong; a conversation has to begin for the rest to be looked at.
fn lines(corpus: &Corpus, rng: &mut Rng) -> Vec<u8> {
    let mut input = Vec::new();
    if rng.bool() {
        input.extend(requests()[0].to_string().into_bytes());
        input.push(b'\n');
    }
    for _ in 0..rng.usize(1..6) {
        let line = if rng.u8(..) < 60 { corpus.pick(rng) } else { corpus.mutated(rng) };
        input.extend(line);
        input.push(b'\n');
    }
    input
}

pub(super) fn stdio(hunt: &Hunt, given: Option<Vec<u8>>) -> Hunted {
    let (corpus, runtime) = (corpus(), runtime());
    let gateway = runtime.block_on(gateway());
    let endpoints =
        [Endpoint::Meta, Endpoint::Full, Endpoint::Inject, Endpoint::Server("files".to_owned())];
    let mut case = 0;
    hunt.run(
        |rng| given.clone().unwrap_or_else(|| lines(&corpus, rng)),
        |input| {
            case += 1;
            let endpoint = endpoints[case % endpoints.len()].clone();
            runtime.block_on(talk(&gateway, endpoint, input))
        },
    )
}

/// Everything is read, and every line that comes back is a message.
async fn talk(gateway: &Gateway, endpoint: Endpoint, input: &[u8]) -> Result<(), String> {
    let (mut to, their_input) = tokio::io::duplex(64 << 10);
    let (their_output, mut from) = tokio::io::duplex(64 << 10);
    let never = std::future::pending();
    let serving = gateway.serve_on(their_input, their_output, endpoint, never);
    let writing = async {
        let _ = to.write_all(input).await;
        drop(to);
    };
    let mut said = Vec::new();
    let (served, (), _) = tokio::join!(serving, writing, from.read_to_end(&mut said));
    served.map_err(|error| error.to_string())?;
    let said = String::from_utf8(said).map_err(|error| error.to_string())?;
    match said.lines().find(|line| !is_message(line)) {
        Some(line) => Err(format!("said {line}")),
        None => Ok(()),
    }
}

fn is_message(line: &str) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|message| message["jsonrpc"] == "2.0")
}

pub(super) fn http(hunt: &Hunt, given: Option<Vec<u8>>) -> Hunted {
    let (corpus, runtime) = (corpus(), runtime());
    let address = runtime.block_on(async {
        let gateway = gateway().await;
        #[expect(clippy::expect_used, reason = "a test program may end here")]
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr();
        tokio::spawn(async move {
            let never = std::future::pending();
            gateway.serve_http(listener, HttpOptions::default(), never).await
        });
        address
    });
    #[expect(clippy::expect_used, reason = "a test program may end here")]
    let address = address.expect("an address").to_string();
    hunt.run(
        |rng| given.clone().unwrap_or_else(|| http_request(&corpus, &address, rng)),
        |input| runtime.block_on(post(&address, input)),
    )
}

/// One request in the bytes of HTTP, whose body and headers may not agree.
fn http_request(corpus: &Corpus, address: &str, rng: &mut Rng) -> Vec<u8> {
    let body = if rng.u8(..) < 40 { corpus.pick(rng) } else { corpus.mutated(rng) };
    let methods = ["POST", "POST", "POST", "POST", "GET", "DELETE", "OPTIONS", "PUT"];
    let paths =
        ["/mcp", "/mcp/full", "/mcp/inject", "/mcp/s/files", "/mcp/s/%00", "/metrics", "/x"];
    let read: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("x").replace(['\r', '\n'], " ");
    let choose =
        |of: &[&str], rng: &mut Rng| rng.choice(of).copied().unwrap_or_default().to_owned();
    let mut headers = vec![
        ("host", address.to_owned()),
        ("content-type", "application/json".to_owned()),
        ("accept", choose(&["application/json, text/event-stream", "application/json"], rng)),
    ];
    if rng.bool() {
        let versions = ["2026-07-28", "2025-11-25", "2025-06-18", "1", ""];
        headers.push(("mcp-protocol-version", choose(&versions, rng)));
        headers.push(("mcp-method", text(&read["method"])));
        headers.push(("mcp-name", text(&read["params"]["name"])));
        headers.push(("mcp-param-path", choose(&["a", "=?base64?YQ==?=", "=?base64?", ""], rng)));
    }
    if rng.u8(..) < 40 {
        headers.push(("mcp-session-id", choose(&["", "0", "ffffffff"], rng)));
        headers.push(("last-event-id", choose(&["", "-", "0-1", "99999999999999999999"], rng)));
    }
    if rng.u8(..) < 20 {
        headers.push(("origin", choose(&["null", "http://localhost", "http://x"], rng)));
        headers.push(("authorization", choose(&["Bearer ", "Bearer x", "Basic"], rng)));
    }
    let mut out = format!("{} {} HTTP/1.1\r\n", choose(&methods, rng), choose(&paths, rng));
    for (name, value) in headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out.push_str(&format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()));
    let mut out = out.into_bytes();
    out.extend(body);
    out
}

/// Something comes back, and the gateway is well afterwards.
async fn post(address: &str, input: &[u8]) -> Result<(), String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    let _ = stream.write_all(input).await;
    let mut said = vec![0; 12];
    let answered = timeout(Duration::from_secs(1), stream.read_exact(&mut said)).await;
    // A call that never ends says nothing; a request that is cut short is waited for.
    if let Ok(Ok(_)) = answered {
        let status = String::from_utf8_lossy(&said);
        if !status.starts_with("HTTP/1.1 ") || status.ends_with("500") {
            return Err(format!("said {status}"));
        }
    }
    drop(stream);
    let mut stream = TcpStream::connect(address).await.map_err(failed)?;
    let well = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(well.as_bytes()).await.map_err(failed)?;
    let mut said = String::new();
    stream.read_to_string(&mut said).await.map_err(failed)?;
    if said.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(format!("unwell: {said}")) }
}
