//! `tool_search`: finds tools, loads what it returns. Presets `crib`, `stubs` and `exact`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::Verb;
use super::args::Args;
use super::row::{Row, bytes, how_many_fit};
use crate::engine::tool_of;
use crate::find::{Ask, Found, Unasked, split_names};
use crate::segment::Item;
use crate::text;
use crate::{GroupId, Need, Preset, Settings, Step, Tool};

pub(super) fn define(preset: Preset, then: &str, settings: &Settings) -> (String, Value) {
    if preset == Preset::Exact {
        let description = format!(
            "Get the full definitions of deferred tools by their exact names{then} Names are \
             listed in the system prompt."
        );
        let schema = json!({"type": "object", "properties": {"query": {"type": "string",
            "description": "One or more exact tool names, separated by commas."}},
            "required": ["query"]});
        return (description, schema);
    }
    let (query, limit) = match preset {
        Preset::Stubs => (
            "Keywords; or `select:name_a,name_b` for exactly these tools; `+word` must occur.",
            "max_results",
        ),
        _ => (
            "What the tool should do, in a few words; or a tool's name; or `select:name_a,name_b` \
             for exactly these. `+word` must occur; `/regex/` matches names and descriptions.",
            "limit",
        ),
    };
    let most = settings.search_limit_max;
    let description = format!(
        "Find tools and get their full definitions{then} Many more tools exist than you can see: \
         search before you conclude that something cannot be done."
    );
    let schema = json!({"type": "object", "properties": {
        "query": {"type": "string", "description": query},
        limit: {"type": "integer", "description": format!("How many to return, at most {most}."),
            "default": settings.search_limit}
    }, "required": ["query"]});
    (description, schema)
}

pub(super) fn resolve(mut verb: Verb<'_>) -> Step {
    let args = match Args::of(verb.call) {
        Ok(args) => args,
        Err(problem) => return verb.mistake(&problem.message),
    };
    let scope = verb.session.scope(verb.view);
    let keys = ["query", "q", "name", "names", "tool_name", "pattern"];
    // What says nothing may still be what a tool is called.
    let name = || args.get("query")?.as_str().map(str::trim).filter(|name| scope.has(name));
    let Some(query) = args.text(&keys).or_else(|| name().map(str::to_owned)) else {
        return blank(verb);
    };
    let settings = &verb.engine.settings;
    let limit = args.limit(settings.search_limit, settings.search_limit_max);
    let found = match scope.ask(&query) {
        // The names are in the prompt, so names are what is asked for.
        Ok(Ask::Words { .. }) if verb.latched.preset == Preset::Exact => {
            scope.select(&split_names(&query))
        }
        Ok(ask) => match verb.with_meaning(ask) {
            Ok(ask) => verb.session.scope(verb.view).search(&ask, limit),
            Err(need) => return Step::Need(need),
        },
        Err(Unasked::Blank) => return blank(verb),
        Err(Unasked::BadPattern(reason)) => {
            return verb.mistake(&format!("Not a valid regular expression: {reason}"));
        }
    };
    if let Some(group) = verb.to_load(&query, &found) {
        return Step::Need(Need::Group(group));
    }
    let by_words = found.by_words;
    let outcome = Outcome::gather(&verb, &query, found);
    if by_words {
        let listed = outcome.shown.iter().map(|tool| tool.name()).chain(&outcome.left_out);
        verb.note_search(&query, listed.cloned());
    }
    verb.effects.denied.extend(outcome.denied.iter().cloned());
    verb.effects.missed = outcome.is_short();
    let known: Vec<bool> = outcome.shown.iter().map(|tool| verb.session.has(tool)).collect();
    let base: Vec<Arc<str>> = outcome
        .shown
        .iter()
        .filter(|tool| verb.session.is_base(tool.exposed()))
        .map(|tool| tool.exposed().clone())
        .collect();
    verb.load(&outcome.shown);
    if verb.is_native() && !outcome.shown.is_empty() {
        let text = outcome.remarks_beside(verb.reveal(&outcome.shown));
        return verb.answer_text(text, false);
    }
    let hint = outcome.hint(&verb, &known, &base);
    match verb.latched.preset {
        Preset::Stubs => {
            let text = outcome.functions(&verb, &hint);
            verb.answer_text(text, false)
        }
        Preset::Exact => {
            let result = ExactResult {
                tools: outcome.shown.iter().map(|tool| verb.row(tool, None)).collect(),
                not_found: &outcome.not_found,
                hint: &hint,
            };
            verb.answer(&result, false)
        }
        _ => {
            let result = CribResult {
                total_matches: outcome.total,
                tools: outcome.shown.iter().map(|tool| verb.row(tool, Some(true))).collect(),
                not_found: &outcome.not_found,
                hint: &hint,
            };
            verb.answer(&result, false)
        }
    }
}

#[derive(Serialize)]
struct CribResult<'a> {
    total_matches: usize,
    tools: Vec<Row<'a>>,
    not_found: &'a [String],
    hint: &'a str,
}

#[derive(Serialize)]
struct ExactResult<'a> {
    tools: Vec<Row<'a>>,
    not_found: &'a [String],
    hint: &'a str,
}

/// Misses that are commented on one by one.
const MOST_REMARKS: usize = 8;

/// What a search came to, before it is put in a preset's words.
struct Outcome {
    total: usize,
    shown: Vec<Arc<Tool>>,
    /// Matches whose schemas would have made the result too long.
    omitted: Vec<Arc<str>>,
    not_found: Vec<String>,
    /// Copies that gave up a place, and are told of.
    left_out: Vec<crate::ToolName>,
    denied: Vec<crate::ToolName>,
    remarks: Vec<String>,
}

impl Outcome {
    fn gather(verb: &Verb<'_>, query: &str, found: Found<'_>) -> Self {
        let scope = verb.session.scope(verb.view);
        let mut remarks = Vec::new();
        for hit in &found.hits {
            let Item::Named(named) = hit.item else { continue };
            let reason = verb.call.failure(&named.group).unwrap_or("its loader did not bring it");
            let reason = text::one_line(reason, 200);
            remarks.push(format!("`{}` could not be loaded: {reason}.", named.exposed));
        }
        for miss in found.misses.iter().take(MOST_REMARKS) {
            if miss.candidates.is_empty() {
                let near = scope.nearest(&miss.asked, 3);
                if !near.is_empty() {
                    remarks.push(format!("Nearest to `{}`: {}.", miss.asked, text::list(&near, 3)));
                }
            } else {
                let names = text::list(&miss.candidates, 12);
                remarks.push(format!("`{}` is ambiguous: {names}.", miss.asked));
            }
        }
        if found.unread > 0 {
            let unread = found.unread;
            remarks.push(format!("{unread} more names were not looked up: ask for fewer at once."));
        }
        if !found.left_out.is_empty() {
            let names: Vec<Arc<str>> =
                found.left_out.iter().map(|item| item.exposed().clone()).collect();
            let names = text::list(&names, 8);
            remarks.push(format!("The same on other servers, ask for them with select: {names}."));
        }
        let tools: Vec<Arc<Tool>> = found.hits.iter().filter_map(|hit| tool_of(hit.item)).collect();
        remarks.extend(verb.troubles_of(&tools));
        let fitting = how_many_fit(tools.iter().map(bytes), verb.engine.settings.result_bytes);
        let omitted = tools[fitting..].iter().map(|tool| tool.exposed().clone()).collect();
        if found.hits.is_empty() {
            let (failed, groups): (Vec<&GroupId>, Vec<&GroupId>) =
                scope.unopened(query).into_iter().partition(|id| verb.call.failure(id).is_some());
            for id in failed {
                let reason = text::one_line(verb.call.failure(id).unwrap_or_default(), 200);
                remarks.push(format!("Group `{id}` could not be loaded: {reason}."));
            }
            let groups: Vec<&str> = groups.iter().map(|id| id.as_str()).collect();
            if !groups.is_empty() {
                remarks.push(format!(
                    "These groups may have it, load them to see: {}.",
                    text::list(&groups, 8)
                ));
            }
            let troubles = verb.troubles();
            if !troubles.is_empty() {
                remarks.push(format!("Not searched: {}.", text::list(&troubles, 8)));
            }
        }
        Self {
            total: found.total,
            shown: tools[..fitting].to_vec(),
            omitted,
            left_out: found.left_out.iter().map(|item| item.name().clone()).collect(),
            not_found: found.misses.into_iter().map(|miss| miss.asked).collect(),
            denied: found.denied,
            remarks,
        }
    }

    /// Whether something asked for was not there.
    fn is_short(&self) -> bool {
        !self.not_found.is_empty() || (self.shown.is_empty() && self.omitted.is_empty())
    }

    /// What the model can do next.
    fn hint(&self, verb: &Verb<'_>, known: &[bool], base: &[Arc<str>]) -> String {
        let mut hints = self.remarks.clone();
        if self.shown.is_empty() {
            hints.push(match verb.latched.preset {
                Preset::Exact => "Give exact names from the list in the system prompt.".to_owned(),
                _ => {
                    "Nothing else matches. Try other words for the same thing, or fewer.".to_owned()
                }
            });
            return hints.join(" ");
        }
        hints.extend(self.left_out_as_too_long());
        if !base.is_empty() {
            hints.push(super::already_there(base));
        }
        if base.len() < self.shown.len() {
            hints.push(verb.how_to_call());
        }
        if !known.is_empty() && known.iter().all(|known| *known) && base.is_empty() {
            hints.push("All of these were loaded before.".to_owned());
        }
        hints.extend(self.more());
        hints.join(" ")
    }

    /// What there is to say where the tools themselves are shown in another form; empty if
    /// nothing is.
    fn remarks_beside(&self, shown: Vec<String>) -> String {
        let not_found = (!self.not_found.is_empty())
            .then(|| format!("Not found: {}.", text::list(&self.not_found, MOST_REMARKS)));
        let remarks = not_found.into_iter().chain(self.remarks.iter().cloned());
        let remarks = remarks.chain(self.left_out_as_too_long()).chain(self.more());
        remarks.chain(shown).collect::<Vec<_>>().join(" ")
    }

    fn left_out_as_too_long(&self) -> Option<String> {
        (!self.omitted.is_empty()).then(|| {
            format!(
                "Left out because their definitions are long; ask for them with select: {}.",
                text::list(&self.omitted, 20)
            )
        })
    }

    fn more(&self) -> Option<String> {
        let more = self.total.saturating_sub(self.shown.len() + self.omitted.len());
        (more > 0).then(|| format!("{more} more match: say more precisely what you need."))
    }

    /// One definition a line between tags, as models that were shown this form expect it.
    fn functions(&self, verb: &Verb<'_>, hint: &str) -> String {
        let mut out = String::new();
        if !self.shown.is_empty() {
            out.push_str("<functions>\n");
            for tool in &self.shown {
                let row = verb.row(tool, None);
                // A schema with a closing tag in it stays inside its line's JSON.
                let json = serde_json::to_string(&row).unwrap_or_default().replace("</", "<\\/");
                out.push_str(&format!("<function>{json}</function>\n"));
            }
            out.push_str("</functions>\n");
        }
        if !self.not_found.is_empty() {
            out.push_str(&format!("Not found: {}\n", self.not_found.join(", ")));
        }
        out.push_str(hint);
        out
    }
}

fn blank(verb: Verb<'_>) -> Step {
    let scope = verb.session.scope(verb.view);
    let groups: Vec<&str> = scope.group_ids().map(|id| id.as_str()).collect();
    let error = format!(
        "`query` is required: say in a few words what the tool should do. There are tools for: {}.",
        text::list(&groups, 20)
    );
    verb.mistake(&error)
}
