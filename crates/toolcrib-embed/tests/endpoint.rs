//! A real server on the loopback that answers well, wrongly, slowly or not at all.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use toolcrib_embed::{Endpoint, EndpointConfig, EndpointError, Format};
use toolcrib_runtime::{Embed, EmbedError, Embeddings, Purpose};

/// A request as it was seen: its first line, its headers in lower case, its body.
#[derive(Clone, Debug)]
struct Seen {
    line: String,
    headers: String,
    body: Value,
}

/// What is sent back, and after how long.
struct Reply(Duration, String);

struct Web {
    address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Web {
    async fn new(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (answer, noted) = (Arc::new(answer), seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, noted) = (answer.clone(), noted.clone());
                tokio::spawn(async move { talk(stream, &*answer, &noted).await });
            }
        });
        Self { address, seen }
    }

    fn endpoint(&self, path: &str) -> Endpoint {
        let url = format!("http://{}{path}", self.address);
        let mut config = EndpointConfig::new(url, "some-model");
        config.key = Some("hunter2".to_owned());
        Endpoint::open(config).unwrap()
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn talk(
    mut stream: TcpStream,
    answer: &(dyn Fn(&Seen) -> Reply + Send + Sync),
    noted: &Mutex<Vec<Seen>>,
) {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.unwrap_or_default();
        bytes.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            let (line, headers) = head.split_once("\r\n").unwrap();
            let seen = Seen { line: line.to_owned(), headers: headers.to_lowercase(), body };
            noted.lock().unwrap().push(seen.clone());
            let Reply(after, text) = answer(&seen);
            sleep(after).await;
            let _ = stream.write_all(text.as_bytes()).await;
            return;
        }
        if read == 0 {
            return;
        }
    }
}

fn reply(status: &str, body: &str) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n");
    Reply(Duration::ZERO, format!("{head}content-type: application/json\r\n\r\n{body}"))
}

/// How long each text is, in OpenAI's form and in the wrong order.
fn openai(seen: &Seen) -> Reply {
    let texts = seen.body["input"].as_array().unwrap();
    let row = |(at, text): (usize, &Value)| {
        let length = text.as_str().unwrap().len();
        json!({"object": "embedding", "index": at, "embedding": [length, 1]})
    };
    let data: Vec<Value> = texts.iter().enumerate().map(row).rev().collect();
    reply("200 OK", &json!({"object": "list", "data": data, "model": "m"}).to_string())
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

async fn failure(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> EmbedError {
    let web = Web::new(answer).await;
    web.endpoint("/v1").embed(Purpose::Document, texts(&["a", "b"])).await.unwrap_err()
}

#[tokio::test]
async fn openais_form_is_spoken() {
    let web = Web::new(openai).await;
    let endpoint = web.endpoint("/v1");
    let rows = endpoint.embed(Purpose::Document, texts(&["a", "bcd"])).await.unwrap();
    assert_eq!(rows, [[1.0, 1.0], [3.0, 1.0]]);
    let seen = &web.seen()[0];
    assert_eq!(seen.line, "POST /v1/embeddings HTTP/1.1");
    assert_eq!(seen.body, json!({"model": "some-model", "input": ["a", "bcd"]}));
    assert!(seen.headers.contains("authorization: bearer hunter2"), "{}", seen.headers);
    assert!(seen.headers.contains("content-type: application/json"), "{}", seen.headers);
}

#[tokio::test]
async fn ollamas_form_is_spoken() {
    let web = Web::new(|_| reply("200 OK", r#"{"embeddings": [[1, 2], [3, 4]]}"#)).await;
    let endpoint = web.endpoint("");
    assert_eq!(endpoint.format(), Format::Ollama);
    let rows = endpoint.embed(Purpose::Query, texts(&["a", "b"])).await.unwrap();
    assert_eq!(rows, [[1.0, 2.0], [3.0, 4.0]]);
    let seen = &web.seen()[0];
    assert_eq!(seen.line, "POST /api/embed HTTP/1.1");
    assert_eq!(seen.body, json!({"model": "some-model", "input": ["a", "b"]}));
}

#[tokio::test]
async fn a_model_is_told_what_a_text_is() {
    let web = Web::new(openai).await;
    let mut config = EndpointConfig::new(format!("http://{}/v1", web.address), "m");
    config.document_prefix = "search_document: ".to_owned();
    config.query_prefix = "search_query: ".to_owned();
    let plain = web.endpoint("/v1");
    let endpoint = Endpoint::open(config).unwrap();
    assert_ne!(endpoint.id(), plain.id());
    endpoint.embed(Purpose::Document, texts(&["a"])).await.unwrap();
    endpoint.embed(Purpose::Query, texts(&["a"])).await.unwrap();
    let inputs: Vec<Value> = web.seen().iter().map(|seen| seen.body["input"].clone()).collect();
    assert_eq!(inputs, [json!(["search_document: a"]), json!(["search_query: a"])]);
    assert!(!web.seen()[0].headers.contains("authorization"));
}

#[tokio::test]
async fn every_wrong_answer_says_what_is_wrong() {
    let error = failure(|_| reply("500 Oops", r#"{"error": {"message": "hunter2 is tired"}}"#));
    let expected = "HTTP 500 Internal Server Error: *** is tired".to_owned();
    assert_eq!(error.await, EmbedError::Refused(expected));
    let error = failure(|_| reply("401 No", "")).await.to_string();
    assert_eq!(error, "it refused: HTTP 401 Unauthorized; see whether `key` is right");
    let short = r#"{"data": [{"index": 0, "embedding": [1]}]}"#;
    let error = failure(|_| reply("200 OK", short)).await;
    assert_eq!(error, EmbedError::Invalid("1 vectors for 2 texts".to_owned()));
    for garbage in ["<html>hello</html>", "", "{}", "{\"data\": 7}", "\u{0}\u{1}"] {
        let error = failure(move |_| reply("200 OK", garbage)).await;
        assert!(matches!(error, EmbedError::Invalid(_)), "{garbage}: {error:?}");
    }
    let error = failure(|_| Reply(Duration::ZERO, "nonsense".to_owned())).await;
    assert!(matches!(error, EmbedError::Unreachable(_)), "{error:?}");
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"data\": [";
    let error = failure(|_| Reply(Duration::ZERO, broken.to_owned())).await;
    assert!(matches!(error, EmbedError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn an_answer_without_an_end_is_not_read_to_its_end() {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"data\": [";
    let error =
        failure(move |_| Reply(Duration::ZERO, format!("{head}{}", " ".repeat(33 << 20)))).await;
    assert_eq!(error.to_string(), "its answer makes no sense: it has more than 33554432 bytes");
}

#[tokio::test]
async fn neither_key_nor_texts_follow_a_redirect() {
    let elsewhere = Web::new(openai).await;
    let location = format!("http://{}/v1/embeddings", elsewhere.address);
    let head = format!("HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n");
    let error =
        failure(move |_| Reply(Duration::ZERO, format!("{head}connection: close\r\n\r\n"))).await;
    assert!(error.to_string().ends_with("it has moved, correct `url`"), "{error}");
    assert!(elsewhere.seen().is_empty());
}

#[tokio::test]
async fn an_address_where_nobody_is_says_so_without_the_key() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let mut config = EndpointConfig::new(format!("http://{address}/v1?key=hunter2"), "m");
    config.key = Some("hunter2".to_owned());
    let endpoint = Endpoint::open(config).unwrap();
    let error = endpoint.embed(Purpose::Query, texts(&["a"])).await.unwrap_err();
    assert!(matches!(error, EmbedError::Unreachable(_)), "{error:?}");
    assert!(!format!("{error} {endpoint:?} {}", endpoint.id()).contains("hunter2"));
}

#[tokio::test]
async fn a_server_that_is_slow_or_hangs_costs_the_limit_and_no_more() {
    let web = Web::new(|seen| {
        let slow = seen.body["input"][0] == "slow";
        Reply(Duration::from_secs(if slow { 600 } else { 0 }), openai(seen).1)
    })
    .await;
    let embeddings = Embeddings::new(web.endpoint("/v1"), ());
    let embeddings = embeddings.with_query_limit(Duration::from_millis(300));
    assert_eq!(&*embeddings.query("fine").await.unwrap(), [4.0, 1.0]);
    let began = std::time::Instant::now();
    let error = embeddings.query("slow").await.unwrap_err();
    assert_eq!(error, EmbedError::TimedOut(Duration::from_millis(300)));
    assert!(matches!(embeddings.query("other").await, Err(EmbedError::Resting(_))));
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(&*embeddings.query("fine").await.unwrap(), [4.0, 1.0], "it is remembered");
    assert_eq!(web.seen().len(), 2);
}

#[test]
fn what_can_not_work_is_refused_before_anybody_is_asked() {
    let open = |url: &str, model: &str, key: &str| {
        let mut config = EndpointConfig::new(url, model);
        config.key = Some(key.to_owned());
        Endpoint::open(config).map(drop)
    };
    assert_eq!(open("http://h", " ", ""), Err(EndpointError::Model));
    assert_eq!(open("http://h", "m", "a\nb"), Err(EndpointError::Key));
    assert!(matches!(open("h", "m", ""), Err(EndpointError::Url(_))));
    assert_eq!(open("http://h", "m", " key\n"), Ok(()));
}
