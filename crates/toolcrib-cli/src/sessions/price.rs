//! `toolcrib sessions price`: what a session would cost under every strategy, beside what it did.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::builder::styling::Style;
use serde::Serialize;
use toolcrib::agent::{Message, ReplayTools, Spent, replay, scenario, spent_of};
use toolcrib::builtins::{Builtin, Options};
use toolcrib::tokens::{Model, Models, TokenCount};
use toolcrib::{Approach, Opened, Plan, PlanRow, Registry, Scenario, Toolset, View, plan};

use super::keep::MODEL;
use super::list::Row;
use crate::agent::about_here;
use crate::args::{Context, EngineArgs, find_model};
use crate::fleet::{self, register};
use crate::output::{self, DIM, GREEN, Misuse, Progress, Rows, counted, number, one_line};
use crate::plan::{RowReport, versus_full, wrapped};
use crate::sources::{ToolArgs, load_tools};

/// One of each provider's that many use, and one that costs nothing.
const USUAL: [&str; 4] = ["claude-sonnet-5.5", "gpt-6.1-sol", "gemini-3.8-flash", "local"];

#[derive(Debug, clap::Args)]
pub(super) struct PriceArgs {
    /// The session's id, or how it begins
    id: String,
    /// A model to price it with; may be given several times [default: the session's own, and one
    /// of each provider]
    #[arg(long = "model", value_name = "NAME")]
    models: Vec<String>,
    /// Price it with every model whose price is known
    #[arg(long, conflicts_with = "models")]
    all: bool,
    /// Tool lists, as `toolcrib plan` takes them [default: the tools that a chat would have now]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    tools: Vec<PathBuf>,
}

/// What a session would cost with one model.
struct Priced {
    model: Model,
    /// One row for each approach.
    rows: Vec<PlanRow>,
    /// What a plan says of a conversation like this one.
    forecast: Plan,
}

/// All that is told.
struct Prices {
    spent: Option<Spent>,
    models: Vec<Priced>,
    notes: Vec<String>,
}

impl PriceArgs {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The models to price with, each once.
    fn models(&self, own: Option<&str>, table: &Models) -> anyhow::Result<Vec<Model>> {
        if self.all {
            return Ok(table.iter().filter(|model| model.prices.is_some()).cloned().collect());
        }
        let mut models: Vec<Model> = Vec::new();
        let mut add = |model: Model| {
            if !models.iter().any(|known| known.name == model.name) {
                models.push(model);
            }
        };
        for name in &self.models {
            let so = ": add it in the file that `models` in toolcrib.toml names";
            add(find_model(table, name, so)?);
        }
        if self.models.is_empty() {
            let names = own.into_iter().chain(USUAL);
            names.filter_map(|name| find_model(table, name, "").ok()).for_each(add);
        }
        Ok(models)
    }

    /// The tools there are now.
    fn view(&self, context: &Context) -> anyhow::Result<View> {
        let source = ToolArgs { tools: self.tools.clone() };
        let policy = context.config.policy()?;
        let registry = match source.has_no_lists(context) {
            true => fleet::with(context, async |fleet| of_a_chat(fleet, context).await)?,
            false => load_tools(&source, context)?,
        };
        Ok(registry.catalog().view(&policy))
    }
}

/// The tools that a chat would have: those of the servers, and a shell.
async fn of_a_chat(fleet: &fleet::Fleet, context: &Context) -> anyhow::Result<Registry> {
    let registry = fleet.registry(context).await;
    let mut builtins = fleet.builtins.clone();
    if !fleet.names().contains(&Builtin::Exec.name()) {
        let here = std::env::current_dir().context("there is no current folder")?;
        let options = Options { roots: vec![here], ..Options::default() };
        builtins.extend(Builtin::Exec.open(&options).ok().map(Arc::new));
    }
    for builtin in builtins {
        if let Ok(listing) = builtin.list().await {
            register(&registry, builtin.id(), listing);
        }
    }
    Ok(registry)
}

pub(super) fn run(args: &PriceArgs, session: &Opened, context: &Context) -> anyhow::Result<()> {
    let history = messages(session)?;
    let own = session.meta.labels.get(MODEL).map(String::as_str);
    let table = context.config.models()?;
    let models = args.models(own, &table)?;
    let view = args.view(context)?;
    let progress = Progress::new(!context.quiet);
    let mut prices = Prices::of(&history, models, &view, context, &progress)?;
    drop(progress);
    prices.spent = spent_of(session).filter(|spent| spent.turns > 0);
    if let Some(own) = own
        && args.models.is_empty()
        && table.find(own).is_none()
    {
        let own = one_line(own);
        prices.notes.push(format!("The table of models has no `{own}`, which it began with."));
    }
    let answers = answers(&history);
    if let Some(spent) = prices.spent.as_ref().filter(|spent| spent.turns > answers as u64) {
        prices.notes.push(format!(
            "The model was asked {} in all. Priced here: {}; others failed, or were taken out.",
            counted(spent.turns as usize, "time"),
            counted(answers, "answer"),
        ));
    }
    if context.json {
        return output::json(&Report::new(&prices, session));
    }
    output::text(&format!("{}\n{}", super::heading(&session.meta, context), prices.describe()))
}

fn messages(session: &Opened) -> anyhow::Result<Vec<Arc<Message>>> {
    let id = &session.meta.id;
    let mut history = Vec::new();
    for (at, text) in session.messages.iter().enumerate() {
        let message = serde_json::from_str::<Message>(text).with_context(|| {
            format!(
                "message {} of session {id} is not one that this version knows; update, or price \
                 what comes before it: `toolcrib sessions fork {id} --at {at}`",
                at + 1
            )
        })?;
        history.push(Arc::new(message));
    }
    if answers(&history) == 0 {
        bail!(
            "session {id} has no answer of a model, so there is nothing to price; \
             `toolcrib chat --resume {id}` goes on with it"
        );
    }
    Ok(history)
}

fn answers(history: &[Arc<Message>]) -> usize {
    history.iter().filter(|message| matches!(***message, Message::Assistant(_))).count()
}

impl Prices {
    fn of(
        history: &[Arc<Message>],
        models: Vec<Model>,
        view: &View,
        context: &Context,
        progress: &Progress,
    ) -> anyhow::Result<Self> {
        let config = &context.config;
        let system = config.agent.system.clone().unwrap_or_else(about_here);
        let (mut priced, mut notes) = (Vec::new(), Vec::new());
        let total = models.len();
        let mut left: Vec<(usize, Model)> = models.into_iter().enumerate().collect();
        // Those that are told the same, and count alike, are priced at once.
        while let Some((_, first)) = left.first().cloned() {
            let is_alike = |it: &Model| (it.class, it.tokenizer) == (first.class, first.tokenizer);
            let (alike, others) = left.into_iter().partition(|(_, model)| is_alike(model));
            left = others;
            progress.bar(priced.len(), total, &first.name);
            let engine = EngineArgs::default().for_model(&first, config).engine(config)?;
            let tools = ReplayTools::of(&engine, view).map_err(Misuse::new)?;
            let replay = replay(history, &system, &tools, alike.iter().map(|(_, model)| model));
            let expected = scenario(history, &system, &first.tokenizer);
            let expected = Scenario { turns: expected.turns.max(1), ..expected };
            let sizes = engine
                .footprints(view, expected.tools_per_load.max(1), &first.tokenizer)
                .map_err(Misuse::new)?;
            for (at, model) in alike {
                let rows = replay.rows.iter().filter(|row| row.model == model.name);
                let rows = rows.map(|row| row.row).collect();
                let forecast = plan(&sizes, &expected, &model);
                priced.push((at, Priced { model, rows, forecast }));
            }
            for note in replay.notes {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        priced.sort_by_key(|(at, _)| *at);
        let models = priced.into_iter().map(|(_, priced)| priced).collect();
        Ok(Self { spent: None, models, notes })
    }

    fn describe(&self) -> String {
        let mut text = match &self.spent {
            Some(spent) => format!("Spent: {spent}.\n"),
            None => "What was spent is not known.\n".to_owned(),
        };
        let titles = ["MODEL", "STRATEGY", "CALLS>", "PROMPT TOKENS>", "FROM CACHE>", "OUTPUT>"];
        let titles: Vec<&str> =
            titles.into_iter().chain(["COST>", "VS FULL>", "FORECAST>"]).collect();
        let mut rows = Rows::new(&titles);
        for priced in &self.models {
            let cheapest = priced.cheapest();
            for (at, row) in priced.rows.iter().enumerate() {
                let name = if at == 0 { &*priced.model.name } else { "" };
                let is_cheapest = cheapest == Some(row.approach);
                let style = if is_cheapest { GREEN } else { Style::new() };
                rows.add(style, priced.cells(name, row));
            }
        }
        let _ = write!(text, "\n{rows}");
        let about = self.assumptions().into_iter().chain(self.notes.iter().cloned());
        for note in about {
            let _ = write!(text, "\n{DIM}{}{DIM:#}\n", wrapped(&one_line(&note)));
        }
        text
    }

    /// What forecasts rest on.
    fn assumptions(&self) -> Option<String> {
        let Scenario { turns, loads, tools_per_load, input_per_turn, output_per_turn, .. } =
            self.models.first()?.forecast.scenario;
        let turns = counted(turns as usize, "turn");
        let loads = match loads {
            0 => "no loads".to_owned(),
            _ => format!(
                "{} of {}",
                counted(loads as usize, "load"),
                counted(tools_per_load as usize, "tool")
            ),
        };
        Some(format!(
            "COST is this conversation, told as each strategy would have had it. FORECAST is what \
             `toolcrib plan` says of any that has {turns} and {loads}, with {} tokens in and {} \
             out each turn.",
            number(input_per_turn),
            number(output_per_turn),
        ))
    }
}

impl Priced {
    /// The cheapest approach of those that fit the window, if any does.
    fn cheapest(&self) -> Option<Approach> {
        let fitting = self.rows.iter().filter(|row| row.fits);
        let least = fitting.min_by(|a, b| a.price().total_cmp(&b.price()));
        least.map(|row| row.approach)
    }

    fn cells(&self, name: &str, row: &PlanRow) -> Vec<String> {
        let tokens = |tokens| self.tokens(tokens);
        let prompt = row.usage.prompt();
        // Rounded down: 100 % would mean that nothing was paid for.
        let share = row.usage.read.saturating_mul(100).checked_div(prompt).unwrap_or(0);
        let mut versus = versus_full(row, &self.rows);
        if !row.fits {
            versus.push_str(" too long");
        }
        vec![
            name.to_owned(),
            row.approach.to_string(),
            number(row.calls.into()),
            tokens(prompt),
            format!("{share} %"),
            tokens(row.usage.output),
            self.cost(row),
            versus,
            self.forecast.row(row.approach).map(|row| self.cost(row)).unwrap_or_default(),
        ]
    }

    fn cost(&self, row: &PlanRow) -> String {
        let mark = if self.model.tokenizer.is_exact() { "" } else { "~" };
        match row.cost.dollars {
            Some(_) => format!("{mark}{}", row.cost),
            None => format!("{} eq.", self.tokens(row.cost.input_equivalents.round() as u64)),
        }
    }

    fn tokens(&self, tokens: u64) -> String {
        TokenCount { tokens, exact: self.model.tokenizer.is_exact() }.to_string()
    }
}

/// What scripts get.
#[derive(Serialize)]
struct Report<'a> {
    session: Row<'a>,
    spent: Option<&'a Spent>,
    models: Vec<ModelReport<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct ModelReport<'a> {
    model: &'a str,
    exact: bool,
    cheapest: Option<Approach>,
    strategies: Vec<RowReport>,
    forecast: Forecast,
}

#[derive(Serialize)]
struct Forecast {
    scenario: Scenario,
    cheapest: Approach,
    strategies: Vec<RowReport>,
}

impl<'a> Report<'a> {
    fn new(prices: &'a Prices, session: &'a Opened) -> Self {
        let rows = |rows: &[PlanRow]| rows.iter().map(|row| RowReport::new(row, rows)).collect();
        let model = |priced: &'a Priced| ModelReport {
            model: &priced.model.name,
            exact: priced.model.tokenizer.is_exact(),
            cheapest: priced.cheapest(),
            strategies: rows(&priced.rows),
            forecast: Forecast {
                scenario: priced.forecast.scenario,
                cheapest: priced.forecast.cheapest,
                strategies: rows(&priced.forecast.rows),
            },
        };
        Self {
            session: Row::new(&session.meta),
            spent: prices.spent.as_ref(),
            models: prices.models.iter().map(model).collect(),
            notes: &prices.notes,
        }
    }
}
