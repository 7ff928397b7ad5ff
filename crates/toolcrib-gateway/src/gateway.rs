//! The gateway itself: a handle around what every client shares.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use toolcrib_core::{
    Availability, Catalog, Group, GroupId, Mode, Session, Settings, StrategyChoice, View,
};
use toolcrib_runtime::{Conversation, Crib, CribError, Trail};

use crate::Endpoint;
use crate::metrics::Metrics;
use crate::offers::Tables;
use crate::options::Options;
use crate::parking::Parking;
use crate::seat::Seat;
use crate::tasks::Tasks;
use crate::tools::Lists;
use crate::watch::Hub;

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
    /// Where a caller sits whom nobody asks who they are.
    seat: Arc<Seat>,
    options: Options,
    lists: Lists,
    tables: Tables,
    hub: Hub,
    metrics: Metrics,
    parking: Arc<Parking>,
    tasks: Tasks,
}

/// A gateway that others may let go of.
pub(crate) struct WeakGateway(Weak<Shared>);

impl WeakGateway {
    pub(crate) fn upgrade(&self) -> Option<Gateway> {
        self.0.upgrade().map(Gateway)
    }
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
        "{address} can be reached from other machines, and callers need no token: set a token's hash \
         or where tokens come from, or listen on a loopback address such as 127.0.0.1"
    )]
    Unguarded {
        /// The address.
        address: SocketAddr,
    },
    /// Tokens could not be checked.
    #[error("tokens can't be checked: `{field}`: {reason}")]
    OAuth {
        /// The field of [`OAuth`](crate::OAuth) that is wrong.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
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
        let seat = Arc::new(Seat::open(options.policy.clone(), options.limits));
        Ok(Self(Arc::new(Shared {
            crib,
            meta,
            inject,
            seat,
            options,
            lists: Lists::default(),
            tables: Tables::default(),
            hub: Hub::default(),
            metrics: Metrics::new(),
            parking: Arc::default(),
            tasks: Tasks::default(),
        })))
    }

    /// The gateway in numbers, as Prometheus reads them.
    pub fn metrics_text(&self) -> String {
        let seat = self.seat();
        let servers = self.known_groups(seat).into_iter().map(|id| {
            let health = self.health(&id);
            (id, health)
        });
        let results = self.0.options.results.as_ref();
        self.0.metrics.text(&self.view(seat), servers, results)
    }

    /// The servers that are still starting, of those a client may know of.
    pub fn starting(&self) -> Vec<String> {
        self.starting_for(self.seat())
    }

    pub(crate) fn starting_for(&self, seat: &Seat) -> Vec<String> {
        let catalog = self.catalog();
        let starting = catalog.unready().filter(|(_, state)| **state == Availability::Starting);
        let starting = starting.filter(|(id, _)| self.may_know(seat, &catalog, id));
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

    pub(crate) fn tables(&self) -> &Tables {
        &self.0.tables
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.0.hub
    }

    pub(crate) fn downgrade(&self) -> WeakGateway {
        WeakGateway(Arc::downgrade(&self.0))
    }

    pub(crate) fn parking(&self) -> &Arc<Parking> {
        &self.0.parking
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.0.tasks
    }

    pub(crate) fn crib(&self) -> &Crib {
        &self.0.crib
    }

    /// The seat of callers who are not asked who they are.
    pub(crate) fn seat(&self) -> &Arc<Seat> {
        &self.0.seat
    }

    pub(crate) fn straight<'a>(&self, seat: &'a Seat) -> &'a Conversation {
        let begin = || self.0.crib.converse(Session::new(), seat.policy.clone());
        seat.straight.get_or_init(begin)
    }

    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        self.0.crib.catalog()
    }

    pub(crate) fn view(&self, seat: &Seat) -> View {
        self.catalog().view(&seat.policy)
    }

    /// The crib whose engine answers at an endpoint.
    pub(crate) fn crib_of(&self, endpoint: &Endpoint) -> &Crib {
        match endpoint {
            Endpoint::Inject => &self.0.inject,
            _ => &self.0.meta,
        }
    }

    /// A conversation that begins now.
    pub(crate) fn converse(&self, seat: &Seat, endpoint: &Endpoint) -> Conversation {
        self.converse_on(Trail::default(), seat, endpoint)
    }

    /// The same, with a caller whose earlier requests are known.
    pub(crate) fn converse_on(
        &self,
        trail: Trail,
        seat: &Seat,
        endpoint: &Endpoint,
    ) -> Conversation {
        self.crib_of(endpoint).converse_on(trail, Session::new(), seat.policy.clone())
    }

    /// The group of the server that people call this, if a caller may know of it.
    pub(crate) fn group_of(&self, seat: &Seat, server: &str) -> Option<GroupId> {
        let catalog = self.catalog();
        let is_known = |id: &GroupId| {
            catalog.groups().any(|group| group.id() == id)
                || catalog.unready().any(|(group, _)| group == id)
        };
        let may_be = [GroupId::server(server), GroupId::from(server)];
        may_be.into_iter().find(is_known).filter(|id| self.may_know(seat, &catalog, id))
    }

    /// Whether a caller may know of a group.
    pub(crate) fn may_know(&self, seat: &Seat, catalog: &Arc<Catalog>, id: &GroupId) -> bool {
        let seen = catalog.view(&seat.policy);
        let has_tools = |view: &View| view.tools_in(id).next().is_some();
        match id.server_name() {
            Some(server) => seen.may_know(server),
            None => {
                seat.policy.admits_server(id.as_str())
                    && (has_tools(&seen) || !has_tools(&catalog.view_all()))
            }
        }
    }

    /// Fails if an endpoint is that of a server this caller knows nothing of.
    pub(crate) fn check(&self, seat: &Seat, endpoint: &Endpoint) -> Result<(), GatewayError> {
        match endpoint {
            Endpoint::Server(server) if self.group_of(seat, server).is_none() => {
                let known = self.servers(seat).join(", ");
                Err(GatewayError::UnknownServer { server: server.clone(), known })
            }
            _ => Ok(()),
        }
    }

    /// The names of the servers a caller may know of, in order: those that have been listed, those
    /// that are starting and those that don't answer.
    pub(crate) fn servers(&self, seat: &Seat) -> Vec<String> {
        let mut names: Vec<String> =
            self.known_groups(seat).iter().map(|id| server_name(id).to_owned()).collect();
        names.dedup();
        names
    }

    /// The same by their groups, in the order of their names.
    pub(crate) fn known_groups(&self, seat: &Seat) -> Vec<GroupId> {
        let catalog = self.catalog();
        let groups = catalog.groups().map(Group::id);
        let unready = catalog.unready().map(|(id, _)| id);
        let is_shown = |id: &&GroupId| **id != GroupId::host() && self.may_know(seat, &catalog, id);
        let mut ids: Vec<GroupId> = groups.chain(unready).filter(is_shown).cloned().collect();
        ids.sort_unstable_by(|a, b| {
            (server_name(a), a.as_str()).cmp(&(server_name(b), b.as_str()))
        });
        ids.dedup();
        ids
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
