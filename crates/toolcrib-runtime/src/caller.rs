//! Whom a call is for, and how to reach them while it runs.

use std::fmt;
use std::sync::Arc;

use serde_json::value::RawValue;

/// Whom a call is for. The default is nobody in particular.
#[derive(Clone, Default)]
pub struct Caller {
    meta: Option<Arc<RawValue>>,
    listener: Option<Arc<dyn Listener>>,
}

/// Hears what a tool's server says while a call runs.
pub trait Listener: Send + Sync + 'static {
    /// A notification that belongs to the call (its progress, say), with its parameters as the
    /// server gave them. Called in the order in which the server spoke, and before the call's
    /// result is returned.
    fn hear(&self, method: &str, params: &RawValue);

    /// Whether progress is of interest: if not, a server need not be asked for it.
    fn wants_progress(&self) -> bool {
        true
    }
}

impl Caller {
    /// A caller that hears what happens during the call.
    pub fn new(listener: impl Listener) -> Self {
        Self { meta: None, listener: Some(Arc::new(listener)) }
    }

    /// What the caller says beside the arguments (an object; `_meta` in MCP), to be passed on.
    pub fn with_meta(mut self, meta: Box<RawValue>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// What the caller says beside the arguments.
    pub fn meta(&self) -> Option<&RawValue> {
        self.meta.as_deref()
    }

    /// Who wants to hear what happens, if anybody does.
    pub fn listener(&self) -> Option<&Arc<dyn Listener>> {
        self.listener.as_ref()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("listens", &self.listener.is_some()).finish_non_exhaustive()
    }
}
