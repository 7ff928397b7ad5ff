//! Where the conversations of a run or a chat are kept, if they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use toolcrib::agent::{Agent, Chat};
use toolcrib::store::SqliteStore;
use toolcrib::{Access, SessionError, SessionStore};

use super::keep::{self, FOLDER, MODEL, VERSION, here};
use crate::args::Context;

/// Keeps conversations, each in a session of its own; or doesn't.
pub(crate) struct Shelf(Option<Arc<SqliteStore>>);

impl Shelf {
    /// Keeps nothing.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    pub(crate) fn open(context: &Context) -> anyhow::Result<Self> {
        Ok(Self::of(keep::open(context)?))
    }

    /// Keeps what can be kept: a conversation is not worth less for want of a disk, but whoever
    /// has it should know.
    pub(crate) fn open_if_possible(context: &Context) -> Self {
        Self::open(context).unwrap_or_else(|error| {
            context.warn(&format!("nothing of this is kept: {error:#}"));
            Self::none()
        })
    }

    pub(super) fn of(store: SqliteStore) -> Self {
        Self(Some(Arc::new(store)))
    }

    /// Begins a conversation.
    pub(crate) fn begin(&self, agent: &Agent) -> Chat {
        match &self.0 {
            Some(store) => agent.chat().kept_in(store.clone(), labels(agent)),
            None => agent.chat(),
        }
    }

    /// A copy of a conversation, kept for itself once something is said in it.
    pub(crate) fn fork(&self, chat: &Chat) -> Chat {
        match &self.0 {
            Some(store) => chat.fork().kept_in(store.clone(), labels(chat.agent())),
            None => chat.fork(),
        }
    }

    /// Gives a session another title, and tells which it has now.
    pub(crate) async fn rename(&self, id: &str, title: &str) -> Result<String, SessionError> {
        let Some(store) = &self.0 else {
            return Err(SessionError::NotFound { id: id.to_owned() });
        };
        store.rename(id, title).await?;
        Ok(store.open(id, Access::Read).await?.meta.title.unwrap_or_default())
    }
}

/// What is noted of a session that begins now.
fn labels(agent: &Agent) -> BTreeMap<String, String> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let model = agent.model().to_owned();
    let labels = [(MODEL, Some(model)), (FOLDER, here()), (VERSION, Some(version))];
    labels.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}
