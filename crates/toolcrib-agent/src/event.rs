//! What happens during a run, as it happens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::Value;
use toolcrib_core::Strategy;
use toolcrib_tokens::Usage;

use crate::message::{CallResult, Message};
use crate::spending::TurnCost;

/// Something that happened during a run.
///
/// What starts also finishes: every `…Started` and [`Asked`](Self::Asked) has its counterpart,
/// whatever becomes of the run. Tools go by their real names.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The run begins.
    RunStarted,
    /// The model is asked.
    TurnStarted {
        /// How often it has been, within the run.
        turn: usize,
    },
    /// It writes.
    Text {
        /// The next piece.
        text: String,
    },
    /// It thinks aloud.
    Thinking {
        /// The next piece.
        text: String,
    },
    /// It begins to write a call.
    Writing {
        /// The name, as far as it is known: a tool's or a verb's.
        name: String,
    },
    /// Its answer failed, and will be asked for again. What was written of it is void.
    Retrying {
        /// Why.
        reason: String,
        /// After how long.
        #[serde(rename = "wait_ms", serialize_with = "milliseconds")]
        wait: Duration,
    },
    /// It has answered, or can't.
    TurnFinished {
        /// The number of the turn.
        turn: usize,
        /// What it took.
        usage: Usage,
        /// What that cost, and what it would have cost with every schema sent.
        cost: TurnCost,
        /// Whether what was written is part of the conversation now. If not, the model failed or
        /// declined, and what was written is void.
        kept: bool,
    },
    /// A person is asked whether a tool may run.
    Asked {
        /// The id of the call.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments.
        arguments: Value,
    },
    /// They have answered.
    Answered {
        /// The id of the call.
        id: String,
        /// Whether it may.
        allowed: bool,
    },
    /// A call begins to run.
    CallStarted {
        /// Its id.
        id: String,
        /// The tool, or the verb that is answered without one.
        name: String,
        /// Its arguments.
        arguments: Value,
    },
    /// A tool tells how far it is.
    Progress {
        /// The id of the call.
        id: String,
        /// What the tool's server says.
        progress: Value,
    },
    /// A call has ended.
    CallFinished {
        /// The tool or verb.
        name: String,
        /// What came of it, under the name the model called it by. A model that repeats itself
        /// reads a warning besides.
        result: CallResult,
        /// How long it took.
        #[serde(rename = "took_ms", serialize_with = "milliseconds")]
        took: Duration,
    },
    /// Tools have been loaded.
    Loaded {
        /// Their names.
        tools: Vec<String>,
    },
    /// Loaded tools have been put out, to keep within the token budget.
    Unloaded {
        /// Their names.
        tools: Vec<String>,
    },
    /// The older part of the conversation is to become a summary, which the model is asked for.
    Compacting,
    /// It has. If it could not, a note says why.
    Compacted(Compaction),
    /// The history has grown: what a host keeps, it keeps now.
    Appended {
        /// By this.
        message: Arc<Message>,
    },
    /// How tools reach the model was left open, and is settled for this conversation.
    Chosen {
        /// The strategy.
        strategy: Strategy,
        /// Why that one.
        why: String,
    },
    /// Something is different from what was asked for, and the run goes on.
    Note {
        /// What, and why.
        text: String,
    },
    /// The run has ended.
    RunFinished(Answer),
}

fn milliseconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// What became of a conversation that was compacted.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Compaction {
    /// How many messages there were.
    pub before: usize,
    /// How many there are.
    pub after: usize,
    /// The summary, as the model wrote it.
    pub summary: String,
    /// What that took.
    pub cost: TurnCost,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Answer {
    /// What the model said last.
    pub text: String,
    /// How it ended.
    pub end: End,
    /// How often the model was asked.
    pub turns: usize,
    /// The tools that were called, in order. Verbs are not among them.
    pub calls: Vec<CallRecord>,
    /// What it took.
    pub usage: Usage,
}

/// One call of a tool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CallRecord {
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Value,
    /// Whether it failed, or was not allowed to run.
    pub is_error: bool,
}

/// How a run ended. The history is valid whichever it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum End {
    /// The model had nothing more to do.
    #[default]
    Done,
    /// It was asked as often as it may be.
    Limit {
        /// How often.
        turns: usize,
    },
    /// It made the same call over and over, with the same result.
    Repeating {
        /// Of this tool or verb.
        name: String,
    },
    /// Somebody stopped it.
    Cancelled,
    /// The model declined. What it was asked is still in the history; its answer is not.
    Refused {
        /// Why, if that was said.
        reason: Option<String>,
    },
    /// Its answer reached the longest allowed.
    Length,
    /// The conversation doesn't fit the model's window.
    ContextFull {
        /// What the provider says.
        reason: String,
    },
    /// It answered nothing, twice.
    Empty,
    /// The host stopped it.
    Stopped {
        /// Why.
        reason: String,
    },
    /// The conversation can't be kept any more: a disk is full, say. What happened since is still
    /// there, and the next run tries to keep it.
    NotKept {
        /// Why.
        reason: String,
    },
    /// The model could not be asked.
    Failed {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Limit { turns } => write!(f, "stopped after {turns} requests to the model"),
            Self::Repeating { name } => {
                write!(f, "stopped: the same call of `{name}` had the same result too often")
            }
            Self::Cancelled => f.write_str("cancelled"),
            Self::Refused { reason: None } => f.write_str("the model declined"),
            Self::Refused { reason: Some(reason) } => write!(f, "the model declined: {reason}"),
            Self::Length => f.write_str("the answer reached the longest allowed"),
            Self::ContextFull { reason } => {
                write!(f, "the conversation no longer fits the model's window: {reason}")
            }
            Self::Empty => f.write_str("the model answered nothing"),
            Self::Stopped { reason } => write!(f, "stopped: {reason}"),
            Self::NotKept { reason } => write!(f, "stopped: {reason}"),
            Self::Failed { reason } => write!(f, "the model could not be asked: {reason}"),
        }
    }
}
