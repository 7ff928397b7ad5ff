//! The gateway itself: a handle around what every client shares.

use std::net::SocketAddr;
use std::sync::Arc;

use toolcrib_core::{
    Availability, Catalog, Group, GroupId, Mode, Session, Settings, StrategyChoice, View,
};
use toolcrib_runtime::{Conversation, Crib, CribError, Trail};

use crate::Endpoint;
use crate::metrics::Metrics;
use crate::options::Options;
use crate::tools::Lists;

/// The most bytes `instructions` may have: clients cut them at two thousand or so.
pub(crate) const MOST_INSTRUCTIONS: usize = 1_800;

/// Serves a crib to MCP clients. A handle: clones serve the same tools.
///
/// The crib's names should take the form [`Naming::Gateway`](toolcrib_core::Naming::Gateway).
#[derive(Clone)]
pub struct Gateway(Arc<Shared>);

struct Shared {
    /// As it was given: for calls that are passed on as they stand.
    crib: Crib,
    meta: Crib,
    inject: Crib,
    /// Runs calls that are passed on as they stand. It has no ledger to speak of.
    straight: Conversation,
    options: Options,
    lists: Lists,
    metrics: Metrics,
}

/// Why a gateway can't be made or can't go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The settings don't work.
    #[error(transparent)]
    Crib(#[from] CribError),
    /// There is no such server.
    #[error("there is no server `{server}`; there are: {known}")]
    UnknownServer {
        /// The name asked for.
        server: String,
        /// The names there are.
        known: String,
    },
    /// Others could reach the gateway, and nothing would keep them out.
    #[error(
        "{address} can be reached from other machines, and no token is configured: set a token's \
         hash, or listen on a loopback address such as 127.0.0.1"
    )]
    Unguarded {
        /// The address.
        address: SocketAddr,
    },
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What failed.
        what: &'static str,
        /// How.
        source: std::io::Error,
    },
}

impl GatewayError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

impl Gateway {
    /// A gateway in front of a crib. What is added to the crib later is served as well.
    pub fn new(crib: Crib, options: Options) -> Result<Self, GatewayError> {
        let under = |strategy| {
            let mut settings = options.settings.clone();
            settings.mode = Mode::Deferred;
            settings.strategy = strategy;
            limit_catalog(&mut settings);
            crib.under(settings)
        };
        let meta = under(StrategyChoice::Dispatch)?;
        let inject = under(StrategyChoice::Inject)?;
        let straight = crib.converse(Session::new(), options.policy.clone());
        let (lists, metrics) = (Lists::default(), Metrics::new());
        Ok(Self(Arc::new(Shared { crib, meta, inject, straight, options, lists, metrics })))
    }

    /// The gateway in numbers, as Prometheus reads them.
    pub fn metrics_text(&self) -> String {
        self.0.metrics.text(&self.catalog())
    }

    /// The servers that are still starting, of those a client may know of.
    pub fn starting(&self) -> Vec<String> {
        let catalog = self.catalog();
        let starting = catalog.unready().filter(|(_, state)| **state == Availability::Starting);
        let starting = starting.filter(|(id, _)| self.may_know(&catalog, id));
        starting.map(|(id, _)| server_name(id).to_owned()).collect()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.0.options
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn lists(&self) -> &Lists {
        &self.0.lists
    }

    pub(crate) fn crib(&self) -> &Crib {
        &self.0.crib
    }

    pub(crate) fn straight(&self) -> &Conversation {
        &self.0.straight
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.0.crib.catalog()
    }

    pub(crate) fn view(&self) -> View {
        self.catalog().view(&self.0.options.policy)
    }

    /// The crib whose engine answers at an endpoint.
    pub(crate) fn crib_of(&self, endpoint: &Endpoint) -> &Crib {
        match endpoint {
            Endpoint::Inject => &self.0.inject,
            _ => &self.0.meta,
        }
    }

    /// A conversation that begins now.
    pub(crate) fn converse(&self, endpoint: &Endpoint) -> Conversation {
        self.converse_on(Trail::default(), endpoint)
    }

    /// The same, with a caller whose earlier requests are known.
    pub(crate) fn converse_on(&self, trail: Trail, endpoint: &Endpoint) -> Conversation {
        let policy = self.0.options.policy.clone();
        self.crib_of(endpoint).converse_on(trail, Session::new(), policy)
    }

    /// The group of the server that people call this, if a client may know of it.
    pub(crate) fn group_of(&self, server: &str) -> Option<GroupId> {
        let catalog = self.catalog();
        let is_known = |id: &GroupId| {
            catalog.groups().any(|group| group.id() == id)
                || catalog.unready().any(|(group, _)| group == id)
        };
        let may_be = [GroupId::server(server), GroupId::from(server)];
        may_be.into_iter().find(is_known).filter(|id| self.may_know(&catalog, id))
    }

    /// Whether a client may know of a group: not of a server that is denied, nor of one of which
    /// no tool may be seen.
    fn may_know(&self, catalog: &Arc<Catalog>, id: &GroupId) -> bool {
        let policy = &self.0.options.policy;
        let has_tools = |view: View| view.tools_in(id).next().is_some();
        policy.admits_server(server_name(id))
            && (has_tools(catalog.view(policy)) || !has_tools(catalog.view_all()))
    }

    /// Fails if an endpoint is that of a server nobody knows.
    pub(crate) fn check(&self, endpoint: &Endpoint) -> Result<(), GatewayError> {
        match endpoint {
            Endpoint::Server(server) if self.group_of(server).is_none() => {
                let known = self.servers().join(", ");
                Err(GatewayError::UnknownServer { server: server.clone(), known })
            }
            _ => Ok(()),
        }
    }

    /// The names of the servers a client may know of, in order: those that have been listed, those
    /// that are starting and those that don't answer.
    pub(crate) fn servers(&self) -> Vec<String> {
        let catalog = self.catalog();
        let groups = catalog.groups().map(Group::id);
        let unready = catalog.unready().map(|(id, _)| id);
        let mut names: Vec<String> = groups
            .chain(unready)
            .filter(|id| **id != GroupId::host() && self.may_know(&catalog, id))
            .map(|id| server_name(id).to_owned())
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

pub(crate) fn server_name(id: &GroupId) -> &str {
    id.server_name().unwrap_or(id.as_str())
}

/// Keeps the catalog short enough for `instructions`. Where bytes are the tighter limit no token
/// is counted, and the tokenizer, which takes longer to load than a client should wait, is not
/// loaded.
fn limit_catalog(settings: &mut Settings) {
    let most = MOST_INSTRUCTIONS - 100;
    let most = settings.catalog_bytes.map_or(most, |bytes| bytes.min(most));
    settings.catalog_bytes = Some(most);
    settings.catalog_tokens = settings.catalog_tokens.max(most as u64);
}
