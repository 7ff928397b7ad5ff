//! `toolcrib serve`: every server behind one.

use std::future::Future;
use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::TcpListener;
use toolcrib::Naming;
use toolcrib::gateway::{Endpoint, Gateway, HttpOptions, Options, TokenHash};

use crate::args::Context;
use crate::fleet::Fleet;
use crate::output::{self, Misuse, counted};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib serve                            on http://127.0.0.1:7171/mcp
  toolcrib serve --stdio                    for a client that starts its servers
  toolcrib serve --config ~/.cursor/mcp.json
  toolcrib client-config claude-code        what to paste into a client

Endpoints: /mcp (find, load and call: the default), /mcp/full (every tool, for clients that defer
by themselves), /mcp/inject (loaded tools join the list; 2025 clients only), /mcp/s/SERVER (one
server as it is). Beside them: /healthz, /readyz, /metrics.")]
pub(crate) struct ServeArgs {
    /// Listen on this address [default: 127.0.0.1:7171, or what [gateway] says]
    #[arg(long, value_name = "ADDR", conflicts_with = "stdio")]
    http: Option<SocketAddr>,
    /// Speak over standard input and output, to the client that started this
    #[arg(long)]
    stdio: bool,
    /// What the client sees over stdio: meta, full, inject or s/SERVER
    #[arg(long, value_name = "NAME", default_value = "meta", requires = "stdio")]
    endpoint: Endpoint,
    /// What to log to standard error: error, warn, info, debug or trace
    /// [default: info, with --stdio warn]
    #[arg(long, value_name = "LEVEL")]
    log: Option<tracing::Level>,
}

pub(crate) fn run(args: &ServeArgs, context: &Context) -> anyhow::Result<()> {
    let usual = if args.stdio { tracing::Level::WARN } else { tracing::Level::INFO };
    output::log(args.log.unwrap_or(usual));
    // One client is served best by one thread: its calls never wait for another to wake up.
    let mut runtime = if args.stdio {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    let runtime = runtime.enable_all().build().context("no runtime")?;
    let served = runtime.block_on(serve(args, context));
    // A thread that still reads standard input must not keep the program.
    runtime.shutdown_background();
    served
}

async fn serve(args: &ServeArgs, context: &Context) -> anyhow::Result<()> {
    let fleet = Fleet::open(context)?;
    fleet.warn(context);
    let settings = context.config.settings(None);
    let crib = fleet.crib(settings.clone(), Naming::Gateway).await?;
    let mut options = Options::default();
    options.settings = settings;
    options.policy = context.config.policy()?;
    let gateway = Gateway::new(crib, options)?;
    let served = if args.stdio {
        gateway.serve_stdio(args.endpoint.clone(), ended()).await.map_err(Into::into)
    } else {
        listen(&gateway, args, context, &fleet).await
    };
    fleet.shut_down().await;
    served
}

async fn listen(
    gateway: &Gateway,
    args: &ServeArgs,
    context: &Context,
    fleet: &Fleet,
) -> anyhow::Result<()> {
    let config = &context.config.gateway;
    let address = args.http.unwrap_or(config.http);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::AddrInUse => "; another program uses it: give --http another",
            _ => "",
        };
        Misuse::new(format!("can't listen on {address}: {error}{advice}"))
    })?;
    let mut options = HttpOptions::default();
    options.allowed_hosts = config.allowed_hosts.clone();
    options.allowed_origins = config.allowed_origins.clone();
    let hashes = config.token_hashes().into_iter().map(|hash| {
        let token = TokenHash::new(hash.sha256);
        match hash.name {
            Some(name) => token.named(name),
            None => token,
        }
    });
    options.tokens = hashes.collect();
    let address = listener.local_addr()?;
    let what = match (fleet.servers.len(), fleet.builtins.len()) {
        (0, builtins) => {
            format!("{} (no servers are configured)", counted(builtins, "built-in server"))
        }
        (servers, _) => counted(servers, "server"),
    };
    context.note(&format!("Serving {what} at http://{address}/mcp; Ctrl-C ends it."));
    gateway.serve_http(listener, options, ended()).await.map_err(Into::into)
}

/// Ends when the program is told to end.
pub(crate) fn ended() -> impl Future<Output = ()> + Send + 'static {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupted, terminated) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async move {
        match (interrupted, terminated) {
            (Ok(mut interrupted), Ok(mut terminated)) => {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
            }
            _ => std::future::pending().await,
        }
    }
}
