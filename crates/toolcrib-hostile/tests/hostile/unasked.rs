//! Messages that nobody asked for.

use serde_json::{Value, json};
use toolcrib_wire::Era;

use crate::raw::{BOTH, Raw, SHORT, text};

const CHANGED: &str = "notifications/tools/list_changed";

#[test]
fn the_list_is_said_to_have_changed_again_and_again() {
    let mut raw = Raw::greeted(Era::Sessions, &["--list-changed-storm", "5000"]);
    for _ in 0..1000 {
        assert_eq!(raw.message()["method"], CHANGED);
    }
    raw.echoes();
}

#[test]
fn without_sessions_only_those_who_listen_are_told() {
    let args = ["--list-changed-storm", "5000", "--times", "100"];
    let mut raw = Raw::greeted(Era::Stateless, &args);
    raw.echoes();
    assert_eq!(raw.line_within(SHORT), None);
    let id = raw.ask("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(raw.message()["method"], "notifications/subscriptions/acknowledged");
    for _ in 0..100 {
        let message = raw.message();
        let of = &message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
        assert_eq!((&message["method"], of), (&json!(CHANGED), &json!(id)));
    }
    raw.answers_only_a_ping();
}

#[test]
fn progress_is_told_that_nobody_asked_for() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--unknown-progress", "3"]);
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        for at in 0..3 {
            let message = raw.message();
            assert_eq!(message["method"], "notifications/progress");
            assert_eq!(message["params"]["progressToken"], format!("nobody-{at}"));
        }
        assert_eq!(raw.message()["id"], id);
    }
}

#[test]
fn there_are_messages_that_nobody_knows() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--unknown-messages", "2"]);
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        let messages = [raw.message(), raw.message(), raw.message()];
        assert_eq!(messages[0]["method"], "notifications/nobody/knows");
        assert_eq!(messages[1]["method"], "nobody/knows");
        assert!(messages[0].get("id").is_none() && messages[1].get("id").is_some());
        assert_eq!(messages[2]["id"], id);
    }
}

#[test]
fn the_client_is_asked_for_things() {
    for (flag, method, params) in [
        ("--ask-sampling", "sampling/createMessage", "messages"),
        ("--ask-elicitation", "elicitation/create", "requestedSchema"),
        ("--ask-roots", "roots/list", ""),
    ] {
        let is_whole = |question: &Value| {
            question["method"] == method
                && (params.is_empty() || question["params"].get(params).is_some())
        };
        // By requests, which need not be answered.
        let mut raw = Raw::greeted(Era::Sessions, &[flag]);
        let id = raw.ask_call("echo", json!({"text": "hello"}));
        let question = raw.message();
        assert!(question["id"].is_string() && is_whole(&question), "{question}");
        let answer = raw.message();
        assert_eq!((&answer["id"], text(&answer)), (&json!(id), "hello"));
        // By answers that want input, however much is given.
        let mut raw = Raw::greeted(Era::Stateless, &[flag, "--times", "2"]);
        for _ in 0..2 {
            let result = raw.call("echo", json!({"text": "hello"}))["result"].clone();
            assert_eq!(result["resultType"], "input_required");
            assert!(is_whole(&result["inputRequests"]["ask"]), "{result}");
            assert!(result["requestState"].is_string());
        }
        raw.echoes();
    }
}
