//! Messages on their way out: appended by whoever has one, taken in one piece by whoever writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memchr::memchr2;
use tokio::sync::Notify;

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
}

impl Outbox {
    pub(crate) fn new(framing: Framing) -> Self {
        let (news, taken) = (Notify::new(), Notify::new());
        Self { framing, waiting: Mutex::default(), news, taken }
    }

    /// Sends a message that somebody waits for.
    pub(crate) fn send(&self, message: &str) {
        self.push(message, usize::MAX);
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
        if waiting.closed || waiting.bytes.len() > most {
            return false;
        }
        let was_empty = waiting.bytes.is_empty();
        frame(self.framing, message, &mut waiting.bytes);
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

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().bytes.is_empty()
    }

    /// What waits, now; empty if nothing does.
    pub(crate) fn take_now(&self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.lock().bytes);
        self.taken.notify_one();
        bytes
    }

    /// Waits for something and exchanges it for the empty `buffer`; says whether there was any:
    /// if not, nothing more will come.
    pub(crate) async fn take(&self, buffer: &mut Vec<u8>) -> bool {
        loop {
            {
                let mut waiting = self.lock();
                if !waiting.bytes.is_empty() {
                    buffer.clear();
                    std::mem::swap(buffer, &mut waiting.bytes);
                    drop(waiting);
                    self.taken.notify_one();
                    return true;
                }
                if waiting.closed {
                    return false;
                }
            }
            self.news.notified().await;
        }
    }

    /// Waits until not too much is waiting: whoever does not read gets no more answers.
    pub(crate) async fn room(&self) {
        let has_room = || {
            let waiting = self.lock();
            waiting.closed || waiting.bytes.len() <= self.framing.most_waiting()
        };
        while !has_room() {
            self.taken.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever reads an outbox: once dropped, nothing more is kept for it.
pub(crate) struct Reading(pub(crate) Arc<Outbox>);

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.close();
        self.0.take_now();
    }
}

/// Writes one message.
pub(crate) fn frame(framing: Framing, message: &str, out: &mut Vec<u8>) {
    out.reserve(message.len() + 24);
    if framing == Framing::Events {
        out.extend_from_slice(b"event: message\ndata: ");
    }
    let begin = out.len();
    out.extend_from_slice(message.as_bytes());
    // In JSON a line break is white space, but here it would end the message.
    if memchr2(b'\n', b'\r', message.as_bytes()).is_some() {
        let breaks = out[begin..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r'));
        breaks.for_each(|byte| *byte = b' ');
    }
    out.extend_from_slice(if framing == Framing::Events { b"\n\n" } else { b"\n" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_sent_is_taken_in_one_piece_and_in_order() {
        let outbox = Outbox::new(Framing::Lines);
        outbox.send("{}");
        outbox.note("{\n\"a\":\r\n1}");
        let mut buffer = Vec::new();
        assert!(outbox.take(&mut buffer).await);
        assert_eq!(buffer, b"{}\n{ \"a\":  1}\n");
        outbox.close();
        outbox.send("late");
        assert!(!outbox.take(&mut buffer).await);
    }

    #[tokio::test]
    async fn whoever_does_not_read_loses_notes_but_no_answers() {
        let outbox = Outbox::new(Framing::Events);
        let long = "x".repeat(Framing::Events.most_waiting() + 1);
        outbox.send(&long);
        outbox.note("note");
        assert!(!outbox.offer("question"));
        outbox.send("answer");
        let room = outbox.room();
        tokio::pin!(room);
        assert!(futures::poll!(&mut room).is_pending());
        let text = String::from_utf8(outbox.take_now()).unwrap();
        assert!(text.ends_with("event: message\ndata: answer\n\n") && !text.contains("note"));
        assert!(!text.contains("question") && outbox.offer("question"));
    }
}
