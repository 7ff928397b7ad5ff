//! An agent over deferred tools.
//!
//! The parts, in reading order:
//!
//! 1. [`Message`]: a conversation as it is kept, the same for every provider.
//! 2. [`Provider`]: what a model is asked and how it answers. [`providers`] has the common APIs,
//!    [`Scripted`] one that needs none.
//! 3. [`Agent`]: a model, tools and the rules between them; [`Chat`]: a conversation with one.
//! 4. [`Event`]: what happens during a run, and [`Answer`]: what came of it.
//! 5. [`Hooks`], [`Permissions`] and [`Approver`]: where a host takes part.
//! 6. [`Chat::kept_in`] and [`Agent::reopen`]: conversations that outlive their program.
//! 7. [`Spent`]: what a conversation has cost, and what it would have cost in full;
//!    [`replay`]: what it would cost under every approach, with every model.
//! 8. [`Agent::into_tool`]: an agent as another's tool.

mod agent;
mod batch;
mod chat;
mod compaction;
mod event;
mod history;
mod hooks;
mod keeping;
mod message;
mod permission;
mod provider;
pub mod providers;
mod reopen;
mod repeats;
mod replay;
mod results;
mod run;
mod scripted;
mod spending;
mod subagent;

pub use agent::{Agent, AgentBuilder, RunLimits};
pub use chat::{Chat, Events, Input, Steering};
pub use compaction::CompactionRules;
pub use event::{Answer, CallRecord, Compaction, End, Event};
pub use history::mend;
pub use hooks::{Flow, Hooks, PendingCall, Verdict};
pub use keeping::spent_of;
pub use message::{Assistant, CallResult, Message, Part, Said, ToolCall};
pub use permission::{Approval, Approver, Permission, Permissions, Rule};
pub use provider::{
    Delta, HostedSearch, ModelOptions, Native, Provider, ProviderError, Reply, Request, Retry,
    StopReason,
};
pub use reopen::{Fate, Interrupted, ReopenError, Reopened};
pub use replay::{Replay, ReplayTools, Replayed, replay, scenario};
pub use scripted::{Scripted, Turn};
pub use spending::{Spent, TurnCost};
pub use tokio_util::sync::CancellationToken;
pub use toolcrib_core::{Revealed, ToolChange};
pub use toolcrib_tokens::Usage;
