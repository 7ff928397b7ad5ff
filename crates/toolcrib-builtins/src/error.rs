//! Why a server can't be opened, and why a tool failed.

use std::io;
use std::path::{Path, PathBuf};

/// Why a built-in server can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum BuiltinError {
    /// It works on files and was given no folder to work in.
    #[error("`{server}` needs at least one root folder")]
    NoRoot {
        /// The server.
        server: &'static str,
    },
    /// A root is missing or unreadable.
    #[error("can't use {} as a root folder: {source}", path.display())]
    Root {
        /// The folder as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It keeps data and was given no place for it.
    #[error("`{server}` needs a data folder")]
    NoDataDir {
        /// The server.
        server: &'static str,
    },
    /// It was to change nothing, which it can't promise.
    #[error("`{server}` has no tool that changes nothing, so it can't be offered read-only")]
    NeverReadOnly {
        /// The server.
        server: &'static str,
    },
}

/// Why a tool failed, in words for the model that called it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("There is no tool `{0}` here.")]
    UnknownTool(String),
    #[error("The arguments do not fit: {0}")]
    Arguments(serde_json::Error),
    #[error("`{path}` is outside the folders this server may use: {roots}.")]
    OutsideRoots { path: String, roots: String },
    #[error("`{0}` does not exist.")]
    Missing(String),
    #[error("`{path}` can't be used: {source}")]
    Io { path: String, source: io::Error },
    #[error("`{path}` has {size} bytes; the limit is {limit}. {advice}")]
    TooLarge { path: String, size: u64, limit: u64, advice: &'static str },
    #[error("{what} has {size} bytes; the limit is {limit}.")]
    InputTooLarge { what: &'static str, size: usize, limit: usize },
    #[error("SQLite: {0}")]
    Sql(#[from] rusqlite::Error),
    #[error("It took longer than {0} seconds and was stopped.")]
    TookTooLong(u64),
    #[error("git: {0}")]
    Git(String),
    #[error("{0}")]
    Invalid(String),
}

impl Failure {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        let path = path.display().to_string();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            _ => Self::Io { path, source },
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}

/// Refuses an argument longer than `limit` bytes.
pub(crate) fn check_size(what: &'static str, text: &str, limit: usize) -> Result<(), Failure> {
    match text.len() {
        size if size > limit => Err(Failure::InputTooLarge { what, size, limit }),
        _ => Ok(()),
    }
}
