//! A stand-in for a model: does what it is told to in so many words.
//!
//! It goes by the request alone. Whatever it did since the last question is in there.

mod found;

use serde_json::{Value, json};
use toolcrib_core::Definition;

use super::Turn;
use crate::message::{Assistant, CallResult, Message, Part, Said, ToolCall};
use crate::provider::Request;
use found::{Found, found, groups};

/// The most characters shown of a result.
const MOST_SHOWN: usize = 200;

/// The most names in a list.
const MOST_NAMES: usize = 8;

/// After so many rounds it says what it has.
const MOST_ROUNDS: usize = 4;

/// Words that say nothing about a tool.
const FILLERS: [&str; 22] = [
    "the", "and", "for", "with", "what", "which", "where", "when", "who", "how", "are", "you",
    "can", "please", "from", "this", "that", "all", "any", "some", "use", "tool",
];

/// What the demo does next.
pub(super) fn answer(request: &Request) -> Turn {
    let verbs = Verbs::of(&request.tools);
    let mut asked = String::new();
    let mut since: &[std::sync::Arc<Message>] = &[];
    for (at, message) in request.messages.iter().enumerate() {
        if let Message::User { content } = &**message {
            asked = text_of(content);
            since = &request.messages[at + 1..];
        }
    }
    let rounds = rounds(since.iter().map(|message| &**message));
    let commands = commands(&asked);
    match (commands.is_empty(), rounds.is_empty()) {
        (true, _) => explore(&asked, &verbs, &rounds),
        (false, true) => obey(&commands, &verbs),
        (false, false) => Turn::text(summary(&rounds, &verbs)),
    }
}

/// What a person typed, if it was meant for the demo.
#[derive(Debug, PartialEq)]
enum Command<'a> {
    Search(&'a str),
    Call { name: &'a str, arguments: &'a str },
}

fn commands(asked: &str) -> Vec<Command<'_>> {
    let mut lines = asked.lines().filter(|line| !line.trim().is_empty());
    let Some(first) = lines.next().and_then(command) else { return Vec::new() };
    std::iter::once(first).chain(lines.filter_map(command)).collect()
}

fn command(line: &str) -> Option<Command<'_>> {
    let (verb, rest) = line.trim().split_once(char::is_whitespace)?;
    let rest = rest.trim();
    match verb.to_ascii_lowercase().as_str() {
        "search" => Some(Command::Search(rest)),
        "call" => {
            let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            Some(Command::Call { name, arguments: arguments.trim() })
        }
        _ => None,
    }
}

/// The verbs among the tools it was sent.
struct Verbs<'a> {
    tools: &'a [Definition],
    /// What finds tools, and what its argument is called.
    finder: Option<(&'a str, &'static str)>,
    /// Whether the finder shows a schema only to those who give a name.
    activates: bool,
    dispatcher: Option<&'a str>,
}

impl<'a> Verbs<'a> {
    fn of(tools: &'a [Definition]) -> Self {
        let sent = |wanted: &str| tools.iter().find(|tool| **tool.name() == *wanted);
        let finders = [
            ("tool_search", "query"),
            ("tool_search_regex", "pattern"),
            ("load_tools", "group_id"),
        ];
        let mut finders = finders
            .into_iter()
            .filter_map(|(name, argument)| sent(name).map(|tool| (&**tool.name(), argument)));
        let has_name = |tool: &Definition| {
            let schema = serde_json::from_str::<Value>(tool.schema().get()).unwrap_or_default();
            schema["properties"].get("name").is_some()
        };
        let dispatcher = sent("call_tool").or_else(|| sent("deferred_tool_call"));
        Self {
            tools,
            finder: finders.next(),
            activates: sent("tool_search").is_some_and(has_name),
            dispatcher: dispatcher.map(|tool| &**tool.name()),
        }
    }

    fn is_finder(&self, name: &str) -> bool {
        self.finder.is_some_and(|(finder, _)| finder == name)
    }

    /// A call of a tool: in its own name if that is in the list, or by the dispatcher.
    fn call(&self, name: &str, arguments: &str) -> Said {
        let arguments = if arguments.is_empty() { "{}" } else { arguments };
        let is_listed = self.tools.iter().any(|tool| **tool.name() == *name);
        match self.dispatcher {
            Some(dispatcher) if !is_listed => {
                let arguments = serde_json::from_str(arguments).unwrap_or(json!(arguments));
                let envelope = json!({"tool_name": name, "arguments": arguments});
                said_call(dispatcher, envelope.to_string())
            }
            _ => said_call(name, arguments.to_owned()),
        }
    }

    /// A search for words, or for what a person who knows patterns typed.
    fn search(&self, words: &str) -> Option<Said> {
        let (finder, argument) = self.finder?;
        let is_pattern = words.contains(['|', '*', '^', '$', '[', '(', '\\']);
        let text = match argument {
            "pattern" if !is_pattern => telling_words(words).join("|"),
            _ => words.to_owned(),
        };
        Some(said_call(finder, json!({argument: text}).to_string()))
    }

    /// Tools of the list itself that words fit, best first.
    fn fitting(&self, words: &str) -> Vec<Found> {
        let fit =
            |tool: &Definition| shared(words, &format!("{} {}", tool.name(), tool.description()));
        let mut fitting: Vec<(usize, Found)> =
            self.tools.iter().map(|tool| (fit(tool), Found::from(tool))).collect();
        fitting.retain(|(fit, _)| *fit > 0);
        fitting.sort_by_key(|(fit, _)| std::cmp::Reverse(*fit));
        fitting.into_iter().map(|(_, found)| found).collect()
    }
}

fn said_call(name: &str, arguments: String) -> Said {
    Said::Call(ToolCall { id: String::new(), name: name.to_owned(), arguments })
}

/// Does what the lines say, all at once.
fn obey(commands: &[Command<'_>], verbs: &Verbs<'_>) -> Turn {
    let mut listings = Vec::new();
    let mut calls = Vec::new();
    for command in commands {
        match command {
            Command::Search(words) => match verbs.search(words) {
                Some(call) => calls.push(call),
                None => listings.push(listing(words, &verbs.fitting(words))),
            },
            Command::Call { name, arguments } => calls.push(verbs.call(name, arguments)),
        }
    }
    let turn = Turn::said(calls);
    if listings.is_empty() { turn } else { turn.with_text(listings.join("\n\n")) }
}

/// Looks for a tool that fits, and calls it if it can.
fn explore(asked: &str, verbs: &Verbs<'_>, rounds: &[Vec<Done<'_>>]) -> Turn {
    let Some(last) = rounds.last() else {
        let fitting = verbs.fitting(asked);
        return match verbs.search(asked) {
            _ if asked.trim().is_empty() => Turn::text(help(verbs)),
            Some(search) => Turn::said([search]).with_text("I'll look for a tool."),
            None if fitting.is_empty() => Turn::text(help(verbs)),
            None => use_best(asked, verbs, &fitting),
        };
    };
    let done = match &last[..] {
        [done] if verbs.is_finder(&done.name) && rounds.len() < MOST_ROUNDS => done,
        _ => return Turn::text(summary(rounds, verbs)),
    };
    let mut fitting = found(done.result, verbs.tools);
    if fitting.is_empty() {
        let groups = groups(done.result);
        let fits = |group: &&String| shared(asked, group) > 0 || groups.len() == 1;
        let group = groups.iter().find(fits).filter(|_| rounds.len() == 1);
        return match group.and_then(|group| verbs.search(group)) {
            Some(load) => Turn::said([load]),
            None => Turn::text(summary(rounds, verbs)),
        };
    }
    // A search has put the best one first; a group has no such order.
    if verbs.is_finder("load_tools") {
        let fit = |tool: &Found| shared(asked, &format!("{} {}", tool.name, tool.description));
        fitting.sort_by_key(|tool| std::cmp::Reverse(fit(tool)));
    }
    use_best(asked, verbs, &fitting)
}

/// Calls the first tool if it needs nothing, or says what it needs.
fn use_best(asked: &str, verbs: &Verbs<'_>, fitting: &[Found]) -> Turn {
    let Some(best) = fitting.first() else { return Turn::text(help(verbs)) };
    match &best.required {
        Some(required) if required.is_empty() => Turn::said([verbs.call(&best.name, "{}")])
            .with_text(format!("`{}` fits, and needs no arguments.", best.name)),
        None if verbs.activates => {
            Turn::said([said_call("tool_search", json!({"name": best.name}).to_string())])
        }
        None => Turn::text(listing(asked, fitting)),
        Some(required) => {
            let example: serde_json::Map<String, Value> =
                required.iter().map(|name| (name.clone(), json!("…"))).collect();
            Turn::text(format!(
                "{}\n\n`{}` needs {}. Say\n\n```\ncall {} {}\n```",
                listing(asked, fitting),
                best.name,
                quoted(required),
                best.name,
                Value::Object(example)
            ))
        }
    }
}

/// A call since the last question, and what came of it.
struct Done<'a> {
    /// The tool's own name, also if the dispatcher was called.
    name: String,
    result: &'a CallResult,
}

/// What was done since the last question, batch by batch.
fn rounds<'a>(since: impl Iterator<Item = &'a Message>) -> Vec<Vec<Done<'a>>> {
    let mut calls: Vec<&ToolCall> = Vec::new();
    let mut rounds = Vec::new();
    for message in since {
        match message {
            Message::Assistant(said) => calls = Assistant::calls(said).collect(),
            Message::Tool { results } => {
                let done = |result: &'a CallResult| {
                    let call = calls.iter().find(|call| call.id == result.call_id);
                    let name = call.and_then(|call| dispatched(call));
                    Done { name: name.unwrap_or_else(|| result.name.clone()), result }
                };
                rounds.push(results.iter().map(done).collect());
            }
            _ => {}
        }
    }
    rounds
}

fn dispatched(call: &ToolCall) -> Option<String> {
    if !matches!(call.name.as_str(), "call_tool" | "deferred_tool_call") {
        return None;
    }
    let envelope: Value = serde_json::from_str(&call.arguments).ok()?;
    Some(envelope.get("tool_name")?.as_str()?.to_owned())
}

/// What came back, in a few lines of Markdown.
fn summary(rounds: &[Vec<Done<'_>>], verbs: &Verbs<'_>) -> String {
    let tell = |done: &Done<'_>| {
        let (name, said) = (&done.name, excerpt(&done.result.described()));
        let found = found(done.result, verbs.tools);
        if verbs.is_finder(name) && !done.result.is_error && !found.is_empty() {
            let names: Vec<String> = found.into_iter().map(|tool| tool.name).collect();
            return format!("**`{name}`** found {}: {}.", count(names.len()), quoted(&names));
        }
        let verb = if done.result.is_error { "failed" } else { "answered" };
        if said.is_empty() {
            format!("**`{name}`** {verb} without a word.")
        } else {
            format!("**`{name}`** {verb}:\n\n> {said}")
        }
    };
    rounds.iter().flatten().map(tell).collect::<Vec<String>>().join("\n\n")
}

fn listing(asked: &str, fitting: &[Found]) -> String {
    let asked = excerpt(asked);
    if fitting.is_empty() {
        return format!("Nothing fits \"{asked}\".");
    }
    let row = |tool: &Found| match excerpt(&tool.description) {
        about if about.is_empty() => format!("- `{}`", tool.name),
        about => format!("- `{}`: {about}", tool.name),
    };
    let rows: Vec<String> = fitting.iter().take(MOST_NAMES).map(row).collect();
    format!("For \"{asked}\" I found {}:\n\n{}", count(fitting.len()), rows.join("\n"))
}

fn help(verbs: &Verbs<'_>) -> String {
    let tools = match verbs.tools {
        [] => "I was sent no tools, so there is nothing to find or call.".to_owned(),
        tools => {
            let names: Vec<&str> = tools.iter().map(|tool| &**tool.name()).collect();
            format!("I was sent {}: {}.", count(tools.len()), quoted(&names))
        }
    };
    format!(
        "I'm a script, not a model. What I understand:\n\n\
         - `search WORDS` looks for tools\n\
         - `call NAME {{\"key\": \"value\"}}` calls one\n\
         - several such lines are done at once\n\
         - for anything else I look for a tool that fits, and call it if it needs no arguments\n\n\
         {tools}"
    )
}

fn count(tools: usize) -> String {
    if tools == 1 { "1 tool".to_owned() } else { format!("{tools} tools") }
}

fn quoted(names: &[impl AsRef<str>]) -> String {
    let shown = names.iter().take(MOST_NAMES).map(|name| format!("`{}`", name.as_ref()));
    let more = names.len().saturating_sub(MOST_NAMES);
    let more = (more > 0).then(|| format!("and {more} more"));
    shown.chain(more).collect::<Vec<String>>().join(", ")
}

/// The beginning of a text, on one line.
fn excerpt(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    match text.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn text_of(content: &[Part]) -> String {
    content.iter().map(Part::described).collect::<Vec<String>>().join("\n")
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let split = text.split(|c: char| !c.is_alphanumeric());
    split.filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// The words that say what is meant; all of them if none does.
fn telling_words(text: &str) -> Vec<String> {
    let is_telling = |word: &String| word.chars().count() > 2 && !FILLERS.contains(&word.as_str());
    let telling: Vec<String> = words(text).filter(is_telling).collect();
    if telling.is_empty() { words(text).collect() } else { telling }
}

/// How many telling words are in a text.
fn shared(asked: &str, text: &str) -> usize {
    let there: Vec<String> = words(text).collect();
    telling_words(asked).iter().filter(|word| there.contains(word)).count()
}

#[cfg(test)]
mod tests;
