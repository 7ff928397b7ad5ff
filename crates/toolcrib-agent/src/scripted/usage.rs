//! What a request would have cost.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use toolcrib_tokens::{Tokenizer, Usage};

use crate::message::{Message, Said, ToolCall, in_words};
use crate::provider::Request;

/// How many conversations are remembered.
const MOST: usize = 1024;

/// The last prompt of each conversation, as far as it is one of the newest.
#[derive(Default)]
pub(super) struct Prompts {
    by_key: HashMap<Arc<str>, (u64, Seen)>,
    /// How many were put in, which tells how old each is.
    count: u64,
}

impl Prompts {
    pub(super) fn get(&self, key: &str) -> Option<Seen> {
        self.by_key.get(key).map(|(_, seen)| seen.clone())
    }

    pub(super) fn insert(&mut self, key: Arc<str>, seen: Seen) {
        self.count += 1;
        self.by_key.insert(key, (self.count, seen));
        if self.by_key.len() > MOST {
            let oldest = self.by_key.iter().min_by_key(|(_, (number, _))| *number);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.by_key.remove(&key);
            }
        }
    }
}

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
            Message::Tools(change) => line(&in_words(change)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_conversations_are_remembered() {
        let seen = |bytes| Seen { bytes, hash: 0, tokens: 0 };
        let key = |number: usize| -> Arc<str> { number.to_string().into() };
        let mut prompts = Prompts::default();
        for number in 0..MOST {
            prompts.insert(key(number), seen(number));
        }
        // The first goes on, so that the second is the oldest.
        prompts.insert(key(0), seen(7));
        prompts.insert(key(MOST), seen(MOST));
        let bytes = |number| prompts.get(&key(number)).map(|seen| seen.bytes);
        assert_eq!((bytes(0), bytes(1), bytes(2)), (Some(7), None, Some(2)));
        assert_eq!((bytes(MOST), prompts.by_key.len()), (Some(MOST), MOST));
    }
}
