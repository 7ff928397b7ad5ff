//! What is remembered of a server, so that its tools are known while it isn't running.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::server::Eras;

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
    /// Its resources, each as it came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Box<RawValue>>,
    /// Its templates of resources, each as it came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource_templates: Vec<Box<RawValue>>,
    /// Its prompts, each as it came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<Box<RawValue>>,
    /// The eras it is known to speak.
    #[serde(default)]
    pub eras: Eras,
    /// When these were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eras_at: Option<SystemTime>,
    /// When it was listed.
    pub listed_at: SystemTime,
    /// For how long it said that the list holds. Without it, until the server is next asked.
    pub holds_for: Option<Duration>,
    /// How long it took to start.
    pub start_took: Option<Duration>,
}

impl Manifest {
    /// A server that was listed now and offers nothing.
    pub fn new(server: impl Into<String>, protocol_version: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            protocol_version: protocol_version.into(),
            server_info: None,
            capabilities: None,
            instructions: None,
            tools: Vec::new(),
            resources: Vec::new(),
            resource_templates: Vec::new(),
            prompts: Vec::new(),
            eras: Eras::default(),
            eras_at: None,
            listed_at: SystemTime::now(),
            holds_for: None,
            start_took: None,
        }
    }

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
