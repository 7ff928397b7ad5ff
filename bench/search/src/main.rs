//! How fast tools are found, beside the crates `bm25` and `tantivy` on the same texts.
//!
//! ```text
//! cargo run --release --manifest-path bench/search/Cargo.toml              1,000, 10,000 and 100,000 tools
//! cargo run --release --manifest-path bench/search/Cargo.toml -- 1000      one size
//! cargo run --release --manifest-path bench/search/Cargo.toml -- FOLDER    tools of your own
//! ```
//!
//! A folder has `tools.jsonl` with lines of `{server, name, description, inputSchema}`, and maybe
//! `queries.jsonl` with lines of `{query}`; or it has such folders; or it has tool lists,
//! `{server, tools: [...]}`, as `*.json`. Without one, tools are made up, the same ones every time.
//!
//! Searches run on one thread, one after the other, and each index is built by one. A time is that
//! of a whole search, from the text of the query to the ten best tools. The peers are given the
//! same fields as text, `bm25` in one piece as it knows no fields; both stem English, and neither
//! compares by meaning.

mod engines;
mod tools;

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use toolcrib_core::Corpus;
use toolcrib_search::{Analyzer, Document, Index, Query, Ranking, Segment};

use engines::{Bm25, Tantivy};
use tools::Tools;

const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// How many tools a search returns.
pub(crate) const LIMIT: usize = 10;
/// How often each query is asked.
const ROUNDS: usize = 5;
/// How many servers are added and removed again.
const CHANGES: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    // Before anything else has used it.
    let table = start_up();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut columns = Vec::new();
    if arguments.is_empty() {
        for size in SIZES {
            columns.push(Column::measure(Tools::synthetic(size))?);
        }
    }
    for argument in &arguments {
        let tools = match argument.parse() {
            Ok(size) => Tools::synthetic(size),
            Err(_) => Tools::read(Path::new(argument))?,
        };
        columns.push(Column::measure(tools)?);
    }
    print(&columns, table);
    Ok(())
}

/// What the first search of a process costs more than the second: reading the table of vectors,
/// and whatever else is made once.
fn start_up() -> Duration {
    let first = || {
        let begin = Instant::now();
        let document = Document::new("read_file", ["read_file", "files", "Reads a file."]);
        let segment = Segment::build(&mut Analyzer::new(), &Corpus::TUNING, [document]);
        let index = Index::new(&Corpus::TUNING, vec![Arc::new(segment)]);
        black_box(index.search(&Query::new("read a file"), LIMIT));
        begin.elapsed()
    };
    let cold = first();
    cold.saturating_sub(first())
}

/// The figures of one set of tools.
struct Column {
    tools: usize,
    servers: usize,
    queries: usize,
    build: Duration,
    bytes_per_tool: usize,
    add: Duration,
    remove: Duration,
    lexical: Latency,
    by_meaning: Latency,
    hybrid: Latency,
    bm25_build: Duration,
    bm25: Latency,
    tantivy_build: Duration,
    tantivy: Latency,
}

/// Of many searches.
struct Latency {
    median: Duration,
    p99: Duration,
    /// Tools found on average: a search that finds nothing is fast.
    found: f64,
}

impl Latency {
    fn of(queries: &[String], mut search: impl FnMut(&str) -> usize) -> Self {
        let found: usize = queries.iter().map(|query| search(query)).sum();
        let mut times = Vec::with_capacity(ROUNDS * queries.len());
        for _ in 0..ROUNDS {
            for query in queries {
                let begin = Instant::now();
                black_box(search(black_box(query)));
                times.push(begin.elapsed());
            }
        }
        let found = found as f64 / queries.len().max(1) as f64;
        Self { median: percentile(&mut times, 50), p99: percentile(&mut times, 99), found }
    }
}

impl Column {
    fn measure(tools: Tools) -> Result<Self, Box<dyn Error>> {
        let say = |what: &str| eprintln!("{} tools: {what}", number(tools.len()));
        say("toolcrib");
        let mut analyzer = Analyzer::new();
        let begin = Instant::now();
        let segments: Vec<Arc<Segment>> = tools
            .servers
            .iter()
            .map(|server| {
                Arc::new(Segment::build(&mut analyzer, &Corpus::TUNING, server.documents()))
            })
            .collect();
        let index = Index::new(&Corpus::TUNING, segments).bundled();
        let build = begin.elapsed();
        let bytes = index.heap_bytes();
        let (add, remove) = change(&tools, &index, &mut analyzer);
        let latency = |ranking| {
            Latency::of(&tools.queries, |text| {
                let query = Query::new(text).ranked_by(ranking);
                index.search(&query, LIMIT).hits.len()
            })
        };
        let (lexical, by_meaning, hybrid) =
            (latency(Ranking::Lexical), latency(Ranking::Semantic), latency(Ranking::Hybrid));

        say("bm25");
        let begin = Instant::now();
        let bm25 = Bm25::build(&tools);
        let bm25_build = begin.elapsed();
        let of_bm25 = Latency::of(&tools.queries, |text| bm25.search(text));
        drop(bm25);

        say("tantivy");
        let begin = Instant::now();
        let tantivy = Tantivy::build(&tools)?;
        let tantivy_build = begin.elapsed();
        let mut failed = None;
        let of_tantivy = Latency::of(&tools.queries, |text| {
            tantivy.search(text).unwrap_or_else(|error| {
                failed = Some(error);
                0
            })
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        Ok(Self {
            tools: tools.len(),
            servers: tools.servers.len(),
            queries: tools.queries.len(),
            build,
            bytes_per_tool: bytes / tools.len().max(1),
            add,
            remove,
            lexical,
            by_meaning,
            hybrid,
            bm25_build,
            bm25: of_bm25,
            tantivy_build,
            tantivy: of_tantivy,
        })
    }
}

/// What it costs to index one more server, and to take one out: a new index either way, which
/// shares the segments of all others. Means, as every so often segments are bundled.
fn change(tools: &Tools, index: &Index, analyzer: &mut Analyzer) -> (Duration, Duration) {
    let mut index = index.clone();
    let begin = Instant::now();
    for server in tools.servers.iter().cycle().take(CHANGES) {
        let mut segments = index.segments().to_vec();
        segments.push(Arc::new(Segment::build(analyzer, &Corpus::TUNING, server.documents())));
        index = index.with_segments(segments).bundled();
    }
    let added = begin.elapsed() / CHANGES as u32;
    let begin = Instant::now();
    for _ in 0..CHANGES {
        let mut segments = index.segments().to_vec();
        segments.pop();
        index = index.with_segments(segments).bundled();
    }
    black_box(index);
    (added, begin.elapsed() / CHANGES as u32)
}

fn percentile(times: &mut [Duration], share: usize) -> Duration {
    times.sort_unstable();
    let place = (times.len() * share).div_ceil(100).saturating_sub(1);
    times.get(place).copied().unwrap_or_default()
}

/// The median a search should stay below with so many tools.
fn target(tools: usize) -> Duration {
    Duration::from_micros(match tools {
        0..=1_000 => 150,
        1_001..=10_000 => 400,
        _ => 4_000,
    })
}

const MOST_BYTES: usize = 2_000;
const LONGEST_BUILD: Duration = Duration::from_secs(1);
const LONGEST_START: Duration = Duration::from_millis(20);

fn print(columns: &[Column], table: Duration) {
    let heads: Vec<String> = columns
        .iter()
        .map(|it| format!("{} tools, {} servers", number(it.tools), number(it.servers)))
        .collect();
    println!("| | {} | target |", heads.join(" | "));
    println!("|---|{}---|", "---|".repeat(columns.len()));
    let row = |name: &str, target: &str, cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = columns.iter().map(cell).collect();
        println!("| {name} | {} | {target} |", cells.join(" | "));
    };
    let medians = "150 µs, 400 µs, 4 ms at 1,000, 10,000, 100,000";
    let latency = |it: &Latency, most: Option<Duration>| {
        let missed = missed(most.is_some_and(|most| it.median > most));
        format!("{}{missed} (p99 {})", time(it.median), time(it.p99))
    };
    row("**toolcrib**: build", "10,000 under 1 s", &|it| {
        let late = it.tools <= 10_000 && it.build > LONGEST_BUILD;
        format!("{}{}", time(it.build), missed(late))
    });
    row("memory a tool", "under 2 kB", &|it| {
        format!("{} bytes{}", number(it.bytes_per_tool), missed(it.bytes_per_tool > MOST_BYTES))
    });
    row("add one server", "in proportion to the server", &|it| time(it.add));
    row("remove one server", "", &|it| time(it.remove));
    row("search, hybrid", medians, &|it| latency(&it.hybrid, Some(target(it.tools))));
    row("search, lexical", "", &|it| latency(&it.lexical, None));
    row("search, static", "", &|it| latency(&it.by_meaning, None));
    row("**bm25**: build", "", &|it| time(it.bm25_build));
    row("search", "", &|it| latency(&it.bm25, None));
    row("**tantivy**: build", "", &|it| time(it.tantivy_build));
    row("search", "", &|it| latency(&it.tantivy, None));
    row("queries; found of ten: hybrid, lexical, static, bm25, tantivy", "", &|it| {
        let all = [&it.hybrid, &it.lexical, &it.by_meaning, &it.bm25, &it.tantivy];
        let found: Vec<String> = all.iter().map(|it| format!("{:.1}", it.found)).collect();
        format!("{}; {}", it.queries, found.join(", "))
    });
    println!(
        "\nThe first search of a process takes {}{} more than the second: it reads the table of \
         vectors. Target: under 20 ms.",
        time(table),
        missed(table > LONGEST_START)
    );
    println!(
        "Times of searches are medians, those of changes means. ✗ marks a target that was missed."
    );
}

fn missed(is_missed: bool) -> &'static str {
    if is_missed { " ✗" } else { "" }
}

fn time(time: Duration) -> String {
    match time.as_nanos() {
        0..1_000_000 => format!("{:.1} µs", time.as_secs_f64() * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", time.as_secs_f64() * 1e3),
        _ => format!("{:.2} s", time.as_secs_f64()),
    }
}

/// With its thousands apart.
fn number(number: usize) -> String {
    let digits = number.to_string();
    let head = digits.len() % 3;
    let mut parts = vec![&digits[..head]];
    parts.extend((head..digits.len()).step_by(3).map(|at| &digits[at..at + 3]));
    parts.retain(|part| !part.is_empty());
    parts.join(",")
}
