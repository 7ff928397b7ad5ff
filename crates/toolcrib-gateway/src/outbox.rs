//! Messages on their way out: appended by whoever has one, taken in one piece by whoever writes.

mod log;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use memchr::memchr2;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::held::Held;
pub(crate) use log::{Allowance, Log, MOST_KEPT};

/// The most that an event has besides its message, nearly.
pub(crate) const MOST_EVENT_HEAD: usize = 128;

/// How messages are told apart on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// One a line.
    Lines,
    /// Server-sent events.
    Events,
}

impl Framing {
    /// Bytes that may wait before notes are dropped and nothing more is read. Streams of events
    /// are many, and each is about one request.
    fn most_waiting(self) -> usize {
        match self {
            Self::Lines => 32 << 20,
            Self::Events => 4 << 20,
        }
    }
}

/// What waits to be written.
pub(crate) struct Outbox {
    framing: Framing,
    waiting: Mutex<Waiting>,
    /// There is something to write, or there will be nothing more.
    news: Notify,
    /// What waited has been taken.
    taken: Notify,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    closed: bool,
    /// In place of the bytes, where a reader may come back.
    log: Option<Log>,
    /// The room that answers in it take.
    held: Vec<Held>,
    /// The same of what was taken to be written.
    taken: Vec<Held>,
    /// What the answer will take that the whole outbox is about.
    expected: Held,
}

/// What there is to take.
#[derive(Debug, PartialEq)]
enum Next {
    Bytes(Bytes),
    /// Nothing yet.
    Nothing,
    /// Nothing, ever.
    End,
}

/// What somebody who waits for an answer gets first.
pub(crate) enum First {
    /// The answer, before which nothing was said.
    Answer(String),
    /// There is something to read.
    Events,
    /// There will be no answer.
    Nothing,
}

impl Outbox {
    pub(crate) fn new(framing: Framing) -> Self {
        let (news, taken) = (Notify::new(), Notify::new());
        Self { framing, waiting: Mutex::default(), news, taken }
    }

    /// One for events, whose reader may come back for what it missed.
    pub(crate) fn logged(log: Log) -> Self {
        let outbox = Self::new(Framing::Events);
        outbox.lock().log = Some(log);
        outbox
    }

    /// Sends a message that somebody waits for.
    pub(crate) fn send(&self, message: &str) {
        self.push(message, usize::MAX);
    }

    /// The same with the room that it takes, which is given back when it has been written: when
    /// the next is taken.
    pub(crate) fn send_held(&self, message: &str, held: Held) {
        if !held.is_empty() {
            self.lock().held.push(held);
        }
        self.send(message);
    }

    /// Notes what the answer will take that this outbox is for.
    pub(crate) fn expect(&self, held: Held) {
        self.lock().expected = held;
    }

    /// What the answer takes that this outbox is for.
    pub(crate) fn expected(&self) -> Held {
        self.lock().expected.clone()
    }

    /// What was taken, with the room of the answer if that has come.
    pub(crate) fn with_held(&self, bytes: Bytes) -> Bytes {
        let waiting = self.lock();
        let is_whole = waiting.log.as_ref().is_some_and(|log| log.ended().is_some());
        let held = if is_whole { waiting.expected.clone() } else { Held::default() };
        drop(waiting);
        held.with(bytes)
    }

    /// Sends a message that may be lost if its reader is far behind.
    pub(crate) fn note(&self, message: &str) {
        self.push(message, self.framing.most_waiting());
    }

    /// Sends a message, if somebody may still read it and is not far behind.
    pub(crate) fn offer(&self, message: &str) -> bool {
        self.push(message, self.framing.most_waiting())
    }

    fn push(&self, message: &str, most: usize) -> bool {
        let mut waiting = self.lock();
        if waiting.closed {
            return false;
        }
        let waited = waiting.len();
        let is_taken = match &mut waiting.log {
            Some(log) if log.is_left() => log.push_newest(message),
            Some(log) if waited <= most => {
                log.push(message.to_owned());
                true
            }
            None if waited <= most => {
                frame(self.framing, message, &mut waiting.bytes);
                true
            }
            _ => false,
        };
        if !is_taken {
            return false;
        }
        let was_empty = waited == 0;
        drop(waiting);
        if was_empty {
            self.news.notify_one();
        }
        true
    }

    /// Nothing more will be sent.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_one();
        self.taken.notify_one();
    }

    /// Takes in the answer, after which nothing comes.
    pub(crate) fn answer(&self, answer: String) {
        if let Some(log) = &mut self.lock().log {
            log.answer(answer);
        }
    }

    /// Nothing more comes; says whether somebody may come back for what did.
    pub(crate) fn end(&self) -> bool {
        let mut waiting = self.lock();
        waiting.closed = true;
        let (mut is_open, mut is_left) = (false, false);
        if let Some(log) = &mut waiting.log {
            log.end();
            (is_open, is_left) = (log.is_open(), log.is_left());
        }
        // What is kept for one who comes back is counted with the log.
        if is_left {
            waiting.expected = Held::default();
        }
        drop(waiting);
        self.news.notify_one();
        is_open
    }

    /// Whether its reader may come back, but was not told to.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.lock().log.as_ref().is_some_and(Log::is_abandoned)
    }

    /// Since when nothing more comes, and how much of it is kept.
    pub(crate) fn ended(&self) -> Option<(Instant, usize)> {
        let waiting = self.lock();
        let log = waiting.log.as_ref()?;
        Some((log.ended()?, log.size()))
    }

    /// Forgets what nobody is going to read, if nothing has come for so long.
    pub(crate) fn expire(&self, lifetime: Duration) {
        if let Some(log) = &mut self.lock().log {
            log.expire(lifetime);
        }
    }

    /// Lets the reader go, to come back after a while; none comes back to what is not logged.
    pub(crate) fn let_go(&self, retry: Duration) {
        let mut waiting = self.lock();
        if waiting.closed {
            return;
        }
        if let Some(log) = &mut waiting.log {
            log.let_go(retry);
            drop(waiting);
            self.news.notify_one();
        }
    }

    /// Waits for what there is to say first.
    pub(crate) async fn first(&self) -> First {
        loop {
            {
                let mut waiting = self.lock();
                let Some(log) = &mut waiting.log else { return First::Nothing };
                if let Some(answer) = log.take_answer() {
                    return First::Answer(answer);
                }
                if log.has_news() {
                    return First::Events;
                }
                if log.ended().is_some() {
                    return First::Nothing;
                }
            }
            self.news.notified().await;
        }
    }

    /// Whether the log has had an event of that number.
    pub(crate) fn has_had(&self, event: u64) -> bool {
        self.lock().log.as_ref().is_some_and(|log| log.has_had(event))
    }

    /// Takes the log away, so that it goes on elsewhere.
    pub(crate) fn take_log(&self) -> Option<Log> {
        let log = self.lock().log.take();
        self.close();
        log
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().len() == 0
    }

    /// Waits for something and takes it; `None` if nothing more will come.
    pub(crate) async fn take(&self) -> Option<Bytes> {
        self.take_as(0).await
    }

    async fn take_as(&self, reader: u64) -> Option<Bytes> {
        let written = std::mem::take(&mut self.lock().taken);
        drop(written);
        loop {
            let next = self.lock().next(reader);
            match next {
                Next::Bytes(bytes) => {
                    self.taken.notify_one();
                    return Some(bytes);
                }
                Next::Nothing => self.news.notified().await,
                Next::End => {
                    // The news that woke this reader may be for one who has taken its place.
                    self.news.notify_one();
                    return None;
                }
            }
        }
    }

    /// Waits until not too much is waiting: whoever does not read gets no more answers.
    pub(crate) async fn room(&self) {
        let has_room = || {
            let waiting = self.lock();
            waiting.closed || waiting.len() <= self.framing.most_waiting()
        };
        while !has_room() {
            self.taken.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// The bytes that nobody has taken.
    fn len(&self) -> usize {
        self.log.as_ref().map_or(self.bytes.len(), Log::unread)
    }

    /// Takes what waits.
    fn next(&mut self, reader: u64) -> Next {
        let next = match &mut self.log {
            Some(log) => log.next(reader),
            None if self.bytes.is_empty() => Next::Nothing,
            None => {
                self.taken = std::mem::take(&mut self.held);
                Next::Bytes(std::mem::take(&mut self.bytes).into())
            }
        };
        if next == Next::Nothing && self.closed { Next::End } else { next }
    }
}

/// Whoever reads an outbox: once dropped, nothing more is kept for it, unless it may come back.
pub(crate) struct Reading {
    outbox: Arc<Outbox>,
    /// Which of the readers of a log it is.
    reader: u64,
    may_come_back: bool,
}

impl Reading {
    pub(crate) fn new(outbox: Arc<Outbox>) -> Self {
        let reader = outbox.lock().log.as_mut().map_or(0, Log::attach);
        Self { outbox, reader, may_come_back: false }
    }

    /// The same, of a log to which somebody comes back after an event. `None` if there was none
    /// such, or its end is lost; else also how many events are lost.
    pub(crate) fn back(outbox: Arc<Outbox>, after: u64) -> Option<(Self, u64)> {
        let mut waiting = outbox.lock();
        let log = waiting.log.as_mut().filter(|log| !log.is_lost_after(after))?;
        let lost = log.rewind(after)?;
        let reader = log.attach();
        drop(waiting);
        // Whoever read it so far sees that they no longer do.
        outbox.news.notify_waiters();
        Some((Self { outbox, reader, may_come_back: true }, lost))
    }

    /// One who may come back.
    pub(crate) fn lasting(mut self) -> Self {
        self.may_come_back = true;
        self
    }

    /// The id of the last event it has been given.
    pub(crate) fn place(&self) -> String {
        self.outbox.lock().log.as_ref().map_or_else(String::new, Log::place)
    }

    /// As [`Outbox::take`].
    pub(crate) async fn take(&self) -> Option<Bytes> {
        self.outbox.take_as(self.reader).await
    }

    /// What waits, now; empty if nothing does.
    pub(crate) fn take_now(&self) -> Bytes {
        let next = self.outbox.lock().next(self.reader);
        self.outbox.taken.notify_one();
        match next {
            Next::Bytes(bytes) => bytes,
            Next::Nothing | Next::End => Bytes::new(),
        }
    }

    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut waiting = self.outbox.lock();
        waiting.bytes = Vec::new();
        let is_over = waiting.log.as_mut().is_none_or(|log| {
            log.detach(self.reader);
            log.is_left() && log.ended().is_some()
        });
        // An answer that is still to come may have a reader then.
        if is_over {
            waiting.expected = Held::default();
        }
        drop(waiting);
        if !self.may_come_back {
            self.outbox.close();
        }
    }
}

/// What is written before and after a message.
fn around(framing: Framing) -> (&'static str, &'static str) {
    match framing {
        Framing::Lines => ("", "\n"),
        Framing::Events => ("event: message\ndata: ", "\n\n"),
    }
}

/// Writes one message.
pub(crate) fn frame(framing: Framing, message: &str, out: &mut Vec<u8>) {
    let (before, after) = around(framing);
    out.reserve(before.len() + message.len() + after.len());
    out.extend_from_slice(before.as_bytes());
    let begin = out.len();
    out.extend_from_slice(message.as_bytes());
    in_one_line(&mut out[begin..]);
    out.extend_from_slice(after.as_bytes());
}

/// Makes an event of a message, which is moved and not copied: it may be long. `head` is the lines
/// that come first.
pub(crate) fn event(head: &str, message: String) -> Vec<u8> {
    let (before, after) = around(Framing::Events);
    let before = [head, before].concat();
    let mut event = message;
    event.reserve_exact(before.len() + after.len());
    event.insert_str(0, &before);
    let mut event = event.into_bytes();
    in_one_line(&mut event[before.len()..]);
    event.extend_from_slice(after.as_bytes());
    event
}

/// In JSON a line break is white space, but here it would end the message.
fn in_one_line(message: &mut [u8]) {
    let mut from = 0;
    while let Some(at) = memchr2(b'\n', b'\r', &message[from..]) {
        message[from + at] = b' ';
        from += at + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcrib_runtime::Budget;

    #[tokio::test]
    async fn what_was_sent_is_taken_in_one_piece_and_in_order() {
        let outbox = Outbox::new(Framing::Lines);
        outbox.send("{}");
        outbox.note("{\n\"a\":\r\n1}");
        assert_eq!(outbox.take().await.unwrap(), "{}\n{ \"a\":  1}\n");
        outbox.close();
        outbox.send("late");
        assert_eq!(outbox.take().await, None);
    }

    #[tokio::test]
    async fn room_is_given_back_when_the_answer_has_been_written() {
        let budget = Budget::default();
        let held = Held::default();
        let mut room = budget.room();
        room.reach(1 << 20).await.unwrap();
        held.keep(room);
        let outbox = Outbox::new(Framing::Lines);
        outbox.send_held("answer", held);
        assert_eq!(outbox.take().await.unwrap(), "answer\n");
        outbox.send("next");
        assert_eq!(budget.used(), 1 << 20);
        assert_eq!(outbox.take().await.unwrap(), "next\n");
        assert_eq!(budget.used(), 0);
    }

    async fn expecting(budget: &Budget) -> Arc<Outbox> {
        let held = Held::default();
        let mut room = budget.room();
        room.reach(1 << 20).await.unwrap();
        held.keep(room);
        let allowance = Arc::new(Allowance::new(1 << 20));
        let outbox = Arc::new(Outbox::logged(Log::new("s".into(), 1, true, allowance)));
        outbox.expect(held);
        outbox
    }

    #[tokio::test]
    async fn room_stays_with_an_answer_whose_reader_has_come_back() {
        let budget = Budget::default();
        let outbox = expecting(&budget).await;
        let stale = Reading::new(outbox.clone()).lasting();
        let (left, _) = Reading::back(outbox.clone(), 0).unwrap();
        drop(stale);
        drop(left);
        let (back, _) = Reading::back(outbox.clone(), 0).unwrap();
        outbox.answer("answer".to_owned());
        let bytes = outbox.with_held(back.take().await.unwrap());
        drop((back, outbox));
        assert_eq!(budget.used(), 1 << 20);
        drop(bytes);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn an_answer_that_nobody_reads_is_kept_by_the_log_and_takes_no_room() {
        let budget = Budget::default();
        let outbox = expecting(&budget).await;
        drop(Reading::new(outbox.clone()).lasting());
        outbox.answer("answer".to_owned());
        assert!(outbox.end());
        assert_eq!(budget.used(), 0);
        assert!(outbox.ended().is_some_and(|(_, kept)| kept > 0));
        // The reader leaves when the answer has come, but has not been read.
        let outbox = expecting(&budget).await;
        let reading = Reading::new(outbox.clone()).lasting();
        outbox.answer("answer".to_owned());
        assert_eq!(budget.used(), 1 << 20);
        drop(reading);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn whoever_does_not_read_loses_notes_but_no_answers() {
        let outbox = Arc::new(Outbox::new(Framing::Events));
        let long = "x".repeat(Framing::Events.most_waiting() + 1);
        outbox.send(&long);
        outbox.note("note");
        assert!(!outbox.offer("question"));
        outbox.send("answer");
        let room = outbox.room();
        tokio::pin!(room);
        assert!(futures::poll!(&mut room).is_pending());
        let reading = Reading::new(outbox.clone());
        let text = String::from_utf8(reading.take_now().into()).unwrap();
        assert!(text.ends_with("event: message\ndata: answer\n\n") && !text.contains("note"));
        assert!(!text.contains("question") && outbox.offer("question"));
    }
}
