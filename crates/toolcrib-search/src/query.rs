//! What to look for.

use crate::analyze::{Term, stem};
use crate::tokenize::{Form, words};

/// Distinct terms a query is ranked by; required words come first, further terms are not looked at.
pub const MAX_QUERY_TERMS: usize = 64;

/// Words that say nothing about what is wanted. Verbs like `get` and particles like `not` or `up`
/// are left out on purpose: they tell tools apart.
const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "do", "does", "for", "from",
    "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or",
    "our", "please", "s", "should", "some", "t", "that", "the", "their", "them", "there", "these",
    "they", "this", "those", "to", "want", "was", "we", "were", "what", "when", "where", "which",
    "who", "will", "with", "would", "you", "your",
];

/// The words to look for, and those a hit must contain.
///
/// It has no syntax of its own: what a leading `+` or a quotation mark means is for the caller to
/// say. A word given twice counts twice. Stop words are left out if anything else remains.
///
/// ```
/// use toolcrib_search::Query;
/// assert!(!Query::new("the").is_empty());
/// assert!(Query::new(" ?! ").is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    words: Vec<Word>,
    requirements: Vec<Requirement>,
}

/// A term to rank by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) term: Term,
    pub(crate) weight: f32,
}

/// A word that must occur. A camelCase word is there in one piece or in all its parts, as `GitHub`
/// must find what was written `github`, and `createIssue` what was written `create_issue`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Requirement {
    pub(crate) text: String,
    pub(crate) whole: Term,
    pub(crate) parts: Vec<Term>,
}

impl Query {
    /// A query for any of the words of a text.
    pub fn new(text: &str) -> Self {
        Query::with_required(text, &[])
    }

    /// A query for any of the words of a text, among documents that contain every required word in
    /// some field. Required words are ranked by as well.
    ///
    /// A required word may turn into several (`create_issue`), and then all are required. One that
    /// has no letter or digit requires nothing.
    pub fn with_required(text: &str, required: &[&str]) -> Self {
        let mut query = Query::default();
        for word in required {
            words(word, |form, word| {
                query.require(form, word);
                query.add(word);
            });
        }
        let mut stopped = Vec::new();
        words(text, |form, word| match form {
            Form::Word if STOP_WORDS.contains(&word) => stopped.push(word.to_owned()),
            _ => query.add(word),
        });
        if query.words.is_empty() {
            stopped.iter().for_each(|word| query.add(word));
        }
        query
    }

    /// Whether there is nothing to look for, so that nothing will be found.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub(crate) fn words(&self) -> &[Word] {
        &self.words
    }

    pub(crate) fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    fn add(&mut self, word: &str) {
        let text = stem(word);
        let term = Term::of(&text);
        if let Some(known) = self.words.iter_mut().find(|word| word.term == term) {
            known.weight += 1.0;
        } else if self.words.len() < MAX_QUERY_TERMS {
            self.words.push(Word { text: text.into_owned(), term, weight: 1.0 });
        }
    }

    fn require(&mut self, form: Form, word: &str) {
        let text = stem(word);
        let term = Term::of(&text);
        match (form, self.requirements.last_mut()) {
            (Form::Part, Some(compound)) => compound.parts.push(term),
            (Form::Letters, _) => {}
            _ => {
                let text = text.into_owned();
                self.requirements.push(Requirement { text, whole: term, parts: Vec::new() });
            }
        }
    }
}

impl Requirement {
    /// Whether a document is admitted, given which terms it contains.
    pub(crate) fn is_met(&self, mut contains: impl FnMut(Term) -> bool) -> bool {
        contains(self.whole)
            || (!self.parts.is_empty() && self.parts.iter().all(|&part| contains(part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighted(query: &Query) -> Vec<(&str, f32)> {
        query.words.iter().map(|word| (&*word.text, word.weight)).collect()
    }

    #[test]
    fn repeated_words_become_one_of_more_weight() {
        let query = Query::new("issue comments, comment issues, issue");
        assert_eq!(weighted(&query), [("issu", 3.0), ("comment", 2.0)]);
    }

    #[test]
    fn stop_words_are_dropped_unless_nothing_else_remains() {
        assert_eq!(
            weighted(&Query::new("how do I list the files")),
            [("list", 1.0), ("file", 1.0)]
        );
        assert_eq!(weighted(&Query::new("to be")), [("to", 1.0), ("be", 1.0)]);
        assert_eq!(weighted(&Query::with_required("of", &["the"])), [("the", 1.0)]);
    }

    #[test]
    fn a_long_query_keeps_its_first_terms() {
        let text: String = (0..200).map(|i| format!("w{i} ")).collect();
        let query = Query::with_required(&text, &["must"]);
        assert_eq!(query.words.len(), MAX_QUERY_TERMS);
        assert_eq!(query.words[0].text, "must");
        assert_eq!(query.words[63].text, "w62");
    }

    #[test]
    fn a_required_compound_is_met_in_one_piece_or_in_all_parts() {
        let query = Query::with_required("", &["GitHub"]);
        let met = |text: &str| {
            let tokens = crate::tokenize(text);
            let terms: Vec<Term> = tokens.iter().map(|token| Term::of(token)).collect();
            query.requirements().iter().all(|word| word.is_met(|term| terms.contains(&term)))
        };
        assert!(met("github") && met("GitHub") && met("git hub"));
        assert!(!met("git") && !met("hub"));
    }
}
