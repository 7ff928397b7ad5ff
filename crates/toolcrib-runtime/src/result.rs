//! What a tool answered.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use toolcrib_wire::{Fields, RpcError};

/// What a tool answered: the result of an MCP `tools/call`, as JSON. What a server sent is kept
/// as it came, so that it can be passed on whole; looking into it reads it.
///
/// ```
/// use toolcrib_runtime::ToolResult;
///
/// let result = ToolResult::text("4");
/// assert_eq!(result.to_text(), "4");
/// assert_eq!(result.json().get(), r#"{"content":[{"type":"text","text":"4"}]}"#);
/// assert!(ToolResult::error("no dice").is_error());
/// ```
#[derive(Clone, Debug)]
pub struct ToolResult {
    /// Boxed, so that a long one is not copied to be shared.
    json: Arc<Box<RawValue>>,
    kind: Kind,
    /// Whether that is said in so many words.
    says_kind: bool,
    is_error: bool,
    refusal: Option<Arc<RpcError>>,
}

/// What a server's answer to a call is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The call's result.
    #[default]
    Complete,
    /// Questions that come first: the call is to be repeated with the answers.
    InputRequired,
    /// A task that goes on.
    Task,
    /// Something newer than this.
    Other,
}

/// A part of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Text.
    Text(String),
    /// An image, audio, a link or whatever else, as the MCP content block it came as.
    Block(Value),
}

impl ToolResult {
    /// A result of text alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self::made(&json!({"content": [{"type": "text", "text": text.into()}]}), false)
    }

    /// A failure, told in words.
    pub fn error(text: impl Into<String>) -> Self {
        let content = json!([{"type": "text", "text": text.into()}]);
        Self::made(&json!({"content": content, "isError": true}), true)
    }

    /// Data, as structured content and as text.
    pub fn data(value: Value) -> Self {
        let content = json!([{"type": "text", "text": value.to_string()}]);
        Self::made(&json!({"content": content, "structuredContent": value}), false)
    }

    /// The result of a `tools/call` as a server sent it.
    pub fn from_json(json: Box<RawValue>) -> Self {
        let members = Fields::parse(json.get()).unwrap_or_default();
        let is_error = members.read("isError") == Some(true);
        let said = members.read::<String>("resultType");
        // So it is in the session era.
        let is_task = || members.get("task").is_some() && members.get("content").is_none();
        let kind = match said.as_deref() {
            None | Some("complete") if is_task() => Kind::Task,
            None | Some("complete") => Kind::Complete,
            Some("input_required") => Kind::InputRequired,
            Some("task") => Kind::Task,
            Some(_) => Kind::Other,
        };
        let says_kind = said.is_some();
        Self { json: Arc::new(json), kind, says_kind, is_error, refusal: None }
    }

    /// A server's refusal to call the tool at all. A model is told the reason.
    pub fn refused(error: RpcError) -> Self {
        let told = Self::error(error.message.clone());
        Self { refusal: Some(Arc::new(error)), ..told }
    }

    fn made(json: &Value, is_error: bool) -> Self {
        // A value has string keys: it serialises.
        let json = Arc::new(to_raw_value(json).unwrap_or_default());
        Self { json, kind: Kind::Complete, says_kind: false, is_error, refusal: None }
    }

    /// The whole result.
    pub fn json(&self) -> &RawValue {
        &self.json
    }

    /// The whole result as text.
    pub fn into_json(self) -> String {
        // Copied only if somebody else has it too.
        Box::<str>::from(Arc::unwrap_or_clone(self.json)).into_string()
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it says itself what it is, as it has to in the stateless era.
    pub fn says_kind(&self) -> bool {
        self.says_kind
    }

    /// Whether it tells of a failure.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// The protocol's error, if the server refused the call.
    pub fn refusal(&self) -> Option<&RpcError> {
        self.refusal.as_deref()
    }

    /// What the model reads.
    pub fn content(&self) -> Vec<Content> {
        let blocks: Vec<Value> = self.field("content").unwrap_or_default();
        let part = |block: Value| match (&block["type"], &block["text"]) {
            (Value::String(kind), Value::String(text)) if kind == "text" => {
                Content::Text(text.clone())
            }
            _ => Content::Block(block),
        };
        blocks.into_iter().map(part).collect()
    }

    /// The same as data, if the tool gives data.
    pub fn structured(&self) -> Option<Value> {
        self.field("structuredContent")
    }

    /// What the tool's server says beside the result.
    pub fn meta(&self) -> Option<Value> {
        self.field("_meta")
    }

    /// The text parts, one after the other.
    pub fn to_text(&self) -> String {
        let texts = self.content().into_iter().filter_map(|part| match part {
            Content::Text(text) => Some(text),
            Content::Block(_) => None,
        });
        texts.collect::<Vec<String>>().join("\n")
    }

    fn field<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Option<T> {
        Fields::parse(self.json.get())?.read(name)
    }
}

impl PartialEq for ToolResult {
    fn eq(&self, other: &Self) -> bool {
        self.json.get() == other.json.get() && self.refusal == other.refusal
    }
}

impl Serialize for ToolResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ToolResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Self::from_json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn what_a_server_sent_is_passed_on_as_it_came() {
        let text = r#"{ "content":[{"type":"text","text":"a","x-new":1},{"type":"image","data":"","mimeType":"image/png"}],
            "structuredContent":{"n":12345678901234567890123},"isError":true,"_meta":{"k":1},"x":[] }"#;
        let result = ToolResult::from_json(raw(text));
        assert_eq!(result.json().get(), text);
        assert!(result.is_error());
        assert_eq!(result.to_text(), "a");
        assert!(matches!(&result.content()[1], Content::Block(block) if block["type"] == "image"));
        assert_eq!(result.meta(), Some(json!({"k": 1})));
        let saved = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<ToolResult>(&saved).unwrap(), result);
    }

    #[test]
    fn what_is_no_result_is_read_as_an_empty_one() {
        for text in ["7", "null", "[]", r#"{"content":7,"isError":"yes"}"#, r#"{"content":[7]}"#] {
            let result = ToolResult::from_json(raw(text));
            assert!(!result.is_error(), "{text}");
            assert_eq!(result.to_text(), "", "{text}");
        }
    }

    #[test]
    fn a_result_that_is_none_yet_says_so() {
        for (text, kind) in [
            (r#"{"content":[]}"#, Kind::Complete),
            (r#"{"resultType":7}"#, Kind::Complete),
            (r#"{"resultType":"complete"}"#, Kind::Complete),
            (r#"{"resultType":"input_required"}"#, Kind::InputRequired),
            (r#"{"resultType":"task"}"#, Kind::Task),
            (r#"{"task":{"taskId":"7"},"_meta":{}}"#, Kind::Task),
            (r#"{"task":7,"content":[]}"#, Kind::Complete),
            // As the gateway tells a client of the other era.
            (r#"{"resultType":"complete","task":{}}"#, Kind::Task),
            (r#"{"resultType":"newer"}"#, Kind::Other),
            ("7", Kind::Complete),
        ] {
            assert_eq!(ToolResult::from_json(raw(text)).kind(), kind, "{text}");
        }
    }

    #[test]
    fn a_refusal_tells_a_model_and_keeps_the_error() {
        let error = RpcError::new(-32602, "no such tool");
        let result = ToolResult::refused(error.clone());
        assert_eq!((result.is_error(), result.to_text()), (true, "no such tool".to_owned()));
        assert_eq!(result.refusal(), Some(&error));
    }
}
