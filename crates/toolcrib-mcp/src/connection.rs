//! Requests and answers over a link to a server.

use std::sync::{Arc, OnceLock};

use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::{Duration, timeout, timeout_at};
use toolcrib_runtime::Listener;
use toolcrib_wire::version::meta;
use toolcrib_wire::{Era, Fields, Id, RpcError};

use crate::board::Board;
use crate::child::ChildLink;
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
        Self { link, board, spoken: OnceLock::new() }
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

    /// Has the server tell when its tools change, where it doesn't do so by itself. Ends with the
    /// connection.
    pub(crate) fn listen(self: &Arc<Self>) {
        match &self.link {
            Link::Http(http) => http.listen(),
            Link::Child(_) if self.era() == Era::Stateless => {
                let mut params = Fields::default();
                params.set("notifications", &json!({"toolsListChanged": true}));
                let connection = self.clone();
                tokio::spawn(async move {
                    let ended =
                        connection.request("subscriptions/listen", params, None, None).await;
                    tracing::debug!(?ended, "no longer tells of changes");
                });
            }
            Link::Child(_) => {}
        }
    }

    /// Asks the server. Dropping the future cancels the request.
    ///
    /// `limit` is how long the server may stay silent: progress counts as a sign of life.
    pub(crate) async fn request(
        &self,
        method: &str,
        mut params: Fields<'_>,
        listener: Option<Arc<dyn Listener>>,
        limit: Option<Duration>,
    ) -> Result<Box<RawValue>, Failure> {
        let number = self.board.number();
        let wants_progress = listener.as_ref().is_some_and(|listener| listener.wants_progress());
        if wants_progress || self.era() == Era::Stateless {
            self.fill_meta(&mut params, wants_progress.then_some(number));
        }
        let text = toolcrib_wire::request(&Id::from(number), method, Some(&params));
        let mut answered = self.board.wait(number, listener)?;
        let mut pending = Pending { connection: self, number, done: false };
        match &self.link {
            Link::Child(child) => child.send(text, Some(number)),
            Link::Http(http) => {
                http.ask(text, number, method, params.read::<String>("name").as_deref());
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

    /// Tells the server something.
    pub(crate) fn notify(&self, method: &str, params: Option<&serde_json::Value>) {
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
    fn fill_meta(&self, params: &mut Fields<'_>, progress_token: Option<u64>) {
        let before = params.remove("_meta");
        let before = before.as_ref().and_then(|raw| Fields::parse(raw.get()));
        let mut filled = before.unwrap_or_default();
        if let Some(token) = progress_token {
            filled.set(meta::PROGRESS_TOKEN, &token);
        }
        if self.era() == Era::Stateless {
            filled.set(meta::PROTOCOL_VERSION, &Era::Stateless.newest());
            filled.set(meta::CLIENT_INFO, &crate::handshake::client_info());
            filled.set(meta::CLIENT_CAPABILITIES, &json!({}));
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
