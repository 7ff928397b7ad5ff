//! A history, taken apart so that it can be told under any approach.

mod found;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use toolcrib_core::{Approach, Call, Definition, Strategy, ToolChange};

use super::ReplayTools;
use crate::message::{Assistant, Message, Part, Said, ToolCall};
use crate::spending::deferral::{self, NOW_LOADED};
pub(super) use found::{Found, Given};

/// A recorded conversation.
pub(super) struct Recording {
    pub(super) entries: Vec<Entry>,
    /// Whether the model thought, in a form that only its provider reads.
    pub(super) thinks: bool,
}

/// Something in a conversation.
#[derive(Clone)]
pub(super) enum Entry {
    /// What a person, the program or a tool said.
    Said(String),
    /// What the model said.
    Reply(Reply),
    /// What a verb answered.
    Found(Found),
    /// Tools that the host loaded, and the names of those it took away.
    Changed { added: Vec<Given>, removed: Vec<Arc<str>> },
}

/// One message of the model's.
#[derive(Clone, Default)]
pub(super) struct Reply {
    pub(super) words: String,
    /// Calls of verbs, as they were written.
    pub(super) looks: Vec<String>,
    /// Calls of tools.
    pub(super) works: Vec<Work>,
}

impl Reply {
    /// Whether it does nothing but look for tools.
    pub(super) fn only_looks(&self) -> bool {
        self.works.is_empty() && !self.looks.is_empty()
    }
}

/// A call of a tool.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) name: String,
    /// The call by itself, as the model would write it.
    pub(super) direct: String,
    /// The arguments by themselves.
    pub(super) arguments: String,
    /// The call in its envelope, if it was made in one.
    pub(super) enveloped: Option<String>,
}

impl Recording {
    pub(super) fn of(history: &[Arc<Message>]) -> Self {
        let mut recording = Self { entries: Vec::new(), thinks: false };
        for (at, message) in history.iter().enumerate() {
            recording.read(message, at.checked_sub(1).map(|at| &*history[at]));
        }
        recording
    }

    fn read(&mut self, message: &Message, before: Option<&Message>) {
        match message {
            Message::User { content } => {
                let parts: Vec<String> = content.iter().map(Part::described).collect();
                self.entries.push(Entry::Said(parts.join("\n")));
            }
            Message::Notice { text } => self.entries.push(match loaded(text) {
                Some(added) => Entry::Changed { added, removed: Vec::new() },
                None => Entry::Said(text.clone()),
            }),
            Message::Tools(ToolChange { added, removed }) => {
                let added = added.iter().map(|it| Given::from(it.tool.clone())).collect();
                self.entries.push(Entry::Changed { added, removed: removed.clone() });
            }
            Message::Assistant(said) => {
                self.thinks |= said.content.iter().any(|it| matches!(it, Said::Native { .. }));
                self.entries.push(Entry::Reply(reply(said)));
            }
            Message::Tool { results } => {
                let found: Vec<_> = deferral::found(results, before).collect();
                self.entries.extend(results.iter().map(|result| {
                    if found.iter().any(|it| std::ptr::eq(*it, result)) {
                        Entry::Found(Found::of(result))
                    } else {
                        Entry::Said(result.described())
                    }
                }));
            }
            Message::Host { .. } => {}
        }
    }

    /// Every tool that the model was given, each once, with a definition if one was recorded.
    pub(super) fn given(&self) -> BTreeMap<Arc<str>, Option<Definition>> {
        let mut given = BTreeMap::new();
        for entry in &self.entries {
            for tool in entry.tools() {
                let known = given.entry(tool.name.clone()).or_insert(None);
                if known.is_none() {
                    known.clone_from(&tool.definition);
                }
            }
        }
        given
    }

    /// How many tools each answer of a verb brought that the model did not have, where it brought
    /// some.
    pub(super) fn brought(&self) -> Vec<u64> {
        let mut known = BTreeSet::new();
        let mut brought = Vec::new();
        // Answers to the calls of one reply are one load.
        let mut within = false;
        for entry in &self.entries {
            let tools = entry.tools().iter();
            let news = tools.filter(|tool| known.insert(tool.name.clone())).count() as u64;
            match (entry, brought.last_mut()) {
                (Entry::Found(_), Some(last)) if within => *last += news,
                (Entry::Found(_), _) if news > 0 => {
                    brought.push(news);
                    within = true;
                }
                (Entry::Reply(_), _) => within = false,
                _ => {}
            }
        }
        brought
    }

    /// The same with a search ahead of each reply that calls tools for the first time, if the
    /// conversation has no trace of deferral; `None` if it has.
    pub(super) fn with_searches(&self, tools: &ReplayTools) -> Option<Vec<Entry>> {
        let is_trace = |entry: &Entry| match entry {
            Entry::Reply(reply) => {
                !reply.looks.is_empty() || reply.works.iter().any(|work| work.enveloped.is_some())
            }
            Entry::Found(_) | Entry::Changed { .. } => true,
            Entry::Said(_) => false,
        };
        if self.entries.iter().any(is_trace) {
            return None;
        }
        let base = tools.prefix(Approach::Deferred(Strategy::Inject));
        let (mut known, mut entries, mut searched) = (BTreeSet::new(), Vec::new(), false);
        for entry in &self.entries {
            if let Entry::Reply(reply) = entry {
                let mut needed: Vec<Given> = Vec::new();
                for work in &reply.works {
                    if let Some(tool) = tools.definition(&work.name)
                        && !base.has(tool.name())
                        && known.insert(tool.name().clone())
                    {
                        needed.push(Given::from(tool.clone()));
                    }
                }
                if !needed.is_empty() {
                    searched = true;
                    entries.extend(search(tools.finder(), needed));
                }
            }
            entries.push(entry.clone());
        }
        searched.then_some(entries)
    }
}

impl Entry {
    /// The tools it gives to the model.
    pub(super) fn tools(&self) -> &[Given] {
        match self {
            Self::Found(found) => &found.tools,
            Self::Changed { added, .. } => added,
            Self::Said(_) | Self::Reply(_) => &[],
        }
    }
}

/// A search by words that finds exactly these tools.
fn search(finder: &str, tools: Vec<Given>) -> [Entry; 2] {
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    let words = names.join(" ").replace(['_', '-', '.'], " ");
    let looks = vec![format!("{finder}{}", json!({"query": words}))];
    [
        Entry::Reply(Reply { looks, ..Reply::default() }),
        Entry::Found(Found::supposed(finder, tools)),
    ]
}

fn reply(said: &Assistant) -> Reply {
    let mut reply = Reply { words: said.text(), ..Reply::default() };
    for call in said.calls() {
        let written = format!("{}{}", call.name, call.arguments);
        let meant = deferral::meant(call);
        if meant.names_verb() {
            reply.looks.push(written);
        } else {
            reply.works.push(work(call, meant, written));
        }
    }
    reply
}

fn work(call: &ToolCall, meant: Call, written: String) -> Work {
    if meant.name == call.name {
        let (name, arguments) = (call.name.clone(), call.arguments.clone());
        return Work { name, direct: written, arguments, enveloped: None };
    }
    let (name, arguments) = (meant.name, meant.arguments.to_string());
    Work { direct: format!("{name}{arguments}"), name, arguments, enveloped: Some(written) }
}

/// The tools of a notice that brings definitions, one a line.
fn loaded(text: &str) -> Option<Vec<Given>> {
    let lines = text.strip_prefix(NOW_LOADED)?.lines();
    let tool = |line| serde_json::from_str::<Definition>(line).ok().map(Given::from);
    lines.map(tool).collect()
}
