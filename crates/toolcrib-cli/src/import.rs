//! `toolcrib import`: the servers of other clients, gathered into toolcrib.toml.

mod plan;
mod source;

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;

use crate::args::Global;
use crate::client::Client;
use crate::config::{Environment, file_to_edit};
use crate::edit::{Document, config_option};
use crate::output::{self, DIM, GREEN, Misuse, Rows, counted, suggest};
use plan::Plan;
use source::Source;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib import                         what every client on this machine has
  toolcrib import --from cursor --yes     take over what Cursor has
  toolcrib import --from mcp.json --into toolcrib.toml --dry-run

Clients: claude-code, claude-desktop, cursor, vscode, codex, gemini, windsurf. Their files are
read, never changed.")]
pub(crate) struct ImportArgs {
    /// A client, or a file of one [default: every client]
    #[arg(long, value_name = "CLIENT|FILE")]
    from: Vec<String>,
    /// The file to write [default: --config, else toolcrib.toml here, else the user's]
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// Write without asking
    #[arg(long, short)]
    yes: bool,
    /// Show what would be written, and ask nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

pub(crate) fn run(args: &ImportArgs, global: &Global) -> anyhow::Result<()> {
    let env = Environment::of_process();
    let named = args.into.clone().or_else(|| global.config.clone());
    let into = named.clone().unwrap_or_else(|| file_to_edit(&env));
    let known = Document::open(into.clone())?.servers().clone();
    let sources = sources(&args.from, &env)?;
    if !global.quiet {
        sources.iter().flat_map(|source| &source.warnings).for_each(|text| output::warn(text));
    }
    let plan = Plan::new(&sources, &known);
    let shown = into.display().to_string();
    if !global.json {
        output::text(&describe(&plan, &sources, &shown))?;
    }
    if !global.quiet {
        plan.secret_warnings().iter().for_each(|text| output::warn(text));
    }
    let question = || format!("Write {} to {shown}?", counted(plan.adds.len(), "server"));
    let may_write = !plan.adds.is_empty()
        && !args.dry_run
        && (args.yes || !global.json && output::confirm(&question())?);
    if may_write {
        write(&sources, into)?;
    }
    if global.json {
        return output::json(&plan.to_json(&sources, &shown, may_write));
    }
    output::text(&match may_write {
        true => format!("Wrote {shown}.\n"),
        false if sources.is_empty() => {
            "`toolcrib add` adds a server by hand; `--from FILE` reads any mcp.json.\n".to_owned()
        }
        false if plan.adds.is_empty() => "There is nothing to write.\n".to_owned(),
        false => "Nothing was written; --yes writes it.\n".to_owned(),
    })?;
    if may_write && !global.quiet {
        let config = config_option(named.as_deref());
        output::note(&format!("`toolcrib doctor{config}` starts and checks them."));
    }
    Ok(())
}

/// Writes what the file lacks now: it may have changed while somebody thought about the answer.
fn write(sources: &[Source], into: PathBuf) -> anyhow::Result<()> {
    let mut document = Document::open(into)?;
    let plan = Plan::new(sources, document.servers());
    for add in &plan.adds {
        document.insert(&add.name, &add.entry);
    }
    let has_secrets = plan.adds.iter().any(|add| !add.entry.literal_secrets().is_empty());
    if has_secrets { document.save_private() } else { document.save() }
}

/// What was asked for, or everything there is.
fn sources(from: &[String], env: &Environment) -> anyhow::Result<Vec<Source>> {
    let here = env::current_dir().context("there is no current folder")?;
    if from.is_empty() {
        let files = Client::ALL
            .iter()
            .flat_map(|client| client.files(env, &here).into_iter().map(|file| (*client, file)));
        return Ok(files.filter_map(|(client, file)| Source::of_client(client, file)).collect());
    }
    let mut sources = Vec::new();
    for given in from {
        let Ok(client) = Client::from_str(given, true) else {
            sources.push(named_file(given)?);
            continue;
        };
        let files = client.files(env, &here);
        let found = files.iter().filter_map(|file| Source::of_client(client, file.clone()));
        let found: Vec<Source> = found.collect();
        if found.is_empty() {
            let places: BTreeSet<String> =
                files.iter().map(|file| file.path.display().to_string()).collect();
            let places: Vec<String> = places.into_iter().collect();
            let title = client.title();
            anyhow::bail!("there is no configuration of {title}; looked for {}", places.join(", "));
        }
        sources.extend(found);
    }
    Ok(sources)
}

fn named_file(given: &str) -> anyhow::Result<Source> {
    let path = PathBuf::from(given);
    if !path.exists() && !given.contains(['/', '.']) {
        let ids: Vec<&str> = Client::ALL.iter().map(|client| client.id()).collect();
        let hint = suggest(given, ids.iter().copied())
            .unwrap_or_else(|| format!("; clients are {}", ids.join(", ")));
        return Err(Misuse::new(format!("`{given}` is neither a client nor a file{hint}")).into());
    }
    Ok(Source::of_file(&path).map_err(Misuse::new)?)
}

fn describe(plan: &Plan, sources: &[Source], into: &str) -> String {
    let mut text = String::new();
    if sources.is_empty() {
        text.push_str("There is no client's configuration on this machine.\n");
    }
    for source in sources {
        let count = counted(source.servers.len(), "server");
        let path = output::one_line(&source.path.display().to_string());
        let _ = writeln!(text, "{}: {DIM}{path}{DIM:#}, {count}", source.title());
    }
    if !plan.adds.is_empty() {
        let _ = writeln!(text, "\nFor {into}:");
        let mut rows = Rows::new(&["server", "from", "starts or connects to"]);
        for add in &plan.adds {
            let state = if add.entry.enabled { "" } else { " (disabled)" };
            let from = add.from.join(", ");
            rows.add(GREEN, [&add.name, &from, &format!("{}{state}", add.entry.shown())]);
        }
        let _ = write!(text, "{rows}");
    }
    if !plan.skips.is_empty() {
        let mut rows = Rows::new(&["left out", "from", "because"]);
        for skip in &plan.skips {
            rows.add(DIM, [&skip.name, &skip.place, &skip.reason]);
        }
        let _ = write!(text, "\n{rows}");
    }
    text.push('\n');
    text
}
