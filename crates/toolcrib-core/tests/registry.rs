//! What the registry accepts, what it publishes, and what a change does to what was there.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use support::{registry, server, tool};
use toolcrib_core::{
    Availability, Catalog, Change, Deferral, Diff, Group, GroupId, Members, Naming, Policy,
    PolicyRules, RegisterError, Registry, Schema, ServerTools, Tool, ToolName, ToolSpec,
};

fn host(name: &str) -> ToolSpec {
    tool(ToolName::host(name), "")
}

fn exposed(catalog: &Arc<Catalog>) -> Vec<String> {
    catalog.view_all().tools().map(|tool| tool.exposed().to_string()).collect()
}

fn added(names: impl IntoIterator<Item = ToolName>) -> Change {
    let diff = Diff { added: names.into_iter().collect(), ..Diff::default() };
    Change { diff, rejected: vec![] }
}

fn find(registry: &Registry, name: &str) -> Arc<Tool> {
    let view = registry.catalog().view_all();
    view.tools().find(|tool| **tool.exposed() == *name).expect("it is registered").clone()
}

#[test]
fn a_tool_is_registered_with_the_toolset_its_name_says() {
    let registry = Registry::default();
    for name in [ToolName::host("calc"), ToolName::builtin("exec"), ToolName::mcp("git", "log")] {
        assert_eq!(registry.register(tool(name.clone(), "")), Ok(added([name])));
    }
    let catalog = registry.catalog();
    let view = catalog.view_all();
    let origins: BTreeMap<String, Vec<String>> = view
        .by_origin()
        .into_iter()
        .map(|(id, tools)| (id.to_string(), tools.iter().map(|it| it.name().to_string()).collect()))
        .collect();
    let expected = [("builtin", "exec"), ("host", "calc"), ("mcp:git", "git/log")];
    let expected = expected.map(|(id, name)| (id.to_owned(), vec![name.to_owned()]));
    assert_eq!(origins, BTreeMap::from(expected));
}

#[test]
fn many_tools_are_registered_all_or_none() {
    let registry = Registry::default();
    registry.register(host("a")).unwrap();
    let before = registry.catalog().fingerprint();
    let refused = registry.register_all([host("b"), host("c"), host("a")]);
    assert_eq!(refused, Err(RegisterError::Repeated("host tool `a`".to_owned())));
    assert_eq!(registry.catalog().fingerprint(), before);
    let change = registry.register_all([host("c"), host("b")]).unwrap();
    assert_eq!(change, added([ToolName::host("b"), ToolName::host("c")]));
    assert_eq!(exposed(&registry.catalog()), ["a", "b", "c"]);
}

#[test]
fn a_raw_schema_is_registered_deferred_or_preloaded() {
    let registry = Registry::default();
    let raw = |name: &str| {
        json!({"type": "function", "function": {"name": name, "description": "Adds.",
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}})
        .to_string()
    };
    registry.register_schema(&raw("waits"), Deferral::Deferred).unwrap();
    registry.register_schema(&raw("ready"), Deferral::Eager).unwrap();
    let deferral = |name: &str| find(&registry, name).spec().deferral();
    assert_eq!([deferral("waits"), deferral("ready")], [Deferral::Deferred, Deferral::Eager]);
    let refused = registry.register_schema(r#"{"type": "function"}"#, Deferral::Auto);
    assert_eq!(refused.unwrap_err().to_string(), "not a tool: it has no name");
}

#[test]
fn removing_a_tool_says_so_and_leaves_the_rest() {
    let registry = registry([server("git", &[("log", ""), ("diff", "")])]);
    let change = registry.remove(&ToolName::mcp("git", "log"));
    assert_eq!(change.diff.removed, [ToolName::mcp("git", "log")]);
    assert_eq!(exposed(&registry.catalog()), ["mcp__git__diff"]);
    assert_eq!(registry.remove(&ToolName::mcp("git", "log")), Change::default());
}

#[test]
fn removing_the_last_tool_leaves_no_trace() {
    let registry = Registry::default();
    let empty = registry.catalog().fingerprint();
    registry.register(host("a")).unwrap();
    assert_ne!(registry.catalog().fingerprint(), empty);
    registry.remove(&ToolName::host("a"));
    assert_eq!(registry.catalog().fingerprint(), empty);
    registry.register(host("a")).unwrap();
    assert_eq!(exposed(&registry.catalog()), ["a"]);
}

#[test]
fn a_server_is_replaced_as_one_change_with_its_diff() {
    let registry = registry([server("git", &[("log", "Old"), ("diff", ""), ("blame", "")])]);
    let change =
        registry.replace_server(server("git", &[("log", "New"), ("diff", ""), ("show", "")]));
    let expected = Diff {
        added: vec![ToolName::mcp("git", "show")],
        removed: vec![ToolName::mcp("git", "blame")],
        changed: vec![ToolName::mcp("git", "log")],
    };
    assert_eq!(change, Change { diff: expected, rejected: vec![] });
    let gone = registry.remove_server("git").diff.removed;
    assert_eq!(gone, ["diff", "log", "show"].map(|name| ToolName::mcp("git", name)));
    assert!(registry.catalog().is_empty());
}

#[test]
fn a_reader_keeps_the_catalog_it_has_while_another_is_published() {
    let registry = registry([server("git", &[("log", "")])]);
    let before = registry.catalog();
    registry.remove_server("git");
    assert_eq!((exposed(&before).len(), registry.catalog().len()), (1, 0));
}

#[test]
fn a_duplicate_in_a_servers_list_is_left_out_with_the_reason_and_the_rest_are_served() {
    let registry = Registry::default();
    let change =
        registry.replace_server(server("s", &[("x", "First"), ("x", "Second"), ("y", "")]));
    assert_eq!(change.diff.added, ["x", "y"].map(|name| ToolName::mcp("s", name)));
    let [(name, reason)] = change.rejected.as_slice() else { panic!("{change:?}") };
    assert_eq!(*name, ToolName::mcp("s", "x"));
    assert_eq!(reason, "MCP tool `s/x` is registered already");
    assert_eq!(find(&registry, "mcp__s__x").spec().description(), "First");
}

#[test]
fn a_server_cannot_offer_tools_in_anothers_name() {
    let registry = Registry::default();
    let specs = [ToolName::mcp("s", "x"), ToolName::mcp("t", "x"), ToolName::host("exec")];
    let change = registry.replace_server(ServerTools::new("s", specs.map(|name| tool(name, ""))));
    assert_eq!(exposed(&registry.catalog()), ["mcp__s__x"]);
    let reason = "it is not a tool of server `s`".to_owned();
    let expected = [ToolName::mcp("t", "x"), ToolName::host("exec")];
    assert_eq!(change.rejected, expected.map(|name| (name, reason.clone())));
}

#[test]
fn two_bare_tools_of_one_name_are_refused_naming_both() {
    let registry = Registry::default();
    registry.register(tool(ToolName::builtin("exec"), "")).unwrap();
    let refused = registry.register(host("exec")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`exec` would name both host tool `exec` and built-in tool `exec`; give one a namespace or \
         another name"
    );
    registry.register(tool(ToolName::host_in("crm", "exec"), "")).unwrap();
    assert_eq!(exposed(&registry.catalog()), ["exec", "crm__exec"]);
}

#[test]
fn the_names_of_the_verbs_are_reserved() {
    let registry = Registry::default();
    for verb in
        ["tool_search", "tool_search_regex", "load_tools", "call_tool", "deferred_tool_call"]
    {
        let reserved = Err(RegisterError::Reserved(verb.to_owned()));
        assert_eq!(registry.register(host(verb)), reserved);
        assert_eq!(registry.declare(Group::new("g").with_tool_names([verb])), reserved);
        // A server's tool is exposed under another name, so it may be called that.
        registry.register(tool(ToolName::mcp("s", verb), "")).unwrap();
    }
}

#[test]
fn a_tool_without_a_name_is_refused_or_left_out() {
    let registry = Registry::default();
    assert_eq!(registry.register(host(" ")), Err(RegisterError::Nameless));
    let change = registry.replace_server(server("s", &[("", ""), ("x", "")]));
    assert_eq!(change.rejected, [(ToolName::mcp("s", ""), "a tool needs a name".to_owned())]);
    assert_eq!(exposed(&registry.catalog()), ["mcp__s__x"]);
}

#[test]
fn an_mcp_tool_can_not_overwrite_a_built_in() {
    let registry = Registry::default();
    registry.register(tool(ToolName::builtin("exec"), "Ours")).unwrap();
    registry.replace_server(server("evil", &[("exec", "Theirs")]));
    assert_eq!(exposed(&registry.catalog()), ["exec", "mcp__evil__exec"]);
    assert_eq!(find(&registry, "exec").spec().description(), "Ours");
    // Not even behind the gateway, where a namespace looks like a server.
    let registry = Registry::new(Naming::Gateway);
    registry.register(tool(ToolName::host_in("crm", "find"), "Ours")).unwrap();
    let change = registry.replace_server(server("crm", &[("find", "Theirs"), ("add", "")]));
    assert_eq!(change.rejected.len(), 1);
    assert_eq!(find(&registry, "crm__find").spec().description(), "Ours");
}

#[test]
fn two_servers_may_have_a_tool_of_one_name() {
    let registry = registry([server("a", &[("search", "")]), server("b", &[("search", "")])]);
    assert_eq!(exposed(&registry.catalog()), ["mcp__a__search", "mcp__b__search"]);
}

#[test]
fn a_filtered_view_counts_what_it_removed() {
    let registry =
        registry([server("git", &[("log", ""), ("push", "")]), server("db", &[("q", "")])]);
    registry.register(host("calc")).unwrap();
    let catalog = registry.catalog();
    let rules = PolicyRules { deny_tools: vec!["push".into()], ..PolicyRules::default() };
    let filters = [
        (Policy::default(), vec!["calc", "mcp__db__q", "mcp__git__log", "mcp__git__push"]),
        (Policy::without_mcp(), vec!["calc"]),
        (Policy::only_server("git").unwrap(), vec!["mcp__git__log", "mcp__git__push"]),
        (Policy::new(rules).unwrap(), vec!["calc", "mcp__db__q", "mcp__git__log"]),
    ];
    for (policy, expected) in filters {
        let view = catalog.view(&policy);
        let names: Vec<&str> = view.tools().map(|tool| &**tool.exposed()).collect();
        assert_eq!(names, expected);
        assert_eq!((view.len(), view.hidden()), (expected.len(), 4 - expected.len()));
    }
}

#[test]
fn removing_mcp_says_how_many_tools_went_and_reaches_into_groups() {
    let registry = registry([server("git", &[("log", ""), ("push", "")]), server("idle", &[])]);
    registry.register(host("calc")).unwrap();
    let mixed =
        [tool(ToolName::mcp("db", "query"), ""), tool(ToolName::host_in("work", "plan"), "")];
    registry.declare(Group::new("work").with_tools(mixed)).unwrap();
    registry.declare(Group::new("mcp:later")).unwrap();
    let names = vec![ToolName::mcp("git", "blame"), ToolName::host("notes")];
    registry.declare(Group::new("more").with_members(Members::Named(names))).unwrap();
    assert_eq!(registry.remove_mcp(), 4);
    assert_eq!(exposed(&registry.catalog()), ["calc", "work__plan"]);
    assert_eq!(registry.catalog().len(), 3);
    assert_eq!(registry.remove_mcp(), 0);
    registry.declare(Group::new("mcp:later")).expect("the unopened server group went too");
}

#[test]
fn schemas_are_listed_with_their_source_and_server() {
    let registry = Registry::default();
    let spec = |name| ToolSpec::new(name, Schema::empty()).with_description("Does.");
    registry.register(spec(ToolName::mcp("git", "log"))).unwrap();
    registry.register(spec(ToolName::host("calc"))).unwrap();
    registry.register(spec(ToolName::builtin("exec"))).unwrap();
    let row = |name: &str, source: &str| {
        json!({"name": name, "description": "Does.",
            "parameters": {"type": "object", "properties": {}}, "source": source})
    };
    let mut git = row("mcp__git__log", "mcp");
    git["mcpServer"] = Value::from("git");
    let rows = registry.catalog().view_all().schemas();
    assert_eq!(rows, [row("calc", "host"), row("exec", "builtin"), git]);
}

#[test]
fn the_fingerprint_is_the_same_whatever_the_order_of_registration() {
    let steps: [fn(&Registry); 4] = [
        |it| drop(it.replace_server(server("a", &[("x", ""), ("y", "")]))),
        |it| drop(it.replace_server(server("b", &[("x", "")]))),
        |it| drop(it.register(host("calc"))),
        |it| drop(it.declare(Group::new("g").with_tool_names(["p", "q"]))),
    ];
    let (forth, back) = (Registry::default(), Registry::default());
    steps.iter().for_each(|step| step(&forth));
    steps.iter().rev().for_each(|step| step(&back));
    assert_eq!(forth.catalog().fingerprint(), back.catalog().fingerprint());
    assert_eq!(exposed(&forth.catalog()), exposed(&back.catalog()));
    back.replace_server(server("a", &[("y", ""), ("x", "")]));
    assert_eq!(forth.catalog().fingerprint(), back.catalog().fingerprint());
    back.replace_server(server("a", &[("y", ""), ("x", "!")]));
    assert_ne!(forth.catalog().fingerprint(), back.catalog().fingerprint());
}

#[test]
fn the_fingerprint_of_a_view_says_nothing_of_what_is_hidden() {
    let deny_tools = vec!["*__x".to_owned(), "mcp__b__*".to_owned()];
    let policy = Policy::new(PolicyRules { deny_tools, ..PolicyRules::default() }).unwrap();
    let print = |servers: Vec<ServerTools>| registry(servers).catalog().view(&policy).fingerprint();
    let plain = print(vec![server("a", &[("y", "")])]);
    let hidden = [("x", ""), ("y", "")];
    assert_eq!(print(vec![server("a", &hidden)]), plain);
    assert_eq!(print(vec![server("a", &[("x", "!"), ("y", "")])]), plain);
    assert_eq!(print(vec![server("a", &hidden), server("b", &[("z", "")])]), plain);
    assert_ne!(print(vec![server("a", &[("x", ""), ("y", "!")])]), plain);
    assert_ne!(print(vec![server("a", &hidden), server("c", &[("z", "")])]), plain);
}

#[test]
fn a_swap_shares_what_did_not_change() {
    let registry = registry([server("a", &[("x", ""), ("y", "")]), server("b", &[("z", "")])]);
    let names = ["mcp__a__x", "mcp__a__y", "mcp__b__z"];
    let before = names.map(|name| find(&registry, name));
    registry.replace_server(server("a", &[("x", ""), ("y", "Changed")]));
    registry.register(tool(ToolName::mcp("b", "w"), "")).unwrap();
    let same = names.map(|name| find(&registry, name));
    let same: Vec<bool> = same.iter().zip(&before).map(|(a, b)| Arc::ptr_eq(a, b)).collect();
    assert_eq!(same, [true, false, true]);
}

#[test]
fn availability_is_kept_beside_the_tools() {
    let registry = registry([server("git", &[("log", "")])]);
    let before = registry.catalog().fingerprint();
    let git = GroupId::server("git");
    assert_eq!(registry.catalog().availability(&git), Availability::Ready);
    let down = Availability::Down("exit status 1".to_owned());
    registry.set_availability(git.clone(), down.clone());
    registry.set_availability("mcp:slow", Availability::Starting);
    assert_eq!(registry.catalog().availability(&git), down);
    assert_eq!(registry.catalog().availability(&"mcp:slow".into()), Availability::Starting);
    registry.set_availability(git.clone(), Availability::Ready);
    assert_eq!(registry.catalog().availability(&git), Availability::Ready);
    assert_eq!(registry.catalog().fingerprint(), before);
}

#[test]
fn a_group_is_declared_once() {
    let registry = Registry::default();
    registry.declare(Group::new("g")).unwrap();
    assert_eq!(registry.declare(Group::new("g")), Err(RegisterError::GroupExists("g".into())));
    registry.remove_group(&"g".into());
    registry.declare(Group::new("g")).unwrap();
}

#[test]
fn a_group_may_have_known_named_or_unknown_members_of_any_source() {
    let registry = registry([server("git", &[("log", "")])]);
    let known = [host("plan"), tool(ToolName::mcp("db", "query"), "")];
    registry.declare(Group::new("known").with_tools(known)).unwrap();
    let named = vec![ToolName::mcp("git", "log"), ToolName::host("notes")];
    registry.declare(Group::new("named").with_members(Members::Named(named))).unwrap();
    registry.declare(Group::new("unknown")).unwrap();
    // The tool that is named and registered is one tool.
    assert_eq!(registry.catalog().len(), 4);
    assert_eq!(exposed(&registry.catalog()), ["mcp__db__query", "plan", "mcp__git__log"]);
}

#[test]
fn a_name_claimed_by_two_groups_is_refused_unless_namespaced() {
    let registry = Registry::default();
    registry.declare(Group::new("github").with_tool_names(["create_issue"])).unwrap();
    let refused = registry.declare(Group::new("linear").with_tool_names(["create_issue"]));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "`create_issue` would name both host tool `create_issue` of group `linear` and host tool \
         `create_issue` of group `github`; give one a namespace or another name"
    );
    let linear = Group::new("linear").with_namespace("linear").with_tool_names(["create_issue"]);
    registry.declare(linear).unwrap();
    assert_eq!(registry.catalog().len(), 2);
    // What one group waits for, another can't bring under its own identity.
    let builtin = registry.register(tool(ToolName::builtin("create_issue"), ""));
    assert!(matches!(builtin, Err(RegisterError::Duplicate { .. })), "{builtin:?}");
    registry.register(host("create_issue")).unwrap();
    assert_eq!(registry.catalog().len(), 2);
}

#[test]
fn a_name_is_free_again_once_its_holder_is_gone() {
    let registry = Registry::default();
    registry.declare(Group::new("g").with_tools([host("x")])).unwrap();
    assert!(registry.register(tool(ToolName::builtin("x"), "")).is_err());
    registry.remove_group(&"g".into());
    registry.register(tool(ToolName::builtin("x"), "")).unwrap();
    registry.remove(&ToolName::builtin("x"));
    registry.declare(Group::new("h").with_tool_names(["x"])).unwrap();
}

#[test]
fn a_panic_in_the_callers_iterator_changes_nothing_and_locks_nobody_out() {
    let registry = Registry::default();
    registry.register(host("a")).unwrap();
    let panicking =
        (0..3).map(|n| if n == 2 { panic!("half way") } else { host(&format!("t{n}")) });
    let outcome =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| registry.register_all(panicking)));
    assert!(outcome.is_err());
    registry.register(host("b")).unwrap();
    assert_eq!(exposed(&registry.catalog()), ["a", "b"]);
    // One that asks the registry itself does not wait for ever.
    let busy = [0].iter().map(|_| {
        registry.register(host("inner")).unwrap();
        host("outer")
    });
    registry.register_all(busy).unwrap();
    assert_eq!(exposed(&registry.catalog()), ["a", "b", "inner", "outer"]);
}

#[test]
fn a_tool_that_moves_between_groups_has_changed_rather_than_come_and_gone() {
    let registry = Registry::default();
    registry.declare(Group::new("g").with_tools([host("x")])).unwrap();
    let before = registry.catalog().view_all();
    registry.remove_group(&"g".into());
    registry.register(host("x")).unwrap();
    let diff = registry.catalog().view_all().diff(&before);
    assert_eq!(diff, Diff { changed: vec![ToolName::host("x")], ..Diff::default() });
}

#[test]
fn a_view_has_a_tool_under_its_exact_names_if_the_policy_admits_it() {
    let registry =
        registry([server("git", &[("log", ""), ("push", "")]), server("svn", &[("log", "")])]);
    registry.set_availability("mcp:cvs", Availability::Starting);
    let policy = Policy::new(PolicyRules { deny_tools: vec!["push".into()], ..Default::default() });
    let view = registry.catalog().view(&policy.unwrap());
    let (git, log) = (GroupId::server("git"), ToolName::mcp("git", "log"));
    assert_eq!(view.tool("mcp__git__log").map(|tool| tool.name()), Some(&log));
    assert_eq!(view.tool_in(&git, "log").map(|tool| tool.name()), Some(&log));
    let names: Vec<&ToolName> = view.tools_in(&git).map(|tool| tool.name()).collect();
    assert_eq!(names, [&log]);
    for other in ["log", "git__log", "mcp__git__push", "", " mcp__git__log"] {
        assert!(view.tool(other).is_none(), "{other}");
    }
    for other in ["push", "mcp__git__log", "Log"] {
        assert!(view.tool_in(&git, other).is_none(), "{other}");
    }
    assert!(view.tool_in(&GroupId::server("hg"), "log").is_none());
    let catalog = registry.catalog();
    let groups: Vec<&str> = catalog.groups().map(|group| group.id().as_str()).collect();
    assert_eq!(groups, ["mcp:git", "mcp:svn"]);
    let unready: Vec<(&GroupId, &Availability)> = catalog.unready().collect();
    assert_eq!(unready, [(&GroupId::server("cvs"), &Availability::Starting)]);
}
