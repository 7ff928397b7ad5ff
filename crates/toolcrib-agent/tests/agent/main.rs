//! The loop, with a scripted model: what it is sent, what happens, what is kept.

#![allow(clippy::unwrap_used)]

mod calls;
mod cancel;
mod compaction;
mod costs;
mod faults;
mod hooks;
mod kept;
mod native;
mod permissions;
mod presets;
mod sub_agents;
mod support;
