//! A session as one JSON text, to be kept elsewhere or taken along.

use std::collections::BTreeMap;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolcrib_runtime::{CallMark, KeptCall, SessionError};

use crate::errand::Fault;
use crate::sessions::id::is_id;
use crate::sessions::rows::{self, Found, NewRow};
use crate::sessions::said::{Said, one_line, said};

/// The format, counted from 1.
const VERSION: u64 = 1;

type Result<T, E = Fault<SessionError>> = std::result::Result<T, E>;

/// What makes a JSON text a session.
#[derive(Deserialize)]
struct Head {
    toolcrib_session: u64,
}

#[derive(Serialize, Deserialize)]
struct Exported {
    toolcrib_session: u64,
    id: String,
    /// Milliseconds since 1970.
    created_at: i64,
    title: Option<String>,
    name: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    forked_from: Option<String>,
    messages: Vec<Box<RawValue>>,
    ledger: Option<Box<RawValue>>,
    #[serde(default)]
    calls: Vec<ExportedCall>,
}

#[derive(Serialize, Deserialize)]
struct ExportedCall {
    /// How many messages there were when it began.
    at: u64,
    call_id: String,
    tool: String,
    idempotent: bool,
    result: Option<Box<RawValue>>,
}

/// Within a transaction, so that it is of one moment.
pub(crate) fn export(connection: &Connection, session: &Found) -> Result<String> {
    let damaged =
        |reason: String| Fault::Refused(SessionError::Damaged { id: session.id.clone(), reason });
    let raw = |what: &str, text: String| {
        RawValue::from_string(text).map_err(|error| damaged(format!("{what} is no JSON: {error}")))
    };
    let opened = rows::read(connection, session)?;
    let mut messages = Vec::with_capacity(opened.messages.len());
    for (seq, message) in opened.messages.into_iter().enumerate() {
        messages.push(raw(&format!("message {seq}"), message)?);
    }
    let mut calls = Vec::new();
    for (at, KeptCall { mark, result }) in rows::calls(connection, session.number, 0)? {
        let CallMark { call_id, tool, idempotent } = mark;
        let result = result.map(|result| raw("the result of a call", result)).transpose()?;
        let at = at.try_into().unwrap_or_default();
        calls.push(ExportedCall { at, call_id, tool, idempotent, result });
    }
    let (created_at, title, name) = connection.query_row(
        "SELECT created_at, title, name FROM sessions WHERE number = ?1",
        [session.number],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )?;
    let exported = Exported {
        toolcrib_session: VERSION,
        id: opened.meta.id,
        created_at,
        title,
        name,
        labels: opened.meta.labels,
        forked_from: opened.meta.forked_from,
        messages,
        ledger: opened.ledger.map(|ledger| raw("the ledger", ledger)).transpose()?,
        calls,
    };
    serde_json::to_string(&exported).map_err(|error| damaged(error.to_string()))
}

/// A session to take in.
pub(crate) struct Import {
    exported: Exported,
    labels: String,
    /// Of each message.
    said: Vec<Said>,
}

impl Import {
    pub(crate) fn read(text: &str) -> Result<Self, SessionError> {
        let wrong =
            |error: serde_json::Error| SessionError::NotASession { reason: error.to_string() };
        let Head { toolcrib_session: found } = serde_json::from_str(text).map_err(wrong)?;
        match found {
            VERSION => {}
            0 => return Err(SessionError::NotASession { reason: "its format is 0".into() }),
            _ => return Err(SessionError::Newer { found, known: VERSION }),
        }
        let mut exported: Exported = serde_json::from_str(text).map_err(wrong)?;
        for title in [&mut exported.title, &mut exported.name] {
            *title = title.as_deref().and_then(one_line);
        }
        let said = exported.messages.iter().map(|message| said(message.get()));
        Ok(Self {
            said: said.collect::<Result<_, _>>().map_err(wrong)?,
            labels: serde_json::to_string(&exported.labels).map_err(wrong)?,
            exported,
        })
    }

    pub(crate) fn write(&self, connection: &Connection) -> Result<String> {
        let Exported { id, created_at, title, name, forked_from, messages, ledger, calls, .. } =
            &self.exported;
        let new = rows::insert(
            connection,
            &NewRow {
                id: Some(id.as_str()).filter(|id| is_id(id)),
                created_at: *created_at,
                title: title.as_deref(),
                name: name.as_deref(),
                labels: &self.labels,
                forked_from: forked_from.as_deref(),
                messages: messages.len() as i64,
                copied: messages.len() as i64,
            },
        )?;
        for (seq, (message, said)) in messages.iter().zip(&self.said).enumerate() {
            rows::keep_message(connection, new.number, seq as i64, message.get(), said)?;
        }
        if let Some(ledger) = ledger {
            rows::keep_ledger(connection, new.number, ledger.get())?;
        }
        for call in calls {
            let ExportedCall { at, call_id, tool, idempotent, result } = call;
            let (call_id, tool) = (call_id.clone(), tool.clone());
            let mark = CallMark { call_id, tool, idempotent: *idempotent };
            // What began after the last message is not told apart from what began just then.
            let at = (*at).min(messages.len() as u64) as i64;
            let result = result.as_ref().map(|result| result.get());
            rows::keep_call(connection, new.number, at, &mark, result)?;
        }
        Ok(new.id)
    }
}
