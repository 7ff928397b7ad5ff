//! The `toolcrib` command.
//!
//! In reading order:
//!
//! 1. `args`: what may be asked for on the command line.
//! 2. `config`: what `toolcrib.toml` or another program's file may say, what is wrong where, and
//!    the servers it amounts to.
//! 3. `fleet`: the servers in use, asked for what they have and ended in the end.
//!    `embedder`: the embedder behind an address, if one is configured.
//! 4. `serve`, `builtin`: the gateway, and a built-in server as one of its own. `audit`: its log.
//! 5. `servers`, `call`, `doctor`: what servers have, do and lack. `demo`: all of it at once.
//!    `review`: what has changed in their definitions.
//! 6. `run`, `chat`: a model with the servers' tools. `model`: which one; `agent`: what both have in
//!    common; `follow`: one run as it is seen; `input`: lines from a person or a pipe.
//!    `sessions`: what is kept of chats.
//! 7. `sources`: the servers' tools, tool lists in files, or the built-in sample, for `tools`,
//!    `search`, `prompt` and `plan`. `eval`: how well `search` finds them.
//!    `usage`: what was learned from use.
//! 8. `client`: the MCP clients that are known, and where their files are, for `import` and
//!    `client_config`. `edit`: add and remove.
//! 9. `login`: at servers that want it; `browser`: bringing a person there.
//! 10. `output`: the one place that prints.

mod agent;
mod args;
mod audit;
mod browser;
mod builtin;
mod call;
mod chat;
mod client;
mod client_config;
mod config;
mod demo;
mod doctor;
mod edit;
mod embedder;
mod eval;
mod fleet;
mod follow;
mod import;
mod input;
mod login;
mod model;
mod output;
mod plan;
mod prompt;
mod review;
mod run;
mod sample;
mod search;
mod serve;
mod servers;
mod sessions;
mod sources;
mod telemetry;
mod tools;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command, Context};
use crate::config::Environment;

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
        Command::Builtin(builtin) => return builtin::run(builtin, &Environment::of_process()),
        Command::Demo(demo) => return demo::run(demo, &args.global),
        Command::Doctor(doctor) => return doctor::run(doctor, &args.global),
        _ => {}
    }
    let context = Context::new(&args.global)?;
    match &args.command {
        Command::Serve(args) => serve::run(args, &context),
        Command::Chat(args) => chat::run(args, &context),
        Command::Run(args) => run::run(args, &context),
        Command::Servers(args) => servers::run(args, &context),
        Command::Call(args) => call::run(args, &context),
        Command::Tools(args) => tools::run(args, &context),
        Command::Search(args) => search::run(args, &context),
        Command::Eval(args) => eval::run(args, &context),
        Command::Sessions(args) => sessions::run(args, &context),
        Command::Review(args) => review::run(args, &context),
        Command::Usage(args) => usage::run(args, &context),
        Command::Prompt(args) => prompt::run(args, &context),
        Command::Plan(args) => plan::run(args, &context),
        Command::ClientConfig(args) => client_config::run(args, &context),
        Command::Login(args) => login::log_in(args, &context),
        Command::Logout(args) => login::log_out(args, &context),
        Command::Builtin(_)
        | Command::Demo(_)
        | Command::Doctor(_)
        | Command::Config(_)
        | Command::Completions { .. }
        | Command::Import(_)
        | Command::Add(_)
        | Command::Remove(_) => Ok(()),
    }
}
