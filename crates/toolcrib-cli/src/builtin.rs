//! `toolcrib builtin`: a built-in server as an MCP server of its own.

use std::path::PathBuf;

use anyhow::Context as _;
use toolcrib::builtins::{Builtin, BuiltinError, Options as BuiltinOptions};
use toolcrib::gateway::{Endpoint, Gateway, Options};
use toolcrib::{Crib, Naming, Settings};

use crate::config::Environment;
use crate::fleet::data_dir;
use crate::output::{self, Misuse};
use crate::serve;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example, for a client's configuration:
  toolcrib builtin files --root ~/projects

Servers: files, git, sqlite, notes, data, time, web. They need no key and no network, but for web.
And exec: the shell. Only the folder a command starts in is confined, not what it does.")]
pub(crate) struct BuiltinArgs {
    /// Which one
    #[arg(value_name = "SERVER")]
    server: Builtin,
    /// A folder that files, git and sqlite may use, and exec starts in; may be repeated
    /// [default: the current one]
    #[arg(long, value_name = "FOLDER")]
    root: Vec<PathBuf>,
    /// Where notes are kept [default: toolcrib in the user's data folder]
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Let web fetch from private addresses too
    #[arg(long)]
    allow_private_addresses: bool,
    /// Offer only tools that change nothing
    #[arg(long)]
    read_only: bool,
}

pub(crate) fn run(args: &BuiltinArgs, env: &Environment) -> anyhow::Result<()> {
    output::log(tracing::Level::WARN);
    let options = BuiltinOptions {
        environment: env.passed_on(&[]),
        roots: match args.root.as_slice() {
            [] => vec![std::env::current_dir().context("there is no current folder")?],
            roots => roots.to_vec(),
        },
        data_dir: args.data_dir.clone().or_else(|| data_dir(env)),
        allow_private_addresses: args.allow_private_addresses,
        read_only: args.read_only,
    };
    let tools = args.server.open(&options).map_err(|error| {
        let hint = match error {
            BuiltinError::NoDataDir { .. } => ": give --data-dir, or set HOME",
            _ => "",
        };
        Misuse::new(format!("{error}{hint}"))
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let crib = Crib::builder(Settings::default()).naming(Naming::Gateway).toolset(tools);
        let name = args.server.name();
        let mut options = Options::default();
        options.name = format!("toolcrib-{name}");
        // Its name says enough; a title would be read before every description in a catalog.
        options.title = None;
        let gateway = Gateway::new(crib.build().await?, options)?;
        let endpoint = Endpoint::Server(name.to_owned());
        anyhow::Ok(gateway.serve_stdio(endpoint, serve::ended()).await?)
    });
    runtime.shutdown_background();
    served
}
