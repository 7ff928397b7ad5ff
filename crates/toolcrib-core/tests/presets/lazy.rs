//! Preset `lazy`, after the documentation of moltis' tool registry.

use serde_json::json;
use toolcrib_core::{Mode, Preset, Registry, Settings, ToolName};

use crate::support::{Chat, golden_json, names, registry, server, tool};

fn memory_tools() -> Registry {
    let registry = registry([server("github", &[("search", "Search GitHub")])]);
    let spec = |(name, about): (&str, &str)| tool(ToolName::builtin(name), about);
    let builtins = [
        ("exec", "Execute a command"),
        ("memory_search", "Search the long-term memory."),
        ("memory_save", "Keep something in memory."),
        ("web_fetch", "Fetch a page."),
    ];
    registry.register_all(builtins.map(spec)).expect("the name is free");
    registry
}

#[test]
fn lists_by_query_and_activates_by_name() {
    let mut chat = Chat::new(Settings::preset(Preset::Lazy), memory_tools());
    assert_eq!((chat.tools(), chat.section()), (vec!["tool_search".to_owned()], String::new()));
    golden_json("lazy_verb.json", chat.prepare().tools[0].neutral().get());

    let listed = chat.answer("tool_search", json!({"query": "memory"}));
    golden_json("lazy_query.json", &listed.content);
    assert_eq!(chat.loaded(), [""; 0], "a query activates nothing");

    let activated = chat.answer("tool_search", json!({"name": "memory_search"}));
    golden_json("lazy_name.json", &activated.content);
    // On the next iteration the model calls it directly.
    assert_eq!(chat.tools(), ["tool_search", "memory_search"]);
    assert_eq!(chat.runs("memory_search", json!({"text": "x"})).0, "memory_search");

    let unknown = chat.answer("tool_search", json!({"name": "memory_serch"}));
    assert!(unknown.is_error);
    golden_json("lazy_unknown.json", &unknown.content);
}

#[test]
fn lists_at_most_fifteen_and_says_how_many_more_there_are() {
    let many: Vec<(String, &str)> =
        (0..40).map(|n| (format!("memory_{n:02}"), "Keeps something.")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, about)| (&**name, *about)).collect();
    let mut chat = Chat::new(Settings::preset(Preset::Lazy), registry([server("m", &many)]));
    let listed = chat.json("tool_search", json!({"query": "memory", "limit": 100}));
    assert_eq!(names(&listed["results"]).len(), 15);
    assert_eq!(
        listed["hint"],
        "Call tool_search with `name` to get a tool's schema and activate it. 25 more match: say \
         more precisely what you need."
    );
}

#[test]
fn prefers_a_real_name_to_a_query_and_asks_for_one_of_the_two() {
    let mut chat = Chat::new(Settings::preset(Preset::Lazy), memory_tools());
    let both = chat.json("tool_search", json!({"name": "exec", "query": "memory"}));
    assert_eq!((&both["activated"], &both["name"]), (&json!(true), &json!("exec")));
    for name in [json!(""), json!("  "), json!("null"), json!(null)] {
        let filled = chat.json("tool_search", json!({"name": name, "query": "memory"}));
        assert_eq!(names(&filled["results"]), ["memory_save", "memory_search"]);
    }
    let neither = chat.mistake("tool_search", json!({}));
    assert_eq!(
        neither["error"],
        "Provide either `name`, to activate a tool, or `query`, to look for tools by what they do."
    );
}

#[test]
fn triples_the_iteration_limit_and_full_does_not() {
    let chat = Chat::new(Settings::preset(Preset::Lazy), memory_tools());
    assert_eq!(chat.engine.iteration_limit(&chat.session, 25), 75);
    let mut settings = Settings::preset(Preset::Lazy);
    settings.mode = Mode::Full;
    let mut chat = Chat::new(settings, memory_tools());
    assert_eq!(chat.engine.iteration_limit(&chat.session, 25), 25);
    assert_eq!(
        chat.tools(),
        ["exec", "mcp__github__search", "memory_save", "memory_search", "web_fetch"]
    );
}

#[test]
fn schemas_are_listed_with_their_source() {
    let view = memory_tools().catalog().view_all();
    let listed = serde_json::to_string(&view.schemas()[..2]).unwrap();
    golden_json("schemas_with_source.json", &listed);
}
