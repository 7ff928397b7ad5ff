//! What servers say, over both transports.

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use futures::future::{BoxFuture, join_all};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use toolcrib_core::ToolName;
use toolcrib_fuzz::{Corpus, Hunt};
use toolcrib_mcp::{Era, ServerConfig, Upstreams};
use toolcrib_runtime::{Caller, Invocation, Listener, Party, Question, RpcError, Toolset};

use super::{Hunted, runtime};

/// Between the answers to two requests.
const NEXT: u8 = 0x1e;

/// Between the servers of one input. A client waits a lot, so it meets many at once.
const OTHER: u8 = 0x1d;
const SERVERS: usize = 4;

/// After a message that has an answer to itself.
const PLAIN: &str = " ";

/// What ends a request, whatever was said before.
const LAST: &str = r#"{"jsonrpc":"2.0","id":"$ID","error":{"code":-1,"message":"enough"}}"#;

/// Answers in the order in which they are wanted: a greeting, lists, then whatever a call brings.
/// `$ID` stands for the request's id.
fn answers() -> [Vec<Value>; 3] {
    let answer = |result: Value| json!({"jsonrpc": "2.0", "id": "$ID", "result": result});
    let about = json!({"name": "s", "version": "1"});
    let capabilities = json!({"tools": {"listChanged": true}, "resources": {"subscribe": true},
        "prompts": {}, "logging": {}});
    let greetings = vec![
        answer(json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
            "serverInfo": about, "instructions": "Hello."})),
        answer(json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": capabilities, "ttlMs": 1, "cacheScope": "public"})),
        json!({"jsonrpc": "2.0", "id": "$ID", "error": {"code": -32022, "message": "No",
            "data": {"supported": ["2026-07-28"]}}}),
    ];
    let schema = json!({"type": "object", "properties":
        {"path": {"type": "string", "x-mcp-header": "Path"}}, "required": ["path"]});
    let tool = json!({"name": "read", "title": "Read", "description": "Reads.",
        "inputSchema": schema, "annotations": {"readOnlyHint": true}, "_meta": {"a": 1}});
    let lists = vec![answer(json!({"tools": [tool], "nextCursor": "2", "ttlMs": 60000,
        "resources": [{"uri": "a://b", "name": "b"}], "prompts": [{"name": "p"}],
        "resourceTemplates": [{"uriTemplate": "a://{b}", "name": "t"}]}))];
    let note =
        |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
    let ask = |id: Value, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let calls = vec![
        answer(json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"n": 1},
            "isError": false, "resultType": "complete"})),
        answer(json!({"resultType": "input_required", "requestState": "s", "inputRequests":
            {"k": {"method": "elicitation/create", "params": {"message": "?"}}}})),
        answer(json!({"resultType": "task", "taskId": "1", "ttl": 1, "pollInterval": 1})),
        answer(json!({"contents": [{"uri": "a://b", "text": "c"}]})),
        json!({"jsonrpc": "2.0", "id": "$ID", "error": {"code": -32042, "message": "No",
            "data": {"elicitations": []}}}),
        note("notifications/progress", json!({"progressToken": 3, "progress": 1, "total": 2})),
        note("notifications/message", json!({"level": "info", "data": "x"})),
        note("notifications/tools/list_changed", json!({})),
        note("notifications/resources/updated", json!({"uri": "a://b"})),
        note("notifications/cancelled", json!({"requestId": 1})),
        note("notifications/subscriptions/acknowledged", json!({"notifications": {}})),
        ask(json!(1), "ping", json!({})),
        ask(
            json!("x"),
            "elicitation/create",
            json!({"message": "?", "_meta": {"progressToken": 1}}),
        ),
        ask(json!(2), "sampling/createMessage", json!({"messages": [], "maxTokens": 1})),
        ask(json!(3), "roots/list", json!({})),
    ];
    [greetings, lists, calls]
}

struct Script {
    whole: [Vec<Vec<u8>>; 3],
    wrong: [Corpus; 3],
}

impl Script {
    fn new() -> Self {
        let words = [
            "$ID",
            "\"id\":",
            "\"result\":",
            "\"error\":",
            "\"method\":",
            "2025-11-25",
            "2026-07-28",
            "inputRequests",
            "nextCursor",
            "resultType",
            "data: ",
            "event: message\n",
            "id: 1\n",
            "retry: 1\n",
            "\n\n",
        ];
        let texts = answers().map(|all| all.iter().map(Value::to_string).collect::<Vec<_>>());
        let wrong = texts.each_ref().map(|all| Corpus::new(all.iter().map(String::as_str), words));
        Self { whole: texts.map(|all| all.into_iter().map(String::into_bytes).collect()), wrong }
    }

    /// What some servers say.
    fn input(&self, rng: &mut Rng, before: &str, after: &str) -> Vec<u8> {
        let servers: Vec<_> = (0..SERVERS).map(|_| self.server(rng, before, after)).collect();
        servers.join(&OTHER)
    }

    /// Answers to some requests, each of one or more messages. Those that come early are mostly
    /// right, or nothing later would be looked at.
    fn server(&self, rng: &mut Rng, before: &str, after: &str) -> Vec<u8> {
        let mut input = Vec::new();
        for at in 0..rng.usize(3..12) {
            let stage = match at {
                0 => 0,
                1..=2 => 1,
                _ => rng.usize(1..3),
            };
            let wrong = [40, 90, 200][stage];
            let mut count = if stage == 2 { rng.usize(1..6) } else { 1 };
            while count > 0 {
                count -= 1;
                let message = if rng.u8(..) < wrong {
                    self.wrong[stage].mutated(rng)
                } else {
                    let first = if stage == 0 && rng.u8(..) < 200 { 1 } else { usize::MAX };
                    let of = &self.whole[stage];
                    of[rng.usize(..of.len().min(first))].clone()
                };
                input.extend(before.as_bytes());
                input.extend(message.into_iter().filter(|byte| ![NEXT, OTHER].contains(byte)));
                input.extend(after.as_bytes());
            }
            // Waiting in vain is slow: mostly there is an answer in the end.
            if after != PLAIN && rng.u8(..) < 230 {
                input.extend(before.as_bytes());
                input.extend(LAST.as_bytes());
                input.extend(after.as_bytes());
            }
            input.push(NEXT);
        }
        input
    }
}

/// The answers of an input, one after the other.
struct Answers {
    all: Vec<Vec<u8>>,
    next: usize,
}

impl Answers {
    fn new(input: &[u8]) -> Self {
        Self { all: input.split(|byte| *byte == NEXT).map(<[u8]>::to_vec).collect(), next: 0 }
    }

    /// What to say to a request; nothing when it has all been said.
    fn to(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let said = self.all.get(self.next)?.clone();
        self.next += 1;
        let request: Value = serde_json::from_slice(request).unwrap_or_default();
        let id = request["id"].to_string();
        let mut out = Vec::new();
        let mut rest = said.as_slice();
        let marks: [&[u8]; 2] = [b"\"$ID\"", b"$ID"];
        while !rest.is_empty() {
            match marks.iter().find(|mark| rest.starts_with(mark)) {
                Some(mark) => {
                    out.extend(id.as_bytes());
                    rest = &rest[mark.len()..];
                }
                None => {
                    out.push(rest[0]);
                    rest = &rest[1..];
                }
            }
        }
        Some(out)
    }
}

/// Is a server on standard input and output that says what an input has for it.
pub(crate) fn answer(file: &Path) -> ExitCode {
    let mut answers = Answers::new(&std::fs::read(file).unwrap_or_default());
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        // Notifications and answers are not answered.
        if !line.contains("\"method\"") || !line.contains("\"id\"") {
            continue;
        }
        let Some(said) = answers.to(line.as_bytes()) else { break };
        if out.write_all(&said).is_err() || out.flush().is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

/// A client that answers whatever it is asked.
struct Willing;

impl Listener for Willing {
    fn hear(&self, _: &str, _: &RawValue) {}

    fn ask(
        &self,
        _: &str,
        _: Option<&RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
        let answer = RawValue::from_string(r#"{"action":"accept","content":{}}"#.to_owned());
        Box::pin(async { answer.map_err(|error| RpcError::invalid_params(error.to_string())) })
    }
}

/// Lists, calls and asks a server, whatever it says; and ends it.
async fn visit(config: ServerConfig, case: usize) {
    let mut config = config;
    config.start_limit = Duration::from_millis(500);
    config.call_limit = Some(Duration::from_millis(50));
    config.era = [None, Some(Era::Sessions), Some(Era::Stateless)][case % 3];
    let upstreams = Upstreams::default();
    let upstream = upstreams.open(config);
    let can = RawValue::from_string(r#"{"elicitation":{},"sampling":{},"roots":{}}"#.to_owned());
    let era = if case.is_multiple_of(2) { Era::Sessions } else { Era::Stateless };
    let party = Arc::new(Party::new(era, 1, can.ok().map(Arc::from), None));
    let caller = || Caller::new(Willing).with_party(party.clone());
    let listed = upstream.list().await;
    if listed.is_ok() {
        for name in ["read", "read"] {
            let mut invocation = Invocation::new(ToolName::mcp("s", name), json!({"path": "a"}));
            invocation.caller = caller();
            let _ = upstream.call(invocation).await;
        }
        if let Some(server) = upstream.server() {
            let uri = RawValue::from_string(r#"{"uri":"a://b"}"#.to_owned()).ok();
            let mut question = Question::new("resources/read", uri.map(Arc::from));
            question.caller = caller();
            let _ = server.ask(question).await;
        }
    }
    party.end();
    upstreams.shut_down().await;
}

pub(super) fn lines(hunt: &Hunt, given: Option<Vec<u8>>) -> Hunted {
    let (script, runtime) = (Script::new(), runtime());
    #[expect(clippy::expect_used, reason = "a test program may end here")]
    let folder = tempfile::tempdir().expect("a folder");
    let program = std::env::current_exe().unwrap_or_default().display().to_string();
    hunt.run(
        |rng| given.clone().unwrap_or_else(|| script.input(rng, "", "\n")),
        |input| {
            let mut visits = Vec::new();
            for (at, server) in input.split(|byte| *byte == OTHER).enumerate() {
                let file = folder.path().join(at.to_string());
                std::fs::write(&file, server).map_err(|error| error.to_string())?;
                let arguments = ["answer".to_owned(), file.display().to_string()];
                visits.push(visit(ServerConfig::command("s", &program, arguments), at));
            }
            runtime.block_on(join_all(visits));
            Ok(())
        },
    )
}

type Shared = Arc<Mutex<Vec<Answers>>>;

pub(super) fn http(hunt: &Hunt, given: Option<Vec<u8>>) -> Hunted {
    let (script, runtime) = (Script::new(), runtime());
    let shared = Shared::default();
    let url = runtime.block_on(serve(shared.clone()));
    hunt.run(
        |rng| {
            given.clone().unwrap_or_else(|| match rng.bool() {
                true => script.input(rng, "data: ", "\n\n"),
                false => script.input(rng, "", PLAIN),
            })
        },
        |input| {
            let answers: Vec<_> = input.split(|byte| *byte == OTHER).map(Answers::new).collect();
            let servers = 0..answers.len();
            *shared.lock().unwrap_or_else(PoisonError::into_inner) = answers;
            let config = |at| ServerConfig::http("s", format!("{url}/{at}/"));
            runtime.block_on(join_all(servers.map(|at| visit(config(at), at))));
            Ok(())
        },
    )
}

/// Is any number of servers over HTTP; each connection takes one request.
async fn serve(answers: Shared) -> String {
    #[expect(clippy::expect_used, reason = "a test program may end here")]
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().map(|it| it.to_string()).unwrap_or_default();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(reply(stream, answers.clone()));
        }
    });
    format!("http://{address}")
}

async fn reply(mut stream: TcpStream, answers: Shared) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).await.ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    let is_request = head.starts_with("post") && body.windows(4).any(|part| part == b"\"id\"");
    let server: usize = head.split('/').nth(1)?.parse().ok()?;
    let said = match is_request && body.windows(8).any(|part| part == b"\"method\"") {
        true => {
            let mut all = answers.lock().unwrap_or_else(PoisonError::into_inner);
            all.get_mut(server)?.to(&body)?
        }
        false => Vec::new(),
    };
    let (status, kind) = match (head.starts_with("get"), said.is_empty(), said.starts_with(b"data"))
    {
        (true, ..) => ("405 No", "text/plain"),
        (_, true, _) => ("202 Accepted", "text/plain"),
        (.., true) => ("200 OK", "text/event-stream"),
        _ => ("200 OK", "application/json"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nmcp-session-id: s\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        said.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(&said).await.ok()
}
