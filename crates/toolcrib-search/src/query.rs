//! What to look for.

use std::fmt;
use std::str::FromStr;

use crate::analyze::Term;
use crate::spelling::is_spelt;
use crate::synonyms::synonyms;
use crate::table::Table;
use crate::tokenize::{Form, words};
use crate::tuning::Reading;
use crate::vectors::Vector;

/// Distinct terms a query is ranked by; required words come first, further terms are not looked at.
pub const MAX_QUERY_TERMS: usize = 64;
/// Sentences of a request that are ranked by themselves.
const MAX_SENTENCES: usize = 8;
/// A sentence of fewer words is no need of its own.
const MIN_SENTENCE_WORDS: usize = 2;

/// Words that say nothing about what is wanted. Verbs like `get` and particles like `not` or `up`
/// are left out on purpose: they tell tools apart.
pub const STOP_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "do", "does", "for", "from",
    "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or",
    "our", "please", "s", "should", "some", "t", "that", "the", "their", "them", "there", "these",
    "they", "this", "those", "to", "want", "was", "we", "were", "what", "when", "where", "which",
    "who", "will", "with", "would", "you", "your",
];

/// Words that begin another need, beside the ends of sentences.
const CONNECTIVES: &[&str] = &["then", "also", "afterwards"];

/// The words to look for, and those a hit must contain.
///
/// It has no syntax of its own: what a leading `+` or a quotation mark means is for the caller to
/// say. Stop words are left out if anything else remains. A request of several sentences is ranked
/// by the whole and by each sentence, so that a task finds all the tools it needs.
///
/// ```
/// use toolcrib_search::Query;
/// assert!(!Query::new("the").is_empty());
/// assert!(Query::new(" ?! ").is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// The whole text, then its sentences if there are several.
    pub(crate) needs: Vec<Need>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) ranking: Ranking,
    pub(crate) vector: Option<Vector>,
}

/// What documents are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ranking {
    /// The words they share with the query.
    Lexical,
    /// How near they are in meaning.
    Semantic,
    /// Both.
    #[default]
    Hybrid,
}

/// A text to rank by.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Need {
    pub(crate) text: String,
    pub(crate) words: Vec<Word>,
}

/// A term to rank by.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Word {
    /// Stemmed.
    pub(crate) text: String,
    pub(crate) term: Term,
    /// How often it occurs.
    pub(crate) count: f32,
    /// As it was written, if it may be a slip of the pen.
    pub(crate) written: Option<String>,
}

impl Word {
    pub(crate) fn synonyms(&self) -> &'static [Term] {
        synonyms(&self.text)
    }
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
        Query::read(Reading::DEFAULT, text, required)
    }

    /// The same, for documents that were read in another way than the usual.
    pub fn read(reading: Reading, text: &str, required: &[&str]) -> Self {
        let mut requirements = Vec::new();
        let mut whole = Need::default();
        for word in required {
            words(word, |form, word| {
                require(reading, &mut requirements, form, word);
                if form.is_term() {
                    whole.add(reading, word);
                }
            });
            whole.text.push_str(word);
            whole.text.push(' ');
        }
        whole.text.push_str(text);
        whole.add_all(reading, text);
        let mut sentences: Vec<Need> = sentences(text)
            .map(|text| Need::new(reading, text))
            .filter(|need| need.words.len() >= MIN_SENTENCE_WORDS)
            .take(MAX_SENTENCES)
            .collect();
        if sentences.len() < 2 {
            sentences.clear();
        }
        sentences.insert(0, whole);
        Query { needs: sentences, requirements, ..Query::default() }
    }

    /// The same query, ranked in another way.
    pub fn ranked_by(mut self, ranking: Ranking) -> Self {
        self.ranking = ranking;
        self
    }

    /// The same query with the vector that an embedder made of its text. It counts where every
    /// segment was supplied with vectors of the same embedder; elsewhere the embedded table does.
    pub fn with_vector(mut self, components: &[f32]) -> Self {
        self.vector = Some(Vector::new(components));
        self
    }

    /// Whether there is nothing to look for, so that nothing will be found.
    pub fn is_empty(&self) -> bool {
        self.needs.first().is_none_or(|whole| whole.words.is_empty())
    }
}

impl Need {
    fn new(reading: Reading, text: &str) -> Self {
        let mut need = Need { text: text.to_owned(), words: Vec::new() };
        need.add_all(reading, text);
        need
    }

    fn add_all(&mut self, reading: Reading, text: &str) {
        let mut stopped = Vec::new();
        words(text, |form, word| match form {
            Form::Word if reading.stops && STOP_WORDS.contains(&word) => {
                stopped.push(word.to_owned());
            }
            _ if form.is_term() => self.add(reading, word),
            _ => {}
        });
        if self.words.is_empty() {
            stopped.iter().for_each(|word| self.add(reading, word));
        }
    }

    fn add(&mut self, reading: Reading, word: &str) {
        let text = reading.stem(word);
        let term = Term::of(&text);
        if let Some(known) = self.words.iter_mut().find(|word| word.term == term) {
            known.count += 1.0;
        } else if self.words.len() < MAX_QUERY_TERMS {
            // A word of the language is meant as it stands.
            let is_doubtful = is_spelt(word) && !Table::embedded().is_some_and(|t| t.has(word));
            let written = is_doubtful.then(|| word.to_owned());
            self.words.push(Word { text: text.into_owned(), term, count: 1.0, written });
        }
    }

    /// The direction of what it is about, if the table knows any of its words.
    pub(crate) fn meaning(&self) -> Option<Vector> {
        let table = Table::embedded()?;
        let mut sum = vec![0.0; table.dimensions()];
        (table.add(&self.text, &mut sum) > 0).then(|| Vector::new(&sum))
    }
}

fn require(reading: Reading, requirements: &mut Vec<Requirement>, form: Form, word: &str) {
    let text = reading.stem(word);
    let term = Term::of(&text);
    match (form, requirements.last_mut()) {
        (Form::Part, Some(compound)) => compound.parts.push(term),
        (Form::Letters | Form::Run, _) => {}
        _ => {
            let text = text.into_owned();
            requirements.push(Requirement { text, whole: term, parts: Vec::new() });
        }
    }
}

/// A text taken apart where a sentence ends or another need begins.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let ends = |at: usize, c: char| {
        let after = &text[at + c.len_utf8()..];
        match c {
            '\n' | '。' | '！' | '？' | '；' => true,
            '.' | ';' | '?' | '!' => after.starts_with(char::is_whitespace),
            _ => false,
        }
    };
    let mut cuts = vec![0];
    cuts.extend(
        text.char_indices().filter(|&(at, c)| ends(at, c)).map(|(at, c)| at + c.len_utf8()),
    );
    let mut from = 0;
    for word in text.split_whitespace() {
        let at = from + text[from..].find(word).unwrap_or_default();
        from = at + word.len();
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        if CONNECTIVES.iter().any(|connective| bare.eq_ignore_ascii_case(connective)) {
            cuts.push(at);
        }
    }
    cuts.push(text.len());
    cuts.sort_unstable();
    let pieces: Vec<&str> = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]).collect();
    pieces.into_iter()
}

impl Requirement {
    /// Whether a document is admitted, given which terms it contains.
    pub(crate) fn is_met(&self, mut contains: impl FnMut(Term) -> bool) -> bool {
        contains(self.whole)
            || (!self.parts.is_empty() && self.parts.iter().all(|&part| contains(part)))
    }
}

impl fmt::Display for Ranking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lexical => "lexical",
            Self::Semantic => "static",
            Self::Hybrid => "hybrid",
        })
    }
}

impl FromStr for Ranking {
    type Err = UnknownRanking;

    fn from_str(text: &str) -> Result<Self, UnknownRanking> {
        let all = [Self::Lexical, Self::Semantic, Self::Hybrid];
        all.into_iter().find(|ranking| ranking.to_string() == text).ok_or(UnknownRanking)
    }
}

/// A ranking that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRanking;

impl fmt::Display for UnknownRanking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a ranking is lexical, static or hybrid")
    }
}

impl std::error::Error for UnknownRanking {}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(query: &Query) -> Vec<(&str, f32)> {
        query.needs[0].words.iter().map(|word| (&*word.text, word.count)).collect()
    }

    #[test]
    fn repeated_words_are_counted() {
        let query = Query::new("issue comments, comment issues, issue");
        assert_eq!(counted(&query), [("issu", 3.0), ("comment", 2.0)]);
    }

    #[test]
    fn stop_words_are_dropped_unless_nothing_else_remains() {
        assert_eq!(counted(&Query::new("how do I list the files")), [("list", 1.0), ("file", 1.0)]);
        assert_eq!(counted(&Query::new("to be")), [("to", 1.0), ("be", 1.0)]);
        assert_eq!(counted(&Query::with_required("of", &["the"])), [("the", 1.0)]);
    }

    #[test]
    fn a_reading_may_keep_stop_words_and_endings() {
        let reading = Reading { stemmed: f32::INFINITY, stops: false };
        let query = Query::read(reading, "list the files", &[]);
        assert_eq!(counted(&query), [("list", 1.0), ("the", 1.0), ("files", 1.0)]);
    }

    #[test]
    fn a_long_query_keeps_its_first_terms() {
        let text: String = (0..200).map(|i| format!("w{i} ")).collect();
        let query = Query::with_required(&text, &["must"]);
        let words = &query.needs[0].words;
        assert_eq!(words.len(), MAX_QUERY_TERMS);
        assert_eq!(words[0].text, "must");
        assert_eq!(words[63].text, "w62");
    }

    #[test]
    fn a_request_is_taken_apart_into_its_sentences() {
        let sentences = |text: &str| -> Vec<String> {
            Query::new(text).needs[1..].iter().map(|need| need.text.trim().to_owned()).collect()
        };
        assert!(sentences("create an issue in v1.2 of the repository").is_empty());
        assert!(sentences("Thanks. Create an issue in the repository.").is_empty());
        assert_eq!(
            sentences("Find the invoice of May. Send it to Ann, then archive the mail"),
            ["Find the invoice of May.", "Send it to Ann,", "then archive the mail"]
        );
        assert_eq!(sentences("查询天气预报。发送电子邮件。").len(), 2);
    }

    #[test]
    fn a_required_compound_is_met_in_one_piece_or_in_all_parts() {
        let query = Query::with_required("", &["GitHub"]);
        let met = |text: &str| {
            let tokens = crate::tokenize(text);
            let terms: Vec<Term> = tokens.iter().map(|token| Term::of(token)).collect();
            query.requirements.iter().all(|word| word.is_met(|term| terms.contains(&term)))
        };
        assert!(met("github") && met("GitHub") && met("git hub"));
        assert!(!met("git") && !met("hub"));
    }
}
