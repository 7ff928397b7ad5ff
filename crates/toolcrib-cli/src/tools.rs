//! `toolcrib tools`: what every tool costs, what is sent and what waits.

mod totals;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;
use toolcrib::{EagerReason, Engine, Policy, PolicyRules, Session, Tool, View};

use crate::args::{Context, EngineArgs};
use crate::output::{self, DIM, GREEN, Misuse, Rows, number};
use crate::sources::{ToolArgs, load_view};
use totals::Totals;

/// What a conversation's first request sends of each tool
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib tools                          those of your servers, or a built-in sample
  toolcrib tools --tools servers/ --by server
  toolcrib tools issue                    names that contain `issue`
  toolcrib tools 'git/*' --sort tokens    one server, the largest first
  toolcrib tools --provider-class local --why
  toolcrib tools --json | jq .totals

The totals are those of all tools, whatever the filter.")]
pub(crate) struct ToolsArgs {
    /// Only tools whose name contains this, or matches it if it has `*`, `?`, `[` or `{`
    filter: Option<String>,
    #[command(flatten)]
    source: ToolArgs,
    /// One row per server instead of one per tool
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
    /// Order of the rows
    #[arg(long, default_value = "name")]
    sort: Sort,
    /// Say why a tool is sent in full
    #[arg(long)]
    why: bool,
    #[command(flatten)]
    engine: EngineArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Name,
    Tokens,
}

pub(crate) fn run(args: &ToolsArgs, context: &Context) -> anyhow::Result<()> {
    let engine = args.engine.engine(&context.config)?;
    let view = load_view(&args.source, context)?;
    let shown = match &args.filter {
        Some(filter) => matching(&view, filter)?,
        None => view.tools().cloned().collect(),
    };
    let mut dashboard = Dashboard::new(&engine, &view, &shown)?;
    if args.sort == Sort::Tokens {
        dashboard.tools.sort_by_key(|row| std::cmp::Reverse(row.tokens));
    }
    if args.by.is_some() {
        dashboard.servers = Some(by_server(&dashboard.tools, args.sort));
    }
    if context.json {
        return output::json(&dashboard);
    }
    output::text(&dashboard.table(args))
}

fn matching(view: &View, filter: &str) -> anyhow::Result<Vec<Arc<Tool>>> {
    if filter.contains(['*', '?', '[', '{']) {
        let allow_tools = Some(vec![filter.to_owned()]);
        let policy = Policy::new(PolicyRules { allow_tools, ..PolicyRules::default() });
        let policy = policy.map_err(Misuse::new)?;
        let named: HashSet<Arc<str>> =
            view.catalog().view(&policy).tools().map(|tool| tool.exposed().clone()).collect();
        return Ok(view.tools().filter(|tool| named.contains(tool.exposed())).cloned().collect());
    }
    let filter = filter.to_lowercase();
    let contains = |tool: &&Arc<Tool>| {
        let qualified =
            format!("{}/{}", tool.name().namespace().unwrap_or_default(), tool.name().tool());
        qualified.to_lowercase().contains(&filter)
            || tool.exposed().to_lowercase().contains(&filter)
    };
    Ok(view.tools().filter(contains).cloned().collect())
}

#[derive(Debug, Serialize)]
struct Dashboard {
    tools: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Vec<ServerRow>>,
    totals: Totals,
}

#[derive(Debug, Serialize)]
struct Row {
    name: Arc<str>,
    server: Option<String>,
    tool: String,
    source: &'static str,
    group: String,
    deferred: bool,
    loaded: bool,
    eager_reason: Option<String>,
    tokens: u64,
}

#[derive(Debug, Default, Serialize)]
struct ServerRow {
    server: String,
    tools: usize,
    deferred: usize,
    tokens: u64,
    deferred_tokens: u64,
}

impl Dashboard {
    fn new(engine: &Engine, view: &View, shown: &[Arc<Tool>]) -> anyhow::Result<Self> {
        let mut session = Session::new();
        engine.begin_turn(&mut session, view);
        let first = engine.prepare(&mut session, view).map_err(Misuse::new)?;
        let sent: HashSet<&Arc<str>> = first.tools.iter().map(|tool| tool.name()).collect();
        let deferring = session.is_deferred() == Some(true);
        let row = |tool: &Arc<Tool>| {
            let loaded = sent.contains(tool.exposed());
            let reason = engine.why_eager(tool, view).filter(|_| deferring && loaded);
            Row {
                name: tool.exposed().clone(),
                server: tool.name().namespace().map(str::to_owned),
                tool: tool.name().tool().to_owned(),
                source: tool.name().source().label(),
                group: tool.group().to_string(),
                deferred: !loaded,
                loaded,
                eager_reason: reason.as_ref().map(EagerReason::to_string),
                tokens: tool.tokens(),
            }
        };
        let totals = Totals::new(engine, &session, view, &first);
        Ok(Self { tools: shown.iter().map(row).collect(), servers: None, totals })
    }

    fn table(&self, args: &ToolsArgs) -> String {
        let mut text = match &self.servers {
            Some(servers) => server_table(servers).to_string(),
            None => self.tool_table(args.why).to_string(),
        };
        if self.tools.is_empty() {
            text = match &args.filter {
                Some(filter) => format!("No tool matches `{}`.\n", output::one_line(filter)),
                None => "There is no tool.\n".to_owned(),
            };
        }
        self.totals.write(&mut text, self.tools.len());
        text
    }

    fn tool_table(&self, why: bool) -> Rows {
        let mut titles = vec!["TOOL", "SOURCE", "GROUP", "STATE", "LOADED", "TOKENS>"];
        titles.extend(why.then_some("WHY"));
        let mut rows = Rows::new(&titles);
        for row in &self.tools {
            let (state, style) = match (row.deferred, &row.eager_reason) {
                (true, _) => ("deferred", DIM),
                (false, Some(_)) => ("eager", GREEN),
                (false, None) => ("full", GREEN),
            };
            let loaded = if row.loaded { "yes" } else { "-" };
            let tokens = number(row.tokens);
            let mut cells = vec![&*row.tool, row.source, &row.group, state, loaded, &tokens];
            cells.extend(why.then(|| row.eager_reason.as_deref().unwrap_or_default()));
            rows.add(style, cells);
        }
        rows
    }
}

fn by_server(tools: &[Row], sort: Sort) -> Vec<ServerRow> {
    let mut servers: BTreeMap<&str, ServerRow> = BTreeMap::new();
    for tool in tools {
        let name = tool.server.as_deref().unwrap_or(&tool.group);
        let row = servers.entry(name).or_default();
        row.server = name.to_owned();
        row.tools += 1;
        row.tokens += tool.tokens;
        if tool.deferred {
            row.deferred += 1;
            row.deferred_tokens += tool.tokens;
        }
    }
    let mut rows: Vec<ServerRow> = servers.into_values().collect();
    if sort == Sort::Tokens {
        rows.sort_by_key(|row| std::cmp::Reverse(row.tokens));
    }
    rows
}

fn server_table(servers: &[ServerRow]) -> Rows {
    let mut rows = Rows::new(&["SERVER", "TOOLS>", "DEFERRED>", "LOADED>", "TOKENS>", "WAITING>"]);
    for row in servers {
        let style = if row.deferred == row.tools { DIM } else { GREEN };
        let counts = [row.tools, row.deferred, row.tools - row.deferred];
        let counts = counts.map(|count| number(count as u64));
        let tokens = [row.tokens, row.deferred_tokens].map(number);
        rows.add(style, std::iter::once(&row.server).chain(&counts).chain(&tokens));
    }
    rows
}
