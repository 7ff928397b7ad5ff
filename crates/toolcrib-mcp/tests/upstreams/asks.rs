//! Questions of servers that are processes: whom they reach, and what becomes of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use toolcrib_mcp::{Era, Sharing, Upstream};
use toolcrib_runtime::{Caller, Listener, News, Party, Server, Toolset};
use toolcrib_wire::RpcError;

use crate::lanes::act_by;
use crate::support::{Scene, call, invocation, until, within};

/// Answers questions after a while, with their own message; `None` never does.
#[derive(Clone, Default)]
pub(crate) struct Person {
    pub(crate) thinks: Option<Duration>,
    refuses: bool,
    /// What it was asked, and what it was told.
    pub(crate) asked: Arc<Mutex<Vec<Value>>>,
    pub(crate) told: Arc<Mutex<Vec<(String, Value)>>>,
    /// Questions that are open.
    pub(crate) open: Arc<AtomicUsize>,
}

impl Person {
    pub(crate) fn after(thinks: Duration) -> Self {
        Self { thinks: Some(thinks), ..Self::default() }
    }

    pub(crate) fn at_once() -> Self {
        Self::after(Duration::ZERO)
    }

    pub(crate) fn refusing() -> Self {
        Self { refuses: true, ..Self::at_once() }
    }

    pub(crate) fn asked(&self) -> Vec<Value> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

/// Counts itself as open until it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Listener for Person {
    fn hear(&self, method: &str, params: &RawValue) {
        let params = serde_json::from_str(params.get()).unwrap();
        self.told.lock().unwrap().push((method.to_owned(), params));
    }

    fn ask(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
        let params: Value =
            params.map_or(Value::Null, |raw| serde_json::from_str(raw.get()).unwrap());
        self.asked.lock().unwrap().push(json!({"method": method, "params": params}));
        self.open.fetch_add(1, Ordering::SeqCst);
        let (counted, thinks, refuses) = (Counted(self.open.clone()), self.thinks, self.refuses);
        Box::pin(async move {
            let _counted = counted;
            match thinks {
                Some(thinks) => sleep(thinks).await,
                None => std::future::pending().await,
            }
            if refuses {
                return Err(RpcError::new(-1, "no"));
            }
            let content = json!({"said": params["message"]});
            Ok(to_raw_value(&json!({"action": "accept", "content": content})).unwrap())
        })
    }
}

/// A client with a session that can be asked.
pub(crate) fn client() -> Arc<Party> {
    client_of(Era::Sessions)
}

pub(crate) fn client_of(era: Era) -> Arc<Party> {
    let capabilities = to_raw_value(&json!({"elicitation": {}, "x": 1})).unwrap();
    let info = to_raw_value(&json!({"name": "tester", "version": "7"})).unwrap();
    Arc::new(Party::new(era, 7, Some(capabilities.into()), Some(info.into())))
}

/// What a tool answers that asks a person.
pub(crate) async fn ask(
    upstream: &Upstream,
    person: &Person,
    party: Option<&Arc<Party>>,
    arguments: Value,
) -> Value {
    let mut asked = invocation("elicit", arguments);
    asked.caller = Caller::new(person.clone());
    if let Some(party) = party {
        asked.caller = asked.caller.with_party(party.clone());
    }
    let result = within(upstream.call(asked)).await.unwrap();
    result.structured().unwrap_or_default()["answers"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_one_client_are_each_answered_their_own_in_any_order() {
    let scene = Scene::new();
    let (upstream, party) = (scene.upstream(json!({})), client());
    // Those who call last answer first.
    let people: Vec<Person> =
        (0..8).map(|number| Person::after(Duration::from_millis(400 - 50 * number))).collect();
    let calls = people.iter().enumerate().map(|(number, person)| {
        let marker = json!({"marker": format!("marker {number}"), "count": 2});
        ask(&upstream, person, Some(&party), marker)
    });
    for (number, answers) in join_all(calls).await.iter().enumerate() {
        let said = json!(format!("marker {number}"));
        assert_eq!(answers.as_array().unwrap().len(), 2);
        for answer in answers.as_array().unwrap() {
            assert_eq!(answer["result"]["content"]["said"], said, "{answer}");
        }
    }
    let asked: usize = people.iter().map(|person| person.asked().len()).sum();
    assert_eq!(asked, 16);
    assert_eq!(scene.lines("greetings"), [r#"{"elicitation":{},"x":1}"#]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_question_outlasts_the_call_that_merely_came_last() {
    let scene = Scene::new();
    let (upstream, party) = (scene.upstream(json!({})), client());
    let person = Person::after(Duration::from_secs(4));
    let arguments = json!({"marker": "kept", "ms": 1_000});
    let asking = join_all((0..8).map(|_| ask(&upstream, &person, Some(&party), arguments.clone())));
    let newest = async {
        until("all wait", || scene.count("executed", "elicit") == 8).await;
        let mut asked = invocation("act", json!({"ms": 2_000}));
        asked.caller = Caller::new(person.clone()).with_party(party.clone());
        within(upstream.call(asked)).await.unwrap();
        person.open()
    };
    let (answers, open) = tokio::join!(asking, newest);
    assert_eq!(open, 8, "all were asked before it ended, and none was answered");
    for answers in answers {
        assert_eq!(answers[0]["result"]["content"]["said"], "kept", "{answers}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_on_a_shared_connection_reaches_nobody() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let (person, other) = (Person::at_once(), Person::at_once());
    // It might be a late one of another's call that was given up.
    let answers = ask(&upstream, &person, None, json!({"marker": "mine?"})).await;
    assert_eq!(answers[0]["error"]["code"], -32601, "{answers}");

    let mut waits = invocation("act", json!({"ms": 2_000}));
    waits.caller = Caller::new(other.clone());
    let waits = tokio::spawn({
        let upstream = upstream.clone();
        async move { upstream.call(waits).await }
    });
    until("both wait", || scene.count("executed", "act") == 1).await;
    let answers = ask(&upstream, &person, None, json!({"marker": "whose?"})).await;
    assert_eq!(answers[0]["error"]["code"], -32601, "{answers}");
    assert_eq!((person.asked().len(), other.asked().len()), (0, 0));
    within(waits).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_after_its_call_has_ended_is_an_error() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    for party in [None, Some(client())] {
        let before = scene.lines("answers").len();
        let person = Person::at_once();
        ask(&upstream, &person, party.as_ref(), json!({"mode": "late"})).await;
        until("it is answered", || scene.lines("answers").len() > before).await;
        let answer: Value = serde_json::from_str(scene.lines("answers").last().unwrap()).unwrap();
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        assert!(person.asked().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_taken_back_is_no_longer_asked_nor_answered() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let person = Person::default();
    ask(&upstream, &person, Some(&client()), json!({"mode": "back", "count": 3})).await;
    assert_eq!((person.asked().len(), person.open()), (3, 0));
    assert!(scene.lines("answers").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_takes_its_questions_with_it() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let person = Person::default();
    let party = client();
    let call = ask(&upstream, &person, Some(&party), json!({"count": 2}));
    assert!(timeout(Duration::from_secs(2), call).await.is_err());
    until("nobody is asked", || person.open() == 0).await;
    assert_eq!(person.asked().len(), 2);
    until("the server is told", || scene.lines("answers").len() == 2).await;
    let answer: Value = serde_json::from_str(scene.lines("answers").last().unwrap()).unwrap();
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_questions_are_refused_and_harm_nothing_else() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let (person, party) = (Person::after(Duration::from_secs(3)), client());
    let answers = ask(&upstream, &person, Some(&party), json!({"count": 1_000})).await;
    let answers = answers.as_array().unwrap();
    let refused = answers.iter().filter(|answer| answer["error"]["code"] == -32603).count();
    let answered = answers.iter().filter(|answer| answer.get("result").is_some()).count();
    assert_eq!((person.asked().len(), answered, refused), (16, 16, 984));
    act_by(&upstream, &party).await;
    assert_eq!(scene.lines("starts").len(), 1, "the connection was not lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_not_late_while_somebody_thinks() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.call_limit = Some(Duration::from_millis(400));
    let upstream = Upstream::new(config);
    let party = client();
    let person = Person::after(Duration::from_millis(1_500));
    // A second call, so that nobody knows for sure which of them asks.
    let calls = [1, 2].map(|_| ask(&upstream, &person, Some(&party), json!({"marker": "m"})));
    for answers in join_all(calls).await {
        assert_eq!(answers[0]["result"]["content"]["said"], "m");
    }
    let answers = ask(&upstream, &person, Some(&party), json!({"marker": "m"})).await;
    assert_eq!(answers[0]["result"]["content"]["said"], "m");
    let error = call(&upstream, "act", json!({"ms": 900})).await.unwrap_err().to_string();
    assert!(error.contains("did not answer within"), "otherwise it is: {error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_are_the_servers_own_and_given_back_as_they_came() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let person = Person::after(Duration::from_millis(200));
    // Numbers that this side uses as well, the same as text, and such as no one here would use.
    let ids = json!([1, "1", 2, -3, 1.5, "", "ä\"", 18446744073709551615_u64]);
    let answers = ask(&upstream, &person, Some(&client()), json!({"ids": ids})).await;
    let answers = answers.as_array().unwrap();
    let came: HashSet<String> = answers.iter().map(|answer| answer["id"].to_string()).collect();
    let sent: HashSet<String> = ids.as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(came, sent);
    assert!(answers.iter().all(|answer| answer["result"]["action"] == "accept"));

    let answers = ask(&upstream, &person, Some(&client()), json!({"mode": "twice"})).await;
    assert_eq!(answers.as_array().unwrap().len(), 1);
    sleep(Duration::from_millis(300)).await;
    assert_eq!((person.asked().len(), scene.lines("answers").len()), (9, 9));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_an_answer_is_told_under_the_servers_own_token() {
    let scene = Scene::new();
    let (upstream, party) = (scene.upstream(json!({})), client());
    let person = Person::after(Duration::from_secs(1));
    let asking = ask(&upstream, &person, Some(&party), json!({"token": "of theirs"}));
    let telling = async {
        until("it is asked", || person.asked().len() == 1).await;
        let meta = person.asked()[0]["params"]["_meta"].clone();
        assert_eq!(meta["x"], 1);
        let token = meta["progressToken"].as_u64().unwrap();
        for token in [token + 1, token] {
            let params = json!({"progressToken": token, "progress": 0.5});
            let params = to_raw_value(&params).unwrap();
            upstream.tell(&party, "notifications/progress", Some(&params));
        }
    };
    tokio::join!(asking, telling);
    until("it is told", || !scene.lines("progress").is_empty()).await;
    assert_eq!(scene.lines("progress"), [r#"{"progressToken":"of theirs","progress":0.5}"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_logs_is_heard_by_the_call_that_it_belongs_to() {
    let scene = Scene::new();
    let (upstream, party) = (scene.upstream(json!({})), client());
    let person = Person::at_once();
    let talk = |marker: &str, caller: Caller| {
        let mut asked = invocation("talk", json!({"marker": marker, "ms": 300}));
        asked.caller = caller;
        let upstream = upstream.clone();
        async move { within(upstream.call(asked)).await.unwrap() }
    };
    talk("a", Caller::new(person.clone()).with_party(party.clone())).await;
    let expected = json!({"level": "info", "data": "a"});
    assert_eq!(*person.told.lock().unwrap(), [("notifications/message".to_owned(), expected)]);

    // Nobody listens to this one, but it is known whose connection it is.
    let mut news = Server::news(&upstream);
    talk("b", Caller::default().with_party(party.clone())).await;
    let told = within(async {
        loop {
            if let News::For { party, method, params } = news.recv().await.unwrap() {
                return (party, method, params);
            }
        }
    })
    .await;
    assert_eq!((told.0, &*told.1), (party.id(), "notifications/message"));
    assert!(told.2.unwrap().get().contains("\"b\""));

    // Of two clients on one connection, it would be a guess.
    let two = [Person::at_once(), Person::at_once()];
    let mut waits = invocation("act", json!({"ms": 2_000}));
    waits.caller = Caller::new(two[0].clone());
    let waiting = upstream.call(waits);
    let talking = async {
        until("one waits", || scene.count("executed", "act") == 1).await;
        talk("c", Caller::new(two[1].clone())).await
    };
    let (waited, _) = tokio::join!(waiting, talking);
    waited.unwrap();
    assert!(two.iter().all(|person| person.told.lock().unwrap().is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_over_a_session_that_all_share() {
    let scene = Scene::new();
    let shared = |flags: Value| {
        let mut config = scene.server(flags);
        config.sessions = Sharing::Shared;
        Upstream::new(config)
    };
    let (upstream, person) = (shared(json!({})), Person::at_once());
    for era in [Era::Sessions, Era::Stateless] {
        let answers = ask(&upstream, &person, Some(&client_of(era)), json!({"marker": "a"})).await;
        assert_eq!(answers[0]["error"]["code"], -32601, "{answers}");
    }
    assert_eq!(scene.lines("greetings"), ["{}"], "nor is the server told that it could");
    assert!(person.asked().is_empty());

    // Without sessions, each request says for itself who can be asked.
    let upstream = shared(json!({"stateless": true}));
    let mut asked = invocation("rounds", json!({"mode": "two"}));
    asked.caller = Caller::new(person.clone()).with_party(client());
    assert!(!within(upstream.call(asked)).await.unwrap().is_error());
    assert_eq!(person.asked().len(), 3);
}
