//! Vectors of tools come back, and cost manifests nothing.

use rusqlite::Connection;
use toolcrib_runtime::{ManifestStore, TextKey, VectorStore};
use toolcrib_store::SqliteStore;

use crate::support::manifest;

fn batch(texts: std::ops::Range<usize>) -> Vec<(TextKey, Vec<f32>)> {
    texts.map(|n| (TextKey::of(&n.to_string()), vec![n as f32, 0.5])).collect()
}

fn keys(texts: std::ops::Range<usize>) -> Vec<TextKey> {
    batch(texts).into_iter().map(|(key, _)| key).collect()
}

#[test]
fn vectors_come_back_in_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    store.put("k", manifest("s", 1));
    store.put_vectors("e", batch(0..100));
    store.put_vectors("f", batch(0..1));
    drop(store);

    let store = SqliteStore::open(&path).unwrap();
    let found = store.vectors("e", &keys(98..102));
    assert_eq!(found, [Some(vec![98.0, 0.5]), Some(vec![99.0, 0.5]), None, None]);
    assert_eq!(store.vectors("f", &keys(0..2)), [Some(vec![0.0, 0.5]), None]);
    store.forget_vectors("e");
    store.flush().unwrap();
    assert_eq!(store.vectors("e", &keys(0..1)), [None]);
    assert!(store.vectors("f", &keys(0..1))[0].is_some() && store.get("k").is_some());
}

#[test]
fn a_file_from_before_there_were_vectors_is_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    store.put("k", manifest("s", 1));
    drop(store);
    // Everything that came after the manifests is taken back.
    let older = Connection::open(&path).unwrap();
    let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'manifests'";
    let mut tables = older.prepare(tables).unwrap();
    let names: Vec<String> =
        tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    drop(tables);
    assert!(names.contains(&"vectors".to_owned()), "{names:?}");
    for name in names.iter().filter(|name| !name.starts_with("sqlite_")) {
        older.execute_batch(&format!("DROP TABLE {name}")).unwrap();
    }
    older.execute_batch("PRAGMA user_version = 1").unwrap();
    drop(older);

    let store = SqliteStore::open(&path).unwrap();
    assert!(store.get("k").is_some());
    store.put_vectors("e", batch(0..1));
    store.flush().unwrap();
    assert_eq!(store.vectors("e", &keys(0..1)), [Some(vec![0.0, 0.5])]);
}

#[test]
fn a_row_that_makes_no_sense_counts_as_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    store.put_vectors("e", batch(0..2));
    store.flush().unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute("UPDATE vectors SET vector = x'010203' WHERE rowid = 1", []).unwrap();
    assert_eq!(store.vectors("e", &keys(0..2)), [None, Some(vec![1.0, 0.5])]);
}

#[test]
fn nothing_waits_for_vectors_that_another_program_keeps_from_being_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = std::time::Instant::now();
    store.put_vectors("e", batch(0..64));
    assert_eq!(store.vectors("e", &keys(0..1)), [None]);
    assert!(began.elapsed() < std::time::Duration::from_secs(1));
    other.execute_batch("COMMIT").unwrap();
    store.flush().unwrap();
    assert!(store.vectors("e", &keys(0..1))[0].is_some());
}
