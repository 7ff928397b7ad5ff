//! How a server is started: its process or its address, the greeting, the first list.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Duration, Instant, timeout};
use toolcrib_runtime::{Manifest, NoRoom, Party};
use toolcrib_wire::Era;

use super::following::Since;
use super::lanes::LaneKey;
use super::life::{Begun, Down, Phase, Running, SHUT_DOWN, Signs};
use super::{Inner, watch};
use crate::board::Board;
use crate::child::{self, Alive, Place};
use crate::config::Launch;
use crate::connection::{Connection, Failure, Link};
use crate::handshake::{Greeting, greet, may_be_stateless};
use crate::{http, list};

/// A server that takes longer than this to start no longer keeps others from starting.
const SLOW: Duration = Duration::from_secs(2);

/// How long a server gets to say whether it can do without sessions. Some that can't say nothing.
const DISCOVERY: Duration = Duration::from_secs(5);

/// What a start brings.
struct Started {
    connection: Arc<Connection>,
    greeting: Greeting,
    /// Its list, if none was known.
    manifest: Option<Manifest>,
    signs: Signs,
}

impl Inner {
    /// Starts what was begun, and lists its tools if they aren't known.
    pub(super) async fn start(self: Arc<Self>, mut begun: Begun) -> Result<Arc<Connection>, Down> {
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
