//! Words to terms.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use rust_stemmers::{Algorithm, Stemmer};

use crate::tokenize::words;
use crate::tuning::Reading;

/// Stems remembered before the cache starts over: a few megabytes at most.
const MAX_CACHED_STEMS: usize = 32_768;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// A stemmed word as a 64-bit hash.
///
/// Two words with one hash are the same term to every search. Among a million distinct words such
/// a pair turns up about once in forty million corpora. One can be made on purpose; a document
/// gains no more by that than by containing the other word openly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(u64);

impl Term {
    /// Expects a word that is already folded and stemmed.
    pub(crate) fn of(stem: &str) -> Self {
        let fnv =
            stem.bytes().fold(FNV_OFFSET, |h, byte| (h ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
        // FNV leaves the upper bits of short words much alike, and a segment looks there first.
        Term((fnv ^ (fnv >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The same in four-byte units; upper half first.
    pub(crate) fn halves(self) -> [u32; 2] {
        [(self.0 >> 32) as u32, self.0 as u32]
    }

    pub(crate) fn from_halves([upper, lower]: [u32; 2]) -> Self {
        Term(u64::from(upper) << 32 | u64::from(lower))
    }

    /// Terms are spread evenly over the values of their upper bits.
    pub(crate) fn upper_bits(self, bits: u32) -> usize {
        if bits == 0 { 0 } else { (self.0 >> (u64::BITS - bits)) as usize }
    }
}

/// Turns text into terms.
///
/// It remembers what it has stemmed, up to a limit, so one analyzer is best used over many builds.
/// What it remembers changes its speed and never its answers.
pub struct Analyzer {
    reading: Reading,
    stems: HashMap<Box<str>, Term>,
}

impl Analyzer {
    /// An analyzer that remembers nothing yet.
    pub fn new() -> Self {
        Self::reading(Reading::DEFAULT)
    }

    /// One that reads in another way than the usual.
    pub fn reading(reading: Reading) -> Self {
        Analyzer { reading, stems: HashMap::new() }
    }

    /// The terms of a text in order, repeated as often as they occur.
    pub fn terms(&mut self, text: &str) -> Vec<Term> {
        let mut terms = Vec::with_capacity(text.len().min(crate::MAX_TEXT_BYTES) / 6);
        words(text, |form, word| {
            if form.is_term() {
                terms.push(self.term(word));
            }
        });
        terms
    }

    fn term(&mut self, word: &str) -> Term {
        if !self.reading.stems(word) {
            return Term::of(word);
        }
        if let Some(&term) = self.stems.get(word) {
            return term;
        }
        let term = Term::of(&self.reading.stem(word));
        if self.stems.len() == MAX_CACHED_STEMS {
            self.stems.clear();
        }
        self.stems.insert(word.into(), term);
        term
    }
}

impl Default for Analyzer {
    fn default() -> Self {
        Analyzer::new()
    }
}

impl fmt::Debug for Analyzer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Analyzer").field("stems", &self.stems.len()).finish()
    }
}

/// The stem of a folded word as it is usually read.
pub(crate) fn stem(word: &str) -> Cow<'_, str> {
    Reading::DEFAULT.stem(word)
}

impl Reading {
    /// The English stem of a folded word, or the word itself where English says nothing about it.
    pub(crate) fn stem(self, word: &str) -> Cow<'_, str> {
        if self.stems(word) {
            Stemmer::create(Algorithm::English).stem(word)
        } else {
            Cow::Borrowed(word)
        }
    }

    fn stems(self, word: &str) -> bool {
        word.len() as f32 >= self.stemmed && word.bytes().all(|byte| byte.is_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inflections_share_a_term() {
        let mut analyzer = Analyzer::new();
        assert_eq!(analyzer.terms("Issues"), analyzer.terms("issue"));
        assert_ne!(analyzer.terms("issue"), analyzer.terms("issuer"));
    }

    #[test]
    fn words_are_stemmed_from_a_number_of_letters() {
        let mut long = Analyzer::reading(Reading { stemmed: 7.0, ..Reading::DEFAULT });
        assert_ne!(long.terms("issues"), long.terms("issue"));
        assert_eq!(long.terms("meetings"), long.terms("meeting"));
    }

    #[test]
    fn a_full_cache_changes_no_term() {
        let mut analyzer = Analyzer::new();
        let before = analyzer.terms("creating issues");
        for i in 0..MAX_CACHED_STEMS as u32 + 5 {
            let letters = [0, 5, 10, 15].map(|shift| char::from(b'a' + (i >> shift & 15) as u8));
            analyzer.terms(&format!(
                "{}{}",
                letters.iter().collect::<String>(),
                "q".repeat(i as usize % 3)
            ));
        }
        assert!(analyzer.stems.len() <= MAX_CACHED_STEMS);
        assert_eq!(analyzer.terms("creating issues"), before);
    }
}
