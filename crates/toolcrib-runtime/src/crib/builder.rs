//! Making a crib.

use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use toolcrib_core::{Embedder, Engine, Group, Naming, RegisterError, Registry, Settings};

use super::{Crib, CribError, Stock};
use crate::audit::AuditSink;
use crate::embeddings::Embeddings;
use crate::function::{Function, HostTools};
use crate::loader::Loader;
use crate::toolset::Toolset;
use crate::usage::{Learning, UsageStore};

/// Makes a [`Crib`].
pub struct CribBuilder {
    settings: Settings,
    naming: Naming,
    toolsets: Vec<Arc<dyn Toolset>>,
    groups: Vec<(Group, Option<Arc<dyn Loader>>)>,
    host: HostTools,
    load_limit: Duration,
    audit: Option<AuditSink>,
    learning: Option<Learning>,
    embeddings: Option<Embeddings>,
}

impl CribBuilder {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            naming: Naming::default(),
            toolsets: Vec::new(),
            groups: Vec::new(),
            host: HostTools::default(),
            load_limit: Duration::from_secs(30),
            audit: None,
            learning: None,
            embeddings: None,
        }
    }

    /// Adds a toolset. One that can't be listed is noted as down and does not stop the rest.
    pub fn toolset(mut self, toolset: impl Toolset) -> Self {
        self.toolsets.push(Arc::new(toolset));
        self
    }

    /// Adds a function of the host's; one of the same name is replaced.
    pub fn function(self, function: Function) -> Self {
        self.host.insert(function);
        self
    }

    /// Declares a group that a loader brings when it is first needed, once per conversation.
    pub fn group(mut self, group: Group, loader: impl Loader) -> Self {
        self.groups.push((group, Some(Arc::new(loader))));
        self
    }

    /// Declares a group over tools that are registered elsewhere.
    pub fn group_of(mut self, group: Group) -> Self {
        self.groups.push((group, None));
        self
    }

    /// How long a loader, or a toolset that lists its tools, may take. 30 seconds, unless told.
    pub fn load_limit(mut self, limit: Duration) -> Self {
        self.load_limit = limit;
        self
    }

    /// Where to record tools that were asked for but are hidden or held back. Wrap toolsets in
    /// [`Audited`](crate::Audited) to record calls as well.
    pub fn audit(mut self, sink: AuditSink) -> Self {
        self.audit = Some(sink);
        self
    }

    /// Ranks by the vectors of an embedder as soon as it has made those of every tool, which it
    /// does in the background. Sets [`Settings::embedder`]; other settings that the crib is used
    /// [`under`](Crib::under) say so themselves.
    pub fn embeddings(mut self, embeddings: Embeddings) -> Self {
        self.settings.embedder = Embedder::Supplied;
        self.embeddings = Some(embeddings);
        self
    }

    /// Learns from use: keeps which tool was called after which query, and lifts it a little when
    /// such a query is asked again. Nothing is kept without it, and then nothing but these two
    /// texts and a count. A query that looks as if it held a secret is not kept.
    pub fn usage(mut self, store: impl UsageStore) -> Self {
        self.learning = Some(Learning::new(Arc::new(store)));
        self
    }

    /// Which form exposed names take.
    pub fn naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }

    /// Lists every toolset, all at once, and opens the crib. Where two offer a tool of one name,
    /// the host's functions come first and then the toolset that was added first.
    pub async fn build(self) -> Result<Crib, CribError> {
        let engine = Arc::new(Engine::new(self.settings)?);
        let stock = Arc::new(Stock {
            registry: Registry::new(self.naming),
            shelves: RwLock::default(),
            loaders: RwLock::default(),
            host: Arc::new(self.host),
            registering: Mutex::default(),
            load_limit: self.load_limit,
            held: Mutex::default(),
            audit: self.audit,
            learning: self.learning,
            embeddings: self.embeddings,
            changes: watch::Sender::default(),
        });
        let crib = Crib { engine, stock };
        let stock = &crib.stock;
        let change = crib.list_host()?;
        if let Some((tool, reason)) = change.rejected.into_iter().next() {
            return Err(CribError::Function { tool, reason });
        }
        let mut shelves = Vec::with_capacity(self.toolsets.len());
        for toolset in self.toolsets {
            let id = toolset.id();
            if stock.shelf(&id).is_some() {
                return Err(RegisterError::GroupExists(id).into());
            }
            shelves.push(stock.shelve(toolset));
        }
        let listed = join_all(shelves.iter().map(|shelf| shelf.list(stock.load_limit))).await;
        for (shelf, listed) in shelves.iter().zip(listed) {
            stock.take_in(shelf, listed);
        }
        for (group, loader) in self.groups {
            crib.declare(group, loader)?;
        }
        if let Some(learning) = crib.learning() {
            learning.renew_after(Duration::ZERO);
        }
        if let Some(embeddings) = crib.stock.embeddings.clone() {
            let stock = Arc::downgrade(&crib.stock);
            let catalog = move || Some(stock.upgrade()?.registry.catalog());
            tokio::spawn(embeddings.keep_up(catalog, crib.changes()));
        }
        Ok(crib)
    }
}
