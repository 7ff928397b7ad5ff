//! Calls: what comes back, in which order, and what is told when nothing does.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib_mcp::{Upstream, UpstreamState};
use toolcrib_runtime::{Caller, Listener, Toolset};
use toolcrib_wire::RpcError;

use crate::support::{Scene, call, invocation, is_alive, reason, say, until, within};

/// Notes what it hears.
#[derive(Clone, Default)]
struct Ear {
    heard: Arc<Mutex<Vec<Value>>>,
    ignores_progress: bool,
}

impl Listener for Ear {
    fn hear(&self, method: &str, params: &RawValue) {
        assert_eq!(method, "notifications/progress");
        self.heard.lock().unwrap().push(serde_json::from_str(params.get()).unwrap());
    }

    fn wants_progress(&self) -> bool {
        !self.ignores_progress
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_passed_on_as_it_came() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let result = call(&upstream, "raw", json!({})).await.unwrap();
    let expected = r#"{ "content":[{"type":"new-kind","x":1}],"structuredContent":{"n":12345678901234567890123,"f":1.0}, "vendor":{"b":1,"a":2},"isError":false }"#;
    assert_eq!(result.json().get(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_protocol_keeps_its_code_and_data() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let result = call(&upstream, "refuse", json!({})).await.unwrap();
    let data = json!({"big": 18446744073709551615_u64, "why": ["a"]});
    let expected = RpcError::new(404, "not today").with_data(&data);
    assert_eq!(result.refusal(), Some(&expected));
    let result = call(&upstream, "no such tool", json!({})).await.unwrap();
    assert_eq!(result.refusal(), Some(&RpcError::new(-32602, "no such tool")));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_heard_in_order_and_before_the_result() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let ear = Ear::default();
    let mut asked = invocation("progress", json!({"count": 200}));
    asked.caller = Caller::new(ear.clone());
    let result = within(upstream.call(asked)).await.unwrap();
    assert_eq!(result.to_text(), "200 steps");
    let heard = ear.heard.lock().unwrap();
    let steps: Vec<u64> = heard.iter().map(|note| note["progress"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..=200).collect::<Vec<u64>>());
    assert_eq!(heard[6]["x"], json!([7]), "what else the note says stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_caller_says_beside_the_arguments_goes_along() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let meta = || RawValue::from_string(r#"{"traceparent":"00-1","n":1.0}"#.into()).unwrap();
    let mut asked = invocation("act", json!({"a": 1}));
    asked.caller = Caller::default().with_meta(meta());
    let text = within(upstream.call(asked.clone())).await.unwrap().to_text();
    assert_eq!(
        text,
        r#"act {"a":1} {"n":1.0,"traceparent":"00-1"}"#
            .replace(r#""n":1.0,"traceparent":"00-1""#, r#""traceparent":"00-1","n":1.0"#)
    );
    asked.caller = Caller::new(Ear { ignores_progress: true, ..Ear::default() }).with_meta(meta());
    assert_eq!(within(upstream.call(asked.clone())).await.unwrap().to_text(), text);
    asked.caller = Caller::new(Ear::default()).with_meta(meta());
    let text = within(upstream.call(asked)).await.unwrap().to_text();
    assert!(text.contains("traceparent") && text.contains("progressToken"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_ask_too() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let said = say(&upstream, "ask").await;
    assert!(said.contains(r#""id":"p","result":{}"#), "{said}");
    assert!(said.contains(r#""id":7,"error":{"code":-32601"#), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_stays_silent_is_given_up_and_the_server_told() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.call_limit = Some(Duration::from_millis(300));
    let upstream = Upstream::new(config);
    within(upstream.check()).await.unwrap();
    let error = reason(&upstream, "hang", json!({})).await;
    let expected = "Server `fixture` did not answer within 300ms. The call may have taken effect: check before you repeat it.";
    assert_eq!(error, expected);
    until("the server is told", || scene.lines("cancelled").len() == 1).await;
    assert_eq!(scene.count("executed", "hang"), 1);
    assert_eq!(upstream.status().state, UpstreamState::Running, "others may still be served");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_beyond_all_time_is_none() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.start_limit = Duration::MAX;
    config.call_limit = Some(Duration::MAX);
    config.idle_stop = Some(Duration::MAX);
    assert!(say(&Upstream::new(config), "act").await.starts_with("act"));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_a_sign_of_life() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.call_limit = Some(Duration::from_millis(1_500));
    let upstream = Upstream::new(config);
    within(upstream.check()).await.unwrap();
    let mut asked = invocation("progress", json!({"count": 12, "ms": 250}));
    asked.caller = Caller::new(Ear::default());
    assert_eq!(within(upstream.call(asked)).await.unwrap().to_text(), "12 steps");
    let mut silent = invocation("progress", json!({"count": 12, "ms": 250}));
    silent.caller = Caller::default();
    within(upstream.call(silent)).await.unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_no_longer_answers_at_all_is_started_anew() {
    let scene = Scene::new();
    let mut config = scene.server(json!({"hang_at": "ping"}));
    config.call_limit = Some(Duration::from_millis(200));
    let upstream = Upstream::new(config);
    within(upstream.check()).await.unwrap();
    reason(&upstream, "hang", json!({})).await;
    let pid = scene.pids("starts")[0];
    until("the stuck one is gone", || !is_alive(pid)).await;
    call(&upstream, "act", json!({})).await.ok();
    assert_eq!(scene.lines("starts").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_is_cancelled() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    within(upstream.check()).await.unwrap();
    let task = tokio::spawn({
        let upstream = upstream.clone();
        async move { upstream.call(invocation("hang", json!({}))).await }
    });
    until("the call is under way", || scene.count("executed", "hang") == 1).await;
    task.abort();
    until("the server is told", || scene.lines("cancelled").len() == 1).await;
    assert!(say(&upstream, "act").await.starts_with("act"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_is_refused_and_the_next_one_read() {
    for stateless in [false, true] {
        let scene = Scene::new();
        let upstream = scene.upstream(json!({"stateless": stateless}));
        within(upstream.check()).await.unwrap();
        until("it listens", || scene.lines("listens").len() == usize::from(stateless)).await;
        let error = reason(&upstream, "flood", json!({})).await;
        assert!(
            error.contains("its answer is too long: a line has more than 67108864 bytes"),
            "{error}"
        );
        assert!(say(&upstream, "act").await.starts_with("act"));
        assert_eq!(scene.lines("starts").len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_result_is_not_passed_on_as_one() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    for odd in [json!(7), json!("text"), json!(["text"]), json!(null), json!(true)] {
        let error = reason(&upstream, "odd", json!({"result": odd})).await;
        assert!(error.contains("Server `fixture` answered with something that is no result"));
        assert!(error.contains("may have taken effect"), "{error}");
    }
    assert_eq!(scene.count("executed", "odd"), 5);
}
