//! The OpenAI Responses API.

mod namespaces;
mod request;
mod response;
mod stream;
mod tools;

use futures::stream::BoxStream;
use toolcrib_tokens::Feature;

use super::http::{Access, AccessError, Auth, Exchange, Framing, Http};
use super::openai_chat::{OpenAiChat, Server, refusal};
use crate::provider::{Delta, Provider, ProviderError, Request};

const NAME: &str = "openai-responses";

/// What a call of the search is called by, unless a tool of another name does it.
const SEARCH: &str = "tool_search";

/// The OpenAI Responses API (`POST {base}/responses`).
///
/// The base URL is `https://api.openai.com/v1` unless another is given; the key goes along as a
/// bearer token. Nothing is stored at OpenAI: every request has the whole conversation, in which
/// the model's reasoning comes and goes in encrypted form. Tools that wait ([`Request::native`])
/// are found by the API's tool search, which we execute, and stand in the conversation where they
/// were found.
///
/// ```
/// use toolcrib_agent::providers::{Access, OpenAiResponses};
///
/// let mut access = Access::default();
/// access.key = std::env::var("OPENAI_API_KEY").ok();
/// let openai = OpenAiResponses::open(access)?;
/// # Ok::<_, toolcrib_agent::providers::AccessError>(())
/// ```
#[derive(Debug)]
pub struct OpenAiResponses {
    http: Http,
    server: Server,
}

impl OpenAiResponses {
    /// Where it is, unless [`Access::base_url`] says otherwise.
    pub const HOME: &'static str = OpenAiChat::HOME;

    /// Prepares for requests; sends none.
    pub fn open(access: Access) -> Result<Self, AccessError> {
        let server = Server::at(access.base_url.as_deref());
        Ok(Self { http: Http::open(access, Self::HOME, Auth::Bearer, &[])?, server })
    }
}

impl Provider for OpenAiResponses {
    fn name(&self) -> &str {
        NAME
    }

    fn native(&self) -> Option<Feature> {
        Some(Feature::ToolSearch)
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let search = request.native.as_ref().map(|native| native.search.clone());
        let search = search.map(|name| name.unwrap_or_else(|| SEARCH.into()));
        let exchange = Exchange {
            path: "responses",
            body: request::body(&request, self.server),
            framing: Framing::Events,
            refusal,
        };
        self.http.stream(exchange, stream::Answer::calling(search))
    }
}
