//! What a server is beside its tools.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;
use toolcrib_mcp::{Era, Upstream, Upstreams};
use toolcrib_runtime::{AskError, Caller, News, Question, Server, Toolset};

use crate::lanes::{act_by, call_by, client};
use crate::support::{Memory, Scene, call, names, say, until, within};

fn raw(value: serde_json::Value) -> Option<Arc<RawValue>> {
    Some(Arc::from(to_raw_value(&value).unwrap()))
}

/// A server with resources, prompts and a log.
fn rich(scene: &Scene) -> Upstream {
    scene.upstream(json!({"rest": true}))
}

async fn tell(upstream: &Upstream, arguments: serde_json::Value) {
    call(upstream, "tell", arguments).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_offered_is_known_and_remembered() {
    let scene = Scene::new();
    let store = Arc::new(Memory::default());
    let first = Upstreams::new(store.clone(), 4);
    let upstream = first.open(scene.server(json!({"rest": true})));
    assert_eq!(upstream.offers().version, 0);
    names(&upstream).await;
    until("all is known", || !upstream.offers().prompts.is_empty()).await;
    let offers = upstream.offers();
    assert_eq!(offers.resources[0].get(), r#"{"uri":"mem://a","name":"a"}"#);
    assert!(offers.capabilities.as_ref().unwrap().get().contains("subscribe"));
    assert!(offers.instructions.as_ref().unwrap().contains("more to say"));
    within(first.shut_down()).await;

    let upstream = Upstreams::new(store, 4).open(scene.server(json!({"rest": true})));
    assert_eq!(upstream.offers().prompts[0].get(), r#"{"name":"p0"}"#);
    assert_eq!(upstream.server().unwrap().offers().resources.len(), 1);
    assert_eq!(scene.lines("starts").len(), 1, "nothing is started to be asked what is known");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_what_is_offered_is_news() {
    let scene = Scene::new();
    let upstream = rich(&scene);
    names(&upstream).await;
    until("all is known", || upstream.offers().prompts.len() == 1).await;
    let (mut news, before) = (upstream.news(), upstream.offers().version);
    tell(&upstream, json!({"adds": true, "method": "notifications/prompts/list_changed"})).await;
    assert!(matches!(within(news.recv()).await.unwrap(), News::Prompts));
    assert_eq!(upstream.offers().prompts.len(), 2);
    assert!(upstream.offers().version > before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_tells_a_client_is_for_that_client_only() {
    let scene = Scene::new();
    let upstream = rich(&scene);
    let party = client(Era::Sessions, true);
    let mut news = upstream.news();
    let message = json!({"method": "notifications/message", "params": {"data": 1.0}});
    // On the shared connection, nobody knows whom it is for.
    tell(&upstream, message.clone()).await;
    call_by(&upstream, &party, "tell", message).await.unwrap();
    loop {
        match within(news.recv()).await.unwrap() {
            News::For { party: whom, method, params } => {
                assert_eq!((whom, &*method), (party.id(), "notifications/message"));
                break assert_eq!(params.unwrap().get(), r#"{"data":1.0}"#);
            }
            News::Resources | News::Prompts => {}
            News::Updated { uri, .. } => panic!("{uri}"),
        }
    }
    while let Ok(more) = news.try_recv() {
        assert!(!matches!(more, News::For { .. }), "{more:?}");
    }
    // And what a client tells is for its own connection.
    upstream.tell(&party, "notifications/roots/list_changed", None);
    until("it is heard", || scene.count("heard", "notifications/roots/list_changed") == 1).await;
    upstream.tell(&client(Era::Sessions, true), "notifications/roots/list_changed", None);
    say(&upstream, "act").await;
    assert_eq!(scene.count("heard", "notifications/roots/list_changed"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_as_they_came_or_refused_in_the_servers_words() {
    let scene = Scene::new();
    let upstream = rich(&scene);
    let question = Question::new("prompts/get", raw(json!({"name": "p0"})));
    let answer = within(upstream.ask(question)).await.unwrap();
    assert_eq!(answer.get(), r#"{"messages":[],"for":"p0","x":1.0}"#);
    let refused = within(upstream.ask(Question::new("no/such", None))).await.unwrap_err();
    let AskError::Refused(error) = refused else { panic!("{refused:?}") };
    assert_eq!((error.code, &*error.message), (-32601, "no such method"));
    within(upstream.shut_down()).await;
    let gone = within(upstream.ask(Question::new("prompts/list", None))).await.unwrap_err();
    assert!(matches!(gone, AskError::Unreachable(text) if text.contains("it was shut down")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shared_logs_what_the_most_curious_wants() {
    let scene = Scene::new();
    let upstream = rich(&scene);
    let set = |level: &str| {
        within(upstream.ask(Question::new("logging/setLevel", raw(json!({"level": level})))))
    };
    assert_eq!(set("warning").await.unwrap().get(), "{}");
    set("error").await.unwrap();
    set("info").await.unwrap();
    assert_eq!(scene.lines("setLevel"), ["warning", "info"]);
    let mut question = Question::new("prompts/list", None);
    question.caller = Caller::default().with_log_level("debug");
    within(upstream.ask(question)).await.unwrap();
    assert_eq!(scene.lines("setLevel"), ["warning", "info", "debug"]);
    // A client's own is the client's business.
    let party = client(Era::Sessions, true);
    act_by(&upstream, &party).await;
    let mut question = Question::new("logging/setLevel", raw(json!({"level": "error"})));
    question.caller = Caller::default().with_party(party);
    within(upstream.ask(question)).await.unwrap();
    assert_eq!(scene.lines("setLevel").last().unwrap(), "error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_dropped_is_cancelled() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"rest": true, "hang_at": "prompts/get"}));
    names(&upstream).await;
    let asking = upstream.ask(Question::new("prompts/get", raw(json!({"name": "p0"}))));
    assert!(timeout(Duration::from_millis(200), asking).await.is_err());
    until("the server is told", || scene.lines("cancelled").len() == 1).await;
}
