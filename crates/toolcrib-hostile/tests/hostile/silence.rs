//! No answer comes.

use std::io::Write;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib_wire::Era;

use crate::raw::{BOTH, LONG, Raw, SHORT};

#[test]
fn the_handshake_hangs_and_nothing_else_does() {
    for (era, flag, other) in [
        (Era::Sessions, "--hang-at-initialize", Era::Stateless),
        (Era::Stateless, "--hang-at-discover", Era::Sessions),
    ] {
        let mut raw = Raw::start(era, &[flag]);
        raw.ask_greeting();
        raw.answers_only_a_ping();
        // The other era's greeting is a step of its own.
        Raw::greeted(other, &[flag]).echoes();
    }
}

#[test]
fn nothing_is_answered_after_initialized() {
    let mut raw = Raw::greeted(Era::Sessions, &["--hang-at-initialized"]);
    raw.ask("ping", json!({}));
    raw.ask("tools/list", json!({}));
    assert_eq!(raw.line_within(SHORT), None);
    assert!(raw.is_running());
}

#[test]
fn listing_hangs_and_calling_does_not() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--hang-at-list"]);
        raw.ask("tools/list", json!({}));
        raw.answers_only_a_ping();
        raw.echoes();
    }
}

#[test]
fn calling_hangs_and_listing_does_not() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--hang-at-call"]);
        raw.ask_call("echo", json!({"text": "hello"}));
        raw.answers_only_a_ping();
        assert_eq!(raw.list(json!({}))["tools"].as_array().unwrap().len(), 4);
    }
}

#[test]
fn a_slow_answer_takes_its_time_and_holds_nobody_up() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--slow-answers", "400"]);
        let began = Instant::now();
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        let ping = raw.ask("ping", json!({}));
        assert_eq!(raw.message()["id"], ping);
        raw.answer(id);
        assert!(began.elapsed() >= Duration::from_millis(400));
    }
}

#[test]
fn a_pipe_that_is_never_read_fills_up() {
    let mut raw = Raw::start(Era::Sessions, &["--never-read"]);
    assert!(fills_up(&mut raw));
    assert_eq!(raw.line_within(SHORT), None);
}

#[test]
fn after_a_call_the_pipe_fills_up() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--stop-reading"]);
        raw.echoes();
        assert!(fills_up(&mut raw));
        assert_eq!(raw.line_within(SHORT), None);
    }
    // The same bytes are no trouble for who reads.
    let mut raw = Raw::greeted(Era::Sessions, &[]);
    assert!(!fills_up(&mut raw));
}

/// Whether a megabyte does not go through.
fn fills_up(raw: &mut Raw) -> bool {
    let mut stdin = raw.stdin.take().unwrap();
    let (sender, written) = channel();
    std::thread::spawn(move || {
        let line = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": "x".repeat(1000)}});
        for _ in 0..1000 {
            if stdin.write_all(format!("{line}\n").as_bytes()).is_err() {
                return;
            }
        }
        let _ = sender.send(());
        // Open for as long as the server is.
        std::thread::sleep(LONG);
    });
    written.recv_timeout(Duration::from_secs(2)).is_err()
}
