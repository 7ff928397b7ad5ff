//! A conversation as it is kept: the same for every provider.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// What only the host understands. No model sees it, unless a hook makes something else of
    /// it: see [`Hooks::convert_to_llm`](crate::Hooks::convert_to_llm).
    Host {
        /// What kind it is.
        kind: String,
        /// What it says.
        data: Value,
    },
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
}

impl CallResult {
    /// The text, with a word about what isn't text.
    pub fn described(&self) -> String {
        self.content.iter().map(Part::described).collect::<Vec<String>>().join("\n")
    }
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

    #[test]
    fn a_picture_is_described_by_its_type_and_size() {
        let image = Part::Image { media_type: "image/png".into(), data: "AAAA".repeat(1000) };
        assert_eq!(image.described(), "[image/png, 3 kB, not shown: this model reads text only]");
        assert_eq!(format!("{image:?}"), "Image(image/png, 3 kB)");
    }
}
