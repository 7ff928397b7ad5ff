//! Servers with tools of realistic size that say whom they were called for.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;
use toolcrib_core::{GroupId, ToolName, ToolSpec};
use toolcrib_runtime::{CallError, Invocation, Listing, ToolResult, Toolset};

use crate::meter::Meter;
use crate::model::number_of;

const VERBS: [&str; 16] = [
    "create", "list", "get", "update", "delete", "search", "export", "archive", "assign", "merge",
    "close", "send", "validate", "sync", "rename", "copy",
];
const NOUNS: [&str; 24] = [
    "issue",
    "branch",
    "commit",
    "folder",
    "message",
    "channel",
    "member",
    "event",
    "invoice",
    "payment",
    "customer",
    "order",
    "ticket",
    "alert",
    "dashboard",
    "metric",
    "table",
    "document",
    "comment",
    "task",
    "workflow",
    "deployment",
    "template",
    "report",
];
const REMARKS: [&str; 6] = [
    "Answers with the identifier and the state after the change.",
    "Long lists come in pages; give the cursor of the page before to go on.",
    "Needs the right to write in the workspace.",
    "What is left out stays as it is.",
    "Look the identifier up first if it is not known.",
    "Times are written with their zone.",
];

pub(crate) struct Server {
    name: String,
    specs: Vec<ToolSpec>,
    meters: Arc<[Meter]>,
}

pub(crate) fn server_name(number: usize) -> String {
    format!("{}-{number:03}", NOUNS[number * 5 % NOUNS.len()])
}

/// The names of a server's first tools.
pub(crate) fn first_tools(server: usize, count: usize) -> Vec<String> {
    (0..count).map(|at| tool_name(server, at)).collect()
}

/// What to search for, differing from one conversation to the next.
pub(crate) fn query(number: usize) -> String {
    let (verb, noun) = (VERBS[number * 3 % VERBS.len()], NOUNS[number * 7 % NOUNS.len()]);
    format!("{verb} {noun} of a team")
}

fn tool_name(server: usize, at: usize) -> String {
    let (verb, noun) = (VERBS[at % VERBS.len()], NOUNS[(server + at / 3) % NOUNS.len()]);
    format!("{verb}_{noun}_{at}")
}

impl Server {
    pub(crate) fn all(
        servers: usize,
        tools: usize,
        meters: &Arc<[Meter]>,
    ) -> impl Iterator<Item = Self> {
        (0..servers).map(move |number| {
            let name = server_name(number);
            // Ten thousand by three hundred leaves some over, for the first ones.
            let count = tools / servers + usize::from(number < tools % servers);
            let specs = (0..count).map(|at| spec(&name, number, at)).collect();
            Self { name, specs, meters: meters.clone() }
        })
    }
}

fn spec(server: &str, number: usize, at: usize) -> ToolSpec {
    let name = tool_name(number, at);
    let words = name.replace('_', " ");
    let remark = |shift: usize| REMARKS[(number + at + shift) % REMARKS.len()];
    let schema = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": format!("Which one to {words}.")},
            "title": {"type": "string", "maxLength": 200, "description": remark(1)},
            "labels": {"type": "array", "items": {"type": "string"}, "description": remark(2)},
            "state": {"type": "string", "enum": ["open", "closed", "archived"]},
            "options": {"type": "object", "properties": {
                "notify": {"type": "boolean", "description": remark(3)},
                "priority": {"type": "integer", "minimum": 0, "maximum": 5}
            }},
            "cursor": {"type": "string", "description": remark(4)}
        },
        "required": ["id"],
        "additionalProperties": false
    });
    let description = format!("{words}, on {server}. {} {} {}", remark(0), remark(2), remark(5));
    ToolSpec::new(ToolName::mcp(server, name), schema).with_description(description)
}

impl Toolset for Server {
    fn id(&self) -> GroupId {
        GroupId::server(&self.name)
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let listing = Listing::new(self.specs.clone());
        Box::pin(async { Ok(listing) })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async move {
            let id = invocation.arguments["id"].as_str().unwrap_or_default().to_owned();
            let number = number_of(&id).ok_or_else(|| CallError::Stop(format!("for {id}?")))?;
            let work = async {
                // Long enough for others to come in between.
                tokio::time::sleep(Duration::from_millis(1 + number as u64 % 5)).await;
                ToolResult::text(format!("{} for {id}", invocation.tool.tool()))
            };
            Ok(self.meters[number].untimed(work).await)
        })
    }
}
