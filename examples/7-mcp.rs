//! MCP servers, as toolsets and behind a group: `cargo run -p toolcrib --example 7-mcp`.
//!
//! The servers here are built-in ones of the `toolcrib` command, started from this clone; any
//! other command or URL works the same way.

#![allow(clippy::print_stdout)]

use serde_json::json;
use toolcrib::mcp::{ServerConfig, Upstream};
use toolcrib::{Call, Crib, Group, Settings};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let crib = Crib::builder(Settings::default())
        // A server as a toolset. Over HTTP: ServerConfig::http("docs", "https://…/mcp").
        .toolset(Upstream::new(builtin("time")))
        // A server as a group's loader: it is started when a conversation first needs it.
        .group(Group::new("data").with_description("JSON, CSV, hashes and more."), builtin("data"))
        .build()
        .await?;

    let chat = crib.conversation();
    chat.begin_turn();
    chat.prepare()?;

    let time = json!({"timezone": "Asia/Tokyo"});
    let outcome = chat.call(Call::new("mcp__time__current_time", time)).await?;
    println!("time in Tokyo: {}", outcome.result.to_text());

    let loaded = chat.call(Call::new("load_tools", json!({"group_id": "data"}))).await?;
    println!("loaded: {} tools", loaded.effects.loaded.len());
    Ok(())
}

fn builtin(name: &str) -> ServerConfig {
    let run = ["run", "--quiet", "--package", "toolcrib-cli", "--", "builtin"];
    ServerConfig::command(name, "cargo", run.into_iter().chain([name]))
}
