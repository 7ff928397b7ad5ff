//! Ollama's own API as its server speaks it: calls come whole, and without ids.

use serde_json::{Value, json};

use crate::answer::{Answer, Saying, pieces};
use crate::api::Token;

pub(crate) fn write(answer: &Answer) -> String {
    let line = |message: Value| {
        json!({"model": answer.model(), "created_at": "2026-01-01T00:00:00.000000Z",
            "message": message, "done": false})
    };
    let mut lines = Vec::new();
    for said in &answer.said {
        match said {
            Saying::Thinking(text) => {
                lines.extend(pieces(text).into_iter().map(|piece| {
                    line(json!({"role": "assistant", "content": "", "thinking": piece}))
                }))
            }
            Saying::Text(text) => lines.extend(
                pieces(text)
                    .into_iter()
                    .map(|piece| line(json!({"role": "assistant", "content": piece}))),
            ),
            // It has no way to tell of some, and tells of the others at the end.
            Saying::Found { .. } | Saying::Refusal(_) | Saying::Cut | Saying::Costly => {}
            Saying::Call { name, arguments, .. } => {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                lines.push(line(json!({"role": "assistant", "content": "",
                    "tool_calls": [{"function": {"name": name, "arguments": arguments}}]})));
            }
        }
    }
    let usage = answer.usage();
    let mut last = line(json!({"role": "assistant", "content": ""}));
    let reason = if answer.is_cut() { "length" } else { "stop" };
    let end = json!({"done_reason": reason, "done": true, "total_duration": 5_000_000,
        "load_duration": 1_000_000, "prompt_eval_count": usage.uncached,
        "prompt_eval_duration": 2_000_000, "eval_count": usage.output,
        "eval_duration": 2_000_000});
    for (name, value) in end.as_object().into_iter().flatten() {
        last[name] = value.clone();
    }
    lines.iter().chain([&last]).map(|line| format!("{line}\n")).collect()
}

/// There are no ids here: a call and its result have the tool's name in common.
pub(crate) fn tokens(message: &Value) -> Vec<Token> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if message["role"] == "tool" {
        return vec![Token::Result(text(&message["tool_name"]))];
    }
    match message["tool_calls"].as_array() {
        Some(calls) => {
            calls.iter().map(|call| Token::Call(text(&call["function"]["name"]))).collect()
        }
        None => vec![Token::Other],
    }
}
