//! What was called after which query.

use rusqlite::Connection;
use toolcrib_runtime::{ManifestStore, UsageStore};
use toolcrib_store::SqliteStore;

use crate::support::manifest;

fn counts(store: &SqliteStore) -> Vec<(String, String, u32)> {
    let rows = store.usage().unwrap().into_iter();
    rows.map(|row| (row.query, row.tool, row.count)).collect()
}

fn row(query: &str, tool: &str, count: u32) -> (String, String, u32) {
    (query.to_owned(), tool.to_owned(), count)
}

#[test]
fn choices_are_counted_and_come_back_in_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    store.record("open an issue", "github/create_issue");
    store.record("wetter ☂ ' \" --", "weather/now");
    store.record("open an issue", "github/create_issue");
    let expected =
        [row("open an issue", "github/create_issue", 2), row("wetter ☂ ' \" --", "weather/now", 1)];
    assert_eq!(counts(&store), expected, "seen at once");
    drop(store);
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(counts(&store), expected);
    store.record("open an issue", "github/create_issue");
    assert_eq!(counts(&store)[0].2, 3);
}

#[test]
fn what_is_cleared_is_gone_from_the_file_and_manifests_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    store.put("k", manifest("s", 1));
    for n in 0..500 {
        store.record(&format!("a telling query {n}"), "s/t");
    }
    store.clear_usage().unwrap();
    assert_eq!(counts(&store), []);
    drop(store);
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(13).any(|part| part == b"telling query"));
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(counts(&store), []);
    assert!(store.get("k").is_some());
}

#[test]
fn a_file_of_the_first_version_keeps_its_manifests_and_gets_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    SqliteStore::open(&path).unwrap().put("k", manifest("s", 2));
    // As it was before there was anything else in it.
    let old = Connection::open(&path).unwrap();
    let others: Vec<String> = old
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'manifests'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(others.contains(&"usage".to_owned()));
    for table in others {
        old.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    old.pragma_update(None, "user_version", 1).unwrap();
    drop(old);

    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.get("k").unwrap().tools.len(), 2);
    store.record("a", "s/t");
    assert_eq!(counts(&store), [row("a", "s/t", 1)]);
}

#[test]
fn programs_with_one_file_count_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let (gateway, agent) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    gateway.record("a", "s/t");
    gateway.flush().unwrap();
    agent.record("a", "s/t");
    agent.flush().unwrap();
    assert_eq!(counts(&gateway), [row("a", "s/t", 2)]);
    agent.clear();
    assert_eq!(gateway.rows(), []);
}
