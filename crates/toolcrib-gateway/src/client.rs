//! What belongs to one client: its conversation, and its requests that run.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use toolcrib_core::Fingerprint;
use toolcrib_runtime::Conversation;
use toolcrib_wire::Id;

use crate::{Endpoint, Gateway};

/// A connection over stdio, or a session over HTTP.
pub(crate) struct Client {
    pub(crate) endpoint: Endpoint,
    /// As many permits as requests may run; all of them free when none does.
    pub(crate) room: Arc<Semaphore>,
    ledger: OnceLock<Ledger>,
    running: Mutex<HashMap<Id, AbortHandle>>,
    /// The mildest log messages it wants.
    logs: AtomicUsize,
}

/// The conversation of a client of the session era.
struct Ledger {
    conversation: Conversation,
    /// The tools it was last told of.
    adopted: Mutex<Option<Fingerprint>>,
}

impl Client {
    pub(crate) fn new(endpoint: Endpoint, requests_in_flight: usize) -> Self {
        Self {
            endpoint,
            room: Arc::new(Semaphore::new(requests_in_flight.clamp(1, Semaphore::MAX_PERMITS))),
            ledger: OnceLock::new(),
            running: Mutex::default(),
            logs: AtomicUsize::new(0),
        }
    }

    /// The client's own conversation, with what has changed since it was last used adopted.
    pub(crate) fn conversation(&self, gateway: &Gateway) -> Conversation {
        let ledger = self.ledger.get_or_init(|| {
            let conversation = gateway.converse(&self.endpoint);
            Ledger { conversation, adopted: Mutex::default() }
        });
        let now = ledger.conversation.view().fingerprint();
        let mut adopted = ledger.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        if *adopted != Some(now) {
            *adopted = Some(now);
            // Nobody here reads what the turn would announce: preparing takes it away. What is
            // wrong with the settings is told where they are used.
            ledger.conversation.begin_turn();
            let _ = ledger.conversation.prepare();
        }
        ledger.conversation.clone()
    }

    pub(crate) fn logs(&self) -> usize {
        self.logs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_logs(&self, mildest: usize) {
        self.logs.store(mildest, Ordering::Relaxed);
    }

    /// Runs work on a request that can be cancelled; `false` if a request of that id runs
    /// already. The work must call [`finish`](Self::finish) before it answers.
    pub(crate) fn start(&self, id: Id, work: impl Future<Output = ()> + Send + 'static) -> bool {
        let mut running = self.lock();
        if running.contains_key(&id) {
            return false;
        }
        // Under the lock, so that work which is done at once finds itself here.
        running.insert(id, tokio::spawn(work).abort_handle());
        true
    }

    /// Notes that a request is done; `false` if it was cancelled, and so gets no answer.
    pub(crate) fn finish(&self, id: &Id) -> bool {
        self.lock().remove(id).is_some()
    }

    /// Ends a request, if it still runs.
    pub(crate) fn cancel(&self, id: &Id) {
        if let Some(work) = self.lock().remove(id) {
            work.abort();
        }
    }

    /// Ends every request.
    pub(crate) fn cancel_all(&self) {
        for (_, work) in self.lock().drain() {
            work.abort();
        }
    }

    /// Whether a request runs.
    pub(crate) fn is_busy(&self) -> bool {
        !self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Id, AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
