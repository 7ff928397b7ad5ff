//! What is registered, and whether something more can be.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use indexmap::IndexMap;
use toolcrib_search::Analyzer;

use super::RegisterError;
use crate::meta::MetaTool;
use crate::names::Key;
use crate::segment::{Item, Named, Segment};
use crate::{Availability, GroupId, Tool, ToolName, ToolSource};

#[derive(Default)]
pub(super) struct State {
    pub(super) segments: BTreeMap<GroupId, Arc<Segment>>,
    /// Which toolset exposes a tool of this name.
    pub(super) owners: HashMap<Arc<str>, GroupId>,
    /// Which group waits for its loader to bring a tool of this name.
    pub(super) claims: HashMap<Arc<str>, GroupId>,
    pub(super) availability: BTreeMap<GroupId, Availability>,
    pub(super) analyzer: Analyzer,
}

/// The tools of a change so far, by exposed name.
pub(super) type Pending = IndexMap<Arc<str>, Arc<Tool>>;

impl State {
    pub(super) fn put(&mut self, segment: Segment) {
        let id = segment.id().clone();
        self.take(&id);
        let tools = segment.tools.iter().map(|tool| (tool.exposed().clone(), id.clone()));
        self.owners.extend(tools);
        let named = segment.named.iter().map(|named| (named.exposed.clone(), id.clone()));
        self.claims.extend(named);
        self.segments.insert(id, Arc::new(segment));
    }

    pub(super) fn take(&mut self, id: &GroupId) {
        let Some(segment) = self.segments.remove(id) else { return };
        for tool in &segment.tools {
            self.owners.remove(tool.exposed());
        }
        for named in &segment.named {
            self.claims.remove(&named.exposed);
        }
    }

    /// Whether the tool can be added to those there are and those pending, `replaced` apart.
    pub(super) fn admit(
        &self,
        tool: &Tool,
        pending: &Pending,
        replaced: Option<&GroupId>,
    ) -> Result<(), RegisterError> {
        usable(tool.name(), tool.exposed())?;
        let duplicate = |existing: Item<'_>| match describe(tool.name()) {
            new if existing.name() == tool.name() => RegisterError::Repeated(new),
            new => RegisterError::Duplicate {
                exposed: tool.exposed().to_string(),
                new,
                existing: describe(existing.name()),
            },
        };
        if let Some(existing) = pending.get(tool.exposed()) {
            return Err(duplicate(Item::Tool(existing)));
        }
        let others = self.exposing(tool.exposed()).filter(|(id, _)| Some(*id) != replaced);
        for (_, existing) in others {
            // A group may have named this very tool before it came.
            if !matches!(existing, Item::Named(named) if named.name == *tool.name()) {
                return Err(duplicate(existing));
            }
        }
        Ok(())
    }

    /// A group may name tools registered elsewhere, but not names that another group's loader
    /// brings.
    pub(super) fn admit_named(&self, named: &Named) -> Result<(), RegisterError> {
        usable(&named.name, &named.exposed)?;
        for (id, existing) in self.exposing(&named.exposed) {
            if !matches!(existing, Item::Tool(tool) if *tool.name() == named.name) {
                return Err(RegisterError::Duplicate {
                    exposed: named.exposed.to_string(),
                    new: format!("{} of group `{}`", describe(&named.name), named.group),
                    existing: format!("{} of group `{id}`", describe(existing.name())),
                });
            }
        }
        Ok(())
    }

    /// What is exposed under this name, and by which group.
    fn exposing<'a>(&'a self, exposed: &'a str) -> impl Iterator<Item = (&'a GroupId, Item<'a>)> {
        let ids = self.owners.get(exposed).into_iter().chain(self.claims.get(exposed));
        let items = ids.filter_map(|id| Some((id, self.segments.get(id)?)));
        items.flat_map(move |(id, segment)| {
            segment.find_exposed(Key::new(exposed)).map(move |at| (id, segment.item(at)))
        })
    }
}

fn usable(name: &ToolName, exposed: &str) -> Result<(), RegisterError> {
    if name.tool().trim().is_empty() {
        return Err(RegisterError::Nameless);
    }
    match MetaTool::named(exposed) {
        Some(_) => Err(RegisterError::Reserved(exposed.to_owned())),
        None => Ok(()),
    }
}

fn describe(name: &ToolName) -> String {
    match name.source() {
        ToolSource::Builtin => format!("built-in tool `{name}`"),
        ToolSource::Host => format!("host tool `{name}`"),
        ToolSource::Mcp { .. } => format!("MCP tool `{name}`"),
    }
}
