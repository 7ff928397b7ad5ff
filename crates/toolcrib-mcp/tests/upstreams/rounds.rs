//! Servers that ask in rounds: driven for a client with a session, passed on to one without.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib_mcp::{Era, Upstream};
use toolcrib_runtime::{CallError, Caller, Kind, Party, Retry, ToolResult, Toolset};

use crate::asks::{Person, client, client_of};
use crate::support::{Scene, call, invocation, until, within};

fn raw(value: Value) -> Box<RawValue> {
    to_raw_value(&value).unwrap()
}

/// A server that speaks the newer way only, and such calls of it as the test wants.
struct Rounds {
    scene: Scene,
    upstream: Upstream,
}

impl Rounds {
    fn new() -> Self {
        let scene = Scene::new();
        let upstream = scene.upstream(json!({"stateless": true}));
        Self { scene, upstream }
    }

    async fn call(&self, mode: &str, caller: Caller) -> Result<ToolResult, CallError> {
        let mut asked = invocation("rounds", json!({"mode": mode}));
        asked.caller = caller;
        within(self.upstream.call(asked)).await
    }

    async fn drive(&self, mode: &str, person: &Person) -> Result<ToolResult, CallError> {
        self.call(mode, Caller::new(person.clone()).with_party(client())).await
    }

    /// The parameters of the calls that arrived.
    fn seen(&self) -> Vec<Value> {
        let lines = self.scene.lines("rounds");
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn said(text: &str) -> Value {
    json!({"action": "accept", "content": {"said": text}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_session_is_asked_and_gets_the_last_answer() {
    let rounds = Rounds::new();
    let person = Person::after(Duration::from_millis(300));
    let began = Instant::now();
    let result = rounds.drive("two", &person).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(result.kind(), Kind::Complete);
    let seen = rounds.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].get("inputResponses"), None);
    assert_eq!(seen[1]["inputResponses"], json!({"a": said("1"), "b": said("2")}));
    assert_eq!(seen[1]["requestState"], "first");
    assert_eq!(seen[2]["inputResponses"], json!({"c": said("3")}), "only the last answers");
    assert_eq!(seen[2]["requestState"], "second");
    for params in &seen {
        assert_eq!(params["arguments"], json!({"mode": "two"}));
        let meta = &params["_meta"];
        let of = |key: &str| meta[format!("io.modelcontextprotocol/{key}")].clone();
        assert_eq!(of("clientCapabilities"), json!({"elicitation": {}, "x": 1}));
        assert_eq!(of("clientInfo"), json!({"name": "tester", "version": "7"}));
    }
    assert_ne!(seen[0]["_meta"]["progressToken"], seen[1]["_meta"]["progressToken"]);
    assert_eq!(person.asked().len(), 3);

    rounds.drive("stateless", &person).await.unwrap();
    let seen = rounds.seen();
    assert_eq!(seen[4]["inputResponses"], json!({"a": said("1")}));
    assert_eq!(seen[4].get("requestState"), None, "what was not given out is not brought");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_want_to_say_cancels_and_who_cannot_fails_the_call() {
    let rounds = Rounds::new();
    let person = Person::refusing();
    let result = rounds.drive("stateless", &person).await.unwrap();
    let brought = &result.structured().unwrap()["inputResponses"];
    assert_eq!(*brought, json!({"a": {"action": "cancel"}}));

    let result = rounds.drive("sampling", &person).await.unwrap();
    let refusal = result.refusal().unwrap().to_string();
    assert!(refusal.contains("The client refused sampling/createMessage: no"), "{refusal}");
    assert_eq!(rounds.seen().len(), 3, "nothing was repeated");
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_have_an_end() {
    let rounds = Rounds::new();
    let person = Person::at_once();
    let result = rounds.drive("endless", &person).await.unwrap();
    assert!(result.refusal().unwrap().message.contains("more than 10 times"), "{result:?}");
    assert_eq!((rounds.seen().len(), person.asked().len()), (11, 10));

    let result = rounds.drive("many", &person).await.unwrap();
    assert!(result.refusal().unwrap().message.contains("17 questions at once"), "{result:?}");
    assert_eq!(person.asked().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_nothing_is_asked_again_later() {
    let rounds = Rounds::new();
    let began = Instant::now();
    let result = rounds.drive("later", &Person::at_once()).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(result.structured().unwrap()["requestState"], "wait");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_after_it_was_told_is_not_told_again() {
    let rounds = Rounds::new();
    let person = Person::at_once();
    let error = rounds.drive("die", &person).await.unwrap_err().to_string();
    assert!(error.contains("it was lost after it had got the input it asked for"), "{error}");
    assert!(error.contains("may have taken effect"), "{error}");
    assert_eq!((rounds.seen().len(), person.asked().len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_given_out_is_not_taken_to_a_server_with_sessions() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let retry = Retry { responses: None, state: Some(raw(json!("made up"))) };
    let mut asked = invocation("act", json!({}));
    asked.caller = Caller::default().with_party(client_of(Era::Stateless)).with_retry(retry);
    let result = within(upstream.call(asked)).await.unwrap();
    let refusal = result.refusal().unwrap();
    assert_eq!(refusal.code, -32602);
    assert!(refusal.message.contains("call again without it"), "{refusal}");
    assert_eq!(scene.count("executed", "act"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_between_rounds_takes_its_questions_back() {
    let rounds = Rounds::new();
    let person = Person::default();
    let call = rounds.drive("two", &person);
    assert!(tokio::time::timeout(Duration::from_secs(2), call).await.is_err());
    until("nobody is asked", || person.open() == 0).await;
    assert_eq!((person.asked().len(), rounds.seen().len()), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_without_sessions_gets_the_questions_and_brings_the_answers() {
    let rounds = Rounds::new();
    let (person, party) = (Person::at_once(), client_of(Era::Stateless));
    let caller = || {
        let rest = raw(json!({"task": {"ttl": 1}, "name": "not this", "requestState": "nor this"}));
        let caller = Caller::new(person.clone()).with_party(Arc::<Party>::clone(&party));
        caller.with_rest(rest).with_log_level("debug")
    };
    let rest = raw(json!({"task": {"ttl": 1}}));
    let result = rounds.call("two", caller().with_rest(rest)).await.unwrap();
    assert_eq!(result.kind(), Kind::InputRequired);
    let asked: Value = serde_json::from_str(result.json().get()).unwrap();
    assert_eq!(asked["inputRequests"]["b"]["params"], json!({"message": "2"}));

    let retry = Retry { responses: Some(raw(json!({"c": 1}))), state: Some(raw(json!("x\u{7}"))) };
    let result = rounds.call("two", caller().with_retry(retry)).await.unwrap();
    assert_eq!(result.kind(), Kind::Complete);
    let seen = &rounds.seen()[1];
    assert_eq!((&seen["name"], &seen["task"]), (&json!("rounds"), &json!({"ttl": 1})));
    assert_eq!(seen["inputResponses"], json!({"c": 1}));
    assert_eq!(seen["requestState"], "x\u{7}");
    assert_eq!(seen["_meta"]["io.modelcontextprotocol/logLevel"], "debug");
    assert!(person.asked().is_empty(), "it asks itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_brings_answers_is_never_sent_twice() {
    let rounds = Rounds::new();
    let retry = Retry { responses: None, state: Some(raw(json!("die"))) };
    let caller = Caller::default().with_party(client_of(Era::Stateless)).with_retry(retry);
    let error = rounds.call("die", caller).await.unwrap_err().to_string();
    assert!(error.contains("may have taken effect"), "{error}");
    assert_eq!(rounds.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_in_particular_is_told_that_input_is_wanted() {
    let rounds = Rounds::new();
    let result = call(&rounds.upstream, "rounds", json!({"mode": "two"})).await.unwrap();
    assert!(result.is_error());
    assert!(result.to_text().contains("asks for more input"), "{result:?}");
    let meta = &rounds.seen()[0]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], json!({}));
    assert_eq!(meta["io.modelcontextprotocol/clientInfo"]["name"], "toolcrib");
}
