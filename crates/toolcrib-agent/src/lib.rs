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
//! 6. [`Agent::into_tool`]: an agent as another's tool.

mod agent;
mod batch;
mod chat;
mod event;
mod history;
mod hooks;
mod message;
mod permission;
mod provider;
pub mod providers;
mod repeats;
mod results;
mod run;
mod scripted;
mod subagent;

pub use agent::{Agent, AgentBuilder, RunLimits};
pub use chat::{Chat, Events, Input, Steering};
pub use event::{Answer, CallRecord, End, Event};
pub use history::mend;
pub use hooks::{Flow, Hooks, PendingCall, Verdict};
pub use message::{Assistant, CallResult, Message, Part, Said, ToolCall};
pub use permission::{Approval, Approver, Permission, Permissions, Rule};
pub use provider::{
    Delta, ModelOptions, Provider, ProviderError, Reply, Request, Retry, StopReason,
};
pub use scripted::{Scripted, Turn};
pub use tokio_util::sync::CancellationToken;
pub use toolcrib_tokens::Usage;
