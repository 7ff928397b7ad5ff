//! A toolset that counts.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use serde::Serialize;
use tokio::sync::watch;
use toolcrib_core::{GroupId, ToolName};

use crate::result::ToolResult;
use crate::server::Server;
use crate::toolset::{CallError, Invocation, Listing, Toolset};

/// Counts of calls by tool. A handle: clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Mutex<BTreeMap<ToolName, ToolMetrics>>>);

/// What became of the calls of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ToolMetrics {
    /// Calls that ended, one way or another.
    pub calls: u64,
    /// Those that ended in an error, or were given up.
    pub errors: u64,
    /// The time they took together.
    pub total: Duration,
    /// The time the longest took.
    pub longest: Duration,
}

impl Metrics {
    /// The counts so far, by tool.
    pub fn snapshot(&self) -> BTreeMap<ToolName, ToolMetrics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, tool: ToolName, elapsed: Duration, failed: bool) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(tool).or_default();
        count.calls += 1;
        count.errors += u64::from(failed);
        count.total += elapsed;
        count.longest = count.longest.max(elapsed);
    }
}

/// Counts the calls of a toolset.
#[derive(Clone, Debug)]
pub struct Metered<T> {
    inner: T,
    metrics: Metrics,
}

impl<T> Metered<T> {
    /// Wraps `inner`; counts go to `metrics`.
    pub fn new(inner: T, metrics: Metrics) -> Self {
        Self { inner, metrics }
    }
}

impl<T: Toolset> Toolset for Metered<T> {
    fn id(&self) -> GroupId {
        self.inner.id()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        self.inner.list()
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async {
            let (tool, started) = (invocation.tool.clone(), Instant::now());
            let mut count = Count { metrics: &self.metrics, tool, started, failed: true };
            let result = self.inner.call(invocation).await;
            count.failed = result.as_ref().map_or(true, ToolResult::is_error);
            result
        })
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.inner.changes()
    }

    fn server(&self) -> Option<&dyn Server> {
        self.inner.server()
    }
}

/// A call under way. It counts when dropped, so that one that panics or is given up does too.
struct Count<'a> {
    metrics: &'a Metrics,
    tool: ToolName,
    started: Instant,
    failed: bool,
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.metrics.note(self.tool.clone(), self.started.elapsed(), self.failed);
    }
}
