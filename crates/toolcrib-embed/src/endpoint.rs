//! The request.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Response, Url, redirect};
use serde::Serialize;
use toolcrib_runtime::{Embed, EmbedError, Purpose};

use crate::answer;
use crate::config::{EndpointConfig, EndpointError, Format, without_secrets};

/// How long a connection may take to come about.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long a request may take, whoever waits for it.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);

/// How long a connection is kept for the next request. Many servers close one that was idle for
/// five seconds, and a request sent at that moment would be lost.
const IDLE_LIMIT: Duration = Duration::from_secs(4);

/// The most bytes of an answer: sixty-four vectors of several thousand numbers each, as text.
const MOST_BYTES: usize = 32 << 20;

/// The most bytes that are read of a refusal.
const MOST_REASON_BYTES: usize = 64 << 10;

/// A model behind an address. Opening one sends nothing.
pub struct Endpoint {
    id: String,
    url: Url,
    format: Format,
    model: String,
    key: Option<String>,
    document_prefix: String,
    query_prefix: String,
    headers: HeaderMap,
    /// Built when first needed: reading the machine's certificates takes a while, and may fail.
    client: OnceLock<Client>,
}

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    input: &'a [String],
}

impl Endpoint {
    /// Checks what can be checked without asking.
    pub fn open(config: EndpointConfig) -> Result<Self, EndpointError> {
        let (url, format) = config.target()?;
        let EndpointConfig { model, key, document_prefix, query_prefix, .. } = config;
        if model.trim().is_empty() {
            return Err(EndpointError::Model);
        }
        let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        let mut headers = HeaderMap::new();
        if let Some(key) = &key {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| EndpointError::Key)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // Vectors of one text differ with the prefix too.
        let prefix =
            if document_prefix.is_empty() { "" } else { &format!(" after {document_prefix:?}") };
        let id = format!("{model} at {}{prefix}", without_secrets(&url));
        let client = OnceLock::new();
        Ok(Self { id, url, format, model, key, document_prefix, query_prefix, headers, client })
    }

    /// The form of its requests.
    pub fn format(&self) -> Format {
        self.format
    }

    async fn ask(
        &self,
        purpose: Purpose,
        mut texts: Vec<String>,
    ) -> Result<Vec<Vec<f32>>, EmbedError> {
        let prefix = match purpose {
            Purpose::Document => &self.document_prefix,
            Purpose::Query => &self.query_prefix,
        };
        texts.iter_mut().for_each(|text| text.insert_str(0, prefix));
        let request = Request { model: &self.model, input: &texts };
        let body =
            serde_json::to_vec(&request).map_err(|error| EmbedError::Invalid(error.to_string()))?;
        let post = self.client()?.post(self.url.clone()).headers(self.headers.clone());
        let post = post.header("content-type", "application/json").body(body);
        let response = post.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if !status.is_success() {
            let body = self.read(response, MOST_REASON_BYTES).await.unwrap_or_default();
            let reason = self.without_key(&answer::refusal(status, &body, self.key.is_some()));
            return Err(EmbedError::Refused(reason));
        }
        let body = self.read(response, MOST_BYTES).await?;
        answer::vectors(self.format, &body, texts.len()).map_err(EmbedError::Invalid)
    }

    fn client(&self) -> Result<&Client, EmbedError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .timeout(REQUEST_LIMIT)
            .pool_idle_timeout(IDLE_LIMIT)
            .tcp_nodelay(true)
            // Another address would get the key and every text.
            .redirect(redirect::Policy::none())
            .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| EmbedError::Unreachable(format!("no HTTP client: {error}")))?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn read(&self, mut response: Response, most: usize) -> Result<Vec<u8>, EmbedError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > most {
                return Err(EmbedError::Invalid(format!("it has more than {most} bytes")));
            }
        }
        Ok(bytes)
    }

    /// What went wrong with a request, without the address: it may hold a secret.
    fn unreachable(&self, error: &reqwest::Error) -> EmbedError {
        if error.is_timeout() && !error.is_connect() {
            return EmbedError::TimedOut(REQUEST_LIMIT);
        }
        let mut reason = if error.is_connect() { "no connection" } else { "the connection broke" };
        let mut source = std::error::Error::source(error);
        let mut last = String::new();
        while let Some(error) = source {
            last = error.to_string();
            source = error.source();
        }
        if !last.is_empty() {
            reason = &last;
        }
        EmbedError::Unreachable(self.without_key(reason))
    }

    fn without_key(&self, text: &str) -> String {
        match &self.key {
            Some(key) => text.replace(key.as_str(), "***"),
            None => text.to_owned(),
        }
    }
}

impl Embed for Endpoint {
    fn id(&self) -> &str {
        &self.id
    }

    fn embed(
        &self,
        purpose: Purpose,
        texts: Vec<String>,
    ) -> BoxFuture<'_, Result<Vec<Vec<f32>>, EmbedError>> {
        self.ask(purpose, texts).boxed()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.id).finish()
    }
}
