//! Vectors that an embedder of the caller's own supplies.

mod support;

use support::{TUNING, first, index, keys, ranking, segment, supplied, tool};
use toolcrib_search::{Document, Index, Query, Ranking, Vectors};

/// Three tools; no word of the last is in any query here, nor in a table of English words.
fn tools() -> [Document<'static>; 3] {
    [
        tool("send_invoice", "Sends an invoice to a customer."),
        tool("read_file", "Reads a file."),
        tool("zxqv", "Qqxz vvkj."),
    ]
}

fn rows() -> Vec<Vec<f32>> {
    vec![vec![1.0, 0.0, 0.0, 0.1], vec![0.0, 1.0, 0.0, 0.1], vec![0.0, 0.0, 2.0, 0.1]]
}

const TOWARDS_LAST: [f32; 4] = [0.0, 0.05, 3.0, 0.0];

fn embedded() -> Index {
    Index::new(&TUNING, vec![supplied(&tools(), &rows())])
}

#[test]
fn a_document_that_shares_no_word_comes_first_by_its_vector() {
    let bare = Query::new("dispatch the billing statement");
    let query = bare.clone().with_vector(&TOWARDS_LAST);
    assert_eq!(first(&embedded(), &query), "zxqv");
    assert_eq!(keys(&embedded(), &query.clone().ranked_by(Ranking::Semantic)), ["zxqv"]);
    assert!(!keys(&embedded(), &query.ranked_by(Ranking::Lexical)).contains(&"zxqv".to_owned()));
    assert_ne!(first(&embedded(), &bare), "zxqv", "without its vector");
}

#[test]
fn words_and_supplied_vectors_are_one_score() {
    let query = Query::new("read a file").with_vector(&[0.0, 1.0, 0.0, 0.1]);
    let score = |ranking: Ranking| {
        let query = query.clone().ranked_by(ranking);
        embedded().score(&query).of(1)
    };
    assert_eq!(score(Ranking::Hybrid), score(Ranking::Lexical) + score(Ranking::Semantic));
}

#[test]
fn a_query_without_a_word_is_found_by_its_vector_alone() {
    assert_eq!(first(&embedded(), &Query::new("🎉").with_vector(&TOWARDS_LAST)), "zxqv");
}

#[test]
fn required_words_hold_beside_supplied_vectors() {
    let query = Query::with_required("dispatch", &["file"]).with_vector(&TOWARDS_LAST);
    assert_eq!(keys(&embedded(), &query), ["read_file"]);
}

/// Falling back means: exactly as if the query had no vector.
#[track_caller]
fn check_falls_back(index: &Index, vector: &[f32]) {
    for by in support::RANKINGS {
        let bare = Query::new("send the invoice. read the file.").ranked_by(by);
        let with = bare.clone().with_vector(vector);
        assert_eq!(ranking(index, &with, 9), ranking(index, &bare, 9), "{by}");
    }
}

#[test]
fn vectors_of_another_length_are_not_compared() {
    check_falls_back(&embedded(), &[0.0, 0.0, 1.0]);
    check_falls_back(&embedded(), &[0.0; 5]);
    check_falls_back(&embedded(), &[]);
    let [a, b, c] = tools();
    let short = vec![vec![1.0, 0.0], vec![0.0, 1.0]];
    let mixed = vec![supplied(&[a, b], &short), supplied(&[c], &rows()[2..])];
    let mixed = Index::new(&TUNING, mixed);
    check_falls_back(&mixed, &TOWARDS_LAST);
    check_falls_back(&mixed, &[1.0, 0.0]);
}

#[test]
fn a_segment_without_vectors_makes_all_fall_back() {
    let [a, b, c] = tools();
    let index = Index::new(&TUNING, vec![segment(&[a, b]), supplied(&[c], &rows()[2..])]);
    check_falls_back(&index, &TOWARDS_LAST);
    check_falls_back(&support::index(&tools()), &TOWARDS_LAST);
}

#[test]
fn a_segment_without_documents_needs_no_vectors() {
    let index = Index::new(&TUNING, vec![segment(&[]), supplied(&tools(), &rows())]);
    assert_eq!(first(&index, &Query::new("dispatch").with_vector(&TOWARDS_LAST)), "zxqv");
}

#[test]
fn supplied_vectors_do_not_depend_on_order_or_segmentation() {
    let [a, b, c] = tools();
    let [x, y, z] = <[Vec<f32>; 3]>::try_from(rows()).expect("three");
    let apart = vec![
        supplied(std::slice::from_ref(&c), std::slice::from_ref(&z)),
        supplied(&[b.clone(), a.clone()], &[y.clone(), x.clone()]),
    ];
    let apart = Index::new(&TUNING, apart);
    for by in support::RANKINGS {
        let query = Query::new("send a file").with_vector(&[0.4, 0.3, 0.5, 0.0]).ranked_by(by);
        assert_eq!(ranking(&apart, &query, 9), ranking(&embedded(), &query, 9), "{by}");
    }
}

#[test]
fn vectors_are_taken_once_and_only_if_there_is_one_for_each() {
    let segment = segment(&tools());
    let vectors = Vectors::new(4, rows());
    assert!(!segment.supply(Vectors::new(4, &rows()[..2])), "one too few");
    assert!(segment.supplied().is_none());
    let before = segment.heap_bytes();
    assert!(segment.supply(vectors.clone()));
    assert_eq!(segment.heap_bytes(), before + 3 * 4 + 3 * size_of::<f32>());
    assert!(!segment.supply(Vectors::new(4, [[0.0; 4]; 3])), "once");
    assert_eq!(segment.supplied(), Some(&vectors));
    assert_eq!((vectors.len(), vectors.dimensions(), vectors.is_empty()), (3, 4, false));
}

#[test]
fn what_is_not_a_number_is_near_nothing() {
    let rows = vec![vec![f32::NAN; 4], vec![f32::INFINITY, 0.0, 0.0, 1.0], vec![0.0; 4]];
    let index = Index::new(&TUNING, vec![supplied(&tools(), &rows)]);
    for vector in [[f32::NAN; 4], [f32::NEG_INFINITY; 4], [f32::MAX; 4], [f32::MIN_POSITIVE; 4]] {
        for by in support::RANKINGS {
            let query = Query::new("read the invoice").with_vector(&vector).ranked_by(by);
            let scores = index.score(&query);
            assert!((0..3).all(|doc| scores.of(doc).is_finite() && scores.of(doc) >= 0.0));
        }
    }
}

#[test]
fn an_index_of_one_embedder_answers_queries_of_none() {
    let query = Query::new("send the invoice");
    assert_eq!(ranking(&embedded(), &query, 9), ranking(&index(&tools()), &query, 9));
}
