//! `toolcrib sessions price`, on a session that was made elsewhere and on one that was just held.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Folder, SESSION, SESSION_ID, WEATHER, keys, sample};

/// A folder with a session kept, and the tools it is about.
fn kept() -> Folder {
    let folder = Folder::new(&[("talk.json", SESSION), ("weather.json", WEATHER)]);
    folder.text("sessions import talk.json");
    folder
}

/// A folder in which a model has just looked for tools, and what came of it.
fn held() -> (Folder, Value) {
    let folder = sample();
    let ran =
        folder.json("run search~git~log --model scripted --yes --keep --mode deferred --json");
    (folder, ran)
}

/// The numbers of a strategy, of those a model was priced or planned with.
fn row<'a>(of: &'a Value, strategy: &str) -> &'a Value {
    let rows = of["strategies"].as_array().unwrap();
    rows.iter().find(|row| row["strategy"] == strategy).unwrap()
}

#[test]
fn a_session_is_priced_with_a_model_of_each_provider() {
    let folder = kept();
    let text = folder.text("sessions price 1m3250 --tools weather.json");
    assert!(text.starts_with("Is it raining in Oslo?\n"), "{text}");
    assert!(text.contains("\nWhat was spent is not known.\n"), "{text}");
    let note = "The table of models has no `scripted`, which it began with.";
    assert!(text.contains(note), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    let firsts: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(" full "))
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert_eq!(firsts, ["claude-sonnet-5.5", "gpt-6.1-sol", "gemini-3.8-flash", "local"]);
    let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!((count(" inject "), count(" dispatch "), count(" native ")), (4, 4, 2), "{text}");
}

#[test]
fn the_session_s_own_model_comes_first() {
    let own = SESSION.replace("\"scripted\"", "\"claude-opus-5-5-20260922\"");
    let folder = Folder::new(&[("talk.json", &own), ("weather.json", WEATHER)]);
    folder.text("sessions import talk.json");
    let priced = folder.json("sessions price 1m3250 --tools weather.json --json");
    assert_eq!(keys(&priced), ["session", "spent", "models", "notes"]);
    assert_eq!((&priced["session"]["id"], &priced["spent"]), (&json!(SESSION_ID), &Value::Null));
    assert_eq!(priced["models"].as_array().unwrap().len(), 5);
    assert_eq!(priced["models"][0]["model"], "claude-opus-5.5");
    assert_eq!(priced["notes"], json!([]));
    let names = |args: &str| -> Vec<String> {
        let priced =
            folder.json(&format!("sessions price 1m3250 --tools weather.json --json {args}"));
        let models = priced["models"].as_array().unwrap().iter();
        models.map(|it| it["model"].as_str().unwrap().to_owned()).collect()
    };
    let chosen = names("--model gpt-4.1 --model claude-haiku-9 --model gpt-4.1");
    assert_eq!(chosen, ["gpt-4.1", "claude-haiku-9 (as anthropic)"]);
    let all = names("--all");
    assert!(all.len() > 20 && all.iter().any(|it| it == "gemini-4-argon"), "{all:?}");
}

#[test]
fn what_was_paid_stands_beside_what_it_would_have_been() {
    let (folder, ran) = held();
    let id = ran["session"].as_str().unwrap();
    let args = format!("sessions price {id} --model gpt-5.6-sol");
    let priced = folder.json(&format!("{args} --json"));
    assert_eq!(priced["spent"]["usage"], ran["usage"]);
    let model = &priced["models"][0];
    // The same prompts as were really sent, counted by the same vocabulary.
    let usage = |key: &str| ran["usage"][key].as_u64().unwrap();
    let really = (usage("read") + usage("written") + usage("uncached")) as f64;
    let dispatch = row(model, "dispatch");
    let told = dispatch["prompt"].as_u64().unwrap() as f64;
    assert!((told / really - 1.0).abs() < 0.02, "{told} tokens, where {really} were sent");
    assert_eq!(dispatch["calls"], ran["turns"]);
    // Nobody who has every schema looks for one.
    assert_eq!(row(model, "full")["calls"], 1);
    assert!(dispatch["dollars"].as_f64() < row(model, "full")["dollars"].as_f64(), "{model}");
    assert_eq!(model["cheapest"], "native");
    let text = folder.text(&args);
    assert!(text.contains("\nSpent: 2 turns: "), "{text}");
    let dollars = row(model, "native")["dollars"].as_f64().unwrap();
    assert!(text.contains(&format!("  ${dollars:.4}  ")), "{text}");
}

#[test]
fn the_forecast_is_what_a_plan_says_of_the_same_conversation() {
    let (folder, ran) = held();
    std::fs::write(folder.path("weather.json"), WEATHER).unwrap();
    let id = ran["session"].as_str().unwrap();
    let args = format!("sessions price {id} --tools weather.json --model gpt-5.6-sol --json");
    let forecast = folder.json(&args)["models"][0]["forecast"].clone();
    let scenario = |key: &str| forecast["scenario"][key].clone();
    assert_eq!((scenario("turns"), scenario("loads")), (json!(1), json!(1)));
    let plan = folder.json(&format!(
        "plan --tools weather.json --model gpt-5.6-sol --json --turns 1 --loads {} --per-load {} \
         --system {} --history {} --per-turn {} --output {}",
        scenario("loads"),
        scenario("tools_per_load"),
        scenario("system"),
        scenario("history"),
        scenario("input_per_turn"),
        scenario("output_per_turn"),
    ));
    assert_eq!(forecast["strategies"], plan["strategies"]);
    assert_eq!(forecast["cheapest"], plan["cheapest"]);
}

#[test]
fn tools_that_are_gone_are_named_and_counted_as_they_were() {
    let (folder, ran) = held();
    std::fs::write(folder.path("weather.json"), WEATHER).unwrap();
    let id = ran["session"].as_str().unwrap();
    let priced = folder.json(&format!("sessions price {id} --tools weather.json --json"));
    let note = priced["notes"][0].as_str().unwrap();
    let gone = "No longer in the catalog, counted as they were recorded: ";
    assert!(note.starts_with(gone) && note.contains("mcp__git__log"), "{note}");
}

#[test]
fn answers_that_are_no_longer_there_are_said_to_be() {
    let (folder, ran) = held();
    let id = ran["session"].as_str().unwrap();
    // What was spent up to a message is copied with it.
    let copy = folder.json(&format!("sessions fork {id} --at 3 --json"))["id"].clone();
    for id in [id, copy.as_str().unwrap()] {
        let whole = folder.json(&format!("sessions price {id} --json"));
        assert!(!whole["notes"].to_string().contains("was asked"), "{}", whole["notes"]);
    }
    let mut exported = folder.json(&format!("sessions export {id}"));
    let last = exported["messages"].as_array_mut().unwrap().last_mut().unwrap();
    last["spent"]["turns"] = 5.into();
    fs::write(folder.path("more.json"), exported.to_string()).unwrap();
    let copy = folder.json("sessions import more.json --json")["id"].clone();
    let priced = folder.json(&format!("sessions price {} --json", copy.as_str().unwrap()));
    let note = "The model was asked 5 times in all. Priced here: 2 answers; others failed, or were \
                taken out.";
    assert_eq!(priced["notes"].as_array().unwrap().last().unwrap(), note);
}

#[test]
fn what_can_not_be_priced_is_refused_with_what_to_do() {
    let folder = kept();
    let message = folder.fails(2, "sessions price nothing");
    assert!(message.contains("there is no session `nothing`; `toolcrib sessions` lists them"));
    let message = folder.fails(2, "sessions price 1m3250 --model claud-opus-5-5");
    assert!(message.contains("; did you mean `claude-opus-5.5`?"), "{message}");
    let message = folder.fails(2, "sessions price 1m3250 --all --model gpt-4.1");
    assert!(message.contains("cannot be used with"), "{message}");
    let message = folder.fails(1, "sessions price 1m3250 --tools nowhere.json");
    assert!(message.contains("can't read tools from nowhere.json"), "{message}");

    let id = folder.json("sessions fork 1m3250v3v10z --at 1 --json")["id"].clone();
    let id = id.as_str().unwrap();
    let message = folder.fails(1, &format!("sessions price {id}"));
    assert!(
        message.contains("has no answer of a model, so there is nothing to price"),
        "{message}"
    );
    assert!(message.contains(&format!("`toolcrib chat --resume {id}` goes on")), "{message}");

    let newer = SESSION.replace("\"role\":\"tool\"", "\"role\":\"oracle\"");
    let folder = Folder::new(&[("talk.json", &newer)]);
    folder.text("sessions import talk.json");
    let message = folder.fails(1, "sessions price 1m3250");
    let told = format!("message 3 of session {SESSION_ID} is not one that this version knows");
    assert!(message.contains(&told) && message.contains("--at 2`"), "{message}");
}
