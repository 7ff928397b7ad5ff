//! An immutable index of one set of documents.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::analyze::{Analyzer, Term};
use crate::fields::{Fields, MAX_FIELDS, Occurrences};
use crate::spelling::{Spellings, Spelt};
use crate::table::Table;
use crate::terms::Terms;
use crate::tuning::Tuning;
use crate::vectors::Vectors;

/// A text to be found, by its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document<'a> {
    /// What the document is known by. Documents of one score are ordered by it, byte by byte.
    pub key: Arc<str>,
    /// One text per field, in the order of [`Fields`]. A missing one counts as empty; any past the
    /// last field are not looked at.
    pub fields: Vec<Cow<'a, str>>,
}

impl<'a> Document<'a> {
    /// A document from its key and the texts of its fields.
    pub fn new<T: Into<Cow<'a, str>>>(
        key: impl Into<Arc<str>>,
        fields: impl IntoIterator<Item = T>,
    ) -> Self {
        Document { key: key.into(), fields: fields.into_iter().map(Into::into).collect() }
    }

    /// Every distinct term of the document in ascending order, with its occurrences by field.
    pub(crate) fn occurrences(
        &self,
        analyzer: &mut Analyzer,
        fields: &Fields,
    ) -> Vec<(Term, [Occurrences; MAX_FIELDS])> {
        let mut lengths = [Occurrences::default(); MAX_FIELDS];
        let mut found = Vec::new();
        for (field, text) in self.fields.iter().take(fields.list().len()).enumerate() {
            let terms = analyzer.terms(text);
            lengths[field].length = terms.len() as u32;
            found.extend(terms.into_iter().map(|term| (term, field)));
        }
        found.sort_unstable();
        for same in found.chunk_by(|a, b| a == b) {
            lengths[same[0].1].distinct += 1;
        }
        found
            .chunk_by(|(a, _), (b, _)| a == b)
            .map(|same| {
                let mut occurrences = lengths;
                same.iter().for_each(|&(_, field)| occurrences[field].count += 1);
                (same[0].0, occurrences)
            })
            .collect()
    }
}

impl Document<'_> {
    /// The direction of what it is about; zeros if the table knows none of its words.
    pub(crate) fn meaning(&self, table: &Table, fields: &Fields) -> Vec<f32> {
        let mut meaning = vec![0.0; table.dimensions()];
        let mut sum = meaning.clone();
        for (field, text) in fields.list().iter().zip(&self.fields) {
            if field.meaning == 0.0 {
                continue;
            }
            sum.fill(0.0);
            let count = table.add(text, &mut sum);
            let weight = field.meaning / count.max(1) as f32;
            meaning.iter_mut().zip(&sum).for_each(|(all, part)| *all += weight * part);
        }
        meaning
    }
}

/// A document that contains a term, and what that is worth there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posting {
    pub(crate) doc: u32,
    /// In proportion to the term's part in the query.
    pub(crate) impact: f32,
    /// Whatever its part.
    pub(crate) share: f32,
}

/// An immutable index of one set of documents.
///
/// It holds keys, terms, postings and vectors, and none of the text: twelve bytes for each distinct
/// term of each document, about thirteen for each distinct term of the segment.
pub struct Segment {
    keys: Box<[Arc<str>]>,
    /// Where the postings of each begin; they end where those of the next begin.
    terms: Terms<u32>,
    postings: Box<[Posting]>,
    spellings: Spellings,
    /// What the documents are about, by the embedded table.
    vectors: Vectors,
    /// Vectors of another embedder, brought later.
    supplied: OnceLock<Vectors>,
}

impl Segment {
    /// Indexes the documents; they are numbered in the order in which they come.
    ///
    /// # Panics
    /// If the documents have more than `u32::MAX` distinct terms between them.
    pub fn build<'a>(
        analyzer: &mut Analyzer,
        tuning: &Tuning,
        documents: impl IntoIterator<Item = Document<'a>>,
    ) -> Self {
        let fields = &tuning.fields;
        let table = Table::embedded();
        let (mut keys, mut all, mut meanings) = (Vec::new(), Vec::new(), Vec::new());
        let mut spelt = Spelt::default();
        for document in documents {
            let doc = keys.len() as u32;
            all.extend(document.occurrences(analyzer, fields).iter().map(|(term, occurrences)| {
                let (impact, share) = tuning.worth(occurrences);
                (*term, Posting { doc, impact, share })
            }));
            for (field, text) in fields.list().iter().zip(&document.fields) {
                if field.told > 0.0 {
                    spelt.add(doc, text);
                }
            }
            meanings.extend(table.map(|table| document.meaning(table, fields)));
            keys.push(document.key);
        }
        let vectors = Vectors::new(table.map_or(0, Table::dimensions), meanings);
        assert!(
            all.len().max(keys.len()) < u32::MAX as usize,
            "too many documents for one segment"
        );
        all.sort_unstable_by_key(|&(term, posting)| (term, posting.doc));

        let mut next = 0;
        let starts = all.chunk_by(|(a, _), (b, _)| a == b).map(|same| {
            let start = next;
            next += same.len() as u32;
            (same[0].0, start)
        });
        Segment {
            keys: keys.into(),
            terms: Terms::new(starts, all.len() as u32),
            postings: all.iter().map(|&(_, posting)| posting).collect(),
            spellings: spelt.finish(tuning.reading),
            vectors,
            supplied: OnceLock::new(),
        }
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys of the documents, by number.
    pub fn keys(&self) -> &[Arc<str>] {
        &self.keys
    }

    /// Takes the vectors that an embedder made of the documents, once: a [`Query`](crate::Query)
    /// with a vector of the same embedder is then ranked by them. False if they are not as many as
    /// there are documents, or if the segment has some already.
    pub fn supply(&self, vectors: Vectors) -> bool {
        vectors.len() == self.len() && self.supplied.set(vectors).is_ok()
    }

    /// The vectors that were supplied.
    pub fn supplied(&self) -> Option<&Vectors> {
        self.supplied.get()
    }

    /// The bytes the index takes, without the text of the keys, which it shares with the caller.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.keys)
            + self.terms.heap_bytes()
            + size_of_val(&*self.postings)
            + self.spellings.heap_bytes()
            + self.vectors.heap_bytes()
            + self.supplied.get().map_or(0, Vectors::heap_bytes)
    }

    pub(crate) fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    pub(crate) fn spellings(&self) -> &Spellings {
        &self.spellings
    }

    /// The documents that contain a term, by number.
    pub(crate) fn postings(&self, term: Term) -> &[Posting] {
        self.terms.find(term).map_or(&[], |place| self.postings_at(place))
    }

    /// The postings from one place to another.
    pub(crate) fn postings_at(&self, (start, end): (u32, u32)) -> &[Posting] {
        &self.postings[start as usize..end as usize]
    }

    /// The number of postings of all terms together.
    pub(crate) fn postings_len(&self) -> usize {
        self.postings.len()
    }

    /// Every term in ascending order, and where its postings begin and end.
    pub(crate) fn terms(&self) -> impl Iterator<Item = (Term, u32, u32)> {
        self.terms.iter()
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("documents", &self.keys.len())
            .field("terms", &self.terms.len())
            .field("postings", &self.postings.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Field;

    const TUNING: Tuning = Tuning::new(Fields::new(&[Field::PLAIN]));

    #[test]
    fn every_term_is_found_again_and_no_other() {
        for count in [0, 1, 3, 4, 5, 1_000] {
            let mut analyzer = Analyzer::new();
            let documents =
                (0..count).map(|i| Document::new(i.to_string(), [format!("w{i} shared")]));
            let segment = Segment::build(&mut analyzer, &TUNING, documents);
            let docs = |word: &str| -> Vec<u32> {
                segment.postings(Term::of(word)).iter().map(|posting| posting.doc).collect()
            };
            for i in 0..count {
                assert_eq!(docs(&format!("w{i}")), [i]);
                assert!(docs(&format!("absent{i}")).is_empty());
            }
            assert_eq!(docs("share"), (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_document_with_missing_or_surplus_fields_is_indexed() {
        let documents =
            [Document::new::<&str>("none", []), Document::new("two", ["seen", "unseen"])];
        let segment = Segment::build(&mut Analyzer::new(), &TUNING, documents);
        assert_eq!(segment.len(), 2);
        assert_eq!(segment.postings(Term::of("seen")).len(), 1);
        assert!(segment.postings(Term::of("unseen")).is_empty());
    }
}
