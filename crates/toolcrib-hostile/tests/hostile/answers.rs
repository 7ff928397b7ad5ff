//! Answers that are none.

use serde_json::{Value, json};
use toolcrib_wire::Era;

use crate::raw::{BOTH, Raw, SHORT, text};

#[test]
fn an_answer_has_an_id_that_nobody_gave() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--wrong-ids"]);
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        let answer = raw.message();
        assert_ne!(answer["id"], id);
        assert_eq!(text(&answer), "hello");
        raw.answers_only_a_ping();
    }
}

#[test]
fn an_answer_comes_more_than_once() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--duplicate-answers", "3"]);
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        let answers = [raw.message(), raw.message(), raw.message()];
        assert!(answers.iter().all(|answer| answer["id"] == id));
        assert_eq!(answers.each_ref().map(text), ["hello", "answer 2 of 3", "answer 3 of 3"]);
        assert_eq!(raw.line_within(SHORT), None);
    }
}

#[test]
fn results_are_of_the_wrong_type_in_turn() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--wrong-types"]);
        let mut results: Vec<Value> = Vec::new();
        for _ in 0..13 {
            results.push(raw.call("echo", json!({"text": "hello"}))["result"].clone());
        }
        assert_eq!(results[..4], [json!(7), json!("a text"), json!([]), json!(null)]);
        assert_eq!(results[6], json!({"content": "a text"}));
        assert_eq!(results[12], results[0]);
        let mut raw = Raw::start(era, &["--wrong-types", "--at", "handshake"]);
        assert_eq!(raw.greet()["result"], 7);
        let mut raw = Raw::greeted(era, &["--wrong-types", "--at", "list"]);
        assert_eq!(raw.list(json!({})), 7);
    }
}

#[test]
fn an_answer_has_a_result_and_an_error() {
    for era in BOTH {
        let answer = Raw::greeted(era, &["--result-and-error"]).call("counter", json!({}));
        assert_eq!((text(&answer), &answer["error"]["code"]), ("1", &json!(-32603)));
    }
}

#[test]
fn an_answer_is_an_error() {
    for era in BOTH {
        let answer = Raw::greeted(era, &["--error-answers", "32001"]).call("counter", json!({}));
        assert_eq!(answer["error"]["code"], -32001);
        assert!(answer.get("result").is_none());
    }
}

#[test]
fn the_version_never_was() {
    for era in BOTH {
        let result = Raw::start(era, &["--odd-version"]).greet()["result"].clone();
        match era {
            Era::Sessions => assert_eq!(result["protocolVersion"], "1999-12-31"),
            Era::Stateless => assert_eq!(result["supportedVersions"], json!(["1999-12-31"])),
        }
    }
}

#[test]
fn a_result_has_megabytes() {
    for era in BOTH {
        let answer = Raw::greeted(era, &["--huge-result", "5"]).call("echo", json!({"text": ""}));
        assert_eq!(text(&answer).len(), 5 << 20);
        assert_eq!(answer["result"].get("resultType").is_some(), era == Era::Stateless);
    }
}
