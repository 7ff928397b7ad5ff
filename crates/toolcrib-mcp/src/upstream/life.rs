//! The life of a server: starting it once for all who wait, giving it time when it fails, ending
//! it.
//!
//! Every step is taken under the lock of the state, by whoever sees first that it is due, and is
//! a matter of the phase found there: so none is taken twice, and none after the end.

use std::collections::HashSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::{OwnedSemaphorePermit, broadcast, oneshot, watch as channel};
use tokio::time::{Duration, Instant, sleep_until, timeout};
use toolcrib_runtime::{Manifest, NoRoom, Party};
use toolcrib_wire::Era;

use super::following::Since;
use super::lanes::{LaneGuard, LaneKey};
use super::{Inner, State, watch};
use crate::board::{Board, Noticed};
use crate::child::{self, Alive, Place};
use crate::config::Launch;
use crate::connection::{Connection, Failure, Link};
use crate::handshake::{Greeting, greet, may_be_stateless};
use crate::{http, list};

/// A server that takes longer than this to start no longer keeps others from starting.
const SLOW: Duration = Duration::from_secs(2);

/// A server that ran for this long was of use.
const PROVEN: Duration = Duration::from_secs(10);

/// How often in a row a server may die without having been of use and is started again at once.
const FORGIVEN: u32 = 2;

/// The longest time between two attempts.
const MOST_BACKOFF: Duration = Duration::from_secs(300);

/// How long to wait where there was no room for what a server lists.
const CROWDED: Duration = Duration::from_secs(1);

/// How long a server gets to say whether it can do without sessions. Some that can't say nothing.
const DISCOVERY: Duration = Duration::from_secs(5);

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
struct Begun {
    key: LaneKey,
    serial: u64,
    party: Option<Arc<Party>>,
    place: Option<Place>,
}

/// What a start brings.
struct Started {
    connection: Arc<Connection>,
    greeting: Greeting,
    /// Its list, if none was known.
    manifest: Option<Manifest>,
    signs: Signs,
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
    fn lane_of(&mut self, begun: &Begun) -> Option<&mut super::lanes::Lane> {
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

    async fn start(self: Arc<Self>, mut begun: Begun) -> Result<Arc<Connection>, Down> {
        let mut ended = self.ended.subscribe();
        let party = begun.party.clone();
        let left = async {
            match &party {
                Some(party) if matches!(begun.key, LaneKey::Own(_)) => party.ended().await,
                _ => std::future::pending().await,
            }
        };
        let place = begun.place.take();
        let started = tokio::select! {
            started = self.clone().start_in_time(begun.key, begun.party.clone(), place) => started,
            _ = async { ended.wait_for(|ended| *ended).await.map(drop) } => {
                Err(Down::Reason(SHUT_DOWN.to_owned()))
            }
            () = left => Err(Down::Elsewhere),
        };
        let (started, took) = started.map_err(|down| self.failed(&begun, down))?;
        let Started { connection, greeting, manifest, signs } = started;
        let is_listed = manifest.is_some();
        if let Some(manifest) = manifest {
            let number = self.number_list();
            self.keep(Manifest { start_took: Some(took), ..manifest }, number);
        }
        let running = Running {
            connection: connection.clone(),
            greeting,
            since: Instant::now(),
            start_took: took,
        };
        // It may be ended from here on, but no longer dropped: it is heard.
        let followed = tokio::select! {
            followed = self.follow_anew(&connection, begun.key) => followed,
            _ = async { ended.wait_for(|ended| *ended).await.map(drop) } => HashSet::new(),
        };
        let Some((was_down, since)) = self.up(&begun, running, followed) else {
            connection.end(SHUT_DOWN).await;
            let is_over = self.lock().is_over;
            let shut_down = || Down::Reason(SHUT_DOWN.to_owned());
            return Err(if is_over { shut_down() } else { Down::Elsewhere });
        };
        tracing::info!(server = self.config.name, lane = ?begun.key, ?took, "running");
        if was_down {
            self.changed();
        }
        tokio::spawn(watch::watch(self, connection.clone(), begun.key, signs, (is_listed, since)));
        Ok(connection)
    }

    /// Notes that it runs, unless it was shut down or let go of meanwhile; says whether it had
    /// been in trouble, and what it should tell of beside what it was asked for.
    fn up(
        &self,
        begun: &Begun,
        running: Running,
        followed: HashSet<Arc<str>>,
    ) -> Option<(bool, Since)> {
        let mut state = self.lock();
        let (era, has_session) = (running.connection.era(), running.connection.has_session());
        let lane = state.lane_of(begun)?;
        lane.phase = Phase::Running(running);
        lane.last_used = Instant::now();
        if era == Era::Sessions {
            state.gives_sessions = Some(has_session);
        }
        self.learn_era(&mut state, begun.key, era);
        let since = state.followed_since(begun.key.into(), followed);
        Some((state.trouble.take().is_some(), since))
    }

    /// Starts it when its turn has come; says how long it took since.
    async fn start_in_time(
        self: Arc<Self>,
        key: LaneKey,
        party: Option<Arc<Party>>,
        place: Option<Place>,
    ) -> Result<(Started, Duration), Down> {
        let permit = self.shared.starts.clone().acquire_owned().await;
        let _turn = permit.ok().map(hold);
        let began = Instant::now();
        let limit = self.config.start_limit;
        match timeout(limit, self.connect(key, party.as_deref(), place)).await {
            Ok(started) => started.map(|started| (started, began.elapsed())),
            Err(_) => {
                let words = self.tail.last().map(|line| format!("; its last words: {line}"));
                let words = words.unwrap_or_default();
                Err(Down::Reason(format!("it did not start within {limit:?}{words}")))
            }
        }
    }

    /// Connects and greets; a server of which nothing is known is listed as well. Whatever was
    /// opened ends if it fails or is given up.
    async fn connect(
        &self,
        key: LaneKey,
        party: Option<&Party>,
        place: Option<Place>,
    ) -> Result<Started, Down> {
        let board = Arc::new(Board::new(self.shared.budget()));
        let news = board.news.subscribe();
        let link = match &self.config.launch {
            Launch::Command { command, args, env, cwd } => {
                let (cwd, alive) = (cwd.as_deref(), Alive::new(&self.processes, place));
                Link::Child(child::spawn(command, args, env, cwd, &board, &self.tail, alive)?)
            }
            Launch::Http { url, headers } => {
                let client = self.http_client(headers)?;
                Link::Http(http::open(client, url, self.auth.clone(), &board)?)
            }
        };
        let connection = Arc::new(Connection::new(link, board));
        let greeting = match self.greet(&connection, key, party).await? {
            Ok(greeting) => greeting,
            Err(failure) => return Err(down(&connection, failure).await),
        };
        let tools_changed = connection.board().tools_changed.subscribe();
        let is_known = self.lock().manifest.is_some();
        let manifest = match is_known {
            true => None,
            false => match list::ask(&connection, &self.config, &greeting).await {
                Ok(manifest) => Some(manifest),
                Err(failure) => return Err(down(&connection, failure).await),
            },
        };
        Ok(Started { connection, greeting, manifest, signs: Signs { tools_changed, news } })
    }

    /// The client for all requests to it: they may share what is open to its host.
    fn http_client(&self, headers: &[(String, String)]) -> Result<reqwest::Client, String> {
        if let Some(client) = self.http.get() {
            return Ok(client.clone());
        }
        let client = http::client(headers)?;
        Ok(self.http.get_or_init(|| client).clone())
    }

    /// Greets the server in the way that this connection is for. That it doesn't speak so is
    /// remembered, and no failure of the server's.
    async fn greet(
        &self,
        connection: &Connection,
        key: LaneKey,
        party: Option<&Party>,
    ) -> Result<Result<Greeting, Failure>, Down> {
        let era = match key {
            LaneKey::Main => return Ok(greet(connection, self.config.era, None).await),
            LaneKey::Stateless => Era::Stateless,
            LaneKey::Own(_) | LaneKey::Leased { .. } => Era::Sessions,
        };
        let is_untried = era == Era::Stateless && self.lock().eras.stateless.is_none();
        let greeting = greet(connection, Some(era), party);
        let greeting = match is_untried {
            true => timeout(DISCOVERY, greeting).await.unwrap_or(Err(Failure::Late(DISCOVERY))),
            false => greeting.await,
        };
        let is_unspoken = match &greeting {
            Err(failure) if is_untried => self.is_no(failure),
            Err(failure) => may_be_stateless(failure),
            Ok(_) => false,
        };
        if is_unspoken && self.config.era.is_none() {
            tracing::debug!(server = self.config.name, ?era, ?greeting, "not spoken");
            // One that stays silent may merely be slow to start.
            let is_certain = !matches!(greeting, Err(Failure::Late(_)));
            self.rule_out(&mut self.lock(), era, is_certain);
            return Err(Down::Elsewhere);
        }
        Ok(greeting)
    }

    /// Whether a server of which that isn't known shows by a failure that it needs a session:
    /// each has its own way to say so. One that can't be reached, or lets nobody in, says nothing.
    fn is_no(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Refused(_) | Failure::Lost(_) | Failure::Late(_) => true,
            Failure::Denied { status, .. } => {
                ![401, 403, 407, 408, 429, 502, 503, 504].contains(status)
            }
            Failure::Unsent(_) => self.is_child(),
            Failure::Unrepeatable(_) | Failure::Unread(_) => false,
        }
    }

    /// Notes that it can't be started, and gives the reason back as it may be shown.
    fn failed(self: &Arc<Self>, begun: &Begun, down: Down) -> Down {
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

/// What a failed request says of the connection it was to be the first on.
async fn down(connection: &Connection, failure: Failure) -> Down {
    match failure {
        Failure::Unread(NoRoom::Full { .. }) => Down::Crowded(failure.to_string()),
        failure => Down::Reason(connection.why(failure).await),
    }
}

/// Keeps a place among the starting servers until the start ends, or turns out to be slow.
fn hold(permit: OwnedSemaphorePermit) -> oneshot::Sender<()> {
    let (place, given_back) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let _ = timeout(SLOW, given_back).await;
        drop(permit);
    });
    place
}
