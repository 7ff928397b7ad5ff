//! Which tools a caller may know of. One filtered set feeds every surface, so prompt, search,
//! lookup, loading and calling can't disagree.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::globs::Globs;
use crate::segment::Item;
use crate::{
    Annotations, Fingerprint, Naming, PatternError, Permission, Permissions, Rule, Tool, ToolName,
    ToolSource,
};

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
    /// What may be done with the tools that all this leaves: the first rule that fits decides.
    /// What one denies is hidden; what one has asked about is seen by all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
}

/// What a policy says of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It may run.
    Allow,
    /// A person is asked first. Where nobody can be, it may not run.
    Ask {
        /// The rule's place among all, counted from 1.
        number: usize,
        /// The rule that says so.
        rule: Arc<Rule>,
    },
    /// The tool does not exist for the caller.
    Deny,
}

/// Stands for whatever a tool may be called: no pattern spells it out.
const ANY: &str = "\u{f8ff}\u{f8fe}\u{f8ff}";

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
    /// Of each of these, one must admit what is admitted.
    within: Vec<Arc<[Policy]>>,
    allow_tools: Option<Globs>,
    deny_tools: Globs,
    allow_servers: Option<Globs>,
    deny_servers: Globs,
    /// As they concern the caller.
    permissions: Permissions,
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
            permissions: Permissions::new(rules.rules.iter().cloned(), Permission::Allow)?,
            fingerprint: Fingerprint::of([text.as_slice()]),
            mcp_only: false,
            without: Vec::new(),
            within: Vec::new(),
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
            permissions: Permissions::allow_all(),
            fingerprint,
            mcp_only: false,
            without: Vec::new(),
            within: Vec::new(),
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

    /// The same policy for one caller, by the name of its token if it has one: rules for others
    /// do not concern it. Callers that the same rules concern get equal policies.
    pub fn for_caller(&self, caller: Option<&str>) -> Self {
        if !self.names_callers() {
            return self.clone();
        }
        let mut inner = (*self.0).clone();
        inner.permissions = inner.permissions.for_caller(caller);
        let mine = |any_of: &Arc<[Self]>| any_of.iter().map(|it| it.for_caller(caller)).collect();
        inner.within = inner.within.iter().map(mine).collect();
        let concerning = inner.permissions.text();
        let within: Vec<Fingerprint> =
            inner.within.iter().flat_map(|it| it.iter()).map(Self::fingerprint).collect();
        let parts = [inner.fingerprint.as_bytes(), &concerning].into_iter();
        inner.fingerprint = Fingerprint::of(parts.chain(within.iter().map(Fingerprint::as_bytes)));
        Self(Arc::new(inner))
    }

    /// Whether any rule is for certain callers only.
    fn names_callers(&self) -> bool {
        self.0.rules.rules.iter().any(|rule| rule.callers.is_some())
            || self.0.within.iter().any(|any_of| any_of.iter().any(Self::names_callers))
    }

    /// Whether a person is asked about any tool whatever: where not, nothing that a view shows
    /// needs a [`decision`](Self::decision).
    pub fn asks(&self) -> bool {
        self.0.permissions.asks()
            || self.0.within.iter().any(|any_of| any_of.iter().any(Self::asks))
    }

    /// What it says of a call of this tool. Where several narrow it, a person is asked unless one
    /// of those that admit the tool lets it run.
    pub fn decision(&self, tool: &Tool) -> Decision {
        if !self.admits_tool(tool) {
            return Decision::Deny;
        }
        if let Some((number, rule)) = self.0.permissions.asking(tool) {
            return Decision::Ask { number, rule: rule.clone() };
        }
        for any_of in &self.0.within {
            let all = any_of.iter().map(|policy| policy.decision(tool));
            let admitted: Vec<Decision> = all.filter(|it| *it != Decision::Deny).collect();
            if !admitted.contains(&Decision::Allow)
                && let Some(asks) = admitted.into_iter().next()
            {
                return asks;
            }
        }
        Decision::Allow
    }

    /// The same policy, narrowed: it admits nothing that none of these admits.
    ///
    /// ```
    /// use toolcrib_core::{Policy, ToolName};
    ///
    /// let (git, db) = (Policy::only_server("git")?, Policy::only_server("db")?);
    /// let either = Policy::default().within([git.clone(), db.clone()]);
    /// assert!(either.admits_server("git") && either.admits_server("db"));
    /// assert!(!either.admits_server("mail"));
    /// assert!(!git.within([db]).admits_server("git"));
    /// # Ok::<_, toolcrib_core::PatternError>(())
    /// ```
    pub fn within(&self, any_of: impl IntoIterator<Item = Self>) -> Self {
        let any_of: Arc<[Self]> = any_of.into_iter().collect();
        let prints: Vec<Fingerprint> = any_of.iter().map(Self::fingerprint).collect();
        let own = [self.0.fingerprint.as_bytes(), b"within"];
        let parts = own.into_iter().chain(prints.iter().map(Fingerprint::as_bytes));
        let mut inner = (*self.0).clone();
        inner.fingerprint = Fingerprint::of(parts);
        inner.within.push(any_of);
        Self(Arc::new(inner))
    }

    /// What the policy itself says, without what it was narrowed by.
    pub fn rules(&self) -> &PolicyRules {
        &self.0.rules
    }

    /// Equal for policies that say the same.
    pub fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }

    /// Whether it admits a tool.
    pub fn admits_tool(&self, tool: &Tool) -> bool {
        self.admits(tool.name(), tool.exposed(), tool.spec().annotations())
    }

    /// Whether it admits a tool of this name that says this about its effects, under the name that
    /// it would have.
    pub fn admits_name(&self, name: &ToolName, naming: Naming, says: &Annotations) -> bool {
        self.admits(name, &name.exposed(naming), says)
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
            && !self.0.permissions.denies(name, exposed, annotations)
            && self.is_within(|policy| policy.admits(name, exposed, annotations))
    }

    /// Whether of all that narrow this policy, one each agrees.
    fn is_within(&self, agrees: impl Fn(&Self) -> bool) -> bool {
        self.0.within.iter().all(|any_of| any_of.iter().any(&agrees))
    }

    /// Whether tools of this MCP server may be admitted at all.
    pub fn admits_server(&self, server: &str) -> bool {
        let Inner { allow_servers, deny_servers, .. } = &*self.0;
        allow_servers.as_ref().is_none_or(|allowed| allowed.is_match(server))
            && !deny_servers.is_match(server)
            && !self.0.permissions.deny_server(server)
            && self.is_within(|policy| policy.admits_server(server))
    }

    /// Whether any tool of this MCP server could be admitted, where none is known yet. It is
    /// judged by the names that the policy itself has for tools, and by one that it has not.
    ///
    /// ```
    /// use toolcrib_core::{Naming, Policy, PolicyRules};
    ///
    /// let rules = PolicyRules { deny_tools: vec!["vault__*".into()], ..Default::default() };
    /// let policy = Policy::new(rules)?;
    /// assert!(policy.admits_server("vault") && !policy.may_admit_of("vault", Naming::Gateway));
    /// assert!(policy.may_admit_of("git", Naming::Gateway));
    /// # Ok::<_, toolcrib_core::PatternError>(())
    /// ```
    pub fn may_admit_of(&self, server: &str, naming: Naming) -> bool {
        if !self.admits_server(server) {
            return false;
        }
        let mut patterns = Vec::new();
        self.name_admitted(&mut patterns);
        let says = |read_only, destructive| Annotations {
            read_only: Some(read_only),
            destructive: Some(destructive),
            ..Annotations::default()
        };
        let kinds = [says(true, false), says(false, false), says(false, true)];
        let may_be = |own: &str| {
            let name = ToolName::mcp(server, own);
            let exposed = name.exposed(naming);
            kinds.iter().any(|kind| self.admits(&name, &exposed, kind))
        };
        may_be(ANY)
            || patterns.into_iter().any(|pattern| {
                let of_server = ToolName::strip_namespace(server, pattern);
                // What such a pattern means is not spelled out; that it means this server is.
                of_server.is_some_and(|own| own.contains(['[', '{']))
                    || [of_server, Some(own_part(pattern))]
                        .into_iter()
                        .flatten()
                        .any(|own| may_be(&own.replace('*', ANY).replace('?', "x")))
            })
    }

    /// The patterns by which it admits tools, its own and those of what it was narrowed by.
    fn name_admitted<'a>(&'a self, patterns: &mut Vec<&'a str>) {
        let PolicyRules { allow_tools, rules, .. } = self.rules();
        let lets = rules.iter().filter(|rule| rule.then != Permission::Deny);
        let named = allow_tools.iter().chain(lets.filter_map(|rule| rule.tools.as_ref()));
        patterns.extend(named.flatten().map(String::as_str));
        self.0.within.iter().flat_map(|any_of| any_of.iter()).for_each(|policy| {
            policy.name_admitted(patterns);
        });
    }

    /// Whether no tool whatever can be admitted.
    pub(crate) fn admits_nothing(&self) -> bool {
        let PolicyRules { allow_tools, deny_tools, .. } = self.rules();
        allow_tools.as_ref().is_some_and(Vec::is_empty)
            || deny_tools.iter().any(|it| it == "*")
            || self.0.permissions.deny_everything()
            || !self.is_within(|policy| !policy.admits_nothing())
    }

    /// Whether the verb may be offered. Finding and loading run nothing, so an allow-list of
    /// tools need not name the verbs; only a denial removes them.
    pub(crate) fn admits_verb(&self, name: &str) -> bool {
        !self.0.deny_tools.is_match(name) && self.is_within(|policy| policy.admits_verb(name))
    }
}

/// What a pattern says of a tool's own name, if it begins with a server's.
fn own_part(pattern: &str) -> &str {
    let ends = ["/", ".", "__"].into_iter().filter_map(|it| Some(pattern.rfind(it)? + it.len()));
    &pattern[ends.max().unwrap_or_default()..]
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
    fn a_policy_that_is_narrowed_admits_what_both_do() {
        let denying =
            |name: &str| policy(PolicyRules { deny_tools: strings(&[name]), ..Default::default() });
        let [a, b, c] = ["a", "b", "c"].map(|tool| ToolName::mcp("s", tool));
        let either = denying("a").within([denying("b"), denying("c")]);
        let both = denying("a").within([denying("b")]).within([denying("c")]);
        assert_eq!([&a, &b, &c].map(|tool| plain(&either, tool)), [false, true, true]);
        assert_eq!([&a, &b, &c].map(|tool| plain(&both, tool)), [false; 3]);
        assert!(both.admits_server("s") && !both.admits_verb("b") && either.admits_verb("b"));
        assert!(!either.admits_nothing());
        let none = denying("a").within([]);
        assert!(none.admits_nothing() && !plain(&none, &b) && !none.admits_server("s"));
        let prints = [&either, &both, &none, &denying("a")].map(Policy::fingerprint);
        assert!((1..4).all(|at| !prints[..at].contains(&prints[at])));
        assert_eq!(none.fingerprint(), denying("a").within([]).fingerprint());
    }

    #[test]
    fn a_server_is_judged_before_its_tools_are_known() {
        let may = |rules: &str, server: &str| {
            let policy = policy(serde_json::from_str(rules).unwrap());
            policy.may_admit_of(server, crate::Naming::Gateway)
        };
        for denying in ["vault__*", "vault/*", "vault.*", "*", "{vault,safe}/*"] {
            let rules = format!(r#"{{"deny_tools": ["{denying}"]}}"#);
            assert!(!may(&rules, "vault"), "{denying}");
            assert_eq!(may(&rules, "git"), denying != "*", "{denying}");
        }
        for allowed in ["git/*", "git__log", "git.{log,status}", "[g]it/log", "git/?og"] {
            let rules = format!(r#"{{"allow_tools": ["{allowed}"]}}"#);
            assert!(may(&rules, "git") && !may(&rules, "vault"), "{allowed}");
        }
        // These say nothing of a server.
        for allowed in ["log", "get_*", "*/log"] {
            assert!(may(&format!(r#"{{"allow_tools": ["{allowed}"]}}"#), "vault"), "{allowed}");
        }
        assert!(may(r#"{"deny_tools": ["vault__open", "*delete*"]}"#, "vault"));
        assert!(!may(r#"{"deny_servers": ["vault"]}"#, "vault"));
        for kinds in [r#"{"read_only": true}"#, r#"{"deny_destructive": true}"#, "{}"] {
            assert!(may(kinds, "vault"), "{kinds}");
        }
        let deny = r#"{"tools": ["vault/*"], "then": "deny"}"#;
        let open = r#"{"tools": ["vault/open"], "then": "ask"}"#;
        assert!(!may(&format!(r#"{{"rules": [{deny}, {open}]}}"#), "vault"));
        assert!(may(&format!(r#"{{"rules": [{open}, {deny}]}}"#), "vault"));
        let only = policy(serde_json::from_str(r#"{"allow_tools": ["vault/open"]}"#).unwrap());
        let within = Policy::default().within([only]);
        assert!(within.may_admit_of("vault", crate::Naming::Gateway));
        assert!(!within.may_admit_of("git", crate::Naming::Gateway));
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
    fn rules_decide_on_what_the_lists_leave() {
        let rule = |json: serde_json::Value| serde_json::from_value::<Rule>(json).unwrap();
        let rules = vec![
            rule(serde_json::json!({"tools": ["a/keep", "a/never"], "then": "allow"})),
            rule(serde_json::json!({"tools": ["a/*"], "callers": ["ci"], "then": "deny"})),
            rule(serde_json::json!({"tools": ["a/*"], "then": "ask"})),
        ];
        let deny_tools = strings(&["never"]);
        let all = policy(PolicyRules { rules, deny_tools, ..Default::default() });
        let tool = |own: &str| {
            let spec = crate::ToolSpec::new(ToolName::mcp("a", own), crate::Schema::empty());
            Tool::new(spec, crate::GroupId::server("a"), crate::Naming::Model)
        };
        let of = |policy: &Policy| {
            ["keep", "never", "other"].map(|own| match policy.decision(&tool(own)) {
                Decision::Ask { number, .. } => format!("rule {number}"),
                other => format!("{other:?}"),
            })
        };
        assert_eq!(of(&all), ["Allow", "Deny", "rule 3"]);
        assert_eq!(of(&all.for_caller(Some("ci"))), ["Allow", "Deny", "Deny"]);
        assert!(!all.for_caller(Some("ci")).admits_tool(&tool("other")));
        // Views are kept by fingerprint: it differs where the decisions do, and only there.
        let print = |caller| all.for_caller(caller).fingerprint();
        assert_ne!(print(Some("ci")), print(None));
        assert_eq!(print(Some("ada")), print(Some("bob")));
        // Narrowed, each of those that narrow it has its say.
        let of_within = |any_of: &[&Policy], caller| {
            let narrowed = Policy::default().within(any_of.iter().map(|it| (*it).clone()));
            of(&narrowed.for_caller(caller))
        };
        assert_eq!(of_within(&[&all], Some("ci")), ["Allow", "Deny", "Deny"]);
        assert_eq!(of_within(&[&all], None), ["Allow", "Deny", "rule 3"]);
        assert_eq!(of_within(&[&all, &Policy::default()], None), ["Allow"; 3]);
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
