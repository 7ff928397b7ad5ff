//! Tools to look at: the configured servers', lists in files, or the built-in sample.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib::{Registry, ServerTools, ToolName, ToolSpec, View};

use crate::args::Context;
use crate::output::one_line;
use crate::{fleet, sample};

/// Where tools are read from.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ToolArgs {
    /// Tool lists: files, or folders of *.json and *.jsonl
    ///
    /// A file is `{"server", "tools": […]}`, a `tools/list` result (`{"tools": […]}`, whose
    /// server is the file's name), a list of either, or JSONL of `{server, name, description,
    /// inputSchema}`. Without it: `tools` in toolcrib.toml, else the servers there, else a
    /// built-in sample.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) tools: Vec<PathBuf>,
}

impl ToolArgs {
    /// Whether nothing was given or configured, so that the sample is used.
    pub(crate) fn is_sample(&self, context: &Context) -> bool {
        self.has_no_lists(context) && context.config.servers.is_empty()
    }

    /// Whether no lists were given or configured, so that it is the servers' tools that count.
    pub(crate) fn has_no_lists(&self, context: &Context) -> bool {
        self.tools.is_empty() && context.config.tools.is_empty()
    }
}

/// Takes the tools that were asked for, those of the servers, or the sample into a registry.
pub(crate) fn load_tools(args: &ToolArgs, context: &Context) -> anyhow::Result<Registry> {
    if args.has_no_lists(context) && !args.is_sample(context) {
        return fleet::with(context, async |fleet| Ok(fleet.registry(context).await));
    }
    let mut lists = Lists::default();
    if args.is_sample(context) {
        context.note(
            "Using the built-in sample. Give your own tool lists with --tools PATH…, \
             or your servers with `toolcrib import` or `toolcrib add`. (Without any, \
             `toolcrib serve` serves the built-in servers.)",
        );
        lists.add_json("sample", "sample", sample::SERVERS)?;
    } else {
        let given = if args.tools.is_empty() { &context.config.tools } else { &args.tools };
        for path in given {
            lists.add_path(path).map_err(|error| {
                let greedy = args.tools.len() > 1 && !path.exists();
                let hint = "; --tools takes every word up to the next option";
                anyhow::anyhow!("{error:#}{}", if greedy { hint } else { "" })
            })?;
        }
    }
    let registry = lists.register();
    context.warn_of_left_out(&lists.warnings);
    Ok(registry)
}

/// The tools as the configured policy lets a caller see them.
pub(crate) fn load_view(args: &ToolArgs, context: &Context) -> anyhow::Result<View> {
    let policy = context.config.policy()?;
    Ok(load_tools(args, context)?.catalog().view(&policy))
}

/// What was read so far: one entry per server, in the order they came.
#[derive(Default)]
struct Lists {
    servers: IndexMap<String, Server>,
    seen: HashSet<ToolName>,
    warnings: Vec<String>,
}

#[derive(Default)]
struct Server {
    title: Option<String>,
    description: Option<String>,
    specs: Vec<ToolSpec>,
}

/// A server's tools, or a `tools/list` result.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServerFile<'a> {
    server: Option<String>,
    title: Option<String>,
    description: Option<String>,
    instructions: Option<String>,
    server_info: Option<ServerInfo>,
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct ServerInfo {
    title: Option<String>,
}

impl Lists {
    fn add_path(&mut self, path: &Path) -> anyhow::Result<()> {
        let shown = path.display();
        let kind = fs::metadata(path).with_context(|| format!("can't read tools from {shown}"))?;
        if !kind.is_dir() {
            return self.add_file(path);
        }
        let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.with_context(|| format!("can't read folder {shown}"))?;
        let mut files: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        files.retain(|file| matches!(extension(file), Some("json" | "jsonl")) && file.is_file());
        files.sort();
        if files.is_empty() {
            bail!("no *.json or *.jsonl file in folder {shown}");
        }
        files.iter().try_for_each(|file| self.add_file(file))
    }

    fn add_file(&mut self, path: &Path) -> anyhow::Result<()> {
        let file = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("can't read {file}"))?;
        let text = String::from_utf8(bytes).with_context(|| format!("{file} is not text"))?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let stem = path.file_stem().map_or(Cow::Borrowed("tools"), |stem| stem.to_string_lossy());
        match extension(path) {
            Some("jsonl") => self.add_lines(&file, &stem, text),
            _ => self.add_json(&file, &stem, text),
        }
    }

    fn add_json(&mut self, file: &str, stem: &str, text: &str) -> anyhow::Result<()> {
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|error| not_json(file, text, &error))?;
        if raw.get().starts_with('[') {
            return self.add_list(file, stem, raw);
        }
        self.add_server(file, stem, raw)
    }

    /// A list of servers, or of tools; they may even be mixed.
    fn add_list(&mut self, file: &str, stem: &str, raw: &RawValue) -> anyhow::Result<()> {
        let entries: Vec<&RawValue> = serde_json::from_str(raw.get())?;
        for (at, entry) in entries.into_iter().enumerate() {
            if field::<Vec<&RawValue>>(entry, "tools").is_some() {
                self.add_server(file, stem, entry)?;
            } else {
                self.add_tool(&format!("{file}, tool {}", at + 1), stem, entry.get());
            }
        }
        Ok(())
    }

    fn add_server(&mut self, file: &str, stem: &str, raw: &RawValue) -> anyhow::Result<()> {
        let list: ServerFile = serde_json::from_str(raw.get()).with_context(|| {
            format!(
                "{file} is not a tool list; expected {{\"server\": …, \"tools\": […]}}, a \
                 tools/list result or an array of tools"
            )
        })?;
        let name = list.server.as_deref().unwrap_or(stem);
        let server = self.servers.entry(name.to_owned()).or_default();
        let title = list.title.or(list.server_info.and_then(|info| info.title));
        let about = list.instructions.as_deref().map(first_sentence);
        server.title = server.title.take().or(title);
        server.description = server.description.take().or(list.description).or(about);
        for (at, tool) in list.tools.into_iter().enumerate() {
            self.add_tool(&format!("{file}, tool {}", at + 1), name, tool.get());
        }
        Ok(())
    }

    fn add_lines(&mut self, file: &str, stem: &str, text: &str) -> anyhow::Result<()> {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let place = format!("{file}, line {}", at + 1);
            let raw: &RawValue = serde_json::from_str(line)
                .map_err(|error| anyhow::anyhow!("{place} is not JSON: {error}"))?;
            match field::<Value>(raw, "server") {
                Some(Value::String(server)) => self.add_tool(&place, &server, line),
                Some(Value::Null) | None => self.add_tool(&place, stem, line),
                Some(_) => self.warnings.push(format!("{place}: `server` is not a string")),
            }
        }
        Ok(())
    }

    /// One tool that can't be read costs no other.
    fn add_tool(&mut self, place: &str, server: &str, json: &str) {
        match ToolSpec::parse(json, |tool| ToolName::mcp(server, tool)) {
            Err(error) => self.warnings.push(format!("{place} was left out: {error}")),
            Ok(spec) if !self.seen.insert(spec.name().clone()) => {
                let name = format!("{server}/{}", spec.name().tool());
                self.warnings.push(format!("{place} was left out: there is a `{name}` already"));
            }
            Ok(spec) => self.servers.entry(server.to_owned()).or_default().specs.push(spec),
        }
    }

    fn register(&mut self) -> Registry {
        let registry = Registry::default();
        for (name, server) in std::mem::take(&mut self.servers) {
            let mut tools = ServerTools::new(name, server.specs);
            if let Some(title) = server.title {
                tools = tools.with_title(title);
            }
            if let Some(description) = server.description {
                tools = tools.with_description(description);
            }
            for (tool, reason) in registry.replace_server(tools).rejected {
                let place = format!("{}/{}", tool.namespace().unwrap_or_default(), tool.tool());
                self.warnings.push(format!("{place} was left out: {reason}"));
            }
        }
        registry
    }
}

fn extension(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

/// One field of an object, if it is one and has it.
fn field<'a, T: Deserialize<'a>>(raw: &'a RawValue, name: &str) -> Option<T> {
    let mut object: IndexMap<Cow<'a, str>, &'a RawValue> = serde_json::from_str(raw.get()).ok()?;
    serde_json::from_str(object.swap_remove(name)?.get()).ok()
}

fn not_json(file: &str, text: &str, error: &serde_json::Error) -> anyhow::Error {
    let first = text.lines().next().unwrap_or_default();
    let is_lines = error.line() > 1 && serde_json::from_str::<&RawValue>(first).is_ok();
    let hint = if is_lines { "; if it has one tool per line, name it *.jsonl" } else { "" };
    anyhow::anyhow!("{file}, line {} is not JSON: {error}{hint}", error.line())
}

fn first_sentence(text: &str) -> String {
    let text = one_line(text);
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end].to_owned()
}
