//! What a request would have cost.

use std::hash::{DefaultHasher, Hash, Hasher};

use toolcrib_tokens::{Tokenizer, Usage};

use crate::message::{Message, Said, ToolCall};
use crate::provider::Request;

/// What is remembered of a prompt: enough to see whether another begins with it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    bytes: usize,
    hash: u64,
    tokens: u64,
}

impl Seen {
    /// Bills a prompt, given the one before it.
    pub(super) fn of(prompt: &str, before: Option<&Self>) -> (Self, Usage) {
        let begins_with = |seen: &&Self| {
            prompt.as_bytes().get(..seen.bytes).is_some_and(|begin| hash(begin) == seen.hash)
        };
        let (bytes, read) = before.filter(begins_with).map_or((0, 0), |it| (it.bytes, it.tokens));
        let uncached = prompt.get(bytes..).map_or(0, |rest| Tokenizer::O200K.count(rest).tokens);
        let tokens = read + uncached;
        let seen = Self { bytes: prompt.len(), hash: hash(prompt.as_bytes()), tokens };
        (seen, Usage { read, uncached, ..Usage::default() })
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// Everything a model would read, in the order of a provider's cache: tools, system prompt,
/// messages. Pictures count as the words that describe them.
pub(super) fn prompt(request: &Request) -> String {
    let mut prompt = String::new();
    let mut line = |text: &str| {
        prompt.push_str(text);
        prompt.push('\n');
    };
    for tool in &request.tools {
        line(tool.neutral().get());
    }
    line(&request.system);
    for message in &request.messages {
        match &**message {
            Message::User { content } => content.iter().for_each(|part| line(&part.described())),
            Message::Notice { text } => line(text),
            Message::Assistant(said) => said.content.iter().for_each(|said| match said {
                Said::Text { text } => line(text),
                Said::Call(ToolCall { name, arguments, .. }) => {
                    line(name);
                    line(arguments);
                }
                Said::Native { json, .. } => line(&json.to_string()),
            }),
            Message::Tool { results } => {
                results.iter().for_each(|result| line(&result.described()));
            }
            Message::Host { .. } => {}
        }
    }
    prompt
}
