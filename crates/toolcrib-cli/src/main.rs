//! The `toolcrib` command.
//!
//! In reading order:
//!
//! 1. `args`: what may be asked for on the command line.
//! 2. `config`: what `toolcrib.toml` or another program's file may say, what is wrong where, and
//!    the servers it amounts to.
//! 3. `sources`: tool lists, read from files or from the built-in sample.
//! 4. `client`: the MCP clients that are known, and where their files are.
//! 5. `tools`, `search`, `prompt`, `plan`, `import`, `edit` (add and remove), `client_config`: one
//!    file per command.
//! 6. `output`: the one place that prints.

mod args;
mod client;
mod client_config;
mod config;
mod edit;
mod import;
mod output;
mod plan;
mod prompt;
mod sample;
mod search;
mod sources;
mod tools;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command, Context};

fn main() -> ExitCode {
    let args = Args::parse();
    output::set_color(args.global.color);
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::fail(&error),
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    // These are for when the configuration can't be read, or there is none.
    match &args.command {
        Command::Config(command) => return config::run(command, &args.global),
        Command::Completions { shell } => return args::completions(*shell),
        Command::Import(import) => return import::run(import, &args.global),
        Command::Add(add) => return edit::add(add, &args.global),
        Command::Remove(remove) => return edit::remove(remove, &args.global),
        _ => {}
    }
    let context = Context::new(&args.global)?;
    match &args.command {
        Command::Tools(args) => tools::run(args, &context),
        Command::Search(args) => search::run(args, &context),
        Command::Prompt(args) => prompt::run(args, &context),
        Command::Plan(args) => plan::run(args, &context),
        Command::ClientConfig(args) => client_config::run(args, &context),
        Command::Config(_)
        | Command::Completions { .. }
        | Command::Import(_)
        | Command::Add(_)
        | Command::Remove(_) => Ok(()),
    }
}
