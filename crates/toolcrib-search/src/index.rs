//! Segments searched as one.

use std::fmt;
use std::sync::Arc;

use crate::analyze::{Analyzer, Term};
use crate::explain::Explanation;
use crate::query::{Need, Query, Ranking};
use crate::scores::{Hits, Scores};
use crate::segment::{Document, Posting, Segment};
use crate::synonyms;
use crate::tuning::Tuning;
use crate::vectors::Vector;

/// Words tried in place of one that no document has.
const MAX_MEANT: usize = 4;

/// Segments searched as one.
///
/// Making one costs in proportion to the number of segments, so a change in one set of documents
/// means building that segment and making a new index from it and the other segments. How rare a
/// term is, the only thing that depends on all of them, is counted when a query asks.
///
/// A document's number is its number in its segment plus the lengths of the segments before.
#[derive(Clone)]
pub struct Index {
    tuning: Tuning,
    segments: Vec<Arc<Segment>>,
    /// The number of the first document of each segment.
    bases: Vec<usize>,
    len: usize,
}

/// A term to look for, and what it is worth.
pub(crate) struct Line {
    /// The word of the need it stands for.
    pub(crate) word: usize,
    pub(crate) term: Term,
    /// Where its postings are found.
    column: usize,
    /// The word's part in the query; for one that stands in for it, less.
    pub(crate) part: f32,
    /// How much it is worth beside the word itself.
    pub(crate) strength: f32,
    /// How many documents contain it.
    pub(crate) documents: usize,
}

/// The postings of all the terms that a query may ask for.
#[derive(Default)]
pub(crate) struct Found<'a> {
    /// A term and how many documents contain it.
    columns: Vec<(Term, usize)>,
    /// Segment by segment, as many as there are columns.
    postings: Vec<&'a [Posting]>,
    /// Words of the query with the terms that stand for them, and how well.
    others: Vec<(Term, Vec<(Term, f32)>)>,
}

impl Found<'_> {
    fn column(&self, term: Term) -> Option<usize> {
        self.columns.binary_search_by_key(&term, |(known, _)| *known).ok()
    }

    fn others(&self, word: Term) -> &[(Term, f32)] {
        self.others.iter().find(|(known, _)| *known == word).map_or(&[], |(_, others)| others)
    }
}

impl Line {
    pub(crate) fn worth(&self, impact: f32, share: f32) -> f32 {
        self.part * impact + self.strength * share
    }
}

/// What counts for a document under a word so far, where several terms may stand for the word.
#[derive(Clone, Copy, Default)]
struct Held {
    /// One more than the word's position, so that zero is none.
    word: u32,
    worth: f32,
}

impl Index {
    /// An index over these segments, in this order, which were built with the same tuning.
    pub fn new(tuning: &Tuning, segments: Vec<Arc<Segment>>) -> Self {
        let mut len = 0;
        let bases = segments
            .iter()
            .map(|segment| {
                let base = len;
                len += segment.len();
                base
            })
            .collect();
        Index { tuning: *tuning, segments, bases, len }
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
        self.score(query).top(self, limit, admit)
    }

    /// Scores every document.
    ///
    /// Each document's score is summed in the order of the query's words, so that it comes out the
    /// same to the last bit wherever the document stands.
    pub fn score(&self, query: &Query) -> Scores {
        let Some((whole, sentences)) = query.needs.split_first() else {
            return Scores(vec![0.0; self.len]);
        };
        let found = match query.ranking {
            Ranking::Semantic => Found::default(),
            Ranking::Lexical | Ranking::Hybrid => self.find(whole),
        };
        let mut scores = self.score_need(query, whole, &found);
        if !sentences.is_empty() {
            let mut best = vec![0.0_f32; self.len];
            for sentence in sentences {
                let scores = self.score_need(query, sentence, &found);
                best.iter_mut().zip(scores).for_each(|(best, score)| *best = best.max(score));
            }
            scores.iter_mut().zip(best).for_each(|(score, best)| {
                *score = self.join(*score, best);
            });
        }
        for requirement in &query.requirements {
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
    /// agrees with the search if the segment was built from that text.
    pub fn explain(
        &self,
        query: &Query,
        document: &Document<'_>,
        analyzer: &mut Analyzer,
    ) -> Explanation {
        Explanation::new(self, query, document, analyzer)
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The score of a request, from that of the whole and that of the sentence that fits best.
    pub(crate) fn join(&self, whole: f32, sentence: f32) -> f32 {
        whole + self.tuning.sentences * (sentence - whole)
    }

    fn score_need(&self, query: &Query, need: &Need, found: &Found<'_>) -> Vec<f32> {
        let mut scores = match query.ranking {
            Ranking::Semantic => vec![0.0; self.len],
            Ranking::Lexical | Ranking::Hybrid => self.lexical(need, found),
        };
        if query.ranking != Ranking::Lexical {
            self.add_meaning(query, need, &mut scores);
        }
        scores
    }

    /// What the words of a need are worth in each document.
    fn lexical(&self, need: &Need, found: &Found<'_>) -> Vec<f32> {
        let mut scores = vec![0.0_f32; self.len];
        let lines = self.lines(need, found);
        let is_alone = |line: &Line| lines.iter().filter(|l| l.word == line.word).count() == 1;
        let alone: Vec<bool> = lines.iter().map(is_alone).collect();
        let mut held = vec![Held::default(); if alone.contains(&false) { self.len } else { 0 }];
        let rows = found.postings.chunks(found.columns.len().max(1)).zip(&self.bases);
        for (row, &base) in rows {
            for (line, is_alone) in lines.iter().zip(&alone) {
                if *is_alone {
                    for posting in row[line.column] {
                        let worth = line.worth(posting.impact, posting.share);
                        scores[base + posting.doc as usize] += worth;
                    }
                    continue;
                }
                // Of several terms for one word the best counts.
                for posting in row[line.column] {
                    let doc = base + posting.doc as usize;
                    let worth = line.worth(posting.impact, posting.share);
                    let word = line.word as u32 + 1;
                    let before = if held[doc].word == word { held[doc].worth } else { 0.0 };
                    if worth > before {
                        scores[doc] += worth - before;
                        held[doc] = Held { word, worth };
                    }
                }
            }
        }
        scores
    }

    /// Looks up the words of a query, what else stands for them, and how rare all of it is.
    pub(crate) fn find(&self, whole: &Need) -> Found<'_> {
        let mut others = Vec::new();
        let mut terms: Vec<Term> = Vec::with_capacity(4 * whole.words.len());
        for word in &whole.words {
            let synonyms = word.synonyms().iter().map(|&term| (term, self.tuning.synonym));
            let mut other: Vec<(Term, f32)> = synonyms.collect();
            if let Some(written) = &word.written
                && self.frequency(word.term) == 0
            {
                let mut meant = Vec::new();
                self.segments.iter().for_each(|s| s.spellings().find(written, &mut meant));
                // From all segments before any is left out, so that their order does not matter.
                meant.sort_unstable();
                meant.dedup();
                meant.truncate(MAX_MEANT);
                other.extend(meant.into_iter().map(|term| (term, self.tuning.misspelling)));
            }
            terms.push(word.term);
            if !other.is_empty() {
                terms.extend(other.iter().map(|(term, _)| term));
                others.push((word.term, other));
            }
        }
        terms.sort_unstable();
        terms.dedup();
        // All terms are looked up in a segment while it is at hand, then the next segment.
        let mut postings = Vec::with_capacity(self.segments.len() * terms.len());
        let common: Vec<Option<usize>> =
            terms.iter().map(|term| synonyms::terms().binary_search(term).ok()).collect();
        let mut columns: Vec<(Term, usize)> = terms.into_iter().map(|term| (term, 0)).collect();
        for segment in &self.segments {
            for ((term, documents), common) in columns.iter_mut().zip(&common) {
                let found = match common {
                    Some(number) => segment.common_postings(*number),
                    None => segment.postings(*term),
                };
                *documents += found.len();
                postings.push(found);
            }
            // All of the segment's postings are asked of memory at once, long before they are read.
            let row = &postings[postings.len() - columns.len()..];
            std::hint::black_box(row.iter().fold(0, |all, found| {
                all ^ found.first().map_or(0, |posting: &Posting| posting.doc)
            }));
        }
        Found { columns, postings, others }
    }

    /// What to look for and what each is worth, by the words of a need. Terms that no document
    /// has are left out, except a word itself.
    pub(crate) fn lines(&self, need: &Need, found: &Found<'_>) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::with_capacity(2 * need.words.len());
        for (at, word) in need.words.iter().enumerate() {
            let mut add = |term, strength, least: usize| {
                if let Some(column) = found.column(term)
                    && found.columns[column].1 >= least
                {
                    let documents = found.columns[column].1;
                    lines.push(Line { word: at, term, column, part: 0.0, strength, documents });
                }
            };
            add(word.term, 1.0, 0);
            found.others(word.term).iter().for_each(|&(term, strength)| add(term, strength, 1));
        }
        self.weigh(need, &mut lines);
        lines
    }

    /// Gives each term its part in the query, once it is known how rare all of them are.
    fn weigh(&self, need: &Need, lines: &mut [Line]) {
        let mut total = 0.0;
        for lines in lines.chunk_by_mut(|a, b| a.word == b.word) {
            let Some((own, others)) = lines.split_first_mut() else { continue };
            let count = need.words[own.word].count.powf(self.tuning.repetition);
            let (is_known, idf) = (own.documents > 0, self.idf(own.documents));
            let mut best = if is_known { idf } else { self.tuning.unknown * idf };
            own.part = count * best;
            // The words that stand for one are as rare as all of them together: of `add`, `new`
            // and `create`, the rarest is not the best reading of `make`.
            let together =
                own.documents + others.iter().map(|other| other.documents).sum::<usize>();
            let rarity = self.idf(together.min(self.len));
            for other in others {
                let worth = other.strength * rarity;
                other.part = count * worth;
                best = best.max(worth);
            }
            total += count * best;
        }
        for line in lines {
            line.part /= total;
        }
    }

    /// Adds what nearness in meaning is worth: by the vectors supplied, if the query and every
    /// segment have them, and otherwise by those of the embedded table.
    fn add_meaning(&self, query: &Query, need: &Need, scores: &mut [f32]) {
        let own;
        let (vector, is_supplied) = match self.supplied(query) {
            Some(vector) => (vector, true),
            None => {
                let Some(meaning) = need.meaning() else { return };
                own = meaning;
                (&own, false)
            }
        };
        let worth = self.tuning.worth_of_meaning(query.ranking, need.words.len());
        let mut cosines = Vec::new();
        for (segment, &base) in self.segments.iter().zip(&self.bases) {
            let Some(vectors) =
                (if is_supplied { segment.supplied() } else { Some(segment.vectors()) })
            else {
                continue;
            };
            cosines.resize(segment.len(), 0.0);
            vectors.cosines(vector, &mut cosines);
            let scores = &mut scores[base..base + segment.len()];
            for (score, &cosine) in scores.iter_mut().zip(&cosines) {
                *score += worth(cosine, *score);
            }
        }
    }

    /// The query's vector, if there is one of the same embedder for every document.
    pub(crate) fn supplied<'q>(&self, query: &'q Query) -> Option<&'q Vector> {
        query.vector.as_ref().filter(|vector| {
            let fits = |segment: &Arc<Segment>| {
                segment.is_empty()
                    || segment.supplied().is_some_and(|v| v.dimensions() == vector.dimensions())
            };
            self.segments.iter().all(fits)
        })
    }

    /// How many documents contain a term.
    fn frequency(&self, term: Term) -> usize {
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
