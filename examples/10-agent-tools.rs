//! Tools from functions, behind an agent that finds them: forty are registered, three verbs are
//! sent.

#![allow(clippy::print_stdout)]

use serde::Deserialize;
use serde_json::json;
use toolcrib::agent::{Agent, Scripted, Turn};
use toolcrib::{Crib, Settings, function};

#[derive(Deserialize, schemars::JsonSchema)]
struct Amount {
    /// How much.
    amount: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut builder = Crib::builder(Settings::default());
    let currencies = ["dollars", "euros", "kroner", "pesos", "pounds", "rupees", "yen", "zloty"];
    for (place, from) in currencies.into_iter().enumerate() {
        for to in currencies.into_iter().cycle().skip(place + 1).take(5) {
            let rate = from.len() as f64 / to.len() as f64;
            let name = format!("{from}_to_{to}");
            let description = format!("Convert {from} to {to}.");
            builder =
                builder.function(function(&name, &description, move |it: Amount| async move {
                    format!("{:.2} {to}", it.amount * rate)
                }));
        }
    }
    let crib = builder.build().await?;

    let model = Scripted::new([
        Turn::call("tool_search", json!({"query": "kroner into yen"})),
        Turn::call("call_tool", json!({"tool_name": "kroner_to_yen", "arguments": {"amount": 12}})),
        Turn::text("That is 24 yen."),
    ]);
    let agent = Agent::builder(model.clone(), "any", crib).build();
    let answer = agent.chat().send("What are 12 kroner in yen?").await;

    println!("{}", answer.text);
    for call in &answer.calls {
        println!("called {} {}", call.name, call.arguments);
    }
    let sent: Vec<usize> = model.requests().iter().map(|request| request.tools.len()).collect();
    println!("tools sent, by request: {sent:?}");
    Ok(())
}
