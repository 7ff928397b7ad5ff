//! A request as Chat Completions want it.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use toolcrib_core::Dialect;

use super::{NAME, Server};
use crate::message::{Assistant, CallResult, Message, Part, Said, ToolCall, in_words};
use crate::provider::Request;
use crate::providers::body::{self, Shown};

/// The longest id the API takes.
const LONGEST_ID: usize = 40;

/// The messages come last, so that a longer conversation begins with the bytes of a shorter one.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    /// Servers refuse an empty array.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<&'a RawValue>,
    messages: Vec<Turn<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Turn<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "String::is_empty")]
        reasoning_content: String,
        #[serde(skip_serializing_if = "String::is_empty")]
        reasoning: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: Cow<'a, str>,
        content: String,
    },
}

/// Text is a plain string wherever it can be: some servers' templates take nothing else.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(String),
    Pieces(Vec<Piece<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: &'a str,
}

pub(super) fn body(request: &Request, server: Server) -> Vec<u8> {
    let options = &request.options;
    let openai = server == Server::OpenAi;
    let body = Body {
        model: &request.model,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_completion_tokens: options.max_output.filter(|_| openai),
        max_tokens: options.max_output.filter(|_| !openai),
        temperature: options.temperature,
        prompt_cache_key: request.cache_key.as_deref().filter(|_| openai),
        tools: request.tools.iter().map(|tool| tool.render(Dialect::OpenaiChat)).collect(),
        messages: turns(request, server),
    };
    body::write(&body, &options.extra)
}

fn turns(request: &Request, server: Server) -> Vec<Turn<'_>> {
    let mut turns = Vec::new();
    if !request.system.is_empty() {
        turns.push(Turn::System { content: &request.system });
    }
    for message in &request.messages {
        match &**message {
            Message::User { content } => {
                turns.push(Turn::User { content: said(content, request.sees_images) });
            }
            Message::Notice { text } => {
                turns.push(Turn::User { content: Content::Text(body::notice(text)) })
            }
            Message::Assistant(assistant) => turns.extend(answered(assistant, server)),
            Message::Tool { results } => tell(results, request.sees_images, &mut turns),
            Message::Tools(change) => {
                turns.push(Turn::User { content: Content::Text(body::notice(&in_words(change))) })
            }
            Message::Host { .. } => {}
        }
    }
    turns
}

fn said(parts: &[Part], sees_images: bool) -> Content<'_> {
    let mut pieces = Vec::new();
    let mut texts = Vec::new();
    for part in parts {
        match body::shown(part, sees_images) {
            Shown::Text(text) => {
                texts.push(text.clone());
                pieces.push(Piece::Text { text });
            }
            Shown::Picture { media_type, data } => pieces.push(picture(media_type, data)),
        }
    }
    if texts.len() < pieces.len() {
        Content::Pieces(pieces)
    } else {
        Content::Text(texts.join("\n"))
    }
}

fn picture(media_type: &str, data: &str) -> Piece<'static> {
    Piece::ImageUrl { image_url: ImageUrl { url: format!("data:{media_type};base64,{data}") } }
}

fn answered(assistant: &Assistant, server: Server) -> Option<Turn<'_>> {
    let content = Some(assistant.text()).filter(|text| !text.is_empty());
    let tool_calls: Vec<Call<'_>> = assistant
        .calls()
        .map(|call| Call {
            id: id(&call.id),
            r#type: "function",
            function: Function { name: body::name(&call.name), arguments: written(call, server) },
        })
        .collect();
    if content.is_none() && tool_calls.is_empty() {
        return None;
    }
    // Compatible servers may want text at any rate.
    let content = match server {
        Server::OpenAi => content,
        Server::Compatible => Some(content.unwrap_or_default()),
    };
    let thinking = |member: &str| match server {
        Server::OpenAi => String::new(),
        Server::Compatible => thought(assistant, member),
    };
    let (reasoning_content, reasoning) = (thinking("reasoning_content"), thinking("reasoning"));
    Some(Turn::Assistant { content, reasoning_content, reasoning, tool_calls })
}

/// What the model thought, where it came by this name.
fn thought(assistant: &Assistant, member: &str) -> String {
    let thoughts = assistant.content.iter().filter_map(|said| match said {
        Said::Native { provider, json } if provider == NAME => json.get(member)?.as_str(),
        _ => None,
    });
    thoughts.collect()
}

fn id(text: &str) -> Cow<'_, str> {
    body::word(text, LONGEST_ID)
}

/// The arguments of a call, to be sent back. OpenAI takes any text. llama.cpp and vLLM parse it
/// for their templates and refuse the whole conversation if it isn't JSON.
pub(in crate::providers) fn written(call: &ToolCall, server: Server) -> &str {
    match server {
        Server::OpenAi if call.arguments.trim().is_empty() => "{}",
        Server::OpenAi => &call.arguments,
        Server::Compatible => call.arguments_object(),
    }
}

/// A tool's answer has room for text only. Pictures follow all of them in a user's message.
fn tell<'a>(results: &'a [CallResult], sees_images: bool, turns: &mut Vec<Turn<'a>>) {
    let mut pictures = Vec::new();
    for result in results {
        let CallResult { call_id, name, content, .. } = result;
        let tool_call_id = id(call_id);
        let mut lines: Vec<Cow<'_, str>> = Vec::new();
        for part in content {
            match body::shown(part, sees_images) {
                Shown::Text(text) => lines.push(text),
                Shown::Picture { media_type, data } => {
                    lines.push(format!("[{media_type}, shown below]").into());
                    let text = format!("From call {tool_call_id} of {}:", body::name(name));
                    pictures.extend([Piece::Text { text: text.into() }, picture(media_type, data)]);
                }
            }
        }
        lines.extend(result.written_out().map(Cow::from));
        turns.push(Turn::Tool { content: lines.join("\n"), tool_call_id });
    }
    if !pictures.is_empty() {
        turns.push(Turn::User { content: Content::Pieces(pictures) });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use toolcrib_core::{Definition, Registry, Schema, ToolName, ToolSpec};

    use super::*;
    use crate::provider::ModelOptions;

    fn tool(name: &str) -> Definition {
        let registry = Registry::default();
        let spec =
            ToolSpec::new(ToolName::host(name), Schema::empty()).with_description("Does it.");
        registry.register(spec).unwrap();
        registry.catalog().view_all().tool(name).unwrap().definition().clone()
    }

    fn request(messages: Vec<Message>) -> Request {
        Request { system: "Be brief.".into(), ..Request::new("m", messages) }
    }

    fn sent(request: &Request, server: Server) -> Value {
        serde_json::from_slice(&body(request, server)).unwrap()
    }

    fn messages(messages: Vec<Message>) -> Value {
        let mut request = request(messages);
        request.system = "".into();
        sent(&request, Server::Compatible)["messages"].take()
    }

    fn call(id: &str, arguments: &str) -> Said {
        Said::Call(ToolCall { id: id.into(), name: "t".into(), arguments: arguments.into() })
    }

    fn result(id: &str, content: Vec<Part>) -> CallResult {
        let (call_id, name) = (id.into(), "t".into());
        CallResult { call_id, name, content, ..CallResult::default() }
    }

    fn picture() -> Part {
        Part::Image { media_type: "image/png".into(), data: "AAAA".into() }
    }

    #[test]
    fn a_request_is_written_in_a_fixed_order() {
        let mut request = request(vec![Message::user("Hi")]);
        request.tools = vec![tool("look")];
        request.cache_key = Some("c".into());
        request.options = Arc::new(ModelOptions {
            max_output: Some(100),
            temperature: Some(0.5),
            ..Default::default()
        });
        let text = |server| String::from_utf8(body(&request, server)).unwrap();
        let rendered = request.tools[0].render(Dialect::OpenaiChat).get();
        let rest = format!(
            r#""tools":[{rendered}],"messages":[{{"role":"system","content":"Be brief."}},{{"role":"user","content":"Hi"}}]}}"#
        );
        assert_eq!(
            text(Server::Compatible),
            format!(
                r#"{{"model":"m","stream":true,"stream_options":{{"include_usage":true}},"max_tokens":100,"temperature":0.5,{rest}"#
            )
        );
        assert_eq!(
            text(Server::OpenAi),
            format!(
                r#"{{"model":"m","stream":true,"stream_options":{{"include_usage":true}},"max_completion_tokens":100,"temperature":0.5,"prompt_cache_key":"c",{rest}"#
            )
        );
    }

    #[test]
    fn what_is_not_set_is_not_sent() {
        let mut request = request(vec![Message::user("Hi")]);
        request.system = "".into();
        assert_eq!(
            sent(&request, Server::OpenAi),
            json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
                "messages": [{"role": "user", "content": "Hi"}]})
        );
    }

    #[test]
    fn extra_members_replace_in_place_and_are_appended_in_order() {
        let mut request = request(vec![Message::user("Hi")]);
        let extra = json!({"top_p": 0.1, "stream_options": null, "seed": 7, "model": "other"});
        let Value::Object(extra) = extra else { unreachable!() };
        request.options = Arc::new(ModelOptions { extra, ..Default::default() });
        assert_eq!(
            String::from_utf8(body(&request, Server::Compatible)).unwrap(),
            r#"{"model":"other","stream":true,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"top_p":0.1,"seed":7}"#
        );
    }

    #[test]
    fn a_conversation_is_told_in_the_roles_of_the_api() {
        let native =
            |provider: &str| Said::Native { provider: provider.into(), json: json!({"type": "x"}) };
        let sent = messages(vec![
            Message::user("Look"),
            Message::Assistant(Assistant {
                content: vec![
                    native("anthropic"),
                    Said::Text { text: "I'll ".into() },
                    Said::Text { text: "look.".into() },
                    call("1", r#"{"a": 1}"#),
                    call("2", " "),
                ],
            }),
            Message::Tool {
                results: vec![
                    result("1", vec![Part::text("one"), Part::text("line")]),
                    CallResult { is_error: true, ..result("2", vec![Part::text("It failed")]) },
                ],
            },
            Message::Host { kind: "mark".into(), data: json!(1) },
            Message::notice("t has gone"),
            Message::Assistant(Assistant { content: vec![native("openai-responses")] }),
            Message::Assistant(Assistant { content: vec![call("3", "{}")] }),
        ]);
        assert_eq!(
            sent,
            json!([
                {"role": "user", "content": "Look"},
                {"role": "assistant", "content": "I'll look.", "tool_calls": [
                    {"id": "1", "type": "function",
                        "function": {"name": "t", "arguments": r#"{"a": 1}"#}},
                    {"id": "2", "type": "function", "function": {"name": "t", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "1", "content": "one\nline"},
                {"role": "tool", "tool_call_id": "2", "content": "It failed"},
                {"role": "user", "content": "<notice>\nt has gone\n</notice>"},
                {"role": "assistant", "content": "", "tool_calls": [
                    {"id": "3", "type": "function", "function": {"name": "t", "arguments": "{}"}},
                ]},
            ])
        );
    }

    #[test]
    fn arguments_that_are_no_json_are_kept_from_servers_that_would_choke_on_them() {
        for (arguments, to_openai, to_others) in [
            (r#"{"a": 1"#, r#"{"a": 1"#, "{}"),
            ("[1]", "[1]", "{}"),
            ("", "{}", "{}"),
            (r#"{"a": 1}"#, r#"{"a": 1}"#, r#"{"a": 1}"#),
        ] {
            let call = ToolCall { id: "1".into(), name: "t".into(), arguments: arguments.into() };
            assert_eq!(written(&call, Server::OpenAi), to_openai);
            assert_eq!(written(&call, Server::Compatible), to_others);
        }
    }

    #[test]
    fn names_and_ids_are_what_the_api_takes() {
        let bad = |id: &str, name: &str| {
            Said::Call(ToolCall { id: id.into(), name: name.into(), arguments: "{}".into() })
        };
        let long = "c".repeat(41);
        let sent = messages(vec![
            Message::Assistant(Assistant {
                content: vec![bad("functions.t:0", "a/b"), bad(&long, ""), bad(&long[1..], "t")],
            }),
            Message::Tool {
                results: vec![
                    result("functions.t:0", vec![picture()]),
                    result(&long, vec![]),
                    result(&long[1..], vec![]),
                ],
            },
        ]);
        let calls = sent[0]["tool_calls"].as_array().unwrap();
        let field = |place: &str| -> Vec<&str> {
            calls.iter().map(|call| call.pointer(place).unwrap().as_str().unwrap()).collect()
        };
        let ids = field("/id");
        assert_eq!(field("/function/name"), ["a_2fb", "_", "t"]);
        assert_eq!((ids[0], ids[1].len(), ids[2]), ("functions_2et_3a0", 40, &long[1..]));
        assert_ne!(ids[1], ids[2]);
        for (at, id) in ids.iter().enumerate() {
            assert_eq!(sent[at + 1]["tool_call_id"], *id);
        }
        assert_eq!(sent[4]["content"][0]["text"], "From call functions_2et_3a0 of t:");
    }

    #[test]
    fn thinking_goes_back_by_its_name_to_compatible_servers_only() {
        let thought =
            |member: &str| Said::Native { provider: NAME.into(), json: json!({member: "Hm."}) };
        let foreign = Said::Native {
            provider: "ollama".into(),
            json: json!({"reasoning": "No.", "reasoning_content": "No."}),
        };
        let request = request(vec![
            Message::Assistant(Assistant {
                content: vec![foreign, thought("reasoning_content"), call("1", "{}")],
            }),
            Message::Assistant(Assistant {
                content: vec![thought("reasoning"), Said::Text { text: "Done".into() }],
            }),
            Message::Assistant(Assistant { content: vec![thought("reasoning")] }),
        ]);
        let calls = json!([{"id": "1", "type": "function",
            "function": {"name": "t", "arguments": "{}"}}]);
        let system = json!({"role": "system", "content": "Be brief."});
        assert_eq!(
            sent(&request, Server::Compatible)["messages"],
            json!([
                system,
                {"role": "assistant", "content": "", "reasoning_content": "Hm.",
                    "tool_calls": calls},
                {"role": "assistant", "content": "Done", "reasoning": "Hm."},
            ])
        );
        assert_eq!(
            sent(&request, Server::OpenAi)["messages"],
            json!([
                system,
                {"role": "assistant", "content": null, "tool_calls": calls},
                {"role": "assistant", "content": "Done"},
            ])
        );
    }

    #[test]
    fn pictures_no_api_takes_are_described() {
        let image = |media_type: &str, data: &str| Part::Image {
            media_type: media_type.into(),
            data: data.into(),
        };
        let odd = "[image/tiff, not shown: only JPEG, PNG, GIF and WebP pictures can be]";
        assert_eq!(
            messages(vec![
                Message::User {
                    content: vec![image("image/tiff", "AAAA"), image("image/png", "")]
                },
                Message::User {
                    content: vec![image("image/tiff", "AAAA"), image("image/JPG", "A")]
                },
                Message::Tool { results: vec![result("1", vec![image("image/tiff", "AAAA")])] },
            ]),
            json!([
                {"role": "user", "content": format!("{odd}\n[image/png, not shown: it is empty]")},
                {"role": "user", "content": [{"type": "text", "text": odd},
                    {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,A"}}]},
                {"role": "tool", "tool_call_id": "1", "content": odd},
            ])
        );
    }

    #[test]
    fn pictures_follow_all_results() {
        let conversation = vec![
            Message::User { content: vec![Part::text("This?"), picture()] },
            Message::Tool {
                results: vec![
                    result("1", vec![Part::text("A chart:"), picture()]),
                    result("2", vec![picture()]),
                    result("3", vec![Part::text("None")]),
                ],
            },
        ];
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        assert_eq!(
            messages(conversation.clone()),
            json!([
                {"role": "user", "content": [{"type": "text", "text": "This?"}, image]},
                {"role": "tool", "tool_call_id": "1", "content": "A chart:\n[image/png, shown below]"},
                {"role": "tool", "tool_call_id": "2", "content": "[image/png, shown below]"},
                {"role": "tool", "tool_call_id": "3", "content": "None"},
                {"role": "user", "content": [
                    {"type": "text", "text": "From call 1 of t:"}, image,
                    {"type": "text", "text": "From call 2 of t:"}, image,
                ]},
            ])
        );

        let mut blind = request(conversation);
        (blind.system, blind.sees_images) = ("".into(), false);
        let described = "[image/png, 1 kB, not shown: this model reads text only]";
        assert_eq!(
            sent(&blind, Server::Compatible)["messages"],
            json!([
                {"role": "user", "content": format!("This?\n{described}")},
                {"role": "tool", "tool_call_id": "1", "content": format!("A chart:\n{described}")},
                {"role": "tool", "tool_call_id": "2", "content": described},
                {"role": "tool", "tool_call_id": "3", "content": "None"},
            ])
        );
    }

    #[test]
    fn a_longer_conversation_begins_with_the_bytes_of_a_shorter_one() {
        let whole = vec![
            Message::user("Look"),
            Message::user("Please"),
            Message::Assistant(Assistant { content: vec![call("1", "{}")] }),
            Message::Tool { results: vec![result("1", vec![picture()])] },
            Message::notice("n"),
            Message::Assistant(Assistant { content: vec![Said::Text { text: "Done".into() }] }),
            Message::user("Thanks"),
        ];
        let longest = body(&request(whole.clone()), Server::OpenAi);
        for length in 1..whole.len() {
            let shorter = body(&request(whole[..length].to_vec()), Server::OpenAi);
            let open = shorter.strip_suffix(b"]}").unwrap();
            assert!(longest.starts_with(open), "{length}");
        }
    }
}
