//! `[agent]`: the model that `toolcrib run` and `toolcrib chat` ask, and what it may do.

use std::fmt;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib::PatternError;
use toolcrib::agent::{Permission, Permissions, Rule};

use super::entry::is_url;
use super::expand::is_variable;
use super::secret::mask_url;

/// The model that `toolcrib run` and `toolcrib chat` ask, and what it may do.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AgentEntry {
    /// Whose API it is asked through. Without it, what the environment has a key for.
    pub(crate) provider: Option<ProviderName>,
    /// The model's name there.
    pub(crate) model: Option<String>,
    /// Where the API is, without the path of a method.
    pub(crate) base_url: Option<String>,
    /// The environment variable that has the key. The key itself never stands here.
    pub(crate) key_env: Option<String>,
    /// What the model is told first, in place of a few words about where it is.
    pub(crate) system: Option<String>,
    /// The longest answer, in tokens.
    #[schemars(range(min = 1))]
    pub(crate) max_output: Option<u64>,
    /// How much chance there is in an answer.
    #[schemars(range(min = 0, max = 2))]
    pub(crate) temperature: Option<f64>,
    /// How often the model is asked for one message, 25 unless given; three times as often while
    /// schemas are held back.
    #[schemars(range(min = 1))]
    pub(crate) max_turns: Option<usize>,
    /// How many tools are offered in advance, by what the first message seems to need.
    pub(crate) predict: Option<usize>,
    /// Whether, under strategy `native`, the provider's own search finds the tools that wait, in
    /// place of Toolcrib's. All of them are then declared with every request.
    pub(crate) hosted_search: Option<bool>,
    /// Whether a conversation that fills the model's window is summarised by itself. It is unless
    /// this says otherwise.
    pub(crate) compact: Option<bool>,
    /// Whether chats are kept, to be gone on with later. They are unless this says otherwise.
    pub(crate) keep: Option<bool>,
    /// Which tools may run. The first rule that fits decides; where none does, what says it
    /// changes nothing may, and you are asked about the rest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) permissions: Vec<PermissionRule>,
}

/// An API that models are asked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProviderName {
    /// Anthropic Messages
    Anthropic,
    /// OpenAI Responses
    Openai,
    /// OpenAI Chat Completions, and what is compatible with it
    OpenaiChat,
    /// Ollama's own API
    Ollama,
}

/// A rule about tools.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PermissionRule {
    /// The tools, by name or glob; all if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<String>>,
    /// Only those that say they change nothing; or, if false, only the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    /// Only those that may destroy something; or, if false, only those that say they don't.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) destructive: Option<bool>,
    /// Whether they may run.
    pub(crate) then: Then,
}

/// Whether tools may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Then {
    /// They may.
    Allow,
    /// You are asked first.
    Ask,
    /// They may not.
    Deny,
}

impl AgentEntry {
    /// Who may do what. With `yes`, what isn't denied is allowed.
    pub(crate) fn permissions(&self, yes: bool) -> Result<Permissions, PatternError> {
        let permission = |then| match then {
            Then::Deny => Permission::Deny,
            Then::Ask if !yes => Permission::Ask,
            Then::Allow | Then::Ask => Permission::Allow,
        };
        let rule = |rule: &PermissionRule| Rule {
            tools: rule.tools.clone(),
            read_only: rule.read_only,
            destructive: rule.destructive,
            ..Rule::new(permission(rule.then))
        };
        let rules = self.permissions.iter().map(rule).chain([Rule::reading()]);
        Permissions::new(rules, permission(Then::Ask))
    }

    /// The first thing wrong with it: the key at fault and the reason.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        let blank = |text: &Option<String>| text.as_ref().is_some_and(|it| it.trim().is_empty());
        if self.base_url.as_deref().is_some_and(|url| !is_url(url)) {
            let expected = "expected an address that starts with http:// or https://";
            return Some(("base_url", expected.to_owned()));
        }
        if blank(&self.model) {
            return Some(("model", "expected the name of a model".to_owned()));
        }
        // Whoever wrote a key here would not want to see it again.
        if self.key_env.as_deref().is_some_and(|name| !is_variable(name)) {
            let expected = "expected the name of an environment variable, such as \
                            ANTHROPIC_API_KEY, and not the key";
            return Some(("key_env", expected.to_owned()));
        }
        if self.max_output == Some(0) {
            return Some(("max_output", "expected at least 1".to_owned()));
        }
        if self.max_turns == Some(0) {
            return Some(("max_turns", "expected at least 1".to_owned()));
        }
        if self.temperature.is_some_and(|it| !(0.0..=2.0).contains(&it)) {
            return Some(("temperature", "expected a number from 0 to 2".to_owned()));
        }
        let error = self.permissions(false).err()?;
        Some(("permissions", error.to_string()))
    }
}

impl fmt::Display for ProviderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::OpenaiChat => "openai-chat",
            Self::Ollama => "ollama",
        })
    }
}

impl fmt::Debug for AgentEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentEntry")
            .field("provider", &self.provider)
            .field("model", &self.model)
            .field("base_url", &self.base_url.as_deref().map(mask_url))
            .field("permissions", &self.permissions)
            .finish_non_exhaustive()
    }
}
