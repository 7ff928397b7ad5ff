//! Every tool known at one moment, and a caller's view of it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolcrib_search::{Index, Tuning};

use crate::names::Key;
use crate::segment::{Admitted, Item, Segment, TUNING};
use crate::{Fingerprint, Group, GroupId, Naming, Policy, Tool, ToolName, Usage};

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
    /// Whether any tool has white space in its own name, as few have.
    pub(crate) has_spaced_names: bool,
    len: OnceLock<usize>,
    /// What policies let through, for those asked about lately.
    seen: Mutex<Vec<Arc<Seen>>>,
}

/// Policies remembered per catalog. Beyond that the oldest is worked out again when needed.
const MOST_POLICIES: usize = 128;

impl Catalog {
    pub(crate) fn empty(naming: Naming) -> Self {
        Self::of(Index::new(&TUNING, Vec::new()), naming, Vec::new(), BTreeMap::new())
    }

    /// A catalog ranked with the numbers its segments were built with.
    pub(crate) fn tuned(tuning: &Tuning, naming: Naming, segments: Vec<Arc<Segment>>) -> Self {
        let index = Index::new(tuning, parts(&segments)).bundled();
        Self::of(index, naming, segments, BTreeMap::new())
    }

    /// The same with other segments; what is unchanged is not prepared for search again.
    pub(crate) fn with(
        &self,
        segments: Vec<Arc<Segment>>,
        availability: BTreeMap<GroupId, Availability>,
    ) -> Self {
        let index = self.index.with_segments(parts(&segments)).bundled();
        Self::of(index, self.naming, segments, availability)
    }

    fn of(
        index: Index,
        naming: Naming,
        segments: Vec<Arc<Segment>>,
        availability: BTreeMap<GroupId, Availability>,
    ) -> Self {
        // A toolset without tools says nothing, so it counts for nothing.
        let says = |segment: &&Arc<Segment>| segment.len() > 0 || segment.needs_loader();
        let prints = segments.iter().filter(says).map(|segment| segment.fingerprint.as_bytes());
        let fingerprint = Fingerprint::of(prints);
        let has_spaced_names = segments.iter().any(|segment| segment.has_spaced_names);
        let (len, seen) = (OnceLock::new(), Mutex::default());
        Self { naming, segments, availability, index, fingerprint, has_spaced_names, len, seen }
    }

    /// The catalog as `policy` lets a caller see it.
    pub fn view(self: &Arc<Self>, policy: &Policy) -> View {
        let (catalog, policy) = (self.clone(), policy.clone());
        View { seen: self.seen(&policy), catalog, policy, usage: None }
    }

    fn seen(&self, policy: &Policy) -> Arc<Seen> {
        let mut kept = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = kept.iter().find(|seen| seen.by == policy.fingerprint()) {
            return seen.clone();
        }
        let admitted: Vec<_> =
            self.segments.iter().map(|segment| segment.admitted(policy)).collect();
        // What is hidden must not show in it: whoever is told of changes would learn of that.
        let seen = self.segments.iter().zip(&admitted);
        let prints: Vec<_> =
            seen.filter_map(|(segment, seen)| segment.seen(policy, seen)).collect();
        let own = policy.fingerprint();
        let parts = prints.iter().map(Fingerprint::as_bytes).chain([own.as_bytes()]);
        let seen = Arc::new(Seen {
            by: policy.fingerprint(),
            fingerprint: Fingerprint::of(parts),
            admitted,
            index: OnceLock::new(),
            len: OnceLock::new(),
        });
        if kept.len() == MOST_POLICIES {
            kept.remove(0);
        }
        kept.push(seen.clone());
        seen
    }

    /// Everything, as a view.
    pub fn view_all(self: &Arc<Self>) -> View {
        self.view(&Policy::default())
    }

    /// The number of tools, those only known by name included.
    pub fn len(&self) -> usize {
        *self.len.get_or_init(|| {
            let items: usize = self.segments.iter().map(|segment| segment.len()).sum();
            let named = self.segments.iter().flat_map(|segment| &segment.named);
            items - named.filter(|named| self.registers(&named.name)).count()
        })
    }

    /// Whether the spec of this very tool is known.
    fn registers(&self, name: &ToolName) -> bool {
        let exposed = name.exposed(self.naming);
        let key = Key::new(&exposed);
        self.segments.iter().any(|segment| segment.registers(key, name))
    }

    /// Whether there is no tool.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How exposed names are formed here.
    pub fn naming(&self) -> Naming {
        self.naming
    }

    /// Equal for equal content.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Whether a toolset can answer now.
    pub fn availability(&self, group: &GroupId) -> Availability {
        self.availability.get(group).cloned().unwrap_or_default()
    }

    /// Toolsets that can't answer now, or were noted as starting: all others are ready.
    pub fn unready(&self) -> impl Iterator<Item = (&GroupId, &Availability)> {
        self.availability.iter()
    }

    /// The groups known, in the order of their ids, those without a tool included.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.segments.iter().map(|segment| &segment.group)
    }

    /// What is different since `before`.
    pub(crate) fn diff(&self, before: &Self) -> Diff {
        let all = |segment| (segment, None);
        Diff::between(before.segments.iter().map(all), self.segments.iter().map(all))
    }

    pub(crate) fn segment(&self, id: &GroupId) -> Option<&Arc<Segment>> {
        let at = self.segments.binary_search_by(|segment| segment.id().cmp(id)).ok()?;
        self.segments.get(at)
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }
}

/// What each segment is searched by.
fn parts(segments: &[Arc<Segment>]) -> Vec<Arc<toolcrib_search::Segment>> {
    segments.iter().map(|segment| segment.index.clone()).collect()
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
pub struct View {
    catalog: Arc<Catalog>,
    policy: Policy,
    seen: Arc<Seen>,
    /// What searches through it lift tools by.
    usage: Option<Arc<Usage>>,
}

/// What one policy lets through of a catalog.
#[derive(Debug)]
struct Seen {
    /// The policy's fingerprint.
    by: Fingerprint,
    /// By segment.
    admitted: Vec<Admitted>,
    /// The catalog's index with what is hidden left out, if anything is.
    index: OnceLock<Option<Index>>,
    len: OnceLock<usize>,
    fingerprint: Fingerprint,
}

impl View {
    /// The catalog behind the view, hidden tools included.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The same view, whose searches lift a little what was called after such queries before.
    pub fn with_usage(self, usage: Arc<Usage>) -> Self {
        Self { usage: Some(usage), ..self }
    }

    /// The same view, whose searches go by the tools alone.
    pub fn without_usage(self) -> Self {
        Self { usage: None, ..self }
    }

    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.usage.as_deref()
    }

    /// The policy that made it.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Whether a caller may know of an MCP server: not of one that is denied, nor of one of which
    /// no tool may be seen, or could be where none is known.
    pub fn may_know(&self, server: &str) -> bool {
        let id = GroupId::server(server);
        if !self.policy.admits_server(server) {
            return false;
        }
        if self.tools_in(&id).next().is_some() {
            return true;
        }
        let is_listed = self.catalog.segment(&id).is_some_and(|segment| !segment.tools.is_empty());
        !is_listed && self.policy.may_admit_of(server, self.catalog.naming)
    }

    /// The number of tools a caller may know of.
    pub fn len(&self) -> usize {
        *self.seen.len.get_or_init(|| {
            let items: usize = self.seen.admitted.iter().map(|admitted| admitted.count).sum();
            // A name and the tool it names are one.
            let named = self.items().filter(|item| matches!(item, Item::Named(_)));
            items - named.filter(|item| self.catalog.registers(item.name())).count()
        })
    }

    /// Whether a caller may know of no tool.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of tools the policy removed.
    pub fn hidden(&self) -> usize {
        self.catalog.len() - self.len()
    }

    /// Equal for equal content seen through equal policies.
    pub fn fingerprint(&self) -> Fingerprint {
        self.seen.fingerprint
    }

    /// The tools whose specs are known, in the order of their groups and then their names.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.items().filter_map(|item| match item {
            Item::Tool(tool) => Some(tool),
            Item::Named(_) => None,
        })
    }

    /// The tool exposed under exactly this name.
    pub fn tool(&self, exposed: &str) -> Option<&Arc<Tool>> {
        let key = Key::new(exposed);
        let mut found = self.segments().flat_map(|(segment, admitted)| {
            let seen = segment.find_exposed(key).filter(|at| admitted.bits[*at]);
            seen.map(|at| segment.item(at))
        });
        found.find_map(|item| match item {
            Item::Tool(tool) => Some(tool),
            Item::Named(_) => None,
        })
    }

    /// The tools of one group whose specs are known, in the order of their exposed names.
    pub fn tools_in(&self, group: &GroupId) -> impl Iterator<Item = &Arc<Tool>> {
        let found = self.catalog.segment(group);
        let seen = found.and_then(|segment| Some((segment, self.admitted(segment)?)));
        let tools = seen.map(|(segment, admitted)| segment.tools.iter().zip(admitted.bits.iter()));
        tools.into_iter().flatten().filter(|(_, bit)| **bit).map(|(tool, _)| tool)
    }

    /// The tool of a group that its own server knows under exactly this name.
    pub fn tool_in(&self, group: &GroupId, own: &str) -> Option<&Arc<Tool>> {
        let segment = self.catalog.segment(group)?;
        let admitted = self.admitted(segment)?;
        let mut found = segment.find(Key::new(own)).filter(|at| admitted.bits[*at]);
        found.find_map(|at| match segment.item(at) {
            Item::Tool(tool) if tool.name().tool() == own => Some(tool),
            _ => None,
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
        let admitted = |(segment, admitted)| (segment, Some(admitted));
        Diff::between(before.segments().map(admitted), self.segments().map(admitted))
    }

    pub(crate) fn segments(&self) -> impl Iterator<Item = (&Arc<Segment>, &Admitted)> {
        self.catalog.segments.iter().zip(&self.seen.admitted)
    }

    /// What the policy admits of a segment of the catalog.
    pub(crate) fn admitted(&self, segment: &Segment) -> Option<&Admitted> {
        let segments = &self.catalog.segments;
        let at = segments.binary_search_by(|known| known.id().cmp(segment.id())).ok()?;
        let is_same = std::ptr::eq(segments.get(at)?.as_ref(), segment);
        self.seen.admitted.get(at).filter(|_| is_same)
    }

    /// The catalog's index, where what a caller may not find is as good as not there. The name of
    /// a tool that is registered elsewhere is not found: the tool is.
    pub(crate) fn index(&self) -> &Index {
        let narrowed = self.seen.index.get_or_init(|| {
            let admits = |item, bit: bool| match item {
                Item::Tool(_) => bit,
                Item::Named(named) => bit && !self.catalog.registers(&named.name),
            };
            let by_segment = self.segments().map(|(segment, admitted)| {
                segment.items().zip(admitted.bits.iter()).map(move |(item, bit)| admits(item, *bit))
            });
            let is_in: Vec<bool> = by_segment.flatten().collect();
            is_in.contains(&false).then(|| self.catalog.index.clone().only(is_in))
        });
        narrowed.as_ref().unwrap_or(&self.catalog.index)
    }

    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.segments().flat_map(|(segment, admitted)| {
            segment.items().zip(admitted.bits.iter()).filter(|(_, bit)| **bit).map(|(item, _)| item)
        })
    }
}

type Names = BTreeMap<ToolName, Option<Fingerprint>>;

/// A segment with what is seen of it: all, unless a policy says.
type Seeing<'a> = (&'a Arc<Segment>, Option<&'a Admitted>);

fn names(seen: Option<Seeing<'_>>) -> Names {
    let Some((segment, admitted)) = seen else { return Names::new() };
    let is_seen = |at: usize| admitted.is_none_or(|admitted| admitted.bits[at]);
    let print = |item| match item {
        Item::Tool(tool) => Some(tool.fingerprint()),
        Item::Named(_) => None,
    };
    let items = segment.items().enumerate().filter(|(at, _)| is_seen(*at));
    items.map(|(_, item)| (item.name().clone(), print(item))).collect()
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

    /// What changed between two lists of segments, both in the order of ids.
    fn between<'a>(
        old: impl Iterator<Item = Seeing<'a>>,
        new: impl Iterator<Item = Seeing<'a>>,
    ) -> Self {
        let mut diff = Self::default();
        let (mut old, mut new) = (old.peekable(), new.peekable());
        loop {
            let order = match (old.peek(), new.peek()) {
                // Most segments are shared between two catalogs, and need not be looked at.
                (Some((was, _)), Some((is, _))) if Arc::ptr_eq(was, is) => Ordering::Equal,
                (Some((was, _)), Some((is, _))) => was.id().cmp(is.id()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let was = if order.is_le() { old.next() } else { None };
            let is = if order.is_ge() { new.next() } else { None };
            let same = match (was, is) {
                (Some((was, saw)), Some((is, sees))) => {
                    (Arc::ptr_eq(was, is) || was.fingerprint == is.fingerprint)
                        && saw.map(|saw| &saw.bits) == sees.map(|sees| &sees.bits)
                }
                _ => false,
            };
            if !same {
                diff.compare(&names(was), &names(is));
            }
        }
        diff.pair_moved();
        diff
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&ToolName) -> bool) {
        for names in [&mut self.added, &mut self.removed, &mut self.changed] {
            names.retain(&keep);
        }
    }

    fn compare(&mut self, old: &Names, new: &Names) {
        for (name, print) in new {
            match old.get(name) {
                None => self.added.push(name.clone()),
                Some(was) if was != print => self.changed.push(name.clone()),
                Some(_) => {}
            }
        }
        self.removed.extend(old.keys().filter(|name| !new.contains_key(*name)).cloned());
    }

    /// A tool that left one toolset for another has neither come nor gone.
    fn pair_moved(&mut self) {
        let added: HashSet<&ToolName> = self.added.iter().collect();
        let moved = self.removed.iter().filter(|name| added.contains(name)).cloned();
        let moved: HashSet<ToolName> = moved.collect();
        if !moved.is_empty() {
            self.retain(|name| !moved.contains(name));
            self.changed.extend(moved);
            self.changed.sort();
        }
    }
}
