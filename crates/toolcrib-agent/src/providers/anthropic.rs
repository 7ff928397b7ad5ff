//! Anthropic's Messages API.

mod request;
mod response;
mod stream;

use futures::stream::BoxStream;

use super::http::{Access, AccessError, Auth, Exchange, Framing, Http};
use crate::provider::{Delta, Provider, ProviderError, Request};

const NAME: &str = "anthropic";
const VERSION: &str = "2023-06-01";

/// Models behind the Messages API: Anthropic's own at `https://api.anthropic.com/v1`, or whatever
/// speaks the same at another base URL.
///
/// Thinking, and what the API's own tools did, is kept in the conversation and sent back as it
/// came. Prompt caching needs no setting: tools, system prompt and conversation are marked so
/// that each request reads what the one before wrote. A `cache_control` in
/// [`ModelOptions::extra`](crate::ModelOptions::extra) replaces these marks with the API's own, and
/// a null there takes them away.
///
/// ```
/// use toolcrib_agent::Provider;
/// use toolcrib_agent::providers::{Access, Anthropic};
///
/// let mut access = Access::default();
/// access.key = Some("sk-ant-example".to_owned());
/// let anthropic = Anthropic::open(access)?;
/// assert_eq!(anthropic.name(), "anthropic");
/// # Ok::<_, toolcrib_agent::providers::AccessError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Anthropic {
    http: Http,
}

impl Anthropic {
    /// Where it is, unless [`Access::base_url`] says otherwise.
    pub const HOME: &'static str = "https://api.anthropic.com/v1";

    /// Takes an address and a key. Nothing is sent yet.
    pub fn open(access: Access) -> Result<Self, AccessError> {
        let fixed = [("anthropic-version", VERSION)];
        let http = Http::open(access, Self::HOME, Auth::Header("x-api-key"), &fixed)?;
        Ok(Self { http })
    }
}

impl Provider for Anthropic {
    fn name(&self) -> &str {
        NAME
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let exchange = Exchange {
            path: "messages",
            body: request::body(&request),
            framing: Framing::Events,
            refusal: response::refusal,
        };
        self.http.stream(exchange, stream::Answer::default())
    }
}
