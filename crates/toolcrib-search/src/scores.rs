//! Scores by document, and the best of them.

use std::cmp::Ordering;

use crate::index::Index;

/// Candidates held before the worse half of them is dropped, for small limits.
const MIN_CANDIDATES: usize = 64;
/// Documents looked at together.
const CHUNK: usize = 256;

/// A score for every document of an [`Index`], by document number; zero where nothing matched.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores(pub(crate) Vec<f32>);

/// A document found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its number in the index.
    pub doc: usize,
    /// Comparable within one answer only.
    pub score: f32,
}

/// The best documents found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hits {
    /// How many matched, shown or not.
    pub total: usize,
    /// Best first; documents of one score are in the order of their keys.
    pub hits: Vec<Hit>,
}

impl Scores {
    /// The score of a document.
    ///
    /// # Panics
    /// If there is no document of that number.
    pub fn of(&self, doc: usize) -> f32 {
        self.0[doc]
    }

    /// The best score of any document.
    pub fn best(&self) -> f32 {
        self.0.iter().fold(0.0, |best, &score| if score > best { score } else { best })
    }

    /// Adds to the score of a document that matched.
    ///
    /// # Panics
    /// If there is no document of that number.
    pub fn lift(&mut self, doc: usize, by: f32) {
        if self.0[doc] > 0.0 {
            self.0[doc] += by;
        }
    }

    /// The best `limit` of the documents that scored above zero.
    ///
    /// The index is the one the scores were made from; it orders documents of one score by key.
    pub fn top(&self, index: &Index, limit: usize) -> Hits {
        let order = |a: &Hit, b: &Hit| {
            let by_key = || index.key(a.doc).cmp(index.key(b.doc)).then(a.doc.cmp(&b.doc));
            b.score.total_cmp(&a.score).then_with(by_key)
        };
        let capacity = limit.saturating_mul(2).max(MIN_CANDIDATES);
        let (mut total, mut hits, mut least) = (0, Vec::new(), 0.0_f32);
        for (chunk, scores) in self.0.chunks(CHUNK).enumerate() {
            // Which documents matched follows no pattern a processor could predict, so they are
            // first gathered without a branch.
            let (mut matched, mut count) = ([0; CHUNK], 0);
            for (at, &score) in scores.iter().enumerate() {
                matched[count] = at;
                count += usize::from(score > 0.0);
            }
            for &at in &matched[..count] {
                let hit = Hit { doc: chunk * CHUNK + at, score: scores[at] };
                total += 1;
                if hit.score >= least {
                    hits.push(hit);
                }
                if hits.len() == capacity {
                    least = keep_best(&mut hits, limit, order);
                }
            }
        }
        keep_best(&mut hits, limit, order);
        hits.sort_unstable_by(order);
        Hits { total, hits }
    }
}

/// Drops all but the best `limit`, in no order, and returns the score a further hit must reach.
fn keep_best(hits: &mut Vec<Hit>, limit: usize, order: impl Fn(&Hit, &Hit) -> Ordering) -> f32 {
    if limit == 0 {
        hits.clear();
        return f32::INFINITY;
    }
    if hits.len() < limit {
        return 0.0;
    }
    let (_, &mut last, _) = hits.select_nth_unstable_by(limit - 1, order);
    hits.truncate(limit);
    last.score
}
