//! `toolcrib config`.

use std::path::{Path, PathBuf};

use clap::Subcommand;

use super::embedder::EmbedderChoice;
use super::file::default_file;
use super::{Config, Environment, mask_url};
use crate::args::Global;
use crate::output::{self, Misuse};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the JSON Schema of toolcrib.toml
    #[command(after_help = "\
Example:
  toolcrib config schema > toolcrib.schema.json
  then, as the first line of toolcrib.toml: #:schema ./toolcrib.schema.json")]
    Schema,
    /// Say what is wrong with a configuration, with line and column
    #[command(after_help = "Example:\n  toolcrib config check toolcrib.toml")]
    Check {
        /// The file [default: --config, else toolcrib.toml here, else the user's]
        file: Option<PathBuf>,
    },
    /// Print every setting that is in force
    #[command(after_help = "\
Example:
  toolcrib config show > toolcrib.toml    a file to start from")]
    Show,
}

pub(crate) fn run(command: &ConfigCommand, global: &Global) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Schema => output::json(&schemars::schema_for!(Config)),
        ConfigCommand::Check { file } => check(file.as_ref().or(global.config.as_ref()), global),
        ConfigCommand::Show => {
            let config = Config::load(global.config.as_deref(), &Environment::of_process())?;
            let config = masked(config.effective());
            if global.json {
                return output::json(&config);
            }
            output::text(&toml::to_string(&config)?)
        }
    }
}

/// A configuration without what may be secret in its addresses.
fn masked(mut config: Config) -> Config {
    let embedder = match &mut config.search.embedder {
        EmbedderChoice::Endpoint(entry) => Some(&mut entry.url),
        EmbedderChoice::Own(_) => None,
    };
    let servers = config.servers.values_mut().filter_map(|server| server.url.as_mut());
    let urls = servers.chain(&mut config.agent.base_url).chain(embedder);
    urls.for_each(|url| *url = mask_url(url));
    config
}

fn check(named: Option<&PathBuf>, global: &Global) -> anyhow::Result<()> {
    let env = Environment::of_process();
    let file = named.cloned().or_else(|| default_file(&env));
    match file.map(|file| examine(&file, &env)) {
        None => {
            report(global, true, "there is no toolcrib.toml here; the built-in defaults hold", &[])
        }
        Some(Ok((text, warnings))) => {
            if !global.quiet && !global.json {
                warnings.iter().for_each(|text| output::warn(text));
            }
            report(global, true, &text, &warnings)
        }
        Some(Err(error)) => {
            if global.json {
                report(global, false, &format!("{error:#}"), &[])?;
            }
            Err(error)
        }
    }
}

/// What can be said for a configuration, and against it.
fn examine(file: &Path, env: &Environment) -> anyhow::Result<(String, Vec<String>)> {
    let shown = file.display();
    let config = Config::read(file)?;
    config.models()?;
    if let Some(missing) = config.tools.iter().find(|path| !path.exists()) {
        let missing = missing.display();
        let text = format!("{shown}: `tools` names {missing}, which does not exist");
        return Err(Misuse::new(text).into());
    }
    let mut warnings = config.server_warnings(&config.servers(env));
    if let Some(Err(reason)) = config.embedder_endpoint(env) {
        warnings.push(format!("{shown}: the embedder can't be used: {reason}"));
    }
    let servers = match config.servers.len() {
        0 => String::new(),
        count => format!(", {}", output::counted(count, "server")),
    };
    let verdict = match warnings.len() {
        0 => "is fine".to_owned(),
        count => format!("can be used, with {}", output::counted(count, "warning")),
    };
    let preset = config.settings(None).preset;
    Ok((format!("{shown} {verdict}: preset {preset}{servers}"), warnings))
}

fn report(global: &Global, ok: bool, text: &str, warnings: &[String]) -> anyhow::Result<()> {
    if global.json {
        let value = serde_json::json!({"ok": ok, "message": text, "warnings": warnings});
        return output::json(&value);
    }
    output::text(&format!("{text}\n"))
}
