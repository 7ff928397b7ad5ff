//! Messages on stdio: one a line.

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

    /// The next line that is complete and not blank. Bytes that are no UTF-8 are replaced.
    #[expect(clippy::should_implement_trait, reason = "more may come after `None`")]
    pub fn next(&mut self) -> Option<Result<String, TooLong>> {
        loop {
            let Some(at) = memchr(b'\n', &self.bytes[self.seen..]) else {
                self.seen = self.bytes.len();
                if self.skipping {
                    self.begin = self.seen;
                } else if self.seen - self.begin > self.most {
                    self.begin = self.seen;
                    self.skipping = true;
                    return Some(Err(TooLong(self.most)));
                }
                return None;
            };
            let end = self.seen + at;
            let line = &self.bytes[self.begin..end];
            (self.begin, self.seen) = (end + 1, end + 1);
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > self.most {
                return Some(Err(TooLong(self.most)));
            }
            let line = line.trim_ascii();
            if !line.is_empty() {
                return Some(Ok(String::from_utf8_lossy(line).into_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
