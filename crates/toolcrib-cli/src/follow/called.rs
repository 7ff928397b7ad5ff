//! A call as it is told of: one line.

use std::time::Duration;

use serde_json::Value;
use toolcrib::agent::CallResult;

use crate::output::{self, DIM, RED, duration, shortened};

/// A line about a call that has ended.
pub(crate) fn called(
    name: &str,
    arguments: &str,
    result: &CallResult,
    took: Option<Duration>,
) -> String {
    let name = output::one_line(name);
    let took = took.map(|took| format!(" ({})", duration(took))).unwrap_or_default();
    let taken = name.chars().count() + took.chars().count() + 4;
    let room = output::columns().saturating_sub(taken);
    if !result.is_error {
        return format!("{DIM}✓ {}{took}{DIM:#}", with_arguments(&name, arguments, room));
    }
    let reason = shortened(&reason(&name, result), room / 2);
    let room = room.saturating_sub(reason.chars().count() + 2);
    let called = with_arguments(&name, arguments, room);
    format!("{RED}✗{RED:#} {DIM}{called}{took}: {reason}{DIM:#}")
}

/// A line about a call of which something else is to be said.
pub(crate) fn uncertain(name: &str, arguments: &str, what: &str) -> String {
    let name = output::one_line(name);
    let room = output::columns().saturating_sub(name.chars().count() + what.chars().count() + 5);
    format!("{DIM}? {}: {what}{DIM:#}", with_arguments(&name, arguments, room))
}

fn with_arguments(name: &str, arguments: &str, room: usize) -> String {
    match shortened(arguments, room) {
        none if none.is_empty() => name.to_owned(),
        arguments => format!("{name} {arguments}"),
    }
}

/// Why a call failed, without what only a model wants to know or stands there already.
fn reason(name: &str, result: &CallResult) -> String {
    let text = result.described();
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let text = json["error"].as_str().unwrap_or(&text);
    text.strip_prefix(&format!("`{name}` was ")).unwrap_or(text).to_owned()
}

/// Arguments as they are told of.
pub(crate) fn brief(arguments: &Value) -> String {
    match arguments {
        Value::Object(map) if map.is_empty() => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
