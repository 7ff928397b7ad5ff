//! What is passed on beside tools: to which server, under which names, in which words.

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use support::{Client, Odd, Offered, Served, VENDOR, answer, crib, modern, raw, text};
use toolcrib_core::{Policy, PolicyRules};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options};

const AGGREGATED: [Endpoint; 3] = [Endpoint::Meta, Endpoint::Full, Endpoint::Inject];

/// Two servers with everything, and one with tools alone.
async fn two(options: Options) -> (Gateway, Arc<Offered>, Arc<Offered>) {
    let crib = crib().await;
    let (one, two) = (Offered::full("one"), Offered::full("two"));
    crib.add(Odd::offering("two", &two)).await;
    crib.add(Odd::offering("one", &one)).await;
    crib.add(Odd::new("plain")).await;
    (Gateway::new(crib, options).expect("settings that work"), one, two)
}

fn only(name: &str) -> Endpoint {
    Endpoint::Server(name.to_owned())
}

fn keys(list: &Value, key: &str) -> Vec<String> {
    let list = list.as_array().unwrap_or_else(|| panic!("{list}"));
    list.iter().map(|it| it[key].as_str().unwrap_or("-").to_owned()).collect()
}

async fn listed(client: &mut Client, kind: &str, key: &str) -> Vec<String> {
    let member = match kind {
        "resources/templates" => "resourceTemplates",
        other => other,
    };
    let answer = client.request(&format!("{kind}/list"), json!({})).await;
    keys(&answer["result"][member], key)
}

#[tokio::test]
async fn lists_are_in_the_order_of_servers_and_name_whose_each_is() {
    let (gateway, ..) = two(Options::default()).await;
    let prompts = ["one__review", "one__a_b_", "two__review", "two__a_b_"];
    for endpoint in AGGREGATED {
        let mut client = Client::open(&gateway, endpoint.clone()).await;
        let names = listed(&mut client, "prompts", "name").await;
        assert!(
            names.iter().zip(prompts).all(|(name, begin)| name.starts_with(begin)),
            "{names:?}"
        );
        assert_eq!(names.len(), prompts.len());
        let own = endpoint == Endpoint::Full;
        let form = |server: &str, uri: &str| match own {
            true => uri.to_owned(),
            false => format!("crib://{server}/{uri}"),
        };
        let expected = [
            form("one", "one://b"),
            form("one", "same://a"),
            form("two", "two://b"),
            form("two", "same://a"),
        ];
        assert_eq!(listed(&mut client, "resources", "uri").await, expected);
        let expected = [form("one", "one://t/{id}"), form("two", "two://t/{id}")];
        assert_eq!(listed(&mut client, "resources/templates", "uriTemplate").await, expected);
    }
    let mut client = Client::open(&gateway, only("one")).await;
    assert_eq!(listed(&mut client, "prompts", "name").await, ["review", "a b"]);
    assert_eq!(listed(&mut client, "resources", "uri").await, ["one://b", "same://a", "-"]);
}

#[tokio::test]
async fn entries_keep_what_nobody_here_knows() {
    let (gateway, ..) = two(Options::default()).await;
    for endpoint in AGGREGATED.into_iter().chain([only("one")]) {
        let mut client = Client::open(&gateway, endpoint).await;
        for (method, count) in
            [("resources/list", 1), ("resources/templates/list", 1), ("prompts/list", 1)]
        {
            client.send(method, json!({})).await;
            let line = client.read_line().await.unwrap();
            assert!(line.matches(VENDOR).count() >= count, "{line}");
        }
    }
}

#[tokio::test]
async fn a_resource_is_read_in_either_form_and_comes_back_as_asked() {
    let (gateway, one, two) = two(Options::default()).await;
    for endpoint in AGGREGATED {
        let mut client = Client::open(&gateway, endpoint).await;
        for (asked, server, own) in [
            ("crib://one/one://b", &one, "one://b"),
            ("one://b", &one, "one://b"),
            ("crib://two/same://a", &two, "same://a"),
            ("two://t/7", &two, "two://t/7"),
            ("crib://two/two://t/7", &two, "two://t/7"),
            ("crib://one/not-listed:x", &one, "not-listed:x"),
        ] {
            let params = json!({"uri": asked, "z": 1, "_meta": {"k": 1}});
            let read = client.request("resources/read", params).await;
            let content = &read["result"]["contents"][0];
            assert_eq!(content["uri"], asked, "{read}");
            assert_eq!(server.last().1, format!(r#"{{"uri":"{own}","z":1}}"#));
        }
    }
}

#[tokio::test]
async fn a_uri_of_several_servers_names_them() {
    let (gateway, ..) = two(Options::default()).await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    let read = client.request("resources/read", json!({"uri": "same://a"})).await;
    assert_eq!(read["error"]["code"], -32602);
    let candidates = json!(["crib://one/same://a", "crib://two/same://a"]);
    assert_eq!(read["error"]["data"]["candidates"], candidates);
    let message = read["error"]["message"].as_str().unwrap();
    assert!(message.contains("crib://one/same://a, crib://two/same://a"), "{message}");
}

#[tokio::test]
async fn what_is_not_there_has_the_code_of_the_era() {
    let (gateway, ..) = two(Options::default()).await;
    for endpoint in [Endpoint::Full, only("one")] {
        let mut client = Client::open(&gateway, endpoint).await;
        let read = client.request("resources/read", json!({"uri": "gone:1"})).await;
        assert_eq!(read["error"]["code"], -32002, "{read}");
        assert_eq!(read["error"]["data"]["uri"], "gone:1");
        let params = json!({"uri": "gone:1", "_meta": modern()});
        let read = client.request("resources/read", params).await;
        assert_eq!(read["error"]["code"], -32602, "{read}");
        assert_eq!(read["error"]["data"]["uri"], "gone:1");
        let prompt = client.request("resources/read", json!({"uri": 7})).await;
        assert!(prompt["result"].is_object() || prompt["error"]["code"] == -32602, "{prompt}");
    }
}

#[tokio::test]
async fn prompts_completions_and_tasks_go_to_whose_they_are() {
    let (gateway, one, two) = two(Options::default()).await;
    for endpoint in AGGREGATED {
        let mut client = Client::open(&gateway, endpoint).await;
        let names = listed(&mut client, "prompts", "name").await;
        let asked = |server: &Arc<Offered>| server.last();
        client
            .request("prompts/get", json!({"name": "two__review", "arguments": {"a": "1"}}))
            .await;
        let expected = r#"{"name":"review","arguments":{"a":"1"}}"#;
        assert_eq!(asked(&two), ("prompts/get".to_owned(), expected.to_owned()));
        client.request("prompts/get", json!({"name": names[1]})).await;
        assert_eq!(asked(&one).1, r#"{"name":"a b"}"#);
        let unknown = client.request("prompts/get", json!({"name": "review"})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");

        let reference = json!({"type": "ref/prompt", "name": "two__review", "z": 1});
        let params = json!({"ref": reference, "argument": {"name": "a", "value": "x"}});
        client.request("completion/complete", params).await;
        let expected = r#"{"ref":{"type":"ref/prompt","name":"review","z":1},"argument":{"name":"a","value":"x"}}"#;
        assert_eq!(asked(&two), ("completion/complete".to_owned(), expected.to_owned()));
        for uri in ["one://t/{id}", "crib://one/one://t/{id}"] {
            let params = json!({"ref": {"type": "ref/resource", "uri": uri}});
            client.request("completion/complete", params).await;
            let expected = r#"{"ref":{"type":"ref/resource","uri":"one://t/{id}"}}"#;
            assert_eq!(asked(&one).1, expected);
        }
        let odd = client.request("completion/complete", json!({"ref": 7})).await;
        assert_eq!(odd["error"]["code"], -32602);

        let task = client.request("tasks/get", json!({"taskId": "two:a:b"})).await;
        assert_eq!(task["result"]["taskId"], "two:a:b", "{task}");
        assert_eq!(asked(&two).1, r#"{"taskId":"a:b"}"#);
        let task = client.request("tasks/get", json!({"taskId": "a:b"})).await;
        assert_eq!(task["error"]["code"], -32602);
        let other = client.request("vendor/thing", json!({})).await;
        assert_eq!(other["error"]["code"], -32601);
    }
    let mut client = Client::open(&gateway, only("two")).await;
    let task = client.request("tasks/get", json!({"taskId": "a:b"})).await;
    assert_eq!(task["result"]["taskId"], "a:b");
}

/// Parameters that are spelled as no careful writer would.
const ODD: [&str; 8] = [
    "{}",
    r#"{"n":12345678901234567890123,"e":1.50E+3,"z":-0.0}"#,
    r#"{"uri":"a:b","name":"x","cursor":"theirs","level":[ ]}"#,
    r#"{"\u00e9\ud83e\udd80":"\u0000\/","":null}"#,
    r#"{"a":{"a":{"a":[[[{ "b" : [ 1 ,2 ] }]]]}}}"#,
    r#"{"twice":1,"twice":2}"#,
    r#"{"ref":7,"taskId":false,"arguments":"text","notifications":{}}"#,
    r#"{"inputRequests":1,"task":{"ttl":1e1}}"#,
];

#[tokio::test]
async fn one_servers_endpoint_changes_no_byte_of_what_it_does_not_know() {
    let (gateway, one, _) = two(Options::default()).await;
    one.runs.store(true, Ordering::SeqCst);
    let mut client = Client::open(&gateway, only("one")).await;
    let methods = [
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "tasks/list",
        "tasks/result",
        "vendor/thing",
        "sampling/odd",
    ];
    for (at, (method, params)) in
        methods.iter().flat_map(|method| ODD.map(|params| (method, params))).enumerate()
    {
        let id = 1000 + at;
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        client.write(&request).await;
        let line = client.read_line().await.unwrap();
        let result = format!(r#"{{ "asked":{params},"meta":null,{VENDOR} }}"#);
        assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        assert_eq!(one.last(), ((*method).to_owned(), params.to_owned()));
    }
    let read = r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a:b"}}"#;
    client.write(read).await;
    let line = client.read_line().await.unwrap();
    let content = r#"{"uri":"a:b","text":"of one","e":1e2}"#;
    assert!(
        line.ends_with(&format!(r#""result":{{ "contents":[{content}],{VENDOR} }}}}"#)),
        "{line}"
    );
    let refused = client.request("vendor/refuse", json!({})).await;
    assert_eq!(refused["error"], json!({"code": -32077, "message": "never", "data": {"why": [1]}}));
    let dead = client.request("vendor/dead", json!({})).await;
    assert_eq!(dead["error"]["message"], "it is gone");
}

/// Any JSON, as text.
fn any_json() -> impl Strategy<Value = String> {
    let number = "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?";
    let text = "\"([a-zé🦀 ]|\\\\[\"nrt/]|\\\\u00[0-9a-f]{2}){0,8}\"";
    let leaf = prop_oneof![Just("null".to_owned()), Just("true".to_owned()), number, text];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        let object = prop::collection::vec((text, inner.clone()), 0..4);
        let object = object.prop_map(|members| {
            let members = members.iter().map(|(key, value)| format!("{key} :{value}"));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(" , "))
        });
        let list = prop::collection::vec(inner, 0..4);
        prop_oneof![object, list.prop_map(|items| format!("[{}]", items.join(", ")))]
    })
}

#[tokio::test]
async fn any_member_passes_through_one_servers_endpoint_byte_by_byte() {
    let (gateway, one, _) = two(Options::default()).await;
    let mut client = Client::open(&gateway, only("one")).await;
    let mut chance = TestRunner::deterministic();
    for id in 1000..1300 {
        let value = any_json().new_tree(&mut chance).expect("some JSON").current();
        let params = format!(r#"{{"name":"p","x-new":{value}}}"#);
        let method = if id % 2 == 0 { "prompts/get" } else { "vendor/thing" };
        let request =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        client.write(&request).await;
        let line = client.read_line().await.unwrap();
        let result = format!(r#"{{ "asked":{params},"meta":null,{VENDOR} }}"#);
        assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
        assert_eq!(one.last().1, params);
    }
}

#[tokio::test]
async fn what_is_said_beside_the_parameters_reaches_the_server_without_the_connections_own() {
    let (gateway, one, _) = two(Options::default()).await;
    let mut client = Client::open(&gateway, only("one")).await;
    let meta = json!({"progressToken": 1, "traceparent": "x"});
    let got = client.request("prompts/get", json!({"name": "p", "_meta": meta, "z": 1})).await;
    assert_eq!(got["result"]["meta"], json!({"traceparent": "x"}));
    assert_eq!(one.last().1, r#"{"name":"p","z":1}"#);
}

#[tokio::test]
async fn no_method_passes_by_what_callers_may_call() {
    let (gateway, one, _) = two(Options::default()).await;
    let mut client = Client::open(&gateway, only("one")).await;
    for method in ["tools/call_many", "tools/", "subscriptions/listen", "server/other"] {
        let answer = client.request(method, json!({})).await;
        let is_passed = method == "server/other";
        assert_eq!(answer["error"]["code"] == -32601, !is_passed, "{method}");
    }
    let mut stateless = json!({});
    stateless["_meta"] = modern();
    for method in ["ping", "initialize", "logging/setLevel", "resources/subscribe"] {
        let answer = client.request(method, stateless.clone()).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}");
    }
    assert_eq!(one.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_that_does_not_run_is_listed_without_being_started() {
    let (gateway, one, _) = two(Options::default()).await;
    let mut client = Client::open(&gateway, only("one")).await;
    assert_eq!(listed(&mut client, "prompts", "name").await, ["review", "a b"]);
    assert_eq!(one.starts.load(Ordering::SeqCst), 0);
    one.runs.store(true, Ordering::SeqCst);
    client.request("prompts/list", json!({})).await;
    assert_eq!(one.last().0, "prompts/list");
}

#[tokio::test]
async fn long_lists_come_in_pages_and_a_change_between_them_is_told() {
    let (gateway, one, _) = two(Options::default()).await;
    let fill = |count: usize| {
        one.change(|offers| {
            let entry = |n| raw(format!(r#"{{"uri":"n:{n}","name":"n"}}"#));
            offers.resources = (0..count).map(entry).collect();
        });
    };
    fill(2_500);
    for (endpoint, all) in [(Endpoint::Meta, 2_502), (only("one"), 2_500)] {
        let mut client = Client::connect(&gateway, endpoint);
        let (mut cursor, mut seen) = (Value::Null, Vec::new());
        loop {
            let params = json!({"cursor": cursor});
            let page = &client.request("resources/list", params).await["result"];
            assert!(page["resources"].as_array().unwrap().len() <= 1_000);
            seen.extend(keys(&page["resources"], "uri"));
            cursor = page["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        assert_eq!(seen.len(), all);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), all, "no entry comes twice");

        let first = client.request("resources/list", json!({})).await;
        let cursor = first["result"]["nextCursor"].clone();
        assert!(cursor.as_str().unwrap().starts_with("v1.1000."));
        fill(2_499);
        let stale = client.request("resources/list", json!({"cursor": cursor})).await;
        assert_eq!(stale["error"]["code"], -32602, "{stale}");
        fill(2_500);
    }
}

#[tokio::test]
async fn what_some_server_can_do_is_declared_and_nothing_else() {
    let crib = crib().await;
    crib.add(Odd::new("plain")).await;
    let gateway = Gateway::new(crib.clone(), Options::default()).unwrap();
    let declared = async |gateway: &Gateway, endpoint| {
        let mut client = Client::connect(gateway, endpoint);
        let opened = client.request("initialize", json!({"protocolVersion": "2025-11-25"})).await;
        let found = client.request("server/discover", json!({"_meta": modern()})).await;
        (opened["result"].clone(), found["result"].clone())
    };
    let tools = json!({"tools": {"listChanged": true}});
    assert_eq!(declared(&gateway, Endpoint::Meta).await.0["capabilities"], tools);

    let prompts = Offered::new("p", json!({"prompts": {}}));
    crib.add(Odd::offering("p", &prompts)).await;
    let with_prompts = json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}});
    for endpoint in AGGREGATED {
        let (opened, found) = declared(&gateway, endpoint).await;
        assert_eq!(opened["capabilities"], with_prompts);
        assert!(found["capabilities"] == with_prompts || found.is_null());
    }
    prompts.change(|offers| offers.capabilities = None);
    let unknown = declared(&gateway, Endpoint::Meta).await.0["capabilities"].clone();
    let all = json!({"tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true}, "prompts": {"listChanged": true},
        "completions": {}, "logging": {}});
    assert_eq!(unknown, all);

    let (gateway, ..) = two(Options::default()).await;
    let (opened, found) = declared(&gateway, only("one")).await;
    let own = json!({"tools": {"listChanged": true}, "resources": {"subscribe": true},
        "prompts": {}, "completions": {}, "logging": {}, "experimental": {"x": 1}});
    assert_eq!((&opened["capabilities"], &found["capabilities"]), (&own, &own));
    let instructions = opened["instructions"].as_str().unwrap();
    assert_eq!(instructions.len(), 4_500, "they are the server's own, whole");
    assert_eq!(found["instructions"], opened["instructions"]);
    let (opened, _) = declared(&gateway, only("plain")).await;
    assert_eq!(opened["instructions"], "The plain server.");
}

#[tokio::test]
async fn what_a_policy_hides_answers_as_if_it_were_not_there() {
    let rules = PolicyRules { deny_servers: vec!["two".to_owned()], ..PolicyRules::default() };
    let mut options = Options::default();
    options.policy = Policy::new(rules).unwrap();
    let (hiding, _, two_) = two(options).await;
    let without = {
        let crib = crib().await;
        crib.add(Odd::offering("one", &Offered::full("one"))).await;
        crib.add(Odd::new("plain")).await;
        Gateway::new(crib, Options::default()).unwrap()
    };
    for endpoint in AGGREGATED {
        let mut hidden = Client::connect(&hiding, endpoint.clone());
        let mut absent = Client::connect(&without, endpoint);
        for (method, params) in [
            ("initialize", json!({"protocolVersion": "2025-11-25"})),
            ("resources/list", json!({})),
            ("resources/templates/list", json!({})),
            ("prompts/list", json!({})),
            ("resources/read", json!({"uri": "same://a"})),
            ("resources/read", json!({"uri": "two://b"})),
            ("resources/read", json!({"uri": "crib://two/two://b"})),
            ("resources/subscribe", json!({"uri": "crib://two/two://b"})),
            ("prompts/get", json!({"name": "two__review"})),
            ("completion/complete", json!({"ref": {"type": "ref/prompt", "name": "two__review"}})),
            ("tasks/get", json!({"taskId": "two:7"})),
        ] {
            hidden.send(method, params.clone()).await;
            absent.send(method, params.clone()).await;
            let (hidden, absent) = (hidden.read_line().await, absent.read_line().await);
            assert_eq!(hidden, absent, "{method} {params}");
        }
    }
    assert!(two_.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn each_era_gets_results_in_its_own_words() {
    let (gateway, one, _) = two(Options::default()).await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    for path in ["/mcp", "/mcp/full", "/mcp/s/one"] {
        let own = path == "/mcp/s/one";
        for (runs, method) in
            [(false, "resources/list"), (true, "prompts/list"), (true, "resources/templates/list")]
        {
            one.runs.store(runs, Ordering::SeqCst);
            let (status, list) = answer(served.modern(path, method, json!({}))).await;
            assert_eq!((status, &list["result"]["resultType"]), (200, &json!("complete")));
            assert!(list["result"]["ttlMs"].is_u64(), "{list}");
            assert_eq!(list["result"]["cacheScope"], "private");
        }
        let uri = json!({"uri": "one://b"});
        let (_, read) = answer(served.modern(path, "resources/read", uri.clone())).await;
        assert_eq!(read["result"]["ttlMs"], 0, "{read}");
        assert_eq!(read["result"]["contents"][0]["uri"], "one://b");
        let prompt = if own { "review" } else { "one__review" };
        let params = json!({"name": prompt});
        let (_, got) = answer(served.modern(path, "prompts/get", params)).await;
        assert_eq!(got["result"]["resultType"], "complete", "{got}");
        assert!(got["result"].get("ttlMs").is_none());

        let session = served.session(path).await;
        let (_, read) = answer(served.within(path, &session, "resources/read", uri)).await;
        assert!(
            read["result"].get("resultType").is_none() && read["result"].get("ttlMs").is_none()
        );
    }
}

#[tokio::test]
async fn headers_must_name_what_the_body_is_about() {
    let (gateway, ..) = two(Options::default()).await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    for (method, key, value) in [
        ("resources/read", "uri", "one://b"),
        ("prompts/get", "name", "one__review"),
        ("tasks/get", "taskId", "one:7"),
    ] {
        let right = served.modern("/mcp", method, json!({key: value}));
        let (status, _) = answer(right).await;
        assert_eq!(status, 200, "{method}");
        let wrong = served.modern("/mcp", method, json!({key: value, "_meta": {}}));
        let (status, error) = answer(wrong.header("mcp-name", "other")).await;
        assert_eq!((status, &error["error"]["code"]), (400, &json!(-32020)), "{method}");
    }
}

#[tokio::test]
async fn a_call_may_take_a_link_from_a_result_and_read_it() {
    let (gateway, ..) = two(Options::default()).await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    let call = json!({"name": "one__echo", "arguments": {"link": "one://b"}});
    let linked = client.call("call_tool", call).await;
    let given: Value = serde_json::from_str(text(&linked)).unwrap();
    let read = client.request("resources/read", json!({"uri": given["arguments"]["link"]})).await;
    assert_eq!(read["result"]["contents"][0]["text"], "of one", "{read}");
}

#[tokio::test]
async fn a_prompt_may_ask_a_client_without_a_session_for_more() {
    let (gateway, ..) = two(Options::default()).await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let mut params = json!({"name": "one__review", "arguments": {"a": "asks the client"}});
    let ask = async |mut params: Value| {
        for (key, value) in modern().as_object().unwrap() {
            params["_meta"][key] = value.clone();
        }
        let declared = "io.modelcontextprotocol/clientCapabilities";
        params["_meta"][declared] = json!({"elicitation": {}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": params});
        let request = served.post("/mcp").header("mcp-protocol-version", "2026-07-28");
        let request = request.header("mcp-method", "prompts/get");
        let request = request.header("mcp-name", "one__review").body(body.to_string());
        answer(request).await.1["result"].clone()
    };
    let first = ask(params.clone()).await;
    assert_eq!(first["resultType"], "input_required", "{first}");
    let requests = first["inputRequests"].as_object().unwrap();
    let (key, question) = requests.iter().next().expect("a question");
    assert_eq!(question["params"]["message"], "Which?");
    params["requestState"] = first["requestState"].clone();
    params["inputResponses"] = json!({key: {"action": "accept", "content": {"n": 1}}});
    let second = ask(params).await;
    assert_eq!(second["resultType"], "complete", "{second}");
    assert_eq!(second["answer"]["content"], json!({"n": 1}));
}
