//! Works out, turn by turn, what a conversation costs.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use toolcrib_core::{Definition, Fingerprint};
use toolcrib_tokens::{
    Block, CacheRules, Cost, Model, Request as Prompt, Section, Tokenizer, Usage, simulate,
};

use super::deferral::{in_call, in_message, only_looks};
use super::{Last, Spent, TurnCost};
use crate::message::{Message, Said};
use crate::provider::{Reply, Request};

/// What deferral has to do with a request.
#[derive(Clone, Debug)]
pub(crate) struct Deferred {
    /// The section that it put into the system prompt.
    pub(crate) section: Arc<str>,
    /// The tokens of all definitions that the conversation may see.
    pub(crate) full_tools: u64,
}

/// Adds up what a conversation costs. A turn takes time in proportion to the messages that are
/// new in it.
pub(crate) struct Meter {
    model: Option<Model>,
    spent: Spent,
    /// What deferral put into messages that were counted, by their address.
    counted: HashMap<usize, (Weak<Message>, u64)>,
    full_tools: Option<(Fingerprint, u64)>,
    section: Option<(Arc<str>, u64)>,
    tools: (Vec<Definition>, u64),
    /// How many messages the last request had, and the last of them.
    end: Option<(usize, Weak<Message>)>,
    /// Whether the messages have changed since the last prompt that mode `full` would have sent.
    cut: bool,
}

/// What mode `full` would have made of a turn.
enum Full {
    /// There would have been none.
    Skipped,
    Asked(Usage),
    /// There is nothing to work it out from.
    Unknown,
}

impl Meter {
    /// Goes on where a conversation was left, perhaps with another model. Of one that is not
    /// known, tokens are added up and no more.
    pub(crate) fn new(model: Option<Model>, spent: Spent) -> Self {
        Self {
            model,
            spent,
            counted: HashMap::new(),
            full_tools: None,
            section: None,
            tools: (Vec::new(), 0),
            end: None,
            cut: false,
        }
    }

    /// The tokens of all definitions in a view, if they were counted.
    pub(crate) fn full_tools(&self, view: Fingerprint) -> Option<u64> {
        self.full_tools.filter(|(of, _)| *of == view).map(|(_, tokens)| tokens)
    }

    /// Notes what all definitions in a view take.
    pub(crate) fn note_full_tools(&mut self, view: Fingerprint, tokens: u64) {
        self.full_tools = Some((view, tokens));
    }

    /// What it has come to.
    pub(crate) fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Adds a turn: what was sent last in it, and the reply to that. `usage` is all that was
    /// reported, also for attempts that came to nothing. Nothing is `deferred` where every schema
    /// is sent.
    pub(crate) fn turn(
        &mut self,
        request: &Request,
        deferred: Option<&Deferred>,
        usage: Usage,
        reply: &Reply,
    ) -> TurnCost {
        self.follow(request);
        // Long prompts have prices of their own, so attempts are priced apart.
        let wasted = minus(usage, reply.usage);
        let waste = self.price(wasted);
        let cost = self.price(reply.usage) + waste;
        let full = match self.full(request, deferred, reply) {
            Full::Skipped => Some(Cost::ZERO),
            Full::Asked(full) => {
                self.spent.full_turns += 1;
                self.spent.full_usage = self.spent.full_usage + full + wasted;
                Some(self.price(full) + waste)
            }
            Full::Unknown => {
                self.spent.full_turns += 1;
                self.spent.full_usage = self.spent.full_usage + usage;
                None
            }
        };
        let turn = TurnCost { usage, cost, full };
        self.spent.add(turn);
        turn
    }

    /// Adds a turn that brought no reply to go on with. It would have been no better in full.
    pub(crate) fn failed(&mut self, usage: Usage) -> TurnCost {
        let turn = TurnCost { usage, cost: self.price(usage), full: None };
        self.spent.full_turns += 1;
        self.spent.full_usage = self.spent.full_usage + usage;
        self.spent.add(turn);
        turn
    }

    fn price(&self, usage: Usage) -> Cost {
        let unknown = || Cost {
            input_equivalents: usage.input_equivalents(&CacheRules::NONE),
            dollars: None,
        };
        self.model.as_ref().map_or_else(unknown, |model| usage.cost(model))
    }

    /// Notes whether the messages go on from the last request.
    fn follow(&mut self, request: &Request) {
        let messages = &request.messages;
        if let Some((length, last)) = &self.end {
            let there = length.checked_sub(1).and_then(|at| messages.get(at));
            self.cut |= *length > 0
                && there.is_none_or(|message| !std::ptr::eq(Arc::as_ptr(message), last.as_ptr()));
        }
        self.end = Some((messages.len(), messages.last().map(Arc::downgrade).unwrap_or_default()));
    }

    fn full(&mut self, request: &Request, deferred: Option<&Deferred>, reply: &Reply) -> Full {
        let Some(model) = self.model.clone() else { return Full::Unknown };
        let reported = reply.usage;
        if reported.prompt() == 0 {
            return Full::Unknown;
        }
        let Some(deferred) = deferred else { return Full::Asked(reported) };
        // What is counted of this request's messages need not be when the next has them too.
        let messages = self.in_messages(request, &model);
        if only_looks(&reply.content) {
            return Full::Skipped;
        }
        let count = |text: &str| model.tokenizer.count(text).tokens;
        let section = self.in_system(request, &deferred.section, &model);
        let sent = self.in_tools(&request.tools, &model);
        let rest = reported.prompt().saturating_sub(sent + section + messages);
        let prompt = rest.saturating_add(deferred.full_tools);
        let calls = reply.content.iter().map(|said| match said {
            Said::Call(call) => in_call(call, count),
            _ => 0,
        });
        let output = reported.output.saturating_sub(calls.sum());

        let cut = std::mem::take(&mut self.cut);
        let now = Last { model: model.name.clone(), tools: deferred.full_tools, prompt };
        let before = self.spent.last.replace(now).filter(|last| last.model == model.name);
        let system = || count(&request.system).saturating_sub(section);
        let shared = before.map_or(0, |last| {
            if last.tools != deferred.full_tools {
                // Another tools array: only what stands ahead of it is as it was.
                if model.order.first() == Some(&Section::System) { system() } else { 0 }
            } else if cut || prompt < last.prompt {
                deferred.full_tools.saturating_add(system())
            } else {
                last.prompt
            }
        });
        Full::Asked(bill(&model.cache, shared.min(prompt), prompt, output))
    }

    /// What deferral put into the messages.
    fn in_messages(&mut self, request: &Request, model: &Model) -> u64 {
        let messages = &request.messages;
        if self.counted.len() > 2 * messages.len() + 64 {
            self.counted.retain(|_, (message, _)| message.strong_count() > 0);
        }
        let mut total = 0;
        for (at, message) in messages.iter().enumerate() {
            // The address stays taken as long as the weak pointer to it is kept.
            let counted = self.counted.entry(Arc::as_ptr(message) as usize).or_insert_with(|| {
                let before = at.checked_sub(1).map(|at| &*messages[at]);
                let count = |text: &str| model.tokenizer.count(text).tokens;
                (Arc::downgrade(message), in_message(message, before, count))
            });
            total += counted.1;
        }
        total
    }

    /// What it put into the system prompt, unless a hook has taken that out.
    fn in_system(&mut self, request: &Request, section: &Arc<str>, model: &Model) -> u64 {
        if !request.system.contains(&**section) {
            return 0;
        }
        match &self.section {
            Some((known, tokens)) if known == section => *tokens,
            _ => {
                let tokens = model.tokenizer.count(section).tokens;
                self.section = Some((section.clone(), tokens));
                tokens
            }
        }
    }

    fn in_tools(&mut self, tools: &[Definition], model: &Model) -> u64 {
        if self.tools.0 != tools {
            let tokens = tools.iter().map(|tool| definition(tool, &model.tokenizer)).sum();
            self.tools = (tools.to_vec(), tokens);
        }
        self.tools.1
    }
}

/// The tokens of a definition. They are counted once for all models that share a vocabulary.
pub(crate) fn definition(tool: &Definition, tokenizer: &Tokenizer) -> u64 {
    let known = tokenizer.from_o200k(tool.tokens());
    known.unwrap_or_else(|| tokenizer.count(tool.neutral().get())).tokens
}

/// How a prompt is billed of which so much was sent before.
pub(crate) fn bill(rules: &CacheRules, shared: u64, prompt: u64, output: u64) -> Usage {
    let (known, new) =
        (Block { key: 0, tokens: shared }, Block { key: 1, tokens: prompt - shared });
    let before = (shared > 0).then(|| Prompt { blocks: vec![known], output: 0 });
    let now = Prompt { blocks: vec![known, new], output };
    let requests: Vec<Prompt> = before.into_iter().chain([now]).collect();
    simulate(rules, &requests).pop().unwrap_or_default()
}

fn minus(all: Usage, part: Usage) -> Usage {
    Usage {
        read: all.read.saturating_sub(part.read),
        written: all.written.saturating_sub(part.written),
        uncached: all.uncached.saturating_sub(part.uncached),
        output: all.output.saturating_sub(part.output),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcrib_tokens::Models;

    #[test]
    fn messages_are_counted_once_and_forgotten_with_the_history() {
        let model = Models::embedded().find("gpt-5").cloned();
        let (mut meter, mut messages) = (Meter::new(model, Spent::default()), Vec::new());
        let deferred = Deferred { section: "".into(), full_tools: 10_000 };
        let usage = Usage { uncached: 5_000, ..Usage::default() };
        let reply = Reply { usage, ..Reply::default() };
        let mut turn = |messages: &[Arc<Message>]| {
            let request = Request { messages: messages.to_vec(), ..Request::new("gpt-5", []) };
            meter.turn(&request, Some(&deferred), usage, &reply);
            meter.counted.len()
        };
        for number in 1..=300 {
            messages.push(Arc::new(Message::user(number.to_string())));
            assert_eq!(turn(&messages), number);
        }
        assert_eq!(turn(&[Arc::new(Message::user("A summary."))]), 301, "they are still there");
        drop(messages);
        assert_eq!(turn(&[Arc::new(Message::user("Another."))]), 1);
    }
}
