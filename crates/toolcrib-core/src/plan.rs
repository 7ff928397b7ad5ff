//! What each strategy costs over a described conversation, before it takes place.
//!
//! The arithmetic is in this file. `measure.rs` takes the sizes it starts from off a real engine;
//! `why.rs` puts the outcome in words and finds where it would turn; `choose.rs` acts on it.
//!
//! What strategy `native` sends is a provider's own form. It is counted as the definitions in
//! neutral form: what a provider puts around them is small, and its secret.

mod choose;
mod measure;
#[cfg(test)]
mod tests;
mod why;

use std::fmt;

use serde::{Serialize, Serializer};
use toolcrib_tokens::{Block, Cost, Feature, Model, Request, Section, Usage, simulate};

pub use choose::Chosen;

use crate::Strategy;

/// A conversation, described: how long it is, and how often it needs tools it has not got.
///
/// Tokens a user or a tool adds are *input*; what the model answers is *output*, and joins the
/// history in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scenario {
    /// Model calls that the work itself takes, whatever the strategy.
    pub turns: u32,
    /// How often tools have to be found and loaded, spread evenly over the turns.
    pub loads: u32,
    /// How many tools one load brings.
    pub tools_per_load: u32,
    /// Tokens of the host's own system prompt.
    pub system: u64,
    /// Tokens of history there already are.
    pub history: u64,
    /// Tokens that user and tools add before each turn.
    pub input_per_turn: u64,
    /// Tokens the model answers with in each turn.
    pub output_per_turn: u64,
}

/// An agent at work: 20 turns, 4 searches of 5 tools each, tool results of a page or so.
impl Default for Scenario {
    fn default() -> Self {
        Self {
            turns: 20,
            loads: 4,
            tools_per_load: 5,
            system: 2_000,
            history: 0,
            input_per_turn: 1_000,
            output_per_turn: 250,
        }
    }
}

/// How tools are sent: all of them, or by a strategy of deferral.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Approach {
    /// Every definition in the tools array from the start.
    Full,
    /// Definitions when they are asked for.
    Deferred(Strategy),
}

impl fmt::Display for Approach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.pad("full"),
            Self::Deferred(strategy) => strategy.fmt(f),
        }
    }
}

impl Serialize for Approach {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What an approach puts into prompts, in tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// The tools array at the first request.
    pub base: u64,
    /// The section in the system prompt.
    pub section: u64,
    /// What a load puts behind the tools array.
    pub loaded: u64,
    /// The model calls it takes to load. None where nothing waits.
    pub rounds: Vec<LoadRound>,
    /// What it takes to call a loaded tool through another, beyond the call itself.
    pub envelope: u64,
}

/// A model call made to find or load tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LoadRound {
    /// Tokens of the model's call of a verb.
    pub call: u64,
    /// Tokens of the verb's result.
    pub result: u64,
}

/// What a plan starts from. [`Engine::footprints`](crate::Engine::footprints) measures it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprints {
    /// Of mode `full`.
    pub full: Footprint,
    /// Of strategy `inject`.
    pub inject: Footprint,
    /// Of strategy `dispatch`.
    pub dispatch: Footprint,
    /// Of strategy `native`, if it is to be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<Footprint>,
    /// How many tools wait to be loaded; once they all are, nothing more is.
    pub waiting: u32,
}

impl Footprints {
    fn each(&self) -> impl Iterator<Item = (Approach, &Footprint)> {
        let native = self.native.as_ref();
        [
            (Approach::Full, &self.full),
            (Approach::Deferred(Strategy::Inject), &self.inject),
            (Approach::Deferred(Strategy::Dispatch), &self.dispatch),
        ]
        .into_iter()
        .chain(native.map(|native| (Approach::Deferred(Strategy::Native), native)))
    }

    /// After so many loads every tool is loaded.
    fn most_loads(&self, scenario: &Scenario) -> u32 {
        self.waiting.div_ceil(scenario.tools_per_load.max(1))
    }
}

/// What a conversation costs under each approach.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The conversation as it was planned: no more loads than there are tools to load.
    pub scenario: Scenario,
    /// The sizes it was planned from.
    pub footprints: Footprints,
    /// One row for each approach: full, inject, dispatch, and native for a model that can.
    pub rows: Vec<PlanRow>,
    /// The cheapest of those that fit the model's window; of all, if none does. Of equals native,
    /// then dispatch, then inject.
    pub cheapest: Approach,
    /// Where another would be the cheapest.
    pub turning_points: Vec<TurningPoint>,
    /// Why the cheapest is, in words.
    pub why: String,
}

impl Plan {
    /// The row of an approach, if it was compared.
    pub fn row(&self, approach: Approach) -> Option<&PlanRow> {
        self.rows.iter().find(|row| row.approach == approach)
    }
}

/// What a conversation costs under one approach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PlanRow {
    /// The approach.
    pub approach: Approach,
    /// Model calls, those that find tools included.
    pub calls: u32,
    /// Tokens of all calls together, as a bill splits them.
    pub usage: Usage,
    /// Tokens among them that an earlier call had sent, and that were still not read from the
    /// cache: because the prompt changed ahead of them, or was too short to be kept.
    pub again: u64,
    /// What they cost.
    pub cost: Cost,
    /// The longest prompt.
    pub peak: u64,
    /// Whether every prompt with its answer fits the model's window, as far as that is known.
    pub fits: bool,
}

/// A number of loads or turns at which the cheapest approach is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TurningPoint {
    /// What is counted.
    pub varied: Varied,
    /// The nearest number at which it is another: from there up if it is above the
    /// conversation's own number, from there down if it is below.
    pub at: u32,
    /// The cheapest there.
    pub cheapest: Approach,
}

/// What a turning point is a number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Varied {
    /// Loads over the same turns.
    Loads,
    /// Turns with the same loads.
    Turns,
}

/// Plans a conversation from known footprints. It takes time in proportion to turns and loads.
///
/// From the first load on, each turn is taken to call one loaded tool. Not modelled, besides what
/// [`simulate`] leaves out: searches that find nothing or what was found before, tools put out by
/// a token budget, calls of a verb and a tool in one batch.
///
/// ```
/// use toolcrib_core::{Approach, Scenario, Footprint, LoadRound, Footprints, Strategy, plan};
/// use toolcrib_tokens::Models;
///
/// let rounds = vec![LoadRound { call: 20, result: 1_500 }];
/// let deferred = Footprint { base: 600, section: 900, rounds, ..Footprint::default() };
/// let footprints = Footprints {
///     full: Footprint { base: 40_000, ..Footprint::default() },
///     inject: Footprint { loaded: 1_400, ..deferred.clone() },
///     dispatch: Footprint { envelope: 12, ..deferred.clone() },
///     native: Some(deferred),
///     waiting: 130,
/// };
/// let models = Models::embedded();
/// let model = models.find("claude-opus-5-5").expect("the table has it");
///
/// let plan = plan(&footprints, &Scenario::default(), model);
/// assert_eq!(plan.cheapest, Approach::Deferred(Strategy::Native));
/// println!("{}", plan.why);
/// ```
pub fn plan(footprints: &Footprints, scenario: &Scenario, model: &Model) -> Plan {
    let mut plan = compare(footprints, scenario, model, |_| true);
    plan.turning_points = why::turning_points(footprints, &plan.scenario, model, plan.cheapest);
    plan.why = why::explain(&plan, model);
    plan
}

/// A plan of these approaches, of which nothing has been said yet.
fn compare(
    footprints: &Footprints,
    scenario: &Scenario,
    model: &Model,
    among: impl Fn(Approach) -> bool,
) -> Plan {
    let loads = scenario.loads.min(footprints.most_loads(scenario));
    let scenario = Scenario { loads, ..*scenario };
    let mut rows = rows(footprints, &scenario, model);
    rows.retain(|row| among(row.approach));
    let cheapest = cheapest_fitting(&rows).or_else(|| cheapest(&rows, |_| true));
    let cheapest = cheapest.unwrap_or(Approach::Full);
    let (turning_points, why) = Default::default();
    Plan { scenario, footprints: footprints.clone(), rows, cheapest, turning_points, why }
}

fn rows(footprints: &Footprints, scenario: &Scenario, model: &Model) -> Vec<PlanRow> {
    let native = model.can(Feature::DeferLoading) || model.can(Feature::ToolSearch);
    let can = |approach| native || approach != Approach::Deferred(Strategy::Native);
    let row = |(approach, footprint)| Bill::of(footprint, scenario, model).row(approach);
    footprints.each().filter(|(approach, _)| can(*approach)).map(row).collect()
}

/// The cheapest of these rows, the last among equals.
fn cheapest(rows: &[PlanRow], among: impl Fn(&&PlanRow) -> bool) -> Option<Approach> {
    let rows = rows.iter().rev().filter(among);
    rows.min_by(|a, b| a.price().total_cmp(&b.price())).map(|row| row.approach)
}

/// The cheapest of those that fit.
fn cheapest_fitting(rows: &[PlanRow]) -> Option<Approach> {
    cheapest(rows, |row| row.fits)
}

impl PlanRow {
    /// What rows are compared by: dollars where the model has a price, and else input tokens.
    pub fn price(&self) -> f64 {
        self.cost.dollars.unwrap_or(self.cost.input_equivalents)
    }
}

/// A conversation as it is billed, call by call.
struct Bill<'a> {
    model: &'a Model,
    /// Lengths of what the next prompt is made of.
    prompt: Prompt,
    /// The prompt before it.
    last: Option<Prompt>,
    calls: u32,
    usage: Usage,
    again: u64,
    cost: Cost,
    peak: u64,
    fits: bool,
}

#[derive(Clone, Copy)]
struct Prompt {
    tools: u64,
    system: u64,
    messages: u64,
}

impl Prompt {
    fn length(self) -> u64 {
        self.tools.saturating_add(self.system).saturating_add(self.messages)
    }
}

impl<'a> Bill<'a> {
    fn of(footprint: &Footprint, scenario: &Scenario, model: &'a Model) -> Self {
        let system = scenario.system.saturating_add(footprint.section);
        let prompt = Prompt { tools: footprint.base, system, messages: scenario.history };
        let mut bill = Bill {
            model,
            prompt,
            last: None,
            calls: 0,
            usage: Usage::default(),
            again: 0,
            cost: Cost::ZERO,
            peak: 0,
            fits: true,
        };
        let mut loads = load_turns(scenario).peekable();
        let mut output = scenario.output_per_turn;
        for turn in 0..scenario.turns {
            bill.append(scenario.input_per_turn);
            while loads.next_if_eq(&turn).is_some() {
                for round in &footprint.rounds {
                    bill.call(round.call);
                    bill.append(round.result);
                }
                bill.prompt.tools = bill.prompt.tools.saturating_add(footprint.loaded);
                output = scenario.output_per_turn.saturating_add(footprint.envelope);
            }
            bill.call(output);
        }
        bill
    }

    /// Sends the prompt; the answer joins the history.
    fn call(&mut self, output: u64) {
        let usage = self.bill(output);
        self.calls += 1;
        self.usage = Usage {
            read: self.usage.read.saturating_add(usage.read),
            written: self.usage.written.saturating_add(usage.written),
            uncached: self.usage.uncached.saturating_add(usage.uncached),
            output: self.usage.output.saturating_add(usage.output),
        };
        let sent = self.last.map_or(0, Prompt::length);
        self.again = self.again.saturating_add(sent.saturating_sub(usage.read));
        self.cost = self.cost + usage.cost(self.model);
        self.peak = self.peak.max(usage.prompt());
        let length = usage.prompt().saturating_add(output);
        self.fits &= self.model.context.is_none_or(|window| length <= window);
        self.last = Some(self.prompt);
        self.append(output);
    }

    /// History is only ever appended to, and so is the tools array. What a prompt shares with any
    /// earlier one it therefore shares with the last, and two requests are all there is to
    /// simulate.
    fn bill(&self, output: u64) -> Usage {
        let known = self.last.map_or(0, |last| last.messages);
        let request = |prompt: Prompt| Request { blocks: self.blocks(prompt, known), output };
        let requests: Vec<Request> =
            self.last.into_iter().chain([self.prompt]).map(request).collect();
        simulate(&self.model.cache, &requests).pop().unwrap_or_default()
    }

    /// The prompt in the model's order, messages cut where the last prompt ended. The tools array
    /// is one block: any change to it is a change to all of it.
    fn blocks(&self, prompt: Prompt, known: u64) -> Vec<Block> {
        let block = |key: u64, tokens: u64| (tokens > 0).then_some(Block { key, tokens });
        let section = |section: &Section| match section {
            Section::Tools => [block(0, prompt.tools), None],
            Section::System => [block(1, prompt.system), None],
            Section::Messages => [block(2, known), block(3, prompt.messages - known)],
        };
        self.model.order.iter().flat_map(section).flatten().collect()
    }

    fn append(&mut self, tokens: u64) {
        self.prompt.messages = self.prompt.messages.saturating_add(tokens);
    }

    fn row(self, approach: Approach) -> PlanRow {
        let Bill { calls, usage, again, cost, peak, fits, .. } = self;
        PlanRow { approach, calls, usage, again, cost, peak, fits }
    }
}

/// The turn each load belongs to: the turns are cut into as many equal parts as there are loads,
/// and each falls into the middle of its own.
fn load_turns(scenario: &Scenario) -> impl Iterator<Item = u32> + use<> {
    let (turns, loads) = (u64::from(scenario.turns), u64::from(scenario.loads));
    (0..loads).map(move |load| ((2 * load + 1) * turns / (2 * loads)) as u32)
}
