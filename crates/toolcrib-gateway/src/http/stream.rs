//! Answers that may turn into a stream of events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use futures::future::BoxFuture;
use futures::stream;

use super::{empty, json, typed};
use crate::outbox::{Outbox, Reading, event};

/// Says nothing, but shows that the other side is there.
const ALIVE: &[u8] = b":\n\n";

/// Something that is sent at once, so that the client sees the stream open.
pub(super) const OPEN: &[u8] = b": open\n\n";

/// Work that ends with the response's text, or with none if it was cancelled. The status is for
/// an answer that nothing was sent before.
pub(super) type Work = BoxFuture<'static, Option<(StatusCode, String)>>;

/// Answers with plain JSON if the work is soon done and has nothing to say before, and with a
/// stream of events otherwise: clients give up on an answer that does not begin. Dropping the
/// answer drops the work.
pub(super) async fn answer(
    mut work: Work,
    outbox: Arc<Outbox>,
    may_stream: bool,
    keep_alive: Duration,
) -> Response {
    let reading = Reading::new(outbox);
    if !may_stream {
        reading.outbox().close();
    }
    let done = tokio::select! {
        biased;
        done = &mut work => done,
        first = reading.take(), if may_stream => {
            return Stream { first, work: Some(work), reading, keep_alive }.respond();
        }
        () = tokio::time::sleep(keep_alive), if may_stream => {
            let first = Some(Bytes::from_static(ALIVE));
            return Stream { first, work: Some(work), reading, keep_alive }.respond();
        }
    };
    match done {
        None if !may_stream => empty(StatusCode::NO_CONTENT),
        Some((status, message)) if reading.outbox().is_empty() => {
            json(status, reading.outbox().expected().with(message))
        }
        done => {
            let bytes = last_events(&reading, done.map(|(_, message)| message));
            events_of(Body::from(reading.outbox().expected().with(bytes)))
        }
    }
}

/// A stream of events from the beginning.
pub(super) fn events(work: Work, outbox: Arc<Outbox>, keep_alive: Duration) -> Response {
    events_after(Bytes::from_static(OPEN), work, Reading::new(outbox), keep_alive)
}

/// The same, with something of the caller's before them.
pub(super) fn events_after(
    first: impl Into<Bytes>,
    work: Work,
    reading: Reading,
    keep_alive: Duration,
) -> Response {
    Stream { first: Some(first.into()), work: Some(work), reading, keep_alive }.respond()
}

/// What waits, and the answer if there is one.
fn last_events(reading: &Reading, answer: Option<String>) -> Bytes {
    let waiting = reading.take_now();
    match answer.map(|message| event("", message)) {
        None => waiting,
        Some(answer) if waiting.is_empty() => answer.into(),
        Some(answer) => [&waiting[..], &answer].concat().into(),
    }
}

/// A stream under way.
struct Stream {
    first: Option<Bytes>,
    /// Gone when there is nothing more to wait for.
    work: Option<Work>,
    reading: Reading,
    keep_alive: Duration,
}

impl Stream {
    fn respond(self) -> Response {
        let chunks = stream::unfold(self, |mut stream| async move {
            let chunk = stream.next().await?;
            Some((Ok::<_, std::io::Error>(chunk), stream))
        });
        events_of(Body::from_stream(chunks))
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let work = self.work.as_mut()?;
        tokio::select! {
            biased;
            more = self.reading.take() => Some(self.reading.outbox().with_held(more?)),
            done = work => {
                self.work = None;
                let has_answer = done.is_some();
                let bytes = last_events(&self.reading, done.map(|(_, message)| message));
                let outbox = self.reading.outbox();
                let bytes = match has_answer {
                    true => outbox.expected().with(bytes),
                    // The answer may be still to come, to another reader.
                    false => outbox.with_held(bytes),
                };
                (!bytes.is_empty()).then_some(bytes)
            }
            () = tokio::time::sleep(self.keep_alive) => Some(Bytes::from_static(ALIVE)),
        }
    }
}

pub(super) fn events_of(body: Body) -> Response {
    let mut response = typed(StatusCode::OK, "text/event-stream", body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let no_buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(no_buffering, HeaderValue::from_static("no"));
    response
}
