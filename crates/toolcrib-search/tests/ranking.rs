//! Searching whole indexes, through the public interface only.

mod support;

use support::{Lcg, RANKINGS, TUNING, index, keys, ranking, segment, synthetic, tool, words};
use toolcrib_search::{Document, Index, MAX_TEXT_TOKENS, Query, Ranking, UnknownRanking, tokenize};

const TOOLS: &[(&str, &str)] = &[
    ("create_issue", "Opens a new issue in a GitHub repository."),
    ("list_issues", "Lists the issues of a repository, open ones first."),
    ("add_comment", "Adds a comment to an issue or a pull request."),
    ("read_file", "Reads a file from disk and returns its text."),
    ("write_file", "Writes text to a file on disk."),
    ("getWeather", "The weather forecast for a city; São Paulo, for example."),
    ("encode_base64", "Encodes bytes as text."),
    ("天気", "東京の天気予報を調べる"),
];

fn documents() -> Vec<Document<'static>> {
    TOOLS.iter().map(|&(name, description)| tool(name, description)).collect()
}

/// What is found by words alone, best first.
fn found(query: Query) -> Vec<String> {
    keys(&index(&documents()), &query.ranked_by(Ranking::Lexical))
}

/// The same in the order of the alphabet, where only what is found matters.
fn all_found(query: Query) -> Vec<String> {
    let mut keys = found(query);
    keys.sort();
    keys
}

#[test]
fn the_document_that_says_most_of_it_comes_first() {
    for (query, first) in [
        ("create issue", "create_issue"),
        ("open a new github issue", "create_issue"),
        ("listing issues", "list_issues"),
        ("comment on a pull request", "add_comment"),
        ("readFile", "read_file"),
        ("forecast sao paulo", "getWeather"),
        ("base 64", "encode_base64"),
        ("天気予報", "天気"),
    ] {
        assert_eq!(found(Query::new(query)).first().map(String::as_str), Some(first), "{query}");
    }
}

#[test]
fn a_word_in_the_name_counts_more_than_one_in_the_description() {
    let found = found(Query::new("issue"));
    assert_eq!(found.len(), 3);
    assert_eq!(found[2], "add_comment");
}

#[test]
fn a_rare_word_counts_more_than_a_common_one() {
    assert_eq!(found(Query::new("repository comment"))[0], "add_comment");
}

#[test]
fn hits_and_scores_do_not_depend_on_order_or_segmentation() {
    let mut documents = synthetic(300);
    let mut queries = vec![Query::with_required("w3 w4", &["w1"]).ranked_by(Ranking::Lexical)];
    for text in ["w1", "w1 w2 w3 w17", "w39 w5 w5 w20", "w1 absent", "w1 w2 w3. w4 w5 w6."] {
        queries.extend(RANKINGS.map(|ranking| Query::new(text).ranked_by(ranking)));
    }
    let one = index(&documents);
    let expected: Vec<_> = queries.iter().map(|query| ranking(&one, query, 20)).collect();
    // All but those by meaning alone, to which these words may say nothing.
    assert!(expected.iter().filter(|(total, _)| *total > 20).count() >= 11);

    let mut random = Lcg(1);
    for _ in 0..20 {
        random.shuffle(&mut documents);
        let size = 1 + random.below(60);
        let mut segments: Vec<_> = documents.chunks(size).map(segment).collect();
        segments.insert(random.below(segments.len()), segment(&[]));
        let index = Index::new(&TUNING, segments);
        let actual: Vec<_> = queries.iter().map(|query| ranking(&index, query, 20)).collect();
        assert_eq!(actual, expected);
    }
}

#[test]
fn the_best_few_are_the_first_of_all() {
    let index = index(&synthetic(1_000));
    let query = words("w1 w2");
    let (total, all) = ranking(&index, &query, usize::MAX);
    assert_eq!(all.len(), total);
    assert!(all.is_sorted_by_key(|(key, bits)| (std::cmp::Reverse(*bits), key.clone())));
    for limit in [1, 5, 31, 32, 33, 64, 100] {
        assert_eq!(ranking(&index, &query, limit), (total, all[..limit].to_vec()));
    }
}

#[test]
fn documents_of_one_score_are_ordered_by_the_bytes_of_their_keys() {
    let documents = ["b", "a", "é", "B", "a_long"].map(|key| Document::new(key, ["same", "text"]));
    for ranked_by in [Ranking::Lexical, Ranking::Hybrid] {
        let query = Query::new("same").ranked_by(ranked_by);
        let found = ranking(&index(&documents), &query, 4).1;
        let keys: Vec<_> = found.iter().map(|(key, _)| &**key).collect();
        assert_eq!(keys, ["B", "a", "a_long", "b"]);
    }
}

#[test]
fn a_required_word_must_occur_in_some_field() {
    let required = |text: &str, words: &[&str]| all_found(Query::with_required(text, words));
    assert_eq!(required("issue", &["repository"]), ["create_issue", "list_issues"]);
    assert_eq!(required("issue", &["comments"]), ["add_comment"]);
    assert_eq!(required("file", &["create_issue"]), ["create_issue"]);
    assert_eq!(required("issue", &["create_file"]), [""; 0]);
    assert_eq!(required("issue", &["nonsense"]), [""; 0]);
    assert_eq!(required("weather", &["getWeather"]), ["getWeather"]);
    assert_eq!(required("issue", &["+"]).len(), 3);
}

#[test]
fn required_words_alone_rank_too() {
    let required = found(Query::with_required("", &["issue"]));
    assert_eq!(required.len(), 3);
    assert_eq!(required, found(Query::new("issue")));
}

#[test]
fn nothing_to_find_or_nowhere_to_look_gives_no_hits() {
    let blank = Document::new("blank", ["", "…"]);
    for (index, query) in [
        (index(&documents()), Query::default()),
        (index(&documents()), Query::new("")),
        (index(&documents()), Query::new("?!")),
        (index(&documents()), words("nonsense")),
        (Index::new(&TUNING, Vec::new()), Query::new("issue")),
        (index(&[]), Query::with_required("issue", &["issue"])),
        (index(std::slice::from_ref(&blank)), Query::new("issue")),
    ] {
        assert_eq!(ranking(&index, &query, 5), (0, vec![]));
    }
}

#[test]
fn a_limit_of_zero_counts_without_hits() {
    assert_eq!(ranking(&index(&synthetic(500)), &words("w1"), 0).1, []);
    assert_eq!(ranking(&index(&documents()), &words("issue"), 0), (3, vec![]));
}

#[test]
fn a_document_that_does_not_count_takes_no_place() {
    let index = index(&documents());
    let best = support::first(&index, &words("issue"));
    let is_in = (0..index.len()).map(|doc| **index.key(doc) != *best).collect();
    let index = index.only(is_in);
    let found = index.search(&words("issue"), 1);
    assert_eq!(found.total, 2);
    assert_eq!(found.hits.len(), 1);
    assert_ne!(**index.key(found.hits[0].doc), *best);
}

#[test]
fn document_numbers_run_through_all_segments() {
    let documents = documents();
    let segments = vec![segment(&documents[..3]), segment(&[]), segment(&documents[3..])];
    let index = Index::new(&TUNING, segments);
    assert_eq!(index.len(), documents.len());
    assert_eq!((index.locate(2), index.locate(3)), ((0, 2), (2, 0)));
    for (doc, document) in documents.iter().enumerate() {
        assert_eq!(index.key(doc), &document.key);
    }
}

#[test]
fn a_huge_document_costs_a_bounded_amount_and_is_still_found() {
    let text: String = (0..2_000_000).map(|i| format!("w{i} ")).collect();
    let index = index(&[Document::new("huge", ["name".to_owned(), text])]);
    assert_eq!(index.search(&Query::new("w7"), 5).total, 1);
    assert!(index.segments()[0].heap_bytes() < MAX_TEXT_TOKENS * 32);
}

#[test]
fn a_typical_document_takes_under_two_kilobytes() {
    let mut random = Lcg(3);
    let mut word = || format!("word{}", random.below(30).pow(2));
    let documents: Vec<_> = (0..25)
        .map(|i| {
            let text: Vec<_> = (0..90).map(|_| word()).collect();
            Document::new(i.to_string(), ["create_repository_comment".to_owned(), text.join(" ")])
        })
        .collect();
    assert!(tokenize(&documents[0].fields[1]).len() > 80);
    assert!(segment(&documents).heap_bytes() / documents.len() < 2_000);
}

#[test]
fn a_lift_moves_only_what_matched() {
    let index = index(&documents());
    let query = words("issue");
    let mut scores = index.score(&query);
    let best = scores.best();
    let top = scores.top(&index, 9);
    assert_eq!(best, top.hits[0].score);
    let (last, other) = (top.hits[2].doc, 3);
    assert_eq!(scores.of(other), 0.0);
    scores.lift(last, best);
    scores.lift(other, best);
    let top = scores.top(&index, 9);
    assert_eq!((top.total, top.hits[0].doc), (3, last));
    assert_eq!(scores.best(), top.hits[0].score);
}

#[test]
fn a_ranking_is_read_as_it_is_written() {
    assert_eq!(RANKINGS.map(|ranking| ranking.to_string()), ["lexical", "static", "hybrid"]);
    for ranking in RANKINGS {
        assert_eq!(ranking.to_string().parse(), Ok(ranking));
    }
    for wrong in ["", "Hybrid", "semantic", "hybrid "] {
        assert_eq!(wrong.parse::<Ranking>(), Err(UnknownRanking), "{wrong:?}");
    }
    assert_eq!(Ranking::default(), Ranking::Hybrid);
    assert_eq!(UnknownRanking.to_string(), "a ranking is lexical, static or hybrid");
}
