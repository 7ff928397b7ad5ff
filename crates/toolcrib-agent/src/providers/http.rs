//! The one place where a provider's request meets the network.

mod address;
mod cutter;
mod retry_after;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Proxy, Response, StatusCode, Url, redirect};
use tokio::time::timeout;

use super::body::Size;
use crate::provider::{Delta, ProviderError};
use address::{joined, parse_base, parse_proxy, without_secrets};
use cutter::Cutter;
pub(super) use cutter::Framing;
use retry_after::retry_after;

/// How long a connection is kept for the next request.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// How long the end of a complete answer is waited for. A connection that was read to its end
/// serves the next request too.
const SETTLE_LIMIT: Duration = Duration::from_millis(100);

/// How long the reason of a refusal is waited for.
const REASON_LIMIT: Duration = Duration::from_secs(10);

/// The most bytes that are read of a refusal.
const MOST_REASON_BYTES: usize = 64 << 10;

/// Words shorter than this are no secrets worth hiding: `EMPTY`, `ollama`.
const LEAST_SECRET: usize = 8;

/// How a provider is reached. What is left out is the provider's own.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Access {
    /// Where it is, without the path of a method: `https://api.example.com/v1`.
    pub base_url: Option<String>,
    /// The key.
    pub key: Option<String>,
    /// Further headers. They replace those of the same name that would be sent anyway.
    pub headers: Vec<(String, String)>,
    /// The proxy all requests go through, `http://user:password@proxy.example.com:3128`; no proxy
    /// without it, whatever the environment says.
    pub proxy: Option<String>,
    /// How long it may take.
    pub limits: Limits,
}

impl Access {
    /// The provider itself, with a key.
    pub fn with_key(key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..Self::default() }
    }
}

/// How long an answer may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Until a connection stands.
    pub connect: Duration,
    /// Between two pieces of an answer, and until the first.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), silence: Duration::from_secs(300) }
    }
}

/// What is wrong with an access.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The address is none.
    #[error("`{url}` is not the address of an API: {reason}")]
    Url {
        /// What was given, without secrets.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address of the proxy is none.
    #[error("`{url}` is not the address of a proxy: {reason}")]
    Proxy {
        /// What was given, without secrets.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A key or a header can't be sent.
    #[error("{0} has characters that no header can have")]
    Header(String),
}

/// What a provider wants sent.
pub(super) struct Exchange {
    /// Appended to the base URL.
    pub(super) path: &'static str,
    /// The body.
    pub(super) body: Vec<u8>,
    pub(super) framing: Framing,
    /// What a refusal means: status and body in, error out.
    pub(super) refusal: fn(u16, &str) -> ProviderError,
}

/// Makes deltas of the pieces of one answer.
pub(super) trait Reader: Send + 'static {
    /// Takes the data of one event, or one line.
    fn piece(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError>;

    /// The answer has ended. Pushes [`Delta::Finished`] unless a piece has, or says what is
    /// missing.
    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ProviderError>;

    /// Takes an answer that came in one piece, from a server that doesn't stream.
    fn whole(&mut self, body: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError>;
}

/// A provider's address, with what every request to it carries. Opening one sends nothing.
#[derive(Clone, Debug)]
pub(super) struct Http {
    target: Arc<Target>,
    /// Sent besides.
    more: Option<Header>,
}

/// The name of a header and a value.
type Header = (&'static str, &'static str);

struct Target {
    base: Url,
    headers: HeaderMap,
    proxy: Option<Url>,
    /// What no error may repeat.
    secrets: Vec<String>,
    limits: Limits,
    /// Built when first needed: reading the machine's certificates takes a while, and may fail.
    client: OnceLock<Client>,
}

/// How a key is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Auth {
    /// `Authorization: Bearer …`
    Bearer,
    /// A header of this name.
    Header(&'static str),
}

impl Http {
    /// Checks what can be checked without asking. `fixed` are headers the provider always wants.
    pub(super) fn open(
        access: Access,
        default_base: &str,
        auth: Auth,
        fixed: &[Header],
    ) -> Result<Self, AccessError> {
        let given = access.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let base = parse_base(given.unwrap_or(default_base))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in fixed {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let proxy = access.proxy.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let proxy = proxy.map(parse_proxy).transpose()?;
        let mut secrets: Vec<String> = base.password().map(str::to_owned).into_iter().collect();
        if let Some(proxy) = &proxy {
            secrets.extend(proxy.password().map(str::to_owned));
            secrets.push(proxy.username().to_owned());
        }
        let key = access.key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        if let Some(key) = key {
            let (name, value) = match auth {
                Auth::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
                Auth::Header(name) => (HeaderName::from_static(name), key.to_owned()),
            };
            headers.insert(name, hidden(&value, || "the key".to_owned())?);
            secrets.push(key.to_owned());
        }
        for (name, value) in &access.headers {
            let what = || format!("the header `{name}`");
            let value = hidden(value.trim(), what)?;
            let name: HeaderName = name.parse().map_err(|_| AccessError::Header(what()))?;
            if holds_secret(&name) {
                let word = value.to_str().ok().and_then(|text| text.split(' ').next_back());
                secrets.extend(word.map(str::to_owned));
            }
            headers.insert(name, value);
        }
        secrets.retain(|secret| secret.len() >= LEAST_SECRET);
        let client = OnceLock::new();
        let limits = access.limits;
        let target = Arc::new(Target { base, headers, proxy, secrets, limits, client });
        Ok(Self { target, more: None })
    }

    /// The same, with one more value in the list that a header holds.
    pub(super) fn with(&self, more: Option<Header>) -> Self {
        Self { target: self.target.clone(), more }
    }

    /// Sends a request and reads what comes back. Dropping the stream closes the connection.
    pub(super) fn stream(
        &self,
        exchange: Exchange,
        reader: impl Reader,
    ) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let answer = Answer {
            target: self.target.clone(),
            more: self.more,
            reader,
            state: State::Unsent(exchange),
            ready: VecDeque::new(),
        };
        let next = async |mut answer: Answer<_>| {
            let delta = answer.next().await?;
            Some((delta, answer))
        };
        stream::unfold(answer, next).fuse().boxed()
    }
}

/// One answer while it is read.
struct Answer<R> {
    target: Arc<Target>,
    more: Option<Header>,
    reader: R,
    state: State,
    ready: VecDeque<Delta>,
}

enum State {
    Unsent(Exchange),
    Reading(Response, Box<Cutter>),
    /// Failed; what came before the failure is still to be told.
    Failed(ProviderError),
    Over,
}

impl<R: Reader> Answer<R> {
    async fn next(&mut self) -> Option<Result<Delta, ProviderError>> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Some(Ok(delta));
            }
            self.state = match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return None,
                State::Failed(error) => return Some(Err(self.target.without_secrets(error))),
                State::Unsent(exchange) => self.begin(exchange).await,
                State::Reading(response, cutter) => self.read(response, cutter).await,
            }
            .unwrap_or_else(State::Failed);
        }
    }

    async fn begin(&mut self, exchange: Exchange) -> Result<State, ProviderError> {
        let framing = exchange.framing;
        let response = self.target.send(exchange, self.more).await?;
        let kind = content_type(&response);
        if kind == "text/html" {
            let message = "what answers there is a web page, not an API: correct the base URL";
            return Err(ProviderError::Rejected(message.to_owned()));
        }
        if framing == Framing::Events && kind == "application/json" {
            let body = self.target.read_whole(response).await?;
            self.take(|reader, out| reader.whole(&body, out))?;
            return self.finished();
        }
        Ok(State::Reading(response, Box::new(Cutter::new(framing))))
    }

    async fn read(
        &mut self,
        mut response: Response,
        mut cutter: Box<Cutter>,
    ) -> Result<State, ProviderError> {
        let chunk = self.target.chunk(&mut response).await?;
        match &chunk {
            Some(bytes) => cutter.push(bytes),
            None => cutter.close(),
        }
        while let Some(piece) = cutter.next() {
            let piece = piece?;
            if self.take(|reader, out| reader.piece(&piece, out))? {
                settle(response).await;
                return Ok(State::Over);
            }
        }
        if chunk.is_some() {
            return Ok(State::Reading(response, cutter));
        }
        self.take(|reader, out| reader.end(out))?;
        self.finished()
    }

    /// Takes what the reader makes of something, up to the end of the answer. Says whether that
    /// was reached.
    fn take(
        &mut self,
        read: impl FnOnce(&mut R, &mut Vec<Delta>) -> Result<(), ProviderError>,
    ) -> Result<bool, ProviderError> {
        let mut out = Vec::new();
        let read = read(&mut self.reader, &mut out);
        for delta in out {
            let is_last = matches!(delta, Delta::Finished(_));
            self.ready.push_back(delta);
            if is_last {
                return Ok(true);
            }
        }
        read.map(|()| false)
    }

    fn finished(&self) -> Result<State, ProviderError> {
        match self.ready.back() {
            Some(Delta::Finished(_)) => Ok(State::Over),
            _ => Err(ProviderError::Broken("the answer ended before it was complete".to_owned())),
        }
    }
}

impl Target {
    /// Sends a request and waits for the head of the answer.
    async fn send(
        &self,
        exchange: Exchange,
        more: Option<Header>,
    ) -> Result<Response, ProviderError> {
        let mut headers = self.headers.clone();
        if let Some(header) = more {
            join(&mut headers, header);
        }
        let accepted = match exchange.framing {
            Framing::Events => "text/event-stream",
            Framing::Lines => "application/x-ndjson",
        };
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static(accepted));
        let url = joined(&self.base, exchange.path);
        let post = self.client()?.post(url).headers(headers).body(exchange.body);
        let response = match timeout(self.limits.silence, post.send()).await {
            Ok(sent) => sent.map_err(|error| self.unreachable(&error))?,
            Err(_) => return Err(ProviderError::TimedOut(self.limits.silence)),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            let message = format!("HTTP {status}: the proxy wants another user or password");
            return Err(ProviderError::Denied(message));
        }
        if status.is_redirection() {
            let message = format!("HTTP {status}: the API has moved, correct the base URL");
            return Err(ProviderError::Rejected(message));
        }
        Err(refused(status, response, exchange.refusal).await)
    }

    fn client(&self) -> Result<&Client, ProviderError> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let failed = |error| ProviderError::Rejected(format!("no HTTP client: {error}"));
        let mut builder = Client::builder()
            .connect_timeout(self.limits.connect)
            .pool_idle_timeout(IDLE_LIMIT)
            .tcp_nodelay(true)
            // Another address would get the key and the whole conversation.
            .redirect(redirect::Policy::none())
            .no_proxy()
            .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")));
        if let Some(proxy) = &self.proxy {
            builder = builder.proxy(Proxy::all(proxy.clone()).map_err(failed)?);
        }
        let client = builder.build().map_err(failed)?;
        Ok(self.client.get_or_init(|| client))
    }

    async fn chunk(
        &self,
        response: &mut Response,
    ) -> Result<Option<impl AsRef<[u8]> + use<>>, ProviderError> {
        match timeout(self.limits.silence, response.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| {
                let reason = innermost(&error);
                ProviderError::Broken(format!("the answer broke off: {reason}"))
            }),
            Err(_) => Err(ProviderError::TimedOut(self.limits.silence)),
        }
    }

    async fn read_whole(&self, mut response: Response) -> Result<String, ProviderError> {
        let (mut bytes, mut size) = (Vec::new(), Size::default());
        while let Some(chunk) = self.chunk(&mut response).await? {
            size.grow(chunk.as_ref().len())?;
            bytes.extend_from_slice(chunk.as_ref());
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Why no answer began, without the address: it may hold a secret.
    fn unreachable(&self, error: &reqwest::Error) -> ProviderError {
        let reason = innermost(error);
        ProviderError::Unreachable(if error.is_connect() && error.is_timeout() {
            format!("no connection within {:?}", self.limits.connect)
        } else if error.is_connect() {
            format!("no connection: {reason}")
        } else {
            format!("the connection broke before an answer began: {reason}")
        })
    }

    fn without_secrets(&self, error: ProviderError) -> ProviderError {
        let clean = |text: String| {
            self.secrets.iter().fold(text, |text, secret| text.replace(secret.as_str(), "***"))
        };
        match error {
            ProviderError::Unreachable(text) => ProviderError::Unreachable(clean(text)),
            ProviderError::TimedOut(limit) => ProviderError::TimedOut(limit),
            ProviderError::Busy { message, retry_after } => {
                ProviderError::Busy { message: clean(message), retry_after }
            }
            ProviderError::Failed(text) => ProviderError::Failed(clean(text)),
            ProviderError::Broken(text) => ProviderError::Broken(clean(text)),
            ProviderError::ContextTooLong(text) => ProviderError::ContextTooLong(clean(text)),
            ProviderError::Denied(text) => ProviderError::Denied(clean(text)),
            ProviderError::Rejected(text) => ProviderError::Rejected(clean(text)),
        }
    }
}

/// What a refusal means, with as much of its reason as comes in time.
async fn refused(
    status: StatusCode,
    mut response: Response,
    refusal: fn(u16, &str) -> ProviderError,
) -> ProviderError {
    let wait = retry_after(response.headers());
    let mut body = Vec::new();
    let read = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() >= MOST_REASON_BYTES {
                break;
            }
        }
    };
    // A reason cut short is better than none.
    let _ = timeout(REASON_LIMIT, read).await;
    body.truncate(MOST_REASON_BYTES);
    let mut error = refusal(status.as_u16(), &String::from_utf8_lossy(&body));
    if let ProviderError::Busy { retry_after, .. } = &mut error
        && wait.is_some()
    {
        *retry_after = wait;
    }
    error
}

/// Reads the end of an answer whose content is complete.
async fn settle(mut response: Response) {
    let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
    let _ = timeout(SETTLE_LIMIT, rest).await;
}

fn content_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.unwrap_or_default().split(';').next().unwrap_or_default();
    essence.trim().to_ascii_lowercase()
}

/// What is at the bottom of an error. What is above it may name the address.
fn innermost(error: &reqwest::Error) -> String {
    let mut reason = "it was closed".to_owned();
    let mut source = error.source();
    while let Some(error) = source {
        reason = error.to_string();
        source = error.source();
    }
    reason
}

/// Adds a value to the list that a header holds, unless it is in it.
fn join(headers: &mut HeaderMap, (name, value): Header) {
    let given = headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let mut values = given.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    if values.any(|other| other == value.as_bytes()) {
        return;
    }
    let separator: &[u8] = if given.trim_ascii().is_empty() { b"" } else { b"," };
    if let Ok(mut list) = HeaderValue::from_bytes(&[given, separator, value.as_bytes()].concat()) {
        list.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), list);
    }
}

fn hidden(value: &str, what: impl Fn() -> String) -> Result<HeaderValue, AccessError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| AccessError::Header(what()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn holds_secret(name: &HeaderName) -> bool {
    ["key", "token", "secret", "auth", "cookie"].iter().any(|word| name.as_str().contains(word))
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("base_url", &self.base_url.as_deref().map(without_secrets))
            .field("proxy", &self.proxy.as_deref().map(without_secrets))
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&without_secrets(self.base.as_str())).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::provider::Reply;

    #[test]
    fn a_header_that_cant_be_sent_is_named_and_not_shown() {
        let open = |access| Http::open(access, "http://h", Auth::Header("x-api-key"), &[]);
        let key = Access { key: Some("secret\u{7}key".into()), ..Access::default() };
        assert_eq!(open(key).unwrap_err(), AccessError::Header("the key".into()));
        for (name, value) in [("x-a", "new\nline"), ("not a name", "v"), ("", "v")] {
            let headers = vec![(name.to_owned(), value.to_owned())];
            let error = open(Access { headers, ..Access::default() }).unwrap_err();
            assert_eq!(error, AccessError::Header(format!("the header `{name}`")));
        }
    }

    #[test]
    fn neither_key_nor_address_secrets_are_printed() {
        let access = Access {
            base_url: Some("http://user:hidden@h/v1?token=hidden".into()),
            key: Some("hidden-key".into()),
            headers: vec![("x-token".into(), "hidden-too".into())],
            proxy: Some("http://hidden:hidden@proxy:3128".into()),
            ..Access::default()
        };
        let printed = format!("{access:?} {:?}", Http::open(access.clone(), "", Auth::Bearer, &[]));
        assert!(printed.contains("http://h/v1") && !printed.contains("hidden"), "{printed}");
        assert!(printed.contains("http://proxy:3128"), "{printed}");
    }

    #[test]
    fn a_proxy_that_is_none_is_refused_without_its_secrets() {
        let open = |proxy: &str| {
            let access = Access { proxy: Some(proxy.into()), ..Access::default() };
            Http::open(access, "http://h", Auth::Bearer, &[])
        };
        for proxy in ["proxy:3128", "socks5://user:hidden@h", "http://user:hidden@", "hidden@"] {
            let error = open(proxy).unwrap_err();
            assert!(matches!(error, AccessError::Proxy { .. }), "{error:?}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
        for proxy in ["http://h:3128", " https://user:word@h ", "", " "] {
            assert!(open(proxy).is_ok(), "{proxy}");
        }
    }

    #[test]
    fn a_value_is_joined_to_those_of_its_header() {
        for (given, sent) in [
            (None, "new"),
            (Some(""), "new"),
            (Some("a"), "a,new"),
            (Some("a, b"), "a, b,new"),
            (Some("a, new"), "a, new"),
            (Some("renew"), "renew,new"),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(given.map(|value| (ACCEPT, HeaderValue::from_static(value))));
            join(&mut headers, ("accept", "new"));
            assert_eq!(headers.get_all(ACCEPT).iter().collect::<Vec<_>>(), [sent]);
        }
    }

    /// Takes no notice of what it reads.
    struct Deaf;

    impl Reader for Deaf {
        fn piece(&mut self, _: &str, _: &mut Vec<Delta>) -> Result<(), ProviderError> {
            Ok(())
        }

        fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
            out.push(Delta::Finished(Reply::default()));
            Ok(())
        }

        fn whole(&mut self, _: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
            self.end(out)
        }
    }

    /// What a proxy is sent for a request to `http://api.invalid/v1`, and what comes of its
    /// answer.
    async fn through_a_proxy(answer: &'static str) -> (String, Result<Delta, ProviderError>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://some-user:s%20secret@{}", listener.local_addr().unwrap());
        let access = Access { proxy: Some(proxy), ..Access::default() };
        let http = Http::open(access, "http://api.invalid/v1", Auth::Bearer, &[]).unwrap();
        let exchange = Exchange {
            path: "chat",
            body: b"{}".to_vec(),
            framing: Framing::Lines,
            refusal: |status, body| ProviderError::Rejected(format!("{status} {body}")),
        };
        let served = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = String::new();
            while !head.ends_with("{}") {
                let mut bytes = [0; 1024];
                let read = socket.read(&mut bytes).await.unwrap();
                assert!(read > 0, "{head}");
                head.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
            }
            socket.write_all(answer.as_bytes()).await.unwrap();
            head.to_lowercase()
        };
        let mut stream = http.stream(exchange, Deaf);
        let both = async { futures::join!(served, stream.next()) };
        let (head, delta) = timeout(Duration::from_secs(10), both).await.unwrap();
        (head, delta.unwrap())
    }

    #[tokio::test]
    async fn requests_go_through_the_proxy_and_no_error_repeats_its_user() {
        let ok = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let (head, delta) = through_a_proxy(ok).await;
        assert!(head.starts_with("post http://api.invalid/v1/chat http/1.1\r\n"), "{head}");
        let user = data_encoding::BASE64.encode(b"some-user:s secret").to_lowercase();
        assert!(head.contains(&format!("proxy-authorization: basic {user}\r\n")), "{head}");
        assert_eq!(delta, Ok(Delta::Finished(Reply::default())));

        let refused = "HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\nnot for some-user";
        let (_, error) = through_a_proxy(refused).await;
        assert_eq!(error, Err(ProviderError::Rejected("403 not for ***".into())));
        let unknown = "HTTP/1.1 407 Who\r\nconnection: close\r\n\r\n";
        let (_, error) = through_a_proxy(unknown).await;
        assert!(matches!(error, Err(ProviderError::Denied(_))), "{error:?}");
    }
}
