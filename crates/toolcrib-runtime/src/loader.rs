//! Loading a group once, however many calls wait for it.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use tokio::time::timeout;
use toolcrib_core::{GroupId, ToolSpec};

use crate::toolset::Toolset;

/// Brings the toolset of a group that was declared without it.
pub trait Loader: Send + Sync + 'static {
    /// Brings it, or says why not. The reason is shown to the model.
    fn load(&self) -> BoxFuture<'static, Result<Arc<dyn Toolset>, String>>;
}

impl<F, Fut, T, E> Loader for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, E>> + Send + 'static,
    T: Toolset,
    E: std::fmt::Display,
{
    fn load(&self) -> BoxFuture<'static, Result<Arc<dyn Toolset>, String>> {
        let loading = self();
        async move {
            match loading.await {
                Ok(toolset) => Ok(Arc::new(toolset) as Arc<dyn Toolset>),
                Err(error) => Err(error.to_string()),
            }
        }
        .boxed()
    }
}

/// A group's toolset with what it lists.
#[derive(Clone)]
pub(crate) struct LoadedGroup {
    pub(crate) toolset: Arc<dyn Toolset>,
    pub(crate) specs: Vec<ToolSpec>,
}

type Loading = Shared<BoxFuture<'static, Result<LoadedGroup, String>>>;

/// The loads of one conversation. A success is kept; a failure is told to all who waited for it
/// and then forgotten, so the next call tries again.
#[derive(Default)]
pub(crate) struct Loads(Mutex<HashMap<GroupId, Loading>>);

impl Loads {
    pub(crate) async fn get(
        &self,
        id: &GroupId,
        loader: &Arc<dyn Loader>,
        limit: Duration,
    ) -> Result<LoadedGroup, String> {
        let loading = self.lock().entry(id.clone()).or_insert_with(|| start(loader, limit)).clone();
        let result = loading.clone().await;
        if result.is_err() {
            let mut loads = self.lock();
            // Only what failed is forgotten, not a new attempt that began meanwhile.
            if loads.get(id).is_some_and(|current| current.ptr_eq(&loading)) {
                loads.remove(id);
            }
        }
        result
    }

    /// What is loaded already, for a copy of the conversation.
    pub(crate) fn fork(&self) -> Self {
        let done = self.lock();
        let done = done.iter().filter(|(_, loading)| matches!(loading.peek(), Some(Ok(_))));
        Self(Mutex::new(done.map(|(id, loading)| (id.clone(), loading.clone())).collect()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<GroupId, Loading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(loader: &Arc<dyn Loader>, limit: Duration) -> Loading {
    let loader = loader.clone();
    let work = async move {
        let toolset = loader.load().await?;
        let listing = toolset.list().await.map_err(|error| error.to_string())?;
        Ok(LoadedGroup { toolset, specs: listing.specs })
    };
    let limited = async move {
        let work = std::panic::AssertUnwindSafe(work).catch_unwind();
        match timeout(limit, work).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err("the loader panicked".to_owned()),
            Err(_) => Err(format!("it took longer than {limit:?}")),
        }
    };
    // A task of its own, so that it goes on when the call that began it is given up.
    let loading = tokio::spawn(limited);
    let loading = async { loading.await.unwrap_or_else(|_| Err("it was given up".to_owned())) };
    loading.boxed().shared()
}
