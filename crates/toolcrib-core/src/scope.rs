//! What one conversation can reach: its view, with the groups it has loaded in place of what the
//! catalog knew of them. Every lookup and search goes through here.

use std::sync::Arc;

use indexmap::IndexMap;
use toolcrib_search::Index;

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

    /// The segments that apply, each with what the policy admits of it.
    pub(crate) fn segments(self) -> impl Iterator<Item = (&'a Arc<Segment>, Admitted)> {
        self.view.segments().map(move |(segment, admitted)| match self.learned_of(segment) {
            Some(learned) => (learned, learned.admitted(self.view.policy())),
            None => (segment, admitted.clone()),
        })
    }

    pub(crate) fn segment(self, id: &GroupId) -> Option<&'a Arc<Segment>> {
        let declared = self.view.catalog().segment(id)?;
        Some(self.learned_of(declared).unwrap_or(declared))
    }

    /// What a loader brought for the group; of no use once the catalog itself knows its tools.
    fn learned_of(self, declared: &Segment) -> Option<&'a Arc<Segment>> {
        self.learned.get(declared.id()).filter(|_| declared.needs_loader())
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
        self.members_of(segment, segment.admitted(self.view.policy())).collect()
    }

    fn members_of(
        self,
        segment: &'a Segment,
        admitted: Admitted,
    ) -> impl Iterator<Item = Item<'a>> {
        segment.items().enumerate().filter_map(move |(at, item)| {
            // A tool registered elsewhere is judged by what is known of it there.
            let registered = match item {
                Item::Named(named) => self.identity(&named.name).map(Item::Tool),
                Item::Tool(_) => None,
            };
            registered.or_else(|| self.admits(item, admitted.bits[at]).then_some(item))
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
        let items =
            self.segments().flat_map(|(segment, admitted)| self.items_of(segment, admitted));
        let counts = |item: &Item<'a>| match item {
            Item::Tool(_) => true,
            Item::Named(named) => self.identity(&named.name).is_none(),
        };
        items.filter(counts).count()
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
            let (found, _) = self.collect(|segment| segment.find(&exposed).to_vec());
            found.into_iter().find_map(|item| match item {
                Item::Tool(tool) => Some(tool).filter(own),
                Item::Named(_) => None,
            })
        })
    }

    /// Whether a server is one this conversation may know of.
    pub(crate) fn may_reach(self, server: &str) -> bool {
        self.with_mcp && self.view.policy().admits_server(server)
    }

    /// Whether the spec of this very tool is known, visible or not.
    pub(crate) fn registers(self, name: &ToolName) -> bool {
        let exposed = name.exposed(self.view.catalog().naming);
        self.segments().any(|(segment, _)| {
            let mut items = segment.find(&exposed).iter().map(|at| segment.item(*at as usize));
            items.any(|item| matches!(item, Item::Tool(tool) if tool.name() == name))
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
            (self.is_unknown(segment) || !self.members(segment).is_empty()).then_some(segment)
        };
        known(id.into()).or_else(|| known(GroupId::server(id)))
    }

    /// What `name` stands for: an exposed name, `server__tool`, `server.tool`, or the tool's own
    /// name where only one tool has it.
    pub(crate) fn find(self, name: &str) -> Lookup<'a> {
        let name = name::unquoted(name);
        let (found, denied) = self.find_all(name);
        if found.is_empty()
            && denied.is_empty()
            && let Some(stripped) = name::without_imagined_namespace(name)
        {
            return Self::verdict(self.find_all(stripped));
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
        let (exposed, mut denied) = self.collect(|segment| {
            let at = segment.find(name).iter().copied();
            at.filter(|at| **segment.item(*at as usize).exposed() == *name).collect()
        });
        if !exposed.is_empty() {
            return (exposed, denied);
        }
        // A hidden tool is as good as none, so the other readings of the name still count.
        let mut hide = |hidden: Vec<ToolName>| {
            let news: Vec<_> = hidden.into_iter().filter(|it| !denied.contains(it)).collect();
            denied.extend(news);
        };
        let (qualified, hidden) = self.collect(|segment| {
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
        hide(hidden);
        if !qualified.is_empty() {
            return (qualified, denied);
        }
        let (bare, hidden) = self.collect(|segment| segment.find(name).to_vec());
        hide(hidden);
        (bare, denied)
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
