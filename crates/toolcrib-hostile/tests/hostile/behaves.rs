//! Without a flag, it behaves.

use std::time::Duration;

use serde_json::json;
use toolcrib_wire::Era;

use crate::raw::{BOTH, Raw, command, text};

#[test]
fn its_tools_are_listed_and_work_in_both_eras() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &[]);
        let list = raw.list(json!({}));
        let names: Vec<&str> =
            list["tools"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
        assert_eq!(names, ["echo", "add", "sleep", "counter"]);
        assert!(list.get("nextCursor").is_none());
        raw.echoes();
        assert_eq!(
            raw.call("add", json!({"a": 2, "b": 0.5}))["result"]["structuredContent"],
            json!({"sum": 2.5})
        );
        for expected in ["1", "2"] {
            assert_eq!(text(&raw.call("counter", json!({}))), expected);
        }
        let refused = raw.call("add", json!({"a": "two"}));
        assert_eq!(refused["result"]["isError"], true, "{refused}");
        assert_eq!(raw.call("nothing", json!({}))["error"]["code"], -32602);
        // Who has the newer era says so in every result, and nobody else does.
        let kind = if era == Era::Stateless { json!("complete") } else { json!(null) };
        assert_eq!(list["resultType"], kind);
        assert_eq!(raw.call("counter", json!({}))["result"]["resultType"], kind);
        drop(raw.stdin.take());
        assert_eq!(raw.ended().code(), Some(0));
    }
}

#[test]
fn a_call_that_takes_long_holds_nobody_up_and_can_be_given_up() {
    let mut raw = Raw::greeted(Era::Sessions, &[]);
    let slow = raw.ask_call("sleep", json!({"ms": 1500}));
    raw.echoes();
    let soon = raw.ask_call("sleep", json!({"ms": 30}));
    assert_eq!(text(&raw.answer(soon)), "slept 30 ms");
    let params = json!({"requestId": slow});
    raw.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    assert_eq!(raw.line_within(Duration::from_millis(2500)), None);
    raw.echoes();
}

#[test]
fn one_era_can_be_left_out() {
    let mut raw = Raw::start(Era::Sessions, &["--era", "stateless"]);
    assert_eq!(raw.greet()["error"]["code"], -32022);
    let mut raw = Raw::start(Era::Stateless, &["--era", "sessions"]);
    assert_eq!(raw.greet()["error"]["code"], -32601);
}

#[test]
fn what_is_no_message_is_answered_and_does_no_harm() {
    let mut raw = Raw::greeted(Era::Sessions, &[]);
    for (line, code) in [
        (json!([1, 2]), -32600),
        (json!(7), -32600),
        (json!({"id": 1}), -32600),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": 7}), -32602),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": {}}}),
            -32602,
        ),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "no/such/method"}), -32601),
    ] {
        raw.say(&line);
        assert_eq!(raw.message()["error"]["code"], code, "{line}");
    }
    // Answers to questions that were never asked, and notifications of no meaning.
    raw.say(&json!({"jsonrpc": "2.0", "id": "x", "result": {}}));
    raw.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": [[]]}));
    raw.echoes();
}

#[test]
fn what_was_asked_before_the_end_is_still_answered() {
    use std::io::Write;
    let mut child = command(&[]).spawn().unwrap();
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    // Without a line's end.
    child.stdin.take().unwrap().write_all(ask.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n"
    );
    assert!(output.status.success());
}
