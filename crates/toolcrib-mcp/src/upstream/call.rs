//! A call, from the first try to the answer or a true reason.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::Duration;
use toolcrib_runtime::{CallError, Caller, Invocation, Kind, Manifest, NoRoom, ToolResult, aside};
use toolcrib_wire::headers::Repeated;
use toolcrib_wire::{Era, Fields};

use super::{Inner, rounds};
use crate::connection::{Connection, Failure, Request};

/// How long a server that let a call wait too long gets to show that it is alive.
const PULSE: Duration = Duration::from_secs(10);

/// What is said of a call whose outcome nobody knows.
const MAY_HAVE_RUN: &str = " The call may have taken effect: check before you repeat it.";

impl Inner {
    pub(super) async fn call(
        self: &Arc<Self>,
        invocation: Invocation,
    ) -> Result<ToolResult, CallError> {
        let server = &self.config.name;
        let tool = invocation.tool.tool();
        let tell = |text: String| Err(CallError::Tell(format!("Server `{server}` {text}")));
        let _turn = match self.queue.turn(self.config.call_limit).await {
            Ok(turn) => turn,
            Err(busy) => return tell(format!("{busy}.")),
        };
        let mut is_first = true;
        loop {
            let (connection, mut lane) = match self.connection_for(&invocation.caller).await {
                Ok(found) => found,
                Err(reason) => return tell(format!("can't be called: {reason}.")),
            };
            if let Some(error) = rounds::misplaced(&connection, &invocation.caller) {
                lane.was_no_call();
                return Ok(ToolResult::refused(error));
            }
            let (caller, refusal) = self.patient(&lane, &invocation.caller);
            let called = tokio::select! {
                biased;
                called = self.try_call(&connection, &invocation, &caller) => called,
                reason = refusal.reason() => return tell(format!("{reason}.{MAY_HAVE_RUN}")),
            };
            let failure = match called {
                Ok(result) => {
                    lane.went_well();
                    if !result.get().starts_with('{') {
                        let text = "answered with something that is no result.";
                        return tell(format!("{text}{MAY_HAVE_RUN}"));
                    }
                    return Ok(answer(result, &invocation.caller).await);
                }
                Err(failure @ Failure::Unsent(_)) => {
                    let reason = connection.why(failure).await;
                    self.retire(&connection, &reason);
                    Failure::Unsent(reason)
                }
                Err(failure) => failure,
            };
            lane.went_wrong(&connection, &failure);
            let may_repeat = match &failure {
                // What a server gave out to be brought back may be good only once.
                _ if invocation.caller.retry().is_some() => false,
                Failure::Unsent(_) => true,
                Failure::Lost(_) => self.lock().hints.is_repeatable(tool),
                _ => false,
            };
            if may_repeat && is_first {
                is_first = false;
                continue;
            }
            let may_have_run = match &failure {
                Failure::Refused(_) | Failure::Denied { .. } | Failure::Unsent(_) => "",
                Failure::Lost(_)
                | Failure::Unrepeatable(_)
                | Failure::Unread(_)
                | Failure::Late(_) => MAY_HAVE_RUN,
            };
            let reason = match failure {
                Failure::Refused(error) => {
                    lane.went_well();
                    return Ok(ToolResult::refused(error));
                }
                Failure::Late(limit) => {
                    self.feel_pulse(&connection);
                    format!("did not answer within {limit:?}")
                }
                Failure::Unread(reason) => unread(reason),
                other => format!("did not answer: {other}"),
            };
            return tell(format!("{}.{may_have_run}", self.secrets.hide(&reason)));
        }
    }

    async fn try_call(
        &self,
        connection: &Connection,
        invocation: &Invocation,
        caller: &Caller,
    ) -> Result<Box<RawValue>, Failure> {
        let Invocation { tool, arguments, verbatim, .. } = invocation;
        let mut params = Fields::default();
        params.set("name", &tool.tool());
        match verbatim {
            Some(arguments) => params.set("arguments", arguments),
            None => params.set("arguments", arguments),
        }
        if let Some(meta) = caller.meta() {
            params.set("_meta", &meta);
        }
        add_brought(&mut params, caller);
        let repeated = match connection.era() {
            Era::Sessions => Vec::new(),
            Era::Stateless => {
                let hints = self.lock().hints.clone();
                hints.repeated(invocation)
            }
        };
        let request = Request { method: "tools/call", params, repeated: &repeated };
        rounds::drive_request(connection, request, caller, self.config.call_limit).await
    }

    /// Lets go of a server that doesn't even answer a ping: the next call starts it anew.
    fn feel_pulse(self: &Arc<Self>, connection: &Arc<Connection>) {
        let (inner, connection) = (self.clone(), connection.clone());
        tokio::spawn(async move {
            let nobody = Caller::default();
            let answer = connection.request("ping", Fields::default(), &nobody, Some(PULSE)).await;
            // Others who wait may still be served: it is their limit that decides.
            if matches!(answer, Err(Failure::Late(_))) && inner.is_idle(&connection) {
                inner.retire(&connection, "it no longer answers");
            }
        });
    }
}

/// What is said of an answer that was not taken.
pub(super) fn unread(reason: NoRoom) -> String {
    let advice = match reason {
        NoRoom::TooLarge(_) => " (`result_megabytes` decides)",
        NoRoom::Full { .. } => "",
    };
    format!("answered, but its answer was not taken: {reason}{advice}")
}

/// Adds to a request what its caller brings beside it.
pub(super) fn add_brought<'a>(params: &mut Fields<'a>, caller: &'a Caller) {
    if let Some(retry) = caller.retry() {
        for (name, value) in [("inputResponses", &retry.responses), ("requestState", &retry.state)]
        {
            if let Some(value) = value {
                params.set(name, value);
            }
        }
    }
    if let Some(rest) = caller.rest().and_then(|rest| Fields::parse(rest.get())) {
        params.add_missing(rest);
    }
}

/// A result, unless the server asks for something that the caller can't be asked.
async fn answer(result: Box<RawValue>, caller: &Caller) -> ToolResult {
    let result = aside(result.get().len(), || ToolResult::from_json(result)).await;
    if result.kind() == Kind::InputRequired && caller.party().is_none() {
        return ToolResult::error(
            "The tool asks for more input from the user, which can't be passed on here.",
        );
    }
    result
}

/// What is to be known of tools when they are called.
#[derive(Default)]
pub(super) struct Hints {
    /// Those that say they can be called twice.
    repeatable: HashSet<String>,
    /// The arguments that headers repeat, of those that have any.
    repeated: HashMap<String, Vec<Repeated>>,
}

impl Hints {
    pub(super) fn of(manifest: &Manifest) -> Self {
        let mut hints = Self::default();
        for tool in manifest.tools.iter().filter_map(|raw| Fields::parse(raw.get())) {
            let Some(name) = tool.read::<String>("name") else { continue };
            let schema = tool.get("inputSchema").map_or("", RawValue::get);
            // One whose schema is wrong in this is not listed.
            let repeated = Repeated::all(schema).unwrap_or_default();
            if !repeated.is_empty() {
                hints.repeated.insert(name.clone(), repeated);
            }
            let said = tool.get("annotations").and_then(|raw| Fields::parse(raw.get()));
            let is = |hint| said.as_ref().and_then(|said| said.read::<bool>(hint)) == Some(true);
            if is("readOnlyHint") || is("idempotentHint") {
                hints.repeatable.insert(name);
            }
        }
        hints
    }

    fn is_repeatable(&self, tool: &str) -> bool {
        self.repeatable.contains(tool)
    }

    /// The headers that repeat arguments of a call.
    fn repeated(&self, invocation: &Invocation) -> Vec<(String, String)> {
        let Some(repeated) = self.repeated.get(invocation.tool.tool()) else { return Vec::new() };
        let verbatim = invocation.verbatim.as_ref();
        let verbatim = verbatim.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let arguments = verbatim.as_ref().unwrap_or(&invocation.arguments);
        let header = |it: &Repeated| Some((it.header().to_owned(), it.value(arguments)?));
        repeated.iter().filter_map(header).collect()
    }
}
