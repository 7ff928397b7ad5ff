//! `toolcrib add` and `toolcrib remove`: servers in and out of toolcrib.toml.

mod document;

use std::path::Path;

use indexmap::IndexMap;
use serde_json::json;

pub(crate) use document::Document;

use crate::args::Global;
use crate::config::{Environment, Secret, ServerEntry, file_to_edit};
use crate::output::{self, Misuse, shell_word, suggest};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "\
Examples:
  toolcrib add time -- uvx mcp-server-time
  toolcrib add github --env GITHUB_TOKEN -- npx -y @modelcontextprotocol/server-github
  toolcrib add docs --url https://docs.example.com/mcp --header 'X-Key: ${KEY}'",
    override_usage = "toolcrib add [OPTIONS] <NAME> -- <COMMAND>...\n       \
                      toolcrib add [OPTIONS] <NAME> --url <URL>",
    group(clap::ArgGroup::new("launch").required(true).args(["command", "url"]))
)]
pub(crate) struct AddArgs {
    /// What to call the server
    name: String,
    /// An environment variable for it; without a value, the one of that name is passed on
    #[arg(long, value_name = "NAME[=VALUE]", requires = "command")]
    env: Vec<String>,
    /// The address of a server that runs already
    #[arg(long)]
    url: Option<String>,
    /// A header to send it; `${NAME}` in the value is an environment variable
    #[arg(long, value_name = "NAME: VALUE", requires = "url")]
    header: Vec<String>,
    /// One line on what the server can do
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Send all its tools in full
    #[arg(long)]
    eager: bool,
    /// Replace a server of that name
    #[arg(long)]
    force: bool,
    /// The command that starts it, behind `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  toolcrib remove weather")]
pub(crate) struct RemoveArgs {
    /// The server's name
    name: String,
}

impl AddArgs {
    fn entry(&self) -> Result<ServerEntry, Misuse> {
        let mut words = self.command.iter().cloned();
        Ok(ServerEntry {
            command: words.next().map(|command| from_anywhere(&command)),
            args: words.collect(),
            env: self.env.iter().map(|given| variable(given)).collect::<Result<_, _>>()?,
            url: self.url.clone(),
            headers: self.header.iter().map(|given| header(given)).collect::<Result<_, _>>()?,
            description: self.description.clone(),
            eager: self.eager,
            ..ServerEntry::default()
        })
    }
}

/// Clients start toolcrib in folders of their own, where a relative path would lead nowhere.
fn from_anywhere(command: &str) -> String {
    let path = Path::new(command);
    if path.is_absolute() || path.components().count() < 2 && !command.starts_with('.') {
        return command.to_owned();
    }
    let absolute = path.is_file().then(|| std::path::absolute(path).ok()).flatten();
    absolute.map_or_else(|| command.to_owned(), |path| path.to_string_lossy().into_owned())
}

fn variable(given: &str) -> Result<(String, Secret), Misuse> {
    match given.split_once('=') {
        Some(("", _)) => Err(Misuse::new("--env: expected NAME=VALUE or NAME")),
        Some((name, value)) => Ok((name.to_owned(), Secret::new(value))),
        None => Ok((given.to_owned(), Secret::new(format!("${{{given}}}")))),
    }
}

fn header(given: &str) -> Result<(String, Secret), Misuse> {
    let (name, value) = given
        .split_once(':')
        .ok_or_else(|| Misuse::new("--header: expected a name and a value, as in 'X-Key: abc'"))?;
    Ok((name.trim().to_owned(), Secret::new(value.trim())))
}

pub(crate) fn add(args: &AddArgs, global: &Global) -> anyhow::Result<()> {
    let entry = args.entry()?;
    if let Some((key, message)) = entry.fault(&args.name) {
        let key = key.map_or(String::new(), |key| format!("`{key}`: "));
        return Err(Misuse::new(format!("{key}{message}")).into());
    }
    let mut document = open(global)?;
    let shown = document.shown();
    let name = &args.name;
    let is_there = document.servers().contains_key(name);
    if is_there && !args.force {
        let text = format!("{shown} has a server `{name}` already; --force replaces it");
        return Err(Misuse::new(text).into());
    }
    let is_new_file = document.is_new();
    document.insert(name, &entry);
    document.save()?;
    if !global.quiet {
        for secret in entry.literal_secrets() {
            output::warn(&format!(
                "the value of `{secret}` is written out in {shown}; as ${{VAR}} it would stay in \
                 the environment"
            ));
        }
    }
    if global.json {
        let value =
            json!({"file": shown, "server": name, "replaced": is_there, "created": is_new_file});
        return output::json(&value);
    }
    let verb = if is_there { "Replaced" } else { "Added" };
    output::text(&format!("{verb} server `{}` in {shown}.\n", output::one_line(name)))?;
    if !global.quiet {
        let name = shell_word(name);
        let config = config_option(global.config.as_deref());
        output::note(&format!("`toolcrib doctor {name}{config}` starts and checks it."));
    }
    Ok(())
}

pub(crate) fn remove(args: &RemoveArgs, global: &Global) -> anyhow::Result<()> {
    let mut document = open(global)?;
    let shown = document.shown();
    let name = &args.name;
    if !document.remove(name) {
        return Err(Misuse::new(unknown(name, &shown, document.servers())).into());
    }
    document.save()?;
    if global.json {
        return output::json(&json!({"file": shown, "server": name}));
    }
    output::text(&format!("Removed server `{}` from {shown}.\n", output::one_line(name)))
}

/// What to add to a command that is to use this file, if it would not by itself.
pub(crate) fn config_option(file: Option<&Path>) -> String {
    let option = |file: &Path| format!(" --config {}", shell_word(&file.display().to_string()));
    file.map(option).unwrap_or_default()
}

fn unknown(name: &str, file: &str, servers: &IndexMap<String, ServerEntry>) -> String {
    let names: Vec<&str> = servers.keys().map(String::as_str).collect();
    let hint = suggest(name, names.iter().copied()).unwrap_or_else(|| match names.len() {
        0 => "; it has none".to_owned(),
        _ => format!("; it has {}", names.join(", ")),
    });
    format!("{file} has no server `{name}`{hint}")
}

/// The file that was named, or the one that would be read.
fn open(global: &Global) -> anyhow::Result<Document> {
    let default = || file_to_edit(&Environment::of_process());
    Document::open(global.config.clone().unwrap_or_else(default))
}
