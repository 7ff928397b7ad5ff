//! What makes a file ours, and how an older one is brought up to date.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use crate::error::StoreError;
use crate::manifests;
use crate::pins;
use crate::place::OPEN_WAIT;
use crate::sessions;
use crate::usage;
use crate::vectors;

/// In the file's header, so that another program's database is never taken for ours: `crib`.
const APPLICATION: i64 = 0x6372_6962;

/// Each entry takes a file from the version that is its index to the next. Entries are added at
/// the end and never changed.
const MIGRATIONS: &[&str] =
    &[manifests::TABLE, usage::TABLE, vectors::TABLE, sessions::TABLES, pins::TABLE];

/// How long one attempt to open waits for a lock; there are attempts until [`OPEN_WAIT`] is over.
const ATTEMPT: Duration = Duration::from_millis(200);

/// Opens a file and brings it up to date.
pub(crate) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let began = Instant::now();
    loop {
        // SQLite doesn't wait for some locks, whatever it is told: the change to a write-ahead
        // log is one.
        match attempt(path) {
            Err(StoreError::Locked { .. }) if began.elapsed() < OPEN_WAIT => {
                thread::sleep(Duration::from_millis(10));
            }
            Err(StoreError::Locked { path, .. }) => {
                return Err(StoreError::Locked { path, waited: began.elapsed() });
            }
            other => return other,
        }
    }
}

/// Opens one more connection to a file that [`connect`] has opened.
pub(crate) fn connect_again(path: &Path) -> Result<Connection, StoreError> {
    // No URIs: a file may be called `file:x`.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
        .and_then(|connection| connection.busy_timeout(ATTEMPT).map(|()| connection))
        .map_err(|error| StoreError::sqlite(path, ATTEMPT, error))
}

/// Brings a new database in memory up to date.
pub(crate) fn set_up(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    migrate(connection, path, MIGRATIONS)
}

/// Reads the whole file for damage.
pub(crate) fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| StoreError::sqlite(path, ATTEMPT, error))?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::Corrupt { path: path.to_owned(), reason: found }),
    }
}

fn attempt(path: &Path) -> Result<Connection, StoreError> {
    let failed = |error| StoreError::sqlite(path, ATTEMPT, error);
    let mut connection = connect_again(path)?;
    // Until the file is known to be ours it is only read. Closing it would otherwise write what
    // its log holds.
    let keep_log = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    connection.set_db_config(keep_log, true).map_err(failed)?;
    version(&connection, path, MIGRATIONS)?;
    connection.set_db_config(keep_log, false).map_err(failed)?;

    // A write-ahead log lets others read while one writes. With it, NORMAL never damages the file,
    // and a killed process loses nothing that was committed. Only a power cut may take the last
    // commits back. A manifest can be made again; of a conversation the last words are gone, which
    // is the price of not waiting for the disk with every one of them.
    //
    // With FAST, no page keeps a copy of what was moved out of it, which a later deletion would
    // not find.
    let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
                    PRAGMA journal_size_limit = 16777216; PRAGMA trusted_schema = OFF;
                    PRAGMA secure_delete = FAST;";
    connection.execute_batch(settings).map_err(failed)?;
    migrate(&mut connection, path, MIGRATIONS)?;
    check_columns(&connection, path)?;
    Ok(connection)
}

/// How many of the migrations a file has taken; 0 for a new one.
fn version(connection: &Connection, path: &Path, migrations: &[&str]) -> Result<usize, StoreError> {
    let (application, found, tables): (i64, i64, i64) = connection
        .query_row(
            "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
             FROM pragma_application_id, pragma_user_version",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .map_err(|error| StoreError::sqlite(path, ATTEMPT, error))?;
    let path = path.to_owned();
    match (application, usize::try_from(found)) {
        (APPLICATION, Ok(taken)) if taken <= migrations.len() => Ok(taken),
        (APPLICATION, Ok(_)) => {
            Err(StoreError::Newer { path, found, known: migrations.len() as i64 })
        }
        (APPLICATION, Err(_)) => {
            Err(StoreError::Corrupt { path, reason: format!("its schema is {found}") })
        }
        (0, Ok(0)) if tables == 0 => Ok(0),
        _ => Err(StoreError::Foreign { path }),
    }
}

/// Takes all the steps that are missing, or none.
fn migrate(
    connection: &mut Connection,
    path: &Path,
    migrations: &[&str],
) -> Result<(), StoreError> {
    if version(connection, path, migrations)? == migrations.len() {
        return Ok(());
    }
    let failed = |error| StoreError::sqlite(path, ATTEMPT, error);
    let change =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Another program may have been quicker.
    for step in migrations.iter().skip(version(&change, path, migrations)?) {
        change.execute_batch(step).map_err(failed)?;
    }
    change.pragma_update(None, "application_id", APPLICATION).map_err(failed)?;
    change.pragma_update(None, "user_version", migrations.len() as i64).map_err(failed)?;
    change.commit().map_err(failed)
}

/// A file that says it is up to date and lacks a column is no better than a damaged one.
fn check_columns(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let checked = manifests::check_columns(connection)
        .and_then(|()| usage::check_columns(connection))
        .and_then(|()| vectors::check_columns(connection))
        .and_then(|()| sessions::check_columns(connection))
        .and_then(|()| pins::check_columns(connection));
    match checked {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::Unknown) => {
            Err(StoreError::Corrupt { path: path.to_owned(), reason: error.to_string() })
        }
        other => other.map_err(|error| StoreError::sqlite(path, ATTEMPT, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(connection: &Connection) -> Vec<String> {
        let mut names = connection.prepare("SELECT name FROM sqlite_schema ORDER BY 1").unwrap();
        names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn an_older_file_takes_only_the_steps_it_lacks() {
        let mut connection = Connection::open_in_memory().unwrap();
        let path = Path::new("t.db");
        let steps = ["CREATE TABLE a (x)", "CREATE TABLE b (x); CREATE TABLE c (x)"];
        migrate(&mut connection, path, &steps[..1]).unwrap();
        assert_eq!(tables(&connection), ["a"]);
        migrate(&mut connection, path, &steps).unwrap();
        migrate(&mut connection, path, &steps).unwrap();
        assert_eq!(tables(&connection), ["a", "b", "c"]);
        assert_eq!(version(&connection, path, &steps).unwrap(), 2);
    }

    #[test]
    fn a_step_that_fails_takes_the_earlier_ones_back() {
        let mut connection = Connection::open_in_memory().unwrap();
        let path = Path::new("t.db");
        let steps = ["CREATE TABLE a (x)", "CREATE TABLE a (x)"];
        migrate(&mut connection, path, &steps).unwrap_err();
        assert_eq!(tables(&connection), [""; 0]);
        assert_eq!(version(&connection, path, &steps).unwrap(), 0);
    }
}
