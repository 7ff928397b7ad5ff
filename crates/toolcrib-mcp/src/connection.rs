//! Requests and answers over a link to a server.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::{Duration, timeout, timeout_at};
use toolcrib_runtime::{Caller, NoRoom};
use toolcrib_wire::version::meta;
use toolcrib_wire::{Era, Fields, Id, RpcError};

use crate::board::Board;
use crate::child::ChildLink;
use crate::handshake::declare;
use crate::http::HttpLink;

/// The longest message a server may send.
pub(crate) const MOST_MESSAGE_BYTES: usize = 64 << 20;

/// How long to wait for the end of a process that seems to have ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a request brought no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server answered with an error.
    #[error("{0}")]
    Refused(RpcError),
    /// An HTTP status in place of an answer. The request was not acted on.
    #[error("{reason}")]
    Denied {
        /// The status.
        status: u16,
        /// What it means here.
        reason: String,
    },
    /// The request never reached the server.
    #[error("{0}")]
    Unsent(String),
    /// No answer can come any more; the request may have been acted on.
    #[error("{0}")]
    Lost(String),
    /// The same after it had been told what it asked for: nobody is asked that again.
    #[error("it was lost after it had got the input it asked for: {0}")]
    Unrepeatable(String),
    /// It answered, and the answer was not taken, for this reason.
    #[error("its answer was not taken: {0}")]
    Unread(NoRoom),
    /// The server stayed silent.
    #[error("it did not answer within {0:?}")]
    Late(Duration),
}

/// A connection to a server.
pub(crate) struct Connection {
    link: Link,
    board: Arc<Board>,
    /// Settled by the handshake.
    spoken: OnceLock<Spoken>,
    /// What keeps the server telling of changes, where it is asked to over this very link.
    listening: Mutex<Option<Listening>>,
    /// Held while it is said what to tell of, so that the last word is the newest.
    naming: Mutex<()>,
}

/// A request to tell of changes, until this is dropped.
pub(crate) struct Listening(pub(crate) AbortHandle);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Resolves when a server has been heard.
pub(crate) struct Heard(oneshot::Receiver<()>);

impl Heard {
    pub(crate) async fn within(self, limit: Duration) {
        // Dropped or told, it is over.
        let _ = timeout(limit, self.0).await;
    }
}

/// A request as it is to be sent.
#[derive(Clone)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) params: Fields<'a>,
    /// Arguments that headers repeat, where there are headers.
    pub(crate) repeated: &'a [(String, String)],
}

/// How the two sides speak, once they have agreed.
#[derive(Clone, Debug)]
pub(crate) struct Spoken {
    pub(crate) era: Era,
    pub(crate) version: String,
}

pub(crate) enum Link {
    Child(ChildLink),
    Http(HttpLink),
}

impl Connection {
    pub(crate) fn new(link: Link, board: Arc<Board>) -> Self {
        let (spoken, listening, naming) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Self { link, board, spoken, listening, naming }
    }

    pub(crate) fn settle(&self, spoken: Spoken) {
        if let Link::Http(link) = &self.link {
            link.settle(&spoken);
        }
        let _ = self.spoken.set(spoken);
    }

    pub(crate) fn era(&self) -> Era {
        self.spoken.get().map_or(Era::Sessions, |spoken| spoken.era)
    }

    pub(crate) fn board(&self) -> &Board {
        &self.board
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.link {
            Link::Child(child) => child.pid(),
            Link::Http(_) => None,
        }
    }

    /// Whether the server keeps a session for it, by number.
    pub(crate) fn has_session(&self) -> bool {
        matches!(&self.link, Link::Http(http) if http.has_session())
    }

    /// Has the server tell when what it lists changes, or one of these resources does, where it
    /// doesn't do so by itself. Ends with the connection, or when this is called again.
    ///
    /// What is returned resolves when the server has been heard on it.
    pub(crate) fn listen(self: &Arc<Self>, uris: impl FnOnce() -> Vec<Arc<str>>) -> Heard {
        let (heard, is_heard) = oneshot::channel();
        let _naming = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        let uris = &uris();
        match &self.link {
            Link::Http(http) => http.listen(uris, heard),
            Link::Child(_) if self.era() == Era::Stateless => {
                let mut listening = self.listening.lock().unwrap_or_else(PoisonError::into_inner);
                let before = listening.take();
                let (connection, filter) = (self.clone(), changes(uris));
                let number = self.board.number();
                self.board.expect_acknowledged(number, heard);
                let task = tokio::spawn(async move {
                    let mut params = Fields::default();
                    params.set("notifications", &filter);
                    let nobody = Caller::default();
                    let request = Request { method: "subscriptions/listen", params, repeated: &[] };
                    let request = connection.send_as(number, request, &nobody, None);
                    tokio::select! {
                        biased;
                        ended = request => tracing::debug!(?ended, "no longer tells of changes"),
                        // Taken back after the new request is on its way, so that nothing is missed.
                        () = async move { drop(before); std::future::pending().await } => {}
                    }
                });
                *listening = Some(Listening(task.abort_handle()));
            }
            Link::Child(_) => {}
        }
        Heard(is_heard)
    }

    /// Waits a while until news of a session would be heard: over HTTP they come on a stream that
    /// has to be there first.
    pub(crate) async fn hears_news(&self, limit: Duration) {
        if let (Link::Http(http), Era::Sessions) = (&self.link, self.era()) {
            let _ = timeout(limit, http.has_news()).await;
        }
    }

    /// Asks the server. Dropping the future cancels the request.
    ///
    /// `limit` is how long the server may stay silent: progress counts as a sign of life, and so
    /// does a question of its own that is not answered yet.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Fields<'_>,
        caller: &Caller,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, Failure> {
        self.send(Request { method, params, repeated: &[] }, caller, limit).await
    }

    /// The same for a request that headers may repeat parts of.
    pub(crate) async fn send(
        &self,
        request: Request<'_>,
        caller: &Caller,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, Failure> {
        self.send_as(self.board.number(), request, caller, limit).await
    }

    async fn send_as(
        &self,
        number: u64,
        Request { method, mut params, repeated }: Request<'_>,
        caller: &Caller,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, Failure> {
        let wants_progress = caller.listener().is_some_and(|listener| listener.wants_progress());
        if wants_progress || self.era() == Era::Stateless {
            self.fill_meta(&mut params, caller, wants_progress.then_some(number));
        }
        let text = toolcrib_wire::request(&Id::from(number), method, Some(&params));
        let mut answered = self.board.wait(number, caller)?;
        let mut pending = Pending { connection: self, number, done: false };
        match &self.link {
            Link::Child(child) => child.send(text, Some(number)),
            Link::Http(http) => {
                let name = subject(method).and_then(|key| params.read::<String>(key));
                http.ask(text, number, method, name.as_deref(), repeated);
            }
        }
        let answer = loop {
            let (since, limit) = (self.board.heard(number), limit.unwrap_or(Duration::MAX));
            // Without a limit that ever comes, or answered already.
            let Some(end) = since.and_then(|since| since.checked_add(limit)) else {
                break (&mut answered).await;
            };
            match timeout_at(end, &mut answered).await {
                Ok(answer) => break answer,
                Err(_) if self.board.heard(number) == since => {
                    return Err(Failure::Late(limit));
                }
                Err(_) => {}
            }
        };
        pending.done = true;
        answer.unwrap_or_else(|_| Err(Failure::Lost("the connection ended".to_owned())))
    }

    /// Passes on what a client tells.
    pub(crate) fn pass_on(&self, method: &str, params: Option<&RawValue>) {
        if method != "notifications/progress" {
            return self.notify(method, params);
        }
        // Progress is told under a token of ours, if it is about a question of this server's.
        let Some(mut fields) = params.and_then(|params| Fields::parse(params.get())) else {
            return;
        };
        let token = fields.read(meta::PROGRESS_TOKEN);
        if let Some(theirs) = token.and_then(|ours| self.board.progress_of(ours)) {
            fields.set(meta::PROGRESS_TOKEN, &theirs);
            self.notify(method, Some(&fields));
        }
    }

    /// Tells the server something.
    pub(crate) fn notify(&self, method: &str, params: Option<&(impl Serialize + ?Sized)>) {
        let text = toolcrib_wire::notification(method, params);
        match &self.link {
            Link::Child(child) => child.send(text, None),
            Link::Http(http) => http.tell(text, method),
        }
    }

    /// Tells the server something that it must have heard before the next request. Over HTTP, what
    /// is sent later may come first.
    pub(crate) async fn announce(&self, method: &str) {
        let text = toolcrib_wire::notification(method, toolcrib_wire::NO_PARAMS);
        match &self.link {
            Link::Child(child) => child.send(text, None),
            Link::Http(http) => http.announce(text, method).await,
        }
    }

    /// Puts into `_meta` what this connection needs there.
    fn fill_meta(&self, params: &mut Fields<'_>, caller: &Caller, progress_token: Option<u64>) {
        let before = params.remove("_meta");
        let before = before.as_ref().and_then(|raw| Fields::parse(raw.get()));
        let mut filled = before.unwrap_or_default();
        if let Some(token) = progress_token {
            filled.set(meta::PROGRESS_TOKEN, &token);
        }
        if self.era() == Era::Stateless {
            filled.set(meta::PROTOCOL_VERSION, &Era::Stateless.newest());
            declare(&mut filled, caller.party().map(|party| &**party));
            if let Some(level) = caller.log_level() {
                filled.set(meta::LOG_LEVEL, &level);
            }
        }
        params.set("_meta", &filled);
    }

    /// Ends the connection and what stands behind it, politely first.
    pub(crate) async fn end(&self, reason: &str) {
        self.close(reason);
        match &self.link {
            Link::Child(child) => child.exited().await,
            Link::Http(http) => http.end().await,
        }
    }

    /// The same without waiting for it.
    pub(crate) fn close(&self, reason: &str) {
        self.board.close(reason);
        if let Link::Child(child) = &self.link {
            child.end();
        }
    }

    /// Why a request failed. A process that doesn't read is mostly one that has ended, and then
    /// how it did is the better reason.
    pub(crate) async fn why(&self, failure: Failure) -> String {
        if let (Link::Child(_), Failure::Unsent(_)) = (&self.link, &failure) {
            let _ = timeout(LAST_WORDS, self.board.ended()).await;
            if let Some(end) = self.board.end() {
                return end.to_owned();
            }
        }
        failure.to_string()
    }

    /// Makes no further use of the connection. A process that can no longer be spoken to is of no
    /// use to anybody; over HTTP, every request under way has an answer of its own to come.
    pub(crate) fn retire(&self, reason: &str) {
        match &self.link {
            Link::Child(_) => self.close(reason),
            Link::Http(_) => self.board.retire(reason),
        }
    }
}

/// The parameter that says what a request is about.
fn subject(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ if method.starts_with("tasks/") => Some("taskId"),
        _ => None,
    }
}

/// The changes that a server without sessions is asked to tell of.
pub(crate) fn changes(uris: &[Arc<str>]) -> serde_json::Value {
    let mut filter = json!({
        "toolsListChanged": true,
        "promptsListChanged": true,
        "resourcesListChanged": true,
    });
    if !uris.is_empty() {
        filter["resourceSubscriptions"] = json!(uris);
    }
    filter
}

/// A request that waits for its answer. If that is given up, the server is told.
struct Pending<'a> {
    connection: &'a Connection,
    number: u64,
    done: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let connection = self.connection;
        if self.done || !connection.board.give_up(self.number) {
            return;
        }
        if let Link::Http(http) = &connection.link {
            http.abandon(self.number);
            // There, a broken stream says it all.
            if connection.era() == Era::Stateless {
                return;
            }
        }
        let reason = "the caller gave up";
        let params = json!({"requestId": self.number, "reason": reason});
        connection.notify("notifications/cancelled", Some(&params));
    }
}
