//! The servers, and one that is open.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::Value;
use toolcrib_core::{GroupId, ToolSpec};
use toolcrib_runtime::{CallError, IntoToolResult as _, Invocation, Listing, ToolResult, Toolset};

use crate::error::{BuiltinError, Failure};
use crate::tool::{Answer, Tool};
use crate::{data, exec, files, git, notes, sqlite, time, web};

/// A built-in server.
///
/// ```
/// use toolcrib_builtins::{Builtin, Options};
/// use toolcrib_core::GroupId;
/// use toolcrib_runtime::Toolset;
///
/// let time = "time".parse::<Builtin>()?.open(&Options::default())?;
/// assert_eq!(time.id(), GroupId::server("time"));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Builtin {
    /// Files under the given roots.
    Files,
    /// Git repositories under the given roots.
    Git,
    /// SQLite databases under the given roots.
    Sqlite,
    /// Notes with full-text search, kept in the data folder.
    Notes,
    /// JSON, CSV, YAML, TOML, differences, hashes, encodings.
    Data,
    /// Dates, times and time zones.
    Time,
    /// Web pages as Markdown.
    Web,
    /// Commands, through the shell: not among [`ALL`](Self::ALL), since it is for those who ask
    /// for it.
    Exec,
}

impl Builtin {
    /// Every server that may be offered unasked, in the order they are listed.
    pub const ALL: [Self; 7] =
        [Self::Files, Self::Git, Self::Sqlite, Self::Notes, Self::Data, Self::Time, Self::Web];

    /// The server's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Git => "git",
            Self::Sqlite => "sqlite",
            Self::Notes => "notes",
            Self::Data => "data",
            Self::Time => "time",
            Self::Web => "web",
            Self::Exec => "exec",
        }
    }

    /// One line on what it can do.
    pub fn description(self) -> &'static str {
        match self {
            Self::Files => "Read, write, edit, find and search files in the allowed folders.",
            Self::Git => "Look into git repositories and commit to them: status, log, diff, blame.",
            Self::Sqlite => "Query and change SQLite databases, and see their tables.",
            Self::Notes => "Keep notes with tags, and find them again by full-text search.",
            Self::Data => {
                "Query, validate and convert JSON, YAML, TOML and CSV; compare, hash and encode text."
            }
            Self::Time => "Tell the time anywhere, convert time zones, reckon with dates.",
            Self::Web => "Fetch web pages as Markdown, and list their links.",
            Self::Exec => "Run commands with the shell.",
        }
    }

    /// Opens the server. Nothing is written, and nothing but the roots is read, before a tool is
    /// called.
    pub fn open(self, options: &Options) -> Result<BuiltinTools, BuiltinError> {
        let mut tools = match self {
            Self::Files => files::tools(options)?,
            Self::Git => git::tools(options)?,
            Self::Sqlite => sqlite::tools(options)?,
            Self::Notes => notes::tools(options)?,
            Self::Data => data::tools(),
            Self::Time => time::tools(),
            Self::Web => web::tools(options),
            Self::Exec if options.read_only => {
                return Err(BuiltinError::NeverReadOnly { server: self.name() });
            }
            Self::Exec => exec::tools(options)?,
        };
        if options.read_only {
            tools.retain(Tool::is_read_only);
        }
        Ok(BuiltinTools { server: self, tools })
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// There is no built-in server of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no built-in server `{0}`; there are files, git, sqlite, notes, data, time, web and exec"
)]
pub struct UnknownBuiltin(String);

impl FromStr for Builtin {
    type Err = UnknownBuiltin;

    fn from_str(name: &str) -> Result<Self, UnknownBuiltin> {
        let mut servers = Self::ALL.into_iter().chain([Self::Exec]);
        let found = servers.find(|server| server.name() == name);
        found.ok_or_else(|| UnknownBuiltin(name.to_owned()))
    }
}

/// What the built-in servers may touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The folders that `files`, `git` and `sqlite` work in, and that `exec` starts in. Relative
    /// paths start at the first.
    pub roots: Vec<PathBuf>,
    /// Where `notes` keeps its database; made when it is first needed.
    pub data_dir: Option<PathBuf>,
    /// The environment that `exec` gives its commands; nothing of this program's own is passed on
    /// that is not in here.
    pub environment: BTreeMap<String, String>,
    /// Whether `web` may reach loopback, private and link-local addresses.
    pub allow_private_addresses: bool,
    /// Leaves out every tool that changes anything.
    pub read_only: bool,
}

/// A built-in server that is open: a toolset.
pub struct BuiltinTools {
    server: Builtin,
    tools: Vec<Tool>,
}

impl BuiltinTools {
    /// Which server it is.
    pub fn builtin(&self) -> Builtin {
        self.server
    }

    pub(crate) fn specs(&self) -> impl Iterator<Item = ToolSpec> {
        self.tools.iter().map(|tool| tool.spec(self.server.name()))
    }

    /// Calls a tool by the name it has within the server.
    pub(crate) fn dispatch(
        &self,
        tool: &str,
        arguments: Value,
    ) -> BoxFuture<'static, Result<Answer, Failure>> {
        match self.tools.iter().find(|known| known.name == tool) {
            Some(tool) => tool.call(arguments),
            None => futures::future::ready(Err(Failure::UnknownTool(tool.to_owned()))).boxed(),
        }
    }
}

impl fmt::Debug for BuiltinTools {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.tools.iter().map(|tool| tool.name).collect();
        formatter.debug_tuple("BuiltinTools").field(&self.server).field(&names).finish()
    }
}

impl Toolset for BuiltinTools {
    fn id(&self) -> GroupId {
        GroupId::server(self.server.name())
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let mut listing = Listing::new(self.specs());
        listing.description = Some(self.server.description().to_owned());
        futures::future::ready(Ok(listing)).boxed()
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        let answer = self.dispatch(invocation.tool.tool(), invocation.arguments);
        answer
            .map(|answer| match answer {
                Ok(Answer::Text(text)) => Ok(ToolResult::text(text)),
                Ok(Answer::Data(data)) => data.into_tool_result(),
                Err(failure) => Ok(ToolResult::error(failure.to_string())),
            })
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything(read_only: bool) -> Vec<(Builtin, Vec<ToolSpec>)> {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            roots: vec![folder.path().to_owned()],
            data_dir: Some(folder.path().to_owned()),
            read_only,
            ..Options::default()
        };
        let specs = |server: Builtin| (server, server.open(&options).unwrap().specs().collect());
        let servers = Builtin::ALL.into_iter().chain((!read_only).then_some(Builtin::Exec));
        servers.map(specs).collect()
    }

    #[test]
    fn names_and_servers_go_both_ways() {
        for server in Builtin::ALL {
            assert_eq!(server.name().parse(), Ok(server));
        }
        assert_eq!("exec".parse(), Ok(Builtin::Exec));
        assert!("Files".parse::<Builtin>().is_err());
    }

    #[test]
    fn every_tool_says_when_to_use_it_and_describes_every_parameter() {
        let mut count = 0;
        for (server, specs) in everything(false) {
            for spec in specs {
                count += 1;
                assert_eq!(spec.name().server(), Some(server.name()));
                assert!(spec.description().len() > 60, "{}: too short", spec.name());
                assert!(spec.input_schema().defect().is_none(), "{}", spec.name());
                let text = spec.input_schema().get();
                for noise in ["$schema", "$defs", "$ref", "\"null\"", ":null", "uint"] {
                    assert!(!text.contains(noise), "{}: {noise} in {text}", spec.name());
                }
                let schema: Value = serde_json::from_str(text).unwrap();
                assert_eq!(schema["type"], "object", "{}", spec.name());
                for (name, parameter) in schema["properties"].as_object().unwrap() {
                    let about = parameter["description"].as_str().unwrap_or_default();
                    assert!(about.len() > 8, "{}: `{name}` lacks a description", spec.name());
                }
            }
        }
        assert!((35..=50).contains(&count), "{count} tools");
    }

    #[test]
    fn read_only_leaves_no_tool_that_changes_anything() {
        let all: usize = everything(false).iter().map(|(_, specs)| specs.len()).sum();
        let readers = everything(true);
        for (server, specs) in &readers {
            assert!(!specs.is_empty(), "{server} has nothing left");
            assert!(specs.iter().all(|spec| spec.annotations().is_read_only()));
        }
        assert!(readers.iter().map(|(_, specs)| specs.len()).sum::<usize>() < all);
    }

    #[tokio::test]
    async fn a_tool_left_out_can_not_be_called_either() {
        let folder = tempfile::tempdir().unwrap();
        let roots = vec![folder.path().to_owned()];
        let options = Options { roots, read_only: true, ..Options::default() };
        let files = Builtin::Files.open(&options).unwrap();
        let arguments = serde_json::json!({"path": "a.txt", "content": "a"});
        let failure = files.dispatch("write_file", arguments).await.unwrap_err();
        assert!(matches!(failure, Failure::UnknownTool(_)), "{failure}");
        assert!(!folder.path().join("a.txt").exists());
    }

    #[test]
    fn a_server_of_files_refuses_to_open_without_a_root() {
        for server in [Builtin::Files, Builtin::Git, Builtin::Sqlite, Builtin::Exec] {
            let error = server.open(&Options::default()).unwrap_err();
            assert!(matches!(error, BuiltinError::NoRoot { .. }), "{error}");
        }
        let error = Builtin::Notes.open(&Options::default()).unwrap_err();
        assert!(matches!(error, BuiltinError::NoDataDir { .. }), "{error}");
    }
}
