//! Unloading: by hand, and by a token budget that puts out what was not used lately.
//!
//! This matters under `inject`, where loaded schemas join the tools array. Under `dispatch` they
//! are in the history, and there is nothing in the array to free.

#![allow(clippy::print_stdout)]

use serde_json::json;
use toolcrib::{Call, Crib, Function, Mode, Settings, StrategyChoice, function};

fn tool(n: u32) -> Function {
    let about = format!("Report number {n}: {}", "what the quarter brought, by region. ".repeat(4));
    function(&format!("report_{n}"), &about, move |(): ()| async move { format!("report {n}") })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    settings.strategy = StrategyChoice::Inject;
    settings.loaded_tokens = Some(200);
    let tools = (1..=6).map(tool);
    let builder = tools.fold(Crib::builder(settings), |builder, tool| builder.function(tool));
    let chat = builder.build().await?.conversation();

    for n in 1..=6 {
        let report = chat.begin_turn();
        if !report.evicted.is_empty() {
            println!("turn {}: put out {:?}", report.turn, report.evicted);
        }
        chat.call(Call::new(format!("report_{n}"), json!({}))).await?;
        let shown = chat.prepare()?;
        let names: Vec<&str> = shown.tools.iter().map(|tool| &**tool.name()).collect();
        println!("turn {}: {names:?}", report.turn);
    }
    println!("by hand: {:?}", chat.unload(["report_6"]));
    println!(
        "and it still works: {}",
        chat.call(Call::new("report_6", json!({}))).await?.result.to_text()
    );
    Ok(())
}
