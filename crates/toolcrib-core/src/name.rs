//! Tool names: what a tool is, and what a model calls it.
//!
//! This is the one place where names are joined. A tool's identity is a [`ToolName`]; the name a
//! model sees is derived from that identity alone, so it is the same whatever else is registered
//! and in whatever order.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Fingerprint;

/// Between the parts of an exposed name.
const SEPARATOR: &str = "__";

/// What a model may write between a namespace and a tool.
const QUALIFIERS: [&str; 4] = [SEPARATOR, ".", "/", ":"];

/// Where a tool comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolSource {
    /// Shipped with the program.
    Builtin,
    /// Offered by an MCP server.
    Mcp {
        /// The name the server has in the configuration.
        server: Arc<str>,
    },
    /// Registered by the program that embeds the engine.
    Host,
}

impl ToolSource {
    /// `builtin`, `mcp` or `host`.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Builtin => "builtin",
            Self::Mcp { .. } => "mcp",
            Self::Host => "host",
        }
    }

    /// The MCP server, if the tool comes from one.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Mcp { server } => Some(server),
            _ => None,
        }
    }
}

/// The identity of a tool.
///
/// ```
/// use toolcrib_core::{Naming, ToolName};
///
/// let name = ToolName::mcp("github", "create_issue");
/// assert_eq!(name.exposed(Naming::Model), "mcp__github__create_issue");
/// assert_eq!(name.exposed(Naming::Gateway), "github__create_issue");
/// assert_eq!(ToolName::host("lookup").exposed(Naming::Model), "lookup");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ToolName {
    source: ToolSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<Arc<str>>,
    tool: Arc<str>,
}

impl ToolName {
    /// A tool shipped with the program.
    pub fn builtin(tool: impl Into<Arc<str>>) -> Self {
        Self { source: ToolSource::Builtin, namespace: None, tool: tool.into() }
    }

    /// A tool of an MCP server, by the server's name in the configuration and the tool's own.
    pub fn mcp(server: impl Into<Arc<str>>, tool: impl Into<Arc<str>>) -> Self {
        let source = ToolSource::Mcp { server: server.into() };
        Self { source, namespace: None, tool: tool.into() }
    }

    /// A tool of the embedding program.
    pub fn host(tool: impl Into<Arc<str>>) -> Self {
        Self { source: ToolSource::Host, namespace: None, tool: tool.into() }
    }

    /// A tool of the embedding program under a namespace of its own, which its exposed name
    /// carries: two namespaces may each have a `create_issue`.
    pub fn host_in(namespace: impl Into<Arc<str>>, tool: impl Into<Arc<str>>) -> Self {
        let namespace = Some(namespace.into());
        Self { source: ToolSource::Host, namespace, tool: tool.into() }
    }

    /// Where the tool comes from.
    pub fn source(&self) -> &ToolSource {
        &self.source
    }

    /// The MCP server, if the tool comes from one.
    pub fn server(&self) -> Option<&str> {
        self.source.server()
    }

    /// The server, or the host's namespace, if the tool has either.
    pub fn namespace(&self) -> Option<&str> {
        self.server().or(self.namespace.as_deref())
    }

    /// The tool's own name, as its server or host knows it.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The name a model calls the tool by: at most [`Naming::max_length`] characters of
    /// `[A-Za-z0-9_-]`.
    ///
    /// A short hash of the identity is appended whenever the plain name would not say it exactly:
    /// a character was replaced, the name was cut, or a part contains the separator.
    pub fn exposed(&self, naming: Naming) -> String {
        let prefix = match (&self.source, naming) {
            (ToolSource::Mcp { .. }, Naming::Model) => "mcp__",
            _ => "",
        };
        let plain = match self.namespace() {
            Some(namespace) => format!("{prefix}{namespace}{SEPARATOR}{}", self.tool),
            None => self.tool.to_string(),
        };
        let mut safe: String = plain.chars().map(safe_char).collect();
        if safe == plain && safe.len() <= naming.max_length() && self.joins_cleanly() {
            return safe;
        }
        let hash = self.hash().short();
        // The name is ASCII by now, so any byte is a character boundary.
        safe.truncate(naming.max_length() - hash.len() - 1);
        format!("{safe}_{hash}")
    }

    /// Whether the exposed name can be read in one way only.
    fn joins_cleanly(&self) -> bool {
        let namespace = self.namespace().unwrap_or_default();
        !self.tool.is_empty()
            && !self.tool.contains(SEPARATOR)
            && !namespace.contains(SEPARATOR)
            && !(self.namespace().is_some()
                && (namespace.is_empty() || namespace.ends_with('_') || self.tool.starts_with('_')))
    }

    fn hash(&self) -> Fingerprint {
        let namespace = self.namespace().unwrap_or_default();
        Fingerprint::of([
            self.source.label().as_bytes(),
            namespace.as_bytes(),
            self.tool.as_bytes(),
        ])
    }

    /// Whether this tool is meant by a name as a model may write it: as exposed, qualified in any
    /// way, or bare.
    pub fn answers_to(&self, text: &str, naming: Naming) -> bool {
        let text = unquoted(text);
        let is_meant = |text: &str| {
            let own = self.namespace().and_then(|it| Self::strip_namespace(it, text));
            text == self.tool() || own == Some(self.tool()) || text == self.exposed(naming)
        };
        is_meant(text) || without_imagined_namespace(text).is_some_and(is_meant)
    }

    /// Whether the text could be a namespace and a tool: what has no separator is neither.
    pub(crate) fn may_be_qualified(text: &str) -> bool {
        QUALIFIERS.iter().any(|separator| text.contains(separator))
    }

    /// What follows the server or namespace in `text`, if it begins with it: `create_issue` for
    /// `github__create_issue`, `github.create_issue`, `github/create_issue`.
    pub(crate) fn strip_namespace<'a>(namespace: &str, text: &'a str) -> Option<&'a str> {
        let rest = text.strip_prefix("mcp__").unwrap_or(text);
        let rest = rest.strip_prefix(namespace).or_else(|| text.strip_prefix(namespace))?;
        QUALIFIERS.iter().find_map(|separator| rest.strip_prefix(separator))
    }
}

/// `server/tool`, or the bare tool name: for people, logs and files.
impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.tool),
            None => f.write_str(&self.tool),
        }
    }
}

/// A name without the white space and quotes a model may have put around it.
pub(crate) fn unquoted(name: &str) -> &str {
    name.trim().trim_matches(['"', '\'', '`'])
}

/// What is left of a name that begins with a namespace some models imagine before every call.
pub(crate) fn without_imagined_namespace(name: &str) -> Option<&str> {
    ["functions.", "functions_", "default_api.", "tools."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
}

fn safe_char(c: char) -> char {
    if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }
}

/// Which form exposed names take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Naming {
    /// `mcp__server__tool`, at most 64 characters: what a provider accepts.
    #[default]
    Model,
    /// `server__tool`, at most 48 characters: a client will put its own prefix before it.
    Gateway,
}

impl Naming {
    /// The longest exposed name.
    pub fn max_length(self) -> usize {
        match self {
            Self::Model => 64,
            Self::Gateway => 48,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: ToolName) -> String {
        name.exposed(Naming::Model)
    }

    #[test]
    fn a_plain_name_is_exposed_as_it_is() {
        assert_eq!(model(ToolName::builtin("exec")), "exec");
        assert_eq!(model(ToolName::host_in("crm", "find")), "crm__find");
        assert_eq!(model(ToolName::mcp("github", "foo_2")), "mcp__github__foo_2");
        assert_eq!(model(ToolName::mcp("my-server", "a-b")), "mcp__my-server__a-b");
    }

    #[test]
    fn any_name_becomes_provider_safe() {
        let long = "x".repeat(200);
        for tool in ["a.b", "ünïcode", "🦀", "", "with space", &long, "a\u{0}b"] {
            for naming in [Naming::Model, Naming::Gateway] {
                let exposed = ToolName::mcp("srv", tool).exposed(naming);
                assert!(exposed.len() <= naming.max_length(), "{exposed}");
                assert!(!exposed.is_empty());
                assert!(exposed.chars().all(|c| safe_char(c) == c), "{exposed}");
            }
        }
    }

    #[test]
    fn names_that_sanitise_alike_stay_apart() {
        assert_ne!(model(ToolName::mcp("s", "a.b")), model(ToolName::mcp("s", "a b")));
        assert_ne!(model(ToolName::mcp("s", "a.b")), model(ToolName::mcp("s", "a_b")));
        let stem = "x".repeat(80);
        assert_ne!(
            model(ToolName::mcp("s", format!("{stem}create"))),
            model(ToolName::mcp("s", format!("{stem}delete"))),
        );
    }

    #[test]
    fn a_separator_inside_a_part_can_not_forge_another_tool() {
        assert_ne!(model(ToolName::mcp("a__b", "c")), model(ToolName::mcp("a", "b__c")));
        assert_ne!(model(ToolName::mcp("a_", "b")), model(ToolName::mcp("a", "_b")));
        assert_ne!(model(ToolName::host("mcp__a__b")), model(ToolName::mcp("a", "b")));
    }

    #[test]
    fn a_tool_answers_to_every_way_of_writing_its_name() {
        let name = ToolName::mcp("gh", "create issue");
        let exposed = name.exposed(Naming::Gateway);
        for text in ["create issue", "gh__create issue", "`gh.create issue`", &exposed] {
            assert!(name.answers_to(text, Naming::Gateway), "{text}");
        }
        assert!(ToolName::mcp("gh", "x").answers_to("functions.mcp__gh__x", Naming::Model));
        for text in ["gx", "other__x", "", "gh__", "gh"] {
            assert!(!ToolName::mcp("gh", "x").answers_to(text, Naming::Gateway), "{text}");
        }
    }

    #[test]
    fn a_qualified_name_is_read_with_any_separator() {
        for text in ["gh__x", "gh.x", "gh/x", "gh:x", "mcp__gh__x"] {
            assert_eq!(ToolName::strip_namespace("gh", text), Some("x"), "{text}");
        }
        assert_eq!(ToolName::strip_namespace("gh", "ghx"), None);
        assert_eq!(ToolName::strip_namespace("mcp__odd", "mcp__odd__x"), Some("x"));
    }
}
