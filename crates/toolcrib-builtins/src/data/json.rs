//! Looking into JSON, and checking it.

use jsonschema::PatternOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::LONGEST_INPUT;
use crate::error::{Failure, check_size};
use crate::tool::Stop;

const MOST_RESULTS: usize = 1_000;
/// The most bytes of values in one answer.
const MOST_OUTPUT: usize = 512 * 1024;
const MOST_STEPS: usize = 100;
const MOST_ERRORS: usize = 20;

pub(super) const JSON_QUERY: (&str, &str) = (
    "json_query",
    "Pick values out of a JSON document by a path such as `users[*].name`, `items[0].price` or the \
     JSON Pointer `/users/0/name`. Use it to get a part of a large document.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonQuery {
    /// The JSON text.
    json: String,
    /// A path: keys joined by dots, `[n]` for an element, `[*]` or `*` for all, `["a key"]` for an
    /// odd key, `..` for any depth. Or a JSON Pointer, which begins with `/`. Empty for the whole.
    path: String,
    /// How many values to give at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    limit: usize,
}

fn hundred() -> usize {
    100
}

pub(super) fn json_query(_: &(), arguments: JsonQuery, stop: &Stop) -> Result<Value, Failure> {
    let document = parse(&arguments.json)?;
    let steps = steps(&arguments.path)?;
    let mut found = vec![&document];
    for step in &steps {
        let mut next = Vec::new();
        for value in found {
            stop.check()?;
            step.apply(value, &mut next);
        }
        found = next;
    }
    // Values found at any depth may hold one another: together they can be far larger than the
    // document.
    let mut values = Vec::new();
    let mut bytes = 0;
    for value in found.iter().take(arguments.limit.clamp(1, MOST_RESULTS)) {
        stop.check()?;
        bytes += value.to_string().len();
        if bytes > MOST_OUTPUT {
            break;
        }
        values.push((*value).clone());
    }
    let is_cut = values.len() < found.len();
    Ok(json!({"count": found.len(), "values": values, "truncated": is_cut}))
}

pub(super) fn parse(text: &str) -> Result<Value, Failure> {
    check_size("The JSON", text, LONGEST_INPUT)?;
    serde_json::from_str(text).map_err(|error| Failure::invalid(format!("Not JSON: {error}.")))
}

#[derive(Debug, PartialEq)]
enum Step {
    Key(String),
    At(i64),
    All,
    AnyDepth,
}

impl Step {
    fn apply<'a>(&self, value: &'a Value, found: &mut Vec<&'a Value>) {
        match (self, value) {
            (Self::Key(key), Value::Object(object)) => found.extend(object.get(key)),
            // A pointer's number is a key of an object and a place in a list alike.
            (Self::Key(key), Value::Array(list)) => {
                found.extend(key.parse().ok().and_then(|at: usize| list.get(at)));
            }
            (Self::At(at), Value::Array(list)) => {
                let at = if *at < 0 { at + list.len() as i64 } else { *at };
                found.extend(usize::try_from(at).ok().and_then(|at| list.get(at)));
            }
            (Self::All, Value::Array(list)) => found.extend(list),
            (Self::All, Value::Object(object)) => found.extend(object.values()),
            (Self::AnyDepth, _) => {
                let mut open = vec![value];
                while let Some(value) = open.pop() {
                    found.push(value);
                    match value {
                        Value::Array(list) => open.extend(list.iter().rev()),
                        Value::Object(object) => open.extend(object.values().rev()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
}

fn steps(path: &str) -> Result<Vec<Step>, Failure> {
    if let Some(pointer) = path.strip_prefix('/') {
        let key = |part: &str| Step::Key(part.replace("~1", "/").replace("~0", "~"));
        return Ok(pointer.split('/').map(key).collect());
    }
    let wrong = |rest: &str| Failure::invalid(format!("The path can't be read at `{rest}`."));
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        let start = rest;
        if let Some(after) = rest.strip_prefix('[') {
            let (step, after) = bracket(after).ok_or_else(|| wrong(start))?;
            steps.push(step);
            rest = after;
            continue;
        }
        let after = if let Some(after) = rest.strip_prefix("..") {
            // Twice in a row it would only find the same things again, many times over.
            if steps.last() == Some(&Step::AnyDepth) || steps.contains(&Step::AnyDepth) {
                return Err(Failure::invalid("`..` may stand in a path once."));
            }
            steps.push(Step::AnyDepth);
            after
        } else {
            rest.strip_prefix('.').unwrap_or(rest)
        };
        let end = after.find(['.', '[']).unwrap_or(after.len());
        let (key, after) = after.split_at(end);
        match key {
            "" if after.starts_with('[') => {}
            "" => return Err(wrong(start)),
            "*" => steps.push(Step::All),
            key => steps.push(Step::Key(key.to_owned())),
        }
        rest = after;
    }
    if steps.len() > MOST_STEPS {
        return Err(Failure::invalid(format!("A path has at most {MOST_STEPS} steps.")));
    }
    Ok(steps)
}

/// What stands between brackets, and what follows them.
fn bracket(text: &str) -> Option<(Step, &str)> {
    if let Some(quote) = text.chars().next().filter(|letter| matches!(letter, '"' | '\'')) {
        let (key, after) = text[1..].split_once(quote)?;
        return Some((Step::Key(key.to_owned()), after.strip_prefix(']')?));
    }
    let (inside, after) = text.split_once(']')?;
    let step = match inside.trim() {
        "*" => Step::All,
        number => Step::At(number.parse().ok()?),
    };
    Some((step, after))
}

pub(super) const JSON_VALIDATE: (&str, &str) = (
    "json_validate",
    "Check a JSON document against a JSON Schema and list what is wrong and where. Use it to verify \
     data or configuration before it is used; without a schema it checks the syntax only.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct JsonValidate {
    /// The JSON text to check.
    json: String,
    /// The JSON Schema, as JSON text. References to other documents are not followed.
    schema: Option<String>,
}

pub(super) fn json_validate(_: &(), arguments: JsonValidate, _: &Stop) -> Result<Value, Failure> {
    check_size("The JSON", &arguments.json, LONGEST_INPUT)?;
    let document = match serde_json::from_str::<Value>(&arguments.json) {
        Ok(document) => document,
        Err(error) => {
            return Ok(json!({"valid": false, "errors": [{"message": error.to_string()}]}));
        }
    };
    let Some(schema) = &arguments.schema else { return Ok(json!({"valid": true, "errors": []})) };
    let schema = parse(schema)?;
    let validator = jsonschema::options()
        // Matched in linear time: a pattern from outside must not hang the check.
        .with_pattern_options(PatternOptions::regex())
        .build(&schema)
        .map_err(|error| Failure::invalid(format!("The schema can't be used: {error}")))?;
    let errors: Vec<Value> = validator
        .iter_errors(&document)
        .take(MOST_ERRORS)
        .map(|error| {
            let mut message = error.masked().to_string();
            message.truncate(message.floor_char_boundary(300));
            json!({"at": error.instance_path().to_string(), "message": message})
        })
        .collect();
    Ok(json!({"valid": errors.is_empty(), "errors": errors}))
}
