//! `toolcrib client-config`: what to paste into a client's configuration.

use std::env;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::args::Context;
use crate::client::Client;
use crate::output::{self, Misuse};

/// What the entry is called at the client's.
const NAME: &str = "toolcrib";

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
    Connect { url: String },
}

pub(crate) fn run(args: &ClientConfigArgs, context: &Context) -> anyhow::Result<()> {
    let way = match &args.url {
        Some(url) => Way::Connect { url: url.clone() },
        None if args.http => {
            Way::Connect { url: format!("http://{}/mcp", context.config.gateway.http) }
        }
        None => start(context)?,
    };
    let snippet = snippet(args.client, &way)?;
    let files = args.client.files(&context.env, &env::current_dir()?);
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
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    context.note(&format!("For {}, in {}:", args.client.title(), files.join(" or ")));
    if let (Client::ClaudeCode, Way::Start { command, args }) = (args.client, &way) {
        let args = args.join(" ");
        context.note(&format!("(or run: claude mcp add {NAME} -- {command} {args})"));
    }
    output::text(&text)
}

/// Clients run in folders and with paths of their own, so both are spelt out where they matter.
fn start(context: &Context) -> anyhow::Result<Way> {
    let program = env::current_exe()?;
    let paths = context.env.get("PATH").map(|paths| env::split_paths(paths).collect::<Vec<_>>());
    let is_found =
        paths.unwrap_or_default().iter().any(|folder| is_same(&folder.join(NAME), &program));
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
    let entry = match way {
        Way::Start { command, args } => match client {
            Client::Vscode => json!({"type": "stdio", "command": command, "args": args}),
            _ => json!({"command": command, "args": args}),
        },
        Way::Connect { url } => match client {
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
    let table = match client {
        Client::Vscode => "servers",
        Client::Codex => "mcp_servers",
        _ => "mcpServers",
    };
    Ok(json!({table: {NAME: entry}}))
}
