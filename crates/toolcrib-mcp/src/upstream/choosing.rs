//! Who gets which connection, and how many there are.
//!
//! Most callers share one. A client that a server may ask something has its own, so that no
//! question goes astray; one whose requests stand for themselves borrows one for the time of a
//! call, unless the server speaks its way.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Duration, Instant, timeout};
use toolcrib_runtime::{Caller, Party};
use toolcrib_wire::Era;

use super::follows::Home;
use super::lanes::{Lane, LaneGuard, LaneKey};
use super::life::{Down, Phase, SHUT_DOWN};
use super::{Inner, Shared, State};
use crate::child::Place;
use crate::config::{Launch, Sharing};
use crate::connection::Connection;

/// How often a caller is given a connection that turns out to be of no use.
const MOST_TRIES: usize = 5;

/// How often those who wait for a connection look for one, whatever they are told.
const LOOK: Duration = Duration::from_secs(1);

/// How long a process may take to end.
const ENDING: Duration = Duration::from_secs(5);

/// What to do where there is no room for one more connection.
#[derive(Clone, Copy)]
pub(super) enum WhenFull {
    /// End another that nobody uses.
    MakeRoom,
    /// Do without.
    DoWithout,
}

/// What a caller gets at once.
pub(super) enum Pick {
    /// A connection, if it is there.
    Lane(LaneGuard, Option<Arc<Connection>>),
    /// None of this server's is free.
    FullHere,
    /// No process may be started, here or elsewhere. One may be ending already.
    FullAnywhere { is_ending: bool },
}

impl Inner {
    /// The connection for a caller, which is started if it isn't running. It is the caller's
    /// until the guard is dropped.
    pub(super) async fn connection_for(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<(Arc<Connection>, LaneGuard), String> {
        for _ in 0..MOST_TRIES {
            let (guard, connection) = match self.pick(caller, WhenFull::MakeRoom)? {
                Pick::Lane(guard, connection) => (guard, connection),
                Pick::FullHere | Pick::FullAnywhere { .. } => self.wait_for_lane(caller).await?,
            };
            let connection = match connection {
                Some(connection) => connection,
                None => match self.running(&guard).await {
                    Ok(connection) => connection,
                    Err(Down::Reason(reason) | Down::Crowded(reason)) => return Err(reason),
                    Err(Down::Elsewhere) => continue,
                },
            };
            // A client's own connection is told by the client itself.
            if let Some(level) = caller.log_level()
                && !matches!(guard.key, LaneKey::Own(_))
            {
                // One that keeps no log refuses, and has nothing to send.
                let _ = self.set_level(&connection, &guard, level).await;
            }
            return Ok((connection, guard));
        }
        Err("it ended again and again as it was about to be called".to_owned())
    }

    /// What a caller gets at once.
    pub(super) fn pick(
        self: &Arc<Self>,
        caller: &Caller,
        when_full: WhenFull,
    ) -> Result<Pick, String> {
        let mut state = self.lock();
        if state.is_over {
            return Err(SHUT_DOWN.to_owned());
        }
        let is_probe = match when_full {
            WhenFull::MakeRoom => state.breaker.admit()?,
            WhenFull::DoWithout => state.breaker.admit_idle().map(|()| false)?,
        };
        let mut key = self.lane_for(&state, caller);
        if let LaneKey::Leased { group, .. } = key
            && self.is_child()
        {
            key = state.free_slot(group);
        }
        if state.lanes.get(key).is_none()
            && let Some(full) = self.add_lane(&mut state, key, caller, when_full).transpose()
        {
            if is_probe {
                state.breaker.undecided();
            }
            return full;
        }
        let guard = self.guard(&mut state, key, is_probe);
        let connection = state.lanes.get(key).and_then(Lane::open).cloned();
        Ok(Pick::Lane(guard, connection))
    }

    /// Adds the place of a connection, if there is room for one.
    fn add_lane(
        self: &Arc<Self>,
        state: &mut State,
        key: LaneKey,
        caller: &Caller,
        when_full: WhenFull,
    ) -> Result<Option<Pick>, String> {
        if caller.party().is_some_and(|party| party.has_ended()) {
            return Err("its client has left".to_owned());
        }
        let place = match key.is_counted().then(|| self.make_room(state, when_full)) {
            None => None,
            Some(Ok(place)) => place,
            Some(Err(full)) => return Ok(Some(full)),
        };
        let party = caller.party().filter(|_| key.is_counted()).cloned();
        state.lanes.others.insert(key, Lane::new(party, place));
        Ok(None)
    }

    /// Which connection a caller needs.
    pub(super) fn lane_for(&self, state: &State, caller: &Caller) -> LaneKey {
        let Some(party) = caller.party() else { return LaneKey::Main };
        if self.config.sessions == Sharing::Shared {
            return LaneKey::Main;
        }
        if state.eras.sessions == Some(false) {
            return state.only_lane();
        }
        match party.era() {
            Era::Stateless if state.eras.stateless != Some(false) => LaneKey::Stateless,
            Era::Stateless if party.can_be_asked() => {
                LaneKey::Leased { group: group(party), slot: 0 }
            }
            Era::Stateless => LaneKey::Main,
            Era::Sessions => {
                let own = LaneKey::Own(party.id());
                let must = party.can_be_asked() || self.config.sessions == Sharing::Own;
                // A session costs little, and keeps apart what the server remembers of clients.
                let may = !self.is_child()
                    && state.gives_sessions != Some(false)
                    && state.lanes.counted() < self.config.connections()
                    // What it follows is followed where its calls go.
                    && state.follows.home_of(party.id()) != Some(Home::Main);
                let has = || state.lanes.others.contains_key(&own);
                if must || may || has() { own } else { LaneKey::Main }
            }
        }
    }

    pub(super) fn is_child(&self) -> bool {
        matches!(self.config.launch, Launch::Command { .. })
    }

    /// Makes room for one more, ending the one that was idle for longest if need be.
    fn make_room(
        self: &Arc<Self>,
        state: &mut State,
        when_full: WhenFull,
    ) -> Result<Option<Place>, Pick> {
        let is_full = state.lanes.counted() >= self.config.connections();
        if is_full {
            let idlest = state.idlest().filter(|_| matches!(when_full, WhenFull::MakeRoom));
            let Some((.., key)) = idlest else { return Err(Pick::FullHere) };
            self.evict(state, key);
        }
        if !self.is_child() {
            return Ok(None);
        }
        match self.shared.processes.clone().try_acquire_owned() {
            Ok(permit) => {
                let taken = Taken { permit: Some(permit), shared: self.shared.clone() };
                Ok(Some(Box::new(taken)))
            }
            Err(_) => Err(Pick::FullAnywhere { is_ending: is_full }),
        }
    }

    fn evict(self: &Arc<Self>, state: &mut State, key: LaneKey) {
        let server = &self.config.name;
        tracing::info!(server, ?key, "ended to make room for another client: its state is lost");
        if let Some(phase) = state.lanes.stop(key) {
            phase.close("it was ended to make room for another client");
        }
        if let (true, Ok(runtime)) = (state.follows.has(key.into()), Handle::try_current()) {
            let inner = self.clone();
            runtime.spawn(async move { inner.follow_on() });
        }
    }

    /// Waits until a connection is free, or can be made so.
    async fn wait_for_lane(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<(LaneGuard, Option<Arc<Connection>>), String> {
        let limit = self.config.call_limit;
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut evicted: Option<Instant> = None;
        loop {
            let (here, anywhere) = (self.freed.notified(), self.shared.freed.notified());
            tokio::pin!(here, anywhere);
            match self.pick(caller, WhenFull::MakeRoom)? {
                Pick::Lane(guard, connection) => return Ok((guard, connection)),
                Pick::FullHere => {
                    let _ = timeout(LOOK, here).await;
                }
                Pick::FullAnywhere { is_ending } => {
                    // A process takes a moment to end: no reason to end another.
                    let is_ending = is_ending || evicted.is_some_and(|at| at.elapsed() < ENDING);
                    if !is_ending && self.shared.evict_idlest() {
                        evicted = Some(Instant::now());
                    }
                    let _ = timeout(LOOK, anywhere).await;
                }
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                let in_use = self.lock().lanes.counted();
                let limit = limit.unwrap_or_default();
                return Err(format!(
                    "it has no free connection ({in_use} in use, and none was free within {limit:?})"
                ));
            }
        }
    }
}

impl State {
    /// Where requests without a session go if the server knows none with one: never to a second
    /// process.
    fn only_lane(&self) -> LaneKey {
        let is_elsewhere = self.lanes.others.contains_key(&LaneKey::Stateless);
        match self.lanes.main.phase {
            _ if is_elsewhere && self.follows.has(Home::Stateless) => LaneKey::Stateless,
            _ if self.follows.has(Home::Main) => LaneKey::Main,
            Phase::Stopped if is_elsewhere => LaneKey::Stateless,
            _ => LaneKey::Main,
        }
    }

    /// The slot of a group that nobody has borrowed, or the number of a new one.
    fn free_slot(&self, group: u128) -> LaneKey {
        let slots = || (0..=u8::MAX).map(|slot| LaneKey::Leased { group, slot });
        let lane = |key: &LaneKey| self.lanes.others.get(key);
        let is_free = |key: &LaneKey| lane(key).is_some_and(|lane| lane.users == 0);
        let is_new = |key: &LaneKey| lane(key).is_none();
        // There are fewer connections than slots.
        let found = slots().find(is_free).or_else(|| slots().find(is_new));
        found.unwrap_or(LaneKey::Leased { group, slot: u8::MAX })
    }
}

impl Shared {
    /// Ends the connection that was idle for longest, of whatever server, if there is one.
    fn evict_idlest(&self) -> bool {
        let open: Vec<Arc<Inner>> = self.lock().iter().filter_map(|it| it.upgrade()).collect();
        let idle = |inner: &Arc<Inner>| {
            let idlest = inner.is_child().then(|| inner.lock().idlest()).flatten();
            idlest.map(|(is_followed, since, key)| ((is_followed, since), key, inner.clone()))
        };
        let idlest = open.iter().filter_map(idle).min_by_key(|(rank, ..)| *rank);
        idlest.is_some_and(|(_, key, inner)| {
            let mut state = inner.lock();
            // It may have been taken meanwhile.
            let is_idle = state.lanes.get(key).is_some_and(|lane| lane.users == 0);
            if is_idle {
                inner.evict(&mut state, key);
            }
            is_idle
        })
    }
}

/// A place among all processes. Others are told when it is free again.
struct Taken {
    permit: Option<OwnedSemaphorePermit>,
    shared: Arc<Shared>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        drop(self.permit.take());
        self.shared.freed.notify_one();
    }
}

/// Clients that may use the same connection one after the other. No client can choose its
/// capabilities so that it gets into another's group.
fn group(party: &Party) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&party.principal().to_le_bytes());
    hasher.update(party.capabilities().map_or("", |raw| raw.get()).as_bytes());
    let mut prefix = [0; 16];
    hasher.finalize_xof().fill(&mut prefix);
    u128::from_le_bytes(prefix)
}
