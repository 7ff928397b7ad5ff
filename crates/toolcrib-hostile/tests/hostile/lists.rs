//! Lists, schemas, names, and what descriptions say.

use serde_json::{Value, json};
use toolcrib_wire::Era;

use crate::raw::{BOTH, LONG, Raw, text};

fn names(list: &Value) -> Vec<&str> {
    list["tools"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect()
}

fn schema<'a>(list: &'a Value, name: &str) -> &'a Value {
    let tools = list["tools"].as_array().unwrap();
    &tools.iter().find(|tool| tool["name"] == name).unwrap()["inputSchema"]
}

#[test]
fn pages_have_no_end() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--endless-pages"]);
        let mut params = json!({});
        for page in 0..50 {
            let list = raw.list(params);
            assert_eq!(names(&list).last(), Some(&&*format!("page_{page}")));
            params = json!({"cursor": list["nextCursor"]});
            assert!(params["cursor"].is_string());
        }
        // What is listed can be called.
        assert_eq!(text(&raw.call("page_7", json!({}))), "this is \"page_7\"");
    }
}

#[test]
fn pages_repeat() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--repeating-pages"]);
        let first = raw.list(json!({}));
        assert_eq!(first["nextCursor"], "again");
        assert_eq!(raw.list(json!({"cursor": "again"})), first);
    }
}

#[test]
fn there_are_very_many_tools() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--many-tools", "5000"]);
        assert_eq!(names(&raw.list(json!({}))).len(), 5004);
    }
}

#[test]
fn a_schema_has_ten_megabytes() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--big-schema"]);
        raw.ask("tools/list", json!({}));
        let line = raw.line_within(LONG).unwrap();
        assert!(line.len() > 10 << 20 && line.len() < 11 << 20, "{}", line.len());
        let answer: Value = serde_json::from_slice(&line).unwrap();
        assert!(
            schema(&answer["result"], "big")["properties"].as_object().unwrap().len() > 100_000
        );
    }
}

#[test]
fn a_schema_is_deep() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--deep-schema", "20000"]);
        raw.ask("tools/list", json!({}));
        let line = String::from_utf8(raw.line_within(LONG).unwrap()).unwrap();
        assert!(line.contains(&r#"{"type":"object","properties":{"a":"#.repeat(20_000)));
        // Too deep for most; not wrong.
        assert_eq!(line.matches('{').count(), line.matches('}').count());
        assert!(serde_json::from_str::<&serde_json::value::RawValue>(&line).is_ok());
        raw.echoes();
        let shallow = Raw::greeted(era, &["--deep-schema", "20"]).list(json!({}));
        let inner = format!("{}/type", "/properties/a".repeat(20));
        assert_eq!(schema(&shallow, "deep").pointer(&inner), Some(&json!("string")));
    }
}

#[test]
fn schemas_refer_to_themselves() {
    for era in BOTH {
        let list = Raw::greeted(era, &["--looping-schema"]).list(json!({}));
        assert_eq!(
            schema(&list, "loop_0").pointer("/properties/a/$ref"),
            Some(&json!("#/properties/a"))
        );
        assert_eq!(schema(&list, "loop_1").pointer("/$defs/a/$ref"), Some(&json!("#/$defs/b")));
        assert_eq!(schema(&list, "loop_1").pointer("/$defs/b/$ref"), Some(&json!("#/$defs/a")));
        assert_eq!(schema(&list, "loop_2").pointer("/properties/left/$ref"), Some(&json!("#")));
    }
}

#[test]
fn a_schema_doubles_with_every_reference() {
    for era in BOTH {
        let list = Raw::greeted(era, &["--schema-bomb", "12"]).list(json!({}));
        let bomb = schema(&list, "bomb");
        assert_eq!(leaves(bomb, &bomb["properties"]["a"]), 1 << 12);
    }
}

/// How many leaves there are when every reference is followed.
fn leaves(root: &Value, part: &Value) -> usize {
    match part["$ref"].as_str() {
        Some(target) => leaves(root, root.pointer(&target[1..]).unwrap()),
        None => match part["properties"].as_object() {
            Some(parts) => parts.values().map(|part| leaves(root, part)).sum(),
            None => 1,
        },
    }
}

#[test]
fn a_schema_changes_after_the_first_list() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--schema-changes", "--times", "2"]);
        assert_eq!(schema(&raw.list(json!({})), "echo")["required"], json!(["text"]));
        raw.echoes();
        let changed = raw.list(json!({}));
        assert_eq!(schema(&changed, "echo")["required"], json!(["message"]));
        assert_eq!(names(&changed), ["echo", "add", "sleep", "counter"]);
        let refused = raw.call("echo", json!({"text": "hello"}));
        assert_eq!(refused["result"]["isError"], true);
        assert_eq!(text(&raw.call("echo", json!({"message": "hello"}))), "hello");
        raw.list(json!({}));
        // And changes back when the fault ends.
        assert_eq!(schema(&raw.list(json!({})), "echo")["required"], json!(["text"]));
        raw.echoes();
    }
}

#[test]
fn some_tools_are_none() {
    for era in BOTH {
        let list = Raw::greeted(era, &["--malformed-tools"]).list(json!({}));
        let tools = list["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 12);
        assert!(tools.contains(&json!("a tool")) && tools.contains(&json!(null)));
        assert_eq!(schema(&list, "schema_is_wrong"), &json!({"type": "objcet"}));
        let good = |name: &&str| ["echo", "add", "sleep", "counter"].contains(name);
        assert_eq!(names(&list).into_iter().filter(good).count(), 4);
    }
}

#[test]
fn two_tools_have_one_name() {
    for era in BOTH {
        let list = Raw::greeted(era, &["--same-names"]).list(json!({}));
        let names = names(&list);
        assert_eq!(names, ["echo", "add", "sleep", "counter", "echo", "add"]);
        let tools = list["tools"].as_array().unwrap();
        assert_ne!(tools[0]["inputSchema"], tools[4]["inputSchema"]);
    }
}

#[test]
fn names_look_alike_and_are_not() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--lookalikes"]);
        let list = raw.list(json!({}));
        let mut found = names(&list);
        for expected in
            ["\u{435}cho", "ec\u{200b}ho", "\u{ff45}\u{ff43}\u{ff48}\u{ff4f}", "ECHO", "echo_"]
        {
            assert!(found.contains(&expected), "{expected:?}");
        }
        // Which one was called can be told.
        assert_eq!(text(&raw.call("Echo", json!({}))), "this is \"Echo\"");
        raw.echoes();
        let all = found.len();
        found.sort_unstable();
        found.dedup();
        assert_eq!((found.len(), all), (16, 16));
    }
}

#[test]
fn names_are_hardly_names() {
    for era in BOTH {
        let list = Raw::greeted(era, &["--odd-names"]).list(json!({}));
        let names = names(&list);
        for expected in ["", "../../outside", "nul\0byte", "two\nlines"] {
            assert!(names.contains(&expected), "{expected:?}");
        }
        assert!(names.iter().any(|name| name.len() == 10_000));
    }
}

#[test]
fn names_are_borrowed() {
    for era in BOTH {
        let list = Raw::greeted(era, &["--borrowed-names"]).list(json!({}));
        assert!(names(&list).contains(&"tool_search"));
        let mut raw = Raw::greeted(era, &["--borrowed-names", "read_file, x__y"]);
        assert_eq!(names(&raw.list(json!({})))[4..], ["read_file", "x__y"]);
        assert_eq!(text(&raw.call("read_file", json!({}))), "this is \"read_file\"");
    }
}

#[test]
fn descriptions_pose_as_instructions() {
    for era in BOTH {
        let list = Raw::greeted(era, &["--posing-descriptions"]).list(json!({}));
        let echo = &list["tools"][0];
        assert_eq!(echo["name"], "echo");
        assert!(echo["description"].as_str().unwrap().contains("before you use any other tool"));
        let parameter = &echo["inputSchema"]["properties"]["text"]["description"];
        assert!(parameter.as_str().unwrap().contains("The assistant must"));
    }
}

#[test]
fn results_pose_as_instructions() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--posing-results", "--times", "1"]);
        let answer = raw.call("echo", json!({"text": "hello"}));
        assert!(text(&answer).contains("SYSTEM:"), "{answer}");
        assert_eq!(answer["result"].get("resultType").is_some(), era == Era::Stateless);
        raw.echoes();
    }
}
