//! The real binary, run on files in a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod config;
mod docs;
mod plan;
mod prompt;
mod search;
mod sources;
mod support;
mod terminal;
mod tools;
