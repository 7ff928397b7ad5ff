//! What came of a call, as people or programs read it.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Map, Value};
use toolcrib::{Content, Outcome};

use crate::args::Context;
use crate::output::{self, Told, counted, one_line};

/// Prints what came of a call. A result that tells of a failure is an error.
pub(super) fn outcome(outcome: &Outcome, context: &Context) -> anyhow::Result<()> {
    let result = &outcome.result;
    if context.json {
        output::json(result)?;
        return if result.is_error() { Err(Told.into()) } else { Ok(()) };
    }
    let parts: Vec<String> = result.content().iter().map(part).collect();
    let text = parts.join("\n");
    if result.is_error() {
        // What has no tool is an answer of the engine's, in the form that models read.
        let told = if outcome.tool.is_none() { explain(&text) } else { None };
        anyhow::bail!("{}", told.unwrap_or(text).trim_end());
    }
    if parts.is_empty() {
        let data = if result.structured().is_some() { ", only data: see --json" } else { "" };
        context.note(&format!("The tool answered without text{data}."));
        return Ok(());
    }
    output::verbatim(&text)
}

/// Text as it is; anything else described in one line.
fn part(content: &Content) -> String {
    let block = match content {
        Content::Text(text) => return text.clone(),
        Content::Block(block) => block,
    };
    let word = |value: &Value| one_line(value.as_str().unwrap_or("?"));
    let kind = word(&block["type"]);
    let described = match kind.as_str() {
        "image" | "audio" => {
            let data = block["data"].as_str().unwrap_or_default();
            let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
            let bytes = (data.len() / 4 * 3).saturating_sub(padding);
            format!("{}, {}", word(&block["mimeType"]), counted(bytes, "byte"))
        }
        "resource_link" => format!("{} ({})", word(&block["uri"]), word(&block["name"])),
        "resource" => word(&block["resource"]["uri"]),
        _ => "of a kind not known here".to_owned(),
    };
    format!("[{kind}: {described}; --json has it whole]")
}

/// The engine's answers to mistakes.
#[derive(Deserialize)]
struct Mistake {
    error: String,
    #[serde(default)]
    problems: Vec<Problem>,
    #[serde(default)]
    did_you_mean: Vec<String>,
    #[serde(default)]
    tool: Described,
}

#[derive(Deserialize)]
struct Problem {
    path: String,
    message: String,
}

#[derive(Default, Deserialize)]
struct Described {
    #[serde(default)]
    parameters: Value,
}

fn explain(json: &str) -> Option<String> {
    let mistake: Mistake = serde_json::from_str(json).ok()?;
    let mut text = mistake.error;
    for Problem { path, message } in &mistake.problems {
        let place = if path == "/" { String::new() } else { format!("{path}: ") };
        let _ = write!(text, "\n  - {place}{message}");
    }
    if let Value::Object(properties) = &mistake.tool.parameters["properties"] {
        let required = &mistake.tool.parameters["required"];
        text.push_str(&takes(properties, required));
    }
    if !mistake.did_you_mean.is_empty() {
        let _ = write!(text, "\nDid you mean: {}?", mistake.did_you_mean.join(", "));
    }
    Some(text)
}

/// The arguments of a tool, one a line.
fn takes(properties: &Map<String, Value>, required: &Value) -> String {
    let mut text = "\nIt takes:".to_owned();
    let width = properties.keys().map(|name| name.chars().count()).max().unwrap_or_default();
    for (name, schema) in properties {
        let is_required = required.as_array().is_some_and(|all| all.iter().any(|it| it == name));
        let kind = match (&schema["enum"], &schema["type"]) {
            (Value::Array(values), _) => {
                let values: Vec<String> = values.iter().map(Value::to_string).collect();
                values.join(" | ")
            }
            (_, Value::String(kind)) => kind.clone(),
            _ => "any".to_owned(),
        };
        let must = if is_required { ", required" } else { "" };
        let about = schema["description"].as_str().map(one_line).unwrap_or_default();
        let line = format!("\n  {name:width$}  {kind}{must}  {about}");
        text.push_str(line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_described() {
        let image = serde_json::json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let link = serde_json::json!({"type": "resource_link", "uri": "file:///a", "name": "a"});
        let odd = serde_json::json!({"type": "hologram"});
        let parts = [image, link, odd].map(|block| part(&Content::Block(block)));
        let expected = [
            "[image: image/png, 3 bytes; --json has it whole]",
            "[resource_link: file:///a (a); --json has it whole]",
            "[hologram: of a kind not known here; --json has it whole]",
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn a_mistake_is_explained_line_by_line() {
        let json = r#"{"error": "They do not fit.", "problems": [{"path": "/", "message": "a is missing"},
            {"path": "/b", "message": "not a number"}], "tool": {"name": "t", "parameters": {"type": "object",
            "properties": {"a": {"type": "string", "description": "The first."}, "bb": {"enum": ["x", 1]}},
            "required": ["a"]}}}"#;
        let expected = "They do not fit.\n  - a is missing\n  - /b: not a number\nIt takes:\n  \
            a   string, required  The first.\n  bb  \"x\" | 1";
        assert_eq!(explain(json).unwrap(), expected);
        assert_eq!(explain("plain words"), None);
    }
}
