//! How long a start waits for its store: open it, read 30 manifests of 25 tools.
//!
//! `cargo run --release -p toolcrib-store --example startup`

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::value::{RawValue, to_raw_value};
use toolcrib_runtime::{Manifest, ManifestStore};
use toolcrib_store::{SqliteStore, StoreError};

const SERVERS: usize = 30;
const TOOLS: usize = 25;

type Open = fn(PathBuf) -> Result<SqliteStore, StoreError>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("toolcrib-startup-{}", std::process::id()));
    let path = folder.join("toolcrib.db");
    let store = SqliteStore::open(&path)?;
    for n in 0..SERVERS {
        store.put(&key(n), manifest(n)?);
    }
    drop(store);

    let ways: [(&str, Open); 2] =
        [("open", SqliteStore::open), ("open_or_recover", SqliteStore::open_or_recover)];
    for (what, open) in ways {
        let mut runs: Vec<(Duration, Duration)> = Vec::new();
        for _ in 0..50 {
            let began = Instant::now();
            let store = open(path.clone())?;
            let opened = began.elapsed();
            let tools: usize = (0..SERVERS)
                .filter_map(|n| store.get(&key(n)))
                .map(|manifest| manifest.tools.len())
                .sum();
            runs.push((began.elapsed(), opened));
            assert_eq!(tools, SERVERS * TOOLS);
        }
        runs.sort();
        let (median, opened) = runs[runs.len() / 2];
        let (worst, _) = runs[runs.len() - 1];
        writeln!(
            io::stdout(),
            "{what}: {opened:.1?}, with {SERVERS} manifests {median:.1?}, at worst {worst:.1?}"
        )?;
    }
    writeln!(io::stdout(), "file: {} KB", path.metadata()?.len() / 1024)?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn key(n: usize) -> String {
    format!("{n:064x}")
}

fn manifest(n: usize) -> Result<Manifest, serde_json::Error> {
    Ok(Manifest {
        instructions: Some("Ask for a list before you change anything. ".repeat(10)),
        tools: (0..TOOLS).map(tool).collect::<Result<_, _>>()?,
        ..Manifest::new(format!("server{n}"), "2025-11-25")
    })
}

/// About 1.5 KB, as tools of real servers have.
fn tool(n: usize) -> Result<Box<RawValue>, serde_json::Error> {
    let properties: serde_json::Map<String, serde_json::Value> = (0..8)
        .map(|p| {
            let text = "What it is for, in a sentence of the usual length, with an example or two.";
            let property =
                serde_json::json!({"type": "string", "description": text, "minLength": p});
            (format!("parameter_{p}"), property)
        })
        .collect();
    to_raw_value(&serde_json::json!({
        "name": format!("do_something_{n}"),
        "description": "Does something with a thing, and says what came of it. ".repeat(5),
        "inputSchema": {"type": "object", "properties": properties, "required": ["parameter_0"]},
        "annotations": {"readOnlyHint": true},
    }))
}
