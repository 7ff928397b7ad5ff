//! What the prompts of a telling cost.

use toolcrib_core::{Approach, PlanRow};
use toolcrib_tokens::{Cost, Model, Section, Usage};

use super::telling::{Step, Telling};
use crate::spending::bill;

/// Runs a telling past a model's cache.
pub(super) fn row(telling: &Telling, approach: Approach, model: &Model) -> PlanRow {
    let mut prompt =
        Prompt { version: 0, tools: telling.tools, system: telling.system, messages: 0 };
    let mut last: Option<Prompt> = None;
    let mut row = PlanRow {
        approach,
        calls: 0,
        usage: Usage::default(),
        again: 0,
        cost: Cost::ZERO,
        peak: 0,
        fits: true,
    };
    for step in &telling.steps {
        match *step {
            Step::Say(tokens) => prompt.messages += tokens,
            Step::Tools(tokens) => {
                prompt.version += 1;
                prompt.tools = tokens;
            }
            Step::Ask(output) => {
                let shared = last.map_or(0, |last| prompt.shared(last, model));
                let usage = bill(&model.cache, shared, prompt.length(), output);
                row.calls += 1;
                row.usage = row.usage + usage;
                row.again += last.map_or(0, |last| last.length().saturating_sub(usage.read));
                row.cost = row.cost + usage.cost(model);
                row.peak = row.peak.max(prompt.length());
                let window = model.context.unwrap_or(u64::MAX);
                row.fits &= prompt.length().saturating_add(output) <= window;
                last = Some(prompt);
                prompt.messages += output;
            }
        }
    }
    row
}

/// Lengths of what a prompt is made of.
#[derive(Clone, Copy)]
struct Prompt {
    /// Which tools array it is.
    version: u64,
    tools: u64,
    system: u64,
    messages: u64,
}

impl Prompt {
    fn length(self) -> u64 {
        self.tools + self.system + self.messages
    }

    /// How much of it the last prompt began with. The history only grows, so that what it shares
    /// with any earlier prompt it shares with the last; another tools array parts them where it
    /// stands.
    fn shared(self, last: Prompt, model: &Model) -> u64 {
        if self.version == last.version {
            return last.length();
        }
        let ahead = model.order.iter().take_while(|section| **section != Section::Tools);
        let length = |section: &Section| match section {
            Section::System => last.system,
            Section::Messages => last.messages,
            Section::Tools => 0,
        };
        ahead.map(length).sum()
    }
}
