//! The ledger of one conversation: what it has loaded, and what it has been shown.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use indexmap::IndexMap;

use crate::meta::MetaTool;
use crate::scope::{Learned, Scope};
use crate::{
    Definition, Fingerprint, GroupId, Loaded, Preset, Strategy, Tool, ToolChange, ToolName, View,
};

/// What exactly one conversation has loaded.
///
/// A session belongs to one conversation and is shared with no other. It is a plain value: clone
/// it through [`fork`](Self::fork), keep it through [`snapshot`](Self::snapshot), bring it back
/// with [`Engine::resume`](crate::Engine::resume).
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) turn: u64,
    pub(crate) latched: Option<Latched>,
    pub(crate) prefix: Option<Arc<Prefix>>,
    /// In first-load order.
    pub(crate) groups: IndexMap<GroupId, Loaded>,
    /// By exposed name, in first-load order.
    pub(crate) tools: IndexMap<Arc<str>, LoadedTool>,
    /// Under native, every tool the model was ever given besides the first request, as it was
    /// first given and in that order. Under a search of the provider's, those it has used.
    pub(crate) given: IndexMap<Arc<str>, Definition>,
    /// Under a search of the provider's, every tool it was ever given, in that order: as it was
    /// at the last request, `None` if it was not there.
    pub(crate) waiting: IndexMap<Arc<str>, Option<Definition>>,
    /// Under native, what the model is told at the next request of what the host did.
    pub(crate) change: ToolChange,
    pub(crate) learned: Learned,
    pub(crate) preload: Vec<String>,
    pub(crate) announcements: Vec<String>,
    pub(crate) adopted: Option<View>,
    /// What the driver has settled on, where the settings leave it open.
    pub(crate) chosen: Option<Strategy>,
    pub(crate) with_mcp: bool,
    pub(crate) may_load: bool,
}

/// What was decided at the first request and holds for the whole conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Latched {
    pub(crate) deferred: bool,
    /// Whether the tools decided it, rather than the settings.
    pub(crate) automatic: bool,
    pub(crate) strategy: Strategy,
    pub(crate) preset: Preset,
    /// Whether the provider searches, and the model has no verbs.
    pub(crate) hosted: bool,
    /// Whether tools are called by a verb for what they may do.
    pub(crate) split: bool,
}

/// What the model was shown at the first request. It never changes under a conversation.
#[derive(Debug)]
pub(crate) struct Prefix {
    pub(crate) section: Arc<str>,
    pub(crate) tools: Vec<Definition>,
    names: HashSet<Arc<str>>,
    mark: OnceLock<u64>,
}

impl Prefix {
    pub(crate) fn new(section: Arc<str>, tools: Vec<Definition>) -> Self {
        let names = tools.iter().map(|tool| tool.name().clone()).collect();
        Self { section, tools, names, mark: OnceLock::new() }
    }

    /// Differs where what the model was shown does, within one program.
    fn mark(&self) -> u64 {
        *self.mark.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            self.section.hash(&mut hasher);
            self.tools.iter().for_each(|tool| tool.mark().hash(&mut hasher));
            hasher.finish()
        })
    }

    pub(crate) fn has(&self, exposed: &str) -> bool {
        self.names.contains(exposed)
    }
}

/// A tool a conversation has loaded.
#[derive(Clone, Debug)]
pub(crate) struct LoadedTool {
    pub(crate) name: ToolName,
    /// The toolset that has it.
    pub(crate) group: GroupId,
    /// The groups it counts for: its toolset, and groups that name it and were loaded.
    pub(crate) within: Vec<GroupId>,
    /// Of the tool as it was last shown.
    pub(crate) fingerprint: Fingerprint,
    /// As it was first shown: in the tools array it stays so, whatever the server does later.
    pub(crate) definition: Definition,
    pub(crate) last_used: u64,
}

impl Session {
    /// The session of a conversation that begins now.
    pub fn new() -> Self {
        Self {
            turn: 0,
            latched: None,
            prefix: None,
            groups: IndexMap::new(),
            tools: IndexMap::new(),
            given: IndexMap::new(),
            waiting: IndexMap::new(),
            change: ToolChange::default(),
            learned: Learned::new(),
            preload: Vec::new(),
            announcements: Vec::new(),
            adopted: None,
            chosen: None,
            with_mcp: true,
            may_load: true,
        }
    }

    /// A session that no MCP tool takes part in: none is shown, found or called.
    pub fn without_mcp() -> Self {
        Self { with_mcp: false, ..Self::new() }
    }

    /// Settles on a strategy for a conversation that begins, where the settings leave it open:
    /// under `auto`, and under `native`, which only a driver can use that speaks to a provider
    /// with a form for it. Untold, a conversation has its preset's own, or dispatch.
    pub fn choose(&mut self, strategy: Strategy) {
        self.chosen = Some(strategy);
    }

    /// Goes on without the provider's own form of deferral, with dispatch. What is loaded stays
    /// loaded; what the model sees at the next request is settled anew.
    pub fn without_native(&mut self) {
        self.chosen = Some(Strategy::Dispatch);
        if let Some(latched) = &mut self.latched
            && latched.strategy == Strategy::Native
        {
            latched.strategy = Strategy::Dispatch;
            latched.hosted = false;
            self.waiting.clear();
            // In full mode nothing about it was the provider's own.
            if latched.deferred {
                self.prefix = None;
            }
        }
    }

    /// Asks for tools to be sent in full from the first request on, by any name that finds them.
    /// After the first request, load them with [`Engine::preload`](crate::Engine::preload).
    pub fn preload<S: Into<String>>(&mut self, names: impl IntoIterator<Item = S>) {
        self.preload.extend(names.into_iter().map(Into::into));
    }

    /// Forgets loaded tools, by exposed name; says which there were. Under inject they leave the
    /// tools array, and under native the model is told at the next request; it can load them again
    /// at any time.
    pub fn unload<S: AsRef<str>>(&mut self, names: impl IntoIterator<Item = S>) -> Vec<Arc<str>> {
        let mut gone = Vec::new();
        for name in names {
            if let Some((exposed, tool)) = self.tools.shift_remove_entry(name.as_ref()) {
                tool.within.iter().for_each(|id| self.recount(id));
                if self.is_native() {
                    self.withdraw(&exposed);
                }
                gone.push(exposed);
            }
        }
        gone
    }

    /// Forgets a whole group; says which of its tools there were.
    pub fn unload_group(&mut self, id: &GroupId) -> Vec<Arc<str>> {
        let gone = self.unload(self.loaded_within(id));
        self.groups.shift_remove(id);
        gone
    }

    /// The tools loaded that count for a group, in first-load order.
    fn loaded_within(&self, id: &GroupId) -> Vec<Arc<str>> {
        let within = self.tools.iter().filter(|(_, tool)| tool.within.contains(id));
        within.map(|(exposed, _)| exposed.clone()).collect()
    }

    /// Brings what is noted of a group in line with the tools loaded of it.
    fn recount(&mut self, id: &GroupId) {
        let names = self.loaded_within(id);
        if names.is_empty() {
            self.groups.shift_remove(id);
        } else {
            self.groups.insert(id.clone(), Loaded::Some(names));
        }
    }

    /// A copy for a side conversation. Nothing it does reaches this one.
    pub fn fork(&self) -> Self {
        self.clone()
    }

    /// A copy that can call what is loaded but load nothing more. The model sees the same bytes,
    /// so the prompt cache holds; the verbs answer that they are not available.
    pub fn fork_without_loading(&self) -> Self {
        Self { may_load: false, ..self.clone() }
    }

    /// How much of a group is loaded.
    pub fn loaded(&self, id: &GroupId) -> Loaded {
        self.groups.get(id).cloned().unwrap_or_default()
    }

    /// The exposed names of loaded tools, in the order in which they were first loaded. Tools
    /// that were in the first request are not counted.
    pub fn loaded_tools(&self) -> impl Iterator<Item = &Arc<str>> {
        self.tools.keys()
    }

    /// The strategy in use, once the first request has settled it.
    pub fn strategy(&self) -> Option<Strategy> {
        self.latched.map(|latched| latched.strategy)
    }

    /// The preset in use, once the first request has settled it.
    pub fn preset(&self) -> Option<Preset> {
        self.latched.map(|latched| latched.preset)
    }

    /// Whether schemas are held back, once the first request has settled it.
    pub fn is_deferred(&self) -> Option<bool> {
        self.latched.map(|latched| latched.deferred)
    }

    /// Whether the provider's own search finds the tools that wait, once the first request has
    /// settled it.
    pub fn is_hosted(&self) -> bool {
        self.latched.is_some_and(|latched| latched.hosted)
    }

    /// How many turns have begun.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// Changes when the session does, but for the count of turns and which tool was used when:
    /// a driver that keeps it need not look at all of it to know that it has to. Good for
    /// comparing within one program.
    pub fn mark(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let is = &mut hasher;
        (self.latched, self.with_mcp, self.may_load).hash(is);
        self.prefix.as_ref().map(|prefix| prefix.mark()).hash(is);
        self.adopted.as_ref().map(View::fingerprint).hash(is);
        self.groups.iter().for_each(|group| group.hash(is));
        for (exposed, tool) in &self.tools {
            (exposed, &tool.within, tool.fingerprint, tool.definition.mark()).hash(is);
        }
        self.given.values().for_each(|tool| tool.mark().hash(is));
        // Ten thousand at times; none is ever taken away or replaced.
        self.waiting.len().hash(is);
        self.learned.iter().for_each(|(id, segment)| (id, segment.fingerprint).hash(is));
        (&self.preload, &self.announcements, &self.change.removed).hash(is);
        self.change.added.iter().for_each(|it| (&it.group, it.tool.mark()).hash(is));
        hasher.finish()
    }

    pub(crate) fn scope<'a>(&'a self, view: &'a View) -> Scope<'a> {
        Scope::new(view, &self.learned, self.with_mcp)
    }

    /// The exposed names of the tools in the first request, verbs aside.
    pub(crate) fn base_tools(&self) -> impl Iterator<Item = &Arc<str>> {
        let base = self.prefix.iter().flat_map(|prefix| &prefix.tools);
        base.map(Definition::name).filter(|name| MetaTool::named(name).is_none())
    }

    /// Whether the tool was in the first request.
    pub(crate) fn is_base(&self, exposed: &str) -> bool {
        self.prefix.as_ref().is_some_and(|prefix| prefix.has(exposed))
    }

    /// Whether the model was shown this tool, in its present form or another.
    pub(crate) fn knows(&self, tool: &Tool) -> bool {
        self.is_base(tool.exposed()) || self.tools.contains_key(tool.exposed())
    }

    /// Whether the model was shown another form of this tool than it has now.
    pub(crate) fn is_stale(&self, tool: &Tool) -> bool {
        let loaded = self.tools.get(tool.exposed());
        loaded.is_some_and(|loaded| loaded.fingerprint != tool.fingerprint())
            || self.is_base_stale(tool)
    }

    /// Whether the tool was in the first request in another form than it has now.
    pub(crate) fn is_base_stale(&self, tool: &Tool) -> bool {
        let mut base = self.prefix.iter().flat_map(|prefix| &prefix.tools);
        self.is_base(tool.exposed())
            && base.any(|it| it.name() == tool.exposed() && it != tool.definition())
    }

    /// Notes that the model was shown the present form of a tool it has.
    pub(crate) fn refresh(&mut self, tool: &Tool) {
        if let Some(loaded) = self.tools.get_mut(tool.exposed()) {
            loaded.fingerprint = tool.fingerprint();
        }
    }

    /// Whether the model has been given this tool in its present form.
    pub(crate) fn has(&self, tool: &Tool) -> bool {
        self.is_base(tool.exposed())
            || self
                .tools
                .get(tool.exposed())
                .is_some_and(|loaded| loaded.fingerprint == tool.fingerprint())
    }

    /// Notes that a tool was used or loaded; says whether that is news.
    pub(crate) fn load(&mut self, tool: &Arc<Tool>) -> bool {
        if self.is_base(tool.exposed()) {
            return false;
        }
        let turn = self.turn;
        if let Some(known) = self.tools.get_mut(tool.exposed()) {
            known.last_used = turn;
            let news = known.fingerprint != tool.fingerprint();
            known.fingerprint = tool.fingerprint();
            return news;
        }
        let loaded = LoadedTool {
            name: tool.name().clone(),
            group: tool.group().clone(),
            within: vec![tool.group().clone()],
            fingerprint: tool.fingerprint(),
            definition: tool.definition().clone(),
            last_used: turn,
        };
        self.tools.insert(tool.exposed().clone(), loaded);
        if self.is_native() {
            self.give(tool.definition());
        }
        let group = self.groups.entry(tool.group().clone()).or_default();
        match group {
            Loaded::Nothing => *group = Loaded::Some(vec![tool.exposed().clone()]),
            Loaded::Some(names) => names.push(tool.exposed().clone()),
            Loaded::All => {}
        }
        true
    }

    /// Notes that these loaded tools are what was asked for of a group.
    pub(crate) fn load_part(&mut self, id: &GroupId, tools: &[Arc<Tool>]) {
        self.join(id, tools);
        if self.loaded(id) != Loaded::All {
            self.recount(id);
        }
    }

    /// Notes that these loaded tools are all of a group.
    pub(crate) fn load_group(&mut self, id: &GroupId, tools: &[Arc<Tool>]) {
        self.join(id, tools);
        self.groups.insert(id.clone(), Loaded::All);
    }

    fn join(&mut self, id: &GroupId, tools: &[Arc<Tool>]) {
        for tool in tools {
            if let Some(loaded) = self.tools.get_mut(tool.exposed())
                && !loaded.within.contains(id)
            {
                loaded.within.push(id.clone());
            }
        }
    }
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}
