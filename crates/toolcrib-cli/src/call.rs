//! `toolcrib call`: one tool, called once.

mod show;
mod watch;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use toolcrib::mcp::{Upstream, UpstreamState};
use toolcrib::{
    Call, Caller, Conversation, Crib, CribBuilder, Mode, Naming, Outcome, Resolved, Session,
};

use crate::args::Context;
use crate::config::Config;
use crate::fleet::{self, Fleet, ask_each};
use crate::output::{Misuse, duration};
use watch::{Watch, Watcher};

/// The longest time a call may be given, and what is meant where none is: a week.
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);

/// The most that is read from standard input.
const MOST_INPUT: u64 = 64 << 20;

/// What may stand between a server and its tool.
const BETWEEN: [&str; 4] = ["__", "/", ".", ":"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib call time/current_time --arg timezone=Asia/Tokyo
  toolcrib call data/json_query '{\"json\": \"[1, 2, 3]\", \"path\": \"$[1]\"}' --json
  echo '{\"text\": \"a b\"}' | toolcrib call data__hash_text -

A name that says which server is meant starts that one only. The exit code is 1 if the tool
answers with an error.")]
pub(crate) struct CallArgs {
    /// The tool: server/tool, server__tool, or its own name
    tool: String,
    /// Its arguments, a JSON object; `-` reads it from standard input
    #[arg(value_name = "ARGS")]
    arguments: Option<String>,
    /// One argument more; the value is JSON, or else text
    #[arg(long = "arg", value_name = "KEY=VALUE")]
    more: Vec<String>,
    /// Give up after so many seconds [default: the server's own limits]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let limit = seconds.filter(|limit| !limit.is_zero() && *limit <= FOREVER);
    limit.ok_or_else(|| "expected seconds, more than 0 and no more than a week".to_owned())
}

pub(crate) fn run(args: &CallArgs, context: &Context) -> anyhow::Result<()> {
    let arguments = args.arguments()?;
    let patient = args.timeout.map(|_| context.patient());
    let context = patient.as_ref().unwrap_or(context);
    let outcome = fleet::with(context, async |fleet| call(args, arguments, fleet, context).await)?;
    show::outcome(&outcome, context)
}

impl CallArgs {
    fn arguments(&self) -> anyhow::Result<Map<String, Value>> {
        let mut arguments = match self.arguments.as_deref() {
            None => Map::new(),
            Some("-") => {
                let mut text = String::new();
                std::io::stdin()
                    .take(MOST_INPUT)
                    .read_to_string(&mut text)
                    .context("can't read the arguments from standard input")?;
                object(&text, "standard input")?
            }
            Some(text) => object(text, "ARGS")?,
        };
        for pair in &self.more {
            let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
                return Err(Misuse::new(format!("--arg {pair}: expected KEY=VALUE")).into());
            };
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
            arguments.insert(key.to_owned(), value);
        }
        Ok(arguments)
    }
}

fn object(text: &str, place: &str) -> anyhow::Result<Map<String, Value>> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(text).map_err(|error| {
        Misuse::new(format!("{place}: expected a JSON object such as {{\"key\": 1}}: {error}"))
            .into()
    })
}

impl Context {
    /// The same, with servers whose calls may take as long as they like.
    fn patient(&self) -> Self {
        let mut servers = self.config.servers.clone();
        servers.values_mut().for_each(|server| server.call_limit = 0.0);
        let config = Config { servers, ..self.config.clone() };
        Self { config, env: self.env.clone(), json: self.json, quiet: self.quiet }
    }
}

async fn call(
    args: &CallArgs,
    arguments: Map<String, Value>,
    fleet: &Fleet,
    context: &Context,
) -> anyhow::Result<Outcome> {
    let limit = args.timeout.unwrap_or(FOREVER);
    let deadline = Instant::now() + limit;
    let late = |what: &str| anyhow::anyhow!("{what} within {}", duration(limit));
    let chat = timeout_at(deadline, converse(&args.tool, fleet, context));
    let chat = chat.await.map_err(|_| late("no server was ready"))??;
    let call = Call::new(&args.tool, Value::Object(arguments));
    match chat.resolve(call).await {
        Resolved::Done(outcome) => Ok(outcome),
        Resolved::Ready(ready) => {
            let watcher = Watcher(Arc::new(Watch::new(!context.quiet)));
            let watch = Arc::clone(&watcher.0);
            let running = chat.run(ready.on_behalf_of(Caller::new(watcher)));
            let outcome = tokio::select! {
                outcome = timeout_at(deadline, running) => outcome,
                never = watch.wait(&args.tool) => match never {},
            };
            let outcome = outcome.map_err(|_| {
                late("the tool did not answer").context("the call may have taken effect")
            });
            Ok(outcome??)
        }
    }
}

/// A conversation over the servers that the name may mean.
async fn converse(tool: &str, fleet: &Fleet, context: &Context) -> anyhow::Result<Conversation> {
    check_usable(tool, fleet)?;
    let mut settings = context.config.settings(None);
    settings.mode = Mode::Full;
    let builder = Crib::builder(settings).naming(Naming::Gateway).load_limit(FOREVER);
    let with = |builder: CribBuilder, builtin: &_| builder.toolset(std::sync::Arc::clone(builtin));
    let crib = fleet.builtins.iter().fold(builder, with).build().await?;
    let is_named = |server: &&Upstream| names(&server.config().name, tool);
    let mut meant: Vec<Upstream> = fleet.servers.iter().filter(is_named).cloned().collect();
    let is_certain = !meant.is_empty();
    if !is_certain {
        meant.clone_from(&fleet.servers);
        fleet.warn(context);
    }
    let add = |server: Upstream| {
        let (crib, pinned) = (crib.clone(), fleet.pinned(&server));
        async move { drop(crib.add(pinned).await) }
    };
    for (server, ()) in ask_each(&meant, context, add).await {
        let UpstreamState::Failed(reason) = server.status().state else { continue };
        if !is_certain {
            let name = &server.config().name;
            context.warn(&format!("server `{name}` can't be listed: {reason}"));
        }
    }
    Ok(crib.converse(Session::new(), context.config.policy()?))
}

/// Whether a tool's name says that it is this server's.
fn names(server: &str, tool: &str) -> bool {
    let bare = tool.trim().strip_prefix("mcp__").unwrap_or(tool.trim());
    let rest = bare.strip_prefix(server);
    rest.is_some_and(|rest| BETWEEN.iter().any(|between| rest.starts_with(between)))
}

/// Says why a server can't be called that is configured, and yet not in use.
fn check_usable(tool: &str, fleet: &Fleet) -> anyhow::Result<()> {
    let unusable = fleet.unusable.iter().find(|(name, _)| names(name, tool));
    if let Some((name, reason)) = unusable {
        return Err(Misuse::new(format!("server `{name}` can't be used: {reason}")).into());
    }
    let disabled = fleet.disabled.iter().find(|name| names(name, tool));
    if let Some(name) = disabled.filter(|_| !fleet.names().iter().any(|name| names(name, tool))) {
        let so = "set `enabled = true` to use it";
        return Err(Misuse::new(format!("server `{name}` is disabled; {so}")).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: Option<&str>, more: &[&str]) -> anyhow::Result<Value> {
        let args = CallArgs {
            tool: "t".to_owned(),
            arguments: text.map(str::to_owned),
            more: more.iter().map(|&pair| pair.to_owned()).collect(),
            timeout: None,
        };
        args.arguments().map(Value::Object)
    }

    #[test]
    fn a_value_is_json_or_else_text() {
        let pairs = ["a=1", "b=two words", "c=[1]", "d=x=y", "e=", "f=\"1\"", "a=2"];
        let expected = serde_json::json!({"z": 0, "a": 2, "b": "two words", "c": [1], "d": "x=y",
            "e": "", "f": "1"});
        assert_eq!(arguments(Some("{\"z\": 0}"), &pairs).unwrap(), expected);
        assert_eq!(arguments(None, &[]).unwrap(), serde_json::json!({}));
    }

    #[test]
    fn what_is_no_argument_is_refused() {
        for (text, pairs) in
            [(Some("[]"), &[][..]), (Some("{"), &[]), (None, &["a"]), (None, &["=1"])]
        {
            let error = arguments(text, pairs).unwrap_err();
            assert!(error.is::<Misuse>() && error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn a_name_says_which_server_is_meant() {
        for tool in ["git__log", "git/log", "git.log", "git:log", "mcp__git__log", " git/log"] {
            assert!(names("git", tool), "{tool}");
        }
        for tool in ["git", "gitlab/log", "log", "mcp__gitlab__log", "git_log"] {
            assert!(!names("git", tool), "{tool}");
        }
    }
}
