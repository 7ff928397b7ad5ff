//! The real binary, run on files in a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod client_config;
mod config;
mod docs;
mod edit;
mod import;
mod plan;
mod prompt;
mod search;
mod servers;
mod sources;
mod support;
mod terminal;
mod tools;
