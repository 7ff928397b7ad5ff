//! Where tools are registered. The registry accepts changes and publishes catalogs.

mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use schemars::JsonSchema;

use crate::segment::Segment;
use crate::{
    Availability, Catalog, Deferral, Diff, Group, GroupId, Members, Naming, Schema, SpecError,
    Tool, ToolName, ToolSpec,
};
use state::{Pending, State};

/// Accepts tools from every source and publishes [`Catalog`]s.
///
/// A change is published whole: a reader sees all of it or nothing, and never waits for a writer.
///
/// ```
/// use toolcrib_core::{Registry, Schema, ServerTools, ToolName, ToolSpec};
///
/// let registry = Registry::default();
/// registry.register(ToolSpec::new(ToolName::host("calculator"), Schema::empty()))?;
/// let search = ToolSpec::new(ToolName::mcp("github", "search"), Schema::empty());
/// let change = registry.replace_server(ServerTools::new("github", [search]));
/// assert_eq!(change.diff.added, [ToolName::mcp("github", "search")]);
/// assert_eq!(registry.catalog().len(), 2);
/// # Ok::<_, toolcrib_core::RegisterError>(())
/// ```
pub struct Registry {
    naming: Naming,
    state: Mutex<State>,
    current: ArcSwap<Catalog>,
}

/// Everything one MCP server offers.
#[derive(Clone, Debug)]
pub struct ServerTools {
    server: String,
    title: Option<String>,
    description: Option<String>,
    specs: Vec<ToolSpec>,
}

impl ServerTools {
    /// The tools of the server that the configuration calls `server`.
    pub fn new(server: impl Into<String>, specs: impl IntoIterator<Item = ToolSpec>) -> Self {
        let specs = specs.into_iter().collect();
        Self { server: server.into(), title: None, description: None, specs }
    }

    /// The name people read.
    pub fn with_title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// One line on what the server can do.
    pub fn with_description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }
}

/// What a change did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What is different now.
    pub diff: Diff,
    /// Tools that were left out, and why.
    pub rejected: Vec<(ToolName, String)>,
}

/// Why a tool or group was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Two tools would be exposed under one name.
    #[error(
        "`{exposed}` would name both {new} and {existing}; give one a namespace or another name"
    )]
    Duplicate {
        /// The name in question.
        exposed: String,
        /// Described: the tool that was refused.
        new: String,
        /// Described: the tool that has the name.
        existing: String,
    },
    /// The very same tool is there already, or comes twice.
    #[error("{0} is registered already")]
    Repeated(String),
    /// The name belongs to a meta-tool.
    #[error("`{0}` is the name of a meta-tool")]
    Reserved(String),
    /// The tool has no name.
    #[error("a tool needs a name")]
    Nameless,
    /// A group of that id exists.
    #[error("group `{0}` is registered already; remove it first")]
    GroupExists(GroupId),
    /// The raw schema is not a tool.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl Registry {
    /// An empty registry whose exposed names take the given form.
    pub fn new(naming: Naming) -> Self {
        let empty = Catalog::empty(naming);
        Self { naming, state: Mutex::default(), current: ArcSwap::from_pointee(empty) }
    }

    /// The newest catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.current.load_full()
    }

    /// Registers one tool with the toolset its name says: the built-ins, the host's own, or an
    /// MCP server's.
    pub fn register(&self, spec: ToolSpec) -> Result<Change, RegisterError> {
        self.register_all([spec])
    }

    /// Registers tools as one change: all of them, or none and the reason.
    pub fn register_all(
        &self,
        specs: impl IntoIterator<Item = ToolSpec>,
    ) -> Result<Change, RegisterError> {
        // The caller's iterator may do anything, so it is done before the lock is taken.
        let specs: Vec<ToolSpec> = specs.into_iter().collect();
        let mut state = self.lock();
        let mut pending = Pending::default();
        for spec in specs {
            let group = GroupId::of(spec.name());
            let tool = Tool::new(spec, group, self.naming);
            state.admit(&tool, &pending, None)?;
            pending.insert(tool.exposed().clone(), Arc::new(tool));
        }
        let mut by_group: BTreeMap<GroupId, Vec<Arc<Tool>>> = BTreeMap::new();
        for tool in pending.into_values() {
            by_group.entry(tool.group().clone()).or_default().push(tool);
        }
        for (id, added) in by_group {
            let existing = state.segments.get(&id);
            let group = existing.map_or_else(|| plain_group(&id), |segment| segment.group.clone());
            let mut tools = existing.map_or_else(Vec::new, |segment| segment.tools.clone());
            tools.extend(added);
            let segment = Segment::build(group, tools, self.naming, &mut state.analyzer);
            state.put(segment);
        }
        Ok(self.publish(&state))
    }

    /// Registers a raw schema in any provider's form as a host tool.
    pub fn register_schema(&self, json: &str, deferral: Deferral) -> Result<Change, RegisterError> {
        let spec = ToolSpec::parse(json, ToolName::host)?;
        self.register(spec.with_deferral(deferral))
    }

    /// Replaces everything a server offers as one change. A tool that can't be registered is
    /// left out with the reason; the rest are served.
    pub fn replace_server(&self, tools: ServerTools) -> Change {
        let mut group = Group::new(GroupId::server(&tools.server));
        if let Some(title) = tools.title {
            group = group.with_display_name(title);
        }
        if let Some(description) = tools.description {
            group = group.with_description(description);
        }
        let own = |spec: &ToolSpec| spec.name().server() == Some(&tools.server);
        let (specs, foreign): (Vec<_>, Vec<_>) = tools.specs.into_iter().partition(own);
        let mut change = self.replace_toolset(group, specs);
        change.rejected.extend(foreign.into_iter().map(|spec| {
            (spec.name().clone(), format!("it is not a tool of server `{}`", tools.server))
        }));
        change
    }

    /// Replaces everything a toolset offers as one change; `group` says what it is called and
    /// what it is for. A tool that can't be registered is left out with the reason.
    pub fn replace_toolset(&self, group: Group, specs: Vec<ToolSpec>) -> Change {
        let mut state = self.lock();
        let id = group.id().clone();
        let before = state.segments.get(&id).cloned();
        let mut rejected = Vec::new();
        let mut pending = Pending::default();
        for spec in specs {
            let tool = Tool::new(spec, id.clone(), self.naming);
            if let Err(error) = state.admit(&tool, &pending, Some(&id)) {
                rejected.push((tool.name().clone(), error.to_string()));
                continue;
            }
            // An unchanged tool keeps what was already compiled and counted for it.
            let known = unchanged(before.as_deref(), &tool);
            let tool = known.unwrap_or_else(|| Arc::new(tool));
            pending.insert(tool.exposed().clone(), tool);
        }
        let group = group.with_members(Members::Known(Vec::new()));
        let tools = pending.into_values().collect();
        let mut segment = Segment::build(group, tools, self.naming, &mut state.analyzer);
        // A toolset that lists the same again keeps the vectors it was supplied with.
        if let Some(before) = before.filter(|before| before.fingerprint == segment.fingerprint) {
            segment.index = before.index.clone();
        }
        state.put(segment);
        Change { rejected, ..self.publish(&state) }
    }

    /// Declares a group. Its known members are registered with it; its named or unknown ones
    /// come from a loader when they are needed.
    pub fn declare(&self, group: Group) -> Result<Change, RegisterError> {
        let mut state = self.lock();
        if state.segments.contains_key(group.id()) {
            return Err(RegisterError::GroupExists(group.id().clone()));
        }
        let mut pending = Pending::default();
        if let Members::Known(specs) = group.members() {
            for spec in specs {
                let tool = Tool::new(spec.clone(), group.id().clone(), self.naming);
                state.admit(&tool, &pending, None)?;
                pending.insert(tool.exposed().clone(), Arc::new(tool));
            }
        }
        let tools = pending.into_values().collect();
        let segment = Segment::build(group, tools, self.naming, &mut state.analyzer);
        for named in &segment.named {
            state.admit_named(named)?;
        }
        state.put(segment);
        Ok(self.publish(&state))
    }

    /// Removes one tool.
    pub fn remove(&self, name: &ToolName) -> Change {
        let mut state = self.lock();
        let owner = state.owners.get(name.exposed(self.naming).as_str()).cloned();
        if let Some(segment) = owner.and_then(|id| state.segments.get(&id).cloned()) {
            let kept = segment.tools.iter().filter(|tool| tool.name() != name).cloned();
            let (group, kept) = (segment.group.clone(), kept.collect());
            let segment = Segment::build(group, kept, self.naming, &mut state.analyzer);
            state.put(segment);
        }
        self.publish(&state)
    }

    /// Removes a group with all its tools.
    pub fn remove_group(&self, id: &GroupId) -> Change {
        let mut state = self.lock();
        state.take(id);
        state.availability.remove(id);
        self.publish(&state)
    }

    /// Removes a server with all its tools.
    pub fn remove_server(&self, server: &str) -> Change {
        self.remove_group(&GroupId::server(server))
    }

    /// Removes every MCP server, and the MCP tools among those of other groups; says how many
    /// tools went.
    pub fn remove_mcp(&self) -> usize {
        let mut state = self.lock();
        let is_mcp = |name: &ToolName| name.server().is_some();
        let all: Vec<Arc<Segment>> = state.segments.values().cloned().collect();
        for segment in all {
            let mut names = segment.items().map(|item| item.name());
            if segment.id().server_name().is_some() && names.all(is_mcp) {
                state.take(segment.id());
            } else if segment.items().any(|item| is_mcp(item.name())) {
                let kept = segment.tools.iter().filter(|tool| !is_mcp(tool.name())).cloned();
                let mut group = segment.group.clone();
                if let Members::Named(names) = group.members() {
                    let names = names.iter().filter(|name| !is_mcp(name)).cloned().collect();
                    group = group.with_members(Members::Named(names));
                }
                let kept = kept.collect();
                let segment = Segment::build(group, kept, self.naming, &mut state.analyzer);
                state.put(segment);
            }
        }
        let before = self.catalog().len();
        self.publish(&state);
        before - self.catalog().len()
    }

    /// Notes whether a toolset can answer, so that a search which finds nothing can say what is
    /// missing. Changes nothing a model sees in its prompt.
    pub fn set_availability(&self, group: impl Into<GroupId>, availability: Availability) {
        let mut state = self.lock();
        let (group, now) = (group.into(), Some(&availability));
        if state.availability.get(&group).or(Some(&Availability::Ready)) == now {
            return;
        }
        match availability {
            Availability::Ready => state.availability.remove(&group),
            other => state.availability.insert(group, other),
        };
        self.publish(&state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State) -> Change {
        let segments = state.segments.values().cloned().collect();
        // Nobody else publishes while the state is held.
        let before = self.catalog();
        let next = Arc::new(before.with(segments, state.availability.clone()));
        self.current.store(next.clone());
        Change { diff: next.diff(&before), rejected: Vec::new() }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new(Naming::Model)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registry").field(&self.catalog()).finish()
    }
}

/// The schema of a Rust type, for the arguments of a tool made from a function.
pub fn schema_of<T: JsonSchema>() -> Schema {
    let mut schema = schemars::schema_for!(T);
    // Which Rust type it came from is nothing a model needs to read.
    schema.remove("$schema");
    schema.remove("title");
    schema.to_value().into()
}

fn plain_group(id: &GroupId) -> Group {
    Group::new(id.clone()).with_members(Members::Known(Vec::new()))
}

fn unchanged(before: Option<&Segment>, tool: &Tool) -> Option<Arc<Tool>> {
    let before = before?;
    let at = before.tools.binary_search_by(|known| known.exposed().cmp(tool.exposed())).ok()?;
    let known = before.tools.get(at)?;
    let same = known.fingerprint() == tool.fingerprint() && known.name() == tool.name();
    same.then(|| known.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_poisoned_by_a_panic_still_serves() {
        let registry = Registry::default();
        let tool = |name: &str| ToolSpec::new(ToolName::host(name), Schema::empty());
        registry.register(tool("before")).unwrap();
        let poisoned = std::thread::scope(|scope| {
            let hold = || {
                let _guard = registry.state.lock().unwrap();
                panic!("while the lock is held");
            };
            scope.spawn(hold).join()
        });
        assert!(poisoned.is_err() && registry.state.is_poisoned());
        registry.register(tool("after")).unwrap();
        registry.remove(&ToolName::host("before"));
        assert_eq!(registry.catalog().len(), 1);
    }
}
