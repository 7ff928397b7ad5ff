//! `toolcrib client-config`: what to paste into a client's configuration.

use std::env;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::args::Context;
use crate::client::Client;
use crate::output::{self, Misuse, shell_word};

/// What the entry is called at the client's.
const NAME: &str = "toolcrib";

/// What stands for the caller's token, which is known here by its hash only.
const TOKEN: &str = "YOUR_TOKEN";

/// The variable that a client takes it from if it has a place for one.
pub(crate) const TOKEN_VARIABLE: &str = "TOOLCRIB_TOKEN";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib client-config claude-code         the client starts toolcrib
  toolcrib client-config vscode --http       the client connects to `toolcrib serve`")]
pub(crate) struct ClientConfigArgs {
    /// The client
    client: Client,
    /// Connect to a running `toolcrib serve` in place of starting one
    #[arg(long)]
    http: bool,
    /// The address to connect to, if it is not the configured one
    #[arg(long)]
    url: Option<String>,
}

/// How the client gets to toolcrib.
enum Way {
    Start { command: String, args: Vec<String> },
    Connect { url: String, has_token: bool },
}

pub(crate) fn run(args: &ClientConfigArgs, context: &Context) -> anyhow::Result<()> {
    let gateway = &context.config.gateway;
    let has_token = !gateway.token_hashes().is_empty();
    let way = match &args.url {
        Some(url) => Way::Connect { url: url.clone(), has_token },
        None if args.http => Way::Connect { url: url(gateway.http), has_token },
        None => start(args.client, context)?,
    };
    let snippet = snippet(args.client, &way)?;
    let here = env::current_dir().context("there is no current folder")?;
    let files = args.client.files_of_this_system(&context.env, &here);
    let files: Vec<PathBuf> = files.into_iter().map(|file| file.path).collect();
    let text = match args.client {
        Client::Codex => toml::to_string(&snippet)?,
        _ => format!("{}\n", serde_json::to_string_pretty(&snippet)?),
    };
    if context.json {
        let value =
            json!({"client": args.client.id(), "files": files, "snippet": snippet, "text": text});
        return output::json(&value);
    }
    notes(args.client, &way, &files, context).iter().for_each(|note| context.note(note));
    output::text(&text)
}

/// What a person should know besides.
fn notes(client: Client, way: &Way, files: &[PathBuf], context: &Context) -> Vec<String> {
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let place =
        if files.is_empty() { String::new() } else { format!(", in {}", files.join(" or ")) };
    let mut notes = vec![format!("For {}{place}:", client.title())];
    if client == Client::ClaudeCode {
        notes.push(format!("(or run: {})", in_claudes_words(way)));
    }
    match way {
        Way::Start { .. } if context.config.servers.is_empty() => notes.push(
            "No servers are configured, so the client gets the built-in ones, over the folder it \
             runs in. `toolcrib import` or `toolcrib add` bring yours."
                .to_owned(),
        ),
        Way::Connect { has_token: true, .. } => notes.push(match client {
            Client::Codex => format!("Codex takes the token from the variable {TOKEN_VARIABLE}."),
            _ => format!("Your token goes in the place of {TOKEN}."),
        }),
        _ => {}
    }
    notes
}

fn in_claudes_words(way: &Way) -> String {
    match way {
        Way::Start { command, args } => {
            let words = std::iter::once(command).chain(args).map(|word| shell_word(word));
            format!("claude mcp add {NAME} -- {}", words.collect::<Vec<_>>().join(" "))
        }
        Way::Connect { url, has_token } => {
            let url = shell_word(url);
            let header = format!(" --header 'Authorization: Bearer {TOKEN}'");
            let header = if *has_token { &*header } else { "" };
            format!("claude mcp add --transport http {NAME} {url}{header}")
        }
    }
}

/// Where a client on this machine finds what listens on this address.
pub(crate) fn url(listened: SocketAddr) -> String {
    let mut address = listened;
    if address.ip().is_unspecified() {
        address.set_ip(match listened {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    format!("http://{address}/mcp")
}

/// Clients run in folders and with paths of their own, so both are spelt out where they matter.
fn start(client: Client, context: &Context) -> anyhow::Result<Way> {
    let program = env::current_exe()?;
    let paths = context.env.get("PATH").map(|paths| env::split_paths(paths).collect::<Vec<_>>());
    let is_found = !client.is_app()
        && paths.unwrap_or_default().iter().any(|folder| is_same(&folder.join(NAME), &program));
    let command = if is_found { NAME.to_owned() } else { program.to_string_lossy().into_owned() };
    let mut args = vec!["serve".to_owned(), "--stdio".to_owned()];
    let users = context.env.config_home().map(|folder| folder.join(NAME));
    if let Some(file) = &context.config.file
        && file.parent() != users.as_deref()
    {
        args.extend(["--config".to_owned(), file.to_string_lossy().into_owned()]);
    }
    Ok(Way::Start { command, args })
}

fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(a).is_some_and(|a| Some(a) == real(b))
}

fn snippet(client: Client, way: &Way) -> Result<Value, Misuse> {
    let mut entry = match way {
        Way::Start { command, args } => match client {
            Client::Vscode => json!({"type": "stdio", "command": command, "args": args}),
            _ => json!({"command": command, "args": args}),
        },
        Way::Connect { url, .. } => match client {
            Client::ClaudeCode | Client::Vscode => json!({"type": "http", "url": url}),
            Client::Cursor | Client::Codex => json!({"url": url}),
            Client::Gemini => json!({"httpUrl": url}),
            Client::Windsurf => json!({"serverUrl": url}),
            Client::ClaudeDesktop => {
                let text = "Claude Desktop's file has commands only; leave out --http and --url";
                return Err(Misuse::new(text));
            }
        },
    };
    if let Way::Connect { has_token: true, .. } = way {
        match client {
            Client::Codex => entry["bearer_token_env_var"] = TOKEN_VARIABLE.into(),
            _ => entry["headers"] = json!({"Authorization": format!("Bearer {TOKEN}")}),
        }
    }
    let table = match client {
        Client::Vscode => "servers",
        Client::Codex => "mcp_servers",
        _ => "mcpServers",
    };
    Ok(json!({table: {NAME: entry}}))
}
