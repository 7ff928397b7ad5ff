//! What the beginning of a turn brings: changes in the catalog, and the token budget.

use std::sync::Arc;

use crate::announce;
use crate::{Diff, Engine, Session, Strategy, Tool, ToolName, TurnReport, View};

impl Engine {
    /// Begins a turn: adopts what changed in the catalog, queues what the model must be told of
    /// it, and applies the token budget.
    pub fn begin_turn(&self, session: &mut Session, view: &View) -> TurnReport {
        session.turn = session.turn.saturating_add(1);
        let mut report = TurnReport { turn: session.turn, ..TurnReport::default() };
        if let Some(before) = session.adopted.take()
            && before.fingerprint() != view.fingerprint()
        {
            report.diff = view.diff(&before);
            if !session.with_mcp {
                report.diff.retain(|name| name.server().is_none());
            }
            report.preloaded = self.adopt(session, view, &before, &report.diff);
        }
        session.adopted = Some(view.clone().without_usage());
        report.evicted = self.evict(session);
        report
    }

    /// Takes over a changed catalog; says which tools were loaded at once.
    fn adopt(
        &self,
        session: &mut Session,
        view: &View,
        before: &View,
        diff: &Diff,
    ) -> Vec<Arc<str>> {
        let Some(latched) = session.latched else { return Vec::new() };
        let scope = session.scope(view);
        let find = |name: &ToolName| scope.identity(name).cloned();
        let added: Vec<Arc<Tool>> = diff.added.iter().filter_map(find).collect();
        // Only what the model was shown can be out of date for it.
        let both = added.iter().cloned().chain(diff.changed.iter().filter_map(find));
        let stale: Vec<Arc<Tool>> = both.filter(|tool| session.is_stale(tool)).collect();
        let preload = scope.select(&self.preload_names(&session.preload));
        let asked_for = |tool: &Tool| preload.hits.iter().any(|it| it.item.name() == tool.name());
        // In full mode every tool is in the array; those that come late are put behind.
        let is_due = |tool: &Tool| {
            !latched.deferred
                || tool.spec().is_immediate()
                || self.eager.reason(tool).is_some()
                || asked_for(tool)
        };
        let due: Vec<Arc<Tool>> =
            added.into_iter().filter(|tool| !session.knows(tool) && is_due(tool)).collect();
        let preloaded = self.preload_tools(session, &due);
        let changes =
            announce::Changes { before, view, diff, stale: &stale, preloaded: &preloaded };
        session.announcements.extend(changes.tell(session, latched));
        stale.iter().for_each(|tool| session.refresh(tool));
        preloaded
    }

    /// Puts out the least recently used tools once the budget is exceeded, a quarter of it at a
    /// time, so that the tools array doesn't change every turn.
    fn evict(&self, session: &mut Session) -> Vec<Arc<str>> {
        let Some(budget) = self.settings.loaded_tokens else { return Vec::new() };
        let injected = session
            .latched
            .is_some_and(|latched| latched.deferred && latched.strategy == Strategy::Inject);
        let mut total: u64 = session.tools.values().map(|tool| tool.definition.tokens()).sum();
        if !injected || total <= budget {
            return Vec::new();
        }
        let mut oldest: Vec<(u64, usize)> =
            session.tools.values().enumerate().map(|(at, tool)| (tool.last_used, at)).collect();
        oldest.sort_unstable();
        let mut names = Vec::new();
        // The tool used last stays, however large: the model is in the middle of using it.
        for (_, at) in &oldest[..oldest.len() - 1] {
            if total <= budget - budget / 4 {
                break;
            }
            let (name, tool) = (&session.tools.keys()[*at], &session.tools[*at]);
            total -= tool.definition.tokens();
            names.push(name.clone());
        }
        session.unload(&names)
    }
}
