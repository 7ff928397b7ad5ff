//! What is kept between runs, in one SQLite file.
//!
//! A server's manifest is what it said of itself when it was last listed. With it, a second start
//! knows every tool without starting a server.
//!
//! ```
//! use toolcrib_runtime::{Manifest, ManifestStore};
//! use toolcrib_store::SqliteStore;
//!
//! # let folder = tempfile::tempdir()?;
//! let store = SqliteStore::open_or_recover(folder.path().join("toolcrib.db"))?;
//! store.put("fingerprint-of-the-configuration", manifest());
//! store.flush()?; // from here on, a kill loses nothing
//!
//! let kept = store.get("fingerprint-of-the-configuration").ok_or("not kept")?;
//! assert_eq!(kept.server, "weather");
//! # fn manifest() -> Manifest { Manifest::new("weather", "2025-11-25") }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A session is a conversation of an agent, kept as it goes on.
//!
//! ```
//! use toolcrib_runtime::{Access, SessionStore};
//! use toolcrib_store::SqliteStore;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::open_in_memory()?;
//! let journal = store.create(Default::default()).await?;
//! journal.append(0, r#"{"role":"user","content":"Is it raining?"}"#.to_owned()).await?;
//! let id = journal.id().to_owned();
//! drop(journal); // from here on another program may go on with it
//!
//! let opened = store.open(&id, Access::Write).await?;
//! assert_eq!(opened.meta.title.as_deref(), Some("Is it raining?"));
//! assert_eq!(opened.messages.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! Several programs may have the file open at once. Nothing here writes on the caller's thread:
//! one thread per open store does, and what it has not written yet is read from memory.
//!
//! The parts, in reading order:
//!
//! 1. [`SqliteStore`]: the handle.
//! 2. `writer`: the thread that writes, and what waits for it.
//! 3. `manifests`: the table, and the limits on what stays in it.
//! 4. `usage`: the table of what was called after which query.
//! 5. `vectors`: the table of what embedders made of tools.
//! 6. `sessions`: conversations, their journals, and who may write to them; `errand` is a change
//!    that somebody waits for.
//! 7. `pins`: the table of definitions that were approved.
//! 8. `schema`: what makes a file ours, and how an older one is brought up to date.
//! 9. `place`: the file on the disk, who may read it, and moving a damaged one aside.
//! 10. [`FileCredentials`]: logins, in a file of their own that only its owner can read.

mod credentials;
mod errand;
mod error;
mod manifests;
mod pins;
mod place;
mod schema;
mod sessions;
mod store;
mod usage;
mod vectors;
mod writer;

pub use credentials::FileCredentials;
pub use error::StoreError;
pub use manifests::KeptManifest;
pub use store::SqliteStore;
