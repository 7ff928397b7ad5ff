//! The table of what was called after which query, and the limits on what stays in it.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, Row, params};
use toolcrib_runtime::UsageRow;

use crate::manifests::{millis, time};

pub(crate) const TABLE: &str = "
    CREATE TABLE usage (
        query TEXT NOT NULL,
        tool TEXT NOT NULL,
        count INTEGER NOT NULL,
        used_at INTEGER NOT NULL,
        PRIMARY KEY (query, tool)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX usage_by_time ON usage (used_at);";

/// The most rows. Past them, what was used longest ago goes.
const MOST_ROWS: i64 = 20_000;

/// Rows go when they haven't been used for this long.
const UNUSED: Duration = Duration::from_secs(180 * 24 * 60 * 60);

const LIST: &str = "
    SELECT query, tool, count, used_at FROM usage
    ORDER BY count DESC, used_at DESC, query, tool";

/// Fails unless the table is as we know it.
pub(crate) fn check_columns(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare(LIST).map(drop)
}

/// Everything, the most frequent first.
pub(crate) fn list(connection: &Connection) -> rusqlite::Result<Vec<UsageRow>> {
    let read = |row: &Row<'_>| {
        Ok(UsageRow {
            query: row.get(0)?,
            tool: row.get(1)?,
            count: row.get::<_, i64>(2)?.clamp(0, u32::MAX.into()) as u32,
            used_at: time(row.get(3)?),
        })
    };
    connection.prepare(LIST)?.query_map([], read)?.collect()
}

pub(crate) fn record(connection: &Connection, query: &str, tool: &str) -> rusqlite::Result<()> {
    connection
        .prepare(
            "INSERT INTO usage VALUES (?1, ?2, 1, ?3)
             ON CONFLICT DO UPDATE SET count = count + 1, used_at = excluded.used_at",
        )?
        .execute(params![query, tool, millis(SystemTime::now())])
        .map(drop)
}

/// Deletes everything, and overwrites it: it is somebody's wish that it be gone.
pub(crate) fn clear(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .execute_batch("PRAGMA secure_delete = ON; DELETE FROM usage; PRAGMA secure_delete = FAST;")
}

/// Whether there is anything for [`trim`] to do. Doesn't write, so needn't wait for anybody.
pub(crate) fn is_over(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT count(*) > ?1 OR min(used_at) < ?2 FROM usage",
        params![MOST_ROWS, last_use()],
        |row| Ok(row.get::<_, Option<bool>>(0)?.unwrap_or_default()),
    )
}

/// Drops what has not been used for long and what is too much.
pub(crate) fn trim(connection: &Connection) -> rusqlite::Result<usize> {
    connection.execute(
        "DELETE FROM usage WHERE used_at < ?2 OR (query, tool) IN (
             SELECT query, tool FROM usage ORDER BY used_at DESC, query, tool
             LIMIT -1 OFFSET ?1)",
        params![MOST_ROWS, last_use()],
    )
}

fn last_use() -> i64 {
    SystemTime::now().checked_sub(UNUSED).map_or(0, millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(TABLE).unwrap();
        connection
    }

    /// A row that was last used some days ago.
    fn add(connection: &Connection, query: &str, days: i64) {
        let used_at = millis(SystemTime::now()) - days * 24 * 60 * 60 * 1000;
        let row = "INSERT INTO usage VALUES (?1, 's/t', 1, ?2)";
        connection.execute(row, params![query, used_at]).unwrap();
    }

    fn queries(connection: &Connection) -> Vec<String> {
        list(connection).unwrap().into_iter().map(|row| row.query).collect()
    }

    #[test]
    fn the_same_choice_is_one_row_that_counts() {
        let table = table();
        for (query, tool) in [("a", "s/t"), ("a", "s/u"), ("b", "s/t"), ("a", "s/t")] {
            record(&table, query, tool).unwrap();
        }
        let rows = list(&table).unwrap();
        let counts: Vec<_> = rows.iter().map(|row| (&*row.query, &*row.tool, row.count)).collect();
        assert_eq!(counts[0], ("a", "s/t", 2));
        assert_eq!(counts.len(), 3);
        assert!(rows[0].used_at.elapsed().unwrap() < Duration::from_secs(60));
    }

    #[test]
    fn what_was_not_used_for_half_a_year_goes() {
        let table = table();
        assert!(!is_over(&table).unwrap());
        add(&table, "lately", 1);
        add(&table, "in spring", 179);
        assert!(!is_over(&table).unwrap());
        add(&table, "last year", 181);
        assert!(is_over(&table).unwrap());
        assert_eq!(trim(&table).unwrap(), 1);
        assert_eq!(queries(&table), ["lately", "in spring"]);
    }

    #[test]
    fn of_too_many_the_newest_stay() {
        let table = table();
        table.execute_batch("BEGIN").unwrap();
        add(&table, "old", 3);
        for n in 0..MOST_ROWS - 1 {
            add(&table, &n.to_string(), 2);
        }
        assert!(!is_over(&table).unwrap());
        add(&table, "new", 1);
        assert!(is_over(&table).unwrap());
        assert_eq!(trim(&table).unwrap(), 1);
        let left = queries(&table);
        assert_eq!(left.len() as i64, MOST_ROWS);
        assert_eq!(left[0], "new");
        assert!(!left.contains(&"old".to_owned()));
    }
}
