use serde_json::{Value, json};

use crate::builtin::{Builtin, Options};
use crate::error::Failure;
use crate::tool::Answer;

async fn call(tool: &str, arguments: Value) -> Result<Answer, Failure> {
    Builtin::Data.open(&Options::default()).unwrap().dispatch(tool, arguments).await
}

async fn data(tool: &str, arguments: Value) -> Value {
    match call(tool, arguments).await.unwrap() {
        Answer::Data(data) => data,
        Answer::Text(text) => panic!("text: {text}"),
    }
}

async fn text(tool: &str, arguments: Value) -> String {
    match call(tool, arguments).await.unwrap() {
        Answer::Data(data) => panic!("data: {data}"),
        Answer::Text(text) => text,
    }
}

async fn failure(tool: &str, arguments: Value) -> String {
    call(tool, arguments).await.unwrap_err().to_string()
}

#[tokio::test]
async fn json_is_queried_by_path_and_pointer() {
    let json =
        r#"{"users": [{"name": "Ann", "a.b": 1}, {"name": "Bob", "x": {"name": "deep"}}], "n": 2}"#;
    let query = |path: &str| {
        let arguments = json!({"json": json, "path": path});
        async move { data("json_query", arguments).await["values"].clone() }
    };
    assert_eq!(query("users[*].name").await, json!(["Ann", "Bob"]));
    assert_eq!(query("users[-1].name").await, json!(["Bob"]));
    assert_eq!(query("$.users.*.name").await, json!(["Ann", "Bob"]));
    assert_eq!(query("users[0]['a.b']").await, json!([1]));
    assert_eq!(query("..name").await, json!(["Ann", "Bob", "deep"]));
    assert_eq!(query("/users/0/name").await, json!(["Ann"]));
    assert_eq!(query("/users/0/a.b").await, json!([1]));
    assert_eq!(query("none[3].x").await, json!([]));
    assert_eq!(query("").await.as_array().unwrap().len(), 1);
    for path in ["users[", "users[x]", "a..b..c", "a.", "['a"] {
        assert!(
            !failure("json_query", json!({"json": json, "path": path})).await.is_empty(),
            "{path}"
        );
    }
    assert!(failure("json_query", json!({"json": "{", "path": ""})).await.starts_with("Not JSON"));
}

#[tokio::test]
async fn a_query_can_not_multiply_a_document() {
    let deep = format!("{}\"{}\"{}", "[".repeat(100), "x".repeat(100_000), "]".repeat(100));
    let answer = data("json_query", json!({"json": deep, "path": "..*", "limit": 1000})).await;
    assert!(answer.to_string().len() < 600_000);
    assert_eq!(answer["truncated"], true);
    let deeper = "[".repeat(100_000);
    assert!(failure("json_query", json!({"json": deeper, "path": ""})).await.contains("recursion"));
}

#[tokio::test]
async fn json_is_validated_and_errors_say_where() {
    let schema =
        r#"{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["name"]}"#;
    let check = |json: &str| data("json_validate", json!({"json": json, "schema": schema}));
    assert_eq!(check(r#"{"name": "x", "age": 3}"#).await, json!({"valid": true, "errors": []}));
    let wrong = check(r#"{"age": "x"}"#).await;
    let places: Vec<&str> = wrong["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["at"].as_str().unwrap())
        .collect();
    assert!(places.contains(&"/age") && places.contains(&"") && wrong["valid"] == false, "{wrong}");
    assert_eq!(data("json_validate", json!({"json": "{"})).await["valid"], false);
    let remote = json!({"json": "{}", "schema": r#"{"$ref": "https://example.org/schema.json"}"#});
    assert!(failure("json_validate", remote).await.contains("schema can't be used"));
    let local = json!({"json": "{}", "schema": r#"{"$ref": "file:///etc/passwd"}"#});
    assert!(failure("json_validate", local).await.contains("schema can't be used"));
}

#[tokio::test]
async fn a_pattern_can_not_hang_the_check() {
    let schema = r#"{"pattern": "^(a+)+$"}"#;
    let json = format!("\"{}!\"", "a".repeat(50_000));
    let answer = data("json_validate", json!({"json": json, "schema": schema})).await;
    assert_eq!(answer["valid"], false);
}

#[tokio::test]
async fn data_is_converted_from_each_format_to_each() {
    let value = json!([{"a": 1, "b": "x y"}, {"a": 2.5, "b": "007"}]);
    let formats = [
        ("json", value.to_string()),
        ("yaml", "- a: 1\n  b: x y\n- a: 2.5\n  b: '007'\n".to_owned()),
        ("csv", "a,b\n1,x y\n2.5,007\n".to_owned()),
    ];
    for (from, input) in &formats {
        for (to, output) in &formats {
            let arguments = json!({"text": input, "from": from, "to": to, "compact": true});
            assert_eq!(&text("convert_data", arguments).await, output, "{from} to {to}");
        }
    }
    let toml = "title = \"x\"\nday = 2024-05-01\n\n[owner]\nname = \"Ann\"\n";
    let json = text("convert_data", json!({"text": toml, "from": "toml", "to": "json"})).await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, json!({"title": "x", "day": "2024-05-01", "owner": {"name": "Ann"}}));
    let back =
        text("convert_data", json!({"text": json.to_string(), "from": "json", "to": "toml"})).await;
    assert!(back.contains("[owner]\nname = \"Ann\""), "{back}");
}

#[tokio::test]
async fn what_can_not_be_converted_is_told() {
    let convert = |text: &str, from: &str, to: &str| {
        failure("convert_data", json!({"text": text, "from": from, "to": to}))
    };
    assert!(convert("[1]", "json", "toml").await.contains("must be an object"));
    assert!(convert("{\"a\": 1}", "json", "csv").await.contains("list of objects"));
    assert!(convert("a: [", "yaml", "json").await.starts_with("Not YAML"));
    assert!(convert("a =", "toml", "json").await.starts_with("Not TOML"));
    assert!(convert("{\"a\": null}", "json", "toml").await.contains("TOML"));
}

#[tokio::test]
async fn hostile_data_stays_small() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let reference = format!("*a{}", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", [reference.as_str(); 9].join(", ")));
    }
    let yaml = json!({"text": bomb, "from": "yaml", "to": "json"});
    assert!(failure("convert_data", yaml).await.starts_with("Not YAML"));
    let deep = json!({"text": "[".repeat(100_000), "from": "yaml", "to": "json"});
    assert!(failure("convert_data", deep).await.starts_with("Not YAML"));
    let deep =
        json!({"text": format!("a = {}", "[".repeat(100_000)), "from": "toml", "to": "json"});
    assert!(failure("convert_data", deep).await.starts_with("Not TOML"));
    let wide: Vec<Value> = (0..5_000).map(|n: i32| json!({n.to_string(): n})).collect();
    let wide = json!({"text": Value::from(wide).to_string(), "from": "json", "to": "csv"});
    assert!(failure("convert_data", wide).await.contains("not too many"));
    let csv = format!("{}\n{}", "a,".repeat(10_000), "1\n".repeat(10_000));
    assert!(
        failure("convert_data", json!({"text": csv, "from": "csv", "to": "json"}))
            .await
            .contains("cells")
    );
}

const SALES: &str =
    "region,units,note\nnorth,10,first\nsouth,4,\nnorth,2,\"late, small\"\nwest,30,big\n";

#[tokio::test]
async fn tables_are_filtered_sorted_and_grouped() {
    let filter = json!([{"column": "units", "operator": "greater_than", "value": "3"}]);
    let query = json!({"csv": SALES, "where": filter, "sort_by": "units", "descending": true, "columns": ["units"]});
    let answer = data("csv_query", query).await;
    assert_eq!(answer, json!({"matched": 3, "rows": [{"units": 30}, {"units": 10}, {"units": 4}]}));
    let groups =
        data("csv_query", json!({"csv": SALES, "group_by": "region", "aggregate": "units"})).await;
    let north =
        json!({"region": "north", "count": 2, "sum": 12.0, "mean": 6.0, "min": 2.0, "max": 10.0});
    assert_eq!((&groups["groups"], &groups["rows"][0]), (&json!(3), &north));
    let contains = json!([{"column": "note", "operator": "contains", "value": ","}]);
    assert_eq!(data("csv_query", json!({"csv": SALES, "where": contains})).await["matched"], 1);
    let told = failure("csv_query", json!({"csv": SALES, "sort_by": "price"})).await;
    assert!(told.contains("region, units, note"), "{told}");
}

#[tokio::test]
async fn tables_are_summarised() {
    let summary =
        data("csv_summary", json!({"csv": SALES.replace(',', ";"), "delimiter": ";"})).await;
    assert_eq!(summary["rows"], 4);
    let units = json!({"name": "units", "kind": "number", "empty": 0, "distinct": 4,
        "sum": 46.0, "mean": 11.5, "min": 2.0, "max": 30.0});
    assert_eq!(summary["columns"][1], units);
    assert_eq!(summary["columns"][2]["empty"], 1);
}

#[tokio::test]
async fn texts_are_compared() {
    let diff = text("diff_text", json!({"old": "a\nb\nc\n", "new": "a\nB\nc\n"})).await;
    assert!(diff.starts_with("Lines added: 1, removed: 1.\n\n@@ "), "{diff}");
    assert!(diff.contains(" a\n-b\n+B\n c\n"), "{diff}");
    assert_eq!(text("diff_text", json!({"old": "a", "new": "a"})).await, "The texts are the same.");
}

#[tokio::test]
async fn hashes_are_the_known_ones() {
    let hash = |arguments: Value| async move { data("hash_text", arguments).await["hash"].clone() };
    let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(hash(json!({"text": "abc"})).await, sha256);
    assert_eq!(hash(json!({"text": "YWJj", "input": "base64"})).await, sha256);
    assert_eq!(hash(json!({"text": "616263", "input": "hex"})).await, sha256);
    let sha512 = hash(json!({"text": "abc", "algorithm": "sha512"})).await;
    assert!(sha512.as_str().unwrap().starts_with("ddaf35a193617abacc417349ae204131"));
    let blake3 = hash(json!({"text": "abc", "algorithm": "blake3"})).await;
    assert!(blake3.as_str().unwrap().starts_with("6437b3ac38465133ffb63b75273a8db5"));
}

#[tokio::test]
async fn encodings_go_both_ways() {
    for (encoding, encoded) in [
        ("base64", "w6QvPz4="),
        ("base64url", "w6QvPz4"),
        ("hex", "c3a42f3f3e"),
        ("url", "%C3%A4%2F%3F%3E"),
    ] {
        assert_eq!(
            text("encode_text", json!({"text": "ä/?>", "encoding": encoding})).await,
            encoded
        );
        let back = data("decode_text", json!({"text": encoded, "encoding": encoding})).await;
        assert_eq!(back, json!({"text": "ä/?>"}));
    }
    assert_eq!(
        data("decode_text", json!({"text": "FFfe", "encoding": "hex"})).await,
        json!({"hex": "fffe"})
    );
    for (encoding, text) in [("base64", "*"), ("hex", "xyz"), ("hex", "abc")] {
        assert!(
            failure("decode_text", json!({"text": text, "encoding": encoding}))
                .await
                .starts_with("Not")
        );
    }
}

#[tokio::test]
async fn patterns_are_extracted_and_replaced() {
    let source = "Ann: 30, Bob: 4";
    let arguments = json!({"text": source, "pattern": r"(?P<name>\w+): (\d+)"});
    let found = data("regex_extract", arguments).await;
    assert_eq!(
        found["matches"][1],
        json!({"match": "Bob: 4", "groups": {"name": "Bob", "2": "4"}})
    );
    let few = data("regex_extract", json!({"text": source, "pattern": r"\d", "limit": 1})).await;
    assert_eq!(few, json!({"matches": [{"match": "3"}], "truncated": true}));
    let arguments = json!({"text": source, "pattern": r"(\w+): (\d+)", "replace_with": "$2 $1"});
    assert_eq!(
        data("regex_extract", arguments).await,
        json!({"replacements": 2, "text": "30 Ann, 4 Bob"})
    );
    assert!(
        failure("regex_extract", json!({"text": "", "pattern": "("})).await.contains("not usable")
    );
    let blown =
        json!({"text": "a".repeat(100_000), "pattern": "a", "replace_with": "b".repeat(1_000)});
    assert!(matches!(call("regex_extract", blown).await, Err(Failure::InputTooLarge { .. })));
}

#[tokio::test]
async fn inputs_are_limited() {
    let long = "x".repeat(5 * 1024 * 1024);
    for (tool, arguments) in [
        ("hash_text", json!({"text": long})),
        ("convert_data", json!({"text": long, "from": "yaml", "to": "json"})),
        ("diff_text", json!({"old": "", "new": long})),
        ("csv_summary", json!({"csv": long})),
    ] {
        assert!(
            matches!(call(tool, arguments).await, Err(Failure::InputTooLarge { .. })),
            "{tool}"
        );
    }
}
