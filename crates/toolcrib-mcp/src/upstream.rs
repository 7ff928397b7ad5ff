//! A server as a toolset: started when it is needed, and again when it died.

mod call;
mod life;
mod status;
mod watch;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use futures::future::{BoxFuture, join_all};
use tokio::sync::{Semaphore, watch as channel};
use tokio::time::Instant;
use toolcrib_core::GroupId;
use toolcrib_runtime::{
    CallError, Invocation, Listing, Loader, Manifest, ManifestStore, ToolResult, Toolset,
};

use crate::config::ServerConfig;
use crate::list;
use crate::secrets::Secrets;
use crate::stderr::Tail;
use life::{Phase, Trouble};
pub use status::{Status, UpstreamState};

/// What all servers share: the memory of what they listed, and how many may start at once.
/// A handle: clones share everything.
#[derive(Clone)]
pub struct Upstreams(Arc<Shared>);

struct Shared {
    store: Arc<dyn ManifestStore>,
    starts: Arc<Semaphore>,
    open: Mutex<Vec<Weak<Inner>>>,
    has_ended: AtomicBool,
}

impl Upstreams {
    /// Servers whose lists are kept in `store` (`()` keeps nothing), and of which `at_once` may
    /// be starting at a time.
    pub fn new(store: impl ManifestStore, at_once: usize) -> Self {
        Self(Arc::new(Shared {
            store: Arc::new(store),
            starts: Arc::new(Semaphore::new(at_once.max(1))),
            open: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }))
    }

    /// A server. Nothing is started yet.
    pub fn open(&self, config: ServerConfig) -> Upstream {
        let key = config.key();
        let manifest = self.0.store.get(&key).map(Arc::new);
        let repeatable = manifest.as_deref().map(call::repeatable).unwrap_or_default();
        let secrets = Secrets::of(&config.launch);
        let inner = Arc::new(Inner {
            config,
            key,
            tail: Tail::new(secrets.clone()),
            secrets,
            shared: self.0.clone(),
            state: Mutex::new(State {
                phase: Phase::Stopped,
                manifest,
                repeatable: Arc::new(repeatable),
                trouble: None,
                failures: 0,
                users: 0,
                last_used: Instant::now(),
                asked: 0,
                kept: 0,
            }),
            changes: channel::Sender::default(),
            ended: channel::Sender::default(),
            processes: Arc::default(),
        });
        let mut open = self.0.lock();
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&inner));
        drop(open);
        // Asked after it was added, so that no end misses it.
        if self.0.has_ended.load(Ordering::SeqCst) {
            inner.let_go();
        }
        Upstream(Arc::new(Handle(inner)))
    }

    /// Ends every server, all at once. None can be started any more.
    pub async fn shut_down(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
        let open: Vec<Arc<Inner>> = self.0.lock().drain(..).filter_map(|it| it.upgrade()).collect();
        join_all(open.iter().map(|upstream| upstream.shut_down())).await;
    }
}

impl Default for Upstreams {
    /// Keeps no lists; eight servers may be starting at a time.
    fn default() -> Self {
        Self::new((), 8)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Inner>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An MCP server as a toolset. A handle: clones are the same server, which ends with the last of
/// them.
///
/// ```no_run
/// use toolcrib_core::Settings;
/// use toolcrib_mcp::{ServerConfig, Upstream};
/// use toolcrib_runtime::Crib;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let files = ServerConfig::command("files", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let crib = Crib::builder(Settings::default()).toolset(Upstream::new(files)).build().await?;
/// # let _ = crib;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Upstream(Arc<Handle>);

/// What the owners of a server hold; its own tasks hold what is inside.
struct Handle(Arc<Inner>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

struct Inner {
    config: ServerConfig,
    /// Of what is kept in the store.
    key: String,
    secrets: Secrets,
    tail: Tail,
    shared: Arc<Shared>,
    state: Mutex<State>,
    /// Counts what may change the list, or whether the server can be called.
    changes: channel::Sender<u64>,
    /// Whether it has ended for good.
    ended: channel::Sender<bool>,
    /// How many processes of it are left.
    processes: Arc<channel::Sender<usize>>,
}

struct State {
    phase: Phase,
    manifest: Option<Arc<Manifest>>,
    /// Tools that may be called twice without doing more than once.
    repeatable: Arc<HashSet<String>>,
    trouble: Option<Trouble>,
    /// How often in a row it could not be started, or died before it was of use.
    failures: u32,
    /// Calls under way, those that wait for it to start among them.
    users: usize,
    last_used: Instant,
    /// How often the list was asked for, and which of these lists is the one that is kept.
    asked: u64,
    kept: u64,
}

impl Upstream {
    /// A server on its own, whose list is not kept.
    pub fn new(config: ServerConfig) -> Self {
        Upstreams::default().open(config)
    }

    /// How it was configured.
    pub fn config(&self) -> &ServerConfig {
        &self.inner().config
    }

    /// What can be told of it now.
    pub fn status(&self) -> Status {
        self.inner().status()
    }

    /// Starts it, if it isn't running, and lists its tools anew.
    pub async fn check(&self) -> Result<(), String> {
        let _in_use = self.inner().in_use();
        let connection = self.inner().running_now().await?;
        self.inner().relist(&connection).await.map(drop)
    }

    /// Ends it. It can't be started any more.
    pub async fn shut_down(&self) {
        self.inner().shut_down().await;
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.0.0
    }
}

/// Brings the server as a group's toolset when a conversation first needs it.
impl Loader for ServerConfig {
    fn load(&self) -> BoxFuture<'static, Result<Arc<dyn Toolset>, String>> {
        let upstream: Arc<dyn Toolset> = Arc::new(Upstream::new(self.clone()));
        Box::pin(async { Ok(upstream) })
    }
}

impl Toolset for Upstream {
    fn id(&self) -> GroupId {
        GroupId::server(&self.inner().config.name)
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        Box::pin(self.inner().list())
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(self.inner().call(invocation))
    }

    fn changes(&self) -> Option<channel::Receiver<u64>> {
        Some(self.inner().changes.subscribe())
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// What is known, at once; a server of which nothing is known is started and asked.
    async fn list(self: &Arc<Self>) -> Result<Listing, CallError> {
        if self.lock().manifest.is_none() {
            let started = self.running().await;
            // The bare reason: it outlives any word on when the server is tried again.
            started.map_err(|reason| CallError::Tell(self.trouble().unwrap_or(reason)))?;
        }
        let Some(manifest) = self.lock().manifest.clone() else {
            return Err(CallError::Tell("its tools could not be listed".to_owned()));
        };
        if manifest.is_stale(SystemTime::now()) {
            self.refresh();
        }
        let read = list::read(&manifest, &self.config);
        for (tool, reason) in &read.quarantined {
            tracing::warn!(server = self.config.name, tool, reason, "left out");
        }
        Ok(Listing { down: self.trouble(), ..read.listing })
    }

    /// Why it can't be called, if that is so.
    fn trouble(&self) -> Option<String> {
        self.lock().trouble.as_ref().map(|trouble| trouble.reason.clone())
    }
}
