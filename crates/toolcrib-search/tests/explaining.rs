//! A score taken apart adds up to the score, to the last bit.

mod support;

use support::{RANKINGS, TUNING, index, segment, supplied, synthetic, tool, tool_of};
use toolcrib_search::{Analyzer, Document, Explanation, Index, Query, Ranking};

/// Explains every document, and compares with what the search gives it.
#[track_caller]
fn check(index: &Index, query: &Query, documents: &[Document<'static>]) -> Vec<Explanation> {
    let scores = index.score(query);
    let mut analyzer = Analyzer::new();
    (0..index.len())
        .map(|doc| {
            let key = index.key(doc);
            let document = documents.iter().find(|document| document.key == *key).expect("it");
            let why = index.explain(query, document, &mut analyzer);
            let score = scores.of(doc);
            assert_eq!(why.total.to_bits(), score.to_bits(), "{score} for {query:?}\n{why}");
            check_sum(&why);
            why
        })
        .collect()
}

/// What is told adds up, but for rounding.
#[track_caller]
fn check_sum(why: &Explanation) {
    let terms: f32 = why.terms.iter().map(|term| term.score).sum();
    let meaning = why.meaning.map_or(0.0, |meaning| meaning.score);
    let sentence = why.sentence.as_ref().map_or(0.0, |sentence| sentence.change);
    if why.missing.is_empty() {
        assert!((terms + meaning + sentence - why.total).abs() < 1e-5, "{why}");
    } else {
        assert_eq!(why.total, 0.0);
    }
    for term in &why.terms {
        let fields: f32 = term.fields.iter().map(|field| field.score).sum();
        assert!((fields - term.score).abs() < 1e-5, "{why}");
    }
}

fn tools() -> Vec<Document<'static>> {
    vec![
        tool_of("github", "createIssue", "Opens a ticket in a repository."),
        tool_of("github", "list_issues", "Lists the issues of a repository, open ones first."),
        tool_of("linear", "add_comment", "Puts a comment below an issue."),
        tool_of("disk", "zorblatt_file", "Removes a file from the disk."),
        tool_of("disk", "read_file", "Reads a file from the disk."),
        tool_of("天気", "天気予報", "東京の天気予報を調べる"),
        tool_of("", "", ""),
    ]
}

const QUERIES: &[&str] = &[
    "create issue",
    "new ticket in the repo",
    "delete the document from the folder",
    "zorblett file file file",
    "Open a ticket in the repository. Then read the file and the zorblet. Also the weather!",
    "天気を調べて。然后读取文件。",
    "githubCreateIssue",
    "nothing of this zzzzz qqqqq",
    "",
];

fn halves(documents: &[Document<'static>]) -> Index {
    Index::new(&TUNING, documents.chunks(3).map(segment).collect())
}

#[test]
fn an_explanation_adds_up_to_the_score() {
    let documents = synthetic(200);
    let index = Index::new(&TUNING, documents.chunks(30).map(segment).collect());
    for query in [
        Query::new("w1 w2 w3 w3 absent"),
        Query::new("w1 w2 w3. w4 w5 w6; then w7 w8"),
        Query::with_required("w4 w5 w6 w7", &["w1"]),
    ] {
        let query = query.ranked_by(Ranking::Lexical);
        let found = check(&index, &query, &documents).iter().filter(|why| why.total > 0.0).count();
        assert!(found > 0 && found < documents.len());
    }
}

#[test]
fn it_does_so_for_synonyms_misspellings_and_sentences_in_every_ranking() {
    let documents = tools();
    for text in QUERIES {
        for ranking in RANKINGS {
            let query = Query::new(text).ranked_by(ranking);
            check(&index(&documents), &query, &documents);
            check(&halves(&documents), &query, &documents);
            let required = Query::with_required(text, &["issue"]).ranked_by(ranking);
            check(&halves(&documents), &required, &documents);
        }
    }
}

#[test]
fn it_does_so_with_supplied_vectors() {
    let documents = tools();
    let row = |i: usize| (0..5).map(|j| ((i * 7 + j * 3) as f32).sin()).collect::<Vec<_>>();
    let rows: Vec<_> = (0..documents.len()).map(row).collect();
    let parts = documents.chunks(3).zip(rows.chunks(3));
    let index = Index::new(&TUNING, parts.map(|(d, r)| supplied(d, r)).collect());
    for text in QUERIES {
        for ranking in RANKINGS {
            let query = Query::new(text).ranked_by(ranking).with_vector(&row(2));
            let all = check(&index, &query, &documents);
            let cosine = all[2].meaning.map(|meaning| meaning.cosine);
            if ranking == Ranking::Lexical {
                assert_eq!(cosine, None);
            } else {
                assert!(cosine.is_some_and(|cosine| (cosine - 1.0).abs() < 1e-3), "{cosine:?}");
            }
        }
    }
}

#[test]
fn it_tells_what_stood_for_a_word() {
    let documents = [tool("zorblatt_label", "x"), tool("add_label", "x")];
    let query = Query::new("zorblett create label").ranked_by(Ranking::Lexical);
    let told = |why: &Explanation| -> Vec<(bool, bool)> {
        why.terms.iter().map(|term| (term.score > 0.0, term.by_another)).collect()
    };
    let all = check(&index(&documents), &query, &documents);
    assert_eq!(told(&all[0]), [(true, true), (false, false), (true, false)]);
    assert_eq!(told(&all[1]), [(false, false), (true, true), (true, false)]);
}

#[test]
fn it_tells_the_sentence_that_fits_best() {
    let documents = tools();
    let query = Query::new("Open a ticket. Read the file.").ranked_by(Ranking::Lexical);
    let all = check(&index(&documents), &query, &documents);
    let sentence = |at: usize| all[at].sentence.as_ref().map(|sentence| &*sentence.text);
    assert_eq!((sentence(0), sentence(4)), (Some("Open a ticket."), Some("Read the file.")));
    assert!(all[4].sentence.as_ref().is_some_and(|sentence| sentence.change > 0.0));
    let one = Query::new("Read the file.").ranked_by(Ranking::Lexical);
    assert!(check(&index(&documents), &one, &documents).iter().all(|why| why.sentence.is_none()));
}

#[test]
fn a_ranking_by_meaning_tells_of_no_words_and_one_by_words_of_no_meaning() {
    let documents = tools();
    let query = Query::new("read the file");
    for why in check(&index(&documents), &query.clone().ranked_by(Ranking::Semantic), &documents) {
        assert!(why.terms.is_empty());
    }
    for why in check(&index(&documents), &query.ranked_by(Ranking::Lexical), &documents) {
        assert!(why.meaning.is_none() && why.terms.len() == 2);
    }
}

#[test]
fn a_lift_is_added_and_told() {
    let documents = tools();
    let index = index(&documents);
    let query = Query::new("read the file");
    let mut why = index.explain(&query, &documents[4], &mut Analyzer::new());
    let mut scores = index.score(&query);
    scores.lift(4, 0.25);
    why.lift(0.25, "chosen before");
    assert_eq!(why.total.to_bits(), scores.of(4).to_bits());
    assert!(why.to_string().ends_with("\n  +0.2500  chosen before"));
}

/// The text without its figures: scores and percentages as `#`.
fn shape(why: &Explanation) -> String {
    let text = why.to_string();
    let line = |line: &str| {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        let words: Vec<_> = rest.split(' ').collect();
        let mut shaped = words.clone();
        for at in 0..words.len() {
            let is_percent = words.get(at + 1).is_some_and(|next| next.starts_with('%'));
            if words[at].parse::<f32>().is_ok() && (words[at].contains('.') || is_percent) {
                shaped[at] = "#";
            }
        }
        format!("{indent}{}", shaped.join(" "))
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_explanation_reads_as_a_tree_and_serialises() {
    let documents = [
        tool("read_file", "Reads a file from disk and returns its text."),
        tool("write_file", "Writes text to a file on disk."),
        tool("create_issue", "Opens an issue."),
    ];
    let query = Query::with_required("file disk absent file", &["text"]);
    let query = query.ranked_by(Ranking::Lexical);
    let all = check(&index(&documents), &query, &documents);
    assert_eq!(
        shape(&all[0]),
        "#  read_file
  #  text  (in 2 of 3, # % of the query)
    #  description  (1 of 9 tokens)
  #  file  (in 2 of 3, # % of the query)
    #  name  (1 of 2 tokens)
    #  description  (1 of 9 tokens)
  #  disk  (in 2 of 3, # % of the query)
    #  description  (1 of 9 tokens)
  #  absent  (in 0 of 3, # % of the query)"
    );
    let missed = &all[2];
    assert_eq!((missed.total, &*missed.missing), (0.0, &["text".to_owned()][..]));
    assert!(missed.to_string().contains("required word missing: text"));
    let json = serde_json::to_value(&all[0]).expect("it serialises");
    assert_eq!(json["terms"][1]["documents"], 2);
    assert_eq!(json["meaning"], serde_json::Value::Null);
}
