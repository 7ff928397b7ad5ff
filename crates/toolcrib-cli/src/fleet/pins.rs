//! Which definitions of the servers in use were approved.

use std::sync::Arc;

use futures::future::BoxFuture;
use toolcrib::mcp::Upstream;
use toolcrib::store::SqliteStore;
use toolcrib::{
    Definitions, Fingerprint, PinEdit, PinMark, PinStore, Pinned, Pins, StorageError, Toolset,
};

use super::{Fleet, data_dir};
use crate::args::Context;
use crate::config::Server;

/// The file in the data folder that says what was approved.
const PINS_FILE: &str = "pins.db";

/// What holds for the definitions of one server.
#[derive(Clone)]
pub(crate) struct Pinning {
    pub(crate) key: String,
    pub(crate) definitions: Definitions,
}

impl Pinning {
    /// A server is the same as long as it has its name and is reached in the same way, whatever
    /// credentials it is given.
    pub(super) fn of(server: &Server) -> Self {
        let parts = [server.name.as_bytes(), server.reached.as_bytes()];
        Self { key: Fingerprint::of(parts).to_string(), definitions: server.definitions }
    }
}

/// Where what was approved is kept. What can't be opened answers with the reason.
pub(super) fn open(context: &Context) -> Arc<dyn PinStore> {
    let Some(folder) = data_dir(&context.env) else {
        return Arc::new(Nowhere("there is no folder to keep them in; set HOME".to_owned()));
    };
    match SqliteStore::open(folder.join(PINS_FILE)) {
        Ok(store) => Arc::new(store),
        Err(error) => Arc::new(Nowhere(error.to_string())),
    }
}

impl Fleet {
    /// A server whose definitions are compared with those that were approved.
    pub(crate) fn pinned(&self, server: &Upstream) -> Pinned<Upstream> {
        let name = server.config().name.as_str();
        let pinning = self.pinning.get(name).cloned();
        let Pinning { key, definitions } = pinning
            .unwrap_or_else(|| Pinning { key: name.to_owned(), definitions: Definitions::Hold });
        Pinned::new(server.clone(), name, key, definitions, self.pins.clone())
    }

    /// The tools of a server that are held back, by their own names, as far as it is known what it
    /// has. Nothing is started if it has been listed or has ended.
    pub(crate) async fn held(&self, server: &Upstream) -> Vec<String> {
        let name = server.config().name.as_str();
        let holds = self.pinning.get(name).is_none_or(|it| it.definitions == Definitions::Hold);
        if !holds || server.known().is_none() {
            return Vec::new();
        }
        let held = self.pinned(server).list().await.map(|listing| listing.held);
        let held = held.unwrap_or_default().into_iter();
        let mut names: Vec<String> = held.map(|tool| tool.tool().to_owned()).collect();
        names.sort_unstable();
        names
    }
}

/// Keeps nothing, for this reason.
struct Nowhere(String);

impl PinStore for Nowhere {
    fn mark(&self, _: &str) -> Result<Option<PinMark>, StorageError> {
        Err(StorageError::new(std::io::Error::other(self.0.clone())))
    }

    fn edit<'a>(
        &'a self,
        key: &'a str,
        _: PinEdit,
    ) -> BoxFuture<'a, Result<Option<(Pins, PinMark)>, StorageError>> {
        let failed = self.mark(key).map(|_| None);
        Box::pin(async { failed })
    }
}
