//! Which tools may run, and which a person is asked about.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use toolcrib_core::{PatternError, Policy, PolicyRules, Tool, ToolName};

use crate::hooks::PendingCall;

/// Whether a tool may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// It may.
    Allow,
    /// A person is asked first. Where nobody can be, it may not.
    Ask,
    /// It may not. Unlike a tool that a policy hides, the model knows of it and is told.
    Deny,
}

/// A rule about tools, as it stands in a configuration.
///
/// ```
/// use toolcrib_agent::{Permission, Rule};
///
/// let rule: Rule = serde_json::from_str(r#"{"tools": ["git/*"], "read_only": true, "then": "allow"}"#)?;
/// assert_eq!(rule.then, Permission::Allow);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The tools, by patterns over the exposed name, `server/tool`, `server.tool` or the tool's
    /// own name; all of them if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Only those that say they change nothing; or only the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Only those that may destroy something; or only those that say they don't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Whether they may run.
    pub then: Permission,
}

impl Rule {
    /// Lets run what says it changes nothing.
    pub fn reading() -> Self {
        Self { tools: None, read_only: Some(true), destructive: None, then: Permission::Allow }
    }
}

/// Rules in order, of which the first that fits decides.
///
/// What a tool says about itself is as trustworthy as the server it comes from.
#[derive(Clone, Debug)]
pub struct Permissions {
    rules: Arc<[(Rule, Policy)]>,
    otherwise: Permission,
}

impl Permissions {
    /// Rules, and what holds where none fits.
    pub fn new(
        rules: impl IntoIterator<Item = Rule>,
        otherwise: Permission,
    ) -> Result<Self, PatternError> {
        let compile = |rule: Rule| {
            let of = PolicyRules { allow_tools: rule.tools.clone(), ..PolicyRules::default() };
            Ok((rule, Policy::new(of)?))
        };
        let rules: Result<_, PatternError> = rules.into_iter().map(compile).collect();
        Ok(Self { rules: rules?, otherwise })
    }

    /// Everything may run.
    pub fn allow_all() -> Self {
        Self { rules: Arc::new([]), otherwise: Permission::Allow }
    }

    /// A person is asked about everything but what says it changes nothing.
    pub fn ask() -> Self {
        let reading = (Rule::reading(), Policy::default());
        Self { rules: Arc::new([reading]), otherwise: Permission::Ask }
    }

    /// Whether a tool may run.
    pub fn of(&self, tool: &Tool) -> Permission {
        let annotations = tool.spec().annotations();
        let fits = |(rule, of): &&(Rule, Policy)| {
            rule.read_only.is_none_or(|wanted| wanted == annotations.is_read_only())
                && rule.destructive.is_none_or(|wanted| wanted == annotations.is_destructive())
                && of.admits_tool(tool)
        };
        self.rules.iter().find(fits).map_or(self.otherwise, |(rule, _)| rule.then)
    }
}

/// Asks a person whether a tool may run.
pub trait Approver: Send + Sync + 'static {
    /// Asks. The run waits, and asks one question at a time; runs at the same time may each ask
    /// one.
    fn ask<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Approval>;
}

impl<A: Approver + ?Sized> Approver for Arc<A> {
    fn ask<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Approval> {
        (**self).ask(call)
    }
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approval {
    /// This once.
    Once,
    /// And from now on in this conversation, whatever the arguments.
    Always,
    /// Not this time; with words for the model, if there are any.
    No(Option<String>),
    /// Nor later in this conversation.
    Never,
}

/// The answers that hold for a conversation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered(Arc<Mutex<BTreeMap<ToolName, bool>>>);

impl Remembered {
    pub(crate) fn get(&self, tool: &ToolName) -> Option<bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tool).copied()
    }

    pub(crate) fn keep(&self, tool: &ToolName, allowed: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(tool.clone(), allowed);
    }

    /// The same answers, for a conversation that goes its own way from here.
    pub(crate) fn fork(&self) -> Self {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Self(Arc::new(Mutex::new(answers)))
    }
}
