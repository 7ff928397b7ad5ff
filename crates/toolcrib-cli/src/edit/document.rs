//! A toolcrib.toml that is changed: comments, order and permissions stay, and it is replaced as
//! a whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use indexmap::IndexMap;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, Value};

use crate::config::{Config, Secret, ServerEntry, is_json, read_text};
use crate::output::Misuse;

pub(crate) struct Document {
    file: PathBuf,
    /// What it was before; `None` if there was no file.
    before: Option<String>,
    document: DocumentMut,
    /// The servers it should have, to check the text against before it is written.
    servers: IndexMap<String, ServerEntry>,
    /// Held until the file is written, so that of two changes at once none is lost.
    _lock: Option<File>,
}

impl Document {
    /// Opens a file, or begins one if there is none.
    pub(crate) fn open(file: PathBuf) -> anyhow::Result<Self> {
        let shown = file.display();
        let lock = lock(&folder_of(&file));
        let before = match read_text(&file) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(
                    Misuse::new(format!("can't read configuration {shown}: {error}")).into()
                );
            }
        };
        let text = before.as_deref().unwrap_or_default();
        if is_json(&file, text) {
            let text = format!(
                "{shown} is JSON, which is read but not changed; `toolcrib import --from {shown}` \
                 copies its servers to a toolcrib.toml"
            );
            return Err(Misuse::new(text).into());
        }
        let servers = Config::from_text(&file, text)?.servers;
        let document: DocumentMut = text.parse().with_context(|| format!("can't edit {shown}"))?;
        Ok(Self { file, before, document, servers, _lock: lock })
    }

    pub(crate) fn shown(&self) -> String {
        self.file.display().to_string()
    }

    pub(crate) fn is_new(&self) -> bool {
        self.before.is_none()
    }

    pub(crate) fn servers(&self) -> &IndexMap<String, ServerEntry> {
        &self.servers
    }

    /// Puts a server in, behind the others or in place of its namesake.
    pub(crate) fn insert(&mut self, name: &str, entry: &ServerEntry) {
        let is_new = self.servers.insert(name.to_owned(), entry.clone()).is_none();
        let mut table = table_of(entry);
        if is_new && let Some(comment) = self.take_comment_behind_servers() {
            table.decor_mut().set_prefix(format!("{comment}\n\n"));
        }
        let servers = self.document.as_table_mut().entry("servers").or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        let Some(servers) = servers.as_table_like_mut() else { return };
        if let Some(Item::Table(old)) = servers.get(name) {
            *table.decor_mut() = old.decor().clone();
            table.set_position(old.position());
        }
        servers.insert(name, Item::Table(table));
    }

    /// A comment that stands behind the last server's keys is about them, but kept with what
    /// follows. It is taken from there, so that it stays where it is.
    fn take_comment_behind_servers(&mut self) -> Option<String> {
        let mut last = None;
        if let Some(servers) = self.document.get("servers") {
            for_each_table(servers, &mut |table| last = last.max(table.position()));
        }
        let behind = last.unwrap_or(isize::MAX);
        let Some(next) = next_table(self.document.as_table_mut(), behind) else {
            let trailing = self.document.trailing().as_str().unwrap_or_default();
            let comment = trailing.trim_end().to_owned();
            self.document.set_trailing("");
            return Some(comment).filter(|comment| !comment.is_empty());
        };
        let prefix = next.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
        let lines = prefix.replace("\r\n", "\n");
        let (comment, rest) = lines.split_once("\n\n")?;
        let comment = Some(comment.to_owned()).filter(|text| text.starts_with('#'))?;
        next.decor_mut().set_prefix(format!("\n{rest}"));
        Some(comment)
    }

    /// Takes a server out, with the comment right above it. Whether it was there.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        if self.servers.shift_remove(name).is_none() {
            return false;
        }
        let servers = self.document.get_mut("servers").and_then(Item::as_table_like_mut);
        let removed = servers.and_then(|servers| servers.remove(name));
        let Some(Item::Table(table)) = removed else { return true };
        // What an empty line sets apart is about more than this server.
        let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
        let lines = prefix.replace("\r\n", "\n");
        let Some((kept, _)) = lines.rsplit_once("\n\n").filter(|(kept, _)| !kept.trim().is_empty())
        else {
            return true;
        };
        let kept = format!("{}\n", kept.trim_end());
        let position = table.position().unwrap_or(isize::MAX);
        match next_table(self.document.as_table_mut(), position) {
            Some(next) => {
                let prefix = next.decor().prefix().and_then(|prefix| prefix.as_str());
                let prefix = format!("{kept}{}", prefix.unwrap_or("\n"));
                next.decor_mut().set_prefix(prefix);
            }
            None => {
                let trailing = self.document.trailing().as_str().unwrap_or_default();
                let trailing = format!("{kept}{trailing}");
                self.document.set_trailing(trailing);
            }
        }
        true
    }

    /// Writes the file, in one step: whoever reads it meanwhile sees the old one or the new one.
    pub(crate) fn save(&self) -> anyhow::Result<()> {
        self.write(false)
    }

    /// The same, readable by its owner alone.
    pub(crate) fn save_private(&self) -> anyhow::Result<()> {
        self.write(true)
    }

    fn write(&self, private: bool) -> anyhow::Result<()> {
        let shown = self.file.display();
        let mut text = self.document.to_string();
        if self.before.as_ref().is_some_and(|before| before.contains("\r\n")) {
            text = text.replace("\r\n", "\n").replace('\n', "\r\n");
        }
        // Faults of what was put in are told as those of a file; no other is to be expected.
        let written = Config::from_text(&self.file, &text)?.servers;
        if !same(&written, &self.servers) {
            bail!("{shown} has a form that can't be edited here; nothing was changed");
        }
        // A link stays one: what it points to is replaced.
        let target = fs::canonicalize(&self.file).unwrap_or_else(|_| self.file.clone());
        replace(&target, &text, private).with_context(|| format!("can't write {shown}"))
    }
}

/// Whether two sets of servers are the same but for their order.
fn same(a: &IndexMap<String, ServerEntry>, b: &IndexMap<String, ServerEntry>) -> bool {
    a.len() == b.len() && a.iter().all(|(name, entry)| b.get(name) == Some(entry))
}

fn for_each_table(item: &Item, each: &mut impl FnMut(&Table)) {
    if let Item::Table(table) = item {
        each(table);
        table.iter().for_each(|(_, item)| for_each_table(item, each));
    }
}

/// The table whose header comes next behind this place.
fn next_table(root: &mut Table, position: isize) -> Option<&mut Table> {
    let mut best: Option<&mut Table> = None;
    let mut waiting: Vec<&mut Table> = vec![root];
    while let Some(table) = waiting.pop() {
        let is_behind = table.position().is_some_and(|at| at > position);
        let is_nearer = |best: &&mut Table| best.position() < table.position();
        if is_behind && !table.is_implicit() && !table.is_dotted() {
            if best.as_ref().is_none_or(|best| !is_nearer(best)) {
                best = Some(table);
            }
            // Tables within it come behind it.
            continue;
        }
        waiting.extend(table.iter_mut().filter_map(|(_, item)| item.as_table_mut()));
    }
    best
}

/// What an entry says that is not said anyway.
fn table_of(entry: &ServerEntry) -> Table {
    let plain = ServerEntry::default();
    let mut table = Table::new();
    let text = |table: &mut Table, key: &str, value: Option<&str>| {
        if let Some(value) = value {
            table.insert(key, value.into());
        }
    };
    let list = |table: &mut Table, key: &str, values: &[String]| {
        if !values.is_empty() {
            table.insert(key, Array::from_iter(values).into());
        }
    };
    let map = |table: &mut Table, key: &str, values: &IndexMap<String, Secret>| {
        if !values.is_empty() {
            let values = values.iter().map(|(name, value)| (name, Value::from(value.expose())));
            table.insert(key, Value::InlineTable(InlineTable::from_iter(values)).into());
        }
    };
    let limit = |table: &mut Table, key: &str, value: f64, plain: f64| {
        if value == plain {
        } else if value.fract() == 0.0 {
            table.insert(key, (value as i64).into());
        } else {
            table.insert(key, value.into());
        }
    };
    text(&mut table, "description", entry.description.as_deref());
    text(&mut table, "command", entry.command.as_deref());
    list(&mut table, "args", &entry.args);
    text(&mut table, "cwd", entry.cwd.as_deref());
    map(&mut table, "env", &entry.env);
    text(&mut table, "env_file", entry.env_file.as_deref());
    list(&mut table, "inherit_env", &entry.inherit_env);
    text(&mut table, "url", entry.url.as_deref());
    map(&mut table, "headers", &entry.headers);
    text(&mut table, "bearer_token", entry.bearer_token.as_ref().map(Secret::expose));
    for (key, value, plain) in
        [("enabled", entry.enabled, plain.enabled), ("eager", entry.eager, plain.eager)]
    {
        if value != plain {
            table.insert(key, value.into());
        }
    }
    text(&mut table, "group", entry.group.as_deref());
    list(&mut table, "include", &entry.include);
    list(&mut table, "exclude", &entry.exclude);
    limit(&mut table, "start_limit", entry.start_limit, plain.start_limit);
    limit(&mut table, "call_limit", entry.call_limit, plain.call_limit);
    limit(&mut table, "idle_stop", entry.idle_stop, plain.idle_stop);
    table
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Waits for others who change a file in this folder. Where folders can't be locked, nobody
/// waits.
fn lock(folder: &Path) -> Option<File> {
    let folder = File::open(folder).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

fn replace(target: &Path, text: &str, private: bool) -> io::Result<()> {
    let folder = folder_of(target);
    fs::create_dir_all(&folder)?;
    // Readable by its owner alone until told otherwise.
    let mut file = tempfile::Builder::new().prefix(".toolcrib.").tempfile_in(&folder)?;
    file.write_all(text.as_bytes())?;
    if let Ok(old) = fs::metadata(target)
        && !private
    {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(target).map_err(|error| error.error)?;
    Ok(())
}
