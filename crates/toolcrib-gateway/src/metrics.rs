//! The gateway in numbers.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use toolcrib_core::{Availability, GroupId, ToolName, View};
use toolcrib_runtime::{Breaker, Budget, Health};

use crate::gateway::server_name;

/// Counters shared by every client.
pub(crate) struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    seconds: Family<ServerLabels, Histogram, fn() -> Histogram>,
    searches: Counter,
    turned_away: Counter,
    sessions: Gauge,
    in_flight: Gauge,
    tools: Gauge,
    upstreams: Family<StateLabels, Gauge>,
    breakers: Family<ServerLabels, Gauge>,
    running: Family<ServerLabels, Gauge>,
    waiting: Family<ServerLabels, Gauge>,
    connections: Family<ServerLabels, Gauge>,
    result_bytes: Gauge,
    result_bytes_most: Gauge,
    results_refused: Counter,
    /// Held while the state of things is written down: two at once would mix theirs.
    telling: Mutex<()>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    server: String,
    tool: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabels {
    server: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    server: String,
    state: &'static str,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        // From a tenth of a millisecond to most of a minute.
        let buckets = || Histogram::new(exponential_buckets(0.0001, 3.0, 13));
        let metrics = Self {
            registry: Registry::with_prefix("toolcrib"),
            calls: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            searches: Counter::default(),
            turned_away: Counter::default(),
            sessions: Gauge::default(),
            in_flight: Gauge::default(),
            tools: Gauge::default(),
            upstreams: Family::default(),
            breakers: Family::default(),
            running: Family::default(),
            waiting: Family::default(),
            connections: Family::default(),
            result_bytes: Gauge::default(),
            result_bytes_most: Gauge::default(),
            results_refused: Counter::default(),
            telling: Mutex::default(),
        };
        metrics.registered()
    }

    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("calls", "Calls of tools, by how they ended", self.calls.clone());
        registry.register("call_seconds", "How long calls took", self.seconds.clone());
        registry.register("searches", "Searches for tools", self.searches.clone());
        let about = "Calls beyond a caller's limits";
        registry.register("calls_turned_away", about, self.turned_away.clone());
        registry.register("sessions", "Sessions open", self.sessions.clone());
        registry.register("calls_in_flight", "Calls that run", self.in_flight.clone());
        registry.register("tools", "Tools known", self.tools.clone());
        registry.register("upstreams", "Servers, by state", self.upstreams.clone());
        let about = "Whether calls get through: 0 they do, 1 one finds out, 2 they are refused";
        registry.register("upstream_breaker", about, self.breakers.clone());
        let about = "Calls of a server that run";
        registry.register("upstream_calls_running", about, self.running.clone());
        let about = "Calls of a server that wait for their turn";
        registry.register("upstream_calls_waiting", about, self.waiting.clone());
        let about = "Connections to a server: processes or sessions";
        registry.register("upstream_connections", about, self.connections.clone());
        let about = "Large results in memory, in bytes";
        registry.register("result_bytes", about, self.result_bytes.clone());
        let about = "The most that large results may take, in bytes";
        registry.register("result_bytes_limit", about, self.result_bytes_most.clone());
        let about = "Results there was no room for";
        registry.register("results_refused", about, self.results_refused.clone());
        self
    }

    pub(crate) fn searched(&self) {
        self.searches.inc();
    }

    pub(crate) fn turned_away(&self) {
        self.turned_away.inc();
    }

    pub(crate) fn set_sessions(&self, count: usize) {
        self.sessions.set(whole(count));
    }

    /// Everything, with the state of things as they are now, as far as callers may know of them.
    pub(crate) fn text(
        &self,
        view: &View,
        servers: impl Iterator<Item = (GroupId, Option<Health>)>,
        results: Option<&Budget>,
    ) -> String {
        let catalog = view.catalog();
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        self.tools.set(whole(view.len()));
        self.upstreams.clear();
        let of_servers = [&self.breakers, &self.running, &self.waiting, &self.connections];
        of_servers.iter().for_each(|family| family.clear());
        for (id, health) in servers {
            let state = match catalog.availability(&id) {
                Availability::Ready => "ready",
                Availability::Starting => "starting",
                Availability::Down(_) => "down",
            };
            let server = server_name(&id).to_owned();
            self.upstreams.get_or_create(&StateLabels { server: server.clone(), state }).set(1);
            let Some(health) = health else { continue };
            let breaker = match health.breaker {
                Breaker::Closed => 0,
                Breaker::Probing => 1,
                Breaker::Open { .. } => 2,
            };
            let counts = [breaker, health.running, health.waiting, health.connections];
            for (family, count) in of_servers.iter().zip(counts) {
                family.get_or_create(&ServerLabels { server: server.clone() }).set(whole(count));
            }
        }
        if let Some(budget) = results {
            self.result_bytes.set(whole(budget.used()));
            self.result_bytes_most.set(whole(budget.total()));
            let refused = budget.refused();
            self.results_refused.inner().store(refused, Ordering::Relaxed);
        }
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A call under way: counted when it ends, however it does.
pub(crate) struct Ending<'a> {
    metrics: &'a Metrics,
    name: &'a ToolName,
    begun: Instant,
    outcome: &'static str,
}

impl<'a> Ending<'a> {
    pub(crate) fn new(metrics: &'a Metrics, name: &'a ToolName, begun: Instant) -> Self {
        metrics.in_flight.inc();
        Self { metrics, name, begun, outcome: "cancelled" }
    }

    pub(crate) fn ends_with(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let Self { metrics, name, begun, outcome } = self;
        metrics.in_flight.dec();
        let server = name.namespace().unwrap_or_default().to_owned();
        let tool = name.tool().to_owned();
        let labels = CallLabels { server: server.clone(), tool, outcome };
        metrics.calls.get_or_create(&labels).inc();
        let seconds = metrics.seconds.get_or_create(&ServerLabels { server });
        seconds.observe(begun.elapsed().as_secs_f64());
    }
}
