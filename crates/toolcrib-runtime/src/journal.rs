//! What keeps conversations: a store of sessions, and the journal of the one that is going on.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;

/// Keeps one session while it goes on. It is the only one to: a second program is refused until
/// this is dropped.
///
/// A change is handed over when a method is called, and made whether or not its future is polled;
/// the future tells when it is durable. From then on a kill of the program does not take it back;
/// a power cut may take back the last few. Changes are made in the order they were handed over,
/// and those of one [`write`](Self::write) all at once or not at all.
///
/// Messages, results and the ledger are JSON texts, and come back byte for byte.
pub trait Journal: Send + Sync + 'static {
    /// The session.
    fn id(&self) -> &str;

    /// Makes changes, all or none of them.
    fn write(&self, changes: Vec<JournalChange>) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Adds a message; `seq` is how many there are before it.
    fn append(&self, seq: u64, message: String) -> BoxFuture<'_, Result<(), JournalError>> {
        self.write(vec![JournalChange::Append { seq, message }])
    }

    /// Keeps what is loaded, in place of what was kept before.
    fn ledger(&self, snapshot: String) -> BoxFuture<'_, Result<(), JournalError>> {
        self.write(vec![JournalChange::Ledger { snapshot }])
    }

    /// Notes that a call is about to run. From here on it may have taken effect.
    fn began(&self, call: CallMark) -> BoxFuture<'_, Result<(), JournalError>> {
        self.write(vec![JournalChange::Began { call }])
    }

    /// Keeps what came of a call that has begun, until a message tells of all calls.
    fn finished(&self, call_id: String, result: String) -> BoxFuture<'_, Result<(), JournalError>> {
        self.write(vec![JournalChange::Finished { call_id, result }])
    }

    /// Drops the messages from `seq` on, to put others in their place.
    fn cut(&self, seq: u64) -> BoxFuture<'_, Result<(), JournalError>> {
        self.write(vec![JournalChange::Cut { seq }])
    }
}

/// Something that happens to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalChange {
    /// A message is added.
    Append {
        /// How many there are before it.
        seq: u64,
        /// The message, a JSON text.
        message: String,
    },
    /// What is loaded has changed.
    Ledger {
        /// All that is to be known of it, a JSON text.
        snapshot: String,
    },
    /// A call in the last message is about to run. The mark stays with that message.
    Began {
        /// The call.
        call: CallMark,
    },
    /// A call in the last message has a result. The next message drops it: that has it too.
    Finished {
        /// The call, which has begun.
        call_id: String,
        /// What came of it, a JSON text.
        result: String,
    },
    /// The messages from here on go.
    Cut {
        /// How many stay.
        seq: u64,
    },
}

/// A call that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallMark {
    /// The id of the call.
    pub call_id: String,
    /// The tool: `server/tool`.
    pub tool: String,
    /// Whether it does no harm to run it once more.
    pub idempotent: bool,
}

/// A call in the last message, which no message has answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptCall {
    /// The call. It has begun, so it may have taken effect.
    pub mark: CallMark,
    /// What came of it, if that was kept.
    pub result: Option<String>,
}

/// Why a change was not made. The session is as it was before.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The session has another number of messages than the change supposes.
    #[error("message {given} can't follow: {kept} are kept; open the session again")]
    OutOfStep {
        /// How many messages are kept.
        kept: u64,
        /// How many the change supposes.
        given: u64,
    },
    /// Another program writes to the session now, or it was deleted. This journal is of no use.
    #[error(
        "the session was taken over by another program or deleted; fork it to go on, or open it \
         again"
    )]
    Lost,
    /// What was to be kept is no JSON.
    #[error("what was to be kept is no JSON: {reason}")]
    NotJson {
        /// What is wrong with it.
        reason: String,
    },
    /// A result came for a call that is not known to run.
    #[error("call `{call_id}` has a result and has not begun")]
    NotBegun {
        /// The call.
        call_id: String,
    },
    /// It could not be written.
    #[error("the conversation can't be kept: {0}")]
    Storage(#[from] StorageError),
}

/// What went wrong below: a disk that is full, a file that is damaged. Its text says what to do.
#[derive(Clone)]
pub struct StorageError(Arc<dyn Error + Send + Sync>);

impl StorageError {
    /// Passes on what a store says.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Debug for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for StorageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// Keeps sessions until they are deleted.
///
/// Wherever one is named, the beginning of its id will do if no other begins like it.
pub trait SessionStore: Send + Sync + 'static {
    /// Begins a session. `labels` are what its host wants to find in a list: the model, say, or
    /// the folder.
    fn create(
        &self,
        labels: BTreeMap<String, String>,
    ) -> BoxFuture<'_, Result<Box<dyn Journal>, SessionError>>;

    /// Opens a session: to go on with it, which only one program may at a time, or to read it,
    /// which any may at any time.
    fn open<'a>(
        &'a self,
        id: &'a str,
        access: Access,
    ) -> BoxFuture<'a, Result<Opened, SessionError>>;

    /// At most `limit` sessions, the one that changed last first: all of them, or with a `filter`
    /// those in whose title or in whose said words it occurs, and those whose id begins with it.
    fn list<'a>(
        &'a self,
        filter: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionMeta>, SessionError>>;

    /// Gives a session another title, of which one short line is kept. An empty one brings back
    /// the first.
    fn rename<'a>(&'a self, id: &'a str, title: &'a str)
    -> BoxFuture<'a, Result<(), SessionError>>;

    /// Copies a session, also one that is in use, and gives the id of the copy. What is loaded,
    /// and which calls of its last message have begun, is copied with it.
    fn fork<'a>(
        &'a self,
        id: &'a str,
        extent: Extent,
    ) -> BoxFuture<'a, Result<String, SessionError>>;

    /// Deletes a session that is not in use.
    fn delete<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<(), SessionError>>;

    /// A session as one JSON text, which says what version of the format it is in.
    fn export<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<String, SessionError>>;

    /// Takes in what [`export`](Self::export) gave, and tells the id: the same, unless that is
    /// taken.
    fn import<'a>(&'a self, exported: &'a str) -> BoxFuture<'a, Result<String, SessionError>>;
}

/// What a session is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To go on with it.
    Write,
    /// To read it.
    Read,
}

/// How much of a session is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// So many messages, or all if there are fewer.
    First(u64),
}

/// A session that was opened.
#[non_exhaustive]
pub struct Opened {
    /// What a list says of it.
    pub meta: SessionMeta,
    /// Its messages, as they were appended.
    pub messages: Vec<String>,
    /// What was last kept of what is loaded.
    pub ledger: Option<String>,
    /// The calls of the last message that have begun, in order. There are none if a message has
    /// followed that.
    pub calls: Vec<KeptCall>,
    /// Goes on with it, if it was opened for that.
    pub journal: Option<Box<dyn Journal>>,
}

impl Opened {
    /// What a store has read, without a journal.
    pub fn new(
        meta: SessionMeta,
        messages: Vec<String>,
        ledger: Option<String>,
        calls: Vec<KeptCall>,
    ) -> Self {
        Self { meta, messages, ledger, calls, journal: None }
    }

    /// The same, to go on with.
    pub fn with_journal(self, journal: Box<dyn Journal>) -> Self {
        Self { journal: Some(journal), ..self }
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened")
            .field("meta", &self.meta)
            .field("messages", &self.messages.len())
            .field("calls", &self.calls)
            .field("writable", &self.journal.is_some())
            .finish_non_exhaustive()
    }
}

/// What is known of a session without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMeta {
    /// Its id: short, and later ones sort behind earlier ones.
    pub id: String,
    /// What it was renamed to, or else how the first thing said in it begins. One line.
    pub title: Option<String>,
    /// What its host noted when it began.
    pub labels: BTreeMap<String, String>,
    /// When it began.
    pub created_at: SystemTime,
    /// When it last changed.
    pub changed_at: SystemTime,
    /// How many messages it has.
    pub messages: u64,
    /// What it was copied from.
    pub forked_from: Option<String>,
    /// How many of its messages, from the front, are copies. What was to happen next after the
    /// last of them may have happened elsewhere.
    pub copied: u64,
    /// The process that goes on with it now.
    pub in_use_by: Option<u32>,
}

/// Why nothing can be done with a session.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// There is none with that id.
    #[error("there is no session `{id}`; a list of sessions tells what there is")]
    NotFound {
        /// What was asked for.
        id: String,
    },
    /// Several ids begin like that.
    #[error("`{prefix}` may be {}; give more of the id", candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// The first few that begin like it.
        candidates: Vec<String>,
    },
    /// Another program goes on with it.
    #[error(
        "session `{id}` has been in use by process {pid} for {}; wait until that has ended, or \
         fork the session and go on with the copy",
        ago(*since)
    )]
    InUse {
        /// The session.
        id: String,
        /// The process.
        pid: u32,
        /// Since when.
        since: SystemTime,
    },
    /// What is kept of it makes no sense.
    #[error("session `{id}` is damaged: {reason}; other sessions are not concerned")]
    Damaged {
        /// The session.
        id: String,
        /// What was found.
        reason: String,
    },
    /// That is no exported session.
    #[error("this is no exported session: {reason}")]
    NotASession {
        /// What is wrong with it.
        reason: String,
    },
    /// It was exported by a newer version of this program.
    #[error(
        "this session was exported by a newer version (its format is {found}, this version knows \
         {known}); update to read it"
    )]
    Newer {
        /// The format it is in.
        found: u64,
        /// The newest format that this version knows.
        known: u64,
    },
    /// It could not be read or written.
    #[error("sessions can't be read or kept: {0}")]
    Storage(#[from] StorageError),
}

/// How long ago something was, for people.
fn ago(then: SystemTime) -> String {
    // A clock that was put back makes it now.
    let seconds = SystemTime::now().duration_since(then).unwrap_or(Duration::ZERO).as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_is_told_what_to_do() {
        let since = SystemTime::now() - Duration::from_secs(300);
        let error = SessionError::InUse { id: "01k".into(), pid: 7, since };
        assert_eq!(
            error.to_string(),
            "session `01k` has been in use by process 7 for 5 min; wait until that has ended, or \
             fork the session and go on with the copy"
        );
        let ahead = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(ago(ahead), "0 s");
        assert_eq!(ago(SystemTime::now() - Duration::from_secs(7300)), "2 h");
    }

    #[test]
    fn what_a_store_says_is_passed_on() {
        let below = StorageError::new(std::io::Error::other("no room on the disk"));
        let error = JournalError::from(below.clone());
        assert_eq!(error.to_string(), "the conversation can't be kept: no room on the disk");
        assert_eq!(
            SessionError::from(below).to_string(),
            "sessions can't be read or kept: no room on the disk"
        );
    }
}
