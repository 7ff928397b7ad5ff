//! One tool that several servers offer: the copy that fits best keeps its place, the others stand
//! behind what else fits, so that one product does not fill a page.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use toolcrib_search::{Index, Scores};

use crate::Tool;
use crate::find::Hit;
use crate::names::Key;
use crate::scope::Scope;
use crate::segment::Item;

/// The best of all that matched.
pub(crate) struct Page<'a> {
    /// How many matched in all.
    pub(crate) total: usize,
    pub(crate) hits: Vec<Hit<'a>>,
    /// Copies that would be among the hits if they were tools of their own.
    pub(crate) left_out: Vec<Item<'a>>,
}

/// A hit, with what it counts for in place of its score.
struct Placed<'a> {
    hit: Hit<'a>,
    is_copy: bool,
}

/// A copy, and the tool it stands behind.
pub(crate) struct Behind<'a> {
    original: &'a Arc<Tool>,
    /// What is taken from its score.
    pub(crate) loss: f32,
}

impl Behind<'_> {
    pub(crate) fn reason(&self) -> String {
        format!("the same tool as {}, which comes first", self.original.exposed())
    }
}

impl<'a> Scope<'a> {
    /// The best `most` documents by their scores, where a copy counts for less.
    pub(crate) fn page(self, index: &Index, scores: &Scores, most: usize) -> Page<'a> {
        let mut looked_at = most;
        loop {
            let best = scores.top(index, looked_at);
            let hits = best
                .hits
                .iter()
                .map(|hit| Hit { item: self.document(index, hit.doc), score: hit.score });
            let mut placed = place(index.tuning().copy, hits);
            // What was not looked at scores no more than the last that was.
            let (last, is_all) = (best.hits.last(), best.hits.len() == best.total);
            let is_plain = !placed.iter().any(|placed| placed.is_copy);
            let copies = placed.iter().take(most).filter(|placed| placed.is_copy);
            let copies: Vec<Item<'a>> = copies.map(|placed| placed.hit.item).collect();
            placed.sort_by(|a, b| {
                let by_name = || a.hit.item.exposed().cmp(b.hit.item.exposed());
                b.hit.score.total_cmp(&a.hit.score).then_with(by_name)
            });
            placed.truncate(most);
            let ends_above = |score| placed.last().is_some_and(|it| it.hit.score > score);
            if is_plain || is_all || last.is_none_or(|last| ends_above(last.score)) {
                let hits: Vec<Hit<'a>> = placed.into_iter().map(|placed| placed.hit).collect();
                let kept: HashSet<_> = hits.iter().map(|hit| hit.item.key()).collect();
                let left_out = copies.into_iter().filter(|item| !kept.contains(&item.key()));
                return Page { total: best.total, left_out: left_out.collect(), hits };
            }
            looked_at = looked_at.saturating_mul(2);
        }
    }

    /// What an item stands behind, if it is a copy of one that fits better.
    pub(crate) fn behind(
        self,
        index: &Index,
        scores: &Scores,
        item: Item<'_>,
    ) -> Option<Behind<'a>> {
        let own = item.name().tool();
        let (mut alike, mut score, mut base) = (Vec::new(), 0.0, 0);
        for (segment, _) in self.segments() {
            for at in segment.find(Key::new(own)) {
                let (doc, found) = (base + at, segment.item(at));
                if found.key() == item.key() {
                    score = scores.of(doc);
                } else if is_copy(found, item) {
                    alike.push((scores.of(doc), found));
                }
            }
            base += segment.len();
        }
        // What does not match has no place to lose.
        if score <= 0.0 {
            return None;
        }
        let better = alike.into_iter().filter(|(other, found)| {
            *other > score || (*other == score && found.exposed() < item.exposed())
        });
        let (_, best) = better
            .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.exposed().cmp(a.1.exposed())))?;
        let Item::Tool(original) = best else { return None };
        Some(Behind { original, loss: index.tuning().copy * score })
    }
}

/// Tells the copies among hits, best first, and what each hit counts for if a copy loses such a
/// share of its score.
fn place<'a>(loss: f32, hits: impl Iterator<Item = Hit<'a>>) -> Vec<Placed<'a>> {
    let mut before: HashMap<&str, Vec<Item<'a>>> = HashMap::new();
    let placed = |hit: Hit<'a>| {
        let alike = before.entry(hit.item.name().tool()).or_default();
        let is_copy = alike.iter().any(|item| is_copy(*item, hit.item));
        alike.push(hit.item);
        let score = if is_copy { hit.score - loss * hit.score } else { hit.score };
        Placed { hit: Hit { score, ..hit }, is_copy }
    };
    hits.map(placed).collect()
}

/// Whether two items are one tool of two servers: they have the same name there, the same
/// description but for white space, and the same parameters. Without a description they might be
/// anything; and if less were compared, a server could take another's place with more words.
fn is_copy(a: Item<'_>, b: Item<'_>) -> bool {
    let (Item::Tool(a), Item::Tool(b)) = (a, b) else { return false };
    let (about, other) = (a.spec().description(), b.spec().description());
    let (schema, of_other) = (a.spec().input_schema(), b.spec().input_schema());
    a.name().tool() == b.name().tool()
        && a.name().namespace() != b.name().namespace()
        && !about.trim().is_empty()
        && about.split_whitespace().eq(other.split_whitespace())
        && (schema.get() == of_other.get() || schema.to_value() == of_other.to_value())
}
