//! A verb of its own to call tools that read, that write and that may destroy.

use serde_json::json;
use toolcrib_core::{Annotations, Call, Policy, Preset, Registry, ServerTools, Settings, ToolName};

use crate::support::{Chat, deferring, denying, names, tool};

fn registry() -> Registry {
    let says =
        |read_only, destructive| Annotations { read_only, destructive, ..Annotations::default() };
    let spec = |own: &str, says: Annotations| {
        tool(ToolName::mcp("disk", own), "Does something with a disk").with_annotations(says)
    };
    let registry = Registry::default();
    registry.replace_server(ServerTools::new(
        "disk",
        [
            spec("look", says(Some(true), None)),
            spec("mark", says(None, Some(false))),
            spec("wipe", says(None, Some(true))),
            spec("silent", says(None, None)),
        ],
    ));
    registry
}

fn settings(preset: Preset) -> Settings {
    let mut settings = deferring(preset);
    settings.strategy = toolcrib_core::StrategyChoice::Dispatch;
    settings.split_calls = true;
    settings
}

fn chat(policy: Policy) -> Chat {
    Chat::under(policy, settings(Preset::Crib), registry())
}

const VERBS: [&str; 3] = ["call_read_tool", "call_write_tool", "call_destructive_tool"];
const TOOLS: [(&str, &str); 4] = [
    ("look", "call_read_tool"),
    ("mark", "call_write_tool"),
    ("wipe", "call_destructive_tool"),
    ("silent", "call_destructive_tool"),
];

#[test]
fn each_tool_runs_by_its_own_verb_and_by_no_other() {
    let mut chat = chat(Policy::default());
    assert_eq!(chat.tools(), ["tool_search", "load_tools", VERBS[0], VERBS[1], VERBS[2]]);
    for (own, right) in TOOLS {
        for verb in VERBS {
            let call = json!({"tool_name": own, "arguments": {"text": "x"}});
            if verb == right {
                assert_eq!(chat.runs(verb, call).0, format!("disk/{own}"));
                continue;
            }
            let answer = chat.mistake(verb, call);
            assert_eq!(answer["call_with"], right, "{own} by {verb}");
            let error = answer["error"].as_str().unwrap();
            assert!(
                error.ends_with(&format!("call it with `{right}`. Nothing was run.")),
                "{error}"
            );
        }
        // Nor is it called past the verbs.
        for direct in [own.to_owned(), format!("mcp__disk__{own}"), format!("functions.{own}")] {
            assert_eq!(chat.mistake(&direct, json!({}))["call_with"], right);
        }
    }
    let answer = chat.answer("call_tool", json!({"tool_name": "look", "arguments": {}}));
    assert!(answer.content.contains("Unknown tool `call_tool`"), "{}", answer.content);
    let itself = json!({"tool_name": "call_write_tool", "arguments": {}});
    assert!(
        chat.answer("call_read_tool", itself).content.contains("call_read_tool can't call itself")
    );
}

#[test]
fn results_say_which_verb_to_use() {
    for preset in Preset::ALL {
        let mut chat = Chat::under(Policy::default(), settings(preset), registry());
        let told = match preset {
            Preset::Groups => chat.answer("load_tools", json!({"group_id": "disk"})),
            // Names only: the wrong verb is answered with the right one.
            Preset::Regex => continue,
            Preset::Lazy => chat.answer("tool_search", json!({"name": "mcp__disk__look"})),
            Preset::Exact => chat.answer("tool_search", json!({"query": "mcp__disk__look"})),
            _ => chat.answer("tool_search", json!({"query": "select:look,mark"})),
        };
        assert!(
            told.content.contains(r#""call_with":"call_read_tool""#),
            "{preset}: {}",
            told.content
        );
        assert!(!chat.section().contains("call_tool("), "{preset}");
    }
    let found = chat(Policy::default()).json("tool_search", json!({"query": "disk"}));
    assert_eq!(names(&found["tools"]).len(), 4);
    assert!(found["hint"].as_str().unwrap().contains("`call_with`"), "{found}");
}

#[test]
fn what_is_in_the_list_is_called_by_its_name() {
    let mut settings = settings(Preset::Crib);
    settings.preload = vec!["wipe".to_owned()];
    let mut chat = Chat::new(settings, registry());
    assert_eq!(chat.runs("mcp__disk__wipe", json!({})).0, "disk/wipe");
    let wrong = json!({"tool_name": "wipe", "arguments": {}});
    assert_eq!(chat.mistake("call_read_tool", wrong)["call_with"], "call_destructive_tool");
}

#[test]
fn a_verb_that_is_denied_takes_its_tools_with_it() {
    let mut chat = chat(denying(&["call_destructive_tool"]));
    assert_eq!(chat.tools()[2..], ["call_read_tool", "call_write_tool"]);
    for verb in ["call_read_tool", "call_write_tool", "wipe"] {
        let answer = chat.mistake(verb, json!({"tool_name": "wipe", "arguments": {}}));
        assert!(answer.get("call_with").is_none(), "{answer}");
        assert!(answer["error"].as_str().unwrap().contains("nothing that does may be called here"));
    }
    let none = denying(&["call_*"]);
    let mut chat = Chat::under(none, settings(Preset::Crib), registry());
    // Without a way to call through, what is loaded joins the list.
    assert_eq!(chat.tools(), ["tool_search", "load_tools"]);
}

#[test]
fn a_denied_tool_is_unknown_by_every_verb() {
    let mut denied = chat(denying(&["wipe"]));
    let without = registry();
    without.remove(&ToolName::mcp("disk", "wipe"));
    let mut absent = Chat::new(settings(Preset::Crib), without);
    for verb in VERBS {
        let call = json!({"tool_name": "disk.wipe", "arguments": {}});
        let is = denied.answer(verb, call.clone());
        assert_eq!(is.content, absent.answer(verb, call).content);
        assert_eq!(is.effects.denied, [ToolName::mcp("disk", "wipe")]);
    }
}

#[test]
fn a_session_goes_on_with_the_verbs_it_was_shown() {
    let mut chat = chat(Policy::default());
    chat.run("call_read_tool", json!({"tool_name": "look", "arguments": {}}));
    chat.restart();
    assert_eq!(chat.tools()[2..], VERBS);
    chat.run("call_read_tool", json!({"tool_name": "look", "arguments": {}}));
    let call = Call::new("call_write_tool", json!({"tool_name": "x", "arguments": {"a": 1}}));
    assert_eq!(call.target(), Call::new("x", json!({"a": 1})));
}
