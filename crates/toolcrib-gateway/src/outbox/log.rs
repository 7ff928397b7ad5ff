//! The events of a stream that can be taken up again after its connection was lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::Instant;

use super::{Next, event};

/// Bytes of one stream that are kept for a reader who may come back. One event is kept whatever
/// its size: it may be the answer.
pub(crate) const MOST_KEPT: usize = 64 << 10;

/// What all streams together keep.
pub(crate) struct Allowance {
    most: usize,
    used: AtomicUsize,
}

impl Allowance {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, used: AtomicUsize::new(0) }
    }

    fn is_spent(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.most
    }

    /// Whether what is left is for those who have gone.
    fn is_short(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.most / 2
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.most
    }
}

/// Events of one stream, numbered from one.
pub(crate) struct Log {
    session: Arc<str>,
    stream: u64,
    /// Whether its readers know that they may be let go.
    may_let_go: bool,
    allowance: Arc<Allowance>,
    /// The number of the newest event.
    last: u64,
    /// When that came.
    came: Instant,
    /// The newest events; what came before is forgotten.
    kept: VecDeque<Bytes>,
    bytes: usize,
    /// How many of those kept the reader has been given, and their bytes.
    read: usize,
    read_bytes: usize,
    /// Readers so far: only the newest one reads.
    readers: u64,
    has_reader: bool,
    /// The last reader was told to come back.
    was_let_go: bool,
    /// The reader is to go, and to come back after a while.
    let_go: Option<Duration>,
    /// The answer, as long as it may be all there is to say.
    answer: Option<String>,
    ended: Option<Instant>,
}

impl Log {
    pub(crate) fn new(
        session: Arc<str>,
        stream: u64,
        may_let_go: bool,
        allowance: Arc<Allowance>,
    ) -> Self {
        Self {
            session,
            stream,
            may_let_go,
            allowance,
            last: 0,
            came: Instant::now(),
            kept: VecDeque::new(),
            bytes: 0,
            read: 0,
            read_bytes: 0,
            readers: 0,
            has_reader: false,
            was_let_go: false,
            let_go: None,
            answer: None,
            ended: None,
        }
    }

    /// The bytes that nobody has read.
    pub(super) fn unread(&self) -> usize {
        self.bytes - self.read_bytes
    }

    /// What is kept.
    pub(super) fn size(&self) -> usize {
        self.bytes
    }

    /// Since when nothing more comes.
    pub(super) fn ended(&self) -> Option<Instant> {
        self.ended
    }

    /// Whether somebody once began to read it: before, there is no telling one from what is kept.
    pub(super) fn is_open(&self) -> bool {
        self.readers > 0
    }

    /// Whether its reader has gone, and may come back.
    pub(super) fn is_left(&self) -> bool {
        self.is_open() && !self.has_reader
    }

    /// Whether its reader has gone of its own accord: it may be for good.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_left() && !self.was_let_go
    }

    pub(super) fn push(&mut self, message: String) {
        self.last += 1;
        self.came = Instant::now();
        let event = Bytes::from(event(&format!("id: {}\n", self.id(self.last)), message));
        self.bytes += event.len();
        self.allowance.used.fetch_add(event.len(), Ordering::Relaxed);
        self.kept.push_back(event);
    }

    /// Takes in a message while nobody reads: only the newest are kept then. Says whether this one
    /// is.
    pub(super) fn push_newest(&mut self, message: &str) -> bool {
        let has_room = self.allowance.has_room_for(message.len());
        if has_room {
            self.push(message.to_owned());
            self.trim(self.kept.len(), 1);
        } else {
            self.lose();
        }
        has_room
    }

    /// Counts an event that is not kept. Nor is any before it, so that nothing looks complete.
    fn lose(&mut self) {
        self.forget(self.kept.len());
        self.last += 1;
    }

    /// Takes the answer in; it waits as it is if nothing was said before it.
    pub(super) fn answer(&mut self, answer: String) {
        if !self.is_open() && self.kept.is_empty() {
            self.answer = Some(answer);
        } else if self.has_reader || !self.is_open() || self.allowance.has_room_for(answer.len()) {
            self.push(answer);
        } else {
            self.lose();
        }
        self.end();
    }

    pub(super) fn end(&mut self) {
        self.ended.get_or_insert_with(Instant::now);
    }

    /// The answer, if it is all that was said.
    pub(super) fn take_answer(&mut self) -> Option<String> {
        self.answer.take()
    }

    /// Lets a new reader in, and the one before out.
    pub(super) fn attach(&mut self) -> u64 {
        if self.is_open() {
            self.let_go = None;
        }
        self.readers += 1;
        (self.has_reader, self.was_let_go) = (true, false);
        if let Some(answer) = self.answer.take() {
            self.push(answer);
        }
        self.readers
    }

    /// A reader has gone. What nobody may come back for is forgotten.
    pub(super) fn detach(&mut self, reader: u64) {
        if self.readers == reader {
            self.has_reader = false;
            self.trim(self.kept.len(), 1);
        }
    }

    /// Forgets what nobody is going to read, if nothing has come for so long.
    pub(super) fn expire(&mut self, lifetime: Duration) {
        if self.came.elapsed() > lifetime {
            self.forget(if self.has_reader { self.read } else { self.kept.len() });
        }
    }

    pub(super) fn let_go(&mut self, retry: Duration) {
        // Nobody is sent away for whom nothing could be kept.
        let is_kept = self.allowance.has_room_for(MOST_KEPT);
        if self.may_let_go && is_kept && (self.has_reader || !self.is_open()) {
            self.let_go = Some(retry);
        }
    }

    /// Whether somebody has to look: there are events, or the reader is to go.
    pub(super) fn has_news(&self) -> bool {
        self.unread() > 0 || self.let_go.is_some()
    }

    /// What is there for a reader.
    pub(super) fn next(&mut self, reader: u64) -> Next {
        if self.readers != reader || !self.has_reader {
            return Next::End;
        }
        // What it was given before is on its way; what is large of that gives place to others.
        if self.allowance.is_short() {
            self.trim(self.read, 0);
        }
        if self.unread() > 0 {
            let mut unread = self.kept.iter().skip(self.read);
            let bytes = match unread.len() {
                1 => unread.next().cloned().unwrap_or_default(),
                _ => unread.map(|event| &event[..]).collect::<Vec<_>>().concat().into(),
            };
            (self.read, self.read_bytes) = (self.kept.len(), self.bytes);
            self.trim(self.read, 1);
            return Next::Bytes(bytes);
        }
        let Some(retry) = self.let_go.take() else { return Next::Nothing };
        (self.has_reader, self.was_let_go) = (false, true);
        Next::Bytes(format!("retry: {}\n\n", retry.as_millis()).into())
    }

    pub(super) fn has_had(&self, event: u64) -> bool {
        event <= self.last
    }

    /// Goes back to what came after an event: how many events of that are lost; `None` if there
    /// was no such event.
    pub(crate) fn rewind(&mut self, to: u64) -> Option<u64> {
        if !self.has_had(to) {
            return None;
        }
        let forgotten = self.last - self.kept.len() as u64;
        self.read = usize::try_from(to.saturating_sub(forgotten)).unwrap_or(usize::MAX);
        self.read_bytes = self.kept.iter().take(self.read).map(Bytes::len).sum();
        Some(forgotten.saturating_sub(to))
    }

    /// Whether the end of it, which came after an event, is no longer there.
    pub(crate) fn is_lost_after(&self, event: u64) -> bool {
        self.ended.is_some() && self.kept.is_empty() && event < self.last
    }

    /// The id of the last event that was read: from there on the stream can be resumed.
    pub(crate) fn place(&self) -> String {
        self.id(self.last - (self.kept.len() - self.read) as u64)
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{}-{number}", self.session, self.stream)
    }

    /// Forgets the oldest of the first `count` events until not too much is kept, but `least`
    /// events whatever their size as long as all streams together don't keep too much.
    fn trim(&mut self, count: usize, least: usize) {
        let is_spent = self.allowance.is_spent();
        let (most, least) = if is_spent { (0, 0) } else { (MOST_KEPT, least) };
        let mut going = 0;
        let mut left = self.bytes;
        while going < count && self.kept.len() - going > least && left > most {
            left -= self.kept[going].len();
            going += 1;
        }
        self.forget(going);
    }

    fn forget(&mut self, count: usize) {
        for event in self.kept.drain(..count) {
            self.bytes -= event.len();
            self.allowance.used.fetch_sub(event.len(), Ordering::Relaxed);
            if self.read > 0 {
                self.read -= 1;
                self.read_bytes -= event.len();
            }
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.forget(self.kept.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(most: usize) -> (Log, Arc<Allowance>) {
        let allowance = Arc::new(Allowance::new(most));
        (Log::new("s".into(), 3, true, allowance.clone()), allowance)
    }

    fn read(log: &mut Log, reader: u64) -> String {
        match log.next(reader) {
            Next::Bytes(bytes) => String::from_utf8(bytes.into()).unwrap(),
            Next::Nothing | Next::End => String::new(),
        }
    }

    #[test]
    fn a_reader_goes_on_after_the_last_event_it_has() {
        let (mut log, _) = log(1 << 20);
        let first = log.attach();
        assert_eq!(log.place(), "s-3-0");
        ["1", "2"].iter().for_each(|text| log.push(text.to_string()));
        assert_eq!(read(&mut log, first).matches("id: s-3-").count(), 2);
        let second = log.attach();
        assert_eq!((log.next(first), log.rewind(1)), (Next::End, Some(0)));
        log.answer("3".to_owned());
        let rest = "id: s-3-2\nevent: message\ndata: 2\n\nid: s-3-3\nevent: message\ndata: 3\n\n";
        assert_eq!(read(&mut log, second), rest);
        // A reader whom another one has followed does not take it along.
        log.detach(first);
        assert_eq!((log.rewind(3), log.rewind(4)), (Some(0), None));
        assert_eq!(log.next(second), Next::Nothing);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_lost_counted() {
        let (mut log, allowance) = log(1 << 20);
        let reader = log.attach();
        let half = "x".repeat(MOST_KEPT / 2);
        for _ in 0..4 {
            log.push(half.clone());
            read(&mut log, reader);
        }
        assert_eq!((log.kept.len(), log.rewind(0)), (1, Some(3)));
        let huge = "y".repeat(4 * MOST_KEPT);
        log.answer(huge.clone());
        log.detach(reader);
        assert_eq!((log.kept.len(), log.rewind(4)), (1, Some(0)));
        let reader = log.attach();
        assert!(read(&mut log, reader).contains(&huge));
        drop(log);
        assert_eq!(allowance.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn where_all_keep_too_much_nothing_is_kept_for_those_who_left() {
        let (mut log, _) = log(10);
        let reader = log.attach();
        log.push("0123456789".to_owned());
        read(&mut log, reader);
        assert_eq!(log.size(), 0);
        log.detach(reader);
        assert!(!log.push_newest("0123456789+"));
        log.answer("0123456789+".to_owned());
        assert_eq!((log.rewind(1), log.size()), (Some(2), 0));
    }

    #[test]
    fn a_large_answer_that_was_written_gives_place_to_those_who_left() {
        for (most, is_kept) in [(1 << 20, true), (300 << 10, false)] {
            let (mut log, _) = log(most);
            let reader = log.attach();
            log.answer("x".repeat(200 << 10));
            read(&mut log, reader);
            assert!(log.size() > 0, "it may not be written yet");
            read(&mut log, reader);
            assert_eq!((log.size() > 0, log.is_lost_after(0)), (is_kept, !is_kept));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_is_forgotten_but_not_before_it_is_read() {
        let (mut log, _) = log(1 << 20);
        let reader = log.attach();
        log.push("1".to_owned());
        read(&mut log, reader);
        log.push("2".to_owned());
        let lifetime = Duration::from_secs(300);
        tokio::time::advance(lifetime).await;
        log.expire(lifetime);
        assert_eq!(log.kept.len(), 2);
        tokio::time::advance(Duration::from_secs(1)).await;
        log.expire(lifetime);
        assert_eq!((log.kept.len(), log.unread() > 0), (1, true));
        log.detach(reader);
        log.expire(lifetime);
        assert_eq!((log.kept.len(), log.rewind(1)), (0, Some(1)));
    }

    #[test]
    fn a_reader_who_is_let_go_reads_what_there_is_and_when_to_come_back() {
        let (mut log, _) = log(1 << 20);
        // Before it has come.
        log.let_go(Duration::from_millis(70));
        assert!(log.has_news());
        log.push("1".to_owned());
        let reader = log.attach();
        assert!(read(&mut log, reader).contains("data: 1"));
        assert_eq!(read(&mut log, reader), "retry: 70\n\n");
        assert_eq!(log.next(reader), Next::End);
        // Nothing could be kept.
        let reader = log.attach();
        log.allowance.used.fetch_add(1 << 20, Ordering::Relaxed);
        log.let_go(Duration::from_millis(70));
        assert_eq!(log.next(reader), Next::Nothing);
        log.allowance.used.fetch_sub(1 << 20, Ordering::Relaxed);
        log.detach(reader);
        // Nobody is there to be let go.
        log.let_go(Duration::from_millis(70));
        let reader = log.attach();
        assert_eq!(log.next(reader), Next::Nothing);
    }
}
