//! The servers as a host sees them: through `Toolset` alone.

#![allow(clippy::unwrap_used)]

use serde_json::json;
use toolcrib_builtins::{Builtin, BuiltinTools, Options};
use toolcrib_core::{GroupId, ToolName};
use toolcrib_runtime::{Invocation, ToolResult, Toolset as _};

async fn call(tools: &BuiltinTools, tool: &str, arguments: serde_json::Value) -> ToolResult {
    let name = ToolName::mcp(tools.builtin().name(), tool);
    tools.call(Invocation::new(name, arguments)).await.unwrap()
}

#[tokio::test]
async fn every_server_lists_its_tools_under_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        roots: vec![folder.path().to_owned()],
        data_dir: Some(folder.path().join("data")),
        ..Options::default()
    };
    for server in Builtin::ALL {
        let tools = server.open(&options).unwrap();
        assert_eq!(tools.id(), GroupId::server(server.name()));
        let listing = tools.list().await.unwrap();
        assert_eq!(listing.description.as_deref(), Some(server.description()));
        assert!(listing.specs.iter().all(|spec| spec.name().server() == Some(server.name())));
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "opening wrote something");
}

#[tokio::test]
async fn a_call_brings_text_and_a_mistake_brings_a_result_that_says_so() {
    let data = Builtin::Data.open(&Options::default()).unwrap();
    let encoded = call(&data, "encode_text", json!({"text": "hi", "encoding": "hex"})).await;
    assert_eq!(encoded, ToolResult::text("6869"));
    let wrong = call(&data, "json_query", json!({"json": "{", "path": "a"})).await;
    assert_eq!(wrong, ToolResult::error(wrong.to_text()));
    assert!(wrong.to_text().starts_with("Not JSON"), "{}", wrong.to_text());
    let unknown = call(&data, "no_such_tool", json!({})).await;
    assert_eq!(unknown, ToolResult::error("There is no tool `no_such_tool` here."));
}
