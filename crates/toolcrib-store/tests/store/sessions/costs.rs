//! What keeping a long session costs. The bounds are ten times what is wanted, for machines that
//! have other things to do and code that was not optimized; `examples/sessions.rs` tells figures.

use std::time::{Duration, Instant};

use toolcrib_runtime::SessionStore;
use toolcrib_store::SqliteStore;

use super::{create, user, write};

#[tokio::test]
async fn a_change_of_a_long_session_is_quick_and_so_is_opening_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("t.db")).unwrap();
    let journal = create(&store).await;
    let text = "word ".repeat(400);
    let mut took: Vec<Duration> = Vec::new();
    for seq in 0..1000 {
        let began = Instant::now();
        journal.append(seq, user(&text)).await.unwrap();
        took.push(began.elapsed());
    }
    let id = journal.id().to_owned();
    drop(journal);
    took.sort();
    assert!(took[500] < Duration::from_millis(10), "{:?}", took[500]);

    let began = Instant::now();
    let (opened, _journal) = write(&store, &id).await;
    let took = began.elapsed();
    assert_eq!(opened.messages.len(), 1000);
    assert!(took < Duration::from_millis(500), "{took:?}");
    assert_eq!(store.list("", 9).await.unwrap().len(), 1);
}
