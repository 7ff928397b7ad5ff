//! How the servers are doing, for people: `GET /servers`.

use serde::Serialize;
use toolcrib_core::{Annotations, Availability, GroupId};
use toolcrib_runtime::{Breaker, Health};

use crate::Gateway;
use crate::gateway::server_name;
use crate::seat::Seat;

/// What may be told of one server.
#[derive(Serialize)]
struct Row {
    name: String,
    /// `ready`, `starting` or `down`.
    state: &'static str,
    /// How many of its tools the caller may use.
    tools: usize,
    /// Its tools that are held back until they are approved. Only for callers with all tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<Vec<String>>,
    /// Why it can't be called, or could not be: in its own words, which may be about other
    /// callers. Only for callers with all tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    health: Option<Doing>,
}

#[derive(Serialize)]
struct Doing {
    /// `closed`, `open` or `probing`.
    breaker: &'static str,
    /// Until it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_ms: Option<u64>,
    running: usize,
    waiting: usize,
    connections: usize,
}

#[derive(Serialize)]
struct Report {
    servers: Vec<Row>,
}

impl Gateway {
    /// The servers that callers may know of and how they are doing, as JSON.
    pub fn servers_json(&self) -> String {
        self.servers_for(self.seat())
    }

    pub(crate) fn servers_for(&self, seat: &Seat) -> String {
        let catalog = self.catalog();
        let view = catalog.view(&seat.policy);
        let row = |id: GroupId| {
            let (state, down) = match catalog.availability(&id) {
                Availability::Ready => ("ready", None),
                Availability::Starting => ("starting", None),
                Availability::Down(reason) => ("down", Some(reason)),
            };
            let health = self.health(&id);
            let reason = match &health {
                Some(Health { breaker: Breaker::Open { reason, .. }, .. }) => Some(reason.clone()),
                _ => None,
            };
            Row {
                name: server_name(&id).to_owned(),
                state,
                tools: view.tools_in(&id).count(),
                held: self.held_for(seat, &id),
                error: down.or(reason).filter(|_| seat.sees_as(self.seat())),
                health: health.map(|health| Doing {
                    retry_in_ms: match &health.breaker {
                        Breaker::Open { remaining, .. } => Some(remaining.as_millis() as u64),
                        _ => None,
                    },
                    breaker: match health.breaker {
                        Breaker::Closed => "closed",
                        Breaker::Open { .. } => "open",
                        Breaker::Probing => "probing",
                    },
                    running: health.running,
                    waiting: health.waiting,
                    connections: health.connections,
                }),
            }
        };
        let ids = self.known_groups(seat);
        let report = Report { servers: ids.into_iter().map(row).collect() };
        serde_json::to_string(&report).unwrap_or_default()
    }

    /// The tools that are held back, by their own names. What a policy hides from everybody stays
    /// hidden, and who sees less than others knows nothing of any.
    fn held_for(&self, seat: &Seat, id: &GroupId) -> Option<Vec<String>> {
        if !seat.sees_as(self.seat()) {
            return None;
        }
        let naming = self.catalog().naming();
        // What it says of its effects is what was not approved.
        let unknown = Annotations::default();
        let held = self.crib().held_of(id).into_iter();
        let shown = held.filter(|tool| seat.policy.admits_name(tool, naming, &unknown));
        let mut names: Vec<String> = shown.map(|tool| tool.tool().to_owned()).collect();
        names.sort_unstable();
        (!names.is_empty()).then_some(names)
    }

    /// How a server is doing, if it is more than its tools.
    pub(crate) fn health(&self, id: &GroupId) -> Option<Health> {
        Some(self.crib().toolset(id)?.server()?.health())
    }
}
