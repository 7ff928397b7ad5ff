//! Words that differ by a letter.
//!
//! Two words that differ by one letter, or by two neighbours that changed places, become equal when
//! a letter is left out of each. So every word is kept under all its spellings with a letter left
//! out, as hashes, and a word is looked up the same way.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::analyze::Term;
use crate::tokenize::{Form, words};
use crate::tuning::Reading;

/// Shorter words differ by a letter from too many others.
const MIN_LETTERS: usize = 5;
/// Longer ones are not names of anything.
const MAX_LETTERS: usize = 24;

/// Words of documents, each with the documents that have it in ascending order.
#[derive(Default)]
pub(crate) struct Spelt(BTreeMap<String, Vec<u32>>);

impl Spelt {
    /// Adds the words of a text of a document that is no earlier than the last.
    pub(crate) fn add(&mut self, doc: u32, text: &str) {
        words(text, |form, word| {
            if !matches!(form, Form::Word | Form::Whole | Form::Part) || !is_spelt(word) {
                return;
            }
            match self.0.get_mut(word) {
                Some(docs) if docs.last() == Some(&doc) => {}
                Some(docs) => docs.push(doc),
                None => _ = self.0.insert(word.to_owned(), vec![doc]),
            }
        });
    }

    pub(crate) fn finish(self, reading: Reading) -> Spellings {
        let (mut entries, mut terms, mut docs) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (word, having)) in (0..).zip(self.0) {
            spellings(&word, |hash| entries.push((hash, at)));
            let start = docs.len() as u32;
            docs.extend(having);
            terms.push((Term::of(&reading.stem(&word)), start..docs.len() as u32));
        }
        entries.sort_unstable();
        entries.dedup();
        Spellings { entries: entries.into(), words: terms.into(), docs: docs.into() }
    }
}

/// The words of some documents under their spellings.
pub(crate) struct Spellings {
    /// A spelling and the number of a word that has it, in ascending order.
    entries: Box<[(u32, u32)]>,
    /// The term of each word, and where the documents that have it are listed.
    words: Box<[(Term, Range<u32>)]>,
    docs: Box<[u32]>,
}

impl Spellings {
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries) + size_of_val(&*self.words) + size_of_val(&*self.docs)
    }

    /// Adds the terms of words that differ from `word` by a letter and that some document has
    /// which counts; one may come several times.
    pub(crate) fn find(&self, word: &str, found: &mut Vec<Term>, counts: impl Fn(u32) -> bool) {
        spellings(word, |hash| {
            let from = self.entries.partition_point(|(other, _)| *other < hash);
            let same = self.entries[from..].iter().take_while(|(other, _)| *other == hash);
            let meant = same.map(|(_, at)| &self.words[*at as usize]).filter(|(_, range)| {
                let docs = &self.docs[range.start as usize..range.end as usize];
                docs.iter().any(|doc| counts(*doc))
            });
            found.extend(meant.map(|(term, _)| *term));
        });
    }
}

/// Whether a word is one whose spelling may be doubted.
pub(crate) fn is_spelt(word: &str) -> bool {
    (MIN_LETTERS..=MAX_LETTERS).contains(&word.len())
        && word.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// The word and each word with one letter left out, as hashes. The word is of ASCII letters.
fn spellings(word: &str, mut emit: impl FnMut(u32)) {
    emit(Term::of(word).halves()[0]);
    for at in 0..word.len() {
        let mut shorter = word.to_owned();
        shorter.remove(at);
        emit(Term::of(&shorter).halves()[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::stem;

    #[test]
    fn words_that_differ_by_a_letter_are_found() {
        let mut spelt = Spelt::default();
        spelt.add(0, "kubernetes_list_calendar");
        let spellings = spelt.finish(Reading::DEFAULT);
        let find = |word| {
            let mut found = Vec::new();
            spellings.find(word, &mut found, |_| true);
            found.dedup();
            found
        };
        let calendar = [Term::of(&stem("calendar"))];
        for typed in ["calender", "calandar", "claendar", "calenda", "calendarr"] {
            assert_eq!(find(typed), calendar, "{typed}");
        }
        assert_eq!(find("kuberntes"), [Term::of(&stem("kubernetes"))]);
        assert!(find("colander").is_empty());
        assert!(find("lists").is_empty(), "a short word is not looked up");
    }
    #[test]
    fn a_word_is_meant_only_where_a_document_that_counts_has_it() {
        let mut spelt = Spelt::default();
        spelt.add(0, "archives");
        spelt.add(0, "archives_archive");
        spelt.add(1, "archive");
        let spellings = spelt.finish(Reading::DEFAULT);
        let finds = |word, counting: &[u32]| {
            let mut found = Vec::new();
            spellings.find(word, &mut found, |doc| counting.contains(&doc));
            !found.is_empty()
        };
        assert!(finds("archivess", &[0]) && !finds("archivess", &[1]), "nearer to the plural");
        assert!(finds("archve", &[0]) && finds("archve", &[1]) && !finds("archve", &[]));
    }
}
