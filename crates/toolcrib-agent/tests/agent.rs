//! The loop, with a scripted model: what it is sent, what happens, what is kept.

#[path = "agent/calls.rs"]
mod calls;
#[path = "agent/cancel.rs"]
mod cancel;
#[path = "agent/faults.rs"]
mod faults;
#[path = "agent/hooks.rs"]
mod hooks;
#[path = "agent/permissions.rs"]
mod permissions;
#[path = "agent/presets.rs"]
mod presets;
#[path = "agent/sub_agents.rs"]
mod sub_agents;
#[path = "agent/support.rs"]
mod support;
