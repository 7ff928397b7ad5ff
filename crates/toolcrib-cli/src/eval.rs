//! `toolcrib eval`: how well and how fast tools are found, on queries that say what they need.

mod ablate;
mod export;
mod measure;
mod metrics;
mod misses;
mod predict;
mod report;
mod set;

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::ValueEnum;
use toolcrib::Corpus;
use toolcrib::UsageRow;
use toolcrib::search::Ranking;

use crate::args::Context;
use crate::output::{self, Misuse, Progress, counted};
use crate::sources::{ToolArgs, load_tools, load_view};
use crate::usage;
use measure::{Meter, Over, Part};
use metrics::Needs;
use report::{Report, RunReport};
use set::{Found, Query, Set, Tools};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib eval                                     the set that ships with toolcrib
  toolcrib eval --compare lexical,static,hybrid     one ranking beside another
  toolcrib eval --misses                            what was missed, and why
  toolcrib eval --queries my.jsonl                  your servers, your queries
  toolcrib eval servers/ --queries my.jsonl         saved tool lists, your queries
  toolcrib eval sets/ --pool --export run.jsonl     a folder of sets
  toolcrib eval sets/ --ablate                      what each number of ranking is worth
  toolcrib eval --predict                           what offering tools in advance brings

A set is a folder with tools.jsonl, of {id, server, name, description, inputSchema}, and
queries.jsonl, of {id, query, gold: [tool ids], style}; without queries it only adds to the pool.
Tools of servers and of tool lists have the id `server/tool`. `gold_any` lists tools that do as
well as the one in `gold`, or maps each of several to those that do.

Columns: nDCG@10; HIT@1, a needed tool is first; R@1, R@5 and R@10, the share of needed tools among
the first; ALL@10, all of them are among the first 10; MRR, one divided by the rank of the first.
Of --predict: ALL, tasks that were offered all they need; SOME, a part of it; TOKENS, what an offer
takes; NET, the same less the searches that it spares.")]
pub(crate) struct EvalArgs {
    /// A set, a folder of sets, or with --queries a folder of tool lists
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Queries over the tools of every PATH; without one, over those of your servers
    #[arg(long, value_name = "FILE")]
    queries: Option<PathBuf>,
    /// Queries that were asked before, each with the tool that was then called: see `usage`
    #[arg(long, conflicts_with_all = ["queries", "paths"])]
    from_usage: bool,
    #[command(flatten)]
    source: ToolArgs,
    /// Rank each query over the tools of all sets too, or with `=only` over nothing else
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "too")]
    pool: Option<Pool>,
    /// Rankings to compare: lexical, static, hybrid
    #[arg(long, value_name = "RANKING,…", value_delimiter = ',', default_value = "hybrid")]
    compare: Vec<Ranking>,
    /// Only these sets
    #[arg(long = "set", value_name = "NAME")]
    sets: Vec<String>,
    /// Only queries of these styles
    #[arg(long = "style", value_name = "STYLE")]
    styles: Vec<String>,
    /// Only the first queries of each set
    #[arg(long, value_name = "N")]
    limit: Option<NonZeroUsize>,
    /// Say of the worst queries what was missed, and why [20 unless told]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "20")]
    misses: Option<usize>,
    /// Write the rankings, as JSONL of {set, id, ranked: [up to 100 ids]}
    ///
    /// With --pool or several rankings there is a file for each: run.pool.lexical.jsonl.
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Change every number of ranking, one at a time, and print what that does as Markdown
    ///
    /// Each query is ranked over its own set. Off, half and double the default are tried.
    #[arg(long, conflicts_with_all = ["pool", "compare", "misses", "export"])]
    ablate: bool,
    /// Offer up to so many tools for each query, as an agent with `predict` does, and say what that
    /// brings and takes [1, 3, 5, 8, 10 and 15 unless told]
    #[arg(long, value_name = "N,…", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    #[arg(default_missing_values = ["1", "3", "5", "8", "10", "15"])]
    #[arg(conflicts_with_all = ["pool", "compare", "misses", "export", "ablate", "jobs"])]
    predict: Vec<NonZeroUsize>,
    /// Threads to rank with [1 unless told; with --ablate as many as there are cores]
    ///
    /// More are sooner done, and each query is slower.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pool {
    Too,
    Only,
}

pub(crate) fn run(args: &EvalArgs, context: &Context) -> anyhow::Result<()> {
    let mut warnings = Vec::new();
    let progress = Progress::new(!context.quiet);
    let sets = read(args, context, &progress, &mut warnings)?;
    let chosen = |set| choose(set, args);
    check_filters(args, &sets)?;
    let total: usize = sets.iter().map(|set| chosen(set).len()).sum();
    if total == 0 {
        let told = "no query is left; the filters let none through, or no set has queries";
        return Err(Misuse::new(told).into());
    }
    if args.ablate {
        return ablate(args, context, &sets, progress, warnings);
    }
    if !args.predict.is_empty() {
        return predict(args, context, &sets, progress, warnings);
    }

    let mut rankings = Vec::new();
    args.compare.iter().for_each(|it| {
        if !rankings.contains(it) {
            rankings.push(*it);
        }
    });
    let scopes: &[Over] = match args.pool {
        None => &[Over::Own],
        Some(Pool::Too) => &[Over::Own, Over::Pool],
        Some(Pool::Only) => &[Over::Pool],
    };
    let meter = Meter::new(&progress, total * rankings.len() * scopes.len());
    let jobs = args.jobs.map_or(1, NonZeroUsize::get);
    let (mut reports, mut misses) = (Vec::new(), None);
    for over in scopes {
        let parts = measure::index(*over, &Corpus::TUNING, &sets, chosen, &progress);
        for ranking in &rankings {
            let run = measure::run(*over, *ranking, &parts, jobs, &meter);
            if let Some(file) = &args.export {
                let over = (scopes.len() > 1 && *over == Over::Pool).then(|| "pool".to_owned());
                let ranking = (rankings.len() > 1).then(|| ranking.to_string());
                export::write(file, over.into_iter().chain(ranking), &parts, &run)?;
            }
            // With several rankings it is the last that is asked about.
            if let (Some(most), Some(last)) = (args.misses, rankings.last())
                && *over == scopes[0]
                && ranking == last
            {
                misses = Some(misses::worst(&parts, &run, most));
            }
            reports.push(RunReport::new(&run, &parts));
        }
        if *over == scopes[0] {
            warn_of_unknown(&parts, &mut warnings);
        }
    }
    drop(progress);
    warnings.iter().for_each(|warning| context.warn(warning));
    let below_lexical = report::below_lexical(&reports);
    let report = Report { runs: reports, below_lexical, misses, jobs, warnings };
    if context.json {
        return output::json(&report);
    }
    output::text(&report.describe())
}

/// The queries that were asked for, each over its own set.
fn over_their_own<'a>(
    args: &EvalArgs,
    sets: &'a [Set],
    progress: &Progress,
    warnings: &mut Vec<String>,
) -> Vec<(&'a Set, Vec<&'a Query>)> {
    let chosen = |set| choose(set, args);
    let parts = measure::index(Over::Own, &Corpus::TUNING, sets, chosen, progress);
    warn_of_unknown(&parts, warnings);
    parts.into_iter().map(|part| (part.set, part.queries)).collect()
}

/// What each number of ranking is worth, each query over its own set.
fn ablate(
    args: &EvalArgs,
    context: &Context,
    sets: &[Set],
    progress: Progress,
    mut warnings: Vec<String>,
) -> anyhow::Result<()> {
    let sets = over_their_own(args, sets, &progress, &mut warnings);
    let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let jobs = args.jobs.map_or_else(cores, NonZeroUsize::get);
    let mut ablation = ablate::run(&sets, jobs, |queries| Meter::new(&progress, queries));
    drop(progress);
    warnings.iter().for_each(|warning| context.warn(warning));
    ablation.warnings = warnings;
    if context.json {
        return output::json(&ablation);
    }
    // Where servers are searched, it is the first few that are read.
    output::text(&ablation.describe(args.queries.is_some() || args.from_usage))
}

/// What offering tools in advance brings, each query over its own set.
fn predict(
    args: &EvalArgs,
    context: &Context,
    sets: &[Set],
    progress: Progress,
    mut warnings: Vec<String>,
) -> anyhow::Result<()> {
    let sets = over_their_own(args, sets, &progress, &mut warnings);
    let meter = Meter::new(&progress, sets.iter().map(|(_, queries)| queries.len()).sum());
    let mut prediction = predict::run(&sets, &args.predict, &meter)?;
    drop(progress);
    warnings.append(&mut prediction.warnings);
    warnings.iter().for_each(|warning| context.warn(warning));
    prediction.warnings = warnings;
    if context.json {
        return output::json(&prediction);
    }
    output::text(&prediction.describe())
}

/// The sets that were asked for.
fn read(
    args: &EvalArgs,
    context: &Context,
    progress: &Progress,
    warnings: &mut Vec<String>,
) -> anyhow::Result<Vec<Set>> {
    if args.from_usage {
        return Ok(vec![used(args, context)?]);
    }
    let (mut folders, mut lists) = (Vec::new(), Vec::new());
    for path in &args.paths {
        match Found::at(path)? {
            Found::Sets(found) => folders.extend(found),
            Found::Lists(path) => lists.push(path),
        }
    }
    // Before any tool, as a mistake there costs least.
    let queries = args.queries.as_deref().map(Set::queries).transpose()?;
    if let (None, Some(list)) = (&queries, lists.first().or(args.source.tools.first())) {
        let told = "has tools and no queries; give those with --queries FILE";
        return Err(Misuse::new(format!("{} {told}", list.display())).into());
    }
    let has_lists = !lists.is_empty() || !args.source.tools.is_empty();
    if !folders.is_empty() && has_lists {
        let told = "sets and tool lists can't be measured together; run them one after the other";
        return Err(Misuse::new(told).into());
    }
    let mut sets = Vec::new();
    for folder in &folders {
        progress.say(&format!("reading {}", folder.display()));
        sets.push(Set::read(folder, warnings)?);
    }
    let Some(queries) = queries else {
        return if args.paths.is_empty() { Ok(vec![Set::own()?]) } else { distinct(sets) };
    };
    let tools = if !sets.is_empty() {
        Tools::Listed(sets.iter().flat_map(|set| set.tools.each()).collect())
    } else if lists.is_empty() {
        Tools::Seen(load_view(&args.source, context)?)
    } else {
        // A policy is about what servers are used for, not about what was saved of them.
        lists.extend(args.source.tools.iter().cloned());
        let source = ToolArgs { tools: lists };
        Tools::Seen(load_tools(&source, context)?.catalog().view_all())
    };
    let name = args.queries.as_deref().and_then(|file| file.file_stem()).unwrap_or_default();
    Ok(vec![Set { name: name.to_string_lossy().into_owned(), tools, queries }])
}

/// What was asked before, over the tools as they are now. The ranking is measured by itself:
/// what was learned lifts nothing here.
fn used(args: &EvalArgs, context: &Context) -> anyhow::Result<Set> {
    let rows = usage::rows(context)?;
    if rows.is_empty() {
        let told = "nothing was learned from use yet; `toolcrib serve` does so as tools are called";
        return Err(Misuse::new(told).into());
    }
    let query = |(at, row): (usize, UsageRow)| Query {
        id: (at + 1).into(),
        text: row.query,
        style: None,
        needs: Needs(vec![vec![row.tool]]),
    };
    let queries = rows.into_iter().enumerate().map(query).collect();
    let tools = Tools::Seen(load_view(&args.source, context)?);
    Ok(Set { name: "usage".to_owned(), tools, queries })
}

/// Sets are told apart by their names.
fn distinct(sets: Vec<Set>) -> anyhow::Result<Vec<Set>> {
    let mut names = HashSet::new();
    match sets.iter().find(|set| !names.insert(&*set.name)) {
        Some(set) => {
            let told = "rename one of the folders, or give them in two runs";
            Err(Misuse::new(format!("two sets are called `{}`; {told}", set.name)).into())
        }
        None => Ok(sets),
    }
}

/// The queries of a set that the filters let through.
fn choose<'a>(set: &'a Set, args: &EvalArgs) -> Vec<&'a Query> {
    if !args.sets.is_empty() && !args.sets.contains(&set.name) {
        return Vec::new();
    }
    let is_meant = |query: &&Query| {
        let style = query.style.as_ref();
        args.styles.is_empty() || style.is_some_and(|style| args.styles.contains(style))
    };
    let most = args.limit.map_or(usize::MAX, NonZeroUsize::get);
    set.queries.iter().filter(is_meant).take(most).collect()
}

/// A filter that names nothing is a slip.
fn check_filters(args: &EvalArgs, sets: &[Set]) -> anyhow::Result<()> {
    let names: Vec<&str> = sets.iter().map(|set| &*set.name).collect();
    let queries = sets.iter().flat_map(|set| &set.queries);
    let styles: Vec<&str> = queries.filter_map(|query| query.style.as_deref()).collect();
    for (what, given, known) in [("set", &args.sets, names), ("style", &args.styles, styles)] {
        if let Some(name) = given.iter().find(|name| !known.contains(&name.as_str())) {
            let near = output::suggest(name, known.iter().copied()).unwrap_or_default();
            return Err(Misuse::new(format!("there is no {what} `{name}`{near}")).into());
        }
    }
    Ok(())
}

/// The ids written out of those that no tool has.
const MOST_UNKNOWN: usize = 5;

fn warn_of_unknown(parts: &[Part<'_>], warnings: &mut Vec<String>) {
    for part in parts {
        let unknown = part.set.unknown(&part.corpus);
        if unknown.is_empty() {
            continue;
        }
        let mut ids = unknown.iter().take(MOST_UNKNOWN).copied().collect::<Vec<_>>().join(", ");
        if let Some(more @ 1..) = unknown.len().checked_sub(MOST_UNKNOWN) {
            ids.push_str(&format!(" and {more} more"));
        }
        warnings.push(format!(
            "{}: queries need {} that the set doesn't have: {ids}",
            part.set.name,
            counted(unknown.len(), "tool"),
        ));
    }
}
