//! Long work, where it holds up nobody.

use std::panic::resume_unwind;

use tokio::task::spawn_blocking;

/// Bytes that take long to go through.
const LONG: usize = 256 << 10;

/// Does work on so many bytes: at once if they are few, else on a thread for such work, so that
/// nobody waits for its end but who wants it.
pub async fn aside<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= LONG {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The program ends, and whoever waits for this with it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread::current;

    use super::*;

    #[tokio::test]
    async fn only_long_work_is_done_elsewhere() {
        let here = current().id();
        assert_eq!(aside(LONG, || current().id()).await, here);
        assert_ne!(aside(LONG + 1, || current().id()).await, here);
    }
}
