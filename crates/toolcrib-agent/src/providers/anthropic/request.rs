//! What the Messages API is sent.

#[cfg(test)]
mod deferral;
mod halves;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Not;

use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::NAME;
use super::thinking::{Refused, is_thinking};
use super::tools::{Change, Changes, Declared};
use crate::message::{Assistant, CallResult, Message, Part, Said};
use crate::provider::Request;
use crate::providers::body::{self, Shown};

/// The API wants a limit; this one is used when the options name none. All current models take it.
const MAX_TOKENS: u64 = 8192;

/// The longest id the API takes.
const LONGEST_ID: usize = 128;

/// A request as it is sent.
pub(super) struct Written {
    pub(super) body: Vec<u8>,
    /// Whether tools come or go in the middle of it.
    pub(super) changes_tools: bool,
}

/// Writes a request.
///
/// The cache is marked in up to four places, which is all the API allows: the last tool that
/// doesn't wait, the system prompt, the end of the conversation, and where the request before
/// ended. The last one is there because the API looks back only 20 blocks from a mark, and a batch
/// of parallel calls adds more than that. If the options have a `cache_control` of their own, the
/// API places the marks, and none are set here.
pub(super) fn write(request: &Request, refused: &Refused) -> Written {
    let options = &request.options;
    let marks = !options.extra.contains_key("cache_control");
    let mut declared = Declared::of(request);
    if marks {
        declared.mark();
    }
    let mut body = Body {
        model: &request.model,
        max_tokens: options.max_output.unwrap_or(MAX_TOKENS),
        temperature: options.temperature,
        stream: true,
        tools: &declared.array,
        system: text(request.system.as_ref()).map(Block::from).into_iter().collect(),
        messages: whole(request, &declared, refused),
    };
    if marks {
        body.mark();
    }
    let changes_tools = body.messages.iter().any(|turn| turn.role == Role::System);
    Written { body: body::write(&body, &options.extra), changes_tools }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    stream: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    tools: &'a [Cow<'a, RawValue>],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<Turn<'a>>,
}

impl Body<'_> {
    fn mark(&mut self) {
        if let Some(block) = self.system.last_mut() {
            block.cache_control = Some(CacheControl::Ephemeral);
        }
        let answer = self.messages.iter().rposition(|turn| turn.role == Role::Assistant);
        let before = &self.messages[..answer.unwrap_or(0)];
        let previous = before.iter().rposition(|turn| turn.role != Role::Assistant);
        for end in previous.into_iter().chain(self.messages.len().checked_sub(1)) {
            self.messages[end].mark();
        }
    }
}

#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
    System,
}

#[derive(Serialize)]
struct Turn<'a> {
    role: Role,
    content: Vec<Block<'a>>,
}

impl<'a> Turn<'a> {
    fn new(role: Role, what: impl IntoIterator<Item = What<'a>>) -> Option<Self> {
        let content: Vec<Block> = what.into_iter().map(Block::from).collect();
        (!content.is_empty()).then_some(Self { role, content })
    }

    /// Marks the last block that may be changed; what the API wrote goes back as it came.
    fn mark(&mut self) {
        let own = |block: &&mut Block| !matches!(block.what, What::Native(_));
        if let Some(block) = self.content.iter_mut().rev().find(own) {
            block.cache_control = Some(CacheControl::Ephemeral);
        }
    }
}

#[derive(Serialize)]
struct Block<'a> {
    #[serde(flatten)]
    what: What<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<'a> From<What<'a>> for Block<'a> {
    fn from(what: What<'a>) -> Self {
        Self { what, cache_control: None }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum CacheControl {
    Ephemeral,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum What<'a> {
    Text {
        text: Cow<'a, str>,
    },
    Image {
        source: Source<'a>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: Cow<'a, str>,
        #[serde(serialize_with = "as_written")]
        input: &'a str,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        content: Vec<What<'a>>,
        #[serde(skip_serializing_if = "Not::not")]
        is_error: bool,
    },
    ToolReference {
        tool_name: &'a str,
    },
    ToolAddition {
        tool: Referred<'a>,
    },
    ToolRemoval {
        tool: Referred<'a>,
    },
    #[serde(untagged)]
    Native(Cow<'a, Map<String, Value>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Referred<'a> {
    ToolReference { name: &'a str },
}

impl<'a> From<Change<'a>> for What<'a> {
    fn from(change: Change<'a>) -> Self {
        match change {
            Change::Added(name) => Self::ToolAddition { tool: Referred::ToolReference { name } },
            Change::Removed(name) => Self::ToolRemoval { tool: Referred::ToolReference { name } },
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Source<'a> {
    Base64 { media_type: &'static str, data: &'a str },
}

fn as_written<S: Serializer>(json: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let raw: &RawValue = serde_json::from_str(json).map_err(S::Error::custom)?;
    raw.serialize(serializer)
}

/// The conversation in the API's form, without what the API wrote and doesn't take back.
fn whole<'a>(request: &'a Request, declared: &Declared<'a>, refused: &Refused) -> Vec<Turn<'a>> {
    let mut left_out = LeftOut { refused, halves: BTreeSet::new() };
    let said = turns(request, declared, &left_out);
    left_out.halves = halves::halves(&said);
    if left_out.halves.is_empty() { said } else { turns(request, declared, &left_out) }
}

/// What the API wrote and doesn't take back.
struct LeftOut<'a> {
    refused: &'a Refused,
    halves: BTreeSet<String>,
}

impl LeftOut<'_> {
    fn has(&self, what: &What<'_>) -> bool {
        let What::Native(block) = what else { return false };
        self.refused.has(block) || halves::is_one_of(&self.halves, block)
    }
}

/// The conversation without what is left out.
///
/// That tools come and go can be said where a user's turn has ended and the model's has not
/// begun, and nowhere else: not first, not after the model's turn, not between calls and their
/// results. It waits until there is such a place.
fn turns<'a>(
    request: &'a Request,
    declared: &Declared<'a>,
    left_out: &LeftOut<'_>,
) -> Vec<Turn<'a>> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut changes = Changes::default();
    let say = |turns: &mut Vec<Turn<'a>>, changes: &mut Changes<'a>| {
        if turns.last().is_some_and(|turn| turn.role == Role::User) {
            turns.extend(Turn::new(Role::System, changes.say().into_iter().map(What::from)));
        }
    };
    for message in &request.messages {
        if declared.takes_changes() {
            changes.follow(message, declared);
        }
        let Some(turn) = turn(message, declared, left_out, request.sees_images) else { continue };
        if turn.role == Role::Assistant {
            say(&mut turns, &mut changes);
        }
        turns.push(turn);
    }
    say(&mut turns, &mut changes);
    turns
}

/// A message in the API's form; none if the API would find nothing in it.
fn turn<'a>(
    message: &'a Message,
    declared: &Declared<'a>,
    left_out: &LeftOut<'_>,
    sees_images: bool,
) -> Option<Turn<'a>> {
    let (role, what): (Role, Vec<What>) = match message {
        Message::User { content } => {
            (Role::User, content.iter().filter_map(|part| shown(part, sees_images)).collect())
        }
        Message::Assistant(assistant) => (Role::Assistant, answer(assistant, declared, left_out)),
        Message::Tool { results } => (Role::User, answers(results, declared, sees_images)),
        Message::Notice { text } => {
            let text = body::notice(text).into();
            (Role::User, vec![What::Text { text }])
        }
        Message::Tools(change) => {
            let text = body::notice(&declared.told(change)?).into();
            (Role::User, vec![What::Text { text }])
        }
        Message::Host { .. } => return None,
    };
    Turn::new(role, what)
}

fn answer<'a>(
    assistant: &'a Assistant,
    declared: &Declared<'a>,
    left_out: &LeftOut<'_>,
) -> Vec<What<'a>> {
    let said = assistant.content.iter().filter_map(|said| repeated(said, declared));
    let mut blocks: Vec<What> = said.filter(|what| !left_out.has(what)).collect();
    // The API refuses a message that ends in thinking, as one does that was cut off there.
    let thinks = |what: &What| matches!(what, What::Native(block) if is_thinking(block));
    while blocks.last().is_some_and(thinks) {
        blocks.pop();
    }
    blocks
}

fn repeated<'a>(said: &'a Said, declared: &Declared<'a>) -> Option<What<'a>> {
    match said {
        Said::Text { text: said } => text(said.as_str()),
        Said::Call(call) => Some(What::ToolUse {
            id: id(&call.id),
            name: body::name(&call.name),
            input: call.arguments_object(),
        }),
        Said::Native { provider, json: Value::Object(block) } if provider == NAME => {
            declared.repeated(block).map(What::Native)
        }
        Said::Native { .. } => None,
    }
}

/// The results of a batch. That of a failure may only be text, and one that refers to tools may
/// have nothing beside, so that the rest comes after all results.
fn answers<'a>(
    results: &'a [CallResult],
    declared: &Declared<'a>,
    sees_images: bool,
) -> Vec<What<'a>> {
    let mut after = Vec::new();
    let mut blocks: Vec<What> = Vec::new();
    for result in results {
        let (references, words) = declared.given(result);
        let parts = result.content.iter().filter_map(|part| shown(part, sees_images));
        let (apart, mut content): (Vec<What>, Vec<What>) =
            parts.chain(words.and_then(text)).partition(|what| {
                let is_picture = matches!(what, What::Image { .. });
                !references.is_empty() || result.is_error && is_picture
            });
        if !apart.is_empty() {
            let (name, id) = (body::name(&result.name), id(&result.call_id));
            after.push(What::Text { text: format!("From `{name}` (call {id}):").into() });
            after.extend(apart);
        }
        content.extend(references.into_iter().map(|tool_name| What::ToolReference { tool_name }));
        if result.is_error && content.is_empty() {
            content.push(What::Text { text: "The call failed without a message.".into() });
        }
        let tool_use_id = id(&result.call_id);
        blocks.push(What::ToolResult { tool_use_id, content, is_error: result.is_error });
    }
    blocks.extend(after);
    blocks
}

fn shown(part: &Part, sees_images: bool) -> Option<What<'_>> {
    match body::shown(part, sees_images) {
        Shown::Text(own) => text(own),
        Shown::Picture { media_type, data } => {
            Some(What::Image { source: Source::Base64 { media_type, data } })
        }
    }
}

/// A block of text; none if it is blank, which the API refuses.
fn text<'a>(text: impl Into<Cow<'a, str>>) -> Option<What<'a>> {
    let text = text.into();
    (!text.trim().is_empty()).then_some(What::Text { text })
}

fn id(text: &str) -> Cow<'_, str> {
    body::word(text, LONGEST_ID)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use toolcrib_core::{Definition, Naming, Registry, Schema, ToolName, ToolSpec};

    use super::*;
    use crate::message::ToolCall;
    use crate::provider::ModelOptions;

    pub(super) fn request(messages: Vec<Message>) -> Request {
        Request::new("claude-x", messages)
    }

    fn tool(name: &str) -> Definition {
        let registry = Registry::new(Naming::default());
        let schema = Schema::from_value(&json!({"type": "object", "properties": {}}));
        let spec = ToolSpec::new(ToolName::host(name), schema).with_description("d");
        registry.register(spec).unwrap();
        registry.catalog().view_all().tool(name).unwrap().definition().clone()
    }

    pub(super) fn body(request: &Request) -> Vec<u8> {
        write(request, &Refused::default()).body
    }

    pub(super) fn sent(request: &Request) -> Value {
        serde_json::from_slice(&body(request)).unwrap()
    }

    /// The messages as they are without marks.
    pub(super) fn plain(request: &Request) -> Value {
        fn clear(value: &mut Value) {
            match value {
                Value::Object(map) => {
                    map.shift_remove("cache_control");
                    map.values_mut().for_each(clear);
                }
                Value::Array(items) => items.iter_mut().for_each(clear),
                _ => {}
            }
        }
        let mut messages = sent(request)["messages"].take();
        clear(&mut messages);
        messages
    }

    pub(super) fn said(content: Vec<Said>) -> Message {
        Message::Assistant(Assistant { content })
    }

    pub(super) fn text(text: &str) -> Said {
        Said::Text { text: text.into() }
    }

    pub(super) fn call(id: &str, name: &str, arguments: &str) -> Said {
        Said::Call(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
    }

    pub(super) fn native(json: Value) -> Said {
        Said::Native { provider: "anthropic".into(), json }
    }

    pub(super) fn result(id: &str, content: Vec<Part>, is_error: bool) -> CallResult {
        let (call_id, name, revealed) = (id.into(), "t".into(), Vec::new());
        CallResult { call_id, name, content, is_error, revealed }
    }

    fn image(media_type: &str) -> Part {
        Part::Image { media_type: media_type.into(), data: "AAAA".into() }
    }

    #[test]
    fn a_whole_request_to_the_byte() {
        let mut request = request(vec![
            Message::user("What's on?"),
            said(vec![text("Let me see."), call("toolu_1", "list", r#"{"n": 1e400}"#)]),
            Message::Tool { results: vec![result("toolu_1", vec![Part::text("a\nb")], false)] },
        ]);
        request.system = "Be brief.".into();
        request.tools = vec![tool("list"), tool("read")];
        request.options =
            Arc::new(ModelOptions { temperature: Some(0.5), ..ModelOptions::default() });
        let expected = concat!(
            r#"{"model":"claude-x","max_tokens":8192,"temperature":0.5,"stream":true,"#,
            r#""tools":[{"name":"list","description":"d","#,
            r#""input_schema":{"type":"object","properties":{}}},"#,
            r#"{"name":"read","description":"d","#,
            r#""input_schema":{"type":"object","properties":{}},"#,
            r#""cache_control":{"type":"ephemeral"}}],"#,
            r#""system":[{"type":"text","text":"Be brief.","#,
            r#""cache_control":{"type":"ephemeral"}}],"#,
            r#""messages":[{"role":"user","content":[{"type":"text","text":"What's on?","#,
            r#""cache_control":{"type":"ephemeral"}}]},"#,
            r#"{"role":"assistant","content":[{"type":"text","text":"Let me see."},"#,
            r#"{"type":"tool_use","id":"toolu_1","name":"list","input":{}}]},"#,
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","#,
            r#""content":[{"type":"text","text":"a\nb"}],"#,
            r#""cache_control":{"type":"ephemeral"}}]}]}"#,
        );
        assert_eq!(String::from_utf8(body(&request)).unwrap(), expected);
        assert_eq!(body(&request), body(&request.clone()));
    }

    #[test]
    fn arguments_keep_the_models_spelling() {
        let arguments = r#"{"id": 12345678901234567890123, "x": 1.10}"#;
        let request = request(vec![said(vec![call("1", "t", arguments)])]);
        assert!(String::from_utf8(body(&request)).unwrap().contains(arguments));
    }

    #[test]
    fn the_marks_are_at_the_end_of_this_request_and_of_the_one_before() {
        let results = |ids: std::ops::Range<usize>| Message::Tool {
            results: ids.map(|id| result(&id.to_string(), vec![Part::text("ok")], false)).collect(),
        };
        let calls = |ids: std::ops::Range<usize>| {
            said(ids.map(|id| call(&id.to_string(), "t", "{}")).collect())
        };
        let marks = |messages: Vec<Message>| -> Vec<String> {
            let sent = sent(&request(messages));
            let mut found = Vec::new();
            for (m, message) in sent["messages"].as_array().unwrap().iter().enumerate() {
                for (b, block) in message["content"].as_array().unwrap().iter().enumerate() {
                    if block.get("cache_control") == Some(&json!({"type": "ephemeral"})) {
                        found.push(format!("{m}.{b}"));
                    }
                }
            }
            found
        };
        let mut messages = vec![Message::user("a"), Message::notice("b")];
        assert_eq!(marks(messages.clone()), ["1.0"]);
        messages.extend([calls(0..30), results(0..30)]);
        assert_eq!(marks(messages.clone()), ["1.0", "3.29"]);
        messages.extend([calls(30..31), results(30..31), Message::user("c")]);
        assert_eq!(marks(messages.clone()), ["3.29", "6.0"]);
        // Asked to go on: nothing the API wrote is touched.
        let thinking = json!({"type": "thinking", "thinking": "…", "signature": "s"});
        let search =
            json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
        messages.push(said(vec![native(thinking), text("d"), native(search)]));
        assert_eq!(marks(messages), ["6.0", "7.1"]);
        assert_eq!(marks(Vec::new()), [""; 0]);
    }

    #[test]
    fn marks_of_the_users_own_replace_ours() {
        let mut request = request(vec![Message::user("a")]);
        request.tools = vec![tool("t")];
        request.system = "s".into();
        let own = json!({"type": "ephemeral", "ttl": "1h"});
        let extra = Map::from_iter([("cache_control".to_owned(), own.clone())]);
        request.options = Arc::new(ModelOptions { extra, ..ModelOptions::default() });
        let text = String::from_utf8(body(&request)).unwrap();
        assert_eq!(text.matches("cache_control").count(), 1);
        assert_eq!(sent(&request)["cache_control"], own);
    }

    #[test]
    fn messages_stay_as_they_are_when_others_follow() {
        let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        let messages = vec![
            Message::user("a"),
            Message::user("b"),
            said(vec![native(thinking), call("1", "t", "{}")]),
            Message::Tool { results: vec![result("1", vec![Part::text("c")], true)] },
            Message::notice("d"),
            Message::user("e"),
            said(vec![text("f")]),
        ];
        let whole = plain(&request(messages.clone()));
        for count in 0..=messages.len() {
            let part = plain(&request(messages[..count].to_vec()));
            assert_eq!(part.as_array().unwrap()[..], whole.as_array().unwrap()[..count]);
        }
    }

    #[test]
    fn options_replace_in_place_and_append() {
        let mut request = request(vec![Message::user("a")]);
        let extra = json!({"thinking": {"type": "enabled", "budget_tokens": 1024},
            "max_tokens": 5, "cache_control": {"type": "ephemeral"}, "messages": [], "top_k": 3});
        let Value::Object(extra) = extra else { panic!() };
        request.options = Arc::new(ModelOptions { max_output: Some(7), temperature: None, extra });
        let expected = concat!(
            r#"{"model":"claude-x","max_tokens":5,"stream":true,"messages":[],"#,
            r#""thinking":{"type":"enabled","budget_tokens":1024},"#,
            r#""cache_control":{"type":"ephemeral"},"top_k":3}"#,
        );
        assert_eq!(String::from_utf8(body(&request)).unwrap(), expected);
        request.options = Arc::new(ModelOptions { max_output: Some(7), ..ModelOptions::default() });
        assert_eq!(sent(&request)["max_tokens"], 7);
    }

    #[test]
    fn what_the_api_refuses_is_left_out() {
        let thinking = json!({"type": "thinking", "thinking": "cut", "signature": ""});
        let redacted = json!({"type": "redacted_thinking", "data": "x"});
        let other = Said::Native { provider: "openai".into(), json: json!({"type": "reasoning"}) };
        let messages = vec![
            Message::User { content: vec![Part::text(""), Part::text("a"), Part::text(" \n")] },
            Message::User { content: vec![Part::text("")] },
            Message::Host { kind: "k".into(), data: json!(1) },
            said(vec![text("\n\n"), other.clone()]),
            said(vec![native(thinking.clone()), native(redacted)]),
            said(vec![native(thinking.clone()), text("b"), native(thinking.clone()), text("")]),
            said(vec![other, text(""), call("1", "t", "not json")]),
            Message::Tool {
                results: vec![result("1", vec![Part::text("")], false), result("2", vec![], true)],
            },
            said(vec![native(json!("no block"))]),
        ];
        let expected = json!([
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [thinking, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content":
                [{"type": "tool_use", "id": "1", "name": "t", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "1"},
                {"type": "tool_result", "tool_use_id": "2", "content":
                    [{"type": "text", "text": "The call failed without a message."}],
                    "is_error": true}]},
        ]);
        let mut request = request(messages);
        request.system = " ".into();
        assert_eq!(plain(&request), expected);
        assert_eq!(sent(&request).get("system"), None);
    }

    #[test]
    fn what_the_api_wrote_goes_back_in_its_place() {
        let blocks = [
            json!({"signature": "Eq==", "type": "thinking", "thinking": "first"}),
            json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
                "input": {"query": "1"}}),
            json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}),
        ];
        let [a, b, c] = blocks.clone();
        let request = request(vec![
            said(vec![native(a), native(b), native(c), text("so"), call("1", "t", "{}")]),
            Message::user("go on"),
        ]);
        let text = String::from_utf8(body(&request)).unwrap();
        let [a, b, c] = blocks.map(|block| block.to_string());
        assert!(
            text.contains(&format!(r#"[{a},{b},{c},{{"type":"text","text":"so"}},"#)),
            "{text}"
        );
    }

    #[test]
    fn pictures_are_shown_where_the_model_and_the_api_take_them() {
        let messages = vec![
            Message::User { content: vec![image("image/png"), Part::text("?")] },
            Message::Tool {
                results: vec![
                    result("1", vec![Part::text("bad"), image("image/jpg")], true),
                    result("2", vec![image("image/svg+xml"), image("image/webp")], false),
                ],
            },
        ];
        let picture = |media_type: &str| {
            json!({"type": "image", "source":
                {"type": "base64", "media_type": media_type, "data": "AAAA"}})
        };
        let words = |text: &str| json!({"type": "text", "text": text});
        let unknown = "[image/svg+xml, not shown: only JPEG, PNG, GIF and WebP pictures can be]";
        let mut request = request(messages);
        assert_eq!(
            plain(&request),
            json!([
                {"role": "user", "content": [picture("image/png"), words("?")]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [words("bad")],
                        "is_error": true},
                    {"type": "tool_result", "tool_use_id": "2", "content": [
                        words(unknown), picture("image/webp")]},
                    words("From `t` (call 1):"), picture("image/jpeg")]},
            ])
        );
        request.sees_images = false;
        let described =
            |kind: &str| words(&format!("[{kind}, 1 kB, not shown: this model reads text only]"));
        assert_eq!(
            plain(&request),
            json!([
                {"role": "user", "content": [described("image/png"), words("?")]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1",
                        "content": [words("bad"), described("image/jpg")], "is_error": true},
                    {"type": "tool_result", "tool_use_id": "2",
                        "content": [described("image/svg+xml"), described("image/webp")]}]},
            ])
        );
    }

    #[test]
    fn names_and_ids_are_in_the_characters_the_api_takes() {
        let messages = vec![
            said(vec![call("a:1", "s.t", "{}")]),
            Message::Tool { results: vec![result("a:1", vec![], false)] },
        ];
        assert_eq!(
            plain(&request(messages)),
            json!([
                {"role": "assistant", "content":
                    [{"type": "tool_use", "id": "a_3a1", "name": "s_2et", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a_3a1"}]},
            ])
        );
        let long = "x".repeat(129);
        let messages = vec![
            said(vec![call(&long[1..], &long, "{}"), call(&long, "", "{}")]),
            Message::Tool { results: vec![result(&long, vec![], false)] },
        ];
        let sent = plain(&request(messages));
        let (first, second) = (&sent[0]["content"][0], &sent[0]["content"][1]);
        assert_eq!(first["id"], json!(long[1..]));
        assert_eq!(first["name"].as_str().unwrap().len(), 64);
        assert_eq!(second["name"], "_");
        assert_eq!(second["id"].as_str().unwrap().len(), 128);
        assert_eq!(sent[1]["content"][0]["tool_use_id"], second["id"]);
    }

    #[test]
    fn a_mark_of_the_users_own_that_is_null_leaves_none() {
        let mut request = request(vec![Message::user("a")]);
        let extra = Map::from_iter([("cache_control".to_owned(), Value::Null)]);
        request.options = Arc::new(ModelOptions { extra, ..ModelOptions::default() });
        assert!(!String::from_utf8(body(&request)).unwrap().contains("cache_control"));
    }
}
