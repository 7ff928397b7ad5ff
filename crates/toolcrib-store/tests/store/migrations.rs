//! A file of any earlier version keeps what it has, and does what this version does.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use toolcrib_runtime::{Access, ManifestStore, SessionStore, TextKey, UsageStore, VectorStore};
use toolcrib_store::SqliteStore;

use crate::support::{integrity, manifest, text};

/// What each version added, as it was released. None of this changes, whatever the store does.
const VERSIONS: [&str; 5] = [
    "CREATE TABLE manifests (
        key TEXT NOT NULL PRIMARY KEY, server TEXT NOT NULL, protocol_version TEXT NOT NULL,
        tools INTEGER NOT NULL, listed_at INTEGER NOT NULL, used_at INTEGER NOT NULL,
        bytes INTEGER NOT NULL, body TEXT NOT NULL
    ) STRICT;",
    "CREATE TABLE usage (
        query TEXT NOT NULL, tool TEXT NOT NULL, count INTEGER NOT NULL, used_at INTEGER NOT NULL,
        PRIMARY KEY (query, tool)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX usage_by_time ON usage (used_at);",
    "CREATE TABLE vectors (
        embedder TEXT NOT NULL, text BLOB NOT NULL, vector BLOB NOT NULL,
        PRIMARY KEY (embedder, text)
    ) STRICT;",
    "CREATE TABLE sessions (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, created_at INTEGER NOT NULL,
        changed_at INTEGER NOT NULL, title TEXT, name TEXT, labels TEXT NOT NULL, forked_from TEXT,
        messages INTEGER NOT NULL, copied INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE session_messages (
        session INTEGER NOT NULL, seq INTEGER NOT NULL, said TEXT, body TEXT NOT NULL,
        PRIMARY KEY (session, seq)
    ) STRICT;
    CREATE TABLE session_ledgers (session INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE session_calls (
        session INTEGER NOT NULL, at INTEGER NOT NULL, call TEXT NOT NULL, tool TEXT NOT NULL,
        idempotent INTEGER NOT NULL, result TEXT, PRIMARY KEY (session, at, call)
    ) STRICT;
    CREATE TABLE session_leases (
        session INTEGER PRIMARY KEY, owner TEXT NOT NULL, machine TEXT NOT NULL,
        pid INTEGER NOT NULL, taken_at INTEGER NOT NULL, renewed_at INTEGER NOT NULL
    ) STRICT;",
    "CREATE TABLE pins (
        key TEXT NOT NULL PRIMARY KEY, revision INTEGER NOT NULL, whole TEXT,
        changed_at INTEGER NOT NULL, body TEXT NOT NULL
    ) STRICT;",
];

/// Something that each version could have kept.
const ROWS: [&str; 5] = [
    "INSERT INTO manifests
     VALUES ('k', 's', '2025-11-25', 2, 1790000000123, unixepoch() * 1000, 7, '{manifest}');",
    "INSERT INTO usage VALUES ('open an issue', 's/t', 3, unixepoch() * 1000);",
    "",
    r#"INSERT INTO sessions
       VALUES (7, '1m315ew3v10z', 1, 2, 'first', NULL, '{"model":"m"}', '1m315ew3v10y', 2, 1);
       INSERT INTO session_messages VALUES (7, 0, 'first', '{"role":"user","content":"first"}');
       INSERT INTO session_messages VALUES (7, 1, NULL, '{"role": "assistant"}');
       INSERT INTO session_ledgers VALUES (7, '[1]');
       INSERT INTO session_calls VALUES (7, 2, 'c', 's/t', 1, '{}');
       INSERT INTO session_leases VALUES (7, 'x-0', '', 999999999, 1, 1);"#,
    r#"INSERT INTO pins VALUES ('k', 3, NULL, 1, '{"server":"s","tools":{}}');"#,
];

/// A file as a version left it.
fn file_of(version: usize, path: &Path) {
    let file = Connection::open(path).unwrap();
    file.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    for step in 0..version {
        file.execute_batch(VERSIONS[step]).unwrap();
        let rows = ROWS[step].replace("{manifest}", &text(&manifest("s", 2)).replace('\'', "''"));
        file.execute_batch(&rows).unwrap();
    }
    file.pragma_update(None, "application_id", 0x6372_6962).unwrap();
    file.pragma_update(None, "user_version", version as i64).unwrap();
}

#[tokio::test]
async fn a_file_of_every_version_keeps_what_it_has_and_takes_what_is_new() {
    let folder = tempfile::tempdir().unwrap();
    for version in 1..=VERSIONS.len() {
        let path = folder.path().join(format!("{version}.db"));
        file_of(version, &path);
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(text(&store.get("k").unwrap()), text(&manifest("s", 2)));
        let counted: Vec<u32> = store.rows().iter().map(|row| row.count).collect();
        assert_eq!(counted, if version >= 2 { vec![3] } else { vec![] }, "{version}");
        let sessions = store.list("", 9).await.unwrap();
        assert_eq!(sessions.len(), usize::from(version >= 4), "{version}");

        store.record("open an issue", "s/t");
        let key = TextKey::of("a");
        store.put_vectors("e", vec![(key, vec![1.0])]);
        let journal = store.create(Default::default()).await.unwrap();
        journal.append(0, "{}".into()).await.unwrap();
        store.flush().unwrap();
        assert_eq!(store.vectors("e", &[key]), [Some(vec![1.0])]);
        assert_eq!(store.rows()[0].count, if version >= 2 { 4 } else { 1 });
        drop((journal, store));
        assert_eq!(integrity(&path), "ok");
        let now: i64 = Connection::open(&path)
            .unwrap()
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .unwrap();
        assert_eq!(now, VERSIONS.len() as i64);
    }
}

#[tokio::test]
async fn a_session_of_the_first_version_that_had_them_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    file_of(4, &path);
    let store = SqliteStore::open(&path).unwrap();
    let opened = store.open("1m3", Access::Write).await.unwrap();
    assert_eq!(opened.messages[1], r#"{"role": "assistant"}"#);
    assert_eq!(opened.ledger.as_deref(), Some("[1]"));
    assert_eq!(opened.calls[0].result.as_deref(), Some("{}"));
    assert_eq!((&*opened.meta.labels["model"], opened.meta.copied), ("m", 1));
    opened.journal.unwrap().append(2, "{}".into()).await.unwrap();
    assert_eq!(store.list("FIRST", 9).await.unwrap()[0].messages, 3);
}

/// A change to a table without a step from the old one to the new one would go unseen otherwise.
#[test]
fn a_new_file_has_the_tables_that_a_file_of_the_last_version_has() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.db"), folder.path().join("new.db"));
    file_of(VERSIONS.len(), &old);
    drop(SqliteStore::open(&new).unwrap());
    let columns = |path: &Path| -> Vec<String> {
        let file = Connection::open(path).unwrap();
        let mut columns = file
            .prepare(
                "SELECT t.name || '.' || c.name || ' ' || c.type || c.\"notnull\" || c.pk
                 FROM pragma_table_list t, pragma_table_info(t.name) c
                 WHERE t.name NOT LIKE 'sqlite_%' ORDER BY t.name, c.cid",
            )
            .unwrap();
        columns.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    assert!(columns(&old).len() > 30);
    assert_eq!(columns(&old), columns(&new));
    assert!(fs::metadata(&new).unwrap().len() > 0);
}
