//! The Responses API as its server speaks it.

use serde_json::{Value, json};

use crate::answer::{Answer, Saying, named_event, pieces};
use crate::api::Token;

pub(crate) fn write(answer: &Answer) -> String {
    let response = |status: &str, output: &[Value], usage: Value| {
        let reason = if status == "incomplete" {
            json!({"reason": "max_output_tokens"})
        } else {
            Value::Null
        };
        json!({"id": format!("resp_{:02}", answer.number), "object": "response",
            "created_at": 1_790_000_000, "status": status, "background": false, "error": null,
            "incomplete_details": reason, "instructions": null, "max_output_tokens": null,
            "metadata": {}, "model": answer.model, "output": output, "parallel_tool_calls": true,
            "previous_response_id": null, "temperature": 1.0,
            "tool_choice": "auto", "tools": [], "top_p": 1.0, "usage": usage})
    };
    let mut events = vec![
        json!({"type": "response.created", "response": response("in_progress", &[], Value::Null)}),
        json!({"type": "response.in_progress",
            "response": response("in_progress", &[], Value::Null)}),
    ];
    let mut output = Vec::new();
    let status = if answer.is_cut() { "incomplete" } else { "completed" };
    for (place, said) in answer.said.iter().enumerate() {
        output.extend(item(said, status, (place, answer.number), &mut events));
    }
    let usage = answer.usage();
    let input = usage.read + usage.written + usage.uncached;
    let usage = json!({"input_tokens": input,
        "input_tokens_details": {"cached_tokens": usage.read, "cache_write_tokens": usage.written},
        "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + usage.output});
    events.push(json!({"type": format!("response.{status}"),
        "response": response(status, &output, usage)}));
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    events.iter().map(named_event).collect()
}

/// Writes the events of an item; gives the item as it is in the end.
fn item(
    said: &Saying,
    status: &str,
    (place, number): (usize, usize),
    events: &mut Vec<Value>,
) -> Option<Value> {
    let message = |status: &str, content: Value| {
        json!({"id": format!("msg_{number:02}"), "type": "message", "status": status,
            "role": "assistant", "content": content})
    };
    let (begun, whole) = match said {
        Saying::Thinking(text) => {
            let item = |summary: Value, encrypted: &str| {
                json!({"id": format!("rs_{number:02}"), "type": "reasoning", "summary": summary,
                    "encrypted_content": encrypted})
            };
            let whole = json!([{"type": "summary_text", "text": text}]);
            (item(json!([]), ""), item(whole, &format!("gAAAA{number:02}==")))
        }
        Saying::Text(text) => {
            (message("in_progress", json!([])), message(status, json!([output_text(text)])))
        }
        Saying::Refusal(words) => {
            (message("in_progress", json!([])), message(status, json!([refusal(words)])))
        }
        Saying::Cut => return None,
        Saying::Call { number, name, arguments } => {
            let item = |status: &str, arguments: &str| {
                json!({"id": format!("fc_{number:02}"), "type": "function_call", "status": status,
                    "call_id": id(*number), "name": name, "arguments": arguments})
            };
            (item("in_progress", ""), item(status, arguments))
        }
    };
    let item_id = whole["id"].clone();
    let event = |kind: &str, members: Value| {
        let mut event = json!({"type": format!("response.{kind}"), "item_id": item_id,
            "output_index": place});
        for (name, value) in members.as_object().into_iter().flatten() {
            event[name] = value.clone();
        }
        event
    };
    events.push(json!({"type": "response.output_item.added", "output_index": place,
        "item": begun}));
    match said {
        Saying::Thinking(text) => {
            let part = |text: &str| {
                json!({"summary_index": 0,
                "part": {"type": "summary_text", "text": text}})
            };
            events.push(event("reasoning_summary_part.added", part("")));
            events.extend(pieces(text).into_iter().map(|piece| {
                event("reasoning_summary_text.delta", json!({"summary_index": 0, "delta": piece}))
            }));
            let done = json!({"summary_index": 0, "text": text});
            events.push(event("reasoning_summary_text.done", done));
            events.push(event("reasoning_summary_part.done", part(text)));
        }
        Saying::Text(text) => {
            let part = |text: &str| json!({"content_index": 0, "part": output_text(text)});
            events.push(event("content_part.added", part("")));
            events.extend(pieces(text).into_iter().map(|piece| {
                let delta = json!({"content_index": 0, "delta": piece, "logprobs": []});
                event("output_text.delta", delta)
            }));
            let done = json!({"content_index": 0, "text": text, "logprobs": []});
            events.push(event("output_text.done", done));
            events.push(event("content_part.done", part(text)));
        }
        Saying::Refusal(words) => {
            let part = |words: &str| json!({"content_index": 0, "part": refusal(words)});
            events.push(event("content_part.added", part("")));
            events.extend(
                pieces(words).into_iter().map(|piece| {
                    event("refusal.delta", json!({"content_index": 0, "delta": piece}))
                }),
            );
            events.push(event("refusal.done", json!({"content_index": 0, "refusal": words})));
            events.push(event("content_part.done", part(words)));
        }
        Saying::Cut => {}
        Saying::Call { arguments, .. } => {
            events.extend(
                pieces(arguments)
                    .into_iter()
                    .map(|piece| event("function_call_arguments.delta", json!({"delta": piece}))),
            );
            let done = json!({"arguments": arguments});
            events.push(event("function_call_arguments.done", done));
        }
    }
    events.push(json!({"type": "response.output_item.done", "output_index": place,
        "item": whole}));
    Some(whole)
}

fn refusal(words: &str) -> Value {
    json!({"type": "refusal", "refusal": words})
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

pub(crate) fn id(number: usize) -> String {
    format!("call_{number:02}")
}

pub(crate) fn tokens(item: &Value) -> Vec<Token> {
    let id = || item["call_id"].as_str().unwrap_or_default().to_owned();
    vec![match item["type"].as_str() {
        Some("function_call") => Token::Call(id()),
        Some("function_call_output") => Token::Result(id()),
        Some("reasoning") => Token::Thinking,
        _ => Token::Other,
    }]
}
