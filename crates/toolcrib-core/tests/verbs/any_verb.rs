//! What holds for every verb.

use serde_json::json;
use toolcrib_core::{Engine, Policy, Preset, Settings, Step, StrategyChoice};

use crate::support::{Chat, deferring, denying, names, parse, server};
use crate::{chat, office};

#[test]
fn a_verb_of_another_preset_is_an_unknown_tool() {
    for (preset, verb) in [
        (Preset::Crib, "tool_search_regex"),
        (Preset::Regex, "load_tools"),
        (Preset::Lazy, "call_tool"),
        (Preset::Groups, "tool_search"),
    ] {
        let answer = chat(preset).mistake(verb, json!({"query": "x", "group_id": "github"}));
        let error = answer["error"].as_str().unwrap();
        assert!(error.starts_with(&format!("Unknown tool `{verb}`.")), "{error}");
    }
}

#[test]
fn a_denied_verb_is_neither_offered_nor_answered() {
    let mut chat = Chat::under(denying(&["load_tools"]), deferring(Preset::Crib), office());
    assert_eq!(chat.tools(), ["tool_search", "call_tool", "lookup"]);
    assert!(!chat.section().contains("load_tools"));
    let answer = chat.mistake("load_tools", json!({"group_id": "github"}));
    assert!(answer["error"].as_str().unwrap().starts_with("Unknown tool `load_tools`."));
    let through = json!({"tool_name": "load_tools", "arguments": {"group_id": "github"}});
    assert!(chat.answer("call_tool", through).is_error);
    assert_eq!(chat.loaded(), [""; 0]);
}

#[test]
fn what_the_model_is_told_names_no_verb_it_does_not_have() {
    let mut chat = Chat::under(denying(&["tool_search"]), deferring(Preset::Crib), office());
    assert_eq!(chat.tools(), ["load_tools", "call_tool", "lookup"]);
    assert!(!chat.section().contains("tool_search"), "{}", chat.section());
    let verbs: Vec<String> =
        chat.prepare().tools.iter().map(|verb| verb.description().to_owned()).collect();
    assert!(!verbs.join(" ").contains("tool_search"), "{verbs:?}");
    let answer = chat.mistake("zzz", json!({}));
    assert_eq!(answer["error"], "Unknown tool `zzz`. Look for it with `load_tools`.");
    chat.registry.replace_server(server("late", &[("x", "New.")]));
    chat.turn();
    let announced = chat.prepare().announcements.join(" ");
    assert!(announced.contains("`load_tools`") && !announced.contains("tool_search"));
    // With no verb to find tools by, a call is what is left.
    let policy = denying(&["tool_search", "load_tools"]);
    let mut chat = Chat::under(policy, deferring(Preset::Crib), office());
    assert_eq!(chat.tools(), ["call_tool", "lookup"]);
    let shown = format!("{} {}", chat.section(), chat.prepare().tools[0].description());
    assert!(shown.contains("with a call of the tool itself; `call_tool("));
    assert!(!shown.contains("tool_search") && !shown.contains("load_tools"), "{shown}");
}

#[test]
fn limits_in_the_settings_are_the_ones_the_model_reads() {
    let mut settings = deferring(Preset::Crib);
    (settings.search_limit, settings.search_limit_max) = (3, 8);
    let mut chat = Chat::new(settings, office());
    let verb = parse(chat.prepare().tools[0].neutral().get());
    let limit = &verb["input_schema"]["properties"]["limit"];
    assert_eq!(limit["default"], 3);
    assert_eq!(limit["description"], "How many to return, at most 8.");
    assert_eq!(names(&chat.json("tool_search", json!({"query": "report"}))["tools"]).len(), 3);
}

#[test]
fn text_of_any_characters_comes_back_unharmed() {
    let odd =
        "\"quoted\" \\back\\ \u{0}\u{7}\u{1b} \u{202e}rtl 🦀 𝔘 </function></functions> ${x} é";
    for (preset, verb, arguments) in [
        (Preset::Crib, "tool_search", json!({"query": format!("select:{odd}")})),
        (Preset::Stubs, "tool_search", json!({"query": odd})),
        (Preset::Exact, "tool_search", json!({"query": odd})),
        (Preset::Lazy, "tool_search", json!({"name": odd})),
        (Preset::Lazy, "tool_search", json!({"query": odd})),
        (Preset::Regex, "tool_search_regex", json!({"pattern": odd})),
        (Preset::Groups, "load_tools", json!({"group_id": odd})),
        (Preset::Crib, "load_tools", json!({"group_id": "github", "tool_names": [odd]})),
        (Preset::Crib, "call_tool", json!({"tool_name": odd, "arguments": {"a": odd}})),
    ] {
        let content = chat(preset).answer(verb, arguments).content;
        if preset != Preset::Stubs {
            parse(&content);
        }
    }
    let pattern = "(🦀|\\\\|\"|\n)";
    let answer = chat(Preset::Regex).json("tool_search_regex", json!({"pattern": pattern}));
    assert_eq!(answer["pattern"], pattern);
    let call = json!({"tool_name": "get_me", "arguments": {"text": odd}});
    assert_eq!(chat(Preset::Crib).runs("call_tool", call).1, json!({"text": odd}));
}

#[test]
fn a_search_and_the_tool_it_finds_work_in_one_batch_in_either_order() {
    for preset in [Preset::Crib, Preset::Stubs, Preset::Lazy] {
        let mut chat = chat(preset);
        let search = match preset {
            Preset::Lazy => json!({"name": "get_me"}),
            _ => json!({"query": "select:get_me"}),
        };
        assert!(!chat.answer("tool_search", search.clone()).is_error);
        assert_eq!(chat.runs("mcp__github__get_me", json!({})).0, "github/get_me");
        let mut reversed = self::chat(preset);
        assert_eq!(reversed.runs("mcp__github__get_me", json!({})).0, "github/get_me");
        assert!(!reversed.answer("tool_search", search).is_error);
    }
}

#[test]
fn a_verb_sent_through_every_strategy_tells_how_to_call_what_it_found() {
    for (strategy, hint) in [
        (StrategyChoice::Dispatch, "Call them with call_tool(tool_name=…, arguments=…)."),
        (StrategyChoice::Inject, "They are in your tool list now: call them by name."),
    ] {
        let mut settings = Settings::preset(Preset::Stubs);
        settings.strategy = strategy;
        let mut chat = Chat::under(Policy::default(), settings, office());
        let content = chat.answer("tool_search", json!({"query": "select:get_me"})).content;
        assert!(content.ends_with(hint), "{content}");
        let call = json!({"tool_name": "get_me", "arguments": {}});
        let through = chat.step("call_tool", call);
        assert_eq!(matches!(through, Step::Run(_)), strategy == StrategyChoice::Dispatch);
        assert_eq!(chat.runs("mcp__github__get_me", json!({})).0, "github/get_me");
    }
}

#[test]
fn a_driver_learns_whether_something_asked_for_was_not_there() {
    for (preset, verb, arguments, missed) in [
        (Preset::Crib, "tool_search", json!({"query": "issue"}), false),
        (Preset::Crib, "tool_search", json!({"query": "zebra"}), true),
        (Preset::Crib, "tool_search", json!({"query": "select:create_issue,zebra"}), true),
        (Preset::Crib, "tool_search", json!({}), false),
        (Preset::Crib, "load_tools", json!({"group_id": "github"}), false),
        (Preset::Crib, "load_tools", json!({"group_id": "zebra"}), true),
        (Preset::Crib, "call_tool", json!({"tool_name": "zebra", "arguments": {}}), true),
        (Preset::Crib, "zebra", json!({}), true),
        (Preset::Regex, "tool_search_regex", json!({"pattern": "issue"}), false),
        (Preset::Regex, "tool_search_regex", json!({"pattern": "zebra"}), true),
        (Preset::Lazy, "tool_search", json!({"query": "issue"}), false),
        (Preset::Lazy, "tool_search", json!({"query": "zebra"}), true),
        (Preset::Lazy, "tool_search", json!({"name": "zebra"}), true),
    ] {
        let answer = chat(preset).answer(verb, arguments.clone());
        assert_eq!(answer.effects.missed, missed, "{verb} {arguments}");
    }
}

#[test]
fn the_verbs_are_known_before_any_tool_is() {
    for preset in Preset::ALL {
        let engine = Engine::new(deferring(preset)).unwrap();
        let mut chat = chat(preset);
        let shown = chat.prepare().tools;
        let verbs = engine.verbs(&Policy::default());
        assert_eq!(verbs[..], shown[..verbs.len()], "{preset}");
        assert!(!verbs.is_empty());
    }
    let engine = Engine::new(deferring(Preset::Regex)).unwrap();
    assert_eq!(engine.verbs(&denying(&["tool_search_regex"])), []);
}
