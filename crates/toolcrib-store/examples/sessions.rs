//! What keeping a session costs: each change on 1,000 messages, and opening them.
//!
//! `cargo run --release -p toolcrib-store --example sessions`

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use toolcrib_runtime::{Access, CallMark, SessionStore};
use toolcrib_store::SqliteStore;

const MESSAGES: u64 = 1000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("toolcrib-sessions-{}", std::process::id()));
    let path = folder.join("toolcrib.db");
    let store = SqliteStore::open(&path)?;
    let journal = store.create(BTreeMap::new()).await?;
    let id = journal.id().to_owned();
    for seq in 0..MESSAGES {
        journal.append(seq, message()).await?;
    }

    // Each kind of change, on all of that.
    let (mut appends, mut ledgers, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..MESSAGES {
        let call_id = n.to_string();
        let call = CallMark { call_id: call_id.clone(), tool: "s/t".into(), idempotent: false };
        let began = Instant::now();
        journal.began(call).await?;
        calls.push(began.elapsed());
        journal.finished(call_id, message()).await?;
        let began = Instant::now();
        journal.ledger(ledger()).await?;
        ledgers.push(began.elapsed());
        let began = Instant::now();
        journal.append(MESSAGES + n, message()).await?;
        appends.push(began.elapsed());
    }
    journal.cut(MESSAGES).await?;
    drop(journal);

    let mut opens = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        let opened = store.open(&id, Access::Write).await?;
        opens.push(began.elapsed());
        assert_eq!(opened.messages.len() as u64, MESSAGES);
    }
    for (what, times) in
        [("append", appends), ("ledger", ledgers), ("call", calls), ("open", opens)]
    {
        report(what, times)?;
    }
    drop(store);
    writeln!(io::stdout(), "file: {} KB", path.metadata()?.len() / 1024)?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn report(what: &str, mut times: Vec<Duration>) -> io::Result<()> {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let (median, late, worst) = (at(0.5), at(0.99), at(1.0));
    writeln!(io::stdout(), "{what}: {median:.1?}, 99 of 100 {late:.1?}, at worst {worst:.1?}")
}

/// About 2 KB, as messages with results of tools have.
fn message() -> String {
    let text = "What it found, in a sentence of the usual length, and where. ".repeat(33);
    format!(r#"{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}"#)
}

/// About 20 KB: a dozen loaded tools.
fn ledger() -> String {
    format!(r#"{{"loaded":"{}"}}"#, "a schema of the usual length. ".repeat(680))
}
