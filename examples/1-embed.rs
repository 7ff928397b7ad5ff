//! Deferred tools in a loop of your own.
//!
//! A scripted model stands in for yours: it searches, then calls what it found. Everything else is
//! what a real loop does: prepare a request, hand over the calls, give back the results.

#![allow(clippy::print_stdout)]

use serde::Deserialize;
use serde_json::{Value, json};
use toolcrib::{Call, Crib, Mode, Settings, function};

#[derive(Deserialize, schemars::JsonSchema)]
struct Booking {
    /// Where to, as an airport code.
    to: String,
    /// How many seats.
    seats: u32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred; // with two tools, `auto` would send them in full

    let crib = Crib::builder(settings)
        .function(function("book_flight", "Book seats on a flight.", |flight: Booking| async move {
            format!("Booked {} seats to {}.", flight.seats, flight.to)
        }))
        .function(function("cancel_flight", "Cancel a booking.", |flight: Booking| async move {
            format!("Cancelled {}.", flight.to)
        }))
        .build()
        .await?;

    let chat = crib.conversation();
    for turn in 0.. {
        chat.begin_turn();
        let shown = chat.prepare()?;
        println!("request {turn}: {} tools, hash {}", shown.tools.len(), shown.fingerprint());

        let Some(call) = model(turn) else { break };
        println!("  model calls {} {}", call.name, call.arguments);
        let outcome = chat.call(call).await?;
        println!("  result: {}", outcome.result.to_text());
    }
    Ok(())
}

/// What a model might do with this.
fn model(turn: u32) -> Option<Call> {
    let arguments: Value = match turn {
        0 => return Some(Call::new("tool_search", json!({"query": "reserve a seat on a plane flight"}))),
        1 => json!({"tool_name": "book_flight", "arguments": {"to": "OSL"}}),
        2 => json!({"tool_name": "book_flight", "arguments": {"to": "OSL", "seats": 2}}),
        _ => return None,
    };
    Some(Call::new("call_tool", arguments))
}
