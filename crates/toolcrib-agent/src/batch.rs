//! The calls of one reply: each is prepared, run and finished. Preparing goes in order, so that a
//! call may use what an earlier one loads; it gives something that can run, or a result.

use std::time::Instant;

use futures::future::join_all;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::{Call, ToolName};
use toolcrib_runtime::{CallError, Caller, Listener, Ready, Resolved, ToolResult};

use crate::event::{CallRecord, Event};
use crate::hooks::{PendingCall, Verdict};
use crate::message::{CallResult, Part, ToolCall};
use crate::permission::{Approval, Permission};
use crate::repeats::{Repeats, warning};
use crate::results;
use crate::run::{Emitter, Run};

/// What came of the calls of one reply.
pub(crate) struct Batch {
    /// One per call, in order.
    pub(crate) results: Vec<CallResult>,
    pub(crate) records: Vec<CallRecord>,
    /// Why the run can't go on, if a tool's host said so.
    pub(crate) stop: Option<String>,
    /// What has been called too often in vain.
    pub(crate) repeating: Option<String>,
}

/// A call that has been understood.
enum Prepared {
    Run { ready: Box<Ready>, call: PendingCall },
    Answered(Answered),
}

/// A call that needs no tool to run any more.
struct Answered {
    name: String,
    arguments: Value,
    result: ToolResult,
    /// Whether it is a verb, which a record of calls leaves out.
    is_verb: bool,
}

/// What came of one call.
struct Finished {
    name: String,
    arguments: Value,
    result: CallResult,
    is_verb: bool,
    stop: Option<String>,
}

const CANCELLED: &str = "Cancelled by the user before it ran.";

const CANCELLED_RUNNING: &str =
    "Cancelled by the user while it ran. It may or may not have taken effect.";

const CUT: &str = "The answer reached its longest length in the middle of this call, so nothing \
                   was run. Call again with shorter arguments, or in several steps.";

impl Run<'_> {
    /// Runs the calls of a reply; `cut` if the reply was cut off at its longest length.
    pub(crate) async fn batch(
        &self,
        calls: &[ToolCall],
        cut: bool,
        repeats: &mut Repeats,
    ) -> Batch {
        let mut prepared = Vec::with_capacity(calls.len());
        for call in calls {
            prepared.push(self.prepare(call, cut).await);
        }
        let alone = prepared.iter().any(|prepared| match prepared {
            Prepared::Run { ready, .. } => ready.tool().spec().is_sequential(),
            Prepared::Answered(_) => false,
        });
        let pairs = calls.iter().zip(prepared);
        let finished: Vec<Finished> = if alone {
            let mut finished = Vec::with_capacity(calls.len());
            for (call, prepared) in pairs {
                finished.push(self.execute(call, prepared).await);
            }
            finished
        } else {
            join_all(pairs.map(|(call, prepared)| self.execute(call, prepared))).await
        };
        self.finish(calls, finished, repeats)
    }

    async fn prepare(&self, call: &ToolCall, cut: bool) -> Prepared {
        let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        let parsed = serde_json::from_str::<Value>(text);
        let is_broken = parsed.is_err();
        // What is not JSON is shown to the engine as it is: its answer has the schema in it.
        let arguments = parsed.unwrap_or_else(|_| Value::String(text.to_owned()));
        let call_as_made = Call::new(call.name.clone(), arguments);
        if self.cancel.is_cancelled() {
            return Prepared::Answered(answered(&call_as_made, ToolResult::error(CANCELLED)));
        }
        if cut && is_broken {
            return Prepared::Answered(answered(&call_as_made, ToolResult::error(CUT)));
        }
        let meant = self.agent.hooks.resolve(call_as_made).await;
        let resolved = tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                return Prepared::Answered(answered(&meant, ToolResult::error(CANCELLED)));
            }
            resolved = self.conversation.resolve(meant.clone()) => resolved,
        };
        match resolved {
            Resolved::Done(outcome) => {
                self.tell_loaded(&outcome.effects.loaded).await;
                Prepared::Answered(answered(&meant, outcome.result))
            }
            Resolved::Ready(ready) => {
                self.tell_loaded(ready.loaded()).await;
                self.permit(call, ready).await
            }
        }
    }

    async fn tell_loaded(&self, loaded: &[ToolName]) {
        if loaded.is_empty() {
            return;
        }
        let tools = loaded.iter().map(ToString::to_string).collect();
        self.emit.tell(Event::Loaded { tools }).await;
        self.agent.hooks.on_tools_expanded(loaded).await;
    }

    /// Asks everybody who has a say.
    async fn permit(&self, call: &ToolCall, ready: Ready) -> Prepared {
        let mut pending = PendingCall {
            id: call.id.clone(),
            tool: ready.tool().name().clone(),
            name: ready.tool().exposed().clone(),
            arguments: ready.arguments().clone(),
            annotations: *ready.tool().spec().annotations(),
        };
        let ruling = self.agent.hooks.rule(&pending).await;
        let ready = match ruling.rewritten {
            None => ready,
            Some(arguments) => {
                pending.arguments = arguments;
                match self.conversation.rewrite(ready, &pending.arguments) {
                    Resolved::Ready(ready) => {
                        pending.arguments = ready.arguments().clone();
                        ready
                    }
                    Resolved::Done(outcome) => return refused(pending, outcome.result),
                }
            }
        };
        let denial = match (self.agent.permissions.of(ready.tool()), ruling.verdict) {
            (_, Verdict::Deny(reason)) => Some(reason),
            (Permission::Deny, _) => Some("The user's rules do not permit this tool.".to_owned()),
            (_, Verdict::Ask) | (Permission::Ask, Verdict::Pass) => self.ask_person(&pending).await,
            _ => None,
        };
        match denial {
            None => Prepared::Run { ready: Box::new(ready), call: pending },
            Some(reason) => {
                let text = format!("`{}` was not run: {reason}", pending.name);
                refused(pending, ToolResult::error(text))
            }
        }
    }

    /// Asks a person, unless they have answered before; says why not, if not.
    async fn ask_person(&self, call: &PendingCall) -> Option<String> {
        let denied = || "The user said no.".to_owned();
        match self.remembered.get(&call.tool) {
            Some(true) => return None,
            Some(false) => return Some(denied()),
            None => {}
        }
        let Some(approver) = &self.agent.approver else {
            return Some(
                "It needs a person's permission, and nobody can be asked here.".to_owned(),
            );
        };
        let (id, name) = (call.id.clone(), call.name.to_string());
        self.emit.tell(Event::Asked { id, name, arguments: call.arguments.clone() }).await;
        let approval = tokio::select! {
            biased;
            () = self.cancel.cancelled() => None,
            approval = approver.ask(call) => Some(approval),
        };
        let denial = match approval {
            Some(Approval::Once) => None,
            Some(Approval::Always) => {
                self.remembered.keep(&call.tool, true);
                None
            }
            Some(Approval::Never) => {
                self.remembered.keep(&call.tool, false);
                Some(denied())
            }
            Some(Approval::No(None)) => Some(denied()),
            Some(Approval::No(Some(words))) => Some(format!("The user said no: {words}")),
            None => Some("The user cancelled.".to_owned()),
        };
        self.emit.tell(Event::Answered { id: call.id.clone(), allowed: denial.is_none() }).await;
        denial
    }

    async fn execute(&self, made: &ToolCall, prepared: Prepared) -> Finished {
        let started = Instant::now();
        let (name, arguments) = match &prepared {
            Prepared::Run { call, .. } => (call.name.to_string(), call.arguments.clone()),
            Prepared::Answered(it) => (it.name.clone(), it.arguments.clone()),
        };
        let id = made.id.clone();
        self.emit
            .tell(Event::CallStarted { id, name: name.clone(), arguments: arguments.clone() })
            .await;
        let (result, most, is_verb, stop) = match prepared {
            // An answer of the engine's has limits of its own, and every byte of a schema counts.
            Prepared::Answered(Answered { result, is_verb, .. }) => (result, None, is_verb, None),
            Prepared::Run { ready, call } => {
                let (result, stop) = self.run_tool(*ready, &call).await;
                (result, Some(self.agent.limits.result_bytes), false, stop)
            }
        };
        let result = CallResult {
            call_id: made.id.clone(),
            name: made.name.clone(),
            content: results::parts(&result, most),
            is_error: result.is_error(),
        };
        let took = started.elapsed();
        self.emit
            .tell(Event::CallFinished { name: name.clone(), result: result.clone(), took })
            .await;
        Finished { name, arguments, result, is_verb, stop }
    }

    /// Runs a tool; says why the run can't go on, if that is so.
    async fn run_tool(&self, ready: Ready, call: &PendingCall) -> (ToolResult, Option<String>) {
        if self.cancel.is_cancelled() {
            return (ToolResult::error(CANCELLED), None);
        }
        let limit = self.agent.limits.call;
        let listener = Progress { emit: self.emit.clone(), id: call.id.clone() };
        let running = self.conversation.run(ready.on_behalf_of(Caller::new(listener)));
        let outcome = tokio::select! {
            biased;
            () = self.cancel.cancelled() => {
                return (ToolResult::error(CANCELLED_RUNNING), None);
            }
            outcome = tokio::time::timeout(limit, running) => outcome,
        };
        match outcome {
            Ok(Ok(outcome)) => (self.agent.hooks.after_tool_call(call, outcome.result).await, None),
            Ok(Err(CallError::Stop(reason))) => (ToolResult::error(reason.clone()), Some(reason)),
            Ok(Err(CallError::Tell(text))) => (ToolResult::error(text), None),
            Err(_) => {
                let text = format!(
                    "`{}` did not answer within {limit:?} and was given up on. It may or may not \
                     have taken effect.",
                    call.name
                );
                (ToolResult::error(text), None)
            }
        }
    }

    fn finish(&self, calls: &[ToolCall], finished: Vec<Finished>, repeats: &mut Repeats) -> Batch {
        let limits = &self.agent.limits;
        let mut batch =
            Batch { results: Vec::new(), records: Vec::new(), stop: None, repeating: None };
        for (call, finished) in calls.iter().zip(finished) {
            let Finished { name, arguments, mut result, is_verb, stop } = finished;
            let times = repeats.note(call, &result);
            if times >= limits.repeats_warn {
                result.content.push(Part::text(warning(times)));
            }
            if times >= limits.repeats_end {
                batch.repeating.get_or_insert_with(|| name.clone());
            }
            batch.stop = batch.stop.or(stop);
            if !is_verb {
                batch.records.push(CallRecord { name, arguments, is_error: result.is_error });
            }
            batch.results.push(result);
        }
        batch
    }
}

fn answered(call: &Call, result: ToolResult) -> Answered {
    let target = call.target();
    let is_verb = target.names_verb();
    Answered { name: target.name, arguments: target.arguments, result, is_verb }
}

fn refused(call: PendingCall, result: ToolResult) -> Prepared {
    let (name, arguments) = (call.name.to_string(), call.arguments);
    Prepared::Answered(Answered { name, arguments, result, is_verb: false })
}

/// Passes on what a tool's server says while it works.
struct Progress {
    emit: Emitter,
    id: String,
}

impl Listener for Progress {
    fn hear(&self, method: &str, params: &RawValue) {
        if method == "notifications/progress"
            && let Ok(progress) = serde_json::from_str(params.get())
        {
            self.emit.send(Event::Progress { id: self.id.clone(), progress });
        }
    }
}
