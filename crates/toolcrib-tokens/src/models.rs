//! The table of models: windows, prices, cache rules, tokenizers.

mod file;

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::{CacheRules, Tokenizer};

/// Whose API a model is called through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The Anthropic Messages API.
    Anthropic,
    /// OpenAI's own API.
    Openai,
    /// The Gemini API.
    Gemini,
    /// Anything else, local servers included.
    Other,
}

/// Where a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// On the user's own machine: a small window, and nothing is billed.
    Local,
    /// At a provider's.
    Cloud,
}

/// A part of a prompt that stands in one place in the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Section {
    /// Tool definitions.
    Tools,
    /// The system prompt.
    System,
    /// The conversation.
    Messages,
}

/// Something a model, through its own API, can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Sees pictures.
    Images,
    /// Takes tools that wait, and shows them where a `tool_reference` names them (Anthropic).
    DeferLoading,
    /// Takes tools that come and go in the middle of a conversation, by `tool_addition` and
    /// `tool_removal` (Anthropic).
    ToolChanges,
    /// Takes tools in a `tool_search_output` (OpenAI Responses).
    ToolSearch,
}

/// Prices in USD per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// A million input tokens, uncached.
    pub input: f64,
    /// A million output tokens.
    pub output: f64,
    /// What a request costs instead once its prompt is long.
    pub long: Option<LongPrices>,
}

/// Prices of a request whose prompt is longer than `above` tokens. They hold for all of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPrices {
    /// The longest prompt, in tokens, that is still billed at the ordinary prices.
    pub above: u64,
    /// A million input tokens, uncached.
    pub input: f64,
    /// A million output tokens.
    pub output: f64,
}

/// One model, or a family of models that share their rules.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The model's id as the table writes it.
    pub name: String,
    /// For a family: how the ids begin that it answers for.
    pub prefixes: Vec<String>,
    /// Whose API it is called through.
    pub provider: Provider,
    /// Where it runs.
    pub class: Class,
    /// The context window in tokens, if it is known.
    pub context: Option<u64>,
    /// The longest answer in tokens, if it is known.
    pub output: Option<u64>,
    /// What it can do.
    pub supports: Vec<Feature>,
    /// What it costs, if that is known.
    pub prices: Option<Prices>,
    /// How its prompt cache works.
    pub cache: CacheRules,
    /// The sections of a prompt, from the front of the prefix.
    pub order: [Section; 3],
    /// How its tokens are counted.
    pub tokenizer: Tokenizer,
    /// Where the price was published, and when it was read.
    pub source: Option<String>,
}

/// The table of models.
///
/// [`Models::embedded`] is what ships; users correct and extend it in TOML of the same form as
/// the crate's `data/models.toml`, where every key is described:
///
/// ```
/// use toolcrib_tokens::Models;
///
/// let mut models = Models::embedded();
/// models.extend_from_toml(
///     r#"
///     [[model]]
///     name = "claude-opus-5.5"    # an entry that exists: only the factor changes
///     factor = 1.31
///
///     [[model]]
///     name = "house-model"
///     like = "openai"
///     price = { input = 1.0, output = 4.0 }
///     "#,
/// )?;
/// let model = models.find("claude-opus-5-5").expect("it is in the table");
/// assert_eq!(model.prices.map(|prices| prices.input), Some(4.0));
/// # Ok::<(), toolcrib_tokens::ModelsError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Models {
    models: Vec<Model>,
}

/// What is wrong with a user's table of models, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelsError {
    /// The text is not TOML, has an unknown key, or a value of the wrong type.
    #[error("line {line}, `{key}`: {message}")]
    Toml {
        /// The line, from 1.
        line: usize,
        /// The key concerned, or the text at the fault.
        key: String,
        /// What the parser says.
        message: String,
    },
    /// A value has the right type and makes no sense.
    #[error("line {line}, `{key}`: expected {expected}")]
    Value {
        /// The line, from 1.
        line: usize,
        /// The key concerned.
        key: &'static str,
        /// What would be accepted.
        expected: String,
    },
}

impl Models {
    /// The table that ships with the crate.
    pub fn embedded() -> Models {
        static TABLE: LazyLock<Models> = LazyLock::new(|| {
            let mut models = Models::default();
            models
                .extend_from_toml(include_str!("../data/models.toml"))
                .expect("the embedded table is well formed; a test reads it");
            models
        });
        TABLE.clone()
    }

    /// Corrects and extends the table. On an error the table stays as it was.
    pub fn extend_from_toml(&mut self, text: &str) -> Result<(), ModelsError> {
        let mut models = self.models.clone();
        file::extend(&mut models, text)?;
        self.models = models;
        Ok(())
    }

    /// The entry for a model id.
    ///
    /// The model itself comes first, with or without the date of a snapshot
    /// (`claude-haiku-4-5-20251001`) and a route in front (`openrouter/anthropic/…`); then the
    /// family with the longest matching prefix. Case does not matter, and `.` equals `-`. A
    /// price is never borrowed: an unlisted model gets its family's rules and no price.
    pub fn find(&self, name: &str) -> Option<&Model> {
        let whole = canonical(name);
        let last = whole.rsplit('/').next().unwrap_or(&whole);
        [last, &whole]
            .iter()
            .find_map(|id| self.named(id))
            .or_else(|| [last, &whole].iter().find_map(|id| self.family(id)))
    }

    /// Every entry, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = &Model> {
        self.models.iter()
    }

    fn named(&self, id: &str) -> Option<&Model> {
        let is_named = |model: &&Model| {
            let rest = id.strip_prefix(&*canonical(&model.name));
            rest.is_some_and(|rest| rest.is_empty() || is_snapshot(rest))
        };
        self.models.iter().filter(is_named).max_by_key(|model| model.name.len())
    }

    fn family(&self, id: &str) -> Option<&Model> {
        let covered = |prefix: &String| {
            let prefix = canonical(prefix);
            let rest = id.strip_prefix(&*prefix)?;
            (!rest.starts_with(char::is_alphanumeric)).then_some(prefix.len())
        };
        let length = |model: &Model| model.prefixes.iter().filter_map(covered).max();
        self.models
            .iter()
            .filter_map(|model| Some((length(model)?, model)))
            .max_by_key(|(length, _)| *length)
            .map(|(_, model)| model)
    }
}

impl Model {
    /// Whether it can do something.
    pub fn can(&self, feature: Feature) -> bool {
        self.supports.contains(&feature)
    }
}

fn canonical(name: &str) -> String {
    name.trim().to_lowercase().replace('.', "-")
}

/// Whether the rest of an id only names a snapshot: `-20251001`, `-2026-09-29`, `@20251001`,
/// `-latest`.
fn is_snapshot(rest: &str) -> bool {
    let Some(snapshot) = rest.strip_prefix(['-', '@']) else { return false };
    let digits = snapshot.chars().filter(char::is_ascii_digit).count();
    snapshot == "latest"
        || (digits == 8 && snapshot.chars().all(|c| c.is_ascii_digit() || c == '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str) -> Option<String> {
        Models::embedded().find(name).map(|model| model.name.clone())
    }

    #[test]
    fn a_model_is_found_by_its_id_its_snapshot_and_its_route() {
        for name in [
            "claude-opus-5-5",
            "claude-opus-5.5",
            "Claude-Opus-5-5",
            "claude-opus-5-5-20260922",
            "claude-opus-5-5@20260922",
            "anthropic/claude-opus-5.5",
            "openrouter/anthropic/claude-opus-5-5",
        ] {
            assert_eq!(found(name).as_deref(), Some("claude-opus-5.5"), "{name}");
        }
        assert_eq!(found("gpt-6.1-sol-2026-09-29").as_deref(), Some("gpt-6.1-sol"));
    }

    #[test]
    fn a_snapshot_with_an_entry_of_its_own_comes_before_its_model() {
        let mut models = Models::embedded();
        let text = "[[model]]\nname = \"gpt-4o-2024-05-13\"\nlike = \"gpt-4o\"";
        models.extend_from_toml(text).unwrap();
        assert_eq!(models.find("gpt-4o-2024-05-13").unwrap().name, "gpt-4o-2024-05-13");
        assert_eq!(models.find("gpt-4o-2024-08-06").unwrap().name, "gpt-4o");
    }

    #[test]
    fn an_unlisted_model_gets_its_familys_rules_and_no_price() {
        let models = Models::embedded();
        for (name, family) in [
            ("claude-opus-5-7", "anthropic"),
            ("gpt-5.6-terra", "openai-5.6"),
            ("gpt-5.3-codex", "openai-5"),
            ("gpt-7", "openai"),
            ("gpt-4-1106-preview", "openai-4"),
            ("gpt-4.1-mini", "openai-4o"),
            ("o3-mini", "openai-4o"),
            ("gemini-2.5-pro", "gemini-2.5"),
            ("gemini-9-pro", "gemini"),
            ("ollama/llama3.2:3b", "local"),
            ("gpt-oss:20b", "gpt-oss"),
        ] {
            let model = models.find(name).unwrap_or_else(|| panic!("{name} is found"));
            assert_eq!((&*model.name, model.prices), (family, None), "{name}");
        }
    }

    #[test]
    fn a_name_that_only_resembles_one_is_unknown() {
        for name in ["", "/", "claudette", "o10", "llama3", "gptx", "ünknown", "a/b/c"] {
            assert_eq!(found(name), None, "{name}");
        }
    }

    #[test]
    fn every_price_in_the_embedded_table_has_a_source_and_belongs_to_one_model() {
        for model in Models::embedded().iter().filter(|model| model.prices.is_some()) {
            assert!(model.source.is_some(), "{} has a price and no source", model.name);
            assert!(model.prefixes.is_empty(), "{} is a family with a price", model.name);
        }
    }

    #[test]
    fn the_published_cache_prices_follow_from_the_rules() {
        let models = Models::embedded();
        for (name, write, read) in [
            ("claude-opus-5.5", 5.0, 0.20),
            ("claude-opus-5", 6.25, 0.50),
            ("claude-fable-5.1", 12.50, 0.25),
            ("claude-sonnet-5.5", 2.50, 0.20),
            ("claude-haiku-4.5", 1.25, 0.10),
            ("gpt-6.1-sol", 2.50, 0.10),
            ("gpt-6-sol", 2.50, 0.20),
            ("gpt-5.6-sol", 6.25, 0.50),
            ("gpt-4.1", 2.00, 0.50),
            ("gemini-4-argon", 4.00, 0.20),
        ] {
            let model = models.find(name).unwrap();
            let input = model.prices.unwrap().input;
            let dollars = [input * model.cache.write, input * model.cache.read];
            assert_eq!(
                dollars.map(|d| format!("{d:.3}")),
                [write, read].map(|d| format!("{d:.3}")),
                "{name}"
            );
        }
    }

    #[test]
    fn what_a_model_can_do_is_data() {
        let models = Models::embedded();
        let can = |name: &str, feature| models.find(name).unwrap().can(feature);
        assert!(
            can("claude-opus-5", Feature::DeferLoading) && can("claude-opus-5", Feature::Images)
        );
        assert!(can("claude-opus-5", Feature::ToolChanges));
        assert!(!can("claude-haiku-4.5", Feature::ToolChanges));
        assert!(!can("claude-opus-4-1", Feature::DeferLoading));
        assert!(can("gpt-5.4-mini", Feature::ToolSearch) && !can("gpt-4o", Feature::ToolSearch));
        assert!(!can("ollama/llama3.2:3b", Feature::Images));
    }

    #[test]
    fn gemini_puts_the_system_prompt_ahead_of_the_tools() {
        use Section::{Messages, System, Tools};
        let models = Models::embedded();
        assert_eq!(models.find("gemini").unwrap().order, [System, Tools, Messages]);
        for family in ["anthropic", "openai", "local"] {
            assert_eq!(models.find(family).unwrap().order, [Tools, System, Messages]);
        }
    }
}
