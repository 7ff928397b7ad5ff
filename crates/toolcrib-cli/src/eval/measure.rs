//! Ranking the queries of sets, and what came of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use toolcrib::Corpus;
use toolcrib::search::{Ranking, Tuning};

use super::metrics::{DEPTH, Outcome};
use super::set::{Query, Set, Tools};
use crate::output::Progress;

/// How often the bar is drawn anew, and how long nothing needs one.
const TICK: Duration = Duration::from_millis(100);

/// Which tools a query is ranked over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Those of its own set.
    Own,
    /// Those of all sets.
    Pool,
}

impl Over {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Pool => "pool",
        }
    }
}

/// Some queries of a set and the tools they are ranked over.
pub(super) struct Part<'a> {
    pub(super) set: &'a Set,
    pub(super) queries: Vec<&'a Query>,
    pub(super) corpus: Arc<Corpus>,
    /// How long it took to index the tools, if that was done here.
    pub(super) build: Option<Duration>,
}

/// What a query got.
pub(super) struct Answer {
    pub(super) ranked: Vec<Arc<str>>,
    pub(super) outcome: Outcome,
    pub(super) time: Duration,
}

/// All parts, ranked in one way.
pub(super) struct Run {
    pub(super) over: Over,
    pub(super) ranking: Ranking,
    /// By part, then by query.
    pub(super) answers: Vec<Vec<Answer>>,
}

/// Indexes the tools that the queries of each set are ranked over.
pub(super) fn index<'a>(
    over: Over,
    tuning: &Tuning,
    sets: &'a [Set],
    chosen: impl Fn(&'a Set) -> Vec<&'a Query>,
    progress: &Progress,
) -> Vec<Part<'a>> {
    let chosen = sets.iter().map(|set| (set, chosen(set)));
    let chosen = chosen.filter(|(_, queries)| !queries.is_empty());
    match over {
        Over::Own => chosen
            .map(|(set, queries)| {
                progress.say(&format!("indexing {}", set.name));
                let begin = Instant::now();
                let corpus = Arc::new(set.tools.corpus(tuning));
                let is_indexed = matches!(set.tools, Tools::Seen(_));
                let build = (!is_indexed).then(|| begin.elapsed());
                Part { set, queries, corpus, build }
            })
            .collect(),
        Over::Pool => {
            progress.say("indexing the pool");
            let begin = Instant::now();
            let corpus =
                Arc::new(Corpus::tuned(sets.iter().flat_map(|set| set.tools.each()), tuning));
            let build = Some(begin.elapsed());
            chosen
                .map(|(set, queries)| Part { set, queries, corpus: corpus.clone(), build })
                .collect()
        }
    }
}

/// Ranks every query of every part.
pub(super) fn run(
    over: Over,
    ranking: Ranking,
    parts: &[Part<'_>],
    jobs: usize,
    meter: &Meter<'_>,
) -> Run {
    let answers = parts.iter().map(|part| part.answers(ranking, jobs, meter)).collect();
    Run { over, ranking, answers }
}

impl Part<'_> {
    fn answers(&self, ranking: Ranking, jobs: usize, meter: &Meter<'_>) -> Vec<Answer> {
        // What is made at the first search is not part of any other.
        if let Some(query) = self.queries.first() {
            self.corpus.search(&query.text, DEPTH, ranking);
        }
        let share = self.queries.len().div_ceil(jobs).max(1);
        let answer = |queries: &[&Query]| -> Vec<Answer> {
            queries.iter().map(|query| self.answer(query, ranking, meter)).collect()
        };
        if jobs == 1 {
            return answer(&self.queries);
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .queries
                .chunks(share)
                .map(|queries| scope.spawn(move || answer(queries)))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined
                .flat_map(|answers| answers.unwrap_or_else(|it| std::panic::resume_unwind(it)))
                .collect()
        })
    }

    fn answer(&self, query: &Query, ranking: Ranking, meter: &Meter<'_>) -> Answer {
        let begin = Instant::now();
        let found = self.corpus.search(&query.text, DEPTH, ranking);
        let time = begin.elapsed();
        let ranked: Vec<Arc<str>> = found.into_iter().map(|tool| tool.id).collect();
        let ids: Vec<&str> = ranked.iter().map(|id| &**id).collect();
        let outcome = Outcome::new(&query.needs, &ids);
        meter.advance(&self.set.name);
        Answer { ranked, outcome, time }
    }
}

/// Counts queries, for a person who waits.
pub(super) struct Meter<'a> {
    progress: &'a Progress,
    total: usize,
    done: AtomicUsize,
    due: Mutex<Instant>,
}

impl<'a> Meter<'a> {
    pub(super) fn new(progress: &'a Progress, total: usize) -> Self {
        Self { progress, total, done: AtomicUsize::new(0), due: Mutex::new(Instant::now() + TICK) }
    }

    pub(super) fn advance(&self, set: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.progress.is_wanted() {
            return;
        }
        // Whoever comes while another draws has nothing to add.
        if let Ok(mut due) = self.due.try_lock()
            && Instant::now() >= *due
        {
            self.progress.bar(done, self.total, set);
            *due = Instant::now() + TICK;
        }
    }
}
