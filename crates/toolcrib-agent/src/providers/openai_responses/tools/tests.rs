use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolcrib_core::{GroupId, Registry, Schema, ToolChange, ToolName, ToolSpec};

use super::super::NAME;
use super::super::request::body;
use super::*;
use crate::message::{Assistant, CallResult, Part, Said, ToolCall};
use crate::provider::{HostedSearch, ModelOptions};
use crate::providers::openai_chat::Server;

fn tool(name: ToolName) -> Definition {
    let registry = Registry::default();
    let exposed = name.exposed(toolcrib_core::Naming::Model);
    registry.register(ToolSpec::new(name, Schema::empty())).unwrap();
    registry.catalog().view_all().tool(&exposed).unwrap().definition().clone()
}

fn revealed(server: &str, name: &str) -> Revealed {
    Revealed { group: GroupId::server(server), tool: tool(ToolName::mcp(server, name)) }
}

/// As many tools of a server, from this number on.
fn many(server: &str, numbers: std::ops::Range<usize>) -> Vec<Revealed> {
    numbers.map(|number| revealed(server, &format!("t{number}"))).collect()
}

/// A conversation with the search `find` and the tool `look` in its array.
fn request(messages: Vec<Message>) -> Request {
    let mut request = Request::new("m", messages);
    request.tools = vec![tool(ToolName::host("find")), tool(ToolName::host("look"))];
    request.native = Some(Native { search: Some("find".into()), ..Native::default() });
    request
}

fn hosted(deferred: Vec<Definition>, messages: Vec<Message>) -> Request {
    let mut request = request(messages);
    let hosted = Some(HostedSearch::Bm25);
    request.native = Some(Native { deferred, hosted, ..request.native.unwrap() });
    request
}

fn sent(request: &Request) -> Value {
    serde_json::from_slice(&body(request, Server::OpenAi)).unwrap()
}

fn input(messages: Vec<Message>) -> Value {
    sent(&request(messages))["input"].take()
}

fn said(content: Vec<Said>) -> Message {
    Message::Assistant(Assistant { content })
}

fn call(id: &str, name: &str, arguments: &str) -> Said {
    let (id, name) = (id.into(), name.into());
    Said::Call(ToolCall { id, name, arguments: arguments.into() })
}

fn mark(namespace: &str) -> Said {
    Said::Native { provider: NAME.into(), json: json!({"namespace": namespace}) }
}

fn result(id: &str, text: &str, revealed: Vec<Revealed>) -> CallResult {
    let content = if text.is_empty() { vec![] } else { vec![Part::text(text)] };
    CallResult { call_id: id.into(), name: "t".into(), content, revealed, ..CallResult::default() }
}

fn gave(id: &str, revealed: Vec<Revealed>) -> Message {
    Message::Tool { results: vec![result(id, "", revealed)] }
}

/// A search and what it found.
fn found(id: &str, revealed: Vec<Revealed>) -> [Message; 2] {
    [said(vec![call(id, "find", "{}")]), gave(id, revealed)]
}

fn function(name: &str, waits: bool) -> Value {
    let mut function = json!({"type": "function", "name": name, "description": "",
        "parameters": {"type": "object", "properties": {}}, "strict": false});
    if waits {
        function["defer_loading"] = json!(true);
    }
    function
}

fn namespace(name: &str, description: &str, tools: Vec<Value>) -> Value {
    json!({"type": "namespace", "name": name, "description": description, "tools": tools})
}

fn github(tools: Vec<Value>) -> Value {
    namespace("github", "Tools of the MCP server github.", tools)
}

fn search_call(id: &str, arguments: Value) -> Value {
    json!({"type": "tool_search_call", "execution": "client", "call_id": id,
        "status": "completed", "arguments": arguments})
}

fn search_output(id: &str, tools: Vec<Value>) -> Value {
    json!({"type": "tool_search_output", "execution": "client", "call_id": id,
        "status": "completed", "tools": tools})
}

fn additional(tools: Vec<Value>) -> Value {
    json!({"type": "additional_tools", "role": "developer", "tools": tools})
}

fn notice(text: &str) -> Value {
    let text = format!("<notice>\n{text}\n</notice>");
    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
}

fn function_call(id: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut call = json!({"type": "function_call", "call_id": id, "name": name, "arguments": "{}"});
    if let Some(namespace) = namespace {
        call["namespace"] = namespace.into();
    }
    call
}

fn output(id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

/// Every namespace in an input, by name, with its functions in the order in which they came.
fn namespaces(input: &Value) -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let lists = input.as_array().unwrap().iter().filter_map(|item| item["tools"].as_array());
    for namespace in lists.flatten() {
        let functions = all.entry(namespace["name"].as_str().unwrap().into()).or_default();
        for function in namespace["tools"].as_array().unwrap() {
            let name = function["name"].as_str().unwrap().to_owned();
            if !functions.contains(&name) {
                functions.push(name);
            }
        }
    }
    all
}

#[test]
fn our_search_takes_the_place_of_a_function() {
    let mut request = request(vec![Message::user("Hi")]);
    let native = request.native.as_mut().unwrap();
    native.deferred = vec![revealed("github", "open").tool];
    let sent = sent(&request);
    let parameters = function("find", false)["parameters"].clone();
    assert_eq!(
        sent["tools"],
        json!([
            {"type": "tool_search", "execution": "client", "description": "",
                "parameters": parameters},
            function("look", false),
        ])
    );
    assert_eq!(sent.get("tool_choice"), None);
}

#[test]
fn a_search_and_what_it_found_are_items_of_their_own() {
    let conversation = vec![
        Message::user("Look"),
        said(vec![call("1", "find", r#"{"query": "issues"}"#)]),
        gave("1", vec![revealed("github", "open")]),
        said(vec![mark("github"), call("2", "mcp__github__open", "{}")]),
        gave("2", vec![]),
    ];
    let sent = input(conversation);
    assert_eq!(
        sent.as_array().unwrap()[1..],
        [
            search_call("1", json!({"query": "issues"})),
            search_output("1", vec![github(vec![function("mcp__github__open", true)])]),
            function_call("2", "mcp__github__open", Some("github")),
            output("2", ""),
        ]
    );
}

#[test]
fn words_and_further_tools_follow_all_outputs_of_a_batch() {
    let calls = [("1", "find"), ("2", "load"), ("3", "load"), ("4", "look")];
    let calls = calls.map(|(id, name)| call(id, name, "{}"));
    let results = vec![
        result("1", "2 more were left out", vec![revealed("github", "open")]),
        result("2", "Loaded.", vec![revealed("github", "close"), revealed("jira", "open")]),
        result("3", "Loaded too.", vec![revealed("github", "close"), revealed("github", "list")]),
        result("4", "Seen.", vec![]),
    ];
    let sent = input(vec![said(calls.to_vec()), Message::Tool { results }]);
    let loaded = ["mcp__github__close", "mcp__github__list"].map(|name| function(name, false));
    assert_eq!(
        sent.as_array().unwrap()[4..],
        [
            search_output("1", vec![github(vec![function("mcp__github__open", true)])]),
            output("2", "Loaded."),
            output("3", "Loaded too."),
            output("4", "Seen."),
            additional(vec![
                github(loaded.to_vec()),
                namespace(
                    "jira",
                    "Tools of the MCP server jira.",
                    vec![function("mcp__jira__open", false)]
                ),
            ]),
            notice("2 more were left out"),
        ]
    );
}

#[test]
fn a_search_that_failed_is_answered_too() {
    let failed = CallResult { is_error: true, ..result("1", "No such group", vec![]) };
    let conversation =
        vec![said(vec![call("1", "find", "{")]), Message::Tool { results: vec![failed] }];
    assert_eq!(
        input(conversation),
        json!([search_call("1", json!({})), search_output("1", vec![]), notice("No such group"),])
    );
}

#[test]
fn an_output_is_of_the_kind_of_its_call() {
    // By its id, whatever names the two have.
    let mut of_search = result("1", "", vec![revealed("github", "open")]);
    of_search.name = "look".into();
    let mut of_function = result("2", "Seen", vec![]);
    of_function.name = "find".into();
    let calls = vec![call("1", "find", "{}"), call("2", "look", "{}")];
    let sent = input(vec![said(calls), Message::Tool { results: vec![of_search, of_function] }]);
    let kinds: Vec<(&str, &str)> = sent
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["type"].as_str().unwrap(), item["call_id"].as_str().unwrap()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("tool_search_call", "1"),
            ("function_call", "2"),
            ("tool_search_output", "1"),
            ("function_call_output", "2"),
        ]
    );
    // Ids are written alike on both sides.
    let [odd, answer] = found("a:1", vec![]);
    let sent = input(vec![odd, answer]);
    assert_eq!((&sent[0]["call_id"], &sent[1]["call_id"]), (&json!("a_3a1"), &json!("a_3a1")));
}

#[test]
fn tools_that_come_are_added_and_those_that_go_are_named() {
    let change = |added: Vec<Revealed>, removed: &[&str]| {
        let removed = removed.iter().map(|name| (*name).into()).collect();
        Message::Tools(ToolChange { added, removed })
    };
    assert_eq!(
        input(vec![
            change(vec![revealed("github", "open")], &["a", "b"]),
            change(vec![], &["c"]),
            change(vec![], &[]),
        ]),
        json!([
            additional(vec![github(vec![function("mcp__github__open", false)])]),
            notice("No longer available: a, b."),
            notice("No longer available: c."),
        ])
    );
}

#[test]
fn a_call_names_the_namespace_its_tool_lives_in() {
    let name = "mcp__github__open";
    let calls = |calls: Vec<Said>| {
        let ids: Vec<String> = calls
            .iter()
            .filter_map(|said| match said {
                Said::Call(call) => Some(call.id.clone()),
                _ => None,
            })
            .collect();
        let results = ids.iter().map(|id| result(id, "", vec![])).collect();
        [said(calls), Message::Tool { results }]
    };
    let mut conversation = Vec::new();
    // Called before it was found: the API reads the request as one.
    conversation.extend(calls(vec![call("early", name, "{}")]));
    conversation.extend(found("1", vec![revealed("github", "open")]));
    conversation.extend(calls(vec![
        mark("github"),
        call("kept", name, "{}"),
        call("elsewhere", name, "{}"),
        mark("github_7"),
        call("moved", name, "{}"),
        call("array", "look", "{}"),
        mark("crm"),
        call("back", "look", "{}"),
        call("gone", "mcp__gone__tool", "{}"),
        mark("crm"),
        call("unknown", "mcp__gone__tool", "{}"),
    ]));
    let sent = input(conversation);
    let calls: Vec<&Value> =
        sent.as_array().unwrap().iter().filter(|it| it["type"] == "function_call").collect();
    let expected = [
        function_call("early", name, Some("github")),
        function_call("kept", name, Some("github")),
        function_call("elsewhere", name, Some("github")),
        function_call("moved", name, Some("github")),
        function_call("array", "look", None),
        function_call("back", "look", None),
        function_call("gone", "mcp__gone__tool", None),
        function_call("unknown", "mcp__gone__tool", Some("crm")),
    ];
    assert_eq!(calls, expected.iter().collect::<Vec<_>>());
}

#[test]
fn other_marks_stay_where_the_namespace_changes() {
    let phased = |json: Value| Said::Native { provider: NAME.into(), json };
    let mut conversation = found("1", vec![revealed("github", "open")]).to_vec();
    conversation.push(said(vec![
        phased(json!({"phase": "commentary", "namespace": "old"})),
        call("2", "mcp__github__open", "{}"),
        phased(json!({"phase": "commentary", "namespace": "old"})),
        call("3", "look", "{}"),
    ]));
    let sent = input(conversation);
    let mut expected =
        [function_call("2", "mcp__github__open", Some("github")), function_call("3", "look", None)];
    for item in &mut expected {
        item["phase"] = json!("commentary");
    }
    assert_eq!(sent.as_array().unwrap()[2..], expected);
}

#[test]
fn no_namespace_has_ten_functions_however_they_came() {
    let mut conversation = Vec::new();
    conversation.extend(found("1", many("s", 0..5)));
    conversation.push(Message::Tools(ToolChange {
        added: [many("s", 3..8), many("other", 0..1)].concat(),
        removed: vec![],
    }));
    conversation.extend([said(vec![call("2", "load", "{}")]), gave("2", many("s", 8..19))]);
    let names = |numbers: std::ops::Range<usize>| -> Vec<String> {
        numbers.map(|number| format!("mcp__s__t{number}")).collect()
    };
    let expected = [
        ("other", vec!["mcp__other__t0".to_owned()]),
        ("s", names(0..9)),
        ("s_2", names(9..18)),
        ("s_3", names(18..19)),
    ];
    let expected = expected.map(|(name, tools)| (name.to_owned(), tools)).into();
    assert_eq!(namespaces(&input(conversation)), expected);
}

#[test]
fn a_tool_found_again_is_shown_again_where_it_was() {
    let mut conversation = found("1", many("s", 0..10)).to_vec();
    conversation.extend(found("2", [many("s", 9..10), many("s", 0..1)].concat()));
    let sent = input(conversation);
    let whose = "Tools of the MCP server s";
    assert_eq!(
        sent[3],
        search_output(
            "2",
            vec![
                namespace("s_2", &format!("{whose}, part 2."), vec![function("mcp__s__t9", true)]),
                namespace("s", &format!("{whose}."), vec![function("mcp__s__t0", true)]),
            ]
        )
    );
}

#[test]
fn no_namespace_has_a_name_the_api_refuses() {
    let given = |group: GroupId, name: &str| Revealed { group, tool: tool(ToolName::host(name)) };
    let long = "x".repeat(80);
    let groups = [
        GroupId::server("file_search"),
        GroupId::server("Web"),
        GroupId::server("functions"),
        GroupId::server("tool_search"),
        GroupId::server("my.server"),
        GroupId::server(""),
        GroupId::server(&long),
        GroupId::server("look"),
        GroupId::server("crm"),
        GroupId::from("crm"),
        GroupId::from("crm_tools"),
        GroupId::host(),
        GroupId::builtin(),
    ];
    let added: Vec<Revealed> = groups
        .into_iter()
        .enumerate()
        .map(|(number, group)| given(group, &format!("t{number}")))
        .collect();
    let sent = input(vec![Message::Tools(ToolChange { added, removed: vec![] })]);
    let tools = sent[0]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(
        names[..6],
        [
            "file_search_tools",
            "Web_tools",
            "functions_tools",
            "tool_search_tools",
            "my_2eserver",
            "_"
        ]
    );
    assert_eq!((names[6].len(), &names[7..10]), (64, &["look_tools", "crm", "crm_tools"][..]));
    // The name it would have had was given away.
    assert!(names[10].starts_with("crm_tools_") && names[10] != "crm_tools_2", "{names:?}");
    assert_eq!(names[11..], ["host", "builtin"]);
    for namespace in tools {
        assert!(!namespace["description"].as_str().unwrap().is_empty(), "{namespace}");
        assert_eq!(namespace.get("defer_loading"), None);
    }
}

#[test]
fn a_server_named_like_a_second_namespace_gets_another() {
    let mut conversation = found("1", [many("s_2", 0..1), many("s", 0..10)].concat()).to_vec();
    conversation.extend(found("2", many("s_2", 1..2)));
    let all = namespaces(&input(conversation));
    assert_eq!(all["s_2"], ["mcp__s_2__t0", "mcp__s_2__t1"]);
    assert_eq!(all["s"].len(), 9);
    assert_eq!(all["s_2_tools"], ["mcp__s__t9"]);
}

#[test]
fn the_servers_own_search_has_all_that_wait_declared() {
    let waiting = |numbers| many("s", numbers).into_iter().map(|it| it.tool).collect::<Vec<_>>();
    let conversation = vec![
        said(vec![call("1", "mcp__s__t0", "{}"), call("2", "mcp__s__t9", "{}")]),
        Message::Tool { results: vec![result("1", "", vec![]), result("2", "", vec![])] },
        Message::Tools(ToolChange { added: many("s", 9..10), removed: vec![] }),
    ];
    let sent = sent(&hosted(waiting(0..10), conversation));
    let names: Vec<String> = (0..10).map(|number| format!("mcp__s__t{number}")).collect();
    let functions: Vec<Value> = names.iter().map(|name| function(name, true)).collect();
    let described = format!("These tools: {}.", names[..9].join(", "));
    assert_eq!(
        sent["tools"],
        json!([
            {"type": "tool_search"},
            function("look", false),
            namespace("tools", &described, functions[..9].to_vec()),
            namespace("tools_2", "These tools: mcp__s__t9.", functions[9..].to_vec()),
        ])
    );
    assert_eq!(sent["input"][0], function_call("1", "mcp__s__t0", Some("tools")));
    assert_eq!(sent["input"][1], function_call("2", "mcp__s__t9", Some("tools_2")));
    let again = vec![function("mcp__s__t9", false)];
    assert_eq!(
        sent["input"][4],
        additional(vec![namespace("tools_2", "These tools: mcp__s__t9.", again)])
    );
    let nothing = self::sent(&hosted(vec![], vec![]));
    assert_eq!(nothing["tools"], json!([function("look", false)]));
}

#[test]
fn what_the_server_found_goes_back_as_it_came() {
    let items = [
        json!({"id": "tsc_1", "type": "tool_search_call", "status": "completed",
            "execution": "server", "call_id": null, "arguments": {"paths": ["crm"]}}),
        json!({"id": "tso_1", "type": "tool_search_output", "status": "completed",
            "execution": "server", "call_id": null, "tools": [github(vec![])]}),
    ];
    let native = |json: &Value| Said::Native { provider: NAME.into(), json: json.clone() };
    let messages = vec![said(items.iter().map(native).collect())];
    assert_eq!(sent(&hosted(vec![], messages))["input"], json!(items));
}

#[test]
fn without_a_form_for_it_all_is_written_out() {
    let definition = revealed("github", "open");
    let written = definition.tool.neutral().get().to_owned();
    let mut conversation = found("1", vec![definition.clone()]).to_vec();
    conversation.push(Message::Tools(ToolChange { added: vec![definition], removed: vec![] }));
    let native = |json: Value| Said::Native { provider: NAME.into(), json };
    conversation.push(said(vec![
        native(json!({"type": "reasoning", "summary": [], "encrypted_content": "r"})),
        native(json!({"type": "tool_search_call", "execution": "server", "call_id": null})),
        native(json!({"type": "tool_search_output", "execution": "server", "tools": []})),
        mark("github"),
        call("2", "mcp__github__open", "{}"),
        native(json!({"phase": "commentary", "namespace": "github"})),
        call("3", "mcp__github__open", "{}"),
    ]));
    let mut request = request(conversation);
    request.native = None;
    let sent = sent(&request);
    let mut phased = function_call("3", "mcp__github__open", None);
    phased["phase"] = json!("commentary");
    assert_eq!(sent["tools"], json!([function("find", false), function("look", false)]));
    assert_eq!(
        sent["input"],
        json!([
            function_call("1", "find", None),
            output("1", &written),
            notice(&format!("Now loaded:\n{written}")),
            function_call("2", "mcp__github__open", None),
            phased,
        ])
    );
    // The user's own tools may have such a search.
    let extra = Map::from_iter([("tools".to_owned(), json!([{"type": "tool_search"}]))]);
    request.options = Arc::new(ModelOptions { extra, ..ModelOptions::default() });
    let kinds: Vec<Value> = self::sent(&request)["input"].as_array().unwrap()[3..6]
        .iter()
        .map(|item| item["type"].clone())
        .collect();
    assert_eq!(kinds, ["reasoning", "tool_search_call", "tool_search_output"]);
}

#[test]
fn a_longer_conversation_begins_with_the_bytes_of_a_shorter_one() {
    let mut whole = vec![Message::user("Look")];
    whole.extend(found("1", many("s", 0..8)));
    whole.push(said(vec![mark("s"), call("2", "mcp__s__t0", "{}")]));
    whole.push(gave("2", vec![]));
    whole.push(Message::Tools(ToolChange { added: many("s", 8..12), removed: vec!["t".into()] }));
    whole.extend(found("3", [many("s", 5..14), many("s_2", 0..3)].concat()));
    whole.push(said(vec![mark("s_2"), call("4", "mcp__s__t13", "{}")]));
    whole.push(gave("4", vec![]));
    let longest = body(&request(whole.clone()), Server::OpenAi);
    for length in 1..whole.len() {
        let shorter = body(&request(whole[..length].to_vec()), Server::OpenAi);
        let open = shorter.strip_suffix(b"]}").unwrap();
        assert!(longest.starts_with(open), "{length}");
    }
}
