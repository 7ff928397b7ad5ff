//! Where tools are registered. The registry accepts changes and publishes catalogs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use indexmap::IndexMap;
use schemars::JsonSchema;
use toolcrib_search::Analyzer;

use crate::meta::MetaTool;
use crate::segment::{Item, Segment};
use crate::{
    Availability, Catalog, Deferral, Diff, Group, GroupId, Members, Naming, Schema, SpecError,
    Tool, ToolName, ToolSource, ToolSpec,
};

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

#[derive(Default)]
struct State {
    segments: BTreeMap<GroupId, Arc<Segment>>,
    availability: BTreeMap<GroupId, Availability>,
    analyzer: Analyzer,
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
        let empty = Catalog::new(naming, Vec::new(), BTreeMap::new());
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
        let mut state = self.lock();
        let mut pending = Pending::default();
        for spec in specs {
            let group = toolset_of(spec.name());
            let tool = Tool::new(spec, group, self.naming);
            admissible(&tool, state.segments.values(), &pending)?;
            pending.insert(tool.exposed().clone(), Arc::new(tool));
        }
        let mut by_group: BTreeMap<GroupId, Vec<Arc<Tool>>> = BTreeMap::new();
        for tool in pending.into_values() {
            by_group.entry(tool.group().clone()).or_default().push(tool);
        }
        let State { segments, analyzer, .. } = &mut *state;
        for (id, added) in by_group {
            let existing = segments.get(&id);
            let group = existing.map_or_else(|| plain_group(&id), |segment| segment.group.clone());
            let mut tools = existing.map_or_else(Vec::new, |segment| segment.tools.clone());
            tools.extend(added);
            segments.insert(id, Arc::new(Segment::build(group, tools, self.naming, analyzer)));
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
        self.replace(group, tools.specs)
    }

    fn replace(&self, group: Group, specs: Vec<ToolSpec>) -> Change {
        let mut state = self.lock();
        let id = group.id().clone();
        let before = state.segments.remove(&id);
        let mut rejected = Vec::new();
        let mut pending = Pending::default();
        for spec in specs {
            let tool = Tool::new(spec, id.clone(), self.naming);
            if let Err(error) = admissible(&tool, state.segments.values(), &pending) {
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
        let segment = Segment::build(group, tools, self.naming, &mut state.analyzer);
        state.segments.insert(id, Arc::new(segment));
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
                admissible(&tool, state.segments.values(), &pending)?;
                pending.insert(tool.exposed().clone(), Arc::new(tool));
            }
        }
        let tools = pending.into_values().collect();
        let segment = Segment::build(group, tools, self.naming, &mut state.analyzer);
        for named in &segment.named {
            unclaimed(named, state.segments.values())?;
        }
        state.segments.insert(segment.id().clone(), Arc::new(segment));
        Ok(self.publish(&state))
    }

    /// Removes one tool.
    pub fn remove(&self, name: &ToolName) -> Change {
        let mut state = self.lock();
        let State { segments, analyzer, .. } = &mut *state;
        for segment in segments.values_mut() {
            if segment.tools.iter().any(|tool| tool.name() == name) {
                let kept = segment.tools.iter().filter(|tool| tool.name() != name);
                let kept = kept.cloned().collect();
                let group = segment.group.clone();
                *segment = Arc::new(Segment::build(group, kept, self.naming, analyzer));
            }
        }
        self.publish(&state)
    }

    /// Removes a group with all its tools.
    pub fn remove_group(&self, id: &GroupId) -> Change {
        let mut state = self.lock();
        state.segments.remove(id);
        state.availability.remove(id);
        self.publish(&state)
    }

    /// Removes a server with all its tools.
    pub fn remove_server(&self, server: &str) -> Change {
        self.remove_group(&GroupId::server(server))
    }

    /// Removes every MCP server; says how many tools went.
    pub fn remove_mcp(&self) -> usize {
        let mut state = self.lock();
        let is_mcp = |segment: &Segment| {
            !segment.tools.is_empty()
                && segment.tools.iter().all(|tool| tool.name().server().is_some())
        };
        state.segments.retain(|_, segment| !is_mcp(segment));
        self.publish(&state).diff.removed.len()
    }

    /// Notes whether a toolset can answer, so that a search which finds nothing can say what is
    /// missing. Changes nothing a model sees in its prompt.
    pub fn set_availability(&self, group: impl Into<GroupId>, availability: Availability) {
        let mut state = self.lock();
        match availability {
            Availability::Ready => state.availability.remove(&group.into()),
            other => state.availability.insert(group.into(), other),
        };
        self.publish(&state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State) -> Change {
        let segments = state.segments.values().cloned().collect();
        let next = Arc::new(Catalog::new(self.naming, segments, state.availability.clone()));
        let before = self.current.swap(next.clone());
        Change { diff: next.view_all().diff(&before.view_all()), rejected: Vec::new() }
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

/// The tools of a change so far, by exposed name.
type Pending = IndexMap<Arc<str>, Arc<Tool>>;

fn toolset_of(name: &ToolName) -> GroupId {
    match name.source() {
        ToolSource::Builtin => GroupId::builtin(),
        ToolSource::Host => GroupId::host(),
        ToolSource::Mcp { server } => GroupId::server(server),
    }
}

fn plain_group(id: &GroupId) -> Group {
    let group = Group::new(id.clone()).with_members(Members::Known(Vec::new()));
    match id.as_str() {
        "builtin" => group.with_display_name("Built-in tools"),
        "host" => group.with_display_name("Host tools"),
        _ => group,
    }
}

fn unchanged(before: Option<&Segment>, tool: &Tool) -> Option<Arc<Tool>> {
    let before = before?;
    let at = before.tools.binary_search_by(|known| known.exposed().cmp(tool.exposed())).ok()?;
    let known = before.tools.get(at)?;
    (known.fingerprint() == tool.fingerprint()).then(|| known.clone())
}

fn admissible<'a>(
    tool: &Tool,
    segments: impl Iterator<Item = &'a Arc<Segment>>,
    pending: &Pending,
) -> Result<(), RegisterError> {
    if tool.name().tool().trim().is_empty() {
        return Err(RegisterError::Nameless);
    }
    let exposed = tool.exposed();
    if MetaTool::named(exposed).is_some() {
        return Err(RegisterError::Reserved(exposed.to_string()));
    }
    let duplicate = |existing: Item<'_>| RegisterError::Duplicate {
        exposed: exposed.to_string(),
        new: describe(tool.name()),
        existing: describe(existing.name()),
    };
    if let Some(existing) = pending.get(exposed) {
        return Err(duplicate(Item::Tool(existing)));
    }
    for segment in segments {
        for at in segment.find(exposed) {
            let existing = segment.item(*at as usize);
            // A group may have named this very tool before it came.
            let same = matches!(existing, Item::Named(named) if named.name == *tool.name());
            if existing.exposed() == exposed && !same {
                return Err(duplicate(existing));
            }
        }
    }
    Ok(())
}

/// A group may name tools registered elsewhere, but not names that another group's loader brings.
fn unclaimed<'a>(
    named: &crate::segment::Named,
    segments: impl Iterator<Item = &'a Arc<Segment>>,
) -> Result<(), RegisterError> {
    for segment in segments {
        for at in segment.find(&named.exposed) {
            let existing = segment.item(*at as usize);
            let clash = match existing {
                Item::Tool(tool) => tool.name() != &named.name,
                Item::Named(_) => true,
            };
            if *existing.exposed() == named.exposed && clash {
                return Err(RegisterError::Duplicate {
                    exposed: named.exposed.to_string(),
                    new: format!("{} of group `{}`", describe(&named.name), named.group),
                    existing: format!("{} of group `{}`", describe(existing.name()), segment.id()),
                });
            }
        }
    }
    Ok(())
}

fn describe(name: &ToolName) -> String {
    match name.source() {
        ToolSource::Builtin => format!("built-in tool `{name}`"),
        ToolSource::Host => format!("host tool `{name}`"),
        ToolSource::Mcp { .. } => format!("MCP tool `{name}`"),
    }
}
