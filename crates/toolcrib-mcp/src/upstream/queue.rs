//! Whose turn it is: so many calls run, so many wait, and the next is told at once.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Duration, timeout};

/// The calls to a server.
pub(super) struct Queue {
    places: Semaphore,
    most_running: usize,
    waiting: AtomicUsize,
    most_waiting: usize,
}

/// Counts one who waits.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    pub(super) fn new(running: usize, waiting: usize) -> Self {
        let most_running = running.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            places: Semaphore::new(most_running),
            most_running,
            waiting: AtomicUsize::new(0),
            most_waiting: waiting,
        }
    }

    /// Waits for its turn, which lasts until what is returned is dropped.
    pub(super) async fn turn(
        &self,
        limit: Option<Duration>,
    ) -> Result<SemaphorePermit<'_>, String> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= self.most_waiting {
            return Err(format!("is busy: {before} calls wait; try again later"));
        }
        let turn = timeout(limit.unwrap_or(Duration::MAX), self.places.acquire()).await;
        // It is never closed, so that it is the time that is up.
        turn.ok().and_then(Result::ok).ok_or_else(|| {
            let running = self.most_running;
            format!(
                "is busy: {running} calls run, and none ended within {:?}",
                limit.unwrap_or_default()
            )
        })
    }

    pub(super) fn running(&self) -> usize {
        self.most_running - self.places.available_permits()
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_too_many_is_told_at_once_and_the_others_have_their_turn() {
        let queue = Queue::new(1, 1);
        let first = queue.turn(None).await.unwrap();
        let second = queue.turn(Some(Duration::from_secs(60)));
        tokio::pin!(second);
        assert!(futures::poll!(&mut second).is_pending());
        assert_eq!((queue.running(), queue.waiting()), (1, 1));
        let third = queue.turn(None).await.map(drop).unwrap_err();
        assert_eq!(third, "is busy: 1 calls wait; try again later");
        drop(first);
        let second = second.await.unwrap();
        assert_eq!((queue.running(), queue.waiting()), (1, 0));
        let late = queue.turn(Some(Duration::from_millis(5))).await.map(drop).unwrap_err();
        assert_eq!(late, "is busy: 1 calls run, and none ended within 5ms");
        drop(second);
        assert_eq!((queue.running(), queue.waiting()), (0, 0));
    }
}
