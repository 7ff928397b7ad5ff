//! Tool lists: every form of them, and what is wrong with one.

use std::fs;

use serde_json::Value;

use crate::support::{Folder, WEATHER};

#[test]
fn every_form_of_tool_list_is_read() {
    let folder = Folder::new(&[
        ("lists/bare.json", r#"{"tools": [{"name": "one", "inputSchema": {"type": "object"}}]}"#),
        ("lists/array.json", r#"[{"name": "two"}, {"name": "three", "parameters": {}}]"#),
        (
            "lists/lines.jsonl",
            "\u{feff}{\"server\": \"named\", \"name\": \"four\"}\n\n{\"server\": null, \"name\": \"five\"}\n{\"name\": \"six\"}\n",
        ),
        ("lists/weather.json", WEATHER),
        ("lists/README.md", "not a list"),
        (
            "more.json",
            r#"{"server": "weather", "serverInfo": {"title": "Weather"},
            "instructions": "Skies. And more.", "tools": [{"name": "seven"}]}"#,
        ),
    ]);
    let value = folder.json("tools --tools lists more.json --json");
    let names: Vec<String> = value["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            format!("{}/{}", tool["server"].as_str().unwrap(), tool["tool"].as_str().unwrap())
        })
        .collect();
    let expected = [
        "array/three",
        "array/two",
        "bare/one",
        "lines/five",
        "lines/six",
        "named/four",
        "weather/get_alerts",
        "weather/get_forecast",
        "weather/seven",
    ];
    assert_eq!(names, expected);
    let section = folder.json("prompt --tools lists --tools more.json --mode deferred --json");
    assert!(section["system_section"].as_str().unwrap().contains("Skies."), "{section}");
}

#[test]
fn one_malformed_tool_costs_no_other() {
    let list = r#"{"server": "s", "tools": [{"name": "good"}, {"description": "no name"},
        {"name": "odd", "inputSchema": 3}, {"name": "good"}]}"#;
    let folder = Folder::new(&[
        ("s.json", list),
        ("l.jsonl", "{\"name\": \"fine\"}\n{\"name\": 7}\n{\"server\": 3, \"name\": \"x\"}\n"),
    ]);
    let output = folder.run("tools --tools s.json l.jsonl --json");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(value["totals"]["tools"], 2);
    for warning in [
        "warning: s.json, tool 2 was left out: not a tool: it has no name\n",
        "warning: s.json, tool 3 was left out: not a tool: its input schema is not an object\n",
        "warning: l.jsonl, line 2 was left out: not a tool: its name is not a string\n",
        "warning: l.jsonl, line 3: `server` is not a string\n",
        "warning: s.json, tool 4 was left out: there is a `s/good` already\n",
    ] {
        assert!(output.stderr.contains(warning), "{warning}: {}", output.stderr);
    }
    assert_eq!(folder.run("tools --tools s.json l.jsonl --json -q").stderr, "");
}

#[test]
fn a_source_that_cant_be_read_says_which_and_where() {
    let folder = Folder::new(&[
        ("broken.json", "{\"tools\": [\n  {\"name\": }\n]}"),
        ("lines.json", "{\"name\": \"a\"}\n{\"name\": \"b\"}\n"),
        ("lines.jsonl", "{\"name\": \"a\"}\n{\"name\"\n"),
        ("other.json", "{\"name\": \"package\"}"),
        ("empty/README.md", ""),
    ]);
    fs::write(folder.path("latin.json"), b"[\"\xe9\"]").unwrap();
    for (path, expected) in [
        ("broken.json", "broken.json, line 2 is not JSON"),
        ("lines.json", "if it has one tool per line, name it *.jsonl"),
        ("lines.jsonl", "lines.jsonl, line 2 is not JSON"),
        ("other.json", "other.json is not a tool list; expected {\"server\""),
        ("missing.json", "can't read tools from missing.json: No such file"),
        ("empty", "no *.json or *.jsonl file in folder empty"),
        ("latin.json", "latin.json is not text"),
    ] {
        let message = folder.fails(1, &format!("tools --tools {path}"));
        assert!(message.starts_with("error: ") && message.contains(expected), "{message}");
    }
}

#[test]
fn a_word_behind_the_paths_is_said_to_be_taken_for_one() {
    let folder = Folder::new(&[("weather.json", WEATHER)]);
    let message = folder.fails(1, "tools --tools weather.json alerts");
    assert!(message.starts_with("error: can't read tools from alerts: No such file"), "{message}");
    assert!(message.contains("--tools takes every word up to the next option"), "{message}");
    assert!(folder.text("tools --tools weather.json -- alerts").contains("1 of 2 tools shown"));
    assert!(folder.text("tools alerts --tools weather.json").contains("1 of 2 tools shown"));
}

#[test]
fn text_from_a_server_cant_reach_the_terminal_as_escapes() {
    let list =
        "[{\"name\": \"\\u001b[31mred\\u0007\", \"description\": \"\\u001b]0;title\\u0007\"}]";
    let folder = Folder::new(&[("evil.json", list)]);
    for args in ["tools", "search red", "prompt --mode deferred"] {
        let text = folder.text(&format!("{args} --tools evil.json --color always"));
        assert!(!text.contains("\x1b[31m") && !text.contains('\x07'), "{text:?}");
    }
}
