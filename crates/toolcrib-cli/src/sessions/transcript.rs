//! A conversation as people read it.

use std::fmt::Write as _;

use serde_json::Value;
use toolcrib::KeptCall;
use toolcrib::agent::{CallResult, Message, Part, ToolCall};

use crate::follow::{Markdown, brief, called, uncertain};
use crate::output::{self, BOLD, DIM, one_line, printable, shortened};

/// Verbs whose arguments are another tool's call.
const DISPATCHERS: [&str; 5] = [
    "call_tool",
    "deferred_tool_call",
    "call_read_tool",
    "call_write_tool",
    "call_destructive_tool",
];

/// What was said, one after the other; calls in a line each. A message of a form that is not
/// known here is `None`. Of calls that no message answers, `begun` are those that have begun, if
/// that is known.
pub(super) fn transcript(messages: &[Option<&Message>], begun: Option<&[KeptCall]>) -> String {
    let mut text = String::new();
    for (at, message) in messages.iter().enumerate() {
        match message {
            Some(Message::User { content }) => {
                if !text.is_empty() {
                    text.push('\n');
                }
                let said = printable(&in_words(content)).replace('\n', "\n  ");
                let _ = writeln!(text, "{BOLD}› {said}{BOLD:#}");
            }
            Some(Message::Assistant(said)) => {
                text.push_str(&answer(&said.text()));
                let results = match messages.get(at + 1) {
                    Some(Some(Message::Tool { results })) => results.as_slice(),
                    _ => &[],
                };
                for call in said.calls() {
                    let _ = writeln!(text, "{}", line(call, results, begun));
                }
            }
            // They stand with the calls.
            Some(Message::Tool { .. }) => {}
            Some(Message::Notice { text: notice }) => aside(&mut text, notice),
            Some(Message::Tools(change)) => {
                let added = change.added.iter().map(|it| format!("+{}", it.tool.name()));
                let removed = change.removed.iter().map(|name| format!("-{name}"));
                aside(&mut text, &added.chain(removed).collect::<Vec<_>>().join(" "));
            }
            Some(Message::Host { kind, .. }) => aside(&mut text, kind),
            Some(_) | None => aside(&mut text, "a message in a form that is not known here"),
        }
    }
    text
}

/// What the program said, rather than a person or a model.
fn aside(text: &mut String, what: &str) {
    let what = shortened(what, output::columns().saturating_sub(2));
    let _ = writeln!(text, "{DIM}[{what}]{DIM:#}");
}

fn in_words(content: &[Part]) -> String {
    let word = |part: &Part| match part {
        Part::Image { media_type, .. } => format!("[{media_type}]"),
        other => other.described(),
    };
    content.iter().map(word).collect::<Vec<_>>().join("\n")
}

/// A model's words, on lines of their own.
fn answer(text: &str) -> String {
    if text.trim().is_empty() {
        return String::new();
    }
    let text = printable(text);
    let mut shown = match output::is_styled() {
        true => {
            let mut markdown = Markdown::default();
            let begun = markdown.push(&text);
            begun + &markdown.finish()
        }
        false => text,
    };
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
    shown
}

fn line(call: &ToolCall, results: &[CallResult], begun: Option<&[KeptCall]>) -> String {
    let (name, arguments) = opened(call);
    if let Some(result) = results.iter().find(|result| result.call_id == call.id) {
        return called(&name, &arguments, result, None);
    }
    let Some(begun) = begun else {
        return uncertain(&name, &arguments, "it has no result yet");
    };
    let Some(begun) = begun.iter().find(|begun| begun.mark.call_id == call.id) else {
        return uncertain(&name, &arguments, "it has not begun");
    };
    let result = begun.result.as_ref().and_then(|result| serde_json::from_str(result).ok());
    match result {
        Some(result) => called(&name, &arguments, &result, None),
        None => uncertain(&name, &arguments, "it began, and what came of it is not known"),
    }
}

/// The name and the arguments of a call, out of a dispatcher's envelope.
pub(super) fn opened(call: &ToolCall) -> (String, String) {
    let mut arguments: Value =
        serde_json::from_str(&call.arguments).unwrap_or_else(|_| one_line(&call.arguments).into());
    if DISPATCHERS.contains(&call.name.as_str())
        && let Some(name) = arguments["tool_name"].as_str().map(str::to_owned)
    {
        return (name, brief(&arguments["arguments"].take()));
    }
    (call.name.clone(), brief(&arguments))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib::CallMark;

    use super::*;

    fn message(json: Value) -> Message {
        serde_json::from_value(json).unwrap()
    }

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn calls_stand_in_a_line_each_with_what_is_known_of_them() {
        let call = |id: &str| {
            let arguments = json!({"tool_name": "files__read", "arguments": {"n": id}});
            json!({"type": "call", "id": id, "name": "call_tool", "arguments": arguments.to_string()})
        };
        let asked =
            message(json!({"role": "user", "content": [{"type": "text", "text": "Read\nit"}]}));
        let first = message(json!({"role": "assistant", "content": [
            {"type": "text", "text": "I look."}, call("1"), call("2")]}));
        let result = |id: &str, is_error: bool| {
            json!({"call_id": id, "name": "call_tool", "is_error": is_error,
                "content": [{"type": "text", "text": "no such file"}]})
        };
        let results =
            message(json!({"role": "tool", "results": [result("1", false), result("2", true)]}));
        let last =
            message(json!({"role": "assistant", "content": [call("3"), call("4"), call("5")]}));
        let kept = |id: &str, result: Option<Value>| KeptCall {
            mark: CallMark { call_id: id.into(), tool: "files/read".into(), idempotent: false },
            result: result.map(|result| result.to_string()),
        };
        let shown = transcript(
            &[Some(&asked), Some(&first), Some(&results), None, Some(&last)],
            Some(&[kept("3", Some(result("3", false))), kept("4", None)]),
        );
        assert_eq!(
            plain(&shown),
            "› Read\n  it\nI look.\n\
             ✓ files__read {\"n\":\"1\"}\n\
             ✗ files__read {\"n\":\"2\"}: no such file\n\
             [a message in a form that is not known here]\n\
             ✓ files__read {\"n\":\"3\"}\n\
             ? files__read {\"n\":\"4\"}: it began, and what came of it is not known\n\
             ? files__read {\"n\":\"5\"}: it has not begun\n"
        );
    }

    #[test]
    fn nothing_said_moves_the_cursor() {
        let asked =
            message(json!({"role": "user", "content": [{"type": "text", "text": "a\u{1b}[2J"}]}));
        let said = message(json!({"role": "assistant", "content": [
            {"type": "call", "id": "1", "name": "t\u{7}", "arguments": "no\u{1b} JSON"}]}));
        let shown = plain(&transcript(&[Some(&asked), Some(&said)], None));
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
    }
}
