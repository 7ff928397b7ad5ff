//! Feeds mutated input to whatever reads what others wrote, and watches for panics and hangs.
//!
//! The parts, in reading order:
//!
//! 1. [`Corpus`]: whole inputs to begin with, and what becomes of them.
//! 2. [`Hunt`]: cases one after the other, a watchdog beside them, and what was found.
//!
//! The program tries the gateway and the client of servers; what can only be reached from inside
//! a crate is tried by a test of that crate's, with the same two types.

mod corpus;
mod hunt;

pub use corpus::Corpus;
pub use hunt::{Found, Hunt};
