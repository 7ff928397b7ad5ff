//! A call, from the first try to the answer or a true reason.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::time::{Duration, Instant};
use toolcrib_runtime::{CallError, Invocation, Manifest, ToolResult};
use toolcrib_wire::Fields;

use super::Inner;
use crate::connection::{Connection, Failure};

/// How long a server that let a call wait too long gets to show that it is alive.
const PULSE: Duration = Duration::from_secs(10);

/// Keeps a server from being stopped.
pub(super) struct InUse<'a>(&'a Inner);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.users -= 1;
        state.last_used = Instant::now();
    }
}

impl Inner {
    /// Notes that somebody is about to ask something of the server.
    pub(super) fn in_use(&self) -> InUse<'_> {
        self.lock().users += 1;
        InUse(self)
    }

    pub(super) async fn call(
        self: &Arc<Self>,
        invocation: Invocation,
    ) -> Result<ToolResult, CallError> {
        let server = &self.config.name;
        let tool = invocation.tool.tool();
        let tell = |text: String| Err(CallError::Tell(format!("Server `{server}` {text}")));
        let _in_use = self.in_use();
        let mut is_first = true;
        loop {
            let connection = match self.running().await {
                Ok(connection) => connection,
                Err(reason) => return tell(format!("can't be called: {reason}.")),
            };
            let failure = match ask(&connection, &invocation, self.config.call_limit).await {
                Ok(result) => {
                    self.lock().failures = 0;
                    return Ok(answer(result));
                }
                Err(failure @ Failure::Unsent(_)) => {
                    let reason = connection.why(failure).await;
                    self.retire(&connection, &reason);
                    Failure::Unsent(reason)
                }
                Err(failure) => failure,
            };
            let may_repeat = match &failure {
                Failure::Unsent(_) => true,
                Failure::Lost(_) => self.lock().repeatable.contains(tool),
                _ => false,
            };
            if may_repeat && is_first {
                is_first = false;
                continue;
            }
            let may_have_run = match &failure {
                Failure::Refused(_) | Failure::Denied { .. } | Failure::Unsent(_) => "",
                Failure::Lost(_) | Failure::Late(_) => {
                    " The call may have taken effect: check before you repeat it."
                }
            };
            let reason = match failure {
                Failure::Refused(error) => {
                    self.lock().failures = 0;
                    return Ok(ToolResult::refused(error));
                }
                Failure::Late(limit) => {
                    self.feel_pulse(&connection);
                    format!("did not answer within {limit:?}")
                }
                other => format!("did not answer: {other}"),
            };
            return tell(format!("{}.{may_have_run}", self.secrets.hide(&reason)));
        }
    }

    /// Lets go of a server that doesn't even answer a ping: the next call starts it anew.
    fn feel_pulse(self: &Arc<Self>, connection: &Arc<Connection>) {
        let (inner, connection) = (self.clone(), connection.clone());
        tokio::spawn(async move {
            let answer = connection.request("ping", Fields::default(), None, Some(PULSE)).await;
            // Others who wait may still be served: it is their limit that decides.
            if matches!(answer, Err(Failure::Late(_))) && inner.lock().users == 0 {
                inner.retire(&connection, "it no longer answers");
            }
        });
    }
}

async fn ask(
    connection: &Connection,
    invocation: &Invocation,
    limit: Option<Duration>,
) -> Result<Box<RawValue>, Failure> {
    let mut params = Fields::default();
    params.set("name", &invocation.tool.tool());
    params.set("arguments", &invocation.arguments);
    if let Some(meta) = invocation.caller.meta() {
        params.set("_meta", &meta);
    }
    let listener = invocation.caller.listener().cloned();
    connection.request("tools/call", params, listener, limit).await
}

/// A result, unless the server asks for something first.
fn answer(result: Box<RawValue>) -> ToolResult {
    let asks = result.get().contains("input_required")
        && Fields::parse(result.get())
            .and_then(|fields| fields.read::<String>("resultType"))
            .is_some_and(|kind| kind == "input_required");
    if asks {
        return ToolResult::error(
            "The tool asks for more input from the user, which can't be passed on yet.",
        );
    }
    ToolResult::from_json(result)
}

/// The tools that say they can be called twice.
pub(super) fn repeatable(manifest: &Manifest) -> HashSet<String> {
    let says = |raw: &RawValue| {
        let tool = Fields::parse(raw.get())?;
        let hints = tool.get("annotations").and_then(|raw| Fields::parse(raw.get()))?;
        let is = |hint| hints.read::<bool>(hint) == Some(true);
        (is("readOnlyHint") || is("idempotentHint")).then(|| tool.read("name")).flatten()
    };
    manifest.tools.iter().filter_map(|raw| says(raw)).collect()
}
