//! Servers as they come: real child processes and real HTTP, well and badly behaved.
#![allow(clippy::unwrap_used)]

mod asks;
mod asks_over_http;
mod breaker;
mod calls;
mod crashes;
mod ending;
mod fixture;
mod following;
mod headers;
mod http;
mod lanes;
mod lists;
mod parked;
mod rest;
mod results;
mod rounds;
mod secrets;
mod starting;
mod support;
mod web;

/// Not a test by itself: the other tests start this binary as a server, with this as the only
/// test to run. The line that the harness prints first is a banner for the client to tolerate.
#[test]
fn the_fixture_server() {
    if let Ok(flags) = std::env::var("TOOLCRIB_FIXTURE") {
        fixture::serve(&flags);
    }
}
