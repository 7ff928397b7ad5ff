//! `toolcrib sessions`: conversations that are kept.

mod keep;
mod list;
mod price;
mod resume;
mod shelf;
mod transcript;

use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Subcommand;
use serde::Serialize;
use serde_json::{Value, json};
use toolcrib::agent::Message;
use toolcrib::store::SqliteStore;
use toolcrib::{Access, Extent, KeptCall, Opened, SessionMeta, SessionStore};

use crate::args::Context;
use crate::config::read_text;
use crate::output::{self, BOLD, DIM, Misuse, Told, ago, counted, one_line};
use list::Row;
pub(crate) use resume::{Resume, show_last, tell};
pub(crate) use shelf::Shelf;

/// How many are listed for people.
const MOST_LISTED: usize = 20;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "\
Examples:
  toolcrib sessions                            the newest, with their ids
  toolcrib sessions 'pull request'             those in which that was said
  toolcrib sessions show 1m3250
  toolcrib sessions rename 1m3250 'the release'
  toolcrib sessions fork 1m3250 --at 2         a copy of its first two messages
  toolcrib sessions price 1m3250               what it would cost under every strategy
  toolcrib sessions export 1m3250 talk.json
  toolcrib sessions import talk.json
  toolcrib sessions delete 1m3250 --yes

The beginning of an id will do. `toolcrib chat --resume ID` goes on with a session. They are kept on this machine, for you alone, until you delete
them.",
    override_usage = "toolcrib sessions [OPTIONS] [WORDS]\n       \
                      toolcrib sessions [OPTIONS] <COMMAND>"
)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
    /// List those with this in their title or in what was said, or at the beginning of their id
    words: Option<String>,
    /// The most to list [default: 20; with --json, all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

#[derive(Debug, Subcommand)]
enum SessionsCommand {
    /// Print what was said, and which tools were called
    Show {
        /// The session's id, or how it begins
        id: String,
    },
    /// Give a session another title; an empty one brings back the first
    Rename {
        /// The session's id, or how it begins
        id: String,
        /// The title
        title: String,
    },
    /// Copy a session, to go on with the copy
    Fork {
        /// The session's id, or how it begins
        id: String,
        /// Copy only its first N messages
        #[arg(long, value_name = "N")]
        at: Option<u64>,
    },
    /// Tell what a session would cost under every strategy, with models of every provider
    Price(price::PriceArgs),
    /// Write a session as one JSON text
    Export {
        /// The session's id, or how it begins
        id: String,
        /// A new file to write [default: standard output]
        file: Option<PathBuf>,
    },
    /// Take in a session that was exported
    Import {
        /// The file; `-` reads standard input
        file: PathBuf,
    },
    /// Delete sessions for good
    Delete {
        /// The sessions' ids, or how they begin
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Delete without asking
        #[arg(long, short)]
        yes: bool,
    },
}

pub(crate) fn run(args: &SessionsArgs, context: &Context) -> anyhow::Result<()> {
    if args.command.is_some() && (args.words.is_some() || args.limit.is_some()) {
        let text = "words and --limit are for the list; leave them out, or the command";
        return Err(Misuse::new(text).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    match &args.command {
        None => runtime.block_on(list(args, context)),
        Some(SessionsCommand::Show { id }) => runtime.block_on(show(id, context)),
        Some(SessionsCommand::Rename { id, title }) => runtime.block_on(rename(id, title, context)),
        Some(SessionsCommand::Fork { id, at }) => runtime.block_on(fork(id, *at, context)),
        // Its tools are those of servers, which need a runtime of their own.
        Some(SessionsCommand::Price(args)) => {
            let session = runtime.block_on(find(args.id(), context))?;
            price::run(args, &session, context)
        }
        Some(SessionsCommand::Export { id, file }) => {
            runtime.block_on(export(id, file.as_deref(), context))
        }
        Some(SessionsCommand::Import { file }) => runtime.block_on(import(file, context)),
        Some(SessionsCommand::Delete { ids, yes }) => runtime.block_on(delete(ids, *yes, context)),
    }
}

/// Where the session is that is asked for.
fn store_of(id: &str, context: &Context) -> anyhow::Result<SqliteStore> {
    keep::kept(context)?.ok_or_else(|| keep::not_found(id))
}

async fn read(store: &SqliteStore, id: &str) -> anyhow::Result<Opened> {
    store.open(id, Access::Read).await.map_err(keep::told)
}

async fn find(id: &str, context: &Context) -> anyhow::Result<Opened> {
    read(&store_of(id, context)?, id).await
}

#[derive(Serialize)]
struct Listed<'a> {
    sessions: Vec<Row<'a>>,
}

async fn list(args: &SessionsArgs, context: &Context) -> anyhow::Result<()> {
    let words = args.words.as_deref().unwrap_or_default();
    let limit = args.limit.unwrap_or(if context.json { usize::MAX } else { MOST_LISTED });
    let mut metas = match keep::kept(context)? {
        // One more, to know whether there are more.
        Some(store) => store.list(words, limit.saturating_add(1)).await.map_err(keep::told)?,
        None => Vec::new(),
    };
    let is_all = metas.len() <= limit;
    metas.truncate(limit);
    if context.json {
        return output::json(&Listed { sessions: metas.iter().map(Row::new).collect() });
    }
    if metas.is_empty() && is_all {
        return output::text(&match words.trim() {
            "" => "No session is kept yet; `toolcrib chat` begins one.\n".to_owned(),
            words => format!("No session has `{}` in it.\n", one_line(words)),
        });
    }
    let mut text = list::describe(&metas, context);
    if !is_all {
        text.push_str("There are more; --limit shows them.\n");
    }
    output::text(&text)
}

#[derive(Serialize)]
struct Shown<'a> {
    session: Row<'a>,
    messages: Vec<Value>,
    /// Calls of the last message that have begun.
    calls: Vec<Value>,
}

async fn show(id: &str, context: &Context) -> anyhow::Result<()> {
    let Opened { meta, messages, calls, .. } = find(id, context).await?;
    if context.json {
        let messages = messages.iter().map(|it| serde_json::from_str(it));
        let call = |KeptCall { mark, result }: &KeptCall| {
            let result = result.as_ref().and_then(|it| serde_json::from_str::<Value>(it).ok());
            json!({"call_id": mark.call_id, "tool": mark.tool, "idempotent": mark.idempotent,
                "result": result})
        };
        return output::json(&Shown {
            session: Row::new(&meta),
            messages: messages.collect::<Result<_, _>>()?,
            calls: calls.iter().map(call).collect(),
        });
    }
    let read: Vec<Option<Message>> =
        messages.iter().map(|message| serde_json::from_str(message).ok()).collect();
    let read: Vec<Option<&Message>> = read.iter().map(Option::as_ref).collect();
    let said = transcript::transcript(&read, Some(&calls));
    output::text(&format!("{}\n{said}", heading(&meta, context)))
}

/// The title, and a line about the session.
fn heading(meta: &SessionMeta, context: &Context) -> String {
    let title = meta.title.as_deref().map(one_line).unwrap_or_else(|| "(nothing was said)".into());
    let label = |name: &str| meta.labels.get(name).map(|label| one_line(label));
    let folder = label(keep::FOLDER).map(|folder| list::folder(&folder, context));
    let about = [
        Some(meta.id.clone()),
        Some(ago(meta.changed_at, SystemTime::now())),
        Some(counted(meta.messages as usize, "message")),
        label(keep::MODEL),
        folder.map(|folder| if folder == "." { "here".to_owned() } else { folder }),
        meta.forked_from.as_ref().map(|id| format!("a copy of {id}")),
        meta.in_use_by.map(|pid| format!("in use by process {pid}")),
    ];
    let about = about.into_iter().flatten().collect::<Vec<_>>().join(", ");
    format!("{BOLD}{title}{BOLD:#}\n{DIM}{about}{DIM:#}\n")
}

async fn rename(id: &str, title: &str, context: &Context) -> anyhow::Result<()> {
    let store = store_of(id, context)?;
    store.rename(id, title).await.map_err(keep::told)?;
    let meta = read(&store, id).await?.meta;
    if context.json {
        return output::json(&Row::new(&meta));
    }
    let title = meta.title.as_deref().unwrap_or_default();
    output::text(&format!("{} is called `{}` now.\n", meta.id, one_line(title)))
}

async fn fork(id: &str, at: Option<u64>, context: &Context) -> anyhow::Result<()> {
    let store = store_of(id, context)?;
    let extent = at.map_or(Extent::Whole, Extent::First);
    let copy = store.fork(id, extent).await.map_err(keep::told)?;
    let meta = read(&store, &copy).await?.meta;
    if context.json {
        return output::json(&Row::new(&meta));
    }
    context.note(&format!("`toolcrib chat --resume {copy}` goes on with it."));
    let messages = counted(meta.messages as usize, "message");
    output::text(&format!("{copy} is a copy, with {messages}.\n"))
}

async fn export(id: &str, file: Option<&Path>, context: &Context) -> anyhow::Result<()> {
    let text = store_of(id, context)?.export(id).await.map_err(keep::told)?;
    let Some(file) = file else { return output::verbatim(&text) };
    let shown = file.display();
    write_new(file, &text).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Misuse::new(format!("{shown} is there already; give another name")).into()
        }
        _ => anyhow::anyhow!("can't write {shown}: {error}"),
    })?;
    if context.json {
        return output::json(&json!({"file": file, "bytes": text.len() + 1}));
    }
    output::text(&format!("Wrote {shown}.\n"))
}

/// Writes a file that only its owner may read: what was said is in it.
fn write_new(file: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut written = options.open(file)?;
    written.write_all(text.as_bytes())?;
    written.write_all(b"\n")
}

async fn import(file: &Path, context: &Context) -> anyhow::Result<()> {
    let text = match file == Path::new("-") {
        true => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).map(|_| text)
        }
        false => read_text(file),
    };
    let shown = file.display();
    let text = text.map_err(|error| Misuse::new(format!("can't read {shown}: {error}")))?;
    let store = keep::open(context)?;
    let id = store.import(&text).await.map_err(keep::told)?;
    let meta = read(&store, &id).await?.meta;
    if context.json {
        return output::json(&Row::new(&meta));
    }
    context.note(&format!("`toolcrib chat --resume {id}` goes on with it."));
    let messages = counted(meta.messages as usize, "message");
    output::text(&format!("Imported as {id}, with {messages}.\n"))
}

async fn delete(ids: &[String], yes: bool, context: &Context) -> anyhow::Result<()> {
    let store = store_of(&ids[0], context)?;
    // All of them are there, or none goes.
    let mut metas: Vec<SessionMeta> = Vec::new();
    for id in ids {
        let meta = read(&store, id).await?.meta;
        if !metas.iter().any(|known| known.id == meta.id) {
            metas.push(meta);
        }
    }
    if !yes && (context.json || !output::is_attended()) {
        let text = "nobody can be asked here whether to delete that; --yes does without asking";
        return Err(Misuse::new(text).into());
    }
    if !yes {
        output::ask(&list::describe(&metas, context));
        let question = format!("Delete {} for good?", counted(metas.len(), "session"));
        if !output::confirm(&question)? {
            return output::text("Nothing was deleted.\n");
        }
    }
    let mut deleted = Vec::new();
    for meta in &metas {
        match store.delete(&meta.id).await {
            Ok(()) => deleted.push(&meta.id),
            Err(error) => output::complain(&error.to_string()),
        }
    }
    if context.json {
        output::json(&json!({"deleted": deleted}))?;
    } else if !deleted.is_empty() {
        output::text(&format!("Deleted {}.\n", counted(deleted.len(), "session")))?;
    }
    if deleted.len() < metas.len() { Err(Told.into()) } else { Ok(()) }
}
