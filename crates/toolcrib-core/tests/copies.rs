//! One tool that several servers offer takes one place of a page, and nothing is hidden by it.

mod support;

use serde_json::json;
use support::{Chat, deferring, names, registry, server, tool};
use toolcrib_core::{Preset, Registry, SearchRow, ServerTools, ToolName, ToolSpec, View};

const ISSUE: &str = "Create an issue in a repository.";

/// The same three tools on each of these servers, and a server with others that fit less well.
fn servers(named: &[&str]) -> Vec<ServerTools> {
    let tracker = |name: &&str| {
        server(
            name,
            &[("create_issue", ISSUE), ("run", ""), ("search", &format!("Search in {name}."))],
        )
    };
    let other = server(
        "board",
        &[
            ("add_issue_label", "Put a label on an issue that was created."),
            ("list_issues", "List the issues of a repository."),
            ("close_issue", "Close an issue."),
        ],
    );
    named.iter().map(tracker).chain([other]).collect()
}

fn view(registry: &Registry) -> View {
    registry.catalog().view_all()
}

fn office() -> View {
    view(&registry(servers(&["acme", "codeberg", "github", "gitlab", "home", "work"])))
}

fn found(view: &View, query: &str, limit: usize) -> Vec<String> {
    let page = view.search(query, limit).expect("a query");
    page.results.iter().map(|row| row.name.to_string()).collect()
}

const OTHERS: [&str; 3] =
    ["mcp__board__add_issue_label", "mcp__board__close_issue", "mcp__board__list_issues"];

#[test]
fn one_tool_of_many_servers_does_not_fill_the_page() {
    let view = office();
    let mut page = found(&view, "create an issue", 4);
    assert!(page.remove(0).ends_with("__create_issue"));
    page.sort_unstable();
    assert_eq!(page, OTHERS);
}

#[test]
fn no_copy_is_hidden_and_all_are_counted() {
    let view = office();
    let all = view.search("create an issue", 100).unwrap();
    let at = |row: &SearchRow| &*row.tool == "create_issue";
    let places: Vec<bool> = all.results.iter().map(at).collect();
    let expected = [true, false, false, false, true, true, true, true, true];
    assert_eq!(places[..9], expected, "behind what else fits");
    assert!(all.results.is_sorted_by(|a, b| a.score >= b.score));
    for limit in 0..all.results.len() {
        let page = view.search("create an issue", limit).unwrap();
        assert_eq!(page.total_matches, all.total_matches);
        assert_eq!(page.results, all.results[..limit], "the first {limit} of all");
    }
}

#[test]
fn the_server_that_a_query_names_comes_first() {
    let view = office();
    for server in ["gitlab", "work", "acme"] {
        let page = found(&view, &format!("{server} create issue"), 4);
        assert_eq!(page[0], format!("mcp__{server}__create_issue"));
    }
}

#[test]
fn a_name_brings_every_tool_that_has_it() {
    let view = office();
    let of = |own: &str| {
        ["acme", "codeberg", "github", "gitlab", "home", "work"]
            .map(|server| format!("mcp__{server}__{own}"))
    };
    assert_eq!(found(&view, "create_issue", 6), of("create_issue"));
    assert_eq!(found(&view, "gitlab.create_issue", 1), ["mcp__gitlab__create_issue"]);
    let selected = found(&view, "select:mcp__work__create_issue,mcp__home__create_issue", 6);
    assert_eq!(selected, ["mcp__work__create_issue", "mcp__home__create_issue"]);
    let told = view.explain("create_issue", "mcp__work__create_issue").unwrap();
    assert_eq!(told.lifts, []);
}

#[test]
fn tools_that_share_only_a_name_are_no_copies() {
    let registry = registry([
        server("trello", &[("update_label", "Update an existing label")]),
        server("github", &[("update_label", "Update a label of a repository")]),
        server("quiet", &[("update_label", "")]),
        server("silent", &[("update_label", "")]),
        ServerTools::new(
            "gmail",
            [ToolSpec::new(
                ToolName::mcp("gmail", "update_label"),
                json!({"properties": {"colour": {}}}),
            )
            .with_description("Update an existing label")],
        ),
        server("spaced", &[("update_label", " Update an\n  existing label ")]),
    ]);
    let view = view(&registry);
    let moved = |server: &str| {
        let name = format!("mcp__{server}__update_label");
        !view.explain("update an existing label", &name).unwrap().lifts.is_empty()
    };
    for server in ["trello", "spaced"] {
        let other = if server == "trello" { "spaced" } else { "trello" };
        assert_ne!(moved(server), moved(other), "one of the two is a copy of the other");
    }
    for server in ["github", "quiet", "silent", "gmail"] {
        assert!(!moved(server), "{server}");
    }
}

#[test]
fn an_explanation_says_why_a_copy_stands_back() {
    let view = office();
    let page = view.search("create an issue", 100).unwrap();
    let best = &page.results[0];
    for row in &page.results {
        let told = view.explain("create an issue", &row.name).unwrap();
        assert_eq!(told.total, row.score, "{}", row.name);
        let is_copy = row.tool == best.tool && row.name != best.name;
        assert_eq!(told.lifts.len(), usize::from(is_copy), "{}", row.name);
        for lift in &told.lifts {
            assert!(lift.score < 0.0);
            assert!(lift.reason.contains(&*best.name), "{}", lift.reason);
        }
    }
}

#[test]
fn what_does_not_match_stands_behind_nothing() {
    let told = office().explain("weather forecast", "mcp__work__create_issue").unwrap();
    assert_eq!(told.lifts, []);
}

#[test]
fn more_words_do_not_take_a_tools_place() {
    let issue = |server: &str, about: &str| {
        let schema = json!({"properties": {"title": {"type": "string", "description": about}}});
        let spec = ToolSpec::new(ToolName::mcp(server, "create_issue"), schema);
        ServerTools::new(server, [spec.with_description(ISSUE)])
    };
    let loud = "create issue title open file new bug report task ticket problem repository";
    let mut all = servers(&[]);
    all.extend([issue("github", "The title."), issue("hostile", loud)]);
    let page = found(&view(&registry(all)), "create an issue with a title", 2);
    assert!(page.contains(&"mcp__github__create_issue".to_owned()), "{page:?}");
}

#[test]
fn a_hidden_tool_has_no_copies() {
    let hidden = support::denying(&["mcp__acme__*", "acme/*"]);
    let registry = registry(servers(&["acme", "github", "gitlab"]));
    let view = registry.catalog().view(&hidden);
    assert_eq!(found(&view, "create an issue", 1), ["mcp__github__create_issue"]);
    let told = view.explain("create an issue", "mcp__github__create_issue").unwrap();
    assert_eq!(told.lifts, []);
}

#[test]
fn a_model_is_told_of_the_copies_that_are_not_on_the_page() {
    let registry = registry(servers(&["home", "work"]));
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    let told = chat.json("tool_search", json!({"query": "create an issue", "limit": 4}));
    let both = ["mcp__home__create_issue", "mcp__work__create_issue"];
    let shown = names(&told["tools"]);
    let left = both.iter().find(|name| **name != shown[0]).expect("one of the two");
    assert!(both.contains(&shown[0]) && !shown[1..].iter().any(|name| name == left));
    let hint = told["hint"].as_str().unwrap();
    assert!(hint.contains("other servers") && hint.contains(left), "{hint}");
    let all = chat.json("tool_search", json!({"query": "create an issue", "limit": 20}));
    assert!(!all["hint"].as_str().unwrap().contains("other servers"));
    assert_eq!(all["total_matches"], told["total_matches"]);
}

#[test]
fn a_tool_is_found_by_its_name_whatever_that_is() {
    let odd = ["null", "_", "---", "NULL", "-"];
    let registry = || {
        let registry = Registry::default();
        for own in odd {
            registry.register(tool(ToolName::host(own), "Says nothing.")).unwrap();
        }
        registry
    };
    let view = view(&registry());
    for own in odd {
        assert_eq!(found(&view, own, 1), [own]);
        assert_eq!(found(&view, &format!(" {own} "), 1), [own]);
    }
    for nothing in ["Null", "--", "__", " "] {
        assert!(view.search(nothing, 1).is_err(), "{nothing}");
    }
    for own in ["null", "_", "---"] {
        let mut chat = Chat::new(deferring(Preset::Crib), registry());
        let told = chat.json("tool_search", json!({"query": own, "limit": 1}));
        assert_eq!(names(&told["tools"]), [own]);
        let mut chat = Chat::new(deferring(Preset::Lazy), registry());
        let told = chat.json("tool_search", json!({"query": own}));
        assert_eq!(told["results"][0]["name"], own);
        assert_eq!(chat.json("tool_search", json!({"name": own}))["activated"], true);
    }
}
