//! OpenAI Chat Completions, and the many servers that speak it.

mod request;
mod response;
mod stream;

use futures::stream::BoxStream;
use reqwest::Url;

use super::http::{Access, AccessError, Auth, Exchange, Framing, Http};
use crate::provider::{Delta, Provider, ProviderError, Request};

// What the Responses API has in common with this one.
pub(super) use request::written;
pub(super) use response::{in_band, refusal, usage};

const NAME: &str = "openai-chat";

/// OpenAI Chat Completions (`POST {base}/chat/completions`), and whatever is compatible with it:
/// vLLM, llama.cpp, LM Studio, OpenRouter and others, by their base URL.
///
/// The base URL is `https://api.openai.com/v1` unless another is given. A key is sent if there is
/// one; most servers of one's own need none.
///
/// What a model thinks is kept and goes back to the servers that are compatible, by the name it
/// came by (`reasoning_content` or `reasoning`): some refuse to go on after a call without it.
/// OpenAI's own shows none here and takes none.
///
/// ```
/// use toolcrib_agent::providers::{Access, OpenAiChat};
///
/// let mut access = Access::default();
/// access.base_url = Some("http://localhost:8080/v1".into());
/// let local = OpenAiChat::open(access)?;
/// # Ok::<_, toolcrib_agent::providers::AccessError>(())
/// ```
#[derive(Debug)]
pub struct OpenAiChat {
    http: Http,
    server: Server,
}

impl OpenAiChat {
    /// Where it is, unless [`Access::base_url`] says otherwise.
    pub const HOME: &'static str = "https://api.openai.com/v1";

    /// Prepares for requests; sends none.
    pub fn open(access: Access) -> Result<Self, AccessError> {
        let server = Server::at(access.base_url.as_deref());
        Ok(Self { http: Http::open(access, Self::HOME, Auth::Bearer, &[])?, server })
    }
}

impl Provider for OpenAiChat {
    fn name(&self) -> &str {
        NAME
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let exchange = Exchange {
            path: "chat/completions",
            body: request::body(&request, self.server),
            framing: Framing::Events,
            refusal,
        };
        self.http.stream(exchange, stream::Answer::default())
    }
}

/// Who answers. A few members of a request are known at OpenAI only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    OpenAi,
    Compatible,
}

impl Server {
    pub(super) fn at(base_url: Option<&str>) -> Self {
        let Some(base_url) = base_url.map(str::trim).filter(|url| !url.is_empty()) else {
            return Self::OpenAi;
        };
        let url = Url::parse(base_url).ok();
        let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
        let is_openai = host == "api.openai.com"
            || host.ends_with(".api.openai.com")
            || host.ends_with(".openai.azure.com");
        if is_openai { Self::OpenAi } else { Self::Compatible }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_openai_itself_gets_what_only_it_knows() {
        for (base_url, server) in [
            (None, Server::OpenAi),
            (Some(""), Server::OpenAi),
            (Some(" \n"), Server::OpenAi),
            (Some(" https://api.openai.com/v1\n"), Server::OpenAi),
            (Some("https://my-team.openai.azure.com/openai/v1"), Server::OpenAi),
            (Some("https://openai.azure.com.example.org/v1"), Server::Compatible),
            (Some("https://api.openai.com/v1"), Server::OpenAi),
            (Some("https://eu.api.openai.com/v1"), Server::OpenAi),
            (Some("https://api.openai.com.example.org/v1"), Server::Compatible),
            (Some("https://openrouter.ai/api/v1"), Server::Compatible),
            (Some("http://localhost:8080/v1"), Server::Compatible),
            (Some("no address"), Server::Compatible),
        ] {
            assert_eq!(Server::at(base_url), server, "{base_url:?}");
        }
    }
}
