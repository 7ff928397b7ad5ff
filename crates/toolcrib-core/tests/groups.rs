//! Groups whose tools a loader brings: asked once, failing without harm, never trusted to agree
//! with what was announced.

mod support;

use std::sync::Arc;

use serde_json::{Value, json};
use support::{Chat, deferring, names, registry, server, tool};
use toolcrib_core::{
    Call, Group, GroupId, LoadReport, Loaded, Members, Need, Preset, Registry, Step, ToolName,
    ToolSpec,
};

fn host(name: &str) -> ToolSpec {
    tool(ToolName::host(name), "")
}

fn id() -> GroupId {
    "crm".into()
}

/// A conversation in which group `crm` names two tools, and what its loader brings.
fn named(brought: impl IntoIterator<Item = ToolSpec>) -> Chat {
    let group = Group::new("crm").with_description("Customers").with_tool_names(["find", "merge"]);
    declared(group, brought)
}

fn declared(group: Group, brought: impl IntoIterator<Item = ToolSpec>) -> Chat {
    let registry = registry([server("git", &[("log", "History")])]);
    let id = group.id().clone();
    registry.declare(group).expect("it is new");
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    chat.loaders.insert(id, Ok(brought.into_iter().collect()));
    chat
}

fn load(chat: &mut Chat) -> Value {
    chat.json("load_tools", json!({"group_id": "crm"}))
}

/// What the loader's tools come to, told to the driver.
fn supply(chat: &mut Chat) -> LoadReport {
    let (view, specs) = (chat.view(), chat.loaders[&id()].clone().expect("it works"));
    chat.engine.supply(&mut chat.session, &view, &id(), specs)
}

#[test]
fn a_group_known_by_name_is_asked_for_once_and_then_known() {
    let mut chat = named([host("find"), host("merge")]);
    let view = chat.view();
    let call = Call::new("load_tools", json!({"group_id": "crm"}));
    let step = chat.engine.resolve(&mut chat.session, &view, &call);
    let Step::Need(need) = step else { panic!("{step:?}") };
    assert_eq!(need, Need::Group(id()));
    assert_eq!(chat.session.loaded(&id()), Loaded::Nothing);
    assert_eq!(supply(&mut chat), LoadReport::default());
    let Step::Answer(answer) = chat.engine.resolve(&mut chat.session, &view, &call) else {
        panic!()
    };
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let row = |name: &str| json!({"name": name, "description": "", "parameters": schema});
    assert_eq!(
        support::parse(&answer.content),
        json!({"group_id": "crm", "expanded": true, "tool_names": ["find", "merge"],
            "remaining": 0, "schemas": [row("find"), row("merge")]})
    );
    assert_eq!(chat.session.loaded(&id()), Loaded::All);
    load(&mut chat);
    chat.run("find", json!({}));
    chat.run("call_tool", json!({"tool_name": "merge", "arguments": {}}));
    assert_eq!(chat.asked, [], "nobody is asked again");
}

#[test]
fn a_blind_call_of_a_named_tool_asks_the_loader_and_runs() {
    let mut chat = named([host("find"), host("merge")]);
    let run = chat.run("call_tool", json!({"tool_name": "find", "arguments": {"text": "x"}}));
    assert_eq!((run.tool.name(), &run.arguments), (&ToolName::host("find"), &json!({"text": "x"})));
    assert_eq!(run.effects.loaded, [ToolName::host("find")]);
    assert_eq!(chat.asked, [id()]);
    assert_eq!(chat.session.loaded(&id()), Loaded::Some(vec!["find".into()]));
    chat.run("merge", json!({}));
    assert_eq!(chat.asked, [id()]);
}

#[test]
fn a_search_that_finds_a_named_tool_asks_the_loader() {
    for query in ["find", "select:find", "/^find$/"] {
        let mut chat = named([host("find"), host("merge")]);
        let found = chat.json("tool_search", json!({"query": query}));
        assert_eq!(names(&found["tools"])[0], "find", "{query}");
        assert_eq!(chat.asked, [id()]);
    }
}

#[test]
fn a_failing_loader_is_reported_not_remembered_and_leaves_the_group_unloaded() {
    for (verb, arguments) in [
        ("load_tools", json!({"group_id": "crm"})),
        ("find", json!({})),
        ("call_tool", json!({"tool_name": "find", "arguments": {}})),
        ("tool_search", json!({"query": "select:find"})),
    ] {
        let mut chat = named([host("find"), host("merge")]);
        let good = chat.loaders.insert(id(), Err("connection\nrefused".to_owned())).unwrap();
        let answer = chat.answer(verb, arguments.clone());
        assert!(answer.content.contains("connection refused"), "{}", answer.content);
        assert_eq!((chat.session.loaded(&id()), chat.loaded().len()), (Loaded::Nothing, 0));
        chat.loaders.insert(id(), good);
        assert!(!matches!(chat.step(verb, arguments), Step::Answer(answer) if answer.is_error));
        assert_eq!(chat.loaded()[0], "find");
        assert_eq!(chat.asked, [id(), id()], "{verb}");
    }
}

#[test]
fn a_failure_concerns_one_call_of_one_group() {
    let mut chat = named([]);
    chat.loaders.insert(id(), Err("down".to_owned()));
    assert_eq!(
        chat.mistake("load_tools", json!({"group_id": "crm"})),
        json!({"group_id": "crm", "expanded": false, "error": "Loader failed: down",
            "remaining": 2})
    );
    chat.json("load_tools", json!({"group_id": "mcp:git"}));
}

#[test]
fn tools_the_loader_does_not_bring_are_reported_to_the_model_and_the_driver() {
    let mut chat = named([host("find")]);
    let answer = load(&mut chat);
    assert_eq!(answer["tool_names"], json!(["find"]));
    assert_eq!(answer["missing"], json!(["merge"]));
    assert_eq!(answer["remaining"], 0);
    assert_eq!(chat.session.loaded(&id()), Loaded::Some(vec!["find".into()]));
    assert_eq!(
        chat.mistake("merge", json!({})),
        json!({"error": "`merge` is listed in group `crm`, but the group no longer has it."})
    );
    assert_eq!(chat.asked, [id()]);
    let report = supply(&mut chat);
    let missing = vec![ToolName::host("merge")];
    assert_eq!(report, LoadReport { missing, ..LoadReport::default() });
}

#[test]
fn tools_the_loader_brings_beyond_what_was_named_can_be_used() {
    let mut chat = named([host("find"), host("merge"), host("split")]);
    assert_eq!(load(&mut chat)["tool_names"], json!(["find", "merge", "split"]));
    chat.run("split", json!({}));
    let unannounced = vec![ToolName::host("split")];
    assert_eq!(supply(&mut chat), LoadReport { unannounced, ..LoadReport::default() });
}

#[test]
fn a_loader_may_bring_the_named_tools_under_fuller_identities() {
    let brought = ["find", "merge"].map(|name| tool(ToolName::mcp("crm-server", name), ""));
    let mut chat = named(brought);
    let run = chat.run("call_tool", json!({"tool_name": "find", "arguments": {}}));
    assert_eq!(run.tool.name(), &ToolName::mcp("crm-server", "find"));
    let answer = load(&mut chat);
    assert_eq!(answer["tool_names"], json!(["mcp__crm-server__find", "mcp__crm-server__merge"]));
    assert_eq!(answer.get("missing"), None);
    assert_eq!(supply(&mut chat), LoadReport::default());
}

#[test]
fn tools_that_can_not_be_used_are_left_out_with_the_reason() {
    let duplicate = tool(ToolName::builtin("find"), "Another");
    let mut chat = named([host("find"), duplicate, host("call_tool"), host(" "), host("merge")]);
    chat.registry.register(tool(ToolName::builtin("calc"), "")).unwrap();
    chat.loaders.get_mut(&id()).unwrap().as_mut().unwrap().push(host("calc"));
    assert_eq!(load(&mut chat)["tool_names"], json!(["find", "merge"]));
    let rejected = supply(&mut chat).rejected;
    let reasons: Vec<(String, &str)> =
        rejected.iter().map(|(name, reason)| (name.to_string(), reason.as_str())).collect();
    assert_eq!(
        reasons,
        [
            ("find".to_owned(), "another tool is called `find`"),
            ("call_tool".to_owned(), "its name can't be used"),
            (" ".to_owned(), "its name can't be used"),
            ("calc".to_owned(), "another tool is called `calc`"),
        ]
    );
    assert_eq!(chat.run("calc", json!({})).tool.name(), &ToolName::builtin("calc"));
}

#[test]
fn an_unknown_group_is_listed_and_known_once_loaded() {
    let mut chat =
        declared(Group::new("crm").with_description("Customers"), [host("find"), host("merge")]);
    assert!(chat.section().contains("- `crm` — Customers (load it to see its tools)"));
    assert_eq!(load(&mut chat)["tool_names"], json!(["find", "merge"]));
    assert_eq!(chat.session.loaded(&id()), Loaded::All);
    let found = chat.json("tool_search", json!({"query": "merge"}));
    assert_eq!(names(&found["tools"]), ["merge"]);
    assert_eq!(chat.asked, [id()]);
    assert_eq!(supply(&mut chat), LoadReport::default());
}

#[test]
fn a_group_that_turns_out_to_be_empty_says_so() {
    let mut chat = declared(Group::new("crm"), []);
    for _ in 0..2 {
        let answer = chat.mistake("load_tools", json!({"group_id": "crm"}));
        assert_eq!((&answer["group_id"], &answer["expanded"]), (&json!("crm"), &json!(false)));
        assert_eq!(answer["tool_names"], json!([]));
    }
    assert_eq!(chat.asked, [id()]);
    assert_eq!(chat.session.loaded(&id()), Loaded::Nothing);
}

#[test]
fn a_name_registered_elsewhere_needs_no_loader() {
    let members = vec![ToolName::mcp("git", "log"), ToolName::host("find")];
    let mut chat =
        declared(Group::new("crm").with_members(Members::Named(members)), [host("find")]);
    chat.run("mcp__git__log", json!({}));
    assert_eq!(chat.asked, []);
    // It is not missing from what the loader brings either.
    let answer = load(&mut chat);
    assert_eq!(names(&answer["tool_names"]).len(), 2);
    assert_eq!(answer.get("missing"), None);
    assert_eq!(supply(&mut chat), LoadReport::default());
    assert_eq!(chat.session.loaded(&id()), Loaded::All);
    // A group all of whose tools are registered has no loader to ask.
    chat.registry.register(host("plan")).unwrap();
    chat.registry.declare(Group::new("work").with_tool_names(["plan"])).unwrap();
    assert_eq!(chat.json("load_tools", json!({"group_id": "work"}))["tool_names"], json!(["plan"]));
    assert_eq!(chat.asked, [id()]);
}

#[test]
fn a_group_that_mixes_sources_is_loaded_as_one() {
    let mixed = [host("find"), tool(ToolName::mcp("mail", "send"), "")];
    let registry = Registry::default();
    registry.declare(Group::new("crm").with_tools(mixed)).unwrap();
    let mut chat = Chat::new(deferring(Preset::Groups), registry);
    assert_eq!(load(&mut chat)["tool_names"], json!(["find", "mcp__mail__send"]));
    let runs = ["find", "mcp__mail__send"]
        .map(|name| chat.runs("deferred_tool_call", json!({"tool_name": name, "arguments": {}})).0);
    assert_eq!(runs, ["find", "mail/send"]);
    assert_eq!(chat.asked, []);
}

#[test]
fn groups_with_tools_of_one_name_call_the_right_one() {
    let registry = Registry::default();
    for id in ["github", "linear"] {
        let spec = tool(ToolName::host_in(id, "create_issue"), id);
        registry.declare(Group::new(id).with_tools([spec])).unwrap();
    }
    let mut chat = Chat::new(deferring(Preset::Groups), registry);
    for id in ["github", "linear", "github"] {
        let answer = chat.json("load_tools", json!({"group_id": id}));
        assert_eq!(answer["schemas"][0]["description"], id);
        let call = json!({"tool_name": format!("{id}__create_issue"), "arguments": {}});
        assert_eq!(chat.runs("deferred_tool_call", call).0, format!("{id}/create_issue"));
    }
    let ambiguous = chat.mistake("create_issue", json!({}));
    assert_eq!(ambiguous["did_you_mean"], json!(["github__create_issue", "linear__create_issue"]));
}

#[test]
fn two_conversations_learn_a_group_separately() {
    let mut chat = declared(Group::new("crm"), [host("find")]);
    load(&mut chat);
    let parent = std::mem::take(&mut chat.session);
    chat.prepare();
    let answer = chat.mistake("find", json!({}));
    assert!(answer["error"].as_str().unwrap().starts_with("Unknown tool `find`"), "{answer}");
    chat.loaders.insert(id(), Ok(vec![host("other")]));
    assert_eq!(load(&mut chat)["tool_names"], json!(["other"]));
    chat.session = parent;
    assert_eq!(load(&mut chat)["tool_names"], json!(["find"]));
}

#[test]
fn a_fork_knows_what_its_parent_learned_and_teaches_it_nothing() {
    let mut chat = declared(Group::new("crm"), [host("find")]);
    chat.registry.declare(Group::new("erp")).unwrap();
    chat.loaders.insert("erp".into(), Ok(vec![host("order")]));
    load(&mut chat);
    let fork = chat.session.fork();
    let parent = std::mem::replace(&mut chat.session, fork);
    chat.run("find", json!({}));
    chat.json("load_tools", json!({"group_id": "erp"}));
    chat.run("order", json!({}));
    chat.session = parent;
    chat.mistake("order", json!({}));
    chat.json("load_tools", json!({"group_id": "erp"}));
    assert_eq!(chat.asked, [id(), "erp".into(), "erp".into()]);
}

#[test]
fn what_was_learned_survives_a_restart() {
    let mut chat = declared(Group::new("crm"), [host("find"), host("merge")]);
    chat.json("load_tools", json!({"group_id": "crm", "tool_names": ["find"]}));
    let report = chat.restart();
    assert_eq!((report.restored, report.missing), (vec!["find".into()], vec![]));
    assert_eq!(chat.session.loaded(&id()), Loaded::Some(vec!["find".into()]));
    chat.run("find", json!({}));
    let found = chat.json("tool_search", json!({"query": "merge"}));
    assert_eq!(names(&found["tools"]), ["merge"]);
    assert_eq!(chat.asked, [id()]);
}

#[test]
fn once_the_catalog_knows_the_tools_themselves_what_was_learned_gives_way() {
    let mut chat = declared(Group::new("mcp:crm"), [tool(ToolName::mcp("crm", "find"), "Old")]);
    chat.json("load_tools", json!({"group_id": "crm"}));
    chat.registry.replace_server(server("crm", &[("find", "New"), ("merge", "")]));
    let told = chat.news();
    assert!(told.iter().any(|text| text.contains("\"New\"")), "{told:?}");
    chat.run("mcp__crm__merge", json!({}));
    let described = |chat: &mut Chat| {
        let run = chat.run("mcp__crm__find", json!({}));
        run.tool.spec().description().to_owned()
    };
    assert_eq!(described(&mut chat), "New");
    chat.restart();
    assert_eq!(described(&mut chat), "New");
}

#[test]
fn a_learned_group_that_is_removed_is_gone_with_all_its_tools() {
    let mut chat = declared(Group::new("crm"), [host("find")]);
    load(&mut chat);
    chat.registry.remove_group(&id());
    chat.turn();
    let answer = chat.mistake("find", json!({}));
    assert_eq!(answer, json!({"error": "`find` is gone: it is no longer offered."}));
    chat.mistake("load_tools", json!({"group_id": "crm"}));
    let found = chat.json("tool_search", json!({"query": "find"}));
    assert_eq!(found["tools"], json!([]));
}

#[test]
fn tools_of_a_learned_group_are_announced_to_nobody() {
    let mut chat = declared(Group::new("crm"), [host("find")]);
    load(&mut chat);
    assert!(chat.news().is_empty());
    let loaded: Vec<&Arc<str>> = chat.session.loaded_tools().collect();
    assert_eq!(loaded, [&Arc::from("find")]);
}
