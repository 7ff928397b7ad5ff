//! Answers that may turn into a stream of events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use futures::future::BoxFuture;
use futures::stream;

use super::{empty, json, typed};
use crate::outbox::{Framing, Outbox, Reading, frame};

/// Says nothing, but shows that the other side is there.
const ALIVE: &[u8] = b":\n\n";

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
    let reading = Reading(outbox);
    if !may_stream {
        reading.0.close();
    }
    let mut notes = Vec::new();
    let done = tokio::select! {
        biased;
        done = &mut work => done,
        _ = reading.0.take(&mut notes), if may_stream => {
            return Stream { first: Some(notes), work: Some(work), reading, keep_alive }.respond();
        }
        () = tokio::time::sleep(keep_alive), if may_stream => {
            let first = Some(ALIVE.to_vec());
            return Stream { first, work: Some(work), reading, keep_alive }.respond();
        }
    };
    match done {
        None if !may_stream => empty(StatusCode::NO_CONTENT),
        Some((status, message)) if reading.0.is_empty() => json(status, message),
        done => {
            let mut bytes = reading.0.take_now();
            if let Some((_, message)) = done {
                frame(Framing::Events, &message, &mut bytes);
            }
            events_of(Body::from(bytes))
        }
    }
}

/// A stream of events from the beginning.
pub(super) fn events(work: Work, outbox: Arc<Outbox>, keep_alive: Duration) -> Response {
    // Something is sent at once, so that the client sees the stream open.
    let first = Some(b": open\n\n".to_vec());
    Stream { first, work: Some(work), reading: Reading(outbox), keep_alive }.respond()
}

/// A stream under way.
struct Stream {
    first: Option<Vec<u8>>,
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

    async fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        let work = self.work.as_mut()?;
        let mut bytes = Vec::new();
        tokio::select! {
            biased;
            more = self.reading.0.take(&mut bytes) => return more.then_some(bytes),
            done = work => {
                self.work = None;
                bytes = self.reading.0.take_now();
                if let Some((_, message)) = done {
                    frame(Framing::Events, &message, &mut bytes);
                }
            }
            () = tokio::time::sleep(self.keep_alive) => bytes.extend_from_slice(ALIVE),
        }
        (!bytes.is_empty()).then_some(bytes)
    }
}

fn events_of(body: Body) -> Response {
    let mut response = typed(StatusCode::OK, "text/event-stream", body);
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let no_buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(no_buffering, HeaderValue::from_static("no"));
    response
}
