//! The tables of sessions.

use std::collections::BTreeMap;
use std::time::SystemTime;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, params};
use toolcrib_runtime::{
    CallMark, Extent, JournalError, KeptCall, Opened, SessionError, SessionMeta,
};

use crate::errand::Fault;
use crate::manifests::{millis, time};
use crate::sessions::id::new_id;
use crate::sessions::lease::{self, HOLDER, Holder};
use crate::sessions::said::{Said, one_line};

/// What is written often is small: the ledger and the messages stand apart from the session.
pub(crate) const TABLES: &str = "
    CREATE TABLE sessions (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        created_at INTEGER NOT NULL,
        changed_at INTEGER NOT NULL,
        title TEXT, -- how the first thing that a person said begins
        name TEXT, -- what it was renamed to
        labels TEXT NOT NULL, -- a JSON object of texts
        forked_from TEXT,
        messages INTEGER NOT NULL, -- how many
        copied INTEGER NOT NULL -- how many of them are copies of another session's
    ) STRICT;
    CREATE TABLE session_messages (
        session INTEGER NOT NULL, -- its number
        seq INTEGER NOT NULL, -- from 0
        said TEXT, -- what a search finds, in lower case
        body TEXT NOT NULL, -- JSON
        PRIMARY KEY (session, seq)
    ) STRICT;
    CREATE TABLE session_ledgers (
        session INTEGER PRIMARY KEY,
        body TEXT NOT NULL -- JSON
    ) STRICT;
    CREATE TABLE session_calls (
        session INTEGER NOT NULL,
        at INTEGER NOT NULL, -- how many messages there were when it began
        call TEXT NOT NULL,
        tool TEXT NOT NULL,
        idempotent INTEGER NOT NULL,
        result TEXT, -- JSON; only until a message has it
        PRIMARY KEY (session, at, call)
    ) STRICT;
    CREATE TABLE session_leases (
        session INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        machine TEXT NOT NULL, -- among whose processes pid counts
        pid INTEGER NOT NULL,
        taken_at INTEGER NOT NULL,
        renewed_at INTEGER NOT NULL
    ) STRICT;";

/// Where something of a session is kept besides `sessions`.
const PARTS: [&str; 4] = ["session_messages", "session_ledgers", "session_calls", "session_leases"];

const MESSAGES: &str = "SELECT seq, body FROM session_messages WHERE session = ?1 ORDER BY seq";
const SAYS: &str = "SELECT 1 FROM session_messages WHERE session = ?1 AND instr(said, ?2) > 0";
const LEDGER: &str = "SELECT body FROM session_ledgers WHERE session = ?1";
const CALLS: &str = "
    SELECT at, call, tool, idempotent, result FROM session_calls
    WHERE session = ?1 AND at >= ?2 ORDER BY rowid";

/// The most ids that a prefix is said to stand for.
const MOST_CANDIDATES: usize = 5;

type Result<T, E = SessionError> = std::result::Result<T, Fault<E>>;

/// Fails unless the tables are as we know them.
pub(crate) fn check_columns(connection: &Connection) -> rusqlite::Result<()> {
    for statement in [&metas(""), MESSAGES, SAYS, LEDGER, CALLS] {
        connection.prepare(statement)?;
    }
    Ok(())
}

/// A session that is known to be there.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) number: i64,
    pub(crate) id: String,
}

/// The session whose id is this, or the only one whose id begins like this.
pub(crate) fn find(connection: &Connection, asked: &str) -> Result<Found> {
    let prefix = asked.trim().to_ascii_lowercase();
    let not_found = || Fault::Refused(SessionError::NotFound { id: asked.to_owned() });
    if prefix.is_empty() {
        return Err(not_found());
    }
    let mut like = connection.prepare(
        "SELECT number, id FROM sessions WHERE substr(id, 1, length(?1)) = ?1 ORDER BY id LIMIT ?2",
    )?;
    let read = |row: &Row<'_>| Ok(Found { number: row.get(0)?, id: row.get(1)? });
    let mut found: Vec<Found> = like
        .query_map(params![prefix, MOST_CANDIDATES as i64], read)?
        .collect::<rusqlite::Result<_>>()?;
    match found.as_slice() {
        [] => Err(not_found()),
        // The shortest comes first.
        [first, ..] if found.len() == 1 || first.id == prefix => Ok(found.swap_remove(0)),
        _ => Err(Fault::Refused(SessionError::Ambiguous {
            prefix,
            candidates: found.into_iter().map(|found| found.id).collect(),
        })),
    }
}

/// A session as it stands in its table.
pub(crate) struct NewRow<'a> {
    /// The id it should have, if that is free.
    pub(crate) id: Option<&'a str>,
    pub(crate) created_at: i64,
    pub(crate) title: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    pub(crate) labels: &'a str,
    pub(crate) forked_from: Option<&'a str>,
    pub(crate) messages: i64,
    pub(crate) copied: i64,
}

pub(crate) fn insert(connection: &Connection, row: &NewRow<'_>) -> Result<Found> {
    /// Two of one moment rarely draw the same. So often in a row, something else is wrong.
    const TRIES: usize = 8;
    let mut insert = connection.prepare(
        "INSERT INTO sessions
             (id, created_at, changed_at, title, name, labels, forked_from, messages, copied)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let now = millis(SystemTime::now());
    let mut id = row.id.map_or_else(new_id, str::to_owned);
    for _ in 0..TRIES {
        let (title, name) = (row.title, row.name);
        let values = params![
            id,
            row.created_at,
            now,
            title,
            name,
            row.labels,
            row.forked_from,
            row.messages,
            row.copied
        ];
        match insert.execute(values) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                id = new_id();
            }
            other => {
                other?;
                return Ok(Found { number: connection.last_insert_rowid(), id });
            }
        }
    }
    Err(Fault::Refused(SessionError::Damaged { id, reason: "every id is taken".into() }))
}

pub(crate) fn rename(connection: &Connection, session: i64, title: &str) -> Result<()> {
    let mut rename = connection.prepare("UPDATE sessions SET name = ?2 WHERE number = ?1")?;
    rename.execute(params![session, one_line(title)])?;
    Ok(())
}

pub(crate) fn fork(connection: &Connection, from: &Found, extent: Extent) -> Result<Found> {
    type Source = (Option<String>, Option<String>, String, i64);
    let (title, name, labels, messages): Source = connection.query_row(
        "SELECT title, name, labels, messages FROM sessions WHERE number = ?1",
        [from.number],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
    )?;
    let messages = match extent {
        Extent::Whole => messages,
        Extent::First(most) => messages.min(signed(most)),
    };
    let copy = insert(
        connection,
        &NewRow {
            id: None,
            created_at: millis(SystemTime::now()),
            title: title.as_deref(),
            name: name.as_deref(),
            labels: &labels,
            forked_from: Some(&from.id),
            messages,
            copied: messages,
        },
    )?;
    connection.execute(
        "INSERT INTO session_messages (session, seq, said, body)
         SELECT ?2, seq, said, body FROM session_messages
         WHERE session = ?1 AND seq < ?3 ORDER BY seq",
        params![from.number, copy.number, messages],
    )?;
    connection.execute(
        "INSERT INTO session_ledgers (session, body)
         SELECT ?2, body FROM session_ledgers WHERE session = ?1",
        params![from.number, copy.number],
    )?;
    connection.execute(
        "INSERT INTO session_calls (session, at, call, tool, idempotent, result)
         SELECT ?2, at, call, tool, idempotent, result FROM session_calls
         WHERE session = ?1 AND at <= ?3 ORDER BY rowid",
        params![from.number, copy.number, messages],
    )?;
    Ok(copy)
}

/// Deletes a session, and overwrites it: it is somebody's wish that it be gone.
pub(crate) fn delete(connection: &Connection, session: i64) -> Result<()> {
    connection.execute_batch("PRAGMA secure_delete = ON")?;
    for part in PARTS {
        connection.execute(&format!("DELETE FROM {part} WHERE session = ?1"), [session])?;
    }
    connection.execute("DELETE FROM sessions WHERE number = ?1", [session])?;
    connection.execute_batch("PRAGMA secure_delete = FAST")?;
    Ok(())
}

/// What changes in a session.
#[derive(Debug)]
pub(crate) enum Step {
    Append { seq: u64, body: String, said: Said },
    Ledger(String),
    Began(CallMark),
    Finished { call: String, result: String },
    Cut(u64),
}

/// Changes a session, on behalf of who holds it.
pub(crate) fn record(
    connection: &Connection,
    session: i64,
    owner: &str,
    steps: &[Step],
) -> Result<(), JournalError> {
    if !lease::is_held(connection, session, owner)? {
        return Err(Fault::Refused(JournalError::Lost));
    }
    let count = "SELECT messages FROM sessions WHERE number = ?1";
    let count: Option<i64> = connection.query_row(count, [session], |row| row.get(0)).optional()?;
    let Some(mut count) = count else { return Err(Fault::Refused(JournalError::Lost)) };
    let (mut title, mut least) = (None, i64::MAX);
    for step in steps {
        match step {
            Step::Append { seq, body, said } => {
                append(connection, session, count, *seq, body, said)?;
                title = title.or(said.title.as_deref());
                count += 1;
            }
            Step::Ledger(body) => keep_ledger(connection, session, body)?,
            Step::Began(mark) => keep_call(connection, session, count, mark, None)?,
            Step::Finished { call, result } => finish(connection, session, count, call, result)?,
            Step::Cut(seq) => {
                count = cut(connection, session, count, *seq)?;
                least = least.min(count);
            }
        }
    }
    connection.execute(
        "UPDATE sessions SET messages = ?2, changed_at = ?3, title = coalesce(title, ?4),
                copied = min(copied, ?5)
         WHERE number = ?1",
        params![session, count, millis(SystemTime::now()), title, least],
    )?;
    Ok(())
}

fn append(
    connection: &Connection,
    session: i64,
    count: i64,
    seq: u64,
    body: &str,
    said: &Said,
) -> Result<(), JournalError> {
    if signed(seq) != count {
        return Err(out_of_step(count, seq));
    }
    keep_message(connection, session, count, body, said)?;
    // The message has them now. That the calls have begun stays known: should the message go
    // again, they are not to run again.
    connection.execute(
        "UPDATE session_calls SET result = NULL WHERE session = ?1 AND at = ?2",
        [session, count],
    )?;
    Ok(())
}

pub(crate) fn keep_message(
    connection: &Connection,
    session: i64,
    seq: i64,
    body: &str,
    said: &Said,
) -> rusqlite::Result<()> {
    connection
        .execute(
            "INSERT INTO session_messages (session, seq, said, body) VALUES (?1, ?2, ?3, ?4)",
            params![session, seq, said.text, body],
        )
        .map(drop)
}

pub(crate) fn keep_ledger(
    connection: &Connection,
    session: i64,
    body: &str,
) -> rusqlite::Result<()> {
    connection
        .execute(
            "INSERT OR REPLACE INTO session_ledgers (session, body) VALUES (?1, ?2)",
            params![session, body],
        )
        .map(drop)
}

pub(crate) fn keep_call(
    connection: &Connection,
    session: i64,
    at: i64,
    mark: &CallMark,
    result: Option<&str>,
) -> rusqlite::Result<()> {
    let CallMark { call_id, tool, idempotent } = mark;
    connection
        .execute(
            "INSERT OR REPLACE INTO session_calls (session, at, call, tool, idempotent, result)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![session, at, call_id, tool, idempotent, result],
        )
        .map(drop)
}

fn finish(
    connection: &Connection,
    session: i64,
    at: i64,
    call: &str,
    result: &str,
) -> Result<(), JournalError> {
    let changed = connection.execute(
        "UPDATE session_calls SET result = ?4 WHERE session = ?1 AND at = ?2 AND call = ?3",
        params![session, at, call, result],
    )?;
    match changed {
        0 => Err(Fault::Refused(JournalError::NotBegun { call_id: call.to_owned() })),
        _ => Ok(()),
    }
}

/// How many messages are left.
fn cut(connection: &Connection, session: i64, count: i64, seq: u64) -> Result<i64, JournalError> {
    let left = signed(seq);
    if left > count {
        return Err(out_of_step(count, seq));
    }
    for (part, place) in [("session_messages", "seq >="), ("session_calls", "at >")] {
        let go = format!("DELETE FROM {part} WHERE session = ?1 AND {place} ?2");
        connection.execute(&go, [session, left])?;
    }
    Ok(left)
}

fn out_of_step(kept: i64, given: u64) -> Fault<JournalError> {
    let kept = kept.try_into().unwrap_or_default();
    Fault::Refused(JournalError::OutOfStep { kept, given })
}

/// Sessions with who holds them. `suffix` says which and in what order.
fn metas(suffix: &str) -> String {
    format!(
        "SELECT number, id, coalesce(name, title), labels, created_at, changed_at, messages,
                forked_from, copied, {HOLDER}
         FROM sessions LEFT JOIN session_leases ON session = number {suffix}"
    )
}

fn meta(row: &Row<'_>) -> rusqlite::Result<(i64, SessionMeta)> {
    let holder = match row.get_ref(9)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(Holder::read(row, 9)?).filter(Holder::is_live),
    };
    let labels: BTreeMap<String, String> =
        serde_json::from_str(row.get_ref(3)?.as_str()?).unwrap_or_default();
    let meta = SessionMeta {
        id: row.get(1)?,
        title: row.get(2)?,
        labels,
        created_at: time(row.get(4)?),
        changed_at: time(row.get(5)?),
        messages: row.get::<_, i64>(6)?.try_into().unwrap_or_default(),
        forked_from: row.get(7)?,
        copied: row.get::<_, i64>(8)?.try_into().unwrap_or_default(),
        in_use_by: holder.map(|holder| holder.pid),
    };
    Ok((row.get(0)?, meta))
}

pub(crate) fn list(
    connection: &Connection,
    filter: &str,
    limit: usize,
) -> Result<Vec<SessionMeta>> {
    let wanted = filter.trim().to_lowercase();
    let mut all = connection.prepare(&metas("ORDER BY changed_at DESC, number DESC"))?;
    let mut says = connection.prepare(SAYS)?;
    let mut found = Vec::new();
    for row in all.query_map([], meta)? {
        if found.len() >= limit {
            break;
        }
        let (number, meta) = row?;
        let title = || meta.title.as_deref().unwrap_or_default().to_lowercase();
        if wanted.is_empty()
            || meta.id.starts_with(&wanted)
            || title().contains(&wanted)
            || says.exists(params![number, wanted])?
        {
            found.push(meta);
        }
    }
    Ok(found)
}

/// Everything that is kept of a session. Within a transaction, so that it is of one moment.
pub(crate) fn read(connection: &Connection, Found { number, id }: &Found) -> Result<Opened> {
    let meta = connection.query_row(&metas("WHERE number = ?1"), [number], meta).optional()?;
    let not_found = || Fault::Refused(SessionError::NotFound { id: id.clone() });
    let (_, meta) = meta.ok_or_else(not_found)?;
    let damaged = |reason: String| Fault::Refused(SessionError::Damaged { id: id.clone(), reason });
    let mut messages: Vec<String> = Vec::new();
    let mut rows = connection.prepare(MESSAGES)?;
    let mut rows = rows.query([number])?;
    while let Some(row) = rows.next()? {
        let next = messages.len();
        if row.get::<_, i64>(0)? != next as i64 {
            return Err(damaged(format!("message {next} is missing")));
        }
        let body = row.get_ref(1)?.as_str();
        let body = body.map_err(|error| damaged(format!("message {next}: {error}")))?;
        messages.push(body.to_owned());
    }
    if messages.len() as u64 != meta.messages {
        return Err(damaged(format!("{} messages are left of {}", messages.len(), meta.messages)));
    }
    let ledger = connection.query_row(LEDGER, [number], |row| row.get(0)).optional()?;
    let calls = calls(connection, *number, signed(meta.messages))?;
    let calls = calls.into_iter().map(|(_, call)| call).collect();
    Ok(Opened::new(meta, messages, ledger, calls))
}

/// The marks of calls since there were so many messages, and how many there were.
pub(crate) fn calls(
    connection: &Connection,
    session: i64,
    since: i64,
) -> rusqlite::Result<Vec<(i64, KeptCall)>> {
    let read = |row: &Row<'_>| {
        let mark = CallMark { call_id: row.get(1)?, tool: row.get(2)?, idempotent: row.get(3)? };
        Ok((row.get(0)?, KeptCall { mark, result: row.get(4)? }))
    };
    connection.prepare(CALLS)?.query_map([session, since], read)?.collect()
}

/// What is beyond SQLite's numbers is beyond any count.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
