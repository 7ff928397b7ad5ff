//! `toolcrib prompt`: what a model would see.

use serde_json::{Value, json};

use crate::support::{Folder, keys, sample};

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
fn the_sums_are_right_under_every_preset_and_strategy() {
    let folder = sample();
    for preset in ["crib", "regex", "stubs", "lazy", "groups", "exact"] {
        for strategy in ["dispatch", "inject"] {
            let options = format!("--json --mode deferred --preset {preset} --strategy {strategy}");
            let tokens = folder.json(&format!("prompt {options}"))["tokens"].clone();
            let count = |key: &str| tokens[key].as_u64().unwrap();
            assert_eq!(count("total"), count("system") + count("tools"), "{options}");
            assert!(count("total") < count("full"), "{options}");
            let totals = &folder.json(&format!("tools {options}"))["totals"];
            assert_eq!(totals["full"], count("full"), "{options}");
            assert_eq!(totals["active"], count("total"), "{options}");
        }
    }
}

#[test]
fn every_provider_has_its_form() {
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
        let full = sample().json(&format!("prompt --provider {provider} --mode full --json"));
        assert_eq!(full["tools"].as_array().unwrap().len(), 42, "{provider}");
        assert_eq!(full["tokens"]["tools"], value["tokens"]["full"], "{provider}");
        assert_eq!(full["system_section"], "", "{provider}");
    }
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
fn a_model_nobody_knows_is_counted_by_an_estimate_and_said_to_be() {
    let output = sample().run("prompt --model claud-opus-5-5 --json");
    let warning = "warning: the table of models has no `claud-opus-5-5`, so tokens are estimated; \
                   did you mean `claude-opus-5.5`?\n";
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), warning));
}
