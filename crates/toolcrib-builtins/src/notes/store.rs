//! Where notes are kept.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, TransactionBehavior, params};
use serde_json::{Value, json};

use crate::error::{Failure, check_size};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS notes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL, body TEXT NOT NULL,
        created TEXT NOT NULL, updated TEXT NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS tags (
        note INTEGER NOT NULL REFERENCES notes(id) ON DELETE CASCADE,
        tag TEXT NOT NULL,
        PRIMARY KEY (note, tag)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS notes_of_tag ON tags(tag);
    CREATE VIRTUAL TABLE IF NOT EXISTS words
        USING fts5(title, body, tags, tokenize = 'porter unicode61 remove_diacritics 2');
";

/// The words looked for at most; more would not make a better search.
const MOST_WORDS: usize = 32;

/// Notes in a folder's `notes.db`, which is opened when first needed. Several processes may use
/// the same file.
pub(super) struct Notes {
    folder: PathBuf,
    connection: Mutex<Option<Connection>>,
}

/// What is to become of a note; what is `None` stays.
pub(super) struct Changes<'a> {
    pub(super) title: Option<&'a str>,
    pub(super) body: Option<&'a str>,
    pub(super) append: Option<&'a str>,
    pub(super) tags: Option<&'a [String]>,
}

impl Notes {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, connection: Mutex::default() }
    }

    pub(super) fn add(&self, title: &str, body: &str, tags: &[String]) -> Result<i64, Failure> {
        self.write(|write| {
            let now = now();
            write.execute(
                "INSERT INTO notes (title, body, created, updated) VALUES (?1, ?2, ?3, ?3)",
                params![title, body, now],
            )?;
            let id = write.last_insert_rowid();
            set_tags(write, id, tags)?;
            index(write, id)?;
            Ok(id)
        })
    }

    pub(super) fn get(&self, id: i64) -> Result<Value, Failure> {
        self.read(|read| {
            let sql = "SELECT id, title, body, created, updated FROM notes WHERE id = ?1";
            let note = read.query_row(sql, [id], |row| {
                Ok(json!({
                    "id": row.get::<_, i64>(0)?, "title": row.get::<_, String>(1)?,
                    "body": row.get::<_, String>(2)?, "tags": tags_of(read, id)?,
                    "created": row.get::<_, String>(3)?, "updated": row.get::<_, String>(4)?,
                }))
            });
            note.optional()?.ok_or_else(|| missing(id))
        })
    }

    /// Notes with all the words; if there are none, notes with any.
    pub(super) fn search(
        &self,
        query: &str,
        tag: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Value>, Failure> {
        // Each word is quoted, so that none is taken for a search operator.
        let words = query.split(|letter: char| !letter.is_alphanumeric());
        let words: Vec<String> = words
            .filter(|word| !word.is_empty())
            .take(MOST_WORDS)
            .map(|word| format!("\"{word}\"*"))
            .collect();
        if words.is_empty() {
            return Err(Failure::invalid("Give at least one word to look for."));
        }
        self.read(|read| {
            let mut found = matching(read, &words.join(" AND "), tag, limit)?;
            if found.is_empty() && words.len() > 1 {
                found = matching(read, &words.join(" OR "), tag, limit)?;
            }
            Ok(found)
        })
    }

    pub(super) fn list(
        &self,
        tag: Option<&str>,
        limit: u32,
        offset: u32,
    ) -> Result<Value, Failure> {
        self.read(|read| {
            let tagged = "(?1 IS NULL OR id IN (SELECT note FROM tags WHERE tag = ?1))";
            let count = format!("SELECT count(*) FROM notes WHERE {tagged}");
            let total: i64 = read.query_row(&count, [tag], |row| row.get(0))?;
            let sql = format!(
                "SELECT id, title, updated FROM notes WHERE {tagged}
                 ORDER BY updated DESC, id DESC LIMIT ?2 OFFSET ?3"
            );
            let mut statement = read.prepare(&sql)?;
            let row = |row: &Row<'_>| {
                let id: i64 = row.get(0)?;
                let (title, updated): (String, String) = (row.get(1)?, row.get(2)?);
                Ok(json!({"id": id, "title": title, "tags": tags_of(read, id)?, "updated": updated}))
            };
            let notes = statement.query_map(params![tag, limit, offset], row)?;
            let notes = notes.collect::<rusqlite::Result<Vec<Value>>>()?;
            Ok(json!({"notes": notes, "total": total}))
        })
    }

    pub(super) fn update(
        &self,
        id: i64,
        changes: &Changes<'_>,
        longest: usize,
    ) -> Result<Value, Failure> {
        self.write(|write| {
            let sql = "SELECT title, body FROM notes WHERE id = ?1";
            let before = write.query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?)));
            let (title, body): (String, String) = before.optional()?.ok_or_else(|| missing(id))?;
            let title = changes.title.unwrap_or(&title);
            let mut body = changes.body.unwrap_or(&body).to_owned();
            if let Some(more) = changes.append {
                if !body.is_empty() && !body.ends_with('\n') {
                    body.push('\n');
                }
                body.push_str(more);
            }
            check_size("The note", &body, longest)?;
            write.execute(
                "UPDATE notes SET title = ?2, body = ?3, updated = ?4 WHERE id = ?1",
                params![id, title, body, now()],
            )?;
            if let Some(tags) = changes.tags {
                set_tags(write, id, tags)?;
            }
            index(write, id)?;
            Ok(json!({"id": id, "title": title, "tags": tags_of(write, id)?}))
        })
    }

    pub(super) fn delete(&self, id: i64) -> Result<(), Failure> {
        self.write(|write| {
            write.execute("DELETE FROM words WHERE rowid = ?1", [id])?;
            match write.execute("DELETE FROM notes WHERE id = ?1", [id])? {
                0 => Err(missing(id)),
                _ => Ok(()),
            }
        })
    }

    pub(super) fn tags(&self) -> Result<Vec<Value>, Failure> {
        self.read(|read| {
            let sql =
                "SELECT tag, count(*) FROM tags GROUP BY tag ORDER BY count(*) DESC, tag LIMIT 500";
            let mut statement = read.prepare(sql)?;
            let tags = statement.query_map([], |row| {
                Ok(json!({"tag": row.get::<_, String>(0)?, "notes": row.get::<_, i64>(1)?}))
            })?;
            Ok(tags.collect::<rusqlite::Result<Vec<Value>>>()?)
        })
    }

    fn read<R>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.transact(TransactionBehavior::Deferred, work)
    }

    fn write<R>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.transact(TransactionBehavior::Immediate, work)
    }

    /// Does something in one transaction, which is undone if it fails.
    fn transact<R>(
        &self,
        behavior: TransactionBehavior,
        work: impl FnOnce(&Transaction<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let mut guard = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *guard {
            Some(connection) => connection,
            none => none.insert(self.open()?),
        };
        let transaction = connection.transaction_with_behavior(behavior)?;
        let done = work(&transaction)?;
        transaction.commit()?;
        Ok(done)
    }

    fn open(&self) -> Result<Connection, Failure> {
        fs::create_dir_all(&self.folder).map_err(|source| Failure::io(&self.folder, source))?;
        let connection = Connection::open(self.folder.join("notes.db"))?;
        connection.busy_timeout(Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.execute_batch(SCHEMA)?;
        Ok(connection)
    }
}

fn matching(
    read: &Connection,
    words: &str,
    tag: Option<&str>,
    limit: u32,
) -> Result<Vec<Value>, Failure> {
    let sql = "
        SELECT n.id, n.title, n.updated, snippet(words, 1, '**', '**', '…', 24)
        FROM words JOIN notes n ON n.id = words.rowid
        WHERE words MATCH ?1 AND (?2 IS NULL OR n.id IN (SELECT note FROM tags WHERE tag = ?2))
        ORDER BY bm25(words, 8.0, 1.0, 4.0), n.updated DESC LIMIT ?3";
    let mut statement = read.prepare(sql)?;
    let row = |row: &Row<'_>| {
        let id: i64 = row.get(0)?;
        Ok(json!({
            "id": id, "title": row.get::<_, String>(1)?, "tags": tags_of(read, id)?,
            "snippet": row.get::<_, String>(3)?, "updated": row.get::<_, String>(2)?,
        }))
    };
    let found = statement.query_map(params![words, tag, limit], row)?;
    Ok(found.collect::<rusqlite::Result<Vec<Value>>>()?)
}

fn set_tags(write: &Connection, id: i64, tags: &[String]) -> rusqlite::Result<()> {
    write.execute("DELETE FROM tags WHERE note = ?1", [id])?;
    for tag in tags {
        write
            .execute("INSERT OR IGNORE INTO tags (note, tag) VALUES (?1, ?2)", params![id, tag])?;
    }
    Ok(())
}

fn tags_of(read: &Connection, id: i64) -> rusqlite::Result<Vec<String>> {
    let mut statement = read.prepare("SELECT tag FROM tags WHERE note = ?1 ORDER BY tag")?;
    statement.query_map([id], |row| row.get(0))?.collect()
}

/// Puts a note as it now stands into the index.
fn index(write: &Connection, id: i64) -> rusqlite::Result<()> {
    write.execute("DELETE FROM words WHERE rowid = ?1", [id])?;
    write.execute(
        "INSERT INTO words (rowid, title, body, tags)
         SELECT id, title, body, (SELECT coalesce(group_concat(tag, ' '), '') FROM tags WHERE note = id)
         FROM notes WHERE id = ?1",
        [id],
    )?;
    Ok(())
}

fn now() -> String {
    // Always the same number of digits, so that text sorts as time does.
    format!("{:.6}", Timestamp::now())
}

fn missing(id: i64) -> Failure {
    Failure::invalid(format!("There is no note {id}; list_notes or search_notes give the ids."))
}
