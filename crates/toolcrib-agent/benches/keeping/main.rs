//! What it costs to keep a conversation while it goes on: each change of one with a thousand
//! messages, and bringing it back.
//!
//! `cargo bench -p toolcrib-agent --bench keeping`; `-- --quick` for a conversation of a hundred
//! messages. Ends with an error if a target is missed.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod store;
mod tools;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use toolcrib_agent::{
    Agent, Chat, Delta, End, Message, Provider, ProviderError, Reply, Request, Said, StopReason,
    ToolCall,
};
use toolcrib_core::{Mode, Settings, StrategyChoice};
use toolcrib_runtime::Crib;
use toolcrib_store::SqliteStore;

use store::{Kind, Timed};
use tools::Server;

const MOST_A_CHANGE: Duration = Duration::from_millis(1);
const MOST_A_REOPENING: Duration = Duration::from_millis(50);

/// How often tools are searched for, which loads five of them each time.
const SEARCHES: usize = 12;

/// What is said each time: a question, a call, its result, an answer.
const MESSAGES_A_ROUND: usize = 4;

/// Rounds that are measured.
const ROUNDS: usize = 100;

const REOPENINGS: usize = 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let messages = if quick { 100 } else { 1_000 };
    println!("a conversation of {messages} messages, of 2 KB where they are results\n");
    println!("| tools | what | median | 99 of 100 | |");
    println!("|--:|---|--:|--:|---|");
    let mut missed = false;
    for (servers, tools) in [(20, 300), (300, 10_000)] {
        missed |= measure(messages, servers, tools).await;
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Prints what one size of registry gives; says whether a target is missed.
async fn measure(messages: usize, servers: usize, tools: usize) -> bool {
    let mut settings = Settings::default();
    (settings.mode, settings.strategy) = (Mode::Deferred, StrategyChoice::Dispatch);
    let mut crib = Crib::builder(settings);
    for number in 0..servers {
        crib = crib.toolset(Server::new(number, tools / servers));
    }
    let crib = crib.build().await.unwrap();
    let agent = Agent::builder(Model, "model", crib).system("Be brief.").build();
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(Timed::new(SqliteStore::open(folder.path().join("sessions.db")).unwrap()));

    let mut forgotten = agent.chat();
    talk(&mut forgotten, messages / MESSAGES_A_ROUND).await;
    let plain = talk(&mut forgotten, ROUNDS).await;

    let mut kept = agent.chat().kept_in(store.clone(), BTreeMap::new());
    talk(&mut kept, messages / MESSAGES_A_ROUND).await;
    store.clear();
    let rounds = talk(&mut kept, ROUNDS).await;
    let changes = store.times();
    let (made, ledger) = ledger(&kept);
    let id = kept.session_id().unwrap().to_owned();
    let loaded = kept.conversation().session().loaded_tools().count();
    drop(kept);

    let mut reopenings = Vec::new();
    for _ in 0..REOPENINGS {
        let began = Instant::now();
        let (chat, reopened) = agent.reopen(&*store, &id).await.unwrap();
        reopenings.push(began.elapsed());
        assert_eq!(chat.history().len(), messages + ROUNDS * MESSAGES_A_ROUND);
        assert!(
            reopened.report.notes.is_empty() && reopened.interrupted.is_empty(),
            "{reopened:?}"
        );
    }

    let row = |what: &str, times: &[Duration], remark: &str| {
        let (median, late) = percentiles(times);
        println!("| {tools} | {what} | {median:.1?} | {late:.1?} | {remark} |");
        median
    };
    let without = row("a round, not kept", &plain, "");
    let with = row("a round, kept", &rounds, "");
    for kind in Kind::ALL {
        let times: Vec<Duration> =
            changes.iter().filter(|(of, _)| *of == kind).map(|(_, time)| *time).collect();
        if !times.is_empty() {
            row(&format!("written: {kind}"), &times, "");
        }
    }
    row("the ledger made", &made, &format!("{} kB, {loaded} tools loaded", ledger / 1000));
    let reopening = row("brought back", &reopenings, &format!("target < {MOST_A_REOPENING:?}"));
    let a_round = changes.len() / ROUNDS;
    let each = with.saturating_sub(without) / u32::try_from(a_round).unwrap();
    println!(
        "| {tools} | **a change** | **{each:.1?}** | | (kept - not kept) / {a_round} changes; \
         target < {MOST_A_CHANGE:?} |"
    );
    each >= MOST_A_CHANGE || reopening >= MOST_A_REOPENING
}

/// Talks for so many rounds, and says how long each took.
async fn talk(chat: &mut Chat, rounds: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let began = Instant::now();
        let answer = chat.send("And the next one, please.").await;
        times.push(began.elapsed());
        assert_eq!(answer.end, End::Done, "{answer:?}");
    }
    times
}

/// How long it takes to write down what is loaded, and how much it is.
fn ledger(chat: &Chat) -> (Vec<Duration>, usize) {
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        bytes = serde_json::to_string(&chat.conversation().snapshot()).unwrap().len();
        times.push(began.elapsed());
    }
    (times, bytes)
}

fn percentiles(times: &[Duration]) -> (Duration, Duration) {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    (at(50), at(99))
}

/// Looks for tools at first, then calls one of them in each round.
struct Model;

impl Provider for Model {
    fn name(&self) -> &str {
        "model"
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let asked = |message: &&Arc<Message>| matches!(***message, Message::User { .. });
        let round = request.messages.iter().filter(asked).count();
        let content = match request.messages.last().map(|message| &**message) {
            Some(Message::Tool { .. }) => Said::Text { text: "That is done.".to_owned() },
            _ if round <= SEARCHES => call("tool_search", &json!({"query": tools::query(round)})),
            _ => {
                let arguments = json!({"id": round.to_string()});
                let tool = tools::exposed(round % SEARCHES);
                call("call_tool", &json!({"tool_name": tool, "arguments": arguments}))
            }
        };
        let usage = Default::default();
        let reply = Reply { content: vec![content], stop: StopReason::End, usage };
        stream::iter([Ok(Delta::Finished(reply))]).boxed()
    }
}

fn call(name: &str, arguments: &Value) -> Said {
    let (id, name, arguments) = (String::new(), name.to_owned(), arguments.to_string());
    Said::Call(ToolCall { id, name, arguments })
}
