//! Keeping a session and bringing it back: nothing that is gone ends a conversation.

mod support;

use std::sync::Arc;

use serde_json::{Value, json};
use support::{Chat, deferring, denying, registry, server, tool};
use toolcrib_core::{
    Availability, Deferral, Engine, Fetched, Group, GroupId, Loaded, Members, Mode, Policy, Preset,
    Registry, ResumeError, ResumeReport, Saved, Session, Settings, Strategy, StrategyChoice,
    ToolName, ToolSpec,
};

fn two_servers() -> Registry {
    registry([
        server("git", &[("blame", "Who"), ("log", "History")]),
        server("db", &[("query", "Asks")]),
    ])
}

/// A conversation that has loaded `git` as a whole and nothing else.
fn loaded(strategy: StrategyChoice) -> Chat {
    let mut settings = deferring(Preset::Crib);
    settings.strategy = strategy;
    let mut chat = Chat::new(settings, two_servers());
    chat.json("load_tools", json!({"group_id": "mcp:git"}));
    chat
}

fn json_of(session: &Session) -> String {
    serde_json::to_string(&session.snapshot()).expect("it serialises")
}

fn names(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}

fn ids(ids: &[&str]) -> Vec<GroupId> {
    ids.iter().map(|id| GroupId::from(*id)).collect()
}

#[test]
fn a_snapshot_brings_back_the_same_bytes_and_the_same_state() {
    for (strategy, remaining) in [
        (StrategyChoice::Dispatch, ids(&["mcp:db", "mcp:git"])),
        (StrategyChoice::Inject, ids(&["mcp:db"])),
    ] {
        let mut chat = loaded(strategy);
        let (hash, json) = (chat.hash(), json_of(&chat.session));
        let report = chat.restart();
        let restored = names(&["mcp__git__blame", "mcp__git__log"]);
        assert_eq!(report, ResumeReport { restored, remaining, ..ResumeReport::default() });
        assert_eq!(json_of(&chat.session), json);
        assert_eq!(chat.hash(), hash);
        assert_eq!(chat.session.loaded(&"mcp:git".into()), Loaded::All);
        assert!(chat.news().is_empty());
        assert_eq!(chat.run("mcp__git__log", json!({})).effects.loaded, []);
    }
}

#[test]
fn a_snapshot_is_versioned_json_that_a_host_may_keep_in_its_own() {
    let mut chat = loaded(StrategyChoice::Dispatch);
    let value: Value = serde_json::to_value(chat.session.snapshot()).unwrap();
    assert_eq!(value["version"], 2);
    assert_eq!(value["expanded_groups"], json!({"mcp:git": null}));
    let held = json!({"host": {"session": value}}).to_string();
    let inner = support::parse(&held)["host"]["session"].to_string();
    let saved = Saved::from_json(&inner).unwrap();
    let view = chat.view();
    let resumed = chat.engine.resume(&view, saved, Strategy::Dispatch, Fetched::new());
    let hash = chat.hash();
    chat.session = resumed.unwrap().0;
    assert_eq!(chat.hash(), hash);
    chat.session.unload(["mcp__git__log"]);
    let value = serde_json::to_value(chat.session.snapshot()).unwrap();
    assert_eq!(value["expanded_groups"], json!({"mcp:git": ["mcp__git__blame"]}));
}

#[test]
fn the_strategy_must_be_named_and_match_the_engine_and_what_was_saved() {
    let chat = loaded(StrategyChoice::Inject);
    let view = chat.view();
    let saved = || Saved::from_json(&json_of(&chat.session)).unwrap();
    let refused = |engine: &Engine, strategy| {
        engine.resume(&view, saved(), strategy, Fetched::new()).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&chat.engine, Strategy::Dispatch),
        "the session was to be resumed with strategy `dispatch`, but the engine uses `inject`"
    );
    let dispatching = Engine::new(deferring(Preset::Crib)).unwrap();
    assert_eq!(
        refused(&dispatching, Strategy::Dispatch),
        "the session was to be resumed with strategy `dispatch`, but the saved session uses \
         `inject`"
    );
    assert!(refused(&dispatching, Strategy::Native).contains("the engine uses `dispatch`"));
    let groups = Saved::from_json(r#"{"mcp:git": null}"#).unwrap();
    let error = dispatching.resume(&view, groups, Strategy::Inject, Fetched::new()).unwrap_err();
    assert!(matches!(error, ResumeError::StrategyMismatch { whose: "the engine", .. }));
}

#[test]
fn an_engine_left_the_choice_goes_on_with_the_strategy_that_was_saved() {
    let chat = loaded(StrategyChoice::Inject);
    let open = Engine::new(deferring(Preset::Crib)).unwrap();
    let saved = Saved::from_json(&json_of(&chat.session)).unwrap();
    let resumed = open.resume(&chat.view(), saved, Strategy::Inject, Fetched::new());
    assert_eq!(resumed.unwrap().0.strategy(), Some(Strategy::Inject));

    let chat = loaded(StrategyChoice::Dispatch);
    let saved = Saved::from_json(&json_of(&chat.session)).unwrap();
    let view = chat.registry.catalog().view(&denying(&["call_tool"]));
    let refused = open.resume(&view, saved, Strategy::Dispatch, Fetched::new());
    assert!(matches!(refused, Err(ResumeError::StrategyMismatch { whose: "the engine", .. })));
}

#[test]
fn a_newer_snapshot_is_refused_however_it_was_read() {
    let chat = loaded(StrategyChoice::Dispatch);
    let newer = json_of(&chat.session).replacen("\"version\":2", "\"version\":9", 1);
    let snapshot = Saved::Snapshot(serde_json::from_str(&newer).unwrap());
    let refused = chat.engine.resume(&chat.view(), snapshot, Strategy::Dispatch, Fetched::new());
    assert_eq!(refused.unwrap_err(), ResumeError::Version { found: 9, supported: 2 });
}

#[test]
fn a_snapshot_from_the_last_turn_there_can_be_goes_on() {
    let mut chat = loaded(StrategyChoice::Dispatch);
    let json = json_of(&chat.session);
    let turn = format!("\"turn\":{}", chat.session.turn());
    let last = json.replacen(&turn, &format!("\"turn\":{}", u64::MAX), 1);
    let saved = Saved::from_json(&last).unwrap();
    let resumed = chat.engine.resume(&chat.view(), saved, Strategy::Dispatch, Fetched::new());
    chat.session = resumed.unwrap().0;
    assert_eq!(chat.turn().turn, u64::MAX);
}

/// A conversation brought back from `expanded_groups`.
fn expanded(json: &str, fetched: Fetched) -> (Chat, ResumeReport) {
    let registry = two_servers();
    let named = Group::new("crm").with_tool_names(["find", "merge"]);
    registry.declare(named).expect("it is new");
    registry.declare(Group::new("erp")).expect("it is new");
    registry.set_availability("mcp:wiki", Availability::Down("exit status 1".to_owned()));
    let mut chat = Chat::unsettled(Policy::default(), deferring(Preset::Crib), registry);
    let view = chat.view();
    let saved = Saved::from_json(json).expect("it can be read");
    let (session, report) =
        chat.engine.resume(&view, saved, Strategy::Dispatch, fetched).expect("strategies match");
    chat.session = session;
    (chat, report)
}

#[test]
fn expanded_groups_are_taken_in_the_documented_form() {
    let all = ids(&["crm", "erp", "mcp:db", "mcp:git"]);
    for json in [
        r#"{"mcp:git": null, "mcp:db": ["query"]}"#,
        r#"{"expanded_groups": {"mcp:git": null, "mcp:db": ["query"]}, "user": 7}"#,
        r#"{"git": null, "db": ["mcp__db__query"]}"#,
    ] {
        let (mut chat, report) = expanded(json, Fetched::new());
        let restored = names(&["mcp__git__blame", "mcp__git__log", "mcp__db__query"]);
        let remaining = all.clone();
        assert_eq!(report, ResumeReport { restored, remaining, ..ResumeReport::default() });
        assert_eq!(chat.session.loaded(&"mcp:git".into()), Loaded::All);
        let db = Loaded::Some(names(&["mcp__db__query"]));
        assert_eq!(chat.session.loaded(&"mcp:db".into()), db);
        assert_eq!(chat.run("mcp__git__log", json!({})).effects.loaded, []);
    }
    for nothing in ["{}", r#"{"expanded_groups": {}}"#, r#"{"expanded_groups": null}"#] {
        let (chat, report) = expanded(nothing, Fetched::new());
        let remaining = all.clone();
        assert_eq!(report, ResumeReport { remaining, ..ResumeReport::default() });
        assert_eq!(chat.loaded().len(), 0);
    }
}

#[test]
fn what_is_not_there_any_more_is_reported_with_the_reason() {
    let json = r#"{"mcp:gone": null, "wiki": null, "mcp:git": ["log", "moved"], "mcp:db": []}"#;
    let (chat, report) = expanded(json, Fetched::new());
    let missing = [
        ("mcp:gone", "it is not registered"),
        ("wiki", "it does not answer: exit status 1"),
        ("moved", "group `mcp:git` no longer has it"),
    ];
    let missing = missing.map(|(name, why)| (name.to_owned(), why.to_owned()));
    assert_eq!(report.missing, missing);
    assert_eq!(report.restored, names(&["mcp__git__log"]));
    assert_eq!(chat.session.loaded(&"mcp:db".into()), Loaded::Nothing);
}

#[test]
fn one_failing_loader_does_not_spoil_the_others() {
    let host = |name: &str| tool(ToolName::host(name), "");
    let json = r#"{"crm": null, "erp": null, "mcp:git": null}"#;
    let registry_view = two_servers();
    registry_view.declare(Group::new("crm").with_tool_names(["find", "merge"])).unwrap();
    registry_view.declare(Group::new("erp")).unwrap();
    let saved = Saved::from_json(json).unwrap();
    assert_eq!(saved.needs(&registry_view.catalog().view_all()), ids(&["crm", "erp"]));
    let fetched = Fetched::from([
        ("crm".into(), Err("timed out".to_owned())),
        ("erp".into(), Ok(vec![host("order")])),
    ]);
    let (mut chat, report) = expanded(json, fetched);
    let failed = [("crm".to_owned(), "its loader failed: timed out".to_owned())];
    assert_eq!(report.missing, failed);
    assert_eq!(report.restored, names(&["order", "mcp__git__blame", "mcp__git__log"]));
    assert_eq!(chat.session.loaded(&"crm".into()), Loaded::Nothing);
    assert_eq!(chat.session.loaded(&"erp".into()), Loaded::All);
    chat.run("order", json!({}));
    // The failure is not remembered: the next call asks again.
    chat.loaders.insert("crm".into(), Ok(vec![host("find"), host("merge")]));
    chat.run("find", json!({}));
    assert_eq!(chat.asked, ids(&["crm"]));
}

#[test]
fn a_loader_that_nobody_asked_leaves_its_group_unloaded() {
    let (chat, report) = expanded(r#"{"crm": null, "erp": null}"#, Fetched::new());
    let why = "its loader was not asked".to_owned();
    assert_eq!(report.missing, ["crm", "erp"].map(|id| (id.to_owned(), why.clone())));
    assert_eq!(chat.session.loaded(&"erp".into()), Loaded::Nothing);
}

#[test]
fn a_loader_that_brings_less_than_was_saved_restores_what_it_can() {
    let find = || vec![tool(ToolName::host("find"), "")];
    for json in [r#"{"crm": null}"#, r#"{"crm": ["find", "merge"]}"#] {
        let (chat, report) = expanded(json, Fetched::from([("crm".into(), Ok(find()))]));
        let missing = [("merge".to_owned(), "group `crm` no longer has it".to_owned())];
        assert_eq!((report.restored, &report.missing[..]), (names(&["find"]), &missing[..]));
        assert_eq!(chat.session.loaded(&"crm".into()), Loaded::Some(names(&["find"])));
    }
}

#[test]
fn a_missing_server_is_reported_and_its_tools_come_back_with_it() {
    for strategy in [StrategyChoice::Dispatch, StrategyChoice::Inject] {
        let mut chat = loaded(strategy);
        let hash = chat.hash();
        chat.registry.remove_server("git");
        chat.registry.set_availability("mcp:git", Availability::Starting);
        let report = chat.restart();
        let missing = ["mcp__git__blame", "mcp__git__log"];
        let missing = missing.map(|name| (name.to_owned(), "it is still starting".to_owned()));
        assert_eq!((report.restored, &report.missing[..]), (vec![], &missing[..]));
        assert_eq!(chat.told(), ["These tool groups are no longer available: mcp:git."]);
        assert_eq!(chat.hash(), hash);
        chat.mistake("mcp__git__log", json!({}));
        chat.registry.set_availability("mcp:git", Availability::Ready);
        let git = server("git", &[("blame", "Who"), ("log", "History")]);
        chat.registry.replace_server(git);
        assert_eq!(chat.news(), ["These tools of `mcp:git` are available again: blame, log."]);
        assert_eq!(chat.run("mcp__git__log", json!({})).effects.loaded, []);
        assert_eq!(chat.hash(), hash);
    }
}

#[test]
fn a_schema_that_changed_meanwhile_is_announced_once_and_calls_are_checked_against_it() {
    let mut chat = loaded(StrategyChoice::Dispatch);
    let strict = json!({"type": "object", "properties": {"n": {"type": "integer"}},
        "required": ["n"], "additionalProperties": false});
    let log = ToolSpec::new(ToolName::mcp("git", "log"), strict);
    let blame = tool(ToolName::mcp("git", "blame"), "Who");
    chat.registry.replace_server(toolcrib_core::ServerTools::new("git", [log, blame]));
    let report = chat.restart();
    assert_eq!(report.restored, names(&["mcp__git__blame"]));
    assert_eq!(report.changed, names(&["mcp__git__log"]));
    let told = chat.told();
    assert_eq!(told[0], "What these tool groups offer has changed; look again: mcp:git.");
    assert!(
        told[1].starts_with("These tools have changed. Their definitions are now:\n{\"name\":")
    );
    assert!(told[1].contains("additionalProperties") && told.len() == 2, "{told:?}");
    chat.mistake("mcp__git__log", json!({"text": "x"}));
    assert_eq!(chat.run("mcp__git__log", json!({"n": "3"})).arguments, json!({"n": 3}));
    let again = chat.restart();
    assert_eq!((again.changed, again.restored.len()), (vec![], 2));
    assert!(chat.told().is_empty());
}

#[test]
fn tools_that_went_from_a_server_that_stayed_are_named() {
    let mut chat = loaded(StrategyChoice::Dispatch);
    chat.registry.remove(&ToolName::mcp("git", "log"));
    chat.restart();
    let told = chat.told();
    assert_eq!(told.last().unwrap(), "These tools are no longer available: mcp__git__log.");
}

#[test]
fn a_tool_of_the_first_request_that_changed_meanwhile_is_announced() {
    let registry = two_servers();
    let calc = |about: &str| tool(ToolName::host("calc"), about).with_deferral(Deferral::Eager);
    registry.register(calc("Old")).unwrap();
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    let hash = chat.hash();
    chat.registry.remove(&ToolName::host("calc"));
    chat.registry.register(calc("New")).unwrap();
    assert_eq!(chat.restart().changed, names(&["calc"]));
    let told = chat.told();
    assert!(told.last().unwrap().contains("\"description\":\"New\""), "{told:?}");
    assert_eq!(chat.hash(), hash);
}

#[test]
fn a_tool_of_the_first_request_that_is_gone_is_named_and_can_come_back() {
    let registry = two_servers();
    let calc = || tool(ToolName::host("calc"), "").with_deferral(Deferral::Eager);
    registry.register(calc()).unwrap();
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    let hash = chat.hash();
    chat.registry.remove(&ToolName::host("calc"));
    let missing = [("calc".to_owned(), "it is no longer offered".to_owned())];
    assert_eq!(chat.restart().missing, missing);
    let told = chat.told();
    assert_eq!(told.last().unwrap(), "These tools are no longer available: calc.");
    chat.registry.register(calc()).unwrap();
    assert_eq!(chat.news(), ["These tools of `host` are available again: calc."]);
    assert_eq!(chat.hash(), hash);
    chat.run("calc", json!({}));
}

#[test]
fn groups_that_came_meanwhile_are_announced() {
    let mut chat = loaded(StrategyChoice::Dispatch);
    chat.registry.replace_server(server("mail", &[("send", "")]));
    chat.registry.declare(Group::new("crm")).unwrap();
    chat.restart();
    assert_eq!(chat.told(), ["New tool groups are available: crm, mcp:mail."]);
    chat.run("mcp__mail__send", json!({}));
}

#[test]
fn a_tool_denied_meanwhile_can_not_be_called_and_is_not_announced_anew() {
    let mut chat = loaded(StrategyChoice::Dispatch);
    chat.policy = denying(&["log"]);
    let report = chat.restart();
    assert_eq!(report.restored, names(&["mcp__git__blame"]));
    let answer = chat.answer("mcp__git__log", json!({}));
    assert_eq!(answer.effects.denied, [ToolName::mcp("git", "log")]);
    assert!(answer.content.contains("Unknown tool"), "{}", answer.content);
}

#[test]
fn a_snapshot_taken_after_any_step_holds_that_steps_loads() {
    let mut chat = Chat::new(deferring(Preset::Crib), two_servers());
    let steps: [(&str, Value); 4] = [
        ("tool_search", json!({"query": "select:mcp__git__log"})),
        ("call_tool", json!({"tool_name": "mcp__db__query", "arguments": {}})),
        ("call_tool", json!({"tool_name": "mcp__git__blame", "arguments": {"text": []}})),
        ("load_tools", json!({"group_id": "mcp:git"})),
    ];
    let mut counts = Vec::new();
    for (verb, arguments) in steps {
        chat.step(verb, arguments);
        let before = chat.loaded();
        // The process dies here: nothing is called at the end of the run.
        chat.restart();
        assert_eq!(chat.loaded(), before);
        counts.push(before.len());
    }
    assert_eq!(counts, [1, 2, 3, 3]);
}

#[test]
fn announcements_that_were_not_delivered_survive() {
    let mut chat = loaded(StrategyChoice::Dispatch);
    chat.registry.replace_server(server("mail", &[("send", "")]));
    chat.turn();
    chat.restart();
    let expected = "New tools are available in `mcp:mail`: send. Get their schemas with \
                    `tool_search`.";
    assert_eq!(chat.told(), [expected]);
}

#[test]
fn definitions_that_were_not_delivered_are_not_shown_once_they_are_hidden() {
    let mut chat = Chat::new(deferring(Preset::Crib), two_servers());
    let view = chat.view();
    let load = |chat: &mut Chat, names: &[&str]| {
        assert!(chat.engine.preload(&mut chat.session, &view, names).is_empty());
    };
    load(&mut chat, &["git.log", "db.query"]);
    load(&mut chat, &["git.blame"]);
    chat.policy = denying(&["log", "blame"]);
    chat.restart();
    let told = chat.told();
    assert!(told[0].starts_with("Now loaded:\n{\"name\":\"mcp__db__query\""), "{told:?}");
    for hidden in ["git__log", "git__blame"] {
        assert!(!told.iter().any(|it| it.contains(&format!("\"mcp__{hidden}\""))), "{told:?}");
    }
    assert!(!told.iter().any(|it| *it == "Now loaded:"), "{told:?}");
}

#[test]
fn a_session_kept_before_its_first_request_begins_as_new() {
    let mut chat = Chat::unsettled(Policy::default(), Settings::default(), two_servers());
    chat.session.preload(["log"]);
    let saved = Saved::from_json(&json_of(&chat.session)).unwrap();
    let view = chat.view();
    let resumed = chat.engine.resume(&view, saved, Strategy::Dispatch, Fetched::new());
    chat.session = resumed.unwrap().0;
    assert_eq!(chat.session.strategy(), None);
    assert_eq!(chat.tools().len(), 3, "auto finds three tools too few to defer");
}

#[test]
fn the_choices_of_a_conversation_survive_whatever_the_catalog_has_become() {
    let mut chat = Chat::new(Settings::default(), two_servers());
    assert_eq!(chat.session.is_deferred(), Some(false));
    let specs = (0..30).map(|n| tool(ToolName::mcp("many", format!("t{n}")), ""));
    chat.registry.replace_server(toolcrib_core::ServerTools::new("many", specs));
    chat.restart();
    assert_eq!(chat.session.is_deferred(), Some(false));
    chat.session = chat.session.fork_without_loading();
    chat.session.preload(["x"]);
    let json = json_of(&chat.session);
    chat.restart();
    assert_eq!(json_of(&chat.session), json);
    let mut settings = Settings::default();
    settings.mode = Mode::Full;
    assert!(Engine::new(settings).is_ok());
}

#[test]
fn a_group_that_names_tools_of_others_comes_back_with_its_own_count() {
    let mut chat = Chat::new(deferring(Preset::Crib), two_servers());
    let members = vec![ToolName::mcp("git", "log"), ToolName::mcp("db", "query")];
    chat.registry.declare(Group::new("work").with_members(Members::Named(members))).unwrap();
    chat.json("load_tools", json!({"group_id": "work"}));
    chat.restart();
    assert_eq!(chat.session.loaded(&"work".into()), Loaded::All);
    chat.session.unload(["mcp__git__log"]);
    let left = Loaded::Some(names(&["mcp__db__query"]));
    assert_eq!(chat.session.loaded(&"work".into()), left);
}

#[test]
fn what_can_not_be_read_says_why_and_never_panics() {
    let whole = json_of(&loaded(StrategyChoice::Inject).session);
    assert_eq!(
        Saved::from_json(r#"{"version": 3, "anything": []}"#).unwrap_err(),
        ResumeError::Version { found: 3, supported: 2 }
    );
    for garbage in
        ["", "null", "[]", "7", "{\"a\": 1}", "{\"version\": 1}", "{\"expanded_groups\": 3}"]
    {
        let error = Saved::from_json(garbage).unwrap_err();
        assert!(matches!(error, ResumeError::Format(_)), "{garbage}");
        assert!(error.to_string().starts_with("not a saved session: "), "{error}");
    }
    for end in 0..whole.len() {
        assert!(whole.get(..end).is_none_or(|cut| Saved::from_json(cut).is_err()), "{end}");
    }
    let odd = whole.replace("\"input_schema\"", "\"schema\"");
    let chat = loaded(StrategyChoice::Inject);
    let saved = Saved::from_json(&odd).unwrap();
    let error = chat.engine.resume(&chat.view(), saved, Strategy::Inject, Fetched::new());
    let expected = ResumeError::Format("a tool definition can't be read".to_owned());
    assert_eq!(error.unwrap_err(), expected);
}

/// Each of these changes what is kept. That every change does is in `anything.rs`.
#[test]
fn a_mark_changes_with_the_session_and_not_with_time() {
    let mut chat = Chat::new(deferring(Preset::Crib), two_servers());
    let id = GroupId::from("crm");
    chat.registry.declare(Group::new(id.clone())).unwrap();
    chat.turn();
    chat.prepare();
    chat.run("mcp__git__log", json!({}));
    let mark = chat.session.mark();
    for _ in 0..3 {
        chat.turn();
        chat.prepare();
        chat.run("mcp__git__log", json!({}));
        chat.mistake("mcp__git__none", json!({}));
        assert_eq!(chat.session.mark(), mark);
    }
    let crm = |about: &str| vec![tool(ToolName::host("find"), about)];
    let steps: [&dyn Fn(&mut Chat); 11] = [
        &|chat| drop(chat.run("mcp__git__blame", json!({}))),
        &|chat| drop(chat.session.unload(["mcp__git__blame"])),
        &|chat| chat.session.preload(["x"]),
        &|chat| {
            let view = chat.view();
            chat.engine.supply(&mut chat.session, &view, &id, crm("One"));
        },
        &|chat| {
            let view = chat.view();
            chat.engine.supply(&mut chat.session, &view, &id, crm("Other"));
        },
        &|chat| {
            chat.registry.replace_server(server("git", &[("blame", "Who"), ("log", "New")]));
            chat.turn();
            chat.prepare();
        },
        // The model was told of the new form already; now it is the one that it was given.
        &|chat| {
            chat.session.unload(["mcp__git__log"]);
            chat.run("mcp__git__log", json!({}));
        },
        &|chat| {
            chat.registry.remove_server("db");
            chat.turn();
        },
        &|chat| drop(chat.prepare()),
        &|chat| {
            let view = chat.view();
            chat.engine.settle_anew(&mut chat.session, &view);
        },
        &|chat| chat.session = chat.session.fork_without_loading(),
    ];
    for (at, step) in steps.iter().enumerate() {
        let before = chat.session.mark();
        step(&mut chat);
        assert_ne!(chat.session.mark(), before, "step {at}");
    }
}
