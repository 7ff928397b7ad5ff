//! What a verb answered: the tools in it, and what is said besides.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolcrib_core::{Definition, Strategy};

use crate::message::{CallResult, Part};

/// A tool that a model was given.
#[derive(Clone)]
pub(in crate::replay) struct Given {
    pub(in crate::replay) name: Arc<str>,
    /// As it was recorded, if it was.
    pub(in crate::replay) definition: Option<Definition>,
}

impl From<Definition> for Given {
    fn from(tool: Definition) -> Self {
        Self { name: tool.name().clone(), definition: Some(tool) }
    }
}

/// The answer of a verb.
#[derive(Clone)]
pub(in crate::replay) struct Found {
    /// The verb.
    verb: String,
    pub(in crate::replay) tools: Vec<Given>,
    schemas: Schemas,
    /// The answer with names only.
    names: String,
    /// What it says besides the tools.
    pub(in crate::replay) remarks: String,
}

/// How an answer comes to its schemas.
#[derive(Clone)]
enum Schemas {
    /// They are in this text, which was recorded.
    Recorded(String),
    /// They are to be put behind this one.
    Behind(String),
}

/// What stands around the rows of an answer.
const FRAME: &str = r#"{"total_matches":9,"tools":[],"not_found":[],"hint":"Call them with call_tool(tool_name=…, arguments=…)."}"#;

/// Members of an answer that only tell of the tools in it.
const ABOUT_TOOLS: [&str; 16] = [
    "activated",
    "description",
    "expanded",
    "group_id",
    "hint",
    "loaded",
    "message",
    "name",
    "newly_loaded",
    "parameters",
    "pattern",
    "remaining",
    "status",
    "tool_names",
    "tools",
    "total_matches",
];

impl Found {
    pub(super) fn of(result: &CallResult) -> Self {
        let verb = result.name.clone();
        let text = said(&result.content);
        if !result.revealed.is_empty() {
            let tools: Vec<Given> =
                result.revealed.iter().map(|it| Given::from(it.tool.clone())).collect();
            let names = format!("{text}{}", listed(&tools));
            let schemas = Schemas::Behind(format!("{FRAME}{text}"));
            return Self { verb, tools, schemas, names, remarks: text };
        }
        let read = match result.content.first() {
            Some(Part::Text { text }) => tagged(text).or_else(|| object(text)),
            _ => None,
        };
        let Some(Read { tools, whole, remarks }) = read.filter(|read| !read.tools.is_empty())
        else {
            let schemas = Schemas::Recorded(text.clone());
            return Self { verb, tools: Vec::new(), schemas, names: text.clone(), remarks: text };
        };
        // A remark of the loop's, such as that a call repeats itself, stands behind the answer.
        let rest = said(&result.content[1..]);
        let remarks = format!("{remarks}{rest}");
        let (names, schemas) = if whole {
            (format!("{}{remarks}", listed(&tools)), Schemas::Recorded(text))
        } else {
            (text.clone(), Schemas::Behind(text))
        };
        Self { verb, tools, schemas, names, remarks }
    }

    /// An answer that was never given.
    pub(super) fn supposed(verb: &str, tools: Vec<Given>) -> Self {
        let names = listed(&tools);
        let (verb, remarks) = (verb.to_owned(), String::new());
        Self { verb, tools, schemas: Schemas::Behind(FRAME.to_owned()), names, remarks }
    }

    /// The answer as it reads under a strategy that shows tools in it; `define` has definitions.
    pub(in crate::replay) fn text(
        &self,
        strategy: Strategy,
        define: impl Fn(&Given) -> Option<Definition>,
    ) -> String {
        // Where the tools array grows, only a search shows what it found as well.
        let names_only = strategy == Strategy::Inject
            && matches!(self.verb.as_str(), "load_tools" | "tool_search_regex");
        match &self.schemas {
            _ if names_only => self.names.clone(),
            Schemas::Recorded(text) => text.clone(),
            Schemas::Behind(text) => {
                let rows = self.tools.iter().filter_map(define).map(|tool| row(&tool));
                format!("{text}{}", rows.collect::<Vec<String>>().join(","))
            }
        }
    }
}

/// What was understood of an answer.
struct Read {
    tools: Vec<Given>,
    /// Whether the schemas are in it.
    whole: bool,
    remarks: String,
}

/// An answer that is a JSON object.
fn object(text: &str) -> Option<Read> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>();
    let mut answer = values.next()?.ok()?;
    let mut tools = Vec::new();
    for key in ["tools", "schemas"] {
        let rows = answer.get(key).and_then(Value::as_array);
        tools.extend(rows.into_iter().flatten().filter_map(given));
    }
    // A tool that was asked for by its name.
    if answer.get("activated") == Some(&Value::Bool(true)) {
        tools.extend(given(&Value::Object(answer.clone())));
    }
    let whole = tools.iter().any(|tool| tool.definition.is_some());
    if tools.is_empty() && answer.get("expanded") == Some(&Value::Bool(true)) {
        let names = answer.get("tool_names").and_then(Value::as_array);
        let names = names.into_iter().flatten().filter_map(Value::as_str);
        tools.extend(names.map(|name| Given { name: name.into(), definition: None }));
    }
    answer.retain(|key, value| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        !is_empty && key != "schemas" && !ABOUT_TOOLS.contains(&key.as_str())
    });
    let remarks = if answer.is_empty() { String::new() } else { Value::Object(answer).to_string() };
    Some(Read { tools, whole, remarks })
}

/// A row that says its tool is loaded, with or without a schema.
fn given(row: &Value) -> Option<Given> {
    let name: Arc<str> = row.get("name")?.as_str()?.into();
    match row.get("parameters") {
        Some(schema) => {
            let description = row.get("description").and_then(Value::as_str).unwrap_or_default();
            Some(Given { definition: defined(&name, description, schema), name })
        }
        None => (row.get("loaded") == Some(&Value::Bool(true)))
            .then_some(Given { name, definition: None }),
    }
}

fn defined(name: &str, description: &str, schema: &Value) -> Option<Definition> {
    let neutral = json!({"name": name, "description": description, "input_schema": schema});
    serde_json::from_str(&neutral.to_string()).ok()
}

/// An answer with one definition a line, between tags.
fn tagged(text: &str) -> Option<Read> {
    let (_, rest) = text.split_once("<functions>\n")?;
    let (lines, remarks) = rest.split_once("</functions>\n")?;
    let tools = lines.lines().filter_map(|line| {
        let json = line.trim().strip_prefix("<function>")?.strip_suffix("</function>")?;
        given(&serde_json::from_str::<Value>(json).ok()?)
    });
    Some(Read { tools: tools.collect(), whole: true, remarks: remarks.to_owned() })
}

fn said(parts: &[Part]) -> String {
    parts.iter().map(Part::described).collect::<Vec<String>>().join("\n")
}

/// Names alone.
fn listed(tools: &[Given]) -> String {
    let names: Vec<&str> = tools.iter().map(|tool| &*tool.name).collect();
    json!({"tools": names}).to_string()
}

/// A tool as an answer shows it.
fn row(tool: &Definition) -> String {
    let (name, description) = (json!(&**tool.name()), json!(tool.description()));
    let schema = tool.schema().get();
    format!(r#"{{"name":{name},"description":{description},"parameters":{schema},"loaded":true}}"#)
}
