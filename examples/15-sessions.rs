//! A conversation that outlives its program, and what it cost.
//!
//! Everything is kept when it happens. Here the program only forgets its conversation; it might as
//! well have been killed.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toolcrib::agent::{Agent, ReplayTools, Scripted, Turn, replay};
use toolcrib::store::SqliteStore;
use toolcrib::tokens::Models;
use toolcrib::{Crib, Mode, SessionStore, Settings, function};

#[derive(Deserialize, JsonSchema)]
struct Transfer {
    /// Whom to pay.
    to: String,
    /// How much, in cents.
    amount: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pay = function("pay", "Pay somebody.", |it: Transfer| async move {
        format!("{} cents paid to {}", it.amount, it.to)
    });
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    let mut builder = Crib::builder(settings).function(pay);
    for number in 0..120 {
        let name = format!("move_to_account_{number}");
        let about = "Move money to another account of one's own, at once or on a day to come.";
        builder = builder.function(function(&name, about, |_: Transfer| async { "moved" }));
    }
    let crib = builder.build().await?;
    let model = Scripted::new([
        Turn::call("tool_search", json!({"query": "pay somebody", "limit": 1})),
        Turn::call(
            "call_tool",
            json!({"tool_name": "pay", "arguments": {"to": "Ada", "amount": 900}}),
        ),
        Turn::text("Ada has her nine euros."),
        Turn::text("Nine euros, to Ada."),
    ]);
    let agent = Agent::builder(model, "scripted", crib.clone()).build();

    // A file in practice: `SqliteStore::open(path)`.
    let store = Arc::new(SqliteStore::open_in_memory()?);
    let mut chat = agent.chat().kept_in(store.clone(), BTreeMap::new());
    println!("{}", chat.send("Pay Ada nine euros.").await.text);
    drop(chat);

    let [kept] = &store.list("nine euros", 1).await?[..] else { return Err("not kept".into()) };
    println!("{}: {} messages", kept.title.as_deref().unwrap_or("?"), kept.messages);
    let (mut chat, reopened) = agent.reopen(&*store, &kept.id).await?;
    println!("loaded again: {:?}", reopened.report.restored);
    println!("{}", chat.send("What did I pay?").await.text);

    // The same conversation under every strategy, with models that have a price.
    let tools = ReplayTools::of(crib.engine(), &chat.conversation().view())?;
    let models = Models::embedded();
    let some = ["claude-opus-5.5", "gpt-6.1-sol"].map(|name| models.find(name));
    println!("\n{}", replay(chat.history(), "", &tools, some.into_iter().flatten()));
    Ok(())
}
