//! What a model is told at the end of the context when something changes under a conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::meta;
use crate::session::Latched;
use crate::text::list;
use crate::{Diff, GroupId, Session, Tool, ToolName, View};

/// Names listed in an announcement, per group.
const MOST_NAMES: usize = 12;

/// The definitions of tools, for a model whose tools array stays as it is.
pub(crate) fn schemas(opening: &str, tools: &[&Arc<Tool>]) -> String {
    let definitions: Vec<&str> =
        tools.iter().map(|tool| tool.definition().neutral().get()).collect();
    format!("{opening}\n{}", definitions.join("\n"))
}

/// Says what changed between two turns, most important first.
pub(crate) fn changes(
    session: &Session,
    view: &View,
    before: &View,
    diff: &Diff,
    preloaded: &[Arc<str>],
    latched: Latched,
) -> Vec<String> {
    let mut said = Vec::new();
    let naming = view.catalog().naming;
    let exposed = |name: &ToolName| -> Arc<str> { name.exposed(naming).into() };
    let added = diff.added.iter().filter(|name| !preloaded.contains(&exposed(name)));
    for (group, names) in by_group(view, added) {
        said.push(format!(
            "New tools are available in `{group}`: {}.{}",
            list(&names, MOST_NAMES),
            how_to_get_them(latched)
        ));
    }
    for (group, names) in by_group(before, diff.removed.iter()) {
        said.push(format!(
            "These tools of `{group}` are no longer available: {}.",
            list(&names, MOST_NAMES)
        ));
    }
    // Only what the model was shown can be out of date for it.
    let scope = session.scope(view);
    let stale: Vec<&Arc<Tool>> = diff
        .changed
        .iter()
        .filter(|name| {
            let exposed = exposed(name);
            session.tools.contains_key(&exposed) || session.is_base(&exposed)
        })
        .filter_map(|name| scope.identity(name))
        .collect();
    if !stale.is_empty() {
        said.push(schemas("These tools have changed. Their definitions are now:", &stale));
    }
    said
}

fn how_to_get_them(latched: Latched) -> String {
    if latched.deferred {
        format!(" Get their schemas with `{}`.", meta::finder(latched.preset))
    } else {
        String::new()
    }
}

/// The tools' own names by the group that has them.
fn by_group<'a>(
    view: &View,
    names: impl Iterator<Item = &'a ToolName>,
) -> BTreeMap<GroupId, Vec<&'a str>> {
    let naming = view.catalog().naming;
    let mut groups: BTreeMap<GroupId, Vec<&str>> = BTreeMap::new();
    for name in names {
        let exposed = name.exposed(naming);
        let group = view.segments().find(|(segment, _)| !segment.find(&exposed).is_empty());
        let group = group.map_or_else(GroupId::host, |(segment, _)| segment.id().clone());
        groups.entry(group).or_default().push(name.tool());
    }
    groups
}
