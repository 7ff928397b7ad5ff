//! `toolcrib plan`: what each strategy would cost over a described conversation.

use std::fmt::Write as _;

use clap::ValueEnum;
use clap::builder::styling::Style;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use serde::Serialize;
use toolcrib::tokens::{CacheRules, Class, Model, Models, Prices, TokenCount};
use toolcrib::{Approach, Footprints, Plan, PlanRow, Preset, Scenario, TurningPoint, View};

use crate::args::{Context, EngineArgs, find_model};
use crate::output::{self, BOLD, DIM, GREEN, Misuse, Rows, counted, number, printable};
use crate::sources::{ToolArgs, load_view};

const PRESETS: [&str; 6] = ["crib", "regex", "stubs", "lazy", "groups", "exact"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
What is compared: `full` sends every definition from the start; `inject` adds those that are
asked for to the tools array; `dispatch` shows them in a result and leaves the array alone; so
does `native`, in the provider's own form, where the model has one. Their sizes are measured,
under the preset and the configuration in use. The rest is up to you.

Examples:
  toolcrib plan                                     your servers or a sample, by Anthropic's rules
  toolcrib plan --tools servers/ --model claude-opus-5-5
  toolcrib plan --turns 60 --loads 10 --history 80000 --provider openai
  toolcrib plan --model claude-sonnet-5-5 --1h --json | jq .cheapest

Numbers marked ~ rest on estimates, for models whose vocabulary is not public.")]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    source: ToolArgs,
    /// Model calls that the work itself takes
    #[arg(long, value_name = "N", default_value_t = Scenario::default().turns)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000), allow_negative_numbers = true)]
    turns: u32,
    /// How often tools are searched for and loaded, spread evenly over the turns
    #[arg(long, value_name = "N", default_value_t = Scenario::default().loads)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000), allow_negative_numbers = true)]
    loads: u32,
    /// Tools that one load brings [default: what the preset's verb brings]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    per_load: Option<u32>,
    /// Tokens of your own system prompt
    #[arg(long, value_name = "TOKENS", default_value_t = Scenario::default().system)]
    #[arg(value_parser = tokens(), allow_negative_numbers = true)]
    system: u64,
    /// Tokens of history there already are
    #[arg(long, value_name = "TOKENS", default_value_t = Scenario::default().history)]
    #[arg(value_parser = tokens(), allow_negative_numbers = true)]
    history: u64,
    /// Tokens that user and tools add before each turn
    #[arg(long, value_name = "TOKENS", default_value_t = Scenario::default().input_per_turn)]
    #[arg(value_parser = tokens(), allow_negative_numbers = true)]
    per_turn: u64,
    /// Tokens the model answers with in each turn
    #[arg(long, value_name = "TOKENS", default_value_t = Scenario::default().output_per_turn)]
    #[arg(value_parser = tokens(), allow_negative_numbers = true)]
    output: u64,
    /// The model: its prices, window, cache rules and tokenizer
    #[arg(long, value_name = "NAME", conflicts_with = "provider", help_heading = "Model options")]
    model: Option<String>,
    /// The rules of a provider, without prices
    #[arg(long, default_value = "anthropic", help_heading = "Model options")]
    provider: Provider,
    /// Have prompts kept in the cache for an hour, where that can be asked for
    #[arg(long = "1h", help_heading = "Model options")]
    one_hour: bool,
    /// The model's context window [default: what the table of models says]
    #[arg(long, value_name = "TOKENS", help_heading = "Model options")]
    #[arg(value_parser = tokens(), allow_negative_numbers = true)]
    context_window: Option<u64>,
    /// The set of choices to start from
    #[arg(long, help_heading = "Engine options")]
    #[arg(value_parser = PossibleValuesParser::new(PRESETS)
        .try_map(|word| word.parse::<Preset>()))]
    preset: Option<Preset>,
    /// The seat or role, one of [eager.profiles] in toolcrib.toml
    #[arg(long, value_name = "NAME", help_heading = "Engine options")]
    profile: Option<String>,
}

/// A number of tokens, small enough for a whole conversation of them to be summed up.
fn tokens() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(..=1_000_000_000)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Provider {
    /// Writes at 1.25, reads at 0.1
    Anthropic,
    /// As since gpt-5.6: writes at 1.25, reads at 0.1
    Openai,
    /// Writes at 1, reads at 0.1; the system prompt stands ahead of the tools
    Gemini,
    /// A server of your own: reading costs nothing
    Local,
}

pub(crate) fn run(args: &PlanArgs, context: &Context) -> anyhow::Result<()> {
    let config = &context.config;
    let model = args.model(&config.models()?, config.context_window)?;
    let engine = EngineArgs {
        preset: args.preset,
        profile: args.profile.clone(),
        context_window: model.context,
        ..EngineArgs::default()
    };
    let engine = engine.for_model(&model, config).engine(config)?;
    let view = load_view(&args.source, context)?;
    let per_load = args.per_load.unwrap_or_else(|| engine.tools_per_load(&view));
    let plan = engine.plan(&view, &args.scenario(per_load), &model).map_err(Misuse::new)?;
    if context.json {
        return output::json(&Report::new(&plan, &model));
    }
    output::text(&describe(&plan, &model, &view, args.loads))
}

impl PlanArgs {
    fn model(&self, models: &Models, window: Option<u64>) -> anyhow::Result<Model> {
        let family = || self.provider.to_possible_value().map(|value| value.get_name().to_owned());
        let name = self.model.clone().or_else(family).unwrap_or_default();
        let so = ": add it in the file that `models` in toolcrib.toml names, or give --provider \
                  for the rules of its family";
        let mut model = find_model(models, &name, so)?;
        model.context = self.context_window.or(window).or(model.context);
        if self.one_hour {
            if model.cache.write_1h.is_none() {
                let name = &model.name;
                return Err(Misuse::new(format!("--1h: {name} has no cache of an hour")).into());
            }
            model.cache = model.cache.for_an_hour();
        }
        Ok(model)
    }

    fn scenario(&self, tools_per_load: u32) -> Scenario {
        Scenario {
            turns: self.turns,
            loads: self.loads,
            tools_per_load,
            system: self.system,
            history: self.history,
            input_per_turn: self.per_turn,
            output_per_turn: self.output,
        }
    }
}

/// What scripts get.
#[derive(Serialize)]
struct Report<'a> {
    model: ModelReport<'a>,
    scenario: Scenario,
    strategies: Vec<RowReport>,
    cheapest: Approach,
    why: &'a str,
    turning_points: &'a [TurningPoint],
    footprints: &'a Footprints,
}

#[derive(Serialize)]
struct ModelReport<'a> {
    name: &'a str,
    context: Option<u64>,
    prices: Option<Prices>,
    cache: CacheRules,
    exact: bool,
}

/// An approach, for scripts.
#[derive(Serialize)]
pub(crate) struct RowReport {
    strategy: Approach,
    calls: u32,
    prompt: u64,
    read: u64,
    written: u64,
    uncached: u64,
    output: u64,
    again: u64,
    input_equivalents: f64,
    dollars: Option<f64>,
    /// Its cost as a multiple of full's.
    vs_full: Option<f64>,
    peak: u64,
    fits: bool,
}

impl RowReport {
    /// One of several.
    pub(crate) fn new(row: &PlanRow, rows: &[PlanRow]) -> Self {
        Self {
            strategy: row.approach,
            calls: row.calls,
            prompt: row.usage.prompt(),
            read: row.usage.read,
            written: row.usage.written,
            uncached: row.usage.uncached,
            output: row.usage.output,
            again: row.again,
            input_equivalents: row.cost.input_equivalents,
            dollars: row.cost.dollars,
            vs_full: vs_full(row, rows),
            peak: row.peak,
            fits: row.fits,
        }
    }
}

impl<'a> Report<'a> {
    fn new(plan: &'a Plan, model: &'a Model) -> Self {
        Self {
            model: ModelReport {
                name: &model.name,
                context: model.context,
                prices: model.prices,
                cache: model.cache,
                exact: model.tokenizer.is_exact(),
            },
            scenario: plan.scenario,
            strategies: plan.rows.iter().map(|row| RowReport::new(row, &plan.rows)).collect(),
            cheapest: plan.cheapest,
            why: &plan.why,
            turning_points: &plan.turning_points,
            footprints: &plan.footprints,
        }
    }
}

fn vs_full(row: &PlanRow, rows: &[PlanRow]) -> Option<f64> {
    let full = rows.iter().find(|row| row.approach == Approach::Full)?.price();
    (full > 0.0).then(|| row.price() / full)
}

/// How much more or less an approach costs than full, for people.
pub(crate) fn versus_full(row: &PlanRow, rows: &[PlanRow]) -> String {
    match vs_full(row, rows) {
        Some(times) if row.approach != Approach::Full => {
            // Added to zero, what rounds to minus zero has no sign.
            format!("{:+.0} %", ((times - 1.0) * 100.0).round() + 0.0)
        }
        _ => String::new(),
    }
}

fn describe(plan: &Plan, model: &Model, view: &View, asked_loads: u32) -> String {
    let (tools, turns) =
        (counted(view.len(), "tool"), counted(plan.scenario.turns as usize, "turn"));
    let name = printable(&model.name);
    let mut text = format!("{BOLD}{tools}, {turns}, {name}{BOLD:#}\n\n");
    let _ = write!(text, "{}\n{}\n", table(plan, model), wrapped(&plan.why));
    let _ = write!(text, "\n{DIM}{}{DIM:#}\n", wrapped(&assumptions(plan, model, asked_loads)));
    text
}

fn table(plan: &Plan, model: &Model) -> Rows {
    let tokens = |tokens| TokenCount { tokens, exact: model.tokenizer.is_exact() }.to_string();
    let mut titles =
        vec!["strategy", "calls>", "prompt tokens>", "from cache>", "input equivalents>"];
    if model.prices.is_some() {
        titles.push("cost>");
    }
    titles.push("vs full>");
    let mut rows = Rows::new(&titles);
    for row in &plan.rows {
        let prompt = row.usage.prompt();
        // Rounded down: 100 % would mean that nothing was paid for.
        let share = (100.0 * row.usage.read as f64 / prompt.max(1) as f64).floor();
        let mut cells = vec![
            row.approach.to_string(),
            number(row.calls.into()),
            tokens(prompt),
            format!("{} ({share} %)", tokens(row.usage.read)),
            tokens(row.cost.input_equivalents.round() as u64),
        ];
        if model.prices.is_some() {
            let mark = if model.tokenizer.is_exact() { "" } else { "~" };
            cells.push(format!("{mark}{}", row.cost));
        }
        cells.push(versus_full(row, &plan.rows));
        let style = if row.approach == plan.cheapest { GREEN } else { Style::new() };
        rows.add(style, cells);
    }
    rows
}

/// What the numbers rest on.
fn assumptions(plan: &Plan, model: &Model, asked_loads: u32) -> String {
    let Scenario { loads, tools_per_load, system, history, .. } = plan.scenario;
    let Scenario { input_per_turn, output_per_turn, .. } = plan.scenario;
    let CacheRules { write, read, minimum, .. } = model.cache;
    let mut text = format!(
        "Assumed: {} tokens in and {} out each turn, after a system prompt of {} and a history of \
         {}; ",
        number(input_per_turn),
        number(output_per_turn),
        number(system),
        number(history),
    );
    match loads {
        0 => text.push_str("nothing is loaded"),
        _ => {
            let _ = write!(text, "{loads} × {tools_per_load} tools loaded, evenly spread");
        }
    }
    if loads < asked_loads {
        let _ = write!(text, " (asked for {asked_loads}, but then every tool is loaded)");
    }
    if loads > 0 {
        text.push_str("; from then on each turn calls one of them");
    }
    text.push_str(". ");
    if write == 1.0 && read == 1.0 {
        text.push_str("Nothing is cached.");
    } else {
        let _ = write!(text, "The cache writes at {write}, reads at {read}");
        if minimum > 0 {
            let _ = write!(text, ", holds prompts from {} tokens on", number(minimum));
        }
        text.push_str(", and forgets nothing in between.");
    }
    if model.class == Class::Local {
        text.push_str(" Nothing is billed: input equivalents are tokens to be processed.");
    } else if model.prices.is_none() {
        text.push_str(" Prices are not known: give a --model that has some to see dollars.");
    }
    text
}

/// Breaks text into lines that fit most terminals.
pub(crate) fn wrapped(text: &str) -> String {
    const WIDTH: usize = 96;
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            lines.push('\n');
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += length;
    }
    lines
}
