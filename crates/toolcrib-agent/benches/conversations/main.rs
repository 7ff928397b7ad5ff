//! A thousand conversations at once over one registry of ten thousand tools: do they keep apart,
//! what does an idle one hold in memory, and what does a turn cost beside model and tools?
//!
//! `cargo bench -p toolcrib-agent --bench conversations`; `-- --quick` for a tenth of it. Ends
//! with an error if two conversations mix or a target is missed.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod meter;
mod model;
mod tools;

use std::alloc::System;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use toolcrib_agent::{Agent, Chat, End, Message};
use toolcrib_core::{Mode, Settings, StrategyChoice};
use toolcrib_runtime::Crib;

use meter::{Kind, Meter, Sample};
use model::{Model, marker};
use tools::Server;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MOST_BYTES: usize = 50_000;
const MOST_TIME: Duration = Duration::from_millis(1);

/// How much is run.
#[derive(Clone, Copy)]
struct Size {
    conversations: usize,
    servers: usize,
    tools: usize,
}

/// What came of all conversations under one strategy.
struct Figures {
    /// Of one idle conversation, without its messages.
    bytes: usize,
    message_bytes: usize,
    samples: Vec<Sample>,
    took: Duration,
    faults: Vec<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let size = match quick {
        false => Size { conversations: 1_000, servers: 300, tools: 10_000 },
        true => Size { conversations: 100, servers: 30, tools: 1_000 },
    };
    println!(
        "{} conversations at once, {} tools of {} servers, {} cores",
        size.conversations,
        size.tools,
        size.servers,
        std::thread::available_parallelism().map_or(1, usize::from)
    );
    let mut missed = false;
    for strategy in [StrategyChoice::Dispatch, StrategyChoice::Inject] {
        let figures = measure(size, strategy).await;
        missed |= report(strategy, &figures);
    }
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

async fn measure(size: Size, strategy: StrategyChoice) -> Figures {
    let mut settings = Settings::default();
    (settings.mode, settings.strategy) = (Mode::Deferred, strategy);
    let meters: Arc<[Meter]> = (0..size.conversations).map(|_| Meter::new()).collect();
    let mut crib = Crib::builder(settings);
    for server in Server::all(size.servers, size.tools, &meters) {
        crib = crib.toolset(server);
    }
    let crib = crib.build().await.unwrap();
    let model = Model::new(strategy, size.servers, meters.clone());
    let agent = Agent::builder(model.clone(), "scripted", crib).system("Be brief.").build();
    // What the first use of a tool makes is the registry's, so all are used before it counts.
    drop(converse(&agent, &meters).await);
    meters.iter().for_each(Meter::clear);
    let before = heap();
    let started = Instant::now();
    let chats = converse(&agent, &meters).await;
    let took = started.elapsed();
    let whole = heap() - before;
    let copies: Vec<Vec<Arc<Message>>> = chats.iter().map(copied).collect();
    let messages = heap() - before - whole;
    drop(copies);
    let mut faults = model.faults();
    faults.extend(chats.iter().enumerate().flat_map(|(number, chat)| mixed_up(number, chat)));
    Figures {
        bytes: whole.saturating_sub(messages) / chats.len(),
        message_bytes: messages / chats.len(),
        samples: meters.iter().flat_map(Meter::samples).collect(),
        took,
        faults,
    }
}

/// Holds all conversations at the same time, and keeps them.
async fn converse(agent: &Agent, meters: &Arc<[Meter]>) -> Vec<Chat> {
    let tasks: Vec<_> = (0..meters.len())
        .map(|number| {
            let (agent, meters) = (agent.clone(), meters.clone());
            tokio::spawn(async move {
                let mut chat = agent.chat();
                for question in ["Look into", "Go on with"] {
                    let message = format!("{question} {}.", marker(number));
                    meters[number].begin(Kind::Begin);
                    let answer = meters[number].timed(chat.send(message)).await;
                    meters[number].end();
                    assert_eq!(answer.end, End::Done, "{answer:?}");
                    assert!(answer.text.contains(&marker(number)), "{answer:?}");
                }
                chat
            })
        })
        .collect();
    let mut chats = Vec::with_capacity(tasks.len());
    for task in tasks {
        chats.push(task.await.unwrap());
    }
    chats
}

/// What a conversation has that isn't its own, or lacks.
fn mixed_up(number: usize, chat: &Chat) -> Vec<String> {
    let session = chat.conversation().session();
    let loaded: BTreeSet<&str> = session.loaded_tools().map(|name| &**name).collect();
    let shown = model::shown(chat.history());
    let expected: BTreeSet<&str> = shown.iter().map(String::as_str).collect();
    let mut faults = model::strangers(number, chat.history());
    if loaded != expected || loaded.is_empty() {
        faults.push(format!("{} has loaded {loaded:?}, not {expected:?}", marker(number)));
    }
    faults
}

fn copied(chat: &Chat) -> Vec<Arc<Message>> {
    chat.history().iter().map(|message| Arc::new(Message::clone(message))).collect()
}

/// Bytes that are in use.
fn heap() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}

/// Prints the figures; says whether a target is missed.
fn report(strategy: StrategyChoice, figures: &Figures) -> bool {
    let Figures { bytes, message_bytes, samples, took, faults } = figures;
    let name = format!("{strategy:?}").to_lowercase();
    let line = |what: &str, figure: String| println!("{name:<9} {what:<44} {figure}");
    let between = samples.iter().filter(|sample| sample.kind.is_between());
    let (p50, p99) = percentiles(between.map(|sample| sample.busy).collect());
    line(
        "memory of an idle conversation",
        format!("{} kB, target < {} kB", kilo(*bytes), kilo(MOST_BYTES)),
    );
    line("beside its messages", format!("{} kB", kilo(*message_bytes)));
    line(
        "from an answer to the next request, median",
        format!("{p50:.0?}, target < {MOST_TIME:?}"),
    );
    line("the same, 99 of 100", format!("{p99:.0?}"));
    for kind in Kind::ALL {
        let of_kind = samples.iter().filter(|sample| sample.kind == kind);
        let times: Vec<Duration> = of_kind.map(|sample| sample.busy).collect();
        let count = times.len();
        let (p50, p99) = percentiles(times);
        line(kind.in_words(), format!("{p50:.0?}, 99 of 100 {p99:.0?} ({count} times)"));
    }
    line("all conversations", format!("{took:.2?}"));
    line("mixed up", faults.len().to_string());
    faults.iter().take(5).for_each(|fault| println!("  {fault}"));
    *bytes >= MOST_BYTES || p50 >= MOST_TIME || !faults.is_empty()
}

fn percentiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    (at(50), at(99))
}

fn kilo(bytes: usize) -> String {
    format!("{:.1}", bytes as f64 / 1e3)
}
