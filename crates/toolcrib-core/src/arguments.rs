//! What a model sends as arguments: read leniently, repaired where that is safe, then checked
//! against the whole schema.

use serde::Serialize;
use serde_json::{Map, Number, Value};

use crate::Schema;
use crate::text::one_line;

/// One way in which arguments don't fit a schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// Where: a JSON pointer into the arguments, `/` for the arguments as a whole.
    pub(crate) path: String,
    /// What is wrong there.
    pub(crate) message: String,
}

/// Arguments that may be sent.
#[derive(Debug, PartialEq)]
pub(crate) struct Checked {
    pub(crate) arguments: Value,
    /// Why they were not checked, if the schema can't be compiled.
    pub(crate) unchecked: Option<String>,
}

/// At most this many problems are reported: enough to mend a call in one go.
const MOST_PROBLEMS: usize = 8;

/// How deep coercion follows nested values and references.
const MOST_DEPTH: usize = 32;

/// Reads arguments that may be an object, an object in a string, or nothing at all.
pub(crate) fn read(arguments: Option<&Value>) -> Result<Map<String, Value>, Problem> {
    let whole = |message: String| Problem { path: "/".to_owned(), message };
    match arguments {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(Value::String(text)) if text.trim().is_empty() => Ok(Map::new()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Object(object)) => Ok(object),
            Ok(_) => Err(whole("the string holds JSON, but not an object".to_owned())),
            Err(error) => Err(whole(format!("the string is not a JSON object: {error}"))),
        },
        Some(other) => Err(whole(format!("expected an object, found {}", kind(other)))),
    }
}

/// Checks `arguments` against `schema`; if they don't fit, tries them again with the repairs that
/// can't change what was meant.
pub(crate) fn check(
    schema: &Schema,
    arguments: Map<String, Value>,
) -> Result<Checked, Vec<Problem>> {
    let compiled = schema.compiled();
    let arguments = Value::Object(arguments);
    let validator = match &compiled.validator {
        Ok(validator) => validator,
        Err(defect) => return Ok(Checked { arguments, unchecked: Some(defect.clone()) }),
    };
    if validator.is_valid(&arguments) {
        return Ok(Checked { arguments, unchecked: None });
    }
    let mut repaired = arguments.clone();
    coerce(&mut repaired, &compiled.value, &compiled.value, MOST_DEPTH);
    if validator.is_valid(&repaired) {
        return Ok(Checked { arguments: repaired, unchecked: None });
    }
    Err(validator
        .iter_errors(&repaired)
        .take(MOST_PROBLEMS)
        .map(|error| {
            let path = error.instance_path().to_string();
            Problem {
                path: if path.is_empty() { "/".to_owned() } else { one_line(&path, 200) },
                message: one_line(&error.to_string(), 300),
            }
        })
        .collect())
}

fn coerce(value: &mut Value, schema: &Value, root: &Value, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let schema = meant(schema, root);
    match (value, single_type(schema)) {
        (Value::Object(object), _) => coerce_object(object, schema, root, depth),
        (Value::Array(items), _) => {
            if let Some(inner) = schema.get("items") {
                items.iter_mut().for_each(|item| coerce(item, inner, root, depth));
            }
        }
        (value @ Value::String(_), Some("integer" | "number" | "boolean" | "object")) => {
            let text = value.as_str().unwrap_or_default().trim();
            // Python writes `True`.
            let word = matches!(text, "True" | "TRUE" | "False" | "FALSE");
            let text = if word { text.to_ascii_lowercase() } else { text.to_owned() };
            if let Ok(parsed) = serde_json::from_str::<Value>(&text)
                && Some(kind(&parsed)) == single_type(schema).map(widen)
            {
                *value = parsed;
                coerce(value, schema, root, depth);
            }
        }
        (value @ (Value::Number(_) | Value::Bool(_)), Some("string")) => {
            *value = Value::String(value.to_string());
        }
        (Value::Number(number), Some("integer")) => {
            if let Some(whole) = whole_number(number) {
                *number = whole;
            }
        }
        (value, Some("array")) if !value.is_null() => {
            let listed = value.as_str().and_then(|text| serde_json::from_str(text).ok());
            *value = match listed {
                Some(list @ Value::Array(_)) => list,
                _ => Value::Array(vec![value.take()]),
            };
            coerce(value, schema, root, depth);
        }
        _ => {}
    }
}

fn coerce_object(object: &mut Map<String, Value>, schema: &Value, root: &Value, depth: usize) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let required = |name: &str| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|names| names.iter().any(|given| given == name))
    };
    // A model that fills every field sends null for what it means to leave out.
    object.retain(|name, value| {
        !value.is_null()
            || required(name)
            || properties.get(name).is_none_or(|inner| allows_null(follow(inner, root)))
    });
    for (name, value) in object {
        if let Some(inner) = properties.get(name) {
            coerce(value, inner, root, depth);
        }
    }
}

/// The schema that a chain of local references ends in.
pub(crate) fn follow<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MOST_DEPTH {
        let Some(pointer) = schema.get("$ref").and_then(Value::as_str) else { break };
        let target = pointer.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let Some(target) = target else { break };
        schema = target;
    }
    schema
}

/// The schema behind references and behind alternatives of which all but one are `null`, which is
/// how many servers write an optional parameter.
fn meant<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let mut schema = follow(schema, root);
    for _ in 0..MOST_DEPTH {
        let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        let Some(alternatives) = alternatives.and_then(Value::as_array) else { break };
        let is_null = |schema: &Value| schema.get("type").is_some_and(|name| name == "null");
        let mut rest = alternatives.iter().filter(|schema| !is_null(schema));
        let (Some(only), None) = (rest.next(), rest.next()) else { break };
        schema = follow(only, root);
    }
    schema
}

/// The one type a schema asks for, null aside: only then is it clear what was meant.
fn single_type(schema: &Value) -> Option<&str> {
    match schema.get("type")? {
        Value::String(name) => Some(name),
        Value::Array(names) => {
            let mut rest = names.iter().filter(|name| *name != "null");
            let only = rest.next()?.as_str();
            if rest.next().is_none() { only } else { None }
        }
        _ => None,
    }
}

fn allows_null(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(name)) => name == "null",
        Some(Value::Array(names)) => names.iter().any(|name| name == "null"),
        _ => true,
    }
}

fn whole_number(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15)?;
    Some(Number::from(float as i64))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn widen(name: &str) -> &str {
    if name == "integer" { "number" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(schema: Value, arguments: Value) -> Result<Value, Vec<Problem>> {
        let arguments = read(Some(&arguments)).map_err(|problem| vec![problem])?;
        check(&Schema::from_value(&schema), arguments).map(|checked| checked.arguments)
    }

    #[test]
    fn arguments_come_as_an_object_a_string_or_nothing() {
        assert_eq!(read(None), Ok(Map::new()));
        assert_eq!(read(Some(&json!(null))), Ok(Map::new()));
        assert_eq!(read(Some(&json!("  "))), Ok(Map::new()));
        assert_eq!(read(Some(&json!("{\"a\":1}"))).unwrap()["a"], 1);
        for bad in [json!([1]), json!(7), json!("[1]"), json!("{oops")] {
            assert_eq!(read(Some(&bad)).unwrap_err().path, "/", "{bad}");
        }
    }

    #[test]
    fn safe_repairs_are_made() {
        let schema = json!({
            "type": "object",
            "properties": {
                "count": {"type": "integer"}, "ratio": {"type": ["number", "null"]},
                "on": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}},
                "id": {"type": "string"}, "filter": {"$ref": "#/$defs/filter"}, "note": {"type": "string"}
            },
            "required": ["count"],
            "$defs": {"filter": {"type": "object", "properties": {"n": {"type": "number"}}}}
        });
        let sent = json!({
            "count": "7", "ratio": " 0.5 ", "on": "true", "tags": "x", "id": 12,
            "filter": "{\"n\": \"3\"}", "note": null
        });
        assert_eq!(
            checked(schema.clone(), sent).unwrap(),
            json!({"count": 7, "ratio": 0.5, "on": true, "tags": ["x"], "id": "12", "filter": {"n": 3}})
        );
        assert_eq!(checked(schema.clone(), json!({"count": 3.0})).unwrap()["count"], 3.0);
        let python = checked(schema, json!({"count": 1, "on": "False"}));
        assert_eq!(python.unwrap()["on"], false);
    }

    #[test]
    fn arguments_that_fit_are_left_alone() {
        let schema =
            json!({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}});
        assert_eq!(checked(schema, json!({"a": "7"})).unwrap(), json!({"a": "7"}));
    }

    #[test]
    fn a_problem_names_its_path() {
        let schema = json!({"type": "object", "properties": {"user": {"type": "object",
            "properties": {"age": {"type": "integer"}}, "required": ["name"]}}});
        let problems = checked(schema, json!({"user": {"age": "old"}})).unwrap_err();
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert!(paths.contains(&"/user/age") && paths.contains(&"/user"), "{problems:?}");
    }

    #[test]
    fn nested_constraints_count() {
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {
            "kind": {"oneOf": [{"const": "a"}, {"const": "b"}]},
            "deep": {"type": "array", "items": {"$ref": "#/$defs/e"}}
        }, "$defs": {"e": {"enum": [1, 2]}}});
        assert!(checked(schema.clone(), json!({"kind": "a", "deep": [1, 2]})).is_ok());
        for bad in [json!({"kind": "c"}), json!({"deep": [3]}), json!({"other": 1})] {
            assert!(checked(schema.clone(), bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_schema_that_does_not_compile_lets_the_call_through() {
        let schema = Schema::from_value(&json!({"type": 7}));
        let checked = check(&schema, Map::new()).unwrap();
        assert!(checked.unchecked.is_some());
    }

    #[test]
    fn coercion_of_a_recursive_schema_ends() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}});
        let mut sent = json!({"n": "1"});
        for _ in 0..60 {
            sent = json!({"next": sent});
        }
        assert!(checked(schema, sent).is_err());
    }

    #[test]
    fn a_pattern_that_would_never_end_is_given_up() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=(a+)+$)b"}}});
        let _ = checked(schema, json!({"a": "a".repeat(5_000)}));
    }
}
