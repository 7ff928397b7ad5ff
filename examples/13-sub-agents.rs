//! Sub-agents: an agent as another's tool, with tools, deferral and a history of its own.

#![allow(clippy::print_stdout)]

use serde_json::json;
use toolcrib::agent::{Agent, Scripted, Turn};
use toolcrib::{Crib, Mode, Policy, PolicyRules, Settings, function};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    let crib = Crib::builder(settings)
        .function(function("read_mail", "Read the newest mail.", |(): ()| async {
            "Lunch at noon?"
        }))
        .function(function("send_mail", "Send a mail.", |(): ()| async { "sent" }))
        .build()
        .await?;

    let secretary = Scripted::new([
        Turn::call("tool_search", json!({"query": "mail"})),
        Turn::call("call_tool", json!({"tool_name": "read_mail", "arguments": {}})),
        Turn::call("call_tool", json!({"tool_name": "send_mail", "arguments": {}})),
        Turn::text("You are asked to lunch at noon. I can't send mail."),
    ]);
    let rules = PolicyRules { allow_tools: Some(vec!["read_*".into()]), ..Default::default() };
    let reader = Agent::builder(secretary.clone(), "small", crib.clone())
        .policy(Policy::new(rules)?)
        .build();
    crib.register(reader.into_tool("ask_secretary", "Knows what is in the mail."))?;

    let chief = Scripted::new([
        Turn::call("ask_secretary", json!({"task": "Anything new?"})),
        Turn::text("Lunch is at noon."),
    ]);
    let agent = Agent::builder(chief, "large", crib).build();
    let mut chat = agent.chat();
    let answer = chat.send("What's new?").await;

    println!("{}", answer.text);
    println!("the secretary was asked {} times", secretary.requests().len());
    let loaded: Vec<String> =
        chat.conversation().session().loaded_tools().map(ToString::to_string).collect();
    println!("loaded by the chief: {loaded:?}");
    Ok(())
}
