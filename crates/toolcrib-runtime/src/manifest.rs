//! What is remembered of a server, so that its tools are known while it isn't running.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What a server said of itself when it was last listed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// What the configuration calls it.
    pub server: String,
    /// The protocol version it was listed in.
    pub protocol_version: String,
    /// What it calls itself: `serverInfo`, as it came.
    pub server_info: Option<Box<RawValue>>,
    /// What it can do: `capabilities`, as it came.
    pub capabilities: Option<Box<RawValue>>,
    /// How it wants to be used, in its own words.
    pub instructions: Option<String>,
    /// Its tools, each as it came, whether it can be read as a tool or not.
    pub tools: Vec<Box<RawValue>>,
    /// When it was listed.
    pub listed_at: SystemTime,
    /// For how long it said that the list holds. Without it, until the server is next asked.
    pub holds_for: Option<Duration>,
    /// How long it took to start.
    pub start_took: Option<Duration>,
}

impl Manifest {
    /// Whether the list should be asked for again.
    pub fn is_stale(&self, now: SystemTime) -> bool {
        let Some(holds_for) = self.holds_for else { return false };
        // A clock that was put back is no reason to trust a list for longer.
        now.duration_since(self.listed_at).map_or(true, |age| age > holds_for)
    }
}

/// Keeps manifests. The key stands for a server's whole configuration, credentials included: what
/// was listed under one is never shown under another.
///
/// The calls are quick and don't wait for a disk longer than it takes to read or write one entry.
/// A store that fails says so in the log and answers as if it had nothing: a server can always be
/// asked again.
pub trait ManifestStore: Send + Sync + 'static {
    /// What is kept under a key.
    fn get(&self, key: &str) -> Option<Manifest>;

    /// Keeps a manifest, in place of what was there.
    fn put(&self, key: &str, manifest: Manifest);
}

/// Keeps nothing.
impl ManifestStore for () {
    fn get(&self, _: &str) -> Option<Manifest> {
        None
    }

    fn put(&self, _: &str, _: Manifest) {}
}

impl<T: ManifestStore + ?Sized> ManifestStore for Arc<T> {
    fn get(&self, key: &str) -> Option<Manifest> {
        (**self).get(key)
    }

    fn put(&self, key: &str, manifest: Manifest) {
        (**self).put(key, manifest);
    }
}
