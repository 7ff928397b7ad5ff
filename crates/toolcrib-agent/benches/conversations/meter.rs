//! How long the loop and the engine are busy: the time spent polling a run between two requests,
//! less what was spent polling tools. Waiting is not counted, so a crowd makes no difference.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{self, Future};

/// What lies between two boundaries: the beginning of a run, an answer, a request, the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Begin,
    Search,
    Load,
    Call,
    End,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Begin, Self::Search, Self::Load, Self::Call, Self::End];

    /// Whether it leads from an answer to the next request.
    pub(crate) fn is_between(self) -> bool {
        matches!(self, Self::Search | Self::Load | Self::Call)
    }

    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Begin => "  from the start to the first request",
            Self::Search => "  a turn with a search",
            Self::Load => "  a turn with a load",
            Self::Call => "  a turn with two calls",
            Self::End => "  from the last answer to the end",
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) kind: Kind,
    pub(crate) busy: Duration,
}

/// The clock of one conversation.
pub(crate) struct Meter(Mutex<Clock>);

struct Clock {
    kind: Option<Kind>,
    /// From when on time counts.
    mark: Instant,
    busy: Duration,
    samples: Vec<Sample>,
}

impl Meter {
    pub(crate) fn new() -> Self {
        // Room for all samples, so that none is taken for a conversation's memory.
        let samples = Vec::with_capacity(32);
        Self(Mutex::new(Clock { kind: None, mark: Instant::now(), busy: Duration::ZERO, samples }))
    }

    pub(crate) fn clear(&self) {
        self.clock().samples.clear();
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.clock().samples.clone()
    }

    pub(crate) fn begin(&self, kind: Kind) {
        let mut clock = self.clock();
        (clock.kind, clock.busy, clock.mark) = (Some(kind), Duration::ZERO, Instant::now());
    }

    pub(crate) fn end(&self) {
        let mut clock = self.clock();
        if let Some(kind) = clock.kind.take() {
            let busy = clock.busy + clock.mark.elapsed();
            clock.samples.push(Sample { kind, busy });
        }
    }

    /// A run whose polling counts.
    pub(crate) async fn timed<F: Future>(&self, run: F) -> F::Output {
        let mut run = pin!(run);
        future::poll_fn(|context| {
            self.clock().mark = Instant::now();
            let polled = run.as_mut().poll(context);
            let mut clock = self.clock();
            let counted = clock.mark.elapsed();
            clock.busy += counted;
            clock.mark = Instant::now();
            polled
        })
        .await
    }

    /// A tool whose polling doesn't.
    pub(crate) async fn untimed<F: Future>(&self, tool: F) -> F::Output {
        let mut tool = pin!(tool);
        future::poll_fn(|context| {
            let started = Instant::now();
            let polled = tool.as_mut().poll(context);
            self.clock().mark += started.elapsed();
            polled
        })
        .await
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
