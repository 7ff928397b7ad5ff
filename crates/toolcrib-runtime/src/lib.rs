//! Where an engine's step becomes something that happens.
//!
//! The engine (`toolcrib-core`) decides; this crate acts, and is the one place that does, so that
//! a gateway, an agent and an embedding program can't differ.
//!
//! The parts, in reading order:
//!
//! 1. [`Toolset`]: lists tools and calls them. [`HostTools`] is a host's functions as one, each
//!    made with [`function`].
//!    [`Server`] is what an MCP server is beside its tools; [`Caller`] is whom a call is for.
//!    [`Budget`] is how much of what servers answer may be in memory; [`aside`] is where long
//!    answers are read.
//! 2. [`TimeLimit`], [`Metered`], [`Audited`], [`Pinned`]: wrappers around a toolset, one concern
//!    each. [`PinStore`]: keeps which definitions were approved.
//!    [`Auditor`]: an [`AuditLog`] for a driver that knows who asks.
//! 3. [`Loader`]: brings a group's toolset when it is first needed.
//! 4. [`Crib`]: toolsets and loaders behind one registry.
//! 5. [`Conversation`]: prepare, resolve, load, call.
//! 6. [`Embed`] and [`VectorStore`]: another embedder than the built-in table, and where its
//!    vectors are kept; [`Embeddings`] is one in use.
//! 7. [`UsageStore`]: keeps which tool was called after which query; [`Trail`] tells which.
//! 8. [`SessionStore`]: keeps conversations; [`Journal`] the one that goes on.
//! 9. [`CredentialStore`]: keeps logins.

mod aside;
mod audit;
mod audited;
mod budget;
mod caller;
mod conversation;
mod credentials;
mod crib;
mod embed;
mod embeddings;
mod function;
mod journal;
mod loader;
mod manifest;
mod metered;
mod pinned;
mod pins;
mod result;
mod server;
mod time_limit;
mod toolset;
mod trail;
mod usage;

use std::time::Duration;

pub use aside::aside;
pub use audit::{
    AuditEnding, AuditEvent, AuditKey, AuditLog, AuditSink, AuditedCall, Auditor, Verdict,
};
pub use audited::Audited;
pub use budget::{Budget, NoRoom, Room};
pub use caller::{Caller, Listener, Party, Retry};
pub use conversation::{Conversation, Outcome, Ready, Resolved};
pub use credentials::{Credential, CredentialLock, CredentialStore};
pub use crib::{Crib, CribBuilder, CribError};
pub use embed::{Embed, EmbedError, Purpose, TextKey, VectorStore};
pub use embeddings::Embeddings;
pub use function::{Function, HostTools, function};
pub use journal::{
    Access, CallMark, Extent, Journal, JournalChange, JournalError, KeptCall, Opened, SessionError,
    SessionMeta, SessionStore, StorageError,
};
pub use loader::Loader;
pub use manifest::{Manifest, ManifestStore};
pub use metered::{Metered, Metrics, ToolMetrics};
pub use pinned::{Definitions, Pinned};
pub use pins::{PinChange, PinChangeKind, PinEdit, PinMark, PinStore, Pins, Wording};
pub use result::{Content, Kind, ToolResult};
pub use server::{AskError, Breaker, Eras, Following, Health, News, Offers, Question, Server};
pub use time_limit::TimeLimit;
pub use toolcrib_wire::{Era, RpcError};
pub use toolset::{CallError, IntoToolResult, Invocation, Listing, Toolset};
pub use trail::Trail;
pub use usage::{UsageRow, UsageStore};

/// Wrappers, as methods.
pub trait ToolsetExt: Toolset + Sized {
    /// Gives up on a list or a call after `limit`.
    fn time_limit(self, limit: Duration) -> TimeLimit<Self> {
        TimeLimit::new(self, limit)
    }

    /// Counts calls.
    fn metered(self, metrics: &Metrics) -> Metered<Self> {
        Metered::new(self, metrics.clone())
    }

    /// Records calls.
    fn audited(self, sink: &AuditSink) -> Audited<Self> {
        Audited::new(self, sink.clone())
    }
}

impl<T: Toolset> ToolsetExt for T {}
