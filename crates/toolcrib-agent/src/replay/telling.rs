//! A recorded conversation as an approach would have had it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;
use toolcrib_core::{Approach, Definition, Revealed, Strategy, ToolChange};
use toolcrib_tokens::Tokenizer;

use super::ReplayTools;
use super::recording::{Entry, Given, Reply, Work};
use super::tools::Prefix;
use crate::message::in_words;
use crate::spending::definition;

/// A conversation in tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Telling {
    /// The tools array at the first request.
    pub(super) tools: u64,
    /// The system prompt, with the approach's own section.
    pub(super) system: u64,
    pub(super) steps: Vec<Step>,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The history grows.
    Say(u64),
    /// The model is asked, and its answer joins the history.
    Ask(u64),
    /// The tools array is another, of this length.
    Tools(u64),
}

impl Telling {
    pub(super) fn of(
        entries: &[Entry],
        system: &str,
        tools: &ReplayTools,
        approach: Approach,
        tokenizer: &Tokenizer,
    ) -> Self {
        let prefix = tools.prefix(approach);
        let base = prefix.tools.iter().map(|tool| definition(tool, tokenizer)).sum();
        let gap = if system.is_empty() || prefix.section.is_empty() { "" } else { "\n\n" };
        let system = tokenizer.count(&format!("{system}{gap}{}", prefix.section)).tokens;
        let telling = Telling { tools: base, system, steps: Vec::new() };
        let loaded = BTreeMap::new();
        let mut teller = Teller { tools, prefix, approach, tokenizer, loaded, base, telling };
        if approach == Approach::Full {
            teller.add_what_is_gone(entries);
        }
        entries.iter().for_each(|entry| teller.tell(entry));
        teller.telling
    }
}

struct Teller<'a> {
    tools: &'a ReplayTools,
    prefix: &'a Prefix,
    approach: Approach,
    tokenizer: &'a Tokenizer,
    /// Tools that have joined the array, with their tokens.
    loaded: BTreeMap<Arc<str>, u64>,
    base: u64,
    telling: Telling,
}

impl Teller<'_> {
    fn tell(&mut self, entry: &Entry) {
        match (entry, self.approach) {
            (Entry::Said(text), _) => self.say(self.count(text)),
            (Entry::Reply(reply), Approach::Full) => {
                if !reply.only_looks() {
                    self.ask(&Reply { looks: Vec::new(), ..reply.clone() });
                }
            }
            (Entry::Reply(reply), Approach::Deferred(strategy)) => {
                self.ask(reply);
                if strategy == Strategy::Inject {
                    // A tool that is called is loaded, whether it was looked for or not.
                    let called = reply.works.iter().filter_map(|work| {
                        self.tools.definition(&work.name).cloned().map(Given::from)
                    });
                    self.load(&called.collect::<Vec<Given>>());
                }
            }
            (Entry::Found(_) | Entry::Changed { .. }, Approach::Full) => {}
            (Entry::Found(found), Approach::Deferred(strategy)) => match strategy {
                Strategy::Native => {
                    self.say(self.count(&found.remarks) + self.defined(&found.tools));
                }
                Strategy::Inject | Strategy::Dispatch => {
                    let text = found.text(strategy, |tool| self.definition(tool));
                    self.say(self.count(&text));
                    if strategy == Strategy::Inject {
                        self.load(&found.tools);
                    }
                }
            },
            (Entry::Changed { added, removed }, Approach::Deferred(strategy)) => {
                self.change(strategy, added, removed);
            }
        }
    }

    /// Tools come and go at the host's will.
    fn change(&mut self, strategy: Strategy, added: &[Given], removed: &[Arc<str>]) {
        if strategy == Strategy::Inject {
            self.unload(removed);
            self.load(added);
            return;
        }
        let reveal = |tool| Revealed { group: "".into(), tool };
        let added = added.iter().filter_map(|it| self.definition(it)).map(reveal).collect();
        let words = in_words(&ToolChange { added, removed: removed.to_vec() });
        self.say(self.count(&words));
    }

    fn ask(&mut self, reply: &Reply) {
        let words = self.count(&reply.words);
        let looks: u64 = reply.looks.iter().map(|look| self.count(look)).sum();
        let works: u64 = reply.works.iter().map(|work| self.count(&self.written(work))).sum();
        self.telling.steps.push(Step::Ask(words + looks + works));
    }

    /// A call as it is written under this approach.
    fn written(&self, work: &Work) -> String {
        let dispatches = self.approach == Approach::Deferred(Strategy::Dispatch);
        match &work.enveloped {
            Some(enveloped) if dispatches => enveloped.clone(),
            None if dispatches && !self.is_base(&work.name) => {
                let is_json = serde_json::from_str::<&RawValue>(&work.arguments).is_ok();
                let arguments = if is_json { &work.arguments } else { "{}" };
                let (verb, name) = (self.tools.caller(), serde_json::json!(work.name));
                format!(r#"{verb}{{"tool_name":{name},"arguments":{arguments}}}"#)
            }
            _ => work.direct.clone(),
        }
    }

    fn is_base(&self, name: &str) -> bool {
        self.prefix.has(self.tools.definition(name).map_or(name, |tool| tool.name()))
    }

    fn say(&mut self, tokens: u64) {
        self.telling.steps.push(Step::Say(tokens));
    }

    fn load(&mut self, tools: &[Given]) {
        let before = self.loaded.len();
        for tool in tools {
            if !self.prefix.has(&tool.name) && !self.loaded.contains_key(&tool.name) {
                let tokens = self.definition(tool).map_or(0, |it| definition(&it, self.tokenizer));
                self.loaded.insert(tool.name.clone(), tokens);
            }
        }
        self.note_array(before);
    }

    fn unload(&mut self, names: &[Arc<str>]) {
        let before = self.loaded.len();
        names.iter().for_each(|name| {
            self.loaded.remove(name);
        });
        self.note_array(before);
    }

    fn note_array(&mut self, before: usize) {
        if self.loaded.len() != before {
            let tokens = self.base + self.loaded.values().sum::<u64>();
            self.telling.steps.push(Step::Tools(tokens));
        }
    }

    /// Mode `full` had in its array, then, what is gone from the catalog now.
    fn add_what_is_gone(&mut self, entries: &[Entry]) {
        let mut gone = BTreeMap::new();
        for tool in entries.iter().flat_map(Entry::tools) {
            if self.tools.definition(&tool.name).is_none()
                && let Some(recorded) = &tool.definition
            {
                gone.insert(tool.name.clone(), definition(recorded, self.tokenizer));
            }
        }
        self.telling.tools += gone.values().sum::<u64>();
    }

    /// A tool's definition: the catalog's, or the one that was recorded.
    fn definition(&self, tool: &Given) -> Option<Definition> {
        self.tools.definition(&tool.name).or(tool.definition.as_ref()).cloned()
    }

    fn defined(&self, tools: &[Given]) -> u64 {
        let known = tools.iter().filter_map(|tool| self.definition(tool));
        known.map(|tool| definition(&tool, self.tokenizer)).sum()
    }

    fn count(&self, text: &str) -> u64 {
        self.tokenizer.count(text).tokens
    }
}
