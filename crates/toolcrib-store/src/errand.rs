//! Changes that somebody waits for.

use std::path::Path;

use futures::channel::oneshot;
use rusqlite::Connection;
use toolcrib_runtime::StorageError;

use crate::error::StoreError;
use crate::writer::WRITE_WAIT;

/// Why something came to nothing.
#[derive(Debug)]
pub(crate) enum Fault<E> {
    /// It can't be done as things are.
    Refused(E),
    Sqlite(rusqlite::Error),
}

impl<E> From<rusqlite::Error> for Fault<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// A change that somebody waits for.
pub(crate) trait Errand: Send {
    /// Makes the change, and says whether it is to be committed. When the transaction fails, it
    /// may be asked to once more.
    fn run(&mut self, connection: &Connection) -> bool;

    /// Tells what came of it.
    fn tell(self: Box<Self>, path: &Path, committed: &Result<(), StorageError>);
}

/// Makes an errand, and what brings the news of it.
pub(crate) fn errand<T, E, F>(work: F) -> (Box<dyn Errand>, oneshot::Receiver<Result<T, E>>)
where
    T: Send + 'static,
    E: From<StorageError> + Send + 'static,
    F: FnMut(&Connection) -> Result<T, Fault<E>> + Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Waited { work, outcome: None, reply }), answer)
}

struct Waited<T, E, F> {
    work: F,
    outcome: Option<Result<T, Fault<E>>>,
    reply: oneshot::Sender<Result<T, E>>,
}

impl<T, E, F> Errand for Waited<T, E, F>
where
    T: Send,
    E: From<StorageError> + Send,
    F: FnMut(&Connection) -> Result<T, Fault<E>> + Send,
{
    fn run(&mut self, connection: &Connection) -> bool {
        self.outcome.insert((self.work)(connection)).is_ok()
    }

    fn tell(self: Box<Self>, path: &Path, committed: &Result<(), StorageError>) {
        let told = match (self.outcome, committed) {
            (Some(Err(Fault::Refused(error))), _) => Err(error),
            (Some(Err(Fault::Sqlite(error))), _) => Err(storage(path, error).into()),
            (_, Err(error)) => Err(error.clone().into()),
            (Some(Ok(done)), Ok(())) => Ok(done),
            // Nothing is committed that was not run.
            (None, Ok(())) => Err(stopped(path).into()),
        };
        // Whoever asked may have gone.
        let _ = self.reply.send(told);
    }
}

pub(crate) fn storage(path: &Path, error: rusqlite::Error) -> StorageError {
    StorageError::new(StoreError::sqlite(path, WRITE_WAIT, error))
}

pub(crate) fn stopped(path: &Path) -> StorageError {
    StorageError::new(StoreError::Stopped { path: path.to_owned() })
}
