//! Side conversations: they start from what their parent has loaded and change nothing there.

#![allow(clippy::print_stdout)]

use serde_json::json;
use toolcrib::{Call, Crib, Mode, Settings, function};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    let crib = Crib::builder(settings)
        .function(function("read_log", "Read the server's log.", |(): ()| async { "all quiet" }))
        .function(function("restart", "Restart the server.", |(): ()| async { "restarted" }))
        .build()
        .await?;

    let parent = crib.conversation();
    let search = |query: &str| Call::new("tool_search", json!({"query": query}));
    parent.call(search("read the log")).await?;
    let shown = parent.prepare()?.fingerprint();

    let fork = parent.fork();
    fork.call(search("restart")).await?;
    println!(
        "the fork has {} tools loaded, its parent {}",
        fork.stats()?.loaded,
        parent.stats()?.loaded
    );

    let reader = parent.fork_without_loading();
    println!("same bytes, so the prompt cache holds: {}", reader.prepare()?.fingerprint() == shown);
    for name in ["read_log", "restart"] {
        let call = json!({"tool_name": name, "arguments": {}});
        let outcome = reader.call(Call::new("call_tool", call)).await?;
        println!("{name}: {}", outcome.result.to_text());
    }
    println!("tool_search: {}", reader.call(search("restart")).await?.result.to_text());
    Ok(())
}
