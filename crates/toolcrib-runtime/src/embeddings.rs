//! An embedder in use: what it has made is kept, what it takes is limited, and nothing waits for
//! it that can do without.

mod health;

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use indexmap::IndexMap;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use toolcrib_core::{Catalog, Unembedded};

use crate::embed::{Embed, EmbedError, Purpose, TextKey, VectorStore};
use health::Health;

/// How long a search waits for the vector of its query, unless told.
const QUERY_LIMIT: Duration = Duration::from_millis(1_500);

/// How long a request may take that no search waits for any more.
const LONGEST: Duration = Duration::from_secs(120);

/// The most texts in one request.
const MOST_TEXTS: usize = 64;

/// The most dimensions a vector may have.
const MOST_DIMENSIONS: usize = 16_384;

/// Queries whose vectors are remembered. They are not written anywhere.
const MOST_QUERIES: usize = 256;

/// How near (cosine) two vectors of one text lie if one model has made both.
const SAME: f32 = 0.98;

/// An embedder in use. A handle: clones share everything.
///
/// Vectors of tools are made in batches, one request at a time, and kept in a store; those of the
/// latest queries are kept in memory. An embedder that fails is left alone for a while, longer
/// each time, and searches go on without it; the log says so once, and once when it is back.
#[derive(Clone)]
pub struct Embeddings {
    shared: Arc<Shared>,
    limit: Duration,
}

struct Shared {
    embedder: Box<dyn Embed>,
    store: Arc<dyn VectorStore>,
    /// Whether what is kept was compared with what the embedder makes now.
    compared: AtomicBool,
    queries: Mutex<IndexMap<Box<str>, Arc<[f32]>>>,
    query_health: Health,
    document_health: Health,
}

type Vectors = HashMap<TextKey, Vec<f32>>;

impl Embeddings {
    /// Uses an embedder, and keeps what it makes of tools in the store: `()` keeps nothing.
    pub fn new(embedder: impl Embed, store: impl VectorStore) -> Self {
        let health = |without| Health::new(embedder.id(), without);
        let query_health = health("searches are ranked by the built-in table meanwhile");
        let document_health = health("tools are still without its vectors");
        let shared = Shared {
            embedder: Box::new(embedder),
            store: Arc::new(store),
            compared: AtomicBool::new(false),
            queries: Mutex::default(),
            query_health,
            document_health,
        };
        Self { shared: Arc::new(shared), limit: QUERY_LIMIT }
    }

    /// How long a search waits for the vector of its query. 1.5 seconds, unless told.
    pub fn with_query_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The vector of a query, within the time limit. A failure, a late answer included, is
    /// followed by a while in which this fails at once.
    pub async fn query(&self, text: &str) -> Result<Arc<[f32]>, EmbedError> {
        if let Some(vector) = self.recent(text) {
            return Ok(vector);
        }
        if let Some(error) = self.shared.query_health.resting() {
            return Err(EmbedError::Resting(Box::new(error)));
        }
        // A task of its own, so that an answer which comes too late serves the next who asks: the
        // first one often waits for a model to be loaded.
        let asking = tokio::spawn(self.clone().ask_for_query(text.to_owned()));
        let result = match timeout(self.limit, asking).await {
            Ok(answered) => answered.unwrap_or(Err(EmbedError::Broken)),
            Err(_) => Err(EmbedError::TimedOut(self.limit)),
        };
        match &result {
            Ok(_) => self.shared.query_health.succeeded(),
            Err(error) => drop(self.shared.query_health.failed(error)),
        }
        result
    }

    /// Supplies groups with vectors: those that are kept, and new ones for the rest. Where that
    /// fails, the groups that have all of theirs are supplied nevertheless. `progress` is told how
    /// many of how many texts have been embedded.
    pub async fn supply(
        &self,
        waiting: &[Unembedded],
        progress: impl Fn(usize, usize),
    ) -> Result<(), EmbedError> {
        let texts = waiting.iter().flat_map(Unembedded::texts);
        let texts: IndexMap<TextKey, &String> =
            texts.map(|text| (TextKey::of(text), text)).collect();
        let mut vectors = self.kept(texts.keys().copied().collect()).await;
        self.compare(&texts, &mut vectors).await?;
        let missing: Vec<(TextKey, &String)> =
            texts.into_iter().filter(|(key, _)| !vectors.contains_key(key)).collect();
        let mut outcome = Ok(());
        let mut done = 0;
        for batch in missing.chunks(MOST_TEXTS) {
            progress(done, missing.len());
            let texts = batch.iter().map(|(_, text)| (*text).clone()).collect();
            match self.ask(Purpose::Document, texts).await {
                Ok(rows) => {
                    let rows = batch.iter().map(|(key, _)| *key).zip(rows);
                    let rows: Vec<(TextKey, Vec<f32>)> = rows.collect();
                    self.shared.store.put_vectors(self.shared.embedder.id(), rows.clone());
                    vectors.extend(rows);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
            done += batch.len();
        }
        waiting.iter().for_each(|group| hand_over(group, &vectors));
        outcome
    }

    /// Supplies whatever a changing catalog lacks, until there is none.
    pub(crate) async fn keep_up(
        self,
        catalog: impl Fn() -> Option<Arc<Catalog>>,
        mut changes: watch::Receiver<u64>,
    ) {
        loop {
            changes.mark_unchanged();
            let Some(catalog) = catalog() else { return };
            // Thousands of schemas take a while to read: not where others wait.
            let waiting = spawn_blocking(move || catalog.unembedded()).await.unwrap_or_default();
            match self.supply(&waiting, |_, _| ()).await {
                Ok(()) => {
                    if !waiting.is_empty() {
                        self.shared.document_health.succeeded();
                    }
                    if changes.changed().await.is_err() {
                        return;
                    }
                }
                Err(error) => sleep(self.shared.document_health.failed(&error)).await,
            }
        }
    }

    async fn ask_for_query(self, text: String) -> Result<Arc<[f32]>, EmbedError> {
        let rows = self.ask(Purpose::Query, vec![text.clone()]).await?;
        let vector: Arc<[f32]> = rows.into_iter().next().unwrap_or_default().into();
        let mut queries = self.queries();
        if queries.len() == MOST_QUERIES {
            queries.shift_remove_index(0);
        }
        queries.insert(text.into(), vector.clone());
        Ok(vector)
    }

    fn recent(&self, text: &str) -> Option<Arc<[f32]>> {
        let mut queries = self.queries();
        let (text, vector) = queries.shift_remove_entry(text)?;
        // What was used last goes last.
        queries.insert(text, vector.clone());
        Some(vector)
    }

    fn queries(&self) -> std::sync::MutexGuard<'_, IndexMap<Box<str>, Arc<[f32]>>> {
        self.shared.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn kept(&self, keys: Vec<TextKey>) -> Vectors {
        let shared = self.shared.clone();
        let reading = spawn_blocking(move || {
            let kept = shared.store.vectors(shared.embedder.id(), &keys);
            keys.into_iter().zip(kept).filter_map(|(key, row)| Some((key, row?))).collect()
        });
        reading.await.unwrap_or_default()
    }

    /// Has one of the vectors that are kept made again. If it comes out otherwise, another model
    /// answers under the same name now, and what is kept is of no use.
    async fn compare(
        &self,
        texts: &IndexMap<TextKey, &String>,
        kept: &mut Vectors,
    ) -> Result<(), EmbedError> {
        let Some((key, text)) = texts.iter().find(|(key, _)| kept.contains_key(*key)) else {
            return Ok(());
        };
        let was = &kept[key];
        if !self.shared.compared.load(Ordering::Relaxed) {
            let rows = self.ask(Purpose::Document, vec![(*text).clone()]).await?;
            let is_same = rows.first().is_some_and(|row| cosine(row, was) >= SAME);
            self.shared.compared.store(true, Ordering::Relaxed);
            if !is_same {
                let embedder = self.shared.embedder.id();
                tracing::warn!(embedder, "its model has changed; every tool is embedded anew");
                self.shared.store.forget_vectors(embedder);
                kept.clear();
                return Ok(());
            }
        }
        let dimensions = was.len();
        kept.retain(|_, row| row.len() == dimensions);
        Ok(())
    }

    /// Vectors as they should be, or why there are none.
    async fn ask(&self, purpose: Purpose, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedError> {
        let asked = texts.len();
        let asking = async { self.shared.embedder.embed(purpose, texts).await };
        let asking = AssertUnwindSafe(asking).catch_unwind();
        let rows = match timeout(LONGEST, asking).await {
            Ok(Ok(answered)) => answered?,
            Ok(Err(_)) => return Err(EmbedError::Broken),
            Err(_) => return Err(EmbedError::TimedOut(LONGEST)),
        };
        match fault(&rows, asked) {
            None => Ok(rows),
            Some(fault) => Err(EmbedError::Invalid(fault)),
        }
    }
}

/// Supplies a group, if there is a vector for each of its texts.
fn hand_over(group: &Unembedded, vectors: &Vectors) {
    let rows = group.texts().iter().map(|text| vectors.get(&TextKey::of(text)));
    let Some(rows) = rows.collect::<Option<Vec<_>>>() else { return };
    let Some(dimensions) = rows.first().map(|row| row.len()) else { return };
    if rows.iter().all(|row| row.len() == dimensions) {
        group.supply(dimensions, rows);
    }
}

/// What is wrong with the vectors of so many texts.
fn fault(rows: &[Vec<f32>], asked: usize) -> Option<String> {
    if rows.len() != asked {
        return Some(format!("{} vectors for {asked} texts", rows.len()));
    }
    let dimensions = rows.first()?.len();
    if dimensions == 0 || dimensions > MOST_DIMENSIONS {
        return Some(format!("vectors of {dimensions} dimensions"));
    }
    if let Some(other) = rows.iter().find(|row| row.len() != dimensions) {
        return Some(format!("vectors of {dimensions} and of {} dimensions", other.len()));
    }
    let is_finite = rows.iter().flatten().all(|component| component.is_finite());
    (!is_finite).then(|| "a vector with components that are no numbers".to_owned())
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if a.len() == b.len() && lengths > 0.0 { dot(a, b) / lengths } else { 0.0 }
}
