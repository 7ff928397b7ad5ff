//! Sessions of the session era: each a client of its own.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use data_encoding::HEXLOWER;
use tokio::time::sleep;

use super::guard::Visitor;
use super::resume::Streams;
use crate::client::Client;
use crate::ends::Ends;
use crate::options::HttpOptions;
use crate::outbox::Allowance;
use crate::seat::Seat;
use crate::{Endpoint, Gateway};

/// Bytes of streams that are kept for those who may come back for them.
const MOST_KEPT_OF_ALL: usize = 64 << 20;

/// One client, from `initialize` on.
pub(super) struct Session {
    id: String,
    client: Arc<Client>,
    streams: Arc<Streams>,
    /// When it was last of use.
    used: Mutex<Instant>,
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
    /// How many one caller may have.
    share: usize,
    idle: Duration,
    /// What is kept of the streams of all.
    kept: Arc<Allowance>,
    open: Arc<Mutex<Open>>,
    /// Looks for those left alone, once there are any: they hold memory.
    sweeping: OnceLock<Ends>,
}

/// By their ids.
type Open = HashMap<String, Arc<Session>>;

impl Session {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(super) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }
}

/// Whether nobody uses a session, nor has for a while.
fn is_left_alone(session: &Arc<Session>, idle: Duration) -> bool {
    Arc::strong_count(session) == 1 && lock(&session.used).elapsed() > idle
}

impl Sessions {
    pub(super) fn new(options: &HttpOptions, gateway: Gateway) -> Self {
        let (most, idle) = (options.sessions, options.session_idle);
        // Where callers are told apart, none of them takes the place of all others.
        let is_shared = options.tokens.len() > 1 || options.oauth.is_some();
        let share = if is_shared { most.div_ceil(4) } else { most };
        let (open, sweeping) = (Arc::default(), OnceLock::new());
        let kept = Arc::new(Allowance::new(MOST_KEPT_OF_ALL));
        Self { gateway, most, share, idle, kept, open, sweeping }
    }

    /// Opens a session; `None` if there are too many, of all callers or of this one.
    pub(super) fn open(
        &self,
        endpoint: Endpoint,
        visitor: Visitor,
        version: &str,
    ) -> Option<Visit> {
        let mut bytes = [0; 16];
        // Without chance an id could be guessed, so there is none.
        getrandom::fill(&mut bytes).ok()?;
        let requests_in_flight = self.gateway.options().requests_in_flight;
        let id = HEXLOWER.encode(&bytes);
        let session = Arc::new(Session {
            streams: Arc::new(Streams::new(&id, version, self.kept.clone())),
            id,
            client: Arc::new(Client::new(visitor, endpoint, requests_in_flight)),
            used: Mutex::new(Instant::now()),
        });
        self.sweeping.get_or_init(|| {
            let sweeping = sweep(Arc::downgrade(&self.open), self.idle);
            Ends(tokio::spawn(sweeping).abort_handle())
        });
        let principal = session.client.principal();
        let is_own = |session: &Session| session.client.principal() == principal;
        let takes_all = |open: &Open| open.len() >= self.most;
        let takes_share = |open: &Open| {
            open.len() >= self.share && open.values().filter(|it| is_own(it)).count() >= self.share
        };
        let mut open = lock(&self.open);
        // When space is short, who stayed away for a while gives way to who comes: they can begin
        // again.
        let (of_all, of_own) = (takes_all(&open), takes_share(&open));
        if of_all || of_own {
            let away = self.idle / 8;
            let goes = |session: &Arc<Session>| of_all || is_own(session);
            open.retain(|_, session| !(goes(session) && is_left_alone(session, away)));
            if takes_all(&open) || takes_share(&open) {
                return None;
            }
        }
        open.insert(session.id.clone(), session.clone());
        Some(Visit(session))
    }

    /// The session of that id, if it is this visitor's and at this endpoint.
    pub(super) fn find(&self, id: &str, endpoint: &Endpoint, visitor: &Seat) -> Option<Visit> {
        let mut open = lock(&self.open);
        let session = open.get(id)?;
        if is_left_alone(session, self.idle) {
            open.remove(id);
            return None;
        }
        let is_theirs =
            session.client.seat.is_same(visitor) && session.client.endpoint == *endpoint;
        is_theirs.then(|| Visit(session.clone()))
    }

    /// Ends a session with all it runs.
    pub(super) fn end(&self, id: &str) {
        let ended = lock(&self.open).remove(id);
        if let Some(session) = ended {
            session.client.end();
        }
    }

    /// Ends every session.
    pub(super) fn end_all(&self) {
        let all = std::mem::take(&mut *lock(&self.open));
        all.values().for_each(|session| session.client.end());
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.open).len()
    }
}

/// Ends the sessions that are left alone, now and then, and forgets what nobody came back for.
async fn sweep(open: Weak<Mutex<Open>>, idle: Duration) {
    let pause = (idle / 8).clamp(Duration::from_millis(100), Duration::from_secs(60));
    loop {
        sleep(pause).await;
        let Some(open) = open.upgrade() else { return };
        let left: Vec<_> = {
            let mut open = lock(&open);
            open.values().for_each(|session| session.streams.tidy());
            open.extract_if(|_, session| is_left_alone(session, idle)).collect()
        };
        // They end without the lock.
        drop(left);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
