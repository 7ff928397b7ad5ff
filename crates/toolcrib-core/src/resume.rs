//! Keeping a session, and bringing it back.

mod snapshot;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::{IndexMap, IndexSet};
use serde::Serialize;
use serde_json::value::RawValue;

pub use snapshot::{Saved, Snapshot};
use snapshot::{SavedTool, VERSION};

use crate::engine::tool_of;
use crate::meta::{self, MetaTool};
use crate::scope::Scope;
use crate::segment::{Item, Segment};
use crate::session::{Latched, LoadedTool, Prefix};
use crate::{
    Availability, Definition, Engine, Fingerprint, GroupId, Loaded, Session, Strategy, Tool,
    ToolSpec, View, announce, text,
};

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
    /// What else is different from before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The groups a conversation may know of, each as the catalog declares it; of hidden tools not
/// even a change is noted.
fn known_groups(scope: Scope<'_>) -> BTreeMap<GroupId, Fingerprint> {
    let seen = |id: &GroupId| {
        let declared = scope.view.catalog().segment(id)?;
        let admitted = scope.view.admitted(declared)?;
        Some(if admitted.count == declared.len() {
            declared.fingerprint
        } else {
            declared.fingerprint_of(scope.items_of(declared, Cow::Borrowed(admitted)))
        })
    };
    scope.group_ids().filter_map(|id| Some((id.clone(), seen(id)?))).collect()
}

impl Saved {
    /// The groups whose loaders must be asked before a resume.
    pub fn needs(&self, view: &View) -> Vec<GroupId> {
        let Self::ExpandedGroups(groups) = self else { return Vec::new() };
        let lookup = Session::new();
        let scope = lookup.scope(view);
        let segments = groups.keys().filter_map(|id| scope.group(id.as_str()));
        let segments = segments.filter(|segment| needs_loader(scope, segment));
        segments.map(|segment| segment.id().clone()).collect()
    }
}

/// Whether members are unknown, or known by name and registered nowhere.
fn needs_loader(scope: Scope<'_>, segment: &Segment) -> bool {
    let by_name = || scope.members(segment).iter().any(|item| matches!(item, Item::Named(_)));
    segment.needs_loader() && (segment.named.is_empty() || by_name())
}

impl Engine {
    /// Brings a session back.
    ///
    /// The strategy must be named, and match both what was saved and what this engine uses; one
    /// whose settings leave the strategy open goes on with what was saved. Whoever names native
    /// can render it; who can't takes the snapshot [`without_native`](Snapshot::without_native).
    /// What is no longer there is reported, never an error: one missing server does not end a
    /// conversation, and if it comes back, so do its tools.
    pub fn resume(
        &self,
        view: &View,
        saved: Saved,
        strategy: Strategy,
        fetched: Fetched,
    ) -> Result<(Session, ResumeReport), ResumeError> {
        let agree = |whose, other| {
            if other == strategy {
                Ok(())
            } else {
                Err(ResumeError::StrategyMismatch { asked: strategy, whose, other })
            }
        };
        let kept = match &saved {
            Saved::Snapshot(snapshot) => snapshot.strategy,
            Saved::ExpandedGroups(_) => None,
        };
        let is_kept = kept.map_or(strategy == Strategy::Native, |kept| kept == strategy);
        if !is_kept || !self.can_keep(strategy, view.policy()) {
            agree("the engine", self.strategy(None, view.policy()))?;
        }
        let mut report = ResumeReport::default();
        let mut session = match saved {
            Saved::Snapshot(snapshot) => {
                if snapshot.version > VERSION {
                    let found = snapshot.version;
                    return Err(ResumeError::Version { found, supported: VERSION });
                }
                agree("the saved session", kept.unwrap_or(strategy))?;
                self.restore(*snapshot, view, &mut report)?
            }
            Saved::ExpandedGroups(groups) => self.expand(groups, view, fetched, &mut report),
        };
        session.chosen = Some(strategy);
        session.adopted = Some(view.clone().without_usage());
        let scope = session.scope(view);
        let fully = |id: &GroupId| session.loaded(id) == Loaded::All;
        // Under inject a loaded group has left the deferred set; under dispatch a reload serves
        // its schemas again.
        let waits = |item: &Item<'_>| {
            tool_of(*item).is_none_or(|tool| self.why_eager(&tool, view).is_none())
        };
        report.remaining = scope
            .groups()
            .filter(|(_, items)| items.is_empty() || items.iter().any(waits))
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
            let failure = match fetched.remove(&id) {
                Some(Ok(specs)) => {
                    self.supply(&mut session, view, &id, specs);
                    None
                }
                Some(Err(reason)) => Some(format!("its loader failed: {reason}")),
                None if needs_loader(session.scope(view), &segment) => {
                    Some("its loader was not asked".to_owned())
                }
                None => None,
            };
            if let Some(reason) = failure {
                report.missing.push((id.to_string(), reason));
                continue;
            }
            let whole = names.is_none();
            let (tools, missing) = chosen(&session, view, &id, names);
            for tool in &tools {
                session.load(tool);
                report.restored.push(tool.exposed().clone());
            }
            if whole && missing.is_empty() && !tools.is_empty() {
                session.load_group(&id, &tools);
            } else {
                session.load_part(&id, &tools);
            }
            report.missing.extend(missing);
        }
        session
    }

    fn restore(
        &self,
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
        session.change = snapshot.tool_change;
        for raw in &snapshot.given_tools {
            session.give(&definition(raw)?);
        }
        session.waiting.extend(snapshot.waiting_tools.into_iter().map(|name| (name, None)));
        if let (Some(strategy), Some(preset)) = (snapshot.strategy, snapshot.preset) {
            let (deferred, automatic) = (snapshot.deferred, snapshot.automatic);
            let hosted = snapshot.hosted_search;
            let split = self.settings().split_calls;
            session.latched =
                Some(Latched { deferred, automatic, strategy, preset, hosted, split });
        }
        if let Some(section) = snapshot.system_section {
            let tools =
                snapshot.base_tools.iter().map(|raw| definition(raw)).collect::<Result<_, _>>()?;
            session.prefix = Some(Arc::new(Prefix::new(section, tools)));
            // It goes on with the verbs it was shown.
            let shown = |verb: &MetaTool| verb.names().iter().any(|name| session.is_base(name));
            let split = meta::callers(true).iter().any(shown);
            session.latched = session.latched.map(|latched| Latched { split, ..latched });
        }
        for (id, specs) in snapshot.learned_groups {
            if let Some(declared) = view.catalog().segment(&id)
                && declared.needs_loader()
            {
                self.supply(&mut session, view, &id, specs);
            }
        }
        let scope = session.scope(view);
        let said = snapshot.announcements.into_iter();
        session.announcements = said.filter_map(|it| announce::still_true(it, scope)).collect();
        for (id, names) in snapshot.expanded_groups {
            session.groups.insert(id, names.map_or(Loaded::All, Loaded::Some));
        }
        for saved in snapshot.loaded_tools {
            let definition = definition(&saved.definition)?;
            let exposed = definition.name().clone();
            let SavedTool { name, group, within, fingerprint, last_used, .. } = saved;
            let tool = LoadedTool { name, group, within, fingerprint, definition, last_used };
            session.tools.insert(exposed, tool);
        }
        self.catch_up(&mut session, view, &snapshot.known_groups, report);
        Ok(session)
    }

    /// Compares what the model was shown with what is there now, and tells it what is different.
    fn catch_up(
        &self,
        session: &mut Session,
        view: &View,
        before: &BTreeMap<GroupId, Fingerprint>,
        report: &mut ResumeReport,
    ) {
        let now = known_groups(session.scope(view));
        let mut stale: Vec<Arc<Tool>> = Vec::new();
        let mut gone: Vec<Arc<str>> = Vec::new();
        for (exposed, loaded) in &session.tools {
            match session.scope(view).identity(&loaded.name) {
                Some(tool) if tool.fingerprint() == loaded.fingerprint => {
                    report.restored.push(exposed.clone());
                }
                Some(tool) => stale.push(tool.clone()),
                None => {
                    let reason = why_missing(view, &loaded.group);
                    report.missing.push((exposed.to_string(), reason));
                    // Of a group that went as a whole, each tool need not be named.
                    if now.contains_key(&loaded.group) {
                        gone.push(exposed.clone());
                    }
                }
            }
        }
        let mut base: IndexSet<&Arc<str>> = session.base_tools().collect();
        for tool in session.scope(view).tools().filter(|tool| session.is_base(tool.exposed())) {
            base.shift_remove(tool.exposed());
            if session.is_base_stale(tool) {
                stale.push(tool.clone());
            }
        }
        for exposed in base {
            report.missing.push((exposed.to_string(), "it is no longer offered".to_owned()));
            gone.push(exposed.clone());
        }
        report.changed.extend(stale.iter().map(|tool| tool.exposed().clone()));
        stale.iter().for_each(|tool| session.refresh(tool));
        if session.latched.is_none() {
            return;
        }
        if !session.is_deferred().unwrap_or(true) {
            // In full mode every tool is in the array; those that came meanwhile are put behind.
            let all: Vec<Arc<Tool>> = session.scope(view).tools().cloned().collect();
            self.preload_tools(session, &all);
        }
        session.announcements.extend(announce::while_away(before, &now, &gone, &stale));
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
    // A server may go by its bare name.
    let server = GroupId::server(id.as_str());
    let known = [id, &server].map(|id| view.catalog().availability(id));
    match known.into_iter().find(|it| *it != Availability::Ready).unwrap_or_default() {
        Availability::Down(reason) => {
            format!("it does not answer: {}", text::one_line(&reason, 200))
        }
        Availability::Starting => "it is still starting".to_owned(),
        Availability::Ready => "it is not registered".to_owned(),
    }
}
