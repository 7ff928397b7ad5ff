//! `[search]`: how tools are found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::embedder::EmbedderChoice;

/// How tools are found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Search {
    /// Whether to keep, on this machine, which tool was called after which query, and to lift it a
    /// little when such a query is asked again.
    pub(crate) learn: bool,
    /// Who says how near a query and a tool are in meaning: `static`, the table in this program;
    /// `none`; or a model behind an address.
    pub(crate) embedder: EmbedderChoice,
}

impl Default for Search {
    fn default() -> Self {
        Self { learn: true, embedder: EmbedderChoice::default() }
    }
}
