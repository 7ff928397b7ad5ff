//! Deferred tools in a loop of your own.
//!
//! A scripted model stands in for yours: it searches, then calls what it found. Everything else is
//! what a real loop does: prepare a request, hand over the calls, give back the results.

#![allow(clippy::print_stdout)]

use serde::Deserialize;
use serde_json::json;
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
    settings.mode = Mode::Deferred; // `auto` would send as few tools as these in full

    let book = function("book_flight", "Book seats on a flight.", |it: Booking| async move {
        format!("Booked {} seats to {}.", it.seats, it.to)
    });
    let cancel = function("cancel_flight", "Cancel a booking.", |it: Booking| async move {
        format!("Cancelled {} seats to {}.", it.seats, it.to)
    });
    let crib = Crib::builder(settings).function(book).function(cancel).build().await?;

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
    let (verb, arguments) = match turn {
        0 => ("tool_search", json!({"query": "reserve seats on a flight"})),
        1 => ("call_tool", json!({"tool_name": "book_flight", "arguments": {"to": "OSL"}})),
        2 => (
            "call_tool",
            json!({"tool_name": "book_flight", "arguments": {"to": "OSL", "seats": 2}}),
        ),
        _ => return None,
    };
    Some(Call::new(verb, arguments))
}
