//! What `tool_search` and `tool_search_regex` make of their arguments.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolcrib_core::{Availability, Preset};

use crate::support::{Chat, deferring, names, registry, server};
use crate::{chat, office, told};

#[test]
fn a_blank_query_is_told_what_there_is() {
    let blanks = [
        json!({}),
        json!({"query": ""}),
        json!({"query": " \n\t "}),
        json!({"query": null}),
        json!({"query": "null"}),
        json!({"query": "NULL"}),
        json!({"query": "?!"}),
        json!({"query": "+"}),
        json!({"query": "//"}),
        json!({"query": "select:"}),
        json!({"query": "select: , ,"}),
        json!({"query": []}),
        json!({"query": {}}),
        json!({"query": true}),
        json!(null),
        json!(""),
    ];
    for preset in [Preset::Crib, Preset::Stubs, Preset::Exact] {
        let mut chat = chat(preset);
        for blank in &blanks {
            let answer = chat.mistake("tool_search", blank.clone());
            assert_eq!(
                answer["error"],
                "`query` is required: say in a few words what the tool should do. There are tools \
                 for: builtin, host, mcp:github, mcp:linear, mcp:reports.",
                "{preset} {blank}"
            );
        }
        assert_eq!(chat.loaded(), [""; 0]);
    }
}

#[test]
fn arguments_that_are_no_object_are_told_so() {
    for (preset, verb) in [
        (Preset::Crib, "tool_search"),
        (Preset::Crib, "load_tools"),
        (Preset::Crib, "call_tool"),
        (Preset::Lazy, "tool_search"),
        (Preset::Regex, "tool_search_regex"),
    ] {
        let mut chat = chat(preset);
        for (sent, error) in [
            (json!([1]), "expected an object, found array"),
            (json!(7), "expected an object, found number"),
            (json!("[1]"), "the string holds JSON, but not an object"),
        ] {
            assert_eq!(chat.mistake(verb, sent), json!({"error": error}), "{verb}");
        }
        let broken = chat.mistake(verb, json!("{\"query\": "));
        let error = broken["error"].as_str().unwrap();
        assert!(error.starts_with("the string is not a JSON object: "), "{error}");
    }
}

#[test]
fn arguments_may_come_as_a_json_string() {
    let mut chat = chat(Preset::Crib);
    let found = chat.json("tool_search", json!("{\"query\": \"select:get_me\"}"));
    assert_eq!(names(&found["tools"]), ["mcp__github__get_me"]);
    let loaded = chat.json("load_tools", json!("{\"group_id\": \"github\"}"));
    assert_eq!(names(&loaded["tool_names"]), ["mcp__github__create_issue", "mcp__github__get_me"]);
    let call = json!("{\"tool_name\": \"get_me\", \"arguments\": \"{\\\"text\\\": \\\"x\\\"}\"}");
    assert_eq!(chat.runs("call_tool", call), ("github/get_me".to_owned(), json!({"text": "x"})));
}

#[test]
fn an_empty_name_beside_a_real_query_is_left_out() {
    let mut chat = chat(Preset::Crib);
    let found = chat.json("tool_search", json!({"name": "", "query": "who am i", "limit": ""}));
    assert_eq!(names(&found["tools"])[0], "mcp__github__get_me");
    let by_name = chat.json("tool_search", json!({"name": "get_me", "query": null}));
    assert_eq!(names(&by_name["tools"])[0], "mcp__github__get_me");
}

#[test]
fn any_limit_is_read_or_replaced() {
    let shown = |preset, verb: &str, key: &str, limit: Value| {
        let mut chat = chat(preset);
        let answer = chat.answer(verb, json!({"query": "report", key: limit}));
        assert!(!answer.is_error);
        let loaded = chat.loaded().len();
        match serde_json::from_str::<Value>(&answer.content) {
            Ok(found) => assert_eq!(names(&found["tools"]).len(), loaded),
            Err(_) => assert_eq!(answer.content.matches("<function>").count(), loaded),
        }
        loaded
    };
    for (preset, verb, key, default, most) in [
        (Preset::Crib, "tool_search", "limit", 5, 20),
        (Preset::Stubs, "tool_search", "max_results", 5, 30),
        (Preset::Regex, "tool_search_regex", "limit", 10, 30),
    ] {
        for (limit, expected) in [
            (json!(3), 3),
            (json!(0), 1),
            (json!(-4), 1),
            (json!(2.9), 2),
            (json!("4"), 4),
            (json!("many"), default),
            (json!(null), default),
            (json!([9]), default),
            (json!(1e300), most),
            (json!(u64::MAX), most),
            (json!(-1e300), 1),
        ] {
            assert_eq!(shown(preset, verb, key, limit.clone()), expected, "{preset} {limit}");
        }
    }
}

#[test]
fn a_configured_limit_of_nothing_still_gives_one_result() {
    for preset in [Preset::Crib, Preset::Lazy] {
        let mut settings = deferring(preset);
        (settings.search_limit, settings.search_limit_max) = (0, 0);
        let mut chat = Chat::new(settings, office());
        let found = chat.json("tool_search", json!({"query": "report", "limit": 5}));
        let rows = if preset == Preset::Crib { &found["tools"] } else { &found["results"] };
        assert_eq!(names(rows), ["mcp__reports__report_00"]);
    }
}

#[test]
fn totals_are_true_beyond_the_limit() {
    let mut chat = chat(Preset::Crib);
    let found = chat.json("tool_search", json!({"query": "report", "limit": 2}));
    assert_eq!(found["total_matches"], 30);
    assert_eq!(
        found["hint"],
        "Call them with call_tool(tool_name=…, arguments=…). 28 more match: say more precisely what \
         you need."
    );
    let by_pattern = chat.json("tool_search", json!({"query": "/report_1\\d/", "limit": 1}));
    assert_eq!(by_pattern["total_matches"], 10);
}

#[test]
fn a_pattern_for_everything_loads_no_more_than_the_limit() {
    let mut crib = chat(Preset::Crib);
    crib.json("tool_search", json!({"query": "/.*/", "limit": 1000}));
    assert_eq!(crib.loaded().len(), 20 - 1, "the eager tool is one of the twenty");
    let mut regex = chat(Preset::Regex);
    for nothing in [json!({}), json!({"pattern": ""}), json!({"pattern": null})] {
        regex.json("tool_search_regex", nothing);
    }
    assert_eq!(regex.loaded().len(), 10 - 1);
}

#[test]
fn a_pattern_that_does_not_compile_is_explained() {
    for (pattern, reason) in [
        ("(", "unclosed group"),
        ("*", "repetition operator missing expression"),
        ("a{99999999}", "it is too large when compiled"),
        ("(?=look)", "look-around, including look-ahead and look-behind, is not supported"),
        ("\\1", "backreferences are not supported"),
    ] {
        let expected = format!("Not a valid regular expression: {reason}");
        let query = json!({"query": format!("/{pattern}/")});
        let answer = chat(Preset::Crib).mistake("tool_search", query.clone());
        assert_eq!(answer["error"], expected, "{pattern}");
        assert_eq!(chat(Preset::Lazy).mistake("tool_search", query)["error"], expected);
        let answer = chat(Preset::Regex).mistake("tool_search_regex", json!({"pattern": pattern}));
        assert_eq!(
            answer,
            json!({"status": "error", "pattern": pattern, "message": expected}),
            "{pattern}"
        );
    }
    let long = "a".repeat(2_000);
    let answer = chat(Preset::Regex).mistake("tool_search_regex", json!({"pattern": long}));
    assert_eq!(answer["message"], "Not a valid regular expression: it is longer than 1000 bytes");
}

#[test]
fn a_catastrophic_pattern_ends_in_time() {
    let text = "a".repeat(100_000);
    let registry = registry([server("s", &[("t", &text)])]);
    let mut chat = Chat::new(deferring(Preset::Regex), registry);
    let start = Instant::now();
    for pattern in
        ["^(a+)+$b", "(a|aa)+$c", "(.*)*x", "(a*)*(a*)*(a*)*z", "((a{0,20}){0,20}){0,20}"]
    {
        chat.answer("tool_search_regex", json!({"pattern": pattern}));
    }
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn select_takes_blanks_duplicates_and_any_case_of_its_prefix() {
    let mut chat = chat(Preset::Crib);
    for query in [
        "select:get_me,list_teams",
        "SELECT: get_me ,, list_teams , get_me ,",
        "  Select:github.get_me,linear__list_teams",
        "select:`get_me`, \"list_teams\"",
        "select:mcp__github__get_me\nmcp__linear__list_teams",
    ] {
        let found = chat.json("tool_search", json!({"query": query, "limit": 1}));
        assert_eq!(
            names(&found["tools"]),
            ["mcp__github__get_me", "mcp__linear__list_teams"],
            "{query}"
        );
        assert_eq!((&found["total_matches"], &found["not_found"]), (&json!(2), &json!([])));
    }
}

#[test]
fn a_name_in_another_case_is_a_miss_with_the_right_name_beside_it() {
    let mut chat = chat(Preset::Crib);
    let found = chat.json("tool_search", json!({"query": "select:GET_ME"}));
    assert_eq!(found["not_found"], json!(["GET_ME"]));
    let hint = found["hint"].as_str().unwrap();
    assert!(hint.starts_with("Nearest to `GET_ME`: mcp__github__get_me"), "{hint}");
}

#[test]
fn partial_misses_report_both_what_was_found_and_what_was_not() {
    let mut crib = chat(Preset::Crib);
    let found = crib.json("tool_search", json!({"query": "select:get_me,zzz,list_teams,qqq"}));
    assert_eq!(names(&found["tools"]), ["mcp__github__get_me", "mcp__linear__list_teams"]);
    assert_eq!(found["not_found"], json!(["zzz", "qqq"]));
    let mut stubs = chat(Preset::Stubs);
    let text = stubs.answer("tool_search", json!({"query": "select:get_me,zzz,qqq"})).content;
    assert!(text.contains("\"mcp__github__get_me\"") && text.contains("\nNot found: zzz, qqq\n"));
    let mut groups = chat(Preset::Crib);
    let asked = json!({"group_id": "linear", "tool_names": ["list_teams", "zzz"]});
    let loaded = groups.json("load_tools", asked);
    assert_eq!(names(&loaded["tool_names"]), ["mcp__linear__list_teams"]);
    assert_eq!(loaded["not_found"], json!(["zzz"]));
    assert_eq!(loaded["remaining"], 1);
}

#[test]
fn finding_nothing_is_an_answer_and_no_mistake() {
    for preset in [Preset::Crib, Preset::Stubs, Preset::Exact, Preset::Lazy] {
        let answer = chat(preset).answer("tool_search", json!({"query": "xylophone"}));
        assert!(!answer.is_error, "{preset}");
        assert!(!told(&answer.content).is_empty());
    }
}

#[test]
fn an_eager_tool_is_said_to_be_there_already() {
    let already = "Already in your tool list, to be called directly: lookup.";
    for preset in [Preset::Crib, Preset::Stubs, Preset::Exact] {
        let mut chat = chat(preset);
        let query = if preset == Preset::Exact { "lookup" } else { "select:lookup" };
        let content = chat.answer("tool_search", json!({"query": query})).content;
        assert!(told(&content).contains(already), "{preset}: {content}");
        assert!(content.contains("\"parameters\""), "its schema is shown all the same");
        assert_eq!(chat.loaded(), [""; 0]);
    }
    let activated = chat(Preset::Lazy).json("tool_search", json!({"name": "lookup"}));
    assert_eq!(activated["hint"], "It is already in your tool list: call it directly.");
}

#[test]
fn a_server_given_for_a_tool_leads_to_its_tools() {
    let mut chat = chat(Preset::Crib);
    let found = chat.json("tool_search", json!({"query": "select:linear"}));
    assert_eq!(found["not_found"], json!(["linear"]));
    assert!(found["hint"].as_str().unwrap().contains("mcp__linear__list_teams"), "{found}");
    let found = chat.json("tool_search", json!({"query": "linear"}));
    assert_eq!(names(&found["tools"]).len(), 2);
    for name in ["linear", "mcp:linear"] {
        let call = chat.mistake("call_tool", json!({"tool_name": name, "arguments": {}}));
        assert_eq!(
            names(&call["did_you_mean"]),
            ["mcp__linear__create_issue", "mcp__linear__list_teams"]
        );
    }
    let mut lazy = self::chat(Preset::Lazy);
    let unknown = lazy.mistake("tool_search", json!({"name": "linear"}));
    assert_eq!(
        names(&unknown["suggestions"]),
        ["mcp__linear__create_issue", "mcp__linear__list_teams"]
    );
    assert_eq!(unknown["mcpServers"], json!(["github", "linear", "reports"]));
}

#[test]
fn an_ambiguous_name_is_reported_with_its_candidates() {
    let both = ["mcp__github__create_issue", "mcp__linear__create_issue"];
    let mut crib = chat(Preset::Crib);
    let found = crib.json("tool_search", json!({"query": "select:create_issue"}));
    assert_eq!(found["not_found"], json!(["create_issue"]));
    assert_eq!(
        found["hint"],
        format!(
            "`create_issue` is ambiguous: {}. Nothing else matches. Try other words for the same \
             thing, or fewer.",
            both.join(", ")
        )
    );
    let call = crib.mistake("call_tool", json!({"tool_name": "create_issue", "arguments": {}}));
    assert_eq!(names(&call["did_you_mean"]), both);
    assert_eq!(
        call["error"],
        "`create_issue` is ambiguous: 2 tools have that name. Use one of the full names."
    );
    let direct = crib.mistake("create_issue", json!({}));
    assert_eq!(direct, call);
    let lazy = chat(Preset::Lazy).mistake("tool_search", json!({"name": "create_issue"}));
    assert_eq!(
        lazy["error"],
        format!("`create_issue` is ambiguous. It may be: {}", both.join(", "))
    );
    // Asked for as a plain query, both are what was meant.
    let found = crib.json("tool_search", json!({"query": "create_issue"}));
    assert_eq!(names(&found["tools"]), both);
}

#[test]
fn a_wrong_name_brings_the_nearest_ones() {
    let mut chat = chat(Preset::Crib);
    for (wrong, right) in [
        ("create_isue", "mcp__github__create_issue"),
        ("mcp__linear__create_isue", "mcp__linear__create_issue"),
        ("getme", "mcp__github__get_me"),
        ("red_file", "read_file"),
        ("mcp__reports__report_5", "mcp__reports__report_05"),
        ("functions.list_team", "mcp__linear__list_teams"),
    ] {
        let answer = chat.mistake("call_tool", json!({"tool_name": wrong, "arguments": {}}));
        assert_eq!(names(&answer["did_you_mean"])[0], right, "{wrong}");
    }
    let hopeless = chat.mistake("zzzzzz", json!({}));
    assert_eq!(
        hopeless,
        json!({"error": "Unknown tool `zzzzzz`. Look for it with `tool_search`.", "did_you_mean": []})
    );
}

#[test]
fn a_qualified_name_that_misses_is_not_taken_for_another_servers_tool() {
    let mut chat = chat(Preset::Crib);
    for name in ["github__list_teams", "github.list_teams", "mcp__github__list_teams"] {
        let answer = chat.answer("call_tool", json!({"tool_name": name, "arguments": {}}));
        assert!(answer.is_error, "{name}");
    }
}

#[test]
fn a_search_that_finds_nothing_names_servers_that_could_not_be_asked() {
    for (preset, verb, key) in [
        (Preset::Crib, "tool_search", "hint"),
        (Preset::Lazy, "tool_search", "hint"),
        (Preset::Regex, "tool_search_regex", "suggestion"),
    ] {
        let mut chat = chat(preset);
        let down = Availability::Down("exit status 1\nboom".to_owned());
        chat.registry.set_availability("mcp:jira", down);
        chat.registry.set_availability("mcp:wiki", Availability::Starting);
        let answer = chat.json(verb, json!({"query": "sprint"}));
        let told = answer[key].as_str().unwrap();
        let expected = "Not searched: `jira` does not answer (exit status 1 boom), `wiki` is still \
                        starting.";
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_list_of_very_many_names_is_looked_up_in_part_and_in_time() {
    let many: Vec<String> = (0..20_000).map(|n| format!("wrong_{n}")).collect();
    let start = Instant::now();
    let mut crib = chat(Preset::Crib);
    let found =
        crib.json("tool_search", json!({"query": format!("select:get_me,{}", many.join(","))}));
    assert_eq!(names(&found["tools"]), ["mcp__github__get_me"]);
    assert_eq!(found["not_found"].as_array().unwrap().len(), 199);
    let hint = found["hint"].as_str().unwrap();
    assert!(hint.contains("19801 more names were not looked up: ask for fewer at once."), "{hint}");
    crib.mistake("load_tools", json!({"group_id": "github", "tool_names": many}));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
