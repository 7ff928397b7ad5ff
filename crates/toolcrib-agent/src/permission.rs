//! Asking a person whether a tool may run, and what was answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use toolcrib_core::ToolName;
pub use toolcrib_core::{Permission, Permissions, Rule};

use crate::hooks::PendingCall;

/// Asks a person whether a tool may run.
pub trait Approver: Send + Sync + 'static {
    /// Asks. The run waits, and asks one question at a time; runs at the same time may each ask
    /// one.
    fn ask<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Approval>;
}

impl<A: Approver + ?Sized> Approver for Arc<A> {
    fn ask<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Approval> {
        (**self).ask(call)
    }
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approval {
    /// This once.
    Once,
    /// And from now on in this conversation, whatever the arguments.
    Always,
    /// Not this time; with words for the model, if there are any.
    No(Option<String>),
    /// Nor later in this conversation.
    Never,
}

/// The answers that hold for a conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered(Arc<Mutex<BTreeMap<ToolName, bool>>>);

impl Remembered {
    pub(crate) fn get(&self, tool: &ToolName) -> Option<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tool).copied()
    }

    pub(crate) fn keep(&self, tool: &ToolName, allowed: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(tool.clone(), allowed);
    }

    /// The same answers, for a conversation that goes its own way from here.
    pub(crate) fn fork(&self) -> Self {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self(Arc::new(Mutex::new(answers)))
    }
}
