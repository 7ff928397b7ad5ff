//! The gateway in numbers.

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use toolcrib_core::{Availability, GroupId, ToolName, View};

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
        self
    }

    pub(crate) fn searched(&self) {
        self.searches.inc();
    }

    pub(crate) fn turned_away(&self) {
        self.turned_away.inc();
    }

    pub(crate) fn set_sessions(&self, count: usize) {
        self.sessions.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Everything, with the state of things as they are now, as far as callers may know of them.
    pub(crate) fn text(&self, view: &View, may_know: impl Fn(&GroupId) -> bool) -> String {
        let catalog = view.catalog();
        self.tools.set(i64::try_from(view.len()).unwrap_or(i64::MAX));
        self.upstreams.clear();
        let groups = catalog.groups().map(|group| group.id());
        let all = groups.chain(catalog.unready().map(|(id, _)| id));
        for id in all.filter(|id| may_know(id)) {
            let state = match catalog.availability(id) {
                Availability::Ready => "ready",
                Availability::Starting => "starting",
                Availability::Down(_) => "down",
            };
            let server = server_name(id).to_owned();
            self.upstreams.get_or_create(&StateLabels { server, state }).set(1);
        }
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }
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
