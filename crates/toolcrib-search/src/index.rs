//! Segments searched as one.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::analyze::{Analyzer, Term};
use crate::bundle::{self, Bundle};
use crate::explain::Explanation;
use crate::query::{Need, Query, Ranking};
use crate::scores::{Hits, Scores};
use crate::segment::{Document, Posting, Segment};
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
/// A word is looked up in every segment. Where there are many small ones, [`bundled`](Self::bundled)
/// lets an index look it up in several at once, and [`with_segments`](Self::with_segments) keeps
/// that for those segments that stay. Neither changes what is found.
///
/// A document's number is its number in its segment plus the lengths of the segments before.
#[derive(Clone)]
pub struct Index {
    tuning: Tuning,
    segments: Vec<Arc<Segment>>,
    /// The number of the first document of each segment.
    bases: Vec<usize>,
    len: usize,
    bundles: Vec<Bundled>,
    /// The segments that are part of no bundle.
    loose: Vec<usize>,
    /// What is left if some documents count for nothing.
    left: Option<Left>,
}

/// Which documents count, where not all do.
#[derive(Clone)]
struct Left {
    is_in: Arc<[bool]>,
    count: usize,
}

/// A bundle, and where each of its segments stands in the index, if it does.
#[derive(Clone)]
struct Bundled {
    bundle: Arc<Bundle>,
    segments: Vec<Option<usize>>,
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
    /// In ascending order of terms.
    columns: Vec<Column>,
    /// By column.
    lists: Vec<List<'a>>,
    /// Words of the query with the terms that stand for them, and how well.
    others: Vec<(Term, Vec<(Term, f32)>)>,
}

/// A term and where it is found.
struct Column {
    term: Term,
    /// How many documents contain it.
    documents: usize,
    lists: Range<usize>,
}

/// The postings of a term in a segment, and the number of that segment's first document.
struct List<'a> {
    base: usize,
    postings: &'a [Posting],
}

impl Found<'_> {
    fn column(&self, term: Term) -> Option<usize> {
        self.columns.binary_search_by_key(&term, |column| column.term).ok()
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
        let loose = (0..segments.len()).collect();
        let bundles = Vec::new();
        Index { tuning: *tuning, segments, bases, len, bundles, loose, left: None }
    }

    /// An index over all of other segments, which uses the bundles of this one as far as its
    /// segments are among them.
    pub fn with_segments(&self, segments: Vec<Arc<Segment>>) -> Self {
        let mut index = Index::new(&self.tuning, segments);
        if self.bundles.is_empty() {
            return index;
        }
        let mut unclaimed = index.segments.iter().map(Arc::as_ptr).zip(0..).collect();
        let mut is_loose = vec![true; index.segments.len()];
        for Bundled { bundle, .. } in &self.bundles {
            let segments = bundle.claim(&mut unclaimed);
            let left = || segments.iter().flatten();
            if left().count() > bundle::SEGMENTS / 2 {
                left().for_each(|&at| is_loose[at] = false);
                index.bundles.push(Bundled { bundle: bundle.clone(), segments });
            }
        }
        index.loose.retain(|&at| is_loose[at]);
        index
    }

    /// The same index, made faster to search if many of its segments are part of no bundle yet:
    /// each 32 of them become one. That takes time and memory in proportion to what is in them.
    pub fn bundled(mut self) -> Self {
        let (small, mut loose): (Vec<usize>, Vec<usize>) =
            self.loose.iter().partition(|&&at| Bundle::takes(&self.segments[at]));
        let (chunks, rest) = small.as_chunks::<{ bundle::SEGMENTS }>();
        for chunk in chunks {
            let bundle = Arc::new(Bundle::new(&chunk.map(|at| &self.segments[at])));
            self.bundles.push(Bundled { bundle, segments: chunk.map(Some).to_vec() });
        }
        loose.extend(rest);
        self.loose = loose;
        self
    }

    /// The same index, where documents for which this says false are as good as not there: they
    /// are not found, and whatever is found scores to the bit what it would without them. They
    /// keep their numbers.
    ///
    /// # Panics
    /// If it does not say so of each document.
    pub fn only(mut self, is_in: Vec<bool>) -> Self {
        assert_eq!(is_in.len(), self.len, "one for each document");
        let count = is_in.iter().filter(|is_in| **is_in).count();
        self.left = (count < self.len).then(|| Left { is_in: is_in.into(), count });
        self
    }

    /// The bytes that its segments and bundles take.
    pub fn heap_bytes(&self) -> usize {
        let segments = self.segments.iter().map(|segment| segment.heap_bytes());
        let bundles = self.bundles.iter().map(|bundled| bundled.bundle.heap_bytes());
        segments.chain(bundles).sum()
    }

    /// The number of documents, those that don't count included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The number of documents that count.
    pub(crate) fn count(&self) -> usize {
        self.left.as_ref().map_or(self.len, |left| left.count)
    }

    /// Whether a document counts.
    pub(crate) fn counts(&self, doc: usize) -> bool {
        self.left.as_ref().is_none_or(|left| left.is_in[doc])
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

    /// The first document of this key that counts: its segment, and its number there.
    pub(crate) fn find_key(&self, key: &str) -> Option<(&Segment, usize)> {
        self.segments.iter().zip(&self.bases).find_map(|(segment, base)| {
            let is_it = |at: &usize| *segment.keys()[*at] == *key && self.counts(base + at);
            Some((&**segment, (0..segment.len()).find(is_it)?))
        })
    }

    /// The best `limit` documents that match the query.
    pub fn search(&self, query: &Query, limit: usize) -> Hits {
        self.score(query).top(self, limit)
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
        if let Some(left) = &self.left {
            for (score, _) in scores.iter_mut().zip(&*left.is_in).filter(|(_, is_in)| !**is_in) {
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

    /// The numbers it ranks with.
    pub fn tuning(&self) -> &Tuning {
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
        for (line, is_alone) in lines.iter().zip(&alone) {
            let lists = &found.lists[found.columns[line.column].lists.clone()];
            for &List { base, postings } in lists {
                if *is_alone {
                    for posting in postings {
                        let worth = line.worth(posting.impact, posting.share);
                        scores[base + posting.doc as usize] += worth;
                    }
                    continue;
                }
                // Of several terms for one word the best counts.
                for posting in postings {
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
                for (segment, base) in self.segments.iter().zip(&self.bases) {
                    let counts = |doc| self.counts(base + doc as usize);
                    segment.spellings().find(written, &mut meant, counts);
                }
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
        let (mut columns, mut lists) = (Vec::with_capacity(terms.len()), Vec::new());
        for term in terms {
            let (start, mut documents) = (lists.len(), 0);
            self.postings(term, |base, postings| {
                documents += self.count_in(base, postings);
                lists.push(List { base, postings });
            });
            columns.push(Column { term, documents, lists: start..lists.len() });
            // They are asked of memory at once, long before they are read.
            std::hint::black_box(lists[start..].iter().fold(0, |all, list: &List<'_>| {
                all ^ list.postings.first().map_or(0, |posting| posting.doc)
            }));
        }
        Found { columns, lists, others }
    }

    /// What to look for and what each is worth, by the words of a need. Terms that no document
    /// has are left out, except a word itself.
    pub(crate) fn lines(&self, need: &Need, found: &Found<'_>) -> Vec<Line> {
        let mut lines: Vec<Line> = Vec::with_capacity(2 * need.words.len());
        for (at, word) in need.words.iter().enumerate() {
            let mut add = |term, strength, least: usize| {
                if let Some(column) = found.column(term)
                    && found.columns[column].documents >= least
                {
                    let documents = found.columns[column].documents;
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
            let rarity = self.idf(together.min(self.count()));
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
            let fits = |(segment, base): (&Arc<Segment>, &usize)| {
                segment.supplied().is_some_and(|v| v.dimensions() == vector.dimensions())
                    || !(*base..base + segment.len()).any(|doc| self.counts(doc))
            };
            self.segments.iter().zip(&self.bases).all(fits)
        })
    }

    /// How many documents contain a term.
    fn frequency(&self, term: Term) -> usize {
        let mut documents = 0;
        self.postings(term, |base, postings| documents += self.count_in(base, postings));
        documents
    }

    /// How many of the documents of a segment's postings count.
    fn count_in(&self, base: usize, postings: &[Posting]) -> usize {
        match &self.left {
            None => postings.len(),
            Some(left) => postings.iter().filter(|p| left.is_in[base + p.doc as usize]).count(),
        }
    }

    /// What a term is worth that so many documents contain; always above zero.
    pub(crate) fn idf(&self, frequency: usize) -> f32 {
        let (all, frequency) = (self.count() as f64, frequency as f64);
        // In double precision and then rounded, as logarithms may differ in the last bit between
        // machines and orders of equal scores must not.
        (1.0 + (all - frequency + 0.5) / (frequency + 0.5)).ln() as f32
    }

    /// Passes on the postings of a term, each segment's with the number of its first document.
    fn postings<'a>(&'a self, term: Term, mut pass: impl FnMut(usize, &'a [Posting])) {
        for Bundled { bundle, segments } in &self.bundles {
            for (slot, place) in bundle.find(term) {
                if let Some(at) = segments[slot] {
                    pass(self.bases[at], self.segments[at].postings_at(place));
                }
            }
        }
        for &at in &self.loose {
            let postings = self.segments[at].postings(term);
            if !postings.is_empty() {
                pass(self.bases[at], postings);
            }
        }
    }

    /// For each document, whether it contains all of the terms.
    fn containing(&self, terms: &[Term]) -> Vec<bool> {
        let mut all = vec![true; self.len];
        for &term in terms {
            let mut has = vec![false; self.len];
            self.postings(term, |base, postings| {
                postings.iter().for_each(|posting| has[base + posting.doc as usize] = true);
            });
            all.iter_mut().zip(has).for_each(|(all, has)| *all &= has);
        }
        all
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("segments", &self.segments.len())
            .field("bundles", &self.bundles.len())
            .field("documents", &self.len)
            .finish()
    }
}
