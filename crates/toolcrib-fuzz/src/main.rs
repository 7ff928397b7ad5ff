//! `toolcrib-fuzz`: the hunt as a program.

mod targets;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use toolcrib_fuzz::Hunt;

use targets::{TARGETS, Target};

/// Feeds mutated input to the gateway and to the client of servers.
#[derive(Parser)]
#[command(name = "toolcrib-fuzz")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Hunt.
    Run {
        /// Only these targets.
        targets: Vec<String>,
        /// How long each target is tried.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// The first seed; each case takes the next.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where to put what is found.
        #[arg(long, default_value = "found")]
        into: PathBuf,
    },
    /// Try one input again.
    Replay {
        /// The target.
        target: String,
        /// The input.
        file: PathBuf,
    },
    /// The names of the targets.
    List,
    /// Be a server that answers with what stands in a file.
    #[command(hide = true)]
    Answer {
        /// The answers.
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    match Args::parse().command {
        Command::List => {
            TARGETS.iter().for_each(|target| say(target.name));
            ExitCode::SUCCESS
        }
        Command::Answer { file } => targets::answer(&file),
        Command::Replay { target, file } => replay(&target, &file),
        Command::Run { targets, seconds, seed, into } => {
            let chosen = |target: &&Target| {
                targets.is_empty() || targets.iter().any(|name| name == target.name)
            };
            let mut is_clean = true;
            for target in TARGETS.iter().filter(chosen) {
                let hunt = Hunt::new(target.name, seed, Duration::from_secs(seconds), &into);
                match (target.hunt)(&hunt) {
                    Ok(cases) => say(&format!("{}: {cases} cases from seed {seed}", target.name)),
                    Err(found) => {
                        is_clean = false;
                        say(&format!("{}: {found}", target.name));
                    }
                }
            }
            if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn replay(target: &str, file: &std::path::Path) -> ExitCode {
    let (Some(target), Ok(input)) =
        (TARGETS.iter().find(|known| known.name == target), std::fs::read(file))
    else {
        say("no such target or file");
        return ExitCode::FAILURE;
    };
    let hunt = Hunt::new(target.name, 0, Duration::from_millis(1), &std::env::temp_dir());
    match (target.replay)(&hunt, input) {
        Ok(_) => {
            say("nothing happened");
            ExitCode::SUCCESS
        }
        Err(found) => {
            say(&found.what);
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}
