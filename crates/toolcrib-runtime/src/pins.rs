//! What was approved of a server's definitions, and what has changed since.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use toolcrib_core::{Fingerprint, ToolSpec};

use crate::journal::StorageError;

/// The longest definition that is kept as text. Of a longer one it can be told that it changed,
/// but not how.
const MOST_TEXT: usize = 256 << 10;

/// The most tools that are remembered although their server no longer has them.
const MOST_GONE: usize = 1_000;

/// A tool's definition without its name: everything its server says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wording {
    fingerprint: Fingerprint,
    text: String,
}

impl Wording {
    /// What a tool's server says of it, whatever the order of keys.
    pub fn of(spec: &ToolSpec) -> Self {
        let mut whole: Map<String, Value> =
            spec.extra().and_then(|json| serde_json::from_str(json).ok()).unwrap_or_default();
        if !spec.description().is_empty() {
            whole.insert("description".to_owned(), spec.description().into());
        }
        let schema = serde_json::from_str(spec.input_schema().get()).unwrap_or_default();
        whole.insert("inputSchema".to_owned(), schema);
        let says = serde_json::to_value(spec.annotations()).unwrap_or_default();
        if !whole.contains_key("annotations") && says.as_object().is_some_and(|it| !it.is_empty()) {
            whole.insert("annotations".to_owned(), says);
        }
        let mut whole = Value::Object(whole);
        whole.sort_all_objects();
        let mut text = serde_json::to_string_pretty(&whole).unwrap_or_default();
        let fingerprint = Fingerprint::of([text.as_bytes()]);
        if text.len() > MOST_TEXT {
            text = format!("\"too long to be kept: {} bytes, {fingerprint}\"", text.len());
        }
        Self { fingerprint, text }
    }

    /// Equal for equal definitions.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The definition as JSON, indented, each key on a line of its own.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What is pinned of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins {
    /// What the configuration calls the server.
    pub server: String,
    tools: BTreeMap<String, Pin>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    /// As it was approved; nothing if the tool is new.
    approved: Option<Wording>,
    now: Now,
}

/// What the server last offered under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Now {
    /// What was approved.
    Same,
    /// Something else.
    Other(Wording),
    /// Nothing.
    Gone,
}

/// A tool that is not what was approved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinChange {
    /// The tool's own name.
    pub tool: String,
    /// What has become of it.
    pub kind: PinChangeKind,
    /// What was approved: under this name, or under that it had before.
    pub before: Option<Wording>,
    /// What its server says of it now.
    pub after: Wording,
}

/// What has become of a tool since it was approved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum PinChangeKind {
    /// It was not there.
    New,
    /// Its definition is another.
    Changed,
    /// It was there under a name that is gone.
    Renamed {
        /// The name it had.
        from: String,
    },
    /// It has the definition of another tool that is still there: the two names may have been
    /// swapped.
    Taken {
        /// The other tool.
        from: String,
    },
}

impl Pins {
    /// What a server offers when it is first seen, which is trusted.
    pub fn first(server: &str, offered: BTreeMap<String, Wording>) -> Self {
        let pin = |wording| Pin { approved: Some(wording), now: Now::Same };
        let tools = offered.into_iter().map(|(tool, wording)| (tool, pin(wording))).collect();
        Self { server: server.to_owned(), tools }
    }

    /// Takes note of what the server offers now.
    pub fn take_in(&mut self, mut offered: BTreeMap<String, Wording>) {
        self.tools.retain(|tool, pin| match offered.remove(tool) {
            Some(wording) if pin.approved.as_ref() == Some(&wording) => {
                pin.now = Now::Same;
                true
            }
            Some(wording) => {
                pin.now = Now::Other(wording);
                true
            }
            None => {
                pin.now = Now::Gone;
                // Nobody approved it, and nobody need know of it any more.
                pin.approved.is_some()
            }
        });
        let new = |wording| Pin { approved: None, now: Now::Other(wording) };
        self.tools.extend(offered.into_iter().map(|(tool, wording)| (tool, new(wording))));
        let gone = self.tools.iter().filter(|(_, pin)| pin.now == Now::Gone);
        let too_many: Vec<String> = gone.skip(MOST_GONE).map(|(tool, _)| tool.clone()).collect();
        too_many.iter().for_each(|tool| drop(self.tools.remove(tool)));
    }

    /// Approves what these tools are now, each meant by its name and what it says; says which of
    /// them there were to approve.
    pub fn approve(&mut self, is_meant: impl Fn(&str, &Wording) -> bool) -> Vec<String> {
        let mut approved = Vec::new();
        for (tool, pin) in &mut self.tools {
            if let Now::Other(wording) = &pin.now
                && is_meant(tool, wording)
            {
                pin.approved = Some(wording.clone());
                pin.now = Now::Same;
                approved.push(tool.clone());
            }
        }
        approved
    }

    /// The tools the server has, with what it says of each, in the order of their names.
    pub fn offered(&self) -> impl Iterator<Item = (&str, &Wording)> {
        self.tools.iter().filter_map(|(tool, pin)| {
            let wording = match &pin.now {
                Now::Same => pin.approved.as_ref()?,
                Now::Other(wording) => wording,
                Now::Gone => return None,
            };
            Some((tool.as_str(), wording))
        })
    }

    /// Tools that were approved and are gone.
    pub fn gone(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().filter(|(_, pin)| pin.now == Now::Gone).map(|(tool, _)| tool.as_str())
    }

    /// The tools that are not what was approved, in the order of their names.
    pub fn changes(&self) -> Vec<PinChange> {
        let others: Vec<(&String, &Pin, &Wording)> = self.tools.iter().filter_map(other).collect();
        if others.is_empty() {
            return Vec::new();
        }
        let mut gone: Vec<(&str, &Wording)> =
            self.gone().filter_map(|tool| Some((tool, self.approved(tool)?))).collect();
        let mut there: HashMap<Fingerprint, &str> = HashMap::new();
        for (tool, pin) in self.tools.iter().filter(|(_, pin)| pin.now != Now::Gone) {
            there.extend(pin.approved.as_ref().map(|it| (it.fingerprint, tool.as_str())));
        }
        // First those that are the same to the letter: a name that is gone stands for one tool.
        let mut renamed: HashMap<&str, (&str, &Wording)> = HashMap::new();
        for (tool, _, after) in &others {
            if let Some(at) = gone.iter().position(|(_, before)| before == after) {
                renamed.insert(tool, gone.swap_remove(at));
            }
        }
        let mut gone: Vec<_> = gone.into_iter().map(|it| (it, Traits::of(it.1))).collect();
        for (tool, pin, after) in &others {
            if pin.approved.is_some() || renamed.contains_key(tool.as_str()) || gone.is_empty() {
                continue;
            }
            let now = Traits::of(after);
            if let Some(at) = gone.iter().position(|(_, before)| before.are_like(&now)) {
                renamed.insert(tool, gone.swap_remove(at).0);
            }
        }
        let change = |(tool, pin, after): (&String, &Pin, &Wording)| {
            let taken = there.get(&after.fingerprint).filter(|from| **from != tool);
            let (kind, before) = match (renamed.get(tool.as_str()), &pin.approved, taken) {
                (Some((from, before)), ..) => {
                    (PinChangeKind::Renamed { from: (*from).to_owned() }, Some((*before).clone()))
                }
                (None, Some(before), Some(from)) => {
                    (PinChangeKind::Taken { from: (*from).to_owned() }, Some(before.clone()))
                }
                (None, Some(before), None) => (PinChangeKind::Changed, Some(before.clone())),
                (None, None, _) => (PinChangeKind::New, None),
            };
            PinChange { tool: tool.clone(), kind, before, after: after.clone() }
        };
        others.into_iter().map(change).collect()
    }

    fn approved(&self, tool: &str) -> Option<&Wording> {
        self.tools.get(tool)?.approved.as_ref()
    }
}

fn other<'a>((tool, pin): (&'a String, &'a Pin)) -> Option<(&'a String, &'a Pin, &'a Wording)> {
    match &pin.now {
        Now::Other(wording) => Some((tool, pin, wording)),
        Now::Same | Now::Gone => None,
    }
}

/// What a tool is known by when its name and more have changed.
struct Traits {
    description: Option<Value>,
    /// Where there is more than one, so that not every tool without has the same.
    parameters: Option<Value>,
}

impl Traits {
    fn of(wording: &Wording) -> Self {
        let whole: Value = serde_json::from_str(&wording.text).unwrap_or_default();
        let parameters = whole.pointer("/inputSchema/properties");
        let several = parameters.filter(|it| it.as_object().is_some_and(|it| it.len() > 1));
        Self { description: whole.get("description").cloned(), parameters: several.cloned() }
    }

    fn are_like(&self, other: &Self) -> bool {
        let same = |a: &Option<Value>, b: &Option<Value>| a.is_some() && a == b;
        same(&self.description, &other.description) || same(&self.parameters, &other.parameters)
    }
}

/// What tells whether pins have changed, without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PinMark {
    /// Grows with every change.
    pub revision: u64,
    /// Of the list that is approved as it stands, if the last one was.
    pub whole: Option<Fingerprint>,
}

/// What becomes of pins: their new state with the list that is thereby approved as it stands, or
/// `None` if they stay. May be asked more than once.
pub type PinEdit = Box<dyn FnMut(Option<Pins>) -> Option<(Pins, Option<Fingerprint>)> + Send>;

/// Keeps pins. The key stands for a server's name and how it is reached, without credentials.
pub trait PinStore: Send + Sync + 'static {
    /// The mark of what is kept under a key, if anything is. Quick.
    fn mark(&self, key: &str) -> Result<Option<PinMark>, StorageError>;

    /// Changes what is kept, in one step that no other program comes between; brings what is kept
    /// then, with its mark.
    fn edit<'a>(
        &'a self,
        key: &'a str,
        edit: PinEdit,
    ) -> BoxFuture<'a, Result<Option<(Pins, PinMark)>, StorageError>>;
}

/// Keeps nothing: every list is seen for the first time.
impl PinStore for () {
    fn mark(&self, _: &str) -> Result<Option<PinMark>, StorageError> {
        Ok(None)
    }

    fn edit<'a>(
        &'a self,
        _: &'a str,
        _: PinEdit,
    ) -> BoxFuture<'a, Result<Option<(Pins, PinMark)>, StorageError>> {
        Box::pin(async { Ok(None) })
    }
}

impl<T: PinStore + ?Sized> PinStore for Arc<T> {
    fn mark(&self, key: &str) -> Result<Option<PinMark>, StorageError> {
        (**self).mark(key)
    }

    fn edit<'a>(
        &'a self,
        key: &'a str,
        edit: PinEdit,
    ) -> BoxFuture<'a, Result<Option<(Pins, PinMark)>, StorageError>> {
        (**self).edit(key, edit)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_core::{Annotations, ToolName};

    use super::*;

    fn wording(description: &str, schema: Value) -> Wording {
        let name = ToolName::mcp("s", "x");
        Wording::of(&ToolSpec::new(name, schema).with_description(description))
    }

    fn offered(tools: &[(&str, &str)]) -> BTreeMap<String, Wording> {
        let named = |(tool, about): &(&str, &str)| {
            ((*tool).to_owned(), wording(about, json!({"type": "object"})))
        };
        tools.iter().map(named).collect()
    }

    fn kinds(pins: &Pins) -> Vec<(String, PinChangeKind)> {
        pins.changes().into_iter().map(|change| (change.tool, change.kind)).collect()
    }

    fn after(first: &[(&str, &str)], then: &[(&str, &str)]) -> Vec<(String, PinChangeKind)> {
        let mut pins = Pins::first("s", offered(first));
        pins.take_in(offered(then));
        kinds(&pins)
    }

    fn is(tool: &str, kind: PinChangeKind) -> (String, PinChangeKind) {
        (tool.to_owned(), kind)
    }

    #[test]
    fn first_sight_is_trusted_and_the_same_again_is_no_change() {
        let tools = [("read", "Reads."), ("write", "Writes.")];
        assert_eq!(after(&tools, &tools), []);
        assert_eq!(after(&tools, &tools[..1]), []);
    }

    #[test]
    fn what_is_new_changed_or_renamed_is_told_apart() {
        let first = [("read", "Reads."), ("write", "Writes."), ("stay", "Stays.")];
        let renamed = |from: &str| PinChangeKind::Renamed { from: from.to_owned() };
        let taken = |from: &str| PinChangeKind::Taken { from: from.to_owned() };
        let with = |one: (&'static str, &'static str), two: (&'static str, &'static str)| {
            after(&first, &[one, two, first[2]])
        };
        assert_eq!(
            with(("read", "Reads all."), ("write", "Writes.")),
            [is("read", PinChangeKind::Changed)]
        );
        assert_eq!(with(("fetch", "Reads."), ("write", "Writes.")), [is("fetch", renamed("read"))]);
        assert_eq!(
            with(("read", "Writes."), ("write", "Reads.")),
            [is("read", taken("write")), is("write", taken("read"))]
        );
        assert_eq!(
            with(("fetch", "Fetches."), ("write", "Writes.")),
            [is("fetch", PinChangeKind::New)]
        );
        // It keeps what it is known by, and has changed besides.
        let plain = json!({"properties": {"a": {}, "b": {}}});
        let more = json!({"properties": {"a": {}, "b": {}}, "required": ["a"]});
        let mut pins = Pins::first("s", [("a".to_owned(), wording("Old.", plain))].into());
        pins.take_in([("b".to_owned(), wording("New.", more))].into());
        assert_eq!(kinds(&pins), [is("b", renamed("a"))]);
        assert!(pins.changes()[0].before.as_ref().unwrap().text().contains("Old."));
    }

    #[test]
    fn one_that_is_gone_stands_for_one_new_name() {
        let changes = after(&[("a", "Same.")], &[("b", "Same."), ("c", "Same.")]);
        let renamed = PinChangeKind::Renamed { from: "a".to_owned() };
        assert_eq!(changes, [is("b", renamed), is("c", PinChangeKind::New)]);
    }

    #[test]
    fn description_schema_and_annotations_each_count_and_the_order_of_keys_does_not() {
        let spec = |schema: &str| {
            let schema: Value = serde_json::from_str(schema).unwrap();
            ToolSpec::new(ToolName::mcp("s", "x"), schema).with_description("Does.")
        };
        let reads = Annotations { read_only: Some(true), ..Annotations::default() };
        let plain = Wording::of(&spec(r#"{"type":"object","title":"x"}"#));
        assert_eq!(plain, Wording::of(&spec(r#"{"title":"x","type":"object"}"#)));
        for other in [
            spec(r#"{"type":"object","title":"y"}"#),
            spec(r#"{"type":"object","title":"x"}"#).with_description("Does it."),
            spec(r#"{"type":"object","title":"x"}"#).with_annotations(reads),
            spec(r#"{"type":"object","title":"x"}"#).with_extra(r#"{"outputSchema":{}}"#),
        ] {
            assert_ne!(plain, Wording::of(&other));
        }
        // As a server says it, and not as we do.
        let told = |json| Wording::of(&spec("{}").with_extra(json).with_annotations(reads));
        assert_eq!(
            told(r#"{"annotations":{"readOnlyHint":true,"x":1}}"#).text().matches("annot").count(),
            1
        );
        assert_ne!(
            told(r#"{"annotations":{"readOnlyHint":true}}"#),
            told(r#"{"annotations":{"destructiveHint":true}}"#)
        );
    }

    #[test]
    fn approval_is_by_name_and_lasts_while_a_tool_is_away() {
        let mut pins = Pins::first("s", offered(&[("a", "One."), ("b", "Two.")]));
        pins.take_in(offered(&[("a", "1."), ("b", "2."), ("c", "3.")]));
        assert_eq!(pins.approve(|tool, _| tool == "a" || tool == "nothing"), ["a"]);
        assert_eq!(kinds(&pins).len(), 2);
        assert_eq!(pins.approve(|_, _| true), ["b", "c"]);
        assert_eq!(kinds(&pins), []);
        pins.take_in(offered(&[("a", "1.")]));
        assert_eq!(pins.gone().collect::<Vec<_>>(), ["b", "c"]);
        // Coming back as it was is no news; coming back otherwise is.
        pins.take_in(offered(&[("a", "1."), ("b", "2."), ("c", "other")]));
        assert_eq!(kinds(&pins), [is("c", PinChangeKind::Changed)]);
    }

    #[test]
    fn what_nobody_approved_leaves_no_trace_and_nothing_grows_for_ever() {
        let mut pins = Pins::first("s", BTreeMap::new());
        pins.take_in(offered(&[("new", "")]));
        pins.take_in(BTreeMap::new());
        assert_eq!(pins, Pins::first("s", BTreeMap::new()));
        for round in 0..3 {
            let names: Vec<String> = (0..800).map(|n| format!("{round}-{n}")).collect();
            let tools: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
            pins.take_in(offered(&tools));
            pins.approve(|_, _| true);
        }
        assert_eq!((pins.gone().count(), pins.offered().count()), (MOST_GONE, 800));
    }

    #[test]
    fn a_definition_too_long_to_keep_is_still_told_from_another() {
        let long = |end: &str| wording(&format!("{}{end}", "x".repeat(MOST_TEXT)), json!({}));
        assert!(long("a").text().len() < 200);
        assert_ne!(long("a"), long("b"));
        assert_eq!(long("a"), long("a"));
    }
}
