//! A conversation as it is kept: the same for every provider.

use std::fmt;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::{Revealed, ToolChange};

/// One message of a conversation.
///
/// A history is valid when every call of an [`Assistant`] message is answered, exactly once and in
/// order, by the [`Message::Tool`] that follows it. The loop writes no other kind, and mends one
/// that was cut off with [`mend`](crate::mend).
///
/// ```
/// use toolcrib_agent::Message;
///
/// let asked = Message::user("What's the weather in Oslo?");
/// let saved = serde_json::to_string(&asked)?;
/// assert_eq!(
///     saved,
///     r#"{"role":"user","content":[{"type":"text","text":"What's the weather in Oslo?"}]}"#
/// );
/// assert_eq!(serde_json::from_str::<Message>(&saved)?, asked);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Message {
    /// What a person said.
    User {
        /// What it is made of.
        content: Vec<Part>,
    },
    /// What the model said.
    Assistant(Assistant),
    /// What came of the calls in the message before, in their order.
    Tool {
        /// One result per call.
        results: Vec<CallResult>,
    },
    /// What the program tells the model in the middle of a conversation: which tools came and
    /// went, for instance. A model reads it as a user's message that says what it is.
    Notice {
        /// The text.
        text: String,
    },
    /// Tools that came and went in the middle of a conversation, where a provider has a form of
    /// its own for that. Others are told in words.
    Tools(ToolChange),
    /// What only the host understands. No model sees it, unless a hook makes something else of
    /// it: see [`Hooks::convert_to_llm`](crate::Hooks::convert_to_llm).
    Host {
        /// What kind it is.
        kind: String,
        /// What it says.
        data: Value,
    },
}

/// A definition in a message is read as it was written, to the byte, which what serde makes of a
/// tagged enum can't do.
impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Tagged {
            role: Role,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Role {
            User,
            Assistant,
            Tool,
            Notice,
            Tools,
            Host,
        }
        #[derive(Deserialize)]
        struct User {
            content: Vec<Part>,
        }
        #[derive(Deserialize)]
        struct Tool {
            results: Vec<CallResult>,
        }
        #[derive(Deserialize)]
        struct Notice {
            text: String,
        }
        #[derive(Deserialize)]
        struct Host {
            kind: String,
            data: Value,
        }
        fn read<T: DeserializeOwned, E: Error>(raw: &RawValue) -> Result<T, E> {
            serde_json::from_str(raw.get()).map_err(E::custom)
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(match read::<Tagged, _>(&raw)?.role {
            Role::User => read(&raw).map(|User { content }| Self::User { content })?,
            Role::Assistant => Self::Assistant(read(&raw)?),
            Role::Tool => read(&raw).map(|Tool { results }| Self::Tool { results })?,
            Role::Notice => read(&raw).map(|Notice { text }| Self::Notice { text })?,
            Role::Tools => Self::Tools(read(&raw)?),
            Role::Host => read(&raw).map(|Host { kind, data }| Self::Host { kind, data })?,
        })
    }
}

impl Message {
    /// A person's words.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { content: vec![Part::text(text)] }
    }

    /// The program's words.
    pub fn notice(text: impl Into<String>) -> Self {
        Self::Notice { text: text.into() }
    }
}

/// A piece of what a person said or a tool gave.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Part {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Its type, such as `image/png`.
        media_type: String,
        /// Its bytes, in base64.
        data: String,
    },
}

impl Part {
    /// A piece of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// What a model gets that can't see pictures.
    pub fn described(&self) -> String {
        match self {
            Self::Text { text } => text.clone(),
            Self::Image { media_type, data } => {
                format!(
                    "[{media_type}, {} kB, not shown: this model reads text only]",
                    kilobytes(data)
                )
            }
        }
    }
}

/// The type of a picture as providers write it; `None` for one they don't take.
pub(crate) fn picture_type(media_type: &str) -> Option<&'static str> {
    match media_type.trim().to_ascii_lowercase().as_str() {
        "image/png" => Some("image/png"),
        "image/jpeg" | "image/jpg" => Some("image/jpeg"),
        "image/gif" => Some("image/gif"),
        "image/webp" => Some("image/webp"),
        _ => None,
    }
}

fn kilobytes(base64: &str) -> usize {
    (base64.len() * 3 / 4).div_ceil(1000)
}

/// Pictures are named, not printed.
impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text { text } => f.debug_tuple("Text").field(text).finish(),
            Self::Image { media_type, data } => {
                write!(f, "Image({media_type}, {} kB)", kilobytes(data))
            }
        }
    }
}

/// What the model said in one reply, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// What it is made of.
    pub content: Vec<Said>,
}

impl Assistant {
    /// The text, without anything else.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|said| match said {
            Said::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(|said| match said {
            Said::Call(call) => Some(call),
            _ => None,
        })
    }
}

/// A piece of what a model said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Said {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// A call of a tool.
    Call(ToolCall),
    /// Something only its provider understands (thinking with its signature, encrypted
    /// reasoning), to be sent back to it as it came and to no other.
    Native {
        /// The provider, by [`Provider::name`](crate::Provider::name).
        provider: String,
        /// The piece as the provider wrote it.
        json: Value,
    },
}

/// A model's call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What its result refers to. No two calls of a conversation share one.
    pub id: String,
    /// The name as the model wrote it: a tool's, or a verb's.
    pub name: String,
    /// The arguments as the model wrote them, JSON or not.
    pub arguments: String,
}

impl ToolCall {
    /// The arguments as JSON text that is an object: as they were written if they are one, and
    /// `{}` if not, for a provider that takes nothing else.
    pub fn arguments_object(&self) -> &str {
        let is_object = serde_json::from_str::<serde_json::Map<String, Value>>(&self.arguments);
        if is_object.is_ok() { self.arguments.trim() } else { "{}" }
    }
}

/// What came of a call, as the model reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// Which call it answers.
    pub call_id: String,
    /// The name the call was made by.
    pub name: String,
    /// What it says.
    pub content: Vec<Part>,
    /// Whether it tells of a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Tools that it gives to the model. A provider that has a form of its own for that shows
    /// them in it; for others they are written out behind the content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revealed: Vec<Revealed>,
}

impl CallResult {
    /// The text, with a word about what isn't text.
    pub fn described(&self) -> String {
        let content = self.content.iter().map(Part::described);
        content.chain(self.written_out()).collect::<Vec<String>>().join("\n")
    }

    /// The tools that it gives, to stand behind the content where a provider has no form of its
    /// own for them.
    pub(crate) fn written_out(&self) -> Option<String> {
        (!self.revealed.is_empty()).then(|| definitions(&self.revealed))
    }
}

/// Tools that come and go, for a provider that has no form of its own for that.
pub(crate) fn in_words(change: &ToolChange) -> String {
    let mut said = Vec::new();
    if !change.added.is_empty() {
        said.push(format!("Now loaded:\n{}", definitions(&change.added)));
    }
    if !change.removed.is_empty() {
        said.push(format!("No longer available: {}.", change.removed.join(", ")));
    }
    said.join("\n")
}

/// One definition a line.
fn definitions(tools: &[Revealed]) -> String {
    tools.iter().map(|it| it.tool.neutral().get()).collect::<Vec<&str>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_sent_back_as_they_were_written_if_they_are_an_object() {
        let call = |arguments: &str| ToolCall {
            id: "1".into(),
            name: "t".into(),
            arguments: arguments.into(),
        };
        for (written, sent) in [
            (r#" {"n": 12345678901234567890123} "#, r#"{"n": 12345678901234567890123}"#),
            ("", "{}"),
            ("null", "{}"),
            ("[1]", "{}"),
            (r#"{"a": 1"#, "{}"),
            (r#"{"a": 1} {"b": 2}"#, "{}"),
        ] {
            assert_eq!(call(written).arguments_object(), sent, "{written}");
        }
    }

    /// Also numbers that no type of ours has, or that would be written in another way.
    #[test]
    fn a_message_is_read_as_it_was_written_with_the_definitions_in_it() {
        let tool = r#"{"name":"t","description":"d","input_schema":{"type":"object","default":{"n":12345678901234567890123,"f":1.50e2}}}"#;
        let revealed = format!(r#"[{{"group":"host","tool":{tool}}}]"#);
        for written in [
            r#"{"role":"user","content":[{"type":"text","text":"a"}]}"#.to_owned(),
            r#"{"role":"assistant","content":[{"type":"text","text":"a"}]}"#.to_owned(),
            r#"{"role":"notice","text":"a"}"#.to_owned(),
            r#"{"role":"host","kind":"k","data":{"a":null}}"#.to_owned(),
            format!(
                r#"{{"role":"tool","results":[{{"call_id":"1","name":"find","content":[],"revealed":{revealed}}}]}}"#
            ),
            format!(r#"{{"role":"tools","added":{revealed},"removed":["u"]}}"#),
        ] {
            let read: Message = serde_json::from_str(&written).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), written);
        }
        for broken in ["1", "{}", r#"{"role":"robot"}"#, r#"{"role":"tool"}"#] {
            assert!(serde_json::from_str::<Message>(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_picture_is_described_by_its_type_and_size() {
        let image = Part::Image { media_type: "image/png".into(), data: "AAAA".repeat(1000) };
        assert_eq!(image.described(), "[image/png, 3 kB, not shown: this model reads text only]");
        assert_eq!(format!("{image:?}"), "Image(image/png, 3 kB)");
    }
}
