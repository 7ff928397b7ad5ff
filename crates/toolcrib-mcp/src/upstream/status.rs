//! What can be told of a server.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::time::Instant;
use toolcrib_core::ToolSpec;
use toolcrib_runtime::{Breaker, Health};
use toolcrib_wire::Fields;

use super::life::Phase;
use super::{Inner, Upstream};
use crate::list;

/// Where a server is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "reason")]
pub enum UpstreamState {
    /// Nothing is known of it yet.
    Configured,
    /// Its tools are known; it is not running.
    Known,
    /// It is on its way.
    Starting,
    /// It is running.
    Running,
    /// It could not be started, for this reason.
    Failed(String),
}

/// What can be told of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// What it is called here.
    pub name: String,
    /// Where it is in its life.
    #[serde(flatten)]
    pub state: UpstreamState,
    /// How many tools it has that can be used.
    pub tools: usize,
    /// Tools that were left out, with the reason.
    pub quarantined: Vec<(String, String)>,
    /// The protocol version it was last spoken to in.
    pub protocol_version: Option<String>,
    /// The version it gives of itself.
    pub version: Option<String>,
    /// When its tools were last listed.
    pub listed_at: Option<SystemTime>,
    /// How long its last start took.
    pub start_took: Option<Duration>,
    /// Its process, while there is one.
    pub pid: Option<u32>,
    /// Connections to it: processes or sessions.
    pub connections: usize,
    /// Whether calls get through to it.
    pub breaker: Breaker,
    /// The last lines of its standard error.
    pub stderr: Vec<String>,
}

impl Upstream {
    /// How many tools it is known to list, from this run or an earlier one; `None` if nothing is
    /// known of it.
    pub fn known(&self) -> Option<usize> {
        self.inner().lock().manifest.as_ref().map(|manifest| manifest.tools.len())
    }

    /// Its tools, as far as they are known, without starting it.
    pub fn known_tools(&self) -> Vec<ToolSpec> {
        let manifest = self.inner().lock().manifest.clone();
        let read = manifest.map(|manifest| list::read(&manifest, &self.inner().config));
        read.map(|read| read.listing.specs).unwrap_or_default()
    }
}

impl Inner {
    pub(super) fn status(&self) -> Status {
        let state = self.lock();
        let manifest = state.manifest.clone();
        let running = state.lanes.any_open();
        let pid = running.and_then(|connection| connection.pid());
        let is_starting = state.lanes.iter().any(|(_, it)| matches!(it.phase, Phase::Starting(_)));
        let phase = match (&state.trouble, &manifest) {
            _ if running.is_some() => UpstreamState::Running,
            _ if is_starting => UpstreamState::Starting,
            (Some(trouble), _) => UpstreamState::Failed(trouble.reason.clone()),
            (None, Some(_)) => UpstreamState::Known,
            (None, None) => UpstreamState::Configured,
        };
        let (connections, breaker) =
            (state.lanes.connections(), state.breaker.shown(Instant::now()));
        drop(state);
        let read = manifest.as_ref().map(|manifest| list::read(manifest, &self.config));
        let info = manifest.as_ref().and_then(|it| it.server_info.as_ref());
        let info = info.and_then(|raw| Fields::parse(raw.get()));
        Status {
            name: self.config.name.clone(),
            state: phase,
            tools: read.as_ref().map_or(0, |read| read.listing.specs.len()),
            quarantined: read.map(|read| read.quarantined).unwrap_or_default(),
            protocol_version: manifest.as_ref().map(|it| it.protocol_version.clone()),
            version: info.and_then(|info| info.read("version")),
            listed_at: manifest.as_ref().map(|manifest| manifest.listed_at),
            start_took: manifest.and_then(|manifest| manifest.start_took),
            pid,
            connections,
            breaker,
            stderr: self.tail.lines(),
        }
    }

    pub(super) fn health(&self) -> Health {
        let state = self.lock();
        Health {
            breaker: state.breaker.shown(Instant::now()),
            running: self.queue.running(),
            waiting: self.queue.waiting(),
            connections: state.lanes.connections(),
        }
    }
}
