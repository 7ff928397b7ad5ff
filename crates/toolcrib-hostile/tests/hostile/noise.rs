//! More bytes than the answer, or too slowly.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolcrib_wire::Era;

use crate::raw::{BOTH, LONG, Raw, follow};

fn is_message(line: &[u8]) -> bool {
    serde_json::from_slice::<Value>(line)
        .is_ok_and(|it| it.get("result").is_some() || it.get("method").is_some())
}

/// The lines up to a call's answer, without it.
fn before_answer(raw: &mut Raw) -> Vec<Vec<u8>> {
    let id = raw.ask_call("echo", json!({"text": "hello"}));
    let mut lines = Vec::new();
    loop {
        let line = raw.line_within(LONG).expect("there is no answer");
        if serde_json::from_slice::<Value>(&line)
            .is_ok_and(|it| it["id"] == id && is_message(&line))
        {
            return lines;
        }
        lines.push(line);
    }
}

#[test]
fn garbage_comes_before_an_answer_and_is_the_same_for_the_same_seed() {
    for era in BOTH {
        let garbage = |seed| {
            let mut raw = Raw::greeted(era, &["--garbage", "40", "--seed", seed]);
            before_answer(&mut raw)
        };
        let lines = garbage("5");
        assert_eq!(lines.len(), 40);
        assert!(lines.iter().all(|line| !is_message(line)));
        assert!(lines.iter().any(|line| std::str::from_utf8(line).is_err()));
        assert_eq!(garbage("5"), lines);
        assert_ne!(garbage("6"), lines);
    }
}

#[test]
fn one_line_has_megabytes() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--flood", "3"]);
        let lines = before_answer(&mut raw);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<usize>>(), [3 << 20]);
    }
}

#[test]
fn standard_error_is_flooded_and_the_answer_waits_for_it() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--flood-stderr", "2"]);
        let stderr = raw.child.stderr.take().unwrap();
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        // Nobody reads the one, so nothing comes on the other.
        assert_eq!(raw.line_within(Duration::from_millis(500)), None);
        let chunks = follow(stderr);
        let mut bytes = 0;
        while bytes < 2 << 20 {
            bytes += chunks.recv_timeout(LONG).unwrap().len();
        }
        assert!(raw.answer(id)["result"].is_object());
    }
}

#[test]
fn an_answer_drips() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--drip", "5"]);
        let began = Instant::now();
        let answer = raw.call("echo", json!({"text": "hello"}));
        let bytes = answer.to_string().len() as u32;
        assert_eq!(answer["result"]["content"][0]["text"], "hello");
        assert!(began.elapsed() >= Duration::from_millis(5) * bytes);
    }
}

#[test]
fn an_answer_is_spread_over_lines() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--pretty-print"]);
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        let ping = raw.ask("ping", json!({}));
        let mut text = String::new();
        let mut lines = 0;
        loop {
            let line = String::from_utf8(raw.line_within(LONG).unwrap()).unwrap();
            if is_message(line.as_bytes()) {
                assert!(line.contains(&format!("\"id\":{ping}")), "{line}");
                break;
            }
            text += &line;
            lines += 1;
        }
        assert!(lines > 5);
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["id"], id);
    }
}

#[test]
fn messages_without_end_until_the_fault_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("on");
    for era in BOTH {
        std::fs::write(&file, "").unwrap();
        let until = file.to_str().unwrap();
        let mut raw = Raw::greeted(era, &["--endless-output", "5000", "--until", until]);
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        for _ in 0..2000 {
            assert_eq!(raw.message()["method"], "notifications/message");
        }
        std::fs::remove_file(&file).unwrap();
        assert!(raw.answer(id)["result"].is_object());
    }
}

#[test]
fn a_fault_strikes_where_it_is_told_to() {
    let mut raw = Raw::start(Era::Sessions, &["--garbage", "1", "--at", "initialize,list"]);
    let lines = |raw: &mut Raw| {
        let mut lines = 1;
        while !is_message(&raw.line_within(LONG).unwrap()) {
            lines += 1;
        }
        lines
    };
    raw.ask_greeting();
    assert_eq!(lines(&mut raw), 2);
    raw.ask("tools/list", json!({}));
    assert_eq!(lines(&mut raw), 2);
    raw.ask_call("echo", json!({"text": "hello"}));
    assert_eq!(lines(&mut raw), 1);
}
