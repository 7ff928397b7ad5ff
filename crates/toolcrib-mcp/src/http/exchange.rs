//! A request over HTTP, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Response, StatusCode};
use tokio::time::{sleep, timeout};
use toolcrib_runtime::{Budget, Room};
use toolcrib_wire::version::header;
use toolcrib_wire::{Era, Events, Message, code};

use super::Wire;
use crate::asked;
use crate::board::Taken;
use crate::connection::{Failure, MOST_MESSAGE_BYTES};

/// How long a stream may stay open after its answer. Dropped at once, it would take the
/// connection with it, which the next request could use.
const LINGER: Duration = Duration::from_millis(500);

/// How long to wait before a broken stream is resumed, unless the server says.
const RESUME: Duration = Duration::from_secs(1);
const MOST_RESUME: Duration = Duration::from_secs(30);

/// Where a stream stands, so that it can be resumed.
#[derive(Default)]
pub(super) struct Place {
    last: Option<String>,
    retry: Option<Duration>,
}

impl Wire {
    /// Sends a request, and gives the board what comes back.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        text: String,
        headers: HeaderMap,
        number: u64,
    ) -> Result<(), Failure> {
        let post = self.client.post(&self.url).headers(headers).body(text);
        let response = self.send(post).await?;
        let status = response.status();
        if !status.is_success() {
            let body = read_whole(response, &mut self.board.room()).await.unwrap_or_default();
            return Err(self.refusal(status, &body, number));
        }
        if let Some(session) = response.headers().get(header::SESSION_ID) {
            let _ = self.session.set(session.clone());
        }
        if is_stream(&response) {
            return self.follow_stream(response, number).await;
        }
        let mut room = self.board.room();
        let body = read_whole(response, &mut room).await?;
        room.complete();
        self.take_in(body, Some(number), Some(room)).await;
        match self.board.waits(number) {
            false => Ok(()),
            true => Err(Failure::Lost(format!("HTTP {status} without an answer"))),
        }
    }

    /// What it means that a request was turned away.
    fn refusal(&self, status: StatusCode, body: &str, number: u64) -> Failure {
        let error = match Message::parse(body) {
            // Who could not place the request gives no id, or one of their own making.
            // `{"error": …}` alone is how logins are refused, not an error of this protocol.
            Ok(Message::Response { outcome: Err(error), .. }) if body.contains("\"jsonrpc\"") => {
                Some(error)
            }
            _ => None,
        };
        let is_unknown = error.as_ref().is_some_and(|it| it.code == code::METHOD_NOT_FOUND);
        let is_expired = status == StatusCode::NOT_FOUND
            || status == StatusCode::BAD_REQUEST && body.to_ascii_lowercase().contains("session");
        if self.has_session() && is_expired && !is_unknown {
            // The server has forgotten the session, so it can't have acted on the request. Others
            // on their way are told the same.
            let reason = "its session has expired";
            self.board.retire(reason);
            return Failure::Unsent(reason.to_owned());
        }
        tracing::debug!(%status, number, "turned away");
        match error {
            Some(error) => Failure::Refused(error),
            None => denied(status),
        }
    }

    /// Reads a stream to its answer. One that breaks off is resumed if the server says where.
    async fn follow_stream(
        self: &Arc<Self>,
        mut response: Response,
        number: u64,
    ) -> Result<(), Failure> {
        let mut place = Place::default();
        loop {
            let read = self.read_stream(response, Some(number), &mut place).await;
            if !self.board.waits(number) {
                return Ok(());
            }
            let is_whole = read.is_ok();
            let lost = "the stream ended without an answer".to_owned();
            let lost = read.err().unwrap_or(Failure::Lost(lost));
            if matches!(lost, Failure::Unread(_)) {
                return Err(lost);
            }
            // Without a new place it would be resumed where it has been already.
            let Some(last) = place.last.take().filter(|_| self.era() != Some(Era::Stateless))
            else {
                return Err(lost);
            };
            let retry = place.retry.take();
            // It was no accident: the server wants to be asked again.
            if let Some(retry) = retry.filter(|_| is_whole) {
                self.board.let_go(number, retry.min(MOST_RESUME));
            }
            sleep(retry.unwrap_or(RESUME).min(MOST_RESUME)).await;
            let mut headers = self.headers();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            let Ok(last) = HeaderValue::from_str(&last) else { return Err(lost) };
            headers.insert("last-event-id", last);
            match self.send_as_is(self.client.get(&self.url).headers(headers)).await {
                Ok(next) if next.status().is_success() && is_stream(&next) => response = next,
                _ => return Err(lost),
            }
        }
    }

    /// Reads events until the stream ends, or has brought the answer to a request.
    pub(super) async fn read_stream(
        self: &Arc<Self>,
        mut response: Response,
        number: Option<u64>,
        place: &mut Place,
    ) -> Result<(), Failure> {
        let mut events = Events::new(MOST_MESSAGE_BYTES);
        let mut room = None::<Room>;
        loop {
            let is_answered = number.is_some_and(|number| !self.board.waits(number));
            let chunk = if is_answered {
                let Ok(chunk) = timeout(LINGER, response.chunk()).await else { return Ok(()) };
                chunk
            } else {
                response.chunk().await
            };
            let chunk = chunk.map_err(|error| Failure::Lost(why(&error)))?;
            let Some(chunk) = chunk else { return Ok(()) };
            events.push(&chunk);
            while let Some(event) = events.next() {
                let event = event.map_err(|error| Failure::Lost(error.to_string()))?;
                if let Some(id) = event.id {
                    place.last = Some(id);
                }
                if let Some(retry) = event.retry {
                    place.retry = Some(Duration::from_millis(retry));
                }
                // Only the first can have begun before.
                let mut room = room.take();
                if let Some(room) = &mut room {
                    room.complete();
                }
                self.take_in(event.data, number, room).await;
            }
            if events.pending() > Budget::SMALL {
                let taken = room.get_or_insert_with(|| self.board.room());
                taken.reach(events.pending()).await.map_err(Failure::Unread)?;
            }
        }
    }

    /// Gives the board a message. What is to be said to it at once is under way when this returns.
    async fn take_in(self: &Arc<Self>, text: String, during: Option<u64>, room: Option<Room>) {
        let reply = match self.board.take_in(text, during, room).await {
            Ok(Taken::Reply(reply)) => Some(reply),
            Ok(Taken::Asked(asked)) => {
                let wire = self.clone();
                let send = async move |reply| {
                    let _place = wire.telling.acquire().await;
                    wire.tell(reply, wire.headers()).await;
                };
                asked::serve(&self.board, asked, send)
            }
            Ok(Taken::Nothing) | Err(_) => None,
        };
        let Some(reply) = reply else { return };
        // Never closed.
        let place = self.telling.clone().acquire_owned().await;
        let telling = self.tell(reply, self.headers());
        tokio::spawn(async move {
            telling.await;
            drop(place);
        });
    }
}

pub(super) fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

async fn read_whole(mut response: Response, room: &mut Room) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await.map_err(|error| Failure::Lost(why(&error)))?;
        let Some(chunk) = chunk else { break };
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MOST_MESSAGE_BYTES {
            let reason = format!("its answer has more than {MOST_MESSAGE_BYTES} bytes");
            return Err(Failure::Lost(reason));
        }
        room.reach(bytes.len()).await.map_err(Failure::Unread)?;
    }
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// An HTTP status in place of an answer.
fn denied(status: StatusCode) -> Failure {
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            ": it wants credentials; set `bearer_token` or `headers`"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            ": there is no MCP endpoint at this address; correct `url`"
        }
        _ if status.is_redirection() => ": it has moved; correct `url`",
        _ => "",
    };
    let reason = format!("HTTP {status}{advice}");
    // These are answers: the server did not act on the request.
    if status.is_client_error() || status.is_redirection() {
        Failure::Denied { status: status.as_u16(), reason }
    } else {
        Failure::Lost(reason)
    }
}

/// What went wrong with a request, without the address: it may hold a secret.
pub(crate) fn why(error: &reqwest::Error) -> String {
    let kind = if error.is_connect() {
        "it can't be reached"
    } else if error.is_timeout() {
        "it took too long"
    } else {
        "the connection broke"
    };
    let mut source = std::error::Error::source(error);
    let mut last = None;
    while let Some(error) = source {
        last = Some(error.to_string());
        source = error.source();
    }
    last.map_or_else(|| kind.to_owned(), |last| format!("{kind}: {last}"))
}
