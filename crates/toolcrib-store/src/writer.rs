//! The thread that writes, and what waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, TransactionBehavior, ffi};
use toolcrib_runtime::StorageError;

use crate::errand::{Errand, storage};
use crate::error::StoreError;
use crate::manifests::{self, Entry};
use crate::sessions::lease::{self, RENEWAL};
use crate::usage;
use crate::vectors::{self, Batch};

/// How long a write waits for other programs.
pub(crate) const WRITE_WAIT: Duration = Duration::from_secs(5);

/// The most that waits to be written.
const MOST_WAITING_JOBS: usize = 1024;
const MOST_WAITING_BYTES: usize = 64 << 20;

/// The most that is written in one transaction, so that others get their turn.
const MOST_AT_ONCE: usize = 256;

/// Writes on a thread of its own. Dropping it waits until everything is written.
pub(crate) struct Writer {
    path: PathBuf,
    waiting: Arc<Mutex<Waiting>>,
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

/// What has been asked for and not been written: for readers it has happened already.
#[derive(Default)]
struct Waiting {
    changes: BTreeMap<String, (u64, Change)>,
    bytes: usize,
    /// Of the newest change.
    number: u64,
    /// The first failure since the last flush.
    failure: Option<StoreError>,
    /// What somebody waits for, in order.
    errands: Vec<Box<dyn Errand>>,
    /// Whose leases are to be renewed.
    owners: BTreeSet<String>,
    /// Whether the thread has ended.
    is_over: bool,
}

/// What is to become of a key.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Save(Arc<Entry>),
    Forget,
}

impl Change {
    fn bytes(&self) -> usize {
        match self {
            Self::Save(entry) => entry.body.len(),
            Self::Forget => 0,
        }
    }
}

enum Job {
    Change { number: u64, key: String, change: Change },
    NoteUse(String),
    Vectors(Batch),
    ForgetVectors(String),
    Choice { query: String, tool: String },
    ClearUsage,
    Wake,
    Flush(SyncSender<()>),
}

impl Writer {
    pub(crate) fn start(
        path: &Path,
        connection: Arc<Mutex<Connection>>,
    ) -> Result<Self, StoreError> {
        let (jobs, queue) = sync_channel(MOST_WAITING_JOBS);
        let waiting = Arc::default();
        let desk = Desk { path: path.to_owned(), connection, waiting: Arc::clone(&waiting) };
        let thread = thread::Builder::new()
            .name("toolcrib-store".into())
            .spawn(move || desk.work(&queue))
            .map_err(|error| StoreError::io(path, error))?;
        Ok(Self { path: path.to_owned(), waiting, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Lets a change be written. Never waits.
    pub(crate) fn change(&self, key: &str, change: Change) -> Result<(), StoreError> {
        let mut waiting = lock(&self.waiting);
        let bytes = waiting.bytes + change.bytes();
        let number = waiting.number + 1;
        let job = Job::Change { number, key: key.to_owned(), change: change.clone() };
        // Sent under the lock, so that changes of one key are written in the order they are seen.
        let sent = if bytes > MOST_WAITING_BYTES { Err(Refusal::Overrun) } else { self.send(job) };
        if let Err(refusal) = sent {
            waiting.failure.get_or_insert_with(|| refusal.at(&self.path));
            return Err(refusal.at(&self.path));
        }
        waiting.bytes = bytes;
        waiting.number = number;
        waiting.changes.insert(key.to_owned(), (number, change));
        Ok(())
    }

    /// Notes that an entry was used, if that can be done without waiting.
    pub(crate) fn note_use(&self, key: &str) {
        if let Err(refusal) = self.send(Job::NoteUse(key.to_owned())) {
            tracing::debug!(?refusal, "a use is not noted");
        }
    }

    /// Counts a call after a query, if that can be done without waiting.
    pub(crate) fn record(&self, query: &str, tool: &str) -> Result<(), StoreError> {
        let job = Job::Choice { query: query.to_owned(), tool: tool.to_owned() };
        self.send(job).map_err(|refusal| refusal.at(&self.path))
    }

    /// Lets everything be forgotten that was called after a query.
    pub(crate) fn clear_usage(&self) -> Result<(), StoreError> {
        self.send(Job::ClearUsage).map_err(|refusal| refusal.at(&self.path))
    }

    /// Lets vectors be written. Never waits.
    pub(crate) fn save_vectors(&self, batch: Batch) -> Result<(), StoreError> {
        let mut waiting = lock(&self.waiting);
        let bytes = waiting.bytes + batch.bytes();
        let refused = |refusal: Refusal| refusal.at(&self.path);
        if bytes > MOST_WAITING_BYTES {
            return Err(refused(Refusal::Overrun));
        }
        self.send(Job::Vectors(batch)).map_err(refused)?;
        waiting.bytes = bytes;
        Ok(())
    }

    /// Lets all vectors of an embedder be dropped. Never waits.
    pub(crate) fn forget_vectors(&self, embedder: &str) -> Result<(), StoreError> {
        let job = Job::ForgetVectors(embedder.to_owned());
        self.send(job).map_err(|refusal| refusal.at(&self.path))
    }

    /// Lets a change be made that somebody waits for. None is turned away: who waits makes no
    /// more of them.
    pub(crate) fn run(&self, errand: Box<dyn Errand>) {
        let mut waiting = lock(&self.waiting);
        if waiting.is_over {
            // Dropped, it tells that nothing comes of it.
            return;
        }
        waiting.errands.push(errand);
        let is_first = waiting.errands.len() == 1;
        drop(waiting);
        if is_first {
            // Told of the first, the thread takes them all. If it can't be told, it has work to do
            // and looks for errands before that, or has ended and dropped them.
            let _ = self.send(Job::Wake);
        }
    }

    /// Renews an owner's leases from now on.
    pub(crate) fn hold(&self, owner: &str) {
        lock(&self.waiting).owners.insert(owner.to_owned());
    }

    /// Renews them no more.
    pub(crate) fn let_go(&self, owner: &str) {
        lock(&self.waiting).owners.remove(owner);
    }

    /// What is to become of a key, if that isn't written yet.
    pub(crate) fn waiting(&self, key: &str) -> Option<Change> {
        lock(&self.waiting).changes.get(key).map(|(_, change)| change.clone())
    }

    /// Everything that isn't written yet.
    pub(crate) fn all_waiting(&self) -> Vec<(String, Change)> {
        let waiting = lock(&self.waiting);
        waiting.changes.iter().map(|(key, (_, change))| (key.clone(), change.clone())).collect()
    }

    pub(crate) fn flush(&self) -> Result<(), StoreError> {
        self.wait()?;
        lock(&self.waiting).failure.take().map_or(Ok(()), Err)
    }

    /// Waits until everything has been tried.
    pub(crate) fn wait(&self) -> Result<(), StoreError> {
        let stopped = || Refusal::Stopped.at(&self.path);
        let (done, wait) = sync_channel(1);
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        jobs.send(Job::Flush(done)).map_err(|_| stopped())?;
        wait.recv().map_err(|_| stopped())
    }

    fn send(&self, job: Job) -> Result<(), Refusal> {
        let jobs = self.jobs.as_ref().ok_or(Refusal::Stopped)?;
        jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => Refusal::Overrun,
            TrySendError::Disconnected(_) => Refusal::Stopped,
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!(path = %self.path.display(), "the thread that writes has failed");
        }
    }
}

/// Why something is not even tried.
#[derive(Clone, Copy, Debug)]
enum Refusal {
    Overrun,
    Stopped,
}

impl Refusal {
    fn at(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Overrun => StoreError::Overrun { path },
            Self::Stopped => StoreError::Stopped { path },
        }
    }
}

/// Where the thread works.
struct Desk {
    path: PathBuf,
    connection: Arc<Mutex<Connection>>,
    waiting: Arc<Mutex<Waiting>>,
}

/// Also when the thread fails: who waits is told.
impl Drop for Desk {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        waiting.is_over = true;
        waiting.errands.clear();
    }
}

impl Desk {
    /// Until nobody can send any more, and all that was sent is done.
    fn work(&self, queue: &Receiver<Job>) {
        let mut renewed = Instant::now();
        loop {
            let is_idle = lock(&self.waiting).owners.is_empty();
            let first = if is_idle {
                queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                queue.recv_timeout(RENEWAL)
            };
            let mut jobs = match first {
                Ok(first) => vec![first],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            jobs.extend(queue.try_iter().take(MOST_AT_ONCE - jobs.len()));
            let errands = std::mem::take(&mut lock(&self.waiting).errands);
            if !errands.is_empty() {
                self.run(errands);
            }
            if renewed.elapsed() >= RENEWAL {
                renewed = Instant::now();
                self.renew();
            }
            let written = self.write(&jobs);
            self.settle(&jobs, written);
            for job in jobs {
                if let Job::Flush(done) = job {
                    // Whoever asked may have gone.
                    let _ = done.send(());
                }
            }
        }
    }

    /// Runs errands, in one transaction if that works.
    fn run(&self, mut errands: Vec<Box<dyn Errand>>) {
        let written = self.run_together(&mut errands);
        let is_busy =
            |error: &rusqlite::Error| error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy);
        if errands.len() > 1 && written.as_ref().is_err_and(|error| !is_busy(error)) {
            // What is too large for the disk takes nothing else with it.
            errands.into_iter().for_each(|errand| self.run(vec![errand]));
            return;
        }
        let written: Result<(), StorageError> = written.map_err(|error| storage(&self.path, error));
        errands.into_iter().for_each(|errand| errand.tell(&self.path, &written));
    }

    fn run_together(&self, errands: &mut [Box<dyn Errand>]) -> rusqlite::Result<()> {
        let mut connection = lock(&self.connection);
        let mut all = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for errand in errands {
            let part = all.savepoint()?;
            if errand.run(&part) {
                part.commit()?;
            } else {
                drop(part);
            }
            // Some failures end the whole transaction, a full disk for one.
            if all.is_autocommit() {
                let error = ffi::Error::new(ffi::SQLITE_ABORT);
                return Err(rusqlite::Error::SqliteFailure(error, None));
            }
        }
        all.commit()
    }

    fn renew(&self) {
        let owners = lock(&self.waiting).owners.clone();
        if owners.is_empty() {
            return;
        }
        let connection = lock(&self.connection);
        for owner in owners {
            if let Err(error) = lease::renew(&connection, &owner) {
                tracing::debug!(%error, "a lease is not renewed yet");
            }
        }
    }

    fn write(&self, jobs: &[Job]) -> rusqlite::Result<()> {
        if jobs.iter().all(|job| matches!(job, Job::Flush(_) | Job::Wake)) {
            return Ok(());
        }
        let mut connection = lock(&self.connection);
        // Immediate: a transaction that begins by reading can't wait for another writer.
        let all = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for job in jobs {
            match job {
                Job::Change { change: Change::Save(entry), .. } => manifests::save(&all, entry)?,
                Job::Change { key, change: Change::Forget, .. } => manifests::forget(&all, key)?,
                Job::NoteUse(key) => manifests::note_use(&all, key)?,
                Job::Vectors(batch) => vectors::save(&all, batch)?,
                Job::ForgetVectors(embedder) => vectors::forget(&all, embedder)?,
                Job::Choice { query, tool } => usage::record(&all, query, tool)?,
                Job::ClearUsage => usage::clear(&all)?,
                Job::Flush(_) | Job::Wake => {}
            }
        }
        if manifests::is_over(&all)? {
            manifests::trim(&all)?;
        }
        if jobs.iter().any(|job| matches!(job, Job::Choice { .. })) && usage::is_over(&all)? {
            usage::trim(&all)?;
        }
        all.commit()
    }

    /// What was written, or never will be, waits no more.
    fn settle(&self, jobs: &[Job], written: rusqlite::Result<()>) {
        let mut waiting = lock(&self.waiting);
        let mut changes = 0;
        for job in jobs {
            if let Job::Vectors(batch) = job {
                waiting.bytes = waiting.bytes.saturating_sub(batch.bytes());
            }
            let Job::Change { number, key, change } = job else { continue };
            changes += 1;
            waiting.bytes = waiting.bytes.saturating_sub(change.bytes());
            if waiting.changes.get(key).is_some_and(|(newest, _)| newest == number) {
                waiting.changes.remove(key);
            }
        }
        if let Err(error) = written {
            let error = StoreError::sqlite(&self.path, WRITE_WAIT, error);
            tracing::warn!(%error, changes, "what was to be kept is lost");
            waiting.failure.get_or_insert(error);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
