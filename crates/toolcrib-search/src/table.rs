//! Words to directions: a table of vectors that is part of the program.
//!
//! A word the table has is one piece. Any other is taken apart from the left into the longest
//! pieces it has. The mean of its pieces' vectors is what a text is about. How the table was made is
//! told in `training/README.md`, what is in it in `data/MODEL_CARD.md`.

use std::sync::OnceLock;

use pulp::Arch;

use crate::analyze::Term;
use crate::tokenize::{Form, Script, words};

/// Shorter pieces of a word that is not in the table say nothing; a letter of a script without
/// spaces does.
const MIN_PIECE_LETTERS: usize = 3;
/// The table has no longer pieces, in letters.
const MAX_PIECE_LETTERS: usize = 24;
/// Pieces of one text that are looked at.
pub(crate) const MAX_PIECES: usize = 96;

/// The bits of a hash that choose where the search for it begins.
const DIRECTORY_BITS: u32 = 14;
const MAGIC: &[u8; 4] = b"TCV1";
const HEAD: usize = 12;

/// Vectors of pieces of words, four bits a dimension.
///
/// The file: the magic number, the number of dimensions and of pieces; then, each for all pieces,
/// in ascending order of their hashes: the hash, the scale as a half-precision number, and the
/// steps from −8 to 7, two to a byte: the first half of the dimensions in the lower four bits, the
/// other half in the upper. All little-endian.
pub(crate) struct Table {
    dimensions: usize,
    hashes: &'static [u8],
    scales: &'static [u8],
    steps: &'static [u8],
    directory: Box<[u32]>,
}

impl Table {
    /// The table that comes with the crate, if it was compiled in.
    pub(crate) fn embedded() -> Option<&'static Table> {
        static TABLE: OnceLock<Option<Table>> = OnceLock::new();
        TABLE.get_or_init(|| Table::read(BYTES)).as_ref()
    }

    /// `None` if the bytes are not a table.
    fn read(bytes: &'static [u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if bytes.get(..4)? != MAGIC {
            return None;
        }
        let (dimensions, count) = (number(4)? as usize, number(8)? as usize);
        let (hashes, rest) = bytes.get(HEAD..)?.split_at_checked(count.checked_mul(4)?)?;
        let (scales, steps) = rest.split_at_checked(count.checked_mul(2)?)?;
        if dimensions % 2 != 0 || steps.len() != count.checked_mul(dimensions / 2)? {
            return None;
        }
        let mut directory = vec![0_u32; (1 << DIRECTORY_BITS) + 1];
        for hash in hashes.as_chunks::<4>().0 {
            directory[(u32::from_le_bytes(*hash) >> (32 - DIRECTORY_BITS)) as usize + 1] += 1;
        }
        for at in 1..directory.len() {
            directory[at] += directory[at - 1];
        }
        Some(Table { dimensions, hashes, scales, steps, directory: directory.into() })
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Adds the vectors of a text's pieces to `sum`, and says how many there were.
    pub(crate) fn add(&self, text: &str, sum: &mut [f32]) -> usize {
        let mut pieces = Vec::with_capacity(MAX_PIECES);
        let mut is_whole_known = false;
        words(text, |form, word| {
            if pieces.len() >= MAX_PIECES {
                return;
            }
            match form {
                Form::Word => self.split(word, &mut pieces),
                Form::Whole => {
                    let whole = self.find(word);
                    is_whole_known = whole.is_some();
                    pieces.extend(whole);
                }
                Form::Part if !is_whole_known => self.split(word, &mut pieces),
                Form::Run => self.split(word, &mut pieces),
                Form::Part | Form::Letters | Form::Pair => {}
            }
        });
        pieces.truncate(MAX_PIECES);
        Arch::new().dispatch(|| pieces.iter().for_each(|&piece| self.add_piece(piece, sum)));
        pieces.len()
    }

    /// Whether a word is one of the table's, in one piece.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.find(word).is_some()
    }

    #[inline(always)]
    fn add_piece(&self, piece: usize, sum: &mut [f32]) {
        let half = self.dimensions / 2;
        let scale = half_to_single(self.scales[2 * piece], self.scales[2 * piece + 1]);
        let steps = &self.steps[piece * half..][..half];
        let (even, odd) = sum.split_at_mut(half);
        // The first half of the dimensions is in the lower bits, the other half in the upper.
        for ((even, odd), &byte) in even.iter_mut().zip(odd).zip(steps) {
            *even += scale * (f32::from(byte & 15) - 8.0);
            *odd += scale * (f32::from(byte >> 4) - 8.0);
        }
    }

    fn split(&self, word: &str, pieces: &mut Vec<usize>) {
        if let Some(piece) = self.find(word) {
            return pieces.push(piece);
        }
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            return;
        }
        let is_unspaced =
            word.chars().next().is_some_and(|c| Script::of(c) == Some(Script::Unspaced));
        let least = if is_unspaced { 1 } else { MIN_PIECE_LETTERS };
        let mut rest = word;
        while let Some(first) = rest.chars().next()
            && pieces.len() < MAX_PIECES
        {
            let ends = rest.char_indices().map(|(at, c)| at + c.len_utf8());
            let ends: Vec<usize> = ends.take(MAX_PIECE_LETTERS).skip(least - 1).collect();
            let found = ends.iter().rev().find_map(|&end| Some((end, self.find(&rest[..end])?)));
            let end = found.map_or(first.len_utf8(), |(end, _)| end);
            pieces.extend(found.map(|(_, piece)| piece));
            rest = &rest[end..];
        }
    }

    fn find(&self, piece: &str) -> Option<usize> {
        let hash = Term::of(piece).halves()[0];
        let bucket = (hash >> (32 - DIRECTORY_BITS)) as usize;
        let (first, last) = (self.directory[bucket] as usize, self.directory[bucket + 1] as usize);
        let hashes = &self.hashes.as_chunks::<4>().0[first..last];
        hashes.iter().position(|bytes| u32::from_le_bytes(*bytes) == hash).map(|at| first + at)
    }
}

/// A finite half-precision number.
#[inline(always)]
fn half_to_single(low: u8, high: u8) -> f32 {
    let bits = u32::from(u16::from_le_bytes([low, high]));
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, bits & 1023);
    let size = match exponent {
        0 => fraction as f32 * 2.0_f32.powi(-24),
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    if sign == 1 { -size } else { size }
}

#[cfg(feature = "vectors")]
const BYTES: &[u8] = include_bytes!("../data/vectors.bin");
#[cfg(not(feature = "vectors"))]
const BYTES: &[u8] = &[];

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: [u8; 2] = [0x00, 0x3c];

    /// A table in the format of the file: pieces, each with its scale and its steps.
    fn bytes(dimensions: usize, rows: &[(&str, [u8; 2], Vec<i8>)]) -> Vec<u8> {
        let hash = |piece: &str| Term::of(piece).halves()[0];
        let mut rows = rows.to_vec();
        rows.sort_by_key(|(piece, ..)| hash(piece));
        let mut bytes = MAGIC.to_vec();
        bytes.extend((dimensions as u32).to_le_bytes());
        bytes.extend((rows.len() as u32).to_le_bytes());
        rows.iter().for_each(|(piece, ..)| bytes.extend(hash(piece).to_le_bytes()));
        rows.iter().for_each(|(_, scale, _)| bytes.extend(scale));
        for (_, _, steps) in &rows {
            let (lower, upper) = steps.split_at(dimensions / 2);
            let packed = lower.iter().zip(upper).map(|(l, u)| (l + 8) as u8 | ((u + 8) as u8) << 4);
            bytes.extend(packed);
        }
        bytes
    }

    fn read(bytes: Vec<u8>) -> Option<Table> {
        Table::read(Box::leak(bytes.into_boxed_slice()))
    }

    fn of_pieces(pieces: &[&str]) -> Vec<u8> {
        let dimensions = pieces.len().next_multiple_of(2);
        let steps = |at| (0..dimensions).map(|dimension| i8::from(dimension == at)).collect();
        let rows: Vec<_> =
            pieces.iter().enumerate().map(|(at, &piece)| (piece, ONE, steps(at))).collect();
        bytes(dimensions, &rows)
    }

    /// The pieces of a text, by a table in which each has a dimension of its own.
    #[track_caller]
    fn check(pieces: &[&str], text: &str, expected: &[&str]) {
        let table = read(of_pieces(pieces)).expect("a table");
        let mut sum = vec![0.0; table.dimensions()];
        let count = table.add(text, &mut sum);
        let told = pieces.iter().zip(&sum);
        let found: Vec<&str> =
            told.flat_map(|(&piece, &times)| vec![piece; times as usize]).collect();
        assert_eq!(found, expected, "pieces of {text:?}");
        assert_eq!(count, expected.len(), "pieces of {text:?}");
    }

    #[test]
    fn a_piece_has_its_steps_to_scale() {
        let half = [0x00, 0x38];
        let table = read(bytes(
            6,
            &[("file", half, vec![-8, -7, -1, 0, 1, 7]), ("disk", ONE, vec![1, 2, 3, 4, 5, 6])],
        ))
        .expect("a table");
        let mut sum = vec![0.0; 6];
        assert_eq!(table.add("file", &mut sum), 1);
        assert_eq!(sum, [-4.0, -3.5, -0.5, 0.0, 0.5, 3.5]);
        assert_eq!(table.add("a disk", &mut sum), 1, "added to what is there");
        assert_eq!(sum, [-3.0, -1.5, 2.5, 4.0, 5.5, 9.5]);
        assert!(table.has("file") && !table.has("fil") && !table.has("files"));
    }

    #[test]
    fn every_piece_is_found_among_many() {
        let pieces: Vec<String> = (0..3_000).map(|i| format!("piece{i}")).collect();
        let rows: Vec<_> = pieces.iter().map(|p| (p.as_str(), ONE, vec![1_i8, -1])).collect();
        let table = read(bytes(2, &rows)).expect("a table");
        assert!(pieces.iter().all(|piece| table.has(piece)));
        assert!((3_000..6_000).all(|i| !table.has(&format!("piece{i}"))));
    }

    #[test]
    fn an_unknown_word_is_taken_apart_from_the_left_into_the_longest_pieces() {
        let pieces = ["data", "database", "base", "bas", "db"];
        check(&pieces, "database", &["database"]);
        check(&pieces, "databases", &["database"]);
        check(&pieces, "databasedata", &["data", "database"]);
        check(&pieces, "basedata", &["data", "base"]);
        check(&pieces, "metadata", &["data"]);
        check(&pieces, "basxbase", &["base", "bas"]);
        check(&pieces, "db", &["db"]);
        check(&pieces, "mydbs", &[]);
        check(&pieces, "", &[]);
        check(&pieces, "Database-Bases, DATA!", &["data", "database", "base"]);
    }

    #[test]
    fn a_camel_case_word_is_one_piece_or_its_parts() {
        let pieces = ["github", "git", "hub", "create", "issue"];
        check(&pieces, "GitHub", &["github"]);
        check(&pieces, "github", &["github"]);
        check(&pieces, "createIssue", &["create", "issue"]);
        check(&pieces, "GitHub createIssue", &["github", "create", "issue"]);
        check(&pieces, "createIssue GitHub", &["github", "create", "issue"]);
        check(&["git", "hub"], "GitHub", &["git", "hub"]);
        check(&pieces, "createAnIssueOnGitHub", &["git", "hub", "create", "issue"]);
    }

    #[test]
    fn a_run_without_spaces_is_taken_apart_like_a_word() {
        let pieces = ["天気", "天", "予報", "を", "file"];
        check(&pieces, "天気", &["天気"]);
        check(&pieces, "天気予報", &["天気", "予報"]);
        check(&pieces, "今日の天の予報を", &["天", "予報", "を"]);
        check(&pieces, "天", &["天"]);
        check(&pieces, "天気のfile", &["天気", "file"]);
        check(&["파일", "삭제"], "파일을 삭제", &["파일", "삭제"]);
    }

    #[test]
    fn digits_say_nothing_unless_they_are_a_piece() {
        let pieces = ["base", "oauth", "365"];
        check(&pieces, "12345", &[]);
        check(&pieces, "base64", &["base"]);
        check(&pieces, "OAuth2 2024", &["oauth"]);
        check(&pieces, "365", &["365"]);
        check(&pieces, "36500", &[]);
    }

    #[test]
    fn only_the_first_pieces_of_a_long_text_count() {
        let table = read(of_pieces(&["data", "本"])).expect("a table");
        for text in ["data ", "dataData ", "本", "本 data "] {
            let mut sum = [0.0; 2];
            assert_eq!(table.add(&text.repeat(500), &mut sum), MAX_PIECES, "{text}");
            assert_eq!(sum[0] + sum[1], MAX_PIECES as f32, "{text}");
        }
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_no_table() {
        let whole = of_pieces(&["data", "base", "github", "天気"]);
        assert!(read(whole.clone()).is_some());
        for length in 0..whole.len() {
            assert!(read(whole[..length].to_vec()).is_none(), "{length} of {}", whole.len());
        }
        assert!(read([&whole[..], &[0]].concat()).is_none());
        let with = |at: usize, value: u32| {
            let mut bytes = whole.clone();
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            read(bytes)
        };
        assert!(with(0, u32::from_le_bytes(*b"TCV2")).is_none(), "another format");
        for count in [0, 3, 5, u32::MAX, u32::MAX / 4, 1 << 31] {
            assert!(with(8, count).is_none(), "{count} pieces");
        }
        for dimensions in [0, 3, 5, 6, u32::MAX, u32::MAX - 1] {
            assert!(with(4, dimensions).is_none(), "{dimensions} dimensions");
        }
    }

    #[test]
    fn a_table_without_pieces_knows_no_word() {
        let table = read(of_pieces(&[])).expect("a table");
        assert_eq!(table.add("any word", &mut []), 0);
        let table = read(bytes(256, &[])).expect("a table");
        assert_eq!((table.dimensions(), table.has("word")), (256, false));
    }

    #[test]
    fn garbled_bytes_never_panic() {
        let whole = of_pieces(&["data", "base", "github", "天気", "create", "issue"]);
        let mut state = 1_u64;
        let mut random = |bound: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % bound
        };
        let mut read_anyway = 0;
        for _ in 0..1_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                bytes[at] ^= 1 << random(8);
            }
            let Some(table) = read(bytes) else { continue };
            read_anyway += 1;
            let mut sum = vec![0.0; table.dimensions()];
            table.add("GitHub database createIssue 天気予報 base64", &mut sum);
            assert!(sum.iter().all(|component| component.is_finite()));
        }
        assert!(read_anyway > 100, "{read_anyway}");
    }

    #[test]
    fn half_precision_numbers_are_read_exactly() {
        let single = |bits: u16| half_to_single(bits.to_le_bytes()[0], bits.to_le_bytes()[1]);
        for (bits, value) in [
            (0x0000, 0.0),
            (0x0001, 2.0_f32.powi(-24)),
            (0x03ff, 1023.0 * 2.0_f32.powi(-24)),
            (0x0400, 2.0_f32.powi(-14)),
            (0x3555, 1365.0 / 4096.0),
            (0x3800, 0.5),
            (0x3c00, 1.0),
            (0x3c01, 1.0 + 1.0 / 1024.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0xfbff, -65504.0),
        ] {
            assert_eq!(single(bits), value, "{bits:#06x}");
        }
        assert!((1..0x7c00).all(|bits| single(bits) > single(bits - 1)), "in ascending order");
        assert!((0..=u16::MAX).all(|bits| single(bits).is_finite()));
    }

    #[cfg(feature = "vectors")]
    #[test]
    fn the_embedded_table_is_sound() {
        let table = Table::embedded().expect("the embedded table reads");
        assert!(BYTES.len() <= 8_000_000, "{} bytes", BYTES.len());
        let hashes = table.hashes.as_chunks::<4>().0;
        assert!(hashes.is_sorted_by(|a, b| u32::from_le_bytes(*a) < u32::from_le_bytes(*b)));
        let has_direction = |piece: usize| {
            let mut sum = vec![0.0; table.dimensions()];
            table.add_piece(piece, &mut sum);
            sum.iter().any(|component| *component != 0.0)
        };
        let without = (0..hashes.len()).filter(|&piece| !has_direction(piece)).count();
        assert!(without * 100 <= hashes.len(), "{without} pieces have no direction");
    }

    #[cfg(feature = "vectors")]
    #[test]
    fn by_the_embedded_table_what_means_the_same_is_nearer() {
        let table = Table::embedded().expect("the embedded table reads");
        // A table of a few pieces is there only so that the crate compiles.
        if table.hashes.len() / 4 <= 1_000 {
            return;
        }
        let cosine = |a: &str, b: &str| -> f32 {
            let [a, b] = [a, b].map(|text| {
                let mut sum = vec![0.0; table.dimensions()];
                assert!(table.add(text, &mut sum) > 0, "no piece of {text:?} is known");
                sum
            });
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
        };
        for (text, near, far) in [
            ("delete a file", "remove document from disk", "weather forecast"),
            ("send an email", "compose and deliver a message", "resize an image"),
            ("book a flight", "reserve a plane ticket", "compile source code"),
        ] {
            assert!(cosine(text, near) > cosine(text, far), "{text}");
        }
    }
}
