//! Every odd thing a model puts into the arguments of a verb has an answer that helps its next
//! step.

#[path = "../support/mod.rs"]
mod support;

mod any_verb;
mod call_tool;
mod load_tools;
mod split;
mod tool_search;

use serde_json::Value;
use support::{Chat, deferring, registry, server, tool};
use toolcrib_core::{Deferral, Preset, Registry, ToolName};

/// Two servers that share a tool name, thirty tools of a third, a built-in and an eager host tool.
fn office() -> Registry {
    let many: Vec<String> = (0..30).map(|n| format!("report_{n:02}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "Print a report.")).collect();
    let registry = registry([
        server("github", &[("create_issue", "Create an issue."), ("get_me", "Who am I?")]),
        server("linear", &[("create_issue", "Create a ticket."), ("list_teams", "List teams.")]),
        server("reports", &many),
    ]);
    registry
        .register(tool(ToolName::builtin("read_file"), "Read a file."))
        .expect("the name is free");
    let eager = tool(ToolName::host("lookup"), "Look something up.").with_deferral(Deferral::Eager);
    registry.register(eager).expect("the name is free");
    registry
}

fn chat(preset: Preset) -> Chat {
    Chat::new(deferring(preset), office())
}

/// The hint or error of an answer, whatever its form.
fn told(content: &str) -> String {
    match serde_json::from_str::<Value>(content) {
        Ok(value) => {
            let keys = ["error", "hint", "message", "suggestion"];
            let texts = keys.iter().filter_map(|key| value[key].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        Err(_) => content.to_owned(),
    }
}
