//! One `tools/call`, from its parameters to its result.

use std::sync::Arc;
use std::time::Instant;

use memchr::memmem;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_core::{Call, Tool};
use toolcrib_runtime::{CallError, Caller, Conversation, Outcome, Ready, Resolved, ToolResult};
use toolcrib_wire::{Era, Fields, RpcError, code, notification};
use tracing::Instrument;

use crate::client::Client;
use crate::metrics::Ending;
use crate::outbox::Outbox;
use crate::relay::{Relay, severity};
use crate::request::{Params, Request};
use crate::{Endpoint, Gateway};

/// A call that has been read.
pub(crate) struct ToolCall {
    client: Arc<Client>,
    era: Era,
    name: String,
    arguments: Value,
    meta: Option<Box<RawValue>>,
    token: Option<Box<RawValue>>,
    logs: Option<usize>,
}

impl ToolCall {
    pub(crate) fn read(client: &Arc<Client>, request: &Request<'_>) -> Result<Self, RpcError> {
        let name = Params::text(request.params.name);
        let name = name.ok_or_else(|| RpcError::invalid_params("`name` must be a string"))?;
        let arguments = match request.params.arguments.map(RawValue::get) {
            None | Some("null") => Value::Object(Map::new()),
            Some(text) => serde_json::from_str(text).map_err(|error| {
                RpcError::invalid_params(format!("`arguments` can't be read: {error}"))
            })?,
        };
        let logs = match request.era {
            Era::Sessions => Some(client.logs()),
            Era::Stateless => request.meta.log_level().and_then(|level| severity(&level)),
        };
        Ok(Self {
            client: client.clone(),
            era: request.era,
            name: name.into_owned(),
            arguments,
            meta: request.meta.to_pass_on(),
            token: request.meta.progress_token(),
            logs,
        })
    }

    /// Whom the call is for: whoever reads the outbox.
    fn caller(&mut self, outbox: &Arc<Outbox>) -> Caller {
        let (token, logs) = (self.token.take(), self.logs);
        let caller = if token.is_some() || logs.is_some() {
            Caller::new(Relay { outbox: outbox.clone(), token, logs })
        } else {
            Caller::default()
        };
        match self.meta.take() {
            Some(meta) => caller.with_meta(meta),
            None => caller,
        }
    }
}

impl Gateway {
    /// Makes a call: its result as JSON. What is heard meanwhile goes into the outbox.
    pub(crate) async fn call(
        &self,
        mut call: ToolCall,
        outbox: &Arc<Outbox>,
    ) -> Result<String, RpcError> {
        let era = call.era;
        let client = call.client.clone();
        let result = match &client.endpoint {
            Endpoint::Full | Endpoint::Server(_) => self.pass_on(&mut call, outbox).await?,
            Endpoint::Meta | Endpoint::Inject => self.dispatch(&mut call, outbox).await?,
        };
        match result.refusal() {
            Some(error) => Err(error.clone()),
            None => in_era(result.json().get(), era),
        }
    }

    /// Passes a call on as it stands.
    async fn pass_on(
        &self,
        call: &mut ToolCall,
        outbox: &Arc<Outbox>,
    ) -> Result<ToolResult, RpcError> {
        let Some(tool) = self.find(&call.client.endpoint, &call.name).await else {
            let name: String = call.name.chars().take(200).collect();
            return Err(RpcError::invalid_params(format!("Unknown tool: {name}")));
        };
        let ready = Ready::new(tool, std::mem::take(&mut call.arguments));
        let outcome = self.run(self.straight(), ready, call.caller(outbox)).await?;
        Ok(outcome.result)
    }

    /// The tool that is called this at an endpoint.
    pub(crate) fn tool_at(&self, endpoint: &Endpoint, name: &str) -> Option<Arc<Tool>> {
        match endpoint {
            Endpoint::Server(server) => self.view().tool_in(&self.group_of(server)?, name).cloned(),
            _ => self.view().tool(name).cloned(),
        }
    }

    /// The same, perhaps in a while.
    async fn find(&self, endpoint: &Endpoint, name: &str) -> Option<Arc<Tool>> {
        if let Some(tool) = self.tool_at(endpoint, name) {
            return Some(tool);
        }
        let mut patience = self.patience();
        loop {
            patience.look();
            let found = self.tool_at(endpoint, name);
            if found.is_some() || !patience.again().await {
                return found;
            }
        }
    }

    /// Lets the engine understand the call first.
    async fn dispatch(
        &self,
        call: &mut ToolCall,
        outbox: &Arc<Outbox>,
    ) -> Result<ToolResult, RpcError> {
        let client = call.client.clone();
        let conversation = match call.era {
            Era::Sessions => client.conversation(self),
            Era::Stateless => self.converse_on(client.trail.clone(), &client.endpoint),
        };
        if call.name.starts_with("tool_search") {
            self.metrics().searched();
        }
        let asked = Call::new(std::mem::take(&mut call.name), std::mem::take(&mut call.arguments));
        let resolved = self.resolve(&conversation, asked).await;
        let outcome = match resolved {
            Resolved::Done(outcome) => outcome,
            Resolved::Ready(ready) => self.run(&conversation, ready, call.caller(outbox)).await?,
        };
        if client.endpoint == Endpoint::Inject && !outcome.effects.loaded.is_empty() {
            outbox.send(&list_changed());
        }
        Ok(outcome.result)
    }

    /// Understands a call. If what it asks for is not known while servers are still starting, one
    /// of them may have it: it waits a little for them.
    async fn resolve(&self, conversation: &Conversation, call: Call) -> Resolved {
        if !self.is_starting() {
            return conversation.resolve(call).await;
        }
        let mut patience = self.patience();
        loop {
            patience.look();
            let resolved = conversation.resolve(call.clone()).await;
            let missed = matches!(&resolved, Resolved::Done(outcome) if outcome.effects.missed);
            if !missed || !patience.again().await {
                return resolved;
            }
        }
    }

    /// Runs a call, counted and traced under the tool's real name.
    async fn run(
        &self,
        conversation: &Conversation,
        ready: Ready,
        caller: Caller,
    ) -> Result<Outcome, RpcError> {
        let begun = Instant::now();
        let name = ready.tool().name().clone();
        let mut ending = Ending::new(self.metrics(), &name, begun);
        let span = tracing::debug_span!("call", tool = %name);
        let outcome = conversation.run(ready.on_behalf_of(caller)).instrument(span).await;
        match outcome {
            Ok(outcome) => {
                ending.ends_with(match &outcome.result {
                    result if result.refusal().is_some() => "refused",
                    result if result.is_error() => "error",
                    _ => "ok",
                });
                tracing::debug!(tool = %name, took = ?begun.elapsed(), "called");
                Ok(outcome)
            }
            Err(CallError::Tell(reason) | CallError::Stop(reason)) => {
                ending.ends_with("failed");
                tracing::warn!(tool = %name, reason, "call failed");
                Err(RpcError::new(code::INTERNAL_ERROR, reason))
            }
        }
    }
}

/// The member that says what kind of a result it is.
const KIND: &str = "resultType";

/// Tells a client of the session era to list again.
pub(crate) fn list_changed() -> String {
    notification("notifications/tools/list_changed", toolcrib_wire::NO_PARAMS)
}

/// A result as the era wants it: whether it is complete is said in one, and unknown in the other.
fn in_era(json: &str, era: Era) -> Result<String, RpcError> {
    let says = memmem::find(json.as_bytes(), KIND.as_bytes()).is_some();
    let kind = || Fields::parse(json).and_then(|fields| fields.read::<String>(KIND));
    match (era, if says { kind() } else { None }.as_deref()) {
        (Era::Sessions, None) => Ok(json.to_owned()),
        (Era::Sessions, Some("complete")) => Ok(without_kind(json)),
        (Era::Sessions, Some(other)) => {
            let text = format!(
                "The tool's server answered with something other than a result (`{other}`), which \
                 clients with sessions can't be given"
            );
            Err(RpcError::new(code::INTERNAL_ERROR, text))
        }
        (Era::Stateless, Some(_)) => Ok(json.to_owned()),
        (Era::Stateless, None) => Ok(with_kind(json)),
    }
}

fn without_kind(json: &str) -> String {
    let Some(mut fields) = Fields::parse(json) else { return json.to_owned() };
    fields.remove(KIND);
    fields.to_raw().get().to_owned()
}

/// Puts a member at the front, so that the rest is copied and not read.
fn with_kind(json: &str) -> String {
    let Some(rest) = json.trim_start().strip_prefix('{') else { return json.to_owned() };
    let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
    format!(r#"{{"resultType":"complete"{comma}{rest}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_says_that_it_is_complete_where_that_is_said() {
        let (old, new) = (Era::Sessions, Era::Stateless);
        for (json, era, expected) in [
            (r#"{"content":[]}"#, new, r#"{"resultType":"complete","content":[]}"#),
            (r#" { } "#, new, r#"{"resultType":"complete" } "#),
            (r#"{"resultType":"task","x":1.0}"#, new, r#"{"resultType":"task","x":1.0}"#),
            (
                r#"{"content":["resultType"]}"#,
                new,
                r#"{"resultType":"complete","content":["resultType"]}"#,
            ),
            ("null", new, "null"),
            (r#"{ "content":[] }"#, old, r#"{ "content":[] }"#),
            (r#"{"resultType":"complete","x":1.0}"#, old, r#"{"x":1.0}"#),
            (r#"{"content":["resultType"]}"#, old, r#"{"content":["resultType"]}"#),
            ("7", old, "7"),
        ] {
            assert_eq!(in_era(json, era).as_deref(), Ok(expected));
        }
        assert!(in_era(r#"{"resultType":"input_required"}"#, old).is_err());
    }
}
