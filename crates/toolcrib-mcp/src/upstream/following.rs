//! Resources that somebody follows: asked for on the main connection, and again when that is a
//! new one.

use std::collections::HashMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream;
use tokio::runtime::Handle;
use toolcrib_runtime::{AskError, Caller, Following, News};
use toolcrib_wire::{Era, Fields, RpcError, code};

use super::lanes::LaneKey;
use super::{Inner, State};
use crate::connection::{Connection, Failure};

/// How many resources of a server may be followed.
const MOST_FOLLOWED: usize = 10_000;

/// How many are asked for at a time when the connection is a new one.
const AT_ONCE: usize = 16;

/// The resources that somebody follows.
#[derive(Default)]
pub(super) struct Follows(HashMap<Arc<str>, Followed>);

#[derive(Default)]
struct Followed {
    count: usize,
    /// Whether the server has been asked, now or by an earlier connection.
    is_asked: bool,
}

impl State {
    /// Whether a connection must stay because of what is followed on it.
    pub(super) fn is_followed(&self, key: LaneKey) -> bool {
        key == LaneKey::Main && !self.follows.0.is_empty()
    }

    pub(super) fn followed(&self) -> Vec<Arc<str>> {
        self.follows.0.keys().cloned().collect()
    }
}

impl Inner {
    /// Follows a resource until what is returned is dropped.
    pub(super) async fn follow(self: &Arc<Self>, uri: Arc<str>) -> Result<Following, AskError> {
        let following = self.note(&uri)?;
        let connected = self.main_connection().await;
        let (connection, _in_use) = connected.map_err(|reason| {
            let server = &self.config.name;
            AskError::Unreachable(format!("Server `{server}` can't be asked: {reason}."))
        })?;
        self.subscribe(&connection, &uri).await.map_err(|failure| match failure {
            Failure::Refused(error) => AskError::Refused(error),
            other => AskError::Unreachable(self.secrets.hide(&other.to_string())),
        })?;
        if let Some(followed) = self.lock().follows.0.get_mut(&uri) {
            followed.is_asked = true;
        }
        Ok(following)
    }

    /// Counts one who follows.
    fn note(self: &Arc<Self>, uri: &Arc<str>) -> Result<Following, AskError> {
        let mut state = self.lock();
        let follows = &mut state.follows.0;
        if follows.len() >= MOST_FOLLOWED && !follows.contains_key(uri) {
            let text = format!("{MOST_FOLLOWED} resources of this server are followed already");
            return Err(AskError::Refused(RpcError::new(code::INTERNAL_ERROR, text)));
        }
        follows.entry(uri.clone()).or_default().count += 1;
        drop(state);
        let (inner, uri) = (Arc::downgrade(self), uri.clone());
        Ok(Following::new(move || {
            if let Some(inner) = inner.upgrade() {
                inner.unfollow(uri);
            }
        }))
    }

    /// Takes one off who follows. The server is told of the last.
    fn unfollow(self: &Arc<Self>, uri: Arc<str>) {
        let mut state = self.lock();
        let Some(followed) = state.follows.0.get_mut(&uri) else { return };
        followed.count -= 1;
        if followed.count > 0 {
            return;
        }
        let was_asked = followed.is_asked;
        state.follows.0.remove(&uri);
        // It may be idle since long ago.
        state.lanes.main.last_used = tokio::time::Instant::now();
        let connection = state.lanes.main.open().cloned();
        drop(state);
        let (Some(connection), Ok(runtime)) = (connection, Handle::try_current()) else { return };
        if !was_asked {
            return;
        }
        let inner = self.clone();
        runtime.spawn(async move {
            if inner.lock().follows.0.contains_key(&uri) {
                return;
            }
            let _ = inner.unsubscribe(&connection, &uri).await;
            // Somebody may have come back while the server was told.
            if inner.lock().follows.0.contains_key(&uri) {
                let _ = inner.subscribe(&connection, &uri).await;
            }
        });
    }

    async fn subscribe(&self, connection: &Arc<Connection>, uri: &Arc<str>) -> Result<(), Failure> {
        self.ask_for(connection, "resources/subscribe", uri).await
    }

    async fn unsubscribe(
        &self,
        connection: &Arc<Connection>,
        uri: &Arc<str>,
    ) -> Result<(), Failure> {
        self.ask_for(connection, "resources/unsubscribe", uri).await
    }

    /// Has a server with sessions begin or end; one without is given the whole set anew.
    async fn ask_for(
        &self,
        connection: &Arc<Connection>,
        method: &str,
        uri: &Arc<str>,
    ) -> Result<(), Failure> {
        if connection.era() == Era::Stateless {
            let followed = self.lock().followed();
            connection.listen(&followed).within(self.config.start_limit).await;
            return Ok(());
        }
        let mut params = Fields::default();
        params.set("uri", uri);
        let limit = Some(self.config.start_limit);
        connection.request(method, params, &Caller::default(), limit).await.map(drop)
    }

    /// Has a new connection tell of what it should. On the main one, that is what is followed,
    /// too: it was out of sight for a while, and so counts as changed.
    pub(super) fn follow_anew(self: &Arc<Self>, connection: &Arc<Connection>, key: LaneKey) {
        let before: Vec<Arc<str>> = match key {
            LaneKey::Main => {
                let state = self.lock();
                let asked = state.follows.0.iter().filter(|(_, followed)| followed.is_asked);
                asked.map(|(uri, _)| uri.clone()).collect()
            }
            _ => Vec::new(),
        };
        let _ = connection.listen(&before);
        if before.is_empty() {
            return;
        }
        let (inner, connection) = (self.clone(), connection.clone());
        tokio::spawn(async move {
            let anew = |uri: Arc<str>| {
                let (inner, connection) = (&inner, &connection);
                async move {
                    if connection.era() == Era::Sessions {
                        let asked = inner.subscribe(connection, &uri).await;
                        if let Err(failure) = asked {
                            let server = &inner.config.name;
                            let reason = inner.secrets.hide(&failure.to_string());
                            tracing::warn!(server, %uri, reason, "no longer followed");
                        }
                    }
                    inner.tell_news(Some(News::Updated(uri)));
                }
            };
            stream::iter(before).for_each_concurrent(AT_ONCE, anew).await;
        });
    }

    /// Starts the main connection again if something is followed on it.
    pub(super) fn follow_on(self: &Arc<Self>) {
        let state = self.lock();
        let is_due = state.is_followed(LaneKey::Main)
            && state.lanes.main.phase.is_stopped()
            && !state.is_over;
        drop(state);
        if let (true, Ok(runtime)) = (is_due, Handle::try_current()) {
            let inner = self.clone();
            runtime.spawn(async move { inner.main_connection().await.map(drop) });
        }
    }
}
