//! The real binary, run on files in a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod call;
mod chat;
mod client_config;
mod config;
mod demo;
mod docs;
mod doctor;
mod edit;
mod embedder;
mod eval;
mod fleet;
mod import;
mod model;
mod plan;
mod price;
mod prompt;
mod resume;
mod review;
mod run;
mod search;
mod serve;
mod servers;
mod sessions;
mod sources;
mod support;
mod telemetry;
mod terminal;
mod tools;
mod usage;
