//! Keeping a conversation while it goes on, so that a program that is killed loses at most the
//! call that was running.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use toolcrib_core::Snapshot;
use toolcrib_runtime::{
    CallMark, Conversation, Journal, JournalChange, JournalError, KeptCall, Opened, SessionStore,
};

use crate::message::{CallResult, Message};
use crate::spending::Spent;

/// The version of ledgers written now.
const VERSION: u32 = 1;

/// What is kept of a conversation besides its messages.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ledger {
    version: u32,
    /// What is loaded.
    pub(crate) session: Snapshot,
}

impl Ledger {
    fn write(session: Snapshot) -> Result<String, JournalError> {
        json(&Self { version: VERSION, session })
    }

    /// Reads a ledger; says what is wrong with one that can't be read.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Probe {
            version: u32,
        }
        let probe: Probe = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if probe.version > VERSION {
            return Err(format!(
                "it was kept by a newer version (format {}, this version reads up to {VERSION}); \
                 update to go on with it",
                probe.version
            ));
        }
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// A message as it is kept: the last one of those that are kept at once has besides what the
/// conversation has cost up to there.
fn kept_message(message: &Message, spent: Option<&Spent>) -> Result<String, JournalError> {
    let mut text = json(message)?;
    if let Some(spent) = spent
        && text.pop() == Some('}')
    {
        text.push_str(&format!(r#","spent":{}}}"#, json(spent)?));
    }
    Ok(text)
}

/// What a conversation that is kept has cost, if that is known of it.
pub fn spent_of(opened: &Opened) -> Option<Spent> {
    #[derive(Deserialize)]
    struct Kept {
        spent: Option<Spent>,
    }
    let spent = |text: &String| serde_json::from_str::<Kept>(text).ok()?.spent;
    opened.messages.iter().rev().find_map(spent)
}

fn json(value: &impl Serialize) -> Result<String, JournalError> {
    serde_json::to_string(value)
        .map_err(|error| JournalError::NotJson { reason: error.to_string() })
}

/// What is known of calls in the last message that no message answers yet.
#[derive(Default)]
pub(crate) struct Unfinished {
    calls: Mutex<Vec<KeptCall>>,
    /// Whether those of which nothing is known are still to be made: the program ended before it
    /// could, and no other can have.
    pub(crate) to_be_made: bool,
}

impl Unfinished {
    pub(crate) fn new(calls: Vec<KeptCall>, to_be_made: bool) -> Self {
        Self { calls: Mutex::new(calls), to_be_made }
    }

    pub(crate) fn calls(&self) -> Vec<KeptCall> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that a call has begun, or what came of it.
    pub(crate) fn note(&self, mark: CallMark, result: Option<String>) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|known| known.mark.call_id != mark.call_id);
        calls.push(KeptCall { mark, result });
    }
}

/// Keeps one conversation.
pub(crate) struct Keeper {
    place: Place,
    /// How many messages the journal has.
    kept: usize,
    /// How many of them, from the front, are still those of the history.
    same: usize,
    /// Whether a change was handed over of which nobody knows what became.
    unsure: bool,
    /// The mark of the session in the ledger that the journal has.
    mark: Mutex<Option<u64>>,
}

enum Place {
    /// Nothing has been said yet, so that there is nothing to keep.
    Ahead {
        store: Arc<dyn SessionStore>,
        labels: BTreeMap<String, String>,
    },
    Begun(Box<dyn Journal>),
}

impl Keeper {
    /// Of a conversation that is about to begin.
    pub(crate) fn new(store: Arc<dyn SessionStore>, labels: BTreeMap<String, String>) -> Self {
        Self::at(Place::Ahead { store, labels }, 0)
    }

    /// Of one that goes on.
    pub(crate) fn reopened(journal: Box<dyn Journal>, kept: usize) -> Self {
        Self::at(Place::Begun(journal), kept)
    }

    fn at(place: Place, kept: usize) -> Self {
        Self { place, kept, same: kept, unsure: false, mark: Mutex::default() }
    }

    pub(crate) fn id(&self) -> Option<&str> {
        self.journal().map(Journal::id)
    }

    fn journal(&self) -> Option<&dyn Journal> {
        match &self.place {
            Place::Ahead { .. } => None,
            Place::Begun(journal) => Some(&**journal),
        }
    }

    /// Notes that the history is another one from here on.
    pub(crate) fn differs_from(&mut self, seq: usize) {
        self.same = self.same.min(seq);
    }

    /// Keeps what the journal has not got of a history, what is loaded, and what came of calls in
    /// its last message, all at once.
    pub(crate) async fn save(
        &mut self,
        history: &[Arc<Message>],
        spent: &Spent,
        conversation: &Conversation,
        settled: &[CallResult],
    ) -> Result<(), String> {
        if history.is_empty() && self.kept == 0 {
            return Ok(());
        }
        if let Place::Ahead { store, labels } = &self.place {
            let begun = store.create(labels.clone()).await.map_err(|error| error.to_string())?;
            self.place = Place::Begun(begun);
        }
        let saved = self.write(history, spent, conversation, settled).await;
        saved.map_err(|error| error.to_string())
    }

    async fn write(
        &mut self,
        history: &[Arc<Message>],
        spent: &Spent,
        conversation: &Conversation,
        settled: &[CallResult],
    ) -> Result<(), JournalError> {
        let Place::Begun(journal) = &self.place else { return Ok(()) };
        let same = self.same.min(history.len());
        let mut changes = Vec::new();
        if same < self.kept || self.unsure {
            changes.push(JournalChange::Cut { seq: same as u64 });
        }
        for (seq, message) in history.iter().enumerate().skip(same) {
            let is_last = seq + 1 == history.len();
            let message = kept_message(message, is_last.then_some(spent))?;
            changes.push(JournalChange::Append { seq: seq as u64, message });
            changes.extend(begun(history, seq));
        }
        for result in settled {
            changes.extend(done(result)?);
        }
        let mark = conversation.mark();
        let known = *self.mark.lock().unwrap_or_else(PoisonError::into_inner);
        if known != Some(mark) || self.unsure {
            let snapshot = Ledger::write(conversation.snapshot())?;
            changes.push(JournalChange::Ledger { snapshot });
        }
        if changes.is_empty() {
            return Ok(());
        }
        // What is handed over is made even if nobody waits for it. Then it may have failed, and
        // the next change begins by taking it back.
        let was_unsure = std::mem::replace(&mut self.unsure, true);
        let written = journal.write(changes).await;
        self.unsure = was_unsure && written.is_err();
        if written.is_ok() {
            (self.kept, self.same) = (history.len(), history.len());
            *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
        }
        written
    }

    /// Keeps what is loaded.
    pub(crate) async fn loaded(&self, conversation: &Conversation) -> Result<(), String> {
        let Some(journal) = self.journal() else { return Ok(()) };
        let mark = conversation.mark();
        let snapshot = Ledger::write(conversation.snapshot()).map_err(|error| error.to_string())?;
        journal.ledger(snapshot).await.map_err(|error| error.to_string())?;
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner) = Some(mark);
        Ok(())
    }

    /// Notes that a call is about to run, and waits until that is certain.
    pub(crate) async fn began(&self, call: CallMark) -> Result<(), String> {
        let Some(journal) = self.journal() else { return Ok(()) };
        journal.began(call).await.map_err(|error| error.to_string())
    }

    /// Keeps what came of a call, whether or not it is known to have begun.
    pub(crate) async fn finished(&self, result: &CallResult) -> Result<(), String> {
        let Some(journal) = self.journal() else { return Ok(()) };
        let changes = done(result).map_err(|error| error.to_string())?;
        journal.write(changes.into()).await.map_err(|error| error.to_string())
    }
}

/// The mark of a call of which is known no more than that it has been made.
pub(crate) fn made(call_id: &str, name: &str) -> CallMark {
    CallMark { call_id: call_id.to_owned(), tool: name.to_owned(), idempotent: false }
}

/// A call that needs not be made any more.
fn done(result: &CallResult) -> Result<[JournalChange; 2], JournalError> {
    let call = made(&result.call_id, &result.name);
    let (call_id, result) = (result.call_id.clone(), json(result)?);
    Ok([JournalChange::Began { call }, JournalChange::Finished { call_id, result }])
}

/// The calls of a message that another answers: should that be cut off, they have been made.
fn begun(history: &[Arc<Message>], seq: usize) -> Vec<JournalChange> {
    let answered = history.get(seq + 1).map(|next| &**next);
    match (&*history[seq], answered) {
        (Message::Assistant(said), Some(Message::Tool { .. })) => {
            let call = |call: &crate::ToolCall| made(&call.id, &call.name);
            said.calls().map(|it| JournalChange::Began { call: call(it) }).collect()
        }
        _ => Vec::new(),
    }
}
