//! Segments searched as one.

use std::fmt;
use std::sync::Arc;

use crate::analyze::{Analyzer, Term};
use crate::explain::Explanation;
use crate::fields::Fields;
use crate::query::Query;
use crate::scores::{Hits, Scores};
use crate::segment::{Document, Posting, Segment};

/// Segments searched as one.
///
/// Making one costs in proportion to the number of segments, so a change in one set of documents
/// means building that segment and making a new index from it and the other segments. How rare a
/// term is, the only thing that depends on all of them, is counted when a query asks.
///
/// A document's number is its number in its segment plus the lengths of the segments before.
#[derive(Clone, Default)]
pub struct Index {
    segments: Vec<Arc<Segment>>,
    /// The number of the first document of each segment.
    bases: Vec<usize>,
    len: usize,
}

impl Index {
    /// An index over these segments, in this order.
    pub fn new(segments: Vec<Arc<Segment>>) -> Self {
        let mut len = 0;
        let bases = segments
            .iter()
            .map(|segment| {
                let base = len;
                len += segment.len();
                base
            })
            .collect();
        Index { segments, bases, len }
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The segments, in the order of their documents' numbers.
    pub fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// The segment a document is in, and its number there.
    ///
    /// # Panics
    /// If there is no document of that number.
    pub fn locate(&self, doc: usize) -> (usize, usize) {
        assert!(doc < self.len, "document {doc} of {}", self.len);
        let segment = self.bases.partition_point(|&base| base <= doc) - 1;
        (segment, doc - self.bases[segment])
    }

    /// The key of a document.
    ///
    /// # Panics
    /// If there is no document of that number.
    pub fn key(&self, doc: usize) -> &Arc<str> {
        let (segment, doc) = self.locate(doc);
        &self.segments[segment].keys()[doc]
    }

    /// The best `limit` documents that match the query among those admitted, which are asked about
    /// by number.
    pub fn search(&self, query: &Query, limit: usize, admit: impl Fn(usize) -> bool) -> Hits {
        self.lexical(query).top(self, limit, admit)
    }

    /// BM25F over the words of the query.
    ///
    /// Each document's score is summed in the order of the query's words, so that it comes out the
    /// same to the last bit wherever the document stands.
    pub fn lexical(&self, query: &Query) -> Scores {
        let words = query.words();
        let mut scores = vec![0.0_f32; self.len];
        if words.is_empty() {
            return Scores(scores);
        }
        // All words are looked up in a segment while it is at hand, then the next segment.
        let mut found = Vec::with_capacity(self.segments.len() * words.len());
        for segment in &self.segments {
            found.extend(words.iter().map(|word| segment.postings(word.term)));
        }
        let factors: Vec<f32> = words
            .iter()
            .enumerate()
            .map(|(at, word)| {
                let postings = found.iter().skip(at).step_by(words.len());
                word.weight * self.idf(postings.map(|postings| postings.len()).sum())
            })
            .collect();
        for (found, &base) in found.chunks_exact(words.len()).zip(&self.bases) {
            let scores = &mut scores[base..];
            for (postings, factor) in found.iter().zip(&factors) {
                for posting in *postings {
                    scores[posting.doc as usize] += factor * posting.impact;
                }
            }
        }
        for requirement in query.requirements() {
            let mut met = self.containing(&[requirement.whole]);
            if !requirement.parts.is_empty() {
                let in_parts = self.containing(&requirement.parts);
                met.iter_mut().zip(in_parts).for_each(|(met, in_parts)| *met |= in_parts);
            }
            for (score, _) in scores.iter_mut().zip(met).filter(|(_, met)| !met) {
                *score = 0.0;
            }
        }
        Scores(scores)
    }

    /// Takes the score of a document apart. It is computed again from the document's own text and
    /// agrees with the search if the segment was built from that text with these fields.
    pub fn explain(
        &self,
        query: &Query,
        document: &Document<'_>,
        fields: &Fields,
        analyzer: &mut Analyzer,
    ) -> Explanation {
        Explanation::new(self, query, document, fields, analyzer)
    }

    /// How many documents contain a term.
    pub(crate) fn frequency(&self, term: Term) -> usize {
        self.postings(term).map(|(_, postings)| postings.len()).sum()
    }

    /// What a term is worth that so many documents contain; always above zero.
    pub(crate) fn idf(&self, frequency: usize) -> f32 {
        let (all, frequency) = (self.len as f64, frequency as f64);
        // In double precision and then rounded, as logarithms may differ in the last bit between
        // machines and orders of equal scores must not.
        (1.0 + (all - frequency + 0.5) / (frequency + 0.5)).ln() as f32
    }

    /// For each segment, the number of its first document and the postings, if any.
    fn postings(&self, term: Term) -> impl Iterator<Item = (usize, &[Posting])> {
        self.segments
            .iter()
            .zip(&self.bases)
            .map(move |(segment, &base)| (base, segment.postings(term)))
    }

    /// For each document, whether it contains all of the terms.
    fn containing(&self, terms: &[Term]) -> Vec<bool> {
        let mut all = vec![true; self.len];
        for &term in terms {
            let mut has = vec![false; self.len];
            for (base, postings) in self.postings(term) {
                postings.iter().for_each(|posting| has[base + posting.doc as usize] = true);
            }
            all.iter_mut().zip(has).for_each(|(all, has)| *all &= has);
        }
        all
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("segments", &self.segments.len())
            .field("documents", &self.len)
            .finish()
    }
}
