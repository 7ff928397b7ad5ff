//! The right to write to a session, which one program has at a time.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension, Row, params};
use toolcrib_runtime::SessionError;

use crate::errand::Fault;
use crate::manifests::{millis, time};
use crate::sessions::id::random;
use crate::store::SqliteStore;

/// How often it is renewed.
pub(crate) const RENEWAL: Duration = Duration::from_secs(3);

/// One that was not renewed for this long is nobody's. Longer than a writer ever waits for others.
const STALE_MS: u64 = 20_000;

/// What a holder says of itself, so that only it passes for itself: a name drawn by the process,
/// and a number.
pub(crate) fn new_owner() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", this_process(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn this_process() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| format!("{:016x}", random()))
}

/// Among whose processes a number of a process counts: on Linux, a container has its own. Programs
/// on different machines can't have a file with a write-ahead log open together.
fn machine() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        namespace.to_string_lossy().into_owned()
    })
}

/// A lease that is held, or about to be. Dropping it gives it back, and lets its store go.
pub(crate) struct Lease {
    store: SqliteStore,
    pub(crate) owner: String,
}

impl Lease {
    /// From here on it is renewed, once it has been taken.
    pub(crate) fn prepare(store: &SqliteStore) -> Self {
        let owner = new_owner();
        store.writer().hold(&owner);
        Self { store: store.clone(), owner }
    }

    pub(crate) fn store(&self) -> &SqliteStore {
        &self.store
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.store.writer().let_go(&self.owner);
        let owner = std::mem::take(&mut self.owner);
        // Nobody waits: should it fail, the lease passes.
        drop(self.store.change(move |connection| {
            release(connection, &owner).map_err(Fault::<SessionError>::Sqlite)
        }));
    }
}

/// Who has a session.
#[derive(Debug)]
pub(crate) struct Holder {
    owner: String,
    machine: String,
    pub(crate) pid: u32,
    pub(crate) since: SystemTime,
    renewed_at: i64,
}

/// What [`Holder::read`] reads.
pub(crate) const HOLDER: &str = "owner, machine, pid, taken_at, renewed_at";

impl Holder {
    /// Reads one from the columns that begin at `first`.
    pub(crate) fn read(row: &Row<'_>, first: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            owner: row.get(first)?,
            machine: row.get(first + 1)?,
            pid: row.get::<_, i64>(first + 2)?.try_into().unwrap_or_default(),
            since: time(row.get(first + 3)?),
            renewed_at: row.get(first + 4)?,
        })
    }

    /// Whether it may still write.
    pub(crate) fn is_live(&self) -> bool {
        // A clock that was put back makes a lease as doubtful as one that has passed.
        if millis(SystemTime::now()).abs_diff(self.renewed_at) > STALE_MS {
            return false;
        }
        if self.machine != machine() {
            return true;
        }
        if self.pid == process::id() {
            // In a container, the next process often gets the number of the last.
            return self.owner.split('-').next() == Some(this_process());
        }
        is_running(self.pid)
    }
}

#[cfg(unix)]
fn is_running(pid: u32) -> bool {
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0).and_then(Pid::from_raw) else {
        return false;
    };
    test_kill_process(pid) != Err(Errno::SRCH)
}

/// Where that can't be asked, a lease has to go stale.
#[cfg(not(unix))]
fn is_running(_: u32) -> bool {
    true
}

/// Who has a session now.
pub(crate) fn holder(connection: &Connection, session: i64) -> rusqlite::Result<Option<Holder>> {
    let find = format!("SELECT {HOLDER} FROM session_leases WHERE session = ?1");
    let found = connection.query_row(&find, [session], |row| Holder::read(row, 0)).optional()?;
    Ok(found.filter(Holder::is_live))
}

/// Fails if somebody has it.
pub(crate) fn check_free(
    connection: &Connection,
    session: i64,
    id: &str,
) -> Result<(), Fault<SessionError>> {
    match holder(connection, session)? {
        None => Ok(()),
        Some(Holder { pid, since, .. }) => {
            Err(Fault::Refused(SessionError::InUse { id: id.to_owned(), pid, since }))
        }
    }
}

/// Takes it for this process, unless somebody has it.
pub(crate) fn take(
    connection: &Connection,
    session: i64,
    id: &str,
    owner: &str,
) -> Result<(), Fault<SessionError>> {
    check_free(connection, session, id)?;
    connection.execute(
        "INSERT OR REPLACE INTO session_leases (session, owner, machine, pid, taken_at, renewed_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
        params![session, owner, machine(), process::id(), millis(SystemTime::now())],
    )?;
    Ok(())
}

/// Whether it is this owner's, live or not: if nobody has taken it meanwhile, nothing has changed.
pub(crate) fn is_held(
    connection: &Connection,
    session: i64,
    owner: &str,
) -> rusqlite::Result<bool> {
    connection
        .prepare("SELECT 1 FROM session_leases WHERE session = ?1 AND owner = ?2")?
        .exists(params![session, owner])
}

pub(crate) fn renew(connection: &Connection, owner: &str) -> rusqlite::Result<()> {
    let now = millis(SystemTime::now());
    connection
        .execute("UPDATE session_leases SET renewed_at = ?2 WHERE owner = ?1", params![owner, now])
        .map(drop)
}

fn release(connection: &Connection, owner: &str) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM session_leases WHERE owner = ?1", [owner]).map(drop)
}
