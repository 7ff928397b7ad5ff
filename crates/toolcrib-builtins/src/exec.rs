//! Commands, through the shell.
//!
//! Where a command starts is confined to the roots; what it does there is not. So this server is
//! offered only where somebody asked for it, and an agent asks before it calls.

mod command;
mod output;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::builtin::Options;
use crate::error::{BuiltinError, Failure, check_size};
use crate::roots::Roots;
use crate::tool::{Effect, Tool, Tools};
use command::{Done, ShellCommand};

/// Less than an agent waits for a call, ten minutes, so that what was printed is told.
const MOST_SECONDS: u64 = 570;
const LONGEST_COMMAND: usize = 64 * 1024;
const LONGEST_STDIN: usize = 1024 * 1024;

pub(crate) fn tools(options: &Options) -> Result<Vec<Tool>, BuiltinError> {
    let shell =
        Shell { roots: Roots::new("exec", options)?, environment: options.environment.clone() };
    Ok(Tools::new(shell).waiting(RUN_COMMAND, Effect::DoesAnything, run_command).into_tools())
}

/// Where commands may start, and what they find there.
struct Shell {
    roots: Roots,
    environment: BTreeMap<String, String>,
}

const RUN_COMMAND: (&str, &str) = (
    "run_command",
    "Run a command line with the shell (sh) and get its exit status, standard output and standard \
     error. Use it to build, test, run scripts and programs. Nobody answers questions it asks; what \
     still runs in the background when the command ends is ended too.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunCommand {
    /// The command line, as typed at a prompt; it may have several lines.
    #[schemars(length(min = 1))]
    command: String,
    /// The folder to run it in, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    cwd: String,
    /// After how many seconds it is ended.
    #[serde(default = "minute")]
    #[schemars(range(min = 1, max = 570))]
    timeout_seconds: u64,
    /// What it reads from standard input; nothing unless given.
    stdin: Option<String>,
}

fn here() -> String {
    ".".to_owned()
}

fn minute() -> u64 {
    60
}

async fn run_command(shell: Arc<Shell>, arguments: RunCommand) -> Result<String, Failure> {
    let RunCommand { command: line, cwd, timeout_seconds, stdin } = arguments;
    if line.trim().is_empty() {
        return Err(Failure::invalid("The command is empty."));
    }
    check_size("The command", &line, LONGEST_COMMAND)?;
    check_size("The standard input", stdin.as_deref().unwrap_or_default(), LONGEST_STDIN)?;
    let folder = shell.roots.existing(&cwd)?;
    if !folder.is_dir() {
        return Err(Failure::invalid(format!("`{cwd}` is not a folder.")));
    }
    let seconds = timeout_seconds.clamp(1, MOST_SECONDS);
    let done = ShellCommand { line, folder, stdin, seconds }.run(&shell.environment).await?;
    let Done { status, stdout, stderr } = done;
    let mut text = match status {
        Some(status) => format!("{}.", command::in_words(status)),
        None => format!("It took longer than {seconds} seconds and was ended."),
    };
    for (name, output) in [("stdout", stdout), ("stderr", stderr)] {
        if !output.is_empty() {
            text.push_str(&format!("\n\n{name}:\n{}", output.into_text().trim_end()));
        }
    }
    // A status other than 0 is an answer too; running out of time is none.
    if status.is_some() { Ok(text) } else { Err(Failure::Invalid(text)) }
}

#[cfg(test)]
mod tests;
