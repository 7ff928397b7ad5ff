//! A tool's JSON Schema: kept losslessly, compiled on first use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, Validator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::json;

/// A JSON Schema exactly as its author wrote it, less white space.
///
/// Nothing is dropped or reordered. The validator is compiled when a call first needs it; a
/// schema that can't be compiled lets calls through (see [`Schema::defect`]).
#[derive(Clone)]
pub struct Schema(Arc<Inner>);

struct Inner {
    raw: Box<RawValue>,
    compiled: OnceLock<Compiled>,
}

pub(crate) struct Compiled {
    pub(crate) value: Value,
    pub(crate) validator: Result<Validator, String>,
}

impl Schema {
    /// The schema of a tool without parameters.
    pub fn empty() -> Self {
        Self::from_value(&serde_json::json!({"type": "object", "properties": {}}))
    }

    /// Takes a schema from JSON text, keeping numbers that a [`Value`] would round.
    pub fn from_raw(raw: &RawValue) -> Self {
        Self(Arc::new(Inner { raw: json::compact(raw), compiled: OnceLock::new() }))
    }

    /// Takes a schema from a parsed value.
    pub fn from_value(value: &Value) -> Self {
        let raw = serde_json::value::to_raw_value(value).unwrap_or_default();
        Self(Arc::new(Inner { raw, compiled: OnceLock::new() }))
    }

    /// The schema as JSON text.
    pub fn get(&self) -> &str {
        self.0.raw.get()
    }

    pub(crate) fn raw(&self) -> &RawValue {
        &self.0.raw
    }

    /// The schema parsed; `Null` if it nests deeper than a parser should follow.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::from_str(self.get()).unwrap_or_default()
    }

    /// Why arguments can't be checked against this schema, if they can't.
    pub fn defect(&self) -> Option<&str> {
        self.compiled().validator.as_ref().err().map(String::as_str)
    }

    pub(crate) fn compiled(&self) -> &Compiled {
        self.0.compiled.get_or_init(|| {
            let parsed = serde_json::from_str::<Value>(self.get());
            let validator = match &parsed {
                Ok(value) => compile(value),
                Err(error) => Err(error.to_string()),
            };
            Compiled { value: parsed.unwrap_or_default(), validator }
        })
    }
}

/// How far a pattern may backtrack before it counts as not matching.
const BACKTRACK_LIMIT: usize = 100_000;

/// How often one definition may be applied to one value, over all the ways that references lead
/// to it. A dozen definitions that each refer twice to the next come to thousands.
const MOST_VISITS: u64 = 1_000;

fn compile(schema: &Value) -> Result<Validator, String> {
    check_references(schema)?;
    jsonschema::options()
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACK_LIMIT))
        .build(schema)
        .map_err(|error| error.to_string())
}

/// Refuses references a validator would follow until the stack ends, or nearly without end: those
/// that lead back to themselves, or multiply, through keywords that apply to the same value. Only
/// plain local pointers can be judged, so any other way of referring (anchors, identifiers,
/// dynamic scope) is refused too.
fn check_references(root: &Value) -> Result<(), String> {
    let mut found = BTreeSet::new();
    let dialect = root.get("$schema").and_then(Value::as_str).unwrap_or_default();
    let identifier = if dialect.contains("draft-04") { "id" } else { "$id" };
    references(root, true, identifier, &mut found)?;
    let edges: BTreeMap<&str, Vec<&str>> = found
        .iter()
        .map(|reference| (*reference, root.pointer(&reference[1..]).map_or(vec![], in_place)))
        .collect();
    let mut incoming: BTreeMap<&str, usize> = BTreeMap::new();
    edges.values().flatten().for_each(|to| *incoming.entry(to).or_default() += 1);
    let mut free: Vec<&str> =
        edges.keys().filter(|node| !incoming.contains_key(**node)).copied().collect();
    let mut settled = 0;
    let mut visits: BTreeMap<&str, u64> = free.iter().map(|node| (*node, 1)).collect();
    while let Some(node) = free.pop() {
        settled += 1;
        let visited = visits.get(node).copied().unwrap_or_default();
        for to in edges.get(node).into_iter().flatten() {
            let visits = visits.entry(to).or_default();
            *visits = visits.saturating_add(visited);
            if let Some(count) = incoming.get_mut(to) {
                *count -= 1;
                if *count == 0 {
                    free.push(to);
                }
            }
        }
    }
    if settled < edges.len() {
        return Err("a `$ref` leads back to itself without looking at the value".to_owned());
    }
    if visits.values().any(|visits| *visits > MOST_VISITS) {
        return Err("its `$ref`s multiply: checking one value would take for ever".to_owned());
    }
    Ok(())
}

fn references<'a>(
    value: &'a Value,
    is_root: bool,
    identifier: &str,
    found: &mut BTreeSet<&'a str>,
) -> Result<(), String> {
    match value {
        Value::Object(object) => {
            for key in ["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"] {
                if object.get(key).is_some_and(Value::is_string) {
                    return Err(format!("`{key}` is not supported"));
                }
            }
            if !is_root && object.get(identifier).is_some_and(Value::is_string) {
                return Err("an identifier inside the schema is not supported".to_owned());
            }
            if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                let local = reference == "#" || reference.starts_with("#/");
                if !local || reference.contains('%') {
                    return Err(format!("`$ref`: `{reference}` is not a local pointer"));
                }
                found.insert(reference);
            }
            object.values().try_for_each(|inner| references(inner, false, identifier, found))
        }
        Value::Array(items) => {
            items.iter().try_for_each(|item| references(item, false, identifier, found))
        }
        _ => Ok(()),
    }
}

/// The references that apply to the very value `schema` applies to.
fn in_place(schema: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    let mut todo = vec![schema];
    while let Some(next) = todo.pop() {
        let Value::Object(object) = next else { continue };
        found.extend(object.get("$ref").and_then(Value::as_str));
        for key in ["allOf", "anyOf", "oneOf"] {
            todo.extend(object.get(key).and_then(Value::as_array).into_iter().flatten());
        }
        for key in ["dependentSchemas", "dependencies"] {
            todo.extend(
                object.get(key).and_then(Value::as_object).into_iter().flat_map(Map::values),
            );
        }
        todo.extend(["not", "if", "then", "else"].iter().filter_map(|key| object.get(*key)));
    }
    found
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Schema {}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.get())
    }
}

impl From<Value> for Schema {
    fn from(value: Value) -> Self {
        Self::from_value(&value)
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from_raw(&Box::<RawValue>::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_is_kept_but_for_white_space() {
        let text = r#"{ "type": "object", "example": 12345678901234567890123, "$defs": {} }"#;
        let schema: Schema = serde_json::from_str(text).unwrap();
        assert_eq!(
            schema.get(),
            r#"{"type":"object","example":12345678901234567890123,"$defs":{}}"#
        );
    }

    #[test]
    fn schemas_that_do_not_compile_say_why() {
        for bad in [json!({"type": 7}), json!({"$ref": "https://example.com/x.json"})] {
            assert!(Schema::from_value(&bad).defect().is_some(), "{bad}");
        }
        for good in [json!({}), json!(true), json!({"type": "object"})] {
            assert_eq!(Schema::from_value(&good).defect(), None, "{good}");
        }
    }

    #[test]
    fn a_reference_that_never_looks_at_the_value_is_a_defect() {
        for endless in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"$ref": "#/$defs/a", "$defs": {
                "a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}
            }}),
        ] {
            assert!(Schema::from_value(&endless).defect().is_some(), "{endless}");
        }
    }

    #[test]
    fn references_that_multiply_are_a_defect() {
        let doubling = |levels: usize| {
            let twice =
                |n: usize| json!({"allOf": vec![json!({"$ref": format!("#/$defs/{n}")}); 2]});
            let mut defs: Map<String, Value> =
                (0..levels).map(|n| (n.to_string(), twice(n + 1))).collect();
            defs.insert(levels.to_string(), json!({"type": "object"}));
            Schema::from_value(&json!({"$ref": "#/$defs/0", "$defs": defs}))
        };
        assert_eq!(doubling(5).defect(), None);
        assert!(doubling(40).defect().is_some_and(|defect| defect.contains("multiply")));
    }

    #[test]
    fn honest_recursion_is_allowed() {
        let tree = json!({"type": "object", "properties": {
            "children": {"type": "array", "items": {"$ref": "#"}}
        }});
        assert_eq!(Schema::from_value(&tree).defect(), None);
    }

    #[test]
    fn a_schema_nested_without_end_is_a_defect_and_not_a_crash() {
        let deep = format!("{}1{}", "{\"not\":".repeat(50_000), "}".repeat(50_000));
        let schema = Schema::from_raw(&RawValue::from_string(deep).unwrap());
        assert!(schema.defect().is_some());
    }
}
