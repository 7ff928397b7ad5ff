//! More bytes than the answer has, or the answer's too slowly.

use std::time::Duration;

use serde_json::Value;

use super::Strike;
use crate::catalog::Kind;
use crate::limits::Ledger;
use crate::script::{Act, Script};

pub(super) fn bend(strike: &Strike<'_>, script: &mut Script) {
    let number = strike.chosen.number;
    match strike.chosen.fault.kind {
        Kind::Garbage => script.before(Act::Noise(garbage(&strike.server.ledger, number))),
        Kind::Flood => script.before(Act::Flood(number << 20)),
        Kind::FloodStderr => script.before(Act::Stderr(number << 20)),
        Kind::Drip => script.change(|text| Act::Drip(text, Duration::from_millis(number))),
        Kind::PrettyPrint => script.change(|text| Act::Noise(pretty(&text).into_bytes())),
        Kind::EndlessOutput => script.before(Act::Endless(number)),
        _ => {}
    }
}

/// Lines that are no messages: talk, halves of messages, colours, bytes that are no text.
fn garbage(ledger: &Ledger, lines: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..lines {
        match ledger.random(6) {
            0 => bytes.extend_from_slice(b"warming up, please wait..."),
            1 => bytes.extend_from_slice(br#"{"jsonrpc":"2.0","id":1,"result":{"content":["#),
            2 => bytes.extend_from_slice(b"\x1b[31mwarn\x1b[0m something is deprecated"),
            3 => bytes.extend_from_slice(br#"{"jsonrpc":"1.0"}"#),
            4 => bytes.extend_from_slice(b"[[[[[[[[[["),
            _ => bytes.extend((0..32).map(|_| match ledger.random(256) {
                // A line's end would make two of it.
                10 | 13 => 0xff,
                byte => byte as u8,
            })),
        }
        bytes.push(b'\n');
    }
    bytes
}

/// The same message over several lines.
fn pretty(text: &str) -> String {
    let value: Result<Value, _> = serde_json::from_str(text);
    let text = value.and_then(|value| serde_json::to_string_pretty(&value));
    text.unwrap_or_default() + "\n"
}
