//! What a model is told at the end of the context when something changes under a conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::meta;
use crate::scope::{Lookup, Scope};
use crate::segment::Item;
use crate::session::Latched;
use crate::text::{list, one_line};
use crate::{Definition, Diff, Fingerprint, GroupId, Session, Tool, ToolName, View};

/// Names listed in an announcement, per group.
const MOST_NAMES: usize = 12;

/// Groups listed in an announcement.
const MOST_GROUPS: usize = 40;

/// The definitions of tools, for a model whose tools array stays as it is.
pub(crate) fn schemas<'a>(opening: &str, tools: impl IntoIterator<Item = &'a Arc<Tool>>) -> String {
    let definitions: Vec<&str> =
        tools.into_iter().map(|tool| tool.definition().neutral().get()).collect();
    format!("{opening}\n{}", definitions.join("\n"))
}

fn changed<'a>(tools: impl IntoIterator<Item = &'a Arc<Tool>>) -> String {
    schemas("These tools have changed. Their definitions are now:", tools)
}

/// What was to be said before a session was away, without the definitions of tools that can't be
/// seen now.
pub(crate) fn still_true(said: String, scope: Scope<'_>) -> Option<String> {
    let tool = |line: &str| {
        let raw: Option<&RawValue> = serde_json::from_str(line).ok();
        raw.and_then(Definition::from_neutral)
    };
    let is_there = |it: &Definition| match scope.find(it.name()) {
        Lookup::Tool(tool) => tool.exposed() == it.name(),
        _ => false,
    };
    let (mut hidden, mut left) = (false, false);
    let lines = said.lines().filter(|line| {
        let Some(tool) = tool(line) else { return true };
        let is_there = is_there(&tool);
        hidden |= !is_there;
        left |= is_there;
        is_there
    });
    let lines: Vec<&str> = lines.collect();
    if !hidden {
        return Some(said);
    }
    left.then(|| lines.join("\n"))
}

/// What changed between two turns.
pub(crate) struct Changes<'a> {
    pub(crate) before: &'a View,
    pub(crate) view: &'a View,
    pub(crate) diff: &'a Diff,
    /// Tools the model was shown already in another form.
    pub(crate) stale: &'a [Arc<Tool>],
    /// New tools that were loaded at once, which says enough.
    pub(crate) preloaded: &'a [Arc<str>],
}

impl Changes<'_> {
    /// Says what changed, most important first.
    pub(crate) fn tell(&self, session: &Session, latched: Latched) -> Vec<String> {
        let (scope, was) = (session.scope(self.view), session.scope(self.before));
        let how = how_to_get_them(latched, self.view);
        let mut said = Vec::new();
        let untold = |tool: &&Arc<Tool>| {
            !self.preloaded.contains(tool.exposed())
                && !self.stale.iter().any(|known| known.name() == tool.name())
        };
        let (mut again, mut new) = (Vec::new(), Vec::new());
        for name in &self.diff.added {
            match scope.identity(name) {
                Some(tool) if !untold(&tool) => {}
                Some(tool) if session.knows(tool) => again.push(name),
                _ => new.push(name),
            }
        }
        for (group, names) in by_group(scope, new) {
            let (group, names) = (one_line(group.as_str(), 100), list(&names, MOST_NAMES));
            said.push(format!("New tools are available in `{group}`: {names}.{how}"));
        }
        for (group, names) in by_group(scope, again) {
            let (group, names) = (one_line(group.as_str(), 100), list(&names, MOST_NAMES));
            said.push(format!("These tools of `{group}` are available again: {names}."));
        }
        for (group, names) in by_group(was, &self.diff.removed) {
            let (group, names) = (one_line(group.as_str(), 100), list(&names, MOST_NAMES));
            said.push(format!("These tools of `{group}` are no longer available: {names}."));
        }
        // Groups nobody has opened have no tools to speak of.
        let unopened = |scope: Scope<'_>| -> BTreeMap<GroupId, ()> {
            let groups = scope.segments().filter(|(segment, _)| scope.is_unopened(segment));
            groups.map(|(segment, _)| (segment.id().clone(), ())).collect()
        };
        let (old, now) = (unopened(was), unopened(scope));
        let still = |id: &GroupId| scope.segment(id).is_some();
        let left: Vec<&str> =
            only(&old, &now).filter(|id| !still(id)).map(GroupId::as_str).collect();
        said.extend(groups("New tool groups are available", &ids(only(&now, &old))));
        said.extend(groups("These tool groups are no longer available", &left));
        if !self.stale.is_empty() {
            said.push(changed(self.stale));
        }
        said
    }
}

/// Says what is different for a session that was away.
pub(crate) fn while_away(
    before: &BTreeMap<GroupId, Fingerprint>,
    now: &BTreeMap<GroupId, Fingerprint>,
    gone: &[Arc<str>],
    stale: &[Arc<Tool>],
) -> Vec<String> {
    let differ = before.iter().filter(|(id, print)| now.get(*id).is_some_and(|it| it != *print));
    let differ = ids(differ.map(|(id, _)| id));
    let mut said = Vec::new();
    said.extend(groups("New tool groups are available", &ids(only(now, before))));
    said.extend(groups("These tool groups are no longer available", &ids(only(before, now))));
    said.extend(groups("What these tool groups offer has changed; look again", &differ));
    if !gone.is_empty() {
        said.push(format!("These tools are no longer available: {}.", list(gone, MOST_NAMES)));
    }
    if !stale.is_empty() {
        said.push(changed(stale));
    }
    said
}

fn only<'a, T>(
    here: &'a BTreeMap<GroupId, T>,
    there: &BTreeMap<GroupId, T>,
) -> impl Iterator<Item = &'a GroupId> {
    here.keys().filter(|id| !there.contains_key(*id))
}

fn ids<'a>(ids: impl Iterator<Item = &'a GroupId>) -> Vec<&'a str> {
    ids.map(GroupId::as_str).collect()
}

fn groups(text: &str, ids: &[&str]) -> Option<String> {
    (!ids.is_empty()).then(|| format!("{text}: {}.", list(ids, MOST_GROUPS)))
}

fn how_to_get_them(latched: Latched, view: &View) -> String {
    let finder = Some(latched).filter(|latched| latched.deferred);
    let finder = finder.and_then(|latched| meta::finder_in(latched, view.policy()));
    finder.map_or_else(String::new, |verb| format!(" Get their schemas with `{verb}`."))
}

/// The tools' own names by the group that has them.
fn by_group<'a>(
    scope: Scope<'_>,
    names: impl IntoIterator<Item = &'a ToolName>,
) -> BTreeMap<GroupId, Vec<&'a str>> {
    let mut groups: BTreeMap<GroupId, Vec<&str>> = BTreeMap::new();
    for name in names {
        let group = scope.identity(name).map(|tool| tool.group().clone());
        let group = group.or_else(|| naming_group(scope, name)).unwrap_or(GroupId::of(name));
        groups.entry(group).or_default().push(name.tool());
    }
    groups
}

/// The group that lists a tool nobody has registered.
fn naming_group(scope: Scope<'_>, name: &ToolName) -> Option<GroupId> {
    let mut segments = scope.segments().map(|(segment, _)| segment);
    let lists = segments.find(|segment| {
        segment.items().any(|item| matches!(item, Item::Named(named) if named.name == *name))
    });
    lists.map(|segment| segment.id().clone())
}
