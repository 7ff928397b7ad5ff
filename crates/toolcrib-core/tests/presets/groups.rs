//! Preset `groups`, after the documentation of cubepi's deferred tool groups.

use std::collections::BTreeMap;

use serde_json::json;
use toolcrib_core::{
    Group, GroupId, Loaded, Preset, Registry, Saved, Settings, Strategy, StrategyChoice, ToolName,
    ToolSpec,
};

use crate::support::{Chat, golden, golden_json, tool};

fn spec(name: &str, about: &str, schema: serde_json::Value) -> ToolSpec {
    ToolSpec::new(ToolName::host(name), schema).with_description(about)
}

fn github_tools() -> Vec<ToolSpec> {
    let text = || json!({"type": "string"});
    vec![
        spec(
            "create_issue",
            "Open a GitHub issue.",
            json!({"type": "object", "properties": {"repo": text(), "title": text(), "body": text()},
                "required": ["repo", "title"]}),
        ),
        spec(
            "search_repos",
            "Search public repos.",
            json!({"type": "object", "properties": {"query": text()}, "required": ["query"]}),
        ),
        spec("create_pr", "Open a pull request.", json!({"type": "object"})),
        spec("list_comments", "List comments.", json!({"type": "object"})),
    ]
}

fn linear_tools() -> Vec<ToolSpec> {
    ["update_issue", "list_projects", "create_ticket"]
        .map(|name| spec(name, "Project management.", json!({"type": "object"})))
        .to_vec()
}

/// The documentation's two groups, each with a loader, and two tools that are always there.
fn two_groups(settings: Settings) -> Chat {
    let registry = Registry::default();
    registry.register(tool(ToolName::host("search"), "Search the web.")).expect("the name is free");
    registry.register(tool(ToolName::host("calculator"), "Calculate.")).expect("the name is free");
    let github = Group::new("mcp:github")
        .with_display_name("GitHub")
        .with_description("Issues, PRs, repos, code search")
        .with_tool_names(["create_issue", "search_repos", "create_pr", "list_comments"]);
    let linear = Group::new("mcp:linear")
        .with_display_name("Linear")
        .with_description("Project management and issue tracking")
        .with_tool_names(["update_issue", "list_projects", "create_ticket"]);
    registry.declare(linear).expect("the id is free");
    registry.declare(github).expect("the id is free");
    let mut chat = Chat::new(settings, registry);
    chat.loaders = BTreeMap::from([
        ("mcp:github".into(), Ok(github_tools())),
        ("mcp:linear".into(), Ok(linear_tools())),
    ]);
    chat
}

fn groups() -> Chat {
    two_groups(Settings::preset(Preset::Groups))
}

fn groups_injected() -> Chat {
    let mut settings = Settings::preset(Preset::Groups);
    settings.strategy = StrategyChoice::Inject;
    two_groups(settings)
}

#[test]
fn catalog_has_ids_names_descriptions_counts_and_members() {
    let mut chat = groups();
    golden("groups_section.txt", &chat.section());
    assert_eq!(chat.tools(), ["load_tools", "deferred_tool_call", "calculator", "search"]);
    let verbs: Vec<String> =
        chat.prepare().tools[..2].iter().map(|verb| verb.neutral().get().to_owned()).collect();
    golden_json("groups_verbs.json", &format!("[{}]", verbs.join(",")));
    golden("groups_section_inject.txt", &groups_injected().section());
    let mut settings = Settings::preset(Preset::Groups);
    settings.header = Some("# Available integrations\n\nLoad with load_tools().".to_owned());
    let section = two_groups(settings).section();
    assert!(
        section
            .starts_with("# Available integrations\n\nLoad with load_tools().\n\n- `mcp:github`")
    );
}

#[test]
fn loads_whole_and_in_part_with_schemas_in_the_result() {
    let mut chat = groups();
    let part = json!({"group_id": "mcp:github", "tool_names": ["create_issue", "search_repos"]});
    let answer = chat.answer("load_tools", part.clone());
    golden_json("groups_load_part.json", &answer.content);
    let whole = chat.answer("load_tools", json!({"group_id": "mcp:github"}));
    golden_json("groups_load_whole.json", &whole.content);
    assert_eq!(chat.loaded(), ["create_issue", "search_repos", "create_pr", "list_comments"]);
    // Asking again for a part serves the same bytes, `remaining` aside: nothing is left by now.
    let again = chat.answer("load_tools", part);
    assert_eq!(again.content, answer.content.replace("\"remaining\":2", "\"remaining\":0"),);
    assert_eq!(chat.answer("load_tools", json!({"group_id": "mcp:github"})).content, whole.content);
    assert_eq!(chat.asked, ["mcp:github".into()], "the loader ran once");
}

#[test]
fn under_inject_leaves_schemas_to_the_tools_array() {
    let mut chat = groups_injected();
    assert_eq!(chat.tools(), ["load_tools", "calculator", "search"]);
    let part = json!({"group_id": "mcp:github", "tool_names": ["search_repos"]});
    golden_json("groups_load_inject.json", &chat.answer("load_tools", part).content);
    assert_eq!(chat.tools(), ["load_tools", "calculator", "search", "search_repos"]);
    assert_eq!(chat.runs("search_repos", json!({"query": "x"})).0, "search_repos");
}

#[test]
fn unwraps_the_dispatcher_before_anything_else_sees_the_call() {
    let mut chat = groups();
    let before = chat.prepare().fingerprint();
    chat.json("load_tools", json!({"group_id": "mcp:github"}));
    let arguments = json!({"repo": "a/b", "title": "t"});
    let call = json!({"tool_name": "create_issue", "arguments": arguments});
    let run = chat.run("deferred_tool_call", call);
    assert_eq!((run.tool.name(), &run.arguments), (&ToolName::host("create_issue"), &arguments));
    assert_eq!(chat.prepare().fingerprint(), before, "the prefix never changes");
}

#[test]
fn loads_implicitly_and_answers_a_misfit_with_the_schema() {
    let mut chat = groups();
    let call = json!({"tool_name": "search_repos", "arguments": {"query": "rust"}});
    let run = chat.run("deferred_tool_call", call);
    assert_eq!(run.tool.name(), &ToolName::host("search_repos"));
    assert_eq!(run.effects.loaded, [ToolName::host("search_repos")]);
    let wrong = json!({"tool_name": "create_issue", "arguments": {"title": 7}});
    let answer = chat.answer("deferred_tool_call", wrong);
    assert!(answer.is_error);
    golden_json("groups_misfit.json", &answer.content);
    assert_eq!(chat.asked, ["mcp:github".into()]);
}

#[test]
fn reports_a_failing_loader_and_tries_again_next_time() {
    let mut chat = groups();
    chat.loaders.insert("mcp:linear".into(), Err("connection refused".to_owned()));
    let answer = chat.answer("load_tools", json!({"group_id": "mcp:linear"}));
    assert!(answer.is_error);
    golden_json("groups_loader_failed.json", &answer.content);
    let blind =
        chat.mistake("deferred_tool_call", json!({"tool_name": "list_projects", "arguments": {}}));
    assert_eq!(
        blind["error"],
        "`list_projects` could not be loaded. Loader failed: connection refused"
    );
    assert_eq!(chat.session.loaded(&"mcp:linear".into()), Loaded::Nothing);
    chat.loaders.insert("mcp:linear".into(), Ok(linear_tools()));
    let loaded = chat.json("load_tools", json!({"group_id": "mcp:linear"}));
    assert_eq!(loaded["expanded"], true);
}

#[test]
fn names_what_exists_when_a_group_does_not() {
    let mut chat = groups();
    let answer = chat.answer("load_tools", json!({"group_id": "mcp:gitlab"}));
    assert!(answer.is_error);
    golden_json("groups_unknown.json", &answer.content);
}

#[test]
fn state_is_null_for_all_a_list_for_some_and_absent_for_none() {
    let mut chat = groups();
    chat.json("load_tools", json!({"group_id": "mcp:github"}));
    chat.json("load_tools", json!({"group_id": "mcp:linear", "tool_names": ["create_ticket"]}));
    let saved = serde_json::to_value(chat.session.snapshot()).unwrap();
    let expected = json!({"mcp:github": null, "mcp:linear": ["create_ticket"]});
    assert_eq!(saved["expanded_groups"], expected);
    assert_eq!(chat.session.loaded(&"mcp:slack".into()), Loaded::Nothing);
}

#[test]
fn resumes_from_the_documented_state_under_the_same_strategy() {
    let saved = r#"{"expanded_groups": {"mcp:github": null, "mcp:linear": ["create_ticket"]}}"#;
    let saved = Saved::from_json(saved).unwrap();
    let mut chat = groups();
    let view = chat.view();
    let needs = saved.needs(&view);
    assert_eq!(needs, [GroupId::from("mcp:github"), "mcp:linear".into()]);
    let fetched = needs.iter().map(|id| (id.clone(), chat.loaders[id].clone())).collect();
    let (session, report) =
        chat.engine.resume(&view, saved.clone(), Strategy::Dispatch, fetched).unwrap();
    chat.session = session;
    let mut restored: Vec<&str> = report.restored.iter().map(|name| &**name).collect();
    restored.sort_unstable();
    assert_eq!(
        restored,
        ["create_issue", "create_pr", "create_ticket", "list_comments", "search_repos"]
    );
    assert_eq!(report.remaining, [GroupId::from("mcp:github"), "mcp:linear".into()]);
    // Calls resolve at once; the loaders are not asked again.
    let call = json!({"tool_name": "search_repos", "arguments": {"query": "x"}});
    assert_eq!(chat.runs("deferred_tool_call", call).0, "search_repos");
    assert_eq!(chat.asked, []);
    let mismatch = chat.engine.resume(&view, saved, Strategy::Inject, BTreeMap::new());
    assert_eq!(
        mismatch.unwrap_err().to_string(),
        "the session was to be resumed with strategy `inject`, but the engine uses `dispatch`"
    );
}

#[test]
fn resumed_under_inject_leave_the_deferred_set() {
    let resume = |saved: &str| {
        let saved = Saved::from_json(saved).unwrap();
        let mut chat = groups_injected();
        let view = chat.view();
        let fetched =
            saved.needs(&view).iter().map(|id| (id.clone(), chat.loaders[id].clone())).collect();
        let resumed = chat.engine.resume(&view, saved, Strategy::Inject, fetched).unwrap();
        chat.session = resumed.0;
        (chat, resumed.1.remaining)
    };
    let (mut chat, remaining) = resume(r#"{"mcp:github": null}"#);
    assert_eq!(remaining, [GroupId::from("mcp:linear")]);
    assert_eq!(
        chat.tools(),
        [
            "load_tools",
            "calculator",
            "search",
            "create_issue",
            "create_pr",
            "list_comments",
            "search_repos"
        ]
    );
    let section = chat.section();
    assert!(section.contains("`mcp:linear`") && !section.contains("mcp:github"), "{section}");
    // With every group loaded there is no catalog to speak of.
    let (mut chat, remaining) = resume(r#"{"mcp:github": null, "mcp:linear": null}"#);
    assert_eq!((remaining, chat.section().as_str()), (vec![], ""));
    assert_eq!(chat.runs("list_projects", json!({})).0, "list_projects");
}

#[test]
fn with_the_same_tool_name_stay_apart_in_namespaces() {
    // The documentation's own example has `create_issue` twice. Bare, that is refused.
    let registry = Registry::default();
    let github = Group::new("mcp:github").with_tool_names(["create_issue", "search_repos"]);
    registry.declare(github).unwrap();
    let linear = Group::new("mcp:linear").with_tool_names(["create_issue"]);
    let refused = registry.declare(linear).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`create_issue` would name both host tool `create_issue` of group `mcp:linear` and host \
         tool `create_issue` of group `mcp:github`; give one a namespace or another name"
    );
    let linear =
        Group::new("mcp:linear").with_namespace("linear").with_tool_names(["create_issue"]);
    registry.declare(linear).unwrap();
    let mut chat = Chat::new(Settings::preset(Preset::Groups), registry);
    let of_linear = ToolName::host_in("linear", "create_issue");
    chat.loaders.insert("mcp:linear".into(), Ok(vec![tool(of_linear.clone(), "An issue.")]));
    let call = json!({"tool_name": "linear__create_issue", "arguments": {}});
    assert_eq!(chat.run("deferred_tool_call", call).tool.name(), &of_linear);
}
