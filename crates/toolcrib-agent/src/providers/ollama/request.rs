//! A request as Ollama wants it.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_core::Dialect;

use super::NAME;
use crate::message::{Assistant, CallResult, Message, Part, Said, in_words};
use crate::provider::{ModelOptions, Request};
use crate::providers::body::{self, Shown};

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Entry<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<&'a RawValue>,
    stream: bool,
    #[serde(skip_serializing_if = "Map::is_empty")]
    options: Map<String, Value>,
}

#[derive(Default, Serialize)]
struct Entry<'a> {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
struct Call<'a> {
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: Box<RawValue>,
}

/// The body of a request.
pub(super) fn body(request: &Request) -> Vec<u8> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(Entry {
            role: "system",
            content: request.system.to_string(),
            ..Entry::default()
        });
    }
    for message in &request.messages {
        match &**message {
            Message::User { content } => messages.push(user(content, request.sees_images)),
            Message::Notice { text } => messages.push(Entry {
                role: "user",
                content: body::notice(text),
                ..Entry::default()
            }),
            Message::Assistant(said) => messages.extend(assistant(said)),
            Message::Tool { results } => tool_results(results, request.sees_images, &mut messages),
            Message::Tools(change) => messages.push(Entry {
                role: "user",
                content: body::notice(&in_words(change)),
                ..Entry::default()
            }),
            Message::Host { .. } => {}
        }
    }
    let mut extra = request.options.extra.clone();
    let body = Body {
        model: &request.model,
        messages,
        tools: request.tools.iter().map(|tool| tool.render(Dialect::OpenaiChat)).collect(),
        stream: true,
        options: options(&request.options, &mut extra),
    };
    body::write(&body, &extra)
}

/// How the model is run. What is asked for beyond our own members is taken out of `extra`, which
/// would replace them all.
fn options(own: &ModelOptions, extra: &mut Map<String, Value>) -> Map<String, Value> {
    let mut options = Map::new();
    options.extend(own.max_output.map(|most| ("num_predict".to_owned(), most.into())));
    options.extend(own.temperature.map(|chance| ("temperature".to_owned(), chance.into())));
    if let Some(Value::Object(_)) = extra.get("options")
        && let Some(Value::Object(further)) = extra.shift_remove("options")
    {
        for (name, value) in further {
            if value.is_null() {
                options.shift_remove(&name);
            } else {
                options.insert(name, value);
            }
        }
    }
    options
}

fn user(content: &[Part], sees_images: bool) -> Entry<'_> {
    let mut entry = Entry { role: "user", ..Entry::default() };
    let mut texts = Vec::new();
    for part in content {
        match body::shown(part, sees_images) {
            Shown::Text(text) => texts.push(text),
            Shown::Picture { data, .. } => entry.images.push(data),
        }
    }
    entry.content = texts.join("\n");
    entry
}

/// What the model said, if anything of it is for this provider.
fn assistant(said: &Assistant) -> Option<Entry<'_>> {
    let mut entry = Entry { role: "assistant", content: said.text(), ..Entry::default() };
    for piece in &said.content {
        match piece {
            Said::Native { provider, json } if provider == NAME => {
                entry.thinking.push_str(json.get("thinking").and_then(Value::as_str).unwrap_or(""));
            }
            Said::Call(call) => {
                let arguments = RawValue::from_string(call.arguments_object().to_owned());
                let arguments = arguments.unwrap_or_default();
                let function = Function { name: body::name(&call.name), arguments };
                entry.tool_calls.push(Call { function });
            }
            Said::Text { .. } | Said::Native { .. } => {}
        }
    }
    let is_empty =
        entry.content.is_empty() && entry.thinking.is_empty() && entry.tool_calls.is_empty();
    (!is_empty).then_some(entry)
}

/// Results are text here: pictures follow them in a message of their own.
fn tool_results<'a>(results: &'a [CallResult], sees_images: bool, messages: &mut Vec<Entry<'a>>) {
    let mut pictures = Entry { role: "user", ..Entry::default() };
    let mut lines = Vec::new();
    for result in results {
        let CallResult { call_id, name, content, .. } = result;
        let name = body::name(name);
        let mut texts: Vec<Cow<'_, str>> = Vec::new();
        for part in content {
            match body::shown(part, sees_images) {
                Shown::Text(text) => texts.push(text),
                Shown::Picture { media_type, data } => {
                    pictures.images.push(data);
                    let number = pictures.images.len();
                    let place = format!("[{media_type}: picture {number} of the next message]");
                    texts.push(place.into());
                    lines.push(format!(
                        "Picture {number} is from the result of `{name}` (call {call_id})."
                    ));
                }
            }
        }
        texts.extend(result.written_out().map(Cow::from));
        messages.push(Entry {
            role: "tool",
            content: texts.join("\n"),
            tool_name: Some(name),
            ..Entry::default()
        });
    }
    if !pictures.images.is_empty() {
        pictures.content = lines.join("\n");
        messages.push(pictures);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use toolcrib_core::{Definition, Registry, ToolName, ToolSpec};

    use super::*;
    use crate::ToolCall;

    fn tool(name: &str) -> Definition {
        let registry = Registry::default();
        let schema = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
        let spec = ToolSpec::new(ToolName::host(name), schema).with_description("Adds.");
        registry.register(spec).unwrap();
        registry.catalog().view_all().tool(name).unwrap().definition().clone()
    }

    fn request(messages: Vec<Message>) -> Request {
        Request { cache_key: Some("ignored".into()), ..Request::new("llama3.2", messages) }
    }

    fn call(name: &str, arguments: &str) -> Said {
        Said::Call(ToolCall {
            id: format!("{name}-id"),
            name: name.into(),
            arguments: arguments.into(),
        })
    }

    fn result(name: &str, content: Vec<Part>) -> CallResult {
        let (call_id, name) = (format!("{name}-id"), name.into());
        CallResult { call_id, name, content, ..CallResult::default() }
    }

    fn png(data: &str) -> Part {
        Part::Image { media_type: "image/png".into(), data: data.into() }
    }

    fn sent(request: &Request) -> Value {
        serde_json::from_slice(&body(request)).unwrap()
    }

    fn conversation() -> Vec<Message> {
        vec![
            Message::User { content: vec![Part::text("What"), png("AAAA"), Part::text("is it?")] },
            Message::Assistant(Assistant {
                content: vec![
                    Said::Native { provider: NAME.into(), json: json!({"thinking": "Hm."}) },
                    Said::Native { provider: "anthropic".into(), json: json!({"thinking": "No."}) },
                    Said::Text { text: "Let me see.".into() },
                    call("look", r#"{"n": 1.0}"#),
                    call("add", "not JSON"),
                ],
            }),
            Message::Tool {
                results: vec![
                    result("look", vec![Part::text("here"), png("BBBB")]),
                    CallResult { is_error: true, ..result("add", vec![Part::text("no number")]) },
                ],
            },
            Message::Host { kind: "note".into(), data: json!(1) },
            Message::Assistant(Assistant {
                content: vec![Said::Native { provider: "anthropic".into(), json: json!({}) }],
            }),
            Message::notice("A server has gone."),
            Message::Assistant(Assistant { content: vec![Said::Text { text: "A cat.".into() }] }),
        ]
    }

    #[test]
    fn a_conversation_is_written_message_by_message() {
        let mut request = request(conversation());
        request.system = "Be brief.".into();
        request.tools = vec![tool("add")];
        let options = json!({"max_output": 100, "temperature": 0.5});
        request.options = Arc::new(serde_json::from_value(options).unwrap());
        assert_eq!(
            sent(&request),
            json!({
                "model": "llama3.2",
                "messages": [
                    {"role": "system", "content": "Be brief."},
                    {"role": "user", "content": "What\nis it?", "images": ["AAAA"]},
                    {"role": "assistant", "content": "Let me see.", "thinking": "Hm.",
                     "tool_calls": [{"function": {"name": "look", "arguments": {"n": 1.0}}},
                                    {"function": {"name": "add", "arguments": {}}}]},
                    {"role": "tool", "content": "here\n[image/png: picture 1 of the next message]",
                     "tool_name": "look"},
                    {"role": "tool", "content": "no number", "tool_name": "add"},
                    {"role": "user", "images": ["BBBB"],
                     "content": "Picture 1 is from the result of `look` (call look-id)."},
                    {"role": "user", "content": "<notice>\nA server has gone.\n</notice>"},
                    {"role": "assistant", "content": "A cat."}
                ],
                "tools": [{"type": "function", "function": {"name": "add", "description": "Adds.",
                    "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}}}],
                "stream": true,
                "options": {"num_predict": 100, "temperature": 0.5}
            })
        );
    }

    #[test]
    fn a_model_that_reads_text_only_is_told_about_pictures() {
        let mut request = request(vec![
            Message::User { content: vec![png("AAAA")] },
            Message::Tool { results: vec![result("look", vec![png("BBBB")])] },
        ]);
        request.sees_images = false;
        let told = "[image/png, 1 kB, not shown: this model reads text only]";
        assert_eq!(
            sent(&request)["messages"],
            json!([{"role": "user", "content": told},
                   {"role": "tool", "content": told, "tool_name": "look"}])
        );
    }

    #[test]
    fn further_members_replace_or_follow_those_that_are_there() {
        let mut request = request(vec![Message::user("Hi")]);
        let options = json!({"max_output": 5, "extra": {"think": true, "model": "other"}});
        request.options = Arc::new(serde_json::from_value(options).unwrap());
        assert_eq!(
            String::from_utf8(body(&request)).unwrap(),
            r#"{"model":"other","messages":[{"role":"user","content":"Hi"}],"stream":true,"#
                .to_owned()
                + r#""options":{"num_predict":5},"think":true}"#
        );
    }

    #[test]
    fn further_options_are_laid_over_our_own() {
        let sent = |extra: Value| {
            let mut request = request(vec![Message::user("Hi")]);
            let options = json!({"max_output": 5, "temperature": 0.5, "extra": extra});
            request.options = Arc::new(serde_json::from_value(options).unwrap());
            let text = String::from_utf8(body(&request)).unwrap();
            text.split_once(r#""stream":true"#).unwrap().1.to_owned()
        };
        assert_eq!(
            sent(json!({"think": true, "options": {"num_ctx": 8192, "num_predict": 9}})),
            r#","options":{"num_predict":9,"temperature":0.5,"num_ctx":8192},"think":true}"#
        );
        assert_eq!(
            sent(json!({"options": {"num_predict": null, "seed": null}})),
            r#","options":{"temperature":0.5}}"#
        );
        assert_eq!(sent(json!({"options": {"num_predict": null, "temperature": null}})), "}");
        assert_eq!(sent(json!({"options": null})), "}");
    }

    #[test]
    fn names_are_sane_and_pictures_are_of_known_types() {
        let odd = Part::Image { media_type: "image/tiff".into(), data: "AAAA".into() };
        let sent = sent(&request(vec![
            Message::User { content: vec![odd.clone(), png("")] },
            Message::Assistant(Assistant { content: vec![call("a/b", "{}"), call("", "{}")] }),
            Message::Tool {
                results: vec![result("a/b", vec![odd, png("AAAA")]), result("", vec![])],
            },
        ]));
        let unknown = "[image/tiff, not shown: only JPEG, PNG, GIF and WebP pictures can be]";
        assert_eq!(
            sent["messages"],
            json!([
                {"role": "user", "content": format!("{unknown}\n[image/png, not shown: it is empty]")},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"function": {"name": "a_2fb", "arguments": {}}},
                    {"function": {"name": "_", "arguments": {}}}]},
                {"role": "tool", "tool_name": "a_2fb",
                    "content": format!("{unknown}\n[image/png: picture 1 of the next message]")},
                {"role": "tool", "tool_name": "_", "content": ""},
                {"role": "user", "images": ["AAAA"],
                    "content": "Picture 1 is from the result of `a_2fb` (call a/b-id)."},
            ])
        );
    }

    #[test]
    fn what_was_sent_stays_as_it_was_when_more_is_said() {
        let messages = |count: usize| {
            let body = body(&request(conversation()[..count].to_vec()));
            let text = String::from_utf8(body).unwrap();
            text.strip_suffix(r#"],"stream":true}"#).unwrap().to_owned()
        };
        for count in 1..conversation().len() {
            let (before, after) = (messages(count), messages(count + 1));
            assert!(after.starts_with(&before), "{before}\n{after}");
        }
    }
}
