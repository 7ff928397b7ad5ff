//! Search is right before it is clever: names first, ties in order, totals true, nothing hidden
//! shown.

mod support;

use serde_json::json;
use support::{Chat, deferring, denying, names, registry, server, tool};
use toolcrib_core::{
    Group, Members, Preset, Registry, SearchError, ServerTools, ToolName, ToolSpec, View,
};

fn view(registry: &Registry) -> View {
    registry.catalog().view_all()
}

fn found(view: &View, query: &str) -> Vec<String> {
    let page = view.search(query, 10).expect("a query");
    page.results.iter().map(|row| format!("{}", row.name)).collect()
}

fn servers() -> [ServerTools; 4] {
    [
        server(
            "github",
            &[
                ("search", "Search code, issues and people."),
                ("create_issue", "Create an issue in a repository."),
                ("list_issues", "List issues. Search them by label with `search`."),
            ],
        ),
        server("docs", &[("search", "Search the documentation."), ("searchPages", "Find pages.")]),
        server("mail", &[("send_email", "Send an e-mail message to someone.")]),
        server("café", &[("naïve_Straße", "Ein Weg durch die Stadt.")]),
    ]
}

fn office() -> View {
    view(&registry(servers()))
}

#[test]
fn a_name_in_any_form_comes_first() {
    let view = office();
    for query in [
        "mcp__github__create_issue",
        "github__create_issue",
        "github.create_issue",
        "github/create_issue",
        "create_issue",
        "`create_issue`",
        "use mcp__github__create_issue to search documentation",
    ] {
        assert_eq!(found(&view, query)[0], "mcp__github__create_issue", "{query}");
    }
    // A name that two tools have brings both before anything else.
    let both = found(&view, "search");
    assert_eq!(both[..2], ["mcp__docs__search", "mcp__github__search"]);
    assert!(both.len() > 2);
    // In a longer query it is a word like any other.
    assert_eq!(found(&view, "search documentation pages")[0], "mcp__docs__searchPages");
}

#[test]
fn an_exact_name_beats_any_number_of_words() {
    let loud = "issue create ".repeat(50);
    let registry = registry([server("s", &[("create_issue", "x"), ("noise", &loud)])]);
    let page = view(&registry).search("create_issue", 10).unwrap();
    assert_eq!(&*page.results[0].name, "mcp__s__create_issue");
    assert!(page.results[0].score > page.results[1].score);
}

#[test]
fn a_word_with_a_plus_must_occur() {
    let view = office();
    let mut hits = found(&view, "+issue search");
    assert_eq!(hits.pop().as_deref(), Some("mcp__github__create_issue"), "it has one of the words");
    hits.sort_unstable();
    assert_eq!(hits, ["mcp__github__list_issues", "mcp__github__search"]);
    assert_eq!(found(&view, "+issue +documentation"), [""; 0]);
    assert_eq!(found(&view, "+create +label"), [""; 0]);
    assert_eq!(found(&view, "+label"), ["mcp__github__list_issues"]);
}

#[test]
fn a_pattern_between_slashes_matches_names_and_descriptions() {
    let view = office();
    assert_eq!(
        found(&view, "/^mcp__github__.*issue/"),
        ["mcp__github__create_issue", "mcp__github__list_issues"]
    );
    assert_eq!(found(&view, "/E-MAIL/i"), ["mcp__mail__send_email"]);
    assert_eq!(found(&view, "/^naïve_straße$/").len(), 1, "own names, and case beyond ASCII");
    assert_eq!(view.search("/a(/", 5), Err(SearchError::BadPattern("unclosed group".to_owned())));
    assert_eq!(view.search("  ", 5), Err(SearchError::Blank));
}

#[test]
fn select_looks_up_each_name() {
    let page = office().search("select:send_email, search ,nothing,github.search", 1).unwrap();
    let rows: Vec<&str> = page.results.iter().map(|row| &*row.name).collect();
    assert_eq!(rows, ["mcp__mail__send_email", "mcp__github__search"]);
    assert_eq!(page.not_found, ["search", "nothing"]);
    assert_eq!(page.total_matches, 2);
}

#[test]
fn letters_are_folded_beyond_ascii() {
    let view = office();
    for query in ["NAIVE", "naïve", "straße", "weg", "CAFE"] {
        let hits = found(&view, query);
        assert_eq!(hits.len(), 1, "{query}");
        assert!(hits[0].starts_with("mcp__caf_"), "{hits:?}");
    }
}

#[test]
fn identifiers_are_read_as_words() {
    let view = office();
    for query in ["search pages", "searchPages", "search-pages", "SEARCH_PAGES", "page searches"] {
        assert_eq!(found(&view, query)[0], "mcp__docs__searchPages", "{query}");
    }
    for query in ["sendEmail", "send emails", "sending email"] {
        assert_eq!(found(&view, query)[0], "mcp__mail__send_email", "{query}");
    }
}

#[test]
fn a_name_without_words_is_still_found() {
    let registry = registry([server("s", &[("🦀", "Crab."), ("x", "Else.")])]);
    let exposed = ToolName::mcp("s", "🦀").exposed(toolcrib_core::Naming::Model);
    assert_eq!(found(&view(&registry), "🦀"), [exposed]);
    assert_eq!(found(&view(&registry), "🐙"), [""; 0]);
}

#[test]
fn ties_are_in_the_order_of_names_whatever_the_order_of_registration() {
    let tools = |order: &[&str]| {
        let specs = order.iter().map(|own| tool(ToolName::mcp("s", *own), "Same words."));
        ServerTools::new("s", specs.collect::<Vec<_>>())
    };
    let forward = registry([tools(&["run_a", "run_b", "run_c"]), server("t", &[("run_d", "x")])]);
    let backward = registry([server("t", &[("run_d", "x")]), tools(&["run_c", "run_b", "run_a"])]);
    assert_eq!(
        found(&view(&forward), "same words"),
        ["mcp__s__run_a", "mcp__s__run_b", "mcp__s__run_c"]
    );
    for query in ["run", "same", "/run/", "x", "select:run_c,run_a", "words of s"] {
        assert_eq!(view(&forward).search(query, 10), view(&backward).search(query, 10), "{query}");
    }
    assert_eq!(forward.catalog().fingerprint(), backward.catalog().fingerprint());
}

#[test]
fn scores_do_not_depend_on_the_order_of_registration() {
    let mut all = servers().to_vec();
    let forward = registry(all.clone());
    all.reverse();
    let backward = registry(all);
    for query in ["search", "issue label", "send message", "find pages of documentation"] {
        assert_eq!(view(&forward).search(query, 50), view(&backward).search(query, 50));
    }
}

#[test]
fn what_the_policy_hides_takes_no_slot_and_counts_for_nothing() {
    let registry = registry(servers());
    let policy = denying(&["github/create_issue"]);
    let hidden = registry.catalog().view(&policy);
    let page = hidden.search("issue", 1).unwrap();
    assert_eq!(page.total_matches, 2);
    let rows = |query: &str| found(&hidden, query);
    for query in ["issue", "/issue/", "create_issue", "mcp__github__create_issue", "+create issue"]
    {
        assert!(!rows(query).contains(&"mcp__github__create_issue".to_owned()), "{query}");
    }
    let page = hidden.search("select:create_issue", 5).unwrap();
    assert_eq!((page.results.len(), page.not_found), (0, vec!["create_issue".to_owned()]));
    assert_eq!(hidden.explain("issue", "mcp__github__create_issue"), None);
}

#[test]
fn totals_count_all_matches() {
    let many: Vec<String> = (0..50).map(|n| format!("item_{n:02}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|own| (&**own, "A thing.")).collect();
    let view = view(&registry([server("s", &many)]));
    for (query, limit, total, shown) in [
        ("item", 5, 50, 5),
        ("item_07", 5, 50, 5),
        ("/item_1/", 3, 10, 3),
        ("select:item_01,item_02", 1, 2, 2),
        ("item", 0, 50, 0),
        ("item", 500, 50, 50),
        ("zebra", 5, 0, 0),
    ] {
        let page = view.search(query, limit).unwrap();
        assert_eq!((page.total_matches, page.results.len()), (total, shown), "{query} {limit}");
    }
}

#[test]
fn parameters_and_hints_are_searched() {
    let schema = json!({"type": "object", "properties": {
        "latitude": {"type": "number", "description": "Degrees north of the equator."},
        "unit": {"enum": ["celsius", "kelvin"]},
        "place": {"type": "object", "properties": {"postcode": {"type": "string"}}},
        "stops": {"type": "array", "items": {"properties": {"platform": {}}}}
    }});
    let spec = ToolSpec::new(ToolName::mcp("w", "forecast"), schema)
        .with_description("Tells what comes.")
        .with_search_hint("weather, rain");
    let registry = registry([ServerTools::new("w", [spec]), server("x", &[("other", "Else.")])]);
    for query in ["latitude", "equator", "kelvin", "postcode", "platform", "weather", "rain"] {
        assert_eq!(found(&view(&registry), query), ["mcp__w__forecast"], "{query}");
    }
    let weather = Chat::new(deferring(Preset::Crib), registry)
        .json("tool_search", json!({"query": "will it rain"}));
    assert_eq!(names(&weather["tools"]), ["mcp__w__forecast"]);
}

#[test]
fn an_explanation_adds_up_to_the_score() {
    let view = office();
    for query in ["search documentation", "label issues", "+issue search", "message someone"] {
        let page = view.search(query, 10).unwrap();
        assert!(!page.results.is_empty());
        for row in &page.results {
            let told = view.explain(query, &row.name).unwrap();
            assert_eq!(told.total, row.score, "{query} {}", row.name);
            let words: f32 = told.terms.iter().map(|term| term.score).sum();
            let sum = words + told.meaning.map_or(0.0, |meaning| meaning.score);
            assert!((sum - row.score).abs() < 1e-4);
        }
    }
    assert_eq!(view.explain("search", "no such tool"), None);
    assert_eq!(view.explain("/re/", "mcp__docs__search"), None);
}

#[test]
fn an_exact_name_stands_above_the_sum_of_its_words() {
    let view = office();
    let page = view.search("send_email", 10).unwrap();
    let told = view.explain("send_email", "mcp__mail__send_email").unwrap();
    assert_eq!(page.results[0].score, told.total + 1.0);
}

#[test]
fn a_search_says_what_was_loaded_before() {
    let mut chat = Chat::new(deferring(Preset::Crib), registry(servers()));
    let first = chat.json("tool_search", json!({"query": "select:send_email"}));
    assert!(!first["hint"].as_str().unwrap().contains("loaded before"));
    let second = chat.json("tool_search", json!({"query": "select:send_email"}));
    assert_eq!(second["tools"], first["tools"], "the schema is served again");
    assert!(second["hint"].as_str().unwrap().contains("All of these were loaded before."));
}

#[test]
fn a_page_of_text_is_read_from_its_beginning() {
    let view = office();
    let page = format!("send an email {}", "lorem ipsum ".repeat(20_000));
    assert_eq!(found(&view, &page)[0], "mcp__mail__send_email");
    let far = format!("{} e-mail", "x ".repeat(10_000));
    assert_eq!(found(&view, &far), [""; 0]);
}

#[test]
fn a_tool_that_another_group_names_too_is_found_once() {
    let registry = registry(servers());
    let favourites = ["create_issue", "list_issues"].map(|own| ToolName::mcp("github", own));
    let group = Group::new("a favourites").with_members(Members::Named(favourites.to_vec()));
    registry.declare(group).unwrap();
    for query in ["issues", "/issue/", "create_issue", "select:create_issue,list_issues"] {
        let page = view(&registry).search(query, 10).unwrap();
        let mut rows: Vec<&str> = page.results.iter().map(|row| &*row.name).collect();
        assert_eq!(page.total_matches, rows.len(), "{query}");
        rows.sort_unstable();
        rows.dedup();
        assert_eq!(page.total_matches, rows.len(), "{query}");
    }
    for (preset, verb) in [
        (Preset::Crib, "tool_search"),
        (Preset::Stubs, "tool_search"),
        (Preset::Regex, "tool_search_regex"),
    ] {
        let again = self::registry(servers());
        let group = Group::new("a favourites").with_members(Members::Named(favourites.to_vec()));
        again.declare(group).unwrap();
        let mut chat = Chat::new(deferring(preset), again);
        chat.answer(verb, json!({"query": "issue"}));
        assert_eq!(chat.asked, [], "no loader is needed for what is registered");
        assert!(chat.loaded().contains(&"mcp__github__create_issue".to_owned()), "{preset}");
    }
}

#[test]
fn what_is_hidden_changes_no_reading_of_a_name() {
    let mail = || server("my mail", &[("send", "Send a letter."), ("search", "Find letters.")]);
    let odd = server("odd", &[("functions_send", "Also sends."), ("read all", "Reads.")]);
    let hidden = registry([mail(), odd]).catalog().view(&denying(&["functions_send", "read all"]));
    let absent = view(&registry([mail()]));
    for query in ["functions_send", "select:functions_send", "my mail.send", "read all", "sned"] {
        assert_eq!(hidden.search(query, 9), absent.search(query, 9), "{query}");
    }
    assert_eq!(found(&hidden, "select:functions_send").len(), 1);
}
