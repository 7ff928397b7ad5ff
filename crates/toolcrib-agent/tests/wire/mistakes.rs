//! The mistakes that providers answer with status 400, each made on purpose in a request of the
//! story: whoever made it anywhere in a story would be refused.

use serde_json::{Value, json};

use crate::api::Api;
use crate::rules::broken;
use crate::scenario::{Fork, play, play_hosted};
use crate::server::Exchange;
use crate::way::Way;

type Mistake = (&'static str, fn(&mut Value));

/// A mistake is told by these words.
const ANTHROPIC: [Mistake; 15] = [
    ("At least one tool must have defer_loading=false", |body| {
        each(&mut body["tools"], |tool| tool["defer_loading"] = true.into());
    }),
    ("The tool search tool can't have defer_loading=true", |body| {
        push(
            &mut body["tools"],
            json!({"type": "tool_search_tool_bm25_20251119",
            "name": "tool_search_tool_bm25", "defer_loading": true}),
        );
    }),
    ("At most 10000 tools", |body| {
        for number in 0..10_001 {
            push(&mut body["tools"], json!({"name": format!("t{number}"), "defer_loading": true}));
        }
    }),
    ("both defer_loading=true and cache_control", |body| {
        find(&mut body["tools"], "defer_loading", true)["cache_control"] = json!({});
    }),
    ("Tool names must be unique", |body| {
        let again = body["tools"][0].clone();
        push(&mut body["tools"], again);
    }),
    ("Tool reference 'gone' not found in available tools", |body| {
        find(&mut body["messages"], "type", "tool_reference")["tool_name"] = "gone".into();
    }),
    ("can't be mixed with other content", |body| {
        let result = find(&mut body["messages"], "type", "tool_result");
        push(&mut result["content"], json!({"type": "text", "text": "a"}));
    }),
    ("Tool 'gone' is not declared", |body| {
        find(&mut body["messages"], "type", "tool_removal")["tool"]["name"] = "gone".into();
    }),
    ("A maximum of 4 blocks", |body| {
        each(&mut body["system"], |block| block["cache_control"] = json!({}));
        each(&mut body["messages"], |it| it["content"][0]["cache_control"] = json!({}));
    }),
    ("This model takes `auto`", |body| body["tool_choice"] = json!({"type": "any"})),
    ("unexpected `tool_use_id`", |body| {
        let answer = json!({"type": "tool_result", "tool_use_id": "srvtoolu_01", "content": []});
        push(&mut body["messages"], json!({"role": "user", "content": [answer]}));
    }),
    ("without `tool_result` blocks immediately after", |body| {
        let at = place(body, |message| message["content"][0]["type"] == "tool_result");
        body["messages"].as_array_mut().unwrap().remove(at);
    }),
    ("A system message must follow a user message", |body| {
        body["messages"].as_array_mut().unwrap().insert(0, removal());
    }),
    ("without `tool_result` blocks immediately after", |body| {
        let at = place(body, |message| message["content"][0]["type"] == "tool_result");
        body["messages"].as_array_mut().unwrap().insert(at, removal());
    }),
    ("must precede an assistant message or be last", |body| {
        let at = place(body, |message| message["role"] == "system");
        let user = json!({"role": "user", "content": [{"type": "text", "text": "a"}]});
        body["messages"].as_array_mut().unwrap().insert(at + 1, user);
    }),
];

const OPENAI_RESPONSES: [Mistake; 11] = [
    ("Missing namespace for function_call 'mcp__github__create_issue'", |body| {
        let call = find(&mut body["input"], "namespace", "github");
        call.as_object_mut().unwrap().shift_remove("namespace");
    }),
    ("User-defined namespace 'file_search' collides", |body| {
        find(&mut body["input"], "type", "namespace")["name"] = "file_search".into();
    }),
    ("description of namespace 'github'", |body| {
        find(&mut body["input"], "type", "namespace")["description"] = "".into();
    }),
    ("defer_loading of namespace 'github'", |body| {
        find(&mut body["input"], "type", "namespace")["defer_loading"] = true.into();
    }),
    ("must be developer", |body| {
        find(&mut body["input"], "type", "additional_tools")["role"] = "user".into();
    }),
    ("No tool call found for function_call_output", |body| {
        find(&mut body["input"], "type", "tool_search_output")["type"] =
            "function_call_output".into();
    }),
    ("No tool output found", |body| {
        let is_output = |item: &Value| item["type"] == "tool_search_output";
        let items = body["input"].as_array_mut().unwrap();
        let at = items.iter().position(is_output).unwrap();
        items.remove(at);
    }),
    ("Tools with defer_loading need tool_search", |body| {
        body["tools"][0] = json!({"type": "function", "name": "a", "defer_loading": true});
    }),
    ("Unknown parameter: 'tools[0].defer_loading'", |body| {
        find(&mut body["tools"], "type", "tool_search")["defer_loading"] = true.into();
    }),
    ("without its required following item", |body| {
        let thought = find(&mut body["input"], "type", "reasoning").clone();
        push(&mut body["input"], thought);
    }),
    ("can't name a tool that is only loaded by a search", |body| {
        body["tool_choice"] = json!({"type": "function", "name": "mcp__github__create_issue"});
    }),
];

const PLAIN: [Mistake; 4] = [
    ("Unknown parameter: 'defer_loading'", |body| body["tools"][0]["defer_loading"] = true.into()),
    ("Unknown parameter: 'namespace'", |body| {
        find(&mut body["messages"], "role", "assistant")["namespace"] = "github".into();
    }),
    ("Invalid value: 'tool_reference'", |body| {
        let reference = json!({"type": "tool_reference", "tool_name": "a"});
        find(&mut body["messages"], "role", "tool")["content"] = json!([reference]);
    }),
    ("must follow a message with 'tool_calls'", |body| {
        let result = find(&mut body["messages"], "role", "tool").clone();
        push(&mut body["messages"], result);
    }),
];

fn removal() -> Value {
    let tool = json!({"type": "tool_reference", "name": "tool_search"});
    json!({"role": "system", "content": [{"type": "tool_removal", "tool": tool}]})
}

fn push(list: &mut Value, element: Value) {
    list.as_array_mut().unwrap().push(element);
}

fn each(list: &mut Value, change: impl Fn(&mut Value)) {
    list.as_array_mut().unwrap().iter_mut().for_each(change);
}

/// The first thing with this member, at any depth.
fn find<'a>(value: &'a mut Value, name: &str, wanted: impl Into<Value>) -> &'a mut Value {
    fn search<'a>(value: &'a mut Value, name: &str, wanted: &Value) -> Option<&'a mut Value> {
        if value.get(name) == Some(wanted) {
            return Some(value);
        }
        match value {
            Value::Object(members) => members.values_mut().find_map(|it| search(it, name, wanted)),
            Value::Array(elements) => elements.iter_mut().find_map(|it| search(it, name, wanted)),
            _ => None,
        }
    }
    search(value, name, &wanted.into()).unwrap()
}

fn place(body: &Value, is_it: impl Fn(&Value) -> bool) -> usize {
    body["messages"].as_array().unwrap().iter().position(is_it).unwrap()
}

/// The request is taken as it is, and refused with each mistake in it.
fn is_refused_with(exchange: &Exchange, mistakes: &[Mistake]) {
    let body: Value = serde_json::from_str(&exchange.body).unwrap();
    assert_eq!(broken(exchange.api, &body, &exchange.headers), None);
    for (reason, mistake) in mistakes {
        let mut body = body.clone();
        mistake(&mut body);
        let refusal = broken(exchange.api, &body, &exchange.headers).unwrap_or_default();
        assert!(refusal.contains(reason), "{reason}, not {refusal:?}");
    }
}

#[tokio::test]
async fn what_anthropic_refuses_is_refused() {
    let story = play(Api::Anthropic, Way::Native, Fork::LeftOut).await;
    let last = story.exchanges.last().unwrap();
    is_refused_with(last, &ANTHROPIC);
    let without_beta: Vec<(String, String)> =
        last.headers.iter().filter(|(name, _)| name != "anthropic-beta").cloned().collect();
    assert_ne!(without_beta, last.headers);
    let refusal = broken(last.api, &last.answer.asked, &without_beta).unwrap();
    assert!(refusal.contains("beta header"), "{refusal}");
    let hosted = play_hosted(Api::Anthropic).await;
    let gone: Mistake = ("Tool reference 'gone' not found", |body| {
        find(&mut body["messages"], "type", "tool_reference")["tool_name"] = "gone".into();
    });
    is_refused_with(hosted.exchanges.last().unwrap(), &[gone]);
}

#[tokio::test]
async fn what_openai_refuses_is_refused() {
    let story = play(Api::OpenAiResponses, Way::Native, Fork::LeftOut).await;
    is_refused_with(story.exchanges.last().unwrap(), &OPENAI_RESPONSES);
}

#[tokio::test]
async fn what_has_no_form_for_tools_that_wait_refuses_all_of_them() {
    for api in [Api::OpenAiChat, Api::Ollama] {
        let story = play(api, Way::Dispatch, Fork::LeftOut).await;
        is_refused_with(story.exchanges.last().unwrap(), &PLAIN);
    }
}
