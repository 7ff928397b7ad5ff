//! The crib: toolsets and loaders behind one registry, and the conversations over them.

mod builder;
mod shelf;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures::future::join_all;
use toolcrib_core::{
    Availability, Catalog, Change, Engine, EngineError, Fetched, Group, GroupId, Policy,
    RegisterError, Registry, ResumeError, ResumeReport, Saved, Session, Settings, Strategy,
    ToolName, ToolSpec,
};

use crate::audited::{AuditEvent, AuditSink};
use crate::conversation::Conversation;
use crate::function::{Function, HostTools};
use crate::loader::{LoadedGroup, Loader, Loads};
use crate::toolset::{Listing, Toolset};
pub use builder::CribBuilder;
use shelf::{Listed, Shelf};

/// Toolsets and loaders behind one registry. A handle: clones share everything.
///
/// ```
/// use serde_json::json;
/// use toolcrib_core::{Call, Settings};
/// use toolcrib_runtime::{Crib, function};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let crib = Crib::builder(Settings::default())
///     .function(function("greet", "Say hello.", |name: Name| async move { format!("Hello, {}!", name.name) }))
///     .build()
///     .await?;
///
/// let chat = crib.conversation();
/// chat.begin_turn();
/// let shown = chat.prepare()?; // what to send to the model: shown.system_section, shown.tools
/// let outcome = chat.call(Call::new("greet", json!({"name": "Ada"}))).await?;
/// assert_eq!(outcome.result.to_text(), "Hello, Ada!");
/// # Ok(()) }
/// # #[derive(serde::Deserialize, schemars::JsonSchema)] struct Name { name: String }
/// ```
#[derive(Clone)]
pub struct Crib(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    registry: Registry,
    shelves: RwLock<HashMap<GroupId, Arc<Shelf>>>,
    loaders: RwLock<HashMap<GroupId, Arc<dyn Loader>>>,
    host: Arc<HostTools>,
    /// Held while a function is registered, which takes no waiting.
    registering: Mutex<()>,
    load_limit: Duration,
    audit: Option<AuditSink>,
}

/// Why a crib can't be made or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CribError {
    /// The settings don't work.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A group can't be declared, or two toolsets have one id.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A function of the host's can't be registered.
    #[error("function `{tool}` can't be registered: {reason}")]
    Function {
        /// The function.
        tool: ToolName,
        /// Why not.
        reason: String,
    },
}

impl Crib {
    /// Begins to make a crib.
    pub fn builder(settings: Settings) -> CribBuilder {
        CribBuilder::new(settings)
    }

    /// Adds or replaces a toolset. Conversations under way are told at their next turn.
    pub async fn add(&self, toolset: impl Toolset) -> Change {
        let shelf = self.shelve(Arc::new(toolset));
        self.relist(&shelf).await
    }

    /// Puts a toolset in its place and begins to watch it.
    fn shelve(&self, toolset: Arc<dyn Toolset>) -> Arc<Shelf> {
        let shelf = Arc::new(Shelf::new(toolset));
        // What was there before is dropped after the lock is released.
        let _replaced = write(&self.0.shelves).insert(shelf.id().clone(), shelf.clone());
        let (crib, watched) = (Arc::downgrade(&self.0), Arc::downgrade(&shelf));
        shelf.watch(move || {
            let (crib, watched) = (crib.upgrade().map(Crib), watched.upgrade());
            async move {
                if let (Some(crib), Some(watched)) = (crib, watched) {
                    crib.relist(&watched).await;
                }
            }
        });
        shelf
    }

    /// Registers a function while conversations run. Those that are deferring have it loaded at
    /// their next turn: it is there because it is needed now. A function of the same name is
    /// replaced; a tool of another toolset is not, and keeps its name.
    pub fn register(&self, function: Function) -> Result<Change, CribError> {
        let name = function.spec().name().clone();
        let _one_at_a_time = self.0.registering.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.host.insert(function.map_spec(ToolSpec::into_immediate));
        let registered = self.list_host().and_then(|change| {
            match change.rejected.iter().find(|(tool, _)| *tool == name) {
                Some((tool, reason)) => {
                    Err(CribError::Function { tool: tool.clone(), reason: reason.clone() })
                }
                None => Ok(change),
            }
        });
        registered.inspect_err(|_| {
            self.0.host.remove(&name);
        })
    }

    /// Lists the host's functions, which get a place once there are any.
    fn list_host(&self) -> Result<Change, CribError> {
        let host = &self.0.host;
        let shelf = match self.shelf(&host.id()) {
            Some(shelf) if self.is_host(&shelf) => shelf,
            Some(shelf) => return Err(RegisterError::GroupExists(shelf.id().clone()).into()),
            None if host.listing().specs.is_empty() => return Ok(Change::default()),
            None => {
                let shelf = Arc::new(Shelf::new(host.clone()));
                write(&self.0.shelves).insert(host.id(), shelf.clone());
                shelf
            }
        };
        let listed = shelf.list_now(|| host.listing());
        Ok(self.take_in(&shelf, listed))
    }

    /// Whether this is the place of the functions registered here, and not of a toolset with
    /// their id.
    fn is_host(&self, shelf: &Shelf) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(shelf.toolset()), Arc::as_ptr(&self.0.host))
    }

    /// Declares a group, with a loader if its members are not all known.
    pub fn declare(
        &self,
        group: Group,
        loader: Option<Arc<dyn Loader>>,
    ) -> Result<Change, CribError> {
        let id = group.id().clone();
        // Nobody sees the group before its loader.
        let mut loaders = write(&self.0.loaders);
        let change = self.0.registry.declare(group)?;
        if let Some(loader) = loader {
            loaders.insert(id, loader);
        }
        Ok(change)
    }

    /// Removes a toolset or group.
    pub fn remove(&self, id: &GroupId) -> Change {
        let mut shelves = write(&self.0.shelves);
        let (shelf, _loader) = (shelves.remove(id), write(&self.0.loaders).remove(id));
        let change = self.0.registry.remove_group(id);
        // Toolset and loader are dropped after the lock is released.
        drop(shelves);
        if shelf.is_some_and(|shelf| self.is_host(&shelf)) {
            self.0.host.clear();
        }
        change
    }

    /// Lists a toolset again. If it fails, what is known of it stays, and it is noted as down.
    pub async fn refresh(&self, id: &GroupId) -> Change {
        match self.shelf(id) {
            Some(shelf) => self.relist(&shelf).await,
            None => Change::default(),
        }
    }

    async fn relist(&self, shelf: &Arc<Shelf>) -> Change {
        let listed = shelf.list(self.0.load_limit).await;
        self.take_in(shelf, listed)
    }

    /// Registers what a toolset has listed, unless it is gone or a later list was faster.
    fn take_in(&self, shelf: &Arc<Shelf>, listed: Listed) -> Change {
        let id = shelf.id();
        let register = |listing: Result<Listing, String>| match listing {
            Ok(listing) => {
                self.0.registry.set_availability(id.clone(), Availability::Ready);
                let mut group = Group::new(id.clone());
                if let Some(title) = listing.title {
                    group = group.with_display_name(title);
                }
                if let Some(description) = listing.description {
                    group = group.with_description(description);
                }
                (self.0.registry.replace_toolset(group, listing.specs), None)
            }
            Err(reason) => {
                let down = Availability::Down(reason.clone());
                self.0.registry.set_availability(id.clone(), down);
                (Change::default(), Some(reason))
            }
        };
        // Held until the registry has changed, so that no removal comes in between.
        let shelves = read(&self.0.shelves);
        let is_there = shelves.get(id).is_some_and(|current| Arc::ptr_eq(current, shelf));
        let taken = if is_there { shelf.take(listed, register) } else { None };
        drop(shelves);
        let (change, failure) = taken.unwrap_or_default();
        if let Some(reason) = failure {
            tracing::warn!(group = %id, reason, "could not be listed");
        }
        for (tool, reason) in &change.rejected {
            tracing::warn!(%tool, reason, "left out");
        }
        change
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.registry.catalog()
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Begins a conversation that may use everything.
    pub fn conversation(&self) -> Conversation {
        self.converse(Session::new(), Policy::default())
    }

    /// Begins or continues a conversation with a session and a policy of one's own.
    pub fn converse(&self, session: Session, policy: Policy) -> Conversation {
        Conversation::new(self.clone(), session, policy, Loads::default())
    }

    /// Brings a conversation back. Loaders that are needed run at once; one that fails is
    /// reported and stops nothing.
    pub async fn resume(
        &self,
        saved: Saved,
        strategy: Strategy,
        policy: Policy,
    ) -> Result<(Conversation, ResumeReport), ResumeError> {
        let view = self.catalog().view(&policy);
        let loads = Loads::default();
        let needs = saved.needs(&view);
        let fetches = needs.iter().map(|id| self.load(&loads, id));
        let brought = join_all(fetches).await;
        let brought = brought.into_iter().map(|load| load.map(|group| group.specs));
        let fetched: Fetched = needs.iter().cloned().zip(brought).collect();
        let (session, report) = self.0.engine.resume(&view, saved, strategy, fetched)?;
        Ok((Conversation::new(self.clone(), session, policy, loads), report))
    }

    pub(crate) fn toolset(&self, id: &GroupId) -> Option<Arc<dyn Toolset>> {
        self.shelf(id).map(|shelf| shelf.toolset().clone())
    }

    fn shelf(&self, id: &GroupId) -> Option<Arc<Shelf>> {
        read(&self.0.shelves).get(id).cloned()
    }

    pub(crate) async fn load(&self, loads: &Loads, id: &GroupId) -> Result<LoadedGroup, String> {
        let loader = read(&self.0.loaders).get(id).cloned();
        match loader {
            Some(loader) => loads.get(id, &loader, self.0.load_limit).await,
            None => Err(format!("group `{id}` has no loader")),
        }
    }

    pub(crate) fn audit(&self, event: AuditEvent) {
        if let Some(sink) = &self.0.audit {
            sink(event);
        }
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
