//! Manifests to keep, and a look at the file from outside.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use serde_json::value::RawValue;
use toolcrib_runtime::Manifest;

pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// A manifest with `tools` tools.
pub(crate) fn manifest(server: &str, tools: usize) -> Manifest {
    let tool = |n: usize| {
        raw(&format!(
            r#"{{"name":"{server}_{n}","description":"Does the {n}th thing.","inputSchema":{{"type":"object"}}}}"#
        ))
    };
    Manifest {
        server_info: Some(raw(r#"{"name": "x"}"#)),
        capabilities: Some(raw(r#"{"tools":{}}"#)),
        instructions: Some("Ask nicely.".into()),
        tools: (0..tools).map(tool).collect(),
        listed_at: UNIX_EPOCH + Duration::from_millis(1_790_000_000_123),
        holds_for: Some(Duration::from_millis(1500)),
        start_took: Some(Duration::from_micros(250)),
        ..Manifest::new(server, "2025-11-25")
    }
}

/// Everything a manifest says, to compare.
pub(crate) fn text(manifest: &Manifest) -> String {
    serde_json::to_string(manifest).unwrap()
}

pub(crate) fn integrity(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap()
}

/// Makes all entries look as if they had last been used so many days ago.
pub(crate) fn age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    let millis = i64::try_from(then.duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let connection = Connection::open(path).unwrap();
    connection.execute("UPDATE manifests SET used_at = ?1", [millis]).unwrap();
}
