//! Deferred tool loading for LLM agents.

#[doc(inline)]
pub use toolcrib_core::*;

/// Token counts, model prices and prompt-cache arithmetic.
pub mod tokens {
    pub use toolcrib_tokens::*;
}

/// Ranking over small documents.
pub mod search {
    pub use toolcrib_search::*;
}
