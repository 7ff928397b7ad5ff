//! A model with the servers' tools: what `run` and `chat` have in common.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::{Instant, interval_at};
use toolcrib::agent::{Agent, CompactionRules, ModelOptions, RunLimits};
use toolcrib::builtins::{Builtin, Options};
use toolcrib::mcp::UpstreamState;
use toolcrib::tokens::Models;
use toolcrib::{Availability, Crib, Naming, Settings, StrategyChoice, Toolset as _};

use crate::args::{Context, EngineArgs};
use crate::config::ProviderName;
use crate::embedder::Embedder;
use crate::fleet::Fleet;
use crate::follow::{Desk, Signals};
use crate::model::{self, Chosen, Local, Wanted};
use crate::output::{self, Misuse, Progress};

/// Servers that list their tools sooner need no progress bar.
const SOON: Duration = Duration::from_millis(150);

/// How often the bar is drawn anew.
const TICK: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AgentArgs {
    /// Whose API to ask [default: what the environment has a key for, or what runs here]
    #[arg(long, value_name = "NAME")]
    provider: Option<ProviderName>,
    /// The model; `scripted` needs no key and does what you type [default: by the provider]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where the API is, if not at its provider's: http://localhost:8080/v1
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// What the model is told first [default: a few words about where it is]
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Don't ask: let every tool run that no rule denies
    #[arg(long)]
    pub(crate) yes: bool,
    /// How often to ask the model for one message; three times as often while schemas are held
    /// back [default: 25]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    max_turns: Option<NonZeroUsize>,
    #[command(flatten)]
    engine: EngineArgs,
}

/// The servers' tools, and what it takes to make agents over them.
pub(crate) struct Workshop<'a> {
    args: &'a AgentArgs,
    context: &'a Context,
    pub(crate) models: Models,
    pub(crate) fleet: Fleet,
    embedder: Option<Embedder>,
    crib: Crib,
}

impl AgentArgs {
    /// The model to ask: the one of this name, if one is given here, else the one that options
    /// and configuration amount to.
    pub(crate) async fn choose(
        &self,
        model: Option<&str>,
        context: &Context,
    ) -> anyhow::Result<Chosen> {
        let models = context.config.models()?;
        let said = Wanted {
            provider: self.provider,
            model: self.model.clone(),
            base_url: self.base_url.clone(),
            key_env: None,
        };
        let wanted = Wanted { model: model.map(str::to_owned), ..Wanted::default() }
            .or(said.or(Wanted::from(&context.config.agent), &models), &models);
        model::choose(
            wanted,
            &models,
            &context.env,
            &Local::usual(&context.env),
            output::is_watched(),
        )
        .await
    }

    /// How the engine should behave for this model.
    fn settings(
        &self,
        chosen: &Chosen,
        models: &Models,
        context: &Context,
        strategy: Option<StrategyChoice>,
    ) -> anyhow::Result<Settings> {
        let config = &context.config;
        let mut engine = match chosen.known(models) {
            Some(model) => self.engine.for_model(model, config),
            None => self.engine.clone(),
        };
        engine.strategy = strategy.or(engine.strategy);
        Ok(engine.engine(config)?.settings().clone())
    }
}

impl<'a> Workshop<'a> {
    /// Opens the servers. Nothing of them is listed for sure before they have [settled].
    ///
    /// [settled]: Self::settle
    pub(crate) async fn open(
        args: &'a AgentArgs,
        chosen: &Chosen,
        context: &'a Context,
    ) -> anyhow::Result<Self> {
        let models = context.config.models()?;
        let settings = args.settings(chosen, &models, context, None)?;
        context.config.policy()?;
        let fleet = Fleet::open(context)?;
        fleet.warn(context);
        let embedder = Embedder::open(context);
        let embeddings = embedder.as_ref().map(|embedder| embedder.embeddings.clone());
        let crib = fleet.crib(settings, Naming::Model, embeddings).await?;
        if !fleet.names().contains(&Builtin::Exec.name()) {
            let here = std::env::current_dir().context("there is no current folder")?;
            let environment = context.env.passed_on(&[]);
            let options = Options { roots: vec![here], environment, ..Options::default() };
            match Builtin::Exec.open(&options) {
                Ok(exec) => drop(crib.add(exec).await),
                Err(error) => context.warn(&format!("commands can't be run: {error}")),
            }
        }
        Ok(Self { args, context, models, fleet, embedder, crib })
    }

    /// Waits until every server has listed its tools or failed to, but no longer than this, and
    /// tells of those that failed.
    pub(crate) async fn settle(&self, limit: Duration) {
        let progress = Progress::new(!self.context.quiet);
        let mut changes = self.crib.changes();
        let mut tick = interval_at(Instant::now() + SOON, TICK);
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        loop {
            let catalog = self.crib.catalog();
            let starting = self
                .fleet
                .servers
                .iter()
                .filter(|server| catalog.availability(&server.id()) == Availability::Starting);
            let names: Vec<&str> = starting.map(|server| server.config().name.as_str()).collect();
            if names.is_empty() {
                break;
            }
            tokio::select! {
                _ = changes.changed() => {}
                _ = tick.tick() => {
                    let all = self.fleet.servers.len();
                    let text = format!("starting {}", names.join(", "));
                    progress.bar(all - names.len(), all, &text);
                }
                () = &mut deadline => break,
            }
        }
        drop(progress);
        for server in &self.fleet.servers {
            if let UpstreamState::Failed(reason) = server.status().state {
                let name = &server.config().name;
                self.context.warn(&format!("server `{name}` can't be used: {reason}"));
            }
        }
    }

    /// An agent over all tools, that asks at this desk.
    pub(crate) fn agent(
        &self,
        chosen: &Chosen,
        strategy: Option<StrategyChoice>,
        desk: Desk,
    ) -> anyhow::Result<Agent> {
        let (args, config) = (self.args, &self.context.config);
        let mut settings = args.settings(chosen, &self.models, self.context, strategy)?;
        settings.hosted_search = config.agent.hosted_search.unwrap_or(false);
        let crib = self.crib.under(settings).map_err(Misuse::new)?;
        let options = ModelOptions {
            max_output: config.agent.max_output,
            temperature: config.agent.temperature,
            ..ModelOptions::default()
        };
        let mut limits = RunLimits::default();
        let turns = args.max_turns.map(NonZeroUsize::get).or(config.agent.max_turns);
        limits.turns = turns.unwrap_or(limits.turns);
        let mut compaction = CompactionRules::default();
        compaction.enabled = config.agent.compact.unwrap_or(true);
        let system = args.system.clone().or_else(|| config.agent.system.clone());
        let mut agent = Agent::builder(Arc::clone(&chosen.provider), chosen.model.as_str(), crib);
        if let Some(model) = chosen.known(&self.models) {
            agent = agent.known_as(model);
        }
        let agent = agent
            .system(system.unwrap_or_else(about_here))
            .options(options)
            .policy(config.policy()?)
            .permissions(config.agent.permissions(args.yes).map_err(Misuse::new)?)
            .approver(desk)
            .predict(config.agent.predict.unwrap_or(0))
            .compaction(compaction)
            .limits(limits);
        Ok(agent.build())
    }

    /// Ends every server and keeps what was learned, unless somebody can't wait for it.
    pub(crate) async fn close(&self, signals: &mut Signals) {
        if signals.is_hurried {
            return;
        }
        tokio::select! {
            () = self.fleet.shut_down() => self.embedder.iter().for_each(Embedder::flush),
            _ = signals.next() => {}
        }
    }
}

/// What a model is told that nobody told anything else.
pub(crate) fn about_here() -> String {
    let here = std::env::current_dir().map(|folder| folder.display().to_string());
    let place = here.map(|here| format!(", in the folder {here}")).unwrap_or_default();
    format!(
        "You help a person at a terminal{place}. Use tools where they help, rather than guess. \
         Answer briefly, in Markdown."
    )
}
