//! Lists of tools as bytes: the same for the same tools, made once for each catalog.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde_json::Value;
use toolcrib_core::{Annotations, Catalog, Definition, Fingerprint, GroupId, Tool, View};
use toolcrib_runtime::Conversation;
use toolcrib_wire::Fields;

use crate::gateway::MOST_INSTRUCTIONS;
use crate::seat::Seat;
use crate::{Endpoint, Gateway};

/// Lists made lately, by endpoint and policy.
#[derive(Default)]
pub(crate) struct Lists(Mutex<HashMap<(Endpoint, Fingerprint), Kept>>);

struct Kept {
    of: Weak<Catalog>,
    tools: Arc<str>,
    instructions: Arc<str>,
}

/// Lists kept: beyond that all are made again when needed.
const MOST_KEPT: usize = 256;

/// The most bytes that the names of servers take in a verb's description.
const MOST_HINTS: usize = 160;

impl Gateway {
    /// The tools of an endpoint, as a JSON array. `ledger` is the client's own, where what it has
    /// loaded is listed.
    pub(crate) fn list(
        &self,
        seat: &Seat,
        endpoint: &Endpoint,
        ledger: Option<&Conversation>,
    ) -> Arc<str> {
        match (endpoint, ledger) {
            (Endpoint::Inject, Some(ledger)) => {
                ledger.begin_turn();
                self.list_verbs(seat, endpoint, ledger).into()
            }
            _ => self.kept(seat, endpoint).0,
        }
    }

    /// What a model is told about an endpoint, empty if there is nothing to say.
    pub(crate) fn instructions(&self, seat: &Seat, endpoint: &Endpoint) -> Arc<str> {
        self.kept(seat, endpoint).1
    }

    fn kept(&self, seat: &Seat, endpoint: &Endpoint) -> (Arc<str>, Arc<str>) {
        let key = (endpoint.clone(), seat.policy.fingerprint());
        let lock = || self.lists().0.lock().unwrap_or_else(PoisonError::into_inner);
        let catalog = self.catalog();
        if let Some(kept) = lock().get(&key)
            && Weak::as_ptr(&kept.of) == Arc::as_ptr(&catalog)
        {
            return (kept.tools.clone(), kept.instructions.clone());
        }
        let (tools, instructions) = self.make(seat, endpoint);
        let (tools, instructions): (Arc<str>, Arc<str>) = (tools.into(), instructions.into());
        let made = (tools.clone(), instructions.clone());
        let mut kept = lock();
        if kept.len() >= MOST_KEPT {
            kept.clear();
        }
        kept.insert(key, Kept { of: Arc::downgrade(&catalog), tools, instructions });
        made
    }

    fn make(&self, seat: &Seat, endpoint: &Endpoint) -> (String, String) {
        let view = self.view(seat);
        match endpoint {
            Endpoint::Full => {
                let mut tools: Vec<&Arc<Tool>> = view.tools().collect();
                tools.sort_by(|a, b| a.exposed().cmp(b.exposed()));
                (array(tools.into_iter().map(|tool| (&**tool.exposed(), &**tool))), String::new())
            }
            Endpoint::Server(server) => {
                let id = self.group_of(seat, server).unwrap_or_else(|| GroupId::server(server));
                let mut tools: Vec<&Arc<Tool>> = view.tools_in(&id).collect();
                tools.sort_by(|a, b| a.name().tool().cmp(b.name().tool()));
                let list = array(tools.into_iter().map(|tool| (tool.name().tool(), &**tool)));
                let group = view.catalog().groups().find(|group| *group.id() == id);
                let about = group.map_or_else(String::new, |group| group.description().to_owned());
                (list, cut(about, MOST_INSTRUCTIONS))
            }
            Endpoint::Meta | Endpoint::Inject => {
                let fresh = self.converse(seat, endpoint);
                let list = self.list_verbs(seat, endpoint, &fresh);
                let section = fresh.prepare().map(|shown| shown.system_section);
                let mut section = section.map_or_else(|_| String::new(), |text| text.to_string());
                let servers = self.servers(seat);
                if section.is_empty() && !servers.is_empty() {
                    // Nothing is known yet but which servers there are.
                    let names = some_of(&servers, MOST_INSTRUCTIONS - 200);
                    section = format!(
                        "# More tools\n\nFind the tools of these servers by what they do with \
                         the search verb: {names}."
                    );
                }
                (list, cut(section, MOST_INSTRUCTIONS))
            }
        }
    }

    /// The verbs, then what the conversation has in full.
    fn list_verbs(&self, seat: &Seat, endpoint: &Endpoint, conversation: &Conversation) -> String {
        let engine = self.crib_of(endpoint).engine();
        let verbs = engine.verbs(&seat.policy);
        let mut out = String::from("[");
        for (at, verb) in verbs.iter().enumerate() {
            let hints = if at == 0 { hints(&self.servers(seat)) } else { String::new() };
            let about = about(endpoint, verb, engine.settings().split_calls);
            push_verb(&mut out, verb, &format!("{about}{hints}"));
        }
        let shown = conversation.prepare().map(|shown| shown.tools).unwrap_or_default();
        let view = conversation.view();
        for definition in shown {
            if verbs.iter().all(|verb| verb.name() != definition.name()) {
                push_shown(&mut out, &definition, &view);
            }
        }
        out.push(']');
        out
    }
}

fn array<'a>(tools: impl Iterator<Item = (&'a str, &'a Tool)>) -> String {
    let mut out = String::from("[");
    for (name, tool) in tools {
        push_tool(&mut out, name, tool);
    }
    out.push(']');
    out
}

/// A tool as its server describes it, under the given name.
fn push_tool(out: &mut String, name: &str, tool: &Tool) {
    let spec = tool.spec();
    begin(out, name, spec.description(), spec.input_schema().get());
    match spec.extra().map(str::trim) {
        Some(extra) => {
            let inner = extra.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            if let Some(inner) = inner.map(str::trim).filter(|inner| !inner.is_empty()) {
                let _ = write!(out, ",{inner}");
            }
        }
        None if *spec.annotations() != Annotations::default() => {
            let annotations = serde_json::to_string(spec.annotations()).unwrap_or_default();
            let _ = write!(out, r#","annotations":{annotations}"#);
        }
        None => {}
    }
    out.push('}');
}

/// A tool as a conversation was first shown it; with the rest of what its server says, if that is
/// still about the same tool.
fn push_shown(out: &mut String, definition: &Definition, view: &View) {
    match view.tool(definition.name()) {
        Some(tool) if tool.definition() == definition => push_tool(out, definition.name(), tool),
        _ => {
            let description = definition.description();
            begin(out, definition.name(), description, definition.schema().get());
            out.push('}');
        }
    }
}

/// What a verb does. Clients show a few hundred tokens of it to every model at every request, so
/// it is said in fewer words here than where a model has the prompt's explanation beside it.
fn about<'a>(endpoint: &Endpoint, verb: &'a Definition, split: bool) -> &'a str {
    match (endpoint, &**verb.name()) {
        (Endpoint::Meta, "tool_search") if split => {
            "Find tools by what they do and get their definitions; call each with the verb that its \
             `call_with` names. Many more tools exist than you see: search before you conclude \
             that something can't be done."
        }
        (Endpoint::Meta, "tool_search") => {
            "Find tools by what they do and get their definitions; call them with `call_tool`. \
             Many more tools exist than you see: search before you conclude that something can't \
             be done."
        }
        (Endpoint::Meta, "load_tools") => {
            "Get the definitions of a group of tools, such as a server's: all, or those you name."
        }
        (Endpoint::Meta, "call_tool") => {
            "Call a tool by its name. If the arguments don't fit its schema, you get the schema \
             and nothing is run."
        }
        (Endpoint::Meta, "call_read_tool") => "Call a tool that changes nothing, by its name.",
        (Endpoint::Meta, "call_write_tool") => {
            "Call a tool that changes something and destroys nothing, by its name."
        }
        (Endpoint::Meta, "call_destructive_tool") => {
            "Call a tool that may destroy something, by its name."
        }
        _ => verb.description(),
    }
}

fn push_verb(out: &mut String, verb: &Definition, description: &str) {
    begin(out, verb.name(), description, verb.schema().get());
    let runs = verb.name().ends_with("_call") || verb.name().starts_with("call_");
    out.push_str(match &**verb.name() {
        "call_read_tool" => r#","annotations":{"readOnlyHint":true,"openWorldHint":true}"#,
        "call_write_tool" => {
            r#","annotations":{"readOnlyHint":false,"destructiveHint":false,"openWorldHint":true}"#
        }
        _ if runs => r#","annotations":{"destructiveHint":true,"openWorldHint":true}"#,
        _ => r#","annotations":{"readOnlyHint":true,"openWorldHint":false}"#,
    });
    // Without this a client may hide the very tools that find the others.
    out.push_str(r#","_meta":{"anthropic/alwaysLoad":true}}"#);
}

/// Begins a tool: what every one has, without the closing brace.
fn begin(out: &mut String, name: &str, description: &str, schema: &str) {
    if !out.ends_with('[') {
        out.push(',');
    }
    let _ = write!(out, r#"{{"name":{}"#, Value::from(name));
    if !description.is_empty() {
        let _ = write!(out, r#","description":{}"#, Value::from(description));
    }
    let _ = write!(out, r#","inputSchema":{}"#, object_schema(schema));
}

/// The schema, said to be an object's if it does not say so: clients refuse a whole list over one
/// tool that doesn't.
fn object_schema(schema: &str) -> Cow<'_, str> {
    const PLAIN: &str = r#"{"type":"object""#;
    if schema.starts_with(PLAIN) {
        return Cow::Borrowed(schema);
    }
    match Fields::parse(schema) {
        Some(fields) if fields.read::<&str>("type") == Some("object") => Cow::Borrowed(schema),
        Some(mut fields) => {
            fields.set("type", &"object");
            Cow::Owned(fields.to_text())
        }
        None => Cow::Owned(format!("{PLAIN}}}")),
    }
}

/// What makes a model think of searching: which servers there are.
fn hints(servers: &[String]) -> String {
    if servers.is_empty() {
        return String::new();
    }
    format!(" Servers: {}.", some_of(servers, MOST_HINTS))
}

/// As many names as fit, and how many there are besides.
fn some_of(names: &[String], most: usize) -> String {
    let mut out = String::new();
    for (at, name) in names.iter().enumerate() {
        let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
        let rest = names.len() - at;
        // Room is left to say how many more there are.
        let tail = if rest > 1 { 16 } else { 0 };
        if out.len() + name.len() + 2 + tail > most {
            let and = if at == 0 { "" } else { " and " };
            let _ = write!(out, "{and}{rest} more");
            break;
        }
        let _ = write!(out, "{}{name}", if at == 0 { "" } else { ", " });
    }
    out
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_names_are_given_as_fit() {
        let names = |count: usize| (0..count).map(|n| format!("server-{n:03}")).collect::<Vec<_>>();
        assert_eq!(hints(&[]), "");
        assert_eq!(hints(&names(2)), " Servers: server-000, server-001.");
        for count in 1..100 {
            let text = some_of(&names(count), MOST_HINTS);
            assert!(text.len() <= MOST_HINTS, "{text}");
            let shown = text.matches("server-").count();
            let more = text.split_once(" and ").map_or(0, |(_, more)| {
                more.strip_suffix(" more").unwrap().parse::<usize>().unwrap()
            });
            assert_eq!(shown + more, count, "{text}");
            assert!(shown > 10 || more == 0, "{text}");
        }
    }

    #[test]
    fn every_schema_says_that_it_is_an_objects() {
        assert_eq!(object_schema(r#"{"type":"object","x":1}"#), r#"{"type":"object","x":1}"#);
        assert_eq!(object_schema(r#"{"x":1,"type":"object"}"#), r#"{"x":1,"type":"object"}"#);
        assert_eq!(object_schema(r#"{"x":1}"#), r#"{"x":1,"type":"object"}"#);
        assert_eq!(object_schema("true"), r#"{"type":"object"}"#);
        assert_eq!(object_schema("{}"), r#"{"type":"object"}"#);
    }
}
