//! Embeddings from a model behind an address: OpenAI's form, which most servers speak, or
//! Ollama's own.
//!
//! ```
//! use toolcrib_embed::{Endpoint, EndpointConfig, Format};
//!
//! let local = Endpoint::open(EndpointConfig::new("http://localhost:11434", "nomic-embed-text"))?;
//! assert_eq!(local.format(), Format::Ollama);
//!
//! let mut config = EndpointConfig::new("https://api.openai.com/v1", "text-embedding-3-small");
//! config.key = Some("sk-…".to_owned());
//! assert_eq!(Endpoint::open(config)?.format(), Format::OpenAi);
//! # Ok::<_, toolcrib_embed::EndpointError>(())
//! ```
//!
//! An [`Endpoint`] makes one request and says what came of it. Batches, time limits, a cache and
//! what to do about failures are [`Embeddings`](toolcrib_runtime::Embeddings)' concern.
//!
//! The parts, in reading order:
//!
//! 1. [`EndpointConfig`]: what to ask, where and how.
//! 2. [`Endpoint`]: the request.
//! 3. `answer`: what comes back.

mod answer;
mod config;
mod endpoint;

pub use config::{EndpointConfig, EndpointError, Format};
pub use endpoint::Endpoint;
