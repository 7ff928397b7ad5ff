//! Groups: tools that are loaded together.
//!
//! Every toolset is a group, so an MCP server is one without further ado. A host may declare
//! others, whose members are known, only named, or unknown until a loader is asked.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{ToolName, ToolSource, ToolSpec};

/// What a group is called in `load_tools`: `mcp:<server>` for a server, its own id otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(Arc<str>);

impl GroupId {
    /// The group that an MCP server's tools form.
    pub fn server(name: &str) -> Self {
        Self(format!("mcp:{name}").into())
    }

    /// The group of the tools a host registers outside any group.
    pub fn host() -> Self {
        Self("host".into())
    }

    /// The group of the built-in tools.
    pub fn builtin() -> Self {
        Self("builtin".into())
    }

    /// The group of the toolset a tool of this name is registered with, unless a host puts it
    /// into one of its own.
    pub(crate) fn of(name: &ToolName) -> Self {
        match name.source() {
            ToolSource::Builtin => Self::builtin(),
            ToolSource::Host => Self::host(),
            ToolSource::Mcp { server } => Self::server(server),
        }
    }

    /// The MCP server whose group this is, if it is one's.
    pub fn server_name(&self) -> Option<&str> {
        self.0.strip_prefix("mcp:")
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for GroupId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

impl From<String> for GroupId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is known of a group's members before it is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// Everything: no loader is needed.
    Known(Vec<ToolSpec>),
    /// Their names. Those registered elsewhere are used from there; the rest come from a loader.
    Named(Vec<ToolName>),
    /// Nothing: a loader says.
    Unknown,
}

/// A group a host declares.
///
/// ```
/// use toolcrib_core::Group;
///
/// let group = Group::new("mcp:github")
///     .with_display_name("GitHub")
///     .with_description("Issues, PRs, repos, code search")
///     .with_tool_names(["create_issue", "search_repos"]);
/// assert_eq!(group.id().as_str(), "mcp:github");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    id: GroupId,
    display_name: Option<String>,
    description: Option<String>,
    namespace: Option<Arc<str>>,
    members: Members,
}

impl Group {
    /// A group whose members are unknown until it is loaded.
    pub fn new(id: impl Into<GroupId>) -> Self {
        Self {
            id: id.into(),
            display_name: None,
            description: None,
            namespace: None,
            members: Members::Unknown,
        }
    }

    /// The name people read. The id, unless given.
    pub fn with_display_name(mut self, name: impl Into<String>) -> Self {
        self.display_name = Some(name.into());
        self
    }

    /// One line on what the group can do.
    pub fn with_description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// A namespace for tools named afterwards with [`with_tool_names`](Self::with_tool_names),
    /// so that they may share names with those of other groups.
    pub fn with_namespace(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The members' names, as host tools; a loader brings the rest.
    pub fn with_tool_names<S: AsRef<str>>(self, names: impl IntoIterator<Item = S>) -> Self {
        let namespace = self.namespace.clone();
        let identity = |name: S| match &namespace {
            Some(namespace) => ToolName::host_in(namespace.clone(), name.as_ref()),
            None => ToolName::host(name.as_ref()),
        };
        self.with_members(Members::Named(names.into_iter().map(identity).collect()))
    }

    /// The members, with their schemas.
    pub fn with_tools(self, specs: impl IntoIterator<Item = ToolSpec>) -> Self {
        self.with_members(Members::Known(specs.into_iter().collect()))
    }

    /// The members, as much as is known: identities may mix servers and host tools.
    pub fn with_members(mut self, members: Members) -> Self {
        self.members = members;
        self
    }

    /// What the model calls the group.
    pub fn id(&self) -> &GroupId {
        &self.id
    }

    /// The name people read.
    pub fn display_name(&self) -> &str {
        self.display_name.as_deref().unwrap_or(match self.id.as_str() {
            "host" => "Host tools",
            "builtin" => "Built-in tools",
            id => id,
        })
    }

    /// One line on what the group can do, empty if nobody said.
    pub fn description(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    /// What is known of its members.
    pub fn members(&self) -> &Members {
        &self.members
    }
}

/// How much of a group a conversation has loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Loaded {
    /// None of its tools.
    #[default]
    Nothing,
    /// These, by exposed name, in the order in which they were first loaded.
    Some(Vec<Arc<str>>),
    /// All of them.
    All,
}
