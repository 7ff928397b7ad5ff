//! Tools whose schemas are the point of them.

use serde_json::{Value, json};

use super::{Call, Outcome, Tool, object, text};

pub(super) fn tools() -> Vec<Tool> {
    let headers = object(
        json!({
            "region": {"type": "string", "x-mcp-header": "Region"},
            "priority": {"type": "integer", "x-mcp-header": "Priority"},
        }),
        &["region"],
    );
    vec![
        Tool::new("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", |call| {
            Box::pin(echo(call))
        })
        .with(everything()),
        Tool::new("test_header_parameters", "Wants arguments repeated in headers", |call| {
            Box::pin(echo(call))
        })
        .with(headers),
    ]
}

async fn echo(call: Call) -> Outcome {
    Ok(text(call.arguments.to_string()))
}

/// A reference, an anchor, a composition and a condition.
fn everything() -> Value {
    let address = json!({
        "$anchor": "addressDef",
        "type": "object",
        "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": address},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}
