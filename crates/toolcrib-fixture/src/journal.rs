//! What became of each call, for whoever tests the way it took.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::server::Server;

/// A file with a line for whatever happens to a call. Several servers may share it.
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    fn note(&self, what: &str, tool: &str, arguments: &Value) {
        let pid = std::process::id();
        let line = json!({"what": what, "tool": tool, "arguments": arguments, "pid": pid});
        // One write, so that the lines of several processes stay apart. A test that misses one fails.
        let _ = (&self.0).write_all(format!("{line}\n").as_bytes());
    }
}

/// A call that has begun; dropped before its end, it was stopped.
pub(crate) struct Begun {
    server: Arc<Server>,
    tool: &'static str,
    arguments: Value,
    has_ended: bool,
}

impl Begun {
    pub(crate) fn new(server: &Arc<Server>, tool: &'static str, arguments: &Value) -> Self {
        let begun =
            Self { server: server.clone(), tool, arguments: arguments.clone(), has_ended: false };
        begun.note("began");
        begun
    }

    pub(crate) fn end(mut self) {
        self.has_ended = true;
        self.note("ended");
    }

    fn note(&self, what: &str) {
        if let Some(journal) = &self.server.journal {
            journal.note(what, self.tool, &self.arguments);
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.has_ended {
            self.server.stopped.fetch_add(1, Ordering::Relaxed);
            self.note("stopped");
        }
    }
}
