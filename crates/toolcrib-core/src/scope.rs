//! What one conversation can reach: its view, with the groups it has loaded in place of what the
//! catalog knew of them. Every lookup and search goes through here.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use indexmap::IndexMap;
use toolcrib_search::Index;

use crate::names::Key;
use crate::segment::{Admitted, Item, Named, Segment};
use crate::{GroupId, Members, Tool, ToolName, ToolSource, View, name};

/// The segments of groups a conversation had to load to know them.
pub(crate) type Learned = IndexMap<GroupId, Arc<Segment>>;

#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) view: &'a View,
    learned: &'a Learned,
    with_mcp: bool,
}

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum Lookup<'a> {
    Tool(&'a Arc<Tool>),
    /// A tool whose group must be loaded first.
    Named(&'a Named),
    /// Several tools have this name.
    Ambiguous(Vec<Item<'a>>),
    /// No tool a caller may know of. What the policy hides is listed for the audit log.
    Missing {
        denied: Vec<ToolName>,
    },
}

impl<'a> Scope<'a> {
    pub(crate) fn new(view: &'a View, learned: &'a Learned, with_mcp: bool) -> Self {
        Self { view, learned, with_mcp }
    }

    /// The segments that apply.
    fn applying(self) -> impl Iterator<Item = &'a Arc<Segment>> {
        let segments = self.view.segments();
        segments.map(move |(segment, _)| self.learned_of(segment).unwrap_or(segment))
    }

    /// The same, each with what the policy admits of it.
    pub(crate) fn segments(self) -> impl Iterator<Item = (&'a Arc<Segment>, Cow<'a, Admitted>)> {
        self.view.segments().map(move |(segment, admitted)| match self.learned_of(segment) {
            Some(learned) => (learned, Cow::Owned(learned.admitted(self.view.policy()))),
            None => (segment, Cow::Borrowed(admitted)),
        })
    }

    pub(crate) fn segment(self, id: &GroupId) -> Option<&'a Arc<Segment>> {
        let declared = self.view.catalog().segment(id)?;
        Some(self.learned_of(declared).unwrap_or(declared))
    }

    /// What a loader brought for the group; of no use once the catalog itself knows its tools.
    fn learned_of(self, declared: &Segment) -> Option<&'a Arc<Segment>> {
        if self.learned.is_empty() {
            return None;
        }
        self.learned.get(declared.id()).filter(|_| declared.needs_loader())
    }

    pub(crate) fn admits(self, item: Item<'_>, bit: bool) -> bool {
        bit && (self.with_mcp || !matches!(item.name().source(), ToolSource::Mcp { .. }))
    }

    /// The items of a segment that a caller may know of.
    pub(crate) fn items_of(
        self,
        segment: &'a Segment,
        admitted: Cow<'a, Admitted>,
    ) -> impl Iterator<Item = Item<'a>> {
        segment
            .items()
            .enumerate()
            .filter(move |(at, item)| self.admits(*item, admitted.bits[*at]))
            .map(|(_, item)| item)
    }

    /// The members of a group: its own tools, and those it names that are registered elsewhere.
    pub(crate) fn members(self, segment: &'a Segment) -> Vec<Item<'a>> {
        self.members_of(segment, self.admitted_of(segment)).collect()
    }

    /// What the policy admits of a segment: the view knows, unless a loader brought it.
    fn admitted_of(self, segment: &Segment) -> Cow<'a, Admitted> {
        match self.view.admitted(segment) {
            Some(admitted) => Cow::Borrowed(admitted),
            None => Cow::Owned(segment.admitted(self.view.policy())),
        }
    }

    fn members_of(
        self,
        segment: &'a Segment,
        admitted: Cow<'a, Admitted>,
    ) -> impl Iterator<Item = Item<'a>> {
        segment.items().enumerate().filter_map(move |(at, item)| {
            // A tool registered elsewhere is judged by what is known of it there.
            if self.stands_in(item) {
                return self.identity(item.name()).map(Item::Tool);
            }
            self.admits(item, admitted.bits[at]).then_some(item)
        })
    }

    /// Whether the group can be asked for although nobody knows yet what is in it.
    pub(crate) fn is_unknown(self, segment: &Segment) -> bool {
        *segment.group.members() == Members::Unknown
            && segment.id().server_name().is_none_or(|server| self.may_reach(server))
            && !self.view.policy().admits_nothing()
    }

    /// Whether nobody has asked for the group yet, so that nobody knows what is in it.
    pub(crate) fn is_unopened(self, segment: &Segment) -> bool {
        self.is_unknown(segment) && !self.learned.contains_key(segment.id())
    }

    /// Whether a loader would have to be asked before all tools are known.
    pub(crate) fn has_unknown(self) -> bool {
        let unasked = |segment: &Segment| !self.learned.contains_key(segment.id());
        let is_named = |item: Item<'_>| matches!(item, Item::Named(_));
        self.segments().filter(|(segment, _)| segment.needs_loader() && unasked(segment)).any(
            |(segment, admitted)| {
                self.is_unknown(segment) || self.members_of(segment, admitted).any(is_named)
            },
        )
    }

    /// How many tools a caller may know of, those known by name alone included.
    pub(crate) fn count(self) -> usize {
        if self.learned.is_empty() && self.with_mcp {
            return self.view.len();
        }
        self.candidates().count()
    }

    /// Every group with something to offer, in the order of ids. Groups whose members are unknown
    /// count as having something.
    pub(crate) fn groups(self) -> impl Iterator<Item = (&'a Arc<Segment>, Vec<Item<'a>>)> {
        self.segments().filter_map(move |(segment, admitted)| {
            let items: Vec<Item<'a>> = self.members_of(segment, admitted).collect();
            (self.is_unknown(segment) || !items.is_empty()).then_some((segment, items))
        })
    }

    /// The ids of those groups, without looking at more than one member of each.
    pub(crate) fn group_ids(self) -> impl Iterator<Item = &'a GroupId> {
        self.segments().filter_map(move |(segment, admitted)| {
            let offers =
                self.is_unknown(segment) || self.members_of(segment, admitted).next().is_some();
            offers.then_some(segment.id())
        })
    }

    /// Every tool whose spec is known.
    pub(crate) fn tools(self) -> impl Iterator<Item = &'a Arc<Tool>> {
        self.segments()
            .flat_map(move |(segment, admitted)| self.items_of(segment, admitted))
            .filter_map(|item| match item {
                Item::Tool(tool) => Some(tool),
                Item::Named(_) => None,
            })
    }

    /// The tool with this very identity.
    pub(crate) fn identity(self, name: &ToolName) -> Option<&'a Arc<Tool>> {
        let exposed = name.exposed(self.view.catalog().naming);
        let own = |tool: &&Arc<Tool>| tool.name() == name;
        // Nearly every tool is registered with the toolset its name says.
        self.in_group(&GroupId::of(name), &exposed).filter(own).or_else(|| {
            let key = Key::new(&exposed);
            let (found, _) = self.collect(|segment, at| at.extend(segment.find_exposed(key)));
            found.into_iter().find_map(|item| match item {
                Item::Tool(tool) => Some(tool).filter(own),
                Item::Named(_) => None,
            })
        })
    }

    /// Whether a server is one this conversation may know of.
    pub(crate) fn may_reach(self, server: &str) -> bool {
        self.with_mcp && self.view.may_know(server)
    }

    /// Whether the spec of this very tool is known, visible or not.
    pub(crate) fn registers(self, name: &ToolName) -> bool {
        let exposed = name.exposed(self.view.catalog().naming);
        let key = Key::new(&exposed);
        self.applying().any(|segment| segment.registers(key, name))
    }

    /// Whether a tool outside the group has this exposed name, visible or not.
    pub(crate) fn taken(self, exposed: &str, group: &GroupId) -> bool {
        let key = Key::new(exposed);
        self.applying().filter(|segment| segment.id() != group).any(|segment| {
            let mut found = segment.find_exposed(key).map(|at| segment.item(at));
            found.any(|item| matches!(item, Item::Tool(_)))
        })
    }

    /// The tool exposed under this name, found through its group: the fast way for tools a
    /// conversation has already loaded.
    pub(crate) fn in_group(self, group: &GroupId, exposed: &str) -> Option<&'a Arc<Tool>> {
        let segment = self.segment(group)?;
        let admitted = self.admitted_of(segment);
        segment.find_exposed(Key::new(exposed)).find_map(|at| match segment.item(at) {
            item @ Item::Tool(tool) if self.admits(item, admitted.bits[at]) => Some(tool),
            _ => None,
        })
    }

    /// The group a model means: by id, or a server by its bare name.
    pub(crate) fn group(self, id: &str) -> Option<&'a Arc<Segment>> {
        let known = |id: GroupId| {
            let segment = self.segment(&id)?;
            (self.is_unknown(segment) || !self.members(segment).is_empty()).then_some(segment)
        };
        known(id.into()).or_else(|| known(GroupId::server(id)))
    }

    /// What `name` stands for: an exposed name, `server__tool`, `server.tool`, or the tool's own
    /// name where only one tool has it.
    pub(crate) fn find(self, name: &str) -> Lookup<'a> {
        let name = name::unquoted(name);
        let (found, denied) = self.find_all(name);
        let (found, denied) = match name::without_imagined_namespace(name) {
            // What is denied is as good as not there, also for other readings of the name.
            Some(stripped) if found.is_empty() => {
                let (found, also) = self.find_all(stripped);
                (found, if denied.is_empty() { also } else { denied })
            }
            _ => (found, denied),
        };
        match found.as_slice() {
            [] => Lookup::Missing { denied },
            [Item::Tool(tool)] => Lookup::Tool(tool),
            [Item::Named(named)] => Lookup::Named(named),
            _ => Lookup::Ambiguous(found),
        }
    }

    fn find_all(self, name: &str) -> (Vec<Item<'a>>, Vec<ToolName>) {
        let key = Key::new(name);
        let (found, mut denied) = self.collect(|segment, at| at.extend(segment.find(key)));
        let (exposed, own): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|item| **item.exposed() == *name);
        if !exposed.is_empty() {
            return (exposed, denied);
        }
        // A hidden tool is as good as none, so the other readings of the name still count.
        if ToolName::may_be_qualified(name) {
            let (qualified, hidden) = self.collect(|segment, at| {
                for namespace in &segment.namespaces {
                    let Some(rest) = ToolName::strip_namespace(namespace, name) else { continue };
                    at.extend(segment.find(Key::new(rest)).filter(|at| {
                        let found = segment.item(*at).name();
                        found.namespace() == Some(namespace) && found.tool() == rest
                    }));
                }
            });
            denied.extend(hidden);
            if !qualified.is_empty() {
                return (qualified, denied);
            }
        }
        denied.sort();
        denied.dedup();
        (own, denied)
    }

    /// Gathers items over all segments, one per identity, apart from those a caller may not see.
    /// `look` adds the positions of a segment's items that are asked for.
    fn collect(
        self,
        look: impl Fn(&'a Segment, &mut Vec<usize>),
    ) -> (Vec<Item<'a>>, Vec<ToolName>) {
        let (mut found, mut denied): (Vec<Item<'a>>, Vec<ToolName>) = Default::default();
        let mut positions = Vec::new();
        for (segment, admitted) in self.segments() {
            look(segment, &mut positions);
            for at in positions.drain(..) {
                let item = segment.item(at);
                if !self.admits(item, admitted.bits[at]) {
                    denied.push(item.name().clone());
                    continue;
                }
                match found.iter_mut().find(|known| known.name() == item.name()) {
                    // A name and the tool itself: the tool says more.
                    Some(known) if matches!(known, Item::Named(_)) => *known = item,
                    Some(_) => {}
                    None => found.push(item),
                }
            }
        }
        (found, denied)
    }

    /// Whether any tool has white space in its own name.
    pub(crate) fn has_spaced_names(self) -> bool {
        let may_have = self.view.catalog().has_spaced_names || !self.learned.is_empty();
        may_have
            && self.segments().filter(|(segment, _)| segment.has_spaced_names).any(
                |(segment, admitted)| {
                    self.items_of(segment, admitted)
                        .any(|item| item.name().tool().contains(char::is_whitespace))
                },
            )
    }

    /// Whether this is only the name of a tool that is registered elsewhere.
    fn stands_in(self, item: Item<'_>) -> bool {
        matches!(item, Item::Named(named) if self.registers(&named.name))
    }

    /// The names that stand for tools registered elsewhere, found in one walk: who looks at every
    /// item asks here rather than [`stands_in`](Self::stands_in), which looks through all segments.
    fn stand_ins(self) -> HashSet<&'a ToolName> {
        let named: HashSet<&ToolName> =
            self.applying().flat_map(|segment| &segment.named).map(|named| &named.name).collect();
        if named.is_empty() {
            return named;
        }
        let tools = self.applying().flat_map(|segment| &segment.tools);
        tools.filter_map(|tool| named.get(tool.name()).copied()).collect()
    }

    /// Everything a caller may find, each tool once.
    pub(crate) fn candidates(self) -> impl Iterator<Item = Item<'a>> {
        let stand_ins = self.stand_ins();
        let segments = self.segments();
        let items = segments.flat_map(move |(segment, admitted)| self.items_of(segment, admitted));
        items.filter(move |item| !is_among(&stand_ins, *item))
    }

    /// The item a document of that index is about.
    pub(crate) fn document(self, index: &Index, doc: usize) -> Item<'a> {
        let (segment, at) = index.locate(doc);
        let declared = &self.view.catalog().segments[segment];
        self.learned_of(declared).unwrap_or(declared).item(at)
    }

    /// The documents of [`index`](Self::index) about tools that a caller may know of and whose
    /// identity is displayed like this.
    pub(crate) fn documents_of(self, displayed: &str) -> Vec<usize> {
        let (mut found, mut base) = (Vec::new(), 0);
        for (segment, admitted) in self.segments() {
            let namespaces = segment.namespaces.iter().map(|namespace| &**namespace);
            let own_in = |namespace| displayed.strip_prefix(namespace)?.strip_prefix('/');
            let qualified = namespaces.filter_map(|it| Some((Some(it), own_in(it)?)));
            for (namespace, own) in qualified.chain([(None, displayed)]) {
                let at = segment.find(Key::new(own)).filter(|at| {
                    let item = segment.item(*at);
                    let is_it = item.name().namespace() == namespace && item.name().tool() == own;
                    is_it && self.admits(item, admitted.bits[*at])
                });
                found.extend(at.map(|at| base + at));
            }
            base += segment.len();
        }
        found
    }

    /// An index over the segments that apply, in which each tool is found once and what a caller
    /// may not know of is as good as not there.
    pub(crate) fn index(self) -> Cow<'a, Index> {
        if self.learned.is_empty() && self.with_mcp {
            return Cow::Borrowed(self.view.index());
        }
        let parts = self.applying().map(|segment| segment.index.clone());
        let index = self.view.catalog().index().with_segments(parts.collect());
        let stand_ins = &self.stand_ins();
        let is_in = self.segments().flat_map(|(segment, admitted)| {
            let items = segment.items().enumerate();
            items.map(move |(at, item)| {
                self.admits(item, admitted.bits[at]) && !is_among(stand_ins, item)
            })
        });
        Cow::Owned(index.only(is_in.collect()))
    }
}

/// Whether an item is one of these names, and not the tool itself.
fn is_among(names: &HashSet<&ToolName>, item: Item<'_>) -> bool {
    matches!(item, Item::Named(named) if names.contains(&named.name))
}
