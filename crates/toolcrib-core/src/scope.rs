//! What one conversation can reach: its view, with the groups it has loaded in place of what the
//! catalog knew of them. Every lookup and search goes through here.

use std::sync::Arc;

use indexmap::IndexMap;
use toolcrib_search::Index;

use crate::segment::{Admitted, Item, Named, Segment};
use crate::{GroupId, Members, Tool, ToolName, ToolSource, View};

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

    /// The segments that apply, each with what the policy admits of it.
    pub(crate) fn segments(self) -> impl Iterator<Item = (&'a Arc<Segment>, Admitted)> {
        self.view.segments().map(move |(segment, admitted)| match self.learned.get(segment.id()) {
            Some(learned) => (learned, learned.admitted(self.view.policy())),
            None => (segment, admitted.clone()),
        })
    }

    pub(crate) fn segment(self, id: &GroupId) -> Option<&'a Arc<Segment>> {
        self.learned.get(id).or_else(|| self.view.catalog().segment(id))
    }

    pub(crate) fn admits(self, item: Item<'_>, bit: bool) -> bool {
        bit && (self.with_mcp || !matches!(item.name().source(), ToolSource::Mcp { .. }))
    }

    /// The items of a segment that a caller may know of.
    pub(crate) fn items_of(
        self,
        segment: &'a Segment,
        admitted: Admitted,
    ) -> impl Iterator<Item = Item<'a>> {
        segment
            .items()
            .enumerate()
            .filter(move |(at, item)| self.admits(*item, admitted.bits[*at]))
            .map(|(_, item)| item)
    }

    /// The members of a group: its own tools, and those it names that are registered elsewhere.
    pub(crate) fn members(self, segment: &'a Segment) -> Vec<Item<'a>> {
        let admitted = segment.admitted(self.view.policy());
        self.items_of(segment, admitted)
            .map(|item| match item {
                Item::Named(named) => self.identity(&named.name).map_or(item, Item::Tool),
                Item::Tool(_) => item,
            })
            .collect()
    }

    /// Every group with something to offer, in the order of ids. Groups whose members are unknown
    /// count as having something.
    pub(crate) fn groups(self) -> impl Iterator<Item = (&'a Arc<Segment>, Vec<Item<'a>>)> {
        self.segments().filter_map(move |(segment, admitted)| {
            let items: Vec<Item<'a>> = self.items_of(segment, admitted).collect();
            let unknown = *segment.group.members() == Members::Unknown;
            (unknown || !items.is_empty()).then_some((segment, items))
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
        let (found, _) = self.collect(|segment| segment.find(&exposed).to_vec());
        found.into_iter().find_map(|item| match item {
            Item::Tool(tool) if tool.name() == name => Some(tool),
            _ => None,
        })
    }

    /// Whether a tool outside the group has this exposed name, visible or not.
    pub(crate) fn taken(self, exposed: &str, group: &GroupId) -> bool {
        self.segments().filter(|(segment, _)| segment.id() != group).any(|(segment, _)| {
            let at = segment.find(exposed).iter();
            at.map(|at| segment.item(*at as usize))
                .any(|item| matches!(item, Item::Tool(tool) if **tool.exposed() == *exposed))
        })
    }

    /// The tool exposed under this name, found through its group: the fast way for tools a
    /// conversation has already loaded.
    pub(crate) fn in_group(self, group: &GroupId, exposed: &str) -> Option<&'a Arc<Tool>> {
        let segment = self.segment(group)?;
        let admitted = segment.admitted(self.view.policy());
        segment.find(exposed).iter().find_map(|at| match segment.item(*at as usize) {
            item @ Item::Tool(tool)
                if **tool.exposed() == *exposed
                    && self.admits(item, admitted.bits[*at as usize]) =>
            {
                Some(tool)
            }
            _ => None,
        })
    }

    /// The group a model means: by id, or a server by its bare name.
    pub(crate) fn group(self, id: &str) -> Option<&'a Arc<Segment>> {
        let known = |id: GroupId| {
            let segment = self.segment(&id)?;
            let unknown = *segment.group.members() == Members::Unknown;
            (unknown || !self.members(segment).is_empty()).then_some(segment)
        };
        known(id.into()).or_else(|| known(GroupId::server(id)))
    }

    /// What `name` stands for: an exposed name, `server__tool`, `server.tool`, or the tool's own
    /// name where only one tool has it.
    pub(crate) fn find(self, name: &str) -> Lookup<'a> {
        let name = name.trim().trim_matches(['"', '\'', '`']);
        let (found, denied) = self.find_all(name);
        if found.is_empty() && denied.is_empty() {
            // Some models put the name of an imagined namespace before every call.
            let stripped = ["functions.", "functions_", "default_api.", "tools."]
                .iter()
                .find_map(|prefix| name.strip_prefix(prefix));
            if let Some(stripped) = stripped {
                return Self::verdict(self.find_all(stripped));
            }
        }
        Self::verdict((found, denied))
    }

    fn verdict((found, denied): (Vec<Item<'a>>, Vec<ToolName>)) -> Lookup<'a> {
        match found.as_slice() {
            [] => Lookup::Missing { denied },
            [Item::Tool(tool)] => Lookup::Tool(tool),
            [Item::Named(named)] => Lookup::Named(named),
            _ => Lookup::Ambiguous(found),
        }
    }

    fn find_all(self, name: &str) -> (Vec<Item<'a>>, Vec<ToolName>) {
        let exposed = self.collect(|segment| {
            let at = segment.find(name).iter().copied();
            at.filter(|at| **segment.item(*at as usize).exposed() == *name).collect()
        });
        if !exposed.0.is_empty() || !exposed.1.is_empty() {
            return exposed;
        }
        let qualified = self.collect(|segment| {
            let rests = segment.namespaces.iter().filter_map(|namespace| {
                Some((namespace, ToolName::strip_namespace(namespace, name)?))
            });
            rests
                .flat_map(|(namespace, rest)| {
                    let at = segment.find(rest).iter().copied();
                    at.filter(move |at| {
                        let name = segment.item(*at as usize).name();
                        name.namespace() == Some(namespace) && name.tool() == rest
                    })
                })
                .collect()
        });
        if !qualified.0.is_empty() || !qualified.1.is_empty() {
            return qualified;
        }
        self.collect(|segment| segment.find(name).to_vec())
    }

    /// Gathers items over all segments, one per identity, apart from those a caller may not see.
    fn collect(
        self,
        positions: impl Fn(&'a Segment) -> Vec<u32>,
    ) -> (Vec<Item<'a>>, Vec<ToolName>) {
        let (mut found, mut denied): (Vec<Item<'a>>, Vec<ToolName>) = Default::default();
        for (segment, admitted) in self.segments() {
            for at in positions(segment) {
                let item = segment.item(at as usize);
                if !self.admits(item, admitted.bits[at as usize]) {
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

    /// An index over the segments that apply.
    pub(crate) fn index(self) -> std::borrow::Cow<'a, Index> {
        if self.learned.is_empty() {
            return std::borrow::Cow::Borrowed(self.view.catalog().index());
        }
        let parts = self.segments().map(|(segment, _)| segment.index.clone());
        std::borrow::Cow::Owned(Index::new(parts.collect()))
    }
}
