//! Arbitrary queries over arbitrary documents: nothing panics, and what must hold holds.

mod support;

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::{RANKINGS, TUNING, ranking, segment};
use toolcrib_search::{Analyzer, Document, Index, Query, Segment, Vectors};

const DIMENSIONS: usize = 4;

/// A document, and its vector in case vectors are supplied.
#[derive(Clone, Debug)]
struct Entry {
    document: Document<'static>,
    vector: Vec<f32>,
}

/// Synonyms, slips, stop words, connectives, compounds, scripts.
const WORDS: &str = "create add new issue issues ticket delete remove file read the of then also \
    zorblatt zorblat quondrex quondrx createIssue GitHub getURLById base64 s3 São weather forecast \
    天気予報 天気 날씨 data mcp github";

fn word() -> impl Strategy<Value = String> {
    let known: Vec<&str> = WORDS.split(' ').collect();
    prop_oneof![12 => select(known).prop_map(str::to_owned), 1 => "\\PC{0,8}", 1 => "[a-z]{4,7}"]
}

fn text() -> impl Strategy<Value = String> {
    let between = select(vec![" ", " ", "_", ". ", "; ", "\n", "。", ""]);
    let words = vec((word(), between), 0..14)
        .prop_map(|words| words.into_iter().map(|(word, after)| word + after).collect::<String>());
    prop_oneof![120 => words, 24 => ".{0,60}", 1 => huge()]
}

/// Texts beyond every limit, of one word, of many, of marks only.
fn huge() -> impl Strategy<Value = String> {
    let piece =
        select(vec!["x", "aB", "a1 ", "issue ", "本", "e\u{301}", "\u{301}", ". ", "ﷺ", "İ"]);
    (piece, 1_000_usize..80_000).prop_map(|(piece, times)| piece.repeat(times))
}

fn number() -> impl Strategy<Value = f32> {
    let odd = vec![0.0, -0.0, f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-42];
    prop_oneof![4 => -1.0_f32..1.0, 1 => select(odd)]
}

fn vector() -> impl Strategy<Value = Vec<f32>> {
    prop_oneof![6 => vec(number(), DIMENSIONS), 1 => vec(number(), 0..6)]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let key = prop_oneof![4 => "[a-c]{1,3}", 1 => "\\PC{0,4}"];
    let entry = (key, vec(text(), 0..5), vector())
        .prop_map(|(key, fields, vector)| Entry { document: Document::new(key, fields), vector });
    vec(entry, 0..10)
}

fn query() -> impl Strategy<Value = Query> {
    let required = prop_oneof![3 => Just(vec![]), 1 => vec(word(), 1..3)];
    (text(), required, proptest::option::of(vector()), select(RANKINGS.to_vec())).prop_map(
        |(text, required, vector, ranking)| {
            let required: Vec<&str> = required.iter().map(String::as_str).collect();
            let query = Query::with_required(&text, &required).ranked_by(ranking);
            vector.iter().fold(query, |query, vector| query.with_vector(vector))
        },
    )
}

fn build(entries: &[Entry], is_supplied: bool) -> Arc<Segment> {
    let documents: Vec<_> = entries.iter().map(|entry| entry.document.clone()).collect();
    let segment = segment(&documents);
    if is_supplied {
        let rows = entries.iter().map(|entry| &entry.vector);
        assert!(segment.supply(Vectors::new(DIMENSIONS, rows)));
    }
    segment
}

fn index(entries: &[Entry], is_supplied: bool) -> Index {
    Index::new(&TUNING, vec![build(entries, is_supplied)])
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 160,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_score_is_a_number_and_the_same_twice(
        entries in entries(),
        query in query(),
        is_supplied: bool,
    ) {
        let index = index(&entries, is_supplied);
        let scores = index.score(&query);
        for doc in 0..index.len() {
            let score = scores.of(doc);
            prop_assert!(score.is_finite() && score >= 0.0, "{score}");
        }
        let again = self::index(&entries, is_supplied);
        prop_assert_eq!(ranking(&index, &query, 9), ranking(&again, &query.clone(), 9));
    }

    #[test]
    fn hits_are_sorted_and_no_more_than_there_are(
        entries in entries(),
        query in query(),
        limit in prop_oneof![0_usize..6, Just(usize::MAX)],
        hidden: usize,
    ) {
        let is_in = |doc: usize| doc % 3 != hidden % 4;
        let index = index(&entries, true).only((0..entries.len()).map(is_in).collect());
        let found = index.search(&query, limit);
        let scores = index.score(&query);
        let matching = (0..index.len()).filter(|&doc| scores.of(doc) > 0.0).count();
        prop_assert_eq!(found.total, matching);
        prop_assert_eq!(found.hits.len(), matching.min(limit));
        let place = |hit: &toolcrib_search::Hit| (-hit.score, index.key(hit.doc).clone());
        prop_assert!(found.hits.is_sorted_by(|a, b| place(a) <= place(b)));
        for hit in &found.hits {
            prop_assert!(is_in(hit.doc) && hit.score == scores.of(hit.doc));
        }
        let best = found.hits.first().map(|hit| hit.score);
        prop_assert!(best.is_none_or(|best| best == scores.best()));
    }

    #[test]
    fn neither_order_nor_segmentation_changes_a_bit(
        (entries, shuffled) in entries().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        query in query(),
        size in 1_usize..5,
        is_supplied: bool,
    ) {
        let mut segments: Vec<_> = shuffled.chunks(size).map(|e| build(e, is_supplied)).collect();
        segments.push(segment(&[]));
        let apart = Index::new(&TUNING, segments);
        let together = index(&entries, is_supplied);
        prop_assert_eq!(ranking(&apart, &query, 99), ranking(&together, &query, 99));
    }

    #[test]
    fn any_document_can_be_explained(entries in entries(), query in query(), is_supplied: bool) {
        let index = index(&entries, is_supplied);
        let scores = index.score(&query);
        let mut analyzer = Analyzer::new();
        for (doc, Entry { document, .. }) in entries.iter().enumerate() {
            let why = index.explain(&query, document, &mut analyzer);
            // By its key a document is told which of the supplied vectors is its own.
            let of_key = entries.iter().filter(|entry| entry.document.key == document.key).count();
            let off = (why.total - scores.of(doc)).abs();
            prop_assert!(off == 0.0 || of_key > 1, "{}: {why}", scores.of(doc));
            prop_assert!(!why.to_string().is_empty());
        }
    }

    #[test]
    fn what_does_not_count_changes_no_bit_of_what_does(
        entries in entries(),
        is_in in vec(any::<bool>(), 10),
        query in query(),
        size in 1_usize..5,
        is_supplied: bool,
    ) {
        let is_in = &is_in[..entries.len()];
        let segments = entries.chunks(size).zip(is_in.chunks(size)).map(|(entries, is_in)| {
            // Vectors still to come of what does not count are not waited for.
            build(entries, is_supplied && is_in.contains(&true))
        });
        let narrowed = Index::new(&TUNING, segments.collect()).only(is_in.to_vec());
        let left = entries.iter().zip(is_in).filter(|(_, is_in)| **is_in);
        let left: Vec<Entry> = left.map(|(entry, _)| entry.clone()).collect();
        let alone = index(&left, is_supplied);
        prop_assert_eq!(ranking(&narrowed, &query, 99), ranking(&alone, &query, 99));
        let mut analyzer = Analyzer::new();
        for Entry { document, .. } in &left {
            let [why, expected] =
                [&narrowed, &alone].map(|index| index.explain(&query, document, &mut analyzer));
            prop_assert_eq!(why, expected);
        }
    }
}
