//! A gateway process over servers of our own, and what can be seen of it from outside.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// How long the gateway may take to listen, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long what it started may take to end after it.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// A server in the gateway's configuration.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) launch: Launch,
    /// Further lines of its section.
    pub(crate) more: String,
}

/// How it is reached.
pub(crate) enum Launch {
    Command(PathBuf, Vec<String>),
    Url(String),
}

impl Entry {
    /// A program without arguments.
    pub(crate) fn new(name: impl Into<String>, program: PathBuf) -> Self {
        Self {
            name: name.into(),
            launch: Launch::Command(program, Vec::new()),
            more: String::new(),
        }
    }
}

/// A gateway that runs. It is killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    pid: u32,
    pub(crate) address: SocketAddr,
    folder: TempDir,
}

impl Gateway {
    pub(crate) async fn start(program: &Path, servers: &[Entry]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut config = String::new();
        for Entry { name, launch, more } in servers {
            let launch = match launch {
                Launch::Url(url) => format!("url = {}", toml(url)),
                Launch::Command(program, args) => {
                    let args: Vec<String> = args.iter().map(|arg| toml(arg)).collect();
                    let program = toml(&program.to_string_lossy());
                    format!("command = {program}\nargs = [{}]", args.join(", "))
                }
            };
            writeln!(config, "[servers.{name}]\n{launch}\n{more}\n")?;
        }
        let file = folder.path().join("toolcrib.toml");
        std::fs::write(&file, config)?;
        // Taken and given back: nobody else on this machine is likely to take it meanwhile.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?;
        let log = std::fs::File::create(folder.path().join("log"))?;
        let mut command = Command::new(program);
        command.args(["serve", "--http", &address.to_string(), "--log", "warn", "--config"]);
        command.arg(&file).current_dir(folder.path()).env("HOME", folder.path());
        for name in ["CACHE", "CONFIG", "DATA", "STATE"] {
            command.env(format!("XDG_{name}_HOME"), folder.path().join(name));
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("can't run {}", program.display()))?;
        let pid = child.id().context("it ended at once")?;
        let mut gateway = Self { child, pid, address, folder };
        let ends = Instant::now() + PATIENCE;
        while TcpStream::connect(address).await.is_err() {
            if gateway.child.try_wait()?.is_some() || Instant::now() > ends {
                bail!("the gateway does not listen: {}", gateway.log());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(gateway)
    }

    /// The end of what it logged.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(2_000)..]).into_owned()
    }

    /// Its memory in bytes, as far as it is its own and in use.
    pub(crate) fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.and_then(|kib| kib.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid));
        open.map_or(0, |open| open.count())
    }

    /// Its descendants, each with its command line.
    pub(crate) fn descendants(&self) -> Vec<(u32, String)> {
        let all = processes();
        let mut found: Vec<(u32, String)> = Vec::new();
        let mut parents = vec![self.pid];
        while let Some(parent) = parents.pop() {
            for (pid, _, command) in all.iter().filter(|(_, of, _)| *of == parent) {
                parents.push(*pid);
                found.push((*pid, command.clone()));
            }
        }
        found
    }

    /// Ends it politely, and says which of its descendants outlived it.
    pub(crate) async fn stop(mut self) -> anyhow::Result<Vec<String>> {
        let before = self.descendants();
        if let Some(pid) = pid(self.pid) {
            kill_process(pid, Signal::TERM)?;
        }
        timeout(PATIENCE, self.child.wait()).await.context("the gateway does not end")??;
        // What cleans up after it ends a moment later.
        let until = Instant::now() + AFTERWARDS;
        loop {
            let now = processes();
            let is_left = |(pid, command): &&(u32, String)| {
                now.iter().any(|(other, _, line)| other == pid && line == command)
            };
            let left: Vec<String> =
                before.iter().filter(is_left).map(|(_, command)| command.clone()).collect();
            if left.is_empty() || Instant::now() >= until {
                return Ok(left);
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

pub(crate) fn pid(raw: u32) -> Option<Pid> {
    i32::try_from(raw).ok().and_then(Pid::from_raw)
}

/// All processes: their own number, their parent's, their command line.
fn processes() -> Vec<(u32, u32, String)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let one = |entry: std::fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut after = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (after.next()?, after.next()?.parse().ok()?);
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
        (state != "Z").then_some((pid, parent, command))
    };
    entries.flatten().filter_map(one).collect()
}

/// A string as TOML has it.
fn toml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
