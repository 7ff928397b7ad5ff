//! `toolcrib servers`: what is known of every server, and what went wrong with it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::styling::Style;
use serde::Serialize;
use toolcrib::builtins::BuiltinTools;
use toolcrib::mcp::{Launch, Upstream, UpstreamState};
use toolcrib::{GroupId, Listing, Registry, ToolSpec, Toolset};

use crate::args::Context;
use crate::fleet::{self, Fleet, ask_each, register};
use crate::output::{self, BOLD, DIM, GREEN, RED, Rows, counted, number};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib servers                  those of which nothing is known are started and listed
  toolcrib servers --refresh        start and list all of them again
  toolcrib servers --offline        only what is known already
  toolcrib servers --json | jq '.servers[] | select(.state == \"failed\")'

States: known (its tools can be found; it is started when one is called), failed, configured
(nothing is known yet), unusable (the configuration is wrong), disabled, built-in. What is wrong
and how to mend it is for `toolcrib doctor` to say.")]
pub(crate) struct ServersArgs {
    /// Start and list every server again
    #[arg(long, conflicts_with = "offline")]
    refresh: bool,
    /// Start nothing
    #[arg(long)]
    offline: bool,
}

pub(crate) fn run(args: &ServersArgs, context: &Context) -> anyhow::Result<()> {
    let rows = fleet::with(context, async |fleet| {
        fleet.warn_of_store(context);
        if !args.offline {
            ask(fleet, args.refresh, context).await;
        }
        // Before they are looked at: whether they run matters after this command, not during it.
        fleet.shut_down().await;
        Ok(rows(fleet).await)
    })?;
    if context.json {
        return output::json(&Report { servers: rows });
    }
    if context.config.servers.is_empty() {
        context.note(
            "No servers are configured, so these built-in ones are used. `toolcrib import` or \
             `toolcrib add` bring yours.",
        );
    }
    output::text(&describe(&rows))
}

/// Has servers list their tools; what comes of it is in their status.
async fn ask(fleet: &Fleet, refresh: bool, context: &Context) {
    let is_due = |server: &&Upstream| refresh || server.known().is_none();
    let due: Vec<Upstream> = fleet.servers.iter().filter(is_due).cloned().collect();
    ask_each(&due, context, |server| async move {
        let listed = if refresh {
            server.check().await
        } else {
            server.list().await.map(drop).map_err(|error| error.to_string())
        };
        listed.is_ok()
    })
    .await;
}

#[derive(Serialize)]
struct Report {
    servers: Vec<Row>,
}

#[derive(Debug, Default, Serialize)]
struct Row {
    name: String,
    state: &'static str,
    transport: Option<&'static str>,
    tools: Option<usize>,
    tokens: Option<u64>,
    start_ms: Option<u64>,
    /// In seconds since 1970.
    listed_at: Option<u64>,
    protocol_version: Option<String>,
    version: Option<String>,
    /// Tools that were left out, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    quarantined: Vec<(String, String)>,
    error: Option<String>,
    #[serde(skip)]
    start: Option<Duration>,
    #[serde(skip)]
    listed: Option<SystemTime>,
}

async fn rows(fleet: &Fleet) -> Vec<Row> {
    let mut rows: Vec<Row> = fleet.servers.iter().map(of_server).collect();
    for builtin in &fleet.builtins {
        rows.push(of_builtin(builtin).await);
    }
    rows.extend(fleet.unusable.iter().map(|(name, reason)| Row {
        name: name.clone(),
        state: "unusable",
        error: Some(reason.clone()),
        ..Row::default()
    }));
    let disabled = fleet.disabled.iter();
    rows.extend(disabled.map(|name| Row {
        name: name.clone(),
        state: "disabled",
        ..Row::default()
    }));
    rows
}

fn of_server(server: &Upstream) -> Row {
    let status = server.status();
    let (state, error) = match status.state {
        UpstreamState::Configured => ("configured", None),
        UpstreamState::Known => ("known", None),
        UpstreamState::Starting => ("starting", None),
        UpstreamState::Running => ("running", None),
        UpstreamState::Failed(reason) => ("failed", Some(reason)),
    };
    let is_listed = status.listed_at.is_some();
    let since_1970 = |time: SystemTime| Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs());
    Row {
        name: status.name,
        state,
        transport: Some(match server.config().launch {
            Launch::Command { .. } => "stdio",
            Launch::Http { .. } => "http",
        }),
        tools: is_listed.then_some(status.tools),
        tokens: is_listed.then(|| tokens(server.id(), server.known_tools())),
        start_ms: status.start_took.map(|took| took.as_millis() as u64),
        listed_at: status.listed_at.and_then(since_1970),
        protocol_version: status.protocol_version,
        version: status.version,
        quarantined: status.quarantined,
        error,
        start: status.start_took,
        listed: status.listed_at,
    }
}

async fn of_builtin(builtin: &BuiltinTools) -> Row {
    let specs = builtin.list().await.map(|listing| listing.specs).unwrap_or_default();
    Row {
        name: builtin.builtin().name().to_owned(),
        state: "built-in",
        tools: Some(specs.len()),
        tokens: Some(tokens(builtin.id(), specs)),
        ..Row::default()
    }
}

/// Tokens of all definitions.
pub(crate) fn tokens(id: GroupId, specs: Vec<ToolSpec>) -> u64 {
    let registry = Registry::default();
    register(&registry, id, Listing::new(specs));
    registry.catalog().view_all().tools().map(|tool| tool.tokens()).sum()
}

fn describe(rows: &[Row]) -> String {
    let titles = ["SERVER", "STATE", "TOOLS>", "TOKENS>", "START>", "LISTED", "LAST ERROR"];
    let mut table = Rows::new(&titles);
    for row in rows {
        let style = match row.state {
            "failed" | "unusable" => RED,
            "known" | "running" | "built-in" => GREEN,
            "configured" => Style::new(),
            _ => DIM,
        };
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.add(
            style,
            [
                row.name.clone(),
                row.state.to_owned(),
                or_dash(row.tools.map(|tools| number(tools as u64))),
                or_dash(row.tokens.map(number)),
                or_dash(row.start.map(output::duration)),
                or_dash(row.listed.map(|time| output::ago(time, SystemTime::now()))),
                row.error.clone().unwrap_or_default(),
            ],
        );
    }
    let sum = |count: fn(&Row) -> u64| rows.iter().map(count).sum::<u64>();
    let tools = sum(|row| row.tools.unwrap_or_default() as u64);
    let tokens = number(sum(|row| row.tokens.unwrap_or_default()));
    let servers = counted(rows.len(), "server");
    let tools = counted(tools as usize, "tool");
    let mut text =
        format!("{table}\n{BOLD}{servers}, {tools}{BOLD:#}; {tokens} tokens by o200k_base\n");
    if rows.iter().any(|row| matches!(row.state, "failed" | "unusable")) {
        text.push_str("Something is wrong: `toolcrib doctor` says what to do about it.\n");
    }
    text
}
