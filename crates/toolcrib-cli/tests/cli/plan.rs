//! `toolcrib plan`, run as a person or a script would.

use serde_json::{Value, json};

use crate::support::{Folder, sample};

/// A folder with `shop.json`, a server with so many tools.
fn shop(tools: usize) -> Folder {
    let tool = |n: usize| {
        json!({"name": format!("note_thing_{n}"), "description": "Writes a note about a thing.",
            "inputSchema": {"type": "object", "properties": {
                "id": {"type": "integer", "description": "The number of the thing."},
                "text": {"type": "string", "description": "What to say about it."}}}})
    };
    let list = json!({"server": "shop", "tools": (0..tools).map(tool).collect::<Vec<_>>()});
    Folder::new(&[("shop.json", &list.to_string())])
}

#[test]
fn without_arguments_it_plans_the_sample() {
    let text = sample().text("plan --quiet");
    let starts = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    assert_eq!(starts("strategy  calls  prompt tokens"), 1, "{text}");
    for strategy in ["full ", "inject ", "dispatch "] {
        assert!(starts(strategy) >= 1, "{text}");
    }
    assert!(text.starts_with("42 tools, 20 turns, anthropic\n"), "{text}");
    assert!(text.contains(" is cheapest: "), "{text}");
    assert!(text.contains("Assumed: 1,000 tokens in and 250 out each turn"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn estimates_are_marked_and_dollars_shown_only_where_they_are_known() {
    let (estimated, exact) = (sample().text("plan"), sample().text("plan --model gpt-5.6-sol"));
    assert!(estimated.contains('~') && !estimated.contains('$'), "{estimated}");
    assert!(estimated.contains("Prices are not known"), "{estimated}");
    assert!(!exact.contains('~') && exact.contains('$'), "{exact}");
}

#[test]
fn json_has_every_number() {
    let plan = sample().json("plan --json --model claude-opus-5-5 --turns 10 --loads 2");
    assert_eq!(plan["scenario"]["turns"], 10);
    assert_eq!(plan["model"]["name"], "claude-opus-5.5");
    assert_eq!(plan["model"]["exact"], false);
    let rows = plan["strategies"].as_array().unwrap();
    let names: Vec<&Value> = rows.iter().map(|row| &row["strategy"]).collect();
    assert_eq!(names, ["full", "inject", "dispatch", "native"]);
    let calls: Vec<&Value> = rows.iter().map(|row| &row["calls"]).collect();
    assert_eq!(calls, [10, 12, 12, 12]);
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
    let cheapest =
        |folder: Folder| folder.json("plan --json --tools shop.json")["cheapest"].clone();
    assert_eq!(cheapest(shop(400)), "dispatch");
    assert_eq!(cheapest(shop(3)), "full");
}

#[test]
fn native_is_compared_for_models_that_have_it() {
    let rows = |model: &str| {
        let text = shop(400).text(&format!("plan --tools shop.json --model {model}"));
        (text.contains("native is cheapest: dispatch costs "), text.contains("\nnative "))
    };
    assert_eq!(rows("claude-opus-5-5"), (true, true));
    assert_eq!(rows("gpt-5.6-sol"), (true, true));
    assert_eq!(rows("claude-opus-4-1"), (false, false));
}

#[test]
fn no_more_is_loaded_than_there_is() {
    let few = shop(7);
    let plan = few.json("plan --json --tools shop.json --loads 9");
    assert_eq!(plan["scenario"]["loads"], 2);
    let text = few.text("plan --tools shop.json --loads 9").replace('\n', " ");
    assert!(text.contains("2 × 5 tools loaded, evenly spread (asked for 9,"), "{text}");
}

#[test]
fn an_hour_in_the_cache_costs_more_to_write() {
    let cost =
        |args: &str| sample().json(args)["strategies"][0]["input_equivalents"].as_f64().unwrap();
    assert!(cost("plan --json --1h") > cost("plan --json"));
}

#[test]
fn what_does_not_fit_the_window_is_said() {
    let text = shop(400).text("plan --tools shop.json --context-window 40000").replace('\n', " ");
    assert!(text.contains("full does not fit: prompts of ~"), "{text}");
}

#[test]
fn the_largest_numbers_it_takes_can_be_summed_up() {
    let largest =
        "--history 1000000000 --system 1000000000 --per-turn 1000000000 --output 1000000000";
    let text = shop(1).text(&format!("plan --tools shop.json --turns 1000 {largest}"));
    assert!(text.starts_with("1 tool, 1,000 turns, anthropic\n"), "{text}");
    for wrong in ["--history 1000000001", "--output 18446744073709551615", "--per-turn -1"] {
        let message = sample().fails(2, &format!("plan {wrong}"));
        assert!(message.starts_with("error: invalid value"), "{message}");
    }
}

#[test]
fn mistakes_are_named_and_exit_with_2() {
    for (args, said) in [
        ("plan --model claud-opus-5-5", "; did you mean `claude-opus-5.5`?"),
        ("plan --provider openai --1h", "openai has no cache of an hour"),
        ("plan --provider openai --model gpt-5.6", "cannot be used with"),
        ("plan --turns 0", "--turns"),
        ("plan --preset cribs", "crib"),
    ] {
        let message = sample().fails(2, args);
        assert!(message.contains(said), "{args}: {message}");
    }
}
