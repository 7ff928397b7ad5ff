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
            "metadata": {}, "model": answer.model(), "output": output, "parallel_tool_calls": true,
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
    for said in &answer.said {
        let place = output.len();
        if let Saying::Found { query, tools } = said {
            output.extend(found(query, tools, (place, answer), &mut events));
        }
        output.extend(item(said, status, (place, answer), &mut events));
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

/// The server's own search, which comes in whole items.
fn found(
    query: &str,
    tools: &[&str],
    (place, answer): (usize, &Answer),
    events: &mut Vec<Value>,
) -> [Value; 2] {
    let spaces = given(&answer.asked).into_iter().filter(|it| it["type"] == "namespace");
    let loaded = spaces.filter_map(|space| {
        let mut space = space.clone();
        let all = space["tools"].as_array_mut()?;
        all.retain(|tool| tools.iter().any(|name| tool["name"] == *name));
        (!all.is_empty()).then_some(space)
    });
    let loaded: Vec<Value> = loaded.collect();
    let paths: Vec<&Value> = loaded.iter().map(|space| &space["name"]).collect();
    let number = answer.number;
    let call = json!({"id": format!("tsc_s{number:02}"), "type": "tool_search_call",
        "status": "completed", "execution": "server", "call_id": null,
        "arguments": {"query": query, "paths": paths}});
    let output = json!({"id": format!("tso_s{number:02}"), "type": "tool_search_output",
        "status": "completed", "execution": "server", "call_id": null, "tools": loaded});
    for (at, item) in [&call, &output].into_iter().enumerate() {
        for kind in ["added", "done"] {
            events.push(json!({"type": format!("response.output_item.{kind}"),
                "output_index": place + at, "item": item}));
        }
    }
    [call, output]
}

/// Writes the events of an item; gives the item as it is in the end.
fn item(
    said: &Saying,
    status: &str,
    (place, answer): (usize, &Answer),
    events: &mut Vec<Value>,
) -> Option<Value> {
    let number = answer.number;
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
        Saying::Found { .. } | Saying::Cut | Saying::Costly => return None,
        // The arguments of a search come as one object, and never in pieces.
        Saying::Call { number, name, arguments } if is_search(name, &answer.asked) => {
            let item = |status: &str, arguments: Value| {
                json!({"id": format!("tsc_{number:02}"), "type": "tool_search_call",
                    "status": status, "execution": "client", "call_id": id(*number),
                    "arguments": arguments})
            };
            let arguments = serde_json::from_str(arguments).unwrap_or_default();
            (item("in_progress", json!({})), item(status, arguments))
        }
        Saying::Call { number, name, arguments } => {
            let item = |status: &str, arguments: &str| {
                let mut item = json!({"id": format!("fc_{number:02}"), "type": "function_call",
                    "status": status, "call_id": id(*number), "name": name,
                    "arguments": arguments});
                if let Some(namespace) = namespace(name, &answer.asked) {
                    item["namespace"] = namespace;
                }
                item
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
        Saying::Found { .. } | Saying::Cut | Saying::Costly => {}
        Saying::Call { name, .. } if is_search(name, &answer.asked) => {}
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

/// Whether a call is of the search that the request has us run.
fn is_search(name: &str, asked: &Value) -> bool {
    let mut tools = asked["tools"].as_array().into_iter().flatten();
    name == "tool_search" && tools.any(|tool| tool["type"] == "tool_search")
}

/// The namespace that a request has a tool in, wherever it stands.
fn namespace(tool: &str, asked: &Value) -> Option<Value> {
    let has = |space: &&Value| {
        let mut tools = space["tools"].as_array().into_iter().flatten();
        space["type"] == "namespace" && tools.any(|it| it["name"] == tool)
    };
    given(asked).into_iter().find(has).map(|space| space["name"].clone())
}

/// Everything that a request says about tools: in its array, and on the conversation's way.
pub(crate) fn given(asked: &Value) -> Vec<&Value> {
    let items = asked["input"].as_array().into_iter().flatten();
    let kinds = ["tool_search_output", "additional_tools"];
    let gives = |item: &&Value| item["type"].as_str().is_some_and(|kind| kinds.contains(&kind));
    let lists = std::iter::once(asked).chain(items.filter(gives)).map(|it| &it["tools"]);
    lists.filter_map(Value::as_array).flatten().collect()
}

/// The names of the functions in a request's namespaces.
pub(crate) fn declared(asked: &Value) -> Vec<String> {
    let spaces = asked["tools"].as_array().into_iter().flatten();
    let tools = spaces.flat_map(|space| space["tools"].as_array().into_iter().flatten());
    tools.filter_map(|tool| Some(tool["name"].as_str()?.to_owned())).collect()
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
        // Nobody answers what the server does by itself.
        Some("tool_search_call" | "tool_search_output") if item["execution"] == "server" => {
            Token::Thinking
        }
        Some("function_call" | "tool_search_call") => Token::Call(id()),
        Some("function_call_output" | "tool_search_output") => Token::Result(id()),
        Some("reasoning") => Token::Thinking,
        _ => Token::Other,
    }]
}
