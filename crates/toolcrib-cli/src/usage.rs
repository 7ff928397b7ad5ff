//! `toolcrib usage`: what was learned from use, and forgetting it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Subcommand;
use clap::builder::styling::Style;
use serde::Serialize;
use toolcrib::{Usage, UsageRow, View};

use crate::args::Context;
use crate::fleet;
use crate::output::{self, Rows, counted, number};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib usage                which tools were called after which queries
  toolcrib usage --json
  toolcrib usage clear          forget all of it

`toolcrib eval --from-usage` measures how well these queries find these tools.
Kept on this machine only: the query, the tool's name, how often and when last. `learn = false`
under [search] in toolcrib.toml keeps nothing and takes nothing into account.")]
pub(crate) struct UsageArgs {
    #[command(subcommand)]
    command: Option<UsageCommand>,
    /// The most rows to print; --json prints all
    #[arg(long, default_value_t = 50, value_name = "N")]
    limit: usize,
}

#[derive(Debug, Subcommand)]
enum UsageCommand {
    /// Forget everything
    Clear,
}

pub(crate) fn run(args: &UsageArgs, context: &Context) -> anyhow::Result<()> {
    let rows = rows(context)?;
    match args.command {
        Some(UsageCommand::Clear) => clear(&rows, context),
        None if context.json => output::json(&Report::new(&rows, context)),
        None => output::text(&describe(&rows, args.limit, context)),
    }
}

/// Everything that is kept, the most frequent first.
pub(crate) fn rows(context: &Context) -> anyhow::Result<Vec<UsageRow>> {
    Ok(match fleet::kept(context)? {
        Some(store) => store.usage()?,
        None => Vec::new(),
    })
}

/// The view with what was learned, unless nothing is to be.
pub(crate) fn apply(view: View, context: &Context) -> View {
    if !context.config.search.learn {
        return view;
    }
    match rows(context) {
        Ok(rows) => {
            let now = SystemTime::now();
            view.with_usage(Arc::new(Usage::new(rows.iter().map(|row| row.choice(now)))))
        }
        Err(error) => {
            context.warn(&format!("what was learned from use can't be read: {error}"));
            view
        }
    }
}

fn clear(rows: &[UsageRow], context: &Context) -> anyhow::Result<()> {
    if let Some(store) = fleet::kept(context)? {
        store.clear_usage()?;
    }
    if context.json {
        return output::json(&Cleared { forgotten: rows.len() });
    }
    context.note("A gateway that runs goes on with what it has until it learns something or ends.");
    output::text(&format!("{} forgotten.\n", counted(rows.len(), "row")))
}

#[derive(Serialize)]
struct Cleared {
    forgotten: usize,
}

#[derive(Serialize)]
struct Report<'a> {
    learning: bool,
    calls: u64,
    rows: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    query: &'a str,
    tool: &'a str,
    count: u32,
    /// In seconds since 1970.
    last_used: u64,
}

impl<'a> Report<'a> {
    fn new(rows: &'a [UsageRow], context: &Context) -> Self {
        let row = |row: &'a UsageRow| Row {
            query: &row.query,
            tool: &row.tool,
            count: row.count,
            last_used: row.used_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        Self {
            learning: context.config.search.learn,
            calls: calls(rows),
            rows: rows.iter().map(row).collect(),
        }
    }
}

fn calls(rows: &[UsageRow]) -> u64 {
    rows.iter().map(|row| u64::from(row.count)).sum()
}

fn describe(rows: &[UsageRow], limit: usize, context: &Context) -> String {
    let off = if context.config.search.learn { "" } else { " Learning is off: no more is kept." };
    if rows.is_empty() {
        return format!("Nothing was learned from use yet.{off}\n");
    }
    let mut table = Rows::new(&["CALLS>", "QUERY", "TOOL", "LAST"]);
    for row in rows.iter().take(limit) {
        let count = number(row.count.into());
        let days = row.used_at.elapsed().unwrap_or_default().as_secs() / (24 * 60 * 60);
        let last = match days {
            0 => "today".to_owned(),
            days => format!("{} ago", counted(days as usize, "day")),
        };
        table.add(Style::new(), [&count, &row.query, &row.tool, &last]);
    }
    let more = rows.len().saturating_sub(limit);
    let more = if more > 0 { format!("and {} more\n", number(more as u64)) } else { String::new() };
    let (kept, calls) = (counted(rows.len(), "row"), counted(calls(rows) as usize, "call"));
    format!("{table}{more}\n{kept}, {calls} in all.{off}\n")
}
