//! Streams of a session that can be taken up again: whoever lost the connection comes back with
//! the id of the last event it has, and goes on from there.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::HeaderMap;
use axum::response::Response;
use serde_json::json;
use toolcrib_wire::{RpcError, code, notification};

use super::sessions::{Session, Visit};
use super::{empty, json, stream};
use crate::client::Client;
use crate::outbox::{Allowance, First, Framing, Log, MOST_KEPT, Outbox, Reading, frame};
use crate::relay::severity;

const LAST_EVENT_ID: &str = "last-event-id";

/// The first revision whose clients know events without contents, and that a stream may end
/// before its answer.
const PRIMING: &str = "2025-11-25";

/// How long an answer may take before a stream is opened for it: one that breaks before that can't
/// be taken up again.
const PROMPT: Duration = Duration::from_millis(50);

/// When a client should come back, unless a server says.
const RETRY: Duration = Duration::from_secs(1);

/// How long answers and notices are kept.
const LIFETIME: Duration = Duration::from_secs(300);

/// The stream of notices; those of answers have higher numbers.
const NOTICES: u64 = 0;

/// The streams of one session.
pub(super) struct Streams {
    /// What their ids begin with, so that those of another session are none here.
    tag: Arc<str>,
    primes: bool,
    last: AtomicU64,
    allowance: Arc<Allowance>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Those of answers, from the moment somebody could come back to them.
    answers: HashMap<u64, Arc<Outbox>>,
    /// Those of them to which nothing is added any more, in that order.
    ended: VecDeque<u64>,
    notices: Option<Arc<Outbox>>,
}

impl Streams {
    pub(super) fn new(session: &str, version: &str, allowance: Arc<Allowance>) -> Self {
        let tag = blake3::derive_key("toolcrib gateway event ids", session.as_bytes());
        let tag = data_encoding::HEXLOWER.encode(&tag[..8]).into();
        let (last, table) = (AtomicU64::new(NOTICES), Mutex::default());
        Self { tag, primes: version >= PRIMING, last, allowance, table }
    }

    fn log(&self, stream: u64) -> Log {
        Log::new(self.tag.clone(), stream, self.primes, self.allowance.clone())
    }

    fn keep(&self, stream: u64, outbox: &Arc<Outbox>) {
        let mut table = self.lock();
        table.answers.insert(stream, outbox.clone());
        if outbox.ended().is_some() {
            table.end(stream);
        }
    }

    fn end(&self, stream: u64) {
        self.lock().end(stream);
    }

    /// Forgets what nobody came back for.
    pub(super) fn tidy(&self) {
        self.lock().tidy();
    }

    /// What a stream begins with, whose events before `place` the client has.
    fn opening(&self, place: &str) -> Vec<u8> {
        match self.primes {
            true => format!("id: {place}\nretry: {}\ndata: \n\n", RETRY.as_millis()).into_bytes(),
            false => stream::OPEN.to_vec(),
        }
    }

    /// The notices of the session, from where the last reader of them was or from an event on;
    /// also how many events are lost.
    fn notices(&self, after: Option<u64>) -> (Reading, u64) {
        let mut table = self.lock();
        let before = table.notices.as_ref().and_then(|notices| notices.take_log());
        let mut log = before.unwrap_or_else(|| self.log(NOTICES));
        let lost = after.and_then(|after| log.rewind(after)).unwrap_or_default();
        let outbox = Arc::new(Outbox::logged(log));
        table.notices = Some(outbox.clone());
        (Reading::new(outbox), lost)
    }

    fn has_notice(&self, event: u64) -> bool {
        self.lock().notices.as_ref().is_some_and(|notices| notices.has_had(event))
    }

    /// The stream and the number of an event of this session's.
    fn read_id(&self, id: &str) -> Option<(u64, u64)> {
        let (stream, event) = id.strip_prefix(&*self.tag)?.strip_prefix('-')?.split_once('-')?;
        let stream = stream.parse().ok()?;
        (stream <= self.last.load(Ordering::Relaxed)).then_some((stream, event.parse().ok()?))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn end(&mut self, stream: u64) {
        if self.answers.contains_key(&stream) && !self.ended.contains(&stream) {
            self.ended.push_back(stream);
            self.tidy();
        }
    }

    /// The newest is kept whatever its size, the others as far as there is room.
    fn tidy(&mut self) {
        if let Some(notices) = &self.notices {
            notices.expire(LIFETIME);
        }
        let mut size = 0;
        let mut newer = self.ended.len();
        for stream in self.ended.iter().rev() {
            let outbox = self.answers.get(stream);
            let Some((ended, bytes)) = outbox.and_then(|outbox| outbox.ended()) else { break };
            // A stream takes some room even if hardly anything was said on it.
            size += bytes + MOST_KEPT / 64;
            let is_newest = newer == self.ended.len();
            if ended.elapsed() > LIFETIME || (size > MOST_KEPT && !is_newest) {
                break;
            }
            newer -= 1;
        }
        for stream in self.ended.drain(..newer) {
            self.answers.remove(&stream);
        }
    }
}

/// Begins to answer within a session.
pub(super) fn begin(session: Visit, takes_events: bool) -> (Answering, Ending) {
    let streams = session.streams().clone();
    let stream = streams.last.fetch_add(1, Ordering::Relaxed) + 1;
    let outbox = Arc::new(Outbox::logged(streams.log(stream)));
    if !takes_events {
        // Before the work begins: a question must not be laid where nobody looks.
        outbox.close();
    }
    let ending = Ending { session, stream, outbox: outbox.clone() };
    let claim = Claim { outbox, may_come_back: false };
    (Answering { streams, stream, claim, takes_events }, ending)
}

/// Held by the work on an answer: dropped, it ends the stream.
pub(super) struct Ending {
    session: Visit,
    stream: u64,
    outbox: Arc<Outbox>,
}

impl Ending {
    pub(super) fn with(self, answer: String) {
        self.outbox.answer(answer);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.outbox.end() {
            self.session.streams().end(self.stream);
        }
    }
}

/// Somebody who waits for an answer.
pub(super) struct Answering {
    streams: Arc<Streams>,
    stream: u64,
    claim: Claim,
    takes_events: bool,
}

/// Who leaves before the stream is open can't come back to it: nothing more is kept for them.
struct Claim {
    outbox: Arc<Outbox>,
    may_come_back: bool,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.may_come_back {
            self.outbox.close();
        }
    }
}

impl Answering {
    pub(super) fn outbox(&self) -> &Arc<Outbox> {
        &self.claim.outbox
    }

    /// Plain JSON if the work is soon done and has nothing to say before, and a stream of events
    /// otherwise.
    pub(super) async fn respond(mut self, keep_alive: Duration) -> Response {
        let patience = if self.streams.primes { PROMPT.min(keep_alive) } else { keep_alive };
        let first = tokio::select! {
            biased;
            first = self.outbox().first() => first,
            () = tokio::time::sleep(patience), if self.takes_events => First::Events,
        };
        match first {
            First::Answer(message) => {
                let held = self.outbox().expected();
                json(StatusCode::OK, held.with(message))
            }
            First::Nothing if self.takes_events => stream::events_of(Body::empty()),
            First::Nothing => empty(StatusCode::NO_CONTENT),
            First::Events => {
                self.claim.may_come_back = true;
                let reading = Reading::new(self.outbox().clone()).lasting();
                let opening = self.streams.opening(&reading.place());
                self.streams.keep(self.stream, self.outbox());
                stream::events_after(opening, Box::pin(pending()), reading, keep_alive)
            }
        }
    }
}

/// What a client that asks for events gets first, and then.
pub(super) enum Resumed {
    /// The rest of an answer.
    Answer(Vec<u8>, Reading),
    /// What belongs to no request.
    Notices(Vec<u8>, Reading),
}

/// Finds the stream that a client wants to go on with; without one it is that of notices.
pub(super) fn resume(
    session: &Session,
    headers: &HeaderMap,
) -> Result<Resumed, (StatusCode, RpcError)> {
    let refused = |status, text: &str| Err((status, RpcError::new(code::INVALID_REQUEST, text)));
    let streams = session.streams();
    let Some(last) = headers.get(LAST_EVENT_ID) else {
        let (reading, _) = streams.notices(None);
        return Ok(Resumed::Notices(streams.opening(&reading.place()), reading));
    };
    let unknown = "Last-Event-ID is of no event of this session";
    let Some((stream, event)) = last.to_str().ok().and_then(|last| streams.read_id(last)) else {
        return refused(StatusCode::BAD_REQUEST, unknown);
    };
    if stream == NOTICES {
        if !streams.has_notice(event) {
            return refused(StatusCode::BAD_REQUEST, unknown);
        }
        let (reading, lost) = streams.notices(Some(event));
        return Ok(Resumed::Notices(missing(session.client(), lost), reading));
    }
    let outbox = streams.lock().answers.get(&stream).cloned();
    match outbox.and_then(|outbox| Reading::back(outbox, event)) {
        Some((reading, lost)) => Ok(Resumed::Answer(missing(session.client(), lost), reading)),
        None => {
            let text = "What came after that event is no longer kept: ask again for what it \
                        answered, if that may be done twice";
            refused(StatusCode::GONE, text)
        }
    }
}

/// What a resumed stream begins with, some events of which may be lost.
fn missing(client: &Client, lost: u64) -> Vec<u8> {
    let mut first = stream::OPEN.to_vec();
    let is_wanted = client.logs().is_none_or(|mildest| severity("warning") >= Some(mildest));
    if lost > 0 && is_wanted {
        let text = format!("{lost} messages of this stream are lost: more came than is kept");
        let params = json!({"level": "warning", "logger": "toolcrib", "data": text});
        let message = notification("notifications/message", Some(&params));
        frame(Framing::Events, &message, &mut first);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_comes_back_for_is_kept_for_a_while() {
        let streams = Streams::new("session", PRIMING, Arc::new(Allowance::new(1 << 20)));
        let outbox = Arc::new(Outbox::logged(streams.log(1)));
        let reading = Reading::new(outbox.clone()).lasting();
        streams.keep(1, &outbox);
        drop(reading);
        outbox.answer("{}".to_owned());
        assert!(outbox.end());
        streams.end(1);
        let is_kept = || {
            streams.tidy();
            streams.lock().answers.contains_key(&1)
        };
        tokio::time::advance(LIFETIME - Duration::from_secs(1)).await;
        assert!(is_kept());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!is_kept());
    }
}
