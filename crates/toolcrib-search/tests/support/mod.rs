//! What the tests share: tools as documents, and short ways to search them.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::sync::Arc;

use toolcrib_search::{
    Analyzer, Document, Field, Fields, Index, Query, Ranking, Segment, Tuning, Vectors,
};

pub(crate) const RANKINGS: [Ranking; 3] = [Ranking::Lexical, Ranking::Semantic, Ranking::Hybrid];

pub(crate) const TUNING: Tuning = Tuning::new(Fields::new(&[
    Field {
        name: "name",
        weight: 2.0,
        b: 0.5,
        reference_length: 3.0,
        told: 0.1,
        share: 0.1,
        ..Field::PLAIN
    },
    Field { name: "description", ..Field::PLAIN },
    Field { name: "server", reference_length: 2.0, told: 0.4, ..Field::PLAIN },
]));

/// A tool of no server, known by its name.
pub(crate) fn tool(name: &str, description: &str) -> Document<'static> {
    Document::new(name, [name.to_owned(), description.to_owned()])
}

/// A tool of a server, known as `server/name`.
pub(crate) fn tool_of(server: &str, name: &str, description: &str) -> Document<'static> {
    let fields = [name.to_owned(), description.to_owned(), server.to_owned()];
    Document::new(format!("{server}/{name}"), fields)
}

pub(crate) fn segment(documents: &[Document<'static>]) -> Arc<Segment> {
    Arc::new(Segment::build(&mut Analyzer::new(), &TUNING, documents.to_vec()))
}

pub(crate) fn index(documents: &[Document<'static>]) -> Index {
    Index::new(&TUNING, vec![segment(documents)])
}

/// A segment whose vectors are these.
pub(crate) fn supplied(documents: &[Document<'static>], rows: &[Vec<f32>]) -> Arc<Segment> {
    let segment = segment(documents);
    let dimensions = rows.first().map_or(0, Vec::len);
    assert!(segment.supply(Vectors::new(dimensions, rows)));
    segment
}

/// A query ranked by the words alone, whatever the table of vectors holds.
pub(crate) fn words(text: &str) -> Query {
    Query::new(text).ranked_by(Ranking::Lexical)
}

/// Keys and bits of the scores, which must not depend on where a document stands.
pub(crate) fn ranking(index: &Index, query: &Query, limit: usize) -> (usize, Vec<(String, u32)>) {
    let found = index.search(query, limit);
    let hits = found.hits.iter().map(|hit| (index.key(hit.doc).to_string(), hit.score.to_bits()));
    (found.total, hits.collect())
}

/// The keys of all hits, best first.
pub(crate) fn keys(index: &Index, query: &Query) -> Vec<String> {
    ranking(index, query, usize::MAX).1.into_iter().map(|(key, _)| key).collect()
}

/// The key of the best hit; empty if there is none.
pub(crate) fn first(index: &Index, query: &Query) -> String {
    keys(index, query).into_iter().next().unwrap_or_default()
}

pub(crate) struct Lcg(pub(crate) u64);

impl Lcg {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Documents of few words, so that many tie.
pub(crate) fn synthetic(count: usize) -> Vec<Document<'static>> {
    let mut random = Lcg(7);
    (0..count)
        .map(|i| {
            let mut text = |length| {
                let words: Vec<_> = (0..length).map(|_| format!("w{}", random.below(40))).collect();
                words.join(" ")
            };
            Document::new(format!("doc{i}"), [text(2), text(5)])
        })
        .collect()
}
