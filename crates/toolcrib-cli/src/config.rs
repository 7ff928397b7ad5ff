//! `toolcrib.toml`: everything the engine can be told, where tools are, what models cost, which
//! servers there are. Of another program's file (`mcp.json`) the servers are taken.

mod agent;
mod command;
#[cfg(test)]
mod damaged;
mod embedder;
mod entry;
mod environment;
mod expand;
mod fault;
mod file;
mod foreign;
mod gateway;
mod oauth;
mod search;
mod secret;
mod servers;
mod telemetry;

use std::fs;
use std::path::{Path, PathBuf};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib::tokens::Models;
use toolcrib::{
    Definitions, EagerRules, Embedder, Mode, Policy, PolicyRules, Preset, ProviderClass, Settings,
    StrategyChoice,
};

pub(crate) use agent::{AgentEntry, ProviderName, Then};
pub(crate) use command::{ConfigCommand, run};
pub(crate) use embedder::{EmbedderChoice, OwnEmbedder};
pub(crate) use entry::{Era, ServerEntry, Sessions, name_fault};
pub(crate) use environment::{Environment, is_harmless};
pub(crate) use file::{file_to_edit, is_json, read_text};
pub(crate) use foreign::{ForeignFile, Found};
pub(crate) use gateway::{AuditEntry, Gateway, Verbs, address};
pub(crate) use search::Search;
pub(crate) use secret::{Secret, mask_url};
pub(crate) use servers::{Launch, Server, workspace};
pub(crate) use telemetry::{Collector, Telemetry};

use crate::output::Misuse;

/// How toolcrib behaves. Every key may be left out; what a preset decides then holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "toolcrib.toml")]
pub(crate) struct Config {
    /// Tool lists: files or folders, relative to this file.
    pub(crate) tools: Vec<PathBuf>,
    /// A table that corrects and extends the built-in prices of models, relative to this file.
    pub(crate) models: Option<PathBuf>,
    /// The set of choices to start from. `crib` unless given.
    pub(crate) preset: Option<Preset>,
    /// Whether schemas are held back.
    pub(crate) mode: Option<Mode>,
    /// How schemas arrive once they are asked for.
    pub(crate) strategy: Option<StrategyChoice>,
    /// In mode `auto`: hold schemas back from this many tools on.
    pub(crate) threshold_tools: Option<usize>,
    /// In mode `auto`: hold schemas back when they would take this share of the context window,
    /// between 0 and 1.
    #[schemars(range(min = 0, max = 1))]
    pub(crate) threshold_context: Option<f64>,
    /// The context window of the model in use, in tokens.
    pub(crate) context_window: Option<u64>,
    /// The kind of model in use, for the eager rules.
    pub(crate) provider_class: Option<ProviderClass>,
    /// The seat or role in use, one of `eager.profiles`.
    pub(crate) profile: Option<String>,
    /// Tools to send in full from the start, by any name that finds them.
    pub(crate) preload: Vec<String>,
    /// Text to open the catalog with, in place of the preset's own.
    pub(crate) header: Option<String>,
    /// The most tokens the catalog in the prompt may take.
    pub(crate) catalog_tokens: Option<u64>,
    /// Whether catalogs that list names add a line on what each tool does.
    pub(crate) describe_names: Option<bool>,
    /// The most tokens that loaded schemas may take in the tools array.
    pub(crate) loaded_tokens: Option<u64>,
    /// How many tools a search returns unless told.
    pub(crate) search_limit: Option<usize>,
    /// How many it returns at most.
    pub(crate) search_limit_max: Option<usize>,
    /// The most bytes of schemas in one result.
    pub(crate) result_bytes: Option<usize>,
    /// What becomes of tools whose definitions are not those that were approved. `tell` unless
    /// given.
    pub(crate) definitions: Option<Definitions>,
    /// Which tools are sent in full at any rate.
    pub(crate) eager: EagerRules,
    /// Which tools exist for the caller at all.
    pub(crate) policy: PolicyRules,
    /// How tools are found.
    pub(crate) search: Search,
    /// How `toolcrib serve` is reached, and by whom.
    pub(crate) gateway: Gateway,
    /// The model that `toolcrib run` and `toolcrib chat` ask, and what it may do.
    pub(crate) agent: AgentEntry,
    /// MCP servers, by name.
    pub(crate) servers: IndexMap<String, ServerEntry>,
    /// Where all this was read, if anywhere.
    #[serde(skip)]
    pub(crate) file: Option<PathBuf>,
    /// What was passed over in another program's file.
    #[serde(skip)]
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Reads the file that was named, or else the current folder's or the user's, if there is one.
    pub(crate) fn load(named: Option<&Path>, env: &Environment) -> anyhow::Result<Self> {
        let file = named.map(Path::to_owned).or_else(|| file::default_file(env));
        file.map_or_else(|| Ok(Self::default()), |file| Self::read(&file))
    }

    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let shown = file.display();
        let text = read_text(file)
            .map_err(|error| Misuse::new(format!("can't read configuration {shown}: {error}")))?;
        Self::from_text(file, &text)
    }

    /// The configuration in the text of this file.
    pub(crate) fn from_text(file: &Path, text: &str) -> anyhow::Result<Self> {
        let shown = file.display().to_string();
        let mut config = if is_json(file, text) {
            Self::from_json(text, &shown)?
        } else {
            Self::parse(text)
                .map_err(|faults| Misuse::new(fault::describe(&faults, text, &shown)))?
        };
        let folder = file.parent().unwrap_or(Path::new(""));
        let paths = config.tools.iter_mut().chain(&mut config.models);
        let audit = config.gateway.audit.as_mut().map(|audit| &mut audit.file);
        let paths = paths.chain(&mut config.gateway.cache_dir).chain(audit);
        paths.for_each(|path| *path = folder.join(&*path));
        config.file = Some(std::path::absolute(file).unwrap_or_else(|_| file.to_owned()));
        Ok(config)
    }

    /// The servers of another program's file; the rest is as if there were no file.
    fn from_json(text: &str, shown: &str) -> anyhow::Result<Self> {
        let read = ForeignFile::from_json(text)
            .map_err(|error| Misuse::new(format!("{shown}, {error}")))?;
        if !read.has_table {
            let tables = "`mcpServers` and no `servers`";
            return Err(Misuse::new(format!("{shown} has no {tables}, so no MCP server")).into());
        }
        let mut config = Self::default();
        config.warnings.extend(read.warnings.iter().map(|warning| format!("{shown}, {warning}")));
        // What is meant for one project only is for `import` to look at.
        for found in read.servers.into_iter().filter(|found| found.project.is_none()) {
            let entry = found.entry.unwrap_or_else(|reason| ServerEntry {
                unusable: Some(reason),
                ..ServerEntry::default()
            });
            config.servers.insert(found.name, entry);
        }
        Ok(config)
    }

    /// What the preset stands for, changed where this says so. A preset given on the command
    /// line comes before the file's.
    pub(crate) fn settings(&self, preset: Option<Preset>) -> Settings {
        let mut settings = Settings::preset(preset.or(self.preset).unwrap_or_default());
        set(&mut settings.mode, self.mode);
        set(&mut settings.strategy, self.strategy);
        set(&mut settings.threshold_tools, self.threshold_tools);
        set(&mut settings.threshold_context, self.threshold_context.map(Some));
        set(&mut settings.context_window, self.context_window);
        set(&mut settings.provider_class, self.provider_class);
        set(&mut settings.catalog_tokens, self.catalog_tokens);
        set(&mut settings.describe_names, self.describe_names);
        set(&mut settings.loaded_tokens, self.loaded_tokens.map(Some));
        set(&mut settings.search_limit, self.search_limit);
        set(&mut settings.search_limit_max, self.search_limit_max);
        set(&mut settings.result_bytes, self.result_bytes);
        settings.profile = self.profile.clone();
        settings.header = self.header.clone();
        settings.preload = self.preload.clone();
        settings.eager = self.eager.clone();
        settings.embedder = match self.search.embedder {
            EmbedderChoice::Own(OwnEmbedder::Static) => Embedder::Static,
            EmbedderChoice::Own(OwnEmbedder::None) => Embedder::None,
            EmbedderChoice::Endpoint(_) => Embedder::Supplied,
        };
        settings
    }

    /// The same configuration with every choice spelt out.
    fn effective(&self) -> Self {
        let settings = self.settings(None);
        Self {
            tools: self.tools.clone(),
            models: self.models.clone(),
            preset: Some(settings.preset),
            mode: Some(settings.mode),
            strategy: Some(settings.strategy),
            threshold_tools: Some(settings.threshold_tools),
            threshold_context: settings.threshold_context,
            context_window: Some(settings.context_window),
            provider_class: Some(settings.provider_class),
            profile: settings.profile,
            preload: settings.preload,
            header: settings.header,
            catalog_tokens: Some(settings.catalog_tokens),
            describe_names: Some(settings.describe_names),
            loaded_tokens: settings.loaded_tokens,
            search_limit: Some(settings.search_limit),
            search_limit_max: Some(settings.search_limit_max),
            result_bytes: Some(settings.result_bytes),
            eager: settings.eager,
            policy: self.policy.clone(),
            definitions: Some(self.definitions.unwrap_or_default()),
            search: self.search.clone(),
            gateway: self.gateway.clone(),
            agent: self.agent.clone(),
            servers: self.servers.clone(),
            file: self.file.clone(),
            warnings: self.warnings.clone(),
        }
    }

    /// The policy, compiled.
    pub(crate) fn policy(&self) -> anyhow::Result<Policy> {
        Ok(Policy::new(self.policy.clone()).map_err(Misuse::new)?)
    }

    /// The built-in table of models with the user's corrections.
    pub(crate) fn models(&self) -> anyhow::Result<Models> {
        let mut models = Models::embedded();
        if let Some(file) = &self.models {
            let shown = file.display();
            let text = fs::read_to_string(file).map_err(|error| {
                Misuse::new(format!("can't read the table of models {shown}: {error}"))
            })?;
            models
                .extend_from_toml(&text)
                .map_err(|error| Misuse::new(format!("{shown}, {error}")))?;
        }
        Ok(models)
    }
}

fn set<T>(setting: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *setting = value;
    }
}
