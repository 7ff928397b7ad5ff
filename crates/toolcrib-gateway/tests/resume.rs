//! Streams that broke and are taken up again.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::{Method, Response};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use support::{LONG, Served, answer, crib, gateway, rpc};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use toolcrib_core::{GroupId, Schema, ToolName, ToolSpec};
use toolcrib_gateway::{Gateway, HttpOptions, Options};
use toolcrib_runtime::{CallError, Invocation, Listing, ToolResult, Toolset};
use toolcrib_wire::{Event, Events};

/// What the tool is to do next.
enum Do {
    Say(String),
    LetGo(u64),
    Answer(&'static str),
}

/// A server whose one tool does what it is told to, step by step.
#[derive(Clone)]
struct Led(Arc<Mutex<UnboundedReceiver<Do>>>);

impl Toolset for Led {
    fn id(&self) -> GroupId {
        GroupId::server("led")
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let schema: Schema = json!({"type": "object"}).into();
        let tool = ToolSpec::new(ToolName::mcp("led", "go"), schema).with_description("Goes on.");
        Box::pin(async { Ok(Listing::new(vec![tool])) })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async move {
            let mut steps = self.0.lock().await;
            let listener = invocation.caller.listener().unwrap();
            loop {
                match steps.recv().await.unwrap() {
                    Do::Say(data) => {
                        let params = json!({"level": "info", "data": data});
                        let params = RawValue::from_string(params.to_string()).unwrap();
                        listener.hear("notifications/message", &params);
                    }
                    Do::LetGo(ms) => listener.let_go(Duration::from_millis(ms)),
                    Do::Answer(text) => return Ok(ToolResult::text(text)),
                }
            }
        })
    }
}

struct Scene {
    served: Served,
    lead: UnboundedSender<Do>,
}

impl Scene {
    async fn new() -> Self {
        let (lead, steps) = unbounded_channel();
        let crib = crib().await;
        crib.add(Led(Arc::new(Mutex::new(steps)))).await;
        let gateway = Gateway::new(crib, Options::default()).unwrap();
        Self { served: Served::start(&gateway, HttpOptions::default()).await, lead }
    }

    fn lead(&self, step: Do) {
        self.lead.send(step).ok().unwrap();
    }

    fn say(&self, text: impl Into<String>) {
        self.lead(Do::Say(text.into()));
    }

    async fn session(&self, version: &str) -> String {
        let body = rpc(0, "initialize", json!({"protocolVersion": version}));
        let response = self.served.post("/mcp/full").body(body).send().await.unwrap();
        response.headers()["mcp-session-id"].to_str().unwrap().to_owned()
    }

    async fn call(&self, session: &str) -> Stream {
        let call = json!({"name": "led__go"});
        let call = self.served.within("/mcp/full", session, "tools/call", call);
        Stream::of(call.send().await.unwrap())
    }

    async fn get(&self, session: &str, last: Option<&str>) -> Response {
        let get = self.served.other(Method::GET, "/mcp/full").header("mcp-session-id", session);
        let get = get.header("accept", "text/event-stream");
        let get = last.into_iter().fold(get, |get, last| get.header("last-event-id", last));
        get.send().await.unwrap()
    }

    async fn resume(&self, session: &str, last: &str) -> Stream {
        Stream::of(self.get(session, Some(last)).await)
    }
}

/// A stream of events that somebody reads one by one.
struct Stream {
    response: Response,
    events: Events,
}

impl Stream {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, events: Events::new(1 << 24) }
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.next() {
                return Some(event.unwrap());
            }
            let chunk = timeout(LONG, self.response.chunk()).await.expect("in time").unwrap()?;
            self.events.push(&chunk);
        }
    }

    /// The id and the contents of the next event.
    async fn read(&mut self) -> (String, Value) {
        let event = self.next().await.expect("an event");
        (event.id.expect("an id"), serde_json::from_str(&event.data).expect("a message"))
    }

    /// The id of the first event, which says nothing.
    async fn primed(&mut self) -> String {
        let first = self.next().await.unwrap();
        assert_eq!((&*first.data, first.retry), ("", Some(1_000)));
        first.id.unwrap()
    }

    /// Ends without an answer, and says when to come back.
    async fn lets_go(&mut self, retry: u64) {
        let last = self.next().await.unwrap();
        assert_eq!((&*last.data, last.id, last.retry), ("", None, Some(retry)));
        assert!(self.next().await.is_none());
    }
}

fn said(message: &Value) -> &str {
    message["params"]["data"].as_str().unwrap_or_default()
}

/// What ids are made of: the session, the stream, the event.
fn parts(id: &str) -> (&str, u64, u64) {
    let mut parts = id.split('-');
    let mut next = || parts.next().unwrap();
    (next(), next().parse().unwrap(), next().parse().unwrap())
}

#[tokio::test]
async fn who_lost_the_connection_comes_back_for_the_rest_exactly_once() {
    let scene = Scene::new().await;
    for version in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let session = scene.session(version).await;
        scene.say("one");
        scene.say("two");
        let mut stream = scene.call(&session).await;
        if version == "2025-11-25" {
            assert_eq!(parts(&stream.primed().await).2, 0);
        }
        let (first, one) = stream.read().await;
        assert_eq!((parts(&first).2, said(&one)), (1, "one"), "{version}");
        // The second is perhaps on its way, perhaps read: it is asked for in any case.
        drop(stream);
        scene.say("three");
        sleep(Duration::from_millis(50)).await;
        let mut back = scene.resume(&session, &first).await;
        let (second, two) = back.read().await;
        assert_eq!((parts(&second).2, said(&two)), (2, "two"));
        assert_eq!(said(&back.read().await.1), "three");
        // Live again.
        scene.say("four");
        let (fourth, four) = back.read().await;
        assert_eq!(said(&four), "four");
        drop(back);
        scene.lead(Do::Answer("done"));
        sleep(Duration::from_millis(50)).await;
        let mut back = scene.resume(&session, &fourth).await;
        let (last, result) = back.read().await;
        assert_eq!((&result["id"], support::text(&result)), (&json!(1), "done"));
        assert!(back.next().await.is_none(), "nothing comes after the answer");
        // It may have been lost on its way.
        let mut again = scene.resume(&session, &fourth).await;
        assert_eq!(again.read().await, (last.clone(), result));
        assert!(scene.resume(&session, &last).await.next().await.is_none());
    }
}

#[tokio::test]
async fn a_slow_call_can_be_resumed_before_it_has_said_anything() {
    let scene = Scene::new().await;
    let session = scene.session("2025-11-25").await;
    let mut stream = scene.call(&session).await;
    let id = stream.primed().await;
    drop(stream);
    scene.lead(Do::Answer("done"));
    let (_, result) = scene.resume(&session, &id).await.read().await;
    assert_eq!(support::text(&result), "done");
    // A quick one is answered plainly, as ever.
    scene.lead(Do::Answer("quick"));
    let call = scene.served.within("/mcp/full", &session, "tools/call", json!({"name": "led__go"}));
    let response = call.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
}

#[tokio::test]
async fn ids_rise_and_are_of_one_session_only() {
    let scene = Scene::new().await;
    let (one, two) = (scene.session("2025-11-25").await, scene.session("2025-11-25").await);
    let mut ids = Vec::new();
    for _ in 0..2 {
        ["a", "b"].into_iter().for_each(|text| scene.say(text));
        scene.lead(Do::Answer("done"));
        let mut stream = scene.call(&one).await;
        ids.push(stream.primed().await);
        while let Some(event) = stream.next().await {
            ids.push(event.id.unwrap());
        }
    }
    assert_eq!(ids.len(), 8);
    assert!(ids.is_sorted_by(|one, next| parts(one) < parts(next)), "{ids:?}");
    // The other session has a stream of that number too.
    scene.say("secret");
    let _other = scene.call(&two).await;
    let (tag, stream, _) = parts(&ids[0]);
    assert!(!one.contains(tag));
    let unheard = [format!("{tag}-{stream}-99"), format!("{tag}-99-0"), format!("{tag}-0-0")];
    for (session, last, status) in [
        (&two, &*ids[0], 400),
        (&two, &*ids[7], 400),
        (&one, &*unheard[0], 410),
        (&one, &*unheard[1], 400),
        (&one, &*unheard[2], 400),
        (&one, "1-1", 400),
        (&one, "", 400),
    ] {
        let refused = scene.get(session, Some(last)).await;
        assert_eq!(refused.status(), status, "{last}");
        let refused: Value = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
        let text = refused["error"]["message"].as_str().unwrap();
        assert!(text.contains("event"), "{text}");
    }
    assert_eq!(scene.get(&one, Some(&ids[0])).await.status(), 200);
}

#[tokio::test]
async fn who_comes_back_too_late_is_told_how_much_is_lost_and_gets_the_answer() {
    let scene = Scene::new().await;
    let session = scene.session("2025-11-25").await;
    let mut stream = scene.call(&session).await;
    let id = stream.primed().await;
    let long = "x".repeat(1 << 10);
    for at in 0..200 {
        scene.say(format!("{at} {long}"));
        assert!(said(&stream.read().await.1).starts_with(&format!("{at} ")));
    }
    drop(stream);
    scene.lead(Do::Answer("done"));
    sleep(Duration::from_millis(50)).await;
    newest_of_200(scene.resume(&session, &id).await).await;
}

#[tokio::test]
async fn who_was_away_while_much_was_said_gets_the_newest_and_is_told_how_much_is_lost() {
    let scene = Scene::new().await;
    let session = scene.session("2025-11-25").await;
    let mut stream = scene.call(&session).await;
    let id = stream.primed().await;
    drop(stream);
    sleep(Duration::from_millis(100)).await;
    let long = "x".repeat(1 << 10);
    (0..200).for_each(|at| scene.say(format!("{at} {long}")));
    scene.lead(Do::Answer("done"));
    sleep(Duration::from_millis(100)).await;
    newest_of_200(scene.resume(&session, &id).await).await;
}

/// Reads how many of 200 messages are lost, the others, and the answer.
async fn newest_of_200(mut back: Stream) {
    let first = back.next().await.unwrap();
    assert!(first.id.is_none(), "it is on no stream");
    let first: Value = serde_json::from_str(&first.data).unwrap();
    let lost: u64 = said(&first).split(' ').next().unwrap().parse().unwrap();
    assert!((100..199).contains(&lost), "{first}");
    for at in lost..200 {
        assert!(said(&back.read().await.1).starts_with(&format!("{at} ")));
    }
    assert_eq!(support::text(&back.read().await.1), "done");
}

#[tokio::test]
async fn of_many_answers_nobody_came_back_for_the_newest_are_kept() {
    let scene = Scene::new().await;
    let session = scene.session("2025-11-25").await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        let mut stream = scene.call(&session).await;
        ids.push(stream.primed().await);
        drop(stream);
        scene.say("x".repeat(40 << 10));
        scene.lead(Do::Answer("done"));
        // Calls are made one after the other.
        let ping = scene.served.within("/mcp/full", &session, "ping", json!({}));
        assert_eq!(answer(ping).await.0, 200);
    }
    sleep(Duration::from_millis(100)).await;
    for (id, status) in ids.iter().zip([410, 410, 200]) {
        assert_eq!(scene.get(&session, Some(id)).await.status(), status);
    }
}

#[tokio::test]
async fn a_server_that_lets_go_of_its_stream_has_the_client_come_back() {
    let scene = Scene::new().await;
    let session = scene.session("2025-11-25").await;
    scene.lead(Do::LetGo(70));
    let mut stream = scene.call(&session).await;
    let id = stream.primed().await;
    stream.lets_go(70).await;
    let mut back = scene.resume(&session, &id).await;
    scene.say("one");
    let (one, _) = back.read().await;
    scene.lead(Do::LetGo(50));
    back.lets_go(50).await;
    scene.lead(Do::Answer("done"));
    let (_, result) = scene.resume(&session, &one).await.read().await;
    assert_eq!(support::text(&result), "done");
    // Older clients do not know that a stream may end like that.
    let session = scene.session("2025-06-18").await;
    [Do::LetGo(70), Do::Answer("done")].into_iter().for_each(|step| scene.lead(step));
    let call = scene.served.within("/mcp/full", &session, "tools/call", json!({"name": "led__go"}));
    assert_eq!(support::text(&answer(call).await.1), "done");
}

#[tokio::test]
async fn a_reader_who_comes_back_takes_the_place_of_the_one_before() {
    let scene = Scene::new().await;
    let session = scene.session("2025-11-25").await;
    let mut stale = scene.call(&session).await;
    let id = stale.primed().await;
    let mut back = scene.resume(&session, &id).await;
    assert!(stale.next().await.is_none());
    drop(stale);
    scene.lead(Do::Answer("done"));
    assert_eq!(support::text(&back.read().await.1), "done");
}

#[tokio::test]
async fn notices_are_resumed_where_they_broke_off() {
    let (gateway, _, crib) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let (lead, _) = unbounded_channel();
    let scene = Scene { served, lead };
    let session = scene.session("2025-11-25").await;
    let mut notices = Stream::of(scene.get(&session, None).await);
    let id = notices.primed().await;
    crib.add(support::Odd::new("even")).await;
    let (first, changed) = notices.read().await;
    assert_eq!(
        (parts(&first).2, &changed["method"]),
        (1, &json!("notifications/tools/list_changed"))
    );
    drop(notices);
    // It is told again to whoever missed it, and not to whoever did not.
    let mut back = scene.resume(&session, &id).await;
    assert_eq!(back.read().await, (first.clone(), changed.clone()));
    drop(back);
    let mut back = scene.resume(&session, &first).await;
    crib.add(support::Odd::new("third")).await;
    let (second, again) = back.read().await;
    assert_eq!((parts(&second).2, again), (2, changed));
}

#[tokio::test]
async fn where_there_are_no_sessions_events_have_no_ids() {
    let scene = Scene::new().await;
    scene.say("one");
    let call = scene.served.modern(
        "/mcp/full",
        "tools/call",
        json!({"name": "led__go", "_meta": {"io.modelcontextprotocol/logLevel": "debug"}}),
    );
    let mut stream = Stream::of(call.send().await.unwrap());
    let event = stream.next().await.unwrap();
    assert_eq!((event.id, event.data.contains("one")), (None, true));
    let get = scene.served.other(Method::GET, "/mcp/full").header("accept", "text/event-stream");
    let get = get.header("mcp-protocol-version", "2026-07-28").header("last-event-id", "1-1");
    assert_eq!(get.send().await.unwrap().status(), 400);
}
