//! An MCP client on the pipes of a gateway that it has started.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long an answer may take before the demonstration is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the gateway gets to end its servers and itself.
const FAREWELL: Duration = Duration::from_secs(5);

const VERSION: &str = "2025-11-25";

pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    last_id: u64,
}

/// A message, as far as a client that only asks needs to look.
#[derive(Deserialize)]
struct Message {
    id: Option<u64>,
    method: Option<String>,
    result: Option<Box<RawValue>>,
    error: Option<Value>,
}

impl Client {
    /// Starts a gateway over the servers of `mcp.json` in this folder, and keeps all it writes
    /// there.
    pub(super) fn start(folder: &Path, endpoint: &str) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program is nowhere to be found")?;
        let mut command = Command::new(program);
        command
            .args(["serve", "--stdio", "--log", "error", "--endpoint", endpoint, "--config"])
            .arg(folder.join("mcp.json"))
            .current_dir(folder)
            .env("HOME", folder)
            .env("XDG_CONFIG_HOME", folder.join("config"))
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .env("XDG_DATA_HOME", folder.join("data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().context("the gateway can't be started")?;
        let stdout = child.stdout.take().context("the gateway has no output")?;
        let (stdin, lines) = (child.stdin.take(), BufReader::new(stdout).lines());
        Ok(Self { child, stdin, lines, last_id: 0 })
    }

    /// Opens a session; says what the server tells the model.
    pub(super) async fn initialize(&mut self) -> anyhow::Result<String> {
        #[derive(Deserialize)]
        struct Greeting {
            #[serde(default)]
            instructions: String,
        }
        let info = json!({"name": "toolcrib-demo", "version": env!("CARGO_PKG_VERSION")});
        let params = json!({"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info});
        let greeting = self.request("initialize", params).await?;
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        Ok(serde_json::from_str::<Greeting>(greeting.get())?.instructions)
    }

    pub(super) async fn request(
        &mut self,
        method: &str,
        params: Value,
    ) -> anyhow::Result<Box<RawValue>> {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        loop {
            let message = self.next().await?;
            if message.id != Some(id) {
                continue;
            }
            let error = message.error.unwrap_or_default();
            return message.result.ok_or_else(|| anyhow!("the gateway refuses {method}: {error}"));
        }
    }

    /// Waits until the gateway says that its list of tools has changed.
    pub(super) async fn list_changed(&mut self) -> anyhow::Result<()> {
        let method = Some("notifications/tools/list_changed");
        while self.next().await?.method.as_deref() != method {}
        Ok(())
    }

    /// Ends the gateway, which ends its servers.
    pub(super) async fn end(mut self) {
        drop(self.stdin.take());
        if timeout(FAREWELL, self.child.wait()).await.is_err() {
            // It is about to be gone either way.
            let _ = self.child.kill().await;
        }
    }

    async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let stdin = self.stdin.as_mut().context("the gateway has no input")?;
        stdin.write_all(format!("{message}\n").as_bytes()).await.context("the gateway is gone")?;
        Ok(stdin.flush().await?)
    }

    async fn next(&mut self) -> anyhow::Result<Message> {
        let line = timeout(PATIENCE, self.lines.next_line());
        match line.await.context("the gateway does not answer")?? {
            Some(line) => {
                serde_json::from_str(&line).context("the gateway says what is no message")
            }
            None => bail!("the gateway has ended"),
        }
    }
}
