//! A model behind an address, as `--base-url`, `[agent]` and the environment name it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::run::without_models;
use crate::support::{Folder, listen};

/// A request: where to, with which authorization, with which body.
type Asked = (String, String, Value);

/// A server that speaks Chat Completions and has one model, which says the same to everybody.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    fn start() -> Self {
        let (address, asked) = listen(answer);
        Self { url: format!("http://{address}/v1"), asked }
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

fn answer(mut stream: TcpStream, noted: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut path, mut key, mut length) = (String::new(), String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or_default() == 0 {
            return;
        }
        let lower = line.trim_end().to_lowercase();
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap().to_owned();
        } else if let Some(bytes) = lower.strip_prefix("content-length: ") {
            length = bytes.parse().unwrap();
        } else if lower.starts_with("authorization: ") {
            key = line.trim_end()["authorization: ".len()..].to_owned();
        } else if lower.starts_with("x-api-key: ") {
            key = line.trim_end()["x-api-key: ".len()..].to_owned();
        } else if lower.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut noted = noted.lock().unwrap();
    let is_first = noted.is_empty();
    noted.push((path.clone(), key, body.clone()));
    drop(noted);
    let (kind, text) = match path.as_str() {
        "/v1/models" => ("application/json", json!({"data": [{"id": "tiny"}]}).to_string()),
        // One whose first answer breaks off.
        "/v1/chat/completions" if body["model"] == "flaky" && is_first => {
            let choices = json!([{"index": 0, "delta": {"content": "Bad "}}]);
            let chunk = json!({"id": "1", "object": "chat.completion.chunk", "created": 1,
                "model": "flaky", "choices": choices});
            ("text/event-stream", format!("data: {chunk}\n\n"))
        }
        _ => {
            let chunk = |delta: Value, end: Value| {
                let choices = json!([{"index": 0, "delta": delta, "finish_reason": end}]);
                let chunk = json!({"id": "1", "object": "chat.completion.chunk", "created": 1,
                    "model": "tiny", "choices": choices});
                format!("data: {chunk}\n\n")
            };
            let pieces = [
                chunk(json!({"role": "assistant", "content": "Good "}), Value::Null),
                chunk(json!({"content": "day."}), Value::Null),
                chunk(json!({}), json!("stop")),
                "data: [DONE]\n\n".to_owned(),
            ];
            ("text/event-stream", pieces.concat())
        }
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close");
    let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{text}", text.len());
}

#[test]
fn the_first_model_that_is_listed_answers_where_none_is_named() {
    let server = Server::start();
    let folder = Folder::new(&[]);
    let args = format!("run hello --json --base-url {}", server.url);
    let output = Folder::output(without_models(&folder, &args));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    let of = |key: &str| value[key].as_str().unwrap().to_owned();
    assert_eq!([of("text"), of("model"), of("provider")], ["Good day.", "tiny", "openai-chat"]);
    let asked = server.asked();
    let paths: Vec<&str> = asked.iter().map(|(path, ..)| path.as_str()).collect();
    assert_eq!(paths, ["/v1/models", "/v1/chat/completions"]);
    assert!(asked.iter().all(|(_, key, _)| key.is_empty()), "{asked:?}");
    assert_eq!(asked[1].2["messages"][1]["content"], "hello");
}

#[test]
fn the_configuration_says_what_is_sent() {
    let server = Server::start();
    let config = format!(
        "[agent]\nprovider = 'openai-chat'\nbase_url = '{}'\nmodel = 'mine'\nkey_env = 'MY_KEY'\n\
         system = 'Be kind.'\nmax_output = 77\ntemperature = 0.5\n",
        server.url
    );
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    let mut command = without_models(&folder, "run hello");
    command.env("MY_KEY", "sesame").env("OPENAI_API_KEY", "another");
    let output = Folder::output(command);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Good day.\n"));
    let [(path, key, body)] = &server.asked()[..] else { panic!("one request") };
    assert_eq!((path.as_str(), key.as_str()), ("/v1/chat/completions", "Bearer sesame"));
    assert_eq!((&body["model"], &body["temperature"]), (&json!("mine"), &json!(0.5)));
    assert!(body["messages"][0]["content"].as_str().unwrap().starts_with("Be kind."), "{body}");
    assert!(body.to_string().contains("77"), "{body}");

    let mut command = without_models(&folder, "run hello --model other --system Be~brief.");
    command.env("MY_KEY", "sesame");
    assert_eq!(Folder::output(command).code, Some(0));
    let [(_, _, body)] = &server.asked()[..] else { panic!("one request") };
    assert_eq!(body["model"], "other");
    assert!(body["messages"][0]["content"].as_str().unwrap().starts_with("Be brief."), "{body}");
}

#[test]
fn the_environment_names_a_server_and_its_key() {
    let server = Server::start();
    let folder = Folder::new(&[]);
    let mut command = without_models(&folder, "run hello");
    command.env("OPENAI_BASE_URL", &server.url).env("OPENAI_API_KEY", "sesame");
    let output = Folder::output(command);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Good day.\n"));
    let asked = server.asked();
    assert!(asked.iter().all(|(_, key, _)| key == "Bearer sesame"), "{asked:?}");
    assert_eq!(asked[1].2["model"], "tiny");
}

#[test]
fn what_a_failed_answer_wrote_does_not_reach_a_pipe() {
    let server = Server::start();
    let folder = Folder::new(&[]);
    let args = format!("run hello --model flaky --base-url {}", server.url);
    let output = Folder::output(without_models(&folder, &args));
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Good day.\n"));
    assert!(output.stderr.contains("asking again"), "{}", output.stderr);
    assert_eq!(server.asked().len(), 2);
}

#[test]
fn a_key_stays_away_from_an_address_of_somebody_else() {
    let server = Server::start();
    let config = format!("[agent]\nbase_url = '{}'\n", server.url);
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    let mut command = without_models(&folder, "run hello --provider anthropic --max-turns 1");
    // Nothing listens there: the provider's own address is out of reach at any rate.
    command.env("ANTHROPIC_API_KEY", "sesame").env("ANTHROPIC_BASE_URL", "http://127.0.0.1:1");
    assert_eq!(Folder::output(command).code, Some(1));
    assert_eq!(server.asked(), []);
}

#[test]
fn the_proxy_of_the_environment_is_used_but_not_on_this_machine() {
    let proxy = Server::start();
    let folder = Folder::new(&[]);
    let place = proxy.url.trim_end_matches("/v1").to_owned();
    let mut command =
        without_models(&folder, "run hello --model m --base-url http://api.invalid/v1");
    command.env("HTTP_PROXY", &place);
    let output = Folder::output(command);
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "Good day.\n"));
    let [(path, ..)] = &proxy.asked()[..] else { panic!("one request") };
    assert_eq!(path, "http://api.invalid/v1/chat/completions");

    let server = Server::start();
    let mut command = without_models(&folder, &format!("run hello --base-url {}", server.url));
    command.env("HTTP_PROXY", &place).env("ALL_PROXY", &place);
    assert_eq!(Folder::output(command).code, Some(0));
    assert_eq!((server.asked().len(), proxy.asked().len()), (2, 0));
}
