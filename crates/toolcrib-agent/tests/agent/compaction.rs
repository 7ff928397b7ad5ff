//! Conversations that grow too long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{FutureExt, poll};
use serde_json::json;
use toolcrib_agent::{
    Agent, AgentBuilder, Chat, CompactionRules, End, Event, Input, Message, ProviderError, Request,
    Said, Scripted, Turn,
};
use toolcrib_store::SqliteStore;
use toolcrib_tokens::{Model, Models};

use crate::support::{check_history, deferred, dispatched, follow, notes, shop};

const SUMMARY: &str = "They want holes of 3 mm.";

/// A model with a window of so many tokens.
fn window(tokens: u64) -> Model {
    let mut models = Models::embedded();
    let entry = format!("[[model]]\nname = \"short\"\nlike = \"gpt-4o\"\ncontext = {tokens}\n");
    models.extend_from_toml(&entry).unwrap();
    models.find("short").unwrap().clone()
}

/// Whether a request asks for a summary.
fn wants_summary(request: &Request) -> bool {
    let last = request.messages.last().map(|message| &**message);
    matches!(last, Some(Message::Notice { text }) if text.contains("Write a summary"))
}

/// Writes summaries, and answers anything else with a word.
fn obliging() -> Scripted {
    Scripted::by(|request| Turn::text(if wants_summary(request) { SUMMARY } else { "Yes." }))
}

async fn agent(model: &Scripted, change: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
    let (crib, _) = shop(deferred()).await;
    change(Agent::builder(model.clone(), "short", crib)).build()
}

/// About so many tokens.
fn words(tokens: usize) -> String {
    "word ".repeat(tokens)
}

fn compactions(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Compacted(_))).count()
}

/// Whether a history begins with a summary.
fn is_compacted(history: &[Arc<Message>]) -> bool {
    let first = history.first().map(|message| &**message);
    matches!(first, Some(Message::Notice { text }) if text.contains(&format!("> {SUMMARY}")))
}

#[tokio::test]
async fn a_conversation_that_nears_the_end_of_the_window_is_compacted() {
    let model = obliging();
    let agent = agent(&model, |agent| agent.known_as(&window(8000))).await;
    let mut chat = agent.chat();
    let (mut compacted, mut longest) = (0, 0);
    for _ in 0..12 {
        let before = chat.history().len();
        let (events, answer) = follow(&mut chat, &words(1000)).await;
        assert_eq!((answer.end, notes(&events)), (End::Done, vec![]));
        compacted += compactions(&events);
        assert_eq!(compactions(&events) > 0, chat.history().len() <= before);
        longest = longest.max(chat.history().len());
        // What the person has said last is there as it was said.
        let last = chat.history().iter().rev().nth(1).unwrap();
        assert_eq!(**last, Message::user(words(1000)));
    }
    assert!(compacted >= 2 && longest < 14, "{compacted} {longest}");
    assert!(is_compacted(chat.history()));
    let requests = model.requests();
    assert_eq!(requests.len(), 12 + compacted);
    for (at, request) in requests.iter().enumerate().filter(|(_, it)| wants_summary(it)) {
        // It is asked for with the tools and the words of a normal turn, which a cache knows.
        let before = &requests[at - 1];
        assert_eq!((&request.tools, &request.system), (&before.tools, &before.system));
        assert!(request.messages.starts_with(&before.messages));
    }
}

#[tokio::test]
async fn nothing_is_compacted_that_should_not_be() {
    let mut never = CompactionRules::default();
    never.enabled = false;
    let model = obliging();
    let agent = agent(&model, |agent| agent.known_as(&window(8000)).compaction(never)).await;
    let mut chat = agent.chat();
    for _ in 0..9 {
        let (events, _) = follow(&mut chat, &words(1000)).await;
        assert_eq!(compactions(&events), 0);
    }
    assert_eq!(chat.history().len(), 18);
    // A person can have it done at any rate.
    assert!(chat.compact().await.unwrap().is_some());
    assert!(is_compacted(chat.history()));
    // And there is nothing in what has only begun.
    assert_eq!(agent.chat().compact().await, Ok(None));
}

fn full() -> Turn {
    Turn::error(ProviderError::ContextTooLong("too many tokens".into()))
}

#[tokio::test]
async fn a_provider_that_says_that_it_is_full_is_asked_again_with_less() {
    let turns = ["One.".into(), "Two.".into(), full(), SUMMARY.into(), "Three.".into()];
    let model = Scripted::new::<Turn>(turns);
    let mut chat = agent(&model, |agent| agent).await.chat();
    follow(&mut chat, &words(100)).await;
    follow(&mut chat, &words(100)).await;
    let (events, answer) = follow(&mut chat, "And the third?").await;
    assert_eq!((answer.end, answer.text.as_str()), (End::Done, "Three."));
    assert_eq!((compactions(&events), model.requests().len()), (1, 5));
    assert!(is_compacted(chat.history()));
    assert!(chat.history().iter().any(|it| **it == Message::user("And the third?")));
}

#[tokio::test]
async fn one_that_is_full_at_any_rate_ends_the_run() {
    let turns = ["One.".into(), full(), SUMMARY.into(), full()];
    let model = Scripted::new::<Turn>(turns);
    let mut chat = agent(&model, |agent| agent).await.chat();
    follow(&mut chat, &words(100)).await;
    let (events, answer) = follow(&mut chat, "And now?").await;
    let reason = "too many tokens".to_owned();
    assert_eq!((answer.end, compactions(&events)), (End::ContextFull { reason }, 1));
    assert_eq!(model.requests().len(), 4);
}

#[tokio::test]
async fn a_request_for_a_summary_that_does_not_fit_is_made_with_less() {
    let asked = Arc::new(AtomicUsize::new(0));
    let fits_third = asked.clone();
    let model = Scripted::by(move |request| {
        if !wants_summary(request) {
            return "Yes.".into();
        }
        if fits_third.fetch_add(1, Ordering::SeqCst) < 2 { full() } else { SUMMARY.into() }
    });
    let mut chat = agent(&model, |agent| agent).await.chat();
    for _ in 0..8 {
        follow(&mut chat, &words(500)).await;
    }
    let compaction = chat.compact().await.unwrap().unwrap();
    assert_eq!((&*compaction.summary, asked.load(Ordering::SeqCst)), (SUMMARY, 3));
    check_history(chat.history());
    let sizes: Vec<usize> = model.requests()[8..]
        .iter()
        .map(|request| serde_json::to_string(&request.messages).unwrap().len())
        .collect();
    assert!(sizes[1] < sizes[0] && sizes[2] < sizes[1], "{sizes:?}");

    let never = Scripted::by(|request| if wants_summary(request) { full() } else { "Yes.".into() });
    let mut chat = agent(&never, |agent| agent).await.chat();
    follow(&mut chat, &words(500)).await;
    let before = chat.history().to_vec();
    let end = chat.compact().await.unwrap_err();
    assert!(matches!(end, End::ContextFull { .. }), "{end:?}");
    assert_eq!(chat.history(), before);
}

#[tokio::test]
async fn a_model_that_writes_no_summary_changes_nothing() {
    let silent = |request: &Request| match wants_summary(request) {
        true => Turn::call("tool_search", json!({"query": "drill"})),
        false => Turn::text("Yes."),
    };
    let model = Scripted::by(silent);
    let agent = agent(&model, |agent| agent.known_as(&window(8000))).await;
    let mut chat = agent.chat();
    let mut told = 0;
    for turn in 0..8 {
        let (events, answer) = follow(&mut chat, &words(1000)).await;
        assert_eq!((answer.end, compactions(&events)), (End::Done, 0));
        assert_eq!(chat.history().len(), 2 * (turn + 1));
        told += notes(&events).iter().filter(|note| note.contains("no summary")).count();
    }
    assert!(told > 0);
    let reason = "the model wrote no summary".to_owned();
    assert_eq!(chat.compact().await.unwrap_err(), End::Failed { reason });
    assert_eq!(chat.history().len(), 16);
}

/// A kept conversation of some length, in which a tool was loaded and called.
async fn kept(store: &Arc<SqliteStore>) -> (Agent, Chat) {
    let model = Scripted::by(|request| {
        let said = |text: &str| {
            let last = request.messages.last().map(|message| &**message);
            matches!(last, Some(message) if *message == Message::user(text))
        };
        match () {
            () if wants_summary(request) => SUMMARY.into(),
            () if said("Find.") => Turn::call("tool_search", json!({"query": "drill a hole"})),
            () if said("Drill.") => Turn::calls([dispatched("drill", json!({"size": 3}))]),
            () => "Yes.".into(),
        }
    });
    let agent = agent(&model, |agent| agent).await;
    let mut chat = agent.chat().kept_in(store.clone(), BTreeMap::new());
    follow(&mut chat, "Find.").await;
    follow(&mut chat, "Drill.").await;
    (agent, chat)
}

fn loaded(chat: &Chat) -> Vec<String> {
    chat.conversation().session().loaded_tools().map(ToString::to_string).collect()
}

#[tokio::test]
async fn a_kept_conversation_is_kept_as_it_was_compacted() {
    let store = Arc::new(SqliteStore::open_in_memory().unwrap());
    let (agent, mut chat) = kept(&store).await;
    let (before, tools) = (chat.history().len(), loaded(&chat));
    let compaction = chat.compact().await.unwrap().unwrap();
    assert_eq!((compaction.before, compaction.after), (before, chat.history().len()));
    let (history, id) = (chat.history().to_vec(), chat.session_id().unwrap().to_owned());
    assert!(is_compacted(&history));
    drop(chat);
    let (mut chat, _) = agent.reopen(&*store, &id).await.unwrap();
    assert_eq!((chat.history(), loaded(&chat)), (&history[..], tools));
    // The loaded tool is announced again, and can be called without another search.
    assert!(serde_json::to_string(&history).unwrap().contains("millimetres"));
    let (_, answer) = follow(&mut chat, "Drill.").await;
    assert_eq!((answer.end, answer.calls.len()), (End::Done, 1));
    assert!(!answer.calls[0].is_error);
}

/// Whatever has been done of a compaction when the program ends, all or nothing of it is kept.
#[tokio::test]
async fn a_conversation_that_is_killed_while_it_is_compacted_is_whole() {
    let (mut untouched, mut compacted) = (0, 0);
    for polls in 1..200 {
        let store = Arc::new(SqliteStore::open_in_memory().unwrap());
        let (agent, mut chat) = kept(&store).await;
        let (before, tools) = (chat.history().to_vec(), loaded(&chat));
        let id = chat.session_id().unwrap().to_owned();
        let mut is_done = false;
        {
            let mut compacting = chat.compact().boxed();
            for _ in 0..polls {
                is_done = poll!(&mut compacting).is_ready();
                if is_done {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        drop(chat);
        let (mut chat, _) = agent.reopen(&*store, &id).await.unwrap();
        assert_eq!(loaded(&chat), tools);
        if is_compacted(chat.history()) {
            compacted += 1;
        } else {
            assert_eq!(chat.history(), before, "after {polls}");
            untouched += 1;
        }
        let answer = chat.send(Input::from("Drill.")).await;
        assert_eq!((answer.end, answer.calls.len()), (End::Done, 1));
        check_history(chat.history());
        if is_done {
            break;
        }
    }
    assert!(untouched > 0 && compacted > 0, "{untouched} {compacted}");
}

#[tokio::test]
async fn a_run_that_goes_far_on_one_message_is_compacted_between_its_calls() {
    let model = Scripted::by(|request| {
        if wants_summary(request) {
            return SUMMARY.into();
        }
        let said = |message: &Arc<Message>| match &**message {
            Message::Assistant(said) => said.calls().count(),
            _ => 0,
        };
        let calls: usize = request.messages.iter().map(said).sum();
        let name = format!("{calls} {}", words(1000));
        match is_compacted(&request.messages) && calls > 1 {
            true => "Done.".into(),
            false => Turn::said([
                Said::Text { text: "Next.".into() },
                Said::Call(toolcrib_agent::ToolCall {
                    id: String::new(),
                    name: "call_tool".into(),
                    arguments: json!({"tool_name": "measure", "arguments": {"name": name}})
                        .to_string(),
                }),
            ]),
        }
    });
    let mut chat = agent(&model, |agent| agent.known_as(&window(12_000))).await.chat();
    let (events, answer) = follow(&mut chat, "Measure everything.").await;
    assert_eq!((answer.end, notes(&events)), (End::Done, vec![]));
    assert!(compactions(&events) >= 1);
    assert!(is_compacted(chat.history()));
}
