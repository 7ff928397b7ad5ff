//! Conversations that outlive their program.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt};
use futures::{Stream, StreamExt};
use serde_json::json;
use toolcrib_agent::{
    Agent, Approval, Approver, Chat, End, Event, Fate, Input, Message, PendingCall, Permissions,
    ReopenError, Scripted, Turn,
};
use toolcrib_core::Strategy;
use toolcrib_runtime::{
    Access, Extent, Journal, JournalChange, JournalError, Opened, SessionError, SessionMeta,
    SessionStore, StorageError,
};
use toolcrib_store::SqliteStore;

use crate::support::{Log, agent_with, deferred, dispatched, follow, last_results, shop, under};

fn store() -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open_in_memory().unwrap())
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("model".to_owned(), "scripted".to_owned())])
}

/// An agent over a shop of its own, with the log of what its tools did.
async fn staff(turns: Vec<Turn>) -> (Agent, Scripted, Log) {
    let stage = agent_with(deferred(), Scripted::new(turns), |builder| builder).await;
    (stage.agent, stage.model, stage.log)
}

/// Reads a run up to an event; then its program is gone, and the conversation with it.
async fn killed_at(mut chat: Chat, text: &str, last: impl Fn(&Event) -> bool) -> String {
    {
        let mut events = chat.stream(text);
        read_to(&mut events, last).await;
    }
    chat.session_id().unwrap().to_owned()
}

async fn read_to(events: &mut (impl Stream<Item = Event> + Unpin), last: impl Fn(&Event) -> bool) {
    while let Some(event) = events.next().await {
        if last(&event) {
            return;
        }
    }
    panic!("the run ended before that");
}

/// Lets a run go on until a tool has noted something; then its program is gone.
async fn killed_when(mut chat: Chat, text: &str, log: &Log, line: &str) -> String {
    {
        let mut events = chat.stream(text);
        while !log.lines().iter().any(|known| known == line) {
            let next = tokio::time::timeout(std::time::Duration::from_millis(5), events.next());
            if let Ok(None) = next.await {
                panic!("the run ended before that");
            }
        }
    }
    chat.session_id().unwrap().to_owned()
}

fn is_answer(event: &Event) -> bool {
    matches!(event, Event::Appended { message } if matches!(**message, Message::Assistant(_)))
}

#[tokio::test]
async fn a_conversation_goes_on_where_it_was() {
    for strategy in [Strategy::Dispatch, Strategy::Inject] {
        let drill = || match strategy {
            Strategy::Dispatch => Turn::calls([dispatched("drill", json!({"size": 3}))]),
            _ => Turn::call("drill", json!({"size": 3})),
        };
        let (crib, log) = shop(under(strategy)).await;
        let store = store();
        let script =
            [Turn::call("tool_search", json!({"query": "drill"})), drill(), Turn::text("Done.")];
        let model = Scripted::new(script);
        let agent = Agent::builder(model.clone(), "scripted", crib.clone()).build();
        let mut chat = agent.chat().kept_in(store.clone(), labels());
        assert_eq!(chat.session_id(), None);
        let (_, answer) = follow(&mut chat, "Drill a hole of 3 mm.").await;
        assert_eq!(answer.end, End::Done);
        let id = chat.session_id().unwrap().to_owned();
        let (history, loaded) = (chat.history().to_vec(), loaded(&chat));
        drop(chat);

        let again = Scripted::new([drill(), Turn::text("Again.")]);
        let agent = Agent::builder(again.clone(), "scripted", crib.clone()).build();
        let (mut chat, reopened) = agent.reopen(&*store, &id[..6]).await.unwrap();
        assert_eq!(chat.history(), history);
        assert_eq!(self::loaded(&chat), loaded);
        assert_eq!(reopened.meta.title.as_deref(), Some("Drill a hole of 3 mm."));
        assert_eq!((reopened.meta.labels, reopened.interrupted), (labels(), vec![]));
        assert!(!chat.is_unanswered());
        follow(&mut chat, "Once more.").await;
        assert_eq!(log.lines().len(), 4, "{:?}", log.lines());
        // The model sees what it has seen before, and then what is new.
        let (before, after) = (model.requests(), again.requests());
        let (before, after) = (before.last().unwrap(), &after[0]);
        assert_eq!((&before.system, &before.tools), (&after.system, &after.tools));
        assert_eq!(before.messages, after.messages[..before.messages.len()]);
        drop(chat);
        let kept = store.open(&id, Access::Read).await.unwrap();
        assert_eq!(kept.messages.len(), history.len() + 4);
    }
}

fn loaded(chat: &Chat) -> Vec<String> {
    chat.conversation().session().loaded_tools().map(ToString::to_string).collect()
}

#[tokio::test]
async fn what_may_have_taken_effect_is_not_done_again() {
    let store = store();
    let (agent, _, log) = staff(vec![Turn::calls([dispatched("drill", json!({"size": 1}))])]).await;
    let chat = agent.chat().kept_in(store.clone(), labels());
    let id = killed_when(chat, "Drill.", &log, "drill 1 begins").await;

    let (agent, model, log) = staff(vec![Turn::text("I see.")]).await;
    let (mut chat, reopened) = agent.reopen(&*store, &id).await.unwrap();
    let [call] = &reopened.interrupted[..] else { panic!("{reopened:?}") };
    assert_eq!((&*call.name, call.fate), ("call_tool", Fate::MayHaveRun));
    assert!(chat.is_unanswered());
    let answer = chat.send(Input::none()).await;
    assert_eq!((answer.text.as_str(), log.lines().len()), ("I see.", 0));
    assert!(last_results(chat.history())[0].contains("may or may not have taken effect"));
    assert_eq!(model.requests()[0].messages.len(), 3);
}

#[tokio::test]
async fn what_does_no_harm_twice_and_what_had_not_begun_is_done() {
    // Nothing of the batch has begun.
    let both = || {
        Turn::calls([
            dispatched("drill", json!({"size": 1})),
            dispatched("measure", json!({"name": "a"})),
        ])
    };
    let store = store();
    let (agent, _, log) = staff(vec![both()]).await;
    let id = killed_at(agent.chat().kept_in(store.clone(), labels()), "Drill.", is_answer).await;
    assert!(log.lines().is_empty());
    let (agent, _, log) = staff(vec![Turn::text("Done.")]).await;
    let (mut chat, reopened) = agent.reopen(&*store, &id).await.unwrap();
    assert!(reopened.interrupted.iter().all(|call| call.fate == Fate::Runs), "{reopened:?}");
    let (events, answer) = follow(&mut chat, "Well?").await;
    assert_eq!(answer.calls.len(), 2);
    assert_eq!(log.lines(), ["drill 1 begins", "drill 1 ends"]);
    assert_eq!(last_results(chat.history()), ["drill 1 done", "a: 7 mm"]);
    let started = events.iter().filter(|event| matches!(event, Event::CallStarted { .. }));
    assert_eq!(started.count(), 2);
}

#[tokio::test]
async fn results_that_were_there_are_not_made_again() {
    let store = store();
    let three = Turn::calls([
        dispatched("measure", json!({"name": "a"})),
        dispatched("drill", json!({"size": 1})),
        dispatched("sleep", json!({})),
    ]);
    let (agent, _, log) = staff(vec![three]).await;
    let done = |event: &Event| matches!(event, Event::CallFinished { name, .. } if name == "drill");
    let id = killed_at(agent.chat().kept_in(store.clone(), labels()), "Drill.", done).await;
    assert_eq!(log.lines().len(), 2);

    let (agent, _, log) = staff(vec![Turn::text("Done.")]).await;
    let (mut chat, reopened) = agent.reopen(&*store, &id).await.unwrap();
    let fates: Vec<Fate> = reopened.interrupted.iter().map(|call| call.fate).collect();
    assert_eq!(fates, [Fate::Kept, Fate::Kept, Fate::MayHaveRun]);
    chat.send(Input::none()).await;
    assert!(log.lines().is_empty());
    let results = last_results(chat.history());
    assert_eq!(results[..2], ["a: 7 mm", "drill 1 done"]);
    assert!(results[2].contains("interrupted"), "{results:?}");
}

struct Refusing(Log);

impl Approver for Refusing {
    fn ask<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Approval> {
        self.0.note(call.name.to_string());
        async { Approval::No(None) }.boxed()
    }
}

#[tokio::test]
async fn a_person_who_said_no_is_not_asked_again() {
    let store = store();
    let two = Turn::calls([
        dispatched("drill", json!({"size": 1})),
        dispatched("measure", json!({"name": "a"})),
    ]);
    let asked = Log::default();
    let careful = |turns: Vec<Turn>, asked: &Log| {
        let asked = asked.clone();
        agent_with(deferred(), Scripted::new(turns), |builder| {
            builder.permissions(Permissions::ask()).approver(Refusing(asked))
        })
    };
    let stage = careful(vec![two], &asked).await;
    let refused =
        |event: &Event| matches!(event, Event::CallFinished { name, .. } if name == "drill");
    let id =
        killed_at(stage.agent.chat().kept_in(store.clone(), labels()), "Drill.", refused).await;
    assert_eq!(asked.lines(), ["drill"]);

    let stage = careful(vec![Turn::text("Then not.")], &asked).await;
    let (mut chat, _) = stage.agent.reopen(&*store, &id).await.unwrap();
    chat.send(Input::none()).await;
    assert_eq!(asked.lines(), ["drill"]);
    assert!(last_results(chat.history())[0].contains("said no"), "{:?}", chat.history());
}

#[tokio::test]
async fn a_second_program_is_refused_and_can_go_on_with_a_copy() {
    let store = store();
    let (agent, _, _) =
        staff(vec![Turn::text("Hello."), Turn::text("One."), Turn::text("Two.")]).await;
    let mut chat = agent.chat().kept_in(store.clone(), labels());
    chat.send("Hi.").await;
    let id = chat.session_id().unwrap().to_owned();
    let refused = agent.reopen(&*store, &id).await;
    let Err(ReopenError::Session(SessionError::InUse { .. })) = refused else {
        panic!("{:?}", refused.err())
    };
    let copy = store.fork(&id, Extent::Whole).await.unwrap();
    let (mut other, _) = agent.reopen(&*store, &copy).await.unwrap();
    assert_eq!(other.send("And here?").await.text, "One.");
    assert_eq!(chat.send("And there?").await.text, "Two.");
    let kept = |id: String| {
        let store = store.clone();
        async move { store.open(&id, Access::Read).await.unwrap().messages }
    };
    let (one, two) = (kept(id).await, kept(copy).await);
    assert_eq!((one.len(), two.len()), (4, 4));
    assert!(one[2].contains("And there?") && two[2].contains("And here?"));
}

#[tokio::test]
async fn another_history_and_another_model_are_kept_too() {
    let store = store();
    let turns = ["One.", "Two."].map(Turn::text);
    let (agent, _, _) = staff(turns.to_vec()).await;
    let mut chat = agent.chat().kept_in(store.clone(), labels());
    chat.send("First.").await;
    chat.send("Second.").await;
    let short = vec![chat.history()[0].clone(), chat.history()[1].clone()];
    chat.set_history(short);
    let (other, _, _) = staff(vec![Turn::text("Three.")]).await;
    chat.move_to(&other).await.unwrap();
    chat.send("Third.").await;
    let id = chat.session_id().unwrap().to_owned();
    let history = chat.history().to_vec();
    drop(chat);
    let (chat, _) = agent.reopen(&*store, &id).await.unwrap();
    assert_eq!(chat.history(), history);
    assert_eq!(history.len(), 4);
}

#[tokio::test]
async fn what_was_kept_by_a_newer_version_is_refused_and_not_touched() {
    let store = store();
    for (message, ledger, says) in [
        (r#"{"role":"oracle","content":[]}"#, "{}", "message 0"),
        (r#"{"role":"user","content":[]}"#, r#"{"version":99}"#, "newer version"),
        (r#"{"role":"user","content":[]}"#, r#"{"version":1}"#, "ledger"),
    ] {
        let journal = store.create(labels()).await.unwrap();
        let id = journal.id().to_owned();
        journal.append(0, message.to_owned()).await.unwrap();
        journal.ledger(ledger.to_owned()).await.unwrap();
        drop(journal);
        let (agent, _, _) = staff(vec![]).await;
        let Err(error) = agent.reopen(&*store, &id).await else { panic!("{message}") };
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(store.open(&id, Access::Read).await.unwrap().messages, [message]);
    }
}

/// A store on a disk that can fill up.
struct Filling {
    inner: Arc<SqliteStore>,
    full: Arc<AtomicBool>,
}

struct FillingJournal {
    inner: Box<dyn Journal>,
    full: Arc<AtomicBool>,
    refused: Mutex<usize>,
}

impl Journal for FillingJournal {
    fn id(&self) -> &str {
        self.inner.id()
    }

    fn write(&self, changes: Vec<JournalChange>) -> BoxFuture<'_, Result<(), JournalError>> {
        if self.full.load(Ordering::SeqCst) {
            *self.refused.lock().unwrap() += 1;
            let error = StorageError::new(std::io::Error::other("no room on the disk"));
            return async { Err(error.into()) }.boxed();
        }
        self.inner.write(changes)
    }
}

impl SessionStore for Filling {
    fn create(
        &self,
        labels: BTreeMap<String, String>,
    ) -> BoxFuture<'_, Result<Box<dyn Journal>, SessionError>> {
        async move {
            let (inner, full) = (self.inner.create(labels).await?, self.full.clone());
            let journal = FillingJournal { inner, full, refused: Mutex::default() };
            Ok(Box::new(journal) as Box<dyn Journal>)
        }
        .boxed()
    }

    fn open<'a>(
        &'a self,
        id: &'a str,
        access: Access,
    ) -> BoxFuture<'a, Result<Opened, SessionError>> {
        self.inner.open(id, access)
    }

    fn list<'a>(
        &'a self,
        filter: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionMeta>, SessionError>> {
        self.inner.list(filter, limit)
    }

    fn rename<'a>(
        &'a self,
        id: &'a str,
        title: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        self.inner.rename(id, title)
    }

    fn fork<'a>(
        &'a self,
        id: &'a str,
        extent: Extent,
    ) -> BoxFuture<'a, Result<String, SessionError>> {
        self.inner.fork(id, extent)
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), SessionError>> {
        self.inner.delete(id)
    }

    fn export<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<String, SessionError>> {
        self.inner.export(id)
    }

    fn import<'a>(&'a self, exported: &'a str) -> BoxFuture<'a, Result<String, SessionError>> {
        self.inner.import(exported)
    }
}

#[tokio::test]
async fn on_a_full_disk_a_run_stops_and_nothing_is_lost() {
    let (inner, full) = (store(), Arc::new(AtomicBool::new(false)));
    let filling = Arc::new(Filling { inner: inner.clone(), full: full.clone() });
    let drill = || Turn::calls([dispatched("drill", json!({"size": 1}))]);
    let (agent, model, log) = staff(vec![Turn::text("Hello."), drill(), Turn::text("Done.")]).await;
    let mut chat = agent.chat().kept_in(filling, labels());
    chat.send("Hi.").await;
    let id = chat.session_id().unwrap().to_owned();

    full.store(true, Ordering::SeqCst);
    let (events, answer) = follow(&mut chat, "Drill.").await;
    let reason = "the conversation can't be kept: no room on the disk".to_owned();
    assert_eq!(answer.end, End::NotKept { reason });
    // Nobody was told that it is kept, the model was not asked, and nothing has run.
    assert!(!events.iter().any(|event| matches!(event, Event::Appended { .. })), "{events:?}");
    assert_eq!((model.requests().len(), log.lines().len()), (1, 0));

    full.store(false, Ordering::SeqCst);
    let (_, answer) = follow(&mut chat, "Now there is room.").await;
    assert_eq!((answer.end, log.lines().len()), (End::Done, 2));
    let kept = inner.open(&id, Access::Read).await.unwrap().messages;
    let kept: Vec<Message> = kept.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    let history: Vec<Message> = chat.history().iter().map(|it| Message::clone(it)).collect();
    assert_eq!(kept, history);
}

#[tokio::test]
async fn a_tool_whose_beginning_cannot_be_kept_does_not_run() {
    let (inner, full) = (store(), Arc::new(AtomicBool::new(false)));
    let filling = Arc::new(Filling { inner, full: full.clone() });
    let (agent, _, log) = staff(vec![Turn::calls([dispatched("drill", json!({"size": 1}))])]).await;
    let mut chat = agent.chat().kept_in(filling, labels());
    let mut events = chat.stream("Drill.");
    read_to(&mut events, is_answer).await;
    full.store(true, Ordering::SeqCst);
    let rest: Vec<Event> = events.collect().await;
    let Some(Event::RunFinished(answer)) = rest.last() else { panic!("{rest:?}") };
    assert!(matches!(&answer.end, End::NotKept { .. }), "{answer:?}");
    assert!(log.lines().is_empty());
    assert!(last_results(chat.history())[0].starts_with("Nothing was run"));
}
