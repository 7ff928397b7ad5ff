//! `load_tools`: loads a group, or named members of it. Presets `crib` and `groups`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::Verb;
use super::args::Args;
use super::row::{Row, bytes, how_many_fit};
use crate::engine::tool_of;
use crate::scope::Lookup;
use crate::segment::{Item, Segment};
use crate::text::{self, one_line};
use crate::{GroupId, Need, Step, Tool, ToolName};

/// The most names of one call that are looked for among hidden tools.
const MOST_NOTED: usize = 100;

pub(super) fn define(then: &str) -> (String, Value) {
    let description = format!(
        "Load the tools of a group listed in the system prompt, all of them or those you name: \
         get their full schemas{then} Loading a group again is harmless and shows its schemas \
         again."
    );
    let schema = json!({"type": "object", "properties": {
        "group_id": {"type": "string", "description": "The group, such as `mcp:github`."},
        "tool_names": {"type": "array", "items": {"type": "string"}, "description":
            "Only these tools of the group. Leave out to load all."}
    }, "required": ["group_id"]});
    (description, schema)
}

/// Field by field what callers of this verb rely on; the rest appears only where there is
/// something to say.
#[derive(Serialize)]
struct Loaded<'a> {
    group_id: &'a str,
    expanded: bool,
    tool_names: Vec<&'a str>,
    remaining: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    schemas: Option<Vec<Row<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_found: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    omitted: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Serialize)]
struct Failed<'a> {
    group_id: &'a str,
    expanded: bool,
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_groups: Option<Vec<&'a str>>,
}

pub(super) fn resolve(mut verb: Verb<'_>) -> Step {
    let args = match Args::of(verb.call) {
        Ok(args) => args,
        Err(problem) => return verb.mistake(&problem.message),
    };
    let asked = args.text(&["group_id", "group", "id", "server"]).unwrap_or_default();
    let names = args.names(&["tool_names", "tools", "names"]);
    note_denied(&mut verb, &asked, &names);
    let scope = verb.session.scope(verb.view);
    let Some(segment) = scope.group(&asked).cloned() else { return unknown_group(verb, &asked) };
    let id = segment.id().clone();
    if loader_comes_first(&verb, &segment) {
        return match verb.call.failure(&id) {
            None => Step::Need(Need::Group(id)),
            Some(reason) => {
                let waiting = scope.members(&segment).len();
                let failed = Failed {
                    group_id: id.as_str(),
                    expanded: false,
                    error: format!("Loader failed: {}", one_line(reason, 300)),
                    remaining: (waiting > 0).then_some(waiting),
                    available_groups: None,
                };
                verb.answer(&failed, true)
            }
        };
    }
    let members = scope.members(&segment);
    let (wanted, not_found) = choose(&members, &names);
    let mut tools: Vec<Arc<Tool>> = wanted.iter().copied().filter_map(tool_of).collect();
    // What the model does not get to see is not loaded.
    let (dispatches, native) = (verb.dispatches(), verb.is_native());
    let fitting = how_many_fit(tools.iter().map(bytes), verb.engine.settings.result_bytes);
    let omitted = if dispatches || native { tools.split_off(fitting) } else { Vec::new() };
    let missing = wanted.iter().filter_map(|item| match item {
        Item::Named(named) => Some(named.exposed.to_string()),
        Item::Tool(_) => None,
    });
    let missing: Vec<String> = missing.collect();
    let all: Vec<Arc<Tool>> = members.iter().copied().filter_map(tool_of).collect();
    verb.load(&tools);
    let whole = names.is_empty() && missing.is_empty() && omitted.is_empty();
    if whole && !tools.is_empty() {
        verb.session.load_group(&id, &tools);
    } else {
        verb.session.load_part(&id, &tools);
    }
    if !missing.is_empty() {
        let note = format!(
            "group `{id}` lists {}, which its loader did not bring",
            text::list(&missing, 12)
        );
        verb.effects.notes.push(note);
    }
    let loaded = all.iter().filter(|tool| verb.session.has(tool)).count();
    let nothing = tools.is_empty();
    let mut hints = Vec::new();
    if !omitted.is_empty() {
        let why = "Some schemas were left out because they are long: ask for them by `tool_names`.";
        hints.push(why.to_owned());
    } else if nothing {
        hints.push(nothing_loaded(&all));
    }
    if native {
        hints.extend(verb.reveal(&tools));
    }
    let result = Loaded {
        group_id: id.as_str(),
        expanded: !nothing,
        tool_names: tools.iter().map(|tool| &**tool.exposed()).collect(),
        remaining: all.len() - loaded,
        schemas: dispatches.then(|| tools.iter().map(|tool| verb.row(tool, None)).collect()),
        not_found,
        missing,
        omitted: omitted.iter().map(|tool| &**tool.exposed()).collect(),
        hint: (!hints.is_empty()).then(|| hints.join(" ")),
    };
    verb.answer(&result, nothing)
}

/// Notes which of the names are those of tools in the group that the caller may not know of.
fn note_denied(verb: &mut Verb<'_>, asked: &str, names: &[String]) {
    let scope = verb.session.scope(verb.view);
    let is_there = |tool: &ToolName| {
        let group = GroupId::of(tool);
        group.as_str() == asked || group.server_name() == Some(asked)
    };
    let mut denied: Vec<ToolName> = Vec::new();
    for name in names.iter().take(MOST_NOTED) {
        if let Lookup::Missing { denied: hidden } = scope.find(name) {
            denied.extend(hidden.into_iter().filter(is_there));
        }
    }
    denied.sort();
    denied.dedup();
    verb.effects.denied.extend(denied);
}

fn nothing_loaded(members: &[Arc<Tool>]) -> String {
    if members.is_empty() {
        return "Nothing was loaded: the group turned out to have no tools.".to_owned();
    }
    let names: Vec<&str> = members.iter().map(|tool| &**tool.exposed()).collect();
    format!("Nothing was loaded. The group has: {}", text::list(&names, 40))
}

/// Whether members are known only by name, or not at all, and nobody has asked the loader yet.
fn loader_comes_first(verb: &Verb<'_>, segment: &Segment) -> bool {
    if verb.session.learned.contains_key(segment.id()) || !segment.needs_loader() {
        return false;
    }
    let members = verb.session.scope(verb.view).members(segment);
    segment.named.is_empty() || members.iter().any(|item| matches!(item, Item::Named(_)))
}

/// The members asked for, and the names no member has. No names ask for all.
fn choose<'a>(members: &[Item<'a>], names: &[String]) -> (Vec<Item<'a>>, Vec<String>) {
    if names.is_empty() {
        return (members.to_vec(), Vec::new());
    }
    let mut wanted: Vec<Item<'a>> = Vec::new();
    let mut not_found = Vec::new();
    for name in names {
        let fits = |item: &&Item<'a>| {
            let namespace = item.name().namespace().unwrap_or_default();
            **item.exposed() == **name
                || item.name().tool() == name
                || crate::ToolName::strip_namespace(namespace, name) == Some(item.name().tool())
        };
        match members.iter().find(fits) {
            Some(item) if wanted.iter().any(|known| known.name() == item.name()) => {}
            Some(item) => wanted.push(*item),
            None => not_found.push(one_line(name, 200)),
        }
    }
    (wanted, not_found)
}

fn unknown_group(mut verb: Verb<'_>, asked: &str) -> Step {
    let scope = verb.session.scope(verb.view);
    // What is in the tool list anyway need not be loaded.
    let waits = |item: &Item<'_>| !verb.session.is_base(item.exposed());
    let groups: Vec<&str> = scope
        .groups()
        .filter(|(_, items)| items.is_empty() || items.iter().any(waits))
        .map(|(segment, _)| segment.id().as_str())
        .collect();
    let error = if asked.is_empty() {
        "`group_id` is required.".to_owned()
    } else {
        format!("Unknown group `{}`.", one_line(asked, 200))
    };
    // With hundreds of groups, those that look alike help more than all of them.
    let mut near: Vec<(f64, &str)> =
        groups.iter().map(|id| (strsim::jaro_winkler(asked, id), *id)).collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    let mut shown: Vec<&str> = near.iter().take(40).map(|(_, id)| *id).collect();
    shown.sort_unstable();
    let asked = one_line(asked, 200);
    let failed = Failed {
        group_id: &asked,
        expanded: false,
        error,
        remaining: None,
        available_groups: Some(shown),
    };
    let content = serde_json::to_string(&failed).unwrap_or_default();
    verb.effects.missed = true;
    verb.answer_text(content, true)
}
