//! Counts and tokens: what is sent, and what waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::{Engine, Session, View};

/// What a conversation has loaded, in numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Tools the caller may know of.
    pub total_registered: usize,
    /// Tools whose schemas the model has.
    pub loaded: usize,
    /// Tools whose schemas wait.
    pub deferred: usize,
    /// Whether schemas are held back at all.
    pub deferred_mode: bool,
    /// Whether the tools decided that, rather than the settings.
    pub auto_deferred: bool,
    /// From how many tools on they would.
    pub threshold: usize,
    /// The exposed names of all tools, in order.
    pub tool_names: Vec<Arc<str>>,
    /// Tokens (`o200k_base`) of definitions in neutral form.
    pub tokens: TokenStats,
}

/// Tokens of definitions, by whether the model has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TokenStats {
    /// Of the definitions the model has: verbs, base tools, loaded tools.
    pub active: u64,
    /// Of the definitions that wait.
    pub deferred: u64,
    /// Of all definitions, as if every one were sent.
    pub full: u64,
    /// Of the section in the system prompt.
    pub section: u64,
    /// Of all definitions, by group.
    pub by_group: BTreeMap<String, u64>,
}

impl Engine {
    /// The numbers of a conversation. Settles what its first request would settle.
    pub fn stats(&self, session: &mut Session, view: &View) -> Result<Stats, crate::EngineError> {
        let prefix = self.settle(session, view)?;
        let latched = session.latched;
        let scope = session.scope(view);
        let mut tokens = TokenStats {
            section: toolcrib_tokens::Tokenizer::O200K.count(&prefix.section).tokens,
            ..TokenStats::default()
        };
        let verbs =
            prefix.tools.iter().filter(|tool| crate::meta::MetaTool::named(tool.name()).is_some());
        tokens.active = verbs.map(|verb| verb.tokens()).sum();
        let mut loaded = 0;
        for tool in scope.tools() {
            let count = tool.tokens();
            tokens.full += count;
            *tokens.by_group.entry(tool.group().to_string()).or_default() += count;
            if session.has(tool) {
                loaded += 1;
                tokens.active += count;
            } else {
                tokens.deferred += count;
            }
        }
        let mut tool_names: Vec<Arc<str>> =
            scope.groups().flat_map(|(_, items)| crate::segment::item_names(&items)).collect();
        tool_names.sort();
        tool_names.dedup();
        Ok(Stats {
            total_registered: tool_names.len(),
            loaded,
            deferred: tool_names.len() - loaded.min(tool_names.len()),
            deferred_mode: latched.is_some_and(|latched| latched.deferred),
            auto_deferred: latched.is_some_and(|latched| latched.automatic),
            threshold: self.settings.threshold_tools,
            tool_names,
            tokens,
        })
    }
}
