//! The journal of one session.

use futures::future::BoxFuture;
use toolcrib_runtime::{Journal, JournalChange, JournalError};

use crate::errand::stopped;
use crate::sessions::lease::Lease;
use crate::sessions::rows::{self, Found, Step};
use crate::sessions::said::{check, said};

/// Writes to a session for as long as it has the right to.
pub(crate) struct SqliteJournal {
    session: Found,
    lease: Lease,
}

impl SqliteJournal {
    pub(crate) fn new(session: Found, lease: Lease) -> Self {
        Self { session, lease }
    }
}

impl Journal for SqliteJournal {
    fn id(&self) -> &str {
        &self.session.id
    }

    fn write(&self, changes: Vec<JournalChange>) -> BoxFuture<'_, Result<(), JournalError>> {
        let steps: Result<Vec<Step>, serde_json::Error> = changes.into_iter().map(step).collect();
        let steps = match steps {
            Ok(steps) => steps,
            Err(error) => {
                let reason = error.to_string();
                return Box::pin(async { Err(JournalError::NotJson { reason }) });
            }
        };
        let (number, owner) = (self.session.number, self.lease.owner.clone());
        let store = self.lease.store();
        let answer =
            store.change(move |connection| rows::record(connection, number, &owner, &steps));
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(stopped(store.path()).into())) })
    }
}

/// A change as it is written. Fails if a text is no JSON.
fn step(change: JournalChange) -> Result<Step, serde_json::Error> {
    Ok(match change {
        JournalChange::Append { seq, message } => {
            let said = said(&message)?;
            Step::Append { seq, body: message, said }
        }
        JournalChange::Ledger { snapshot } => {
            check(&snapshot)?;
            Step::Ledger(snapshot)
        }
        JournalChange::Began { call } => Step::Began(call),
        JournalChange::Finished { call_id, result } => {
            check(&result)?;
            Step::Finished { call: call_id, result }
        }
        JournalChange::Cut { seq } => Step::Cut(seq),
        other => return Err(serde::de::Error::custom(format!("{other:?} is not known"))),
    })
}
