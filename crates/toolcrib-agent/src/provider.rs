//! What a model is asked and how it answers.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolcrib_core::Definition;
use toolcrib_tokens::{Feature, Usage};

use crate::message::{Message, Said};

/// A model's API.
///
/// One request, one attempt: whether to try again is the loop's business, which goes by
/// [`ProviderError::retry`]. Dropping the stream ends the request.
///
/// ```
/// use futures::stream::{self, BoxStream, StreamExt};
/// use toolcrib_agent::{Delta, Provider, ProviderError, Reply, Request, Said, StopReason};
///
/// /// Says how many messages it was sent.
/// struct Counting;
///
/// impl Provider for Counting {
///     fn name(&self) -> &str {
///         "counting"
///     }
///
///     fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
///         let text = format!("{} messages", request.messages.len());
///         let reply = Reply {
///             content: vec![Said::Text { text: text.clone() }],
///             stop: StopReason::End,
///             usage: Default::default(),
///         };
///         stream::iter([Ok(Delta::Text(text)), Ok(Delta::Finished(reply))]).boxed()
///     }
/// }
/// ```
pub trait Provider: Send + Sync + 'static {
    /// What its own pieces of a conversation are marked with.
    fn name(&self) -> &str;

    /// What a model must be able to do for [`Request::native`] to be of use; `None` if this API
    /// has no form for tools that wait.
    fn native(&self) -> Option<Feature> {
        None
    }

    /// Asks the model. The stream ends with [`Delta::Finished`] or an error, and says nothing
    /// after either.
    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>>;
}

impl<P: Provider + ?Sized> Provider for Arc<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn native(&self) -> Option<Feature> {
        (**self).native()
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        (**self).stream(request)
    }
}

impl<P: Provider + ?Sized> Provider for Box<P> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn native(&self) -> Option<Feature> {
        (**self).native()
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        (**self).stream(request)
    }
}

/// Everything a model is sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// Which model.
    pub model: Arc<str>,
    /// The system prompt; empty for none.
    pub system: Arc<str>,
    /// The tools array, in order.
    pub tools: Vec<Definition>,
    /// How tools that wait are shown in the provider's own form. `None` where it has none, or
    /// should not use it: tools that the conversation was given are then written out in words.
    pub native: Option<Native>,
    /// The conversation.
    pub messages: Vec<Arc<Message>>,
    /// How it should answer.
    pub options: Arc<ModelOptions>,
    /// Whether the model can see pictures.
    pub sees_images: bool,
    /// What the requests of one conversation have in common, for providers that route by it.
    pub cache_key: Option<Arc<str>>,
}

impl Request {
    /// A conversation for a model that sees pictures, without a system prompt and tools.
    pub fn new(model: impl Into<Arc<str>>, messages: impl IntoIterator<Item = Message>) -> Self {
        Self {
            model: model.into(),
            system: "".into(),
            tools: Vec::new(),
            native: None,
            messages: messages.into_iter().map(Arc::new).collect(),
            options: Arc::default(),
            sees_images: true,
            cache_key: None,
        }
    }
}

/// Tools that wait, for a provider that has a form for them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Native {
    /// Tools that the conversation has been given besides the tools array, in the order in which
    /// it was. Only grows, at its end.
    pub deferred: Vec<Definition>,
    /// The tool in the array that searches for others.
    pub search: Option<Arc<str>>,
    /// Who searches, if not that tool.
    pub hosted: Option<HostedSearch>,
    /// Whether the model takes tools that come and go in the middle of a conversation.
    pub changes: bool,
}

/// A provider's own search among the tools that wait, for which all are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostedSearch {
    /// By words.
    Bm25,
    /// By a regular expression. Where a provider has one search only, it is that.
    Regex,
}

/// How a model should answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelOptions {
    /// The longest answer, in tokens.
    pub max_output: Option<u64>,
    /// How much chance there is in it.
    pub temperature: Option<f64>,
    /// Further members of the request's body, which replace those of the same name. A null takes
    /// the member away.
    pub extra: Map<String, Value>,
}

/// A piece of an answer while it is written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta {
    /// Text.
    Text(String),
    /// What the model thinks, where it says so.
    Thinking(String),
    /// A call begins. Calls are numbered from 0 within a reply.
    Call {
        /// The number of the call.
        index: usize,
        /// The name, as far as it is known.
        name: String,
    },
    /// A piece of a call's arguments.
    Arguments {
        /// The number of the call.
        index: usize,
        /// The piece.
        text: String,
    },
    /// The whole answer.
    Finished(Reply),
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// What the model said, in order. Ids of calls may be empty or repeated: the loop gives
    /// each one of its own.
    pub content: Vec<Said>,
    /// Why it ended.
    pub stop: StopReason,
    /// What it took.
    pub usage: Usage,
}

/// Why an answer ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The model had said everything, its calls included.
    #[default]
    End,
    /// It was cut off at the longest answer allowed; the last call may be incomplete.
    Length,
    /// The context window was full.
    ContextFull,
    /// The model, or a filter, declined; with the reason if one was given.
    Refusal(Option<String>),
    /// The provider wants the same conversation again, to go on.
    Paused,
    /// Something else.
    Other(String),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// No connection came about, or it broke before an answer began.
    #[error("{0}")]
    Unreachable(String),
    /// It took too long.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// Too many requests, or too much load.
    #[error("{message}")]
    Busy {
        /// What the provider says.
        message: String,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
    /// The provider failed.
    #[error("{0}")]
    Failed(String),
    /// The answer broke off, or is not what the provider's format allows.
    #[error("{0}")]
    Broken(String),
    /// The conversation doesn't fit the model's window.
    #[error("{0}")]
    ContextTooLong(String),
    /// The key is missing or wrong, or doesn't cover this.
    #[error("{0}")]
    Denied(String),
    /// The provider won't take the request as it is.
    #[error("{0}")]
    Rejected(String),
}

/// Whether a request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It would fail again.
    Never,
    /// It may work, after a pause of one's own choosing.
    Soon,
    /// It may work after this long.
    After(Duration),
}

impl ProviderError {
    /// Whether the request may be sent again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Busy { retry_after: Some(wait), .. } => Retry::After(*wait),
            Self::Unreachable(_)
            | Self::TimedOut(_)
            | Self::Busy { .. }
            | Self::Failed(_)
            | Self::Broken(_) => Retry::Soon,
            Self::ContextTooLong(_) | Self::Denied(_) | Self::Rejected(_) => Retry::Never,
        }
    }
}
