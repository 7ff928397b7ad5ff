//! How an engine behaves: one immutable value, given once.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{EagerRules, Embedder};

/// Whether schemas are held back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Every schema is sent.
    Full,
    /// Schemas wait until they are asked for.
    Deferred,
    /// Decided once per conversation, at its first request, by the number of tools and the share
    /// of the context window their schemas would take.
    #[default]
    Auto,
}

/// How a schema reaches the model once it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// In a tool result, at the end of the history. The tools array never changes, so the prompt
    /// cache is never lost; calls go through `call_tool`.
    Dispatch,
    /// In the tools array, behind what is there. Calls are native; each load costs a re-read of
    /// the history.
    Inject,
    /// In the provider's own form of deferral: the tools array never changes, and calls are by
    /// name. For drivers that speak to a provider with one; see [`Session::choose`](crate::Session::choose).
    Native,
}

/// Which strategy to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StrategyChoice {
    /// The preset's own, or the one that spares the prompt cache.
    #[default]
    Auto,
    /// See [`Strategy::Dispatch`].
    Dispatch,
    /// See [`Strategy::Inject`].
    Inject,
    /// See [`Strategy::Native`]. Where the driver has no form for it, dispatch.
    Native,
}

/// A named set of choices: which tools wait, which verbs the model gets, what it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// The default: ranked search that returns schemas, groups in the prompt, three verbs.
    #[default]
    Crib,
    /// Above a number of tools, only a regex search over names and descriptions.
    Regex,
    /// MCP tools as names in the prompt; search or `select:` fetches their schemas.
    Stubs,
    /// One search verb: a query lists names, a name activates.
    Lazy,
    /// Declared groups, loaded whole or in part, called through a dispatcher.
    Groups,
    /// MCP tools as names with hints; exact names fetch their schemas.
    Exact,
}

/// What kind of model is asked: eager rules may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderClass {
    /// Small, and near.
    Local,
    /// Large, and far.
    #[default]
    Cloud,
}

/// How an engine behaves.
///
/// Start from a preset and change what should differ:
/// ```
/// use toolcrib_core::{Mode, Preset, Settings};
///
/// let mut settings = Settings::preset(Preset::Groups);
/// settings.mode = Mode::Deferred;
/// settings.header = Some("# Available integrations".into());
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Which verbs the model gets and what it is told.
    pub preset: Preset,
    /// Whether schemas are held back.
    pub mode: Mode,
    /// How schemas arrive.
    pub strategy: StrategyChoice,
    /// Under [`Mode::Auto`], defer from this many tools on.
    pub threshold_tools: usize,
    /// Under [`Mode::Auto`], defer when schemas would take this share of the window. Without it,
    /// only their number counts.
    pub threshold_context: Option<f64>,
    /// The context window of the model in use, in tokens.
    pub context_window: u64,
    /// The kind of model in use.
    pub provider_class: ProviderClass,
    /// The seat or role, among those the eager rules know.
    pub profile: Option<String>,
    /// Which tools are sent in full at any rate.
    pub eager: EagerRules,
    /// Tools to send in full from the start, by any name that finds them.
    pub preload: Vec<String>,
    /// Text to open the catalog with, in place of the preset's own.
    pub header: Option<String>,
    /// The most tokens the catalog in the prompt may take.
    pub catalog_tokens: u64,
    /// The most bytes it may take, where whoever passes it on cuts it.
    pub catalog_bytes: Option<usize>,
    /// Whether catalogs that list names add a line on what each tool does.
    pub describe_names: bool,
    /// The most tokens that loaded schemas may take in the tools array; the least recently used
    /// go at the next turn. Under dispatch and native there is nothing to free.
    pub loaded_tokens: Option<u64>,
    /// Under native, whether the provider's own search finds tools, in place of our verbs. Every
    /// tool is then declared with each request.
    pub hosted_search: bool,
    /// Whether, under dispatch, there is a verb of its own to call tools that change nothing, that
    /// change something and that may destroy something, in place of one for all: whoever approves
    /// calls by the verb's name then knows what is approved.
    pub split_calls: bool,
    /// Who says how near a query and a tool are in meaning.
    pub embedder: Embedder,
    /// How many tools a search returns unless told.
    pub search_limit: usize,
    /// How many it returns at most.
    pub search_limit_max: usize,
    /// The most bytes of schemas in one result; what doesn't fit is named, to be asked for.
    pub result_bytes: usize,
}

impl Settings {
    /// The settings a preset stands for.
    pub fn preset(preset: Preset) -> Self {
        let (search_limit, search_limit_max) = match preset {
            Preset::Crib | Preset::Groups => (5, 20),
            Preset::Regex => (10, 50),
            Preset::Stubs | Preset::Exact => (5, 50),
            Preset::Lazy => (15, 15),
        };
        Self {
            preset,
            mode: match preset {
                Preset::Crib | Preset::Regex => Mode::Auto,
                _ => Mode::Deferred,
            },
            strategy: StrategyChoice::Auto,
            threshold_tools: 15,
            threshold_context: (preset != Preset::Regex).then_some(0.10),
            context_window: 200_000,
            provider_class: ProviderClass::Cloud,
            profile: None,
            eager: EagerRules::default(),
            preload: Vec::new(),
            header: None,
            catalog_bytes: None,
            catalog_tokens: if preset == Preset::Crib { 2_000 } else { 20_000 },
            describe_names: preset == Preset::Exact,
            loaded_tokens: None,
            hosted_search: false,
            split_calls: false,
            embedder: Embedder::default(),
            search_limit,
            search_limit_max,
            result_bytes: 100_000,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::preset(Preset::default())
    }
}

impl Preset {
    /// All presets, the default first.
    pub const ALL: [Self; 6] =
        [Self::Crib, Self::Regex, Self::Stubs, Self::Lazy, Self::Groups, Self::Exact];

    /// The strategy the preset uses unless told.
    pub fn strategy(self) -> Strategy {
        match self {
            Self::Crib | Self::Groups => Strategy::Dispatch,
            Self::Regex | Self::Stubs | Self::Lazy | Self::Exact => Strategy::Inject,
        }
    }
}

/// A word that names none of the choices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not one of {choices}")]
pub struct UnknownChoice {
    given: String,
    choices: String,
}

macro_rules! words {
    ($type:ty, $($word:literal => $value:expr),+ $(,)?) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let word = match self { $(value if *value == $value => $word,)+ _ => "" };
                f.pad(word)
            }
        }

        impl FromStr for $type {
            type Err = UnknownChoice;

            fn from_str(text: &str) -> Result<Self, UnknownChoice> {
                match text {
                    $($word => Ok($value),)+
                    _ => Err(UnknownChoice {
                        given: text.to_owned(),
                        choices: [$($word),+].join(", "),
                    }),
                }
            }
        }
    };
}

words!(Mode, "auto" => Mode::Auto, "deferred" => Mode::Deferred, "full" => Mode::Full);
words!(Strategy, "dispatch" => Strategy::Dispatch, "inject" => Strategy::Inject,
    "native" => Strategy::Native);
words!(StrategyChoice, "auto" => StrategyChoice::Auto, "dispatch" => StrategyChoice::Dispatch,
    "inject" => StrategyChoice::Inject, "native" => StrategyChoice::Native);
words!(Preset, "crib" => Preset::Crib, "regex" => Preset::Regex, "stubs" => Preset::Stubs,
    "lazy" => Preset::Lazy, "groups" => Preset::Groups, "exact" => Preset::Exact);
words!(ProviderClass, "local" => ProviderClass::Local, "cloud" => ProviderClass::Cloud);
