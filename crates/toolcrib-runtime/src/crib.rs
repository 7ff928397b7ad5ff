//! The crib: toolsets and loaders behind one registry, and the conversations over them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use tokio::task::JoinHandle;
use toolcrib_core::{
    Availability, Catalog, Change, Engine, EngineError, Fetched, Group, GroupId, Naming, Policy,
    RegisterError, Registry, ResumeError, ResumeReport, Saved, Session, Settings, Strategy, View,
};

use crate::audited::{AuditEvent, AuditSink};
use crate::conversation::Conversation;
use crate::function::{Function, HostTools};
use crate::loader::{LoadedGroup, Loader, Loads};
use crate::toolset::Toolset;

/// How long a toolset that changes is left alone before it is listed again: servers send their
/// notices in bursts.
const SETTLING: Duration = Duration::from_millis(100);

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
    toolsets: RwLock<HashMap<GroupId, Arc<dyn Toolset>>>,
    loaders: RwLock<HashMap<GroupId, Arc<dyn Loader>>>,
    host: HostTools,
    load_limit: Duration,
    audit: Option<AuditSink>,
    watches: Mutex<Vec<JoinHandle<()>>>,
}

/// Makes a [`Crib`].
pub struct CribBuilder {
    settings: Settings,
    naming: Naming,
    toolsets: Vec<Arc<dyn Toolset>>,
    groups: Vec<(Group, Option<Arc<dyn Loader>>)>,
    host: HostTools,
    load_limit: Duration,
    audit: Option<AuditSink>,
}

/// Why a crib can't be made or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CribError {
    /// The settings don't work.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A tool or group can't be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

impl CribBuilder {
    /// Adds a toolset. One that can't be listed is noted as down and does not stop the rest.
    pub fn toolset(mut self, toolset: impl Toolset) -> Self {
        self.toolsets.push(Arc::new(toolset));
        self
    }

    /// Adds a function of the host's.
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

    /// How long a loader may take. 30 seconds, unless told.
    pub fn load_limit(mut self, limit: Duration) -> Self {
        self.load_limit = limit;
        self
    }

    /// Where to record tools that were asked for but are hidden. Wrap toolsets in
    /// [`Audited`](crate::Audited) to record calls as well.
    pub fn audit(mut self, sink: AuditSink) -> Self {
        self.audit = Some(sink);
        self
    }

    /// Which form exposed names take.
    pub fn naming(mut self, naming: Naming) -> Self {
        self.naming = naming;
        self
    }

    /// Lists every toolset, all at once, and opens the crib.
    pub async fn build(self) -> Result<Crib, CribError> {
        let mut toolsets = self.toolsets;
        toolsets.push(Arc::new(self.host.clone()));
        let crib = Crib(Arc::new(Inner {
            engine: Engine::new(self.settings)?,
            registry: Registry::new(self.naming),
            toolsets: RwLock::default(),
            loaders: RwLock::default(),
            host: self.host,
            load_limit: self.load_limit,
            audit: self.audit,
            watches: Mutex::default(),
        }));
        join_all(toolsets.into_iter().map(|toolset| crib.add_shared(toolset))).await;
        for (group, loader) in self.groups {
            crib.declare(group, loader)?;
        }
        Ok(crib)
    }
}

impl Crib {
    /// Begins to make a crib.
    pub fn builder(settings: Settings) -> CribBuilder {
        CribBuilder {
            settings,
            naming: Naming::default(),
            toolsets: Vec::new(),
            groups: Vec::new(),
            host: HostTools::default(),
            load_limit: Duration::from_secs(30),
            audit: None,
        }
    }

    /// Adds or replaces a toolset. Conversations under way are told at their next turn.
    pub async fn add(&self, toolset: impl Toolset) -> Change {
        self.add_shared(Arc::new(toolset)).await
    }

    async fn add_shared(&self, toolset: Arc<dyn Toolset>) -> Change {
        let changes = toolset.changes();
        let id = toolset.id();
        write(&self.0.toolsets).insert(id.clone(), toolset);
        let change = self.refresh(&id).await;
        if let Some(mut changes) = changes {
            let weak = Arc::downgrade(&self.0);
            let watch = tokio::spawn(async move {
                while changes.changed().await.is_ok() {
                    tokio::time::sleep(SETTLING).await;
                    changes.mark_unchanged();
                    let Some(inner) = weak.upgrade() else { break };
                    Crib(inner).refresh(&id).await;
                }
            });
            let mut watches = self.0.watches.lock().unwrap_or_else(PoisonError::into_inner);
            watches.retain(|watch| !watch.is_finished());
            watches.push(watch);
        }
        change
    }

    /// Registers a function while conversations run. Those that are deferring have it loaded at
    /// their next turn: it is there because it is needed now.
    pub async fn register(&self, function: Function) -> Change {
        self.0.host.insert(function.map_spec(toolcrib_core::ToolSpec::into_immediate));
        self.refresh(&self.0.host.id()).await
    }

    /// Declares a group, with a loader if its members are not all known.
    pub fn declare(
        &self,
        group: Group,
        loader: Option<Arc<dyn Loader>>,
    ) -> Result<Change, CribError> {
        let id = group.id().clone();
        let change = self.0.registry.declare(group)?;
        if let Some(loader) = loader {
            write(&self.0.loaders).insert(id, loader);
        }
        Ok(change)
    }

    /// Removes a toolset or group.
    pub fn remove(&self, id: &GroupId) -> Change {
        write(&self.0.toolsets).remove(id);
        write(&self.0.loaders).remove(id);
        self.0.registry.remove_group(id)
    }

    /// Lists a toolset again. If it fails, what is known of it stays, and it is noted as down.
    pub async fn refresh(&self, id: &GroupId) -> Change {
        let Some(toolset) = self.toolset(id) else { return Change::default() };
        match toolset.list().await {
            Ok(listing) => {
                self.0.registry.set_availability(id.clone(), Availability::Ready);
                let mut group = Group::new(id.clone());
                if let Some(title) = listing.title {
                    group = group.with_display_name(title);
                }
                if let Some(description) = listing.description {
                    group = group.with_description(description);
                }
                let change = self.0.registry.replace_toolset(group, listing.specs);
                for (tool, reason) in &change.rejected {
                    tracing::warn!(%tool, reason, "left out");
                }
                change
            }
            Err(error) => {
                tracing::warn!(group = %id, %error, "could not be listed");
                self.0.registry.set_availability(id.clone(), Availability::Down(error.to_string()));
                Change::default()
            }
        }
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
        let view = self.view(&policy);
        let loads = Loads::default();
        let needs = saved.needs(&view);
        let fetches = needs.iter().map(|id| self.load(&loads, id));
        let brought = join_all(fetches).await;
        let brought = brought.into_iter().map(|load| load.map(|group| group.specs));
        let fetched: Fetched = needs.iter().cloned().zip(brought).collect();
        let (session, report) = self.0.engine.resume(&view, saved, strategy, fetched)?;
        Ok((Conversation::new(self.clone(), session, policy, loads), report))
    }

    pub(crate) fn view(&self, policy: &Policy) -> View {
        self.0.registry.catalog().view(policy)
    }

    pub(crate) fn toolset(&self, id: &GroupId) -> Option<Arc<dyn Toolset>> {
        self.0.toolsets.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub(crate) async fn load(&self, loads: &Loads, id: &GroupId) -> Result<LoadedGroup, String> {
        let loader = self.0.loaders.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
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

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Inner {
    fn drop(&mut self) {
        let watches = self.watches.get_mut().unwrap_or_else(PoisonError::into_inner);
        watches.iter().for_each(JoinHandle::abort);
    }
}
