//! Every tool known at one moment, and a caller's view of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolcrib_search::Index;

use crate::segment::{Admitted, Item, Segment};
use crate::{Fingerprint, GroupId, Naming, Policy, Tool, ToolName};

/// Whether a toolset can answer now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Availability {
    /// It answers, or will when first called.
    #[default]
    Ready,
    /// It is starting; what it offers may not be listed yet.
    Starting,
    /// It does not answer, for this reason.
    Down(String),
}

/// An immutable snapshot of every tool known.
///
/// Made of one part per toolset, so a change costs in proportion to that toolset and unchanged
/// parts are shared between snapshots. Equal content gives an equal [`fingerprint`](Self::fingerprint),
/// in whatever order it was registered.
pub struct Catalog {
    pub(crate) naming: Naming,
    /// In the order of their ids.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) availability: BTreeMap<GroupId, Availability>,
    index: Index,
    fingerprint: Fingerprint,
}

impl Catalog {
    pub(crate) fn new(
        naming: Naming,
        segments: Vec<Arc<Segment>>,
        availability: BTreeMap<GroupId, Availability>,
    ) -> Self {
        let fingerprint =
            Fingerprint::of(segments.iter().map(|segment| segment.fingerprint.as_bytes()));
        let index = Index::new(segments.iter().map(|segment| segment.index.clone()).collect());
        Self { naming, segments, availability, index, fingerprint }
    }

    /// The catalog as `policy` lets a caller see it.
    pub fn view(self: &Arc<Self>, policy: &Policy) -> View {
        let admitted: Vec<Admitted> =
            self.segments.iter().map(|segment| segment.admitted(policy)).collect();
        let len = admitted.iter().map(|admitted| admitted.count).sum();
        let fingerprint =
            Fingerprint::of([self.fingerprint.as_bytes(), policy.fingerprint().as_bytes()]);
        View(Arc::new(Inner {
            catalog: self.clone(),
            policy: policy.clone(),
            admitted,
            len,
            fingerprint,
        }))
    }

    /// Everything, as a view.
    pub fn view_all(self: &Arc<Self>) -> View {
        self.view(&Policy::default())
    }

    /// The number of tools, those only known by name included.
    pub fn len(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }

    /// Whether there is no tool.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Equal for equal content.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Whether a toolset can answer now.
    pub fn availability(&self, group: &GroupId) -> Availability {
        self.availability.get(group).cloned().unwrap_or_default()
    }

    pub(crate) fn segment(&self, id: &GroupId) -> Option<&Arc<Segment>> {
        let at = self.segments.binary_search_by(|segment| segment.id().cmp(id)).ok()?;
        self.segments.get(at)
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Catalog({} tools, {})", self.len(), self.fingerprint)
    }
}

/// A catalog as one policy lets a caller see it. Cheap to clone.
///
/// Whatever is done on behalf of a caller is done through its view: what the view hides can't be
/// listed, found, loaded or called.
#[derive(Clone, Debug)]
pub struct View(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    catalog: Arc<Catalog>,
    policy: Policy,
    admitted: Vec<Admitted>,
    len: usize,
    fingerprint: Fingerprint,
}

impl View {
    /// The catalog behind the view, hidden tools included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.0.catalog
    }

    /// The policy that made it.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// The number of tools a caller may know of.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether a caller may know of no tool.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// The number of tools the policy removed.
    pub fn hidden(&self) -> usize {
        self.0.catalog.len() - self.0.len
    }

    /// Equal for equal content seen through equal policies.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    /// The tools whose specs are known, in the order of their groups and then their names.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.items().filter_map(|item| match item {
            Item::Tool(tool) => Some(tool),
            Item::Named(_) => None,
        })
    }

    /// The tools by the group they were registered with.
    pub fn by_origin(&self) -> BTreeMap<&GroupId, Vec<&Arc<Tool>>> {
        let mut groups: BTreeMap<&GroupId, Vec<&Arc<Tool>>> = BTreeMap::new();
        self.tools().for_each(|tool| groups.entry(tool.group()).or_default().push(tool));
        groups
    }

    /// Every schema with where it comes from: `{name, description, parameters, source}` and, for
    /// MCP tools, `mcpServer`. In the order of their names.
    pub fn schemas(&self) -> Vec<Value> {
        let mut tools: Vec<&Arc<Tool>> = self.tools().collect();
        tools.sort_by(|a, b| a.exposed().cmp(b.exposed()));
        tools
            .into_iter()
            .map(|tool| {
                let mut row = json!({
                    "name": tool.exposed(),
                    "description": tool.spec().description(),
                    "parameters": tool.spec().input_schema(),
                    "source": tool.name().source().label(),
                });
                if let Some(server) = tool.name().server() {
                    row["mcpServer"] = server.into();
                }
                row
            })
            .collect()
    }

    /// What a turn would have to be told if it last saw `before` and now sees this.
    pub fn diff(&self, before: &View) -> Diff {
        let mut diff = Diff::default();
        let (old, new) = (before.by_segment(), self.by_segment());
        for (id, (segment, admitted)) in &new {
            match old.get(id) {
                Some((same, was)) if same.fingerprint == segment.fingerprint => {
                    if was.bits != admitted.bits {
                        diff.compare(names(same, was), names(segment, admitted));
                    }
                }
                Some((other, was)) => {
                    diff.compare(names(other, was), names(segment, admitted));
                }
                None => diff.compare(BTreeMap::new(), names(segment, admitted)),
            }
        }
        for (id, (segment, was)) in &old {
            if !new.contains_key(id) {
                diff.compare(names(segment, was), BTreeMap::new());
            }
        }
        diff
    }

    pub(crate) fn by_segment(&self) -> BTreeMap<&GroupId, (&Arc<Segment>, &Admitted)> {
        self.segments().map(|(segment, admitted)| (segment.id(), (segment, admitted))).collect()
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = (&Arc<Segment>, &Admitted)> {
        self.0.catalog.segments.iter().zip(&self.0.admitted)
    }

    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.segments().flat_map(|(segment, admitted)| {
            segment.items().zip(admitted.bits.iter()).filter(|(_, bit)| **bit).map(|(item, _)| item)
        })
    }
}

type Names = BTreeMap<ToolName, Option<Fingerprint>>;

fn names(segment: &Segment, admitted: &Admitted) -> Names {
    let admitted = segment.items().zip(admitted.bits.iter()).filter(|(_, bit)| **bit);
    let print = |item| match item {
        Item::Tool(tool) => Some(tool.fingerprint()),
        Item::Named(_) => None,
    };
    admitted.map(|(item, _)| (item.name().clone(), print(item))).collect()
}

/// What changed between two catalogs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// Tools that are new.
    pub added: Vec<ToolName>,
    /// Tools that are gone.
    pub removed: Vec<ToolName>,
    /// Tools of which something changed that a model or a policy could notice.
    pub changed: Vec<ToolName>,
}

impl Diff {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }

    fn compare(&mut self, old: Names, new: Names) {
        for (name, print) in &new {
            match old.get(name) {
                None => self.added.push(name.clone()),
                Some(was) if was != print => self.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        self.removed.extend(old.into_keys().filter(|name| !new.contains_key(name)));
    }
}
