//! A toolset that leaves a record.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use serde::Serialize;
use tokio::sync::watch;
use toolcrib_core::{Fingerprint, GroupId, ToolName};

use crate::result::ToolResult;
use crate::toolset::{CallError, Invocation, Listing, Toolset};

/// Something an audit log should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "event")]
pub enum AuditEvent {
    /// A tool was asked for that the policy hides. The model was told it is unknown.
    Denied {
        /// The tool.
        tool: ToolName,
    },
    /// A tool ran, or was to.
    Called {
        /// The tool.
        tool: ToolName,
        /// A hash of its arguments, which may hold secrets themselves.
        arguments: String,
        /// Whether it ended in an error, or was given up.
        is_error: bool,
        /// How long it took.
        took: Duration,
    },
}

/// Where audit events go.
pub type AuditSink = Arc<dyn Fn(AuditEvent) + Send + Sync>;

/// Records the calls of a toolset.
#[derive(Clone)]
pub struct Audited<T> {
    inner: T,
    sink: AuditSink,
}

impl<T> Audited<T> {
    /// Wraps `inner`; events go to `sink`.
    pub fn new(inner: T, sink: AuditSink) -> Self {
        Self { inner, sink }
    }
}

impl<T: Toolset> Toolset for Audited<T> {
    fn id(&self) -> GroupId {
        self.inner.id()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        self.inner.list()
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async {
            let mut record = Record {
                sink: &self.sink,
                tool: invocation.tool.clone(),
                arguments: Fingerprint::of_json(&invocation.arguments).to_string(),
                is_error: true,
                started: Instant::now(),
            };
            let result = self.inner.call(invocation).await;
            record.is_error = result.as_ref().map_or(true, ToolResult::is_error);
            result
        })
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.inner.changes()
    }
}

/// A call under way. It is recorded when dropped, so that one that panics or is given up is too.
struct Record<'a> {
    sink: &'a AuditSink,
    tool: ToolName,
    arguments: String,
    is_error: bool,
    started: Instant,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        (self.sink)(AuditEvent::Called {
            tool: self.tool.clone(),
            arguments: std::mem::take(&mut self.arguments),
            is_error: self.is_error,
            took: self.started.elapsed(),
        });
    }
}
