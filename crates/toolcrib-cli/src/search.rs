//! `toolcrib search`: how `tool_search` ranks the tools for a query, or for a file of them.

mod batch;

use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use toolcrib::search::Explanation;
use toolcrib::{Meaning, SearchPage, SearchRow, View};

use crate::args::Context;
use crate::embedder::Ranker;
use crate::output::{self, BOLD, DIM, Misuse, Rows, counted, number, printable};
use crate::sample;
use crate::sources::{ToolArgs, load_view};
use crate::usage;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib search 'open a pull request'
  toolcrib search 'send +message' --explain   `message` must occur
  toolcrib search select:read_file,git/log    these very tools
  toolcrib search '/^git.*branch/'            a regular expression
  toolcrib search 'list events' --tools servers/ --json
  toolcrib search --queries q.jsonl --run out.jsonl --limit 50

Without servers, lists and a query, a sample is searched for one of its own.")]
pub(crate) struct SearchArgs {
    /// Words, +required words, select:a,b, /regex/ or a tool's name
    #[arg(conflicts_with = "queries")]
    query: Option<String>,
    #[command(flatten)]
    source: ToolArgs,
    /// The most results
    #[arg(long, default_value_t = 10, value_name = "N", allow_negative_numbers = true)]
    limit: usize,
    /// Say where every score comes from
    #[arg(long)]
    explain: bool,
    /// Rank by the tools alone, whatever was learned from use
    #[arg(long)]
    without_usage: bool,
    /// Rank every query of a JSONL file of {id, query}
    #[arg(long, value_name = "FILE", requires = "run")]
    queries: Option<PathBuf>,
    /// Where to write the rankings, as JSONL of {id, ranked: ["server/tool", …]}; `-` for stdout
    #[arg(long, value_name = "FILE", requires = "queries")]
    run: Option<PathBuf>,
}

const NO_QUERY: &str =
    "say what to search for, ahead of the paths: toolcrib search QUERY --tools PATH…";

pub(crate) fn run(args: &SearchArgs, context: &Context) -> anyhow::Result<()> {
    if let (Some(queries), Some(run)) = (&args.queries, &args.run) {
        let queries = batch::read(queries)?;
        let view = load_view(&args.source, context)?;
        let ranker = Ranker::new(&view, context)?;
        return batch::rank(&queries, &view, &ranker, args.limit, run, context);
    }
    let query = match &args.query {
        Some(query) => query,
        None if args.source.is_sample(context) => sample::QUERY,
        None => return Err(Misuse::new(NO_QUERY).into()),
    };
    let mut view = load_view(&args.source, context)?;
    if !args.without_usage {
        view = usage::apply(view, context);
    }
    let said = Ranker::new(&view, context)?.ask(query, context);
    let meaning = said.meaning();
    let page = view.search_with(meaning, query, args.limit).map_err(Misuse::new)?;
    if context.json {
        return output::json(&Results::new(query, &view, meaning, page, args.explain));
    }
    output::text(&describe(query, &view, meaning, &page, args.explain))
}

#[derive(Serialize)]
struct Results<'a> {
    query: &'a str,
    total_matches: usize,
    results: Vec<ResultRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_found: Vec<String>,
}

#[derive(Serialize)]
struct ResultRow {
    #[serde(flatten)]
    row: SearchRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
}

impl<'a> Results<'a> {
    fn new(
        query: &'a str,
        view: &View,
        meaning: Meaning<'_>,
        page: SearchPage,
        explain: bool,
    ) -> Self {
        let explained = |row: SearchRow| {
            let explanation =
                explain.then(|| view.explain_with(meaning, query, &row.name)).flatten();
            ResultRow { row, explanation }
        };
        Self {
            query,
            total_matches: page.total_matches,
            results: page.results.into_iter().map(explained).collect(),
            not_found: page.not_found,
        }
    }
}

fn describe(
    query: &str,
    view: &View,
    meaning: Meaning<'_>,
    page: &SearchPage,
    explain: bool,
) -> String {
    let mut text = String::new();
    let shown = page.results.len();
    let _ = writeln!(
        text,
        "{BOLD}{}{BOLD:#}: {} of {} match{}\n",
        output::one_line(query),
        number(page.total_matches as u64),
        counted(view.len(), "tool"),
        if shown < page.total_matches {
            format!(", the best {shown} shown")
        } else {
            String::new()
        },
    );
    if explain {
        for row in &page.results {
            explain_row(&mut text, query, view, meaning, row);
        }
    } else if shown > 0 {
        let mut rows = Rows::new(&["#>", "SCORE>", "TOOL", "SERVER", "NAME FOR THE MODEL"]);
        for (at, row) in page.results.iter().enumerate() {
            let (place, score) = ((at + 1).to_string(), format!("{:.2}", row.score));
            let server = row.server.as_deref().unwrap_or("-");
            let style = if at == 0 { BOLD } else { clap::builder::styling::Style::new() };
            rows.add(style, [&*place, &*score, &*row.tool, server, &*row.name]);
        }
        let _ = write!(text, "{rows}");
    } else {
        text.push_str("Nothing. Try other words, fewer of them, or a /regex/.\n");
    }
    for name in &page.not_found {
        let _ = writeln!(text, "not found: {}", printable(name));
    }
    text
}

fn explain_row(text: &mut String, query: &str, view: &View, meaning: Meaning<'_>, row: &SearchRow) {
    let Some(explanation) = view.explain_with(meaning, query, &row.name) else {
        let _ = writeln!(text, "{:.4}  {}\n  named or matched outright\n", row.score, row.name);
        return;
    };
    let tree = printable(&explanation.to_string());
    let (head, rest) = tree.split_once('\n').unwrap_or((&tree, ""));
    let _ = writeln!(text, "{BOLD}{head}{BOLD:#}");
    if row.score > explanation.total + 0.5 {
        let _ = writeln!(text, "  {:.4}  with its exact name in the query", row.score);
    }
    let _ = writeln!(text, "{DIM}{rest}{DIM:#}\n");
}
