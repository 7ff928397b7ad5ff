//! The process ends.

use std::os::unix::process::ExitStatusExt;

use serde_json::json;
use toolcrib_wire::Era;

use crate::raw::{BOTH, Raw};

#[test]
fn it_exits_at_start_with_the_code_it_was_given() {
    let mut raw = Raw::start(Era::Sessions, &["--exit-at-start", "7"]);
    assert_eq!(raw.ended().code(), Some(7));
    assert_eq!(raw.rest(), b"");
    let mut raw = Raw::start(Era::Sessions, &["--exit-at-start"]);
    assert_eq!(raw.ended().code(), Some(1));
}

#[test]
fn it_exits_after_the_handshake() {
    for era in BOTH {
        let mut raw = Raw::start(era, &["--exit-after-handshake", "3"]);
        let id = raw.ask_greeting();
        assert!(raw.answer(id)["result"].is_object());
        assert_eq!(raw.ended().code(), Some(3));
    }
}

#[test]
fn it_exits_instead_of_listing_or_answering() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--exit-at-list", "4"]);
        raw.ask("tools/list", json!({}));
        assert_eq!((raw.ended().code(), raw.rest()), (Some(4), Vec::new()));
        let mut raw = Raw::greeted(era, &["--exit-at-call", "0"]);
        raw.list(json!({}));
        raw.ask_call("echo", json!({"text": "hello"}));
        assert_eq!((raw.ended().code(), raw.rest()), (Some(0), Vec::new()));
    }
}

#[test]
fn it_is_killed_in_a_call() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--killed-at-call"]);
        raw.ask_call("echo", json!({"text": "hello"}));
        assert_eq!((raw.ended().signal(), raw.rest()), (Some(9), Vec::new()));
    }
}

#[test]
fn half_an_answer_is_its_last_word() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--die-mid-answer"]);
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        assert_eq!(raw.ended().signal(), Some(9));
        let rest = String::from_utf8(raw.rest()).unwrap();
        assert!(rest.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result""#)), "{rest}");
        assert!(!rest.contains('\n') && !rest.ends_with('}'), "{rest}");
    }
}
