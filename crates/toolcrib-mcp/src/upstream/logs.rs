//! Which log messages a server sends over a connection that several share.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Duration;
use toolcrib_runtime::{AskError, Caller, Question};
use toolcrib_wire::{Era, Fields};

use super::Inner;
use super::lanes::{LaneGuard, LaneKey};
use crate::connection::{Connection, Failure};

/// How long a server may take to note which messages are wanted.
const LEVEL_LIMIT: Duration = Duration::from_secs(1);

impl Inner {
    /// Has the server send log messages from a level on, where that is a matter of a connection
    /// that is nobody's own. What is shared sends the mildest that anybody wanted. Returns what
    /// the server says to it, if it need be told.
    pub(super) async fn set_level(
        &self,
        connection: &Arc<Connection>,
        guard: &LaneGuard,
        level: &str,
    ) -> Option<Result<Box<RawValue>, Failure>> {
        let rank = rank(level).filter(|_| connection.era() == Era::Sessions)?;
        let is_news = {
            let mut state = self.lock();
            let lane = state.lanes.get_mut(guard.key).filter(|lane| lane.serial == guard.serial)?;
            let is_news = match guard.key {
                LaneKey::Leased { .. } if self.is_child() => lane.level != Some(rank),
                _ => lane.level.is_none_or(|before| rank < before),
            };
            if is_news {
                lane.level = Some(rank);
            }
            is_news
        };
        if !is_news {
            return None;
        }
        let mut params = Fields::default();
        params.set("level", &level);
        let nobody = Caller::default();
        Some(connection.request("logging/setLevel", params, &nobody, Some(LEVEL_LIMIT)).await)
    }

    /// Sets the level of log messages where that is not a matter between one client and the
    /// server.
    pub(super) async fn level(
        &self,
        connection: &Arc<Connection>,
        lane: &LaneGuard,
        question: &Question,
    ) -> Option<Result<Box<RawValue>, AskError>> {
        if connection.era() == Era::Sessions {
            if matches!(lane.key, LaneKey::Own(_)) {
                return None;
            }
            let params = question.params.as_ref().and_then(|raw| Fields::parse(raw.get()))?;
            let level: String = params.read("level")?;
            match self.set_level(connection, lane, &level).await {
                None => {}
                Some(Ok(answer)) => return Some(Ok(answer)),
                Some(Err(Failure::Refused(error))) => return Some(Err(AskError::Refused(error))),
                Some(Err(_)) => return None,
            }
        }
        // Without sessions, each request says which it wants.
        Some(Ok(Fields::default().to_raw()))
    }
}

/// How mild the messages of a level are: the lower, the milder.
fn rank(level: &str) -> Option<usize> {
    let levels = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
    levels.iter().position(|it| *it == level)
}
