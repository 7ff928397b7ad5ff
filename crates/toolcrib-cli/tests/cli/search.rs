//! `toolcrib search`: one query, or a file of them.

use std::fs;

use serde_json::json;

use crate::support::{Folder, WEATHER, keys, sample};

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
    // `--tools` takes the query too, if that stands behind it.
    let message = own.fails(2, "search --tools weather.json severe~weather");
    assert!(message.contains("toolcrib search QUERY --tools PATH"), "{message}");
}

#[test]
fn search_explains_its_scores() {
    let text = sample().text("search free~time --limit 1 --explain");
    assert!(text.contains("mcp__calendar__find_free_time"), "{text}");
    assert!(text.contains("  free  (in ") && text.contains("  meaning  (cosine "), "{text}");
    let value = sample().json("search free~time --limit 1 --explain --json");
    assert_eq!(value["results"][0]["explanation"]["terms"][0]["term"], "free");
}

#[test]
fn search_has_an_answer_for_odd_queries() {
    let folder = sample();
    assert!(folder.text("search xyzzy").contains("Nothing. Try other words"));
    assert!(folder.fails(2, "search ~").contains("the query is empty"));
    assert!(folder.fails(2, "search /(/").contains("not a valid regular expression"));
    assert!(folder.fails(2, "search mail --limit -1").contains("invalid value '-1'"));
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
