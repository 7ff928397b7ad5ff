//! The real binary, run on files in a folder of its own.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder to run in, and what to put there.
struct Folder(TempDir);

struct Output {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Folder {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
        command.current_dir(self.0.path()).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        // A `~` stands for a space within an argument.
        command.args(args.split_whitespace().map(|arg| arg.replace('~', " ")));
        command
    }

    fn run(&self, args: &str) -> Output {
        let output = self.command(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Output {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// What a run that must succeed prints.
    fn text(&self, args: &str) -> String {
        let output = self.run(args);
        assert_eq!(output.code, Some(0), "{args}: {}", output.stderr);
        output.stdout
    }

    fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.text(args)).unwrap()
    }

    /// What a run that must fail says.
    fn fails(&self, code: i32, args: &str) -> String {
        let output = self.run(args);
        assert_eq!(output.code, Some(code), "{args}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{args}");
        output.stderr
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }
}

fn sample() -> Folder {
    Folder::new(&[])
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

const WEATHER: &str = r#"{"server": "weather", "tools": [
    {"name": "get_forecast", "description": "Weather forecast for a place.",
     "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}},
    {"name": "get_alerts", "description": "Severe weather alerts.", "inputSchema": {"type": "object"}}]}"#;

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

#[test]
fn search_ranks_and_keeps_its_json_shape() {
    let value = sample().json("search open~a~pull~request --limit 2 --json");
    assert_eq!(keys(&value), ["query", "total_matches", "results"]);
    assert_eq!(value["query"], "open a pull request");
    let results = value["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    assert_eq!(keys(&results[0]), ["name", "server", "tool", "score"]);
    assert_eq!(results[0]["name"], "mcp__git__open_pull_request");
    assert!(value["total_matches"].as_u64().unwrap() > 2);
}

#[test]
fn search_without_a_query_shows_the_sample() {
    let output = sample().run("search");
    assert_eq!(output.code, Some(0));
    assert!(output.stderr.starts_with("Using the built-in sample."), "{}", output.stderr);
    let first = output.stdout.lines().find(|line| line.trim_start().starts_with("1 ")).unwrap();
    assert!(first.contains("open_pull_request"), "{}", output.stdout);
    let own = Folder::new(&[("weather.json", WEATHER)]);
    assert!(own.fails(2, "search --tools weather.json").contains("say what to search for"));
}

#[test]
fn search_explains_its_scores() {
    let text = sample().text("search free~time --limit 1 --explain");
    assert!(text.contains("mcp__calendar__find_free_time"), "{text}");
    assert!(text.contains("  free  (in ") && text.contains("idf"), "{text}");
    let value = sample().json("search free~time --limit 1 --explain --json");
    assert_eq!(value["results"][0]["explanation"]["terms"][0]["term"], "free");
}

#[test]
fn search_has_an_answer_for_odd_queries() {
    let folder = sample();
    assert!(folder.text("search xyzzy").contains("Nothing. Try other words"));
    assert!(folder.fails(2, "search ~").contains("the query is empty"));
    assert!(folder.fails(2, "search /(/").contains("not a valid regular expression"));
    assert!(folder.text("search select:read_file,nope").contains("not found: nope"));
    assert_eq!(folder.json("search mail --limit 0 --json")["results"], json!([]));
    let most = format!("search read_file --limit {} --json", usize::MAX);
    assert_eq!(folder.json(&most)["results"][0]["tool"], "read_file");
}

#[test]
fn a_batch_passes_ids_through() {
    let queries = "{\"id\": \"a-1\", \"query\": \"merge pull request\", \"gold\": []}\n\n\
                   {\"query\": \"blame\", \"id\": 12345678901234567890123}\n{\"id\": 1.50, \"query\": \" \"}\n";
    let folder = Folder::new(&[("q.jsonl", queries)]);
    let output = folder.run("search --queries q.jsonl --run out.jsonl --limit 2");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("3 queries over 42 tools in "), "{}", output.stderr);
    assert!(output.stderr.contains("1 asked for nothing"), "{}", output.stderr);
    let run = fs::read_to_string(folder.path("out.jsonl")).unwrap();
    let lines: Vec<&str> = run.lines().collect();
    assert!(lines[0].starts_with("{\"id\":\"a-1\",\"ranked\":[\"git/merge_pull_request\",\""));
    assert!(lines[1].starts_with("{\"id\":12345678901234567890123,\"ranked\":[\"git/blame\""));
    assert_eq!(lines[2], "{\"id\":1.50,\"ranked\":[]}");

    let summary = folder.json("search --queries q.jsonl --run out.jsonl --json");
    assert_eq!(keys(&summary), ["queries", "seconds", "p50_us", "p99_us", "unanswered"]);
    assert_eq!(folder.text("search --queries q.jsonl --run - --limit 2"), run);
}

#[test]
fn a_bad_line_of_queries_is_named() {
    let folder = Folder::new(&[("q.jsonl", "{\"id\": 1, \"query\": \"x\"}\n{\"id\": 2}\n")]);
    let message = folder.fails(1, "search --queries q.jsonl --run out.jsonl");
    assert!(message.contains("q.jsonl, line 2: expected {\"id\""), "{message}");
    assert!(message.contains("missing field `query`"), "{message}");
    assert!(!folder.path("out.jsonl").exists());
}

#[test]
fn prompt_json_has_the_promised_shape() {
    let value = sample().json("prompt --json");
    assert_eq!(keys(&value), ["system_section", "tools", "tokens"]);
    assert_eq!(keys(&value["tokens"]), ["system", "tools", "total", "full"]);
    let tools = value["tools"].as_array().unwrap();
    let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["tool_search", "load_tools", "call_tool"]);
    assert_eq!(keys(&tools[0]), ["name", "description", "input_schema"]);
    assert!(value["system_section"].as_str().unwrap().contains("open_pull_request"));
}

#[test]
fn every_preset_and_provider_has_a_prompt() {
    for preset in ["crib", "regex", "stubs", "lazy", "groups", "exact"] {
        let value = sample().json(&format!("prompt --preset {preset} --mode deferred --json"));
        assert!(value["tokens"]["total"].as_u64() < value["tokens"]["full"].as_u64(), "{preset}");
    }
    for (provider, pointer) in [
        ("neutral", "/input_schema/type"),
        ("anthropic", "/input_schema/type"),
        ("openai", "/function/parameters/type"),
        ("ollama", "/function/parameters/type"),
        ("openai-responses", "/parameters/type"),
        ("gemini", "/parametersJsonSchema/type"),
    ] {
        let value = sample().json(&format!("prompt --provider {provider} --json"));
        assert_eq!(value["tools"][0].pointer(pointer), Some(&json!("object")), "{provider}");
    }
    let full = sample().json("prompt --mode full --json");
    assert_eq!(full["tools"].as_array().unwrap().len(), 42);
    assert_eq!(full["tokens"]["tools"], full["tokens"]["full"]);
    assert_eq!(full["system_section"], "");
}

#[test]
fn a_prompt_is_shown_as_the_model_gets_it() {
    let text = sample().text("prompt");
    let json = sample().json("prompt --json");
    assert!(text.starts_with("── system section: "), "{text}");
    assert!(text.contains(json["system_section"].as_str().unwrap().trim_end()));
    assert!(text.contains("{\n  \"name\": \"tool_search\",\n"), "{text}");
    assert!(text.contains("── tokens, as o200k_base counts\n"), "{text}");
}

#[test]
fn numbers_no_parser_can_hold_survive() {
    let big = "340282366920938463463374607431768211457";
    let list = format!(
        r#"[{{"name": "roll", "inputSchema": {{"type": "object", "properties": {{"n": {{"maximum": {big}}}}}}}}}]"#
    );
    let folder = Folder::new(&[("dice.json", &list)]);
    for args in ["prompt --tools dice.json", "prompt --tools dice.json --json"] {
        assert!(folder.text(args).contains(big), "{args}");
    }
}

#[test]
fn estimates_are_marked() {
    let text = sample().text("prompt --model claude-opus-5-5");
    assert!(text.starts_with("── system section: ~"), "{text}");
    assert_eq!(sample().json("prompt --model claude-opus-5-5 --json")["tokens"]["exact"], false);
    let exact = sample().text("prompt --model gpt-5.6-sol");
    assert!(!exact.contains(": ~"), "{exact}");
}

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
fn text_from_a_server_cant_reach_the_terminal_as_escapes() {
    let list =
        "[{\"name\": \"\\u001b[31mred\\u0007\", \"description\": \"\\u001b]0;title\\u0007\"}]";
    let folder = Folder::new(&[("evil.json", list)]);
    for args in ["tools", "search red", "prompt --mode deferred"] {
        let text = folder.text(&format!("{args} --tools evil.json --color always"));
        assert!(!text.contains("\x1b[31m") && !text.contains('\x07'), "{text:?}");
    }
}

#[test]
fn a_configuration_error_names_file_line_column_key_and_the_key_that_was_meant() {
    let folder = Folder::new(&[(
        "toolcrib.toml",
        "preset = \"groups\"\ntreshold_tools = 3\n\n[policy]\ndeny_server = []\n",
    )]);
    let expected = "error: toolcrib.toml, line 2, column 1, `treshold_tools`: there is no such key; did you mean `threshold_tools`?\n\
        toolcrib.toml, line 5, column 1, `policy.deny_server`: there is no such key; did you mean `deny_servers`?\n";
    for args in ["tools", "search x", "prompt", "plan", "config check", "config show"] {
        assert_eq!(folder.fails(2, args), expected, "{args}");
    }
    let message = folder.fails(2, "tools --config nowhere.toml");
    assert!(message.contains("can't read configuration nowhere.toml"), "{message}");
}

#[test]
fn a_configuration_is_obeyed_and_options_come_before_it() {
    let config = "tools = [\"lists\"]\nmode = \"deferred\"\nstrategy = \"inject\"\nprofile = \"desk\"\n\
        models = \"models.toml\"\n[eager.sets]\nsky = [\"get_alerts\"]\n[eager.profiles]\ndesk = [\"sky\"]\n\
        other = []\n[policy]\ndeny_tools = [\"seven\"]\n";
    let folder = Folder::new(&[
        ("conf/toolcrib.toml", config),
        ("conf/lists/weather.json", WEATHER),
        ("conf/lists/seven.json", r#"[{"name": "seven"}]"#),
        ("conf/models.toml", "[[model]]\nname = \"house\"\nvocabulary = \"cl100k_base\"\n"),
    ]);
    let value = folder.json("tools --config conf/toolcrib.toml --json");
    assert_eq!((&value["totals"]["tools"], &value["totals"]["hidden"]), (&json!(2), &json!(1)));
    let reason = &value["tools"][0]["eager_reason"];
    assert_eq!(reason, "set `sky` of profile `desk` has `get_alerts`");
    let text = folder.text("tools --config conf/toolcrib.toml");
    assert!(text.contains("preset crib, inject, deferring"), "{text}");

    let value = folder.json("tools --config conf/toolcrib.toml --json --profile other");
    assert_eq!(value["tools"][0]["eager_reason"], Value::Null);
    let value = folder.json("tools --config conf/toolcrib.toml --json --mode full");
    assert_eq!(value["totals"]["deferred"], 0);
    let message = folder.fails(2, "tools --config conf/toolcrib.toml --profile dusk");
    assert!(message.contains("`dusk` is not defined; did you mean `desk`?"), "{message}");
    let exact = folder.text("prompt --config conf/toolcrib.toml --model house");
    assert!(exact.contains("as house counts") && !exact.contains('~'), "{exact}");
    assert!(folder.text("config check conf/toolcrib.toml").contains("is fine"));
}

#[test]
fn config_show_is_a_configuration() {
    let folder = Folder::new(&[("toolcrib.toml", "preset = \"regex\"\n")]);
    let shown = folder.text("config show");
    assert!(shown.contains("preset = \"regex\"\n") && shown.contains("search_limit = 10\n"));
    fs::write(folder.path("again.toml"), &shown).unwrap();
    assert_eq!(folder.text("config show --config again.toml"), shown);
    assert_eq!(folder.json("config show --json")["search_limit_max"], 50);
    assert!(sample().text("config check").contains("there is no toolcrib.toml here"));
}

#[test]
fn the_schema_knows_every_key_that_is_shown() {
    let schema = sample().json("config schema");
    let shown = sample().json("config show --json");
    let known = keys(&schema["properties"]);
    assert!(keys(&shown).iter().all(|key| known.contains(key)));
    assert_eq!(schema["additionalProperties"], false);
    for key in known {
        assert!(schema["properties"][key]["description"].is_string(), "{key}");
    }
}

#[test]
fn a_table_of_models_with_a_mistake_is_named() {
    let folder = Folder::new(&[
        ("toolcrib.toml", "models = \"m.toml\""),
        ("m.toml", "[[model]]\nname = \"x\"\nprise = 1\n"),
    ]);
    for args in ["prompt --model x", "config check"] {
        let message = folder.fails(2, args);
        assert!(message.contains("m.toml, line 3, `prise`"), "{message}");
    }
}

#[test]
fn colours_are_there_when_asked_for_only() {
    let folder = sample();
    assert!(folder.text("tools --color always").contains('\x1b'));
    assert!(!folder.text("tools --color never").contains('\x1b'));
    assert!(!folder.text("tools").contains('\x1b'));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    // More than a pipe holds, so the rest meets a closed one.
    let list = format!(r#"[{{"name": "long", "description": "{}"}}]"#, "word ".repeat(100_000));
    let folder = Folder::new(&[("long.json", &list)]);
    for args in ["prompt --tools long.json", "prompt --tools long.json --json"] {
        let mut command = folder.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args}");
    }
}

#[test]
fn a_wrong_word_is_answered_with_the_right_ones() {
    let message = sample().fails(2, "tools --preset crab");
    assert!(message.contains("crib") && message.contains("crab"), "{message}");
    assert!(sample().fails(2, "serch x").contains("search"));
}

#[test]
fn every_command_explains_itself_with_examples() {
    for command in [
        "tools",
        "search",
        "prompt",
        "plan",
        "config show",
        "config check",
        "config schema",
        "completions",
    ] {
        let help = sample().text(&format!("{command} --help"));
        assert!(help.contains("Example"), "{command}: {help}");
    }
    assert!(sample().text("completions bash").contains("toolcrib"));
    assert!(sample().text("--version").starts_with("toolcrib "));
}
