//! `toolcrib serve`: every server behind one.

use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use toolcrib::gateway::{Endpoint, Gateway, GatewayError, HttpOptions, Options, TokenHash};
use toolcrib::{AuditLog, Naming, Policy};

use crate::args::Context;
use crate::audit::AuditFile;
use crate::client_config;
use crate::config;
use crate::embedder::Embedder;
use crate::fleet::{self, Fleet};
use crate::follow::{hangup, hung_up};
use crate::login;
use crate::output::{self, Interrupted, Misuse, counted};
use crate::telemetry::Telemetry;

/// An end that takes no longer needs no explanation.
const SOON: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib serve                            on http://127.0.0.1:7171/mcp
  toolcrib serve --stdio                    for a client that starts its servers
  toolcrib serve --http 127.0.0.1:8080      on another port
  toolcrib serve --config ~/.cursor/mcp.json
  toolcrib serve --login                    servers that want it have you log in
  toolcrib client-config claude-code        what to paste into a client

Endpoints: /mcp (find, load and call: the default), /mcp/full (every tool, for clients that defer
by themselves), /mcp/inject (loaded tools join the list; 2025 clients only), /mcp/s/SERVER (one
server as it is). Beside them: /healthz, /readyz, /metrics, /servers.")]
pub(crate) struct ServeArgs {
    /// Listen on this address [default: 127.0.0.1:7171, or what toolcrib.toml says]
    #[arg(long, value_name = "ADDR", conflicts_with = "stdio", value_parser = config::address)]
    http: Option<SocketAddr>,
    /// Speak over standard input and output, to the client that started this
    #[arg(long)]
    stdio: bool,
    /// What the client sees over stdio: meta, full, inject or s/SERVER
    #[arg(long, value_name = "NAME", default_value = "meta", requires = "stdio")]
    endpoint: Endpoint,
    /// When a server wants a login, open a page in the browser
    #[arg(long)]
    login: bool,
    /// What to log to standard error: error, warn, info, debug or trace
    /// [default: info; with --stdio warn, with --quiet error]
    #[arg(long, value_name = "LEVEL")]
    log: Option<tracing::Level>,
}

pub(crate) fn run(args: &ServeArgs, context: &Context) -> anyhow::Result<()> {
    let usual = match (context.quiet, args.stdio) {
        (true, _) => tracing::Level::ERROR,
        (false, true) => tracing::Level::WARN,
        (false, false) => tracing::Level::INFO,
    };
    output::log(args.log.unwrap_or(usual));
    // One client is served best by one thread: its calls never wait for another to wake up. Many
    // are served by no fewer than four, however small the machine: while one thread goes through
    // megabytes of one client's, the system sees to it that the others' turns come.
    let mut runtime = if args.stdio {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    runtime.worker_threads(cores.max(4));
    let runtime = runtime.enable_all().build().context("no runtime")?;
    let served = runtime.block_on(serve(args, context));
    // A thread that still reads standard input must not keep the program.
    runtime.shutdown_background();
    served
}

async fn serve(args: &ServeArgs, context: &Context) -> anyhow::Result<()> {
    // From the first moment on, so that servers are never left behind.
    let ended = ended();
    // Before servers are started for nothing.
    let listener = if args.stdio { None } else { Some(listen(args, context).await?) };
    let fleet = match (args.login, fleet::logins(context)) {
        (true, Some(logins)) => Fleet::open_with(context, Some(login::opening(logins, context)))?,
        _ => Fleet::open(context)?,
    };
    fleet.warn(context);
    let mut settings = context.config.settings(None);
    settings.split_calls = context.config.gateway.verbs == config::Verbs::Split;
    let audit =
        context.config.gateway.audit.as_ref().map(AuditFile::open).transpose()?.map(Arc::new);
    let embedder = Embedder::open(context);
    let embeddings = embedder.as_ref().map(|embedder| embedder.embeddings.clone());
    let crib = fleet.crib(settings.clone(), Naming::Gateway, embeddings).await?;
    let mut options = Options::default();
    options.settings = settings;
    options.policy = context.config.policy()?;
    options.limits = context.config.gateway.limits.limits();
    options.audit = audit.clone().map(|audit| audit as Arc<dyn AuditLog>);
    options.results = Some(fleet.results.clone());
    let telemetry = Telemetry::open(context)?;
    options.tracer = telemetry.as_ref().map(Telemetry::tracer);
    let gateway = Gateway::new(crib, options)?;
    let served: anyhow::Result<()> = match listener {
        None => {
            output::note_of_stdio(context.quiet);
            let served = gateway.serve_stdio(args.endpoint.clone(), ended).await;
            served.map_err(|error| match error {
                GatewayError::UnknownServer { .. } => Misuse::new(error).into(),
                error => error.into(),
            })
        }
        Some(listener) => {
            greet(listener.local_addr()?, context, &fleet);
            let options = http_options(&context.config.gateway)?;
            let asked = Notify::new();
            let end = async {
                ended.await;
                asked.notify_one();
            };
            tokio::select! {
                served = gateway.serve_http(listener, options, end) => served.map_err(Into::into),
                () = hurried(&asked, context) => Err(Interrupted.into()),
            }
        }
    };
    fleet.shut_down().await;
    if let Some(audit) = audit {
        audit.flush();
    }
    embedder.iter().for_each(Embedder::flush);
    if let Some(telemetry) = telemetry {
        // It waits on a thread of its own.
        let _ = tokio::task::spawn_blocking(move || telemetry.shut_down()).await;
    }
    served
}

/// Takes the address, or says why it can't be had.
async fn listen(args: &ServeArgs, context: &Context) -> anyhow::Result<TcpListener> {
    let config = &context.config.gateway;
    let address = args.http.unwrap_or(config.http);
    if !address.ip().to_canonical().is_loopback() && !config.is_guarded() {
        let text = format!(
            "{address} can be reached from other machines, so callers must bring a token: name \
             its hash under [gateway.tokens] in toolcrib.toml, or who gives tokens under \
             [gateway.oauth], or listen on a loopback address \
             such as 127.0.0.1:{}",
            address.port()
        );
        return Err(Misuse::new(text).into());
    }
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::AddrInUse => "; another program uses it: give --http another",
            std::io::ErrorKind::AddrNotAvailable => "; it is not an address of this machine",
            std::io::ErrorKind::PermissionDenied => "; try a port from 1024 on",
            _ => "",
        };
        Misuse::new(format!("can't listen on {address}: {error}{advice}"))
    })?;
    Ok(listener)
}

fn http_options(config: &config::Gateway) -> anyhow::Result<HttpOptions> {
    let mut options = HttpOptions::default();
    options.allowed_hosts = config.allowed_hosts.clone();
    options.allowed_origins = config.allowed_origins.clone();
    for hash in config.token_hashes() {
        let mut token = TokenHash::new(hash.sha256);
        if let Some(name) = hash.name {
            token = token.named(name);
        }
        if let Some(rules) = hash.policy {
            token = token.narrowed(Policy::new(rules).map_err(Misuse::new)?);
        }
        if let Some(limits) = hash.limits {
            token = token.limited(limits.limits());
        }
        options.tokens.push(token);
    }
    let oauth = config.oauth.as_ref().map(|oauth| oauth.compiled());
    options.oauth = oauth.transpose().map_err(Misuse::new)?;
    Ok(options)
}

/// Says what is served where, and how to get there.
fn greet(address: SocketAddr, context: &Context, fleet: &Fleet) {
    let what = match fleet.builtins.len() {
        0 => counted(fleet.servers.len(), "server"),
        builtins => format!("{} (no servers are configured)", counted(builtins, "built-in server")),
    };
    context.note(&format!("Serving {what} at http://{address}/mcp; Ctrl-C ends it."));
    let way = match address == context.config.gateway.http {
        true => "--http".to_owned(),
        false => format!("--url {}", client_config::url(address)),
    };
    context.note(&format!("`toolcrib client-config CLIENT {way}` has what a client needs."));
}

/// Ends when the end is asked for once more, and says before that what is waited for.
async fn hurried(asked: &Notify, context: &Context) {
    asked.notified().await;
    let again = ended();
    tokio::time::sleep(SOON).await;
    context.note("Calls that run get five seconds to finish; Ctrl-C again ends them.");
    again.await;
}

/// Ends when the program is told to end.
pub(crate) fn ended() -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupted, terminated) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let mut hangup = hangup().ok().flatten();
    async move {
        match (interrupted, terminated) {
            (Ok(mut interrupted), Ok(mut terminated)) => {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                    () = hung_up(&mut hangup) => {}
                }
            }
            _ => std::future::pending().await,
        }
    }
}
