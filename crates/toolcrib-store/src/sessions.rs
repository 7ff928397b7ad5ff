//! Sessions: what was said, what is loaded, which calls have begun. They stay until they are
//! deleted.

mod export;
mod id;
mod journal;
pub(crate) mod lease;
mod rows;
mod said;

use std::collections::BTreeMap;
use std::thread;
use std::time::SystemTime;

use futures::channel::oneshot::{self, Canceled};
use futures::future::BoxFuture;
use rusqlite::Connection;
use toolcrib_runtime::{
    Access, Extent, Journal, Opened, SessionError, SessionMeta, SessionStore, StorageError,
};

use crate::errand::{Fault, errand, stopped, storage};
use crate::error::StoreError;
use crate::manifests::millis;
use crate::sessions::export::{Import, export};
use crate::sessions::journal::SqliteJournal;
use crate::sessions::lease::Lease;
use crate::sessions::rows::NewRow;
use crate::store::SqliteStore;
use crate::writer::lock;

pub(crate) use rows::{TABLES, check_columns};

impl SessionStore for SqliteStore {
    fn create(
        &self,
        labels: BTreeMap<String, String>,
    ) -> BoxFuture<'_, Result<Box<dyn Journal>, SessionError>> {
        Box::pin(async move {
            let labels = serde_json::to_string(&labels)
                .map_err(|error| SessionError::Storage(StorageError::new(error)))?;
            let lease = Lease::prepare(self);
            let owner = lease.owner.clone();
            let begin = move |connection: &Connection| {
                let new = rows::insert(
                    connection,
                    &NewRow {
                        id: None,
                        created_at: millis(SystemTime::now()),
                        title: None,
                        name: None,
                        labels: &labels,
                        forked_from: None,
                        messages: 0,
                        copied: 0,
                    },
                )?;
                lease::take(connection, new.number, &new.id, &owner)?;
                Ok(new)
            };
            let session = self.told(self.change(begin)).await?;
            Ok(Box::new(SqliteJournal::new(session, lease)) as Box<dyn Journal>)
        })
    }

    fn open<'a>(
        &'a self,
        id: &'a str,
        access: Access,
    ) -> BoxFuture<'a, Result<Opened, SessionError>> {
        Box::pin(async move {
            let asked = id.to_owned();
            if access == Access::Read {
                let read = move |connection: &Connection| {
                    let found = rows::find(connection, &asked)?;
                    rows::read(connection, &found)
                };
                return self.read(read).await;
            }
            let lease = Lease::prepare(self);
            let owner = lease.owner.clone();
            let take = move |connection: &Connection| {
                let found = rows::find(connection, &asked)?;
                lease::take(connection, found.number, &found.id, &owner)?;
                Ok(found)
            };
            let session = self.told(self.change(take)).await?;
            // Nobody else writes to it any more, so it may be read at leisure.
            let found = session.clone();
            let opened = self.read(move |connection| rows::read(connection, &found)).await?;
            Ok(opened.with_journal(Box::new(SqliteJournal::new(session, lease))))
        })
    }

    fn list<'a>(
        &'a self,
        filter: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionMeta>, SessionError>> {
        let filter = filter.to_owned();
        Box::pin(self.read(move |connection| rows::list(connection, &filter, limit)))
    }

    fn rename<'a>(
        &'a self,
        id: &'a str,
        title: &'a str,
    ) -> BoxFuture<'a, Result<(), SessionError>> {
        let (id, title) = (id.to_owned(), title.to_owned());
        Box::pin(self.told(self.change(move |connection| {
            let found = rows::find(connection, &id)?;
            rows::rename(connection, found.number, &title)
        })))
    }

    fn fork<'a>(
        &'a self,
        id: &'a str,
        extent: Extent,
    ) -> BoxFuture<'a, Result<String, SessionError>> {
        let id = id.to_owned();
        Box::pin(self.told(self.change(move |connection| {
            let found = rows::find(connection, &id)?;
            rows::fork(connection, &found, extent).map(|copy| copy.id)
        })))
    }

    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), SessionError>> {
        let id = id.to_owned();
        Box::pin(self.told(self.change(move |connection| {
            let found = rows::find(connection, &id)?;
            lease::check_free(connection, found.number, &found.id)?;
            rows::delete(connection, found.number)
        })))
    }

    fn export<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<String, SessionError>> {
        let id = id.to_owned();
        Box::pin(self.read(move |connection| {
            let found = rows::find(connection, &id)?;
            export(connection, &found)
        }))
    }

    fn import<'a>(&'a self, exported: &'a str) -> BoxFuture<'a, Result<String, SessionError>> {
        Box::pin(async move {
            let import = Import::read(exported)?;
            self.told(self.change(move |connection| import.write(connection))).await
        })
    }
}

impl SqliteStore {
    /// Lets a change be made. It is, whether or not anybody waits for the answer.
    pub(crate) fn change<T, E>(
        &self,
        work: impl FnMut(&Connection) -> Result<T, Fault<E>> + Send + 'static,
    ) -> oneshot::Receiver<Result<T, E>>
    where
        T: Send + 'static,
        E: From<StorageError> + Send + 'static,
    {
        let (errand, answer) = errand(work);
        self.writer().run(errand);
        answer
    }

    async fn told<T>(
        &self,
        answer: impl Future<Output = Result<Result<T, SessionError>, Canceled>>,
    ) -> Result<T, SessionError> {
        answer.await.unwrap_or_else(|Canceled| Err(stopped(self.path()).into()))
    }

    /// Reads on a thread of its own, for as long as that takes: whoever waits may have other
    /// things to do.
    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> Result<T, Fault<SessionError>> + Send + 'static,
    ) -> Result<T, SessionError> {
        let (reply, answer) = oneshot::channel();
        let store = self.clone();
        let work = move || {
            let connection = lock(store.reader());
            let seen = connection
                .unchecked_transaction()
                .map_err(Fault::Sqlite)
                .and_then(|moment| look(&moment));
            drop(connection);
            let seen = seen.map_err(|fault| match fault {
                Fault::Refused(error) => error,
                Fault::Sqlite(error) => storage(store.path(), error).into(),
            });
            // Before the answer, so that who has it may have the last clone.
            drop(store);
            // Whoever asked may have gone.
            let _ = reply.send(seen);
        };
        thread::Builder::new()
            .name("toolcrib-read".into())
            .spawn(work)
            .map_err(|error| StorageError::new(StoreError::io(self.path(), error)))?;
        self.told(answer).await
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;
    use toolcrib_runtime::JournalError;

    use super::*;

    fn text(bytes: usize) -> String {
        format!("\"{}\"", "x".repeat(bytes))
    }

    /// In memory the one who reads has the connection of the one who writes.
    fn pragma(store: &SqliteStore, name: &str, value: i64) {
        lock(store.reader()).pragma_update(None, name, value).unwrap();
    }

    fn pages(store: &SqliteStore) -> i64 {
        lock(store.reader()).query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
    }

    fn storage_text(result: Result<(), JournalError>) -> String {
        match result {
            Err(JournalError::Storage(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_told_and_takes_only_what_does_not_fit() {
        let store = SqliteStore::open_in_memory().unwrap();
        let journal = store.create(BTreeMap::new()).await.unwrap();
        let other = store.create(BTreeMap::new()).await.unwrap();
        journal.append(0, text(10)).await.unwrap();
        pragma(&store, "max_page_count", pages(&store) + 4);

        // While the thread waits for the connection, all of these come together.
        let hold = lock(store.reader());
        let (large, small) = (journal.append(1, text(100_000)), other.append(0, text(10)));
        let late = journal.append(1, text(20));
        drop(hold);
        let told: Vec<_> = join_all([large, small, late]).await;
        let [large, small, late] = told.try_into().unwrap();
        let said = storage_text(large);
        assert!(said.contains("no room on the disk"), "{said}");
        small.unwrap();
        late.unwrap();
        assert!(store.fork(journal.id(), Extent::Whole).await.is_ok());
        let said = store.import(&export_of(100_000)).await.unwrap_err().to_string();
        assert!(said.contains("no room on the disk"), "{said}");

        pragma(&store, "max_page_count", 1_000_000);
        journal.append(2, text(100_000)).await.unwrap();
        let opened = store.open(journal.id(), Access::Read).await.unwrap();
        assert_eq!(opened.messages, [text(10), text(20), text(100_000)]);
        assert_eq!(store.list("", 9).await.unwrap().len(), 3);
    }

    fn export_of(bytes: usize) -> String {
        let message = text(bytes);
        format!(r#"{{"toolcrib_session":1,"id":"x","created_at":0,"messages":[{message}]}}"#)
    }

    #[tokio::test]
    async fn a_file_that_may_not_be_written_any_more_can_still_be_read() {
        let store = SqliteStore::open_in_memory().unwrap();
        let journal = store.create(BTreeMap::new()).await.unwrap();
        journal.append(0, text(10)).await.unwrap();
        pragma(&store, "query_only", 1);
        let said = storage_text(journal.append(1, text(10)).await);
        assert!(said.contains("can't be written"), "{said}");
        let error = store.create(BTreeMap::new()).await.map(drop).unwrap_err();
        assert!(matches!(error, SessionError::Storage(_)), "{error:?}");
        assert_eq!(store.open(journal.id(), Access::Read).await.unwrap().messages, [text(10)]);
        pragma(&store, "query_only", 0);
        journal.append(1, text(10)).await.unwrap();
    }

    #[tokio::test]
    async fn nobody_waits_for_a_thread_that_has_failed() {
        let store = SqliteStore::open_in_memory().unwrap();
        let journal = store.create(BTreeMap::new()).await.unwrap();
        let broken = store.change(|_| -> Result<(), Fault<SessionError>> { panic!("on purpose") });
        let with_it = journal.append(0, text(1));
        assert!(broken.await.is_err());
        for said in [with_it.await, journal.append(0, text(1)).await].map(storage_text) {
            assert!(said.contains("open it again"), "{said}");
        }
        assert!(matches!(store.delete(journal.id()).await, Err(SessionError::Storage(_))));
    }

    #[tokio::test]
    async fn what_is_refused_takes_nothing_with_it() {
        let store = SqliteStore::open_in_memory().unwrap();
        let journal = store.create(BTreeMap::new()).await.unwrap();
        let hold = lock(store.reader());
        let changes = [0, 5, 1, 1, 2].map(|seq| journal.append(seq, seq.to_string()));
        drop(hold);
        let told = join_all(changes).await;
        let taken: Vec<bool> = told.iter().map(Result::is_ok).collect();
        assert_eq!(taken, [true, false, true, false, true]);
        let opened = store.open(journal.id(), Access::Read).await.unwrap();
        assert_eq!(opened.messages, ["0", "1", "2"]);
    }
}
