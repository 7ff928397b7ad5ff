//! What `load_tools` makes of its arguments.

use serde_json::{Value, json};
use toolcrib_core::{Group, Preset, ToolName};

use crate::support::{Chat, deferring, names, parse, registry, server, tool};
use crate::{chat, office};

#[test]
fn a_group_is_found_by_id_or_by_the_bare_name_of_its_server() {
    let mut chat = chat(Preset::Crib);
    for id in ["mcp:github", "github", " github ", "builtin"] {
        assert_eq!(chat.json("load_tools", json!({"group_id": id}))["expanded"], true, "{id}");
    }
    let by_other_keys = [json!({"group": "linear"}), json!({"server": "linear"})];
    for asked in by_other_keys {
        assert_eq!(chat.json("load_tools", asked)["group_id"], "mcp:linear");
    }
}

#[test]
fn an_unknown_group_is_told_which_there_are() {
    let mut chat = chat(Preset::Crib);
    for (asked, error) in [
        (json!({}), "`group_id` is required."),
        (json!({"group_id": null}), "`group_id` is required."),
        (json!({"group_id": "  "}), "`group_id` is required."),
        (json!({"group_id": "null"}), "`group_id` is required."),
        (json!({"group_id": "GitHub"}), "Unknown group `GitHub`."),
        (json!({"group_id": "create_issue"}), "Unknown group `create_issue`."),
        (json!({"group_id": "a\nb"}), "Unknown group `a b`."),
    ] {
        let answer = chat.mistake("load_tools", asked.clone());
        assert_eq!(answer["error"], error, "{asked}");
        assert_eq!(answer["expanded"], false);
        // The host group's one tool is in the tool list already.
        let groups = json!(["builtin", "mcp:github", "mcp:linear", "mcp:reports"]);
        assert_eq!(answer["available_groups"], groups);
    }
}

#[test]
fn tool_names_may_be_absent_empty_text_repeated_or_unknown() {
    let load = |names: Value| {
        let mut chat = chat(Preset::Crib);
        let answer = chat.answer("load_tools", json!({"group_id": "linear", "tool_names": names}));
        (answer.is_error, parse(&answer.content), chat.loaded())
    };
    let all = ["mcp__linear__create_issue", "mcp__linear__list_teams"];
    for whole in [json!(null), json!([]), json!(""), json!("null"), json!([""]), json!(7)] {
        assert_eq!(load(whole.clone()).2, all, "{whole}");
    }
    for one in [
        json!(["list_teams"]),
        json!("list_teams"),
        json!(["list_teams", "list_teams", "mcp__linear__list_teams"]),
        json!(["linear.list_teams"]),
        json!("[\"list_teams\"]"),
    ] {
        let (is_error, answer, loaded) = load(one.clone());
        assert_eq!(loaded, all[1..], "{one}");
        assert_eq!((is_error, &answer["remaining"]), (false, &json!(1)));
        assert_eq!(answer["schemas"].as_array().unwrap().len(), 1);
    }
    let (is_error, answer, loaded) = load(json!(["zzz", "get_me"]));
    assert!(is_error && loaded.is_empty());
    assert_eq!(
        answer,
        json!({
            "group_id": "mcp:linear", "expanded": false, "tool_names": [], "remaining": 2,
            "schemas": [], "not_found": ["zzz", "get_me"],
            "hint": "Nothing was loaded. The group has: mcp__linear__create_issue, mcp__linear__list_teams",
        })
    );
}

#[test]
fn a_group_whose_loader_brings_nothing_is_said_to_be_empty() {
    let registry = office();
    registry.declare(Group::new("calendar").with_description("Meetings.")).unwrap();
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    chat.loaders.insert("calendar".into(), Ok(Vec::new()));
    let answer = chat.mistake("load_tools", json!({"group_id": "calendar"}));
    assert_eq!(answer["hint"], "Nothing was loaded: the group turned out to have no tools.");
    assert_eq!(answer["expanded"], false);
}

#[test]
fn catalog_and_loader_may_disagree_either_way() {
    let registry = office();
    let group = Group::new("calendar").with_tool_names(["list_events", "gone"]);
    registry.declare(group).unwrap();
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    let brought = ["list_events", "unannounced"].map(|own| tool(ToolName::host(own), "About."));
    chat.loaders.insert("calendar".into(), Ok(brought.to_vec()));
    let loaded = chat.answer("load_tools", json!({"group_id": "calendar"}));
    assert_eq!(
        loaded.effects.notes,
        ["group `calendar` lists gone, which its loader did not bring"]
    );
    let loaded = parse(&loaded.content);
    assert_eq!(names(&loaded["tool_names"]), ["list_events", "unannounced"]);
    assert_eq!((&loaded["missing"], &loaded["remaining"]), (&json!(["gone"]), &json!(0)));
    let call = |name: &str| json!({"tool_name": name, "arguments": {}});
    assert_eq!(chat.runs("call_tool", call("unannounced")).0, "unannounced");
    assert_eq!(
        chat.mistake("call_tool", call("gone"))["error"],
        "`gone` is listed in group `calendar`, but the group no longer has it."
    );
    assert_eq!(chat.asked, ["calendar".into()]);
}

#[test]
fn an_unopened_group_is_opened_by_search_where_no_verb_can_load_it() {
    let registry = || {
        let registry = office();
        let group = Group::new("calendar").with_description("Meetings and holidays.");
        registry.declare(group).unwrap();
        registry
    };
    let brought = || vec![tool(ToolName::host("list_holidays"), "List public holidays.")];
    for (preset, verb) in [
        (Preset::Stubs, "tool_search"),
        (Preset::Lazy, "tool_search"),
        (Preset::Regex, "tool_search_regex"),
    ] {
        let mut chat = Chat::new(deferring(preset), registry());
        chat.loaders.insert("calendar".into(), Ok(brought()));
        let answer = chat.answer(verb, json!({"query": "holidays"}));
        assert!(answer.content.contains("list_holidays"), "{preset}: {}", answer.content);
        assert_eq!(chat.asked, ["calendar".into()]);
        let mut failing = Chat::new(deferring(preset), registry());
        failing.loaders.insert("calendar".into(), Err("no route".to_owned()));
        let answer = failing.answer(verb, json!({"query": "holidays"}));
        assert!(!answer.is_error);
        if preset == Preset::Stubs {
            let expected = "Group `calendar` could not be loaded: no route. Nothing else matches.";
            assert!(answer.content.starts_with(expected), "{}", answer.content);
        }
    }
    // With `load_tools` at hand the model decides.
    let mut crib = Chat::new(deferring(Preset::Crib), registry());
    let answer = crib.json("tool_search", json!({"query": "holidays"}));
    let hint = answer["hint"].as_str().unwrap();
    assert!(hint.starts_with("These groups may have it, load them to see: calendar."), "{hint}");
    assert_eq!(crib.asked, []);
}

#[test]
fn long_results_are_cut_by_whole_entries_that_are_named() {
    let long = "x".repeat(500);
    let tools = [("a", &*long), ("b", &*long), ("c", &*long), ("d", &*long)];
    let limited = |preset| {
        let mut settings = deferring(preset);
        settings.result_bytes = 1_200;
        Chat::new(settings, registry([server("s", &tools)]))
    };
    let mut crib = limited(Preset::Crib);
    let loaded = crib.json("load_tools", json!({"group_id": "s"}));
    assert_eq!(names(&loaded["schemas"]), ["mcp__s__a", "mcp__s__b"]);
    assert_eq!(crib.loaded(), ["mcp__s__a", "mcp__s__b"], "what was left out is not loaded");
    assert_eq!((&loaded["tool_names"], &loaded["remaining"]), (&json!(crib.loaded()), &json!(2)));
    let rest = crib.json("load_tools", json!({"group_id": "s", "tool_names": loaded["omitted"]}));
    assert_eq!(
        (names(&rest["schemas"]), &rest["remaining"]),
        (vec!["mcp__s__c", "mcp__s__d"], &json!(0))
    );
    assert_eq!(loaded["omitted"], json!(["mcp__s__c", "mcp__s__d"]));
    assert_eq!(
        loaded["hint"],
        "Some schemas were left out because they are long: ask for them by `tool_names`."
    );
    let mut crib = limited(Preset::Crib);
    let found = crib.json("tool_search", json!({"query": "select:a,b,c,d"}));
    assert_eq!(names(&found["tools"]), ["mcp__s__a", "mcp__s__b"]);
    assert_eq!(crib.loaded(), ["mcp__s__a", "mcp__s__b"], "what was left out is not loaded");
    assert!(
        found["hint"].as_str().unwrap().starts_with(
            "Left out because their definitions are long; ask for them with select: mcp__s__c, \
             mcp__s__d."
        ),
        "{found}"
    );
    let mut regex = limited(Preset::Regex);
    let found = regex.json("tool_search_regex", json!({"pattern": "x"}));
    assert_eq!(names(&found["tools"]), ["mcp__s__a", "mcp__s__b"]);
    assert_eq!(found["total_matches"], 4);
    assert_eq!(regex.loaded().len(), 2);
    let listed = limited(Preset::Lazy).json("tool_search", json!({"query": "/x/"}));
    assert_eq!(names(&listed["results"]), ["mcp__s__a", "mcp__s__b"]);
    assert!(listed["hint"].as_str().unwrap().contains("2 more match"));
    // One entry is always shown, however long.
    let alone = limited(Preset::Crib).json("tool_search", json!({"query": "select:a"}));
    assert_eq!(alone["tools"][0]["description"], long);
}
