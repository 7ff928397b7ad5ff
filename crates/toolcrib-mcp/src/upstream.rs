//! A server as a toolset: started when it is needed, and again when it died.

mod ask;
mod breaker;
mod call;
mod choosing;
mod following;
mod follows;
mod lanes;
mod life;
mod logs;
mod memory;
mod news;
mod parked;
mod queue;
mod rounds;
mod starting;
mod status;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::SystemTime;

use futures::future::{BoxFuture, join_all};
use tokio::sync::{Notify, Semaphore, broadcast, watch as channel};
use tokio::time::Instant;
use toolcrib_core::GroupId;
use toolcrib_runtime::{
    Budget, CallError, Eras, Invocation, Listing, Loader, Manifest, ManifestStore, News, Offers,
    Server, ToolResult, Toolset,
};

use crate::auth::{Authorizer, Logins};
use crate::config::ServerConfig;
use crate::list;
use crate::secrets::Secrets;
use crate::stderr::Tail;
use breaker::Breaker;
use call::Hints;
use following::Openings;
use follows::Follows;
use lanes::Lanes;
use life::Trouble;
use parked::Parked;
use queue::Queue;
pub use status::{Status, UpstreamState};

/// How many processes there may be that are clients' own, or lent to them.
const MOST_PROCESSES: usize = 64;

/// News that may wait for whoever reads it.
const MOST_NEWS: usize = 1_024;

/// What all servers share: the memory of what they listed, and how many may start at once.
/// A handle: clones share everything.
#[derive(Clone)]
pub struct Upstreams(Arc<Shared>);

struct Shared {
    store: Arc<dyn ManifestStore>,
    starts: Arc<Semaphore>,
    logins: OnceLock<Logins>,
    /// Room for what they answer.
    budget: OnceLock<Budget>,
    /// Places for processes that are clients' own, or lent to them.
    processes: Arc<Semaphore>,
    /// How many such places there are.
    most_processes: AtomicUsize,
    /// Calls in such processes that wait for an answer.
    parked: Mutex<Parked>,
    /// Told when such a place may be free.
    freed: Notify,
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
            logins: OnceLock::new(),
            budget: OnceLock::new(),
            processes: Arc::new(Semaphore::new(MOST_PROCESSES)),
            most_processes: AtomicUsize::new(MOST_PROCESSES),
            parked: Mutex::default(),
            freed: Notify::new(),
            open: Mutex::default(),
            has_ended: AtomicBool::new(false),
        }))
    }

    /// Has the servers that are opened from now on log in where they want it. Nothing happens if
    /// that was said before.
    pub fn use_logins(&self, logins: Logins) {
        let _ = self.0.logins.set(logins);
    }

    /// Has what all servers answer share this room; 256 MiB unless told. Nothing happens if
    /// that was said before, or a server was started.
    pub fn use_budget(&self, budget: Budget) {
        let _ = self.0.budget.set(budget);
    }

    /// The same with so many processes at most that are clients' own or lent to them, of all
    /// servers together; 64 unless told. To be said before the first server is opened.
    pub fn most_processes(self, most: usize) -> Self {
        self.0.most_processes.store(most.max(1), Ordering::Relaxed);
        let processes = &self.0.processes;
        processes.forget_permits(MOST_PROCESSES.saturating_sub(most.max(1)));
        processes.add_permits(most.saturating_sub(MOST_PROCESSES).min(Semaphore::MAX_PERMITS >> 1));
        self
    }

    /// A server. Nothing is started yet.
    pub fn open(&self, config: ServerConfig) -> Upstream {
        let secrets = Secrets::of(&config.launch);
        let logins = self.0.logins.get();
        let auth = logins.and_then(|logins| Authorizer::new(&config, logins, &secrets));
        let manifest = self.0.store.get(&key(&config, auth.as_ref())).map(Arc::new);
        let hints = manifest.as_deref().map(Hints::of).unwrap_or_default();
        let eras = memory::eras(&config, manifest.as_deref(), SystemTime::now());
        let offers = manifest.as_deref().map(|manifest| memory::offers(manifest, 0));
        let inner = Arc::new(Inner {
            queue: Queue::new(config.in_flight, config.queue),
            http: OnceLock::new(),
            config,
            auth,
            tail: Tail::new(secrets.clone()),
            secrets,
            shared: self.0.clone(),
            state: Mutex::new(State {
                lanes: Lanes::default(),
                is_over: false,
                eras,
                eras_at: manifest.as_ref().and_then(|manifest| manifest.eras_at),
                gives_sessions: None,
                breaker: Breaker::default(),
                follows: Follows::default(),
                parked: Parked::default(),
                offers: Arc::new(offers.unwrap_or_default()),
                manifest,
                hints: Arc::new(hints),
                trouble: None,
                failures: 0,
                asked: 0,
                asked_at: None,
                kept: 0,
            }),
            openings: Openings::default(),
            freed: Notify::new(),
            news: broadcast::Sender::new(MOST_NEWS),
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
    fn budget(&self) -> Budget {
        self.budget.get_or_init(Budget::default).clone()
    }

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
    /// Its login, where it may have one.
    auth: Option<Authorizer>,
    secrets: Secrets,
    tail: Tail,
    shared: Arc<Shared>,
    queue: Queue,
    /// What its requests go through, where they are HTTP: all its connections share those to
    /// its host.
    http: OnceLock<reqwest::Client>,
    state: Mutex<State>,
    openings: Openings,
    /// Told when a connection may be free.
    freed: Notify,
    news: broadcast::Sender<News>,
    /// Counts what may change the list, or whether the server can be called.
    changes: channel::Sender<u64>,
    /// Whether it has ended for good.
    ended: channel::Sender<bool>,
    /// How many processes of it are left.
    processes: Arc<channel::Sender<usize>>,
}

struct State {
    lanes: Lanes,
    /// Whether it has ended for good.
    is_over: bool,
    /// The eras it speaks, as far as that is known.
    eras: Eras,
    /// When it was found out whether it can do without sessions.
    eras_at: Option<SystemTime>,
    /// Whether it gives numbers to its sessions.
    gives_sessions: Option<bool>,
    breaker: Breaker,
    follows: Follows,
    parked: Parked,
    /// What the manifest says beside tools.
    offers: Arc<Offers>,
    manifest: Option<Arc<Manifest>>,
    /// Of the tools in it.
    hints: Arc<Hints>,
    trouble: Option<Trouble>,
    /// How often in a row it could not be started, or died before it was of use.
    failures: u32,
    /// How often the list was asked for, and which of these lists is the one that is kept.
    asked: u64,
    asked_at: Option<Instant>,
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
        let (connection, _in_use) = self.inner().main_connection_now().await?;
        self.inner().relist(&connection).await.map(drop)
    }

    /// Has a person log in, and asks for these scopes besides what the server wants.
    pub async fn log_in(&self, scopes: &[String]) -> Result<(), String> {
        self.auth()?.log_in(scopes).await
    }

    /// Forgets its login. Says whether there was one.
    pub async fn log_out(&self) -> Result<bool, String> {
        self.auth()?.log_out().await
    }

    fn auth(&self) -> Result<&Authorizer, String> {
        let none = "it takes no login: that is for a server with a `url` and no `Authorization`";
        self.inner().auth.as_ref().ok_or_else(|| none.to_owned())
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

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
}

/// Of what is kept in the store. A list that one person sees is not for another.
fn key(config: &ServerConfig, auth: Option<&Authorizer>) -> String {
    let key = config.key();
    match auth.and_then(Authorizer::login_id) {
        Some(login) => blake3::hash(format!("{key} {login}").as_bytes()).to_hex().to_string(),
        None => key,
    }
}

impl Inner {
    fn key(&self) -> String {
        key(&self.config, self.auth.as_ref())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// What is known, at once; a server of which nothing is known is started and asked.
    async fn list(self: &Arc<Self>) -> Result<Listing, CallError> {
        if self.lock().manifest.is_none() {
            let started = self.main_connection().await;
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
        let state = self.lock();
        let trouble = state.trouble.as_ref().map(|trouble| &*trouble.reason);
        trouble.or_else(|| state.breaker.refusal(Instant::now())).map(ToOwned::to_owned)
    }
}
