//! Drives a gateway under load and checks every answer: `hostile` beside a server that misbehaves,
//! `soak` for long while servers are killed. Everything runs on the loopback.

mod beside;
mod client;
mod gateway;
mod reasons;
mod soak;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Drives a gateway under load and checks every answer.
#[derive(Parser)]
#[command(name = "toolcrib-load")]
struct Args {
    /// The folder of the programs to test with: toolcrib, toolcrib-hostile, toolcrib-fixture
    #[arg(long, value_name = "FOLDER", global = true)]
    bin: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Nine good servers under load, with and without a tenth that misbehaves, for every fault
    Hostile(beside::Args),
    /// Many clients of both eras for long, while servers are killed at random
    Soak(soak::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = async {
        let bin = match args.bin {
            // The programs run in folders of their own.
            Some(bin) => std::path::absolute(bin)?,
            None => own_folder()?,
        };
        match args.command {
            Command::Hostile(args) => beside::run(&bin, args).await,
            Command::Soak(args) => soak::run(&bin, args).await,
        }
    };
    let outcome = tokio::select! {
        outcome = outcome => outcome,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("toolcrib-load: {error:#}"));
            ExitCode::from(2)
        }
    }
}

fn own_folder() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    own.parent()
        .map(PathBuf::from)
        .ok_or_else(|| anyhow::anyhow!("name the programs' folder: --bin"))
}

/// A line for whoever watches.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn say(line: &str) {
    println!("{line}");
}
