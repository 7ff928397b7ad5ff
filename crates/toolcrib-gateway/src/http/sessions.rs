//! Sessions of the session era: each a client of its own.

use std::collections::HashMap;
use std::ops::Deref;
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
    /// When it was last of use.
    used: Mutex<Instant>,
    /// Where notices go, while the client listens.
    stream: Mutex<Weak<Outbox>>,
}

/// A session in use, by a request or a stream.
pub(super) struct Visit(Arc<Session>);

impl Deref for Visit {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
    }
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
        // Whoever ends the session now finds the stream; whoever did before has not.
        if self.client.has_ended() {
            outbox.close();
        }
    }

    fn end(&self) {
        self.client.end();
        if let Some(stream) = lock(&self.stream).upgrade() {
            stream.close();
        }
    }
}

/// Whether nobody uses a session, nor has for a while.
fn is_left_alone(session: &Arc<Session>, idle: Duration) -> bool {
    Arc::strong_count(session) == 1 && lock(&session.used).elapsed() > idle
}

impl Sessions {
    pub(super) fn new(options: &HttpOptions, gateway: Gateway) -> Self {
        let (most, idle) = (options.sessions, options.session_idle);
        let open = Open { sessions: HashMap::new(), swept: Instant::now() };
        Self { gateway, most, idle, open: Mutex::new(open) }
    }

    /// Opens a session; `None` if there are too many.
    pub(super) fn open(&self, endpoint: Endpoint, visitor: Visitor) -> Option<Visit> {
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
        // What is left alone holds memory: it is looked for now and then. When space is short, who
        // stayed away for a while gives way to who comes: they can begin again.
        let short = self.idle / 8;
        let is_full = open.sessions.len() >= self.most;
        if is_full || open.swept.elapsed() > short {
            open.swept = Instant::now();
            let idle = if is_full { short } else { self.idle };
            open.sessions.retain(|_, session| !is_left_alone(session, idle));
        }
        if open.sessions.len() >= self.most {
            return None;
        }
        open.sessions.insert(session.id.clone(), session.clone());
        Some(Visit(session))
    }

    /// The session of that id, if it is this visitor's and at this endpoint.
    pub(super) fn find(&self, id: &str, endpoint: &Endpoint, visitor: Visitor) -> Option<Visit> {
        let mut open = lock(&self.open);
        let session = open.sessions.get(id)?;
        if is_left_alone(session, self.idle) {
            open.sessions.remove(id);
            return None;
        }
        let is_theirs = session.visitor == visitor && session.client.endpoint == *endpoint;
        is_theirs.then(|| Visit(session.clone()))
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
