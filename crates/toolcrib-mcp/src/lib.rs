//! Upstream MCP servers as toolsets.
//!
//! A server is started when it is first needed, listed once and remembered, watched while it
//! runs, stopped when nobody calls it, and started again when it died. One that hangs or fails
//! costs its own callers an answer with the reason, and nobody else anything.
//!
//! The parts, in reading order:
//!
//! 1. [`ServerConfig`]: how to reach a server, and its limits.
//! 2. [`Upstream`]: a server as a [`Toolset`](toolcrib_runtime::Toolset); [`Status`] is what can
//!    be told of it. [`Upstreams`] is what all of them share.
//! 3. `connection`: requests and answers over a link, which is a `child` process or `http`;
//!    `board`: who waits for what on it; `asked`: what the server asks of whoever called.
//! 4. `handshake` and `list`: what is said first, in either era, and what is offered.
//! 5. `auth`: logins at servers that want one; [`Logins`] is where they are kept.

mod asked;
mod auth;
mod board;
mod child;
mod config;
mod connection;
mod guard;
mod handshake;
mod http;
mod list;
mod secrets;
mod stderr;
mod upstream;

pub use auth::{LoginPage, Logins};
pub use config::{Environment, Launch, OAuth, ServerConfig, Sharing};
pub use toolcrib_wire::Era;
pub use upstream::{Status, Upstream, UpstreamState, Upstreams};
