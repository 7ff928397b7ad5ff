//! A small machine shop, and eyes on what happens in it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolcrib_agent::{
    Agent, AgentBuilder, Answer, Chat, Event, Message, Part, Scripted, ToolCall, Turn,
};
use toolcrib_core::{Annotations, Mode, Settings, Strategy, StrategyChoice};
use toolcrib_runtime::{CallError, Crib, ToolResult, function};

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Size {
    /// In millimetres.
    pub(crate) size: u32,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Name {
    pub(crate) name: String,
}

/// What the tools were called with, in order.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn note(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) fn deferred() -> Settings {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    settings
}

pub(crate) fn under(strategy: Strategy) -> Settings {
    let mut settings = deferred();
    settings.strategy = match strategy {
        Strategy::Dispatch => StrategyChoice::Dispatch,
        _ => StrategyChoice::Inject,
    };
    settings
}

/// A crib with tools that note what happens to them.
pub(crate) async fn shop(settings: Settings) -> (Crib, Log) {
    let log = Log::default();
    let note = |what: &'static str| {
        let log = log.clone();
        move |it: Size| {
            let log = log.clone();
            async move {
                log.note(format!("{what} {} begins", it.size));
                tokio::time::sleep(Duration::from_millis(20)).await;
                log.note(format!("{what} {} ends", it.size));
                format!("{what} {} done", it.size)
            }
        }
    };
    let reads = Annotations { read_only: Some(true), ..Annotations::default() };
    let crib = Crib::builder(settings)
        .function(function("drill", "Drill a hole.", note("drill")))
        .function(function("mill", "Mill a slot.", note("mill")))
        .function(
            function("weld", "Weld a seam, nothing else at the same time.", note("weld"))
                .map_spec(|spec| spec.into_sequential()),
        )
        .function(
            function("measure", "Measure something.", |it: Name| async move {
                format!("{}: 7 mm", it.name)
            })
            .map_spec(move |spec| spec.with_annotations(reads)),
        )
        .function(function("explode", "Breaks.", |(): ()| async { panic!("bang") as &str }))
        .function(function("sleep", "Never comes back.", |(): ()| async {
            std::future::pending::<()>().await;
        }))
        .function(function("flood", "Says a great deal.", |(): ()| async {
            "water ".repeat(9_000_000)
        }))
        .function(function("stop", "Ends the run.", |(): ()| async { Halt }))
        .build()
        .await
        .unwrap();
    (crib, log)
}

struct Halt;

impl toolcrib_runtime::IntoToolResult for Halt {
    fn into_tool_result(self) -> Result<ToolResult, CallError> {
        Err(CallError::Stop("the shop is closed".to_owned()))
    }
}

/// An agent over the shop that plays a script.
pub(crate) async fn agent(settings: Settings, turns: impl IntoIterator<Item = Turn>) -> Stage {
    agent_with(settings, Scripted::new(turns), |builder| builder).await
}

pub(crate) async fn agent_with(
    settings: Settings,
    model: Scripted,
    change: impl FnOnce(AgentBuilder) -> AgentBuilder,
) -> Stage {
    let (crib, log) = shop(settings).await;
    let builder = Agent::builder(model.clone(), "scripted", crib.clone()).system("You run a shop.");
    Stage { agent: change(builder).build(), model, crib, log }
}

pub(crate) struct Stage {
    pub(crate) agent: Agent,
    pub(crate) model: Scripted,
    pub(crate) crib: Crib,
    pub(crate) log: Log,
}

/// A call through the dispatcher.
pub(crate) fn dispatched(name: &str, arguments: Value) -> (&'static str, Value) {
    ("call_tool", json!({"tool_name": name, "arguments": arguments}))
}

/// Sends a message and collects what happens; what starts must finish, and the history must be
/// valid.
pub(crate) async fn follow(chat: &mut Chat, text: &str) -> (Vec<Event>, Answer) {
    let events: Vec<Event> = chat.stream(text).collect().await;
    check_pairs(&events);
    check_history(chat.history());
    match events.last() {
        Some(Event::RunFinished(answer)) => {
            let answer = answer.clone();
            (events, answer)
        }
        other => panic!("a run ends with its answer, not {other:?}"),
    }
}

pub(crate) fn check_pairs(events: &[Event]) {
    let mut open: Vec<String> = Vec::new();
    let close = |open: &mut Vec<String>, key: String| {
        let at = open.iter().position(|known| *known == key);
        open.remove(at.unwrap_or_else(|| panic!("{key} was not begun")));
    };
    for event in events {
        match event {
            Event::RunStarted => open.push("run".into()),
            Event::RunFinished(_) => close(&mut open, "run".into()),
            Event::TurnStarted { turn } => open.push(format!("turn {turn}")),
            Event::TurnFinished { turn, .. } => close(&mut open, format!("turn {turn}")),
            Event::Asked { id, .. } => open.push(format!("ask {id}")),
            Event::Answered { id, .. } => close(&mut open, format!("ask {id}")),
            Event::CallStarted { id, name, .. } => open.push(format!("call {id} {name}")),
            Event::CallFinished { name, result, .. } => {
                close(&mut open, format!("call {} {name}", result.call_id));
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "never ended: {open:?}");
}

/// Every call has its result, in order; no id is used twice.
pub(crate) fn check_history(history: &[Arc<Message>]) {
    let mut ids = HashSet::new();
    let mut waiting: Vec<String> = Vec::new();
    for message in history {
        match &**message {
            Message::Tool { results } => {
                let given: Vec<String> =
                    results.iter().map(|result| result.call_id.clone()).collect();
                assert_eq!(given, std::mem::take(&mut waiting), "results fit the calls");
            }
            other => {
                assert!(waiting.is_empty(), "{waiting:?} has no result before {other:?}");
                if let Message::Assistant(said) = other {
                    waiting = said.calls().map(|call: &ToolCall| call.id.clone()).collect();
                    for id in &waiting {
                        assert!(!id.is_empty() && ids.insert(id.clone()), "{id} is used twice");
                    }
                }
            }
        }
    }
    assert!(waiting.is_empty(), "{waiting:?} has no result at the end");
}

/// What was told to be different from what was asked for.
pub(crate) fn notes(events: &[Event]) -> Vec<&str> {
    let mut notes = Vec::new();
    for event in events {
        if let Event::Note { text } = event {
            notes.push(text.as_str());
        }
    }
    notes
}

/// What the model read in answer to its calls, newest batch.
pub(crate) fn last_results(history: &[Arc<Message>]) -> Vec<String> {
    let newest = history.iter().rev().find_map(|message| match &**message {
        Message::Tool { results } => Some(results),
        _ => None,
    });
    let text = |content: &Vec<Part>| content.iter().map(Part::described).collect::<String>();
    newest.map_or_else(Vec::new, |all| all.iter().map(|result| text(&result.content)).collect())
}
