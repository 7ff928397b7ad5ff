//! A client's file, read.

use std::io;
use std::path::{Path, PathBuf};

use crate::client::{Client, ClientFile};
use crate::config::{ForeignFile, Found, is_json, read_text, workspace};

/// A file and the servers in it.
pub(super) struct Source {
    pub(super) client: Option<Client>,
    pub(super) path: PathBuf,
    pub(super) servers: Vec<Found>,
    /// What could not be read.
    pub(super) warnings: Vec<String>,
}

impl Source {
    /// What a client's file says, if there is one with a place for servers. One that can't be
    /// read is told of and costs no other.
    pub(super) fn of_client(client: Client, file: ClientFile) -> Option<Self> {
        let shown = file.path.display().to_string();
        let mut source = Self {
            client: Some(client),
            path: file.path,
            servers: Vec::new(),
            warnings: Vec::new(),
        };
        let text = match read_text(&source.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                source.warnings.push(format!("can't read {shown}: {error}"));
                return Some(source);
            }
        };
        // A client makes its file before there is anything to write there.
        if text.trim().is_empty() {
            return None;
        }
        match parse(&source.path, &text) {
            Ok(read) if !read.has_table && read.warnings.is_empty() => return None,
            Ok(read) => source.take(read, &shown, file.project.as_deref()),
            Err(error) => source.warnings.push(format!("{shown}, {error}")),
        }
        Some(source)
    }

    /// What a file says that was asked for by name.
    pub(super) fn of_file(path: &Path) -> Result<Self, String> {
        let shown = path.display().to_string();
        let text = read_text(path).map_err(|error| format!("can't read {shown}: {error}"))?;
        let read = parse(path, &text).map_err(|error| format!("{shown}, {error}"))?;
        if !read.has_table {
            let tables = if is_json(path, &text) { "`mcpServers`" } else { "`mcp_servers`" };
            return Err(format!("{shown} has no {tables}, so no MCP server"));
        }
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let project = path.parent().map(|folder| workspace(folder).to_owned());
        let mut source = Self { client: None, path, servers: Vec::new(), warnings: Vec::new() };
        source.take(read, &shown, project.as_deref());
        Ok(source)
    }

    fn take(&mut self, read: ForeignFile, shown: &str, project: Option<&Path>) {
        self.warnings.extend(read.warnings.iter().map(|warning| format!("{shown}, {warning}")));
        self.servers = read.servers;
        for server in &mut self.servers {
            let project = server.project.clone().or(project.map(Path::to_owned));
            if let (Ok(entry), Some(project)) = (&mut server.entry, project) {
                plan_for(entry, &project);
            }
        }
    }

    pub(super) fn title(&self) -> &'static str {
        self.client.map_or("file", Client::title)
    }

    pub(super) fn id(&self) -> &'static str {
        self.client.map_or("file", Client::id)
    }
}

fn parse(path: &Path, text: &str) -> Result<ForeignFile, String> {
    if is_json(path, text) { ForeignFile::from_json(text) } else { ForeignFile::from_codex(text) }
}

/// Makes what is meant from a project's folder hold from anywhere.
fn plan_for(entry: &mut crate::config::ServerEntry, project: &Path) {
    let folder = project.to_string_lossy();
    let name = project.file_name().unwrap_or_default().to_string_lossy();
    let fill = |text: &str| {
        text.replace("${workspaceFolder}", &folder).replace("${workspaceFolderBasename}", &name)
    };
    let texts = entry.command.iter_mut().chain(&mut entry.args).chain(&mut entry.url);
    texts.for_each(|text| *text = fill(text));
    for value in entry.env.values_mut().chain(entry.headers.values_mut()) {
        *value = crate::config::Secret::new(fill(value.expose()));
    }
    for path in entry.cwd.iter_mut().chain(&mut entry.env_file) {
        let filled = fill(path);
        // A variable may stand for an absolute path, which a folder in front would spoil.
        let is_open = filled.starts_with("${");
        *path = if is_open { filled } else { project.join(filled).to_string_lossy().into_owned() };
    }
    let is_relative = |word: &String| {
        word == "." || word == ".." || word.starts_with("./") || word.starts_with("../")
    };
    if entry.cwd.is_none() && entry.command.iter().chain(&entry.args).any(is_relative) {
        entry.cwd = Some(folder.into_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ServerEntry;

    #[test]
    fn what_is_meant_from_a_folder_holds_from_anywhere() {
        let text = |text: &str| Some(text.to_owned());
        let mut entry = ServerEntry {
            command: text("./run"),
            args: vec![
                "${workspaceFolder}/data".to_owned(),
                "${workspaceFolderBasename}".to_owned(),
            ],
            env_file: text(".env"),
            ..ServerEntry::default()
        };
        plan_for(&mut entry, Path::new("/w/app"));
        assert_eq!(entry.args, ["/w/app/data", "app"]);
        assert_eq!((entry.cwd, entry.env_file), (text("/w/app"), text("/w/app/.env")));

        let mut entry =
            ServerEntry { command: text("npx"), cwd: text("${HOME}"), ..ServerEntry::default() };
        plan_for(&mut entry, Path::new("/w/app"));
        assert_eq!(entry.cwd, text("${HOME}"));
    }
}
