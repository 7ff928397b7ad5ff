//! Following a running connection: new tools, the end of it, nobody calling it.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};
use toolcrib_runtime::{Manifest, Party};

use super::Inner;
use super::following::Since;
use super::lanes::LaneKey;
use super::life::{Phase, Signs};
use crate::connection::Connection;
use crate::list;

/// How long a list that changes is left alone: servers send their notices in bursts.
pub(super) const SETTLING: Duration = Duration::from_millis(100);

/// The same for a server whose notices bring no news: some send one whenever they are asked.
pub(super) const MOST_SETTLING: Duration = Duration::from_secs(5);

/// Follows a running connection to its end.
pub(super) async fn watch(
    inner: Arc<Inner>,
    connection: Arc<Connection>,
    key: LaneKey,
    signs: Signs,
    (is_listed, since): (bool, Since),
) {
    let Signs { tools_changed, news } = signs;
    let rest_changed = Notify::new();
    // With another that runs, what changed meanwhile has been heard there.
    let is_first = inner.is_only(&connection);
    if is_first {
        rest_changed.notify_one();
    }
    let party = inner.party_of(&connection);
    let live = async {
        let mut tools_changed = tools_changed;
        if !is_listed && is_first {
            tools_changed.mark_unchanged();
            inner.try_relist(&connection).await;
        }
        let mut settling = SETTLING;
        loop {
            tokio::select! {
                () = connection.board().ended() => return inner.lost(&connection),
                // The sender is the connection's own, so there is no error to see.
                _ = tools_changed.changed() => {
                    let noticed = Instant::now();
                    sleep(settling).await;
                    tools_changed.mark_unchanged();
                    if inner.was_listed_elsewhere(key, noticed) {
                        continue;
                    }
                    let is_news = inner.try_relist(&connection).await;
                    settling = if is_news { SETTLING } else { (settling * 2).min(MOST_SETTLING) };
                }
                () = sleep_until(inner.idle_end(&connection)) => {
                    if inner.stop(&connection) {
                        let reason = "it was stopped because nobody called it";
                        tracing::info!(server = inner.config.name, lane = ?key, reason);
                        return connection.end(reason).await;
                    }
                }
            }
        }
    };
    let catching_up = async {
        inner.catch_up(&connection, key, since).await;
        std::future::pending().await
    };
    tokio::select! {
        () = live => {}
        () = catching_up => {}
        () = left(party.as_deref()) => inner.end(&connection, "its client has left").await,
        () = inner.pass_on(key, news, &rest_changed) => {}
        () = inner.keep_rest(&connection, &rest_changed) => {}
    }
}

/// Resolves when a client has left whose own the connection is.
async fn left(party: Option<&Party>) {
    match party {
        Some(party) => party.ended().await,
        None => std::future::pending().await,
    }
}

impl Inner {
    /// Whether no other connection runs.
    fn is_only(&self, connection: &Arc<Connection>) -> bool {
        let state = self.lock();
        let is_other = |phase: &Phase| match phase {
            Phase::Running(running) => !Arc::ptr_eq(&running.connection, connection),
            Phase::Stopped | Phase::Starting(_) => false,
        };
        !state.lanes.iter().any(|(_, lane)| is_other(&lane.phase))
    }

    /// The client whose own it is.
    fn party_of(&self, connection: &Arc<Connection>) -> Option<Arc<Party>> {
        let state = self.lock();
        match state.lanes.find(connection)? {
            key @ LaneKey::Own(_) => state.lanes.get(key)?.party.clone(),
            _ => None,
        }
    }

    /// Whether the list was asked for since, if it need not be asked for on this connection.
    fn was_listed_elsewhere(&self, key: LaneKey, since: Instant) -> bool {
        key != LaneKey::Main && self.lock().asked_at.is_some_and(|at| at >= since)
    }

    /// When it may be stopped, as things stand.
    fn idle_end(&self, connection: &Arc<Connection>) -> Instant {
        let (state, now) = (self.lock(), Instant::now());
        let found = state.running(connection).map(|(key, _)| key);
        let end = found.and_then(|key| {
            let (lane, idle) = (state.lanes.get(key)?, self.idle_limit(key)?);
            let is_idle = lane.users == 0 && !state.is_followed(key);
            // Looked at again when a call may have ended.
            let busy = || now.checked_add(idle.max(SETTLING));
            if is_idle { lane.last_used.checked_add(idle) } else { busy() }
        });
        end.unwrap_or(now + Duration::from_secs(24 * 3600))
    }

    /// Notes that it is stopped, if nobody uses it.
    fn stop(&self, connection: &Arc<Connection>) -> bool {
        let mut state = self.lock();
        let Some((key, _)) = state.running(connection) else { return false };
        let (lane, idle) = (state.lanes.get(key), self.idle_limit(key));
        let is_idle = lane.is_some_and(|lane| {
            lane.users == 0 && idle.is_some_and(|idle| lane.last_used.elapsed() >= idle)
        });
        let may_stop = is_idle && !state.is_followed(key);
        if may_stop {
            state.lanes.stop(key);
        }
        may_stop
    }

    /// Ends a connection whose time has come.
    async fn end(&self, connection: &Arc<Connection>, reason: &str) {
        {
            let mut state = self.lock();
            if let Some((key, _)) = state.running(connection) {
                state.lanes.stop(key);
            }
        }
        self.freed.notify_one();
        connection.end(reason).await;
    }

    /// Sees to it that the list is asked for anew, without waiting for that.
    pub(super) fn refresh(self: &Arc<Self>) {
        let state = self.lock();
        if let Some(connection) = state.lanes.any_open() {
            connection.board().suspect();
        } else if state.lanes.main.phase.is_stopped() && !state.is_over {
            let inner = self.clone();
            tokio::spawn(async move { inner.main_connection().await.map(drop) });
        }
    }

    /// Lists its tools anew; says whether that brought news.
    async fn try_relist(&self, connection: &Arc<Connection>) -> bool {
        self.relist(connection).await.unwrap_or_else(|reason| {
            tracing::warn!(server = self.config.name, reason, "what is known of its tools stays");
            false
        })
    }

    /// Lists its tools anew; says whether that brought news.
    pub(super) async fn relist(&self, connection: &Arc<Connection>) -> Result<bool, String> {
        let running =
            self.lock().running(connection).map(|(_, it)| (it.greeting.clone(), it.start_took));
        let Some((greeting, start_took)) = running else {
            return Err("it is no longer running".to_owned());
        };
        let number = self.number_list();
        let limit = self.config.start_limit;
        let manifest = match timeout(limit, list::ask(connection, &self.config, &greeting)).await {
            Ok(listed) => listed.map_err(|failure| self.secrets.hide(&failure.to_string()))?,
            Err(_) => return Err(format!("it did not list its tools within {limit:?}")),
        };
        Ok(self.keep(Manifest { start_took: Some(start_took), ..manifest }, number))
    }
}
