//! The tools in the result of a search, in whatever form the verb wrote them.

use serde_json::Value;
use toolcrib_core::Definition;

use crate::message::{CallResult, Part};

/// A tool that was found.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) description: String,
    /// The arguments it can't do without, if its schema is known.
    pub(super) required: Option<Vec<String>>,
}

impl From<&Definition> for Found {
    fn from(tool: &Definition) -> Self {
        let schema = serde_json::from_str::<Value>(tool.schema().get()).unwrap_or_default();
        Self {
            name: tool.name().to_string(),
            description: tool.description().to_owned(),
            required: Some(required(&schema)),
        }
    }
}

/// The arguments a schema requires.
pub(super) fn required(schema: &Value) -> Vec<String> {
    let names = schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

/// The tools a result tells of. `listed` are those whose schemas are known anyway.
pub(super) fn found(result: &CallResult, listed: &[Definition]) -> Vec<Found> {
    let rows: Vec<Value> = result.content.iter().flat_map(rows).collect();
    rows.iter().filter_map(|row| one(row, listed)).collect()
}

/// The groups a result offers.
pub(super) fn groups(result: &CallResult) -> Vec<String> {
    let offered = |part: &Part| match first_value(part) {
        Some(Value::Object(mut result)) => result.remove("available_groups"),
        _ => None,
    };
    let groups = result.content.iter().filter_map(offered);
    groups
        .filter_map(|groups| serde_json::from_value::<Vec<String>>(groups).ok())
        .flatten()
        .collect()
}

fn one(row: &Value, listed: &[Definition]) -> Option<Found> {
    let name = row.as_str().or_else(|| row.get("name")?.as_str())?;
    let listed = listed.iter().find(|tool| **tool.name() == *name).map(Found::from);
    let described = row.get("description").and_then(Value::as_str).map(str::to_owned);
    let shown = row.get("parameters").map(required);
    let (known, needed) = listed.map_or((None, None), |it| (Some(it.description), it.required));
    Some(Found {
        name: name.to_owned(),
        description: described.or(known).unwrap_or_default(),
        required: shown.or(needed),
    })
}

/// What stands for a tool each: objects, or bare names.
fn rows(part: &Part) -> Vec<Value> {
    if let Part::Text { text } = part
        && text.contains("<function>")
    {
        let tagged = text.lines().filter_map(|line| {
            let json = line.trim().strip_prefix("<function>")?.strip_suffix("</function>")?;
            serde_json::from_str(json).ok()
        });
        return tagged.collect();
    }
    let Some(Value::Object(mut result)) = first_value(part) else { return Vec::new() };
    for key in ["tools", "results", "schemas", "tool_names"] {
        if let Some(Value::Array(rows)) = result.remove(key) {
            return rows;
        }
    }
    // A tool that was asked for by name.
    if result.contains_key("parameters") { vec![Value::Object(result)] } else { Vec::new() }
}

/// The JSON a text begins with; a remark may follow it.
fn first_value(part: &Part) -> Option<Value> {
    let Part::Text { text } = part else { return None };
    serde_json::Deserializer::from_str(text).into_iter().next()?.ok()
}
