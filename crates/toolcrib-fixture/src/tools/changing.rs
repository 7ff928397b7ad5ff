//! Tools that change what is offered.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::{Call, NEW, Outcome, Tool, object, text};
use crate::changes::Change;
use crate::resources::WATCHED;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("test_trigger_tool_change", "Adds a tool, or takes it away", |call| {
            Box::pin(tool(call))
        }),
        Tool::new("test_trigger_prompt_change", "Adds a prompt, or takes it away", |call| {
            Box::pin(prompt(call))
        }),
        Tool::new(
            "test_trigger_resource_list_change",
            "Adds a resource, or takes it away",
            |call| Box::pin(resources(call)),
        ),
        Tool::new("test_trigger_resource_change", "Says a resource changed", |call| {
            Box::pin(resource(call))
        })
        .with(object(json!({"uri": {"type": "string"}}), &[])),
        Tool::new(NEW, "A tool that comes and goes", |_| Box::pin(new())),
    ]
}

fn tell(call: &Call, change: Change) -> Outcome {
    // That nobody listens is no error.
    let told = call.server.changes.send(change).unwrap_or_default();
    Ok(text(format!("Changed; {told} told.")))
}

async fn tool(call: Call) -> Outcome {
    call.server.has_more_tools.fetch_xor(true, Ordering::Relaxed);
    tell(&call, Change::Tools)
}

async fn prompt(call: Call) -> Outcome {
    call.server.has_more_prompts.fetch_xor(true, Ordering::Relaxed);
    tell(&call, Change::Prompts)
}

async fn resources(call: Call) -> Outcome {
    call.server.has_more_resources.fetch_xor(true, Ordering::Relaxed);
    tell(&call, Change::Resources)
}

async fn resource(call: Call) -> Outcome {
    let uri = call.arguments["uri"].as_str().unwrap_or(WATCHED).to_owned();
    tell(&call, Change::Resource(uri))
}

async fn new() -> Outcome {
    Ok(text("Here for now."))
}
