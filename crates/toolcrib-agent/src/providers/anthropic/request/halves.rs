//! Calls of the API's own tools without what came of them, and the other way round.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Role, Turn, What};

/// The ids of calls that are never answered, and of answers to no call. The API refuses a
/// conversation for either, but for calls of the turn that it is still in: there it goes on with
/// them, after a pause, or once it has the results of calls that it made beside.
pub(super) fn halves(turns: &[Turn<'_>]) -> BTreeSet<String> {
    let still_in = turns.iter().rposition(ends_the_models_turn).map_or(0, |last| last + 1);
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    let mut halves = BTreeSet::new();
    for (at, turn) in turns.iter().enumerate() {
        for block in &turn.content {
            let What::Native(block) = &block.what else { continue };
            match half(block) {
                Some(Half::Call(id)) => {
                    open.insert(id, at);
                }
                Some(Half::Answer(id)) if open.remove(id).is_none() => {
                    halves.insert(id.to_owned());
                }
                _ => {}
            }
        }
    }
    let given_up = open.into_iter().filter(|(_, at)| *at < still_in);
    halves.extend(given_up.map(|(id, _)| id.to_owned()));
    halves
}

/// Whether a block is one of them.
pub(super) fn is_one_of(halves: &BTreeSet<String>, block: &Map<String, Value>) -> bool {
    let Some(Half::Call(id) | Half::Answer(id)) = half(block) else { return false };
    halves.contains(id)
}

enum Half<'a> {
    Call(&'a str),
    Answer(&'a str),
}

fn half(block: &Map<String, Value>) -> Option<Half<'_>> {
    let word = |member: &str| block.get(member).and_then(Value::as_str);
    let is_call = word("type")?.ends_with("_tool_use");
    word("tool_use_id").map(Half::Answer).or_else(|| word("id").filter(|_| is_call).map(Half::Call))
}

/// Results alone leave it open.
fn ends_the_models_turn(turn: &Turn<'_>) -> bool {
    match turn.role {
        Role::Assistant => false,
        Role::System => true,
        Role::User => {
            turn.content.iter().any(|block| !matches!(block.what, What::ToolResult { .. }))
        }
    }
}
