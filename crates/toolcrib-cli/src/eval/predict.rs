//! What offering tools before they are asked for would have brought, and what it takes.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::sync::Arc;

use clap::builder::styling::Style;
use serde::Serialize;
use serde_json::json;
use toolcrib::tokens::Tokenizer;
use toolcrib::{
    Call, Engine, EngineError, Group, GroupId, Meaning, Mode, Registry, Session, Settings, Step,
    StrategyChoice, ToolName, ToolSpec, View,
};

use super::measure::Meter;
use super::report::place_of_style;
use super::set::{Query, Set, Tools};
use crate::output::{BOLD, DIM, Rows, counted, number};

/// Everything that is told.
#[derive(Serialize)]
pub(super) struct Prediction {
    sets: Vec<SetReport>,
    pub(super) warnings: Vec<String>,
}

#[derive(Serialize)]
struct SetReport {
    set: String,
    tools: usize,
    #[serde(flatten)]
    figures: Figures,
    styles: Vec<StyleReport>,
}

#[derive(Serialize)]
struct StyleReport {
    style: String,
    #[serde(flatten)]
    figures: Figures,
}

/// What came of some queries.
#[derive(Serialize)]
struct Figures {
    queries: usize,
    search: SearchFigures,
    offers: Vec<OfferFigures>,
}

/// A search by the words of the query: what an offer would spare.
#[derive(Serialize)]
struct SearchFigures {
    /// Of the call and its result, at the median.
    tokens: u64,
    /// The share of queries to which it brings all that they need.
    all: f64,
}

#[derive(Serialize)]
struct OfferFigures {
    /// The most tools that are offered.
    most: usize,
    /// The share of queries to which all was offered that they need.
    all: f64,
    /// The share to which something of it was.
    some: f64,
    /// Of what was offered, at the mean.
    tokens: f64,
    /// The same, less the searches that it spares.
    net: f64,
}

/// What came of one query.
struct Task {
    search: Offer,
    /// By how many tools may be offered.
    offers: Vec<Offer>,
}

/// Tools that a model was given.
struct Offer {
    needs: usize,
    met: usize,
    tokens: u64,
}

impl Offer {
    fn is_all(&self) -> bool {
        self.met == self.needs
    }
}

/// Offers tools for each query, at most so many of them at a time.
pub(super) fn run(
    sets: &[(&Set, Vec<&Query>)],
    most: &[NonZeroUsize],
    meter: &Meter<'_>,
) -> Result<Prediction, EngineError> {
    let mut prediction = Prediction { sets: Vec::new(), warnings: Vec::new() };
    for (set, queries) in sets {
        let desk = Desk::open(&set.tools, most)?;
        if desk.left_out > 0 {
            let tools = counted(desk.left_out, "tool");
            let warning = format!("{}: {tools} left out, as others have their names", set.name);
            prediction.warnings.push(warning);
        }
        let mut tasks = Vec::with_capacity(queries.len());
        for query in queries {
            tasks.push(desk.task(query)?);
            meter.advance(&set.name);
        }
        prediction.sets.push(SetReport {
            set: set.name.clone(),
            tools: desk.view.len(),
            figures: Figures::of(most, tasks.iter()),
            styles: by_style(most, queries, &tasks),
        });
    }
    Ok(prediction)
}

/// Where a conversation begins, over the tools of a set.
struct Desk<'a> {
    engine: Engine,
    view: View,
    /// A conversation about to begin.
    begun: Session,
    /// Ids of the set by the names of its tools.
    ids: HashMap<ToolName, Arc<str>>,
    left_out: usize,
    most: &'a [NonZeroUsize],
}

impl<'a> Desk<'a> {
    fn open(tools: &Tools, most: &'a [NonZeroUsize]) -> Result<Self, EngineError> {
        let (view, left_out) = match tools {
            Tools::Seen(view) => (view.clone(), 0),
            Tools::Listed(_) => registered(tools),
        };
        let mut ids = HashMap::new();
        for (id, spec) in tools.each() {
            ids.entry(spec.name().clone()).or_insert(id);
        }
        let mut settings = Settings::default();
        (settings.mode, settings.strategy) = (Mode::Deferred, StrategyChoice::Dispatch);
        let (engine, mut begun) = (Engine::new(settings)?, Session::new());
        engine.prepare(&mut begun, &view)?;
        Ok(Self { engine, view, begun, ids, left_out, most })
    }

    fn task(&self, query: &Query) -> Result<Task, EngineError> {
        let offers = self.most.iter().map(|most| self.offer(query, most.get()));
        Ok(Task { search: self.search(query), offers: offers.collect::<Result<_, _>>()? })
    }

    /// What an agent offers before it asks the model.
    fn offer(&self, query: &Query, most: usize) -> Result<Offer, EngineError> {
        let (mut session, meaning) = (self.begun.clone(), Meaning::default());
        let names = self.engine.predict(&mut session, &self.view, meaning, &query.text, most);
        let shown = self.engine.prepare(&mut session, &self.view)?;
        let tools = names.iter().filter_map(|name| Some(self.view.tool(name)?.name()));
        let tokens = shown.announcements.iter().map(|text| count(text)).sum();
        Ok(self.given(query, tools, tokens))
    }

    /// What a search by the same words brings.
    fn search(&self, query: &Query) -> Offer {
        let mut session = self.begun.clone();
        let arguments = json!({"query": query.text});
        let said = count(&format!("tool_search{arguments}"));
        match self.engine.resolve(&mut session, &self.view, &Call::new("tool_search", arguments)) {
            Step::Answer(answer) => {
                let tokens = said + count(&answer.content);
                self.given(query, answer.effects.loaded.iter(), tokens)
            }
            Step::Need(_) | Step::Run(_) => self.given(query, [].iter(), said),
        }
    }

    fn given<'t>(
        &self,
        query: &Query,
        tools: impl Iterator<Item = &'t ToolName>,
        tokens: u64,
    ) -> Offer {
        let ids = tools.filter_map(|tool| self.ids.get(tool)).map(|id| &**id);
        let places = query.needs.places(ids);
        Offer { needs: places.len(), met: places.iter().flatten().count(), tokens }
    }
}

/// The tools of a set as a model would have them, which could not tell apart two of one name; and
/// how many that leaves out.
fn registered(tools: &Tools) -> (View, usize) {
    let mut groups: BTreeMap<GroupId, Vec<ToolSpec>> = BTreeMap::new();
    for (_, spec) in tools.each() {
        let group = spec.name().server().map_or_else(GroupId::host, GroupId::server);
        groups.entry(group).or_default().push(spec);
    }
    let registry = Registry::default();
    let mut left_out = 0;
    for (id, specs) in groups {
        left_out += registry.replace_toolset(Group::new(id), specs).rejected.len();
    }
    (registry.catalog().view_all(), left_out)
}

fn count(text: &str) -> u64 {
    Tokenizer::O200K.count(text).tokens
}

fn by_style(most: &[NonZeroUsize], queries: &[&Query], tasks: &[Task]) -> Vec<StyleReport> {
    let mut styles: BTreeMap<(usize, &str), Vec<&Task>> = BTreeMap::new();
    for (query, task) in queries.iter().zip(tasks) {
        if let Some(style) = query.style.as_deref() {
            styles.entry((place_of_style(style), style)).or_default().push(task);
        }
    }
    let report = |((_, style), tasks): ((usize, &str), Vec<&Task>)| StyleReport {
        style: style.to_owned(),
        figures: Figures::of(most, tasks.iter().copied()),
    };
    styles.into_iter().map(report).collect()
}

impl Figures {
    fn of<'t>(most: &[NonZeroUsize], tasks: impl Iterator<Item = &'t Task>) -> Self {
        let tasks: Vec<&Task> = tasks.collect();
        let mean = |figure: &dyn Fn(&Task) -> f64| {
            let sum: f64 = tasks.iter().map(|task| figure(task)).sum();
            (sum / tasks.len().max(1) as f64 * 1e4).round() / 1e4
        };
        let share = |is: &dyn Fn(&Task) -> bool| mean(&|task| f64::from(u8::from(is(task))));
        let mut searches: Vec<u64> = tasks.iter().map(|task| task.search.tokens).collect();
        searches.sort_unstable();
        let offer = |(at, most): (usize, &NonZeroUsize)| OfferFigures {
            most: most.get(),
            all: share(&|task| task.offers[at].is_all()),
            some: share(&|task| task.offers[at].met > 0),
            tokens: mean(&|task| task.offers[at].tokens as f64),
            net: mean(&|task| {
                let offer = &task.offers[at];
                let spared = if offer.is_all() { task.search.tokens } else { 0 };
                offer.tokens as f64 - spared as f64
            }),
        };
        Self {
            queries: tasks.len(),
            search: SearchFigures {
                tokens: searches.get(searches.len() / 2).copied().unwrap_or(0),
                all: share(&|task| task.search.is_all()),
            },
            offers: most.iter().enumerate().map(offer).collect(),
        }
    }
}

impl Prediction {
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for set in &self.sets {
            set.write(&mut text);
        }
        text
    }
}

impl SetReport {
    fn write(&self, text: &mut String) {
        let Figures { queries, search, offers } = &self.figures;
        let (tools, queries) = (counted(self.tools, "tool"), counted(*queries, "task"));
        let _ = writeln!(
            text,
            "{BOLD}{}{BOLD:#}, {queries} over {tools} {DIM}(a search by the same words takes {} \
             tokens at the median, and brings all that is needed to {} of them){DIM:#}\n",
            self.set,
            number(search.tokens),
            percent(search.all)
        );
        let mut rows = Rows::new(&["OFFERED>", "ALL>", "SOME>", "TOKENS>", "NET>"]);
        for offer in offers {
            rows.add(
                Style::new(),
                [
                    offer.most.to_string(),
                    percent(offer.all),
                    percent(offer.some),
                    number(offer.tokens.round() as u64),
                    signed(offer.net),
                ],
            );
        }
        let _ = writeln!(text, "{rows}");
        if self.styles.is_empty() {
            return;
        }
        let titles = offers.iter().map(|offer| format!("ALL OF {}>", offer.most));
        let titles: Vec<String> =
            ["STYLE".to_owned(), "TASKS>".to_owned()].into_iter().chain(titles).collect();
        let mut rows = Rows::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
        for StyleReport { style, figures } in &self.styles {
            let all = figures.offers.iter().map(|offer| percent(offer.all));
            let head = [style.clone(), number(figures.queries as u64)];
            rows.add(Style::new(), head.into_iter().chain(all));
        }
        let _ = writeln!(text, "{rows}");
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn signed(tokens: f64) -> String {
    let sign = if tokens.round() < 0.0 { "-" } else { "+" };
    format!("{sign}{}", number(tokens.abs().round() as u64))
}
