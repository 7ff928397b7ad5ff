//! About how much of a window messages take.

use toolcrib_tokens::Tokenizer;

use crate::message::{CallResult, Message, Part, Said, in_words};

/// A picture. Providers scale larger ones down until they cost about this.
const PICTURE: u64 = 1600;

/// What a provider writes around a message.
const FRAME: u64 = 4;

/// What only its provider understands is no text for a tokenizer: encrypted, or signed.
const BYTES_PER_NATIVE_TOKEN: usize = 4;

/// About how many tokens a message takes. The host's own take none.
pub(crate) fn tokens(message: &Message, tokenizer: &Tokenizer) -> u64 {
    let count = |text: &str| tokenizer.count(text).tokens;
    let own: u64 = match message {
        Message::User { content } => parts(content, tokenizer),
        Message::Assistant(said) => said
            .content
            .iter()
            .map(|said| match said {
                Said::Text { text } => count(text),
                Said::Call(call) => count(&call.name) + count(&call.arguments),
                Said::Native { json, .. } => {
                    (json.to_string().len() / BYTES_PER_NATIVE_TOKEN) as u64
                }
            })
            .sum(),
        Message::Tool { results } => results.iter().map(|it| of_result(it, tokenizer)).sum(),
        Message::Notice { text } => count(text),
        Message::Tools(change) => count(&in_words(change)),
        Message::Host { .. } => return 0,
    };
    own + FRAME
}

/// The same for a result.
pub(super) fn of_result(result: &CallResult, tokenizer: &Tokenizer) -> u64 {
    let revealed: u64 = result.revealed.iter().map(|it| it.tool.tokens()).sum();
    parts(&result.content, tokenizer) + revealed
}

fn parts(parts: &[Part], tokenizer: &Tokenizer) -> u64 {
    let size = |part: &Part| match part {
        Part::Text { text } => tokenizer.count(text).tokens,
        Part::Image { .. } => PICTURE,
    };
    parts.iter().map(size).sum()
}
