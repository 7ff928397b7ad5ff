//! What the engine is asked and what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolcrib_tokens::Tokenizer;

use crate::meta::{self, MetaTool};
use crate::{Definition, Diff, Fingerprint, GroupId, Tool, ToolName};

/// What the model sees at a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Presentation {
    /// To append to the system prompt; empty if there is nothing to say.
    pub system_section: Arc<str>,
    /// The tools array, in order.
    pub tools: Vec<Definition>,
    /// Under native, the tools that the conversation has been given besides: to be declared, each
    /// request anew, in the provider's form for tools that wait. The list only grows, at its end;
    /// for a search of the provider's it has all that can be seen now, and nothing else.
    pub deferred: Vec<Definition>,
    /// Under native, tools that the host has loaded or taken away since the last request, to be
    /// given to the model at the end of the context in the provider's own form.
    pub change: ToolChange,
    /// What changed since the last request, to append at the end of the context, each once.
    pub announcements: Vec<String>,
}

impl Presentation {
    /// A hash over section and tools: equal bytes, equal hash.
    pub fn fingerprint(&self) -> Fingerprint {
        let tools = self.tools.iter().map(|tool| tool.neutral().get().as_bytes());
        Fingerprint::of(std::iter::once(self.system_section.as_bytes()).chain(tools))
    }

    /// What this request adds to the host's own prompt, in tokens (`o200k_base`): for an account
    /// by turn. [`Engine::stats`](crate::Engine::stats) has the account by group, and
    /// [`Tool::tokens`] that by tool.
    pub fn tokens(&self) -> RequestTokens {
        let count = |text: &str| Tokenizer::O200K.count(text).tokens;
        RequestTokens {
            section: count(&self.system_section),
            tools: self.tools.iter().map(Definition::tokens).sum(),
            announcements: self.announcements.iter().map(|text| count(text)).sum::<u64>()
                + self.change.added.iter().map(|added| added.tool.tokens()).sum::<u64>(),
        }
    }
}

/// A tool that a model is given in the middle of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revealed {
    /// The toolset that has it.
    pub group: GroupId,
    /// The tool, as it was when the model was given it.
    pub tool: Definition,
}

/// Tools that come and go in the middle of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolChange {
    /// Tools that can be called from here on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<Revealed>,
    /// The exposed names of tools that can't.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<Arc<str>>,
}

impl ToolChange {
    /// Whether nothing comes or goes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// Tokens of one request, by where they stand in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RequestTokens {
    /// In the system prompt.
    pub section: u64,
    /// In the tools array.
    pub tools: u64,
    /// At the end of the context.
    pub announcements: u64,
}

/// What a turn's beginning brought.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnReport {
    /// The number of the turn, from 1.
    pub turn: u64,
    /// What is different about the catalog since the last turn.
    pub diff: Diff,
    /// Tools that were put out to keep within the token budget.
    pub evicted: Vec<Arc<str>>,
    /// Tools that were loaded because their host registered them for use at once.
    pub preloaded: Vec<Arc<str>>,
}

/// A model's call of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The name as the model wrote it.
    pub name: String,
    /// The arguments as the model wrote them.
    pub arguments: Value,
    pub(crate) failed: BTreeMap<GroupId, String>,
    pub(crate) vector: Option<Result<Vec<f32>, String>>,
}

impl Call {
    /// A call by name with arguments, usually an object.
    pub fn new(name: impl Into<String>, arguments: Value) -> Self {
        Self { name: name.into(), arguments, failed: BTreeMap::new(), vector: None }
    }

    /// The call a model means: what is in the envelope, if it came in one that calls any tool by
    /// name.
    ///
    /// ```
    /// use serde_json::json;
    /// use toolcrib_core::Call;
    ///
    /// let call = Call::new("call_tool", json!({"tool_name": "roll", "arguments": {"sides": 6}}));
    /// assert_eq!(call.target(), Call::new("roll", json!({"sides": 6})));
    /// ```
    pub fn target(&self) -> Self {
        match MetaTool::meant(&self.name) {
            Some(verb) if verb.calls() => meta::envelope(self).unwrap_or_else(|| self.clone()),
            _ => self.clone(),
        }
    }

    /// Whether the name is that of a verb. Where nothing is deferred, a tool may have it.
    pub fn names_verb(&self) -> bool {
        MetaTool::meant(&self.name).is_some()
    }

    /// Notes that a group could not be loaded for this call, so that resolving it again gives
    /// the model the reason. It holds for this call only: the next may try again.
    pub fn without_group(mut self, id: GroupId, reason: impl Into<String>) -> Self {
        self.failed.insert(id, reason.into());
        self
    }

    /// Brings the vector that this call's query needs.
    pub fn with_vector(mut self, vector: Vec<f32>) -> Self {
        self.vector = Some(Ok(vector));
        self
    }

    /// Notes that there is no vector for this call's query, so that resolving it again does
    /// without. The reason is for the trace: the model gets an answer all the same.
    pub fn without_vector(mut self, reason: impl Into<String>) -> Self {
        self.vector = Some(Err(reason.into()));
        self
    }

    pub(crate) fn failure(&self, id: &GroupId) -> Option<&str> {
        self.failed.get(id).map(String::as_str)
    }
}

/// What to do about a call.
#[derive(Clone, Debug)]
pub enum Step {
    /// Nothing more: this is the result.
    Answer(Answer),
    /// Fetch this and resolve the call again.
    Need(Need),
    /// Run the real tool with its real arguments.
    Run(Run),
}

/// What a driver must fetch. More kinds may come.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// The specs of a group: hand them to [`Engine::supply`](crate::Engine::supply), or the
    /// reason why not to [`Call::without_group`].
    Group(GroupId),
    /// The vector of a text, by the embedder that made those of the tools: hand it to
    /// [`Call::with_vector`], or the reason why not to [`Call::without_vector`].
    Vector(Arc<str>),
}

/// A result for the model that needed no tool to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The text of the result.
    pub content: String,
    /// Whether it tells of a mistake.
    pub is_error: bool,
    /// What else came of it.
    pub effects: Effects,
}

/// A call that may run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The tool.
    pub tool: Arc<Tool>,
    /// Its arguments, checked.
    pub arguments: Value,
    /// What else came of it.
    pub effects: Effects,
}

/// What came of a call besides its result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Effects {
    /// Tools newly loaded.
    pub loaded: Vec<ToolName>,
    /// For the audit log: tools asked for that the policy hides. The model was told they are
    /// unknown.
    pub denied: Vec<ToolName>,
    /// For the audit log: tools asked for that are held back until somebody approves them. The
    /// model was told they are unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<ToolName>,
    /// Under native, the tools that the answer gives to the model, loaded before or not: to be
    /// shown in the provider's own form. The answer's text has no schemas then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub revealed: Vec<Revealed>,
    /// Servers likely to be called next.
    pub prewarm: Vec<Arc<str>>,
    /// For the trace.
    pub notes: Vec<String>,
    /// Something asked for is not known. A toolset that is still starting may have it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub missed: bool,
    /// The tool that was called with arguments that don't fit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfit: Option<ToolName>,
    /// What was searched for by words, and which tools were listed for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searched: Option<Searched>,
}

/// A search by words that was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Searched {
    /// The query as it was given.
    pub query: String,
    /// The tools that were listed, best first.
    pub tools: Vec<ToolName>,
}

impl Answer {
    /// `{"error": …}`.
    pub(crate) fn mistake(error: &str, effects: Effects) -> Self {
        #[derive(Serialize)]
        struct Mistake<'a> {
            error: &'a str,
        }
        Self::json(&Mistake { error }, true, effects)
    }

    /// A result that is one JSON value.
    pub(crate) fn json(value: &impl Serialize, is_error: bool, effects: Effects) -> Self {
        // Our own types with string keys: they serialise.
        let content = serde_json::to_string(value).unwrap_or_default();
        Self { content, is_error, effects }
    }
}

impl From<Answer> for Step {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}
