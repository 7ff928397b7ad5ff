//! One server: does it start, and is everything it lists of use?

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use toolcrib::mcp::{Launch, ServerConfig, Upstream};
use toolcrib::{Listing, Naming, Registry, Tool, Toolset};

use super::report::{Check, Kind};
use crate::fleet::register;
use crate::output::{counted, duration, number, shell_word};
use crate::servers::tokens;

/// A server that takes longer keeps the first who calls it waiting.
const SLOW: Duration = Duration::from_secs(5);

/// Longer descriptions cost more than they tell.
const LONG_DESCRIPTION: usize = 2_048;

/// Servers that speak older versions than this miss structured results and annotations.
const OLD_VERSION: &str = "2025-03-26";

/// Names that are written out where several have the same fault.
const MOST_NAMES: usize = 5;

/// What was found out about a server that was asked to start, and took so long about it.
pub(super) fn examine(
    server: &Upstream,
    checked: Result<(), String>,
    took: Duration,
    held: &[String],
) -> Check {
    let (config, status) = (server.config(), server.status());
    if let Some((command, install)) = missing_program(config) {
        let mut check = Check::new(Kind::Server, &config.name, "can't be started");
        check.problem(format!("command `{command}` was not found"), install);
        return check;
    }
    if let Err(mut reason) = checked {
        let mut check = Check::new(Kind::Server, &config.name, "can't be used");
        if let Some(words) = status.stderr.last().filter(|line| !reason.contains(*line)) {
            reason = format!("{reason}; its last words: {words}");
        }
        check.problem(reason, how_to_start(config, took));
        return check;
    }
    // As clients of the gateway see them.
    let naming = Naming::Gateway;
    let registry = Registry::new(naming);
    let change = register(&registry, server.id(), Listing::new(server.known_tools()));
    let view = registry.catalog().view_all();
    let tools: Vec<&Tool> = view.tools().map(|tool| &**tool).collect();
    let tokens = number(tokens(server.id(), server.known_tools()));
    let mut summary = format!("{}, {tokens} tokens", counted(tools.len(), "tool"));
    if let Some(took) = status.start_took {
        summary = format!("{summary}, started in {}", duration(took));
    }
    let version = status.protocol_version.unwrap_or_default();
    let mut check = Check::new(Kind::Server, &config.name, format!("{summary}, MCP {version}"));

    let rejected =
        change.rejected.iter().map(|(tool, reason)| (tool.tool().to_owned(), reason.clone()));
    for (tool, reason) in status.quarantined.into_iter().chain(rejected) {
        let fix = "report it to the server's authors; `exclude` it to be told no more";
        check.problem(format!("`{tool}` is left out: {reason}"), fix);
    }
    if !held.is_empty() {
        let what = format!("held back until approved: {}", some(held));
        let name = shell_word(&config.name);
        check.advice(what, format!("`toolcrib review {name}` shows what has changed"));
    }
    if tools.is_empty() {
        let fix = match config.include.is_empty() && config.exclude.is_empty() {
            true => "set `enabled = false`: only tools are passed on",
            false => "see whether `include` and `exclude` leave anything",
        };
        check.advice("it has no tools", fix);
    }
    if let Some(took) = status.start_took.filter(|took| *took > SLOW) {
        check.advice(format!("it takes {} to start", duration(took)), how_to_hasten(config));
    }
    if !version.is_empty() && *version < *OLD_VERSION {
        check.advice(format!("it speaks MCP {version}, which is old"), "update it");
    }
    for tool in &tools {
        if let Some(defect) = tool.spec().input_schema().defect() {
            let what = format!("arguments of `{}` can't be checked: {defect}", tool.name().tool());
            check.advice(what, "calls are passed on unchecked; report it to the server's authors");
        }
    }
    let plain = |tool: &Tool| format!("{}__{}", config.name, tool.name().tool());
    let renamed: Vec<String> = tools
        .iter()
        .filter(|tool| **tool.exposed() != plain(tool))
        .map(|tool| format!("{} as {}", tool.name().tool(), tool.exposed()))
        .collect();
    if !renamed.is_empty() {
        let what = format!("names that clients would not take are changed: {}", some(&renamed));
        let most = naming.max_length();
        let fix = format!(
            "nothing has to be done; a shorter or plainer name of the server may help (at most \
             {most} characters with the tool's)"
        );
        check.advice(what, fix);
    }
    let long = tools.iter().filter(|tool| tool.spec().description().len() > LONG_DESCRIPTION);
    let long: Vec<String> = long.map(|tool| tool.name().tool().to_owned()).collect();
    if !long.is_empty() {
        let what = format!("descriptions of more than 2 kB: {}", some(&long));
        check
            .advice(what, "each is sent whenever the tool is found; `exclude` what you don't need");
    }
    check
}

/// Notes servers that are the same under two names.
pub(super) fn compare(servers: &[Upstream], checks: &mut [Check]) {
    let mut first: HashMap<String, &str> = HashMap::new();
    for (server, check) in servers.iter().zip(checks) {
        let config = server.config();
        let nameless = ServerConfig { name: String::new(), ..config.clone() };
        match first.get(&nameless.key()) {
            Some(name) => check.advice(
                format!("it is started just like `{name}`, so every tool is there twice"),
                format!("`toolcrib remove {}`, if that is not meant", shell_word(&config.name)),
            ),
            None => drop(first.insert(nameless.key(), &config.name)),
        }
    }
}

/// The program of a server, if it is nowhere to be found, and what to do about that.
pub(super) fn missing_program(config: &ServerConfig) -> Option<(&str, &'static str)> {
    let Launch::Command { command, env, .. } = &config.launch else { return None };
    if command.contains('/') {
        return None;
    }
    let inherited = env.inherited.as_ref().and_then(|env| env.get("PATH"));
    let path = env.own.get("PATH").or(inherited)?;
    let is_there = |folder: &str| Path::new(folder).join(command).is_file();
    let is_missing = !path.split(':').any(is_there);
    is_missing.then(|| (command.as_str(), how_to_install(command)))
}

fn how_to_install(command: &str) -> &'static str {
    match command {
        "npx" | "node" | "npm" => "install Node.js: https://nodejs.org",
        "uvx" | "uv" => "install uv: https://docs.astral.sh/uv",
        "bunx" | "bun" => "install Bun: https://bun.sh",
        "deno" => "install Deno: https://deno.com",
        "docker" => "install Docker: https://docs.docker.com/get-docker",
        "python" | "python3" | "pip" | "pipx" => "install Python: https://www.python.org",
        _ => "install it, or give its full path as `command`",
    }
}

fn how_to_start(config: &ServerConfig, took: Duration) -> String {
    match &config.launch {
        Launch::Command { .. } if took >= config.start_limit => {
            "run it by hand to see what it waits for, or raise `start_limit`".to_owned()
        }
        Launch::Command { command, .. } => {
            format!("run `{command}` by hand, with the same arguments, to see what it lacks")
        }
        Launch::Http { .. } => {
            "check that it runs, and its `url`, `headers` and `bearer_token`".to_owned()
        }
    }
}

fn how_to_hasten(config: &ServerConfig) -> &'static str {
    match &config.launch {
        Launch::Command { command, .. } if matches!(command.as_str(), "npx" | "uvx" | "bunx") => {
            "install it, and start it without having it fetched first"
        }
        _ => "it is found without being started; `idle_stop = 0` keeps it running once it is",
    }
}

/// The first few, and how many more there are.
fn some(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMES).cloned().collect::<Vec<String>>().join(", ");
    match names.len().checked_sub(MOST_NAMES) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_missing_if_no_folder_has_it() {
        let with = |command: &str, path: &str| {
            ServerConfig::command("s", command, [""; 0]).env("PATH", path)
        };
        assert!(missing_program(&with("sh", "/nowhere:/bin")).is_none());
        assert!(missing_program(&with("./sh", "/nowhere")).is_none());
        let npx = with("npx", "/nowhere");
        let (command, fix) = missing_program(&npx).unwrap();
        assert!(command == "npx" && fix.contains("Node.js"));
        assert!(missing_program(&ServerConfig::http("s", "http://h")).is_none());
    }

    #[test]
    fn many_names_are_cut_short() {
        let names: Vec<String> = (0..7).map(|at| at.to_string()).collect();
        assert_eq!(some(&names), "0, 1, 2, 3, 4 and 2 more");
        assert_eq!(some(&names[..5]), "0, 1, 2, 3, 4");
    }
}
