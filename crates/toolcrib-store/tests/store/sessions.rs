//! Sessions: what is said comes back, whatever happens meanwhile.

mod costs;
mod faults;
mod kept;
mod leases;
mod processes;

use std::collections::BTreeMap;
use std::path::Path;

use rusqlite::Connection;
use toolcrib_runtime::{Access, CallMark, Journal, Opened, SessionStore};
use toolcrib_store::SqliteStore;

fn user(text: &str) -> String {
    format!(r#"{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}"#)
}

fn mark(call_id: &str) -> CallMark {
    CallMark { call_id: call_id.to_owned(), tool: "s/t".into(), idempotent: false }
}

async fn create(store: &SqliteStore) -> Box<dyn Journal> {
    store.create(BTreeMap::new()).await.unwrap()
}

/// A session that begins with these words, closed.
async fn said(store: &SqliteStore, texts: &[&str]) -> String {
    let journal = create(store).await;
    for (seq, text) in texts.iter().enumerate() {
        journal.append(seq as u64, user(text)).await.unwrap();
    }
    journal.id().to_owned()
}

async fn read(store: &SqliteStore, id: &str) -> Opened {
    store.open(id, Access::Read).await.unwrap()
}

async fn write(store: &SqliteStore, id: &str) -> (Opened, Box<dyn Journal>) {
    let mut opened = store.open(id, Access::Write).await.unwrap();
    let journal = opened.journal.take().unwrap();
    (opened, journal)
}

/// Changes the file behind the store's back.
fn meddle(path: &Path, change: &str) {
    Connection::open(path).unwrap().execute_batch(change).unwrap();
}
