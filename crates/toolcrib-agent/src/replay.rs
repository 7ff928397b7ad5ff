//! What a recorded conversation would cost under every approach, with any model.
//!
//! `recording.rs` takes a history apart, `tools.rs` has what each approach sends besides,
//! `telling.rs` puts both together into the prompts of an approach, and `bill.rs` prices them.

mod bill;
mod recording;
mod telling;
#[cfg(test)]
mod tests;
mod tools;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use toolcrib_core::{Approach, PlanRow, Scenario, Strategy};
use toolcrib_tokens::{Feature, Model, TokenCount, Tokenizer};

pub use tools::ReplayTools;

use crate::message::Message;
use recording::Recording;
use telling::{Step, Telling};

/// What a recorded conversation would cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Replay {
    /// For each model, in the order they were given: full, inject, dispatch, and native where the
    /// model has a form for it.
    pub rows: Vec<Replayed>,
    /// What the rows leave out or suppose.
    pub notes: Vec<String>,
}

/// What it would cost under one approach, with one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// The model.
    pub model: String,
    /// The approach, and what it takes: the form in which a plan tells it, to be set beside one.
    #[serde(flatten)]
    pub row: PlanRow,
    /// Whether tokens were counted with the model's own vocabulary.
    pub exact: bool,
}

impl Replay {
    /// The row of an approach with a model.
    pub fn row(&self, model: &str, approach: Approach) -> Option<&PlanRow> {
        let is_it = |it: &&Replayed| it.model == model && it.row.approach == approach;
        self.rows.iter().find(is_it).map(|it| &it.row)
    }
}

/// Prices a recorded conversation under every approach.
///
/// Every message of the model's is one request. The history is told anew as each approach would
/// have had it, whichever it was recorded under: searches and what they brought stay or go,
/// definitions stand in results or in the tools array, calls go in envelopes or by themselves.
/// What the model says is taken to be the same. Besides what
/// [`simulate`](toolcrib_tokens::simulate) leaves out, these are not modelled: that a model may
/// find its tools by other searches, that it thinks, and what a picture takes beyond its mention.
///
/// ```
/// use std::sync::Arc;
/// use toolcrib_agent::{Message, ReplayTools, replay};
/// use toolcrib_core::{Engine, Registry, Settings};
/// use toolcrib_tokens::Models;
///
/// # let history: Vec<Arc<Message>> = vec![Arc::new(Message::user("Hello"))];
/// let registry = Registry::default();
/// let tools = ReplayTools::of(&Engine::new(Settings::default())?, &registry.catalog().view_all())?;
/// let models = Models::embedded();
/// let replay = replay(&history, "Be brief.", &tools, models.iter().filter(|it| it.prices.is_some()));
/// println!("{replay}");
/// # Ok::<_, toolcrib_core::EngineError>(())
/// ```
pub fn replay<'a>(
    history: &[Arc<Message>],
    system: &str,
    tools: &ReplayTools,
    models: impl IntoIterator<Item = &'a Model>,
) -> Replay {
    let recording = Recording::of(history);
    let supposed = recording.with_searches(tools);
    let mut tellings: Vec<(Approach, Tokenizer, Telling)> = Vec::new();
    let mut rows = Vec::new();
    for model in models {
        for approach in approaches(model) {
            let known =
                |it: &(Approach, Tokenizer, Telling)| (it.0, it.1) == (approach, model.tokenizer);
            let at = tellings.iter().position(known).unwrap_or_else(|| {
                let entries = match (approach, &supposed) {
                    (Approach::Deferred(_), Some(supposed)) => supposed,
                    _ => &recording.entries,
                };
                let telling = Telling::of(entries, system, tools, approach, &model.tokenizer);
                tellings.push((approach, model.tokenizer, telling));
                tellings.len() - 1
            });
            let row = bill::row(&tellings[at].2, approach, model);
            rows.push(Replayed {
                model: model.name.clone(),
                row,
                exact: model.tokenizer.is_exact(),
            });
        }
    }
    Replay { rows, notes: notes(&recording, tools, supposed.is_some()) }
}

/// The conversation that a recorded one amounts to, for a plan: turns are the requests that did
/// something besides looking for tools, loads those that brought tools the model did not have.
pub fn scenario(history: &[Arc<Message>], system: &str, tokenizer: &Tokenizer) -> Scenario {
    let recording = Recording::of(history);
    let telling =
        Telling::of(&recording.entries, system, &ReplayTools::default(), Approach::Full, tokenizer);
    let (mut turns, mut input, mut output) = (0u64, 0, 0);
    for step in &telling.steps {
        match step {
            Step::Say(tokens) => input += tokens,
            Step::Ask(tokens) => {
                turns += 1;
                output += tokens;
            }
            Step::Tools(_) => {}
        }
    }
    let brought = recording.brought();
    let loads = brought.len() as u64;
    let average = |sum: u64, number: u64| (sum + number / 2).checked_div(number).unwrap_or(0);
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Scenario {
        turns: small(turns),
        loads: small(loads),
        tools_per_load: small(average(brought.iter().sum(), loads)),
        system: telling.system,
        history: 0,
        input_per_turn: average(input, turns),
        output_per_turn: average(output, turns),
    }
}

fn approaches(model: &Model) -> impl Iterator<Item = Approach> + use<> {
    let native = model.can(Feature::DeferLoading) || model.can(Feature::ToolSearch);
    let native = native.then_some(Approach::Deferred(Strategy::Native));
    let always = [
        Approach::Full,
        Approach::Deferred(Strategy::Inject),
        Approach::Deferred(Strategy::Dispatch),
    ];
    always.into_iter().chain(native)
}

fn notes(recording: &Recording, tools: &ReplayTools, supposed: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if supposed {
        let what = "Recorded with every schema in the tools array: elsewhere the model is supposed \
                    to search once for the tools of a request, and to find exactly them.";
        notes.push(what.to_owned());
    }
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for (name, definition) in recording.given() {
        if tools.definition(&name).is_none() {
            if definition.is_some() { &mut kept } else { &mut lost }.push(name);
        }
    }
    if !kept.is_empty() {
        let names = kept.join(", ");
        notes.push(format!("No longer in the catalog, counted as they were recorded: {names}."));
    }
    if !lost.is_empty() {
        let names = lost.join(", ");
        notes.push(format!("No longer in the catalog, and not recorded: {names}."));
    }
    if recording.thinks {
        notes.push("What the model thought is counted nowhere.".to_owned());
    }
    notes
}

/// A table, and the notes below it.
impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let titles = [
            "model",
            "approach",
            "calls",
            "prompt tokens",
            "from cache",
            "output",
            "cost",
            "vs full",
        ];
        let mut lines = vec![titles.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(|row| self.cells(row)));
        let width = |at: usize| lines.iter().map(|line| line[at].chars().count()).max();
        let widths: Vec<usize> = (0..titles.len()).map(|at| width(at).unwrap_or(0)).collect();
        for line in &lines {
            let cells = line.iter().zip(&widths).enumerate();
            let padded = cells.map(|(at, (cell, width))| match at {
                0 | 1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            writeln!(f, "{}", padded.collect::<Vec<String>>().join("  ").trim_end())?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

impl Replay {
    fn cells(&self, replayed: &Replayed) -> Vec<String> {
        let Replayed { model, row, exact } = replayed;
        let tokens = |tokens| TokenCount { tokens, exact: *exact }.to_string();
        let prompt = row.usage.prompt();
        // Rounded down: 100 % would mean that nothing was paid for.
        let share = row.usage.read.saturating_mul(100).checked_div(prompt).unwrap_or(0);
        let cost = match row.cost.dollars {
            Some(_) if *exact => row.cost.to_string(),
            Some(_) => format!("~{}", row.cost),
            None => format!("{} eq.", tokens(row.cost.input_equivalents.round() as u64)),
        };
        let full = self.row(model, Approach::Full).map_or(0.0, PlanRow::price);
        let mut versus = match row.approach {
            Approach::Deferred(_) if full > 0.0 => {
                // Added to zero, what rounds to minus zero has no sign.
                format!("{:+.0} %", ((row.price() / full - 1.0) * 100.0).round() + 0.0)
            }
            _ => String::new(),
        };
        if !row.fits {
            versus.push_str(" too long");
        }
        vec![
            model.clone(),
            row.approach.to_string(),
            row.calls.to_string(),
            tokens(prompt),
            format!("{share} %"),
            tokens(row.usage.output),
            cost,
            versus.trim_start().to_owned(),
        ]
    }
}
