//! Servers whose tools answer at once, with a page of text.

use futures::future::BoxFuture;
use serde_json::json;
use toolcrib_core::{GroupId, ToolName, ToolSpec};
use toolcrib_runtime::{CallError, Invocation, Listing, ToolResult, Toolset};

const VERBS: [&str; 5] = ["create", "read", "list", "update", "archive"];
const NOUNS: [&str; 7] = ["invoice", "branch", "ticket", "page", "flight", "room", "payslip"];

pub(crate) struct Server {
    name: String,
    specs: Vec<ToolSpec>,
}

fn server_name(number: usize) -> String {
    format!("server{number}")
}

fn tool_name(number: usize, at: usize) -> String {
    let (verb, noun) = (VERBS[at % VERBS.len()], NOUNS[(number + at) % NOUNS.len()]);
    format!("{verb}_{noun}_{at}")
}

/// Words that find tools of the n-th server.
pub(crate) fn query(number: usize) -> String {
    format!("{} {}", server_name(number), tool_name(number, 0).replace('_', " "))
}

/// The name by which the first tool of a server is called.
pub(crate) fn exposed(number: usize) -> String {
    format!("mcp__{}__{}", server_name(number), tool_name(number, 0))
}

impl Server {
    pub(crate) fn new(number: usize, tools: usize) -> Self {
        let name = server_name(number);
        let spec = |at: usize| {
            let tool = tool_name(number, at);
            let words = tool.replace('_', " ");
            let text = |about: &str| json!({"type": "string", "description": about});
            let schema = json!({
                "type": "object",
                "properties": {
                    "id": text(&format!("Which one to {words}. Look it up if it is not known.")),
                    "title": text("As people see it in lists. What is left out stays as it is."),
                    "owner": text("Who looks after it: an address, or the id of an account."),
                    "labels": {"type": "array", "items": {"type": "string"}},
                    "state": {"type": "string", "enum": ["open", "closed", "archived"]},
                    "notify": {"type": "boolean", "description": "Whether its owner is told."}
                },
                "required": ["id"],
                "additionalProperties": false
            });
            ToolSpec::new(ToolName::mcp(&*name, tool), schema).with_description(format!(
                "{words} on {name}. Takes effect at once and is seen by everybody who may see it. \
                 Answers with the id and the state after the change."
            ))
        };
        Self { specs: (0..tools).map(spec).collect(), name }
    }
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
        let line = format!("{} was done, and this is how it went. ", invocation.arguments["id"]);
        Box::pin(async move { Ok(ToolResult::text(line.repeat(2_000 / line.len()))) })
    }
}
