//! A toolset whose definitions are compared with those that were approved.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use toolcrib_core::{Fingerprint, GroupId, ToolName, ToolSpec};

use crate::journal::StorageError;
use crate::pins::{PinChange, PinChangeKind, PinStore, Pins, Wording};
use crate::result::ToolResult;
use crate::server::Server;
use crate::toolset::{CallError, Invocation, Listing, Toolset};

/// How often it is looked whether what is held back has been approved.
const APPROVED_SOON: Duration = Duration::from_secs(2);

/// The most changes remembered as told of.
const MOST_TOLD: usize = 10_000;

/// What to do with definitions that are not those that were approved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Definitions {
    /// Take them as they come, and count them as approved.
    Follow,
    /// Take them, and tell of them until they are approved.
    #[default]
    Tell,
    /// Leave the tools out until they are approved.
    Hold,
}

/// Compares what a toolset lists with what was approved of it. What is listed first is trusted.
///
/// A clone shares what it knows.
#[derive(Clone)]
pub struct Pinned<T> {
    inner: T,
    server: Arc<str>,
    key: Arc<str>,
    definitions: Definitions,
    store: Arc<dyn PinStore>,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    held: Mutex<HashSet<ToolName>>,
    told: Mutex<HashSet<Fingerprint>>,
    /// Of the pins that were last compared with.
    revision: AtomicU64,
}

impl<T> Pinned<T> {
    /// Wraps `inner`, which people call `server`; what was approved is kept under `key`.
    pub fn new(
        inner: T,
        server: impl Into<Arc<str>>,
        key: impl Into<Arc<str>>,
        definitions: Definitions,
        store: Arc<dyn PinStore>,
    ) -> Self {
        let (server, key, state) = (server.into(), key.into(), Arc::default());
        Self { inner, server, key, definitions, store, state }
    }

    /// What is wrapped.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// Compares a list with what was approved: the tools that are otherwise.
    async fn compare(&self, specs: &[ToolSpec]) -> Result<Vec<PinChange>, StorageError> {
        let whole = whole(specs);
        if let Some(mark) = self.store.mark(&self.key)?
            && mark.whole == Some(whole)
        {
            self.state.revision.store(mark.revision, Ordering::Relaxed);
            return Ok(Vec::new());
        }
        let specs = specs.to_vec();
        let words = move || {
            let own = |spec: &ToolSpec| (spec.name().tool().to_owned(), Wording::of(spec));
            specs.iter().map(own).collect::<BTreeMap<_, _>>()
        };
        // Thousands of definitions take a while to spell: not where others wait.
        let offered = tokio::task::spawn_blocking(words).await.map_err(StorageError::new)?;
        let (server, follows) = (self.server.clone(), self.definitions == Definitions::Follow);
        let edit = move |kept: Option<Pins>| {
            let before = kept.clone();
            let mut pins = match kept {
                None => Pins::first(&server, offered.clone()),
                Some(mut pins) => {
                    pins.take_in(offered.clone());
                    pins
                }
            };
            if follows {
                pins.approve(|_, _| true);
            }
            let is_approved = pins.changes().is_empty();
            let is_news = before.as_ref() != Some(&pins) || is_approved;
            is_news.then(|| (pins, is_approved.then_some(whole)))
        };
        let Some((pins, mark)) = self.store.edit(&self.key, Box::new(edit)).await? else {
            return Ok(Vec::new());
        };
        self.state.revision.store(mark.revision, Ordering::Relaxed);
        Ok(pins.changes())
    }

    /// Tells of changes, of each once.
    fn tell(&self, changes: &[PinChange]) {
        let mut told = self.state.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() > MOST_TOLD {
            told.clear();
        }
        let what = match self.definitions {
            Definitions::Hold => "held back until it is approved",
            Definitions::Tell | Definitions::Follow => "used as it is now",
        };
        for change in changes {
            let print = change.after.fingerprint();
            if told.insert(Fingerprint::of([change.tool.as_bytes(), print.to_string().as_bytes()]))
            {
                let how = match &change.kind {
                    PinChangeKind::New => "is new".to_owned(),
                    PinChangeKind::Changed => "has changed".to_owned(),
                    PinChangeKind::Renamed { from } => format!("was `{from}`"),
                    PinChangeKind::Taken { from } => format!("is now what `{from}` was"),
                };
                let server = &*self.server;
                tracing::warn!(server, tool = change.tool, "{how}; {what}: see `toolcrib review`");
            }
        }
    }

    fn hold(&self, listing: &mut Listing, changes: &[PinChange]) {
        let names: HashSet<&str> = changes.iter().map(|change| change.tool.as_str()).collect();
        let is_held = |spec: &ToolSpec| names.contains(spec.name().tool());
        let specs = std::mem::take(&mut listing.specs);
        let (held, kept): (Vec<ToolSpec>, Vec<ToolSpec>) = specs.into_iter().partition(is_held);
        listing.specs = kept;
        listing.held.extend(held.iter().map(|spec| spec.name().clone()));
    }
}

impl<T: Toolset> Toolset for Pinned<T> {
    fn id(&self) -> GroupId {
        self.inner.id()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        Box::pin(async {
            let mut listing = self.inner.list().await?;
            let changes = match self.compare(&listing.specs).await {
                Ok(changes) => changes,
                // What can't be compared can't be known to be as approved.
                Err(error) if self.definitions == Definitions::Hold => {
                    return Err(CallError::Tell(format!(
                        "its definitions can't be compared with those approved: {error}"
                    )));
                }
                Err(error) => {
                    let server = &*self.server;
                    tracing::warn!(server, %error, "its definitions were not compared");
                    return Ok(listing);
                }
            };
            self.tell(&changes);
            if self.definitions == Definitions::Hold {
                self.hold(&mut listing, &changes);
                let mut held = self.state.held.lock().unwrap_or_else(PoisonError::into_inner);
                *held = listing.held.iter().cloned().collect();
            }
            Ok(listing)
        })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        let held = self.state.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains(&invocation.tool) {
            let error = format!("`{}` is not offered", invocation.tool);
            return Box::pin(async { Err(CallError::Tell(error)) });
        }
        drop(held);
        self.inner.call(invocation)
    }

    /// Also when what is held back has been approved, perhaps by another program.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        let inner = self.inner.changes();
        if self.definitions != Definitions::Hold {
            return inner;
        }
        let (sender, receiver) = watch::channel(0);
        let (state, store, key) = (self.state.clone(), self.store.clone(), self.key.clone());
        tokio::spawn(async move {
            let mut look = interval(APPROVED_SOON);
            look.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut inner = inner;
            loop {
                let moved = tokio::select! {
                    () = sender.closed() => return,
                    moved = changed(&mut inner) => moved,
                    _ = look.tick() => is_approved(&state, &*store, &key),
                };
                if moved {
                    sender.send_modify(|count| *count += 1);
                }
            }
        });
        Some(receiver)
    }

    fn server(&self) -> Option<&dyn Server> {
        self.inner.server()
    }
}

/// Waits for a change; for ever where none comes.
async fn changed(watched: &mut Option<watch::Receiver<u64>>) -> bool {
    if let Some(receiver) = watched
        && receiver.changed().await.is_ok()
    {
        return true;
    }
    *watched = None;
    std::future::pending().await
}

/// Whether pins have changed since they were compared with while something is held back.
fn is_approved(state: &State, store: &dyn PinStore, key: &str) -> bool {
    let holds = !state.held.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    let known = state.revision.load(Ordering::Relaxed);
    holds && matches!(store.mark(key), Ok(Some(mark)) if mark.revision != known)
}

/// Equal for lists that say the same in the same words: quick to make, and enough to know that
/// nothing has changed.
fn whole(specs: &[ToolSpec]) -> Fingerprint {
    let print = |spec: &ToolSpec| {
        let says = serde_json::to_string(spec.annotations()).unwrap_or_default();
        Fingerprint::of([
            spec.name().tool().as_bytes(),
            spec.description().as_bytes(),
            spec.input_schema().get().as_bytes(),
            spec.extra().unwrap_or_default().as_bytes(),
            says.as_bytes(),
        ])
    };
    let prints: Vec<String> = specs.iter().map(|spec| print(spec).to_string()).collect();
    Fingerprint::of(prints.iter().map(String::as_bytes))
}
