//! `toolcrib doctor`: every server started and checked, and how to mend what is wrong.

mod embedder;
mod report;
mod server;
mod surroundings;

use toolcrib::Toolset;
use toolcrib::mcp::Upstream;

use crate::args::{Context, Global};
use crate::fleet::{self, Fleet, ask_each};
use crate::output::{self, Misuse, Told, counted, number};
use crate::servers::tokens;
use report::{Check, Kind, Report};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib doctor                         everything
  toolcrib doctor git files               these servers
  toolcrib doctor --config mcp.json       another program's
  toolcrib doctor --json | jq '.checks[] | select(.ok | not)'

The exit code is 1 if something has to be mended; advice alone does not count.")]
pub(crate) struct DoctorArgs {
    /// Only these servers
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
}

pub(crate) fn run(args: &DoctorArgs, global: &Global) -> anyhow::Result<()> {
    let mut report = Report::default();
    match Context::new(global) {
        Ok(context) => {
            report.checks.push(surroundings::configuration(&context));
            let checks = fleet::with(&context, async |fleet| examine(args, fleet, &context).await);
            report.checks.extend(checks?);
        }
        Err(error) => report.checks.push(surroundings::unreadable(&error)),
    }
    report.checks.push(surroundings::environment());
    let is_ok = report.is_ok();
    if global.json {
        output::json(&report)?;
    } else {
        output::text(&report.describe())?;
    }
    if is_ok { Ok(()) } else { Err(Told.into()) }
}

async fn examine(
    args: &DoctorArgs,
    fleet: &Fleet,
    context: &Context,
) -> anyhow::Result<Vec<Check>> {
    let unusable = fleet.unusable.iter().map(|(name, _)| name.as_str());
    let known: Vec<&str> = fleet.names().into_iter().chain(unusable).collect();
    let known: Vec<&str> =
        known.into_iter().chain(fleet.disabled.iter().map(String::as_str)).collect();
    if let Some(name) = args.servers.iter().find(|name| !known.contains(&name.as_str())) {
        let near = output::suggest(name, known.iter().copied()).unwrap_or_default();
        return Err(Misuse::new(format!("there is no server `{name}`{near}")).into());
    }
    let is_meant = |name: &str| args.servers.is_empty() || args.servers.iter().any(|it| it == name);

    let meant = fleet.servers.iter().filter(|server| is_meant(&server.config().name));
    let meant: Vec<Upstream> = meant.cloned().collect();
    let asked = ask_each(&meant, context, |server| async move {
        let began = std::time::Instant::now();
        // A program that is not there need not be started to know that.
        let checked = match server::missing_program(server.config()) {
            Some(_) => Ok(()),
            None => server.check().await,
        };
        (checked, began.elapsed())
    });
    let mut checks = Vec::new();
    for (server, (checked, took)) in asked.await {
        let held = fleet.held(&server).await;
        checks.push(server::examine(&server, checked, took, &held));
    }
    server::compare(&meant, &mut checks);
    for builtin in fleet.builtins.iter().filter(|it| is_meant(it.builtin().name())) {
        let specs = builtin.list().await.map(|listing| listing.specs).unwrap_or_default();
        let tools = counted(specs.len(), "tool");
        let tokens = number(tokens(builtin.id(), specs));
        let summary = format!("built in: {tools}, {tokens} tokens");
        checks.push(Check::new(Kind::Server, builtin.builtin().name(), summary));
    }
    for (name, reason) in fleet.unusable.iter().filter(|(name, _)| is_meant(name)) {
        let mut check = Check::new(Kind::Server, name, "can't be used");
        let fix = match context.config.servers.contains_key(name) {
            true if reason.ends_with("is not set") => {
                "set it where toolcrib is started, or write `${NAME:-default}` in the entry"
            }
            true => "correct its entry in the configuration, or disable it there",
            false => "set HOME or XDG_DATA_HOME, so that it has a place to keep things",
        };
        check.problem(reason, fix);
        checks.push(check);
    }
    for name in fleet.disabled.iter().filter(|name| is_meant(name)) {
        checks.push(Check::new(Kind::Server, name, "disabled: not started"));
    }
    if args.servers.is_empty() {
        checks.extend(embedder::examine(context).await);
    }
    // Everything is written by now, or can't be.
    fleet.shut_down().await;
    checks.push(surroundings::cache(fleet));
    Ok(checks)
}
