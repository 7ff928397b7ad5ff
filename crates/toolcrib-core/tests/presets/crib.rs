//! Preset `crib`, our own.

use serde_json::json;
use toolcrib_core::{Deferral, Group, Preset, Registry, StrategyChoice, ToolName};

use crate::support::{Chat, deferring, golden, golden_json, registry, server, tool};

fn office() -> Registry {
    let github = server(
        "github",
        &[
            ("create_issue", "Create an issue in a repository."),
            ("list_issues", "List issues of a repository."),
            ("merge_pull_request", "Merge a pull request."),
        ],
    );
    let slack = server("slack", &[("post_message", "Post a message to a channel.")]);
    let registry = registry([
        github.with_title("GitHub").with_description("Repositories, issues and pull requests."),
        slack.with_title("Slack"),
    ]);
    registry
        .register(tool(ToolName::builtin("read_file"), "Read a file."))
        .expect("the name is free");
    let lookup = tool(ToolName::host("lookup"), "Look something up.");
    registry.register(lookup.with_deferral(Deferral::Eager)).expect("the name is free");
    registry
        .declare(Group::new("calendar").with_description("Meetings and holidays."))
        .expect("the id is free");
    registry
}

#[test]
fn lists_groups_and_offers_three_verbs() {
    let mut chat = Chat::new(deferring(Preset::Crib), office());
    golden("crib_section.txt", &chat.section());
    assert_eq!(chat.tools(), ["tool_search", "load_tools", "call_tool", "lookup"]);
    let verbs: Vec<String> =
        chat.prepare().tools[..3].iter().map(|verb| verb.neutral().get().to_owned()).collect();
    golden_json("crib_verbs.json", &format!("[{}]", verbs.join(",")));
}

#[test]
fn searches_loads_and_calls_without_touching_the_prefix() {
    let mut chat = Chat::new(deferring(Preset::Crib), office());
    let before = chat.prepare().fingerprint();
    let answer = chat.answer("tool_search", json!({"query": "create an issue", "limit": 1}));
    golden_json("crib_search.json", &answer.content);
    assert_eq!(chat.loaded(), ["mcp__github__create_issue"], "what it returned, and no more");
    let call = json!({"tool_name": "mcp__github__create_issue", "arguments": {"text": "x"}});
    assert_eq!(chat.runs("call_tool", call).0, "github/create_issue");
    let group = chat.answer("load_tools", json!({"group_id": "slack"}));
    golden_json("crib_load.json", &group.content);
    let misses = chat.answer("tool_search", json!({"query": "select:lookup,list_issues,lokup"}));
    golden_json("crib_select.json", &misses.content);
    let nothing = chat.answer("tool_search", json!({"query": "holidays in May"}));
    assert!(!nothing.is_error);
    golden_json("crib_nothing.json", &nothing.content);
    assert_eq!(chat.prepare().fingerprint(), before);
}

#[test]
fn under_inject_appends_what_is_loaded() {
    let mut settings = deferring(Preset::Crib);
    settings.strategy = StrategyChoice::Inject;
    let mut chat = Chat::new(settings, office());
    assert_eq!(chat.tools(), ["tool_search", "load_tools", "lookup"]);
    chat.json("load_tools", json!({"group_id": "mcp:slack"}));
    chat.json("tool_search", json!({"query": "select:create_issue"}));
    assert_eq!(
        chat.tools(),
        [
            "tool_search",
            "load_tools",
            "lookup",
            "mcp__slack__post_message",
            "mcp__github__create_issue"
        ]
    );
}
