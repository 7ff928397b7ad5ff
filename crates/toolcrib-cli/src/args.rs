//! What may be asked for on the command line. Parsed once, then turned into plain values.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use toolcrib::tokens::{Class, Model, Models};
use toolcrib::{Engine, Mode, Preset, ProviderClass, Settings, StrategyChoice};

use crate::config::{Config, ConfigCommand, Environment, Server};
use crate::output::{self, Misuse};
use crate::{builtin, call, chat, client_config, demo, doctor, edit, eval, import, login};
use crate::{plan, prompt, review, run, search, serve, servers, sessions, tools, usage};

/// Keep thousands of tools at hand and send a model a few hundred tokens.
///
/// Toolcrib stands between MCP servers and a model, and holds tool schemas back until the model
/// asks for them. Without any configuration it serves its own built-in servers.
#[derive(Debug, Parser)]
#[command(
    name = "toolcrib",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  toolcrib demo                           see it work, in a few seconds
  toolcrib serve                          every server behind one, at http://127.0.0.1:7171/mcp
  toolcrib chat                           talk to a model that has them
  toolcrib import                         take over the servers your clients have
  toolcrib doctor                         start every server and check it
  toolcrib tools                          what tools cost, and what waits
  toolcrib search 'open a pull request'   how tool_search ranks them"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Configuration to use: a toolcrib.toml or any mcp.json [default: toolcrib.toml in the
    /// current folder, else in ~/.config/toolcrib]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long, global = true, help_heading = "Global options")]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    #[arg(help_heading = "Global options")]
    pub(crate) color: Color,
    /// Say nothing on standard error but errors
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub(crate) quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// See it work: a client, the gateway and seven servers, in a few seconds
    Demo(demo::DemoArgs),
    /// Put every server behind one: the MCP gateway
    Serve(serve::ServeArgs),
    /// Talk to a model that has the servers' tools
    Chat(chat::ChatArgs),
    /// Answer one prompt with a model and the servers' tools
    Run(run::RunArgs),
    /// List, show, copy, export and delete conversations that are kept
    Sessions(sessions::SessionsArgs),
    /// List the servers: their state, tools, tokens, start-up time and last error
    Servers(servers::ServersArgs),
    /// Call a tool and print what it answers
    Call(call::CallArgs),
    /// Start every server, check it, and say how to mend what is wrong
    Doctor(doctor::DoctorArgs),
    /// Show tools whose definitions have changed since they were approved, and approve them
    Review(review::ReviewArgs),
    /// Run one of the built-in servers over stdio
    Builtin(builtin::BuiltinArgs),
    /// List tools: what each costs, what is sent and what waits
    Tools(tools::ToolsArgs),
    /// Rank tools for a query, as the model's tool_search does
    Search(search::SearchArgs),
    /// Measure how well tools are found, on labelled queries
    Eval(eval::EvalArgs),
    /// Show what was learned from use, or forget it
    Usage(usage::UsageArgs),
    /// Show exactly what a model would see at its first request
    Prompt(prompt::PromptArgs),
    /// Compare the cost of strategies over a conversation
    Plan(plan::PlanArgs),
    /// Take over the servers that other clients have
    Import(import::ImportArgs),
    /// Add a server to toolcrib.toml
    Add(edit::AddArgs),
    /// Remove a server from toolcrib.toml
    Remove(edit::RemoveArgs),
    /// Log in at a server that wants it
    Login(login::LoginArgs),
    /// Forget the login at a server
    Logout(login::LogoutArgs),
    /// Print what to paste into a client's configuration
    ClientConfig(client_config::ClientConfigArgs),
    /// Check toolcrib.toml, or show what it amounts to
    #[command(subcommand)]
    #[command(after_help = "\
Examples:
  toolcrib config check                         is the file right?
  toolcrib config check --config mcp.json       and another program's?
  toolcrib config show                          every setting that is in force")]
    Config(ConfigCommand),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  toolcrib completions bash > ~/.local/share/bash-completion/completions/toolcrib"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    let mut command = <Args as clap::CommandFactory>::command();
    clap_complete::generate(shell, &mut command, "toolcrib", &mut script);
    output::text(&String::from_utf8_lossy(&script))
}

/// The most tools that are written out of those left out; the rest are counted.
const MOST_WARNINGS: usize = 20;

/// What holds for a whole run, as plain values.
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) env: Environment,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

impl Context {
    pub(crate) fn new(global: &Global) -> anyhow::Result<Self> {
        let env = Environment::of_process();
        let config = Config::load(global.config.as_deref(), &env)?;
        Ok(Self { config, env, json: global.json, quiet: global.quiet })
    }

    /// The configured servers.
    pub(crate) fn servers(&self) -> Vec<Server> {
        self.config.servers(&self.env)
    }

    /// Tells a person something that is not part of the answer.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            output::note(text);
        }
    }

    /// Tells of something that was left out.
    pub(crate) fn warn(&self, text: &str) {
        if !self.quiet {
            output::warn(text);
        }
    }

    /// Tells of tools that were left out, as far as anybody would read it.
    pub(crate) fn warn_of_left_out(&self, warnings: &[String]) {
        warnings.iter().take(MOST_WARNINGS).for_each(|warning| self.warn(warning));
        if let Some(more @ 1..) = warnings.len().checked_sub(MOST_WARNINGS) {
            self.warn(&format!("{more} more tools were left out"));
        }
    }
}

/// How the engine should behave. What is not given here comes from the configuration, and what
/// is not there either from the preset.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Engine options")]
pub(crate) struct EngineArgs {
    /// The set of choices to start from
    #[arg(long, value_parser = words(&["crib", "regex", "stubs", "lazy", "groups", "exact"])
        .try_map(|word| word.parse::<Preset>()))]
    pub(crate) preset: Option<Preset>,
    /// Whether schemas are held back
    #[arg(long, value_parser = words(&["auto", "deferred", "full"])
        .try_map(|word| word.parse::<Mode>()))]
    pub(crate) mode: Option<Mode>,
    /// How schemas arrive once they are asked for
    #[arg(long, value_parser = words(&["auto", "dispatch", "inject", "native"])
        .try_map(|word| word.parse::<StrategyChoice>()))]
    pub(crate) strategy: Option<StrategyChoice>,
    /// The kind of model, for the eager rules
    #[arg(long, value_name = "CLASS", value_parser = words(&["local", "cloud"])
        .try_map(|word| word.parse::<ProviderClass>()))]
    pub(crate) provider_class: Option<ProviderClass>,
    /// The seat or role, one of [eager.profiles] in toolcrib.toml
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// The model's context window, in tokens
    #[arg(long, value_name = "TOKENS")]
    pub(crate) context_window: Option<u64>,
    /// Text to open the catalog with, in place of the preset's own
    #[arg(long, value_name = "TEXT")]
    pub(crate) header: Option<String>,
}

/// What to say about a model that the table doesn't have: `so` follows, then the nearest name.
pub(crate) fn unknown_model(models: &Models, name: &str, so: &str) -> String {
    let near = output::suggest(name, models.iter().map(|model| &*model.name));
    format!("the table of models has no `{name}`{so}{}", near.unwrap_or_default())
}

/// The model of a name. Where a family answers for it, the name says so.
pub(crate) fn find_model(models: &Models, name: &str, so: &str) -> Result<Model, Misuse> {
    let found = models.find(name).cloned();
    let mut model = found.ok_or_else(|| Misuse::new(unknown_model(models, name, so)))?;
    if !model.prefixes.is_empty() && model.name != name {
        model.name = format!("{name} (as {})", model.name);
    }
    Ok(model)
}

fn words(words: &'static [&'static str]) -> PossibleValuesParser {
    PossibleValuesParser::new(words)
}

impl EngineArgs {
    /// The settings these options, the configuration and the preset amount to.
    pub(crate) fn settings(&self, config: &Config) -> anyhow::Result<Settings> {
        let mut settings = config.settings(self.preset);
        settings.mode = self.mode.unwrap_or(settings.mode);
        settings.strategy = self.strategy.unwrap_or(settings.strategy);
        settings.provider_class = self.provider_class.unwrap_or(settings.provider_class);
        settings.context_window = self.context_window.unwrap_or(settings.context_window);
        settings.profile = self.profile.clone().or(settings.profile);
        settings.header = self.header.clone().or(settings.header);
        Ok(settings)
    }

    /// Takes over what the table knows about the model, where neither the options nor the
    /// configuration say something else.
    pub(crate) fn for_model(&self, model: &Model, config: &Config) -> Self {
        let class = match model.class {
            Class::Local => ProviderClass::Local,
            Class::Cloud => ProviderClass::Cloud,
        };
        Self {
            provider_class: self.provider_class.or(config.provider_class).or(Some(class)),
            context_window: self.context_window.or(config.context_window).or(model.context),
            ..self.clone()
        }
    }

    /// An engine with these settings.
    pub(crate) fn engine(&self, config: &Config) -> anyhow::Result<Engine> {
        Engine::new(self.settings(config)?).map_err(|error| {
            let defined: Vec<&str> = config.eager.profiles.keys().map(String::as_str).collect();
            let hint = match &self.profile {
                Some(name) => output::suggest(name, defined),
                None => None,
            };
            Misuse::new(format!("{error}{}", hint.unwrap_or_default())).into()
        })
    }
}
