//! What the server's model says, before it is put into a provider's words.

use serde_json::Value;
use toolcrib_agent::Usage;

/// One answer of the model.
pub(crate) struct Answer {
    /// Which of the conversation's answers it is.
    pub(crate) number: usize,
    /// What was asked.
    pub(crate) asked: Value,
    /// What it says, in order.
    pub(crate) said: Vec<Saying>,
}

/// A piece of an answer.
#[derive(Clone)]
pub(crate) enum Saying {
    Thinking(&'static str),
    Text(&'static str),
    Call {
        /// Which of the conversation's calls it is.
        number: usize,
        name: String,
        arguments: String,
    },
    /// The provider's own search, and the tools that it found.
    Found {
        query: &'static str,
        tools: &'static [&'static str],
    },
    /// The model declines, with these words.
    Refusal(&'static str),
    /// The answer ends at the longest length allowed.
    Cut,
    /// The request is said to have taken a great deal.
    Costly,
}

impl Answer {
    /// The model that was asked.
    pub(crate) fn model(&self) -> &str {
        self.asked["model"].as_str().unwrap_or_default()
    }

    /// What it is said to have taken: other figures for every answer.
    pub(crate) fn usage(&self) -> Usage {
        let number = self.number as u64;
        let is_costly = self.said.iter().any(|said| matches!(said, Saying::Costly));
        let uncached = if is_costly { 90_000 } else { 10 + number };
        Usage { read: 1000 * number, written: 100 + number, uncached, output: number }
    }

    pub(crate) fn has_calls(&self) -> bool {
        self.said.iter().any(|said| matches!(said, Saying::Call { .. }))
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.said.iter().any(|said| matches!(said, Saying::Cut))
    }

    pub(crate) fn refusal(&self) -> Option<&'static str> {
        self.said.iter().find_map(|said| match said {
            Saying::Refusal(words) => Some(*words),
            _ => None,
        })
    }
}

/// The pieces that a text is sent in.
pub(crate) fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.ceil_char_boundary(rest.len().min(14)));
        pieces.push(piece);
        rest = after;
    }
    pieces
}

/// An event of a stream that names its events.
pub(crate) fn named_event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}
