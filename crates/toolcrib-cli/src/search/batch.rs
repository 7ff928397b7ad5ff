//! Ranking a file of queries, for evaluation.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolcrib::{SearchRow, View};

use crate::args::Context;
use crate::embedder::Ranker;
use crate::output::{self, counted, number};

/// One line of the file: the id goes out as it came in, whatever it is.
#[derive(Deserialize)]
pub(super) struct Query {
    id: Box<RawValue>,
    query: String,
}

#[derive(Serialize)]
struct Ranking<'a> {
    id: &'a RawValue,
    ranked: Vec<String>,
}

#[derive(Serialize)]
struct Summary {
    queries: usize,
    seconds: f64,
    p50_us: u64,
    p99_us: u64,
    /// Queries that asked for nothing, and got it.
    unanswered: usize,
}

/// Reads all queries before any is ranked, so that a bad line costs no time.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Query>> {
    let shown = file.display();
    let text =
        fs::read_to_string(file).with_context(|| format!("can't read queries from {shown}"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).with_context(|| {
                format!("{shown}, line {}: expected {{\"id\": …, \"query\": \"…\"}}", at + 1)
            })
        })
        .collect()
}

pub(super) fn rank(
    queries: &[Query],
    view: &View,
    ranker: &Ranker,
    limit: usize,
    run: &Path,
    context: &Context,
) -> anyhow::Result<()> {
    let to_stdout = run == Path::new("-");
    let shown = run.display();
    let mut out: BufWriter<Box<dyn Write>> = BufWriter::new(if to_stdout {
        Box::new(io::stdout().lock())
    } else {
        Box::new(File::create(run).with_context(|| format!("can't write {shown}"))?)
    });
    let mut progress = Progress::new(queries.len(), context);
    let mut times: Vec<Duration> = Vec::with_capacity(queries.len());
    let mut unanswered = 0;
    let begin = Instant::now();
    for Query { id, query } in queries {
        let start = Instant::now();
        let said = ranker.ask(query, context);
        let page = view.search_with(said.meaning(), query, limit);
        times.push(start.elapsed());
        unanswered += usize::from(page.is_err());
        let rows = page.map(|page| page.results).unwrap_or_default();
        let ranked = rows.iter().map(identity).collect();
        serde_json::to_writer(&mut out, &Ranking { id, ranked })?;
        out.write_all(b"\n")?;
        progress.advance(times.len());
    }
    out.flush()?;
    progress.clear();
    let summary = Summary::new(times, begin.elapsed(), unanswered);
    if context.json && !to_stdout {
        return output::json(&summary);
    }
    context.note(&format!(
        "{} queries over {} in {:.2} s; p50 {} µs, p99 {} µs{}",
        number(summary.queries as u64),
        counted(view.len(), "tool"),
        summary.seconds,
        number(summary.p50_us),
        number(summary.p99_us),
        if unanswered > 0 { format!("; {unanswered} asked for nothing") } else { String::new() },
    ));
    Ok(())
}

fn identity(row: &SearchRow) -> String {
    match &row.server {
        Some(server) => format!("{server}/{}", row.tool),
        None => row.tool.to_string(),
    }
}

impl Summary {
    fn new(mut times: Vec<Duration>, whole: Duration, unanswered: usize) -> Self {
        times.sort_unstable();
        let at = |share: usize| {
            let place = (times.len() * share).div_ceil(100).saturating_sub(1);
            times.get(place).map_or(0, |time| time.as_micros() as u64)
        };
        Self {
            queries: times.len(),
            seconds: (whole.as_secs_f64() * 1e3).round() / 1e3,
            p50_us: at(50),
            p99_us: at(99),
            unanswered,
        }
    }
}

/// A line on the terminal for work that takes longer than a moment.
struct Progress {
    total: usize,
    begin: Instant,
    shown: Option<Instant>,
    wanted: bool,
}

impl Progress {
    fn new(total: usize, context: &Context) -> Self {
        let wanted = !context.quiet && io::stderr().is_terminal();
        Self { total, begin: Instant::now(), shown: None, wanted }
    }

    fn advance(&mut self, done: usize) {
        let due = self.shown.unwrap_or(self.begin + Duration::from_secs(1));
        if self.wanted && Instant::now() >= due {
            let [done, total] = [done, self.total].map(|count| number(count as u64));
            output::progress(&format!("{done} of {total} queries"));
            self.shown = Some(Instant::now() + Duration::from_millis(200));
        }
    }

    fn clear(&self) {
        if self.shown.is_some() {
            output::progress("");
        }
    }
}
