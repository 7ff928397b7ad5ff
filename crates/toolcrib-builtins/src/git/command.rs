//! One run of `git`, kept from running anything else.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::error::Failure;
use crate::roots::Roots;

const MOST_SECONDS: u64 = 30;
const MOST_OUTPUT: u64 = 256 * 1024;
const MOST_COMPLAINT: u64 = 4 * 1024;

/// Settings that could make git run a command, reach the network or ask a person, turned off.
const SETTINGS: [&str; 14] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "core.askPass=",
    "core.quotePath=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "diff.external=",
    "color.ui=false",
    "gc.auto=0",
    "protocol.allow=never",
    // A folder with the look of a repository, which anybody may write, is not taken for one.
    "safe.bareRepository=explicit",
];

/// What git must not take from the environment this process happens to have.
const VARIABLES: [&str; 15] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_EXTERNAL_DIFF",
    "GIT_EXEC_PATH",
    "GIT_PAGER",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
];

/// A repository that a path leads to.
pub(super) struct Repository {
    folder: PathBuf,
    ceilings: OsString,
    /// Filters that the repository itself defines, by name. They are commands; a person's own
    /// filters, such as those of LFS, are left alone.
    filters: Vec<String>,
}

/// What a run printed.
pub(super) struct Output {
    pub(super) text: String,
    pub(super) is_cut: bool,
}

impl Output {
    /// The text, with a word about what is missing.
    pub(super) fn into_text(self) -> String {
        let note = if self.is_cut { "\n[Cut here; ask for less.]" } else { "" };
        self.text + note
    }
}

impl Repository {
    pub(super) async fn open(roots: &Roots, path: &str) -> Result<Self, Failure> {
        let folder = roots.existing(path)?;
        if !folder.is_dir() {
            return Err(Failure::invalid(format!("`{path}` is not a folder.")));
        }
        // Without a ceiling git would look for a repository all the way up.
        let ceilings = std::env::join_paths(roots.ceilings())
            .map_err(|error| Failure::Git(format!("can't be confined to its folders: {error}")))?;
        let mut repository = Self { folder, ceilings, filters: Vec::new() };
        let local = ["config", "--null", "--show-scope", "--name-only", "--get-regexp"];
        let names = repository.run(&local, &["^filter\\."], &[0, 1]).await?.text;
        // Scope and name by turns, each ended by a NUL.
        let parts: Vec<&str> = names.split('\0').collect();
        for pair in parts.chunks_exact(2) {
            let name = pair[1].strip_prefix("filter.").and_then(|name| name.rsplit_once('.'));
            if let ("local" | "worktree", Some((name, _))) = (pair[0], name)
                && !repository.filters.iter().any(|known| known == name)
            {
                repository.filters.push(name.to_owned());
            }
        }
        Ok(repository)
    }

    /// Runs a subcommand. `words` are ours, `values` come from outside and go after them as they
    /// are: they must have been checked not to be options, or follow a `--`.
    pub(super) async fn git(&self, words: &[&str], values: &[&str]) -> Result<Output, Failure> {
        self.run(words, values, &[0]).await
    }

    async fn run(
        &self,
        words: &[&str],
        values: &[&str],
        expected: &[i32],
    ) -> Result<Output, Failure> {
        let mut command = self.command();
        command.args(words).args(values);
        let limit = Duration::from_secs(MOST_SECONDS);
        let run = tokio::time::timeout(limit, run(command)).await;
        let (code, output, complaint) = run.map_err(|_| Failure::TookTooLong(MOST_SECONDS))??;
        match code {
            Some(code) if !expected.contains(&code) => {
                let said = if complaint.trim().is_empty() { &output.text } else { &complaint };
                Err(Failure::Git(said.trim().to_owned()))
            }
            _ => Ok(output),
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.arg("--no-pager").arg("--literal-pathspecs").arg("--no-optional-locks");
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        for variable in VARIABLES {
            command.env_remove(variable);
        }
        // By the environment, because a name with `=` in it would end early after `-c`.
        let off = [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];
        let off =
            self.filters.iter().flat_map(|filter| off.map(|(key, value)| (filter, key, value)));
        let mut count = 0;
        for (filter, key, value) in off {
            command.env(format!("GIT_CONFIG_KEY_{count}"), format!("filter.{filter}.{key}"));
            command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        if count > 0 {
            command.env("GIT_CONFIG_COUNT", count.to_string());
        }
        command
            .env("GIT_CEILING_DIRECTORIES", &self.ceilings)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_EDITOR", "false")
            .env("LC_ALL", "C.UTF-8")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

/// Runs to the end, or to the limit on output. No exit code means that it was cut.
async fn run(mut command: Command) -> Result<(Option<i32>, Output, String), Failure> {
    let mut child = command.spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::Git("the `git` command is not installed on this machine".to_owned())
        }
        _ => Failure::Git(format!("can't be started: {error}")),
    })?;
    let failed = |error: io::Error| Failure::Git(format!("can't be read: {error}"));
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(Failure::Git("gives no output".to_owned()));
    };
    let complaints = async move {
        let mut stderr = stderr;
        let mut kept = Vec::new();
        (&mut stderr).take(MOST_COMPLAINT).read_to_end(&mut kept).await?;
        tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
        io::Result::Ok(String::from_utf8_lossy(&kept).into_owned())
    };
    let results = async {
        let mut bytes = Vec::new();
        stdout.take(MOST_OUTPUT + 1).read_to_end(&mut bytes).await?;
        let is_cut = bytes.len() as u64 > MOST_OUTPUT;
        bytes.truncate(MOST_OUTPUT as usize);
        if is_cut {
            child.start_kill()?;
        }
        let code = child.wait().await?.code();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        io::Result::Ok((code, Output { text, is_cut }))
    };
    let (results, complaints) = tokio::join!(results, complaints);
    let (code, output) = results.map_err(failed)?;
    let complaint = complaints.map_err(failed)?;
    match code {
        None if !output.is_cut => Err(Failure::Git("was killed".to_owned())),
        // A writer that notices the closed pipe may fail before it is killed.
        Some(_) if output.is_cut => Ok((None, output, complaint)),
        code => Ok((code, output, complaint)),
    }
}

/// Refuses what git would take for an option, or for something else than one revision.
pub(super) fn check_revision(revision: &str) -> Result<&str, Failure> {
    let is_odd = |letter: char| letter.is_control() || letter.is_whitespace();
    if revision.is_empty() || revision.starts_with('-') || revision.contains(is_odd) {
        return Err(Failure::invalid(format!("`{revision}` is not a revision.")));
    }
    Ok(revision)
}
