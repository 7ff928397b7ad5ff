//! Whether an embedder answers, and when to ask one again that doesn't.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::embed::EmbedError;

/// How long an embedder that failed is left alone: at first, and at most.
const REST: Duration = Duration::from_secs(5);
const MOST_REST: Duration = Duration::from_secs(300);

pub(super) struct Health {
    embedder: String,
    /// What it means that it fails.
    consequence: &'static str,
    outage: Mutex<Option<Outage>>,
}

struct Outage {
    error: EmbedError,
    rest: Duration,
    until: Instant,
}

impl Health {
    pub(super) fn new(embedder: &str, consequence: &'static str) -> Self {
        Self { embedder: embedder.to_owned(), consequence, outage: Mutex::default() }
    }

    /// Why it should not be asked now.
    pub(super) fn resting(&self) -> Option<EmbedError> {
        let outage = self.lock();
        outage.as_ref().filter(|it| Instant::now() < it.until).map(|it| it.error.clone())
    }

    /// Notes a failure; says how long to wait before the next attempt.
    pub(super) fn failed(&self, error: &EmbedError) -> Duration {
        let mut outage = self.lock();
        let now = Instant::now();
        let rest = match &*outage {
            None => {
                let (embedder, consequence) = (&self.embedder, self.consequence);
                tracing::warn!(embedder, %error, "the embedder fails: {consequence}");
                REST
            }
            // Others asked at the same time.
            Some(it) if now < it.until => return it.until - now,
            Some(it) => (it.rest * 2).min(MOST_REST),
        };
        *outage = Some(Outage { error: error.clone(), rest, until: now + rest });
        rest
    }

    pub(super) fn succeeded(&self) {
        if self.lock().take().is_some() {
            tracing::info!(embedder = self.embedder, "the embedder answers again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_rest_doubles_up_to_a_limit_and_ends_with_a_success() {
        let health = Health::new("e", "so what");
        assert_eq!(health.resting(), None);
        let mut rests = Vec::new();
        for _ in 0..9 {
            let rest = health.failed(&EmbedError::Broken);
            assert_eq!(health.resting(), Some(EmbedError::Broken));
            tokio::time::advance(rest).await;
            assert_eq!(health.resting(), None);
            rests.push(rest.as_secs());
        }
        assert_eq!(rests, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        health.succeeded();
        assert_eq!(health.failed(&EmbedError::Broken), REST);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_fail_together_count_as_one() {
        let health = Health::new("e", "so what");
        assert_eq!(health.failed(&EmbedError::Broken), REST);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(health.failed(&EmbedError::Broken), Duration::from_secs(3));
    }
}
