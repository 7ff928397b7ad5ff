//! `tool_search` under preset `lazy`: a query lists, a name activates.

use serde::Serialize;
use serde_json::{Value, json};

use super::Verb;
use super::args::Args;
use super::row::how_many_fit;
use crate::find::Unasked;
use crate::scope::Lookup;
use crate::segment::Item;
use crate::{Need, Schema, Step, text};

pub(super) fn define() -> (String, Value) {
    let description = "Discover and activate tools. With `query`: names and descriptions of up to \
        15 tools that fit. With `name`: the full schema of that tool, which is in your tool list \
        from then on. Search before you conclude that something cannot be done.";
    let schema = json!({"type": "object", "properties": {
        "query": {"type": "string", "description": "What the tool should do, in a few words."},
        "name": {"type": "string", "description": "The exact name of a tool to activate."}
    }});
    (description.to_owned(), schema)
}

#[derive(Serialize)]
struct Listing<'a> {
    results: Vec<Entry<'a>>,
    hint: String,
}

#[derive(Serialize)]
struct Entry<'a> {
    name: &'a str,
    description: &'a str,
}

#[derive(Serialize)]
struct Activation<'a> {
    activated: bool,
    name: &'a str,
    description: &'a str,
    parameters: &'a Schema,
    #[serde(rename = "call_with", skip_serializing_if = "Option::is_none")]
    call_with: Option<&'static str>,
    hint: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Unknown<'a> {
    activated: bool,
    error: String,
    suggestions: Vec<Entry<'a>>,
    mcp_servers: Vec<&'a str>,
    hint: String,
}

pub(super) fn resolve(verb: Verb<'_>) -> Step {
    let args = match Args::of(verb.call) {
        Ok(args) => args,
        Err(problem) => return verb.mistake(&problem.message),
    };
    // What says nothing may still be what a tool is called.
    let scope = verb.session.scope(verb.view);
    let called = |key: &'static str| args.get(key)?.as_str().map(str::trim);
    let given = |keys: [&'static str; 2]| {
        let named = || called(keys[0]).filter(|name| scope.has(name)).map(str::to_owned);
        args.text(&keys).or_else(named)
    };
    let (name, query) = (given(["name", "tool_name"]), given(["query", "q"]));
    // A model that fills every field sends both; a real name is the more precise wish.
    if let Some(name) = name {
        return activate(verb, &name);
    }
    match query {
        Some(query) => list(verb, &query),
        None => verb.mistake(
            "Provide either `name`, to activate a tool, or `query`, to look for tools by what \
             they do.",
        ),
    }
}

fn list(mut verb: Verb<'_>, query: &str) -> Step {
    let settings = &verb.engine.settings;
    let ask = match verb.session.scope(verb.view).ask(query) {
        Ok(ask) => ask,
        Err(Unasked::Blank) => return verb.mistake("Say in a few words what the tool should do."),
        Err(Unasked::BadPattern(reason)) => {
            return verb.mistake(&format!("Not a valid regular expression: {reason}"));
        }
    };
    let ask = match verb.with_meaning(ask) {
        Ok(ask) => ask,
        Err(need) => return Step::Need(need),
    };
    let mut found = verb.session.scope(verb.view).search(&ask, settings.search_limit_max.max(1));
    if let Some(group) = verb.to_open(query).filter(|_| found.hits.is_empty()) {
        return Step::Need(Need::Group(group));
    }
    let sizes = found.hits.iter().map(|hit| entry(hit.item).description.len());
    found.hits.truncate(how_many_fit(sizes, settings.result_bytes));
    let mut hint = if found.hits.is_empty() {
        "Nothing matches. Try other words for the same thing, or fewer.".to_owned()
    } else {
        "Call tool_search with `name` to get a tool's schema and activate it.".to_owned()
    };
    let more = found.total.saturating_sub(found.hits.len());
    if more > 0 {
        hint.push_str(&format!(" {more} more match: say more precisely what you need."));
    }
    let troubles = verb.troubles();
    if found.hits.is_empty() && !troubles.is_empty() {
        hint.push_str(&format!(" Not searched: {}.", text::list(&troubles, 8)));
    }
    let missed = found.hits.is_empty();
    let names = found.hits.iter().map(|hit| hit.item.name().clone());
    let listed: Option<Vec<_>> = found.by_words.then(|| names.collect());
    let results = found.hits.iter().map(|hit| entry(hit.item)).collect();
    let content = serde_json::to_string(&Listing { results, hint }).unwrap_or_default();
    verb.effects.missed = missed;
    if let Some(listed) = listed {
        verb.note_search(query, listed.into_iter());
    }
    verb.answer_text(content, false)
}

fn entry(item: Item<'_>) -> Entry<'_> {
    let description = match item {
        Item::Tool(tool) => tool.spec().description(),
        Item::Named(_) => "",
    };
    Entry { name: item.exposed(), description }
}

fn activate(mut verb: Verb<'_>, name: &str) -> Step {
    let scope = verb.session.scope(verb.view);
    match scope.find(name) {
        Lookup::Tool(tool) => {
            let tool = tool.clone();
            let base = verb.session.is_base(tool.exposed());
            verb.load(std::slice::from_ref(&tool));
            if verb.is_native() {
                let remarks = verb.reveal(std::slice::from_ref(&tool));
                return verb.answer_text(remarks.join(" "), false);
            }
            let hint = if base {
                "It is already in your tool list: call it directly.".to_owned()
            } else {
                verb.how_to_call()
            };
            let definition = tool.definition();
            let result = Activation {
                activated: true,
                name: definition.name(),
                description: definition.description(),
                parameters: definition.schema(),
                call_with: verb.caller_of(&tool).filter(|_| !base),
                hint,
            };
            verb.answer(&result, false)
        }
        Lookup::Named(named) => {
            let group = named.group.clone();
            match verb.call.failure(&group) {
                Some(reason) => {
                    let reason = text::one_line(reason, 300);
                    let error = format!("Group `{group}` could not be loaded: {reason}");
                    verb.mistake(&error)
                }
                None if verb.session.learned.contains_key(&group) => {
                    let error = format!(
                        "`{name}` is listed in group `{group}`, but its loader did not bring it."
                    );
                    verb.mistake(&error)
                }
                None => Step::Need(Need::Group(group)),
            }
        }
        Lookup::Ambiguous(items) => {
            let names: Vec<_> = items.iter().map(|item| item.exposed().clone()).collect();
            let error = format!("`{name}` is ambiguous. It may be: {}", text::list(&names, 12));
            verb.mistake(&error)
        }
        Lookup::Missing { denied } => {
            let near = scope.nearest(name, 5);
            let near: Vec<&str> = near.iter().map(|name| &**name).collect();
            let suggestions = scope.select(&near).hits.iter().map(|hit| entry(hit.item)).collect();
            let mcp_servers =
                scope.groups().filter_map(|(segment, _)| segment.id().server_name()).collect();
            let result = Unknown {
                activated: false,
                error: format!("unknown tool: {}", text::one_line(name, 200)),
                suggestions,
                mcp_servers,
                hint: "Call tool_search with `query` to look for a tool by what it does."
                    .to_owned(),
            };
            let content = serde_json::to_string(&result).unwrap_or_default();
            verb.effects.denied.extend(denied);
            verb.effects.missed = true;
            verb.answer_text(content, true)
        }
    }
}
