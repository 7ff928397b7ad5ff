//! Notices a model that goes in circles.

use std::collections::VecDeque;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use crate::message::{CallResult, Part, ToolCall};

/// How many calls are looked back on.
const WINDOW: usize = 24;

/// Counts calls that were made before with the same arguments and the same result.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    calls: VecDeque<u64>,
    warned: bool,
}

impl Repeats {
    /// Takes note of a call; says how often, this time included, it had this result.
    pub(crate) fn note(&mut self, call: &ToolCall, result: &CallResult) -> usize {
        let mut hasher = DefaultHasher::new();
        (&call.name, call.arguments.trim(), result.is_error).hash(&mut hasher);
        for part in &result.content {
            match part {
                Part::Text { text } => text.hash(&mut hasher),
                Part::Image { data, .. } => data.hash(&mut hasher),
            }
        }
        let key = hasher.finish();
        if self.calls.len() == WINDOW {
            self.calls.pop_front();
        }
        self.calls.push_back(key);
        self.calls.iter().filter(|seen| **seen == key).count()
    }

    /// What the model is told when it has made a call this often.
    pub(crate) fn warn(&mut self, times: usize) -> String {
        self.warned = true;
        format!(
            "You have made this call {times} times with the same result. Do something else: \
             other arguments, another tool, or an answer with what you know."
        )
    }

    /// Whether it has been told so.
    pub(crate) fn was_warned(&self) -> bool {
        self.warned
    }
}
