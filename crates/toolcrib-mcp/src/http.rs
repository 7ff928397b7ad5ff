//! A server that speaks streamable HTTP.

mod exchange;
mod news;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode, redirect};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use toolcrib_wire::Era;
use toolcrib_wire::headers::encoded;
use toolcrib_wire::version::header;

use crate::auth::{Authorizer, SendError};
use crate::board::Board;
use crate::connection::{Failure, Listening, Spoken, changes};
pub(crate) use exchange::why;

/// How long a connection may take to come about.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection is kept for the next request. Many servers close one that was idle for
/// five seconds, and a request sent at that moment would be lost.
const IDLE_LIMIT: Duration = Duration::from_secs(4);

/// How long what wants no answer may take.
const TELL_LIMIT: Duration = Duration::from_secs(30);

/// How many refusals may be on their way to a server before nothing more is read from it.
const MOST_TELLING: usize = 64;

/// How long a goodbye may take.
const END_LIMIT: Duration = Duration::from_secs(1);

/// A link over HTTP: every message is a request of its own. When this is dropped, so is whatever
/// is under way.
pub(crate) struct HttpLink(Arc<Wire>);

/// What the tasks of a link share.
struct Wire {
    client: Client,
    /// The login, where there may be one.
    auth: Option<Authorizer>,
    url: String,
    board: Arc<Board>,
    /// The session, where the server keeps one.
    session: OnceLock<HeaderValue>,
    spoken: OnceLock<Spoken>,
    /// Requests under way.
    tasks: Mutex<HashMap<u64, AbortHandle>>,
    /// The stream that the server tells news on.
    news: Mutex<Option<Listening>>,
    /// Whether the server has answered the request for it, be it with a refusal.
    has_news: watch::Sender<bool>,
    /// How much that wants no answer may be on its way at a time.
    telling: Arc<Semaphore>,
    has_ended: AtomicBool,
}

/// What requests go through that carry these headers. Whoever shares it shares the connections to
/// a host.
pub(crate) fn client(headers: &[(String, String)]) -> Result<Client, String> {
    let mut fixed = HeaderMap::new();
    for (name, value) in headers {
        let name: HeaderName =
            name.parse().map_err(|_| format!("`{name}` can't be the name of a header"))?;
        let mut value: HeaderValue =
            value.parse().map_err(|_| format!("the value of header `{name}` can't be sent"))?;
        value.set_sensitive(true);
        fixed.append(name, value);
    }
    Client::builder()
        .default_headers(fixed)
        .connect_timeout(CONNECT_LIMIT)
        .pool_idle_timeout(IDLE_LIMIT)
        .tcp_nodelay(true)
        .redirect(redirect::Policy::custom(follow))
        .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| format!("no HTTP client: {error}"))
}

/// Opens a link. Nothing is sent yet.
pub(crate) fn open(
    client: Client,
    url: &str,
    auth: Option<Authorizer>,
    board: &Arc<Board>,
) -> Result<HttpLink, String> {
    let parsed: reqwest::Url =
        url.parse().map_err(|error| format!("its address is none: {error}; correct `url`"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err("its address is neither http nor https; correct `url`".to_owned());
    }
    Ok(HttpLink(Arc::new(Wire {
        client,
        auth,
        url: url.to_owned(),
        board: board.clone(),
        session: OnceLock::new(),
        spoken: OnceLock::new(),
        tasks: Mutex::default(),
        news: Mutex::default(),
        has_news: watch::Sender::default(),
        telling: Arc::new(Semaphore::new(MOST_TELLING)),
        has_ended: AtomicBool::new(false),
    })))
}

/// Servers send `/mcp` to `/mcp/`. A redirect elsewhere could take credentials along, and one of
/// the older kinds turns a question into a mere look at a page.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let keeps_method = [StatusCode::TEMPORARY_REDIRECT, StatusCode::PERMANENT_REDIRECT]
        .contains(&attempt.status());
    let same_origin =
        attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if keeps_method && same_origin && attempt.previous().len() <= 3 {
        attempt.follow()
    } else {
        attempt.stop()
    }
}

impl HttpLink {
    /// Sends a request; what comes back goes to the board.
    pub(crate) fn ask(
        &self,
        text: String,
        number: u64,
        method: &str,
        name: Option<&str>,
        repeated: &[(String, String)],
    ) {
        let mut headers = self.0.headers_for(method, name);
        if self.0.era() == Some(Era::Stateless) {
            for (name, value) in repeated {
                if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) {
                    headers.insert(name, value);
                }
            }
        }
        let wire = self.0.clone();
        let exchange = async move {
            if let Err(failure) = wire.exchange(text, headers, number).await {
                wire.board.fail(number, failure);
            }
            wire.tasks().remove(&number);
        };
        // Held over both, so that no request ends before it is noted.
        let mut tasks = self.0.tasks();
        let task = tokio::spawn(exchange);
        tasks.insert(number, task.abort_handle());
    }

    /// Sends what wants no answer.
    pub(crate) fn tell(&self, text: String, method: &str) {
        tokio::spawn(self.0.tell(text, self.0.headers_for(method, None)));
    }

    /// Sends what wants no answer, and waits until it has arrived.
    pub(crate) async fn announce(&self, text: String, method: &str) {
        self.0.tell(text, self.0.headers_for(method, None)).await;
    }

    /// Stops waiting for an answer.
    pub(crate) fn abandon(&self, number: u64) {
        let task = self.0.tasks().remove(&number);
        if let Some(task) = task {
            task.abort();
        }
    }

    /// Takes over what the handshake settled.
    pub(crate) fn settle(&self, spoken: &Spoken) {
        let _ = self.0.spoken.set(spoken.clone());
    }

    /// Listens for news: of what is listed, and of these resources where that is to be said.
    pub(crate) fn listen(&self, uris: &[Arc<str>], heard: oneshot::Sender<()>) {
        let mut news = self.0.news();
        if news.is_some() && self.0.era() != Some(Era::Stateless) {
            return;
        }
        let listening = self.0.clone().listen(changes(uris), (news.take(), heard));
        *news = Some(Listening(tokio::spawn(listening).abort_handle()));
    }

    /// Waits until the server has answered the request for news.
    pub(crate) async fn has_news(&self) {
        // The sender is here: there is no error to see.
        let _ = self.0.has_news.subscribe().wait_for(|has_news| *has_news).await;
    }

    /// Whether the server has given its session a number.
    pub(crate) fn has_session(&self) -> bool {
        self.0.has_session()
    }

    /// Ends the session, where there is one.
    pub(crate) async fn end(&self) {
        self.0.stop();
        self.0.clone().say_goodbye().await;
    }
}

impl Drop for HttpLink {
    fn drop(&mut self) {
        self.0.stop();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(self.0.clone().say_goodbye());
        }
    }
}

impl Wire {
    fn tasks(&self) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn news(&self) -> MutexGuard<'_, Option<Listening>> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self) {
        for (_, task) in self.tasks().drain() {
            task.abort();
        }
        drop(self.news().take());
    }

    async fn say_goodbye(self: Arc<Self>) {
        if self.has_session() && !self.has_ended.swap(true, Ordering::Relaxed) {
            let bye = self.client.delete(&self.url).headers(self.headers());
            // A server may refuse to be told.
            let _ = timeout(END_LIMIT, self.send_as_is(bye)).await;
        }
    }

    fn tell(&self, text: String, headers: HeaderMap) -> impl Future<Output = ()> + use<> {
        let post = self.client.post(&self.url).headers(headers).body(text).timeout(TELL_LIMIT);
        let auth = self.auth.clone();
        async move {
            // If it is of consequence, the next request shows.
            let _ = match auth {
                Some(auth) => auth.send_as_is(post).await,
                None => post.send().await,
            };
        }
    }

    /// Sends a request, with a login where the server wants one.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let sent = match &self.auth {
            Some(auth) => auth.send(request).await,
            None => request.send().await.map_err(SendError::Http),
        };
        sent.map_err(|error| match error {
            SendError::Http(error) if error.is_connect() => Failure::Unsent(why(&error)),
            SendError::Http(error) => Failure::Lost(why(&error)),
            SendError::Denied { status, reason } => {
                Failure::Denied { status: status.as_u16(), reason }
            }
        })
    }

    /// The same, but nobody is asked to log in.
    async fn send_as_is(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        match &self.auth {
            Some(auth) => auth.send_as_is(request).await,
            None => request.send().await,
        }
    }

    fn has_session(&self) -> bool {
        self.session.get().is_some()
    }

    fn era(&self) -> Option<Era> {
        self.spoken.get().map(|spoken| spoken.era)
    }

    /// What every request carries.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let both = HeaderValue::from_static("application/json, text/event-stream");
        headers.insert(ACCEPT, both);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(session) = self.session.get() {
            headers.insert(header::SESSION_ID, session.clone());
        }
        let version = self.spoken.get().map(|spoken| HeaderValue::from_str(&spoken.version));
        if let Some(Ok(version)) = version {
            headers.insert(header::PROTOCOL_VERSION, version);
        }
        headers
    }

    /// What a message with this method carries: without sessions, its gist as well.
    fn headers_for(&self, method: &str, name: Option<&str>) -> HeaderMap {
        let mut headers = self.headers();
        if self.era() == Some(Era::Stateless) || method == "server/discover" {
            let version = HeaderValue::from_static(Era::Stateless.newest());
            headers.insert(header::PROTOCOL_VERSION, version);
            for (key, value) in [(header::METHOD, Some(method)), (header::NAME, name)] {
                let value = value.map(|value| HeaderValue::from_str(&encoded(value)));
                if let Some(Ok(value)) = value {
                    headers.insert(key, value);
                }
            }
        }
        headers
    }
}
