//! The tools, as they should be.

use std::time::Duration;

use serde_json::{Value, json};

/// What a call comes to, and how long that takes.
pub(crate) struct Called {
    pub(crate) result: Value,
    pub(crate) takes: Duration,
}

/// The longest that `sleep` sleeps.
const MOST_SLEEP: u64 = 3_600_000;

/// Every tool, as listed.
pub(crate) fn all() -> Vec<String> {
    let look = json!({"readOnlyHint": true});
    let number = json!({"type": "number"});
    [
        tool(
            "echo",
            "Gives back a text.",
            &json!({
                "type": "object",
                "properties": {"text": {"type": "string", "description": "The text"}},
                "required": ["text"],
            }),
            &look,
        ),
        tool(
            "add",
            "Adds two numbers.",
            &json!({
                "type": "object",
                "properties": {"a": number, "b": number},
                "required": ["a", "b"],
            }),
            &look,
        ),
        tool(
            "sleep",
            "Answers after a while.",
            &json!({
                "type": "object",
                "properties": {
                    "ms": {"type": "integer", "minimum": 0, "description": "Milliseconds"},
                },
                "required": ["ms"],
            }),
            &look,
        ),
        tool(
            "counter",
            "Counts its calls: not the same twice.",
            &json!({"type": "object", "properties": {}}),
            &json!({"readOnlyHint": false, "idempotentHint": false}),
        ),
    ]
    .into()
}

/// A tool, as listed.
pub(crate) fn tool(name: &str, description: &str, schema: &Value, annotations: &Value) -> String {
    json!({
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": annotations,
    })
    .to_string()
}

/// A tool without parameters.
pub(crate) fn plain(name: &str, description: &str) -> String {
    tool(name, description, &json!({"type": "object"}), &json!({}))
}

/// The parameter that holds the text has another name when the schema has changed.
pub(crate) fn echo(arguments: &Value, parameter: &str) -> Called {
    match arguments.get(parameter).and_then(Value::as_str) {
        Some(text) => says(text),
        None => refuses(&format!("`{parameter}` must be a text")),
    }
}

pub(crate) fn add(arguments: &Value) -> Called {
    let number = |name| arguments.get(name).and_then(Value::as_f64);
    let (Some(a), Some(b)) = (number("a"), number("b")) else {
        return refuses("`a` and `b` must be numbers");
    };
    let sum = a + b;
    let mut called = says(&sum.to_string());
    called.result["structuredContent"] = json!({"sum": sum});
    called
}

pub(crate) fn sleep(arguments: &Value) -> Called {
    match arguments.get("ms").and_then(Value::as_u64) {
        Some(ms) => {
            let ms = ms.min(MOST_SLEEP);
            Called { takes: Duration::from_millis(ms), ..says(&format!("slept {ms} ms")) }
        }
        None => refuses("`ms` must be a whole number"),
    }
}

pub(crate) fn count(calls: u64) -> Called {
    says(&calls.to_string())
}

/// A tool that a fault brought into the list says which one it is.
pub(crate) fn invented(name: &str) -> Called {
    says(&format!("this is {name:?}"))
}

fn says(text: &str) -> Called {
    let result = json!({"content": [{"type": "text", "text": text}]});
    Called { result, takes: Duration::ZERO }
}

fn refuses(text: &str) -> Called {
    let mut called = says(text);
    called.result["isError"] = json!(true);
    called
}
