//! `tool_search_regex`: finds tools by a pattern and loads the rows it returns. Preset `regex`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::Verb;
use super::args::Args;
use super::row::{bytes, how_many_fit};
use crate::engine::tool_of;
use crate::find::{Ask, Unasked};
use crate::{Need, Schema, Settings, Step, Tool, text};

pub(super) fn define(then: &str, settings: &Settings) -> (String, Value) {
    let (default, most) = (settings.search_limit, settings.search_limit_max);
    let description = format!(
        "Find tools whose name or description matches a regular expression. What it returns is \
         loaded{then} Many more tools exist than you can see: search before you conclude that something cannot \
         be done."
    );
    let schema = json!({"type": "object", "properties": {
        "pattern": {"type": "string", "description":
            "A regular expression, tried on names and descriptions; case does not matter."},
        "limit": {"type": "integer", "description":
            format!("How many to return: {default} unless given, at most {most}."),
            "default": default}
    }, "required": ["pattern"]});
    (description, schema)
}

#[derive(Serialize)]
struct Result<'a> {
    status: &'static str,
    pattern: &'a str,
    total_matches: usize,
    tools: Vec<Row<'a>>,
    newly_loaded: usize,
    message: String,
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    description: &'a str,
    loaded: bool,
    /// Under dispatch nothing else would show the schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<&'a Schema>,
}

pub(super) fn resolve(mut verb: Verb<'_>) -> Step {
    let args = match Args::of(verb.call) {
        Ok(args) => args,
        Err(problem) => return verb.mistake(&problem.message),
    };
    // Without a pattern everything matches; the limit keeps that small.
    let pattern = args.text(&["pattern", "query", "q", "regex"]).unwrap_or_else(|| ".*".to_owned());
    let settings = &verb.engine.settings;
    let limit = args.limit(settings.search_limit, settings.search_limit_max);
    let ask = match Ask::pattern(&pattern) {
        Ok(ask) => ask,
        Err(Unasked::BadPattern(reason)) => return failed(verb, &pattern, &reason),
        Err(Unasked::Blank) => return failed(verb, &pattern, "it is empty"),
    };
    let scope = verb.session.scope(verb.view);
    let found = scope.search(&ask, limit);
    if let Some(group) = verb.to_load(&pattern, &found) {
        return Step::Need(Need::Group(group));
    }
    let total = found.total;
    let mut tools: Vec<Arc<Tool>> = found.hits.iter().filter_map(|hit| tool_of(hit.item)).collect();
    tools.truncate(how_many_fit(tools.iter().map(bytes), settings.result_bytes));
    if tools.is_empty() {
        return no_match(verb, &pattern);
    }
    let newly_loaded = verb.load(&tools);
    let shown = tools.len();
    if verb.is_native() {
        let more = match total.saturating_sub(shown) {
            0 => None,
            more => Some(format!("{more} more match: narrow the pattern or raise `limit`.")),
        };
        let remarks: Vec<String> = more.into_iter().chain(verb.reveal(&tools)).collect();
        return verb.answer_text(remarks.join(" "), false);
    }
    let message = match total - shown.min(total) {
        0 => format!("Found {total} tools. You can use them now."),
        more => format!(
            "Found {total} tools. You can use the first {shown} now; {more} more match: \
             narrow the pattern or raise `limit` to see them."
        ),
    };
    let dispatches = verb.dispatches();
    let rows = tools.iter().map(|tool| Row {
        name: tool.exposed(),
        description: tool.spec().description(),
        loaded: true,
        parameters: dispatches.then(|| tool.spec().input_schema()),
    });
    let result = Result {
        status: "success",
        pattern: &pattern,
        total_matches: total,
        tools: rows.collect(),
        newly_loaded,
        message,
    };
    verb.answer(&result, false)
}

fn no_match(mut verb: Verb<'_>, pattern: &str) -> Step {
    verb.effects.missed = true;
    #[derive(Serialize)]
    struct NoMatch<'a> {
        status: &'static str,
        pattern: &'a str,
        total_matches: usize,
        tools: [(); 0],
        newly_loaded: usize,
        message: &'static str,
        suggestion: String,
    }
    let mut suggestion =
        "Try a shorter or broader pattern, or alternatives such as `a|b`.".to_owned();
    let troubles = verb.troubles();
    if !troubles.is_empty() {
        suggestion.push_str(&format!(" Not searched: {}.", text::list(&troubles, 8)));
    }
    let result = NoMatch {
        status: "no_matches",
        pattern,
        total_matches: 0,
        tools: [],
        newly_loaded: 0,
        message: "No tool matches.",
        suggestion,
    };
    verb.answer(&result, false)
}

fn failed(verb: Verb<'_>, pattern: &str, reason: &str) -> Step {
    let pattern = text::one_line(pattern, 200);
    let message = format!("Not a valid regular expression: {reason}");
    verb.answer(&json!({"status": "error", "pattern": pattern, "message": message}), true)
}
