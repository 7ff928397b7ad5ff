//! Token counts, model prices, and the arithmetic of prompt caches.
//!
//! Whether tools are better sent in full, injected when needed or called through a dispatcher
//! is a question of tokens: how many there are, and how often a provider bills them again. This
//! crate answers it from values alone. It knows nothing of tools or servers, and reads no file,
//! clock or environment.
//!
//! In reading order:
//! - [`Tokenizer`] counts the tokens of a text: exactly where a model's vocabulary is public, by
//!   a marked estimate elsewhere. The result is a [`TokenCount`].
//! - [`Models`] is a table of models with window, [`Prices`], [`CacheRules`] and tokenizer;
//!   users extend it in TOML.
//! - [`simulate`] takes the [`Request`]s of a conversation and says how a provider's prompt
//!   cache would bill each: a [`Usage`], and from it a [`Cost`].
//!
//! ```
//! use toolcrib_tokens::{Block, Cost, Models, Request, simulate};
//!
//! let models = Models::embedded();
//! let model = models.find("claude-opus-5-5").expect("the table has it");
//! let block = |text: &str| Block::of(text, &model.tokenizer);
//!
//! let tools = "{\"name\":\"search\",\"description\":\"Finds things.\"}".repeat(500);
//! let (tools, question, answer) = (block(&tools), block("Find the report."), block("Here it is."));
//!
//! // Two turns of a conversation. The second begins as the first did, so that part is read.
//! let usages = simulate(
//!     &model.cache,
//!     &[
//!         Request { blocks: vec![tools, question], output: 20 },
//!         Request { blocks: vec![tools, question, answer], output: 20 },
//!     ],
//! );
//! assert_eq!(usages[1].read, usages[0].written);
//!
//! let cost: Cost = usages.iter().map(|usage| usage.cost(model)).sum();
//! println!("{} tokens of tools, {cost} in all", model.tokenizer.count("a tool"));
//! ```

mod cache;
mod count;
mod models;

pub use cache::{Block, CacheRules, Cost, Request, Usage, simulate};
pub use count::{TokenCount, Tokenizer, Vocabulary};
pub use models::{
    Class, Feature, LongPrices, Model, Models, ModelsError, Prices, Provider, Section,
};
