//! `toolcrib tools`: the dashboard.

use serde_json::{Value, json};

use crate::support::{Folder, WEATHER, keys, sample};

// The neutral forms of WEATHER's tools. Their counts were taken once with bpe-openai, an
// independent tokenizer; the test below takes them again.
const FORECAST: &str = r#"{"name":"mcp__weather__get_forecast","description":"Weather forecast for a place.","input_schema":{"type":"object","properties":{"place":{"type":"string"}},"required":["place"]}}"#;
const ALERTS: &str = r#"{"name":"mcp__weather__get_alerts","description":"Severe weather alerts.","input_schema":{"type":"object"}}"#;
const FORECAST_TOKENS: u64 = 41;
const ALERTS_TOKENS: u64 = 26;

#[test]
fn token_totals_are_those_of_an_independent_tokenizer() {
    let count = |text: &str| bpe_openai::o200k_base().count(text) as u64;
    assert_eq!([count(FORECAST), count(ALERTS)], [FORECAST_TOKENS, ALERTS_TOKENS]);

    let folder = Folder::new(&[("weather.json", WEATHER)]);
    let full = folder.json("tools --tools weather.json --json");
    let sum = FORECAST_TOKENS + ALERTS_TOKENS;
    assert_eq!(full["tools"][0]["tokens"], ALERTS_TOKENS);
    assert_eq!(full["tools"][1]["tokens"], FORECAST_TOKENS);
    let totals = |value: &Value| {
        ["tools", "full", "deferred", "active"].map(|key| value["totals"][key].as_u64().unwrap())
    };
    assert_eq!(totals(&full), [2, sum, 0, sum]);

    let deferred = folder.json("tools --tools weather.json --mode deferred --json");
    let prompt = folder.json("prompt --tools weather.json --mode deferred --json");
    let verbs = prompt["tools"].as_array().unwrap().iter().map(|tool| count(&tool.to_string()));
    let section = count(prompt["system_section"].as_str().unwrap());
    let active = section + verbs.sum::<u64>();
    assert_eq!(totals(&deferred), [2, sum, sum, active]);
    assert_eq!(
        prompt["tokens"],
        json!({"system": section, "tools": active - section, "total": active, "full": sum})
    );
}

#[test]
fn tools_json_has_the_promised_shape() {
    let value = sample().json("tools --json");
    assert_eq!(keys(&value), ["tools", "totals"]);
    let tools = value["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 42);
    let read = tools.iter().find(|tool| tool["tool"] == "read_file").unwrap();
    assert_eq!(read["name"], "mcp__files__read_file");
    assert_eq!((&read["server"], &read["deferred"]), (&json!("files"), &json!(true)));
    let sum: u64 = tools.iter().map(|tool| tool["tokens"].as_u64().unwrap()).sum();
    let totals = &value["totals"];
    assert_eq!((&totals["tools"], &totals["full"]), (&json!(42), &json!(sum)));
    assert_eq!(totals["deferred"], totals["full"]);
    assert!(totals["active"].as_u64().unwrap() < sum / 4, "{totals}");
}

#[test]
fn the_dashboard_shows_every_tool_and_what_is_saved() {
    let text = sample().text("tools");
    let lines: Vec<&str> = text.lines().collect();
    let header: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(header, ["TOOL", "SOURCE", "GROUP", "STATE", "LOADED", "TOKENS"]);
    let row = |name: &str| {
        let row = lines.iter().find(|line| line.starts_with(name)).unwrap();
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("open_pull_request ")[1..5], ["mcp", "mcp:git", "deferred", "-"]);
    assert!(text.contains("\n42 tools; preset crib, dispatch, deferring; tokens by o200k_base\n"));
    assert!(text.contains("tool_search load_tools call_tool"));
    assert!(text.contains("  saved "), "{text}");
    assert!(!text.contains('\x1b'));
}

#[test]
fn why_a_tool_is_eager_is_said() {
    let text = sample().text("tools --provider-class local --why read_file");
    let row = text.lines().find(|line| line.starts_with("read_file")).unwrap();
    assert!(row.contains(" eager ") && row.contains(" yes "), "{row}");
    assert!(row.ends_with("set `core` for local models has `read_file`"), "{row}");
    assert!(text.contains("1 of 42 tools shown"), "{text}");
}

#[test]
fn a_filter_is_part_of_a_name_or_a_pattern() {
    let names = |args: &str| -> Vec<String> {
        let value = sample().json(args);
        let tools = value["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["tool"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("tools PULL --json"), ["merge_pull_request", "open_pull_request"]);
    assert_eq!(names("tools git/*_pull* --json"), ["merge_pull_request", "open_pull_request"]);
    assert_eq!(names("tools xyzzy --json"), [""; 0]);
    assert!(sample().text("tools xyzzy").starts_with("No tool matches `xyzzy`."));
}

#[test]
fn servers_are_summed_up() {
    let value = sample().json("tools --by server --sort tokens --json");
    let servers = value["servers"].as_array().unwrap();
    let tokens: Vec<u64> = servers.iter().map(|row| row["tokens"].as_u64().unwrap()).collect();
    assert!(tokens.is_sorted_by(|a, b| a >= b), "{tokens:?}");
    assert_eq!(value["totals"]["full"], tokens.iter().sum::<u64>());
    let text = sample().text("tools --by server");
    let files = text.lines().find(|line| line.starts_with("files ")).unwrap();
    assert_eq!(files.split_whitespace().collect::<Vec<_>>()[1..4], ["8", "8", "0"]);
}
