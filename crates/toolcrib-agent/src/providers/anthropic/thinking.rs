//! Thinking that the API no longer takes back.
//!
//! Newer models sign what they think together with all that stood before it. If any of that has
//! changed since (the head of the conversation was summed up, a tool is in the array that was
//! not), the API refuses the whole request, and each later one. It could be asked to leave such
//! thinking out by itself, but then it checks where it otherwise wouldn't, and servers that only
//! speak its language refuse the question. So it is left out here, once it was refused.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};

use super::NAME;
use crate::message::{Message, Said};
use crate::provider::Request;

/// How many pieces are remembered. One that is forgotten is refused once more.
const MOST: usize = 1 << 16;

/// The thinking that was refused, by its signatures. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused(Arc<Mutex<HashSet<u64>>>);

impl Refused {
    /// Remembers all thinking in a request: what follows the piece that the API names is signed
    /// together with it. Says whether there was any that had not been refused before.
    pub(super) fn take(&self, request: &Request) -> bool {
        let assistants = request.messages.iter().filter_map(|message| match &**message {
            Message::Assistant(assistant) => Some(assistant),
            _ => None,
        });
        let keys = assistants.flat_map(|it| &it.content).filter_map(|said| match said {
            Said::Native { provider, json: Value::Object(block) } if provider == NAME => key(block),
            _ => None,
        });
        let keys: Vec<u64> = keys.collect();
        let mut refused = self.lock();
        if refused.len() + keys.len() > MOST {
            refused.clear();
        }
        let before = refused.len();
        refused.extend(keys);
        refused.len() > before
    }

    /// Whether a block is among it.
    pub(super) fn has(&self, block: &Map<String, Value>) -> bool {
        let refused = self.lock();
        !refused.is_empty() && key(block).is_some_and(|key| refused.contains(&key))
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a block is thinking.
pub(super) fn is_thinking(block: &Map<String, Value>) -> bool {
    matches!(block.get("type").and_then(Value::as_str), Some("thinking" | "redacted_thinking"))
}

fn key(block: &Map<String, Value>) -> Option<u64> {
    if !is_thinking(block) {
        return None;
    }
    let signed = ["signature", "data", "thinking"].iter().find_map(|member| block.get(*member));
    let mut hasher = DefaultHasher::new();
    signed.and_then(Value::as_str).hash(&mut hasher);
    Some(hasher.finish())
}
