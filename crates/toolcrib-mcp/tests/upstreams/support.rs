//! What the tests share.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use toolcrib_core::ToolName;
use toolcrib_mcp::{ServerConfig, Upstream};
use toolcrib_runtime::{CallError, Invocation, Manifest, ManifestStore, ToolResult, Toolset};

/// How long anything may take: the machine may be busy.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A folder in which fixture servers write down what happens to them.
pub(crate) struct Scene(TempDir);

impl Scene {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// A fixture server that behaves as told.
    pub(crate) fn server(&self, flags: Value) -> ServerConfig {
        let mut flags = flags;
        flags["state"] = json!(self.0.path());
        let program = std::env::current_exe().unwrap();
        let args = ["the_fixture_server", "--exact", "--nocapture"];
        ServerConfig::command("fixture", program.to_str().unwrap(), args)
            .env("TOOLCRIB_FIXTURE", flags.to_string())
    }

    pub(crate) fn upstream(&self, flags: Value) -> Upstream {
        Upstream::new(self.server(flags))
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// What was written down.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(file)).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }

    pub(crate) fn count(&self, file: &str, line: &str) -> usize {
        self.lines(file).iter().filter(|it| *it == line).count()
    }

    pub(crate) fn pids(&self, file: &str) -> Vec<u32> {
        self.lines(file).iter().map(|line| line.parse().unwrap()).collect()
    }
}

pub(crate) fn invocation(tool: &str, arguments: Value) -> Invocation {
    Invocation::new(ToolName::mcp("fixture", tool), arguments)
}

pub(crate) async fn call(
    upstream: &Upstream,
    tool: &str,
    arguments: Value,
) -> Result<ToolResult, CallError> {
    within(upstream.call(invocation(tool, arguments))).await
}

/// What a call that must succeed says.
pub(crate) async fn say(upstream: &Upstream, tool: &str) -> String {
    let result = call(upstream, tool, json!({})).await.unwrap();
    assert!(!result.is_error(), "{result:?}");
    result.to_text()
}

/// The reason of a call that must fail.
pub(crate) async fn reason(upstream: &Upstream, tool: &str, arguments: Value) -> String {
    call(upstream, tool, arguments).await.unwrap_err().to_string()
}

pub(crate) async fn names(upstream: &Upstream) -> Vec<String> {
    let listing = within(upstream.list()).await.unwrap();
    listing.specs.iter().map(|spec| spec.name().tool().to_owned()).collect()
}

/// Waits for a future that must not take for ever.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it takes for ever")
}

/// Waits until something holds.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Whether any thread of a process is there and not merely waiting to be buried.
pub(crate) fn is_alive(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let mut states = stats.filter_map(|stat| stat.rsplit(')').next()?.trim().chars().next());
    states.any(|state| !matches!(state, 'Z' | 'X'))
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Keeps manifests in memory.
#[derive(Default)]
pub(crate) struct Memory(Mutex<std::collections::HashMap<String, Manifest>>);

impl ManifestStore for Memory {
    fn get(&self, key: &str) -> Option<Manifest> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn put(&self, key: &str, manifest: Manifest) {
        self.0.lock().unwrap().insert(key.to_owned(), manifest);
    }
}
