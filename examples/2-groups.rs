//! Groups whose tools a loader brings when they are first needed.
//!
//! The model sees a line per group. Loading one runs its loader, once per conversation; a loader
//! that fails is reported to the model and may be tried again.

#![allow(clippy::print_stdout)]

use std::sync::atomic::{AtomicU32, Ordering};

use serde::Deserialize;
use serde_json::json;
use toolcrib::{Call, Crib, Group, HostTools, Preset, Settings, function};

#[derive(Deserialize, schemars::JsonSchema)]
struct Issue {
    title: String,
}

static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// In earnest this would connect to a server.
async fn load_tracker() -> Result<HostTools, String> {
    if ATTEMPTS.fetch_add(1, Ordering::SeqCst) == 0 {
        return Err("the tracker does not answer".to_owned());
    }
    let create = function("create_issue", "Open an issue.", |issue: Issue| async move {
        format!("Issue opened: {}", issue.title)
    });
    let close = function("close_issue", "Close an issue.", |issue: Issue| async move {
        format!("Issue closed: {}", issue.title)
    });
    Ok(HostTools::new("tracker").with(create).with(close))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tracker = Group::new("tracker")
        .with_display_name("Issue tracker")
        .with_description("Open, find and close issues")
        .with_tool_names(["create_issue", "close_issue"]);
    let crib = Crib::builder(Settings::preset(Preset::Groups))
        .group(tracker, load_tracker)
        .build()
        .await?;

    let chat = crib.conversation();
    chat.on_tools_expanded(|tools| println!("  loaded: {}", tools.len()));
    println!("{}\n", chat.prepare()?.system_section);

    let load =
        || Call::new("load_tools", json!({"group_id": "tracker", "tool_names": ["create_issue"]}));
    println!("first try: {}", chat.call(load()).await?.result.to_text());
    println!("second try: {}", chat.call(load()).await?.result.to_text());

    let call = json!({"tool_name": "create_issue", "arguments": {"title": "Crash on start"}});
    println!("call: {}", chat.call(Call::new("deferred_tool_call", call)).await?.result.to_text());
    Ok(())
}
