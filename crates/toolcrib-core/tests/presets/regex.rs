//! Preset `regex`, after the documentation of Logicore's `MCPAgent`.

use serde_json::json;
use toolcrib_core::{
    Deferral, Policy, Preset, Registry, ServerTools, Settings, ToolName, ToolSpec, schema_of,
};

use crate::support::{Chat, deferring, golden_json, names, tool};

/// Eight tools that come with the agent, and as many of a server as asked.
fn eight_and(mcp: usize) -> Registry {
    let registry = Registry::default();
    let about = [
        ("read_file", "Read a file from disk."),
        ("write_file", "Write content to a file."),
        ("delete_file", "Delete a file."),
        ("list_directory", "List what a directory holds."),
        ("run_command", "Run a shell command."),
        ("web_search", "Search the web."),
        ("get_time", "Tell the time."),
        ("copy_file", "Copy a file."),
    ];
    let specs = about.map(|(name, about)| tool(ToolName::builtin(name), about));
    registry.register_all(specs).expect("the name is free");
    let specs = (0..mcp).map(|n| tool(ToolName::mcp("crm", format!("contact_{n}")), "A contact."));
    registry.replace_server(ServerTools::new("crm", specs));
    registry
}

#[test]
fn sends_everything_below_fifteen_tools_and_one_verb_from_there_on() {
    let mut normal = Chat::new(Settings::preset(Preset::Regex), eight_and(4));
    assert_eq!(normal.tools().len(), 12);
    assert_eq!(normal.session.is_deferred(), Some(false));
    let mut deferred = Chat::new(Settings::preset(Preset::Regex), eight_and(10));
    assert_eq!(deferred.tools(), ["tool_search_regex"]);
    assert_eq!(deferred.section(), "");
    let stats = deferred.stats();
    assert_eq!((stats.deferred_mode, stats.auto_deferred), (true, true));
    let mut just_below = Chat::new(Settings::preset(Preset::Regex), eight_and(6));
    assert_eq!(just_below.tools().len(), 14);
    let mut at_threshold = Chat::new(Settings::preset(Preset::Regex), eight_and(7));
    assert_eq!(at_threshold.tools().len(), 1);
}

#[test]
fn defers_below_the_threshold_when_told_to() {
    let mut chat = Chat::new(deferring(Preset::Regex), eight_and(4));
    assert_eq!(chat.tools(), ["tool_search_regex"]);
    let stats = chat.stats();
    assert_eq!((stats.deferred_mode, stats.auto_deferred), (true, false));
}

#[test]
fn offers_the_documented_verb() {
    let mut chat = Chat::new(Settings::preset(Preset::Regex), eight_and(10));
    golden_json("regex_verb.json", chat.prepare().tools[0].neutral().get());
}

#[test]
fn search_answers_field_by_field_and_loads_what_it_returns() {
    let mut chat = Chat::new(Settings::preset(Preset::Regex), eight_and(10));
    let answer = chat.answer("tool_search_regex", json!({"pattern": "file"}));
    golden_json("regex_search.json", &answer.content);
    // They can be called in the same user turn, not only after the next message.
    assert_eq!(
        chat.tools(),
        ["tool_search_regex", "copy_file", "delete_file", "read_file", "write_file"]
    );
    assert_eq!(chat.runs("read_file", json!({"text": "a"})).0, "read_file");
    // A second search finds them loaded and loads nothing.
    let again = chat.json("tool_search_regex", json!({"pattern": "FILE"}));
    assert_eq!((&again["total_matches"], &again["newly_loaded"]), (&json!(4), &json!(0)));
    let nothing = chat.answer("tool_search_regex", json!({"pattern": "^zebra$"}));
    assert!(!nothing.is_error);
    golden_json("regex_no_match.json", &nothing.content);
    let broken = chat.answer("tool_search_regex", json!({"pattern": "(file"}));
    assert!(broken.is_error);
    golden_json("regex_bad_pattern.json", &broken.content);
}

#[test]
fn reports_the_true_total_and_loads_only_the_rows_returned() {
    let mut chat = Chat::new(Settings::preset(Preset::Regex), eight_and(80));
    let answer = chat.answer("tool_search_regex", json!({"pattern": ".*", "limit": 2}));
    golden_json("regex_more.json", &answer.content);
    assert_eq!(chat.loaded().len(), 2);
    let all = chat.json("tool_search_regex", json!({"pattern": ".*", "limit": 5000}));
    assert_eq!((names(&all["tools"]).len(), &all["total_matches"]), (50, &json!(88)));
}

#[test]
fn registers_a_raw_schema_deferred_or_preloaded() {
    let custom = json!({"type": "function", "function": {
        "name": "query_database",
        "description": "Run a SQL query against the production database.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "SQL query string"}},
            "required": ["query"]
        }
    }});
    let registry = eight_and(10);
    registry.register_schema(&custom.to_string(), Deferral::Deferred).unwrap();
    let mut chat = Chat::new(Settings::preset(Preset::Regex), registry);
    assert_eq!(chat.tools(), ["tool_search_regex"]);
    let found = chat.json("tool_search_regex", json!({"pattern": "sql|database"}));
    assert_eq!(names(&found["tools"]), ["query_database"]);

    let registry = eight_and(10);
    registry.register_schema(&custom.to_string(), Deferral::Eager).unwrap();
    let mut chat = Chat::new(Settings::preset(Preset::Regex), registry);
    assert_eq!(chat.tools(), ["tool_search_regex", "query_database"]);
}

#[test]
fn preloads_tools_by_name() {
    let mut chat =
        Chat::unsettled(Policy::default(), Settings::preset(Preset::Regex), eight_and(10));
    let view = chat.view();
    let missing =
        chat.engine.preload(&mut chat.session, &view, ["read_file", "list_directory", "nope"]);
    assert_eq!(missing, ["nope"]);
    assert_eq!(chat.tools(), ["tool_search_regex", "list_directory", "read_file"]);
    // In the middle of a conversation they are put behind what is there.
    chat.engine.preload(&mut chat.session, &view, ["get_time", "copy_file"]);
    assert_eq!(
        chat.tools(),
        ["tool_search_regex", "list_directory", "read_file", "get_time", "copy_file"]
    );
}

#[test]
fn preloads_a_function_registered_while_deferring() {
    #[derive(schemars::JsonSchema)]
    #[allow(dead_code, reason = "only its schema is used")]
    struct Alert {
        message: String,
    }
    let mut chat = Chat::new(Settings::preset(Preset::Regex), eight_and(10));
    let send_alert = ToolSpec::new(ToolName::host("send_alert"), schema_of::<Alert>())
        .with_description("Send an alert message to the operations team.")
        .into_immediate();
    chat.registry.register(send_alert).unwrap();
    let report = chat.turn();
    assert_eq!(report.preloaded, ["send_alert".into()]);
    assert_eq!(chat.tools(), ["tool_search_regex", "send_alert"]);
    let run = chat.runs("send_alert", json!({"message": "disk full"}));
    assert_eq!(run, ("send_alert".to_owned(), json!({"message": "disk full"})));
}

#[test]
fn stats_have_the_documented_fields() {
    let mut chat = Chat::new(Settings::preset(Preset::Regex), eight_and(10));
    chat.json("tool_search_regex", json!({"pattern": "file"}));
    let mut stats = serde_json::to_value(chat.stats()).unwrap();
    stats.as_object_mut().unwrap().shift_remove("tokens").unwrap();
    golden_json("regex_stats.json", &stats.to_string());
}
