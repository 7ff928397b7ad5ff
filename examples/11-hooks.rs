//! Hooks: what the model is sent, what its calls become, when to stop.

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde::Deserialize;
use serde_json::json;
use toolcrib::agent::{Agent, Flow, Hooks, Message, PendingCall, Scripted, Turn, Verdict};
use toolcrib::{Crib, Settings, ToolResult, function};

/// Keeps a team's house rules.
struct HouseRules;

impl Hooks for HouseRules {
    fn transform_system_prompt(&self, prompt: String) -> BoxFuture<'_, String> {
        ready(format!("{prompt}\nAmounts are in euros.")).boxed()
    }

    fn before_tool_call<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Verdict> {
        let too_much = call.arguments["amount"].as_f64() > Some(100.0);
        let verdict =
            if too_much { Verdict::Rewrite(json!({"amount": 100})) } else { Verdict::Pass };
        ready(verdict).boxed()
    }

    fn after_tool_call<'a>(
        &'a self,
        call: &'a PendingCall,
        result: ToolResult,
    ) -> BoxFuture<'a, ToolResult> {
        println!("{} {} gave {}", call.name, call.arguments, result.to_text());
        ready(result).boxed()
    }

    fn should_stop<'a>(&'a self, history: &'a [Arc<Message>]) -> BoxFuture<'a, Flow> {
        let flow = if history.len() > 10 {
            Flow::Stop("ten messages are enough".into())
        } else {
            Flow::Continue
        };
        ready(flow).boxed()
    }
}

#[derive(Deserialize, schemars::JsonSchema)]
struct Payment {
    amount: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pay =
        function(
            "pay",
            "Pay an invoice.",
            |it: Payment| async move { format!("paid {}", it.amount) },
        );
    let crib = Crib::builder(Settings::default()).function(pay).build().await?;
    // A model that never has enough.
    let model =
        Scripted::by(|request| Turn::call("pay", json!({"amount": 40 * request.messages.len()})));
    let agent = Agent::builder(model.clone(), "any", crib).system("Pay.").hooks(HouseRules).build();
    let answer = agent.chat().send("Pay what we owe.").await;
    println!("{}", answer.end);
    println!("system prompt: {:?}", model.requests()[0].system);
    Ok(())
}
