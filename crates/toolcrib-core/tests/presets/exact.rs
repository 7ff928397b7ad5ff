//! Preset `exact`, after the pull request that brought super-agent-coding its `tool_search`.

use serde_json::json;
use toolcrib_core::{Preset, Registry, Settings, ToolName};

use crate::support::{Chat, golden, golden_json, names, registry, server, tool};

fn github_server() -> Registry {
    let registry = registry([server(
        "github",
        &[
            ("list_issues", "List issues of a repository. Newest first."),
            ("create_issue", "Create an issue."),
            ("get_me", ""),
        ],
    )]);
    registry
        .register(tool(ToolName::builtin("read_file"), "Read a file."))
        .expect("the name is free");
    registry
}

#[test]
fn lists_names_with_hints_and_fetches_by_exact_name() {
    let mut chat = Chat::new(Settings::preset(Preset::Exact), github_server());
    golden("exact_section.txt", &chat.section());
    assert_eq!(chat.tools(), ["tool_search", "read_file"]);
    let answer = chat.answer("tool_search", json!({"query": "mcp__github__list_issues"}));
    golden_json("exact_search.json", &answer.content);
    // It is in the next request, which the original never managed.
    assert_eq!(chat.tools(), ["tool_search", "read_file", "mcp__github__list_issues"]);
    assert_eq!(chat.runs("mcp__github__list_issues", json!({})).0, "github/list_issues");
}

#[test]
fn takes_several_names_and_reports_each_miss() {
    let mut chat = Chat::new(Settings::preset(Preset::Exact), github_server());
    let query = "mcp__github__get_me, mcp__github__create_isue ,read_file";
    let answer = chat.answer("tool_search", json!({"query": query}));
    golden_json("exact_several.json", &answer.content);
    // `select:` is not needed here, and does no harm.
    let selected = chat.json("tool_search", json!({"query": "select:mcp__github__get_me,nope"}));
    assert_eq!(names(&selected["tools"]), ["mcp__github__get_me"]);
    assert_eq!(selected["not_found"], json!(["nope"]));
    let nothing = chat.answer("tool_search", json!({"query": "please list my issues"}));
    golden_json("exact_nothing.json", &nothing.content);
}

#[test]
fn counts_active_and_deferred_tokens() {
    let mut chat = Chat::new(Settings::preset(Preset::Exact), github_server());
    let before = chat.stats();
    chat.json("tool_search", json!({"query": "mcp__github__list_issues"}));
    let after = chat.stats();
    assert_eq!((before.loaded, before.deferred), (1, 3));
    assert_eq!((after.loaded, after.deferred), (2, 2));
    let view = chat.view();
    let listed = view.tools().find(|tool| tool.name().tool() == "list_issues").unwrap();
    assert_eq!(after.tokens.active - before.tokens.active, listed.tokens());
    assert_eq!(before.tokens.deferred - after.tokens.deferred, listed.tokens());
    assert_eq!(after.tokens.full, before.tokens.full);
}
