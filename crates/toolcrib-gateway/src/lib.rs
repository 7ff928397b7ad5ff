//! The MCP server in front: any number of servers behind three small verbs.
//!
//! A [`Gateway`] serves a [`Crib`](toolcrib_runtime::Crib) to MCP clients, over stdio and over
//! streamable HTTP, in both eras of the protocol at once: a request that says which version it is
//! in is answered by itself; `initialize` opens a session. What passes through is kept as the
//! JSON it came as.
//!
//! The parts, in reading order:
//!
//! 1. [`Endpoint`]: what a client sees: the verbs, every tool, or one server's.
//! 2. `request.rs`, `methods.rs`: a request read, and one function for each method.
//! 3. `call.rs`, `relay.rs`, `patience.rs`: a call, what is heard while it runs, and how long it
//!    waits for servers that are starting.
//! 4. `behalf.rs`: whom a request is for. `asks.rs`: what servers ask a client with a session.
//!    `desk.rs`, `parking.rs`, `seal.rs`: what they ask one without.
//! 5. `seat.rs`, `limits.rs`: who a caller is, and how much they may ask for. `approval.rs`: whether
//!    a call may run. `tools.rs`: lists of tools as bytes. `client.rs`: what belongs to one
//!    conversation.
//! 6. `passed.rs`, `offers.rs`: what is no call of a tool, and whose it is. `pages.rs`,
//!    `template.rs`, `declared.rs`: parts of that. `watch.rs`, `follows.rs`: what changes is told.
//! 7. `outbox.rs`, `stdio.rs`, `http.rs`: how messages travel. `outbox/log.rs`, `http/resume.rs`:
//!    streams that are taken up again after a lost connection. `held.rs`: what messages take up.
//! 8. `metrics.rs`, `servers.rs`: how it is doing.
//!
//! ```no_run
//! use toolcrib_core::{Naming, Settings};
//! use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options};
//! use toolcrib_runtime::Crib;
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let crib = Crib::builder(Settings::default()).naming(Naming::Gateway).build().await?;
//! let gateway = Gateway::new(crib, Options::default())?;
//!
//! // For one client, on this process's own pipes:
//! gateway.serve_stdio(Endpoint::Meta, std::future::pending()).await?;
//!
//! // For any number of them:
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7171").await?;
//! gateway.serve_http(listener, HttpOptions::default(), std::future::pending()).await?;
//! # Ok(()) }
//! ```

mod approval;
mod asks;
mod behalf;
mod call;
mod client;
mod declared;
mod desk;
mod endpoint;
mod ends;
mod follows;
mod gateway;
mod held;
mod http;
mod limits;
mod methods;
mod metrics;
mod oauth;
mod offers;
mod options;
mod outbox;
mod pages;
mod parking;
mod passed;
mod patience;
mod relay;
mod request;
mod seal;
mod seat;
mod servers;
mod stdio;
mod tasks;
mod template;
mod tools;
mod trace;
mod watch;

pub use endpoint::{Endpoint, UnknownEndpoint};
pub use gateway::{Gateway, GatewayError};
pub use limits::Limits;
pub use oauth::OAuth;
pub use options::{HttpOptions, NotAHash, Options, TokenHash};
pub use trace::{TracedCall, TracedSpan, Tracer};
