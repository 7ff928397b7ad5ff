//! What a provider's cache makes of the prompts of a conversation, and how each is billed.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::json;
use toolcrib_tokens::{Block, CacheRules, Model, Request, Usage, simulate};

use crate::endpoint::{Api, Reply};
use crate::prompt::{self, Prompt};

/// The most marks that Anthropic takes in a request.
const MOST_MARKS: usize = 4;

/// How many blocks it looks at from each mark, the marked one included.
const LOOKBACK: usize = 20;

/// How each request is billed. Anthropic caches what is marked, the others whatever two prompts
/// begin with.
pub(crate) fn bill<'a>(
    api: Api,
    model: &Model,
    prompts: &'a [Prompt],
    replies: &[Reply],
) -> Vec<Usage> {
    let mut counted: HashMap<&'a str, Block> = HashMap::new();
    let mut requests = Vec::with_capacity(prompts.len());
    for (prompt, reply) in prompts.iter().zip(replies) {
        let count = |block: &'a prompt::Block| {
            let text = block.text.as_str();
            *counted.entry(text).or_insert_with(|| Block::of(text, &model.tokenizer))
        };
        let blocks = prompt.blocks.iter().map(count).collect();
        requests.push(Request { blocks, output: said(model, reply) });
    }
    match api {
        Api::Anthropic => marked(&model.cache, prompts, &requests),
        Api::OpenAiResponses | Api::OpenAiChat | Api::Ollama => simulate(&model.cache, &requests),
    }
}

/// The length of an answer.
fn said(model: &Model, reply: &Reply) -> u64 {
    let calls = reply.calls.iter();
    let calls = calls.map(|(name, input)| json!({"name": name, "input": input}).to_string());
    let spoken = calls.chain([reply.text.clone()]);
    spoken.map(|text| model.tokenizer.count(&text).tokens).sum()
}

/// A prefix is written where a mark stands. It is read where a mark stands in a later request, or
/// a few blocks before.
fn marked(rules: &CacheRules, prompts: &[Prompt], requests: &[Request]) -> Vec<Usage> {
    let mut written: HashSet<u64> = HashSet::new();
    let mut usages = Vec::new();
    for (prompt, request) in prompts.iter().zip(requests) {
        let ends = ends(&request.blocks);
        let total = ends.last().map_or(0, |end| end.tokens);
        let blocks = prompt.blocks.iter().enumerate();
        let marks: Vec<usize> = blocks.filter(|(_, block)| block.mark).map(|(at, _)| at).collect();
        assert!(marks.len() <= MOST_MARKS, "{} marks: the provider takes four", marks.len());
        let seen = marks.iter().flat_map(|mark| &ends[(mark + 1).saturating_sub(LOOKBACK)..=*mark]);
        let found = seen.filter(|end| written.contains(&end.key));
        let read = found.map(|end| end.tokens).max().unwrap_or(0);
        let long_enough = |mark: &&usize| ends[**mark].tokens >= rules.minimum;
        let kept: Vec<&Prefix> =
            marks.iter().filter(long_enough).map(|mark| &ends[*mark]).collect();
        let cached = kept.last().map_or(0, |end| end.tokens);
        written.extend(kept.iter().map(|end| end.key));
        let (written, uncached) = (cached - read, total - cached);
        usages.push(Usage { read, written, uncached, output: request.output });
    }
    usages
}

/// What a prompt is up to the end of a block.
struct Prefix {
    key: u64,
    tokens: u64,
}

fn ends(blocks: &[Block]) -> Vec<Prefix> {
    let (mut hasher, mut tokens) = (DefaultHasher::new(), 0);
    let end = |block: &Block| {
        block.hash(&mut hasher);
        tokens += block.tokens;
        Prefix { key: hasher.finish(), tokens }
    };
    blocks.iter().map(end).collect()
}

/// The requests that do not begin with all of the one before, byte for byte.
pub(crate) fn changed(prompts: &[Prompt]) -> Vec<usize> {
    let goes_on = |pair: &[Prompt]| {
        pair[1].settings == pair[0].settings && pair[1].text().starts_with(&pair[0].text())
    };
    let pairs = prompts.windows(2).enumerate();
    pairs.filter(|(_, pair)| !goes_on(pair)).map(|(at, _)| at + 1).collect()
}

/// The requests for which not all of the one before is read, as far as the rules let it be kept.
pub(crate) fn forgotten(rules: &CacheRules, usages: &[Usage]) -> Vec<usize> {
    let pairs = usages.windows(2).enumerate();
    let lost = pairs.filter(|(_, pair)| pair[1].read != kept(rules, &pair[0]));
    lost.map(|(at, _)| at + 1).collect()
}

/// Those of the requests before which there was something to forget.
pub(crate) fn forgettable(rules: &CacheRules, usages: &[Usage], requests: &[usize]) -> Vec<usize> {
    let had_some = |at: &usize| kept(rules, &usages[at - 1]) > 0;
    requests.iter().copied().filter(had_some).collect()
}

/// How much of a prompt is kept.
fn kept(rules: &CacheRules, usage: &Usage) -> u64 {
    let whole = usage.prompt() - usage.prompt() % rules.step.max(1);
    if whole < rules.minimum { 0 } else { whole }
}
