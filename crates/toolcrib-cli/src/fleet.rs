//! The servers in use: those of the configuration, or the built-in ones if it has none.

mod ask;
mod pins;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinSet;
use toolcrib::builtins::{self, Builtin, BuiltinTools};
use toolcrib::mcp::{
    Environment, Era, Launch, Logins, OAuth, ServerConfig, Sharing, Upstream, Upstreams,
};
use toolcrib::store::{FileCredentials, SqliteStore};
use toolcrib::{Budget, Crib, CribBuilder, Embeddings, Naming, PinStore, Settings};

use crate::args::Context;
use crate::config::{self, Server};
use crate::output::{self, Interrupted};
use crate::serve;
pub(crate) use ask::{ask_each, register};
pub(crate) use pins::Pinning;

/// The file in the cache folder that says what servers listed.
const STORE_FILE: &str = "toolcrib.db";

/// The file in the data folder that holds logins, in a folder that only its owner can enter.
const LOGINS_FILE: &str = "credentials/logins.json";

/// How long a client waits for the lists that are known, so that what it is told first has them.
const KNOWN_SOON: Duration = Duration::from_secs(1);

/// More known tools than this take too long to wait for. What a client is told first of so many
/// is the names of their servers at best.
const MOST_AWAITED: usize = 2_000;

/// The servers in use. Nothing is started yet.
pub(crate) struct Fleet {
    upstreams: Upstreams,
    /// Room for what they answer.
    pub(crate) results: Budget,
    /// Where what they list is kept, or why it can't be. Nowhere without a folder for it.
    pub(crate) store: Result<Option<SqliteStore>, String>,
    /// Whether it is also kept which tools are called after which queries.
    learn: bool,
    /// Where it is kept which definitions were approved.
    pub(crate) pins: Arc<dyn PinStore>,
    /// What holds for the definitions of each server, by its name.
    pub(crate) pinning: HashMap<String, Pinning>,
    pub(crate) servers: Vec<Upstream>,
    pub(crate) builtins: Vec<Arc<BuiltinTools>>,
    /// Servers that can't be used as they are configured, with the reason.
    pub(crate) unusable: Vec<(String, String)>,
    /// Servers that are configured and not to be used.
    pub(crate) disabled: Vec<String>,
}

/// Does something with the servers in use and ends them, whatever comes of it: also when the
/// user has had enough.
pub(crate) fn with<T>(
    context: &Context,
    work: impl AsyncFnOnce(&Fleet) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let ended = serve::ended();
        let fleet = Fleet::open(context)?;
        let done = tokio::select! {
            done = work(&fleet) => done,
            () = ended => Err(Interrupted.into()),
        };
        fleet.shut_down().await;
        done
    });
    runtime.shutdown_background();
    done
}

impl Fleet {
    /// Opens the servers of the configuration; if it has none, the built-in ones over the
    /// current folder.
    pub(crate) fn open(context: &Context) -> anyhow::Result<Self> {
        Self::open_with(context, logins(context))
    }

    /// The same with other logins than those that are kept already.
    pub(crate) fn open_with(context: &Context, logins: Option<Logins>) -> anyhow::Result<Self> {
        let store = open_store(context);
        let at_once = context.config.gateway.start_at_once;
        let upstreams = match &store {
            Ok(Some(store)) => Upstreams::new(store.clone(), at_once),
            _ => Upstreams::new((), at_once),
        };
        if let Some(logins) = logins {
            upstreams.use_logins(logins);
        }
        let results = context.config.gateway.results();
        upstreams.use_budget(results.clone());
        let configured = context.servers();
        let (mut servers, mut disabled) = (Vec::new(), Vec::new());
        let (builtins, mut unusable) =
            if configured.is_empty() { open_builtins(context)? } else { Default::default() };
        let pinning = configured.iter().map(|it| (it.name.clone(), Pinning::of(it))).collect();
        // Without servers there is nothing to compare.
        let pins = if configured.is_empty() { Arc::new(()) } else { pins::open(context) };
        for server in configured {
            match to_config(&server) {
                _ if !server.enabled => disabled.push(server.name),
                Ok(config) => servers.push(upstreams.open(config)),
                Err(reason) => unusable.push((server.name, reason)),
            }
        }
        let learn = context.config.search.learn;
        Ok(Self {
            upstreams,
            results,
            store,
            learn,
            pins,
            pinning,
            servers,
            builtins,
            unusable,
            disabled,
        })
    }

    /// Tells that there is nowhere to keep what servers list.
    pub(crate) fn warn_of_store(&self, context: &Context) {
        if let Err(reason) = &self.store {
            context.warn(&format!("what servers list is not remembered: {reason}"));
        }
    }

    /// Tells of what was left out.
    pub(crate) fn warn(&self, context: &Context) {
        self.warn_of_store(context);
        let warnings = context.config.server_warnings(&context.servers());
        warnings.iter().for_each(|text| context.warn(text));
        let is_builtin = |name: &String| !context.config.servers.contains_key(name);
        for (name, reason) in self.unusable.iter().filter(|(name, _)| is_builtin(name)) {
            context.warn(&format!("the built-in server `{name}` can't be used: {reason}"));
        }
    }

    /// The names of all that can be used.
    pub(crate) fn names(&self) -> Vec<&str> {
        let servers = self.servers.iter().map(|server| server.config().name.as_str());
        servers.chain(self.builtins.iter().map(|builtin| builtin.builtin().name())).collect()
    }

    /// A crib over all of them. What is known of a server is there at once; the others follow
    /// when they have been listed.
    pub(crate) async fn crib(
        &self,
        settings: Settings,
        naming: Naming,
        embeddings: Option<Embeddings>,
    ) -> anyhow::Result<Crib> {
        let mut builder = Crib::builder(settings).naming(naming);
        if let (true, Ok(Some(store))) = (self.learn, &self.store) {
            builder = builder.usage(store.clone());
        }
        if let Some(embeddings) = embeddings {
            builder = builder.embeddings(embeddings);
        }
        let with =
            |builder: CribBuilder, builtin: &Arc<BuiltinTools>| builder.toolset(builtin.clone());
        let crib = self.builtins.iter().fold(builder, with).build().await?;
        let (mut listing, mut awaited) = (JoinSet::new(), 0);
        for server in &self.servers {
            let known = server.known();
            let listed = crib.add_soon(self.pinned(server));
            if let Some(tools) = known {
                awaited += tools;
                listing.spawn(listed);
            }
        }
        // Most clients ask once what there is.
        if awaited <= MOST_AWAITED {
            let _ = tokio::time::timeout(KNOWN_SOON, listing.join_all()).await;
        }
        Ok(crib)
    }

    /// Ends every server and keeps what they listed.
    pub(crate) async fn shut_down(&self) {
        self.upstreams.shut_down().await;
        if let Ok(Some(store)) = &self.store
            && let Err(error) = store.flush()
        {
            output::warn(&format!("what servers listed was not kept: {error}"));
        }
    }
}

/// What is kept, if anything is.
pub(crate) fn kept(context: &Context) -> anyhow::Result<Option<SqliteStore>> {
    let file = context.config.gateway.cache_dir(&context.env).map(|it| it.join(STORE_FILE));
    match file.filter(|file| file.exists()) {
        Some(file) => Ok(Some(SqliteStore::open(file)?)),
        None => Ok(None),
    }
}

/// The logins that are kept, if there is a place for them. Nobody is asked to log in.
pub(crate) fn logins(context: &Context) -> Option<Logins> {
    let file = data_dir(&context.env)?.join(LOGINS_FILE);
    Some(Logins::new(FileCredentials::new(file)))
}

/// Where what servers listed is kept. Without it everything works, only slower.
fn open_store(context: &Context) -> Result<Option<SqliteStore>, String> {
    let Some(folder) = context.config.gateway.cache_dir(&context.env) else { return Ok(None) };
    let store = SqliteStore::open_or_recover(folder.join(STORE_FILE));
    store.map(Some).map_err(|error| error.to_string())
}

/// What could be opened, and what could not with the reason.
type Opened = (Vec<Arc<BuiltinTools>>, Vec<(String, String)>);

fn open_builtins(context: &Context) -> anyhow::Result<Opened> {
    let here = std::env::current_dir().context("there is no current folder")?;
    let options = builtins::Options {
        roots: vec![here],
        data_dir: data_dir(&context.env),
        ..builtins::Options::default()
    };
    let (mut opened, mut unusable) = (Vec::new(), Vec::new());
    for builtin in Builtin::ALL {
        match builtin.open(&options) {
            Ok(tools) => opened.push(Arc::new(tools)),
            Err(error) => unusable.push((builtin.name().to_owned(), error.to_string())),
        }
    }
    Ok((opened, unusable))
}

/// Where built-in servers keep what they are given.
pub(crate) fn data_dir(env: &config::Environment) -> Option<PathBuf> {
    Some(env.data_home()?.join("toolcrib"))
}

pub(crate) fn to_config(server: &Server) -> Result<ServerConfig, String> {
    let mut oauth = OAuth::default();
    let launch = match &server.launch {
        config::Launch::Command { command, args, env, own_env, cwd } => Launch::Command {
            command: command.clone(),
            args: args.clone(),
            env: environment(env, own_env),
            cwd: cwd.clone(),
        },
        config::Launch::Http { url, headers, oauth: how } => {
            oauth.clone_from(how);
            Launch::Http { url: url.clone(), headers: headers.clone() }
        }
        config::Launch::Unusable { reason } => return Err(reason.clone()),
    };
    let mut config = ServerConfig::http(&server.name, "");
    config.launch = launch;
    config.oauth = oauth;
    config.title = server.title.clone();
    config.description = server.description.clone();
    config.eager = server.eager;
    config.include = server.include.clone();
    config.exclude = server.exclude.clone();
    config.start_limit = server.start_limit;
    config.call_limit = server.call_limit;
    config.idle_stop = server.idle_stop;
    config.trust_annotations = server.trust_annotations;
    config.era = match server.era {
        config::Era::Auto => None,
        config::Era::Y2025 => Some(Era::Sessions),
        config::Era::Y2026 => Some(Era::Stateless),
    };
    config.sessions = match server.sessions {
        config::Sessions::Auto => Sharing::Auto,
        config::Sessions::Shared => Sharing::Shared,
        config::Sessions::Own => Sharing::Own,
    };
    config.connections = server.connections;
    config.in_flight = server.in_flight;
    config.queue = server.queue;
    Ok(config)
}

/// The environment of a server. What was allowed in besides the harmless counts as its own: it
/// may be a credential, and decide what the server lists.
fn environment(whole: &Variables, own: &Variables) -> Environment {
    let is_harmless = |name: &str| config::is_harmless(name) && !own.contains_key(name);
    let (inherited, own): (Variables, Variables) =
        whole.clone().into_iter().partition(|(name, _)| is_harmless(name));
    Environment { inherited: Some(inherited), own }
}

type Variables = BTreeMap<String, String>;
