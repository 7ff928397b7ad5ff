//! Which tools a caller may know of. One filtered set feeds every surface, so prompt, search,
//! lookup, loading and calling can't disagree.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::globs::Globs;
use crate::segment::Item;
use crate::{Annotations, Fingerprint, PatternError, Tool, ToolName, ToolSource};

/// What a policy says, as it stands in a configuration.
///
/// Patterns for tools match the exposed name, `server/tool`, `server.tool` or the tool's own
/// name. An empty list under `allow_…` admits nothing; leaving it out admits everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicyRules {
    /// Only these tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_tools: Option<Vec<String>>,
    /// Never these, whatever else allows them. Meta-tools can be denied here by name.
    pub deny_tools: Vec<String>,
    /// Only these MCP servers. Tools of other sources are not affected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_servers: Option<Vec<String>>,
    /// Never these MCP servers.
    pub deny_servers: Vec<String>,
    /// Only tools that say they change nothing.
    pub read_only: bool,
    /// No tool that may destroy something; one that says nothing about it counts as one that may.
    pub deny_destructive: bool,
}

/// A policy, ready to be applied.
///
/// ```
/// use toolcrib_core::{Policy, PolicyRules, Registry, ServerTools, Schema, ToolName, ToolSpec};
///
/// let registry = Registry::default();
/// let tool = |name: &str| ToolSpec::new(ToolName::mcp("github", name), Schema::empty());
/// registry.replace_server(ServerTools::new("github", [tool("get_issue"), tool("delete_repo")]));
///
/// let policy = Policy::new(PolicyRules { deny_tools: vec!["delete_*".into()], ..Default::default() })?;
/// let view = registry.catalog().view(&policy);
/// assert_eq!((view.len(), view.hidden()), (1, 1));
/// # Ok::<_, toolcrib_core::PatternError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Policy(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    rules: PolicyRules,
    /// Whether only tools of MCP servers are admitted, which no rule can say.
    mcp_only: bool,
    /// Tools that are not admitted, which no rule need say.
    without: Vec<ToolName>,
    allow_tools: Option<Globs>,
    deny_tools: Globs,
    allow_servers: Option<Globs>,
    deny_servers: Globs,
    fingerprint: Fingerprint,
}

impl Policy {
    /// Compiles the rules.
    pub fn new(rules: PolicyRules) -> Result<Self, PatternError> {
        let optional = |list: &Option<Vec<String>>| list.as_deref().map(Globs::new).transpose();
        let text = serde_json::to_vec(&rules).unwrap_or_default();
        Ok(Self(Arc::new(Inner {
            allow_tools: optional(&rules.allow_tools)?,
            deny_tools: Globs::new(&rules.deny_tools)?,
            allow_servers: optional(&rules.allow_servers)?,
            deny_servers: Globs::new(&rules.deny_servers)?,
            fingerprint: Fingerprint::of([text.as_slice()]),
            mcp_only: false,
            without: Vec::new(),
            rules,
        })))
    }

    /// Admits everything but the tools of MCP servers.
    pub fn without_mcp() -> Self {
        Self::from_plain(PolicyRules { allow_servers: Some(Vec::new()), ..Default::default() })
    }

    /// Admits the tools of one MCP server alone.
    pub fn only_server(server: &str) -> Result<Self, PatternError> {
        let server = globset::escape(server).replace('\\', r"[\]");
        let policy = Self::new(PolicyRules {
            allow_tools: Some(vec![format!("{server}/*")]),
            allow_servers: Some(vec![server]),
            ..Default::default()
        })?;
        // A host's namespace may be called like the server.
        Ok(policy.of_mcp_only())
    }

    fn of_mcp_only(self) -> Self {
        let fingerprint = Fingerprint::of([self.fingerprint().as_bytes(), b"mcp"]);
        Self(Arc::new(Inner { mcp_only: true, fingerprint, ..(*self.0).clone() }))
    }

    /// For rules without a pattern, which compile.
    fn from_plain(rules: PolicyRules) -> Self {
        let fingerprint = Fingerprint::of([&serde_json::to_vec(&rules).unwrap_or_default()[..]]);
        let none = || rules.allow_servers.as_ref().map(|_| Globs::default());
        Self(Arc::new(Inner {
            allow_tools: None,
            deny_tools: Globs::default(),
            allow_servers: none(),
            deny_servers: Globs::default(),
            fingerprint,
            mcp_only: false,
            without: Vec::new(),
            rules,
        }))
    }

    /// The same policy, which also never admits this one tool.
    pub fn without(&self, tool: &ToolName) -> Self {
        let mut inner = (*self.0).clone();
        inner.without.push(tool.clone());
        let name = tool.to_string();
        inner.fingerprint = Fingerprint::of([inner.fingerprint.as_bytes(), name.as_bytes()]);
        Self(Arc::new(inner))
    }

    /// What the policy says.
    pub fn rules(&self) -> &PolicyRules {
        &self.0.rules
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    /// Whether it admits a tool.
    pub fn admits_tool(&self, tool: &Tool) -> bool {
        self.admits(tool.name(), tool.exposed(), tool.spec().annotations())
    }

    pub(crate) fn admits_item(&self, item: Item<'_>) -> bool {
        let annotations = match item {
            Item::Tool(tool) => *tool.spec().annotations(),
            Item::Named(_) => Annotations::default(),
        };
        self.admits(item.name(), item.exposed(), &annotations)
    }

    fn admits(&self, name: &ToolName, exposed: &str, annotations: &Annotations) -> bool {
        let Inner { rules, allow_tools, deny_tools, .. } = &*self.0;
        let from_there = match name.source() {
            ToolSource::Mcp { server } => self.admits_server(server),
            _ => !self.0.mcp_only,
        };
        if !from_there || self.0.without.contains(name) {
            return false;
        }
        let read_only = !rules.read_only || annotations.is_read_only();
        let harmless = !rules.deny_destructive || !annotations.is_destructive();
        read_only
            && harmless
            && allow_tools.as_ref().is_none_or(|allowed| allowed.matches_tool(name, exposed))
            && !deny_tools.matches_tool(name, exposed)
    }

    /// Whether tools of this MCP server may be admitted at all.
    pub fn admits_server(&self, server: &str) -> bool {
        let Inner { allow_servers, deny_servers, .. } = &*self.0;
        allow_servers.as_ref().is_none_or(|allowed| allowed.is_match(server))
            && !deny_servers.is_match(server)
    }

    /// Whether no tool whatever can be admitted.
    pub(crate) fn admits_nothing(&self) -> bool {
        let PolicyRules { allow_tools, deny_tools, .. } = self.rules();
        allow_tools.as_ref().is_some_and(Vec::is_empty) || deny_tools.iter().any(|it| it == "*")
    }

    /// Whether the verb may be offered. Finding and loading run nothing, so an allow-list of
    /// tools need not name the verbs; only a denial removes them.
    pub(crate) fn admits_verb(&self, name: &str) -> bool {
        !self.0.deny_tools.is_match(name)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::from_plain(PolicyRules::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(rules: PolicyRules) -> Policy {
        Policy::new(rules).unwrap()
    }

    fn admits(policy: &Policy, name: &ToolName, annotations: Annotations) -> bool {
        policy.admits(name, &name.exposed(crate::Naming::Model), &annotations)
    }

    fn plain(policy: &Policy, name: &ToolName) -> bool {
        admits(policy, name, Annotations::default())
    }

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn no_rules_admit_everything() {
        assert!(plain(&Policy::default(), &ToolName::mcp("a", "b")));
        assert!(plain(&Policy::default(), &ToolName::host("b")));
    }

    #[test]
    fn a_policy_can_leave_out_one_tool() {
        let (own, other) = (ToolName::host("search"), ToolName::mcp("web", "search"));
        let before = Policy::default();
        let narrowed = before.without(&own);
        assert!(!plain(&narrowed, &own) && plain(&narrowed, &other));
        assert_ne!(before.fingerprint(), narrowed.fingerprint());
        let server = Policy::only_server("web").unwrap().without(&other);
        assert!(!plain(&server, &own) && !plain(&server, &other));
    }

    #[test]
    fn a_pattern_matches_any_way_of_writing_the_name() {
        let name = ToolName::mcp("github", "delete_repo");
        for pattern in ["delete_*", "github/*", "github.delete_repo", "mcp__github__*", "*repo"] {
            let rules = PolicyRules { deny_tools: strings(&[pattern]), ..Default::default() };
            assert!(!plain(&policy(rules), &name), "{pattern}");
        }
    }

    #[test]
    fn denial_overrides_permission() {
        let rules = PolicyRules {
            allow_tools: Some(strings(&["github/*"])),
            deny_tools: strings(&["*delete*"]),
            ..Default::default()
        };
        let policy = policy(rules);
        assert!(plain(&policy, &ToolName::mcp("github", "get")));
        assert!(!plain(&policy, &ToolName::mcp("github", "delete")));
        assert!(!plain(&policy, &ToolName::host("get")));
    }

    #[test]
    fn an_empty_allow_list_admits_nothing() {
        let rules = PolicyRules { allow_tools: Some(vec![]), ..Default::default() };
        assert!(!plain(&policy(rules), &ToolName::host("x")));
        assert!(!plain(&Policy::without_mcp(), &ToolName::mcp("a", "b")));
        assert!(plain(&Policy::without_mcp(), &ToolName::host("b")));
    }

    #[test]
    fn one_server_alone() {
        let policy = Policy::only_server("a*b").unwrap();
        assert!(plain(&policy, &ToolName::mcp("a*b", "t")));
        assert!(!plain(&policy, &ToolName::mcp("axb", "t")));
        assert!(!plain(&policy, &ToolName::host("t")));
        assert!(!plain(&policy, &ToolName::host_in("a*b", "t")));
        for odd in ["a!b", "[!x]", "{a,b}", "a\\b", "^"] {
            let policy = Policy::only_server(odd).unwrap();
            assert!(plain(&policy, &ToolName::mcp(odd, "t")), "{odd}");
        }
    }

    #[test]
    fn annotations_decide_where_asked() {
        let name = ToolName::host("x");
        let read = Annotations { read_only: Some(true), ..Default::default() };
        let mild = Annotations { destructive: Some(false), ..Default::default() };
        let only_reads = policy(PolicyRules { read_only: true, ..Default::default() });
        let safe = policy(PolicyRules { deny_destructive: true, ..Default::default() });
        let verdicts = |policy: &Policy| {
            [read, mild, Annotations::default()].map(|hints| admits(policy, &name, hints))
        };
        assert_eq!(verdicts(&only_reads), [true, false, false]);
        assert_eq!(verdicts(&safe), [true, true, false]);
    }

    #[test]
    fn a_bad_pattern_is_named() {
        let rules = PolicyRules { deny_tools: strings(&["a{b"]), ..Default::default() };
        assert!(Policy::new(rules).unwrap_err().to_string().contains("`a{b`"));
    }

    #[test]
    fn verbs_are_removed_by_denial_only() {
        let rules = PolicyRules { allow_tools: Some(vec![]), ..Default::default() };
        assert!(policy(rules).admits_verb("tool_search"));
        let rules = PolicyRules { deny_tools: strings(&["*"]), ..Default::default() };
        assert!(!policy(rules).admits_verb("tool_search"));
    }
}
