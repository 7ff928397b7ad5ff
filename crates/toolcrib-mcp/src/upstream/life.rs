//! The life of a server: starting it once for all who wait, giving it time when it fails, ending
//! it.
//!
//! Every step is taken under the lock of the state, by whoever sees first that it is due, and is
//! a matter of the phase found there: so none is taken twice, and none after the end.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch as channel};
use tokio::time::{Duration, Instant, sleep_until, timeout};
use toolcrib_runtime::Manifest;

use super::{Inner, State, watch};
use crate::board::Board;
use crate::child::{self, Alive};
use crate::config::Launch;
use crate::connection::{Connection, Link};
use crate::handshake::{Greeting, greet};
use crate::{http, list};

/// A server that takes longer than this to start no longer keeps others from starting.
const SLOW: Duration = Duration::from_secs(2);

/// A server that ran for this long was of use.
const PROVEN: Duration = Duration::from_secs(10);

/// How often in a row a server may die without having been of use and is started again at once.
const FORGIVEN: u32 = 2;

/// The longest time between two attempts.
const MOST_BACKOFF: Duration = Duration::from_secs(300);

const SHUT_DOWN: &str = "it was shut down";

type Starting = Shared<BoxFuture<'static, Result<Arc<Connection>, String>>>;

pub(super) enum Phase {
    Stopped,
    Starting(Starting),
    Running(Running),
    /// For good.
    Ended,
}

pub(super) struct Running {
    pub(super) connection: Arc<Connection>,
    pub(super) greeting: Greeting,
    pub(super) since: Instant,
    pub(super) start_took: Duration,
}

/// Why it can't be called, and when it is tried again.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) reason: String,
    until: Instant,
}

/// What a start brings.
struct Started {
    connection: Arc<Connection>,
    greeting: Greeting,
    /// Its list, if none was known.
    manifest: Option<Manifest>,
    /// Tells of changes since the list was asked for.
    tools_changed: channel::Receiver<u64>,
}

impl State {
    /// What runs, if it is this connection.
    pub(super) fn running(&self, connection: &Arc<Connection>) -> Option<&Running> {
        match &self.phase {
            Phase::Running(running) if Arc::ptr_eq(&running.connection, connection) => {
                Some(running)
            }
            _ => None,
        }
    }
}

impl Inner {
    /// A connection to the running server, which is started if it isn't: once, however many wait.
    pub(super) async fn running(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        loop {
            let starting = {
                let mut state = self.lock();
                match &state.phase {
                    Phase::Ended => return Err(SHUT_DOWN.to_owned()),
                    Phase::Running(running) if running.connection.board().is_open() => {
                        return Ok(running.connection.clone());
                    }
                    Phase::Running(running) => Err(running.connection.clone()),
                    // One that is done and still here broke off.
                    Phase::Starting(starting) if starting.peek().is_none() => Ok(starting.clone()),
                    Phase::Starting(_) | Phase::Stopped => Ok(self.begin(&mut state)?),
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

    /// The same, even if it is not yet time to try again.
    pub(super) async fn running_now(self: &Arc<Self>) -> Result<Arc<Connection>, String> {
        if let Some(trouble) = &mut self.lock().trouble {
            trouble.until = Instant::now();
        }
        self.running().await
    }

    fn begin(self: &Arc<Self>, state: &mut State) -> Result<Starting, String> {
        let now = Instant::now();
        if let Some(trouble) = state.trouble.as_ref().filter(|trouble| trouble.until > now) {
            let wait = (trouble.until - now).as_secs_f32().ceil();
            return Err(format!("{} (it is tried again in {wait} s)", trouble.reason));
        }
        // A task of its own, so that it goes on when a caller gives up.
        let task = tokio::spawn(self.clone().start());
        let lost = |_| Err("its start was given up".to_owned());
        let starting = task.map(move |result| result.unwrap_or_else(lost)).boxed().shared();
        state.phase = Phase::Starting(starting.clone());
        Ok(starting)
    }

    async fn start(self: Arc<Self>) -> Result<Arc<Connection>, String> {
        let mut ended = self.ended.subscribe();
        let started = tokio::select! {
            started = self.clone().start_in_time() => started,
            _ = async { ended.wait_for(|ended| *ended).await.map(drop) } => {
                Err(SHUT_DOWN.to_owned())
            }
        };
        let (started, took) = started.map_err(|reason| self.failed(&reason))?;
        let Started { connection, greeting, manifest, tools_changed } = started;
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
        let Some(was_down) = self.up(running) else {
            connection.end(SHUT_DOWN).await;
            return Err(SHUT_DOWN.to_owned());
        };
        tracing::info!(server = self.config.name, ?took, "running");
        if was_down {
            self.changed();
        }
        tokio::spawn(watch::watch(self, connection.clone(), tools_changed, is_listed));
        Ok(connection)
    }

    /// Notes that it runs, unless it was shut down meanwhile; says whether it had been in trouble.
    fn up(&self, running: Running) -> Option<bool> {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Ended) {
            return None;
        }
        state.phase = Phase::Running(running);
        state.last_used = Instant::now();
        Some(state.trouble.take().is_some())
    }

    /// Starts it when its turn has come; says how long it took since.
    async fn start_in_time(self: Arc<Self>) -> Result<(Started, Duration), String> {
        let permit = self.shared.starts.clone().acquire_owned().await;
        let _place = permit.ok().map(hold);
        let began = Instant::now();
        let limit = self.config.start_limit;
        match timeout(limit, self.connect()).await {
            Ok(started) => started.map(|started| (started, began.elapsed())),
            Err(_) => {
                let words = self.tail.last().map(|line| format!("; its last words: {line}"));
                Err(format!("it did not start within {limit:?}{}", words.unwrap_or_default()))
            }
        }
    }

    /// Connects and greets; a server of which nothing is known is listed as well. Whatever was
    /// opened ends if it fails or is given up.
    async fn connect(&self) -> Result<Started, String> {
        let board = Arc::new(Board::default());
        let link = match &self.config.launch {
            Launch::Command { command, args, env, cwd } => {
                let (cwd, alive) = (cwd.as_deref(), Alive::new(&self.processes));
                Link::Child(child::spawn(command, args, env, cwd, &board, &self.tail, alive)?)
            }
            Launch::Http { url, headers } => Link::Http(http::open(url, headers, &board)?),
        };
        let connection = Arc::new(Connection::new(link, board));
        let greeting = match greet(&connection, self.config.era).await {
            Ok(greeting) => greeting,
            Err(failure) => return Err(connection.why(failure).await),
        };
        let tools_changed = connection.board().tools_changed.subscribe();
        let is_known = self.lock().manifest.is_some();
        let manifest = match is_known {
            true => None,
            false => match list::ask(&connection, &self.config, &greeting).await {
                Ok(manifest) => Some(manifest),
                Err(failure) => return Err(connection.why(failure).await),
            },
        };
        Ok(Started { connection, greeting, manifest, tools_changed })
    }

    /// Notes that it can't be started, and gives the reason back as it may be shown.
    fn failed(self: &Arc<Self>, reason: &str) -> String {
        let reason = self.secrets.hide(reason);
        let mut state = self.lock();
        if !matches!(state.phase, Phase::Ended) {
            tracing::debug!(server = self.config.name, reason, "can't be started");
            state.phase = Phase::Stopped;
            state.failures = state.failures.saturating_add(1);
            self.back_off(&mut state, &reason);
            drop(state);
            self.changed();
        }
        reason
    }

    /// Notes that it died. The next call starts it again, but one that dies again and again
    /// before it is of use is given time.
    pub(super) fn lost(self: &Arc<Self>, connection: &Arc<Connection>) {
        let mut state = self.lock();
        let Some(running) = state.running(connection) else { return };
        if running.since.elapsed() >= PROVEN {
            state.failures = 0;
        }
        let reason = self.secrets.hide(connection.board().end().unwrap_or("it ended"));
        tracing::warn!(server = self.config.name, reason, "lost");
        state.phase = Phase::Stopped;
        state.failures = state.failures.saturating_add(1);
        if state.failures > FORGIVEN {
            self.back_off(&mut state, &reason);
            drop(state);
            self.changed();
        }
    }

    /// Leaves it alone for a while, and tries again then: nobody calls what they are told is down.
    fn back_off(self: &Arc<Self>, state: &mut State, reason: &str) {
        let backoff = Duration::from_secs(1 << (state.failures - 1).min(9)).min(MOST_BACKOFF);
        let until = Instant::now() + backoff;
        state.trouble = Some(Trouble { reason: reason.to_owned(), until });
        let inner = Arc::downgrade(self);
        tokio::spawn(async move {
            sleep_until(until).await;
            if let Some(inner) = inner.upgrade() {
                // What comes of it is noted by the start itself.
                let _ = inner.running().await;
            }
        });
    }

    /// Lets go of a connection that is of no use any more.
    pub(super) fn retire(self: &Arc<Self>, connection: &Arc<Connection>, reason: &str) {
        connection.retire(reason);
        self.lost(connection);
    }

    /// Ends it for good without waiting for it. Returns what there is to wait for.
    pub(super) fn let_go(&self) -> Phase {
        let before = std::mem::replace(&mut self.lock().phase, Phase::Ended);
        self.ended.send_replace(true);
        if let Phase::Running(running) = &before {
            running.connection.close(SHUT_DOWN);
        }
        before
    }

    pub(super) async fn shut_down(&self) {
        match self.let_go() {
            Phase::Running(running) => running.connection.end(SHUT_DOWN).await,
            // It sees the end at once.
            Phase::Starting(starting) => drop(starting.await),
            Phase::Stopped | Phase::Ended => {}
        }
        // What was stopped or given up before may still be about to end.
        let _ = self.processes.subscribe().wait_for(|count| *count == 0).await;
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
