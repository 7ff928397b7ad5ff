//! Following a running server: new tools, the end of it, nobody calling it.

use std::sync::Arc;

use tokio::sync::watch as channel;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};
use toolcrib_runtime::Manifest;

use super::Inner;
use super::call::repeatable;
use super::life::Phase;
use crate::connection::Connection;
use crate::list;

/// How long a list that changes is left alone: servers send their notices in bursts.
const SETTLING: Duration = Duration::from_millis(100);

/// The same for a server whose notices bring no news: some send one whenever they are asked.
const MOST_SETTLING: Duration = Duration::from_secs(5);

/// Follows a running server to its end.
pub(super) async fn watch(
    inner: Arc<Inner>,
    connection: Arc<Connection>,
    mut tools_changed: channel::Receiver<u64>,
    is_listed: bool,
) {
    connection.listen();
    if !is_listed {
        tools_changed.mark_unchanged();
        inner.try_relist(&connection).await;
    }
    let mut settling = SETTLING;
    loop {
        tokio::select! {
            () = connection.board().ended() => return inner.lost(&connection),
            // The sender is the connection's own, so there is no error to see.
            _ = tools_changed.changed() => {
                sleep(settling).await;
                tools_changed.mark_unchanged();
                let is_news = inner.try_relist(&connection).await;
                settling = if is_news { SETTLING } else { (settling * 2).min(MOST_SETTLING) };
            }
            () = sleep_until(inner.idle_end()) => {
                if inner.stop(&connection) {
                    let reason = "it was stopped because nobody called it";
                    tracing::info!(server = inner.config.name, reason);
                    return connection.end(reason).await;
                }
            }
        }
    }
}

impl Inner {
    /// When it may be stopped, as things stand.
    fn idle_end(&self) -> Instant {
        let (state, now) = (self.lock(), Instant::now());
        let end = self.config.idle_stop.and_then(|idle| match state.users {
            0 => state.last_used.checked_add(idle),
            // Looked at again when a call may have ended.
            _ => now.checked_add(idle.max(SETTLING)),
        });
        end.unwrap_or(now + Duration::from_secs(24 * 3600))
    }

    /// Notes that it is stopped, if nobody uses it.
    fn stop(&self, connection: &Arc<Connection>) -> bool {
        let mut state = self.lock();
        let is_idle = state.users == 0
            && self.config.idle_stop.is_some_and(|idle| state.last_used.elapsed() >= idle);
        let may_stop = is_idle && state.running(connection).is_some();
        if may_stop {
            state.phase = Phase::Stopped;
        }
        may_stop
    }

    /// Sees to it that the list is asked for anew, without waiting for that.
    pub(super) fn refresh(self: &Arc<Self>) {
        let state = self.lock();
        match &state.phase {
            Phase::Running(running) => running.connection.board().suspect(),
            Phase::Stopped => {
                let inner = self.clone();
                tokio::spawn(async move { inner.running().await.map(drop) });
            }
            Phase::Starting(_) | Phase::Ended => {}
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
            self.lock().running(connection).map(|it| (it.greeting.clone(), it.start_took));
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

    /// Numbers the lists as they are asked for.
    pub(super) fn number_list(&self) -> u64 {
        let mut state = self.lock();
        state.asked += 1;
        state.asked
    }

    /// Remembers a list, unless one that was asked for later is known, and tells of it if it is
    /// news.
    pub(super) fn keep(&self, manifest: Manifest, number: u64) -> bool {
        let repeatable = Arc::new(repeatable(&manifest));
        let manifest = Arc::new(manifest);
        let mut state = self.lock();
        if number < state.kept {
            return false;
        }
        let is_news = state.manifest.as_ref().is_none_or(|known| differ(known, &manifest));
        state.kept = number;
        state.manifest = Some(manifest.clone());
        state.repeatable = repeatable;
        drop(state);
        self.shared.store.put(&self.key, Manifest::clone(&manifest));
        if is_news {
            self.changed();
        }
        is_news
    }
}

/// Whether two lists differ in anything that is shown.
fn differ(one: &Manifest, other: &Manifest) -> bool {
    let tools = |manifest: &Manifest| manifest.tools.len();
    let mut pairs = one.tools.iter().zip(&other.tools);
    let info = |manifest: &Manifest| manifest.server_info.as_ref().map(|raw| raw.get().to_owned());
    tools(one) != tools(other)
        || pairs.any(|(one, other)| one.get() != other.get())
        || one.instructions != other.instructions
        || info(one) != info(other)
}
