//! A chat in twenty lines. With a key in `ANTHROPIC_API_KEY` a real model answers; without one, a
//! script does.

#![allow(clippy::print_stdout)]

use futures::StreamExt;
use toolcrib::agent::providers::{Access, Anthropic};
use toolcrib::agent::{Agent, Event, Provider, Scripted};
use toolcrib::{Crib, Settings, function};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let now = function("now", "The time of day.", |(): ()| async { "a quarter past noon" });
    let crib = Crib::builder(Settings::default()).function(now).build().await?;
    let provider: Box<dyn Provider> = match std::env::var("ANTHROPIC_API_KEY") {
        Ok(key) => Box::new(Anthropic::open(Access::with_key(key))?),
        Err(_) => Box::new(Scripted::demo()),
    };
    let agent = Agent::builder(provider, "claude-sonnet-5-5", crib).system("Be brief.").build();

    let mut chat = agent.chat();
    let mut events = chat.stream("call now {}");
    while let Some(event) = events.next().await {
        match event {
            Event::Text { text } => print!("{text}"),
            Event::CallStarted { name, arguments, .. } => println!("→ {name} {arguments}"),
            Event::RunFinished(answer) => println!("\n({} turns)", answer.turns),
            _ => {}
        }
    }
    Ok(())
}
