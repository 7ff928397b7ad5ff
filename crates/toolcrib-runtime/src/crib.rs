//! The crib: toolsets and loaders behind one registry, and the conversations over them.

mod builder;
mod shelf;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use toolcrib_core::{
    Availability, Catalog, Change, Engine, EngineError, Fetched, Group, GroupId, Policy,
    RegisterError, Registry, ResumeError, ResumeReport, Saved, Session, Settings, Strategy,
    ToolName, ToolSpec,
};

use crate::audit::{AuditEvent, AuditSink};
use crate::conversation::Conversation;
use crate::embeddings::Embeddings;
use crate::function::{Function, HostTools};
use crate::loader::{LoadedGroup, Loader, Loads};
use crate::toolset::{Listing, Toolset};
use crate::trail::Trail;
use crate::usage::Learning;
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
pub struct Crib {
    engine: Arc<Engine>,
    stock: Arc<Stock>,
}

/// What cribs over the same toolsets share.
struct Stock {
    registry: Registry,
    shelves: RwLock<HashMap<GroupId, Arc<Shelf>>>,
    loaders: RwLock<HashMap<GroupId, Arc<dyn Loader>>>,
    host: Arc<HostTools>,
    /// Held while a function is registered, which takes no waiting.
    registering: Mutex<()>,
    load_limit: Duration,
    /// What toolsets have and hold back, by group.
    held: Mutex<HashMap<GroupId, Vec<ToolName>>>,
    audit: Option<AuditSink>,
    learning: Option<Learning>,
    embeddings: Option<Embeddings>,
    /// Counts changes of the catalog.
    changes: watch::Sender<u64>,
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

    /// A crib over the same toolsets under other settings: what is added to one is in both.
    pub fn under(&self, settings: Settings) -> Result<Self, CribError> {
        Ok(Self { engine: Arc::new(Engine::new(settings)?), stock: self.stock.clone() })
    }

    /// Adds or replaces a toolset. Conversations under way are told at their next turn.
    pub async fn add(&self, toolset: impl Toolset) -> Change {
        let shelf = self.stock.shelve(Arc::new(toolset));
        self.stock.relist(&shelf).await
    }

    /// Adds or replaces a toolset without waiting for its list: until that comes, the toolset is
    /// noted as starting.
    pub fn add_soon(&self, toolset: impl Toolset) -> JoinHandle<()> {
        // First the note: whoever removes the toolset takes it away too.
        self.stock.registry.set_availability(toolset.id(), Availability::Starting);
        let shelf = self.stock.shelve(Arc::new(toolset));
        let stock = self.stock.clone();
        tokio::spawn(async move {
            stock.relist(&shelf).await;
        })
    }

    /// Registers a function while conversations run. Those that are deferring have it loaded at
    /// their next turn: it is there because it is needed now. A function of the same name is
    /// replaced; a tool of another toolset is not, and keeps its name.
    pub fn register(&self, function: Function) -> Result<Change, CribError> {
        let name = function.spec().name().clone();
        let _one_at_a_time = self.stock.registering.lock().unwrap_or_else(PoisonError::into_inner);
        self.stock.host.insert(function.map_spec(ToolSpec::into_immediate));
        let registered = self.list_host().and_then(|change| {
            match change.rejected.iter().find(|(tool, _)| *tool == name) {
                Some((tool, reason)) => {
                    Err(CribError::Function { tool: tool.clone(), reason: reason.clone() })
                }
                None => Ok(change),
            }
        });
        registered.inspect_err(|_| {
            self.stock.host.remove(&name);
        })
    }

    /// Lists the host's functions, which get a place once there are any.
    fn list_host(&self) -> Result<Change, CribError> {
        let host = &self.stock.host;
        let shelf = match self.stock.shelf(&host.id()) {
            Some(shelf) if self.is_host(&shelf) => shelf,
            Some(shelf) => return Err(RegisterError::GroupExists(shelf.id().clone()).into()),
            None if host.listing().specs.is_empty() => return Ok(Change::default()),
            None => {
                let shelf = Arc::new(Shelf::new(host.clone()));
                write(&self.stock.shelves).insert(host.id(), shelf.clone());
                shelf
            }
        };
        let listed = shelf.list_now(|| host.listing());
        Ok(self.stock.take_in(&shelf, listed))
    }

    /// Whether this is the place of the functions registered here, and not of a toolset with
    /// their id.
    fn is_host(&self, shelf: &Shelf) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(shelf.toolset()), Arc::as_ptr(&self.stock.host))
    }

    /// Declares a group, with a loader if its members are not all known.
    pub fn declare(
        &self,
        group: Group,
        loader: Option<Arc<dyn Loader>>,
    ) -> Result<Change, CribError> {
        let id = group.id().clone();
        // Nobody sees the group before its loader.
        let mut loaders = write(&self.stock.loaders);
        let change = self.stock.registry.declare(group)?;
        if let Some(loader) = loader {
            loaders.insert(id, loader);
        }
        self.stock.changes.send_modify(|count| *count += 1);
        Ok(change)
    }

    /// Removes a toolset or group.
    pub fn remove(&self, id: &GroupId) -> Change {
        let mut shelves = write(&self.stock.shelves);
        let (shelf, _loader) = (shelves.remove(id), write(&self.stock.loaders).remove(id));
        let change = self.stock.registry.remove_group(id);
        self.stock.note_held(id, Vec::new());
        // Toolset and loader are dropped after the lock is released.
        drop(shelves);
        self.stock.changes.send_modify(|count| *count += 1);
        if shelf.is_some_and(|shelf| self.is_host(&shelf)) {
            self.stock.host.clear();
        }
        change
    }

    /// Lists a toolset again. If it fails, what is known of it stays, and it is noted as down.
    pub async fn refresh(&self, id: &GroupId) -> Change {
        match self.stock.shelf(id) {
            Some(shelf) => self.stock.relist(&shelf).await,
            None => Change::default(),
        }
    }

    /// Counts whenever the catalog, or whether a toolset answers, may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.stock.changes.subscribe()
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.stock.registry.catalog()
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Begins a conversation that may use everything.
    pub fn conversation(&self) -> Conversation {
        self.converse(Session::new(), Policy::default())
    }

    /// Begins or continues a conversation with a session and a policy of one's own.
    pub fn converse(&self, session: Session, policy: Policy) -> Conversation {
        self.converse_on(Trail::default(), session, policy)
    }

    /// The same, where the searches of earlier conversations with the same caller are known: a
    /// call may follow one of them.
    pub fn converse_on(&self, trail: Trail, session: Session, policy: Policy) -> Conversation {
        Conversation::new(self.clone(), session, policy, Loads::default(), trail)
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
        let (session, report) = self.engine.resume(&view, saved, strategy, fetched)?;
        let trail = Trail::default();
        Ok((Conversation::new(self.clone(), session, policy, loads, trail), report))
    }

    /// The tools by this name that are held back until somebody approves them. For the audit log:
    /// to callers they do not exist.
    pub fn held(&self, name: &str) -> Vec<ToolName> {
        let naming = self.catalog().naming();
        let held = self.stock.held.lock().unwrap_or_else(PoisonError::into_inner);
        let all = held.values().flatten().filter(|tool| tool.answers_to(name, naming));
        all.cloned().collect()
    }

    /// The tools of a toolset that are held back until somebody approves them. For whoever may
    /// approve them: to callers they do not exist.
    pub fn held_of(&self, id: &GroupId) -> Vec<ToolName> {
        let held = self.stock.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.get(id).cloned().unwrap_or_default()
    }

    /// The toolset with this id, if there is one.
    pub fn toolset(&self, id: &GroupId) -> Option<Arc<dyn Toolset>> {
        self.stock.shelf(id).map(|shelf| shelf.toolset().clone())
    }

    pub(crate) async fn load(&self, loads: &Loads, id: &GroupId) -> Result<LoadedGroup, String> {
        let loader = read(&self.stock.loaders).get(id).cloned();
        match loader {
            Some(loader) => loads.get(id, &loader, self.stock.load_limit).await,
            None => Err(format!("group `{id}` has no loader")),
        }
    }

    pub(crate) fn embeddings(&self) -> Option<&Embeddings> {
        self.stock.embeddings.as_ref()
    }

    pub(crate) fn learning(&self) -> Option<&Learning> {
        self.stock.learning.as_ref()
    }

    pub(crate) fn audit(&self, event: AuditEvent) {
        if let Some(sink) = &self.stock.audit {
            sink(event);
        }
    }
}

impl Stock {
    /// Puts a toolset in its place and begins to watch it.
    fn shelve(self: &Arc<Self>, toolset: Arc<dyn Toolset>) -> Arc<Shelf> {
        let shelf = Arc::new(Shelf::new(toolset));
        // What was there before is dropped after the lock is released.
        let _replaced = write(&self.shelves).insert(shelf.id().clone(), shelf.clone());
        let (stock, watched) = (Arc::downgrade(self), Arc::downgrade(&shelf));
        shelf.watch(move || {
            let (stock, watched) = (stock.upgrade(), watched.upgrade());
            async move {
                if let (Some(stock), Some(watched)) = (stock, watched) {
                    stock.relist(&watched).await;
                }
            }
        });
        shelf
    }

    fn shelf(&self, id: &GroupId) -> Option<Arc<Shelf>> {
        read(&self.shelves).get(id).cloned()
    }

    fn note_held(&self, id: &GroupId, tools: Vec<ToolName>) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if tools.is_empty() {
            held.remove(id);
        } else {
            held.insert(id.clone(), tools);
        }
    }

    async fn relist(self: &Arc<Self>, shelf: &Arc<Shelf>) -> Change {
        let listed = shelf.list(self.load_limit).await;
        let (stock, shelf) = (self.clone(), shelf.clone());
        // Thousands of tools take a while to index: not where others wait.
        let indexing = tokio::task::spawn_blocking(move || stock.take_in(&shelf, listed));
        indexing.await.unwrap_or_default()
    }

    /// Registers what a toolset has listed, unless it is gone or a later list was faster.
    fn take_in(&self, shelf: &Arc<Shelf>, listed: Listed) -> Change {
        let id = shelf.id();
        let register = |listing: Result<Listing, String>| match listing {
            Ok(listing) => {
                let mut group = Group::new(id.clone());
                if let Some(title) = listing.title {
                    group = group.with_display_name(title);
                }
                if let Some(description) = listing.description {
                    group = group.with_description(description);
                }
                self.note_held(id, listing.held);
                // First the tools: a toolset that is neither starting nor there would be unknown.
                let change = self.registry.replace_toolset(group, listing.specs);
                let availability = listing.down.map_or(Availability::Ready, Availability::Down);
                self.registry.set_availability(id.clone(), availability);
                (change, None)
            }
            Err(reason) => {
                let down = Availability::Down(reason.clone());
                let is_news = self.registry.catalog().availability(id) != down;
                self.registry.set_availability(id.clone(), down);
                (Change::default(), is_news.then_some(reason))
            }
        };
        // Held until the registry has changed, so that no removal comes in between.
        let shelves = read(&self.shelves);
        let is_there = shelves.get(id).is_some_and(|current| Arc::ptr_eq(current, shelf));
        let taken = if is_there { shelf.take(listed, register) } else { None };
        drop(shelves);
        self.changes.send_modify(|count| *count += 1);
        let (change, failure) = taken.unwrap_or_default();
        if let Some(reason) = failure {
            tracing::warn!(group = %id, reason, "could not be listed");
        }
        for (tool, reason) in &change.rejected {
            tracing::warn!(%tool, reason, "left out");
        }
        change
    }
}

fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
