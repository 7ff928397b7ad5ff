//! Searching whole indexes, through the public interface only.

use std::sync::Arc;

use toolcrib_search::{
    Analyzer, Document, Field, Fields, Index, MAX_TEXT_TOKENS, Query, Segment, tokenize,
};

const FIELDS: Fields = Fields::new(&[
    Field { name: "name", weight: 2.0, b: 0.5, reference_length: 3.0 },
    Field { name: "description", weight: 1.0, b: 0.75, reference_length: 30.0 },
]);

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
    TOOLS.iter().map(|&(name, description)| Document::new(name, [name, description])).collect()
}

fn segment(documents: &[Document<'static>]) -> Arc<Segment> {
    Arc::new(Segment::build(&mut Analyzer::new(), &FIELDS, documents.to_vec()))
}

fn index(documents: &[Document<'static>]) -> Index {
    Index::new(vec![segment(documents)])
}

/// Keys and bits of the scores, which must not depend on where a document stands.
fn ranking(index: &Index, query: &Query, limit: usize) -> (usize, Vec<(String, u32)>) {
    let found = index.search(query, limit, |_| true);
    let hits = found.hits.iter().map(|hit| (index.key(hit.doc).to_string(), hit.score.to_bits()));
    (found.total, hits.collect())
}

fn keys(query: &Query) -> Vec<String> {
    ranking(&index(&documents()), query, 20).1.into_iter().map(|(key, _)| key).collect()
}

struct Lcg(u64);

impl Lcg {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Few words, so that many documents tie.
fn synthetic(count: usize) -> Vec<Document<'static>> {
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
        assert_eq!(keys(&Query::new(query)).first().map(String::as_str), Some(first), "{query}");
    }
}

#[test]
fn a_word_in_the_name_counts_more_than_one_in_the_description() {
    assert_eq!(keys(&Query::new("issue")), ["list_issues", "create_issue", "add_comment"]);
}

#[test]
fn a_rare_word_counts_more_than_a_common_one() {
    assert_eq!(keys(&Query::new("repository comment"))[0], "add_comment");
}

#[test]
fn hits_and_scores_do_not_depend_on_order_or_segmentation() {
    let mut documents = synthetic(300);
    let queries = ["w1", "w1 w2 w3 w17", "w39 w5 w5 w20", "w1 absent"].map(Query::new);
    let queries = [&queries[..], &[Query::with_required("w3 w4", &["w1"])]].concat();
    let one = index(&documents);
    let expected: Vec<_> = queries.iter().map(|query| ranking(&one, query, 20)).collect();
    assert!(expected.iter().all(|(total, _)| *total > 20));

    let mut random = Lcg(1);
    for _ in 0..20 {
        random.shuffle(&mut documents);
        let size = 1 + random.below(60);
        let mut segments: Vec<_> = documents.chunks(size).map(segment).collect();
        segments.insert(random.below(segments.len()), segment(&[]));
        let index = Index::new(segments);
        let actual: Vec<_> = queries.iter().map(|query| ranking(&index, query, 20)).collect();
        assert_eq!(actual, expected);
    }
}

#[test]
fn the_best_few_are_the_first_of_all() {
    let index = index(&synthetic(1_000));
    let query = Query::new("w1 w2");
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
    let found = ranking(&index(&documents), &Query::new("same"), 4).1;
    assert_eq!(found.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), ["B", "a", "a_long", "b"]);
}

#[test]
fn a_required_word_must_occur_in_some_field() {
    let required = |text: &str, words: &[&str]| keys(&Query::with_required(text, words));
    assert_eq!(required("issue", &["repository"]), ["list_issues", "create_issue"]);
    assert_eq!(required("issue", &["comments"]), ["add_comment"]);
    assert_eq!(required("file", &["create_issue"]), ["create_issue"]);
    assert_eq!(required("issue", &["create_file"]), [""; 0]);
    assert_eq!(required("issue", &["nonsense"]), [""; 0]);
    assert_eq!(required("weather", &["getWeather"]), ["getWeather"]);
    assert_eq!(required("issue", &["+"]).len(), 3);
}

#[test]
fn required_words_alone_rank_too() {
    assert_eq!(
        keys(&Query::with_required("", &["issue"])),
        ["list_issues", "create_issue", "add_comment"]
    );
}

#[test]
fn an_explanation_adds_up_to_the_score() {
    let documents = synthetic(200);
    let segments = documents.chunks(30).map(segment).collect();
    let index = Index::new(segments);
    let mut analyzer = Analyzer::new();
    for query in [Query::new("w1 w2 w3 w3 absent"), Query::with_required("w4 w5 w6 w7", &["w1"])] {
        let found = index.search(&query, usize::MAX, |_| true);
        let mut scores = vec![0.0; index.len()];
        found.hits.iter().for_each(|hit| scores[hit.doc] = hit.score);
        assert!(found.total > 0 && found.total < documents.len());
        for (document, score) in documents.iter().zip(scores) {
            let why = index.explain(&query, document, &FIELDS, &mut analyzer);
            assert_eq!(why.total, score, "{why}");
            for term in &why.terms {
                let shares: f32 = term.fields.iter().map(|field| field.score).sum();
                assert!((shares - term.score).abs() < 1e-4, "{why}");
            }
        }
    }
}

#[test]
fn an_explanation_reads_as_a_tree_and_serialises() {
    let documents = documents();
    let query = Query::with_required("file disk absent file", &["text"]);
    let explain = |at: usize| {
        index(&documents).explain(&query, &documents[at], &FIELDS, &mut Analyzer::new())
    };
    assert_eq!(
        explain(3).to_string(),
        "7.5690  read_file
  1.3234  text  (in 3 of 8, idf 0.9445)
    1.3234  description  (1 of 9 tokens)
  4.4507  file  (in 2 of 8, idf 1.2809, ×2)
    2.3709  name  (1 of 2 tokens)
    2.0797  description  (1 of 9 tokens)
  1.7949  disk  (in 2 of 8, idf 1.2809)
    1.7949  description  (1 of 9 tokens)
  0.0000  absent  (in 0 of 8, idf 2.8904)"
    );
    let missed = explain(0);
    assert_eq!((missed.total, &*missed.missing), (0.0, &["text".to_owned()][..]));
    assert!(missed.to_string().contains("required word missing: text"));
    assert_eq!(serde_json::to_value(explain(3)).unwrap()["terms"][1]["documents"], 2);
}

#[test]
fn nothing_to_find_or_nowhere_to_look_gives_no_hits() {
    let blank = Document::new("blank", ["", "…"]);
    for (index, query) in [
        (index(&documents()), Query::new("")),
        (index(&documents()), Query::new("?!")),
        (index(&documents()), Query::new("nonsense")),
        (Index::new(Vec::new()), Query::new("issue")),
        (index(&[]), Query::with_required("issue", &["issue"])),
        (index(std::slice::from_ref(&blank)), Query::new("issue")),
    ] {
        assert_eq!(ranking(&index, &query, 5), (0, vec![]));
    }
}

#[test]
fn a_limit_of_zero_counts_without_hits() {
    assert_eq!(ranking(&index(&synthetic(500)), &Query::new("w1"), 0).1, []);
    assert_eq!(ranking(&index(&documents()), &Query::new("issue"), 0), (3, vec![]));
}

#[test]
fn a_document_that_is_not_admitted_takes_no_place() {
    let index = index(&documents());
    let found = index.search(&Query::new("issue"), 1, |doc| &**index.key(doc) != "list_issues");
    assert_eq!(found.total, 2);
    assert_eq!(&**index.key(found.hits[0].doc), "create_issue");
}

#[test]
fn document_numbers_run_through_all_segments() {
    let documents = documents();
    let index = Index::new(vec![segment(&documents[..3]), segment(&[]), segment(&documents[3..])]);
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
    assert_eq!(index.search(&Query::new("w7"), 5, |_| true).total, 1);
    assert!(index.segments()[0].heap_bytes() < MAX_TEXT_TOKENS * 32);
}

#[test]
fn a_typical_document_takes_well_under_a_kilobyte() {
    let mut random = Lcg(3);
    let mut word = || format!("word{}", random.below(30).pow(2));
    let documents: Vec<_> = (0..25)
        .map(|i| {
            let text: Vec<_> = (0..90).map(|_| word()).collect();
            Document::new(i.to_string(), [word(), text.join(" ")])
        })
        .collect();
    assert!(tokenize(&documents[0].fields[1]).len() > 80);
    assert!(segment(&documents).heap_bytes() / documents.len() < 800);
}
