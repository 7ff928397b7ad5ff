//! Providers against servers that answer byte by byte, fall silent, break off or refuse.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use toolcrib_agent::providers::{Access, Ollama, OpenAiChat};
use toolcrib_agent::{Delta, Message, Provider, ProviderError, Reply, Request, Retry, Said};

/// What a server does when it has said everything.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Close,
    /// Waits until the client closes the connection.
    Wait,
    /// Takes another request on the same connection.
    Again,
}

/// A server with an answer for every connection.
struct Server {
    base: String,
    requests: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    /// Told when a client closes a connection.
    closed: Arc<Notify>,
}

impl Server {
    /// Gives every request the same answer, piece by piece.
    async fn start(pieces: Vec<Vec<u8>>, then: Then) -> Self {
        Self::by(move |_| pieces.clone(), then).await
    }

    /// Gives the requests of connection number `n`, from 0, the answer `answer(n)`.
    async fn by(answer: impl Fn(usize) -> Vec<Vec<u8>> + Send + 'static, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            base: format!("http://{}", listener.local_addr().unwrap()),
            requests: Arc::default(),
            connections: Arc::default(),
            closed: Arc::default(),
        };
        let (requests, closed) = (server.requests.clone(), server.closed.clone());
        let connections = server.connections.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let pieces = answer(connections.fetch_add(1, Ordering::SeqCst));
                let (requests, closed) = (requests.clone(), closed.clone());
                tokio::spawn(async move {
                    while let Some(request) = read_request(&mut socket).await {
                        requests.lock().unwrap().push(request);
                        for piece in &pieces {
                            if socket.write_all(piece).await.is_err() {
                                break;
                            }
                            tokio::task::yield_now().await;
                        }
                        match then {
                            Then::Again => {}
                            Then::Close => return,
                            Then::Wait => {
                                while socket.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {}
                                closed.notify_one();
                                return;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    /// One with an answer in one piece.
    async fn saying(answer: impl Into<Vec<u8>>) -> Self {
        Self::start(vec![answer.into()], Then::Close).await
    }

    fn access(&self) -> Access {
        let mut access = Access::default();
        access.base_url = Some(self.base.clone());
        access
    }

    fn ollama(&self) -> Ollama {
        Ollama::open(self.access()).unwrap()
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let head = loop {
        let mut more = [0; 4096];
        match socket.read(&mut more).await {
            Ok(read) if read > 0 => bytes.extend_from_slice(&more[..read]),
            _ => return None,
        }
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let text = String::from_utf8_lossy(&bytes[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length?.trim().parse().ok()?;
    while bytes.len() < head + length {
        let mut more = [0; 4096];
        let read = socket.read(&mut more).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&more[..read]);
    }
    String::from_utf8(bytes).ok()
}

fn request() -> Request {
    Request { sees_images: false, ..Request::new("m", [Message::user("Hi")]) }
}

async fn ask(provider: &impl Provider) -> Vec<Result<Delta, ProviderError>> {
    let told = provider.stream(request()).collect();
    tokio::time::timeout(Duration::from_secs(20), told).await.expect("the stream ends")
}

/// The error of an answer that has one, and that after nothing but pieces.
async fn failure(provider: &impl Provider) -> ProviderError {
    let mut items = ask(provider).await;
    let last = items.pop();
    assert!(items.iter().all(Result::is_ok), "{items:?}");
    match last {
        Some(Err(error)) => error,
        other => panic!("{other:?} after {items:?}"),
    }
}

fn refusal(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}")
}

const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";

const LINES: &str = concat!(
    "{\"message\":{\"role\":\"assistant\",\"content\":\"Größe: \"},\"done\":false}\n",
    "{\"message\":{\"role\":\"assistant\",\"content\":\"12 µm 🙂\"},\"done\":false}\n",
    "{\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"eval_count\":7}\n",
);

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn answer() -> Vec<u8> {
    [HEAD.as_bytes(), &chunk(LINES.as_bytes()), b"0\r\n\r\n"].concat()
}

fn expected() -> Vec<Result<Delta, ProviderError>> {
    let content = vec![Said::Text { text: "Größe: 12 µm 🙂".into() }];
    let usage = toolcrib_agent::Usage { output: 7, ..Default::default() };
    vec![
        Ok(Delta::Text("Größe: ".into())),
        Ok(Delta::Text("12 µm 🙂".into())),
        Ok(Delta::Finished(Reply { content, usage, ..Reply::default() })),
    ]
}

#[tokio::test]
async fn a_request_carries_what_it_should() {
    let server = Server::saying(answer()).await;
    let mut access = server.access();
    access.base_url = Some(format!("{}/proxy/", server.base));
    access.key = Some(" sk-0123456789 ".into());
    access.headers = vec![("X-Team".into(), "blue".into()), ("accept".into(), "*/*".into())];
    assert_eq!(ask(&Ollama::open(access).unwrap()).await, expected());
    let requests = server.requests();
    let (head, body) = requests[0].split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
    assert_eq!(lines.remove(0), "POST /proxy/api/chat HTTP/1.1");
    lines.sort();
    assert_eq!(
        lines,
        [
            "accept: */*",
            "authorization: Bearer sk-0123456789",
            &format!("content-length: {}", body.len()),
            "content-type: application/json",
            &format!("host: {}", server.base.trim_start_matches("http://")),
            &format!("user-agent: toolcrib/{}", env!("CARGO_PKG_VERSION")),
            "x-team: blue",
        ]
    );
    assert!(body.starts_with(r#"{"model":"m","messages":[{"role":"user""#), "{body}");
}

#[tokio::test]
async fn an_answer_is_the_same_however_its_bytes_arrive() {
    let crlf = LINES.replace('\n', "\r\n\r\n");
    let unended = LINES.trim_end();
    for text in [LINES, &crlf, unended] {
        for step in [1, 2, 3, 5, 7, 1000] {
            let mut pieces = vec![HEAD.as_bytes().to_vec()];
            pieces.extend(text.as_bytes().chunks(step).map(chunk));
            pieces.push(b"0\r\n\r\n".to_vec());
            let server = Server::start(pieces, Then::Close).await;
            assert_eq!(ask(&server.ollama()).await, expected(), "in steps of {step}");
        }
    }
}

#[tokio::test]
async fn an_answer_cut_anywhere_is_an_error_and_says_which() {
    let head = HEAD.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n");
    let whole = String::from_utf8(answer()).unwrap().replace(HEAD, &head).into_bytes();
    // The last line of the content ends before the end of its chunk and the end of all chunks.
    let complete = whole.len() - "\r\n0\r\n\r\n".len();
    let bytes = whole.clone();
    let server = Server::by(move |cut| vec![bytes[..cut].to_vec()], Then::Close).await;
    let ollama = server.ollama();
    for cut in 0..=whole.len() {
        let items = ask(&ollama).await;
        let (last, before) = items.split_last().unwrap();
        assert!(before.iter().all(|item| matches!(item, Ok(Delta::Text(_)))), "{cut}: {items:?}");
        let fits = match last {
            Err(ProviderError::Unreachable(_)) => cut < head.len(),
            Err(ProviderError::Broken(_)) => (head.len()..complete).contains(&cut),
            Ok(Delta::Finished(_)) => cut >= complete,
            _ => false,
        };
        assert!(fits, "{cut} of {}: {items:?}", whole.len());
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), whole.len() + 1);
}

#[tokio::test]
async fn a_busy_server_says_how_long_to_wait() {
    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
    for (headers, wait) in [
        ("retry-after: 7\r\n".to_owned(), Retry::After(Duration::from_secs(7))),
        ("retry-after-ms: 1500\r\n".to_owned(), Retry::After(Duration::from_millis(1500))),
        (
            format!("{date}retry-after: Sun, 06 Nov 1994 08:51:07 GMT\r\n"),
            Retry::After(Duration::from_secs(90)),
        ),
        (String::new(), Retry::Soon),
    ] {
        let body = r#"{"error": "too many requests"}"#;
        let server = Server::saying(refusal("429 Too Many Requests", &headers, body)).await;
        let error = failure(&server.ollama()).await;
        assert_eq!(error.to_string(), "HTTP 429: too many requests");
        assert_eq!(error.retry(), wait, "{headers}");
    }
}

#[tokio::test]
async fn a_refusal_is_told_with_its_reason_as_far_as_it_comes() {
    let body = r#"{"error": "llama runner crashed"}"#;
    let server = Server::saying(refusal("500 Internal Server Error", "", body)).await;
    let failed = ProviderError::Failed("HTTP 500: llama runner crashed".into());
    assert_eq!(failure(&server.ollama()).await, failed);

    let cut = "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 900\r\n\r\n{\"error\": \"lla";
    let server = Server::saying(cut).await;
    assert_eq!(failure(&server.ollama()).await, ProviderError::Failed("HTTP 500".into()));

    let long = "x".repeat(1 << 20);
    let server = Server::saying(refusal("400 Bad Request", "", &long)).await;
    assert_eq!(failure(&server.ollama()).await, ProviderError::Rejected("HTTP 400".into()));
}

#[tokio::test]
async fn silence_has_a_limit() {
    let limit = Duration::from_millis(150);
    let first = [HEAD.as_bytes(), &chunk(LINES.lines().next().unwrap().as_bytes()), &chunk(b"\n")];
    for (said, pieces) in [("", 0), (HEAD, 0), (&String::from_utf8_lossy(&first.concat()), 1)] {
        let server = Server::start(vec![said.into()], Then::Wait).await;
        let mut access = server.access();
        access.limits.silence = limit;
        let items = ask(&Ollama::open(access).unwrap()).await;
        assert_eq!(items.len(), pieces + 1, "{items:?}");
        assert_eq!(items[pieces], Err(ProviderError::TimedOut(limit)));
        server.closed.notified().await;
    }
}

#[tokio::test]
async fn a_slow_answer_is_no_silence() {
    let mut pieces = vec![HEAD.as_bytes().to_vec()];
    pieces.extend(LINES.as_bytes().chunks(40).map(chunk));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut access = Access::default();
    access.base_url = Some(format!("http://{}", listener.local_addr().unwrap()));
    access.limits.silence = Duration::from_millis(400);
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        for piece in pieces {
            socket.write_all(&piece).await.unwrap();
            tokio::time::sleep(Duration::from_millis(120)).await;
        }
    });
    assert_eq!(ask(&Ollama::open(access).unwrap()).await, expected());
}

#[tokio::test]
async fn nobody_else_gets_the_request() {
    let other = Server::saying(answer()).await;
    for status in ["301 Moved Permanently", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("location: {}/api/chat\r\n", other.base);
        let server = Server::saying(refusal(status, &location, "")).await;
        let error = failure(&server.ollama()).await;
        assert!(matches!(error, ProviderError::Rejected(_)), "{error:?}");
        assert!(error.to_string().contains("correct the base URL"), "{error}");
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
    }
    assert_eq!(other.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn errors_show_neither_key_nor_address() {
    let secrets = ["sk-0123456789", "token-abcdefgh", "password1"];
    let body = format!(r#"{{"error": "Bearer {} is wrong, so is {}"}}"#, secrets[0], secrets[1]);
    let server = Server::saying(refusal("401 Unauthorized", "", &body)).await;
    let mut access = server.access();
    access.base_url = Some(server.base.replace("http://", "http://user:password1@"));
    access.key = Some(secrets[0].into());
    access.headers = vec![("x-auth".into(), secrets[1].into())];
    let ollama = Ollama::open(access.clone()).unwrap();
    let denied = failure(&ollama).await;
    assert!(matches!(denied, ProviderError::Denied(_)), "{denied:?}");
    assert!(denied.to_string().contains("Bearer *** is wrong, so is ***"), "{denied}");

    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    access.base_url = Some(format!("http://user:password1@{nowhere}"));
    let unreachable = failure(&Ollama::open(access).unwrap()).await;
    assert!(matches!(unreachable, ProviderError::Unreachable(_)), "{unreachable:?}");
    for shown in [denied.to_string(), unreachable.to_string(), format!("{ollama:?}")] {
        assert!(secrets.iter().all(|secret| !shown.contains(secret)), "{shown}");
    }
    assert!(!unreachable.to_string().contains(&nowhere.to_string()), "{unreachable}");
}

#[tokio::test]
async fn dropping_an_answer_closes_its_connection() {
    let first = [HEAD.as_bytes(), &chunk(LINES.as_bytes()[..80].as_ref())].concat();
    let server = Server::start(vec![first], Then::Wait).await;
    let ollama = server.ollama();
    let mut stream = ollama.stream(request());
    assert_eq!(stream.next().await, Some(Ok(Delta::Text("Größe: ".into()))));
    drop(stream);
    let closed = tokio::time::timeout(Duration::from_secs(5), server.closed.notified()).await;
    assert!(closed.is_ok(), "the server still waits");
}

#[tokio::test]
async fn nothing_is_sent_before_somebody_listens() {
    let server = Server::saying(answer()).await;
    drop(server.ollama().stream(request()));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let mut pieces = vec![HEAD.as_bytes().to_vec(), chunk(LINES.as_bytes())];
    pieces.push(b"0\r\n\r\n".to_vec());
    let server = Server::start(pieces, Then::Again).await;
    let ollama = server.ollama();
    for _ in 0..3 {
        assert_eq!(ask(&ollama).await, expected());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!((server.requests().len(), server.connections.load(Ordering::SeqCst)), (3, 1));
}

#[tokio::test]
async fn what_follows_a_complete_answer_is_not_waited_for() {
    let unended = [HEAD.as_bytes(), &chunk(LINES.as_bytes())].concat();
    let server = Server::start(vec![unended], Then::Wait).await;
    assert_eq!(ask(&server.ollama()).await, expected());
    server.closed.notified().await;
}

#[tokio::test]
async fn a_line_without_end_is_given_up() {
    let endless = vec![b'x'; 33 << 20];
    let server = Server::start(vec![HEAD.as_bytes().to_vec(), chunk(&endless)], Then::Close).await;
    let error = failure(&server.ollama()).await;
    assert!(matches!(error, ProviderError::Broken(_)), "{error:?}");
}

#[tokio::test]
async fn a_web_page_is_no_answer() {
    let page = "HTTP/1.1 200 OK\r\ncontent-type: Text/HTML; charset=utf-8\r\n\r\n<html></html>";
    let error = failure(&Server::saying(page).await.ollama()).await;
    assert!(matches!(error, ProviderError::Rejected(_)), "{error:?}");
}

#[tokio::test]
async fn events_are_told_apart_however_their_bytes_arrive() {
    let events = [
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"Größe: "}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"12 µm 🙂"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ];
    let head = HEAD.replace("application/x-ndjson", "text/event-stream");
    for end in ["\n", "\r\n", "\r"] {
        for step in [1, 3, 1000] {
            let text: String = events
                .iter()
                .map(|data| format!(": ping{end}{end}data: {data}{end}{end}"))
                .collect();
            let mut pieces = vec![head.clone().into_bytes()];
            pieces.extend(text.as_bytes().chunks(step).map(chunk));
            pieces.push(b"0\r\n\r\n".to_vec());
            let server = Server::start(pieces, Then::Close).await;
            let items = ask(&OpenAiChat::open(server.access()).unwrap()).await;
            let texts = items.iter().filter_map(|item| match item {
                Ok(Delta::Text(text)) => Some(text.as_str()),
                _ => None,
            });
            assert_eq!(texts.collect::<Vec<_>>(), ["Größe: ", "12 µm 🙂"], "{items:?}");
            assert!(matches!(items.last(), Some(Ok(Delta::Finished(_)))), "{items:?}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_comes_whole_is_read_whole() {
    let body = r#"{"choices": [{"index": 0, "finish_reason": "stop",
        "message": {"role": "assistant", "content": "Größe"}}]}"#;
    let answer = refusal("200 OK", "content-type: application/json; charset=utf-8\r\n", body);
    let server = Server::saying(answer).await;
    let items = ask(&OpenAiChat::open(server.access()).unwrap()).await;
    let Some(Ok(Delta::Finished(reply))) = items.last() else { panic!("{items:?}") };
    assert_eq!(reply.content, [Said::Text { text: "Größe".into() }]);
    assert!(server.requests()[0].contains("accept: text/event-stream"), "{:?}", server.requests());
}
