//! From one notation to another.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::LONGEST_INPUT;
use super::json::parse;
use super::table::{MOST_CELLS, Table};
use crate::error::{Failure, check_size};
use crate::tool::Stop;

pub(super) const CONVERT_DATA: (&str, &str) = (
    "convert_data",
    "Convert data between JSON, YAML, TOML and CSV, or reformat it: JSON to JSON makes it pretty or \
     compact. Use it to change the format of configuration or tables.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConvertData {
    /// The text to convert.
    text: String,
    /// The format it is in.
    from: Format,
    /// The format it should get.
    to: Format,
    /// Write JSON on one line.
    #[serde(default)]
    compact: bool,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    Json,
    Yaml,
    Toml,
    Csv,
}

pub(super) fn convert_data(_: &(), arguments: ConvertData, _: &Stop) -> Result<String, Failure> {
    check_size("The text", &arguments.text, LONGEST_INPUT)?;
    let text = arguments.text.as_str();
    let wrong = |kind: &str, error: &dyn std::fmt::Display| {
        Failure::invalid(format!("Not {kind}: {}.", error.to_string().trim_end()))
    };
    let value = match arguments.from {
        Format::Json => parse(text)?,
        Format::Yaml => yaml_serde::from_str(text).map_err(|error| wrong("YAML", &error))?,
        Format::Toml => {
            let mut value = toml::from_str(text).map_err(|error| wrong("TOML", &error))?;
            dates_as_text(&mut value);
            value
        }
        Format::Csv => Table::parse(text, None)?.into_objects(),
    };
    let failed = |kind: &str, error: &dyn std::fmt::Display| {
        Failure::invalid(format!("This can't be written as {kind}: {error}."))
    };
    match arguments.to {
        Format::Json if arguments.compact => Ok(value.to_string()),
        Format::Json => {
            serde_json::to_string_pretty(&value).map_err(|error| failed("JSON", &error))
        }
        Format::Yaml => yaml_serde::to_string(&value).map_err(|error| failed("YAML", &error)),
        Format::Toml => {
            if !value.is_object() {
                return Err(failed("TOML", &"its top must be an object"));
            }
            toml::to_string_pretty(&value).map_err(|error| failed("TOML", &error))
        }
        Format::Csv => to_csv(&value)
            .ok_or_else(|| failed("CSV", &"it must be a list of objects, of not too many keys")),
    }
}

/// TOML's dates come as objects of one odd key.
fn dates_as_text(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let (1, Some(Value::String(date))) =
                (object.len(), object.get_mut("$__toml_private_datetime"))
            {
                *value = json!(std::mem::take(date));
                return;
            }
            object.values_mut().for_each(dates_as_text);
        }
        Value::Array(list) => list.iter_mut().for_each(dates_as_text),
        _ => {}
    }
}

fn to_csv(value: &Value) -> Option<String> {
    let rows: Vec<&Map<String, Value>> =
        value.as_array()?.iter().map(Value::as_object).collect::<Option<_>>()?;
    let mut columns: Vec<&String> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for column in rows.iter().flat_map(|row| row.keys()) {
        if seen.insert(column) {
            columns.push(column);
        }
    }
    if columns.len().saturating_mul(rows.len()) > MOST_CELLS {
        return None;
    }
    let cell = |value: Option<&Value>| match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&columns).ok()?;
    for row in rows {
        writer.write_record(columns.iter().map(|column| cell(row.get(*column)))).ok()?;
    }
    String::from_utf8(writer.into_inner().ok()?).ok()
}
