//! Messages on streamable HTTP: server-sent events.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use crate::TooLong;
use crate::lines::MOST_SPARE;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Where to resume from after this event.
    pub id: Option<String>,
    /// What kind it is; `message` unless said.
    pub kind: Option<String>,
    /// What it says.
    pub data: String,
    /// How long to wait before connecting again, in milliseconds.
    pub retry: Option<u64>,
}

/// Cuts a stream of bytes into events of limited size.
///
/// ```
/// use toolcrib_wire::Events;
///
/// let mut events = Events::new(1000);
/// events.push(b": hello\n\nid: 4\ndata: {\"a\":\ndata: 1}\n\n");
/// let event = events.next().unwrap()?;
/// assert_eq!((event.id.as_deref(), &*event.data), (Some("4"), "{\"a\":\n1}"));
/// assert!(events.next().is_none());
/// # Ok::<_, toolcrib_wire::TooLong>(())
/// ```
#[derive(Debug)]
pub struct Events {
    bytes: Vec<u8>,
    /// Up to where there is no line's end.
    seen: usize,
    event: Event,
    has_data: bool,
    started: bool,
    most: usize,
}

impl Events {
    /// Events of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            seen: 0,
            event: Event::default(),
            has_data: false,
            started: false,
            most,
        }
    }

    /// Takes in what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if !self.started && self.bytes.len() >= 3 {
            self.started = true;
            if self.bytes.starts_with(b"\xef\xbb\xbf") {
                self.bytes.drain(..3);
                self.seen = 0;
            }
        }
    }

    /// How many bytes have come of an event that is not complete yet.
    pub fn pending(&self) -> usize {
        self.bytes.len() + self.event.data.len()
    }

    /// The next event that is complete and has data.
    #[expect(clippy::should_implement_trait, reason = "more may come after `None`")]
    pub fn next(&mut self) -> Option<Result<Event, TooLong>> {
        let mut begin = 0;
        let found = loop {
            let Some(at) = memchr2(b'\n', b'\r', &self.bytes[self.seen..]) else {
                self.seen = self.bytes.len();
                break None;
            };
            let end = self.seen + at;
            // A carriage return may be half of a line's end: the other half decides.
            let width = match (self.bytes[end], self.bytes.get(end + 1)) {
                (b'\r', Some(b'\n')) => 2,
                (b'\r', None) => {
                    self.seen = end;
                    break None;
                }
                _ => 1,
            };
            let line = &self.bytes[begin..end];
            (begin, self.seen) = (end + width, end + width);
            if line.is_empty() {
                let event = std::mem::take(&mut self.event);
                if std::mem::take(&mut self.has_data) || event.retry.is_some() || event.id.is_some()
                {
                    break Some(Ok(event));
                }
                continue;
            }
            let fits = self.event.data.len() + line.len() <= self.most;
            if fits {
                self.event.add(line, &mut self.has_data);
            }
            // What replaces bytes that are no UTF-8 is longer than they were.
            if !fits || self.event.data.len() > self.most {
                self.event = Event::default();
                self.has_data = false;
                break Some(Err(TooLong(self.most)));
            }
        };
        if begin > 0 {
            self.bytes.drain(..begin);
            self.seen -= begin;
            // One large event is no reason to hold on to as much memory.
            self.bytes.shrink_to(MOST_SPARE);
        }
        if found.is_none() && self.bytes.len() > self.most {
            self.bytes.clear();
            self.seen = 0;
            return Some(Err(TooLong(self.most)));
        }
        found
    }
}

impl Event {
    /// Takes in a line that is not empty.
    fn add(&mut self, line: &[u8], has_data: &mut bool) {
        let (name, value) = match memchr(b':', line) {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        // Bytes that are no UTF-8 are replaced; to see that there are none is much faster.
        let value = match std::str::from_utf8(value) {
            Ok(value) => Cow::Borrowed(value),
            Err(_) => String::from_utf8_lossy(value),
        };
        match name {
            b"data" => {
                if *has_data {
                    self.data.push('\n');
                }
                *has_data = true;
                self.data.push_str(&value);
            }
            b"event" => self.kind = Some(value.into_owned()),
            b"id" if !value.contains('\0') => self.id = Some(value.into_owned()),
            b"retry" => self.retry = value.parse().ok(),
            _ => {}
        }
    }
}

/// An event as text. `data` is JSON on one line.
pub fn event(id: Option<&str>, data: &str) -> String {
    debug_assert!(!data.contains('\n'), "JSON as we write it has no line breaks");
    match id {
        Some(id) => format!("id: {id}\nevent: message\ndata: {data}\n\n"),
        None => format!("event: message\ndata: {data}\n\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], step: usize, most: usize) -> Vec<Result<Event, TooLong>> {
        let mut events = Events::new(most);
        let mut out = Vec::new();
        for part in text.chunks(step) {
            events.push(part);
            while let Some(event) = events.next() {
                out.push(event);
            }
        }
        out
    }

    #[test]
    fn events_come_out_whole_however_they_go_in() {
        let text = "\u{feff}event: message\r\nid: 1\r\ndata: \u{e4}\r\n\r\n: ping\n\n\
                    retry: 50\ndata:a\ndata: b\n\ndata: cut";
        for step in 1..text.len() {
            let out = read(text.as_bytes(), step, 1000);
            let first = Event {
                id: Some("1".into()),
                kind: Some("message".into()),
                data: "\u{e4}".into(),
                retry: None,
            };
            let second = Event { data: "a\nb".into(), retry: Some(50), ..Event::default() };
            assert_eq!(out, [Ok(first), Ok(second)], "in steps of {step}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let out = read(event(Some("7"), "{}").as_bytes(), 5, 100);
        assert_eq!(out[0].as_ref().unwrap().data, "{}");
        assert_eq!(out[0].as_ref().unwrap().id.as_deref(), Some("7"));
    }

    #[test]
    fn an_event_too_large_is_told() {
        let text = format!("data: {}\n\ndata: fine\n\n", "x".repeat(500));
        let out = read(text.as_bytes(), 1000, 100);
        assert!(out.contains(&Err(TooLong(100))));
        assert_eq!(out.last().unwrap().as_ref().unwrap().data, "fine");
        let endless = read("x".repeat(5000).as_bytes(), 10, 100);
        assert!(endless.iter().all(|event| event == &Err(TooLong(100))));
    }
}
