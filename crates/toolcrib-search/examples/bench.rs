//! Times building and searching on synthetic documents, and prints one line per figure:
//! `cargo run --release -p toolcrib-search --example bench`.
#![allow(clippy::print_stdout)] // Printing is what it is for.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolcrib_search::{Analyzer, Document, Field, Fields, Index, Query, Segment};

const FIELDS: Fields = Fields::new(&[
    Field { name: "name", weight: 2.0, b: 0.5, reference_length: 3.0 },
    Field { name: "description", weight: 1.0, b: 0.75, reference_length: 30.0 },
    Field { name: "parameters", weight: 0.5, b: 0.75, reference_length: 40.0 },
]);
const VOCABULARY: usize = 20_000;
const SEARCHES: usize = 1_000;

/// Words that the documents of one segment share, as the tools of one server do.
const TOPIC: usize = 500;

/// Words drawn so that the rank of a word times its frequency is about constant, half of them from
/// the whole vocabulary and half from the topic at hand.
struct Words {
    state: u64,
    vocabulary: Vec<String>,
    topic: usize,
}

impl Words {
    fn new() -> Self {
        let mut words = Words { state: 42, vocabulary: Vec::new(), topic: 0 };
        const SYLLABLES: &[u8] = b"bcdfglmnprst";
        for _ in 0..VOCABULARY {
            let syllables = 2 + (words.unit() * 3.0) as usize;
            let mut word = String::new();
            for _ in 0..syllables {
                word.push(char::from(SYLLABLES[(words.unit() * 12.0) as usize]));
                word.push(char::from(b"aeiou"[(words.unit() * 5.0) as usize]));
            }
            word.push_str(["", "s", "ing", "er", "tion"][(words.unit() * 5.0) as usize]);
            words.vocabulary.push(word);
        }
        words
    }

    fn unit(&mut self) -> f64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn word(&mut self) -> &str {
        let (first, count) = if self.unit() < 0.5 { (0, VOCABULARY) } else { (self.topic, TOPIC) };
        let rank = (count as f64).powf(self.unit()) as usize - 1;
        &self.vocabulary[first + rank]
    }

    fn text(&mut self, count: usize, separator: &str) -> String {
        let words: Vec<_> = (0..count).map(|_| self.word().to_owned()).collect();
        words.join(separator)
    }

    fn document(&mut self, number: usize) -> Document<'static> {
        let name = format!("{}_{number}", self.text(3, "_"));
        let fields = [name.clone(), self.text(30, " "), self.text(45, " ")];
        Document::new(name, fields)
    }
}

fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    times[(times.len() as f64 * share) as usize]
}

fn measure(count: usize, segments: usize) {
    let label = format!("{count} documents in {segments} segments");
    let mut words = Words::new();
    let chunks: Vec<Vec<_>> = (0..segments)
        .map(|_| {
            words.topic = (words.unit() * (VOCABULARY - TOPIC) as f64) as usize;
            (0..count / segments).map(|number| words.document(number)).collect()
        })
        .collect();

    let start = Instant::now();
    let mut analyzer = Analyzer::new();
    let segments: Vec<_> = chunks
        .into_iter()
        .map(|documents| Arc::new(Segment::build(&mut analyzer, &FIELDS, documents)))
        .collect();
    println!("{label}: built in {:?}", start.elapsed());

    let bytes: usize = segments.iter().map(|segment| segment.heap_bytes()).sum();
    println!("{label}: {} bytes per document", bytes / count);

    let start = Instant::now();
    let index = Index::new(segments);
    println!("{label}: index made in {:?}", start.elapsed());

    for (name, length, required) in
        [("3 words", 3, false), ("8 words", 8, false), ("3 words and a required one", 3, true)]
    {
        let mut times: Vec<_> = (0..SEARCHES)
            .map(|_| {
                let (text, must) = (words.text(length, " "), words.word().to_owned());
                let required = if required { &[&*must][..] } else { &[] };
                let start = Instant::now();
                let query = Query::with_required(&text, required);
                black_box(index.search(&query, 10, |doc| doc % 10 != 0));
                start.elapsed()
            })
            .collect();
        let (p50, p99) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
        println!("{label}: search for {name}: p50 {p50:?}, p99 {p99:?}");
    }
}

fn main() {
    measure(10_000, 400);
    measure(10_000, 1);
    measure(100_000, 500);
}
