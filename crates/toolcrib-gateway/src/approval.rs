//! Whether a call may run: what the policy says, what a person says where it has them asked, and
//! what the audit log has of it.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;
use toolcrib_core::{Decision, Tool, ToolName, visible};
use toolcrib_runtime::{Auditor, Caller, Era, Ready, Verdict};
use toolcrib_wire::Fields;

use crate::client::Client;
use crate::{Endpoint, Gateway};

/// How long a person may think.
const PATIENCE: Duration = Duration::from_secs(600);

/// How much of the arguments a person is shown, in characters.
const MOST_SHOWN: usize = 500;

/// The most tools that a client has leave to call for as long as it is there.
const MOST_GRANTED: usize = 1_000;

/// The tools that a person let a client call from then on.
#[derive(Debug, Default)]
pub(crate) struct Granted(Mutex<HashSet<ToolName>>);

impl Granted {
    fn has(&self, tool: &ToolName) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    fn add(&self, tool: &ToolName) {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if granted.len() < MOST_GRANTED {
            granted.insert(tool.clone());
        }
    }
}

/// What a person answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Once,
    Session,
    No,
}

impl Gateway {
    /// What the audit log is told through, if there is one.
    pub(crate) fn auditor(&self, client: &Client, caller: &Caller) -> Option<Auditor> {
        let log = self.options().audit.clone()?;
        let endpoint = client.endpoint.to_string();
        Some(Auditor::new(log, client.seat.name.clone(), endpoint, caller.meta()))
    }

    /// Whether a call may run, and how that was decided; if not, what to tell the model.
    pub(crate) async fn decide(
        &self,
        client: &Client,
        ready: &Ready,
        caller: &Caller,
    ) -> Result<Verdict, String> {
        let policy = &client.seat.policy;
        if !policy.asks() {
            return Ok(Verdict::Allowed);
        }
        let tool = ready.tool();
        let number = match policy.decision(tool) {
            Decision::Allow => return Ok(Verdict::Allowed),
            Decision::Ask { number, .. } => number,
            // The view it was found in had it, so nothing gets here.
            Decision::Deny => return Err(format!("Unknown tool `{}`.", tool.exposed())),
        };
        if client.granted.has(tool.name()) {
            return Ok(Verdict::AskedYes);
        }
        let what = format!("`{}` runs only if a person agrees (rule {number})", tool.exposed());
        let Some(can_remember) = can_elicit(caller) else {
            return Err(format!(
                "{what}, and this client can't ask one: nothing was run. Whoever runs the gateway \
                 can allow the tool with a rule before that one under [[policy.rules]]."
            ));
        };
        match self.ask_person(tool, ready, caller, can_remember).await {
            Answer::No => Err(format!("{what}, and nobody did: nothing was run.")),
            Answer::Once => Ok(Verdict::AskedYes),
            Answer::Session => {
                client.granted.add(tool.name());
                Ok(Verdict::AskedYes)
            }
        }
    }

    async fn ask_person(
        &self,
        tool: &Tool,
        ready: &Ready,
        caller: &Caller,
        can_remember: bool,
    ) -> Answer {
        let Some(listener) = caller.listener() else { return Answer::No };
        let params = question(tool, ready, can_remember);
        let asked = listener.ask("elicitation/create", Some(&params));
        match timeout(PATIENCE, asked).await {
            Ok(Ok(answer)) => read(&answer, can_remember),
            Ok(Err(error)) => {
                tracing::debug!(tool = %tool.name(), %error, "nobody could be asked");
                Answer::No
            }
            Err(_) => Answer::No,
        }
    }

    /// Notes a tool that was asked for by its name at an endpoint that passes calls on, and that
    /// the caller was told is unknown.
    pub(crate) fn note_unknown(&self, client: &Client, caller: &Caller, name: &str) {
        let Some(auditor) = self.auditor(client, caller) else { return };
        let all = self.catalog().view_all();
        let is_of = |tool: &ToolName| match &client.endpoint {
            Endpoint::Server(server) => tool.namespace() == Some(server) && tool.tool() == name,
            _ => true,
        };
        let known = match &client.endpoint {
            Endpoint::Server(_) => all.tools().find(|tool| is_of(tool.name())),
            _ => all.tool(name),
        };
        if let Some(tool) = known {
            auditor.refused(tool.name(), Verdict::Denied, None);
        }
        for tool in self.crib().held(name).iter().filter(|tool| is_of(tool)) {
            auditor.refused(tool, Verdict::Held, None);
        }
    }
}

/// Whether the client can show a person a form, and if so, whether an answer can hold for longer
/// than the request.
fn can_elicit(caller: &Caller) -> Option<bool> {
    let party = caller.party()?;
    let capabilities = Fields::parse(party.capabilities()?.get())?;
    let modes = Fields::parse(capabilities.get("elicitation")?.get())?;
    let has_forms = modes.is_empty() || modes.get("form").is_some();
    has_forms.then(|| party.era() == Era::Sessions)
}

fn question(tool: &Tool, ready: &Ready, can_remember: bool) -> Box<RawValue> {
    let name = tool.name();
    let says = match (
        tool.spec().annotations().is_read_only(),
        tool.spec().annotations().is_destructive(),
    ) {
        (true, _) => "It says that it changes nothing.",
        (_, true) => "It may destroy something.",
        (_, false) => "It says that it destroys nothing.",
    };
    let of = name.namespace().map(|it| format!(" of `{}`", visible(it, 64))).unwrap_or_default();
    let message = format!(
        "May `{}`{of} run? {says} Its arguments: {}",
        visible(name.tool(), 128),
        visible(&ready.arguments().to_string(), MOST_SHOWN),
    );
    let choices: &[&str] = if can_remember { &["once", "session", "no"] } else { &["once", "no"] };
    let schema = json!({"type": "object", "properties": {"decision": {
        "type": "string", "title": "Decision", "enum": choices,
        "description": "once: this call. session: this tool, until the client ends. no: not at all.",
    }}, "required": ["decision"]});
    let params = json!({"message": message, "requestedSchema": schema});
    to_raw_value(&params).unwrap_or_default()
}

/// Only a clear yes is one.
fn read(answer: &RawValue, can_remember: bool) -> Answer {
    let Some(answer) = Fields::parse(answer.get()) else { return Answer::No };
    let content = answer.get("content").and_then(|raw| Fields::parse(raw.get()));
    let decision = content.and_then(|content| content.read::<String>("decision"));
    match (answer.read::<String>("action").as_deref(), decision.as_deref()) {
        (Some("accept"), Some("once")) => Answer::Once,
        (Some("accept"), Some("session")) if can_remember => Answer::Session,
        _ => Answer::No,
    }
}

/// What is told of a call that must be in the audit log and can't be.
pub(crate) fn unrecorded(tool: &ToolName, reason: &str) -> String {
    tracing::error!(%tool, reason, "a call was refused because it can't be recorded");
    format!(
        "`{tool}` was not run: calls must be recorded here, and this one can't be at the moment."
    )
}
