//! One `tools/call`, from its parameters to its result.

use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_core::{Call, Effects, Tool};
use toolcrib_runtime::{
    CallError, Caller, Conversation, Kind, Outcome, Ready, Resolved, ToolResult, Verdict, aside,
};
use toolcrib_wire::{Era, Fields, RpcError, code, notification, repeats_a_key, result_in_era};
use tracing::Instrument;

use crate::approval::unrecorded;
use crate::behalf::{Behalf, is_callers};
use crate::client::Client;
use crate::limits::Place;
use crate::metrics::Ending;
use crate::outbox::Outbox;
use crate::request::{Params, Request};
use crate::seat::Seat;
use crate::{Endpoint, Gateway, trace};

/// A call that has been read.
pub(crate) struct ToolCall {
    behalf: Behalf,
    name: String,
    arguments: Value,
    /// The arguments as they came, if there are any.
    written: Option<Arc<RawValue>>,
    /// Parameters that nobody here reads.
    rest: Option<Box<RawValue>>,
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
        let written = request.params.arguments.filter(|_| match client.endpoint {
            Endpoint::Full | Endpoint::Server(_) => true,
            Endpoint::Meta | Endpoint::Inject => false,
        });
        // Of a key that is there twice the server may read the other value: neither what is
        // recorded nor what a person agreed to.
        let written = written
            .filter(|arguments| arguments.get() != "null" && !repeats_a_key(arguments.get()));
        Ok(Self {
            behalf: Behalf::read(client, request)?,
            name: name.into_owned(),
            arguments,
            written: written.map(|arguments| arguments.to_owned().into()),
            rest: rest(request),
        })
    }

    pub(crate) fn behalf(&self) -> &Behalf {
        &self.behalf
    }
}

/// What a call's parameters have that nobody here reads.
fn rest(request: &Request<'_>) -> Option<Box<RawValue>> {
    /// What nearly all calls have, and no more: nothing is kept of them here.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Plain {
        #[serde(default, rename = "name")]
        _name: IgnoredAny,
        #[serde(default, rename = "arguments")]
        _arguments: IgnoredAny,
        #[serde(default, rename = "_meta")]
        _meta: IgnoredAny,
    }
    let whole = request.params.whole?;
    if serde_json::from_str::<Plain>(whole.get()).is_ok() {
        return None;
    }
    let is_read = |name: &str| matches!(name, "name" | "arguments") || is_callers(request, name);
    let mut rest = Fields::parse(whole.get())?;
    rest.retain(|name| !is_read(name));
    (!rest.is_empty()).then(|| rest.to_raw())
}

/// A call on its way to its tool.
struct OnItsWay {
    client: Arc<Client>,
    era: Era,
    name: String,
    arguments: Value,
    written: Option<Arc<RawValue>>,
    caller: Caller,
}

impl Gateway {
    /// Makes a call: its result as JSON. What is heard meanwhile goes into the outbox.
    pub(crate) async fn call(
        &self,
        call: ToolCall,
        place: Option<Place>,
        outbox: &Arc<Outbox>,
    ) -> Result<String, RpcError> {
        let ToolCall { behalf, name, arguments, written, rest } = call;
        let (client, era) = (behalf.client().clone(), behalf.era());
        let (gateway, told) = (self.clone(), outbox.clone());
        let work = |caller: Caller| {
            let caller = match rest {
                Some(rest) => caller.with_rest(rest),
                None => caller,
            };
            let call = OnItsWay { client, era, name, arguments, written, caller };
            async move { gateway.carry_out(call, &told).await }
        };
        self.attend(behalf, place, outbox, work).await
    }

    async fn carry_out(&self, call: OnItsWay, outbox: &Arc<Outbox>) -> Result<String, RpcError> {
        let era = call.era;
        let result = match call.client.endpoint {
            Endpoint::Full | Endpoint::Server(_) => self.pass_on(call).await?,
            Endpoint::Meta | Endpoint::Inject => self.dispatch(call, outbox).await?,
        };
        if let Some(error) = result.refusal() {
            return Err(error.clone());
        }
        // What is as the era wants it is not looked through once more: it may be long.
        let is_complete = result.kind() == Kind::Complete;
        if is_complete && result.says_kind() == (era == Era::Stateless) {
            return Ok(result.into_json());
        }
        let bytes = result.json().get().len();
        aside(bytes, move || result_in_era("tools/call", result.into_json(), era)).await
    }

    /// Passes a call on as it stands.
    async fn pass_on(&self, call: OnItsWay) -> Result<ToolResult, RpcError> {
        let Some(tool) = self.find(&call.client, &call.name).await else {
            self.note_unknown(&call.client, &call.caller, &call.name);
            let name: String = call.name.chars().take(200).collect();
            return Err(RpcError::invalid_params(format!("Unknown tool: {name}")));
        };
        let mut ready = Ready::new(tool, call.arguments);
        if let Some(written) = call.written {
            ready = ready.verbatim(written);
        }
        let name = ready.tool().name().clone();
        let outcome =
            self.run(&call.client, self.straight(&call.client.seat), ready, call.caller).await?;
        Ok(self.of_call(&call.client, &name, outcome.result))
    }

    /// The tool that is called this at an endpoint.
    pub(crate) fn tool_at(
        &self,
        seat: &Seat,
        endpoint: &Endpoint,
        name: &str,
    ) -> Option<Arc<Tool>> {
        let view = self.view(seat);
        match endpoint {
            Endpoint::Server(server) => view.tool_in(&self.group_of(seat, server)?, name).cloned(),
            _ => view.tool(name).cloned(),
        }
    }

    /// The same, perhaps in a while.
    async fn find(&self, client: &Client, name: &str) -> Option<Arc<Tool>> {
        let look = || self.tool_at(&client.seat, &client.endpoint, name);
        if let Some(tool) = look() {
            return Some(tool);
        }
        let mut patience = self.patience(&client.seat);
        loop {
            patience.look();
            let found = look();
            if found.is_some() || !patience.again().await {
                return found;
            }
        }
    }

    /// Lets the engine understand the call first.
    async fn dispatch(&self, call: OnItsWay, outbox: &Outbox) -> Result<ToolResult, RpcError> {
        let client = call.client;
        let conversation = match call.era {
            Era::Sessions => client.conversation(self),
            Era::Stateless => {
                self.converse_on(client.trail.clone(), &client.seat, &client.endpoint)
            }
        };
        if call.name.starts_with("tool_search") {
            self.metrics().searched();
        }
        let asked = Call::new(call.name, call.arguments);
        let resolved = self.resolve(&client.seat, &conversation, asked).await;
        let outcome = match resolved {
            Resolved::Done(outcome) => {
                if let Some(auditor) = self.auditor(&client, &call.caller) {
                    auditor.hidden(&outcome.effects);
                }
                outcome
            }
            Resolved::Ready(ready) => {
                let name = ready.tool().name().clone();
                let outcome = self.run(&client, &conversation, ready, call.caller).await?;
                let result = self.of_call(&client, &name, outcome.result);
                Outcome { result, ..outcome }
            }
        };
        if client.endpoint == Endpoint::Inject && !outcome.effects.loaded.is_empty() {
            outbox.send(&list_changed());
        }
        Ok(outcome.result)
    }

    /// Understands a call. If what it asks for is not known while servers are still starting, one
    /// of them may have it: it waits a little for them.
    async fn resolve(&self, seat: &Arc<Seat>, conversation: &Conversation, call: Call) -> Resolved {
        if !self.is_starting(seat) {
            return conversation.resolve(call).await;
        }
        let mut patience = self.patience(seat);
        loop {
            patience.look();
            let resolved = conversation.resolve(call.clone()).await;
            let missed = matches!(&resolved, Resolved::Done(outcome) if outcome.effects.missed);
            if !missed || !patience.again().await {
                return resolved;
            }
        }
    }

    /// Runs a call if it may, counted, traced and recorded under the tool's real name.
    async fn run(
        &self,
        client: &Client,
        conversation: &Conversation,
        ready: Ready,
        caller: Caller,
    ) -> Result<Outcome, RpcError> {
        let name = ready.tool().name().clone();
        let auditor = self.auditor(client, &caller);
        let refused = |reason: String| Outcome {
            tool: Some(name.clone()),
            result: ToolResult::error(reason),
            effects: Effects::default(),
        };
        let verdict = match self.decide(client, &ready, &caller).await {
            Ok(verdict) => verdict,
            Err(reason) => {
                if let Some(auditor) = auditor {
                    auditor.refused(&name, Verdict::AskedNo, Some(ready.arguments()));
                }
                return Ok(refused(reason));
            }
        };
        let recorded = match auditor {
            Some(auditor) => match auditor.begin(&name, verdict, ready.arguments()).await {
                Ok(recorded) => Some(recorded),
                Err(reason) => return Ok(refused(unrecorded(&name, &reason))),
            },
            None => None,
        };
        let begun = Instant::now();
        let mut ending = Ending::new(self.metrics(), &name, begun);
        let (traced, caller) = match &self.options().tracer {
            Some(tracer) => {
                let (traced, caller) = trace::begin(&**tracer, &name, caller);
                (Some(traced), caller)
            }
            None => (None, caller),
        };
        let span = tracing::debug_span!("call", tool = %name);
        let outcome = conversation.run(ready.on_behalf_of(caller)).instrument(span).await;
        match outcome {
            Ok(outcome) => {
                let how = match &outcome.result {
                    result if result.refusal().is_some() => "refused",
                    result if result.is_error() => "error",
                    _ => "ok",
                };
                ending.ends_with(how);
                if let Some(recorded) = recorded {
                    recorded.ended(how != "ok");
                }
                if let Some(traced) = traced {
                    traced.end(how);
                }
                tracing::debug!(tool = %name, took = ?begun.elapsed(), "called");
                Ok(outcome)
            }
            Err(CallError::Tell(reason) | CallError::Stop(reason)) => {
                ending.ends_with("failed");
                if let Some(traced) = traced {
                    traced.end("failed");
                }
                tracing::warn!(tool = %name, reason, "call failed");
                Err(RpcError::new(code::INTERNAL_ERROR, reason))
            }
        }
    }
}

/// Tells a client of the session era to list again.
pub(crate) fn list_changed() -> String {
    notification("notifications/tools/list_changed", toolcrib_wire::NO_PARAMS)
}
