//! Sessions of the session era: each a client of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;

use super::guard::Visitor;
use crate::client::Client;
use crate::options::HttpOptions;
use crate::outbox::Outbox;
use crate::{Endpoint, Gateway};

/// One client, from `initialize` on.
pub(super) struct Session {
    id: String,
    client: Arc<Client>,
    visitor: Visitor,
    used: Mutex<Instant>,
    /// Where notices go, while the client listens.
    stream: Mutex<Weak<Outbox>>,
}

pub(super) struct Sessions {
    gateway: Gateway,
    most: usize,
    idle: Duration,
    open: Mutex<Open>,
}

struct Open {
    sessions: HashMap<String, Arc<Session>>,
    /// When those left alone were last looked for.
    swept: Instant,
}

impl Session {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Sends notices to this stream from now on. The one before ends: a client that opens another
    /// has lost it.
    pub(super) fn open_stream(&self, outbox: &Arc<Outbox>) {
        let before = std::mem::replace(&mut *lock(&self.stream), Arc::downgrade(outbox));
        if let Some(before) = before.upgrade() {
            before.close();
        }
    }

    fn is_left_alone(&self, idle: Duration) -> bool {
        let listens = lock(&self.stream).strong_count() > 0;
        !listens && !self.client.is_busy() && lock(&self.used).elapsed() > idle
    }

    fn end(&self) {
        self.client.cancel_all();
        if let Some(stream) = lock(&self.stream).upgrade() {
            stream.close();
        }
    }
}

impl Sessions {
    pub(super) fn new(options: &HttpOptions, gateway: Gateway) -> Self {
        let (most, idle) = (options.sessions, options.session_idle);
        let open = Open { sessions: HashMap::new(), swept: Instant::now() };
        Self { gateway, most, idle, open: Mutex::new(open) }
    }

    /// Opens a session; `None` if there are too many.
    pub(super) fn open(&self, endpoint: Endpoint, visitor: Visitor) -> Option<Arc<Session>> {
        let mut bytes = [0; 16];
        // Without chance an id could be guessed, so there is none.
        getrandom::fill(&mut bytes).ok()?;
        let requests_in_flight = self.gateway.options().requests_in_flight;
        let session = Arc::new(Session {
            id: HEXLOWER.encode(&bytes),
            client: Arc::new(Client::new(endpoint, requests_in_flight)),
            visitor,
            used: Mutex::new(Instant::now()),
            stream: Mutex::default(),
        });
        let mut open = lock(&self.open);
        // What is left alone holds memory: it is looked for now and then, and when space is short.
        if open.sessions.len() >= self.most || open.swept.elapsed() > self.idle / 8 {
            open.swept = Instant::now();
            open.sessions.retain(|_, session| !session.is_left_alone(self.idle));
        }
        if open.sessions.len() >= self.most {
            return None;
        }
        open.sessions.insert(session.id.clone(), session.clone());
        Some(session)
    }

    /// The session of that id, if it is this visitor's and at this endpoint.
    pub(super) fn find(
        &self,
        id: &str,
        endpoint: &Endpoint,
        visitor: Visitor,
    ) -> Option<Arc<Session>> {
        let mut open = lock(&self.open);
        let session = open.sessions.get(id)?.clone();
        if session.is_left_alone(self.idle) {
            open.sessions.remove(id);
            return None;
        }
        drop(open);
        *lock(&session.used) = Instant::now();
        let is_theirs = session.visitor == visitor && session.client.endpoint == *endpoint;
        is_theirs.then_some(session)
    }

    /// Ends a session with all it runs.
    pub(super) fn end(&self, id: &str) {
        let ended = lock(&self.open).sessions.remove(id);
        if let Some(session) = ended {
            session.end();
        }
    }

    /// Ends every session.
    pub(super) fn end_all(&self) {
        let all = std::mem::take(&mut lock(&self.open).sessions);
        all.values().for_each(|session| session.end());
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.open).sessions.len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
