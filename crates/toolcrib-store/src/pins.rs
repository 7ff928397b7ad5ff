//! The table of definitions that were approved. They stay until somebody removes the file: what
//! was trusted once can't be found out again.

use std::time::SystemTime;

use futures::channel::oneshot::Canceled;
use futures::future::BoxFuture;
use rusqlite::{Connection, OptionalExtension, Row, params};
use toolcrib_runtime::{PinEdit, PinMark, PinStore, Pins, StorageError};

use crate::errand::{Fault, stopped, storage};
use crate::manifests::millis;
use crate::store::SqliteStore;
use crate::writer::lock;

/// What tells whether anything changed stands before the text, where SQLite finds it without
/// reading that.
pub(crate) const TABLE: &str = "
    CREATE TABLE pins (
        key TEXT NOT NULL PRIMARY KEY,
        revision INTEGER NOT NULL,
        whole TEXT,
        changed_at INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;";

const MARK: &str = "SELECT revision, whole FROM pins WHERE key = ?1";
const FIND: &str = "SELECT revision, whole, body FROM pins WHERE key = ?1";

/// Fails unless the table is as we know it.
pub(crate) fn check_columns(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare(MARK)?;
    connection.prepare("SELECT changed_at FROM pins")?;
    connection.prepare(FIND).map(drop)
}

fn mark(row: &Row<'_>) -> rusqlite::Result<PinMark> {
    let revision: i64 = row.get(0)?;
    let whole: Option<String> = row.get(1)?;
    // What can't be read is compared anew.
    let whole = whole.and_then(|text| serde_json::from_value(text.into()).ok());
    Ok(PinMark { revision: revision.try_into().unwrap_or_default(), whole })
}

/// Why the pins of a server can't be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "what was approved of its definitions makes no sense here ({0}): remove the file to begin anew"
)]
struct Unreadable(#[from] serde_json::Error);

type Edited = Option<(Pins, PinMark)>;

fn edit(
    connection: &Connection,
    key: &str,
    edit: &mut PinEdit,
) -> Result<Edited, Fault<StorageError>> {
    let read = |row: &Row<'_>| Ok((mark(row)?, row.get::<_, String>(2)?));
    let found = connection.query_row(FIND, [key], read).optional()?;
    let refused = |error| Fault::Refused(StorageError::new(Unreadable(error)));
    let kept = match &found {
        Some((mark, body)) => Some((serde_json::from_str::<Pins>(body).map_err(refused)?, *mark)),
        None => None,
    };
    let Some((pins, whole)) = edit(kept.as_ref().map(|(pins, _)| pins.clone())) else {
        return Ok(kept);
    };
    let revision = found.map_or(1, |(mark, _)| mark.revision.saturating_add(1));
    let body = serde_json::to_string(&pins).map_err(refused)?;
    connection.execute(
        "INSERT OR REPLACE INTO pins VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            key,
            i64::try_from(revision).unwrap_or(i64::MAX),
            whole.map(|whole| whole.to_string()),
            millis(SystemTime::now()),
            body
        ],
    )?;
    Ok(Some((pins, PinMark { revision, whole })))
}

impl PinStore for SqliteStore {
    fn mark(&self, key: &str) -> Result<Option<PinMark>, StorageError> {
        let connection = lock(self.reader());
        let found = connection.query_row(MARK, [key], mark).optional();
        found.map_err(|error| storage(self.path(), error))
    }

    fn edit<'a>(
        &'a self,
        key: &'a str,
        mut change: PinEdit,
    ) -> BoxFuture<'a, Result<Edited, StorageError>> {
        let key = key.to_owned();
        let answer = self.change(move |connection| edit(connection, &key, &mut change));
        Box::pin(async { answer.await.unwrap_or_else(|Canceled| Err(stopped(self.path()))) })
    }
}
