//! The life of a server: one start for all who wait, time when it fails, an end.
//!
//! Every step is taken under the lock of the state, by whoever sees first that it is due, and is
//! a matter of the phase found there: so none is taken twice, and none after the end.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::{broadcast, watch as channel};
use tokio::time::{Duration, Instant, sleep_until};
use toolcrib_runtime::Party;

use super::lanes::{LaneGuard, LaneKey};
use super::{Inner, State};
use crate::board::Noticed;
use crate::child::Place;
use crate::connection::Connection;
use crate::handshake::Greeting;

/// A server that ran for this long was of use.
const PROVEN: Duration = Duration::from_secs(10);

/// How often in a row a server may die without having been of use and is started again at once.
const FORGIVEN: u32 = 2;

/// The longest time between two attempts.
const MOST_BACKOFF: Duration = Duration::from_secs(300);

/// How long to wait where there was no room for what a server lists.
const CROWDED: Duration = Duration::from_secs(1);

pub(super) const SHUT_DOWN: &str = "it was shut down";

type Starting = Shared<BoxFuture<'static, Result<Arc<Connection>, Down>>>;

pub(super) enum Phase {
    Stopped,
    Starting(Starting),
    Running(Running),
}

pub(super) struct Running {
    pub(super) connection: Arc<Connection>,
    pub(super) greeting: Greeting,
    pub(super) since: Instant,
    pub(super) start_took: Duration,
}

impl Phase {
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped)
    }

    /// Ends what runs, without waiting for it.
    pub(super) fn close(&self, reason: &str) {
        if let Self::Running(running) = self {
            running.connection.close(reason);
        }
    }
}

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(super) enum Down {
    /// For this reason.
    Reason(String),
    /// It answered, but there was no room for that, for this reason: it may be quite well.
    Crowded(String),
    /// It is gone, or not one that the server can have: the caller may need another.
    Elsewhere,
}

impl From<String> for Down {
    fn from(reason: String) -> Self {
        Self::Reason(reason)
    }
}

impl Down {
    /// The reason, for people.
    pub(super) fn reason(self) -> String {
        match self {
            Self::Reason(reason) | Self::Crowded(reason) => reason,
            Self::Elsewhere => "it ended as it was about to be called".to_owned(),
        }
    }
}

/// Why it can't be called, and when it is tried again.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) reason: String,
    pub(super) until: Instant,
}

/// What is started: which connection, for whom, with a place among all processes.
pub(super) struct Begun {
    pub(super) key: LaneKey,
    serial: u64,
    pub(super) party: Option<Arc<Party>>,
    pub(super) place: Option<Place>,
}

/// What a connection tells without being asked.
pub(super) struct Signs {
    /// Tells of changes since the list was asked for.
    pub(super) tools_changed: channel::Receiver<u64>,
    pub(super) news: broadcast::Receiver<Noticed>,
}

impl State {
    /// What runs on this connection.
    pub(super) fn running(&self, connection: &Arc<Connection>) -> Option<(LaneKey, &Running)> {
        let key = self.lanes.find(connection)?;
        match &self.lanes.get(key)?.phase {
            Phase::Running(running) => Some((key, running)),
            Phase::Stopped | Phase::Starting(_) => None,
        }
    }

    /// Which one was begun, unless it is gone.
    pub(super) fn lane_of(&mut self, begun: &Begun) -> Option<&mut super::lanes::Lane> {
        let lane = self.lanes.get_mut(begun.key);
        lane.filter(|lane| lane.serial == begun.serial && !self.is_over)
    }

    /// Counts a failure, unless it is left alone already: what fails then failed for the same
    /// cause. Says whether it was counted.
    fn note_failure(&mut self) -> bool {
        let now = Instant::now();
        let is_known = self.trouble.as_ref().is_some_and(|trouble| trouble.until > now);
        if !is_known {
            self.failures = self.failures.saturating_add(1);
        }
        !is_known
    }
}

impl Inner {
    /// The connection that a guard holds, which is started if it isn't running: once, however
    /// many wait.
    pub(super) async fn running(
        self: &Arc<Self>,
        guard: &LaneGuard,
    ) -> Result<Arc<Connection>, Down> {
        loop {
            let starting = {
                let mut state = self.lock();
                if state.is_over {
                    return Err(Down::Reason(SHUT_DOWN.to_owned()));
                }
                let lane = state.lanes.get(guard.key).filter(|lane| lane.serial == guard.serial);
                let Some(lane) = lane else { return Err(Down::Elsewhere) };
                match &lane.phase {
                    Phase::Running(running) if running.connection.board().is_open() => {
                        return Ok(running.connection.clone());
                    }
                    Phase::Running(running) => Err(running.connection.clone()),
                    // One that is done and still here broke off.
                    Phase::Starting(starting) if starting.peek().is_none() => Ok(starting.clone()),
                    Phase::Starting(_) | Phase::Stopped => Ok(self.begin(&mut state, guard.key)?),
                }
            };
            match starting {
                Ok(starting) => return starting.await,
                Err(ending) => {
                    ending.board().ended().await;
                    self.lost(&ending);
                }
            }
        }
    }

    /// The main connection.
    pub(super) async fn main_connection(
        self: &Arc<Self>,
    ) -> Result<(Arc<Connection>, LaneGuard), String> {
        let guard = self.hold_main();
        let connection = self.running(&guard).await.map_err(Down::reason)?;
        Ok((connection, guard))
    }

    /// The same, even if it is not yet time to try again.
    pub(super) async fn main_connection_now(
        self: &Arc<Self>,
    ) -> Result<(Arc<Connection>, LaneGuard), String> {
        if let Some(trouble) = &mut self.lock().trouble {
            trouble.until = Instant::now();
        }
        self.main_connection().await
    }

    fn begin(self: &Arc<Self>, state: &mut State, key: LaneKey) -> Result<Starting, String> {
        let now = Instant::now();
        if let Some(trouble) = state.trouble.as_ref().filter(|trouble| trouble.until > now) {
            let wait = (trouble.until - now).as_secs_f32().ceil();
            return Err(format!("{} (it is tried again in {wait} s)", trouble.reason));
        }
        let Some(lane) = state.lanes.get_mut(key) else { return Err(SHUT_DOWN.to_owned()) };
        let (party, place) = (lane.party.clone(), lane.place.take());
        let begun = Begun { key, serial: lane.serial, party, place };
        // A task of its own, so that it goes on when a caller gives up.
        let task = tokio::spawn(self.clone().start(begun));
        let lost = |_| Err(Down::Reason("its start was given up".to_owned()));
        let starting = task.map(move |result| result.unwrap_or_else(lost)).boxed().shared();
        lane.phase = Phase::Starting(starting.clone());
        Ok(starting)
    }

    /// Notes that it can't be started, and gives the reason back as it may be shown.
    pub(super) fn failed(self: &Arc<Self>, begun: &Begun, down: Down) -> Down {
        let mut state = self.lock();
        let is_there = state.lane_of(begun).is_some();
        let (reason, is_crowded) = match down {
            Down::Reason(reason) => (self.secrets.hide(&reason), false),
            Down::Crowded(reason) => (self.secrets.hide(&reason), true),
            Down::Elsewhere => {
                if is_there {
                    state.lanes.stop(begun.key);
                }
                return Down::Elsewhere;
            }
        };
        if is_there {
            tracing::debug!(server = self.config.name, reason, "can't be started");
            state.lanes.stop(begun.key);
            if !is_crowded {
                if state.note_failure() {
                    self.back_off(&mut state, &reason);
                }
            } else if state.manifest.is_none() {
                // Nobody would call what has not been listed.
                self.leave_alone(&mut state, &reason, CROWDED);
            }
            drop(state);
            self.changed();
        }
        Down::Reason(reason)
    }

    /// Notes that a connection was lost. The next call starts another, but a server that dies
    /// again and again before it is of use is given time.
    pub(super) fn lost(self: &Arc<Self>, connection: &Arc<Connection>) {
        let mut state = self.lock();
        let Some((key, running)) = state.running(connection) else { return };
        if running.since.elapsed() >= PROVEN {
            state.failures = 0;
        }
        let reason = self.secrets.hide(connection.board().end().unwrap_or("it ended"));
        tracing::warn!(server = self.config.name, lane = ?key, reason, "lost");
        let before = state.lanes.stop(key);
        if state.note_failure() && state.failures > FORGIVEN {
            self.back_off(&mut state, &reason);
            drop(state);
            self.changed();
        } else {
            drop(state);
            self.follow_on();
        }
        drop(before);
        self.freed.notify_one();
    }

    /// Leaves it alone for longer each time that it fails.
    fn back_off(self: &Arc<Self>, state: &mut State, reason: &str) {
        let backoff = Duration::from_secs(1 << (state.failures - 1).min(9)).min(MOST_BACKOFF);
        self.leave_alone(state, reason, backoff);
    }

    /// Leaves it alone for a while, and tries again then: nobody calls what they are told is down.
    fn leave_alone(self: &Arc<Self>, state: &mut State, reason: &str, pause: Duration) {
        let until = Instant::now() + pause;
        state.trouble = Some(Trouble { reason: reason.to_owned(), until });
        let inner = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep_until(until).await;
            if let Some(inner) = inner.upgrade() {
                // What comes of it is noted by the start itself.
                let _ = inner.main_connection().await;
                inner.follow_on();
            }
        });
    }

    /// Lets go of a connection that is of no use any more.
    pub(super) fn retire(self: &Arc<Self>, connection: &Arc<Connection>, reason: &str) {
        connection.retire(reason);
        self.lost(connection);
    }

    /// Ends it for good without waiting for it. Returns what there is to wait for.
    pub(super) fn let_go(&self) -> Vec<Phase> {
        let mut state = self.lock();
        state.is_over = true;
        let lanes = state.lanes.keys();
        let before: Vec<Phase> =
            lanes.into_iter().filter_map(|key| state.lanes.stop(key)).collect();
        drop(state);
        self.ended.send_replace(true);
        for phase in &before {
            phase.close(SHUT_DOWN);
        }
        before
    }

    pub(super) async fn shut_down(&self) {
        let ending = self.let_go().into_iter().map(|phase| async move {
            match phase {
                Phase::Running(running) => running.connection.end(SHUT_DOWN).await,
                // It sees the end at once.
                Phase::Starting(starting) => drop(starting.await),
                Phase::Stopped => {}
            }
        });
        futures::future::join_all(ending).await;
        // What was stopped or given up before may still be about to end.
        let _ = self.processes.subscribe().wait_for(|count| *count == 0).await;
    }
}
