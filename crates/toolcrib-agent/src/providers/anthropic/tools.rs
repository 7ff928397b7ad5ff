//! The tools of a request, and what its conversation may say about them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_core::{Definition, Dialect, Revealed, ToolChange};

use crate::message::{CallResult, Message, in_words};
use crate::provider::{HostedSearch, Native, Request};

/// A tool that always waits and is never given. The API puts words of its own in front of the
/// tools as soon as one waits; with this one they are there from the first request on, and the
/// first tool that is given changes nothing that was cached.
const PLACEHOLDER: (&str, &str) = (
    "toolcrib_placeholder",
    r#"{"name":"toolcrib_placeholder","description":"Keeps a place. There is nothing to call.","input_schema":{"type":"object","properties":{}},"defer_loading":true}"#,
);

/// What a request declares. The API refuses a whole conversation for one reference to a tool that
/// is not among it.
pub(super) struct Declared<'a> {
    /// The tools array: what waits stands behind what doesn't.
    pub(super) array: Vec<Cow<'a, RawValue>>,
    /// How many of them don't wait.
    shown: usize,
    /// The names; `None` where the user's own tools replace ours.
    names: Option<BTreeSet<&'a str>>,
    native: Option<&'a Native>,
    /// The search among them that is ours.
    search: Option<&'a Definition>,
}

impl<'a> Declared<'a> {
    pub(super) fn of(request: &'a Request) -> Self {
        let ours = !request.options.extra.contains_key("tools");
        let native = request.native.as_ref().filter(|_| ours);
        let hosted = native.and_then(|native| native.hosted);
        let tools = request.tools.iter();
        let mut array: Vec<Cow<RawValue>> = hosted
            .and_then(search_tool)
            .map(Cow::Owned)
            .into_iter()
            .chain(tools.clone().map(|tool| Cow::Borrowed(tool.render(Dialect::Anthropic))))
            .collect();
        // The API's own search may find itself.
        let names = tools.map(|tool| &**tool.name()).chain(hosted.map(search_name));
        let mut names: BTreeSet<&str> = names.collect();
        let mut shown = array.len();
        // All that the API's own search looks through waits from the beginning.
        let deferred = native.into_iter().flat_map(|native| &native.deferred);
        let (name, placeholder) = PLACEHOLDER;
        let is_free = !names.contains(name) && deferred.clone().all(|tool| **tool.name() != *name);
        if native.is_some() && hosted.is_none() && shown > 0 && is_free {
            array.extend(RawValue::from_string(placeholder.to_owned()).ok().map(Cow::Owned));
        }
        for tool in deferred {
            if names.insert(tool.name()) {
                let definition = tool.render(Dialect::Anthropic);
                // Not all may wait.
                let waiting = (shown > 0).then(|| with(definition, r#""defer_loading":true"#));
                array.push(waiting.flatten().map_or(Cow::Borrowed(definition), Cow::Owned));
            }
        }
        if shown == 0 {
            shown = array.len();
        }
        let is_search = |tool: &&Definition| {
            native.is_some_and(|native| native.search.as_deref() == Some(tool.name()))
        };
        let search = request.tools.iter().find(is_search);
        Self { array, shown, names: ours.then_some(names), native, search }
    }

    /// Marks the end of what is cached. It can't be at a tool that waits, which the API refuses.
    pub(super) fn mark(&mut self) {
        if let Some(last) = self.array[..self.shown].last_mut()
            && let Some(marked) = with(last, r#""cache_control":{"type":"ephemeral"}"#)
        {
            *last = Cow::Owned(marked);
        }
    }

    /// Whether tools that come and go are told in the API's own form.
    pub(super) fn takes_changes(&self) -> bool {
        self.native.is_some_and(|native| native.changes)
    }

    fn has(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.contains(name))
    }

    /// The tools that a result gives by reference, each once, and the others in words. A failure
    /// may only have words.
    pub(super) fn given(&self, result: &'a CallResult) -> (Vec<&'a str>, Option<String>) {
        if self.native.is_none() || result.is_error {
            return (Vec::new(), result.written_out());
        }
        let (mut names, mut gone): (Vec<&str>, Vec<&str>) = Default::default();
        for Revealed { tool, .. } in &result.revealed {
            if !self.has(tool.name()) {
                gone.push(tool.neutral().get());
            } else if !names.contains(&&**tool.name()) {
                names.push(tool.name());
            }
        }
        (names, (!gone.is_empty()).then(|| gone.join("\n")))
    }

    /// What is to be said in words about tools that come and go. By name where the model can look
    /// the tool up, so that it gets the definition in the API's form.
    pub(super) fn told(&self, change: &ToolChange) -> Option<String> {
        let Some(native) = self.native else { return Some(in_words(change)) };
        let ours = self.search.map(|tool| &**tool.name());
        let search = ours.or(native.hosted.map(search_name));
        let is_known =
            |it: &&Revealed| self.has(it.tool.name()) && (native.changes || search.is_some());
        let (known, unknown): (Vec<&Revealed>, Vec<&Revealed>) =
            change.added.iter().partition(is_known);
        let mut said = Vec::new();
        if let Some(search) = search.filter(|_| !native.changes && !known.is_empty()) {
            let names: Vec<&str> = known.iter().map(|it| &**it.tool.name()).collect();
            let loaded = names.join(", ");
            let how = self.search.map(|search| by_name(search, &names)).unwrap_or_default();
            said.push(format!(
                "Now loaded: {loaded}. One that you were not shown yet is found with `{search}`{how}."
            ));
        }
        let removed = if native.changes { Vec::new() } else { change.removed.clone() };
        let rest = ToolChange { added: unknown.into_iter().cloned().collect(), removed };
        if !rest.is_empty() {
            said.push(in_words(&rest));
        }
        (!said.is_empty()).then(|| said.join("\n"))
    }

    /// What the API wrote, as it came; of what its own search found only the tools that are still
    /// there, and nothing of a search that no longer is.
    pub(super) fn repeated(
        &self,
        block: &'a Map<String, Value>,
    ) -> Option<Cow<'a, Map<String, Value>>> {
        let word = |member: &str| block.get(member).and_then(Value::as_str).unwrap_or_default();
        let is_gone = |name: &str| {
            name.starts_with("tool_search_tool_") && self.names.is_some() && !self.has(name)
        };
        if word("type") == "server_tool_use" && is_gone(word("name")) {
            return None;
        }
        let gone = |reference: &Value| {
            let name = reference["tool_name"].as_str();
            self.names.is_some() && name.is_some_and(|name| !self.has(name))
        };
        let is_search = word("type") == "tool_search_tool_result";
        let found = block.get("content").and_then(|content| content["tool_references"].as_array());
        if !is_search || !found.is_some_and(|found| found.iter().any(gone)) {
            return Some(Cow::Borrowed(block));
        }
        let mut block = block.clone();
        if let Some(Value::Array(found)) =
            block.get_mut("content").and_then(|content| content.get_mut("tool_references"))
        {
            found.retain(|reference| !gone(reference));
        }
        Some(Cow::Owned(block))
    }
}

/// Tools that came and went, until there is a place in the conversation to say so.
#[derive(Default)]
pub(super) struct Changes<'a> {
    waiting: Vec<Change<'a>>,
    /// Tools that went and have not come back.
    withdrawn: BTreeSet<&'a str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change<'a> {
    Added(&'a str),
    Removed(&'a str),
}

impl<'a> Changes<'a> {
    /// Takes what a message changes. A tool that went and is given again has come back.
    pub(super) fn follow(&mut self, message: &'a Message, declared: &Declared<'a>) {
        match message {
            Message::Tools(change) => {
                let added = change.added.iter().map(|it| Change::Added(it.tool.name()));
                let removed = change.removed.iter().map(|name| Change::Removed(name));
                for change in added.chain(removed) {
                    let (Change::Added(name) | Change::Removed(name)) = change;
                    if declared.has(name) {
                        self.take(change);
                    }
                }
            }
            Message::Tool { results } => {
                for name in results.iter().flat_map(|result| declared.given(result).0) {
                    if self.withdrawn.contains(name) {
                        self.take(Change::Added(name));
                    }
                }
            }
            _ => {}
        }
    }

    /// The last word about a tool holds.
    fn take(&mut self, change: Change<'a>) {
        let (Change::Added(name) | Change::Removed(name)) = change;
        self.waiting.retain(|(Change::Added(other) | Change::Removed(other))| *other != name);
        self.waiting.push(change);
        match change {
            Change::Added(name) => self.withdrawn.remove(name),
            Change::Removed(name) => self.withdrawn.insert(name),
        };
    }

    /// What is to be said now.
    pub(super) fn say(&mut self) -> Vec<Change<'a>> {
        std::mem::take(&mut self.waiting)
    }
}

/// How a search is asked for tools whose names are known: the end of a sentence.
fn by_name(search: &Definition, names: &[&str]) -> String {
    let schema: Value = serde_json::from_str(search.schema().get()).unwrap_or_default();
    let takes = |argument: &str| schema["properties"].get(argument).is_some();
    if takes("pattern") {
        format!(" by the pattern `^({})$`", names.join("|"))
    } else if takes("name") {
        " by its `name`".to_owned()
    } else {
        format!(" by `select:{}`", names.join(","))
    }
}

/// The API's own search, which has a fixed name and never waits.
fn search_tool(hosted: HostedSearch) -> Option<Box<RawValue>> {
    let name = search_name(hosted);
    RawValue::from_string(format!(r#"{{"type":"{name}_20251119","name":"{name}"}}"#)).ok()
}

fn search_name(hosted: HostedSearch) -> &'static str {
    match hosted {
        HostedSearch::Bm25 => "tool_search_tool_bm25",
        HostedSearch::Regex => "tool_search_tool_regex",
    }
}

/// A tool with one more member at its end.
fn with(tool: &RawValue, member: &str) -> Option<Box<RawValue>> {
    let members = tool.get().strip_suffix('}')?;
    RawValue::from_string(format!("{members},{member}}}")).ok()
}
