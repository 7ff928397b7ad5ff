//! Preset `stubs`, after the documentation of construct's deferred MCP tools.

use indexmap::IndexMap;
use serde_json::json;
use toolcrib_core::{Preset, ProviderClass, Registry, Settings, ToolName};

use crate::support::{Chat, golden, registry, server, tool};

fn operator_servers() -> Registry {
    let registry = registry([
        server(
            "operator",
            &[
                ("create_agent", "Create an agent.\nIts role is given as text."),
                ("list_agents", "List the agents that run."),
                ("get_weather", "Tell the weather."),
            ],
        ),
        server(
            "memory",
            &[("engage", "Recall what matters now."), ("bulk_import", "Import many memories.")],
        ),
    ]);
    registry
        .register(tool(ToolName::builtin("shell"), "Run a command."))
        .expect("the name is free");
    registry
}

#[test]
fn lists_mcp_tools_in_the_prompt_and_keeps_other_tools_in_full() {
    let mut chat = Chat::new(Settings::preset(Preset::Stubs), operator_servers());
    assert_eq!(chat.tools(), ["tool_search", "shell"]);
    golden("stubs_section.txt", &chat.section());
    let mut settings = Settings::preset(Preset::Stubs);
    settings.describe_names = true;
    let mut described = Chat::new(settings, operator_servers());
    golden("stubs_section_described.txt", &described.section());
    // No MCP tools, no section and no verb.
    let registry = Registry::default();
    registry.register(tool(ToolName::builtin("shell"), "Run a command.")).unwrap();
    let mut empty = Chat::new(Settings::preset(Preset::Stubs), registry);
    assert_eq!((empty.section().as_str(), empty.tools()), ("", vec!["shell".to_owned()]));
}

#[test]
fn search_returns_schemas_and_activates_them_for_the_conversation() {
    let mut chat = Chat::new(Settings::preset(Preset::Stubs), operator_servers());
    let found = chat.answer("tool_search", json!({"query": "agent", "max_results": 5}));
    golden("stubs_search.txt", &found.content);
    assert_eq!(
        chat.tools(),
        ["tool_search", "shell", "mcp__operator__create_agent", "mcp__operator__list_agents"]
    );
    let run = chat.runs("mcp__operator__create_agent", json!({"text": "x"}));
    assert_eq!(run.0, "operator/create_agent");
    // Models strip the prefix: a name only one tool has is enough.
    assert_eq!(chat.runs("list_agents", json!({})).0, "operator/list_agents");
}

#[test]
fn select_fetches_exactly_these_and_names_the_misses() {
    let mut chat = Chat::new(Settings::preset(Preset::Stubs), operator_servers());
    let query = "select:mcp__memory__engage,get_weather,mcp__memory__nothing";
    let found = chat.answer("tool_search", json!({"query": query, "max_results": 1}));
    golden("stubs_select.txt", &found.content);
    assert_eq!(chat.loaded(), ["mcp__memory__engage", "mcp__operator__get_weather"]);
    // Fetching again changes nothing and shows the schema again.
    let before = chat.prepare();
    let again = chat.answer("tool_search", json!({"query": "select:engage"}));
    assert!(again.content.contains("<function>{\"name\":\"mcp__memory__engage\""));
    assert_eq!(chat.prepare(), before);
}

#[test]
fn keeps_the_sets_of_a_local_model_and_of_a_seat_eager() {
    let mut settings = Settings::preset(Preset::Stubs);
    settings.eager.sets = IndexMap::from([
        ("operator".to_owned(), vec!["create_agent".to_owned(), "list_agents".to_owned()]),
        ("memory".to_owned(), vec!["engage".to_owned()]),
    ]);
    settings.eager.local = vec!["operator".to_owned()];
    let seat = ("operator seat".to_owned(), vec!["operator".to_owned(), "memory".to_owned()]);
    settings.eager.profiles = IndexMap::from([seat]);
    let tools = |settings: &Settings| Chat::new(settings.clone(), operator_servers()).tools();
    assert_eq!(tools(&settings), ["tool_search", "shell"]);
    settings.provider_class = ProviderClass::Local;
    assert_eq!(
        tools(&settings),
        ["tool_search", "mcp__operator__create_agent", "mcp__operator__list_agents", "shell"]
    );
    settings.provider_class = ProviderClass::Cloud;
    settings.profile = Some("operator seat".to_owned());
    assert_eq!(
        tools(&settings),
        [
            "tool_search",
            "mcp__memory__engage",
            "mcp__operator__create_agent",
            "mcp__operator__list_agents",
            "shell"
        ]
    );
}
