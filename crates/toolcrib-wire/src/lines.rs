//! Messages on stdio: one a line.

use std::string::FromUtf8Error;

use memchr::memchr;

/// Room that is kept for what comes next.
pub(crate) const MOST_SPARE: usize = 1 << 20;

/// Cuts a stream of bytes into lines of limited length.
///
/// ```
/// use toolcrib_wire::Lines;
///
/// let mut lines = Lines::new(100);
/// lines.push(b"{\"a\":1}\n\n{\"b\"");
/// assert_eq!(lines.next(), Some(Ok("{\"a\":1}".to_owned())));
/// assert_eq!(lines.next(), None);
/// lines.push(b":2}\r\n");
/// assert_eq!(lines.next(), Some(Ok("{\"b\":2}".to_owned())));
/// ```
#[derive(Debug)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Where the next line begins.
    begin: usize,
    /// Up to where there is no line's end.
    seen: usize,
    most: usize,
    /// Inside a line that was too long.
    skipping: bool,
}

/// A line longer than the limit. It is skipped; the next one is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a line has more than {0} bytes")]
pub struct TooLong(pub usize);

impl Lines {
    /// Lines of at most `most` bytes.
    pub fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), begin: 0, seen: 0, most, skipping: false }
    }

    /// Takes in what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.begin > 0 {
            self.bytes.drain(..self.begin);
            self.seen -= self.begin;
            self.begin = 0;
            // One long line is no reason to hold on to as much memory.
            self.bytes.shrink_to(MOST_SPARE);
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// What has come of a line that is not complete yet, once `next` has brought nothing more.
    pub fn rest(&self) -> &[u8] {
        if self.skipping { &[] } else { &self.bytes[self.begin..] }
    }

    /// Passes over the line that is not complete yet.
    pub fn skip(&mut self) {
        self.clear();
        self.skipping = true;
    }

    fn clear(&mut self) {
        self.bytes.clear();
        // One long line is no reason to hold on to as much memory.
        self.bytes.shrink_to(MOST_SPARE);
        (self.begin, self.seen) = (0, 0);
    }

    /// The next line that is complete and not blank. Bytes that are no UTF-8 are replaced.
    #[expect(clippy::should_implement_trait, reason = "more may come after `None`")]
    pub fn next(&mut self) -> Option<Result<String, TooLong>> {
        loop {
            let Some(at) = memchr(b'\n', &self.bytes[self.seen..]) else {
                self.seen = self.bytes.len();
                if self.skipping {
                    self.begin = self.seen;
                } else if self.begin == self.seen {
                    self.clear();
                } else if self.seen - self.begin > self.most {
                    self.begin = self.seen;
                    self.skipping = true;
                    return Some(Err(TooLong(self.most)));
                }
                return None;
            };
            let end = self.seen + at;
            let line = self.begin..end;
            (self.begin, self.seen) = (end + 1, end + 1);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > self.most {
                return Some(Err(TooLong(self.most)));
            }
            let line = if line.len() > MOST_SPARE && line.start == 0 {
                self.hand_over(end)
            } else {
                self.bytes[line].trim_ascii().to_vec()
            };
            if line.is_empty() {
                continue;
            }
            let replaced = |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into();
            return Some(Ok(String::from_utf8(line).unwrap_or_else(replaced)));
        }
    }

    /// A long line that everything else comes after, without copying it.
    fn hand_over(&mut self, end: usize) -> Vec<u8> {
        let rest = self.bytes.split_off(end + 1);
        (self.begin, self.seen) = (0, 0);
        let mut line = std::mem::replace(&mut self.bytes, rest);
        line.truncate(line[..end].trim_ascii_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_come_out_whole_too() {
        let long = "ä".repeat(MOST_SPARE);
        let text = format!("{long} \r\nshort\n{}\n  {long}\n{long}\nrest", " ".repeat(2 << 20));
        for step in [1 << 10, 70_001, 3 << 20, text.len()] {
            let mut lines = Lines::new(4 << 20);
            let mut out = Vec::new();
            for part in text.as_bytes().chunks(step) {
                lines.push(part);
                while let Some(line) = lines.next() {
                    out.push(line.unwrap());
                }
            }
            let out: Vec<&str> = out.iter().map(|line| line.trim_start()).collect();
            assert_eq!(out, [long.as_str(), "short", &long, &long], "{step}");
            assert_eq!(lines.rest(), b"rest");
        }
    }

    #[test]
    fn lines_come_out_whole_however_they_go_in() {
        let text = b"one\n\r\n  two \r\nthree\xff\nrest";
        for step in 1..text.len() {
            let mut lines = Lines::new(20);
            let mut out = Vec::new();
            for part in text.chunks(step) {
                lines.push(part);
                while let Some(line) = lines.next() {
                    out.push(line.unwrap());
                }
            }
            assert_eq!(out, ["one", "two", "three\u{fffd}"], "in steps of {step}");
        }
    }

    #[test]
    fn a_line_too_long_is_told_once_and_skipped() {
        for step in [1, 3, 100] {
            let mut lines = Lines::new(4);
            let mut out = Vec::new();
            for part in b"ok\nmuch too long\nfine\n".chunks(step) {
                lines.push(part);
                while let Some(line) = lines.next() {
                    out.push(line);
                }
                assert!(lines.bytes.len() <= 104);
            }
            let expected = [Ok("ok".to_owned()), Err(TooLong(4)), Ok("fine".to_owned())];
            assert_eq!(out, expected, "in steps of {step}");
        }
    }

    #[test]
    fn a_line_can_be_passed_over_before_it_is_complete() {
        let mut lines = Lines::new(100);
        lines.push(b"one\nsome");
        assert_eq!(lines.next(), Some(Ok("one".to_owned())));
        assert_eq!((lines.next(), lines.rest()), (None, &b"some"[..]));
        lines.skip();
        lines.push(b" more");
        assert_eq!((lines.next(), lines.rest()), (None, &b""[..]));
        lines.push(b" of it\ntwo\n");
        assert_eq!(lines.next(), Some(Ok("two".to_owned())));
        assert_eq!(lines.next(), None);
    }

    #[test]
    fn a_long_line_leaves_no_memory_behind() {
        let mut lines = Lines::new(10 << 20);
        lines.push(&vec![b'x'; 5 << 20]);
        lines.push(b"\n");
        assert_eq!(lines.next().unwrap().unwrap().len(), 5 << 20);
        assert_eq!(lines.next(), None);
        assert!(lines.bytes.capacity() <= MOST_SPARE);
    }
}
