//! Segments that are looked up together: found is what would be found one by one.

mod support;

use std::sync::Arc;

use support::{Lcg, TUNING, ranking, segment, tool_of};
use toolcrib_search::{Analyzer, Document, Index, Query, Ranking, Segment};

const WORDS: &str = "create add new issue issues ticket delete remove file read calendar kubernetes \
    createIssue GitHub weather forecast repository message channel 天気予報 data of";

const QUERIES: [&str; 6] = [
    "create an issue",
    "delete calender",
    "weather forecast 天気",
    "read files of the kubernetes repository",
    "Read the file in the repository. Then send a message to the channel",
    "unheard of",
];

/// A server with a few tools.
struct Server {
    documents: Vec<Document<'static>>,
    segment: Arc<Segment>,
}

fn server(random: &mut Lcg, number: usize) -> Server {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let mut text = |length| -> String {
        (0..length).map(|_| format!("{} ", words[random.below(words.len())])).collect()
    };
    let documents: Vec<_> = (0..number % 4)
        .map(|tool| tool_of(&format!("s{number}"), &format!("{}{tool}", text(2)), &text(6)))
        .collect();
    Server { segment: segment(&documents), documents }
}

fn segments(servers: &[Arc<Server>]) -> Vec<Arc<Segment>> {
    servers.iter().map(|server| server.segment.clone()).collect()
}

fn assert_same(index: &Index, servers: &[Arc<Server>]) {
    let apart = Index::new(&TUNING, segments(servers));
    assert_eq!(index.len(), apart.len());
    for text in QUERIES {
        for required in [&[][..], &["GitHub"], &["issue", "new"]] {
            let query = Query::with_required(text, required).ranked_by(Ranking::Lexical);
            assert_eq!(index.score(&query), apart.score(&query), "{text} +{required:?}");
        }
    }
    let query = Query::new(QUERIES[0]);
    let (scores, mut analyzer) = (index.score(&query), Analyzer::new());
    assert_eq!(scores, apart.score(&query));
    let documents = servers.iter().flat_map(|server| &server.documents);
    for (doc, document) in documents.enumerate().step_by(7) {
        let why = index.explain(&query, document, &mut analyzer);
        assert_eq!(why.total, scores.of(doc), "{why}");
    }
}

#[test]
fn servers_that_come_and_go_are_found_as_if_each_were_looked_up_by_itself() {
    let mut random = Lcg(11);
    let mut made = 0;
    let mut make = |random: &mut Lcg| {
        made += 1;
        Arc::new(server(random, made))
    };
    let mut servers: Vec<Arc<Server>> = (0..100).map(|_| make(&mut random)).collect();
    let mut gone: Vec<Arc<Server>> = Vec::new();
    let mut index = Index::new(&TUNING, segments(&servers)).bundled();
    assert_same(&index, &servers);
    for round in 0..24 {
        for _ in 0..=random.below(12) {
            let at = random.below(servers.len());
            match random.below(5) {
                0 => gone.push(servers.remove(at)),
                1 => servers.insert(at, make(&mut random)),
                2 => servers[at] = make(&mut random),
                3 => servers.extend(gone.pop()),
                // One that is there twice.
                _ => servers.push(servers[at].clone()),
            }
        }
        if round % 8 == 0 {
            random.shuffle(&mut servers);
        }
        index = index.with_segments(segments(&servers));
        assert_same(&index, &servers);
        index = index.bundled();
        assert_same(&index, &servers);
    }
}

#[test]
fn what_does_not_count_is_left_out_of_a_bundle_too() {
    let mut random = Lcg(3);
    let servers: Vec<Server> = (0..70).map(|number| server(&mut random, number)).collect();
    let documents: Vec<_> = servers.iter().flat_map(|server| server.documents.clone()).collect();
    let index = Index::new(&TUNING, servers.iter().map(|it| it.segment.clone()).collect());
    let index = index.bundled();
    for of in [2, 5, documents.len()] {
        let is_in: Vec<bool> = documents.iter().map(|_| random.below(of) > 0).collect();
        let left = documents.iter().zip(&is_in).filter(|(_, is_in)| **is_in);
        let left: Vec<_> = left.map(|(document, _)| document.clone()).collect();
        let (narrowed, alone) = (index.clone().only(is_in), support::index(&left));
        for text in QUERIES {
            let query = Query::new(text);
            assert_eq!(ranking(&narrowed, &query, 99), ranking(&alone, &query, 99), "{text}");
        }
    }
}

#[test]
fn a_bundle_lasts_as_long_as_most_of_its_segments() {
    let mut random = Lcg(5);
    let servers: Vec<Arc<Server>> = (0..40).map(|at| Arc::new(server(&mut random, at))).collect();
    let all = segments(&servers);
    let bundles = |index: &Index| {
        let segments: usize = index.segments().iter().map(|segment| segment.heap_bytes()).sum();
        index.heap_bytes() - segments
    };
    let few = Index::new(&TUNING, all[..31].to_vec()).bundled();
    assert_eq!(bundles(&few), 0);
    let index = Index::new(&TUNING, all.clone());
    assert_eq!(bundles(&index), 0);
    let index = index.bundled();
    let size = bundles(&index);
    assert!(size > 0);
    assert_eq!(bundles(&index.with_segments(all[10..].to_vec())), size);
    assert_eq!(bundles(&index.with_segments(all[20..].to_vec())), 0);
    assert_eq!(bundles(&index.clone().bundled()), size, "there is nothing left to bundle");
}

#[test]
fn a_large_segment_stays_by_itself() {
    let large = |count| {
        let documents: Vec<_> = (0..count)
            .map(|at| Document::new(format!("d{at}"), [format!("w{} shared", at % 7)]))
            .collect();
        segment(&documents)
    };
    let query = Query::new("shared w3");
    for (count, is_bundled) in [(255, true), (256, false)] {
        let apart = Index::new(&TUNING, (0..32).map(|_| large(count)).collect());
        let index = apart.clone().bundled();
        assert_eq!(index.heap_bytes() > apart.heap_bytes(), is_bundled, "{count}");
        assert_eq!(index.score(&query), apart.score(&query));
    }
}
