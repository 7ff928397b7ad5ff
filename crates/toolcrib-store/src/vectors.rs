//! The table of vectors that embedders made of tools, and the limit on what stays in it.

use rusqlite::{Connection, OptionalExtension, params};
use toolcrib_runtime::TextKey;

pub(crate) const TABLE: &str = "
    CREATE TABLE vectors (
        embedder TEXT NOT NULL,
        text BLOB NOT NULL, -- its hash
        vector BLOB NOT NULL, -- 32-bit floating point numbers, the lowest byte first
        PRIMARY KEY (embedder, text)
    ) STRICT;";

/// The most rows. Past them, what was written longest ago goes.
const MOST_ROWS: i64 = 100_000;

const FIND: &str = "SELECT vector FROM vectors WHERE embedder = ?1 AND text = ?2";

/// Vectors as they are kept.
#[derive(Debug)]
pub(crate) struct Batch {
    embedder: String,
    rows: Vec<(TextKey, Vec<u8>)>,
}

impl Batch {
    pub(crate) fn new(embedder: &str, vectors: Vec<(TextKey, Vec<f32>)>) -> Self {
        let bytes = |vector: Vec<f32>| vector.into_iter().flat_map(f32::to_le_bytes).collect();
        let rows = vectors.into_iter().map(|(key, vector)| (key, bytes(vector))).collect();
        Self { embedder: embedder.to_owned(), rows }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().map(|(_, row)| row.len()).sum()
    }
}

/// What is kept under each key.
pub(crate) fn find(
    connection: &Connection,
    embedder: &str,
    keys: &[TextKey],
) -> rusqlite::Result<Vec<Option<Vec<f32>>>> {
    let mut find = connection.prepare(FIND)?;
    let mut one = |key: &TextKey| {
        let read = |row: &rusqlite::Row<'_>| Ok(vector(row.get_ref(0)?.as_blob()?));
        find.query_row(params![embedder, key.as_bytes()], read).optional().map(Option::flatten)
    };
    keys.iter().map(&mut one).collect()
}

/// `None` if these are no numbers.
fn vector(bytes: &[u8]) -> Option<Vec<f32>> {
    let (numbers, rest) = bytes.as_chunks();
    let is_whole = rest.is_empty() && !numbers.is_empty();
    is_whole.then(|| numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

/// Fails unless the table is as we know it.
pub(crate) fn check_columns(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare(FIND).map(drop)
}

pub(crate) fn save(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    let insert = "INSERT OR REPLACE INTO vectors (embedder, text, vector) VALUES (?1, ?2, ?3)";
    let mut insert = connection.prepare(insert)?;
    for (key, row) in &batch.rows {
        insert.execute(params![batch.embedder, key.as_bytes(), row])?;
    }
    trim(connection, MOST_ROWS).map(drop)
}

pub(crate) fn forget(connection: &Connection, embedder: &str) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM vectors WHERE embedder = ?1", [embedder]).map(drop)
}

/// Drops what is too much. Every new row gets the highest number, so no row need be counted.
fn trim(connection: &Connection, most: i64) -> rusqlite::Result<usize> {
    let trim = "DELETE FROM vectors WHERE rowid <= (SELECT max(rowid) FROM vectors) - ?1";
    connection.prepare(trim)?.execute([most])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(TABLE).unwrap();
        connection
    }

    fn add(connection: &Connection, embedder: &str, text: &str, vector: &[f32]) {
        let batch = Batch::new(embedder, vec![(TextKey::of(text), vector.to_vec())]);
        save(connection, &batch).unwrap();
    }

    fn get(connection: &Connection, embedder: &str, texts: &[&str]) -> Vec<Option<Vec<f32>>> {
        let keys: Vec<TextKey> = texts.iter().map(|text| TextKey::of(text)).collect();
        find(connection, embedder, &keys).unwrap()
    }

    #[test]
    fn numbers_come_back_as_they_were() {
        let table = table();
        let odd = [0.1, -0.0, f32::MIN_POSITIVE, f32::MAX];
        add(&table, "e", "a", &odd);
        add(&table, "e", "b", &[1.0]);
        add(&table, "e", "b", &[2.0]);
        let found = get(&table, "e", &["b", "c", "a"]);
        assert_eq!(found, [Some(vec![2.0]), None, Some(odd.to_vec())]);
        assert_eq!(get(&table, "other", &["a"]), [None]);
    }

    #[test]
    fn what_was_written_longest_ago_goes_when_there_is_too_much() {
        let table = table();
        for text in ["a", "b", "c", "a", "d"] {
            add(&table, "e", text, &[1.0]);
        }
        assert_eq!(trim(&table, 3).unwrap(), 1);
        let left = get(&table, "e", &["a", "b", "c", "d"]);
        let left: Vec<bool> = left.iter().map(Option::is_some).collect();
        assert_eq!(left, [true, false, true, true]);
    }

    #[test]
    fn what_one_embedder_made_can_be_dropped() {
        let table = table();
        add(&table, "e", "a", &[1.0]);
        add(&table, "f", "a", &[1.0]);
        forget(&table, "e").unwrap();
        assert_eq!(
            (get(&table, "e", &["a"]), get(&table, "f", &["a"])),
            (vec![None], vec![Some(vec![1.0])])
        );
    }

    #[test]
    fn bytes_that_are_no_numbers_count_as_nothing() {
        assert_eq!(vector(&[]), None);
        assert_eq!(vector(&[0; 7]), None);
        assert_eq!(vector(&[0; 8]), Some(vec![0.0, 0.0]));
    }
}
