//! Files that are not as they should be.

use std::fs;

use rusqlite::Connection;
use toolcrib_runtime::{Access, Extent, JournalError, SessionError, SessionStore};
use toolcrib_store::{SqliteStore, StoreError};

use super::{create, meddle, read, said, user, write};

#[tokio::test]
async fn what_is_no_json_is_refused_and_the_session_goes_on() {
    let store = SqliteStore::open_in_memory().unwrap();
    let journal = create(&store).await;
    for text in ["", "Dear diary", r#"{"role":"user""#, "{} {}"] {
        for error in [
            journal.append(0, text.into()).await.unwrap_err(),
            journal.ledger(text.into()).await.unwrap_err(),
        ] {
            assert!(matches!(error, JournalError::NotJson { .. }), "{text}: {error:?}");
        }
    }
    journal.append(0, user("a")).await.unwrap();
    let opened = read(&store, journal.id()).await;
    assert_eq!((opened.messages, opened.ledger), (vec![user("a")], None));
}

/// Either it can't be opened, or it is whole: never a history with something missing.
#[tokio::test]
async fn a_file_cut_short_gives_no_shorter_history() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let journal = create(&store).await;
    for seq in 0..100 {
        journal.append(seq, user(&"x".repeat(300))).await.unwrap();
    }
    let id = journal.id().to_owned();
    drop((journal, store));
    let whole = fs::read(&path).unwrap();
    let cut = folder.path().join("cut.db");
    let mut refused = 0;
    for part in 1..16 {
        fs::write(&cut, &whole[..whole.len() * part / 16]).unwrap();
        let opened = match SqliteStore::open(&cut) {
            Ok(store) => store.open(&id, Access::Read).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match opened {
            Ok(opened) => assert_eq!(opened.messages.len(), 100),
            Err(error) => {
                assert!(error.contains("damaged"), "{error}");
                refused += 1;
            }
        }
        for beside in ["cut.db-wal", "cut.db-shm", "cut.db-lock"] {
            let _ = fs::remove_file(folder.path().join(beside));
        }
    }
    assert!(refused > 10, "{refused}");
}

#[tokio::test]
async fn a_damaged_session_is_told_of_and_the_others_are_not_concerned() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let sound = said(&store, &["sound"]).await;
    for (damage, reason) in [
        ("DELETE FROM session_messages WHERE seq = 1 AND", "message 1 is missing"),
        ("DELETE FROM session_messages WHERE seq = 2 AND", "2 messages are left of 3"),
        ("UPDATE session_messages SET body = CAST(x'ff' AS TEXT) WHERE", "message 0"),
    ] {
        let id = said(&store, &["a", "b", "c"]).await;
        let session = format!("(SELECT number FROM sessions WHERE id = '{id}')");
        meddle(&path, &format!("{damage} session = {session}"));
        for error in [
            store.open(&id, Access::Read).await.unwrap_err(),
            store.open(&id, Access::Write).await.unwrap_err(),
            store.export(&id).await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, SessionError::Damaged { .. }), "{error:?}");
            assert!(error.to_string().contains(reason), "{error}");
        }
        // Who could not open it does not keep it from being deleted.
        store.delete(&id).await.unwrap();
    }
    let id = said(&store, &["a"]).await;
    meddle(&path, "UPDATE session_messages SET body = 'Dear diary'");
    let error = store.export(&id).await.unwrap_err().to_string();
    assert!(error.contains("message 0 is no JSON"), "{error}");
    assert_eq!(read(&store, &sound).await.messages, ["Dear diary"], "it is as it was left");
    assert_eq!(store.list("", 9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_file_of_a_newer_version_keeps_its_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let id = said(&SqliteStore::open(&path).unwrap(), &["a"]).await;
    meddle(&path, "PRAGMA user_version = 99");
    for opened in [SqliteStore::open(&path), SqliteStore::open_or_recover(&path)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 99, .. }), "{error:?}");
    }
    meddle(&path, "PRAGMA user_version = 5");
    assert_eq!(read(&SqliteStore::open(&path).unwrap(), &id).await.messages, [user("a")]);
}

#[tokio::test]
async fn a_file_without_a_table_of_sessions_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    for table in
        ["sessions", "session_messages", "session_ledgers", "session_calls", "session_leases"]
    {
        drop(SqliteStore::open_or_recover(&path).unwrap());
        meddle(&path, &format!("DROP TABLE {table}"));
        let error = SqliteStore::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{table}: {error:?}");
    }
}

#[tokio::test]
async fn what_another_program_keeps_from_being_written_can_be_written_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let id = said(&store, &["a"]).await;
    let (_, journal) = write(&store, &id).await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = journal.append(1, user("b")).await.unwrap_err();
    assert!(matches!(error, JournalError::Storage(_)), "{error:?}");
    assert!(error.to_string().contains("locked by another program"), "{error}");
    assert_eq!(read(&store, &id).await.messages.len(), 1, "it can still be read");
    other.execute_batch("ROLLBACK").unwrap();
    journal.append(1, user("b")).await.unwrap();
    let copy = store.fork(&id, Extent::Whole).await.unwrap();
    assert_eq!(read(&store, &copy).await.messages, [user("a"), user("b")]);
}
