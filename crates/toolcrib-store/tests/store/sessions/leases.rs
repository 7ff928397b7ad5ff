//! One program writes at a time.

use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use toolcrib_runtime::{Access, JournalError, SessionError, SessionStore};
use toolcrib_store::SqliteStore;

use super::{create, meddle, read, said, user, write};

#[tokio::test]
async fn a_second_writer_is_refused_until_the_first_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let (one, two) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let journal = create(&one).await;
    let id = journal.id().to_owned();
    for store in [&one, &two] {
        let error = store.open(&id, Access::Write).await.unwrap_err();
        assert!(
            matches!(&error, SessionError::InUse { pid, .. } if *pid == std::process::id()),
            "{error:?}"
        );
        let said = error.to_string();
        assert!(said.contains("wait") && said.contains("fork"), "{said}");
        // That somebody was refused makes it nobody's.
        journal.append(journal_length(store, &id).await, user("x")).await.unwrap();
    }
    drop(journal);
    one.flush().unwrap();
    let (opened, journal) = write(&two, &id).await;
    assert_eq!(opened.messages.len(), 2);
    drop((journal, two));
    write(&one, &id).await;
}

async fn journal_length(store: &SqliteStore, id: &str) -> u64 {
    read(store, id).await.meta.messages
}

#[tokio::test]
async fn who_was_taken_for_dead_writes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let (slow, quick) = (SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap());
    let first = create(&slow).await;
    let id = first.id().to_owned();
    first.append(0, user("a")).await.unwrap();
    meddle(&path, "UPDATE session_leases SET renewed_at = renewed_at - 60000");
    let (_, second) = write(&quick, &id).await;
    second.append(1, user("b")).await.unwrap();

    let error = first.append(2, user("x")).await.unwrap_err();
    assert!(matches!(error, JournalError::Lost), "{error:?}");
    assert!(matches!(first.ledger("1".into()).await, Err(JournalError::Lost)));
    // Nor does it take anything from the other when it goes.
    drop((first, slow));
    second.append(2, user("c")).await.unwrap();
    let opened = read(&quick, &id).await;
    assert_eq!(opened.messages, [user("a"), user("b"), user("c")]);
    assert_eq!(opened.ledger, None);
}

#[tokio::test]
async fn a_lease_of_a_process_that_is_gone_is_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let journal = create(&store).await;
    let id = journal.id();
    let is_free = async || match store.open(id, Access::Write).await {
        Ok(_) => true,
        Err(SessionError::InUse { .. }) => false,
        Err(error) => panic!("{error}"),
    };
    let lease = |values: &str| {
        meddle(&path, &format!("UPDATE session_leases SET {values}"));
    };
    assert!(!is_free().await);
    lease("pid = 1, owner = 'somebody else'");
    assert!(!is_free().await);
    // No process here has that number, which says nothing of one in a container.
    lease("pid = 999999999, machine = 'a container'");
    assert!(!is_free().await);
    assert_eq!(store.list("", 1).await.unwrap()[0].in_use_by, Some(999_999_999));
    lease("renewed_at = renewed_at + 3600000");
    assert!(is_free().await, "the clock was put back");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_ended_is_told_from_one_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let is_free = async |values: &str| {
        let journal = create(&store).await;
        let here = std::process::id();
        meddle(&path, &format!("UPDATE session_leases SET {values} WHERE pid = {here}"));
        store.open(journal.id(), Access::Write).await.is_ok()
    };
    assert!(!is_free("pid = 1, owner = 'somebody else'").await);
    assert!(is_free("pid = 999999999, owner = 'somebody else'").await);
    assert!(is_free("pid = -1, owner = 'somebody else'").await);
    assert!(is_free("owner = 'an earlier process with our number'").await);
}

#[tokio::test]
async fn a_lease_is_renewed_while_nothing_happens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let _journal = create(&store).await;
    let file = Connection::open(&path).unwrap();
    let renewed = || -> i64 {
        let when = "SELECT max(renewed_at) FROM session_leases";
        file.query_row(when, [], |row| row.get(0)).unwrap()
    };
    let (first, began) = (renewed(), Instant::now());
    while renewed() == first {
        assert!(began.elapsed() < Duration::from_secs(15), "it would be taken for dead");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn of_many_at_once_one_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let runtime = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    let id = runtime().block_on(said(&SqliteStore::open(&path).unwrap(), &["a"]));
    let won: Vec<bool> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (path, id) = (&path, &id);
                scope.spawn(move || {
                    let store = SqliteStore::open(path).unwrap();
                    let opened = runtime().block_on(store.open(id, Access::Write));
                    // Held until everybody has tried.
                    (store, opened.ok())
                })
            })
            .collect();
        let held: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        held.iter().map(|(_, opened)| opened.is_some()).collect()
    });
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
}
