//! `toolcrib servers`: what is known of every server, and what went wrong with it.

mod running;

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::builder::styling::Style;
use serde::Serialize;
use toolcrib::builtins::BuiltinTools;
use toolcrib::mcp::{Launch, Upstream, UpstreamState};
use toolcrib::{GroupId, Listing, Registry, ToolSpec, Toolset};

use crate::args::Context;
use crate::client_config::TOKEN_VARIABLE;
use crate::fleet::{self, Fleet, ask_each, register};
use crate::output::{self, BOLD, DIM, GREEN, RED, Rows, YELLOW, counted, number, one_line};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib servers                  those of which nothing is known are started and listed
  toolcrib servers --refresh        start and list all of them again
  toolcrib servers --offline        only what is known already
  toolcrib servers --json | jq '.servers[] | select(.state == \"failed\")'

States: known (its tools can be found; it is started when one is called), failed, configured
(nothing is known yet), unusable (the configuration is wrong), disabled, built-in. What is wrong
and how to mend it is for `toolcrib doctor` to say.

This starts servers of its own. `--url http://127.0.0.1:7171` asks a gateway that runs instead:
whether each server is ready, starting or down, its breaker (closed: calls get through; open: they
are refused for a while; probing: one finds out), calls, connections and tools held back.")]
pub(crate) struct ServersArgs {
    /// Start and list every server again
    #[arg(long, conflicts_with = "offline")]
    refresh: bool,
    /// Start nothing
    #[arg(long)]
    offline: bool,
    /// Show those of the gateway that runs at this address
    #[arg(long, value_name = "URL", conflicts_with_all = ["refresh", "offline"])]
    url: Option<String>,
    /// The environment variable with the token that the gateway wants
    #[arg(long, value_name = "NAME", default_value = TOKEN_VARIABLE, requires = "url")]
    token_env: String,
}

pub(crate) fn run(args: &ServersArgs, context: &Context) -> anyhow::Result<()> {
    if let Some(url) = &args.url {
        return running::show(url, &args.token_env, context);
    }
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
    /// Tools that are held back until they are approved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    held: Vec<String>,
    error: Option<String>,
    #[serde(skip)]
    start: Option<Duration>,
    #[serde(skip)]
    listed: Option<SystemTime>,
}

async fn rows(fleet: &Fleet) -> Vec<Row> {
    let mut rows = Vec::new();
    for server in &fleet.servers {
        rows.push(of_server(server, fleet.held(server).await));
    }
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

fn of_server(server: &Upstream, held: Vec<String>) -> Row {
    let status = server.status();
    let (state, error) = match status.state {
        UpstreamState::Configured => ("configured", None),
        UpstreamState::Known => ("known", None),
        UpstreamState::Starting => ("starting", None),
        UpstreamState::Running => ("running", None),
        UpstreamState::Failed(reason) => ("failed", Some(reason)),
    };
    let is_listed = status.listed_at.is_some();
    let is_held = |spec: &ToolSpec| held.iter().any(|tool| tool == spec.name().tool());
    let usable = || server.known_tools().into_iter().filter(|spec| !is_held(spec)).collect();
    let since_1970 = |time: SystemTime| Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs());
    Row {
        name: status.name,
        state,
        transport: Some(match server.config().launch {
            Launch::Command { .. } => "stdio",
            Launch::Http { .. } => "http",
        }),
        tools: is_listed.then(|| status.tools.saturating_sub(held.len())),
        tokens: is_listed.then(|| tokens(server.id(), usable())),
        start_ms: status.start_took.map(|took| took.as_millis() as u64),
        listed_at: status.listed_at.and_then(since_1970),
        protocol_version: status.protocol_version,
        version: status.version,
        quarantined: status.quarantined,
        held,
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
    text.push_str(&held_back(rows.iter().map(|row| (&*row.name, &*row.held))));
    text
}

/// Names of tools that are written out of those held back.
const MOST_HELD: usize = 10;

/// What to say of tools that are held back until they are approved, if any are.
fn held_back<'a>(servers: impl Iterator<Item = (&'a str, &'a [String])>) -> String {
    let mut text = String::new();
    for (server, held) in servers.filter(|(_, held)| !held.is_empty()) {
        let tools = held.iter().take(MOST_HELD).map(|tool| one_line(tool));
        let mut names: Vec<String> = tools.collect();
        if let Some(more @ 1..) = held.len().checked_sub(MOST_HELD) {
            names.push(format!("and {more} more"));
        }
        let (server, names) = (one_line(server), names.join(", "));
        let _ = writeln!(text, "{YELLOW}Held back until approved{YELLOW:#} of {server}: {names}");
    }
    if !text.is_empty() {
        text.push_str("`toolcrib review` shows what has changed, and approves it.\n");
    }
    text
}
