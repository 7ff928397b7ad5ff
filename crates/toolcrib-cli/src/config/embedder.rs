//! `[search] embedder`: who says how near a query and a tool are in meaning.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use toolcrib::embed::{Endpoint, EndpointConfig, Format};

use super::entry::url_fault;
use super::expand::Expansion;
use super::secret::{Secret, mask_url};
use super::servers::workspace;
use super::{Config, Environment};

/// The longest that a search may wait, in milliseconds.
const LONGEST_MS: u64 = 60_000;

/// What else the key may be, for whoever wrote something wrong.
const EXPECTED: &str = "`static`, `none`, or a table with `url` and `model`";

/// Who says how near a query and a tool are in meaning.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum EmbedderChoice {
    /// Nobody, or the table in this program.
    Own(OwnEmbedder),
    /// A model behind an address.
    Endpoint(EndpointEntry),
}

/// What needs nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OwnEmbedder {
    /// The table in this program.
    Static,
    /// Nobody: tools are ranked by their words alone.
    None,
}

/// A model behind an address. In `url`, `model` and `key`, `${VAR}` and `${VAR:-default}` stand
/// for environment variables.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndpointEntry {
    /// Where it is: `http://localhost:11434` for Ollama, `https://…/v1` for what speaks OpenAI's
    /// form.
    pub(crate) url: String,
    /// The model's name there.
    pub(crate) model: String,
    /// Sent as `Authorization: Bearer …`.
    pub(crate) key: Option<Secret>,
    /// The form of requests. Without it the address says: one without a path is Ollama's.
    pub(crate) format: Option<EndpointFormat>,
    /// What the model wants before the text of a tool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) document_prefix: String,
    /// What it wants before a query.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) query_prefix: String,
    /// How many milliseconds a search waits for it.
    #[serde(default = "usual_timeout")]
    #[schemars(range(min = 1, max = 60_000))]
    pub(crate) timeout_ms: u64,
}

/// The form of requests to an embedder.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EndpointFormat {
    /// `POST …/embeddings`, as OpenAI has it and most others do.
    OpenAi,
    /// `POST …/api/embed`, as Ollama has it.
    Ollama,
}

fn usual_timeout() -> u64 {
    1_500
}

impl Default for EmbedderChoice {
    fn default() -> Self {
        Self::Own(OwnEmbedder::Static)
    }
}

/// By hand, so that what is wrong in a table is said of its key.
impl<'de> Deserialize<'de> for EmbedderChoice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = EmbedderChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(EXPECTED)
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<EmbedderChoice, E> {
                match word {
                    "static" => Ok(EmbedderChoice::Own(OwnEmbedder::Static)),
                    "none" => Ok(EmbedderChoice::Own(OwnEmbedder::None)),
                    // It may be a key in the wrong place, so it is not repeated.
                    _ => Err(E::custom(format!("there is no such embedder; expected {EXPECTED}"))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<EmbedderChoice, A::Error> {
                EndpointEntry::deserialize(MapAccessDeserializer::new(map))
                    .map(EmbedderChoice::Endpoint)
            }
        }

        from.deserialize_any(Either)
    }
}

impl Config {
    /// The endpoint that is configured, if one is, and how long a search waits for it; or why it
    /// can't be used.
    pub(crate) fn embedder_endpoint(
        &self,
        env: &Environment,
    ) -> Option<Result<(Endpoint, Duration), String>> {
        let EmbedderChoice::Endpoint(entry) = &self.search.embedder else { return None };
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let with = Expansion { env, workspace: workspace(folder) };
        Some(entry.open(&with))
    }
}

impl EndpointEntry {
    fn open(&self, with: &Expansion<'_>) -> Result<(Endpoint, Duration), String> {
        let mut config = EndpointConfig::new(with.expand(&self.url)?, with.expand(&self.model)?);
        config.key = self.key.as_ref().map(|key| with.expand(key.expose())).transpose()?;
        config.format = self.format.map(|format| match format {
            EndpointFormat::OpenAi => Format::OpenAi,
            EndpointFormat::Ollama => Format::Ollama,
        });
        config.document_prefix.clone_from(&self.document_prefix);
        config.query_prefix.clone_from(&self.query_prefix);
        let endpoint = Endpoint::open(config).map_err(|error| error.to_string())?;
        Ok((endpoint, Duration::from_millis(self.timeout_ms)))
    }

    /// The first thing wrong with it: the key at fault and the reason.
    pub(super) fn fault(&self) -> Option<(&'static str, String)> {
        if let Some(reason) = url_fault(&self.url) {
            return Some(("url", reason));
        }
        if self.model.trim().is_empty() {
            return Some(("model", "expected the name of a model".to_owned()));
        }
        let is_fine = (1..=LONGEST_MS).contains(&self.timeout_ms);
        (!is_fine).then(|| ("timeout_ms", format!("expected milliseconds, from 1 to {LONGEST_MS}")))
    }
}

impl fmt::Debug for EndpointEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointEntry")
            .field("url", &mask_url(&self.url))
            .field("model", &self.model)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use toolcrib::Embed;

    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse(&format!("[search]\nembedder = {text}")).unwrap()
    }

    #[test]
    fn an_embedder_is_a_word_or_a_table() {
        assert_eq!(Config::default().search.embedder, EmbedderChoice::Own(OwnEmbedder::Static));
        assert_eq!(parse("'none'").search.embedder, EmbedderChoice::Own(OwnEmbedder::None));
        assert!(parse("'static'").embedder_endpoint(&Environment::default()).is_none());
        let config =
            parse("{ url = 'http://${HOST:-localhost}:11434', model = 'm', key = '${K}' }");
        let env = Environment::from([("K", "hunter2")]);
        let (endpoint, limit) = config.embedder_endpoint(&env).unwrap().unwrap();
        assert_eq!(endpoint.id(), "m at http://localhost:11434/api/embed");
        assert_eq!(limit, Duration::from_millis(1_500));
        let unset = config.embedder_endpoint(&Environment::default()).unwrap();
        assert_eq!(unset.err().unwrap(), "environment variable `K` is not set");
    }

    #[test]
    fn a_key_is_shown_by_its_variable_only() {
        let shown = |key: &str| {
            let config =
                parse(&format!("{{ url = 'http://h?a=hunter2', model = 'm', key = '{key}' }}"));
            (format!("{:?}", config.search), toml::to_string(&config.search.embedder).unwrap())
        };
        let (debug, file) = shown("hunter2");
        assert!(
            !debug.contains("hunter2") && !file.contains("key = \"hunter2\""),
            "{debug} {file}"
        );
        assert!(shown("${KEY}").1.contains("key = \"${KEY}\""));
    }
}
