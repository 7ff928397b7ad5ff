//! Calls of a gateway as a collector hears of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc;

use crate::support::{Folder, builtin};

/// A collector that takes one request: its head and its body.
fn collector() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, taken) = mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        sender.send(take(stream)).unwrap();
    });
    (url, taken)
}

fn take(stream: TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        reader.read_line(&mut head).unwrap();
    }
    let length = head.to_lowercase().lines().find_map(|line| {
        line.strip_prefix("content-length: ").and_then(|length| length.parse().ok())
    });
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    (head, body)
}

fn has(body: &[u8], text: &str) -> bool {
    body.windows(text.len()).any(|part| part == text.as_bytes())
}

#[test]
fn a_call_is_reported_with_its_place_in_the_callers_trace() {
    let (url, taken) = collector();
    let config = format!(
        "{}\n[gateway.telemetry]\nendpoint = \"{url}\"\nservice_name = \"our-gateway\"\n\
         headers = {{ x-key = \"${{COLLECTOR_KEY}}\" }}\n",
        builtin("time", "time")
    );
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    let mut command = folder.command("serve --stdio");
    command.env("COLLECTOR_KEY", "open-sesame");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#.to_owned(),
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"call_tool","arguments":{{"tool_name":"time__current_time","arguments":{{"timezone":"UTC"}}}},"_meta":{{"traceparent":"00-{trace}-00f067aa0ba902b7-01"}}}}}}"#),
    ] {
        writeln!(input, "{message}").unwrap();
    }
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let answer = answers.find(|line| line.as_ref().unwrap().contains(r#""id":2"#));
    let answer = answer.unwrap().unwrap();
    assert!(!answer.contains("isError"), "{answer}");
    drop(input);
    assert!(child.wait().unwrap().success());
    let (head, body) = taken.recv().unwrap();
    assert!(head.starts_with("POST /v1/traces ") && head.contains("x-key: open-sesame"), "{head}");
    let id: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&trace[2 * at..2 * at + 2], 16).unwrap()).collect();
    assert!(body.windows(16).any(|part| part == id), "the trace is the caller's");
    for text in ["our-gateway", "time/current_time", "toolcrib.outcome"] {
        assert!(has(&body, text), "{text}");
    }
}

#[test]
fn a_collector_that_is_away_stops_nobody_and_one_that_is_no_address_is_named() {
    let config = |endpoint: &str| {
        format!("{}\n[gateway.telemetry]\nendpoint = \"{endpoint}\"\n", builtin("time", "time"))
    };
    let folder = Folder::new(&[("toolcrib.toml", &config("http://127.0.0.1:9"))]);
    let mut command = folder.command("serve --stdio");
    command.stdin(Stdio::null());
    assert_eq!(Folder::output(command).code, Some(0));
    let folder = Folder::new(&[("toolcrib.toml", &config("collector"))]);
    let message = folder.fails(2, "serve --stdio");
    assert!(message.contains("[gateway.telemetry]") && message.contains("http://"), "{message}");
}
