//! Plays the conversation with a model, by one strategy, and keeps what was sent.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use toolcrib_agent::{Agent, End, Hooks, Message};
use toolcrib_core::{Mode, Settings, StrategyChoice};
use toolcrib_runtime::Crib;
use toolcrib_tokens::{Model, Models};

use crate::endpoint::{Api, Endpoint, Reply};
use crate::prompt::Prompt;
use crate::story::{Load, SYSTEM, Step, story};
use crate::tools::desks;

/// How tools reach the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    /// All of them, in every request.
    Full,
    Inject,
    Dispatch,
    /// In the provider's own form.
    Native,
}

impl Way {
    /// Those that there are with a model.
    pub(crate) fn all(api: Api, model: &Model) -> Vec<Self> {
        let native = api.native().is_some_and(|feature| model.can(feature));
        let native = native.then_some(Self::Native);
        [Self::Full, Self::Inject, Self::Dispatch].into_iter().chain(native).collect()
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Full => "full",
            Self::Inject => "inject",
            Self::Dispatch => "dispatch",
            Self::Native => "native",
        })
    }
}

/// What was sent and answered.
pub(crate) struct Replay {
    pub(crate) prompts: Vec<Prompt>,
    pub(crate) replies: Vec<Reply>,
    /// The requests that follow a load, by their place.
    pub(crate) after_loads: Vec<usize>,
}

/// A model of the table.
pub(crate) fn model(name: &str) -> Model {
    Models::embedded().find(name).unwrap_or_else(|| panic!("{name} is not in the table")).clone()
}

/// Plays the conversation; `hooks` takes part in it.
pub(crate) async fn play(api: Api, model: &Model, way: Way, hooks: Option<impl Hooks>) -> Replay {
    let mut settings = Settings::default();
    settings.mode = if way == Way::Full { Mode::Full } else { Mode::Deferred };
    settings.strategy = match way {
        Way::Full => StrategyChoice::Auto,
        Way::Inject => StrategyChoice::Inject,
        Way::Dispatch => StrategyChoice::Dispatch,
        Way::Native => StrategyChoice::Native,
    };
    let run = Arc::new(AtomicUsize::new(0));
    let crib = desks(&run).fold(Crib::builder(settings), |crib, desk| crib.toolset(desk));
    let crib = crib.build().await.unwrap();

    let steps = story();
    let replies: Vec<Reply> = steps.iter().filter_map(|step| reply(step, way)).collect();
    let endpoint = Endpoint::start(api, replies.clone()).await;
    let agent = Agent::builder(endpoint.provider(), model.name.as_str(), crib);
    let mut agent = agent.known_as(model).system(SYSTEM);
    if let Some(hooks) = hooks {
        agent = agent.hooks(hooks);
    }
    let mut chat = agent.build().chat();
    let mut calls = 0;
    for step in &steps {
        match step {
            Step::Notice(text) => chat.push(Message::notice(*text)),
            Step::Asks(text) => {
                let answer = chat.send(*text).await;
                assert_eq!(answer.end, End::Done, "{text}");
                let failed = answer.calls.iter().find(|call| call.is_error);
                assert!(failed.is_none(), "{failed:?}");
            }
            Step::Calls(_, made) => calls += made.len(),
            Step::Loads(_) | Step::Says(_) => {}
        }
    }
    assert_eq!(run.load(Ordering::Relaxed), calls, "each call has run");
    let strategy = chat.conversation().session().strategy().map(|strategy| strategy.to_string());
    assert!(way == Way::Full || strategy == Some(way.to_string()), "{strategy:?} for {way}");

    let answers = steps.iter().filter(|step| reply(step, way).is_some());
    let loads = answers.enumerate().filter(|(_, step)| matches!(step, Step::Loads(_)));
    let after_loads = loads.map(|(at, _)| at + 1).collect();
    let bodies = endpoint.bodies();
    let prompts = bodies.iter().map(|body| Prompt::read(api, model, body)).collect();
    Replay { prompts, replies, after_loads }
}

/// What the model answers, if that step is an answer of its.
fn reply(step: &Step, way: Way) -> Option<Reply> {
    let tool = |(name, arguments): &(&str, Value)| {
        let (name, arguments) = (format!("mcp__{name}"), arguments.clone());
        match way {
            Way::Dispatch => {
                ("call_tool".to_owned(), json!({"tool_name": name, "arguments": arguments}))
            }
            Way::Full | Way::Inject | Way::Native => (name, arguments),
        }
    };
    Some(match step {
        Step::Asks(_) | Step::Notice(_) => return None,
        Step::Loads(_) if way == Way::Full => return None,
        Step::Loads(load) => {
            let (verb, arguments) = match load {
                Load::Search(query, None) => ("tool_search", json!({"query": query})),
                Load::Search(query, limit) => {
                    ("tool_search", json!({"query": query, "limit": limit}))
                }
                Load::Named(server, names) => (
                    "load_tools",
                    json!({"group_id": format!("mcp:{server}"), "tool_names": names}),
                ),
            };
            Reply { text: String::new(), calls: vec![(verb.to_owned(), arguments)] }
        }
        Step::Calls(text, calls) => {
            Reply { text: (*text).to_owned(), calls: calls.iter().map(tool).collect() }
        }
        Step::Says(text) => Reply { text: (*text).to_owned(), calls: Vec::new() },
    })
}
