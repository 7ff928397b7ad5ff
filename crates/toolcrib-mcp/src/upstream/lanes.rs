//! The connections to a server, and what keeps one in use.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::time::{Duration, Instant, sleep_until};
use toolcrib_runtime::Party;

use super::life::Phase;
use super::{Inner, State};
use crate::child::Place;
use crate::connection::{Connection, Failure};

/// How long a connection that is lent out is kept for the next call.
const LEASED_IDLE: Duration = Duration::from_secs(60);

/// Which connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LaneKey {
    /// The one for all who need none of their own. It declares no capability.
    Main,
    /// The one without a session, which all can share: each request says whose it is.
    Stateless,
    /// A client's own, by its number.
    Own(u64),
    /// One that is lent to clients that can do the same and have the same principal.
    Leased { group: u128, slot: u8 },
}

impl LaneKey {
    /// Whether it counts among those of which there are only so many.
    pub(super) fn is_counted(self) -> bool {
        matches!(self, Self::Own(_) | Self::Leased { .. })
    }
}

/// A connection, or the place of one. All but the main one are started once, and gone with their
/// process or session.
pub(super) struct Lane {
    pub(super) phase: Phase,
    /// Calls under way, those that wait for it to start among them.
    pub(super) users: usize,
    pub(super) last_used: Instant,
    /// Tells it from others that have had its key.
    pub(super) serial: u64,
    /// The client it speaks for.
    pub(super) party: Option<Arc<Party>>,
    /// Its place among all processes, until it has one.
    pub(super) place: Option<Place>,
    /// The mildest log messages that were asked for.
    pub(super) level: Option<usize>,
}

impl Lane {
    pub(super) fn new(party: Option<Arc<Party>>, place: Option<Place>) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            phase: Phase::Stopped,
            users: 0,
            last_used: Instant::now(),
            serial: LAST.fetch_add(1, Ordering::Relaxed),
            party,
            place,
            level: None,
        }
    }

    pub(super) fn open(&self) -> Option<&Arc<Connection>> {
        match &self.phase {
            Phase::Running(running) if running.connection.board().is_open() => {
                Some(&running.connection)
            }
            _ => None,
        }
    }
}

/// The connections to a server.
pub(super) struct Lanes {
    pub(super) main: Lane,
    pub(super) others: HashMap<LaneKey, Lane>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { main: Lane::new(None, None), others: HashMap::new() }
    }
}

impl Lanes {
    pub(super) fn get(&self, key: LaneKey) -> Option<&Lane> {
        match key {
            LaneKey::Main => Some(&self.main),
            _ => self.others.get(&key),
        }
    }

    pub(super) fn get_mut(&mut self, key: LaneKey) -> Option<&mut Lane> {
        match key {
            LaneKey::Main => Some(&mut self.main),
            _ => self.others.get_mut(&key),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LaneKey, &Lane)> {
        let others = self.others.iter().map(|(key, lane)| (*key, lane));
        std::iter::once((LaneKey::Main, &self.main)).chain(others)
    }

    /// Which one runs on this connection.
    pub(super) fn find(&self, connection: &Arc<Connection>) -> Option<LaneKey> {
        let is_it = |lane: &Lane| matches!(&lane.phase, Phase::Running(running) if Arc::ptr_eq(&running.connection, connection));
        self.iter().find(|(_, lane)| is_it(lane)).map(|(key, _)| key)
    }

    /// A connection that can be used, the main one if that is.
    pub(super) fn any_open(&self) -> Option<&Arc<Connection>> {
        self.iter().find_map(|(_, lane)| lane.open())
    }

    /// How many there are that run or are about to.
    pub(super) fn connections(&self) -> usize {
        self.iter().filter(|(_, lane)| !lane.phase.is_stopped()).count()
    }

    /// Ends one's life here: the main one is merely stopped, another is gone.
    pub(super) fn stop(&mut self, key: LaneKey) -> Option<Phase> {
        match key {
            LaneKey::Main => Some(std::mem::replace(&mut self.main.phase, Phase::Stopped)),
            _ => self.others.remove(&key).map(|lane| lane.phase),
        }
    }

    /// The keys of all.
    pub(super) fn keys(&self) -> Vec<LaneKey> {
        self.iter().map(|(key, _)| key).collect()
    }

    /// How many there are of which there are only so many.
    pub(super) fn counted(&self) -> usize {
        self.others.keys().filter(|key| key.is_counted()).count()
    }
}

/// Keeps a connection from being stopped, and one that is lent from being lent to another, while
/// a call is under way. What the call showed of the server is noted when this is dropped.
pub(super) struct LaneGuard {
    inner: Arc<Inner>,
    pub(super) key: LaneKey,
    pub(super) serial: u64,
    /// Whether it is the call that finds out whether the server is well again.
    is_probe: bool,
    went: Went,
}

enum Went {
    Unknown,
    /// Nothing was called.
    NoCall,
    Well,
    Wrong(Arc<Connection>, Failure),
}

impl LaneGuard {
    /// Nothing was called, and so nothing is known of how the server is.
    pub(super) fn was_no_call(&mut self) {
        self.went = Went::NoCall;
    }

    /// The server answered.
    pub(super) fn went_well(&mut self) {
        self.went = Went::Well;
    }

    /// The call failed.
    pub(super) fn went_wrong(&mut self, connection: &Arc<Connection>, failure: &Failure) {
        self.went = Went::Wrong(connection.clone(), failure.clone());
    }

    /// Whether a connection can't be lent again: what the server still asks in the course of a
    /// call that was given up must not reach the next one.
    fn is_spent(&self) -> bool {
        let is_lent = matches!(self.key, LaneKey::Leased { .. }) && self.inner.is_child();
        let is_answered = match &self.went {
            Went::Well | Went::NoCall => true,
            // It did answer.
            Went::Wrong(_, failure) => matches!(failure, Failure::Unread(_)),
            Went::Unknown => false,
        };
        is_lent && !is_answered
    }
}

impl Drop for LaneGuard {
    fn drop(&mut self) {
        let mut state = self.inner.lock();
        let mut closed = false;
        let mut opened = None;
        match &self.went {
            Went::Well => {
                state.failures = 0;
                closed = state.breaker.well();
            }
            Went::Wrong(connection, failure) => {
                let secrets = &self.inner.secrets;
                opened = state.breaker.strike(connection, failure, self.is_probe, secrets);
            }
            Went::Unknown | Went::NoCall => {}
        }
        if self.is_probe {
            state.breaker.undecided();
        }
        let is_shunned = !state.breaker.is_closed() && !matches!(self.went, Went::NoCall);
        let mut ended = Vec::new();
        let lane = state.lanes.get_mut(self.key).filter(|lane| lane.serial == self.serial);
        let is_free = lane.is_some_and(|lane| {
            lane.users -= 1;
            lane.last_used = Instant::now();
            lane.users == 0
        });
        if opened.is_some() {
            ended = state.stop_idle();
        } else if is_free && self.key != LaneKey::Main {
            let phase = state.lanes.get(self.key).map(|lane| &lane.phase);
            let is_over = match phase {
                Some(Phase::Running(_)) => is_shunned || self.is_spent(),
                Some(Phase::Stopped) => true,
                Some(Phase::Starting(_)) | None => false,
            };
            if is_over {
                ended.extend(state.lanes.stop(self.key));
            }
        }
        drop(state);
        if closed || opened.is_some() {
            self.inner.changed();
        }
        if let Some(until) = opened {
            self.inner.tell_when_tried_again(until);
        }
        for phase in &ended {
            phase.close("it was ended after a call that had no answer");
        }
        if !ended.is_empty() {
            self.inner.follow_on();
        }
        if is_free && self.key.is_counted() {
            self.inner.freed.notify_one();
            self.inner.shared.freed.notify_one();
        }
    }
}

impl State {
    /// The connection to end first where there is no room: one that nobody follows anything on,
    /// and of those the one that nobody has used for longest.
    pub(super) fn idlest(&self) -> Option<(bool, Instant, LaneKey)> {
        let others = self.lanes.others.iter();
        let idle = others.filter(|(key, lane)| key.is_counted() && lane.users == 0);
        let idle = idle.map(|(key, lane)| (self.is_followed(*key), lane.last_used, *key));
        idle.min_by_key(|(is_followed, since, _)| (*is_followed, *since))
    }

    /// Stops all that nobody uses. What is returned is to be closed.
    fn stop_idle(&mut self) -> Vec<Phase> {
        let idle = |state: &Self, key: &LaneKey| {
            state
                .lanes
                .get(*key)
                .is_some_and(|lane| lane.users == 0 && !matches!(lane.phase, Phase::Starting(_)))
        };
        let keys: Vec<LaneKey> =
            self.lanes.keys().into_iter().filter(|key| idle(self, key)).collect();
        keys.into_iter().filter_map(|key| self.lanes.stop(key)).collect()
    }
}

impl Inner {
    /// The main connection, for what is nobody's call in particular.
    pub(super) fn hold_main(self: &Arc<Self>) -> LaneGuard {
        let mut state = self.lock();
        self.guard(&mut state, LaneKey::Main, false)
    }

    pub(super) fn guard(
        self: &Arc<Self>,
        state: &mut State,
        key: LaneKey,
        is_probe: bool,
    ) -> LaneGuard {
        let lane = state.lanes.get_mut(key);
        let serial = lane.map_or(u64::MAX, |lane| {
            lane.users += 1;
            lane.serial
        });
        LaneGuard { inner: self.clone(), key, serial, is_probe, went: Went::Unknown }
    }

    /// Whether nobody uses a connection.
    pub(super) fn is_idle(&self, connection: &Arc<Connection>) -> bool {
        let state = self.lock();
        let lane = state.lanes.find(connection).and_then(|key| state.lanes.get(key));
        lane.is_some_and(|lane| lane.users == 0)
    }

    /// How long a connection may be idle.
    pub(super) fn idle_limit(&self, key: LaneKey) -> Option<Duration> {
        match key {
            LaneKey::Leased { .. } => {
                Some(self.config.idle_stop.map_or(LEASED_IDLE, |idle| idle.min(LEASED_IDLE)))
            }
            _ => self.config.idle_stop,
        }
    }

    /// Tells that calls may get through again, when one may find out.
    fn tell_when_tried_again(self: &Arc<Self>, until: Instant) {
        let Ok(runtime) = Handle::try_current() else { return };
        let inner = Arc::downgrade(self);
        runtime.spawn(async move {
            sleep_until(until).await;
            let Some(inner) = inner.upgrade() else { return };
            inner.changed();
            inner.follow_on();
        });
    }
}
