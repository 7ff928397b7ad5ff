//! Bringing a kept conversation back.

use std::sync::Arc;

use toolcrib_core::{ResumeError, ResumeReport, Saved, Session};
use toolcrib_runtime::{Access, KeptCall, SessionError, SessionMeta, SessionStore};

use crate::agent::Agent;
use crate::chat::Chat;
use crate::history::{INTERRUPTED, failure};
use crate::keeping::{Keeper, Ledger, Unfinished, spent_of};
use crate::message::{Assistant, CallResult, Message, ToolCall};

/// What there is to say about a conversation that was brought back.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reopened {
    /// What a list says of it.
    pub meta: SessionMeta,
    /// What is loaded again, and what is not there any more.
    pub report: ResumeReport,
    /// Calls that nobody saw the end of. The next run deals with them before the model is asked.
    pub interrupted: Vec<Interrupted>,
}

/// A call that was not answered when its program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interrupted {
    /// The id of the call.
    pub call_id: String,
    /// The name it was made by.
    pub name: String,
    /// What becomes of it.
    pub fate: Fate,
}

/// What becomes of a call that was not answered when its program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It had ended, and its result was kept.
    Kept,
    /// It had not begun, or does no harm when it is made twice: it runs.
    Runs,
    /// It may have taken effect, here or, in a copy, in what was copied: it is not run again, and
    /// the model is told.
    MayHaveRun,
}

impl Fate {
    /// By what is known of calls; `to_be_made` if those are, of which nothing is.
    pub(crate) fn of(call_id: &str, known: &[KeptCall], to_be_made: bool) -> Self {
        match known.iter().find(|known| known.mark.call_id == call_id) {
            Some(KeptCall { result: Some(_), .. }) => Self::Kept,
            Some(KeptCall { mark, .. }) if mark.idempotent && to_be_made => Self::Runs,
            None if to_be_made => Self::Runs,
            _ => Self::MayHaveRun,
        }
    }
}

/// What answers a call by what is known of it; `None` if it is to be made.
pub(crate) fn known_result(
    call: &ToolCall,
    known: &[KeptCall],
    to_be_made: bool,
) -> Option<CallResult> {
    let interrupted = || failure(call, INTERRUPTED);
    match Fate::of(&call.id, known, to_be_made) {
        Fate::Runs => None,
        Fate::MayHaveRun => Some(interrupted()),
        Fate::Kept => {
            let kept = known.iter().find(|known| known.mark.call_id == call.id);
            let text = kept.and_then(|kept| kept.result.as_deref()).unwrap_or_default();
            Some(serde_json::from_str(text).unwrap_or_else(|_| interrupted()))
        }
    }
}

/// Answers the calls that a history ends in, as far as something is known of them, without making
/// any.
pub(crate) fn answer_known(history: &mut Vec<Arc<Message>>, known: &[KeptCall]) {
    if let Some(Message::Assistant(said)) = history.last().map(|message| &**message)
        && said.calls().next().is_some()
        && !known.is_empty()
    {
        let results = said.calls().filter_map(|call| known_result(call, known, false)).collect();
        history.push(Arc::new(Message::Tool { results }));
    }
}

/// Why a conversation can't be brought back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReopenError {
    /// It can't be opened.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// What was kept of it can't be read.
    #[error("session `{id}` can't be gone on with: {reason}")]
    Unreadable {
        /// The session.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Its tools can't be brought back.
    #[error(transparent)]
    Resume(#[from] ResumeError),
}

impl Agent {
    /// Brings back a conversation that was kept, to go on with it. No other program can
    /// meanwhile.
    ///
    /// What is no longer there is reported, and stops nothing. Calls that were not answered are
    /// dealt with by the next run: what may have taken effect is not run again, unless its tool
    /// says that this does no harm.
    pub async fn reopen(
        &self,
        store: &dyn SessionStore,
        id: &str,
    ) -> Result<(Chat, Reopened), ReopenError> {
        let opened = store.open(id, Access::Write).await?;
        let (meta, spent) = (opened.meta.clone(), spent_of(&opened).unwrap_or_default());
        let unreadable = |reason: String| ReopenError::Unreadable { id: meta.id.clone(), reason };
        let history = messages(&opened.messages).map_err(unreadable)?;
        let ledger = opened.ledger.as_deref().map(Ledger::read).transpose();
        let ledger = ledger.map_err(|reason| unreadable(format!("its ledger: {reason}")))?;
        let journal = opened.journal.ok_or_else(|| unreadable("it can only be read".to_owned()))?;
        let mut report = ResumeReport::default();
        let conversation = match ledger.map(|ledger| ledger.session) {
            Some(snapshot) => {
                let strategy = snapshot.strategy();
                let usual = || self.crib().engine().strategy_under(self.policy());
                let (snapshot, strategy, notes) =
                    self.can_go_on(snapshot, strategy.unwrap_or_else(usual));
                let saved = Saved::Snapshot(Box::new(snapshot));
                let policy = self.policy().clone();
                let (conversation, resumed) = self.crib().resume(saved, strategy, policy).await?;
                report = resumed;
                report.notes.extend(notes);
                conversation
            }
            None => self.crib().converse(Session::new(), self.policy().clone()),
        };
        // What a copy was to do next, its original may have done.
        let to_be_made = history.len() as u64 > meta.copied;
        let calls: Vec<Interrupted> = match history.last().map(|message| &**message) {
            Some(Message::Assistant(said)) => interrupted(said, &opened.calls, to_be_made),
            _ => Vec::new(),
        };
        let keeper = Keeper::reopened(journal, history.len());
        let mut chat = Chat::new(self.clone(), conversation, history);
        let unfinished = Unfinished::new(opened.calls, to_be_made);
        chat.take_up(keeper, unfinished, spent);
        Ok((chat, Reopened { meta, report, interrupted: calls }))
    }
}

fn interrupted(said: &Assistant, known: &[KeptCall], to_be_made: bool) -> Vec<Interrupted> {
    let interrupted = |call: &ToolCall| Interrupted {
        call_id: call.id.clone(),
        name: call.name.clone(),
        fate: Fate::of(&call.id, known, to_be_made),
    };
    said.calls().map(interrupted).collect()
}

fn messages(texts: &[String]) -> Result<Vec<Arc<Message>>, String> {
    let read = |(seq, text): (usize, &String)| {
        let message = serde_json::from_str::<Message>(text);
        message.map(Arc::new).map_err(|error| {
            format!("message {seq} is not one that this version knows ({error}); update, or fork the session before it")
        })
    };
    texts.iter().enumerate().map(read).collect()
}
