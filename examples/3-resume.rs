//! A conversation that ends in one process and goes on in another.

#![allow(clippy::print_stdout)]

use serde_json::json;
use toolcrib::{Call, Crib, Mode, Policy, Saved, Settings, Strategy, function};

async fn crib() -> Result<Crib, Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    let greet = function("greet", "Say hello.", |(): ()| async { "Hello!" });
    let part = function("say_goodbye", "Say goodbye.", |(): ()| async { "Goodbye!" });
    Ok(Crib::builder(settings).function(greet).function(part).build().await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One process: the model finds a tool; the host keeps the session wherever it likes.
    let (kept, before) = {
        let chat = crib().await?.conversation();
        chat.call(Call::new("tool_search", json!({"query": "hello"}))).await?;
        let shown = chat.prepare()?;
        (serde_json::to_string(&chat.snapshot())?, shown.fingerprint())
    };
    println!("kept {} bytes", kept.len());

    // Another process: the strategy must be named, so that it can't differ unnoticed.
    let saved = Saved::from_json(&kept)?;
    let crib = crib().await?;
    let (chat, report) = crib.resume(saved.clone(), Strategy::Dispatch, Policy::default()).await?;
    println!("restored {:?}, missing {:?}", report.restored, report.missing);
    println!("same bytes: {}", chat.prepare()?.fingerprint() == before);
    println!("call: {}", chat.call(Call::new("greet", json!({}))).await?.result.to_text());

    if let Err(error) = crib.resume(saved, Strategy::Inject, Policy::default()).await {
        println!("with another strategy: {error}");
    }
    Ok(())
}
