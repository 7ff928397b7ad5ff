//! The handle.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use toolcrib_runtime::{Manifest, ManifestStore, TextKey, UsageRow, UsageStore, VectorStore};

use crate::error::StoreError;
use crate::manifests::{self, Entry, KeptManifest};
use crate::place::Place;
use crate::schema;
use crate::usage;
use crate::vectors::{self, Batch};
use crate::writer::{Change, WRITE_WAIT, Writer, lock};

/// How long a read waits. Readers don't wait for writers, only for a log that is being put right
/// after a crash.
const READ_WAIT: Duration = Duration::from_secs(1);

/// A store in one SQLite file. A handle: clones are the same store.
///
/// Several programs may have the file open at once. A [`put`](ManifestStore::put) doesn't wait for
/// the disk and is seen by the next [`get`](ManifestStore::get) of the same store; other programs
/// see it once it is written. [`flush`](Self::flush) waits for that, and so does dropping the last
/// clone.
///
/// What hasn't been used for 90 days is dropped. So is what was used longest ago, when there are
/// more than 1000 manifests or 256 MB of them. A single one of more than 32 MB is not kept.
///
/// It also keeps which tools were called after which queries: the newest 20,000 pairs, and none
/// that was not used for 180 days. And the newest 100,000 vectors that embedders made of tools.
///
/// And it keeps sessions, all of them until they are deleted: see
/// [`SessionStore`](toolcrib_runtime::SessionStore). One program at a time may go on with a
/// session. When that is killed, another may take over at once; when it hangs, after 20 seconds.
///
/// ```
/// use toolcrib_runtime::ManifestStore;
/// use toolcrib_store::SqliteStore;
///
/// let store = SqliteStore::open_in_memory()?;
/// assert!(store.get("nobody").is_none());
/// assert!(store.manifests()?.is_empty());
/// # Ok::<(), toolcrib_store::StoreError>(())
/// ```
#[derive(Clone)]
pub struct SqliteStore(Arc<Open>);

// Fields are dropped in this order: everything is written before the lock goes.
struct Open {
    path: PathBuf,
    writer: Writer,
    reader: Arc<Mutex<Connection>>,
    _in_use: Option<File>,
}

impl SqliteStore {
    /// Opens a file, or makes it: it and its missing parent folders are for its owner alone.
    ///
    /// A file of another program, or of a newer version of this one, is left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let place = Place::prepare(path.as_ref())?;
        let in_use = place.share()?;
        let connection = schema::connect(place.path())?;
        Self::start(&place, connection, in_use)
    }

    /// Opens a file like [`open`](Self::open), but looks for damage first. A damaged file is moved
    /// aside, to `*.corrupt-1` and so on, and a new one is made: a server can be asked again.
    /// Sessions can't be made again. A file that holds them is better opened with `open`, for a
    /// person to decide what becomes of it.
    ///
    /// While another program has the damaged file open it stays, and this fails.
    pub fn open_or_recover(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let place = Place::prepare(path.as_ref())?;
        let first = Self::open_sound(&place);
        let Err(StoreError::Corrupt { .. }) = first else { return first };
        if let Some(_alone) = place.hold_alone()? {
            // Another program may have done it while we waited.
            if let Err(StoreError::Corrupt { reason, .. }) = connect_sound(&place) {
                let aside = place.replace()?;
                tracing::warn!(
                    path = %place.path().display(), aside = %aside.display(), reason,
                    "a damaged store was moved aside; a new one is made"
                );
            }
        }
        Self::open_sound(&place)
    }

    /// Opens a store that ends with the last clone.
    pub fn open_in_memory() -> Result<Self, StoreError> {
        let path = PathBuf::from(":memory:");
        let mut connection = Connection::open_in_memory()
            .map_err(|error| StoreError::sqlite(&path, READ_WAIT, error))?;
        schema::set_up(&mut connection, &path)?;
        let reader = Arc::new(Mutex::new(connection));
        let writer = Writer::start(&path, Arc::clone(&reader))?;
        Ok(Self(Arc::new(Open { path, writer, reader, _in_use: None })))
    }

    fn open_sound(place: &Place) -> Result<Self, StoreError> {
        let in_use = place.share()?;
        let connection = connect_sound(place)?;
        Self::start(place, connection, in_use)
    }

    fn start(place: &Place, connection: Connection, in_use: File) -> Result<Self, StoreError> {
        let path = place.path().to_owned();
        let failed = |error| StoreError::sqlite(&path, READ_WAIT, error);
        if manifests::is_over(&connection).map_err(failed)? {
            match manifests::trim(&connection) {
                Ok(dropped) => tracing::debug!(dropped, "manifests that were not used for long"),
                // It is no reason to wait, let alone to fail: the next one to open it will do it.
                Err(error) => tracing::debug!(%error, "old manifests are still kept"),
            }
        }
        if usage::is_over(&connection).map_err(failed)?
            && let Err(error) = usage::trim(&connection)
        {
            tracing::debug!(%error, "old choices are still kept");
        }
        connection.busy_timeout(WRITE_WAIT).map_err(failed)?;
        let reader = schema::connect_again(&path)?;
        reader.busy_timeout(READ_WAIT).map_err(failed)?;
        reader.pragma_update(None, "query_only", true).map_err(failed)?;
        let writer = Writer::start(&path, Arc::new(Mutex::new(connection)))?;
        let reader = Arc::new(Mutex::new(reader));
        Ok(Self(Arc::new(Open { path, writer, reader, _in_use: Some(in_use) })))
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.0.writer
    }

    pub(crate) fn reader(&self) -> &Mutex<Connection> {
        &self.0.reader
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// What is kept, by server and key.
    pub fn manifests(&self) -> Result<Vec<KeptManifest>, StoreError> {
        // Asked first: what is written meanwhile is then in both, rather than in neither.
        let waiting = self.0.writer.all_waiting();
        let mut all = manifests::list(&lock(&self.0.reader))
            .map_err(|error| StoreError::sqlite(&self.0.path, READ_WAIT, error))?;
        for (key, change) in waiting {
            all.retain(|kept| kept.key != key);
            if let Change::Save(entry) = change {
                all.push(entry.kept.clone());
            }
        }
        all.sort_by(|a, b| (&a.server, &a.key).cmp(&(&b.server, &b.key)));
        Ok(all)
    }

    /// Drops what is kept under a key.
    pub fn forget(&self, key: &str) {
        if let Err(error) = self.0.writer.change(key, Change::Forget) {
            tracing::warn!(%error, "a manifest stays");
        }
    }

    /// Which tools were called after which queries, the most frequent first. Waits for what is
    /// still to be written.
    pub fn usage(&self) -> Result<Vec<UsageRow>, StoreError> {
        self.0.writer.wait()?;
        usage::list(&lock(&self.0.reader))
            .map_err(|error| StoreError::sqlite(&self.0.path, READ_WAIT, error))
    }

    /// Forgets all of that, and waits until it is gone.
    pub fn clear_usage(&self) -> Result<(), StoreError> {
        self.0.writer.clear_usage()?;
        self.0.writer.flush()
    }

    /// Waits until everything is written. What was put before is then safe from a crash or a kill
    /// of this program.
    ///
    /// Fails if anything since the last flush could not be written.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.0.writer.flush()
    }
}

impl ManifestStore for SqliteStore {
    fn get(&self, key: &str) -> Option<Manifest> {
        let read = match self.0.writer.waiting(key) {
            Some(Change::Forget) => return None,
            Some(Change::Save(entry)) => serde_json::from_str(&entry.body),
            None => match manifests::find(&lock(&self.0.reader), key) {
                Ok(found) => {
                    let found = found?;
                    if found.note_use {
                        self.0.writer.note_use(key);
                    }
                    found.manifest
                }
                Err(error) => {
                    let error = StoreError::sqlite(&self.0.path, READ_WAIT, error);
                    tracing::warn!(%error, "a manifest can't be read");
                    return None;
                }
            },
        };
        // Another version may have written it, in a form we don't know.
        read.inspect_err(|error| tracing::warn!(%error, "a manifest makes no sense")).ok()
    }

    fn put(&self, key: &str, manifest: Manifest) {
        let server = manifest.server.as_str();
        let change = match Entry::new(key, &manifest) {
            Ok(entry) if entry.body.len() <= manifests::MOST_BYTES => Change::Save(entry.into()),
            // What was there is no longer true.
            Ok(entry) => {
                let (bytes, limit) = (entry.body.len(), manifests::MOST_BYTES);
                tracing::warn!(server, bytes, limit, "its manifest is too large to be kept");
                Change::Forget
            }
            Err(error) => {
                tracing::warn!(server, %error, "its manifest can't be kept");
                Change::Forget
            }
        };
        if let Err(error) = self.0.writer.change(key, change) {
            tracing::warn!(server, %error, "its manifest is not kept");
        }
    }
}

impl UsageStore for SqliteStore {
    fn record(&self, query: &str, tool: &str) {
        if let Err(error) = self.0.writer.record(query, tool) {
            tracing::debug!(%error, "a choice is not kept");
        }
    }

    fn rows(&self) -> Vec<UsageRow> {
        let rows = self.usage();
        rows.inspect_err(|error| tracing::warn!(%error, "choices can't be read"))
            .unwrap_or_default()
    }

    fn clear(&self) {
        if let Err(error) = self.clear_usage() {
            tracing::warn!(%error, "choices stay");
        }
    }
}

/// What is put can be read once it is written.
impl VectorStore for SqliteStore {
    fn vectors(&self, embedder: &str, keys: &[TextKey]) -> Vec<Option<Vec<f32>>> {
        vectors::find(&lock(&self.0.reader), embedder, keys).unwrap_or_else(|error| {
            let error = StoreError::sqlite(&self.0.path, READ_WAIT, error);
            tracing::warn!(%error, "vectors can't be read");
            vec![None; keys.len()]
        })
    }

    fn put_vectors(&self, embedder: &str, vectors: Vec<(TextKey, Vec<f32>)>) {
        if let Err(error) = self.0.writer.save_vectors(Batch::new(embedder, vectors)) {
            tracing::warn!(%error, "vectors are not kept");
        }
    }

    fn forget_vectors(&self, embedder: &str) {
        if let Err(error) = self.0.writer.forget_vectors(embedder) {
            tracing::warn!(%error, "vectors stay");
        }
    }
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SqliteStore").field(&self.0.path).finish()
    }
}

/// Reading the whole file for damage takes half a millisecond for each megabyte.
fn connect_sound(place: &Place) -> Result<Connection, StoreError> {
    let connection = schema::connect(place.path())?;
    schema::check(&connection, place.path())?;
    Ok(connection)
}
