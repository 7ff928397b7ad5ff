//! What in a conversation is there only because schemas are held back: searches and loads, what
//! they brought, and the envelopes that calls go in.

use serde_json::Value;
use toolcrib_core::Call;

use crate::message::{Assistant, CallResult, Message, Said, ToolCall, in_words};

/// How a notice begins that brings definitions.
pub(crate) const NOW_LOADED: &str = "Now loaded:\n";

/// The call a model means, its envelope opened.
pub(crate) fn meant(call: &ToolCall) -> Call {
    let bare = Call::new(call.name.clone(), Value::Null);
    if !bare.names_verb() {
        return bare;
    }
    let arguments = serde_json::from_str(&call.arguments);
    let arguments = arguments.unwrap_or_else(|_| Value::String(call.arguments.clone()));
    Call::new(call.name.clone(), arguments).target()
}

/// Whether a call looks for tools or loads them, rather than calling one.
pub(crate) fn is_verb(call: &ToolCall) -> bool {
    meant(call).names_verb()
}

/// Whether a reply does nothing but look for tools, so that there would be no such reply where
/// nothing has to be looked for.
pub(crate) fn only_looks(content: &[Said]) -> bool {
    let mut calls = content.iter().filter_map(|said| match said {
        Said::Call(call) => Some(call),
        _ => None,
    });
    let first = calls.next();
    first.is_some_and(is_verb) && calls.all(is_verb)
}

/// The results among these that answer a verb, given the message that called.
pub(crate) fn found<'a>(
    results: &'a [CallResult],
    before: Option<&'a Message>,
) -> impl Iterator<Item = &'a CallResult> {
    let said = match before {
        Some(Message::Assistant(said)) => Some(said),
        _ => None,
    };
    results.iter().filter(move |result| answers_verb(result, said))
}

fn answers_verb(result: &CallResult, said: Option<&Assistant>) -> bool {
    let call = said.and_then(|said| said.calls().find(|call| call.id == result.call_id));
    match call {
        Some(call) => is_verb(call),
        None => Call::new(result.name.clone(), Value::Null).names_verb(),
    }
}

/// The tokens of a call as the model writes it.
pub(crate) fn written(call: &ToolCall, count: impl Fn(&str) -> u64) -> u64 {
    count(&format!("{}{}", call.name, call.arguments))
}

/// The tokens that a call has in it for no other reason.
pub(crate) fn in_call(call: &ToolCall, count: impl Fn(&str) -> u64) -> u64 {
    let meant = meant(call);
    if meant.names_verb() {
        return written(call, count);
    }
    if meant.name == call.name {
        return 0;
    }
    let opened = count(&format!("{}{}", meant.name, meant.arguments));
    written(call, count).saturating_sub(opened)
}

/// The tokens that a message, which stands behind another, has in it for no other reason.
pub(crate) fn in_message(
    message: &Message,
    before: Option<&Message>,
    count: impl Fn(&str) -> u64,
) -> u64 {
    match message {
        Message::Assistant(said) => {
            let calls: u64 = said.calls().map(|call| in_call(call, &count)).sum();
            let words = if only_looks(&said.content) { count(&said.text()) } else { 0 };
            calls + words
        }
        Message::Tool { results } => {
            found(results, before).map(|result| count(&result.described())).sum()
        }
        Message::Tools(change) => count(&in_words(change)),
        Message::Notice { text } if text.starts_with(NOW_LOADED) => count(text),
        Message::Notice { .. } | Message::User { .. } | Message::Host { .. } => 0,
    }
}
