//! The Messages API as its server speaks it.

use serde_json::{Value, json};

use crate::answer::{Answer, Saying, named_event, pieces};
use crate::api::Token;

pub(crate) fn write(answer: &Answer) -> String {
    let usage = answer.usage();
    let start = json!({"type": "message_start", "message": {
        "id": format!("msg_{:02}", answer.number), "type": "message", "role": "assistant",
        "model": answer.model(), "content": [], "stop_reason": null, "stop_sequence": null,
        "stop_details": null, "container": null,
        "usage": {"input_tokens": usage.uncached, "cache_creation_input_tokens": usage.written,
            "cache_read_input_tokens": usage.read, "output_tokens": 1,
            "service_tier": "standard"}}});
    let mut events = vec![start, json!({"type": "ping"})];
    let blocks = answer.said.iter().flat_map(|said| blocks(said, answer.number));
    for (index, (block, deltas)) in blocks.enumerate() {
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        events.extend(
            deltas.into_iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let (reason, details) = match answer.refusal() {
        Some(words) => {
            ("refusal", json!({"type": "refusal", "category": null, "explanation": words}))
        }
        None if answer.is_cut() => ("max_tokens", Value::Null),
        None if answer.has_calls() => ("tool_use", Value::Null),
        None => ("end_turn", Value::Null),
    };
    events.push(json!({"type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": null, "stop_details": details,
            "container": null},
        "usage": {"output_tokens": usage.output}}));
    events.push(json!({"type": "message_stop"}));
    events.iter().map(named_event).collect()
}

/// A block as it begins, and the pieces of the rest.
type Written = (Value, Vec<Value>);

fn blocks(said: &Saying, number: usize) -> Vec<Written> {
    let Saying::Found { query, tools } = said else {
        return block(said, number).into_iter().collect();
    };
    let id = format!("srvtoolu_{number:02}");
    let call = json!({"type": "server_tool_use", "id": id, "name": "tool_search_tool_bm25",
        "input": {}, "caller": {"type": "direct"}});
    let input = json!({"query": query}).to_string();
    let written = [""].into_iter().chain(pieces(&input));
    let written = written.map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
    let references: Vec<Value> =
        tools.iter().map(|name| json!({"type": "tool_reference", "tool_name": name})).collect();
    let found = json!({"type": "tool_search_tool_result", "tool_use_id": id, "content":
        {"type": "tool_search_tool_search_result", "tool_references": references}});
    vec![(call, written.collect()), (found, Vec::new())]
}

fn block(said: &Saying, number: usize) -> Option<Written> {
    Some(match said {
        Saying::Thinking(text) => {
            let thought = pieces(text)
                .into_iter()
                .map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            let signature =
                json!({"type": "signature_delta", "signature": format!("sig{number}==")});
            let block = json!({"type": "thinking", "thinking": "", "signature": ""});
            (block, thought.chain([signature]).collect())
        }
        Saying::Text(text) => {
            let told =
                pieces(text).into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
            (json!({"type": "text", "text": "", "citations": null}), told.collect())
        }
        Saying::Call { number, name, arguments } => {
            let written = [""]
                .into_iter()
                .chain(pieces(arguments))
                .map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
            let block = json!({"type": "tool_use", "id": id(*number), "name": name, "input": {},
                "caller": {"type": "direct"}});
            (block, written.collect())
        }
        // These are told at the end, or elsewhere.
        Saying::Found { .. } | Saying::Refusal(_) | Saying::Cut | Saying::Costly => return None,
    })
}

pub(crate) fn id(number: usize) -> String {
    format!("toolu_{number:02}")
}

/// Marks move with the end of what they mark and are no part of it.
pub(crate) fn without_marks(mut value: Value) -> Value {
    let blocks = value.get_mut("content").and_then(Value::as_array_mut);
    blocks.into_iter().flatten().for_each(unmark);
    unmark(&mut value);
    value
}

fn unmark(value: &mut Value) {
    if let Some(members) = value.as_object_mut() {
        members.shift_remove("cache_control");
    }
}

pub(crate) fn tokens(message: &Value) -> Vec<Token> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let token = |block: &Value| match block["type"].as_str() {
        Some("tool_use") => Token::Call(text(&block["id"])),
        Some("tool_result") => Token::Result(text(&block["tool_use_id"])),
        Some("thinking") => Token::Thinking,
        _ => Token::Other,
    };
    message["content"].as_array().into_iter().flatten().map(token).collect()
}
