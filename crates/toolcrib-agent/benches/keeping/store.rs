//! A store that notes how long each change takes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use toolcrib_runtime::{
    Access, Extent, Journal, JournalChange, JournalError, Opened, SessionError, SessionMeta,
    SessionStore,
};
use toolcrib_store::SqliteStore;

/// What a change is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message, and the ledger with it.
    Message,
    /// The ledger alone.
    Ledger,
    Began,
    Finished,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Message, Self::Ledger, Self::Began, Self::Finished];

    fn of(changes: &[JournalChange]) -> Self {
        match changes.first() {
            Some(JournalChange::Began { .. }) => Self::Began,
            Some(JournalChange::Finished { .. }) => Self::Finished,
            Some(JournalChange::Ledger { .. }) => Self::Ledger,
            _ => Self::Message,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message => "a message, with the ledger",
            Self::Ledger => "the ledger alone",
            Self::Began => "a call begins",
            Self::Finished => "a call ends",
        })
    }
}

type Times = Arc<Mutex<Vec<(Kind, Duration)>>>;

pub(crate) struct Timed {
    store: SqliteStore,
    times: Times,
}

impl Timed {
    pub(crate) fn new(store: SqliteStore) -> Self {
        Self { store, times: Times::default() }
    }

    pub(crate) fn clear(&self) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(crate) fn times(&self) -> Vec<(Kind, Duration)> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

struct TimedJournal {
    journal: Box<dyn Journal>,
    times: Times,
}

impl Journal for TimedJournal {
    fn id(&self) -> &str {
        self.journal.id()
    }

    fn write(&self, changes: Vec<JournalChange>) -> BoxFuture<'_, Result<(), JournalError>> {
        let (kind, began) = (Kind::of(&changes), Instant::now());
        let written = self.journal.write(changes);
        Box::pin(async move {
            let outcome = written.await;
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            times.push((kind, began.elapsed()));
            outcome
        })
    }
}

impl SessionStore for Timed {
    fn create(
        &self,
        labels: BTreeMap<String, String>,
    ) -> BoxFuture<'_, Result<Box<dyn Journal>, SessionError>> {
        let begun = self.store.create(labels);
        Box::pin(async move {
            let (journal, times) = (begun.await?, self.times.clone());
            Ok(Box::new(TimedJournal { journal, times }) as Box<dyn Journal>)
        })
    }

    fn open<'a>(
        &'a self,
        id: &'a str,
        access: Access,
    ) -> BoxFuture<'a, Result<Opened, SessionError>> {
        self.store.open(id, access)
    }

    fn list<'a>(
        &'a self,
        filter: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionMeta>, SessionError>> {
        self.store.list(filter, limit)
    }

    fn rename<'a>(
        &'a self,
        id: &'a str,
        title: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        self.store.rename(id, title)
    }

    fn fork<'a>(
        &'a self,
        id: &'a str,
        extent: Extent,
    ) -> BoxFuture<'a, Result<String, SessionError>> {
        self.store.fork(id, extent)
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), SessionError>> {
        self.store.delete(id)
    }

    fn export<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<String, SessionError>> {
        self.store.export(id)
    }

    fn import<'a>(&'a self, exported: &'a str) -> BoxFuture<'a, Result<String, SessionError>> {
        self.store.import(exported)
    }
}
