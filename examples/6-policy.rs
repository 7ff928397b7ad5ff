//! Policy: what a caller may know of. A denied tool looks unknown to the model; the audit log says
//! denied.

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use serde_json::json;
use toolcrib::{Call, Crib, Mode, Policy, PolicyRules, Session, Settings, function};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    let crib = Crib::builder(settings)
        .function(function("list_users", "List users.", |(): ()| async { "ada, alan" }).read_only())
        .function(function("delete_user", "Delete a user.", |(): ()| async { "deleted" }))
        .audit(Arc::new(|event| println!("  audit: {event:?}")))
        .build()
        .await?;

    let readers = Policy::new(PolicyRules { read_only: true, ..PolicyRules::default() })?;
    let chat = crib.converse(Session::new(), readers);
    println!("the caller sees {} tool, {} is hidden", chat.view().len(), chat.view().hidden());

    for call in [
        Call::new("tool_search", json!({"query": "user"})),
        Call::new("tool_search", json!({"query": "select:delete_user"})),
        Call::new("call_tool", json!({"tool_name": "delete_user", "arguments": {}})),
        Call::new("call_tool", json!({"tool_name": "list_users", "arguments": {}})),
    ] {
        println!("{} {}", call.name, call.arguments);
        println!("  {}", chat.call(call).await?.result.to_text());
    }
    Ok(())
}
