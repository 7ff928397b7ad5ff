//! What an MCP server is beside its tools: resources, prompts, and whatever else can be asked.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use toolcrib_wire::RpcError;

use crate::caller::{Caller, Party};

/// A server behind a toolset, as far as it is more than its tools. What it is asked and what it
/// answers passes as the JSON it is.
pub trait Server: Send + Sync {
    /// What it offers beside tools, as far as that is known without starting it.
    fn offers(&self) -> Arc<Offers>;

    /// Asks it, starting it if need be. Dropping the future cancels the request.
    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Box<RawValue>, AskError>>;

    /// Has it tell a client of changes of a resource, as [`News::Updated`], until what is returned
    /// is dropped. That outlasts a restart of the server. `None` is nobody in particular.
    fn follow<'a>(
        &'a self,
        uri: &str,
        party: Option<&'a Arc<Party>>,
    ) -> BoxFuture<'a, Result<Following, AskError>>;

    /// What it tells without being asked, from now on. Whoever reads too slowly misses the oldest.
    fn news(&self) -> broadcast::Receiver<News>;

    /// Passes on a notification of a client's to the connections that are that client's own.
    fn tell(&self, party: &Party, method: &str, params: Option<&RawValue>);

    /// How it is doing.
    fn health(&self) -> Health;
}

/// Something asked of a server that is no call of a tool.
#[derive(Clone, Debug)]
pub struct Question {
    /// The method.
    pub method: Arc<str>,
    /// Its parameters, an object, without `_meta`.
    pub params: Option<Arc<RawValue>>,
    /// Whom it is for.
    pub caller: Caller,
}

impl Question {
    /// A question on nobody's behalf.
    pub fn new(method: impl Into<Arc<str>>, params: Option<Arc<RawValue>>) -> Self {
        Self { method: method.into(), params, caller: Caller::default() }
    }
}

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AskError {
    /// The server refused, in these words.
    #[error("{0}")]
    Refused(RpcError),
    /// The server could not be asked or did not answer; the reason is for people.
    #[error("{0}")]
    Unreachable(String),
}

/// What a server offers beside tools, each entry as it came.
#[derive(Clone, Debug, Default)]
pub struct Offers {
    /// What it can do: `capabilities`.
    pub capabilities: Option<Arc<RawValue>>,
    /// How it wants to be used, in its own words.
    pub instructions: Option<Arc<str>>,
    /// The eras it is known to speak.
    pub eras: Eras,
    /// Its resources.
    pub resources: Vec<Arc<RawValue>>,
    /// Its templates of resources.
    pub templates: Vec<Arc<RawValue>>,
    /// Its prompts.
    pub prompts: Vec<Arc<RawValue>>,
    /// Counts the changes of any of these.
    pub version: u64,
}

/// Which eras of the protocol a server speaks; `None` where nobody has tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eras {
    /// Revisions with sessions.
    pub sessions: Option<bool>,
    /// Revisions without.
    pub stateless: Option<bool>,
}

/// What a server tells without being asked.
#[derive(Clone, Debug)]
pub enum News {
    /// Its prompts have changed.
    Prompts,
    /// Its resources or their templates have.
    Resources,
    /// A resource that is followed has.
    Updated {
        /// The resource.
        uri: Arc<str>,
        /// Those who follow it where it changed: a client may have a server of its own. By
        /// [`Party::id`], in order; 0 is nobody in particular.
        whom: Arc<[u64]>,
    },
    /// Anything else, meant for one client: the one with this [`Party::id`].
    For {
        /// The client.
        party: u64,
        /// The method.
        method: Arc<str>,
        /// Its parameters.
        params: Option<Arc<RawValue>>,
    },
}

/// A resource that is followed, until this is dropped.
pub struct Following(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Following {
    /// `end` is called when this is dropped.
    pub fn new(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Following")
    }
}

/// How a server is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether calls get through to it.
    pub breaker: Breaker,
    /// Calls that run.
    pub running: usize,
    /// Calls that wait for their turn.
    pub waiting: usize,
    /// Connections to it: processes or sessions.
    pub connections: usize,
}

/// Whether calls get through to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Breaker {
    /// They do.
    #[default]
    Closed,
    /// They don't: it failed too often in a row.
    Open {
        /// How long until it is tried again.
        #[serde(rename = "for")]
        remaining: Duration,
        /// Why.
        reason: String,
    },
    /// One call is on its way to find out.
    Probing,
}
