//! A server that is a child process.

mod pipes;
mod process;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::process::Command;
use tokio::sync::{oneshot, watch};

use crate::board::Board;
use crate::config::Environment;
use crate::stderr::Tail;
use pipes::{Outbox, STALLED};
pub(crate) use process::{Alive, Place};
use process::{Pipes, Process};

/// The pipes to a child process. When this is dropped, the process is ended.
pub(crate) struct ChildLink {
    outbox: Outbox,
    group: u32,
    /// Asks the process to end: by a word, or by being dropped.
    end: watch::Sender<bool>,
    exited: watch::Receiver<bool>,
}

/// Starts a program in a process group of its own.
pub(crate) fn spawn(
    command: &str,
    args: &[String],
    env: &Environment,
    cwd: Option<&Path>,
    board: &Arc<Board>,
    tail: &Tail,
    alive: Alive,
) -> Result<ChildLink, String> {
    let mut program = Command::new(command);
    program.args(args);
    if let Some(inherited) = &env.inherited {
        program.env_clear().envs(inherited);
    }
    program.envs(&env.own);
    if let Some(folder) = cwd {
        program.current_dir(folder);
    }
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    program.process_group(0).kill_on_drop(true);
    let tail = tail.begin();
    let mut child = program.spawn().map_err(|error| why_not(command, cwd, &error))?;
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take(), child.id());
    let (Some(stdin), Some(stdout), Some(stderr), Some(group)) = pipes else {
        return Err(format!("`{command}` has no pipes"));
    };
    let process = Process::new(child, group, alive);
    let (end, asked) = watch::channel(false);
    let (gone, told) = oneshot::channel();
    let (outbox, writing) = pipes::write(stdin, board.clone(), asked.clone(), told);
    let in_hand = Arc::<AtomicBool>::default();
    let (heard, said) = (board.clone(), tail.clone());
    let reading = pipes::read(stdout, heard, outbox.clone(), said, in_hand.clone(), STALLED);
    let reading = tokio::spawn(reading);
    let hearing = tokio::spawn(pipes::overhear(stderr, tail.clone()));
    let pipes = Pipes { reading, in_hand, hearing, writing, gone };
    let exited = process.oversee(asked, pipes, board.clone(), tail.clone());
    Ok(ChildLink { outbox, group, end, exited })
}

impl ChildLink {
    /// Queues a line. If it can't be written, the request is failed.
    pub(crate) fn send(&self, line: String, request: Option<u64>) {
        self.outbox.send(line, request);
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        (!*self.exited.borrow()).then_some(self.group)
    }

    /// Asks the process to end.
    pub(crate) fn end(&self) {
        self.end.send_replace(true);
    }

    /// Waits until it has ended.
    pub(crate) async fn exited(&self) {
        // An error means that nobody watches over the process any more, so it is gone.
        let _ = self.exited.clone().wait_for(|exited| *exited).await;
    }
}

/// Resolves when the process is asked to end, or nobody is left to ask.
async fn asked_to_end(asked: &mut watch::Receiver<bool>) {
    let _ = asked.wait_for(|asked| *asked).await;
}

/// Why a program can't be started, and what may help.
fn why_not(command: &str, cwd: Option<&Path>, error: &std::io::Error) -> String {
    if let Some(folder) = cwd.filter(|folder| !folder.is_dir()) {
        return format!("its folder {} does not exist; correct `cwd`", folder.display());
    }
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        return format!("`{command}` may not be run: {error}; make it executable");
    }
    if error.kind() != std::io::ErrorKind::NotFound {
        return format!("`{command}` could not be started: {error}");
    }
    let install = match command.rsplit('/').next().unwrap_or(command) {
        "npx" | "node" | "npm" => "install Node.js",
        "uvx" | "uv" => "install uv",
        "bunx" | "bun" => "install Bun",
        "deno" => "install Deno",
        "docker" => "install Docker",
        "python" | "python3" | "pipx" => "install Python",
        _ => "install it, or give its full path as `command`",
    };
    format!("command `{command}` was not found: {install}")
}
