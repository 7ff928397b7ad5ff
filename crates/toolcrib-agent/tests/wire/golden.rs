//! What was exchanged, as it is kept in `golden/` to be read and compared.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_agent::{Reply, StopReason};

use crate::server::Exchange;

/// Compares with a file in `golden/`; `UPDATE_GOLDEN=1` writes it anew.
pub(crate) fn compare(file: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/golden").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, actual).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let mut pairs = expected.lines().zip(actual.lines()).enumerate();
    if let Some((number, (old, new))) = pairs.find(|(_, (old, new))| old != new) {
        let number = number + 1;
        panic!("{file}:{number} differs; UPDATE_GOLDEN=1 writes it anew\n- {old}\n+ {new}");
    }
    assert_eq!(expected.len(), actual.len(), "{file} differs in length; see UPDATE_GOLDEN=1");
}

/// All requests, byte for byte but for line breaks between the members of a body and between the
/// elements of its long lists. Elements that stand in the same place of the request before, in
/// the same conversation and to the same API, are not repeated: `"= 0..4"` is the first four.
pub(crate) fn requests(exchanges: &[Exchange]) -> String {
    let mut before: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut requests = Vec::new();
    for Exchange { conversation, step, path, body, .. } in exchanges {
        let previous = before.insert((conversation, path), body).unwrap_or("{}");
        let head = json!({"conversation": conversation, "answered_with": step, "path": path});
        let head = head.to_string();
        let head = head.trim_end_matches('}');
        requests.push(format!("{head},\"body\":{}}}", spread(body, previous)));
    }
    format!("[\n{}\n]\n", requests.join(",\n"))
}

fn spread(body: &str, previous: &str) -> String {
    let previous: BTreeMap<String, &RawValue> = serde_json::from_str(previous).unwrap();
    let members: Vec<String> = members(body)
        .into_iter()
        .map(|(name, value)| match list(value) {
            Some(elements) => {
                let old = previous.get(&name).and_then(|old| list(old.get())).unwrap_or_default();
                format!("{}:[\n  {}\n]", json!(name), without(&elements, &old).join(",\n  "))
            }
            None => format!("{}:{value}", json!(name)),
        })
        .collect();
    format!("{{\n{}\n}}", members.join(",\n"))
}

/// The members of an object in order, as they were written.
fn members(object: &str) -> Vec<(String, &str)> {
    let names: serde_json::Map<String, serde_json::Value> = serde_json::from_str(object).unwrap();
    let values: BTreeMap<String, &RawValue> = serde_json::from_str(object).unwrap();
    let members: Vec<(String, &str)> =
        names.into_iter().map(|(name, _)| (name.clone(), values[&name].get())).collect();
    let joined: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
    assert_eq!(format!("{{{}}}", joined.join(",")), object, "nothing is lost on the way");
    members
}

/// The elements of a list of objects, as they were written.
fn list(value: &str) -> Option<Vec<&str>> {
    let elements: Vec<&RawValue> = serde_json::from_str(value).ok()?;
    let elements: Vec<&str> = elements.into_iter().map(RawValue::get).collect();
    assert_eq!(format!("[{}]", elements.join(",")), value, "nothing is lost on the way");
    elements.first()?.starts_with('{').then_some(elements)
}

fn without(elements: &[&str], old: &[&str]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = 0;
    while at < elements.len() {
        let same = elements[at..].iter().zip(old.iter().skip(at)).take_while(|(a, b)| a == b);
        let same = same.count();
        if same > 0 {
            lines.push(format!("\"= {at}..{}\"", at + same));
            at += same;
        } else {
            lines.push(elements[at].to_owned());
            at += 1;
        }
    }
    lines
}

/// All streams as they were sent, each followed by what the provider made of it.
pub(crate) fn streams(exchanges: &[Exchange], replies: &[Reply]) -> String {
    let mut text = String::new();
    for (Exchange { conversation, step, stream, .. }, reply) in exchanges.iter().zip(replies) {
        let stop = match &reply.stop {
            StopReason::End => "end".to_owned(),
            StopReason::Length => "length".to_owned(),
            StopReason::Refusal(Some(words)) => format!("refusal: {words}"),
            other => panic!("{other:?} is never the reason here"),
        };
        let read = json!({"content": reply.content, "stop": stop, "usage": reply.usage});
        writeln!(text, "--- {conversation}: {step}\n{stream}--- read as\n{read}").unwrap();
    }
    text
}
