//! The calls of one reply: each is prepared, run and finished. Preparing goes in order, so that a
//! call may use what an earlier one loads; it gives something that can run, or a result.

use std::time::Instant;

use futures::future::join_all;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::{Call, Revealed, ToolName};
use toolcrib_runtime::{
    CallError, CallMark, Caller, Content, Listener, Ready, Resolved, ToolResult,
};

use crate::event::{CallRecord, Event};
use crate::history::failure;
use crate::hooks::{PendingCall, Verdict};
use crate::keeping::made;
use crate::message::{CallResult, Part, ToolCall};
use crate::permission::{Approval, Permission};
use crate::repeats::Repeats;
use crate::results;
use crate::run::{Cancelled, Emitter, Run};

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

impl Prepared {
    /// The same call, which is not to run any more.
    fn left_out(self, reason: &str) -> Self {
        match self {
            Self::Run { call, .. } => refused(call, ToolResult::error(reason)),
            answered @ Self::Answered(_) => answered,
        }
    }
}

/// A call that needs no tool to run any more.
struct Answered {
    name: String,
    arguments: Value,
    result: ToolResult,
    /// Whether it is a verb, which a record of calls leaves out.
    is_verb: bool,
    /// Tools that it gives to the model.
    revealed: Vec<Revealed>,
}

impl Answered {
    /// An answer of the engine's has limits of its own, and every byte of a schema counts.
    fn as_result(&self, made: &ToolCall) -> CallResult {
        let (call_id, name) = (made.id.clone(), made.name.clone());
        let says_nothing = self.result.content().iter().all(|content| match content {
            Content::Text(text) => text.is_empty(),
            Content::Block(_) => false,
        });
        let content = if says_nothing && !self.revealed.is_empty() {
            Vec::new()
        } else {
            results::parts(&self.result, None)
        };
        let (is_error, revealed) = (self.result.is_error(), self.revealed.clone());
        CallResult { call_id, name, content, is_error, revealed }
    }
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
        for (place, call) in calls.iter().enumerate() {
            let may_be_cut = cut && place + 1 == calls.len();
            prepared.push(self.prepare(call, may_be_cut).await);
        }
        let alone = prepared.iter().any(|prepared| match prepared {
            Prepared::Run { ready, .. } => ready.tool().spec().is_sequential(),
            Prepared::Answered(_) => false,
        });
        let pairs = calls.iter().zip(prepared);
        let finished: Vec<Finished> = if alone {
            let mut finished: Vec<Finished> = Vec::with_capacity(calls.len());
            for (call, prepared) in pairs {
                let stop = finished.iter().find_map(|it| it.stop.as_deref());
                let prepared = match stop {
                    Some(reason) => {
                        let left_out = prepared.left_out(&format!("Nothing was run: {reason}"));
                        if let Prepared::Answered(answered) = &left_out {
                            self.keep_result(&answered.as_result(call)).await;
                        }
                        left_out
                    }
                    None => prepared,
                };
                finished.push(self.execute(call, prepared).await);
            }
            finished
        } else {
            join_all(pairs.map(|(call, prepared)| self.execute(call, prepared))).await
        };
        self.finish(calls, finished, repeats)
    }

    /// Understands a call; `may_be_cut` if the reply ended in the middle of it, for all we know.
    /// What is decided is kept, so that nobody is asked twice.
    async fn prepare(&self, call: &ToolCall, may_be_cut: bool) -> Prepared {
        let prepared = self.understand(call, may_be_cut).await;
        if let Prepared::Answered(answered) = &prepared {
            let result = answered.as_result(call);
            if answered.is_verb {
                // What a verb answers is the same when it is asked again.
                self.note_result(&result);
            } else {
                self.keep_result(&result).await;
            }
        }
        prepared
    }

    async fn understand(&self, call: &ToolCall, may_be_cut: bool) -> Prepared {
        let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        // What is not JSON is shown to the engine as it is: its answer has the schema in it.
        let arguments = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        let call_as_made = Call::new(call.name.clone(), arguments);
        if self.cancel.is_cancelled() {
            return self.answered(&call_as_made, ToolResult::error(CANCELLED));
        }
        if may_be_cut && is_cut(call) {
            return self.answered(&call_as_made, ToolResult::error(CUT));
        }
        let understood = async {
            let meant = self.agent.hooks.resolve(call_as_made.clone()).await;
            let resolved = self.conversation.resolve(meant.clone()).await;
            (meant, resolved)
        };
        let Ok((meant, resolved)) = self.unless_cancelled(understood).await else {
            return self.answered(&call_as_made, ToolResult::error(CANCELLED));
        };
        match resolved {
            Resolved::Done(outcome) => {
                self.tell_loaded(&outcome.effects.loaded).await;
                let mut prepared = self.answered(&meant, outcome.result);
                if let Prepared::Answered(it) = &mut prepared {
                    it.revealed = outcome.effects.revealed;
                    if let Some(tool) = &outcome.effects.misfit {
                        it.name = self.exposed(tool);
                    }
                }
                prepared
            }
            Resolved::Ready(ready) => {
                self.tell_loaded(ready.loaded()).await;
                self.permit(call, ready).await
            }
        }
    }

    /// The name a model knows a tool by.
    fn exposed(&self, tool: &ToolName) -> String {
        tool.exposed(self.agent.crib.catalog().naming())
    }

    /// A call that has its result.
    fn answered(&self, call: &Call, result: ToolResult) -> Prepared {
        let target = call.target();
        let is_verb = target.names_verb();
        let Call { name, arguments, .. } = target;
        Prepared::Answered(Answered { name, arguments, result, is_verb, revealed: Vec::new() })
    }

    async fn tell_loaded(&self, loaded: &[ToolName]) {
        if loaded.is_empty() {
            return;
        }
        if !self.keep_loads().await {
            return;
        }
        let tools = loaded.iter().map(|tool| self.exposed(tool)).collect();
        self.emit.tell(Event::Loaded { tools }).await;
        // Whoever is told has no say, so a run that is cancelled need not wait.
        let _ = self.unless_cancelled(self.agent.hooks.on_tools_expanded(loaded)).await;
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
        let mut ready = Some(ready);
        let ruling = self.agent.hooks.rule(&mut pending, |pending, arguments| {
            let Some(unchecked) = ready.take() else { return Ok(()) };
            match self.conversation.rewrite(unchecked, &arguments) {
                Resolved::Ready(checked) => {
                    pending.arguments = checked.arguments().clone();
                    ready = Some(checked);
                    Ok(())
                }
                Resolved::Done(outcome) => {
                    pending.arguments = arguments;
                    Err(outcome.result)
                }
            }
        });
        let verdict = match self.unless_cancelled(ruling).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(misfit)) => return refused(pending, misfit),
            Err(Cancelled) => return refused(pending, ToolResult::error(CANCELLED)),
        };
        let Some(ready) = ready else { return refused(pending, ToolResult::error(CANCELLED)) };
        let denial = match (self.agent.permissions.of(ready.tool()), verdict) {
            (_, Verdict::Deny(reason)) => Some(reason),
            (Permission::Deny, _) => Some("The user's rules do not permit this tool.".to_owned()),
            // Whoever asks for this very call wants it looked at, whatever was said of others.
            (_, Verdict::Ask) => self.ask_person(&pending, Some(false)).await,
            (Permission::Ask, Verdict::Pass) => self.ask_person(&pending, None).await,
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

    /// Asks a person, unless they have answered before; says why not, if not. `only` is the one
    /// answer of before that counts.
    async fn ask_person(&self, call: &PendingCall, only: Option<bool>) -> Option<String> {
        let denied = || "The user said no.".to_owned();
        let before = self.remembered.get(&call.tool);
        match before.filter(|before| only.is_none_or(|only| only == *before)) {
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
        let approval = self.unless_cancelled(approver.ask(call)).await.ok();
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
        let (result, is_verb, stop) = match prepared {
            Prepared::Answered(answered) => (answered.as_result(made), answered.is_verb, None),
            Prepared::Run { ready, call } => {
                let (result, stop) = self.run_tool(*ready, &call).await;
                let content = results::parts(&result, Some(self.agent.limits.result_bytes));
                let (call_id, name, is_error) =
                    (made.id.clone(), made.name.clone(), result.is_error());
                let result = CallResult { call_id, name, content, is_error, revealed: Vec::new() };
                self.keep_result(&result).await;
                (result, false, stop)
            }
        };
        let took = started.elapsed();
        self.emit
            .tell(Event::CallFinished { name: name.clone(), result: result.clone(), took })
            .await;
        Finished { name, arguments, result, is_verb, stop }
    }

    /// Keeps what came of a call until the results of all are kept, so that it is not made again.
    /// That it could not be kept shows when all are to be.
    async fn keep_result(&self, result: &CallResult) {
        self.note_result(result);
        if let Some(keeper) = self.keeper.as_deref()
            && let Err(reason) = keeper.finished(result).await
        {
            tracing::warn!(reason, "a result was not kept");
        }
    }

    fn note_result(&self, result: &CallResult) {
        let text = serde_json::to_string(result).ok();
        self.unfinished.note(made(&result.call_id, &result.name), text);
    }

    /// Keeps what is loaded; says whether it may be told of.
    pub(crate) async fn keep_loads(&self) -> bool {
        let Some(keeper) = self.keeper.as_deref() else { return true };
        let kept = keeper.loaded(self.conversation).await;
        if let Err(reason) = &kept {
            tracing::warn!(reason, "what is loaded was not kept");
        }
        kept.is_ok()
    }

    /// Runs a tool; says why the run can't go on, if that is so.
    async fn run_tool(&self, ready: Ready, call: &PendingCall) -> (ToolResult, Option<String>) {
        if self.cancel.is_cancelled() {
            return (ToolResult::error(CANCELLED), None);
        }
        let hints = ready.tool().spec().annotations();
        let mark = CallMark {
            call_id: call.id.clone(),
            tool: call.tool.to_string(),
            idempotent: hints.is_read_only() || hints.idempotent == Some(true),
        };
        // What can't be told to have begun must not.
        if let Some(keeper) = self.keeper.as_deref()
            && let Err(reason) = keeper.began(mark.clone()).await
        {
            return (ToolResult::error(format!("Nothing was run: {reason}")), Some(reason));
        }
        self.unfinished.note(mark, None);
        let limit = self.agent.limits.call;
        let listener = Progress { emit: self.emit.clone(), id: call.id.clone() };
        let running = self.conversation.run(ready.on_behalf_of(Caller::new(listener)));
        let outcome = self.unless_cancelled(tokio::time::timeout(limit, running)).await;
        let (result, stop) = match outcome {
            Err(Cancelled) => (ToolResult::error(CANCELLED_RUNNING), None),
            Ok(Ok(Ok(outcome))) => (outcome.result, None),
            Ok(Ok(Err(CallError::Stop(reason)))) => {
                (ToolResult::error(reason.clone()), Some(reason))
            }
            Ok(Ok(Err(CallError::Tell(text)))) => (ToolResult::error(text), None),
            Ok(Err(_)) => {
                let text = format!(
                    "`{}` did not answer within {limit:?} and was given up on. It may or may not \
                     have taken effect.",
                    call.name
                );
                (ToolResult::error(text), None)
            }
        };
        let seen = self.unless_cancelled(self.agent.hooks.after_tool_call(call, result)).await;
        // What a hook has not seen may hold what it would have taken out.
        (seen.unwrap_or_else(|Cancelled| ToolResult::error(CANCELLED_RUNNING)), stop)
    }

    fn finish(&self, calls: &[ToolCall], finished: Vec<Finished>, repeats: &mut Repeats) -> Batch {
        let limits = &self.agent.limits;
        let was_warned = repeats.was_warned();
        let mut batch =
            Batch { results: Vec::new(), records: Vec::new(), stop: None, repeating: None };
        for (call, finished) in calls.iter().zip(finished) {
            let Finished { name, arguments, mut result, is_verb, stop } = finished;
            let times = repeats.note(call, &result);
            if times >= limits.repeats_warn {
                result.content.push(Part::text(repeats.warn(times)));
            }
            // Only who has read the warning can be said not to heed it.
            if times >= limits.repeats_end && was_warned {
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

/// Whether a call may be incomplete, if the reply was cut off in it. Where arguments had not begun,
/// some providers send `{}`: a tool might run with that.
fn is_cut(call: &ToolCall) -> bool {
    let text = call.arguments.trim();
    text.is_empty() || text == "{}" || serde_json::from_str::<Value>(text).is_err()
}

/// What comes of the calls of a reply that was cut off at its longest length, as far as that is
/// certain before any of them is made.
pub(crate) fn cut_off(calls: &[ToolCall]) -> Vec<CallResult> {
    let last = calls.last().filter(|call| is_cut(call));
    last.map(|call| failure(call, CUT)).into_iter().collect()
}

fn refused(call: PendingCall, result: ToolResult) -> Prepared {
    let (name, arguments) = (call.name.to_string(), call.arguments);
    let (is_verb, revealed) = (false, Vec::new());
    Prepared::Answered(Answered { name, arguments, result, is_verb, revealed })
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
