//! A program that keeps a conversation is killed at random points and started again, 200 times:
//! every resume goes on, nothing that was acknowledged is lost, and no tool runs twice unless it
//! does no harm.
//!
//! The test is the program too: with `TOOLCRIB_KILLED` set it works in that folder, and says of
//! each message that it is kept. A number as the
//! only argument makes the run from another seed.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolcrib_agent::{
    Agent, Assistant, Chat, Delta, End, Event, Input, Message, Provider, ProviderError, Reply,
    Request, Said, StopReason, ToolCall,
};
use toolcrib_core::{Annotations, Mode, Settings};
use toolcrib_runtime::{Access, Crib, SessionStore, function};
use toolcrib_store::SqliteStore;

const PLACE: &str = "TOOLCRIB_KILLED";

/// How often a program is killed, and how often in the course of one conversation.
const KILLS: usize = 200;
const KILLS_EACH: usize = 5;

/// How much there is to say in one conversation.
const QUESTIONS: usize = 5;

fn main() {
    match std::env::var_os(PLACE) {
        Some(place) => work(Path::new(&place)),
        None => {
            // `cargo test -- FILTER` and `--list` are for other tests than this.
            let arguments: Vec<String> = std::env::args().skip(1).collect();
            if arguments.iter().any(|argument| argument == "--list") {
                return;
            }
            let seed = arguments.iter().find_map(|argument| argument.parse().ok());
            kill_and_see(seed.unwrap_or(0x7001_c41b));
        }
    }
}

/// The program that is killed.
#[tokio::main(flavor = "current_thread")]
async fn work(place: &Path) {
    let store = Arc::new(SqliteStore::open(place.join("sessions.db")).unwrap());
    let agent = Agent::builder(Model, "model", crib(place).await).build();
    let kept = store.list("", 2).await.unwrap();
    assert!(kept.len() < 2, "one conversation is one session");
    let mut chat = match kept.first() {
        None => agent.chat().kept_in(store.clone(), BTreeMap::new()),
        Some(meta) => {
            let (chat, reopened) = agent.reopen(&*store, &meta.id).await.unwrap();
            assert!(reopened.report.missing.is_empty(), "{:?}", reopened.report);
            check_loads(&chat);
            chat
        }
    };
    loop {
        let input = if chat.is_unanswered() {
            Input::none()
        } else if said_by_user(&chat) < QUESTIONS {
            format!("Question {}.", said_by_user(&chat)).into()
        } else {
            break;
        };
        let mut kept = chat.history().len();
        let mut events = chat.stream(input);
        while let Some(event) = events.next().await {
            match event {
                Event::Appended { message } => {
                    // Results that were made up for at the beginning come first.
                    tell(&format!("kept {kept} {}", serde_json::to_string(&*message).unwrap()));
                    kept += 1;
                }
                Event::RunFinished(answer) => assert_eq!(answer.end, End::Done, "{answer:?}"),
                _ => {}
            }
        }
    }
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

fn said_by_user(chat: &Chat) -> usize {
    chat.history().iter().filter(|it| matches!(***it, Message::User { .. })).count()
}

/// What a result in the history shows the schema of is loaded.
fn check_loads(chat: &Chat) {
    let session = chat.conversation().session();
    let loaded: BTreeSet<&str> = session.loaded_tools().map(|name| &**name).collect();
    for message in chat.history() {
        let Message::Tool { results } = &**message else { continue };
        for result in results.iter().filter(|result| result.name == "tool_search") {
            let shown: Value = serde_json::from_str(&result.described()).unwrap();
            for tool in shown["tools"].as_array().unwrap() {
                assert!(loaded.contains(tool["name"].as_str().unwrap()), "{tool} is not loaded");
            }
        }
    }
}

#[derive(Deserialize, JsonSchema)]
struct Mark {
    mark: String,
}

/// Tools that leave a line in a file for each time they run.
async fn crib(place: &Path) -> Crib {
    let leave = |name: &'static str| {
        let path = place.join(name);
        move |it: Mark| {
            let path = path.clone();
            async move {
                let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
                // In one piece, so that it is there or not.
                file.write_all(format!("{}\n", it.mark).as_bytes()).unwrap();
                tokio::time::sleep(Duration::from_micros(700)).await;
                format!("{} is done", it.mark)
            }
        }
    };
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    let again = Annotations { idempotent: Some(true), ..Annotations::default() };
    let mut builder = Crib::builder(settings)
        .function(function("spend", "Spend money, which can't be undone.", leave("spend")))
        .function(function("pay", "Pay a bill, which can't be undone.", leave("pay")))
        .function(
            function("look", "Look at an account.", leave("look"))
                .map_spec(move |spec| spec.with_annotations(again)),
        );
    for number in 0..20 {
        let name = format!("other_{number}");
        builder = builder.function(function(&name, "Something else.", |(): ()| async { "ok" }));
    }
    builder.build().await.unwrap()
}

/// Answers by how much has been said: a search, calls one by one and together, words.
struct Model;

impl Provider for Model {
    fn name(&self) -> &str {
        "model"
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let answers = request.messages.iter().filter(|it| matches!(***it, Message::Assistant(_)));
        let turn = answers.count();
        let call = |number: usize, name: &str, arguments: Value| {
            let id = format!("call_{turn}_{number}");
            Said::Call(ToolCall { id, name: name.to_owned(), arguments: arguments.to_string() })
        };
        let run = |number: usize, tool: &str| {
            let arguments = json!({"mark": format!("{turn}.{number}")});
            call(number, "call_tool", json!({"tool_name": tool, "arguments": arguments}))
        };
        let content = match turn % 5 {
            0 => vec![call(0, "tool_search", json!({"query": "spend pay look", "limit": 3}))],
            1 => vec![run(0, "spend")],
            2 => vec![run(0, "pay"), run(1, "look"), run(2, "spend")],
            3 => vec![run(0, "look")],
            _ => vec![Said::Text { text: format!("Answer {turn}.") }],
        };
        let reply = Reply { content, stop: StopReason::End, usage: Default::default() };
        stream::iter([Ok(Delta::Finished(reply))]).boxed()
    }
}

/// Kills the program again and again, and looks at what it leaves behind.
fn kill_and_see(seed: u64) {
    let began = Instant::now();
    let mut random = Random(seed);
    let (mut kills, mut conversations, mut repeated, mut left_open) = (0, 0, 0, 0);
    while kills < KILLS {
        let folder = tempfile::tempdir().unwrap();
        let mut acknowledged: BTreeMap<usize, String> = BTreeMap::new();
        for _ in 0..KILLS_EACH {
            // Most conversations are done after some fifty lines.
            let lines = random.below(20) as usize;
            let pause = Duration::from_micros(random.below(2_500));
            let (mut program, mut said) = start(folder.path());
            for line in said.by_ref().take(lines) {
                note(&line, &mut acknowledged, seed);
            }
            std::thread::sleep(pause);
            program.kill().unwrap();
            let ended = program.wait().unwrap();
            // What it had said by then, it had said.
            said.for_each(|line| note(&line, &mut acknowledged, seed));
            if ended.code().is_some() {
                assert!(ended.success(), "seed {seed}: it failed");
                break;
            }
            kills += 1;
        }
        let (mut program, said) = start(folder.path());
        said.for_each(|line| note(&line, &mut acknowledged, seed));
        assert!(program.wait().unwrap().success(), "seed {seed}: it failed");
        let (twice, open) = check(folder.path(), &acknowledged, seed);
        (repeated, left_open) = (repeated + twice, left_open + open);
        conversations += 1;
    }
    println!(
        "killed {kills} times in {conversations} conversations, {:.0} s: all went on; {repeated} \
         harmless calls were made again, {left_open} others were left open (seed {seed})",
        began.elapsed().as_secs_f64()
    );
    assert!(repeated > 0 && left_open > 0, "seed {seed}: no call was ever cut off");
}

fn start(place: &Path) -> (Child, impl Iterator<Item = String>) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.env(PLACE, place).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let said = BufReader::new(program.stdout.take().unwrap()).lines();
    (program, said.map(Result::unwrap))
}

/// Notes a message that the program has said is kept.
fn note(line: &str, acknowledged: &mut BTreeMap<usize, String>, seed: u64) {
    let Some(kept) = line.strip_prefix("kept ") else { return };
    // The last line may have been cut off in the middle.
    let Some((seq, message)) = kept.split_once(' ').filter(|(_, it)| it.ends_with('}')) else {
        return;
    };
    let before = acknowledged.insert(seq.parse().unwrap(), message.to_owned());
    assert!(before.is_none(), "seed {seed}: message {seq} was kept twice");
}

/// Compares what was acknowledged and what has run with what was kept; counts the harmless calls
/// that ran more than once, and the others that were left open.
fn check(place: &Path, acknowledged: &BTreeMap<usize, String>, seed: u64) -> (usize, usize) {
    let store = SqliteStore::open(place.join("sessions.db")).unwrap();
    let kept = wait(store.list("", 2)).unwrap();
    let [meta] = &kept[..] else { panic!("seed {seed}: {kept:?}") };
    let opened = wait(store.open(&meta.id, Access::Read)).unwrap();
    for (seq, message) in acknowledged {
        let kept = opened.messages.get(*seq).and_then(|text| serde_json::from_str(text).ok());
        let told: Message = serde_json::from_str(message).unwrap();
        assert_eq!(kept, Some(told), "seed {seed}: message {seq} is lost");
    }
    let (mut expected, mut open) = (Vec::new(), 0);
    let messages = opened.messages.iter().map(|text| serde_json::from_str(text).unwrap());
    let messages: Vec<Message> = messages.collect();
    for pair in messages.windows(2) {
        let [Message::Assistant(said), Message::Tool { results }] = pair else { continue };
        expected.extend(made(said).zip(results).map(|(call, result)| {
            open += usize::from(result.is_error);
            (call.0, call.1, result.is_error)
        }));
    }
    let questions = messages.iter().filter(|it| matches!(it, Message::User { .. })).count();
    assert_eq!(questions, QUESTIONS, "seed {seed}");
    let mut repeated = 0;
    for name in ["spend", "pay", "look"] {
        let left = std::fs::read_to_string(PathBuf::from(place).join(name)).unwrap_or_default();
        let times = |mark: &str| left.lines().filter(|line| *line == mark).count();
        for (_, mark, cut) in expected.iter().filter(|call| call.0 == name) {
            match times(mark) {
                1 => {}
                // Whether it has taken effect is not known, and nobody says so.
                0 if *cut => {}
                many if name == "look" && many > 1 => repeated += 1,
                many => panic!("seed {seed}: {name} {mark} ran {many} times"),
            }
        }
        let known = |line: &str| expected.iter().any(|call| call.0 == name && call.1 == line);
        assert!(left.lines().all(known), "seed {seed}: {name} ran without a call");
    }
    (repeated, open)
}

/// The tools that a message calls, each with its mark. A search stands for nothing that runs.
fn made(said: &Assistant) -> impl Iterator<Item = (String, String)> {
    said.calls().map(|call| {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        (text(&arguments["tool_name"]), text(&arguments["arguments"]["mark"]))
    })
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}
