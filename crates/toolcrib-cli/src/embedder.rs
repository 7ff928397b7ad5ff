//! The embedder that is configured, if it is one behind an address: opened with what it made
//! before, for `serve` and `search`.

use std::cell::Cell;
use std::sync::Arc;

use toolcrib::store::SqliteStore;
use toolcrib::{Embeddings, Meaning, View, text_to_embed};

use crate::args::Context;
use crate::config::{EmbedderChoice, OwnEmbedder};
use crate::output::Progress;

/// The file in the cache folder with the vectors of tools. They are many and can be made again, so
/// nothing else waits for this file to be looked through.
const STORE_FILE: &str = "vectors.db";

/// The embedder in use.
pub(crate) struct Embedder {
    pub(crate) embeddings: Embeddings,
    store: Option<SqliteStore>,
}

impl Embedder {
    /// The one behind an address, if that is what is configured. One that can't be used is told
    /// of, and done without.
    pub(crate) fn open(context: &Context) -> Option<Self> {
        let (endpoint, limit) = match context.config.embedder_endpoint(&context.env)? {
            Ok(opened) => opened,
            Err(reason) => {
                context.warn(&format!("the embedder can't be used: {reason}; {INSTEAD}"));
                return None;
            }
        };
        let store = open_store(context);
        let embeddings = match &store {
            Some(store) => Embeddings::new(endpoint, store.clone()),
            None => Embeddings::new(endpoint, ()),
        };
        Some(Self { embeddings: embeddings.with_query_limit(limit), store })
    }

    /// Waits until what it made is written.
    pub(crate) fn flush(&self) {
        if let Some(Err(error)) = self.store.as_ref().map(SqliteStore::flush) {
            crate::output::warn(&format!("not all vectors were kept: {error}"));
        }
    }
}

/// What happens where an embedder fails.
const INSTEAD: &str = "tools are ranked by the built-in table";

fn open_store(context: &Context) -> Option<SqliteStore> {
    let file = context.config.gateway.cache_dir(&context.env)?.join(STORE_FILE);
    let opened = SqliteStore::open(&file).or_else(|_| SqliteStore::open_or_recover(&file));
    opened.inspect_err(|error| context.warn(&format!("vectors are not kept: {error}"))).ok()
}

/// How `search` ranks a view.
pub(crate) enum Ranker {
    Own(OwnEmbedder),
    Endpoint(Box<Asking>),
}

/// An embedder that has seen every tool, and what to ask it in.
pub(crate) struct Asking {
    embedder: Embedder,
    runtime: tokio::runtime::Runtime,
    has_failed: Cell<bool>,
}

/// What was said about a query.
pub(crate) enum Said {
    Own(OwnEmbedder),
    Vector(Arc<[f32]>),
}

impl Said {
    pub(crate) fn meaning(&self) -> Meaning<'_> {
        match self {
            Self::Own(OwnEmbedder::Static) => Meaning::Static,
            Self::Own(OwnEmbedder::None) => Meaning::None,
            Self::Vector(vector) => Meaning::Vector(vector),
        }
    }
}

impl Ranker {
    /// Has every tool embedded that is not yet, if there is somebody to do it.
    pub(crate) fn new(view: &View, context: &Context) -> anyhow::Result<Self> {
        if let EmbedderChoice::Own(own) = &context.config.search.embedder {
            return Ok(Self::Own(*own));
        }
        let own = Self::Own(OwnEmbedder::Static);
        let Some(embedder) = Embedder::open(context) else { return Ok(own) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let progress = Progress::new(!context.quiet);
        let told = |done, all| progress.bar(done, all, "tools embedded");
        let waiting = view.catalog().unembedded();
        let supplied = runtime.block_on(embedder.embeddings.supply(&waiting, told));
        drop(progress);
        embedder.flush();
        if let Err(error) = supplied {
            context.warn(&format!("the embedder fails: {error}; {INSTEAD}"));
            return Ok(own);
        }
        let has_failed = Cell::new(false);
        Ok(Self::Endpoint(Box::new(Asking { embedder, runtime, has_failed })))
    }

    /// What to rank this query by.
    pub(crate) fn ask(&self, query: &str, context: &Context) -> Said {
        let asking = match self {
            Self::Own(own) => return Said::Own(*own),
            Self::Endpoint(asking) => asking,
        };
        let Some(text) = text_to_embed(query) else { return Said::Own(OwnEmbedder::Static) };
        match asking.runtime.block_on(asking.embedder.embeddings.query(&text)) {
            Ok(vector) => Said::Vector(vector),
            Err(error) => {
                if !asking.has_failed.replace(true) {
                    context.warn(&format!("the embedder fails: {error}; {INSTEAD}"));
                }
                Said::Own(OwnEmbedder::Static)
            }
        }
    }
}
