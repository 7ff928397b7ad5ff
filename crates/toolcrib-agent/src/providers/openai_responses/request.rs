//! A request as the Responses API wants it.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_core::ToolChange;

use super::NAME;
use super::response::NAMESPACE;
use super::tools::{Deferral, Tool, plain};
use crate::message::{Assistant, CallResult, Message, Part, Said, ToolCall, in_words};
use crate::provider::Request;
use crate::providers::body::{self, Shown};
use crate::providers::openai_chat::{Server, written};

/// The longest id the API takes.
const LONGEST_ID: usize = 64;

/// The items come last, so that a longer conversation begins with the bytes of a shorter one.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    /// The conversation is kept here, and reasoning travels with it in encrypted form.
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    input: Vec<Item<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    /// As the API wrote it.
    Native(&'a Value),
    Made {
        #[serde(flatten)]
        made: Made<'a>,
        /// See `MARKS`.
        #[serde(flatten)]
        marks: Option<Cow<'a, Map<String, Value>>>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Made<'a> {
    Message {
        role: Role,
        content: Content<'a>,
    },
    FunctionCall {
        call_id: Cow<'a, str>,
        name: Cow<'a, str>,
        arguments: &'a str,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: Content<'a>,
    },
    ToolSearchCall {
        execution: Execution,
        call_id: Cow<'a, str>,
        status: Status,
        arguments: Box<RawValue>,
    },
    ToolSearchOutput {
        execution: Execution,
        call_id: Cow<'a, str>,
        status: Status,
        tools: Vec<Tool<'a>>,
    },
    AdditionalTools {
        role: Role,
        tools: Vec<Tool<'a>>,
    },
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Execution {
    Client,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Completed,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
    Developer,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    /// What the model said goes back in this form: as a list it would need the ids it had.
    Text(String),
    Said(&'a str),
    Pieces(Vec<Piece>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    InputText { text: String },
    InputImage { detail: &'static str, image_url: String },
}

impl Piece {
    fn text(&self) -> Option<&str> {
        match self {
            Self::InputText { text } => Some(text),
            Self::InputImage { .. } => None,
        }
    }
}

pub(super) fn body(request: &Request, server: Server) -> Vec<u8> {
    let options = &request.options;
    let deferral = Deferral::of(request);
    let deferral = deferral.as_ref();
    let body = Body {
        model: &request.model,
        stream: true,
        store: false,
        include: may_reason(&request.model).then_some(["reasoning.encrypted_content"]),
        max_output_tokens: options.max_output,
        temperature: options.temperature,
        prompt_cache_key: request.cache_key.as_deref(),
        instructions: &request.system,
        tools: deferral.map_or_else(|| plain(request), |deferral| deferral.tools(request)),
        input: items(request, server, deferral),
    };
    body::write(&body, &options.extra)
}

/// Models from before there was reasoning refuse to be asked for it; any other may have it.
fn may_reason(model: &str) -> bool {
    !["gpt-3", "gpt-4"].iter().any(|family| model.contains(family))
}

fn items<'a>(
    request: &'a Request,
    server: Server,
    deferral: Option<&'a Deferral<'a>>,
) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    // Whether there may be something that searches and namespaces of the API's own refer to.
    let refers = deferral.is_some() || request.options.extra.contains_key("tools");
    // By their ids: an output must be of the kind its call was.
    let mut searches = HashSet::new();
    for message in &request.messages {
        match &**message {
            Message::User { content } => {
                let content = Content::Pieces(pieces(content, request.sees_images));
                items.push(Made::Message { role: Role::User, content }.into());
            }
            Message::Notice { text } => items.push(notice(text)),
            Message::Assistant(assistant) => {
                items.extend(answered(assistant, server, deferral, refers));
                let is_search = |call: &&ToolCall| {
                    deferral.is_some_and(|deferral| deferral.is_search(&call.name))
                };
                searches.extend(assistant.calls().filter(is_search).map(|call| &*call.id));
            }
            Message::Tool { results } => match deferral {
                Some(deferral) => {
                    let is_search = |result: &CallResult| searches.contains(&*result.call_id);
                    items.extend(gave(results, request.sees_images, deferral, is_search));
                }
                None => {
                    let came_of = |result| came_of(result, true, request.sees_images);
                    items.extend(results.iter().map(came_of));
                }
            },
            Message::Tools(change) => match deferral {
                Some(deferral) => items.extend(changed(change, deferral)),
                None => items.push(notice(&in_words(change))),
            },
            Message::Host { .. } => {}
        }
    }
    items
}

impl<'a> From<Made<'a>> for Item<'a> {
    fn from(made: Made<'a>) -> Self {
        Self::Made { made, marks: None }
    }
}

fn pieces(parts: &[Part], sees_images: bool) -> Vec<Piece> {
    let piece = |part| match body::shown(part, sees_images) {
        Shown::Text(text) => Piece::InputText { text: text.into_owned() },
        Shown::Picture { media_type, data } => Piece::InputImage {
            detail: "auto",
            image_url: format!("data:{media_type};base64,{data}"),
        },
    };
    parts.iter().map(piece).collect()
}

fn notice<'a>(text: &str) -> Item<'a> {
    let content = Content::Pieces(vec![Piece::InputText { text: body::notice(text) }]);
    Made::Message { role: Role::User, content }.into()
}

/// The result of a function, with the definitions it gives where the API has no other form for
/// them.
fn came_of(result: &CallResult, writes_out: bool, sees_images: bool) -> Item<'_> {
    let mut pieces = pieces(&result.content, sees_images);
    if writes_out {
        pieces.extend(result.written_out().map(|text| Piece::InputText { text }));
    }
    let texts: Option<Vec<&str>> = pieces.iter().map(Piece::text).collect();
    let output = match texts {
        Some(texts) => Content::Text(texts.join("\n")),
        None => Content::Pieces(pieces),
    };
    Made::FunctionCallOutput { call_id: id(&result.call_id), output }.into()
}

/// The results of a batch of calls in a conversation in which tools wait. The output of a search
/// has room for tools and no words, that of a function for words and no tools: what has no room
/// follows all outputs.
fn gave<'a>(
    results: &'a [CallResult],
    sees_images: bool,
    deferral: &'a Deferral<'a>,
    is_search: impl Fn(&CallResult) -> bool,
) -> Vec<Item<'a>> {
    let (mut items, mut given, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for result in results {
        if !is_search(result) {
            items.push(came_of(result, false, sees_images));
            given.extend(&result.revealed);
            continue;
        }
        let found = Made::ToolSearchOutput {
            execution: Execution::Client,
            call_id: id(&result.call_id),
            status: Status::Completed,
            tools: deferral.found(&result.revealed),
        };
        items.push(found.into());
        let words: Vec<String> = result.content.iter().map(Part::described).collect();
        let words = words.join("\n");
        if !words.trim().is_empty() {
            told.push(notice(&words));
        }
    }
    items.extend(added(deferral.added(given)));
    items.extend(told);
    items
}

/// The tools that come, and words about those that go.
fn changed<'a>(change: &'a ToolChange, deferral: &'a Deferral<'a>) -> Vec<Item<'a>> {
    let gone = ToolChange { added: Vec::new(), removed: change.removed.clone() };
    let gone = (!gone.is_empty()).then(|| notice(&in_words(&gone)));
    added(deferral.added(&change.added)).into_iter().chain(gone).collect()
}

fn added(tools: Vec<Tool<'_>>) -> Option<Item<'_>> {
    (!tools.is_empty()).then(|| Made::AdditionalTools { role: Role::Developer, tools }.into())
}

fn id(text: &str) -> Cow<'_, str> {
    body::word(text, LONGEST_ID)
}

fn answered<'a>(
    assistant: &'a Assistant,
    server: Server,
    deferral: Option<&'a Deferral<'a>>,
    refers: bool,
) -> Vec<Item<'a>> {
    let mut items: Vec<Item<'_>> = Vec::new();
    let mut marks = None;
    for said in &assistant.content {
        let made = match said {
            Said::Native { provider, .. } if provider != NAME => continue,
            Said::Native { json: Value::Object(members), .. } if !members.contains_key("type") => {
                marks = Some(members);
                continue;
            }
            Said::Native { json, .. } if !refers && is_search(json) => {
                // What the model thought before it goes with it.
                without_reasoning(&mut items);
                marks = None;
                continue;
            }
            Said::Native { json, .. } => {
                items.push(Item::Native(json));
                marks = None;
                continue;
            }
            Said::Text { text } if text.is_empty() => continue,
            Said::Text { text } => {
                Made::Message { role: Role::Assistant, content: Content::Said(text) }
            }
            Said::Call(call) => {
                items.push(called(call, marks.take(), server, deferral, refers));
                continue;
            }
        };
        items.push(Item::Made { made, marks: marks.take().map(Cow::Borrowed) });
    }
    // As an answer that was cut off in it leaves behind.
    without_reasoning(&mut items);
    items
}

/// Takes away the reasoning at the end: the API refuses any that nothing follows.
fn without_reasoning(items: &mut Vec<Item<'_>>) {
    let is_reasoning =
        |item: &Item<'_>| matches!(item, Item::Native(it) if it["type"] == "reasoning");
    while items.last().is_some_and(is_reasoning) {
        items.pop();
    }
}

/// Whether it is a search of the server's own, or what it found.
fn is_search(item: &Value) -> bool {
    matches!(item["type"].as_str(), Some("tool_search_call" | "tool_search_output"))
}

fn called<'a>(
    call: &'a ToolCall,
    marks: Option<&'a Map<String, Value>>,
    server: Server,
    deferral: Option<&'a Deferral<'a>>,
    refers: bool,
) -> Item<'a> {
    let call_id = id(&call.id);
    if deferral.is_some_and(|deferral| deferral.is_search(&call.name)) {
        let (execution, status) = (Execution::Client, Status::Completed);
        let arguments = RawValue::from_string(call.arguments_object().to_owned());
        let arguments = arguments.unwrap_or_default();
        return Made::ToolSearchCall { execution, call_id, status, arguments }.into();
    }
    let marks = match deferral {
        Some(deferral) => placed(marks, |kept| deferral.namespace(&call.name, kept)),
        None => placed(marks, |kept| kept.filter(|_| refers)),
    };
    let (name, arguments) = (body::name(&call.name), written(call, server));
    Item::Made { made: Made::FunctionCall { call_id, name, arguments }, marks }
}

/// The marks of a call, with the namespace that its tool has in this request.
fn placed<'a>(
    marks: Option<&'a Map<String, Value>>,
    namespace: impl Fn(Option<&'a str>) -> Option<&'a str>,
) -> Option<Cow<'a, Map<String, Value>>> {
    let kept = marks.and_then(|marks| marks.get(NAMESPACE)?.as_str());
    let namespace = namespace(kept);
    if namespace == kept {
        return marks.map(Cow::Borrowed);
    }
    let mut marks = marks.cloned().unwrap_or_default();
    match namespace {
        Some(namespace) => {
            marks.insert(NAMESPACE.to_owned(), namespace.into());
        }
        None => {
            marks.shift_remove(NAMESPACE);
        }
    }
    (!marks.is_empty()).then_some(Cow::Owned(marks))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use toolcrib_core::{Definition, Dialect, Registry, Schema, ToolName, ToolSpec};

    use super::*;
    use crate::message::ToolCall;
    use crate::provider::ModelOptions;

    fn tool(name: &str) -> Definition {
        let registry = Registry::default();
        registry.register(ToolSpec::new(ToolName::host(name), Schema::empty())).unwrap();
        registry.catalog().view_all().tool(name).unwrap().definition().clone()
    }

    fn request(messages: Vec<Message>) -> Request {
        Request::new("m", messages)
    }

    fn input(request: &Request) -> Value {
        let mut sent: Value = serde_json::from_slice(&body(request, Server::OpenAi)).unwrap();
        sent["input"].take()
    }

    fn said(content: Vec<Said>) -> Message {
        Message::Assistant(Assistant { content })
    }

    fn text(text: &str) -> Said {
        Said::Text { text: text.into() }
    }

    fn call(id: &str, arguments: &str) -> Said {
        Said::Call(ToolCall { id: id.into(), name: "t".into(), arguments: arguments.into() })
    }

    fn native(json: Value) -> Said {
        Said::Native { provider: NAME.into(), json }
    }

    fn result(id: &str, content: Vec<Part>) -> CallResult {
        let (call_id, name) = (id.into(), "t".into());
        CallResult { call_id, name, content, ..CallResult::default() }
    }

    fn picture() -> Part {
        Part::Image { media_type: "image/png".into(), data: "AAAA".into() }
    }

    fn user(text: &str) -> Value {
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
    }

    #[test]
    fn a_request_is_written_in_a_fixed_order() {
        let mut request = request(vec![Message::user("Hi")]);
        assert_eq!(
            String::from_utf8(body(&request, Server::OpenAi)).unwrap(),
            r#"{"model":"m","stream":true,"store":false,"include":["reasoning.encrypted_content"],"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"Hi"}]}]}"#
        );
        request.system = "Be brief.".into();
        request.tools = vec![tool("look")];
        request.cache_key = Some("c".into());
        let Value::Object(extra) = json!({"reasoning": {"effort": "low"}, "store": true}) else {
            unreachable!()
        };
        request.options =
            Arc::new(ModelOptions { max_output: Some(100), temperature: Some(0.5), extra });
        let rendered = request.tools[0].render(Dialect::OpenaiResponses).get();
        assert_eq!(
            String::from_utf8(body(&request, Server::OpenAi)).unwrap(),
            format!(
                r#"{{"model":"m","stream":true,"store":true,"include":["reasoning.encrypted_content"],"max_output_tokens":100,"temperature":0.5,"prompt_cache_key":"c","instructions":"Be brief.","tools":[{rendered}],"input":[{{"type":"message","role":"user","content":[{{"type":"input_text","text":"Hi"}}]}}],"reasoning":{{"effort":"low"}}}}"#
            )
        );
    }

    #[test]
    fn models_without_reasoning_are_not_asked_for_it() {
        for (model, asks) in [
            ("gpt-5.6", true),
            ("o3", true),
            ("my-deployment", true),
            ("gpt-4o-mini", false),
            ("gpt-4.1", false),
            ("chatgpt-4o-latest", false),
            ("ft:gpt-3.5-turbo:team::1", false),
        ] {
            let mut request = request(vec![Message::user("Hi")]);
            request.model = model.into();
            let sent: Value = serde_json::from_slice(&body(&request, Server::OpenAi)).unwrap();
            assert_eq!(sent.get("include").is_some(), asks, "{model}");
        }
    }

    #[test]
    fn a_conversation_becomes_a_list_of_items() {
        let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": [],
            "encrypted_content": "gAAA", "later": {"b": 1, "a": 2.5}});
        let search = json!({"id": "ws_1", "type": "web_search_call", "status": "completed"});
        let foreign =
            Said::Native { provider: "anthropic".into(), json: json!({"type": "thinking"}) };
        let conversation = vec![
            Message::user("Look"),
            said(vec![
                native(reasoning.clone()),
                text("I'll look."),
                native(search.clone()),
                foreign.clone(),
                call("1", r#"{"a": 1}"#),
                call("2", " "),
                call("3", r#"{"a"#),
            ]),
            Message::Tool {
                results: vec![
                    result("1", vec![Part::text("one"), Part::text("line")]),
                    CallResult { is_error: true, ..result("2", vec![Part::text("It failed")]) },
                    result("3", vec![]),
                ],
            },
            Message::Host { kind: "mark".into(), data: json!(1) },
            Message::notice("t has gone"),
            said(vec![foreign]),
            said(vec![text("")]),
        ];
        let function_call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "t", "arguments": arguments});
        let output = |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
        assert_eq!(
            input(&request(conversation)),
            json!([
                user("Look"),
                reasoning,
                {"type": "message", "role": "assistant", "content": "I'll look."},
                search,
                function_call("1", r#"{"a": 1}"#),
                function_call("2", "{}"),
                function_call("3", r#"{"a"#),
                output("1", "one\nline"),
                output("2", "It failed"),
                output("3", ""),
                user("<notice>\nt has gone\n</notice>"),
            ])
        );
    }

    #[test]
    fn native_items_keep_the_order_of_their_members() {
        let written = r#"{"type":"reasoning","z":1.5,"a":[],"id":"rs_1"}"#;
        let json: Value = serde_json::from_str(written).unwrap();
        let bytes = body(&request(vec![said(vec![native(json), text("a")])]), Server::OpenAi);
        let expected = format!(r#"[{written},{{"type":"message""#);
        assert!(String::from_utf8(bytes).unwrap().contains(&expected));
    }

    #[test]
    fn marks_go_back_on_the_item_they_came_with() {
        let conversation = vec![said(vec![
            native(json!({"phase": "commentary"})),
            text("Looking"),
            native(json!({"namespace": "crm"})),
            call("1", "{}"),
            call("2", "{}"),
        ])];
        // A namespace is that of a tool, here one of the user's own.
        let mut request = request(conversation);
        let extra = Map::from_iter([("tools".to_owned(), json!([]))]);
        request.options = Arc::new(ModelOptions { extra, ..ModelOptions::default() });
        assert_eq!(
            input(&request),
            json!([
                {"type": "message", "role": "assistant", "content": "Looking",
                    "phase": "commentary"},
                {"type": "function_call", "call_id": "1", "name": "t", "arguments": "{}",
                    "namespace": "crm"},
                {"type": "function_call", "call_id": "2", "name": "t", "arguments": "{}"},
            ])
        );
    }

    #[test]
    fn reasoning_that_led_to_nothing_is_left_out() {
        let reasoning = || native(json!({"type": "reasoning", "id": "rs_1", "summary": []}));
        let conversation = vec![
            Message::user("Look"),
            said(vec![reasoning(), reasoning(), text("")]),
            Message::user("Go on"),
        ];
        assert_eq!(input(&request(conversation)), json!([user("Look"), user("Go on")]));
    }

    #[test]
    fn pictures_go_where_they_belong_if_the_model_sees_them() {
        let conversation = vec![
            Message::User { content: vec![Part::text("This?"), picture()] },
            Message::Tool { results: vec![result("1", vec![Part::text("A chart:"), picture()])] },
        ];
        let image = json!({"type": "input_image", "detail": "auto",
            "image_url": "data:image/png;base64,AAAA"});
        let mut request = request(conversation);
        assert_eq!(
            input(&request),
            json!([
                {"type": "message", "role": "user",
                    "content": [{"type": "input_text", "text": "This?"}, image]},
                {"type": "function_call_output", "call_id": "1",
                    "output": [{"type": "input_text", "text": "A chart:"}, image]},
            ])
        );
        request.sees_images = false;
        let described = "[image/png, 1 kB, not shown: this model reads text only]";
        assert_eq!(
            input(&request),
            json!([
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": "This?"},
                    {"type": "input_text", "text": described},
                ]},
                {"type": "function_call_output", "call_id": "1",
                    "output": format!("A chart:\n{described}")},
            ])
        );
    }

    #[test]
    fn names_and_ids_are_what_the_api_takes() {
        let long = "c".repeat(65);
        let bad = |id: &str, name: &str| {
            Said::Call(ToolCall { id: id.into(), name: name.into(), arguments: "{}".into() })
        };
        let sent = input(&request(vec![
            said(vec![bad("a:1", "a/b"), bad(&long, ""), bad(&long[1..], &long)]),
            Message::Tool {
                results: vec![
                    result("a:1", vec![]),
                    result(&long, vec![]),
                    result(&long[1..], vec![]),
                ],
            },
        ]));
        let text = |at: usize, member: &str| sent[at][member].as_str().unwrap().to_owned();
        assert_eq!((text(0, "call_id"), text(0, "name")), ("a_3a1".into(), "a_2fb".into()));
        assert_eq!((text(1, "call_id").len(), text(1, "name")), (64, "_".into()));
        assert_eq!((text(2, "call_id"), text(2, "name").len()), (long[1..].into(), 64));
        assert_ne!(text(1, "call_id"), text(2, "call_id"));
        for at in 0..3 {
            assert_eq!(text(at + 3, "call_id"), text(at, "call_id"));
        }
    }

    #[test]
    fn pictures_no_api_takes_are_described() {
        let image = |media_type: &str, data: &str| Part::Image {
            media_type: media_type.into(),
            data: data.into(),
        };
        let odd = "[image/tiff, not shown: only JPEG, PNG, GIF and WebP pictures can be]";
        let empty = "[image/png, not shown: it is empty]";
        let sent = input(&request(vec![
            Message::User { content: vec![image("image/png", ""), image("image/jpg", "A")] },
            Message::Tool {
                results: vec![result("1", vec![image("image/tiff", "A"), image("image/png", "")])],
            },
        ]));
        assert_eq!(
            sent,
            json!([
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": empty},
                    {"type": "input_image", "detail": "auto",
                        "image_url": "data:image/jpeg;base64,A"},
                ]},
                {"type": "function_call_output", "call_id": "1",
                    "output": format!("{odd}\n{empty}")},
            ])
        );
    }

    #[test]
    fn a_longer_conversation_begins_with_the_bytes_of_a_shorter_one() {
        let reasoning = native(json!({"type": "reasoning", "id": "rs_1", "summary": []}));
        let whole = vec![
            Message::user("Look"),
            Message::user("Please"),
            said(vec![reasoning, call("1", "{}")]),
            Message::Tool { results: vec![result("1", vec![picture()])] },
            Message::notice("n"),
            said(vec![text("Done")]),
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
