//! Which servers come in, under which names, and which don't.

use std::path::Path;

use indexmap::IndexMap;
use serde_json::{Value, json};

use super::source::Source;
use crate::config::ServerEntry;

/// What an import would do.
pub(super) struct Plan {
    pub(super) adds: Vec<Add>,
    pub(super) skips: Vec<Skip>,
}

pub(super) struct Add {
    pub(super) name: String,
    pub(super) entry: ServerEntry,
    /// The clients that have it.
    pub(super) from: Vec<&'static str>,
}

pub(super) struct Skip {
    pub(super) name: String,
    pub(super) place: String,
    pub(super) reason: String,
}

impl Plan {
    /// What the sources have that these servers don't.
    pub(super) fn new(sources: &[Source], known: &IndexMap<String, ServerEntry>) -> Self {
        let mut plan = Self { adds: Vec::new(), skips: Vec::new() };
        for source in sources {
            for server in &source.servers {
                let skip = |reason: String| {
                    let place = format!("{}, line {}", source.path.display(), server.line);
                    Skip { name: server.name.clone(), place, reason }
                };
                match &server.entry {
                    Err(reason) => plan.skips.push(skip(reason.clone())),
                    Ok(entry) if is_toolcrib(entry) => {
                        plan.skips.push(skip("it is toolcrib itself".to_owned()));
                    }
                    Ok(entry) => {
                        if let Some(reason) = plan.add(&server.name, entry, source, known) {
                            plan.skips.push(skip(reason));
                        }
                    }
                }
            }
        }
        plan
    }

    /// Takes a server in, or says why not.
    fn add(
        &mut self,
        name: &str,
        entry: &ServerEntry,
        source: &Source,
        known: &IndexMap<String, ServerEntry>,
    ) -> Option<String> {
        if let Some((name, _)) = known.iter().find(|(_, other)| is_same_launch(other, entry)) {
            return Some(format!("it is there already, as `{name}`"));
        }
        if let Some(add) = self.adds.iter_mut().find(|add| is_same_launch(&add.entry, entry)) {
            add.entry.enabled |= entry.enabled;
            if !add.from.contains(&source.title()) {
                add.from.push(source.title());
            }
            return None;
        }
        let is_taken =
            |name: &str| known.contains_key(name) || self.adds.iter().any(|add| add.name == name);
        let suffixed = format!("{name}-{}", source.id());
        let numbered = (2..).map(|number| format!("{suffixed}-{number}"));
        let mut names = [name.to_owned(), suffixed.clone()].into_iter().chain(numbered);
        let name = names.find(|name| !is_taken(name)).unwrap_or(suffixed);
        if let Some(fault) = crate::config::name_fault(&name) {
            return Some(fault);
        }
        self.adds.push(Add { name, entry: entry.clone(), from: vec![source.title()] });
        None
    }

    /// A line for each server that comes with its secrets written out.
    pub(super) fn secret_warnings(&self) -> Vec<String> {
        let line = |add: &Add| {
            let names = add.entry.literal_secrets();
            let text = "written out; `${VAR}` in place of a secret takes it from the environment";
            let is_some = !names.is_empty();
            is_some.then(|| format!("server `{}` has {} {text}", add.name, names.join(", ")))
        };
        self.adds.iter().filter_map(line).collect()
    }

    pub(super) fn to_json(&self, sources: &[Source], into: &str, written: bool) -> Value {
        let source = |source: &Source| {
            json!({"client": source.client.map(|client| client.id()), "file": source.path,
                "servers": source.servers.len(), "warnings": source.warnings})
        };
        let add = |add: &Add| {
            json!({"name": add.name, "from": add.from, "launch": add.entry.shown(),
                "enabled": add.entry.enabled, "literal_secrets": add.entry.literal_secrets()})
        };
        let skip =
            |skip: &Skip| json!({"name": skip.name, "place": skip.place, "reason": skip.reason});
        json!({
            "into": into,
            "written": written,
            "sources": sources.iter().map(source).collect::<Vec<_>>(),
            "add": self.adds.iter().map(add).collect::<Vec<_>>(),
            "skip": self.skips.iter().map(skip).collect::<Vec<_>>(),
        })
    }
}

/// Whether two entries start or connect to the same thing, whatever else they say.
fn is_same_launch(a: &ServerEntry, b: &ServerEntry) -> bool {
    (&a.command, &a.args, &a.cwd, &a.url) == (&b.command, &b.args, &b.cwd, &b.url)
        && a.env == b.env
        && a.env_file == b.env_file
        && a.headers == b.headers
        && a.bearer_token == b.bearer_token
}

/// A gateway behind itself would wait for itself. Its built-in servers are servers like others.
fn is_toolcrib(entry: &ServerEntry) -> bool {
    let program = entry.command.as_deref().and_then(|command| Path::new(command).file_stem());
    let is_builtin = entry.args.first().is_some_and(|arg| arg == "builtin");
    let url = entry.url.as_deref().unwrap_or_default();
    let default = ["http://127.0.0.1:7171/mcp", "http://localhost:7171/mcp"];
    program.is_some_and(|program| program == "toolcrib") && !is_builtin
        || default.iter().any(|own| url.starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolcrib_is_known_by_its_command_and_address() {
        let entry = |command: &str, args: &[&str]| ServerEntry {
            command: Some(command.to_owned()),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            ..ServerEntry::default()
        };
        assert!(is_toolcrib(&entry("/opt/bin/toolcrib", &["serve", "--stdio"])));
        assert!(is_toolcrib(&entry("toolcrib.exe", &["serve"])));
        assert!(!is_toolcrib(&entry("toolcrib", &["builtin", "files"])));
        assert!(!is_toolcrib(&entry("toolcribber", &[])));
        let at = |url: &str| ServerEntry { url: Some(url.to_owned()), ..ServerEntry::default() };
        assert!(is_toolcrib(&at("http://localhost:7171/mcp/full")));
        assert!(!is_toolcrib(&at("http://localhost:7172/mcp")));
    }
}
