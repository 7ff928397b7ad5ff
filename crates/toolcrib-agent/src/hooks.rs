//! Where a host takes part in a run.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::Value;
use toolcrib_core::{Annotations, Call, ToolName};
use toolcrib_runtime::ToolResult;

use crate::event::Answer;
use crate::message::Message;
use crate::provider::{Reply, Request};

/// Where a host takes part in a run. Each method does nothing unless written.
///
/// Several hooks compose: each gets what the one before it made; of verdicts on a call the
/// strictest holds. Those about calls see tools by their real names with their real arguments,
/// never the envelope of a dispatcher, and are not asked about verbs, which run nothing. A run
/// that is cancelled doesn't wait for a hook.
///
/// ```
/// use futures::future::{BoxFuture, FutureExt, ready};
/// use toolcrib_agent::{Hooks, PendingCall, Verdict};
///
/// struct OfficeHours;
///
/// impl Hooks for OfficeHours {
///     fn before_tool_call<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Verdict> {
///         let verdict = if call.tool.tool().starts_with("delete_") {
///             Verdict::Deny("Nothing is deleted at night.".into())
///         } else {
///             Verdict::Pass
///         };
///         ready(verdict).boxed()
///     }
/// }
/// ```
pub trait Hooks: Send + Sync + 'static {
    /// Changes what the model gets to see of the conversation. The history stays as it is.
    fn transform_context(&self, messages: Vec<Arc<Message>>) -> BoxFuture<'_, Vec<Arc<Message>>> {
        ready(messages).boxed()
    }

    /// Changes the system prompt, the catalog of tools included. The same prompt should become
    /// the same text, or the provider's cache is lost.
    fn transform_system_prompt(&self, prompt: String) -> BoxFuture<'_, String> {
        ready(prompt).boxed()
    }

    /// Turns messages of the host's own kinds into ones a model understands. What remains
    /// [`Message::Host`] is left out of the request.
    fn convert_to_llm(&self, messages: Vec<Arc<Message>>) -> BoxFuture<'_, Vec<Arc<Message>>> {
        ready(messages).boxed()
    }

    /// Sees the request before it is sent, and may change it.
    fn before_model<'a>(&'a self, _request: &'a mut Request) -> BoxFuture<'a, Flow> {
        ready(Flow::Continue).boxed()
    }

    /// Sees the model's answer before it is kept, and may change it.
    fn after_model_response<'a>(&'a self, _reply: &'a mut Reply) -> BoxFuture<'a, Flow> {
        ready(Flow::Continue).boxed()
    }

    /// Makes another call of one: by another name, with other arguments. The name is the one the
    /// model used, without an envelope.
    fn resolve_tool_call<'a>(&'a self, _call: &'a Call) -> BoxFuture<'a, Option<Call>> {
        ready(None).boxed()
    }

    /// Says whether a tool may run.
    fn before_tool_call<'a>(&'a self, _call: &'a PendingCall) -> BoxFuture<'a, Verdict> {
        ready(Verdict::Pass).boxed()
    }

    /// Sees what came of a call that was let run, and may change it.
    fn after_tool_call<'a>(
        &'a self,
        _call: &'a PendingCall,
        result: ToolResult,
    ) -> BoxFuture<'a, ToolResult> {
        ready(result).boxed()
    }

    /// Tools have been loaded.
    fn on_tools_expanded<'a>(&'a self, _tools: &'a [ToolName]) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    /// Whether to stop once the model's calls are answered.
    fn should_stop<'a>(&'a self, _history: &'a [Arc<Message>]) -> BoxFuture<'a, Flow> {
        ready(Flow::Continue).boxed()
    }

    /// The run has ended.
    fn on_run_end<'a>(&'a self, _answer: &'a Answer) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }
}

impl<H: Hooks + ?Sized> Hooks for Arc<H> {
    fn transform_context(&self, messages: Vec<Arc<Message>>) -> BoxFuture<'_, Vec<Arc<Message>>> {
        (**self).transform_context(messages)
    }

    fn transform_system_prompt(&self, prompt: String) -> BoxFuture<'_, String> {
        (**self).transform_system_prompt(prompt)
    }

    fn convert_to_llm(&self, messages: Vec<Arc<Message>>) -> BoxFuture<'_, Vec<Arc<Message>>> {
        (**self).convert_to_llm(messages)
    }

    fn before_model<'a>(&'a self, request: &'a mut Request) -> BoxFuture<'a, Flow> {
        (**self).before_model(request)
    }

    fn after_model_response<'a>(&'a self, reply: &'a mut Reply) -> BoxFuture<'a, Flow> {
        (**self).after_model_response(reply)
    }

    fn resolve_tool_call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Option<Call>> {
        (**self).resolve_tool_call(call)
    }

    fn before_tool_call<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Verdict> {
        (**self).before_tool_call(call)
    }

    fn after_tool_call<'a>(
        &'a self,
        call: &'a PendingCall,
        result: ToolResult,
    ) -> BoxFuture<'a, ToolResult> {
        (**self).after_tool_call(call, result)
    }

    fn on_tools_expanded<'a>(&'a self, tools: &'a [ToolName]) -> BoxFuture<'a, ()> {
        (**self).on_tools_expanded(tools)
    }

    fn should_stop<'a>(&'a self, history: &'a [Arc<Message>]) -> BoxFuture<'a, Flow> {
        (**self).should_stop(history)
    }

    fn on_run_end<'a>(&'a self, answer: &'a Answer) -> BoxFuture<'a, ()> {
        (**self).on_run_end(answer)
    }
}

/// Whether a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// It does.
    Continue,
    /// It ends, for this reason.
    Stop(String),
}

/// A call of a tool that may be about to run.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingCall {
    /// The id of the call.
    pub id: String,
    /// The tool.
    pub tool: ToolName,
    /// The name a model knows it by.
    pub name: Arc<str>,
    /// Its arguments, checked against its schema.
    pub arguments: Value,
    /// What it says about its own effects.
    pub annotations: Annotations,
}

/// What a hook says about a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing: the permissions decide.
    Pass,
    /// It may run; nobody need be asked. What the permissions deny stays denied.
    Allow,
    /// Nothing for or against it, but with these arguments. They are checked again.
    Rewrite(Value),
    /// A person should be asked.
    Ask,
    /// It may not, for a reason the model is told.
    Deny(String),
}

/// Hooks in the order they were given.
#[derive(Clone, Default)]
pub(crate) struct Chain(Vec<Arc<dyn Hooks>>);

impl Chain {
    pub(crate) fn push(&mut self, hooks: Arc<dyn Hooks>) {
        self.0.push(hooks);
    }

    /// What the model gets to see of a history.
    pub(crate) async fn context(&self, mut messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        for hooks in &self.0 {
            messages = hooks.transform_context(messages).await;
        }
        for hooks in &self.0 {
            messages = hooks.convert_to_llm(messages).await;
        }
        messages
    }

    pub(crate) async fn system_prompt(&self, mut prompt: String) -> String {
        for hooks in &self.0 {
            prompt = hooks.transform_system_prompt(prompt).await;
        }
        prompt
    }

    pub(crate) async fn before_model(&self, request: &mut Request) -> Flow {
        for hooks in &self.0 {
            if let stop @ Flow::Stop(_) = hooks.before_model(request).await {
                return stop;
            }
        }
        Flow::Continue
    }

    pub(crate) async fn after_model_response(&self, reply: &mut Reply) -> Flow {
        for hooks in &self.0 {
            if let stop @ Flow::Stop(_) = hooks.after_model_response(reply).await {
                return stop;
            }
        }
        Flow::Continue
    }

    pub(crate) async fn resolve(&self, mut call: Call) -> Call {
        for hooks in &self.0 {
            let meant = call.target();
            if meant.names_verb() {
                return call;
            }
            if let Some(other) = hooks.resolve_tool_call(&meant).await {
                call = other;
            }
        }
        call
    }

    /// Asks about a call; `check` looks at arguments that a hook has rewritten before the next
    /// one sees them. Gives the strictest verdict, or what `check` says against the arguments.
    pub(crate) async fn rule<E>(
        &self,
        call: &mut PendingCall,
        mut check: impl FnMut(&mut PendingCall, Value) -> Result<(), E>,
    ) -> Result<Verdict, E> {
        let mut strictest = Verdict::Pass;
        for hooks in &self.0 {
            match hooks.before_tool_call(call).await {
                Verdict::Rewrite(arguments) => check(call, arguments)?,
                deny @ Verdict::Deny(_) => return Ok(deny),
                Verdict::Ask => strictest = Verdict::Ask,
                Verdict::Allow if strictest == Verdict::Pass => strictest = Verdict::Allow,
                Verdict::Allow | Verdict::Pass => {}
            }
        }
        Ok(strictest)
    }

    pub(crate) async fn after_tool_call(
        &self,
        call: &PendingCall,
        mut result: ToolResult,
    ) -> ToolResult {
        for hooks in &self.0 {
            result = hooks.after_tool_call(call, result).await;
        }
        result
    }

    pub(crate) async fn on_tools_expanded(&self, tools: &[ToolName]) {
        for hooks in &self.0 {
            hooks.on_tools_expanded(tools).await;
        }
    }

    pub(crate) async fn should_stop(&self, history: &[Arc<Message>]) -> Flow {
        for hooks in &self.0 {
            if let stop @ Flow::Stop(_) = hooks.should_stop(history).await {
                return stop;
            }
        }
        Flow::Continue
    }

    pub(crate) async fn on_run_end(&self, answer: &Answer) {
        for hooks in &self.0 {
            hooks.on_run_end(answer).await;
        }
    }
}
