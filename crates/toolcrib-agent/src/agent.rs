//! An agent: a model, tools, and the rules between them.

use std::sync::Arc;
use std::time::Duration;

use toolcrib_core::{
    Policy, ResumeError, ResumeReport, Saved, Session, Snapshot, Strategy, StrategyChoice,
};
use toolcrib_runtime::Crib;
use toolcrib_tokens::{Feature, Model};

use crate::chat::Chat;
use crate::compaction::CompactionRules;
use crate::hooks::{Chain, Hooks};
use crate::message::Message;
use crate::permission::{Approver, Permissions};
use crate::provider::{ModelOptions, Provider};
use crate::spending::{Meter, Spent};

/// A model, tools, and the rules between them. A handle: clones are the same agent, and any
/// number of conversations may run on it at once.
///
/// ```
/// use toolcrib_agent::{Agent, Scripted, Turn};
/// use toolcrib_core::Settings;
/// use toolcrib_runtime::{Crib, function};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let crib = Crib::builder(Settings::default())
///     .function(function("now", "The time.", |_: ()| async { "noon" }))
///     .build()
///     .await?;
/// // In place of a model: two answers, the first of which calls a tool.
/// let model = Scripted::new([Turn::call("now", serde_json::json!({})), Turn::text("It is noon.")]);
///
/// let agent = Agent::builder(model, "scripted", crib).system("Be brief.").build();
/// let answer = agent.chat().send("What time is it?").await;
/// assert_eq!((answer.text.as_str(), answer.turns), ("It is noon.", 2));
/// assert_eq!(answer.calls[0].name, "now");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Agent(pub(crate) Arc<Parts>);

#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) model: Arc<str>,
    pub(crate) crib: Crib,
    pub(crate) system: Arc<str>,
    pub(crate) options: Arc<ModelOptions>,
    pub(crate) sees_images: bool,
    /// What a table knows of the model.
    pub(crate) known: Option<Arc<Model>>,
    /// How many tools are offered before the model has searched for any.
    pub(crate) predict: usize,
    pub(crate) policy: Policy,
    pub(crate) hooks: Chain,
    pub(crate) permissions: Permissions,
    pub(crate) approver: Option<Arc<dyn Approver>>,
    pub(crate) limits: RunLimits,
    pub(crate) compaction: CompactionRules,
}

/// How far a run may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunLimits {
    /// How often the model is asked; three times as often while schemas are held back, since
    /// finding tools takes rounds of its own.
    pub turns: usize,
    /// How long a tool may take.
    pub call: Duration,
    /// The most bytes of text in a result; a longer one loses its middle.
    pub result_bytes: usize,
    /// How often a request is sent again after a failure.
    pub retries: u32,
    /// The longest pause before one, whatever the provider asks for.
    pub wait: Duration,
    /// From how many equal calls with equal results on the model is warned.
    pub repeats_warn: usize,
    /// At how many the run ends.
    pub repeats_end: usize,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            turns: 25,
            call: Duration::from_secs(600),
            result_bytes: 100_000,
            retries: 4,
            wait: Duration::from_secs(60),
            repeats_warn: 3,
            repeats_end: 6,
        }
    }
}

impl Parts {
    /// Whether the model, through this provider, has a form of its own for tools that wait.
    pub(crate) fn is_native(&self) -> bool {
        self.provider.native().is_some_and(|feature| self.can(feature))
    }

    pub(crate) fn can(&self, feature: Feature) -> bool {
        self.known.as_ref().is_some_and(|model| model.can(feature))
    }

    /// The strategy, unless it is native and that can't be: then why.
    fn native_or(&self, strategy: Strategy) -> Result<Strategy, String> {
        let settings = self.crib.engine().settings();
        match strategy {
            Strategy::Native if !self.is_native() => Err(self.without_native()),
            Strategy::Native if settings.strategy == StrategyChoice::Dispatch => {
                let text = "strategy `dispatch` is used in place of `native`, as the settings say";
                Err(text.to_owned())
            }
            other => Ok(other),
        }
    }

    /// Why a conversation is not had natively that should be.
    pub(crate) fn without_native(&self) -> String {
        format!(
            "`{}` is not known to have a form of its own for tools that wait, so strategy \
             `dispatch` is used in place of `native`",
            self.model
        )
    }
}

impl Agent {
    /// Begins to make an agent.
    pub fn builder(
        provider: impl Provider,
        model: impl Into<Arc<str>>,
        crib: Crib,
    ) -> AgentBuilder {
        AgentBuilder {
            parts: Parts {
                provider: Arc::new(provider),
                model: model.into(),
                crib,
                system: "".into(),
                options: Arc::default(),
                sees_images: true,
                known: None,
                predict: 0,
                policy: Policy::default(),
                hooks: Chain::default(),
                permissions: Permissions::allow_all(),
                approver: None,
                limits: RunLimits::default(),
                compaction: CompactionRules::default(),
            },
        }
    }

    /// Begins a conversation.
    pub fn chat(&self) -> Chat {
        let conversation = self.0.crib.converse(Session::new(), self.0.policy.clone());
        Chat::new(self.clone(), conversation, Vec::new())
    }

    /// The tools it has.
    pub fn crib(&self) -> &Crib {
        &self.0.crib
    }

    /// What it may know of.
    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// The model it asks.
    pub fn model(&self) -> &str {
        &self.0.model
    }

    /// Which tools may run.
    pub fn permissions(&self) -> &Permissions {
        &self.0.permissions
    }

    /// How far its runs may go.
    pub fn limits(&self) -> &RunLimits {
        &self.0.limits
    }

    /// Brings a conversation back from what was kept of it: what it had loaded, and its history.
    /// What is no longer there is reported, and stops nothing.
    pub async fn resume(
        &self,
        saved: Saved,
        strategy: Strategy,
        history: Vec<Arc<Message>>,
    ) -> Result<(Chat, ResumeReport), ResumeError> {
        let (saved, strategy, note) = match saved {
            Saved::Snapshot(snapshot) => {
                let (snapshot, strategy, note) = self.can_go_on(*snapshot, strategy);
                (Saved::Snapshot(Box::new(snapshot)), strategy, note)
            }
            groups @ Saved::ExpandedGroups(_) => match self.0.native_or(strategy) {
                Ok(strategy) => (groups, strategy, None),
                Err(note) => (groups, Strategy::Dispatch, Some(note)),
            },
        };
        let resumed = self.0.crib.resume(saved, strategy, self.0.policy.clone()).await?;
        let (conversation, mut report) = resumed;
        report.notes.extend(note);
        Ok((Chat::new(self.clone(), conversation, history), report))
    }

    /// Adds up what a conversation with it costs, which has cost this much before.
    pub(crate) fn meter(&self, spent: Spent) -> Meter {
        Meter::new(self.0.known.as_deref().cloned(), spent)
    }

    /// What a conversation goes on as here, and what is different about that.
    pub(crate) fn can_go_on(
        &self,
        snapshot: Snapshot,
        strategy: Strategy,
    ) -> (Snapshot, Strategy, Option<String>) {
        match self.0.native_or(strategy) {
            Ok(strategy) => (snapshot, strategy, None),
            Err(note) => (snapshot.without_native(), Strategy::Dispatch, Some(note)),
        }
    }
}

/// Makes an [`Agent`].
pub struct AgentBuilder {
    parts: Parts,
}

impl AgentBuilder {
    /// What the model is told at the start, before the catalog of tools.
    pub fn system(mut self, text: impl Into<Arc<str>>) -> Self {
        self.parts.system = text.into();
        self
    }

    /// How the model should answer.
    pub fn options(mut self, options: ModelOptions) -> Self {
        self.parts.options = Arc::new(options);
        self
    }

    /// What a table knows of the model: whether it sees pictures, how long its answers may be
    /// unless the options say so, how long its window is, what it costs, and whether it has a form
    /// of its own for tools that wait.
    pub fn known_as(mut self, model: &Model) -> Self {
        self.parts.sees_images = model.can(Feature::Images);
        self.parts.known = Some(Arc::new(model.clone()));
        self
    }

    /// Offers so many tools, those likeliest to be needed, at the end of the first message that a
    /// conversation begins with, which saves a search when they are the right ones. None unless
    /// told: their schemas are paid for whether or not they are used.
    pub fn predict(mut self, most: usize) -> Self {
        self.parts.predict = most;
        self
    }

    /// Which tools its conversations may know of. An empty list of allowed tools stays empty.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.parts.policy = policy;
        self
    }

    /// Takes part in its runs, after the hooks that were given before.
    pub fn hooks(mut self, hooks: impl Hooks) -> Self {
        self.parts.hooks.push(Arc::new(hooks));
        self
    }

    /// Which tools may run. Unless told, all may: a host knows what it has registered.
    /// [`Permissions::ask`] has a person asked about what may change something.
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.parts.permissions = permissions;
        self
    }

    /// Who is asked about tools.
    pub fn approver(mut self, approver: impl Approver) -> Self {
        self.parts.approver = Some(Arc::new(approver));
        self
    }

    /// When a conversation is compacted, and what stays of it.
    pub fn compaction(mut self, rules: CompactionRules) -> Self {
        self.parts.compaction = rules;
        self
    }

    /// How far a run may go.
    pub fn limits(mut self, limits: RunLimits) -> Self {
        self.parts.limits = limits;
        self
    }

    /// The agent.
    pub fn build(self) -> Agent {
        let Self { mut parts } = self;
        let output = parts.known.as_ref().and_then(|model| model.output);
        if parts.options.max_output.is_none() && output.is_some() {
            Arc::make_mut(&mut parts.options).max_output = output;
        }
        Agent(Arc::new(parts))
    }
}
