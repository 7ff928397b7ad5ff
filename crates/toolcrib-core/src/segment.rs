//! One toolset's part of a catalog: its tools, a way to find each by name, and a search index.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use toolcrib_search::{Analyzer, Document, Field, Fields, Tuning};

use crate::names::{Key, Positions};
use crate::{Fingerprint, Group, GroupId, Members, Naming, Policy, Tool, ToolName};

/// How tools are ranked. The fields are in the order [`document`] gives them.
pub(crate) const TUNING: Tuning = Tuning::new(Fields::new(&[
    Field {
        name: "name",
        weight: 1.0,
        b: 0.2,
        reference_length: 3.0,
        told: 0.05,
        share: 0.08,
        meaning: 0.8,
    },
    Field {
        name: "namespace",
        weight: 2.0,
        b: 0.3,
        reference_length: 2.0,
        told: 0.4,
        share: 0.0,
        meaning: 0.4,
    },
    Field {
        name: "summary",
        weight: 1.0,
        b: 0.4,
        reference_length: 50.0,
        told: 0.0,
        share: 0.08,
        meaning: 1.5,
    },
    Field {
        name: "details",
        weight: 0.6,
        b: 0.6,
        reference_length: 40.0,
        meaning: 1.5,
        ..Field::PLAIN
    },
    Field {
        name: "parameters",
        weight: 1.5,
        b: 0.8,
        reference_length: 8.0,
        share: 0.02,
        meaning: 0.4,
        ..Field::PLAIN
    },
    Field {
        name: "parameter descriptions",
        weight: 0.4,
        b: 0.8,
        reference_length: 80.0,
        meaning: 0.0,
        ..Field::PLAIN
    },
    Field {
        name: "hint",
        weight: 1.5,
        b: 0.6,
        reference_length: 6.0,
        meaning: 0.5,
        ..Field::PLAIN
    },
]));

/// A member whose spec a loader has yet to bring.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: ToolName,
    pub(crate) exposed: Arc<str>,
    pub(crate) group: GroupId,
}

/// Something that can be found: a tool, or the name of one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item<'a> {
    Tool(&'a Arc<Tool>),
    Named(&'a Named),
}

impl<'a> Item<'a> {
    pub(crate) fn name(self) -> &'a ToolName {
        match self {
            Self::Tool(tool) => tool.name(),
            Self::Named(named) => &named.name,
        }
    }

    pub(crate) fn exposed(self) -> &'a Arc<str> {
        match self {
            Self::Tool(tool) => tool.exposed(),
            Self::Named(named) => &named.exposed,
        }
    }

    pub(crate) fn key(self) -> ItemKey<'a> {
        match self {
            Self::Tool(tool) => ItemKey::Tool(Arc::as_ptr(tool)),
            Self::Named(named) => ItemKey::Named(&named.exposed),
        }
    }
}

/// What makes an item one of its own among those found: a tool is itself, a mere name is its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ItemKey<'a> {
    Tool(*const Tool),
    Named(&'a str),
}

pub(crate) struct Segment {
    pub(crate) group: Group,
    /// In the order of their exposed names.
    pub(crate) tools: Vec<Arc<Tool>>,
    pub(crate) named: Vec<Named>,
    pub(crate) index: Arc<toolcrib_search::Segment>,
    pub(crate) fingerprint: Fingerprint,
    /// Exposed names, and own names where they differ, to positions among tools then named.
    positions: Positions,
    /// The servers and host namespaces its items belong to: hardly ever more than one.
    pub(crate) namespaces: Vec<Arc<str>>,
    /// Whether any of its tools has white space in its own name, as few have.
    pub(crate) has_spaced_names: bool,
    /// Which items each policy admits, kept so that a swap of catalogs costs nothing here.
    admitted: Mutex<Vec<(Fingerprint, Admitted)>>,
}

/// Which items of a segment a policy admits.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) bits: Arc<[bool]>,
    pub(crate) count: usize,
}

/// Policies remembered per segment. Beyond that the oldest is worked out again when needed.
const MOST_POLICIES: usize = 128;

impl Segment {
    /// Builds the segment of `group`; `tools` replaces whatever members the group lists.
    pub(crate) fn build(
        group: Group,
        tools: Vec<Arc<Tool>>,
        naming: Naming,
        analyzer: &mut Analyzer,
    ) -> Self {
        Self::tuned(&TUNING, group, tools, naming, analyzer)
    }

    /// The same, to be ranked with other numbers.
    pub(crate) fn tuned(
        tuning: &Tuning,
        group: Group,
        mut tools: Vec<Arc<Tool>>,
        naming: Naming,
        analyzer: &mut Analyzer,
    ) -> Self {
        tools.sort_by(|a, b| a.exposed().cmp(b.exposed()));
        let known: HashSet<&ToolName> = tools.iter().map(|tool| tool.name()).collect();
        let mut named: Vec<Named> = match group.members() {
            Members::Named(names) => names
                .iter()
                .filter(|name| !known.contains(name))
                .map(|name| Named {
                    name: name.clone(),
                    exposed: name.exposed(naming).into(),
                    group: group.id().clone(),
                })
                .collect(),
            _ => Vec::new(),
        };
        named.sort_by(|a, b| a.exposed.cmp(&b.exposed));
        named.dedup_by(|a, b| a.exposed == b.exposed);
        let items = || tools.iter().map(Item::Tool).chain(named.iter().map(Item::Named));
        let positions = Positions::new(items().zip(0..).flat_map(|(item, at)| {
            let own = Some(item.name().tool()).filter(|own| **item.exposed() != **own);
            [Some(&**item.exposed()), own].into_iter().flatten().map(move |name| (name, at))
        }));
        let documents = items().map(|item| document(item, &group));
        let index = toolcrib_search::Segment::build(analyzer, tuning, documents);
        let fingerprint = fingerprint(&group, items());
        let mut namespaces: Vec<Arc<str>> =
            items().filter_map(|item| item.name().namespace()).map(Into::into).collect();
        namespaces.sort();
        namespaces.dedup();
        let is_spaced = |item: Item<'_>| item.name().tool().contains(char::is_whitespace);
        let has_spaced_names = items().any(is_spaced);
        Self {
            index: Arc::new(index),
            admitted: Mutex::default(),
            group,
            tools,
            named,
            fingerprint,
            positions,
            namespaces,
            has_spaced_names,
        }
    }

    pub(crate) fn id(&self) -> &GroupId {
        self.group.id()
    }

    /// Whether a loader must be asked before all members are known.
    pub(crate) fn needs_loader(&self) -> bool {
        !self.named.is_empty() || *self.group.members() == Members::Unknown
    }

    pub(crate) fn len(&self) -> usize {
        self.tools.len() + self.named.len()
    }

    pub(crate) fn item(&self, at: usize) -> Item<'_> {
        match self.tools.get(at) {
            Some(tool) => Item::Tool(tool),
            None => Item::Named(&self.named[at - self.tools.len()]),
        }
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = Item<'_>> {
        (0..self.len()).map(|at| self.item(at))
    }

    /// Positions of the items with this exposed or own name.
    pub(crate) fn find(&self, key: Key<'_>) -> impl Iterator<Item = usize> {
        self.positions.of(key).filter(move |at| {
            let item = self.item(*at);
            **item.exposed() == *key.text || item.name().tool() == key.text
        })
    }

    /// Positions of the items exposed under this name.
    pub(crate) fn find_exposed(&self, key: Key<'_>) -> impl Iterator<Item = usize> {
        self.positions.of(key).filter(move |at| **self.item(*at).exposed() == *key.text)
    }

    /// Whether the spec of this very tool is known here.
    pub(crate) fn registers(&self, exposed: Key<'_>, name: &ToolName) -> bool {
        let mut found = self.find_exposed(exposed).map(|at| self.item(at));
        found.any(|item| matches!(item, Item::Tool(tool) if tool.name() == name))
    }

    /// The fingerprint of what a policy lets through; `None` if that is nothing.
    pub(crate) fn seen(&self, policy: &Policy, admitted: &Admitted) -> Option<Fingerprint> {
        if admitted.count == self.len() {
            let may_come = || {
                let server = self.id().server_name();
                self.needs_loader() && server.is_none_or(|server| policy.admits_server(server))
            };
            return (self.len() > 0 || may_come()).then_some(self.fingerprint);
        }
        let items = self.items().zip(admitted.bits.iter()).filter(|(_, bit)| **bit);
        (admitted.count > 0).then(|| self.fingerprint_of(items.map(|(item, _)| item)))
    }

    /// The fingerprint of what is left of it where only some items are seen.
    pub(crate) fn fingerprint_of<'a>(
        &'a self,
        seen: impl Iterator<Item = Item<'a>>,
    ) -> Fingerprint {
        fingerprint(&self.group, seen)
    }

    /// For each item, whether `policy` admits it.
    pub(crate) fn admitted(&self, policy: &Policy) -> Admitted {
        let mut kept = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, admitted)) = kept.iter().find(|(of, _)| *of == policy.fingerprint()) {
            return admitted.clone();
        }
        let bits: Arc<[bool]> = self.items().map(|item| policy.admits_item(item)).collect();
        let count = bits.iter().filter(|bit| **bit).count();
        let admitted = Admitted { bits, count };
        if kept.len() == MOST_POLICIES {
            kept.remove(0);
        }
        kept.push((policy.fingerprint(), admitted.clone()));
        admitted
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({}, {} items)", self.id(), self.len())
    }
}

fn fingerprint<'a>(group: &Group, items: impl Iterator<Item = Item<'a>>) -> Fingerprint {
    let head = [group.id().as_str(), group.display_name(), group.description()];
    let kind = match group.members() {
        Members::Unknown => "unknown",
        _ => "listed",
    };
    let prints: Vec<Cow<'a, [u8]>> = items
        .map(|item| match item {
            Item::Tool(tool) => Cow::Owned(tool.fingerprint().as_bytes().to_vec()),
            Item::Named(named) => Cow::Borrowed(named.exposed.as_bytes()),
        })
        .collect();
    let head = head.into_iter().chain([kind]).map(str::as_bytes);
    Fingerprint::of(head.chain(prints.iter().map(|print| &**print)))
}

/// What an item is searched by.
pub(crate) fn document<'a>(item: Item<'a>, group: &'a Group) -> Document<'a> {
    let name = item.name();
    let place = match name.namespace() {
        Some(namespace) if group.display_name() != group.id().as_str() => {
            format!("{namespace} {}", group.display_name())
        }
        Some(namespace) => namespace.to_owned(),
        None => group.display_name().to_owned(),
    };
    let (mut summary, mut details) = ("", "");
    let (mut parameters, mut about, mut hint) = (String::new(), String::new(), String::new());
    if let Item::Tool(tool) = item {
        (summary, details) = split_summary(tool.spec().description());
        // A derived hint repeats what the other fields already say.
        hint = tool.spec().own_search_hint().unwrap_or_default().to_owned();
        collect(&tool.spec().input_schema().to_value(), 0, &mut parameters, &mut about);
    }
    Document::new(
        item.exposed().clone(),
        [
            Cow::Borrowed(name.tool()),
            place.into(),
            summary.into(),
            details.into(),
            parameters.into(),
            about.into(),
            hint.into(),
        ],
    )
}

/// The first sentence or line of a description, which says what the tool is for, and the rest.
fn split_summary(description: &str) -> (&str, &str) {
    let description = description.trim_start();
    let ends = |&(at, c): &(usize, char)| match c {
        '\n' | '。' | '！' | '？' => true,
        '.' | ';' | '?' | '!' => description[at + 1..].starts_with(char::is_whitespace),
        _ => false,
    };
    let end = description.char_indices().find(ends).map(|(at, c)| at + c.len_utf8());
    description.split_at(end.unwrap_or(description.len()))
}

/// How deep parameters of parameters are searched.
const MOST_DEPTH: usize = 4;

/// Gathers the names and descriptions of parameters, and the values they may take.
fn collect(schema: &Value, depth: usize, names: &mut String, about: &mut String) {
    let Value::Object(schema) = schema else { return };
    if depth > MOST_DEPTH {
        return;
    }
    let say = |text: &str, out: &mut String| {
        out.push_str(text);
        out.push(' ');
    };
    if let Some(Value::Object(properties)) = schema.get("properties") {
        for (name, inner) in properties {
            say(name, names);
            if let Some(text) = inner.get("description").and_then(Value::as_str) {
                say(text, about);
            }
            for value in inner.get("enum").and_then(Value::as_array).into_iter().flatten() {
                say(value.as_str().unwrap_or_default(), about);
            }
            collect(inner, depth + 1, names, about);
        }
    }
    if let Some(items) = schema.get("items") {
        collect(items, depth + 1, names, about);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for branch in schema.get(keyword).and_then(Value::as_array).into_iter().flatten() {
            collect(branch, depth + 1, names, about);
        }
    }
}

/// The exposed names of items, in their order.
pub(crate) fn item_names(items: &[Item<'_>]) -> Vec<Arc<str>> {
    items.iter().map(|item| item.exposed().clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_begins_with_what_the_tool_is_for() {
        let cases = [
            ("", "", ""),
            ("Lists files", "Lists files", ""),
            ("Lists files.", "Lists files.", ""),
            ("Reads v1.2 of a file. Slow!", "Reads v1.2 of a file.", " Slow!"),
            ("\n  Sends mail\n\nArgs: to", "Sends mail\n", "\nArgs: to"),
            ("查询天气。仅限中国。", "查询天气。", "仅限中国。"),
        ];
        for (description, summary, details) in cases {
            assert_eq!(split_summary(description), (summary, details), "{description:?}");
        }
    }
}
