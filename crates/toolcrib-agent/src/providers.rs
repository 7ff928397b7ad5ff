//! Models' APIs. Every folder has the same shape: `request.rs` and `response.rs` convert one whole
//! value each, `stream.rs` reads an answer piece by piece; none of them waits. What touches the
//! network is in `http.rs`.

mod anthropic;
mod body;
mod http;
mod ollama;
mod openai_chat;
mod openai_responses;

pub use anthropic::Anthropic;
pub use http::{Access, AccessError, Limits};
pub use ollama::Ollama;
pub use openai_chat::OpenAiChat;
pub use openai_responses::OpenAiResponses;
