//! One run of the shell, and the end of all that it started.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{Instant, timeout, timeout_at};

use super::output::{Kept, keep};
use crate::error::Failure;

/// How long a command gets to end once it was told to.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait for the last output of a command that has ended. What it left behind may hold
/// the pipes open, so there must be an end to it.
const SETTLING: Duration = Duration::from_millis(500);

/// What a command is told at any rate: there is no terminal, and nobody who could be asked.
const TOLD: [(&str, &str); 5] = [
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("GIT_TERMINAL_PROMPT", "0"),
];

/// A command line, and how to run it.
pub(super) struct ShellCommand {
    pub(super) line: String,
    pub(super) folder: PathBuf,
    pub(super) stdin: Option<String>,
    pub(super) seconds: u64,
}

/// What came of it.
pub(super) struct Done {
    /// None if it ran out of time.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: Kept,
    pub(super) stderr: Kept,
}

impl ShellCommand {
    /// Runs to the end or to the time limit. Nothing of its process group is left afterwards, nor
    /// when this is dropped.
    pub(super) async fn run(self, environment: &BTreeMap<String, String>) -> Result<Done, Failure> {
        let until = Instant::now() + Duration::from_secs(self.seconds);
        let failed = |error: io::Error| {
            Failure::invalid(format!("The command can't be run by `sh`: {error}"))
        };
        let mut child = self.spawn(environment).map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (stdin, Some(out), Some(err)) = pipes else {
            return Err(Failure::invalid("The command gives no output."));
        };
        let mut group = Group::led_by(child);
        let (mut stdout, mut stderr) = (Kept::default(), Kept::default());
        let status = {
            let mut pipes = Box::pin(async {
                let feeding = feed(stdin, self.stdin.unwrap_or_default());
                tokio::join!(feeding, keep(out, &mut stdout), keep(err, &mut stderr));
            });
            let ending = async {
                match timeout_at(until, group.child.wait()).await {
                    Ok(status) => status.map(Some),
                    Err(_) => {
                        group.signal(Signal::TERM);
                        let _ = timeout(PATIENCE, group.child.wait()).await;
                        Ok(None)
                    }
                }
            };
            tokio::pin!(ending);
            // The pipes may close first, or stay open after the end.
            let status = tokio::select! {
                status = &mut ending => {
                    let _ = timeout(SETTLING, &mut pipes).await;
                    status
                }
                () = &mut pipes => ending.await,
            };
            status.map_err(failed)?
        };
        drop(group);
        Ok(Done { status, stdout, stderr })
    }

    /// In a session of its own, so that it has no terminal: it could ask for a password there, or
    /// write over what a person reads. Where no program makes one, in a group of its own.
    fn spawn(&self, environment: &BTreeMap<String, String>) -> io::Result<Child> {
        let mut command = Command::new("setsid");
        // It begins the session itself, and so leads the group, as long as it leads none already.
        let session = self.prepared(command.arg("sh"), environment).spawn();
        match session {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.prepared(Command::new("sh").process_group(0), environment).spawn()
            }
            session => session,
        }
    }

    fn prepared<'c>(
        &self,
        command: &'c mut Command,
        environment: &BTreeMap<String, String>,
    ) -> &'c mut Command {
        // The line is no option, whatever it begins with.
        command.args(["-c", "--", &self.line]).current_dir(&self.folder);
        command.env_clear().envs(environment).envs(TOLD);
        let stdin = if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true)
    }
}

/// Writes what the command may read, as far as it does.
async fn feed(stdin: Option<ChildStdin>, text: String) {
    if let Some(mut stdin) = stdin {
        // A command that doesn't read to the end is none of our business.
        let _ = stdin.write_all(text.as_bytes()).await;
    }
}

/// A process and all it started that didn't leave its group; killed when this is dropped.
struct Group {
    child: Child,
    id: Option<Pid>,
}

impl Group {
    fn led_by(child: Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Self { child, id }
    }

    fn signal(&self, signal: Signal) {
        if let Some(id) = self.id {
            // Usually nobody is left to be told.
            let _ = kill_process_group(id, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// How a command ended.
pub(super) fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("Exit status {code}"),
        (None, Some(signal)) => format!("Ended by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
