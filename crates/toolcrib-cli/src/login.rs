//! `toolcrib login` and `logout`: at a server that wants it.

use serde::Serialize;
use toolcrib::mcp::{LoginPage, Logins, Upstream, Upstreams};

use crate::args::Context;
use crate::browser;
use crate::config::Environment;
use crate::fleet::{self, to_config};
use crate::output::{self, Interrupted, Misuse};
use crate::serve;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib login docs                     a page opens in your browser: say yes there
  toolcrib login docs --print             print the page's address, and open nothing
  toolcrib login docs --scope 'repo mail' ask for more than the server wants

What it brings is kept in ~/.local/share/toolcrib/credentials, which only you can read, and renewed
by whatever uses the server. `toolcrib serve --login` does the same when a server first wants it.")]
pub(crate) struct LoginArgs {
    /// The server, as it is called in the configuration
    server: String,
    /// Ask for this as well; several times, or several in one
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// Print the address of the page in place of opening it
    #[arg(long)]
    print: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  toolcrib logout docs                    forget the login, here and at the authorization server")]
pub(crate) struct LogoutArgs {
    /// The server, as it is called in the configuration
    server: String,
}

#[derive(Serialize)]
struct Report<'a> {
    server: &'a str,
    logged_in: bool,
}

pub(crate) fn log_in(args: &LoginArgs, context: &Context) -> anyhow::Result<()> {
    let logins = match args.print {
        true => logins(context)?.shown_by(|page| {
            // If nobody reads it, nobody logs in, and that is said in the end.
            let _ = output::text(&format!("{}\n", page.url));
        }),
        false => opening(logins(context)?, context),
    };
    let scopes = args.scopes.iter().flat_map(|scope| scope.split_whitespace());
    let scopes: Vec<String> = scopes.map(str::to_owned).collect();
    with(&args.server, logins, context, async |server| {
        server.log_in(&scopes).await.map_err(|reason| failed(&args.server, &reason))
    })?;
    context.note(&format!("Logged in at `{}`.", args.server));
    report(&args.server, true, context)
}

pub(crate) fn log_out(args: &LogoutArgs, context: &Context) -> anyhow::Result<()> {
    let was_logged_in = with(&args.server, logins(context)?, context, async |server| {
        server.log_out().await.map_err(|reason| failed(&args.server, &reason))
    })?;
    context.note(&match was_logged_in {
        true => format!("Logged out at `{}`.", args.server),
        false => format!("There was no login at `{}`.", args.server),
    });
    report(&args.server, false, context)
}

/// Logins that open a page in a browser when a server wants one.
pub(crate) fn opening(logins: Logins, context: &Context) -> Logins {
    let (env, quiet) = (context.env.clone(), context.quiet);
    logins.shown_by(move |page| show(page, &env, quiet))
}

fn show(page: &LoginPage, env: &Environment, quiet: bool) {
    let LoginPage { server, url, .. } = page;
    let is_open = browser::open(url, env);
    // Without a browser the address is all there is.
    if !quiet || !is_open {
        let how = if is_open { "in the browser, at" } else { "at" };
        output::note(&format!("Log in for server `{server}` {how}\n  {url}"));
    }
}

fn logins(context: &Context) -> anyhow::Result<Logins> {
    let none = "there is no folder to keep a login in: set HOME";
    Ok(fleet::logins(context).ok_or_else(|| Misuse::new(none))?)
}

fn failed(server: &str, reason: &str) -> anyhow::Error {
    anyhow::anyhow!("server `{server}`: {reason}")
}

fn report(server: &str, logged_in: bool, context: &Context) -> anyhow::Result<()> {
    if context.json { output::json(&Report { server, logged_in }) } else { Ok(()) }
}

/// Does something with one server, without starting it.
fn with<T>(
    name: &str,
    logins: Logins,
    context: &Context,
    work: impl AsyncFnOnce(&Upstream) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let servers = context.servers();
    let Some(server) = servers.iter().find(|server| server.name == name) else {
        let near = output::suggest(name, servers.iter().map(|server| &*server.name));
        let text = format!("no server `{name}` is configured{}", near.unwrap_or_default());
        return Err(Misuse::new(text).into());
    };
    let config = to_config(server).map_err(|reason| failed(name, &reason))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ended = serve::ended();
        let upstreams = Upstreams::default();
        upstreams.use_logins(logins);
        let upstream = upstreams.open(config);
        tokio::select! {
            done = work(&upstream) => done,
            () = ended => Err(Interrupted.into()),
        }
    })
}
