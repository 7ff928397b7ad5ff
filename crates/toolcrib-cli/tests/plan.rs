//! `toolcrib plan`, run as a person or a script would.

#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

use serde_json::{Value, json};

/// Runs the command where no configuration lies about.
fn toolcrib(args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_toolcrib")).args(args).current_dir(&folder).output().unwrap()
}

fn shown(args: &[&str]) -> String {
    let output = toolcrib(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn planned(args: &[&str]) -> Value {
    serde_json::from_str(&shown(&[&["plan", "--json"], args].concat())).unwrap()
}

/// A server with so many tools, in a file.
fn server(tools: usize) -> tempfile::TempPath {
    let tool = |n: usize| {
        json!({"name": format!("note_thing_{n}"), "description": "Writes a note about a thing.",
            "inputSchema": {"type": "object", "properties": {
                "id": {"type": "integer", "description": "The number of the thing."},
                "text": {"type": "string", "description": "What to say about it."}}}})
    };
    let list = json!({"server": "shop", "tools": (0..tools).map(tool).collect::<Vec<_>>()});
    let file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
    std::fs::write(file.path(), list.to_string()).unwrap();
    file.into_temp_path()
}

#[test]
fn without_arguments_it_plans_the_sample() {
    let text = shown(&["plan", "--quiet"]);
    let starts = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!(starts("strategy  calls  prompt tokens"), 1, "{text}");
    for strategy in ["full ", "inject ", "dispatch "] {
        assert!(starts(strategy) >= 1, "{text}");
    }
    assert!(text.contains(" is cheapest: "), "{text}");
    assert!(text.contains("Assumed: 1,000 tokens in and 250 out each turn"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn estimates_are_marked_and_dollars_shown_only_where_they_are_known() {
    let (estimated, exact) = (shown(&["plan"]), shown(&["plan", "--model", "gpt-5.6-sol"]));
    assert!(estimated.contains('~') && !estimated.contains('$'), "{estimated}");
    assert!(estimated.contains("Prices are not known"), "{estimated}");
    assert!(!exact.contains('~') && exact.contains('$'), "{exact}");
}

#[test]
fn json_has_every_number() {
    let plan = planned(&["--model", "claude-opus-5-5", "--turns", "10", "--loads", "2"]);
    assert_eq!(plan["scenario"]["turns"], 10);
    assert_eq!(plan["model"]["name"], "claude-opus-5.5");
    assert_eq!(plan["model"]["exact"], false);
    let rows = plan["strategies"].as_array().unwrap();
    let names: Vec<&Value> = rows.iter().map(|row| &row["strategy"]).collect();
    assert_eq!(names, ["full", "inject", "dispatch"]);
    let calls: Vec<&Value> = rows.iter().map(|row| &row["calls"]).collect();
    assert_eq!(calls, [10, 12, 12]);
    for row in rows {
        let tokens = |key: &str| row[key].as_u64().unwrap();
        assert_eq!(tokens("prompt"), tokens("read") + tokens("written") + tokens("uncached"));
        assert!(row["dollars"].as_f64().unwrap() > 0.0);
        assert_eq!(row["fits"], true);
    }
    let least = rows.iter().min_by(|a, b| {
        let dollars = |row: &Value| row["dollars"].as_f64().unwrap();
        dollars(a).total_cmp(&dollars(b))
    });
    assert_eq!(plan["cheapest"], least.unwrap()["strategy"]);
}

#[test]
fn many_tools_are_cheapest_through_dispatch_and_a_few_in_full() {
    let (many, few) = (server(400), server(3));
    let cheapest = |file: &tempfile::TempPath| {
        planned(&["--tools", file.to_str().unwrap()])["cheapest"].clone()
    };
    assert_eq!(cheapest(&many), "dispatch");
    assert_eq!(cheapest(&few), "full");
}

#[test]
fn no_more_is_loaded_than_there_is() {
    let few = server(7);
    let file = few.to_str().unwrap();
    assert_eq!(planned(&["--tools", file, "--loads", "9"])["scenario"]["loads"], 2);
    let text = shown(&["plan", "--tools", file, "--loads", "9"]).replace('\n', " ");
    assert!(text.contains("2 × 5 tools loaded, evenly spread (asked for 9,"), "{text}");
}

#[test]
fn an_hour_in_the_cache_costs_more_to_write() {
    let written = |args: &[&str]| planned(args)["strategies"][0]["input_equivalents"].clone();
    let (short, hour) = (written(&[]).as_f64(), written(&["--1h"]).as_f64());
    assert!(hour > short, "{hour:?} {short:?}");
}

#[test]
fn what_does_not_fit_the_window_is_said() {
    let many = server(400);
    let args = ["plan", "--tools", many.to_str().unwrap(), "--context-window", "40000"];
    let text = shown(&args).replace('\n', " ");
    assert!(text.contains("full does not fit: prompts of ~"), "{text}");
}

#[test]
fn mistakes_are_named_and_exit_with_2() {
    for (args, said) in [
        (&["plan", "--model", "claud-opus-5-5"][..], "did you mean `claude-opus-5.5`?"),
        (&["plan", "--provider", "openai", "--1h"], "openai has no cache of an hour"),
        (&["plan", "--provider", "openai", "--model", "gpt-5.6"], "cannot be used with"),
        (&["plan", "--turns", "0"], "--turns"),
        (&["plan", "--preset", "cribs"], "crib"),
    ] {
        let output = toolcrib(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert!(error.contains(said), "{args:?}: {error}");
    }
}
