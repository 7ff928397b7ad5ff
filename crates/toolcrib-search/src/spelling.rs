//! Words that differ by a letter.
//!
//! Two words that differ by one letter, or by two neighbours that changed places, become equal when
//! a letter is left out of each. So every word is kept under all its spellings with a letter left
//! out, as hashes, and a word is looked up the same way.

use crate::analyze::{Term, stem};
use crate::tokenize::{Form, words};

/// Shorter words differ by a letter from too many others.
const MIN_LETTERS: usize = 5;
/// Longer ones are not names of anything.
const MAX_LETTERS: usize = 24;
/// The words of some texts under their spellings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spellings {
    /// In ascending order once finished.
    entries: Vec<(u32, Term)>,
}

impl Spellings {
    pub(crate) fn add(&mut self, text: &str) {
        words(text, |form, word| {
            if matches!(form, Form::Word | Form::Whole | Form::Part) && is_spelt(word) {
                let term = Term::of(&stem(word));
                spellings(word, |hash| self.entries.push((hash, term)));
            }
        });
    }

    pub(crate) fn finish(mut self) -> Self {
        self.entries.sort_unstable();
        self.entries.dedup();
        self.entries.shrink_to_fit();
        self
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries)
    }

    /// Adds the terms of words that differ from `word` by a letter; one may come several times.
    pub(crate) fn find(&self, word: &str, found: &mut Vec<Term>) {
        spellings(word, |hash| {
            let from = self.entries.partition_point(|(other, _)| *other < hash);
            let same = self.entries[from..].iter().take_while(|(other, _)| *other == hash);
            found.extend(same.map(|(_, term)| *term));
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

    #[test]
    fn words_that_differ_by_a_letter_are_found() {
        let mut spellings = Spellings::default();
        spellings.add("kubernetes_list_calendar");
        let spellings = spellings.finish();
        let find = |word| {
            let mut found = Vec::new();
            spellings.find(word, &mut found);
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
}
