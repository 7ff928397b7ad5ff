//! What a prompt cache makes of a sequence of requests, and what that costs.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::count::grouped;
use crate::{Model, Tokenizer};

/// How a provider's prompt cache works: prices as multiples of the input price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CacheRules {
    /// The price of a token written to the cache.
    pub write: f64,
    /// The price of a token written to be kept for an hour, where that can be asked for.
    pub write_1h: Option<f64>,
    /// The price of a token read from the cache.
    pub read: f64,
    /// The shortest prefix, in tokens, that is cached or read.
    pub minimum: u64,
    /// Prefixes are cached in multiples of this many tokens; 0 and 1 mean any length.
    pub step: u64,
}

impl CacheRules {
    /// A provider without a prompt cache: everything costs the same.
    pub const NONE: CacheRules =
        CacheRules { write: 1.0, write_1h: None, read: 1.0, minimum: 0, step: 1 };

    /// The same rules with prefixes kept for an hour.
    pub fn for_an_hour(self) -> CacheRules {
        CacheRules { write: self.write_1h.unwrap_or(self.write), ..self }
    }

    /// How much of a prefix of this length the cache can hold.
    fn cacheable(&self, tokens: u64) -> u64 {
        let whole = tokens - tokens % self.step.max(1);
        if whole < self.minimum { 0 } else { whole }
    }
}

/// A run of prompt text that changes as a whole.
///
/// How finely a prompt is cut into blocks says what a change invalidates. Anthropic drops
/// everything when any tool definition changes, so there the whole `tools` array is one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Block {
    /// The identity of the content: equal text has an equal key.
    pub key: u64,
    /// Its length.
    pub tokens: u64,
}

impl Block {
    /// The block of a text. Its key is good for comparing blocks made by the same program, not
    /// for keeping.
    pub fn of(text: &str, tokenizer: &Tokenizer) -> Block {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Block { key: hasher.finish(), tokens: tokenizer.count(text).tokens }
    }
}

/// One model call: the whole prompt, its blocks in the model's prefix order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The prompt, from the front.
    pub blocks: Vec<Block>,
    /// How many tokens the model answers with.
    pub output: u64,
}

/// The tokens of one request, as a provider's bill splits them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Read from the cache.
    pub read: u64,
    /// Processed and written to the cache.
    pub written: u64,
    /// Processed and not cached.
    pub uncached: u64,
    /// Answered by the model.
    pub output: u64,
}

/// What tokens cost.
///
/// A sum has dollars only if all its parts have.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The prompt's cost in units of one uncached input token; output is not in it.
    pub input_equivalents: f64,
    /// Prompt and output in USD, if the model's prices are known.
    pub dollars: Option<f64>,
}

/// Runs requests past a prompt cache and says how each is billed.
///
/// The longest run of leading blocks that some earlier request also began with is read, cut
/// down to the provider's step, and only if it reaches the minimum. The rest is written as far
/// as step and minimum allow, and uncached beyond that.
///
/// Not modelled:
/// - Expiry. All requests are taken to fall within the time a prefix is kept, each use renewing
///   it; nor is anything evicted, or a hit missed by routing to another machine.
/// - Breakpoints. A prefix is taken to be readable wherever two prompts part. Anthropic reads
///   only what ends at an earlier `cache_control` mark, four a request, looking back 20 blocks
///   from each; marks after the tools, the system prompt and the last message come close.
/// - What breaks a prefix without being in it: another `tool_choice`, images, thinking.
/// - Matches that end inside a block, and fees for storage.
pub fn simulate(rules: &CacheRules, requests: &[Request]) -> Vec<Usage> {
    // A tree of every prefix seen: node 0 is the empty one.
    let mut children: HashMap<(usize, Block), usize> = HashMap::new();
    let bill = |request: &Request| {
        let (mut node, mut shared, mut total, mut following) = (0, 0u64, 0u64, true);
        for block in &request.blocks {
            total = total.saturating_add(block.tokens);
            let fresh = children.len() + 1;
            let child = *children.entry((node, *block)).or_insert(fresh);
            following &= child != fresh;
            shared = if following { total } else { shared };
            node = child;
        }
        let (read, cached) = (rules.cacheable(shared), rules.cacheable(total));
        Usage { read, written: cached - read, uncached: total - cached, output: request.output }
    };
    requests.iter().map(bill).collect()
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage {
            read: self.read.saturating_add(other.read),
            written: self.written.saturating_add(other.written),
            uncached: self.uncached.saturating_add(other.uncached),
            output: self.output.saturating_add(other.output),
        }
    }
}

impl Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(usages: I) -> Usage {
        usages.fold(Usage::default(), Add::add)
    }
}

impl Usage {
    /// The length of the prompt.
    pub fn prompt(&self) -> u64 {
        self.read.saturating_add(self.written).saturating_add(self.uncached)
    }

    /// What the prompt costs in units of one uncached input token.
    pub fn input_equivalents(&self, rules: &CacheRules) -> f64 {
        self.uncached as f64 + rules.write * self.written as f64 + rules.read * self.read as f64
    }

    /// What one request costs. Long prompts may have prices of their own, so costs are added,
    /// not usages.
    pub fn cost(&self, model: &Model) -> Cost {
        let input_equivalents = self.input_equivalents(&model.cache);
        let dollars = model.prices.map(|prices| {
            let long = prices.long.filter(|long| self.prompt() > long.above);
            let (input, output) =
                long.map_or((prices.input, prices.output), |long| (long.input, long.output));
            (input_equivalents * input + self.output as f64 * output) / 1e6
        });
        Cost { input_equivalents, dollars }
    }
}

impl Cost {
    /// Nothing: what a sum starts from.
    pub const ZERO: Cost = Cost { input_equivalents: 0.0, dollars: Some(0.0) };
}

impl Default for Cost {
    fn default() -> Self {
        Cost::ZERO
    }
}

impl Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            input_equivalents: self.input_equivalents + other.input_equivalents,
            dollars: self.dollars.zip(other.dollars).map(|(a, b)| a + b),
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::ZERO, Add::add)
    }
}

/// `$0.4825`, or `120,625 input-token equivalents` where the price is not known.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dollars {
            Some(dollars) => f.pad(&format!("${dollars:.4}")),
            None => {
                let tokens = grouped(self.input_equivalents.round() as u64);
                f.pad(&format!("{tokens} input-token equivalents"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Models;

    const ANTHROPIC: CacheRules =
        CacheRules { write: 1.25, write_1h: Some(2.0), read: 0.1, minimum: 1024, step: 1 };
    const OPENAI: CacheRules =
        CacheRules { write: 1.0, write_1h: None, read: 0.1, minimum: 1024, step: 128 };

    /// A prompt from `(key, tokens)` pairs.
    fn request(blocks: &[(u64, u64)]) -> Request {
        let blocks = blocks.iter().map(|&(key, tokens)| Block { key, tokens }).collect();
        Request { blocks, output: 0 }
    }

    fn usage(read: u64, written: u64, uncached: u64) -> Usage {
        Usage { read, written, uncached, output: 0 }
    }

    #[test]
    fn a_stable_prompt_reads_all_but_its_new_tail() {
        let turns = [
            request(&[(1, 3_000), (2, 1_000)]),
            request(&[(1, 3_000), (2, 1_000), (3, 500)]),
            request(&[(1, 3_000), (2, 1_000), (3, 500), (4, 70)]),
        ];
        let expected = [usage(0, 4_000, 0), usage(4_000, 500, 0), usage(4_500, 70, 0)];
        assert_eq!(simulate(&ANTHROPIC, &turns), expected);
    }

    #[test]
    fn a_change_at_the_front_writes_everything_again() {
        let turns = [request(&[(1, 3_000), (2, 9_000)]), request(&[(7, 3_100), (2, 9_000)])];
        let expected = [usage(0, 12_000, 0), usage(0, 12_100, 0)];
        assert_eq!(simulate(&ANTHROPIC, &turns), expected);
    }

    #[test]
    fn a_change_in_the_middle_reads_what_stands_before_it() {
        let turns = [
            request(&[(1, 3_000), (2, 500), (3, 800)]),
            request(&[(1, 3_000), (9, 500), (3, 800)]),
        ];
        assert_eq!(simulate(&ANTHROPIC, &turns)[1], usage(3_000, 1_300, 0));
    }

    #[test]
    fn an_older_prompt_is_still_there_when_it_comes_back() {
        let (a, b) = (request(&[(1, 2_000), (2, 100)]), request(&[(5, 2_000)]));
        let usages = simulate(&ANTHROPIC, &[a.clone(), b, a]);
        assert_eq!(usages[2], usage(2_100, 0, 0));
    }

    #[test]
    fn a_block_of_the_same_key_and_another_length_is_another_block() {
        let turns = [request(&[(1, 2_000)]), request(&[(1, 2_001)])];
        assert_eq!(simulate(&ANTHROPIC, &turns)[1], usage(0, 2_001, 0));
    }

    #[test]
    fn a_prompt_below_the_minimum_is_never_cached() {
        let short = request(&[(1, 1_023)]);
        let expected = [usage(0, 0, 1_023), usage(0, 0, 1_023)];
        assert_eq!(simulate(&ANTHROPIC, &[short.clone(), short]), expected);
    }

    #[test]
    fn a_shared_prefix_below_the_minimum_is_not_read() {
        let turns = [request(&[(1, 1_000), (2, 1_000)]), request(&[(1, 1_000), (3, 1_000)])];
        assert_eq!(simulate(&ANTHROPIC, &turns)[1], usage(0, 2_000, 0));
    }

    #[test]
    fn steps_round_down_what_is_written_and_what_is_read() {
        let turns = [
            request(&[(1, 1_100)]),
            request(&[(1, 1_100), (2, 60)]),
            request(&[(1, 1_100), (2, 60), (3, 1_000)]),
        ];
        // 1,024 = 8 · 128; 1,160 = 9 · 128 + 8; 2,160 = 16 · 128 + 112.
        let expected = [usage(0, 1_024, 76), usage(1_024, 128, 8), usage(1_152, 896, 112)];
        assert_eq!(simulate(&OPENAI, &turns), expected);
    }

    #[test]
    fn odd_requests_are_billed_without_complaint() {
        assert_eq!(simulate(&ANTHROPIC, &[]), []);
        assert_eq!(simulate(&CacheRules::NONE, &[Request::default()]), [Usage::default()]);
        let huge = request(&[(1, u64::MAX), (2, u64::MAX)]);
        let no_step = CacheRules { step: 0, ..ANTHROPIC };
        assert_eq!(simulate(&no_step, &[huge])[0].prompt(), u64::MAX);
        let doubled = request(&[(1, 2_000), (1, 2_000)]);
        assert_eq!(simulate(&ANTHROPIC, &[doubled]), [usage(0, 4_000, 0)]);
    }

    #[test]
    fn input_equivalents_weigh_each_kind_of_token() {
        let usage = Usage { read: 10_000, written: 400, uncached: 50, output: 999 };
        assert_eq!(usage.input_equivalents(&ANTHROPIC), 50.0 + 500.0 + 1_000.0);
        assert_eq!(usage.input_equivalents(&ANTHROPIC.for_an_hour()), 50.0 + 800.0 + 1_000.0);
        assert_eq!(usage.input_equivalents(&OPENAI.for_an_hour()), 50.0 + 400.0 + 1_000.0);
        assert_eq!(usage.input_equivalents(&CacheRules::NONE), usage.prompt() as f64);
    }

    /// What it costs more to add a tool than to leave the prompt alone, at 100,000 tokens.
    fn reveal(model: &str) -> f64 {
        let models = Models::embedded();
        let model = models.find(model).unwrap();
        let before = request(&[(1, 5_000), (2, 95_000)]);
        let untouched = simulate(&model.cache, &[before.clone(), before.clone()])[1];
        let tool_added = simulate(&model.cache, &[before, request(&[(3, 5_000), (2, 95_000)])])[1];
        tool_added.cost(model).dollars.unwrap() - untouched.cost(model).dollars.unwrap()
    }

    #[test]
    fn a_tool_added_at_100k_tokens_costs_what_the_price_lists_say() {
        // Opus 5.5: written at $5 a million in place of read at $0.20.
        assert_eq!(format!("{:.4}", reveal("claude-opus-5-5")), "0.4800");
        // gpt-5.6-sol: written at $6.25 in place of read at $0.50.
        assert_eq!(format!("{:.4}", reveal("gpt-5.6-sol")), "0.5750");
    }

    #[test]
    fn a_schema_appended_to_the_history_costs_only_itself() {
        let models = Models::embedded();
        let model = models.find("claude-opus-5-5").unwrap();
        let turns = [request(&[(1, 100_000)]), request(&[(1, 100_000), (2, 500)])];
        let cost = simulate(&model.cache, &turns)[1].cost(model);
        // 100,000 read at $0.20 a million, 500 written at $5.
        assert_eq!(cost.to_string(), "$0.0225");
    }

    #[test]
    fn output_and_long_prompts_have_their_own_prices() {
        let models = Models::embedded();
        let haiku = models.find("claude-haiku-5-5").unwrap();
        let cost = |uncached| {
            Usage { read: 0, written: 0, uncached, output: 1_000_000 }.cost(haiku).to_string()
        };
        assert_eq!(cost(100_000), "$0.5100"); // 0.1 · $0.10 + $0.50
        assert_eq!(cost(100_001), "$2.5500"); // 0.1 · $0.50 + $2.50
    }

    #[test]
    fn without_a_price_a_cost_is_told_in_input_tokens() {
        let models = Models::embedded();
        let family = models.find("anthropic").unwrap();
        let cost = usage(10_000, 400, 50).cost(family);
        assert_eq!(cost, Cost { input_equivalents: 1_550.0, dollars: None });
        assert_eq!(cost.to_string(), "1,550 input-token equivalents");
        let priced = Cost { input_equivalents: 1.0, dollars: Some(2.0) };
        assert_eq!([priced, priced].into_iter().sum::<Cost>().dollars, Some(4.0));
        assert_eq!([priced, cost].into_iter().sum::<Cost>().dollars, None);
    }

    #[test]
    fn blocks_of_equal_text_are_equal() {
        let block = |text| Block::of(text, &Tokenizer::O200K);
        assert_eq!(block("hello world"), block("hello world"));
        assert_ne!(block("hello world").key, block("hello worlds").key);
        assert_eq!(block("hello world").tokens, 2);
    }
}
