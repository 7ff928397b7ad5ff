//! Where sessions are kept, and what is noted of each.

use std::path::PathBuf;

use toolcrib::SessionError;
use toolcrib::store::SqliteStore;

use crate::args::Context;
use crate::config::Environment;
use crate::output::Misuse;

/// The file in the state folder. What servers listed can be made anew and is kept apart, where a
/// cache is: nobody who empties that loses a conversation.
const FILE: &str = "toolcrib/sessions.db";

/// The model that was asked when it began.
pub(super) const MODEL: &str = "model";

/// The folder it began in.
pub(super) const FOLDER: &str = "folder";

/// The version of this program that began it.
pub(super) const VERSION: &str = "version";

/// The sessions that are kept, if there ever were any.
pub(crate) fn kept(context: &Context) -> anyhow::Result<Option<SqliteStore>> {
    match file(&context.env).filter(|file| file.exists()) {
        Some(file) => Ok(Some(SqliteStore::open(file)?)),
        None => Ok(None),
    }
}

/// The same, in a file that is made if there is none.
pub(crate) fn open(context: &Context) -> anyhow::Result<SqliteStore> {
    let file = file(&context.env).ok_or_else(|| {
        Misuse::new("there is no folder to keep sessions in; set HOME or XDG_STATE_HOME")
    })?;
    Ok(SqliteStore::open(file)?)
}

fn file(env: &Environment) -> Option<PathBuf> {
    Some(env.state_home()?.join(FILE))
}

/// The current folder, as it is noted.
pub(super) fn here() -> Option<String> {
    Some(std::env::current_dir().ok()?.display().to_string())
}

/// What to tell of it. A wrong id is a mistake of whoever typed it; the rest is not.
pub(crate) fn told(error: SessionError) -> anyhow::Error {
    match error {
        SessionError::NotFound { id } => not_found(&id),
        SessionError::Ambiguous { .. } => Misuse::new(error).into(),
        other => other.into(),
    }
}

pub(super) fn not_found(id: &str) -> anyhow::Error {
    Misuse::new(format!("there is no session `{id}`; `toolcrib sessions` lists them")).into()
}
