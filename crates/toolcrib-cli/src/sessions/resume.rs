//! Going on with a session.

use std::time::SystemTime;

use toolcrib::agent::{Agent, Chat, Fate, Message, ReopenError, Reopened};
use toolcrib::store::SqliteStore;
use toolcrib::{Access, Extent, SessionError, SessionMeta, SessionStore};

use super::keep::{self, FOLDER, MODEL, here};
use super::shelf::Shelf;
use super::transcript::{opened, transcript};
use crate::args::Context;
use crate::output::{self, DIM, Misuse, ago, counted, one_line};

/// The most lines of the last exchange that are shown.
const MOST_LINES: usize = 30;

/// A session that is to be gone on with, or a copy of it.
pub(crate) struct Resume {
    store: SqliteStore,
    meta: SessionMeta,
    fork: bool,
}

impl Resume {
    /// Finds a session: the one of this id, or the newest of this folder. Fails before anything
    /// is started for it if it is not there or in use.
    pub(crate) async fn find(
        id: Option<&str>,
        fork: bool,
        context: &Context,
    ) -> anyhow::Result<Self> {
        let store = keep::kept(context)?;
        let (store, meta) = match (store, id) {
            (Some(store), Some(id)) => {
                let meta = store.open(id, Access::Read).await.map_err(keep::told)?.meta;
                (store, meta)
            }
            (None, Some(id)) => return Err(keep::not_found(id)),
            (Some(store), None) => {
                let here = here();
                let is_here = |meta: &SessionMeta| meta.labels.get(FOLDER) == here.as_ref();
                let all = store.list("", usize::MAX).await.map_err(keep::told)?;
                let newest = all.into_iter().find(is_here).ok_or_else(none_here)?;
                (store, newest)
            }
            (None, None) => return Err(none_here()),
        };
        if meta.in_use_by.is_some() && !fork {
            // Whether it still is, and since when, comes out by trying.
            store.open(&meta.id, Access::Write).await.map_err(refused)?;
        }
        Ok(Self { store, meta, fork })
    }

    /// Where it is kept, and what begins or forks after it.
    pub(crate) fn shelf(&self) -> Shelf {
        Shelf::of(self.store.clone())
    }

    /// Brings it back, once the tools are there.
    pub(crate) async fn reopen(&self, agent: &Agent) -> anyhow::Result<(Chat, Reopened)> {
        let mut id = self.meta.id.clone();
        if self.fork {
            id = self.store.fork(&id, Extent::Whole).await.map_err(keep::told)?;
        }
        agent.reopen(&self.store, &id).await.map_err(|error| match error {
            ReopenError::Session(error) => refused(error),
            other => other.into(),
        })
    }
}

fn none_here() -> anyhow::Error {
    let text = "no session of this folder is kept; `toolcrib sessions` lists those of others, and \
                `--resume ID` goes on with one";
    Misuse::new(text).into()
}

/// What to tell of a session that can't be had.
fn refused(error: SessionError) -> anyhow::Error {
    match &error {
        SessionError::InUse { id, .. } => {
            anyhow::anyhow!("{error}: `toolcrib chat --resume {id} --fork`")
        }
        _ => keep::told(error),
    }
}

/// Tells what there is to know about a conversation that was brought back.
pub(crate) fn tell(reopened: &Reopened, chat: &Chat, context: &Context) {
    let Reopened { meta, report, interrupted, .. } = reopened;
    let title = meta.title.as_deref().map(one_line).unwrap_or_default();
    let from = meta.forked_from.as_ref().map(|id| format!(", a copy of {id}")).unwrap_or_default();
    let began = meta.labels.get(MODEL).filter(|model| *model != chat.agent().model());
    let began = began.map(|model| format!(" It began with {model}.")).unwrap_or_default();
    context.note(&format!(
        "Going on with `{title}` ({}{from}): {}, the last {}.{began}",
        meta.id,
        counted(meta.messages as usize, "message"),
        ago(meta.changed_at, SystemTime::now()),
    ));
    for (name, reason) in &report.missing {
        context.warn(&format!("`{name}` is no longer loaded: {reason}"));
    }
    for name in &report.changed {
        context.note(&format!("`{name}` has changed since; the model is told."));
    }
    let calls = match chat.history().last().map(|message| &**message) {
        Some(Message::Assistant(said)) => said.calls().collect(),
        _ => Vec::new(),
    };
    for call in interrupted {
        let made = calls.iter().find(|made| made.id == call.call_id);
        let name = one_line(&made.map_or_else(|| call.name.clone(), |made| opened(made).0));
        match call.fate {
            Fate::Kept => {
                context.note(&format!("A call of `{name}` had ended; its result is kept."))
            }
            Fate::Runs => context.note(&format!("A call of `{name}` was left; it is made now.")),
            _ => context.warn(&format!(
                "a call of `{name}` was under way and may have taken effect: it is not made again, \
                 and the model is told"
            )),
        }
    }
    report.notes.iter().for_each(|note| context.note(note));
}

/// Shows what was said last, for somebody who comes back to it.
pub(crate) fn show_last(chat: &Chat, id: &str) {
    let history = chat.history();
    let is_asked = |message: &std::sync::Arc<Message>| matches!(**message, Message::User { .. });
    let from = history.iter().rposition(is_asked).unwrap_or_default();
    let last: Vec<Option<&Message>> = history[from..].iter().map(|it| Some(&**it)).collect();
    let shown = transcript(&last, None);
    let lines: Vec<&str> = shown.lines().collect();
    let rest = lines.len().saturating_sub(MOST_LINES);
    if rest > 0 {
        output::aside(&format!("{DIM}… `toolcrib sessions show {id}` has the rest{DIM:#}"));
    }
    lines[rest..].iter().for_each(|line| output::aside(line));
}
