//! One filtered set feeds every surface: what a caller may not discover, it cannot call.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use serde_json::json;
use support::{Chat, deferring, denying, names, registry, server, tool};
use toolcrib_core::{
    Annotations, Availability, Decision, Group, Members, Policy, PolicyRules, Preset, Registry,
    Rule, Session, ToolName, ToolSpec,
};

const SECRET: &str = "wipe_disk";

/// Three tools a query for `disk` finds, of which one is called as no caller may know.
fn tools() -> Registry {
    registry([
        server("ops", &[("check_disk", "Checks a disk"), (SECRET, "Erases a disk")]),
        server("docs", &[("disk_manual", "About disks")]),
    ])
}

fn rules(change: impl FnOnce(&mut PolicyRules)) -> Policy {
    let mut rules = PolicyRules::default();
    change(&mut rules);
    Policy::new(rules).expect("patterns compile")
}

/// A policy of rules in order.
fn ruled(rules: &[serde_json::Value]) -> Policy {
    let rule = |json: &serde_json::Value| serde_json::from_value::<Rule>(json.clone()).unwrap();
    let rules = rules.iter().map(rule).collect();
    Policy::new(PolicyRules { rules, ..PolicyRules::default() }).expect("patterns compile")
}

/// The same without the tool that no caller may know.
fn tools_without_secret() -> Registry {
    let registry = tools();
    registry.remove(&ToolName::mcp("ops", SECRET));
    registry
}

#[test]
fn at_every_surface_a_denied_tool_looks_like_one_that_does_not_exist() {
    let ways_to_deny = [
        denying(&[SECRET]),
        denying(&["mcp__ops__wipe*"]),
        denying(&["ops/wipe_disk"]),
        rules(|it| {
            it.allow_tools = Some(vec!["*disk*".into()]);
            it.deny_tools = vec!["*wipe*".into()];
        }),
        rules(|it| it.allow_tools = Some(vec!["check_disk".into(), "docs.*".into()])),
        ruled(&[json!({"tools": ["wipe*"], "servers": ["ops"], "then": "deny"})]),
        ruled(&[
            json!({"tools": ["check_disk"], "then": "allow"}),
            json!({"servers": ["ops"], "destructive": true, "then": "deny"}),
        ]),
        ruled(&[
            json!({"tools": [SECRET], "callers": ["ada"], "then": "ask"}),
            json!({"tools": [SECRET], "then": "deny"}),
        ])
        .for_caller(Some("bob")),
    ];
    let find = |query: &str| ("tool_search", json!({"query": query}));
    let call = |name: &str| ("call_tool", json!({"tool_name": name, "arguments": {}}));
    // Surfaces that give away nothing unasked, and surfaces that are asked for the very tool.
    let general = [
        ("tool_search", json!({"query": "disk", "limit": 1, "max_results": 1})),
        ("tool_search", json!({"query": "disk", "limit": 50, "max_results": 50})),
        find("erases"),
        find("/./"),
        find(""),
        ("tool_search", json!({"name": "wipe_dsk"})),
        ("tool_search_regex", json!({"pattern": ".*", "limit": 50})),
        ("load_tools", json!({"group_id": "mcp:ops"})),
        ("load_tools", json!({"group_id": "ops", "tool_names": [SECRET]})),
        ("load_tools", json!({"group_id": "none"})),
        ("wipe_dsk", json!({})),
    ];
    let by_name = [
        find("select:mcp__ops__wipe_disk"),
        find("select:wipe_disk,check_disk"),
        ("tool_search", json!({"name": "mcp__ops__wipe_disk"})),
        call("mcp__ops__wipe_disk"),
        call(SECRET),
        call("ops.wipe_disk"),
        ("mcp__ops__wipe_disk", json!({})),
        ("ops__wipe_disk", json!({})),
        ("functions.wipe_disk", json!({})),
    ];
    for policy in &ways_to_deny {
        for preset in Preset::ALL {
            let mut denied = Chat::under(policy.clone(), deferring(preset), tools());
            let mut absent = Chat::new(deferring(preset), tools_without_secret());
            assert_eq!(denied.prepare(), absent.prepare(), "{preset}");
            let mut named = 0;
            for (verb, arguments) in general.iter().chain(&by_name) {
                let [is, would_be] =
                    [&mut denied, &mut absent].map(|chat| chat.answer(verb, arguments.clone()));
                assert_eq!(is.content, would_be.content, "{preset} {verb} {arguments}");
                assert_eq!(is.is_error, would_be.is_error);
                assert_eq!(is.effects.loaded, would_be.effects.loaded);
                named += is.effects.denied.len();
            }
            // The audit log has what the model was not told.
            assert!(named >= 3, "{preset}: {named}");
            assert_eq!(denied.loaded(), absent.loaded());
            let [is, would_be] = [&mut denied, &mut absent].map(|chat| {
                let view = chat.view();
                let missed = chat.engine.preload(&mut chat.session, &view, [SECRET]);
                let stats = chat.engine.stats(&mut chat.session, &view).unwrap();
                let explained = view.explain("disk", "mcp__ops__wipe_disk").is_some();
                let found = view.search("disk", 9).unwrap().results.len();
                (missed, stats, view.schemas(), view.len(), explained, found)
            });
            assert_eq!(is, would_be, "{preset}");
            assert_eq!(denied.view().hidden(), 1);
        }
    }
}

#[test]
fn a_call_of_a_denied_tool_is_in_the_audit_log_by_whatever_name() {
    let mut chat = Chat::under(denying(&[SECRET]), deferring(Preset::Crib), tools());
    for name in [SECRET, "mcp__ops__wipe_disk", "ops.wipe_disk", "functions.wipe_disk"] {
        for (verb, arguments) in [
            (name, json!({})),
            ("call_tool", json!({"tool_name": name, "arguments": {}})),
            ("tool_search", json!({"query": format!("select:{name}")})),
        ] {
            let denied = chat.answer(verb, arguments).effects.denied;
            assert_eq!(denied, [ToolName::mcp("ops", SECRET)], "{verb} {name}");
        }
    }
}

#[test]
fn a_denied_server_looks_as_if_it_were_not_configured() {
    let denied = rules(|it| it.deny_servers = vec!["op*".into()]);
    let others = rules(|it| it.allow_servers = Some(vec!["docs".into()]));
    let ruled = ruled(&[json!({"servers": ["op*"], "then": "deny"})]);
    for policy in [denied, others, ruled] {
        let registry = tools();
        registry.declare(Group::new("mcp:ops2").with_description("disk")).unwrap();
        registry.set_availability("mcp:ops3", Availability::Down("ops3 lost its disk".into()));
        let mut chat = Chat::under(policy, deferring(Preset::Crib), registry);
        let mut told = vec![chat.section()];
        for (verb, arguments) in [
            ("tool_search", json!({"query": "nothing like this"})),
            ("tool_search", json!({"query": ""})),
            ("tool_search", json!({"query": "disk"})),
            ("load_tools", json!({"group_id": "x"})),
            ("check_dsk", json!({})),
        ] {
            told.push(chat.answer(verb, arguments).content);
        }
        for group in ["mcp:ops", "ops2", "mcp:ops3"] {
            let answer = chat.mistake("load_tools", json!({"group_id": group}));
            assert_eq!(answer["available_groups"], json!(["mcp:docs"]));
        }
        chat.registry.declare(Group::new("mcp:ops4")).unwrap();
        chat.registry.replace_server(server("ops", &[("new", "")]));
        told.extend(chat.news());
        chat.restart();
        told.extend(chat.told());
        assert!(!told.iter().any(|text| text.contains("ops")), "{told:#?}");
        let answer = chat.answer("mcp__ops3__anything", json!({}));
        assert!(!answer.content.contains("lost its disk"), "{}", answer.content);
        assert_eq!(chat.asked, []);
    }
}

#[test]
fn a_server_that_is_down_does_not_tell_denied_tools_from_those_that_do_not_exist() {
    let down = |registry: Registry| {
        registry.set_availability("mcp:ops", Availability::Down("no route".to_owned()));
        Chat::under(denying(&[SECRET]), deferring(Preset::Crib), registry)
    };
    let (mut with, mut without) = (down(tools()), down(tools_without_secret()));
    let name = format!("mcp__ops__{SECRET}");
    let told = with.answer(&name, json!({}));
    assert_eq!(told.content, without.answer(&name, json!({})).content);
    assert_eq!(told.effects.denied, [ToolName::mcp("ops", SECRET)]);
}

#[test]
fn a_hidden_tool_that_changes_while_a_session_is_away_is_not_noticed() {
    let mut chat = Chat::under(denying(&[SECRET]), deferring(Preset::Crib), tools());
    let change = |chat: &Chat, visible: &str, hidden: &str| {
        let tools = [("check_disk", visible), (SECRET, hidden)];
        chat.registry.replace_server(server("ops", &tools));
    };
    change(&chat, "Checks a disk", "Erases it twice");
    chat.restart();
    assert_eq!(chat.told(), [""; 0]);
    change(&chat, "Checks it twice", "Erases it twice");
    chat.restart();
    assert_eq!(chat.told(), ["What these tool groups offer has changed; look again: mcp:ops."]);
}

#[test]
fn a_group_of_hidden_tools_alone_is_not_named_when_it_is_down() {
    let registry = tools();
    registry.declare(Group::new("vault").with_tools([tool(ToolName::host("open"), "")])).unwrap();
    registry.set_availability("vault", Availability::Down("sealed".to_owned()));
    let mut all = Chat::new(deferring(Preset::Crib), registry);
    let query = json!({"query": "zeppelin"});
    assert!(all.json("tool_search", query.clone())["hint"].to_string().contains("vault"));
    let mut less = Chat::under(denying(&["open"]), deferring(Preset::Crib), all.registry);
    assert!(!less.json("tool_search", query)["hint"].to_string().contains("vault"));
}

#[test]
fn a_denied_tool_takes_no_result_slot_and_no_count() {
    let mut chat = Chat::under(denying(&[SECRET]), deferring(Preset::Crib), tools());
    let found = chat.json("tool_search", json!({"query": "disk", "limit": 2}));
    assert_eq!(found["total_matches"], 2);
    assert_eq!(names(&found["tools"]).len(), 2);
    let loaded = chat.json("load_tools", json!({"group_id": "mcp:ops"}));
    assert_eq!(
        (&loaded["tool_names"], &loaded["remaining"]),
        (&json!(["mcp__ops__check_disk"]), &json!(0))
    );
    assert!(chat.section().contains("(1 tool)"));
}

#[test]
fn a_tool_loaded_before_it_was_denied_is_refused_from_then_on() {
    for preset in [Preset::Crib, Preset::Stubs] {
        let mut chat = Chat::new(deferring(preset), tools());
        chat.run("mcp__ops__wipe_disk", json!({}));
        chat.policy = denying(&[SECRET]);
        // At once, not only from the next turn on.
        for name in ["mcp__ops__wipe_disk", SECRET] {
            let answer = chat.answer(name, json!({}));
            assert!(answer.content.contains("Unknown tool"), "{}", answer.content);
            assert_eq!(answer.effects.denied, [ToolName::mcp("ops", SECRET)]);
        }
        let told = chat.news();
        assert_eq!(told, ["These tools of `mcp:ops` are no longer available: wipe_disk."]);
        chat.answer("mcp__ops__wipe_disk", json!({}));
        chat.policy = Policy::default();
        assert_eq!(chat.news(), ["These tools of `mcp:ops` are available again: wipe_disk."]);
        chat.run("mcp__ops__wipe_disk", json!({}));
    }
}

#[test]
fn a_hidden_tool_of_a_name_does_not_stand_in_the_way_of_another() {
    let registry = registry([server("web", &[("search", "")])]);
    registry.register(tool(ToolName::builtin("search"), "")).unwrap();
    let policy = rules(|it| it.allow_tools = Some(vec!["web/*".into()]));
    let mut chat = Chat::under(policy, deferring(Preset::Crib), registry);
    // Without the built-in the bare name would mean the server's tool, so it does.
    assert_eq!(chat.runs("search", json!({})).0, "web/search");
}

#[test]
fn of_two_tools_of_one_name_the_visible_one_is_not_ambiguous() {
    let registry = registry([server("a", &[("search", "")]), server("b", &[("search", "")])]);
    let mut chat = Chat::under(denying(&["a/search"]), deferring(Preset::Crib), registry);
    assert_eq!(chat.runs("search", json!({})).0, "b/search");
    chat.policy = Policy::default();
    let answer = chat.mistake("search", json!({}));
    assert_eq!(answer["did_you_mean"], json!(["mcp__a__search", "mcp__b__search"]));
}

#[test]
fn annotations_decide_where_the_policy_asks() {
    let annotated = |name: &str, read_only, destructive| {
        let annotations = Annotations { read_only, destructive, ..Annotations::default() };
        tool(ToolName::host(name), "").with_annotations(annotations)
    };
    let registry = Registry::default();
    let specs = [
        annotated("reads", Some(true), None),
        annotated("adds", None, Some(false)),
        annotated("erases", None, Some(true)),
        annotated("silent", None, None),
    ];
    registry.register_all(specs).unwrap();
    let named = vec![ToolName::host("reads"), ToolName::host("adds"), ToolName::host("later")];
    registry.declare(Group::new("mixed").with_members(Members::Named(named))).unwrap();
    let names = |policy: &Policy| -> Vec<String> {
        let view = registry.catalog().view(policy);
        view.tools().map(|tool| tool.exposed().to_string()).collect()
    };
    let only_reads = rules(|it| it.read_only = true);
    let safe = rules(|it| it.deny_destructive = true);
    assert_eq!(names(&only_reads), ["reads"]);
    assert_eq!(names(&safe), ["adds", "reads"]);
    // A name says nothing of its effects; the tool it names, registered elsewhere, does.
    let mut chat = Chat::under(safe, deferring(Preset::Crib), registry);
    let answer = chat.json("load_tools", json!({"group_id": "mixed"}));
    assert_eq!(answer["tool_names"], json!(["adds", "reads"]));
    assert_eq!(chat.asked, []);
}

#[test]
fn what_a_loader_brings_is_filtered_like_everything_else() {
    let registry = tools();
    registry.declare(Group::new("crm").with_description("Customers")).unwrap();
    let mut chat = Chat::under(denying(&["*merge*"]), deferring(Preset::Crib), registry);
    let specs: Vec<ToolSpec> =
        ["find", "merge"].map(|name| tool(ToolName::host(name), "Customers")).to_vec();
    chat.loaders.insert("crm".into(), Ok(specs));
    let answer = chat.json("load_tools", json!({"group_id": "crm"}));
    assert_eq!((&answer["tool_names"], &answer["remaining"]), (&json!(["find"]), &json!(0)));
    let answer = chat.answer("merge", json!({}));
    assert_eq!(answer.effects.denied, [ToolName::host("merge")]);
    let found = chat.json("tool_search", json!({"query": "customers"}));
    assert_eq!(names(&found["tools"]), ["find"]);
}

#[test]
fn a_failing_loader_does_not_give_away_how_many_tools_are_hidden() {
    let registry = tools();
    registry.declare(Group::new("crm").with_tool_names(["find", "merge"])).unwrap();
    let mut chat = Chat::under(denying(&["merge"]), deferring(Preset::Crib), registry);
    chat.loaders.insert("crm".into(), Err("down".to_owned()));
    let answer = chat.mistake("load_tools", json!({"group_id": "crm"}));
    assert_eq!(answer["remaining"], 1);
}

#[test]
fn a_policy_of_one_caller_says_nothing_about_another() {
    let mut chat = Chat::under(denying(&[SECRET]), deferring(Preset::Crib), tools());
    let full = chat.registry.catalog().view_all();
    let mut trusted = Session::new();
    let shown = chat.engine.prepare(&mut trusted, &full).unwrap();
    assert!(shown.system_section.contains("wipe_disk"));
    assert!(!chat.section().contains("wipe_disk"));
}

#[test]
fn a_verb_is_not_subject_to_the_approval_of_tools_but_to_its_own_denial() {
    // Loading runs nothing: a policy that admits only read-only tools still offers the verbs.
    let only_reads = rules(|it| it.read_only = true);
    let registry = tools();
    let reads = Annotations { read_only: Some(true), ..Annotations::default() };
    let spec = tool(ToolName::mcp("ops", "list"), "").with_annotations(reads);
    registry.register(spec).unwrap();
    let mut chat = Chat::under(only_reads, deferring(Preset::Crib), registry);
    assert_eq!(chat.tools(), ["tool_search", "load_tools", "call_tool"]);
    chat.policy = denying(&["tool_search"]);
    chat.session = Session::new();
    assert_eq!(chat.tools(), ["load_tools", "call_tool"]);
    assert!(!chat.section().contains("tool_search"));
    let answer = chat.mistake("tool_search", json!({"query": "disk"}));
    assert!(!answer["error"].as_str().unwrap().contains("with `tool_search`"), "{answer}");
}

#[test]
fn a_tool_that_is_asked_about_is_seen_like_any_other() {
    let asked = ruled(&[json!({"tools": [SECRET], "then": "ask"})]);
    let mut chat = Chat::under(asked.clone(), deferring(Preset::Crib), tools());
    let mut free = Chat::new(deferring(Preset::Crib), tools());
    assert_eq!(chat.prepare(), free.prepare());
    let query = json!({"query": "erases"});
    assert_eq!(chat.answer("tool_search", query.clone()), free.answer("tool_search", query));
    // The engine resolves it; whoever drives it asks before it runs.
    let run = chat.run("ops.wipe_disk", json!({}));
    assert!(matches!(asked.decision(&run.tool), Decision::Ask { number: 1, .. }));
    let run = chat.run("check_disk", json!({}));
    assert_eq!(asked.decision(&run.tool), Decision::Allow);
}
