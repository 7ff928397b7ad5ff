//! Compaction: the older part of a conversation becomes a summary, the newest stays as it is.
//!
//! The parts, in the order in which a run uses them:
//!
//! 1. [`CompactionRules::is_due`]: whether it is time.
//! 2. [`split()`]: where the part begins that stays.
//! 3. [`request_messages`]: what the model is asked for a summary with. Everything before the
//!    last message is what it was asked with anyway, so that the prompt cache is read.
//!    [`shortened`] is for a conversation that doesn't fit even then; [`summary`] reads the answer.
//! 4. [`compacted`]: the history from then on.
//!
//! All of it is a function of values: equal histories and summaries give equal bytes.

mod announce;
mod request;
mod size;
mod split;

use toolcrib_tokens::Usage;

pub(crate) use announce::{Loaded, compacted};
pub(crate) use request::{request_messages, shortened, summary};
pub(crate) use size::tokens;
pub(crate) use split::split;

/// When a conversation is compacted, and what stays of it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct CompactionRules {
    /// Whether a run compacts by itself. If not, a conversation that is full ends the run.
    pub enabled: bool,
    /// From which share of the model's window on it does. The rest is for the next results, the
    /// answer, and the summary. Where the window isn't known, no run compacts before the provider
    /// says that it is full.
    pub at: f64,
    /// How many tokens of the newest messages stay as they are; at most a quarter of the window.
    pub keep: u64,
}

impl Default for CompactionRules {
    fn default() -> Self {
        Self { enabled: true, at: 0.8, keep: 20_000 }
    }
}

impl CompactionRules {
    /// Whether it is time, by what the provider says that the last request took.
    pub(crate) fn is_due(&self, window: Option<u64>, last: Usage) -> bool {
        let Some(window) = window.filter(|window| *window > 0 && self.enabled) else {
            return false;
        };
        let parts = [last.read, last.written, last.uncached, last.output];
        let used = parts.into_iter().fold(0, u64::saturating_add);
        used as f64 >= self.at * window as f64
    }

    /// How many tokens of the newest messages stay as they are with this window.
    pub(crate) fn tail(&self, window: Option<u64>) -> u64 {
        window.map_or(self.keep, |window| self.keep.min(window / 4))
    }

    /// How many tokens the definitions of loaded tools may take when they are given again.
    pub(crate) fn definitions(&self, window: Option<u64>) -> u64 {
        self.tail(window) / 2
    }

    /// How many words a summary may have.
    pub(crate) fn words(&self, window: Option<u64>) -> u64 {
        window.map_or(1000, |window| (window / 40).clamp(200, 1000))
    }
}

#[cfg(test)]
mod tests;
