//! The table of manifests, and the limits on what stays in it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, Row, params};
use toolcrib_runtime::Manifest;

/// The manifest is one text, so that reading it is reading one row. What lists are made of stands
/// before it, where SQLite finds it without reading the text.
pub(crate) const TABLE: &str = "
    CREATE TABLE manifests (
        key TEXT NOT NULL PRIMARY KEY,
        server TEXT NOT NULL,
        protocol_version TEXT NOT NULL,
        tools INTEGER NOT NULL,
        listed_at INTEGER NOT NULL, -- milliseconds since 1970, as all times here
        used_at INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;";

/// The largest manifest that is kept.
pub(crate) const MOST_BYTES: usize = 32 << 20;

/// Entries go when they haven't been used for this long.
const UNUSED: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// How far the note of an entry's last use may lag behind, so that most reads write nothing.
const USE_LAG_MS: u64 = 24 * 60 * 60 * 1000;

/// The most entries and bytes in all. Past them, what was used longest ago goes.
const MOST_ENTRIES: i64 = 1000;
const MOST_BYTES_IN_ALL: i64 = 256 << 20;

/// What is kept of a server, without the tools themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeptManifest {
    /// What it is kept under.
    pub key: String,
    /// What the configuration calls the server.
    pub server: String,
    /// The protocol version it was listed in.
    pub protocol_version: String,
    /// How many tools it has.
    pub tools: u64,
    /// When it was listed, to the millisecond.
    pub listed_at: SystemTime,
    /// When it was last used, to the day.
    pub used_at: SystemTime,
    /// The size of what is kept.
    pub bytes: u64,
}

/// A manifest as it is kept.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kept: KeptManifest,
    pub(crate) body: String,
}

impl Entry {
    pub(crate) fn new(key: &str, manifest: &Manifest) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_string(manifest)?;
        let kept = KeptManifest {
            key: key.to_owned(),
            server: manifest.server.clone(),
            protocol_version: manifest.protocol_version.clone(),
            tools: manifest.tools.len() as u64,
            listed_at: time(millis(manifest.listed_at)),
            used_at: time(millis(SystemTime::now())),
            bytes: body.len() as u64,
        };
        Ok(Self { kept, body })
    }
}

const FIND: &str = "SELECT body, used_at FROM manifests WHERE key = ?1";
const LIST: &str = "
    SELECT key, server, protocol_version, tools, listed_at, used_at, bytes
    FROM manifests";

/// What is read under a key.
pub(crate) struct Found {
    pub(crate) manifest: Result<Manifest, serde_json::Error>,
    /// Whether its use should be noted.
    pub(crate) note_use: bool,
}

pub(crate) fn find(connection: &Connection, key: &str) -> rusqlite::Result<Option<Found>> {
    let read = |row: &Row<'_>| {
        let used_at: i64 = row.get(1)?;
        Ok(Found {
            manifest: serde_json::from_str(row.get_ref(0)?.as_str()?),
            note_use: millis(SystemTime::now()).abs_diff(used_at) > USE_LAG_MS,
        })
    };
    connection.query_row(FIND, [key], read).optional()
}

/// Fails unless the table is as we know it.
pub(crate) fn check_columns(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare(LIST)?;
    connection.prepare(FIND).map(drop)
}

pub(crate) fn list(connection: &Connection) -> rusqlite::Result<Vec<KeptManifest>> {
    let read = |row: &Row<'_>| {
        Ok(KeptManifest {
            key: row.get(0)?,
            server: row.get(1)?,
            protocol_version: row.get(2)?,
            tools: row.get::<_, i64>(3)?.try_into().unwrap_or_default(),
            listed_at: time(row.get(4)?),
            used_at: time(row.get(5)?),
            bytes: row.get::<_, i64>(6)?.try_into().unwrap_or_default(),
        })
    };
    connection.prepare(LIST)?.query_map([], read)?.collect()
}

pub(crate) fn save(connection: &Connection, Entry { kept, body }: &Entry) -> rusqlite::Result<()> {
    connection
        .execute(
            "INSERT OR REPLACE INTO manifests VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                kept.key,
                kept.server,
                kept.protocol_version,
                i64::try_from(kept.tools).unwrap_or(i64::MAX),
                millis(kept.listed_at),
                millis(kept.used_at),
                i64::try_from(kept.bytes).unwrap_or(i64::MAX),
                body,
            ],
        )
        .map(drop)
}

pub(crate) fn forget(connection: &Connection, key: &str) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM manifests WHERE key = ?1", [key]).map(drop)
}

pub(crate) fn note_use(connection: &Connection, key: &str) -> rusqlite::Result<()> {
    let now = millis(SystemTime::now());
    connection.execute("UPDATE manifests SET used_at = ?2 WHERE key = ?1", params![key, now])?;
    Ok(())
}

/// Whether there is anything for [`trim`] to do. Doesn't write, so needn't wait for anybody.
pub(crate) fn is_over(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT total(bytes) > ?1 OR count(*) > ?2 OR total(used_at < ?3) > 0 FROM manifests",
        params![MOST_BYTES_IN_ALL, MOST_ENTRIES, last_use()],
        |row| row.get(0),
    )
}

/// Drops what has not been used for long and what is too much.
pub(crate) fn trim(connection: &Connection) -> rusqlite::Result<usize> {
    connection.execute(
        "DELETE FROM manifests WHERE used_at < ?3 OR rowid IN (
             SELECT rowid FROM (
                 SELECT rowid, sum(bytes) OVER newest AS bytes, row_number() OVER newest AS place
                 FROM manifests WINDOW newest AS (ORDER BY used_at DESC, rowid DESC
                     ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
             ) WHERE bytes > ?1 OR place > ?2)",
        params![MOST_BYTES_IN_ALL, MOST_ENTRIES, last_use()],
    )
}

fn last_use() -> i64 {
    SystemTime::now().checked_sub(UNUSED).map_or(0, millis)
}

/// Since 1970; a clock before that counts as 1970.
pub(crate) fn millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

pub(crate) fn time(millis: i64) -> SystemTime {
    let since = Duration::from_millis(millis.try_into().unwrap_or_default());
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(TABLE).unwrap();
        connection
    }

    /// An entry of a claimed size, last used some days ago.
    fn add(connection: &Connection, key: &str, days: i64, bytes: i64) {
        let used_at = millis(SystemTime::now()) - days * 24 * 60 * 60 * 1000;
        let row = "INSERT INTO manifests VALUES (?1, 's', 'v', 0, 0, ?2, ?3, '{}')";
        connection.execute(row, params![key, used_at, bytes]).unwrap();
    }

    fn keys(connection: &Connection) -> Vec<String> {
        list(connection).unwrap().into_iter().map(|kept| kept.key).collect()
    }

    #[test]
    fn what_was_not_used_for_ninety_days_goes() {
        let table = table();
        add(&table, "yesterday", 1, 10);
        add(&table, "last season", 89, 10);
        assert!(!is_over(&table).unwrap());
        add(&table, "last year", 91, 10);
        assert!(is_over(&table).unwrap());
        assert_eq!(trim(&table).unwrap(), 1);
        assert_eq!(keys(&table), ["yesterday", "last season"]);
    }

    #[test]
    fn what_was_used_longest_ago_goes_when_there_is_too_much() {
        let table = table();
        for (key, days) in [("b", 2), ("a", 1), ("d", 4), ("c", 3)] {
            add(&table, key, days, MOST_BYTES_IN_ALL / 2);
        }
        assert!(is_over(&table).unwrap());
        assert_eq!(trim(&table).unwrap(), 2);
        assert_eq!(keys(&table), ["b", "a"]);
        assert!(!is_over(&table).unwrap());
    }

    #[test]
    fn what_was_used_longest_ago_goes_when_there_are_too_many() {
        let table = table();
        add(&table, "oldest", 2, 1);
        for n in 0..MOST_ENTRIES {
            add(&table, &n.to_string(), 1, 1);
        }
        assert_eq!(trim(&table).unwrap(), 1);
        assert!(!keys(&table).contains(&"oldest".to_owned()));
    }

    #[test]
    fn a_use_is_noted_once_a_day() {
        let table = table();
        add(&table, "a", 2, 1);
        assert!(find(&table, "a").unwrap().unwrap().note_use);
        note_use(&table, "a").unwrap();
        assert!(!find(&table, "a").unwrap().unwrap().note_use);
    }

    #[test]
    fn a_time_that_makes_no_sense_does_no_harm() {
        assert_eq!(millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(time(-1), UNIX_EPOCH);
        time(i64::MAX);
    }
}
