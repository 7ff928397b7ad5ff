//! Questions of servers over HTTP: the stream says which call they belong to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use toolcrib_mcp::Upstream;

use crate::asks::{Person, ask, client};
use crate::support::until;
use crate::web::{Reply, Seen, Web, usual};

/// A server that asks in the course of every call, and answers with what it is told.
#[derive(Default)]
struct Asker {
    calls: Mutex<HashMap<String, Call>>,
    /// The stream that belongs to no call.
    news: Mutex<Option<UnboundedSender<Value>>>,
}

struct Call {
    stream: UnboundedSender<Value>,
    id: Value,
    left: u64,
    answers: Vec<Value>,
}

impl Asker {
    async fn serve() -> (Web, Upstream) {
        let asker = Self::default();
        let web = Web::serve(move |seen| asker.reply(seen)).await;
        let upstream = Upstream::new(web.config());
        (web, upstream)
    }

    fn reply(&self, seen: &Seen) -> Reply {
        match seen.method() {
            "tools/call" if seen.tool() == "elicit" => self.begin(seen),
            "" if seen.verb == "POST" => {
                self.hear(&seen.body);
                Reply::empty(202)
            }
            "" if seen.verb == "GET" => {
                let (sender, events) = unbounded_channel();
                *self.news.lock().unwrap() = Some(sender);
                Reply::live(events)
            }
            _ => usual(seen),
        }
    }

    /// Asks `count` times; by `way`, on the stream for `news`, or on the call's own: `late`, when
    /// it has been answered, or in vain, since it is taken `back`.
    fn begin(&self, seen: &Seen) -> Reply {
        let arguments = &seen.body["params"]["arguments"];
        let (way, call) = (arguments["way"].as_str().unwrap_or_default(), &seen.body["id"]);
        let count = arguments["count"].as_u64().unwrap_or(1);
        let (stream, events) = unbounded_channel();
        if way == "late" {
            stream.send(seen.answer(json!({"content": []}))).unwrap();
        }
        for number in 0..count {
            let params = json!({"message": arguments["marker"]});
            let question = json!({
                "jsonrpc": "2.0", "id": format!("{call}-{number}"),
                "method": "elicitation/create", "params": params,
            });
            match way {
                "news" => self.news.lock().unwrap().as_ref().unwrap().send(question).unwrap(),
                _ => stream.send(question).unwrap(),
            }
        }
        if way == "back" {
            let params = json!({"requestId": format!("{call}-0")});
            let cancelled = json!({"method": "notifications/cancelled", "params": params});
            let answer = seen.answer(json!({"content": []}));
            tokio::spawn(async move {
                for event in [cancelled, answer] {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    stream.send(event).unwrap();
                }
            });
            return Reply::live(events);
        }
        let call = Call { stream, id: call.clone(), left: count, answers: Vec::new() };
        self.calls.lock().unwrap().insert(call.id.to_string(), call);
        Reply::live(events)
    }

    fn hear(&self, answer: &Value) {
        let id = answer["id"].as_str().unwrap();
        let mut calls = self.calls.lock().unwrap();
        let Some(call) = calls.get_mut(id.split('-').next().unwrap()) else { return };
        call.answers.push(answer.clone());
        call.left -= 1;
        if call.left == 0 {
            let result = json!({"content": [], "structuredContent": {"answers": call.answers}});
            // It may have been given up.
            let _ = call.stream.send(json!({"jsonrpc": "2.0", "id": call.id, "result": result}));
            let id = call.id.to_string();
            calls.remove(&id);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_call_on_one_connection_hears_its_own_question() {
    let (web, upstream) = Asker::serve().await;
    let people: Vec<Person> =
        (0..8).map(|number| Person::after(Duration::from_millis(400 - 50 * number))).collect();
    let calls = people
        .iter()
        .enumerate()
        .map(|(number, person)| ask(&upstream, person, None, json!({"marker": number})));
    for (number, answers) in join_all(calls).await.iter().enumerate() {
        assert_eq!(answers[0]["result"]["content"]["said"], number, "{answers}");
        let asked = people[number].asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(
            asked[0],
            json!({"method": "elicitation/create", "params": {"message": number}})
        );
    }
    assert_eq!(web.count("initialize"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_on_the_stream_for_news_is_for_the_client_whose_connection_it_is() {
    let (web, upstream) = Asker::serve().await;
    let (person, party) = (Person::after(Duration::from_millis(200)), client());
    ask(&upstream, &person, Some(&party), json!({"marker": "first"})).await;
    until("it listens", || web.count("GET") == 1).await;
    let calls = (0..8).map(|number| {
        ask(&upstream, &person, Some(&party), json!({"way": "news", "marker": number}))
    });
    for (number, answers) in join_all(calls).await.iter().enumerate() {
        assert_eq!(answers[0]["result"]["content"]["said"], number, "{answers}");
    }
    assert_eq!(web.count("initialize"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_on_the_stream_for_news_is_refused_if_nobody_knows_whose_it_is() {
    let (web, upstream) = Asker::serve().await;
    let people = [Person::after(Duration::from_millis(1_500)), Person::at_once()];
    ask(&upstream, &people[1], None, json!({})).await;
    until("it listens", || web.count("GET") == 1).await;
    let waits = ask(&upstream, &people[0], None, json!({}));
    let asks = async {
        until("one waits", || people[0].open() == 1).await;
        ask(&upstream, &people[1], None, json!({"way": "news"})).await
    };
    let (_, answers) = tokio::join!(waits, asks);
    assert_eq!(answers[0]["error"]["code"], -32601, "{answers}");
    assert_eq!((people[0].asked().len(), people[1].asked().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_after_the_answer_is_refused_at_once() {
    let (web, upstream) = Asker::serve().await;
    let (person, party) = (Person::at_once(), client());
    for party in [None, Some(&party)] {
        ask(&upstream, &person, party, json!({"way": "late"})).await;
    }
    let refusals = || {
        let seen = web.seen();
        seen.iter().filter(|seen| seen.body["error"]["code"] == -32601).count()
    };
    until("both are refused", || refusals() == 2).await;
    assert!(person.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_taken_back_or_whose_call_is_given_up_is_dropped() {
    let (web, upstream) = Asker::serve().await;
    let person = Person::default();
    ask(&upstream, &person, None, json!({"way": "back"})).await;
    assert_eq!((person.asked().len(), person.open()), (1, 0));
    let answered = || {
        let seen = web.seen();
        seen.iter().filter(|seen| seen.body["error"]["code"] == -32603).count()
    };
    assert_eq!(answered(), 0);
    let call = ask(&upstream, &person, None, json!({}));
    assert!(timeout(Duration::from_secs(2), call).await.is_err());
    until("it is dropped", || person.open() == 0).await;
    until("the server is told", || answered() == 1).await;
    assert_eq!(person.asked().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn too_many_questions_are_refused_and_the_connection_lives() {
    let (web, upstream) = Asker::serve().await;
    let person = Person::after(Duration::from_secs(8));
    let answers = ask(&upstream, &person, None, json!({"count": 1_000})).await;
    let answers = answers.as_array().unwrap();
    let refused = answers.iter().filter(|answer| answer["error"]["code"] == -32603).count();
    assert_eq!((person.asked().len(), refused, answers.len()), (16, 984, 1_000));
    let quick = Person::at_once();
    ask(&upstream, &quick, None, json!({})).await;
    assert_eq!(web.count("initialize"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_on_and_on_and_hears_nothing_is_told_no_more() {
    let web = Web::serve(|seen| match seen.method() {
        "tools/call" => {
            let question = |number| json!({"jsonrpc": "2.0", "id": number, "method": "roots/list"});
            let event = |number| format!("data: {}\n\n", question(number));
            // Twelve at a time are not too many.
            let twelve = |round| (0..12).map(|number| event(12 * round + number)).collect();
            Reply::stream((0..40).map(twelve), false)
        }
        "" if seen.verb == "POST" => Reply::never(),
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    let person = Person::refusing();
    let call = ask(&upstream, &person, None, json!({}));
    assert!(timeout(Duration::from_secs(4), call).await.is_err());
    let told = web.seen().iter().filter(|seen| seen.body.get("error").is_some()).count();
    assert!((16..=64).contains(&told), "{told} at once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_over_http_is_not_late_while_somebody_thinks() {
    let asker = Arc::new(Asker::default());
    let web = Web::serve(move |seen| asker.reply(seen)).await;
    let mut config = web.config();
    config.call_limit = Some(Duration::from_millis(400));
    let upstream = Upstream::new(config);
    let person = Person::after(Duration::from_millis(1_500));
    let answers = ask(&upstream, &person, None, json!({"marker": "m"})).await;
    assert_eq!(answers[0]["result"]["content"]["said"], "m");
}
