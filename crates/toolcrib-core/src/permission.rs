//! Which tools may run, which a person is asked about, and which may not: rules in order, of which
//! the first that fits decides.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::globs::Globs;
use crate::{Annotations, PatternError, Tool, ToolName};

/// Whether a tool may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Permission {
    /// It may.
    Allow,
    /// A person is asked first. Where nobody can be, it may not.
    Ask,
    /// It may not. An agent tells the model so; a [`Policy`](crate::Policy) hides the tool.
    Deny,
}

/// A rule about tools, as it stands in a configuration. What it leaves out fits anything.
///
/// ```
/// use toolcrib_core::{Permission, Rule};
///
/// let rule: Rule = serde_json::from_str(r#"{"tools": ["git/*"], "read_only": true, "then": "allow"}"#)?;
/// assert_eq!(rule.then, Permission::Allow);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The tools, by patterns over the exposed name, `server/tool`, `server.tool` or the tool's
    /// own name; all of them if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Only tools of these MCP servers, by patterns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers: Option<Vec<String>>,
    /// Only for these callers, by patterns over the names of their tokens. One without a name is
    /// meant by `*` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callers: Option<Vec<String>>,
    /// Only those that say they change nothing; or, if false, only the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Only those that may destroy something; or, if false, only those that say they don't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Whether they may run.
    pub then: Permission,
}

impl Rule {
    /// A rule about every tool.
    pub fn new(then: Permission) -> Self {
        Self { tools: None, servers: None, callers: None, read_only: None, destructive: None, then }
    }

    /// Lets run what says it changes nothing.
    pub fn reading() -> Self {
        Self { read_only: Some(true), ..Self::new(Permission::Allow) }
    }
}

/// Rules in order, of which the first that fits decides.
///
/// What a tool says about itself is as trustworthy as the server it comes from.
#[derive(Clone, Debug)]
pub struct Permissions {
    rules: Arc<[Numbered]>,
    otherwise: Permission,
}

/// A rule with its place among all of them, counted from 1, and its patterns compiled.
#[derive(Clone, Debug)]
struct Numbered {
    number: usize,
    rule: Arc<Rule>,
    tools: Option<Globs>,
    servers: Option<Globs>,
    callers: Option<Globs>,
}

impl Permissions {
    /// Rules, and what holds where none fits.
    pub fn new(
        rules: impl IntoIterator<Item = Rule>,
        otherwise: Permission,
    ) -> Result<Self, PatternError> {
        let globs = |list: &Option<Vec<String>>| list.as_deref().map(Globs::new).transpose();
        let compile = |(at, rule): (usize, Rule)| {
            Ok(Numbered {
                number: at + 1,
                tools: globs(&rule.tools)?,
                servers: globs(&rule.servers)?,
                callers: globs(&rule.callers)?,
                rule: Arc::new(rule),
            })
        };
        let rules: Result<_, PatternError> = rules.into_iter().enumerate().map(compile).collect();
        Ok(Self { rules: rules?, otherwise })
    }

    /// Everything may run.
    pub fn allow_all() -> Self {
        Self { rules: Arc::new([]), otherwise: Permission::Allow }
    }

    /// A person is asked about everything but what says it changes nothing.
    pub fn ask() -> Self {
        let rule = Arc::new(Rule::reading());
        let reading = Numbered { number: 1, rule, tools: None, servers: None, callers: None };
        Self { rules: Arc::new([reading]), otherwise: Permission::Ask }
    }

    /// Whether a tool may run. Rules for certain callers mean nobody here: see
    /// [`for_caller`](Self::for_caller).
    pub fn of(&self, tool: &Tool) -> Permission {
        let (name, annotations) = (tool.name(), tool.spec().annotations());
        let rule = self.first(name, tool.exposed(), annotations);
        rule.map_or(self.otherwise, |fitting| fitting.rule.then)
    }

    /// The same rules as they concern one caller, by name if it has one.
    pub fn for_caller(&self, caller: Option<&str>) -> Self {
        let means = |rule: &&Numbered| rule.means(caller);
        let mine = |rule: &Numbered| Numbered { callers: None, ..rule.clone() };
        let rules = self.rules.iter().filter(means).map(mine).collect();
        Self { rules, otherwise: self.otherwise }
    }

    /// Whether any rule has a person asked.
    pub(crate) fn asks(&self) -> bool {
        self.rules.iter().any(|rule| rule.rule.then == Permission::Ask)
    }

    /// The number and the rule that asks a person about a tool, if one does.
    pub(crate) fn asking(&self, tool: &Tool) -> Option<(usize, &Arc<Rule>)> {
        let fitting = self.first(tool.name(), tool.exposed(), tool.spec().annotations())?;
        (fitting.rule.then == Permission::Ask).then_some((fitting.number, &fitting.rule))
    }

    /// Whether a rule denies the tool.
    pub(crate) fn denies(&self, name: &ToolName, exposed: &str, says: &Annotations) -> bool {
        self.first(name, exposed, says).is_some_and(|it| it.rule.then == Permission::Deny)
    }

    /// Whether rules deny every tool of an MCP server, whatever it offers.
    pub(crate) fn deny_server(&self, server: &str) -> bool {
        self.deny_all(Some(server))
    }

    /// Whether rules deny every tool whatever.
    pub(crate) fn deny_everything(&self) -> bool {
        self.deny_all(None)
    }

    /// Whether the rules deny whatever comes, of one server if it is given: up to a rule that fits
    /// all of it, none lets anything through.
    fn deny_all(&self, of: Option<&str>) -> bool {
        let is_there = |servers: &Globs| of.is_none_or(|server| servers.is_match(server));
        let mut met = self
            .rules
            .iter()
            .filter(|rule| rule.means(None) && rule.servers.as_ref().is_none_or(is_there))
            .take_while(|rule| rule.rule.then == Permission::Deny);
        met.any(|rule| {
            let Rule { tools, servers, read_only, destructive, .. } = &*rule.rule;
            let of_any_server = servers.is_none() || of.is_some();
            tools.is_none() && read_only.is_none() && destructive.is_none() && of_any_server
        })
    }

    /// Which rules there are, in a form that differs where they do.
    pub(crate) fn text(&self) -> Vec<u8> {
        let rules: Vec<&Rule> = self.rules.iter().map(|it| &*it.rule).collect();
        serde_json::to_vec(&rules).unwrap_or_default()
    }

    fn first(&self, name: &ToolName, exposed: &str, says: &Annotations) -> Option<&Numbered> {
        self.rules.iter().find(|rule| rule.fits(name, exposed, says))
    }
}

impl Numbered {
    fn means(&self, caller: Option<&str>) -> bool {
        self.callers.as_ref().is_none_or(|globs| globs.is_match(caller.unwrap_or_default()))
    }

    fn fits(&self, name: &ToolName, exposed: &str, says: &Annotations) -> bool {
        let Rule { read_only, destructive, .. } = &*self.rule;
        let from = |servers: &Globs| name.server().is_some_and(|server| servers.is_match(server));
        read_only.is_none_or(|wanted| wanted == says.is_read_only())
            && destructive.is_none_or(|wanted| wanted == says.is_destructive())
            && self.means(None)
            && self.servers.as_ref().is_none_or(from)
            && self.tools.as_ref().is_none_or(|tools| tools.matches_tool(name, exposed))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{GroupId, Naming, Schema, ToolSpec};

    fn permissions(rules: &[Value]) -> Permissions {
        let rule = |json: &Value| serde_json::from_value::<Rule>(json.clone()).unwrap();
        Permissions::new(rules.iter().map(rule), Permission::Allow).unwrap()
    }

    fn tool(name: ToolName, says: Annotations) -> Tool {
        let group = GroupId::of(&name);
        let spec = ToolSpec::new(name, Schema::empty()).with_annotations(says);
        Tool::new(spec, group, Naming::Model)
    }

    fn plain(server: &str, own: &str) -> Tool {
        tool(ToolName::mcp(server, own), Annotations::default())
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let some = json!({"tools": ["a/keep"], "then": "allow"});
        let server = json!({"servers": ["a"], "then": "deny"});
        let rest = json!({"then": "ask"});
        let in_order = permissions(&[some.clone(), server.clone(), rest.clone()]);
        let verdicts = |rules: &Permissions| {
            [plain("a", "keep"), plain("a", "drop"), plain("b", "drop")].map(|tool| rules.of(&tool))
        };
        use Permission::{Allow, Ask, Deny};
        assert_eq!(verdicts(&in_order), [Allow, Deny, Ask]);
        assert_eq!(verdicts(&permissions(&[server, some, rest])), [Deny, Deny, Ask]);
    }

    #[test]
    fn a_rule_about_servers_means_no_other_source() {
        let rules = permissions(&[json!({"servers": ["*"], "then": "deny"})]);
        assert_eq!(rules.of(&plain("a", "x")), Permission::Deny);
        for name in [ToolName::host("x"), ToolName::host_in("a", "x"), ToolName::builtin("x")] {
            assert_eq!(rules.of(&tool(name, Annotations::default())), Permission::Allow);
        }
    }

    #[test]
    fn a_rule_about_callers_means_them_alone() {
        let rules = permissions(&[
            json!({"callers": ["ci", "bot-*"], "then": "deny"}),
            json!({"callers": ["*"], "tools": ["push"], "then": "ask"}),
        ]);
        let of = |caller, own| rules.for_caller(caller).of(&plain("git", own));
        assert_eq!(of(Some("ci"), "log"), Permission::Deny);
        assert_eq!(of(Some("bot-7"), "push"), Permission::Deny);
        assert_eq!(of(Some("ada"), "push"), Permission::Ask);
        assert_eq!(of(Some("ada"), "log"), Permission::Allow);
        // Without a name only what means everybody holds.
        assert_eq!((of(None, "push"), of(None, "log")), (Permission::Ask, Permission::Allow));
        assert_eq!(rules.of(&plain("git", "log")), Permission::Allow);
    }

    #[test]
    fn annotations_decide_where_asked() {
        let rules = permissions(&[
            json!({"read_only": true, "then": "allow"}),
            json!({"destructive": true, "then": "deny"}),
            json!({"then": "ask"}),
        ]);
        let says = |read_only, destructive| {
            let annotations = Annotations { read_only, destructive, ..Annotations::default() };
            rules.of(&tool(ToolName::host("x"), annotations))
        };
        assert_eq!(says(Some(true), None), Permission::Allow);
        assert_eq!(says(None, None), Permission::Deny);
        assert_eq!(says(None, Some(false)), Permission::Ask);
    }

    #[test]
    fn the_rule_that_asks_is_known_by_its_number() {
        let rules = permissions(&[
            json!({"callers": ["ada"], "then": "allow"}),
            json!({"tools": ["push"], "then": "ask"}),
        ]);
        let asking = |caller, own| {
            let rules = rules.for_caller(Some(caller));
            rules.asking(&plain("git", own)).map(|(number, rule)| (number, rule.tools.clone()))
        };
        assert_eq!(asking("bob", "push"), Some((2, Some(vec!["push".to_owned()]))));
        assert_eq!((asking("ada", "push"), asking("bob", "log")), (None, None));
    }

    #[test]
    fn a_server_is_denied_if_nothing_of_it_may_pass() {
        let whole = json!({"servers": ["ops*"], "then": "deny"});
        let denies = |rules: &[Value], server| permissions(rules).deny_server(server);
        assert!(denies(std::slice::from_ref(&whole), "ops2"));
        assert!(!denies(std::slice::from_ref(&whole), "docs"));
        let part = json!({"servers": ["ops"], "tools": ["x"], "then": "deny"});
        assert!(!denies(std::slice::from_ref(&part), "ops"));
        assert!(denies(&[part.clone(), whole.clone()], "ops"));
        let keep = json!({"tools": ["ops/status"], "then": "ask"});
        assert!(!denies(&[keep.clone(), whole.clone()], "ops"));
        let for_ci = json!({"callers": ["ci"], "then": "deny"});
        assert!(!denies(std::slice::from_ref(&for_ci), "ops"));
        assert!(permissions(&[for_ci]).for_caller(Some("ci")).deny_everything());
        assert!(!permissions(&[whole]).deny_everything());
        assert!(!permissions(&[keep, json!({"then": "deny"})]).deny_everything());
    }

    #[test]
    fn a_bad_pattern_is_named() {
        for key in ["tools", "servers", "callers"] {
            let rule = serde_json::from_value(json!({key: ["a{b"], "then": "ask"})).unwrap();
            let error = Permissions::new([rule], Permission::Allow).unwrap_err();
            assert!(error.to_string().contains("`a{b`"), "{error}");
        }
    }
}
