//! `toolcrib eval`: figures on the shipped set, on sets in folders, on tool lists and on servers.

use serde_json::{Value, json};

use crate::support::{Folder, WEATHER, builtin, keys, sample};

const FIGURES: [&str; 10] = [
    "queries",
    "ndcg_10",
    "hit_1",
    "recall_1",
    "recall_5",
    "recall_10",
    "complete_10",
    "mrr",
    "p50_us",
    "p99_us",
];

/// Two tools of one name, and one without a server.
const TOOLS: &str = r#"{"id": "1", "server": "geo", "name": "area", "description": "Area of a circle."}
{"id": "2", "server": "geo", "name": "area", "description": "Area of a triangle."}

{"id": "3", "server": null, "name": "ping", "inputSchema": {"type": "object"}}
"#;
const QUERIES: &str = r#"{"id": "a", "query": "triangle", "gold": ["2"], "style": "keywords"}
{"id": 7, "query": "circle", "gold": ["1", "3"]}
"#;

fn set() -> Folder {
    Folder::new(&[("set/tools.jsonl", TOOLS), ("set/queries.jsonl", QUERIES)])
}

#[test]
fn the_shipped_set_is_measured_without_any_data() {
    let value = sample().json("eval --compare lexical --json");
    assert_eq!(keys(&value), ["runs", "below_lexical", "jobs", "warnings"]);
    assert_eq!(value["warnings"], json!([]));
    let run = &value["runs"][0];
    assert_eq!(keys(run), ["over", "ranking", "mean", "sets", "styles"]);
    assert_eq!((&run["over"], &run["ranking"]), (&json!("own"), &json!("lexical")));
    assert_eq!(keys(&run["mean"]), FIGURES);
    let set = &run["sets"][0];
    assert_eq!(keys(set)[..3], ["set", "tools", "build_ms"]);
    assert_eq!(
        (&set["set"], &set["tools"], &set["queries"]),
        (&json!("toolcrib"), &json!(98), &json!(131))
    );
    let styles: Vec<&str> =
        run["styles"].as_array().unwrap().iter().map(|it| it["style"].as_str().unwrap()).collect();
    assert_eq!(styles, ["keywords", "intent", "paraphrase", "user", "guess", "multi", "foreign"]);
    let figure = |at: usize| run["styles"][at]["recall_5"].as_f64().unwrap();
    assert!(figure(0) > 0.9 && figure(1) > 0.8, "{run}");
}

#[test]
fn the_table_has_sets_and_styles_and_no_progress_in_a_pipe() {
    let output = sample().run("eval");
    assert_eq!(output.code, Some(0));
    assert_eq!(output.stderr, "");
    let lines: Vec<Vec<&str>> =
        output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let row = |name: &str| lines.iter().find(|line| line.first() == Some(&name)).unwrap();
    assert_eq!(row("SET")[1..4], ["QUERIES", "nDCG@10", "HIT@1"]);
    assert_eq!(row("toolcrib")[1], "131");
    assert_eq!(row("multi")[1], "16");
}

#[test]
fn a_set_is_scored_by_its_own_ids() {
    let value = set().json("eval set --compare lexical --json");
    let run = &value["runs"][0];
    // `triangle` is found first; of the two that `circle` needs one is first, one not found:
    // 1 / (1 + 1 / log2(3)) = 0.613147.
    let mean = &run["mean"];
    assert_eq!(mean["ndcg_10"], json!(0.806574));
    assert_eq!(mean["recall_1"], json!(0.75));
    assert_eq!(mean["recall_10"], json!(0.75));
    assert_eq!((&mean["hit_1"], &mean["complete_10"]), (&json!(1.0), &json!(0.5)));
    assert_eq!(mean["mrr"], json!(1.0));
    assert_eq!(run["sets"][0]["tools"], json!(3));
    assert_eq!(run["styles"].as_array().unwrap().len(), 1);
}

#[test]
fn a_folder_of_sets_has_a_mean_and_a_pool() {
    let folder = Folder::new(&[
        ("all/one/tools.jsonl", TOOLS),
        ("all/one/queries.jsonl", QUERIES),
        (
            "all/two/tools.jsonl",
            "{\"id\": \"1\", \"name\": \"dice\"}\n{\"id\": \"x\", \"name\": \"coin\"}",
        ),
        ("all/two/queries.jsonl", "{\"id\": \"a\", \"query\": \"coin\", \"gold\": [\"x\"]}"),
        ("all/noise/tools.jsonl", "{\"id\": \"n\", \"name\": \"triangle\"}"),
        ("all/notes.txt", "not a set"),
    ]);
    let value = folder.json("eval all --pool --compare lexical --export run.jsonl --json");
    let runs = value["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    let names = |run: &Value| -> Vec<String> {
        let sets = run["sets"].as_array().unwrap().iter();
        sets.map(|set| format!("{} {}", set["set"].as_str().unwrap(), set["tools"])).collect()
    };
    assert_eq!(names(&runs[0]), ["one 3", "two 2"]);
    // An id that two sets have is one tool, and a set without queries adds its own.
    assert_eq!(names(&runs[1]), ["one 5", "two 5"]);
    assert_eq!(runs[0]["mean"]["ndcg_10"], json!(0.903287), "(0.806574 + 1) / 2");
    assert_eq!(runs[1]["over"], json!("pool"));

    let lines = |file: &str| -> Vec<Value> {
        folder.read(file).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let own = lines("run.jsonl");
    assert_eq!(own[0], json!({"set": "one", "id": "a", "ranked": ["2"]}));
    assert_eq!(own[1]["id"], json!(7));
    assert_eq!(own.len(), 3);
    // The tool of that very name stands first in the pool.
    assert_eq!(lines("run.pool.jsonl")[0]["ranked"], json!(["n", "2"]));

    let only = folder.json("eval all --pool=only --compare lexical,hybrid --export r.jsonl --json");
    assert_eq!(only["runs"].as_array().unwrap().len(), 2);
    assert_eq!(lines("r.lexical.jsonl").len(), lines("r.hybrid.jsonl").len());
    let table = folder.text("eval all --compare lexical");
    assert!(table.contains("mean over sets"), "{table}");
}

#[test]
fn saved_tool_lists_are_measured_with_queries() {
    let queries = r#"{"id": 1, "query": "forecast", "gold": ["weather/nowcast"], "gold_any": ["weather/get_forecast"]}
{"id": 2, "query": "weather alerts", "gold": ["weather/get_alerts", "weather/none"], "gold_any": {"weather/none": ["weather/get_forecast"]}}"#;
    let folder = Folder::new(&[("lists/weather.json", WEATHER), ("q.jsonl", queries)]);
    let args = "--queries q.jsonl --compare lexical --json";
    let output = folder.run(&format!("eval lists {args}"));
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    let set = &value["runs"][0]["sets"][0];
    assert_eq!((&set["set"], &set["tools"]), (&json!("q"), &json!(2)));
    assert_eq!((&set["ndcg_10"], &set["complete_10"]), (&json!(1.0), &json!(1.0)));
    let warning =
        "q: queries need 2 tools that the set doesn't have: weather/nowcast, weather/none";
    assert_eq!(value["warnings"], json!([warning]));
    assert!(output.stderr.contains(warning), "{}", output.stderr);
    for other in ["eval lists/weather.json", "eval --tools lists"] {
        let again = folder.json(&format!("{other} {args}"));
        assert_eq!(again["runs"][0]["sets"][0]["ndcg_10"], json!(1.0), "{other}");
    }
}

#[test]
fn queries_alone_are_for_the_servers_in_use() {
    let config = builtin("repo", "git");
    let queries = r#"{"id": 1, "query": "git status", "gold": ["repo/status"]}"#;
    let folder = Folder::new(&[("toolcrib.toml", &config), ("mine.jsonl", queries)]);
    let value = folder.json("eval --queries mine.jsonl --compare lexical --json");
    let set = &value["runs"][0]["sets"][0];
    assert_eq!(set["set"], json!("mine"));
    assert!(set["tools"].as_u64().unwrap() > 5, "{set}");
    assert_eq!(value["warnings"], json!([]), "{value}");
    assert_eq!(set["recall_5"], json!(1.0));
}

#[test]
fn queries_may_be_for_the_tools_of_a_set() {
    let folder = Folder::new(&[("set/tools.jsonl", TOOLS), ("q.jsonl", QUERIES)]);
    let value = folder.json("eval set --queries q.jsonl --compare lexical --json");
    assert_eq!(value["runs"][0]["mean"]["ndcg_10"], json!(0.806574));
}

#[test]
fn rankings_are_compared_in_one_table() {
    let text = sample().text("eval --compare lexical,static,hybrid");
    let head = text.lines().find(|line| line.starts_with("SET")).unwrap();
    let head: Vec<&str> = head.split_whitespace().collect();
    assert_eq!(
        head[2..],
        ["nDCG@10", "lexical", "static", "hybrid", "R@5", "lexical", "static", "hybrid"]
    );
    for ranking in ["lexical", "static", "hybrid"] {
        assert!(text.lines().any(|line| line.starts_with(ranking)), "{text}");
    }
    let value = sample().json("eval --compare lexical,lexical --json");
    assert_eq!(value["runs"].as_array().unwrap().len(), 1);
    assert!(sample().fails(2, "eval --compare bm25").contains("lexical, static or hybrid"));
}

#[test]
fn what_was_missed_is_explained() {
    let queries = r#"{"id": "m", "query": "area of a circle", "gold": ["2"], "style": "user"}
{"id": "n", "query": "area of nothing", "gold": ["3"]}
{"id": "o", "query": "ping", "gold": ["3"]}"#;
    let folder = Folder::new(&[("set/tools.jsonl", TOOLS), ("set/queries.jsonl", queries)]);
    let text = folder.text("eval set --compare lexical --misses");
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"));
    // The worst first; what was right is not told.
    assert!(at("area of nothing") < at("area of a circle"), "{text}");
    assert!(!text.contains("\nping"), "{text}");
    assert!(text.contains("needed     -  3  0.00; without area, noth"), "{text}");
    assert!(text.contains("needed    #2  2  ") && text.contains("; without circl"), "{text}");
    assert!(text.contains("found     #1  1  ") && text.contains("circl "), "{text}");

    let value = folder.json("eval set --compare lexical --misses=1 --json");
    let misses = value["misses"].as_array().unwrap();
    assert_eq!(misses.len(), 1);
    assert_eq!(keys(&misses[0]), ["set", "id", "query", "ndcg_10", "needed", "first"]);
    assert_eq!(keys(&misses[0]["first"][0])[..3], ["id", "rank", "is_needed"]);
    assert_eq!(misses[0]["needed"][0]["rank"], Value::Null);
    let text = folder.text("eval set --compare lexical --misses --set set --style user");
    assert!(text.contains("area of a circle") && !text.contains("nothing"), "{text}");
}

#[test]
fn filters_and_limits_choose_queries() {
    let count = |args: &str| {
        sample().json(&format!("eval {args} --json"))["runs"][0]["mean"]["queries"].clone()
    };
    assert_eq!(count("--style guess"), json!(20));
    assert_eq!(count("--style guess --style foreign"), json!(34));
    assert_eq!(count("--limit 3 --style multi"), json!(3));
    assert_eq!(count("--set toolcrib --limit 200 --jobs 2"), json!(131));
    assert!(sample().fails(2, "eval --style gues").contains("did you mean `guess`?"));
    assert!(sample().fails(2, "eval --set other").contains("there is no set `other`"));
    assert!(sample().fails(2, "eval --limit 0").contains("--limit"));
}

#[test]
fn more_threads_rank_the_same() {
    let folder = sample();
    folder.text("eval --export one.jsonl");
    folder.text("eval --export two.jsonl --jobs 3");
    assert_eq!(folder.read("one.jsonl"), folder.read("two.jsonl"));
}

#[test]
fn every_number_of_ranking_is_changed_by_itself() {
    // A few queries are enough to see that something changes.
    let plain = sample().json("eval --limit 12 --compare lexical,static,hybrid --json");
    let value = sample().json("eval --limit 12 --ablate --json");
    assert_eq!(keys(&value), ["default", "parameters", "jobs", "warnings"]);
    let run = |ranking: &str| {
        let runs = plain["runs"].as_array().unwrap();
        runs.iter().find(|run| run["ranking"] == json!(ranking)).unwrap()["mean"].clone()
    };
    for figure in ["queries", "ndcg_10", "recall_5"] {
        assert_eq!(value["default"][figure], run("hybrid")[figure], "{figure}");
    }
    let row = |name: &str| {
        let rows = value["parameters"].as_array().unwrap();
        rows.iter().find(|row| row["parameter"] == json!(name)).unwrap().clone()
    };
    let changes = |name: &str| -> Vec<String> {
        let row = row(name);
        let variants = row["variants"].as_array().unwrap().iter();
        variants.map(|it| it["change"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(changes("k1"), ["off", "half", "double"]);
    assert_eq!(changes("name: reference_length"), ["half", "double"]);
    assert_eq!(changes("details: told"), ["on"]);
    for (feature, ranking) in [("feature: vectors", "lexical"), ("feature: words", "static")] {
        assert_eq!(row(feature)["variants"][0]["ndcg_10"], run(ranking)["ndcg_10"], "{feature}");
    }
    let variant = &row("meaning")["variants"][0];
    let (is, was) = (&variant["ndcg_10"], &value["default"]["ndcg_10"]);
    let change = variant["ndcg_10_change"].as_f64().unwrap();
    assert!((was.as_f64().unwrap() + change - is.as_f64().unwrap()).abs() < 2e-6, "{variant}");
    assert_eq!(variant["worst"], json!({"set": "toolcrib", "ndcg_10_change": change}));
}

#[test]
fn what_the_numbers_are_worth_is_a_table_in_markdown() {
    let folder = Folder::new(&[
        ("all/one/tools.jsonl", TOOLS),
        ("all/one/queries.jsonl", QUERIES),
        ("all/two/tools.jsonl", TOOLS),
        ("all/two/queries.jsonl", QUERIES),
    ]);
    let text = folder.text("eval all --ablate --jobs 2");
    assert!(text.starts_with("| parameter | what it does | default | off |"), "{text}");
    let row = |name: &str| -> Vec<&str> {
        let head = format!("| {name} | ");
        let row = text.lines().find(|line| line.starts_with(&head)).unwrap();
        row.trim_matches('|').split('|').map(str::trim).collect()
    };
    for name in ["feature: synonyms", "k1", "fading", "name: weight", "hint: meaning"] {
        assert_eq!(row(name).len(), 6, "{text}");
    }
    // No query has a word that is not known.
    let unchanged = format!("{} (0, at worst 0)", row("*all as they are*")[2]);
    assert_eq!(row("feature: misspellings")[2..4], ["on", &*unchanged]);
    assert!(!text.contains("R@5"), "{text}");

    let mine = "eval all/one --queries all/one/queries.jsonl";
    let plain = folder.json(&format!("{mine} --json"));
    let recall = format!(", R@5 {:.4}", plain["runs"][0]["mean"]["recall_5"].as_f64().unwrap());
    let text = folder.text(&format!("{mine} --ablate"));
    assert!(text.contains(&recall) && !text.contains("at worst"), "{text}");
    for other in ["--pool", "--compare lexical", "--misses", "--export run.jsonl"] {
        assert!(folder.fails(2, &format!("eval all --ablate {other}")).contains("--ablate"));
    }
}

#[test]
fn offers_are_scored_by_all_that_a_query_needs() {
    let queries = r#"{"id": 1, "query": "weather alerts", "gold": ["weather/get_alerts"], "style": "user"}
{"id": 2, "query": "the forecast and severe alerts", "gold": ["weather/get_forecast", "weather/get_alerts"], "style": "multi"}
{"id": 3, "query": "xyzzy", "gold": ["weather/get_forecast"]}"#;
    let folder = Folder::new(&[("lists/weather.json", WEATHER), ("q.jsonl", queries)]);
    let value = folder.json("eval lists --queries q.jsonl --predict=1,2 --json");
    assert_eq!(keys(&value), ["sets", "warnings"]);
    let set = &value["sets"][0];
    assert_eq!(keys(set), ["set", "tools", "queries", "search", "offers", "styles"]);
    assert_eq!((&set["tools"], &set["queries"]), (&json!(2), &json!(3)));
    let [one, two] = &set["offers"].as_array().unwrap()[..] else { panic!("{set}") };
    let shares =
        |offer: &Value| (offer["most"].clone(), offer["all"].clone(), offer["some"].clone());
    // A single tool is half of what the second query needs; nothing is like the third.
    assert_eq!(shares(one), (json!(1), json!(0.3333), json!(0.6667)));
    assert_eq!(shares(two), (json!(2), json!(0.6667), json!(0.6667)));
    assert_eq!(set["search"]["all"], json!(0.6667));
    let figure = |offer: &Value, key: &str| offer[key].as_f64().unwrap();
    assert!(figure(one, "tokens") < figure(two, "tokens"), "{set}");
    for offer in [one, two] {
        assert!(figure(offer, "net") < figure(offer, "tokens"), "{offer}");
    }
    // Where both were offered, a search would have brought as much, in more words.
    let multi = &set["styles"][1];
    assert_eq!((&multi["style"], &multi["offers"][1]["all"]), (&json!("multi"), &json!(1.0)));
    let (offer, search) = (&multi["offers"][1], multi["search"]["tokens"].as_f64().unwrap());
    assert_eq!(figure(offer, "net"), figure(offer, "tokens") - search);
    assert!(figure(offer, "net") < 0.0, "{multi}");
}

#[test]
fn offers_are_a_table_by_how_many_and_by_style() {
    let text = sample().text("eval --predict --limit 30");
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    let has = |line: &[&str]| lines.iter().any(|it| it.starts_with(line));
    assert!(has(&["OFFERED", "ALL", "SOME", "TOKENS", "NET"]), "{text}");
    assert!(["1", "3", "5", "8", "10", "15"].iter().all(|most| has(&[most])), "{text}");
    assert!(has(&["STYLE", "TASKS", "ALL", "OF", "1"]) && has(&["keywords"]), "{text}");
    assert!(
        text.starts_with("toolcrib, 30 tasks over 98 tools (a search by the same words takes ")
    );
    // Two of one name can't both be there.
    let output = set().run("eval set --predict=3");
    assert!(output.stderr.contains("set: 1 tool left out, as others have their names"));
    for wrong in ["--predict=0", "--predict --ablate", "--predict --pool"] {
        assert!(sample().fails(2, &format!("eval {wrong}")).contains("--predict"), "{wrong}");
    }
}

#[test]
fn what_is_wrong_with_the_data_is_said_with_its_place() {
    let query = r#"{"id": 1, "query": "q", "gold": ["1"]}"#;
    let folder = Folder::new(&[
        ("good/tools.jsonl", TOOLS),
        ("good/queries.jsonl", query),
        ("other/good/tools.jsonl", TOOLS),
        ("broken/tools.jsonl", "{\"id\": \"1\", \"name\": \"a\"}\n{oops}\n"),
        ("empty/tools.jsonl", "\n"),
        ("unlabelled/tools.jsonl", TOOLS),
        ("nothing/readme.txt", "hello"),
        ("lists/weather.json", WEATHER),
        ("no-gold.jsonl", "{\"id\": 1, \"query\": \"q\"}"),
        ("empty-gold.jsonl", &format!("{query}\n{{\"id\": 2, \"query\": \"q\", \"gold\": []}}")),
        ("twice.jsonl", &format!("{query}\n\n{query}")),
        ("blank.jsonl", "\n\n"),
    ]);
    for (code, args, told) in [
        (1, "nowhere", "can't read nowhere"),
        (1, "nothing", "folder nothing has no tools.jsonl"),
        (1, "broken", "broken/tools.jsonl, line 2: expected {\"id\""),
        (1, "empty", "empty/tools.jsonl has no tool"),
        (2, "unlabelled", "no query is left"),
        (2, "good other", "two sets are called `good`"),
        (2, "lists", "lists has tools and no queries; give those with --queries FILE"),
        (2, "--tools lists", "lists has tools and no queries"),
        (1, "lists --queries twice.jsonl", "twice.jsonl, line 3: there is a query with the id 1"),
        (1, "lists --queries absent.jsonl", "can't read absent.jsonl"),
        (1, "lists --queries no-gold.jsonl", "no-gold.jsonl, line 1: expected {\"id\""),
        (1, "lists --queries empty-gold.jsonl", "empty-gold.jsonl, line 2: `gold` is empty"),
        (2, "lists --queries blank.jsonl", "blank.jsonl has no query"),
        (1, "good --export missing/run.jsonl", "can't write missing/run.jsonl"),
    ] {
        let message = folder.fails(code, &format!("eval {args}"));
        assert!(message.contains(told), "{args}: {message}");
    }
    let mixed = "eval good lists --queries good/queries.jsonl";
    assert!(folder.fails(2, mixed).contains("can't be measured together"));
}

#[test]
fn a_tool_that_cannot_be_read_costs_no_other() {
    let tools = format!("{TOOLS}{{\"id\": \"4\", \"name\": \"\"}}\n");
    let folder = Folder::new(&[("set/tools.jsonl", &tools), ("set/queries.jsonl", QUERIES)]);
    let value = folder.json("eval set --json");
    assert_eq!(value["runs"][0]["sets"][0]["tools"], json!(3));
    let warning = value["warnings"][0].as_str().unwrap();
    assert!(warning.contains("tools.jsonl, line 5 was left out: not a tool"), "{warning}");
}

#[test]
fn the_examples_of_its_help_and_of_the_docs_run() {
    let help = sample().text("eval --help");
    let of_help = help.lines().filter_map(|line| line.strip_prefix("  toolcrib "));
    let docs = include_str!("../../../../docs/search.md");
    let of_docs = docs.lines().filter(|line| line.starts_with("toolcrib eval"));
    let of_docs = of_docs.filter_map(|line| line.strip_prefix("toolcrib "));
    let (of_help, of_docs): (Vec<&str>, Vec<&str>) = (of_help.collect(), of_docs.collect());
    assert!(of_help.len() >= 5 && of_docs.len() >= 5, "{help}");
    let queries = r#"{"id": 1, "query": "alerts", "gold": ["weather/get_alerts"]}"#;
    for example in of_help.into_iter().chain(of_docs) {
        let folder = Folder::new(&[
            ("my.jsonl", queries),
            ("servers/weather.json", WEATHER),
            ("sets/one/tools.jsonl", TOOLS),
            ("sets/one/queries.jsonl", QUERIES),
        ]);
        let command = example.split("  ").next().unwrap();
        assert!(!folder.text(command).is_empty(), "{command}");
    }
}
