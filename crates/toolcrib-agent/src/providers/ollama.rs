//! Ollama's own API.

mod request;
mod response;
mod stream;

use futures::stream::BoxStream;

use super::http::{Access, AccessError, Auth, Exchange, Framing, Http};
use crate::provider::{Delta, Provider, ProviderError, Request};

/// Models that Ollama serves, spoken to in its own form: `POST api/chat`, an answer of one JSON
/// object a line.
///
/// The address is `http://127.0.0.1:11434` unless [`Access::base_url`] says otherwise; a key is
/// sent as a bearer token. Calls have no ids here, so replies leave them empty. What a model
/// thinks is kept and sent back, for models that want to see it.
///
/// The window of a local model is whatever the server was started with; `options.num_ctx` in
/// [`ModelOptions::extra`](crate::ModelOptions::extra) asks for another. Members of `options` are
/// laid one by one over those that are sent anyway.
///
/// ```
/// use toolcrib_agent::{Provider, providers::{Access, Ollama}};
///
/// let ollama = Ollama::open(Access::default())?;
/// assert_eq!(ollama.name(), "ollama");
/// # Ok::<_, toolcrib_agent::providers::AccessError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ollama(Http);

const NAME: &str = "ollama";

impl Ollama {
    /// Where it is, unless [`Access::base_url`] says otherwise.
    pub const HOME: &'static str = "http://127.0.0.1:11434";

    /// Checks the access. Nothing is sent.
    pub fn open(access: Access) -> Result<Self, AccessError> {
        Http::open(access, Self::HOME, Auth::Bearer, &[]).map(Self)
    }
}

impl Provider for Ollama {
    fn name(&self) -> &str {
        NAME
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let exchange = Exchange {
            path: "api/chat",
            body: request::body(&request),
            framing: Framing::Lines,
            refusal: response::refusal,
        };
        self.0.stream(exchange, stream::Reader::default())
    }
}
