//! A model without a memory: it answers by what the request holds, and notes what should not be
//! in it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use toolcrib_agent::{
    Delta, Message, Provider, ProviderError, Reply, Request, Said, StopReason, ToolCall,
};
use toolcrib_core::StrategyChoice;

use crate::meter::{Kind, Meter};
use crate::tools::{first_tools, query, server_name};

const MARK: &str = "conversation-";
/// Which are there from the beginning; the last one only under dispatch.
const VERBS: [&str; 3] = ["tool_search", "load_tools", "call_tool"];

pub(crate) fn marker(number: usize) -> String {
    format!("{MARK}{number:05}")
}

pub(crate) fn number_of(marker: &str) -> Option<usize> {
    marker.strip_prefix(MARK)?.get(..5)?.parse().ok()
}

#[derive(Clone)]
pub(crate) struct Model(Arc<Inner>);

struct Inner {
    injects: bool,
    servers: usize,
    meters: Arc<[Meter]>,
    faults: Mutex<Vec<String>>,
}

impl Model {
    pub(crate) fn new(strategy: StrategyChoice, servers: usize, meters: Arc<[Meter]>) -> Self {
        let injects = strategy == StrategyChoice::Inject;
        Self(Arc::new(Inner { injects, servers, meters, faults: Mutex::default() }))
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the model says next, and what kind of a turn that makes.
    fn answer(&self, number: usize, request: &Request) -> (Kind, Vec<Said>) {
        let is_said = |message: &&Arc<Message>| matches!(***message, Message::Assistant(_));
        let shown = shown(&request.messages);
        let server = server_name(number % self.0.servers);
        match request.messages.iter().filter(is_said).count() {
            0 => (Kind::Search, vec![call("tool_search", json!({"query": query(number)}))]),
            1 => {
                let names = first_tools(number % self.0.servers, 3);
                let group = json!({"group_id": format!("mcp:{server}"), "tool_names": names});
                (Kind::Load, vec![call("load_tools", group)])
            }
            2 => (Kind::Call, vec![self.use_of(number, &shown, 0), self.use_of(number, &shown, 5)]),
            4 => (Kind::Search, vec![call("tool_search", json!({"query": query(number + 1)}))]),
            5 => (Kind::Call, vec![self.use_of(number, &shown, 6), self.use_of(number, &shown, 1)]),
            _ => (Kind::End, vec![Said::Text { text: format!("Done with {}.", marker(number)) }]),
        }
    }

    /// Calls a tool that was shown, counted from the first.
    fn use_of(&self, number: usize, shown: &[String], at: usize) -> Said {
        // Now and then a search shows fewer, or the same again.
        let name = shown.get(at % shown.len().max(1)).map_or("missing", String::as_str);
        let arguments = json!({"id": marker(number)});
        match self.0.injects {
            true => call(name, arguments),
            false => call("call_tool", json!({"tool_name": name, "arguments": arguments})),
        }
    }

    /// What a request holds that isn't its conversation's.
    fn look_through(&self, number: usize, request: &Request) -> Vec<String> {
        let mut faults = strangers(number, &request.messages);
        let sent: Vec<&str> = request.tools.iter().map(|tool| &**tool.name()).collect();
        let mut expected: Vec<String> = VERBS.map(str::to_owned).into();
        if self.0.injects {
            expected.pop();
            expected.extend(shown(&request.messages));
        }
        if sent != expected {
            faults.push(format!("{} was sent {sent:?}, not {expected:?}", marker(number)));
        }
        faults
    }
}

impl Provider for Model {
    fn name(&self) -> &str {
        "model"
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let first = request.messages.first().map(|message| text_of(message)).unwrap_or_default();
        let number = first.find(MARK).and_then(|at| number_of(&first[at..]));
        let Some(number) = number.filter(|number| *number < self.0.meters.len()) else {
            let error = ProviderError::Rejected(format!("whose is {first:?}?"));
            return stream::iter([Err(error)]).boxed();
        };
        self.0.meters[number].end();
        let found = self.look_through(number, &request);
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
        let (kind, content) = self.answer(number, &request);
        let usage = Default::default();
        let reply = Reply { content, stop: StopReason::End, usage };
        let model = self.clone();
        let wait = Duration::from_millis(5 + number as u64 * 7 % 20);
        let words = stream::once(async move {
            tokio::time::sleep(wait).await;
            Ok(Delta::Thinking("Let me see.".to_owned()))
        });
        let end = stream::once(async move {
            tokio::task::yield_now().await;
            model.0.meters[number].begin(kind);
            Ok(Delta::Finished(reply))
        });
        words.chain(end).boxed()
    }
}

/// The tools a conversation was shown, in order, as the answers of its verbs name them.
pub(crate) fn shown(history: &[Arc<Message>]) -> Vec<String> {
    let mut names = Vec::new();
    for message in history {
        let Message::Tool { results } = &**message else { continue };
        for result in results {
            let rows = match result.name.as_str() {
                "tool_search" => "tools",
                "load_tools" => "tool_names",
                _ => continue,
            };
            let answer: Value = serde_json::from_str(&result.described()).unwrap_or_default();
            for row in answer[rows].as_array().into_iter().flatten() {
                let name = row.as_str().or_else(|| row["name"].as_str()).unwrap_or_default();
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
    }
    names
}

/// Marks of other conversations, results that are errors, and calls answered by another tool.
pub(crate) fn strangers(number: usize, history: &[Arc<Message>]) -> Vec<String> {
    let own = marker(number);
    let mut faults = Vec::new();
    let mut called = Vec::new();
    for message in history {
        let text = text_of(message);
        let others = text.match_indices(MARK).filter(|(at, _)| !text[*at..].starts_with(&own));
        faults.extend(others.map(|(at, _)| {
            format!("{own} has read of {}", text.get(at..at + own.len()).unwrap_or_default())
        }));
        match &**message {
            Message::Assistant(said) => called = said.calls().cloned().collect(),
            Message::Tool { results } => {
                for (call, result) in called.iter().zip(results) {
                    let text = result.described();
                    let (tool, whom) = text.split_once(" for ").unwrap_or_default();
                    let is_echo = !matches!(call.name.as_str(), "tool_search" | "load_tools");
                    let is_own =
                        whom == own && format!("{} {}", call.name, call.arguments).contains(tool);
                    if result.is_error || (is_echo && !is_own) {
                        faults.push(format!("{own} called {call:?} and got {text:.200}"));
                    }
                }
            }
            _ => {}
        }
    }
    faults
}

fn call(name: &str, arguments: Value) -> Said {
    let (id, name, arguments) = (String::new(), name.to_owned(), arguments.to_string());
    Said::Call(ToolCall { id, name, arguments })
}

fn text_of(message: &Message) -> String {
    serde_json::to_string(message).unwrap_or_default()
}
