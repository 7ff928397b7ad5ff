//! One turn of a script.

use serde_json::{Value, json};
use toolcrib_tokens::{Tokenizer, Usage};

use crate::message::{Said, ToolCall};
use crate::provider::{Delta, ProviderError, Reply, StopReason};

/// The fewest bytes of a piece of text.
const PIECE: usize = 6;

/// What [`Scripted`](crate::Scripted) does in answer to one request.
///
/// Calls leave their ids to the loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    thinking: String,
    content: Vec<Said>,
    stop: StopReason,
    end: End,
}

#[derive(Clone, Debug, PartialEq)]
enum End {
    Finish,
    Fail(ProviderError),
    /// After so many pieces.
    CutAfter(usize),
    HangAfter(usize),
}

impl Turn {
    /// Says something.
    pub fn text(text: impl Into<String>) -> Self {
        Self::said([]).with_text(text)
    }

    /// Calls a tool.
    pub fn call(name: impl Into<String>, arguments: Value) -> Self {
        Self::calls([(name, arguments)])
    }

    /// Calls several tools in one batch.
    pub fn calls<N: Into<String>>(calls: impl IntoIterator<Item = (N, Value)>) -> Self {
        let call = |(name, arguments): (N, Value)| {
            let (id, name, arguments) = (String::new(), name.into(), arguments.to_string());
            Said::Call(ToolCall { id, name, arguments })
        };
        Self::said(calls.into_iter().map(call))
    }

    /// Says exactly this: calls with ids of their own, arguments that are no JSON, or nothing.
    pub fn said(content: impl IntoIterator<Item = Said>) -> Self {
        Self {
            thinking: String::new(),
            content: content.into_iter().collect(),
            stop: StopReason::End,
            end: End::Finish,
        }
    }

    /// Fails.
    pub fn error(error: ProviderError) -> Self {
        Self { end: End::Fail(error), ..Self::said([]) }
    }

    /// Never answers.
    pub fn hang() -> Self {
        Self::said([]).hang_after(0)
    }

    /// Says this before anything else.
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.content.insert(0, Said::Text { text: text.into() });
        self
    }

    /// Thinks this first, and keeps it in the reply as a piece of its own.
    pub fn with_thinking(mut self, text: impl Into<String>) -> Self {
        self.thinking = text.into();
        let json = json!({"thinking": self.thinking});
        self.content.insert(0, Said::Native { provider: "scripted".to_owned(), json });
        self
    }

    /// Ends for this reason.
    pub fn with_stop(mut self, stop: StopReason) -> Self {
        self.stop = stop;
        self
    }

    /// Breaks off after this many pieces, at the latest before the answer is complete.
    pub fn cut_after(mut self, pieces: usize) -> Self {
        self.end = End::CutAfter(pieces);
        self
    }

    /// Falls silent after this many pieces, at the latest before the answer is complete.
    pub fn hang_after(mut self, pieces: usize) -> Self {
        self.end = End::HangAfter(pieces);
        self
    }

    /// How long the answer is.
    pub(super) fn tokens(&self) -> u64 {
        let mut text = self.thinking.clone();
        for said in &self.content {
            match said {
                Said::Text { text: more } => text.push_str(more),
                Said::Call(ToolCall { name, arguments, .. }) => {
                    text.push_str(name);
                    text.push_str(arguments);
                }
                Said::Native { .. } => {}
            }
        }
        Tokenizer::O200K.count(&text).tokens
    }

    /// What is told, and whether silence follows it.
    pub(super) fn play(self, usage: Usage) -> (Vec<Result<Delta, ProviderError>>, bool) {
        let mut out: Vec<Result<Delta, ProviderError>> = Vec::new();
        out.extend(words(&self.thinking).map(|piece| Ok(Delta::Thinking(piece))));
        let mut index = 0;
        for said in &self.content {
            match said {
                Said::Text { text } => out.extend(words(text).map(|piece| Ok(Delta::Text(piece)))),
                Said::Call(ToolCall { name, arguments, .. }) => {
                    out.push(Ok(Delta::Call { index, name: name.clone() }));
                    let piece = |text| Ok(Delta::Arguments { index, text });
                    out.extend(chunks(arguments).map(piece));
                    index += 1;
                }
                Said::Native { .. } => {}
            }
        }
        match self.end {
            End::Finish => {
                let reply = Reply { content: self.content, stop: self.stop, usage };
                out.push(Ok(Delta::Finished(reply)));
            }
            End::Fail(error) => out.push(Err(error)),
            End::CutAfter(pieces) => {
                out.truncate(pieces);
                let message = "the answer broke off, as the script has it";
                out.push(Err(ProviderError::Broken(message.to_owned())));
            }
            End::HangAfter(pieces) => {
                out.truncate(pieces);
                return (out, true);
            }
        }
        (out, false)
    }
}

impl From<&str> for Turn {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Turn {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<ProviderError> for Turn {
    fn from(error: ProviderError) -> Self {
        Self::error(error)
    }
}

/// Pieces that end where a word does.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut piece = String::new();
    text.split_inclusive(char::is_whitespace).map(Some).chain([None]).filter_map(move |word| {
        piece.push_str(word.unwrap_or_default());
        let is_full = piece.len() >= PIECE || (word.is_none() && !piece.is_empty());
        is_full.then(|| std::mem::take(&mut piece))
    })
}

/// Pieces that end anywhere, as those of arguments do.
fn chunks(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(2 * PIECE));
        rest = after;
        (!piece.is_empty()).then(|| piece.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_whole() {
        for text in
            ["", " ", "word", "Größe: 12 µm, ok?\n\n| a | b |\n", "日本語のテキスト と 言葉"]
        {
            assert_eq!(words(text).collect::<String>(), text);
            assert_eq!(chunks(text).collect::<String>(), text);
            assert!(words(text).chain(chunks(text)).all(|piece| !piece.is_empty()));
        }
        let said: Vec<String> = words("I'll look for a tool.").collect();
        assert_eq!(said, ["I'll look ", "for a ", "tool."]);
    }

    #[test]
    fn calls_are_numbered_and_told_one_after_the_other() {
        let turn = Turn::calls([("a", json!({})), ("b", json!({"x": 1}))]).with_thinking("Hm.");
        let content = turn.content.clone();
        let (told, hangs) = turn.play(Usage::default());
        let name = |index, name: &str| Ok(Delta::Call { index, name: name.into() });
        let arguments = |index, text: &str| Ok(Delta::Arguments { index, text: text.into() });
        assert_eq!(
            told,
            [
                Ok(Delta::Thinking("Hm.".into())),
                name(0, "a"),
                arguments(0, "{}"),
                name(1, "b"),
                arguments(1, r#"{"x":1}"#),
                Ok(Delta::Finished(Reply { content, ..Reply::default() })),
            ]
        );
        assert!(!hangs);
    }
}
