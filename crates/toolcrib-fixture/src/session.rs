//! A conversation in the era that has them.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use toolcrib_wire::{Id, RpcError, code, notification, request};

use crate::caller::{Level, Out};
use crate::changes::Change;
use crate::server::Server;

/// What is remembered of a client between its requests.
pub(crate) struct Session {
    pub(crate) version: &'static str,
    pub(crate) capabilities: Value,
    level: Mutex<Level>,
    watched: Mutex<BTreeSet<String>>,
    asked: Mutex<HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>>,
    next: AtomicU64,
    pub(crate) running: Running,
}

impl Session {
    pub(crate) fn new(version: &'static str, capabilities: Value) -> Self {
        Self {
            version,
            capabilities,
            level: Mutex::new(Level::INFO),
            watched: Mutex::default(),
            asked: Mutex::default(),
            next: AtomicU64::new(1),
            running: Running::default(),
        }
    }

    pub(crate) fn level(&self) -> Level {
        *lock(&self.level)
    }

    pub(crate) fn set_level(&self, level: Level) {
        *lock(&self.level) = level;
    }

    pub(crate) fn watch(&self, uri: &str) {
        lock(&self.watched).insert(uri.to_owned());
    }

    pub(crate) fn unwatch(&self, uri: &str) {
        lock(&self.watched).remove(uri);
    }

    /// Asks the client, on the stream of the request that wants to know.
    pub(crate) async fn ask(
        &self,
        out: &Out,
        method: &str,
        params: &Value,
    ) -> Result<Value, RpcError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.asked).insert(id, answer);
        out.message(request(&Id::from(id), method, Some(params)));
        let gone = |_| Err(RpcError::new(code::INTERNAL_ERROR, "The client has gone"));
        answered.await.unwrap_or_else(gone)
    }

    /// Takes an answer of the client's; `false` if nothing like it was asked.
    pub(crate) fn answered(&self, id: &Id, outcome: Result<Value, RpcError>) -> bool {
        let asked = id.as_u64().and_then(|id| lock(&self.asked).remove(&id));
        asked.is_some_and(|asked| asked.send(outcome).is_ok())
    }

    /// Tells the client of what changes from now on, for as long as it is there.
    pub(crate) fn tell_changes(
        self: Arc<Self>,
        server: &Server,
        out: Out,
    ) -> impl Future<Output = ()> + Send + use<> {
        let mut changes = server.changes.subscribe();
        async move {
            while let Ok(change) = changes.recv().await {
                let params = match &change {
                    Change::Resource(uri) if !lock(&self.watched).contains(uri) => continue,
                    Change::Resource(uri) => Some(json!({"uri": uri})),
                    _ => None,
                };
                if !out.message(notification(change.method(), params.as_ref())) {
                    return;
                }
            }
        }
    }
}

/// Requests under way, to be stopped by their id.
#[derive(Default)]
pub(crate) struct Running(Mutex<HashMap<Id, AbortHandle>>);

impl Running {
    pub(crate) fn insert(&self, id: Id, work: AbortHandle) {
        let mut running = lock(&self.0);
        running.retain(|_, work| !work.is_finished());
        running.insert(id, work);
    }

    /// Stops what `notifications/cancelled` names.
    pub(crate) fn cancel(&self, params: &Value) {
        let id = serde_json::from_value(params["requestId"].clone()).ok();
        if let Some(work) = id.and_then(|id: Id| lock(&self.0).remove(&id)) {
            work.abort();
        }
    }

    /// Stops all of it.
    pub(crate) fn stop(&self) {
        lock(&self.0).drain().for_each(|(_, work)| work.abort());
    }
}

/// A poisoned lock here guards plain values: what they hold is whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
