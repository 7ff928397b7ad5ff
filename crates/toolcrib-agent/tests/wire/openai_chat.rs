//! Chat Completions as a server speaks it: one that tells what the model thinks, as vLLM and
//! llama.cpp do, and whose parallel calls take turns.

use serde_json::{Value, json};

use crate::answer::{Answer, Saying, pieces};
use crate::api::Token;

pub(crate) fn write(answer: &Answer) -> String {
    let chunk = |choices: Value, usage: Value| {
        json!({"id": format!("chatcmpl-{:02}", answer.number), "object": "chat.completion.chunk",
            "created": 1_790_000_000, "model": answer.model(), "choices": choices, "usage": usage})
    };
    let delta = |delta: Value, finish_reason: Value| {
        let choice = json!([{"index": 0, "delta": delta, "logprobs": null,
            "finish_reason": finish_reason}]);
        chunk(choice, Value::Null)
    };
    let mut chunks = vec![delta(json!({"role": "assistant", "content": null}), Value::Null)];
    for piece in spoken(answer).into_iter().chain(called(answer)) {
        chunks.push(delta(piece, Value::Null));
    }
    let reason = match answer {
        _ if answer.is_cut() => "length",
        _ if answer.has_calls() => "tool_calls",
        _ => "stop",
    };
    chunks.push(delta(json!({}), reason.into()));
    let usage = answer.usage();
    let input = usage.read + usage.written + usage.uncached;
    chunks.push(chunk(
        json!([]),
        json!({"prompt_tokens": input,
        "completion_tokens": usage.output, "total_tokens": input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.read,
            "cache_write_tokens": usage.written}}),
    ));
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    events.chain(["data: [DONE]\n\n".to_owned()]).collect()
}

fn spoken(answer: &Answer) -> Vec<Value> {
    let mut deltas = Vec::new();
    for said in &answer.said {
        match said {
            Saying::Thinking(text) => deltas
                .extend(pieces(text).into_iter().map(|piece| json!({"reasoning_content": piece}))),
            Saying::Text(text) => {
                deltas.extend(pieces(text).into_iter().map(|piece| json!({"content": piece})));
            }
            Saying::Refusal(words) => {
                deltas.extend(pieces(words).into_iter().map(|piece| json!({"refusal": piece})));
            }
            Saying::Found { .. } | Saying::Call { .. } | Saying::Cut | Saying::Costly => {}
        }
    }
    deltas
}

/// The beginnings of all calls, then their arguments, a piece of each in turn.
fn called(answer: &Answer) -> Vec<Value> {
    let calls = answer.said.iter().filter_map(|said| match said {
        Saying::Call { number, name, arguments } => Some((number, name, pieces(arguments))),
        _ => None,
    });
    let calls: Vec<(&usize, &String, Vec<&str>)> = calls.collect();
    let mut deltas: Vec<Value> = Vec::new();
    for (index, (number, name, _)) in calls.iter().enumerate() {
        deltas.push(json!({"tool_calls": [{"index": index, "id": id(**number), "type": "function",
            "function": {"name": name, "arguments": ""}}]}));
    }
    let most = calls.iter().map(|(_, _, pieces)| pieces.len()).max().unwrap_or(0);
    for turn in 0..most {
        for (index, (_, _, pieces)) in calls.iter().enumerate() {
            if let Some(piece) = pieces.get(turn) {
                deltas.push(json!({"tool_calls": [{"index": index,
                    "function": {"arguments": piece}}]}));
            }
        }
    }
    deltas
}

pub(crate) fn id(number: usize) -> String {
    format!("call_{number:02}")
}

pub(crate) fn tokens(message: &Value) -> Vec<Token> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if message["role"] == "tool" {
        return vec![Token::Result(text(&message["tool_call_id"]))];
    }
    match message["tool_calls"].as_array() {
        Some(calls) => calls.iter().map(|call| Token::Call(text(&call["id"]))).collect(),
        None => vec![Token::Other],
    }
}
