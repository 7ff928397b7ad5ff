//! Tools offered before they are asked for, because a text sounds as if they will be.

use std::sync::Arc;

use crate::engine::tool_of;
use crate::find::Ask;
use crate::meta::{bytes, how_many_fit};
use crate::{Engine, Meaning, Session, Tool, View};

impl Engine {
    /// Loads, on the host's behalf, what a search for the words of `text` would list in its first
    /// `most` places; says which tools are new. They are given at the end of the context at the
    /// next [`prepare`](Self::prepare), as by [`preload`](Self::preload), and never in the prefix:
    /// before the first request, and where loads join the tools array, this does nothing. No
    /// loader is asked.
    pub fn predict(
        &self,
        session: &mut Session,
        view: &View,
        meaning: Meaning<'_>,
        text: &str,
        most: usize,
    ) -> Vec<Arc<str>> {
        if session.prefix.is_none() || self.grows(session) || !session.may_load {
            return Vec::new();
        }
        let Some(ask) = Ask::words(text) else { return Vec::new() };
        let found = session.scope(view).search(&ask.with_meaning(meaning), most);
        let likely = found.hits.iter().filter_map(|hit| tool_of(hit.item));
        let mut tools: Vec<Arc<Tool>> = likely.filter(|tool| !session.has(tool)).collect();
        tools.truncate(how_many_fit(tools.iter().map(bytes), self.settings.result_bytes));
        self.preload_tools(session, &tools)
    }
}
