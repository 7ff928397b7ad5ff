//! A complete MCP server to test with.
//!
//! It has one of everything that MCP knows, in both eras and over both transports: content of
//! every kind, progress, logging, questions to the client, resources, prompts, completions,
//! subscriptions, tasks. What it offers is what the official conformance suite calls by name, and
//! a little more. Nothing in it does anything useful.
//!
//! The parts, in reading order:
//!
//! 1. [`Server`]: what the whole process shares, and which method is answered where.
//! 2. `caller`: the client behind a request, and how to ask it something in either era.
//! 3. `tools`, `resources`, `prompts`, `tasks`: what is offered.
//! 4. [`http`] and [`stdio`]: the two ways in.

mod ask;
mod caller;
mod changes;
pub mod http;
mod journal;
mod prompts;
mod resources;
mod rounds;
mod server;
mod session;
pub mod stdio;
mod tasks;
mod tools;

pub use server::{Eras, Server};
