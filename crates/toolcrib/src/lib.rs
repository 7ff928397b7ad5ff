//! Deferred tool loading for LLM agents: keep thousands of tools, send a few hundred tokens.
//!
//! An agent connected to many MCP servers sends every tool's JSON schema on every turn. Toolcrib
//! keeps the schemas back: the model sees a short catalog and a few verbs, finds or loads what it
//! needs, and calls it. You keep your own loop:
//!
//! ```
//! use serde_json::json;
//! use toolcrib::{Call, Crib, Settings, function};
//!
//! # #[derive(serde::Deserialize, schemars::JsonSchema)] struct City { city: String }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let crib = Crib::builder(Settings::default())
//!     .function(function("weather", "Weather in a city.", |at: City| async move {
//!         format!("{}: sunny", at.city)
//!     }))
//!     .build()
//!     .await?;
//!
//! let chat = crib.conversation();
//! chat.begin_turn();
//! let shown = chat.prepare()?; // put shown.system_section and shown.tools into your request
//! # let _ = shown;
//! // … the model answers with a call, which you hand over as it came:
//! let outcome = chat.call(Call::new("weather", json!({"city": "Oslo"}))).await?;
//! assert_eq!(outcome.result.to_text(), "Oslo: sunny");
//! # Ok(()) }
//! ```
//!
//! Where to go from here:
//!
//! - [`Crib`] and [`Conversation`]: the driver most programs use. [`function`] and [`Toolset`]
//!   bring tools to it; [`Group`] with a [`Loader`] brings them when they are first needed.
//! - [`Settings`]: which [`Preset`], [`Mode`] and [`Strategy`], which tools are eager
//!   ([`EagerRules`]), budgets.
//! - [`Policy`]: what a caller may know of.
//! - Feature `agent`: a loop that is ready, with providers, hooks and permissions.
//! - [`Engine`], [`Registry`], [`Session`]: the same without I/O, for drivers of your own.
//! - [`Embeddings`] over an [`Embed`]: ranking by a model of your own, for
//!   [`CribBuilder::embeddings`]. Feature `embed` has one behind an address.
//! - [`tokens`] and [`search`]: the leaf libraries.
//!
//! The examples of this crate run as they stand: `cargo run -p toolcrib --example 1-embed`.

#[doc(inline)]
pub use toolcrib_core::*;
#[doc(inline)]
pub use toolcrib_runtime::*;

/// An agent over deferred tools: providers, a streaming loop, hooks, permissions.
#[cfg(feature = "agent")]
pub mod agent {
    #[doc(inline)]
    pub use toolcrib_agent::*;
}

/// MCP servers as toolsets.
#[cfg(feature = "mcp")]
pub mod mcp {
    #[doc(inline)]
    pub use toolcrib_mcp::*;
}

/// Embeddings from an OpenAI-compatible or Ollama endpoint.
#[cfg(feature = "embed")]
pub mod embed {
    #[doc(inline)]
    pub use toolcrib_embed::*;
}

/// The MCP server in front of everything.
#[cfg(feature = "gateway")]
pub mod gateway {
    #[doc(inline)]
    pub use toolcrib_gateway::*;
}

/// Tools that need no key, as toolsets.
#[cfg(feature = "builtins")]
pub mod builtins {
    #[doc(inline)]
    pub use toolcrib_builtins::*;
}

/// What MCP servers list, remembered, and conversations, kept.
#[cfg(feature = "store")]
pub mod store {
    #[doc(inline)]
    pub use toolcrib_store::*;
}

/// Token counts, model prices and prompt-cache arithmetic.
pub mod tokens {
    #[doc(inline)]
    pub use toolcrib_tokens::*;
}

/// Ranking over small documents with fields.
pub mod search {
    #[doc(inline)]
    pub use toolcrib_search::*;
}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/coming-from.md")]
struct ComingFrom;
