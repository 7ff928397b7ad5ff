//! Where a history is parted.

use std::sync::Arc;

use toolcrib_tokens::Tokenizer;

use super::size::tokens;
use crate::message::Message;

/// Where the newest part begins that stays as it is, at about `keep` tokens; `None` if what comes
/// before isn't worth a summary. Asked to keep less, it may find something after all.
///
/// The part begins with a person's message, if there is one within reach: as many of them as fit,
/// or the last even if it takes twice as much. Else the model has gone far on one message, and
/// the part begins within that, where the model was asked again. No call is ever parted from its
/// results. The part may be empty, if the last batch of results alone is too large; but a
/// message that waits for an answer is in it at any rate, and so are calls that wait for results.
pub(crate) fn split(history: &[Arc<Message>], keep: u64, tokenizer: &Tokenizer) -> Option<usize> {
    let sizes: Vec<u64> = history.iter().map(|message| tokens(message, tokenizer)).collect();
    let at = newest(history, &from(&sizes), keep);
    let has_answers = history[..at].iter().any(|it| matches!(**it, Message::Assistant(_)));
    let size: u64 = sizes[..at].iter().sum();
    (has_answers && size >= keep / 4).then_some(at)
}

fn newest(history: &[Arc<Message>], from: &[u64], keep: u64) -> usize {
    let reach = keep.saturating_mul(2);
    let asked: Vec<usize> = places(history, is_user).collect();
    let turns: Vec<usize> = places(history, is_turn).collect();
    let earliest = |places: &[usize]| places.iter().copied().find(|at| from[*at] <= keep);
    let last = |places: &[usize]| places.last().copied().filter(|at| from[*at] <= reach);
    let at = earliest(&asked)
        .or_else(|| last(&asked))
        .or_else(|| earliest(&turns))
        .or_else(|| last(&turns))
        .unwrap_or(history.len());
    at.min(waiting(history))
}

/// The size of each message and all after it.
pub(super) fn from(sizes: &[u64]) -> Vec<u64> {
    let mut sums = vec![0; sizes.len() + 1];
    for (at, size) in sizes.iter().enumerate().rev() {
        sums[at] = sums[at + 1] + size;
    }
    sums
}

/// Where a part of a history may begin that is sent without what comes before.
pub(super) fn beginnings(history: &[Arc<Message>]) -> impl Iterator<Item = usize> {
    places(history, |history, at| is_user(history, at) || is_turn(history, at))
}

fn places(
    history: &[Arc<Message>],
    is_one: impl Fn(&[Arc<Message>], usize) -> bool,
) -> impl Iterator<Item = usize> {
    (0..history.len()).filter(move |at| is_one(history, *at))
}

fn is_user(history: &[Arc<Message>], at: usize) -> bool {
    matches!(*history[at], Message::User { .. })
}

/// Whether an answer begins here. One that follows on another is its rest, which its provider had
/// paused.
fn is_turn(history: &[Arc<Message>], at: usize) -> bool {
    let mut before = history[..at].iter().rev();
    let before = before.find(|message| !matches!(***message, Message::Host { .. }));
    matches!(*history[at], Message::Assistant(_))
        && !before.is_some_and(|before| matches!(**before, Message::Assistant(_)))
}

/// The first thing that nobody has answered yet: calls without results, or a person's message.
fn waiting(history: &[Arc<Message>]) -> usize {
    let Some(said) = history.iter().rposition(|it| matches!(**it, Message::Assistant(_))) else {
        return places(history, is_user).next().unwrap_or(history.len());
    };
    let has_calls =
        matches!(&*history[said], Message::Assistant(it) if it.calls().next().is_some());
    let has_results = matches!(history.get(said + 1).map(|it| &**it), Some(Message::Tool { .. }));
    if has_calls && !has_results {
        return places(&history[..=said], is_turn).last().unwrap_or(0);
    }
    places(history, is_user).find(|at| *at > said).unwrap_or(history.len())
}
