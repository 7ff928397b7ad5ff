//! Files that are not as they should be.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use toolcrib_runtime::ManifestStore;
use toolcrib_store::{SqliteStore, StoreError};

use crate::support::{integrity, manifest, text};

/// A store's file with a hundred manifests, closed.
fn filled(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    for n in 0..100 {
        store.put(&n.to_string(), manifest("s", 30));
    }
}

fn error(path: &Path) -> StoreError {
    SqliteStore::open(path).expect_err("it should not open")
}

/// Opening fails, recovering works, and the bad file is still there under another name.
fn is_recovered(path: &Path) {
    let bad = fs::read(path).unwrap();
    let store = SqliteStore::open_or_recover(path).unwrap();
    assert!(store.manifests().unwrap().is_empty());
    store.put("k", manifest("s", 1));
    drop(store);
    assert_eq!(integrity(path), "ok");
    assert!(SqliteStore::open(path).unwrap().get("k").is_some());
    let aside = path.with_file_name("t.db.corrupt-1");
    assert!(fs::read(aside).unwrap() == bad, "the bad file is kept as it was");
}

#[test]
fn a_file_that_is_no_database_is_refused_or_moved_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    fs::write(&path, "Dear diary, ".repeat(1000)).unwrap();
    let error = error(&path);
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("t.db is damaged") && said.contains("move it away"), "{said}");
    is_recovered(&path);
}

#[test]
fn a_file_cut_short_is_moved_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    filled(&path);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    is_recovered(&path);
}

#[test]
fn damage_in_the_middle_is_found_when_looked_for_and_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    filled(&path);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[8192..end - 4096].fill(0xA5);
    fs::write(&path, bytes).unwrap();

    if let Ok(store) = SqliteStore::open(&path) {
        for n in 0..100 {
            assert!(store.get(&n.to_string()).is_none());
        }
        store.put("k", manifest("s", 1));
        let _ = store.flush();
    }
    is_recovered(&path);
}

#[test]
fn a_file_without_its_table_is_moved_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    filled(&path);
    Connection::open(&path).unwrap().execute_batch("DROP TABLE manifests").unwrap();
    assert!(matches!(error(&path), StoreError::Corrupt { .. }));
    is_recovered(&path);
}

#[test]
fn a_damaged_file_that_somebody_uses_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    filled(&path);
    let user = SqliteStore::open(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("DROP TABLE manifests").unwrap();
    let error = SqliteStore::open_or_recover(&path).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(!path.with_file_name("t.db.corrupt-1").exists());

    assert!(user.get("1").is_none(), "it answers as if it had nothing");
    user.put("1", manifest("s", 1));
    assert!(user.flush().is_err());
    drop(user);
    is_recovered(&path);
}

#[test]
fn a_newer_file_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    filled(&path);
    let newer = Connection::open(&path).unwrap();
    newer.execute_batch("PRAGMA user_version = 99; UPDATE manifests SET used_at = 0").unwrap();
    // A copy with its log not yet written back, as after a crash.
    let copy = folder.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    fs::copy(path.with_file_name("t.db-wal"), folder.path().join("copy.db-wal")).unwrap();
    let state = || {
        let log = fs::read(folder.path().join("copy.db-wal")).unwrap();
        assert!(!log.is_empty());
        (fs::read(&copy).unwrap(), log)
    };
    let before = state();

    for error in [error(&copy), SqliteStore::open_or_recover(&copy).unwrap_err()] {
        assert!(matches!(error, StoreError::Newer { found: 99, known: 5, .. }), "{error:?}");
        assert!(error.to_string().contains("newer version"), "{error}");
    }
    assert!(state() == before, "nothing is changed");
}

#[test]
fn another_programs_database_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE songs (title)").unwrap();
    let before = fs::read(&path).unwrap();
    for error in [error(&path), SqliteStore::open_or_recover(&path).unwrap_err()] {
        assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");
    }
    assert!(fs::read(&path).unwrap() == before, "nothing is changed");
}

#[test]
fn a_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = error(folder.path());
    assert!(matches!(error, StoreError::NotAFile { .. }), "{error:?}");
    assert!(SqliteStore::open("").is_err());
}

#[test]
fn a_path_through_a_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let error = error(&folder.path().join("file/t.db"));
    assert!(error.to_string().contains("file"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_place_that_can_not_be_written_is_refused() {
    // Nobody may make files here, not even the administrator.
    let error = error(Path::new("/sys/t.db"));
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("/sys/t.db can't be written"), "{error}");
}

#[test]
fn a_file_locked_for_long_is_refused_and_opens_once_it_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    filled(&path);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    for error in [error(&path), SqliteStore::open_or_recover(&path).unwrap_err()] {
        assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
        assert!(error.to_string().contains("locked by another program"), "{error}");
    }
    drop(other);
    assert_eq!(SqliteStore::open(&path).unwrap().manifests().unwrap().len(), 100);
}

#[test]
fn a_write_that_is_locked_out_is_told_by_the_flush_and_reads_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    filled(&path);
    let store = SqliteStore::open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    store.put("new", manifest("s", 1));
    assert!(store.get("new").is_some());
    assert!(store.get("1").is_some());
    let error = store.flush().unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    other.execute_batch("ROLLBACK").unwrap();

    assert!(store.get("new").is_none(), "it could not be kept");
    store.put("new", manifest("s", 2));
    store.flush().unwrap();
    assert_eq!(text(&store.get("new").unwrap()), text(&manifest("s", 2)));
}

#[test]
fn a_manifest_in_a_form_nobody_knows_is_as_good_as_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    filled(&path);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("UPDATE manifests SET body = '{\"tools\": 7}' WHERE key = '1'").unwrap();
    other.execute_batch("UPDATE manifests SET body = CAST(x'ff' AS TEXT) WHERE key = '2'").unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert!(store.get("1").is_none());
    assert!(store.get("2").is_none());
    assert!(store.get("3").is_some());
    store.put("1", manifest("s", 1));
    store.flush().unwrap();
    assert!(store.get("1").is_some());
}
