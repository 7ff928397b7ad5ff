//! `[gateway.telemetry]`: where calls are reported to, as OpenTelemetry spans.

use std::path::Path;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expand::Expansion;
use super::servers::workspace;
use super::{Config, Environment, Secret};

/// Where calls are reported to, as OpenTelemetry spans.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Telemetry {
    /// The collector, such as `http://127.0.0.1:4318`: spans are sent to `/v1/traces` there.
    /// Without it nothing is.
    pub(crate) endpoint: Option<String>,
    /// What this gateway is called in traces.
    pub(crate) service_name: String,
    /// Headers that the collector wants.
    pub(crate) headers: IndexMap<String, Secret>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { endpoint: None, service_name: "toolcrib".to_owned(), headers: IndexMap::new() }
    }
}

/// A collector, with every variable put in.
#[derive(Clone)]
pub(crate) struct Collector {
    pub(crate) url: String,
    pub(crate) service_name: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Config {
    /// The collector that calls are reported to, if there is one; or why it can't be used.
    pub(crate) fn collector(&self, env: &Environment) -> Result<Option<Collector>, String> {
        let telemetry = &self.gateway.telemetry;
        let Some(endpoint) = &telemetry.endpoint else { return Ok(None) };
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let with = Expansion { env, workspace: workspace(folder) };
        let endpoint = with.expand(endpoint)?;
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            return Err("`endpoint` must begin with http:// or https://".to_owned());
        }
        let header =
            |(name, value): (&String, &Secret)| Ok((name.clone(), with.expand(value.expose())?));
        Ok(Some(Collector {
            url: format!("{}/v1/traces", endpoint.trim_end_matches('/')),
            service_name: telemetry.service_name.clone(),
            headers: telemetry.headers.iter().map(header).collect::<Result<_, String>>()?,
        }))
    }
}
