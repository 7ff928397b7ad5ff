//! What all tools cost together, and how much of it is sent.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;
use toolcrib::tokens::Tokenizer;
use toolcrib::{Engine, Presentation, Session, View};

use crate::output::{BOLD, counted, number, saved};

/// Of all tools a caller may know of, whatever the filter.
#[derive(Debug, Serialize)]
pub(super) struct Totals {
    /// How many there are.
    tools: usize,
    /// Tokens of all definitions.
    full: u64,
    /// Tokens of the definitions held back.
    deferred: u64,
    /// Tokens of what the first request sends: the section and the tools array.
    active: u64,
    /// Of which the section.
    section: u64,
    /// Of which verbs.
    verbs: u64,
    /// By how much the first request is smaller than all definitions, in per cent.
    saved: f64,
    /// Tools the policy hides.
    hidden: usize,
    #[serde(skip)]
    verb_names: Vec<Arc<str>>,
    #[serde(skip)]
    behaviour: String,
}

impl Totals {
    pub(super) fn new(
        engine: &Engine,
        session: &Session,
        view: &View,
        first: &Presentation,
    ) -> Self {
        let sent: HashSet<&Arc<str>> = first.tools.iter().map(|tool| tool.name()).collect();
        let known: HashSet<&Arc<str>> = view.tools().map(|tool| tool.exposed()).collect();
        let verbs: Vec<_> =
            first.tools.iter().filter(|tool| !known.contains(tool.name())).collect();
        let section = Tokenizer::O200K.count(&first.system_section).tokens;
        let active = section + first.tools.iter().map(|tool| tool.tokens()).sum::<u64>();
        let full = view.tools().map(|tool| tool.tokens()).sum();
        let waiting = view.tools().filter(|tool| !sent.contains(tool.exposed()));
        let settings = engine.settings();
        let strategy = session.strategy().map_or_else(String::new, |it| format!(", {it}"));
        let behaviour = match session.is_deferred() {
            Some(true) => format!("preset {}{strategy}, deferring", settings.preset),
            _ => format!("preset {}, every schema sent", settings.preset),
        };
        Self {
            tools: view.len(),
            full,
            deferred: waiting.map(|tool| tool.tokens()).sum(),
            active,
            section,
            verbs: verbs.iter().map(|tool| tool.tokens()).sum(),
            saved: (saved(active, full) * 10.0).round() / 10.0,
            hidden: view.hidden(),
            verb_names: verbs.iter().map(|tool| tool.name().clone()).collect(),
            behaviour,
        }
    }

    pub(super) fn write(&self, text: &mut String, shown: usize) {
        let Self { full, deferred, active, section, verbs, .. } = *self;
        let mut counted = counted(self.tools, "tool");
        if shown != self.tools {
            counted = format!("{} of {counted} shown", number(shown as u64));
        }
        if self.hidden > 0 {
            let _ = write!(counted, ", {} hidden by policy", self.hidden);
        }
        let eager = active - section - verbs;
        let mut parts = vec![format!("section {}", number(section))];
        if !self.verb_names.is_empty() {
            parts.push(format!("{} {}", self.verb_names.join(" "), number(verbs)));
        }
        parts.push(format!("tools {}", number(eager)));
        let width = number(full.max(active)).len();
        let _ = write!(
            text,
            "\n{BOLD}{counted}{BOLD:#}; {}; tokens by o200k_base\n\
             \x20 full      {:>width$}  every definition\n\
             \x20 deferred  {:>width$}  held back\n\
             \x20 active    {:>width$}  sent at the first request: {}\n",
            self.behaviour,
            number(full),
            number(deferred),
            number(active),
            parts.join(" + "),
        );
        if active <= full && full > 0 {
            let _ = writeln!(text, "  saved     {BOLD}{:>width$.1} %{BOLD:#}", self.saved);
        }
    }
}
