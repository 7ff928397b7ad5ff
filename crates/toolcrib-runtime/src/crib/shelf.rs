//! A toolset's place in the crib: asks for its list, and notices when that may have changed.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use toolcrib_core::GroupId;

use crate::toolset::{Listing, Toolset};

/// How long a toolset that changes is left alone before it is listed again: servers send their
/// notices in bursts.
const SETTLING: Duration = Duration::from_millis(100);

pub(crate) struct Shelf {
    id: GroupId,
    toolset: Arc<dyn Toolset>,
    /// How often the list was asked for.
    asked: AtomicU64,
    /// Which of these lists was taken last.
    taken: Mutex<u64>,
    watch: OnceLock<AbortHandle>,
}

/// A list, or why there is none, with its number among those asked for.
pub(crate) struct Listed {
    number: u64,
    listing: Result<Listing, String>,
}

impl Shelf {
    pub(crate) fn new(toolset: Arc<dyn Toolset>) -> Self {
        Self {
            id: toolset.id(),
            toolset,
            asked: AtomicU64::new(0),
            taken: Mutex::new(0),
            watch: OnceLock::new(),
        }
    }

    pub(crate) fn id(&self) -> &GroupId {
        &self.id
    }

    pub(crate) fn toolset(&self) -> &Arc<dyn Toolset> {
        &self.toolset
    }

    /// Asks for the list. A toolset that panics or takes too long has failed.
    pub(crate) async fn list(&self, limit: Duration) -> Listed {
        let number = self.number();
        let list = AssertUnwindSafe(async { self.toolset.list().await }).catch_unwind();
        let listing = match timeout(limit, list).await {
            Ok(Ok(listing)) => listing.map_err(|error| error.to_string()),
            Ok(Err(_)) => Err("it broke while it listed its tools".to_owned()),
            Err(_) => Err(format!("it did not list its tools within {limit:?}")),
        };
        Listed { number, listing }
    }

    /// A list that needs no waiting.
    pub(crate) fn list_now(&self, list: impl FnOnce() -> Listing) -> Listed {
        let number = self.number();
        Listed { number, listing: Ok(list()) }
    }

    fn number(&self) -> u64 {
        self.asked.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Does something with a list, unless one that was asked for later has been taken: answers
    /// may overtake each other.
    pub(crate) fn take<T>(
        &self,
        listed: Listed,
        with: impl FnOnce(Result<Listing, String>) -> T,
    ) -> Option<T> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if *taken > listed.number {
            return None;
        }
        *taken = listed.number;
        Some(with(listed.listing))
    }

    /// Calls `again` whenever the list may have changed, as long as the shelf exists.
    pub(crate) fn watch<F, Fut>(&self, again: F)
    where
        F: Fn() -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send,
    {
        let Some(mut changes) = self.toolset.changes() else { return };
        self.watch.get_or_init(|| {
            let watching = async move {
                while changes.changed().await.is_ok() {
                    sleep(SETTLING).await;
                    changes.mark_unchanged();
                    again().await;
                }
            };
            tokio::spawn(watching).abort_handle()
        });
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.get() {
            watch.abort();
        }
    }
}
