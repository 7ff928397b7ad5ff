//! A toolset that waits only so long.

use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::timeout;
use toolcrib_core::GroupId;

use crate::result::ToolResult;
use crate::server::Server;
use crate::toolset::{CallError, Invocation, Listing, Toolset};

/// Gives up on a list or a call after a while. The call is cancelled; what it had begun may have
/// happened, and the model is told so.
#[derive(Clone, Debug)]
pub struct TimeLimit<T> {
    inner: T,
    limit: Duration,
}

impl<T> TimeLimit<T> {
    /// Wraps `inner`.
    pub fn new(inner: T, limit: Duration) -> Self {
        Self { inner, limit }
    }
}

impl<T: Toolset> Toolset for TimeLimit<T> {
    fn id(&self) -> GroupId {
        self.inner.id()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        Box::pin(async {
            timeout(self.limit, self.inner.list()).await.unwrap_or_else(|_| {
                let id = self.inner.id();
                Err(CallError::Tell(format!(
                    "`{id}` did not list its tools within {:?}",
                    self.limit
                )))
            })
        })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async {
            let tool = invocation.tool.clone();
            timeout(self.limit, self.inner.call(invocation)).await.unwrap_or_else(|_| {
                Err(CallError::Tell(format!(
                    "`{tool}` did not answer within {:?}. What it had begun may have happened.",
                    self.limit
                )))
            })
        })
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.inner.changes()
    }

    fn server(&self) -> Option<&dyn Server> {
        self.inner.server()
    }
}
