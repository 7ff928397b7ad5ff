//! A toolset that leaves a record.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use tokio::sync::watch;
use toolcrib_core::GroupId;

use crate::audit::{AuditEnding, AuditEvent, AuditKey, AuditSink, Verdict, trace_of};
use crate::result::ToolResult;
use crate::server::Server;
use crate::toolset::{CallError, Invocation, Listing, Toolset};

/// Records the calls of a toolset.
#[derive(Clone)]
pub struct Audited<T> {
    inner: T,
    sink: AuditSink,
    key: Option<Arc<AuditKey>>,
}

impl<T> Audited<T> {
    /// Wraps `inner`; events go to `sink`. They say nothing of arguments.
    pub fn new(inner: T, sink: AuditSink) -> Self {
        Self { inner, sink, key: None }
    }

    /// Has events hold a hash of the arguments, made with this key.
    pub fn keyed(mut self, key: AuditKey) -> Self {
        self.key = Some(Arc::new(key));
        self
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
            let mut event = AuditEvent::new(invocation.tool.clone(), Verdict::Allowed);
            event.arguments = self.key.as_ref().map(|key| key.digest(&invocation.arguments));
            event.caller = invocation.caller.party().and_then(|party| party.name()).cloned();
            event.trace = invocation.caller.meta().and_then(trace_of);
            let mut record = Record {
                sink: &self.sink,
                event: Some(event),
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

    fn server(&self) -> Option<&dyn Server> {
        self.inner.server()
    }
}

/// A call under way. It is recorded when dropped, so that one that panics or is given up is too.
struct Record<'a> {
    sink: &'a AuditSink,
    event: Option<AuditEvent>,
    is_error: bool,
    started: Instant,
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            let ending = AuditEnding { is_error: self.is_error, took: self.started.elapsed() };
            (self.sink)(AuditEvent { ending: Some(ending), ..event });
        }
    }
}
