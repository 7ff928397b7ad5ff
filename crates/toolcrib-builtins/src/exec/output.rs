//! What a command printed, without its middle if it is long.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How many bytes of the beginning are kept, and how many of the end.
const HALF: usize = 16 * 1024;

/// The beginning and the end of a stream of bytes.
#[derive(Default)]
pub(super) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    size: u64,
}

/// Reads to the end, and keeps what may be shown.
pub(super) async fn keep(mut pipe: impl AsyncRead + Unpin, kept: &mut Kept) {
    let mut buffer = vec![0; 8 * 1024];
    // A pipe that can't be read any more has ended.
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        kept.add(&buffer[..count]);
    }
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(HALF - self.head.len()));
        self.head.extend(first);
        self.tail.extend(rest);
        let over = self.tail.len().saturating_sub(HALF);
        self.tail.drain(..over);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.size == 0
    }

    /// The text, with a word about what is missing.
    pub(super) fn into_text(self) -> String {
        let Self { mut head, tail, size } = self;
        let tail = Vec::from(tail);
        if head.contains(&0) || tail.contains(&0) {
            return format!("[{size} bytes that are not text; write them to a file instead.]");
        }
        let left_out = size - (head.len() + tail.len()) as u64;
        if left_out == 0 {
            head.extend(tail);
            return String::from_utf8_lossy(&head).into_owned();
        }
        // Letters are not cut in two.
        let end = head.len() - letter_begun(&head);
        let start = tail.iter().take(3).take_while(|byte| is_continuation(**byte)).count();
        let left_out = left_out + (head.len() - end + start) as u64;
        let (head, tail) = (&head[..end], &tail[start..]);
        format!(
            "{}\n[{left_out} bytes are left out here. Ask for less, or write to a file and look \
             into that.]\n{}",
            String::from_utf8_lossy(head),
            String::from_utf8_lossy(tail)
        )
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// How many bytes at the end are the beginning of a letter that isn't there whole.
fn letter_begun(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    // Of what isn't text, only a cut letter is up to three bytes that begin one.
    last.map_or(0, |chunk| match chunk.invalid() {
        [0xC2..=0xF4, rest @ ..] if rest.iter().all(|byte| is_continuation(*byte)) => {
            chunk.invalid().len()
        }
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: &[u8], piece: usize) -> Kept {
        let mut kept = Kept::default();
        bytes.chunks(piece).for_each(|piece| kept.add(piece));
        kept
    }

    #[test]
    fn what_fits_is_whole_however_it_comes() {
        let text = "é".repeat(HALF);
        for piece in [1, 7, 8192, 100_000] {
            assert_eq!(kept(text.as_bytes(), piece).into_text(), text);
        }
        assert!(kept(b"", 1).is_empty());
    }

    #[test]
    fn what_is_long_loses_its_middle_and_no_letter_is_cut() {
        // With one byte ahead every letter straddles the cut.
        for text in ["é".repeat(50_000), format!("a{}", "é".repeat(50_000))] {
            let shown = kept(text.as_bytes(), 4096).into_text();
            assert!(!shown.contains('\u{fffd}'));
            let (head, rest) = shown.split_once("\n[").unwrap();
            let (note, tail) = rest.split_once("]\n").unwrap();
            let left_out: usize = note.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(head.len() + left_out + tail.len(), text.len());
            assert!(shown.len() < 2 * HALF + 200);
        }
    }

    #[test]
    fn bytes_are_counted_not_shown_and_stray_ones_are_replaced() {
        let shown = kept(b"\x7fELF\0\x01", 3).into_text();
        assert!(shown.starts_with("[6 bytes that are not text"), "{shown}");
        assert_eq!(kept(b"caf\xe9\n", 2).into_text(), "caf\u{fffd}\n");
    }
}
