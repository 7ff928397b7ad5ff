//! Keeping a session, and bringing it back.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::engine::tool_of;
use crate::segment::Item;
use crate::session::{Latched, LoadedTool, Prefix};
use crate::{
    Availability, Definition, Engine, Fingerprint, GroupId, Loaded, Preset, Session, Strategy,
    StrategyChoice, Tool, ToolName, ToolSpec, View, announce, text,
};

/// The version of snapshots written now.
const VERSION: u32 = 1;

/// A session as it is kept. Serialises to JSON; kept by us or by the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    version: u32,
    turn: u64,
    strategy: Option<Strategy>,
    preset: Option<Preset>,
    deferred: bool,
    automatic: bool,
    system_section: Option<Arc<str>>,
    base_tools: Vec<Box<RawValue>>,
    /// `null` for all of a group, a list for some of it; what is not here is not loaded.
    expanded_groups: IndexMap<GroupId, Option<Vec<Arc<str>>>>,
    loaded_tools: Vec<SavedTool>,
    learned_groups: IndexMap<GroupId, Vec<ToolSpec>>,
    preload: Vec<String>,
    announcements: Vec<String>,
    known_groups: BTreeMap<GroupId, Fingerprint>,
    with_mcp: bool,
    may_load: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedTool {
    name: ToolName,
    group: GroupId,
    fingerprint: Fingerprint,
    definition: Box<RawValue>,
    last_used: u64,
}

/// What a session is brought back from.
#[derive(Debug, Clone)]
pub enum Saved {
    /// Our own snapshot.
    Snapshot(Box<Snapshot>),
    /// Which groups were loaded: `None` for all of a group, a list for some of it.
    ExpandedGroups(IndexMap<GroupId, Option<Vec<String>>>),
}

/// What loaders brought for a resume, or why they failed.
pub type Fetched = BTreeMap<GroupId, Result<Vec<ToolSpec>, String>>;

/// Why a session can't be brought back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The text is not a saved session.
    #[error("not a saved session: {0}")]
    Format(String),
    /// It was written by a newer version.
    #[error("the session was saved in format {found}; this version reads up to {supported}")]
    Version {
        /// The format it has.
        found: u32,
        /// The newest format that can be read.
        supported: u32,
    },
    /// The strategies differ. What the model was shown would not fit what it is offered.
    #[error("the session was to be resumed with strategy `{asked}`, but {whose} uses `{other}`")]
    StrategyMismatch {
        /// The strategy named.
        asked: Strategy,
        /// Who disagrees.
        whose: &'static str,
        /// The strategy they use.
        other: Strategy,
    },
}

/// What a resume could restore. Nothing in here stops a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ResumeReport {
    /// Tools loaded as before.
    pub restored: Vec<Arc<str>>,
    /// Tools and groups that are not there now, and why.
    pub missing: Vec<(String, String)>,
    /// Tools that have changed since. Their new definitions are announced.
    pub changed: Vec<Arc<str>>,
    /// Groups that can still be loaded.
    pub remaining: Vec<GroupId>,
}

impl Session {
    /// The session as it is now, to be kept.
    pub fn snapshot(&self) -> Snapshot {
        let prefix = self.prefix.as_deref();
        let raw = |definition: &Definition| definition.neutral().to_owned();
        Snapshot {
            version: VERSION,
            turn: self.turn,
            strategy: self.strategy(),
            preset: self.latched.map(|latched| latched.preset),
            deferred: self.latched.is_some_and(|latched| latched.deferred),
            automatic: self.latched.is_some_and(|latched| latched.automatic),
            system_section: prefix.map(|prefix| prefix.section.clone()),
            base_tools: prefix
                .map_or_else(Vec::new, |prefix| prefix.tools.iter().map(raw).collect()),
            expanded_groups: self
                .groups
                .iter()
                .filter_map(|(id, loaded)| match loaded {
                    Loaded::Nothing => None,
                    Loaded::Some(names) => Some((id.clone(), Some(names.clone()))),
                    Loaded::All => Some((id.clone(), None)),
                })
                .collect(),
            loaded_tools: self
                .tools
                .values()
                .map(|tool| SavedTool {
                    name: tool.name.clone(),
                    group: tool.group.clone(),
                    fingerprint: tool.fingerprint,
                    definition: raw(&tool.definition),
                    last_used: tool.last_used,
                })
                .collect(),
            learned_groups: self
                .learned
                .iter()
                .map(|(id, segment)| {
                    let specs = segment.tools.iter().map(|tool| tool.spec().clone());
                    (id.clone(), specs.collect())
                })
                .collect(),
            preload: self.preload.clone(),
            announcements: self.announcements.clone(),
            known_groups: self.adopted.as_ref().map_or_else(BTreeMap::new, known_groups),
            with_mcp: self.with_mcp,
            may_load: self.may_load,
        }
    }
}

fn known_groups(view: &View) -> BTreeMap<GroupId, Fingerprint> {
    let visible = view.segments().filter(|(_, admitted)| admitted.count > 0);
    visible.map(|(segment, _)| (segment.id().clone(), segment.fingerprint)).collect()
}

impl Saved {
    /// Reads either kind: our own snapshot, or expanded groups as `{"group": null | ["tool"]}`,
    /// alone or under `expanded_groups`.
    pub fn from_json(text: &str) -> Result<Self, ResumeError> {
        #[derive(Deserialize)]
        struct Probe {
            version: Option<u32>,
            expanded_groups: Option<IndexMap<GroupId, Option<Vec<String>>>>,
        }
        let format = |error: serde_json::Error| ResumeError::Format(error.to_string());
        let probe = serde_json::from_str::<Probe>(text);
        match probe {
            Ok(Probe { version: Some(found), .. }) if found > VERSION => {
                Err(ResumeError::Version { found, supported: VERSION })
            }
            Ok(Probe { version: Some(_), .. }) => {
                serde_json::from_str(text).map(Box::new).map(Self::Snapshot).map_err(format)
            }
            Ok(Probe { expanded_groups: Some(groups), .. }) => Ok(Self::ExpandedGroups(groups)),
            _ => serde_json::from_str(text).map(Self::ExpandedGroups).map_err(format),
        }
    }

    /// The groups whose loaders must be asked before a resume.
    pub fn needs(&self, view: &View) -> Vec<GroupId> {
        let Self::ExpandedGroups(groups) = self else { return Vec::new() };
        let lookup = Session::new();
        let scope = lookup.scope(view);
        let segments = groups.keys().filter_map(|id| scope.group(id.as_str()));
        segments
            .filter(|segment| {
                let by_name =
                    scope.members(segment).iter().any(|item| matches!(item, Item::Named(_)));
                segment.needs_loader() && (segment.named.is_empty() || by_name)
            })
            .map(|segment| segment.id().clone())
            .collect()
    }
}

impl Engine {
    /// Brings a session back.
    ///
    /// The strategy must be named, and match both what was saved and what this engine uses. What
    /// is no longer there is reported, never an error: one missing server does not end a
    /// conversation, and if it comes back, so do its tools.
    pub fn resume(
        &self,
        view: &View,
        saved: Saved,
        strategy: Strategy,
        fetched: Fetched,
    ) -> Result<(Session, ResumeReport), ResumeError> {
        let own = match self.settings.strategy {
            StrategyChoice::Dispatch => Strategy::Dispatch,
            StrategyChoice::Inject => Strategy::Inject,
            StrategyChoice::Native => Strategy::Native,
            StrategyChoice::Auto => self.settings.preset.strategy(),
        };
        let agree = |whose, other| {
            if other == strategy {
                Ok(())
            } else {
                Err(ResumeError::StrategyMismatch { asked: strategy, whose, other })
            }
        };
        agree("the engine", own)?;
        let mut report = ResumeReport::default();
        let mut session = match saved {
            Saved::Snapshot(snapshot) => {
                if let Some(saved) = snapshot.strategy {
                    agree("the saved session", saved)?;
                }
                restore(*snapshot, view, &mut report)?
            }
            Saved::ExpandedGroups(groups) => self.expand(groups, view, fetched, &mut report),
        };
        session.adopted = Some(view.clone());
        let scope = session.scope(view);
        let fully = |id: &GroupId| session.loaded(id) == Loaded::All;
        // Under inject a loaded group has left the deferred set; under dispatch a reload serves
        // its schemas again.
        report.remaining = scope
            .groups()
            .map(|(segment, _)| segment.id().clone())
            .filter(|id| strategy == Strategy::Dispatch || !fully(id))
            .collect();
        Ok((session, report))
    }

    fn expand(
        &self,
        groups: IndexMap<GroupId, Option<Vec<String>>>,
        view: &View,
        mut fetched: Fetched,
        report: &mut ResumeReport,
    ) -> Session {
        let mut session = Session::new();
        for (asked, names) in groups {
            let segment = session.scope(view).group(asked.as_str()).cloned();
            let Some(segment) = segment else {
                report.missing.push((asked.to_string(), why_missing(view, &asked)));
                continue;
            };
            let id = segment.id().clone();
            match fetched.remove(&id) {
                Some(Ok(specs)) => {
                    self.supply(&mut session, view, &id, specs);
                }
                Some(Err(reason)) => {
                    report.missing.push((id.to_string(), format!("its loader failed: {reason}")));
                    continue;
                }
                None => {}
            }
            let whole = names.is_none();
            let (tools, missing) = chosen(&session, view, &id, names);
            for tool in &tools {
                session.load(tool);
                report.restored.push(tool.exposed().clone());
            }
            if whole {
                session.load_group(&id);
            }
            report.missing.extend(missing);
        }
        session
    }
}

/// The members a saved group asks for, and those that are not there.
fn chosen(
    session: &Session,
    view: &View,
    id: &GroupId,
    names: Option<Vec<String>>,
) -> (Vec<Arc<Tool>>, Vec<(String, String)>) {
    let scope = session.scope(view);
    let members = scope.segment(id).map(|segment| scope.members(segment)).unwrap_or_default();
    let gone = |name: &str| (name.to_owned(), format!("group `{id}` no longer has it"));
    let Some(names) = names else {
        let missing = members.iter().filter(|item| matches!(item, Item::Named(_)));
        let missing = missing.map(|item| gone(item.exposed())).collect();
        return (members.into_iter().filter_map(tool_of).collect(), missing);
    };
    let (mut tools, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        let fits = |item: &&Item<'_>| **item.exposed() == *name || item.name().tool() == name;
        match members.iter().find(fits).copied().and_then(tool_of) {
            Some(tool) => tools.push(tool),
            None => missing.push(gone(&name)),
        }
    }
    (tools, missing)
}

fn why_missing(view: &View, id: &GroupId) -> String {
    match view.catalog().availability(id) {
        Availability::Down(reason) => {
            format!("it does not answer: {}", text::one_line(&reason, 200))
        }
        Availability::Starting => "it is still starting".to_owned(),
        Availability::Ready => "it is not registered".to_owned(),
    }
}

fn restore(
    snapshot: Snapshot,
    view: &View,
    report: &mut ResumeReport,
) -> Result<Session, ResumeError> {
    let definition = |raw: &RawValue| {
        Definition::from_neutral(raw)
            .ok_or_else(|| ResumeError::Format("a tool definition can't be read".to_owned()))
    };
    let mut session = Session::new();
    session.turn = snapshot.turn;
    session.with_mcp = snapshot.with_mcp;
    session.may_load = snapshot.may_load;
    session.preload = snapshot.preload;
    session.announcements = snapshot.announcements;
    if let (Some(strategy), Some(preset)) = (snapshot.strategy, snapshot.preset) {
        let (deferred, automatic) = (snapshot.deferred, snapshot.automatic);
        session.latched = Some(Latched { deferred, automatic, strategy, preset });
    }
    if let Some(section) = snapshot.system_section {
        let tools =
            snapshot.base_tools.iter().map(|raw| definition(raw)).collect::<Result<_, _>>()?;
        session.prefix = Some(Arc::new(Prefix::new(section, tools)));
    }
    for (id, specs) in snapshot.learned_groups {
        if let Some(declared) = view.catalog().segment(&id) {
            let (segment, _) = crate::resolve::learn(&session, view, declared, specs);
            session.learned.insert(id, Arc::new(segment));
        }
    }
    for (id, names) in snapshot.expanded_groups {
        session.groups.insert(id, names.map_or(Loaded::All, Loaded::Some));
    }
    for saved in snapshot.loaded_tools {
        let definition = definition(&saved.definition)?;
        let SavedTool { name, group, fingerprint, last_used, .. } = saved;
        let tool =
            LoadedTool { name, group, fingerprint, definition: definition.clone(), last_used };
        session.tools.insert(definition.name().clone(), tool);
    }
    compare(&mut session, view, report);
    announce_groups(&mut session, view, &snapshot.known_groups);
    Ok(session)
}

/// Compares what was loaded with what is there now.
fn compare(session: &mut Session, view: &View, report: &mut ResumeReport) {
    let scope = session.scope(view);
    let mut stale: Vec<Arc<Tool>> = Vec::new();
    for (exposed, loaded) in &session.tools {
        match scope.identity(&loaded.name) {
            Some(tool) if tool.fingerprint() == loaded.fingerprint => {
                report.restored.push(exposed.clone());
            }
            Some(tool) => {
                report.changed.push(exposed.clone());
                stale.push(tool.clone());
            }
            None => report.missing.push((exposed.to_string(), why_missing(view, &loaded.group))),
        }
    }
    if !stale.is_empty() {
        let stale: Vec<&Arc<Tool>> = stale.iter().collect();
        let text =
            announce::schemas("These tools have changed. Their definitions are now:", &stale);
        session.announcements.push(text);
    }
}

/// Tells the model which groups came and went while the session was away.
fn announce_groups(session: &mut Session, view: &View, before: &BTreeMap<GroupId, Fingerprint>) {
    let now = known_groups(view);
    let only = |here: &BTreeMap<GroupId, Fingerprint>, there: &BTreeMap<GroupId, Fingerprint>| {
        let ids = here.keys().filter(|id| !there.contains_key(*id));
        ids.map(GroupId::to_string).collect::<Vec<String>>()
    };
    for (text, ids) in [
        ("New tool groups are available", only(&now, before)),
        ("These tool groups are no longer available", only(before, &now)),
    ] {
        if !ids.is_empty() && session.prefix.is_some() {
            session.announcements.push(format!("{text}: {}.", text::list(&ids, 40)));
        }
    }
}
