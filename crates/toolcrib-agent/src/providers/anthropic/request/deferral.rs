//! Native deferral on the wire: what is sent, and the mistakes for which the API refuses a whole
//! conversation.

use std::sync::Arc;

use serde_json::json;
use toolcrib_core::{Definition, GroupId, Revealed, ToolChange};

use super::tests::{body, call, native, plain, request, result, said, sent, text};
use super::*;
use crate::provider::{HostedSearch, ModelOptions, Native};

const PLACEHOLDER: &str = "toolcrib_placeholder";

fn tool(name: &str) -> Definition {
    let schema = json!({"type": "object", "properties": {}});
    let neutral = json!({"name": name, "description": "d", "input_schema": schema});
    serde_json::from_str(&neutral.to_string()).unwrap()
}

fn revealed(names: &[&str]) -> Vec<Revealed> {
    let given = |name: &&str| Revealed { group: GroupId::host(), tool: tool(name) };
    names.iter().map(given).collect()
}

fn found(id: &str, content: Vec<Part>, names: &[&str]) -> CallResult {
    CallResult { revealed: revealed(names), ..result(id, content, false) }
}

fn change(added: &[&str], removed: &[&str]) -> Message {
    let removed = removed.iter().map(|name| (*name).into()).collect();
    Message::Tools(ToolChange { added: revealed(added), removed })
}

/// A request whose array has `tool_search` and `read`, with these that wait.
fn waiting(deferred: &[&str], messages: Vec<Message>) -> Request {
    let mut request = request(messages);
    request.tools = vec![tool("tool_search"), tool("read")];
    request.native = Some(Native {
        deferred: deferred.iter().map(|name| tool(name)).collect(),
        search: Some("tool_search".into()),
        ..Native::default()
    });
    request
}

fn with(mut request: Request, set: impl FnOnce(&mut Native)) -> Request {
    set(request.native.as_mut().unwrap());
    request
}

fn changing(deferred: &[&str], messages: Vec<Message>) -> Request {
    with(waiting(deferred, messages), |native| native.changes = true)
}

fn reference(name: &str) -> Value {
    json!({"type": "tool_reference", "tool_name": name})
}

fn words(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn user(blocks: &[Value]) -> Value {
    json!({"role": "user", "content": blocks})
}

fn system(added: &[&str], removed: &[&str]) -> Value {
    let block = |kind: &str, name: &str| json!({"type": kind, "tool": {"type": "tool_reference", "name": name}});
    let added = added.iter().map(|name| block("tool_addition", name));
    let removed = removed.iter().map(|name| block("tool_removal", name));
    json!({"role": "system", "content": added.chain(removed).collect::<Vec<Value>>()})
}

fn roles(request: &Request) -> Vec<String> {
    let sent = sent(request);
    let roles = sent["messages"].as_array().unwrap().iter().map(|turn| turn["role"].as_str());
    roles.map(|role| role.unwrap().to_owned()).collect()
}

fn names(request: &Request) -> Vec<String> {
    let sent = sent(request);
    let tools = sent["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn changes_tools(request: &Request) -> bool {
    write(request, &Refused::default()).changes_tools
}

/// All marks of a request.
fn marks(request: &Request) -> usize {
    String::from_utf8(body(request)).unwrap().matches("cache_control").count()
}

/// A search that finds `issue`, whose call then fails or not, and what the host does meanwhile.
fn story() -> Vec<Message> {
    vec![
        Message::user("File it."),
        said(vec![call("1", "tool_search", r#"{"query":"issue"}"#)]),
        Message::Tool { results: vec![found("1", vec![], &["issue"])] },
        said(vec![call("2", "issue", "{}"), call("3", "read", "{}")]),
        Message::Tool {
            results: vec![
                result("2", vec![Part::text("no")], true),
                result("3", vec![Part::text("ok")], false),
            ],
        },
        change(&["wiki"], &["issue"]),
        said(vec![text("Done.")]),
        Message::user("Again."),
        change(&["issue"], &[]),
        said(vec![call("4", "tool_search", r#"{"query":"mail"}"#)]),
        Message::Tool { results: vec![found("4", vec![Part::text("2 more")], &["mail", "issue"])] },
    ]
}

#[test]
fn a_whole_request_to_the_byte() {
    let messages = vec![
        Message::user("a"),
        said(vec![call("1", "tool_search", "{}")]),
        Message::Tool { results: vec![found("1", vec![], &["mail"])] },
        change(&["wiki"], &["read"]),
    ];
    let schema = r#""description":"d","input_schema":{"type":"object","properties":{}}"#;
    let mark = r#""cache_control":{"type":"ephemeral"}"#;
    let expected = [
        r#"{"model":"claude-x","max_tokens":8192,"stream":true,"tools":["#,
        &format!(r#"{{"name":"tool_search",{schema}}},{{"name":"read",{schema},{mark}}},"#),
        r#"{"name":"toolcrib_placeholder","description":"Keeps a place. There is nothing to call.","#,
        r#""input_schema":{"type":"object","properties":{}},"defer_loading":true},"#,
        &format!(r#"{{"name":"mail",{schema},"defer_loading":true}},"#),
        &format!(r#"{{"name":"wiki",{schema},"defer_loading":true}}],"#),
        &format!(
            r#""messages":[{{"role":"user","content":[{{"type":"text","text":"a",{mark}}}]}},"#
        ),
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"tool_search","#,
        r#""input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","#,
        r#""content":[{"type":"tool_reference","tool_name":"mail"}]}]},"#,
        r#"{"role":"system","content":[{"type":"tool_addition","#,
        r#""tool":{"type":"tool_reference","name":"wiki"}},{"type":"tool_removal","#,
        &format!(r#""tool":{{"type":"tool_reference","name":"read"}},{mark}}}]}}]}}"#),
    ];
    let request = changing(&["mail", "wiki"], messages);
    assert_eq!(String::from_utf8(body(&request)).unwrap(), expected.concat());
    assert!(changes_tools(&request));
    assert!(!changes_tools(&waiting(&["mail", "wiki"], story())));
}

#[test]
fn what_was_sent_stays_as_it_is_when_the_conversation_goes_on() {
    let deferred = ["issue", "wiki", "mail"];
    for changes in [false, true] {
        let sent = |count: usize| {
            let request = waiting(&deferred, story()[..count].to_vec());
            plain(&with(request, |native| native.changes = changes))
        };
        let whole = sent(story().len());
        // Where the model is asked.
        for count in [1, 3, 6, 9, 11] {
            let part = sent(count);
            let part = part.as_array().unwrap();
            assert_eq!(part[..], whole.as_array().unwrap()[..part.len()], "{changes} {count}");
        }
    }
}

#[test]
fn without_native_nothing_is_deferred_referred_to_or_changed() {
    let mut plain = waiting(&["issue", "wiki", "mail"], story());
    plain.native = None;
    let sent = String::from_utf8(body(&plain)).unwrap();
    for word in ["defer_loading", "tool_reference", "tool_addition", "\"system\""] {
        assert!(!sent.contains(word), "{word}");
    }
    assert!(sent.contains(r#"{\"name\":\"mail\","#), "{sent}");
}

#[test]
fn a_result_that_gives_tools_refers_to_each_once_and_to_nothing_else() {
    let messages = vec![
        said(vec![call("1", "tool_search", "{}"), call("2", "read", "{}")]),
        Message::Tool {
            results: vec![
                found("1", vec![Part::text("3 more")], &["mail", "read", "mail"]),
                result("2", vec![Part::text("ok")], false),
            ],
        },
    ];
    assert_eq!(
        plain(&waiting(&["mail"], messages))[1],
        user(&[
            json!({"type": "tool_result", "tool_use_id": "1",
                "content": [reference("mail"), reference("read")]}),
            json!({"type": "tool_result", "tool_use_id": "2", "content": [words("ok")]}),
            words("From `t` (call 1):"),
            words("3 more"),
        ])
    );
}

#[test]
fn a_result_that_only_gives_tools_has_nothing_beside_them() {
    for content in [vec![], vec![Part::text("")], vec![Part::text(" \n")]] {
        let messages = vec![
            said(vec![call("1", "tool_search", "{}")]),
            Message::Tool { results: vec![found("1", content, &["mail"])] },
        ];
        assert_eq!(
            plain(&waiting(&["mail"], messages))[1],
            user(&[
                json!({"type": "tool_result", "tool_use_id": "1", "content": [reference("mail")]})
            ])
        );
    }
}

#[test]
fn refused_a_tool_that_waits_with_a_mark() {
    for deferred in [&[][..], &["mail"], &["mail", "wiki"]] {
        let sent = sent(&waiting(deferred, story()));
        let tools = sent["tools"].as_array().unwrap();
        for tool in tools {
            let marked = tool.get("cache_control").is_some();
            assert_eq!(marked, tool["name"] == "read", "{tool}");
            let waiting = deferred.iter().chain([&PLACEHOLDER]);
            let waits = waiting.into_iter().any(|name| tool["name"] == *name);
            assert_eq!(tool.get("defer_loading"), waits.then_some(&json!(true)), "{tool}");
        }
        assert_eq!(tools.len(), 3 + deferred.len());
    }
}

#[test]
fn refused_only_tools_that_wait() {
    let mut bare = waiting(&["mail", "wiki"], vec![Message::user("a")]);
    bare.tools.clear();
    let sent_bare = sent(&bare);
    for tool in sent_bare["tools"].as_array().unwrap() {
        assert_eq!(tool.get("defer_loading"), None);
    }
    assert_eq!(sent_bare["tools"][1]["cache_control"], json!({"type": "ephemeral"}));
    // The API's own search is one that doesn't wait.
    let hosted = with(bare, |native| native.hosted = Some(HostedSearch::Regex));
    let sent_hosted = sent(&hosted);
    assert_eq!(
        sent_hosted["tools"][0],
        json!({"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex",
            "cache_control": {"type": "ephemeral"}})
    );
    assert_eq!(sent_hosted["tools"][1]["defer_loading"], true);
    assert_eq!(sent_hosted["tools"][2]["defer_loading"], true);
}

#[test]
fn refused_a_search_tool_that_waits() {
    let request = with(waiting(&["mail", "tool_search"], vec![Message::user("a")]), |native| {
        native.hosted = Some(HostedSearch::Bm25);
    });
    let sent = sent(&request);
    assert_eq!(
        sent["tools"][0],
        json!({"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"})
    );
    assert_eq!(names(&request), ["tool_search_tool_bm25", "tool_search", "read", "mail"]);
    assert_eq!(sent["tools"][1].get("defer_loading"), None);
}

#[test]
fn refused_a_tool_declared_twice() {
    let request = waiting(&["mail", "read", "wiki", "mail"], story());
    assert_eq!(names(&request), ["tool_search", "read", PLACEHOLDER, "mail", "wiki"]);
    // One of that name has the place itself.
    let request = waiting(&["mail", PLACEHOLDER], story());
    assert_eq!(names(&request), ["tool_search", "read", "mail", PLACEHOLDER]);
}

#[test]
fn something_waits_from_the_first_request_on() {
    let mut request = waiting(&[], vec![Message::user("a")]);
    assert_eq!(names(&request), ["tool_search", "read", PLACEHOLDER]);
    let first = sent(&request)["tools"].clone();
    request.native.as_mut().unwrap().deferred = vec![tool("mail")];
    let later = sent(&request)["tools"].clone();
    assert_eq!(later.as_array().unwrap()[..3], first.as_array().unwrap()[..]);
    request.native = None;
    assert_eq!(names(&request), ["tool_search", "read"]);
}

#[test]
fn refused_a_reference_to_a_tool_that_is_gone() {
    let messages = |is_error| {
        let mut given = found("1", vec![Part::text("so")], &["gone", "mail"]);
        given.is_error = is_error;
        vec![said(vec![call("1", "tool_search", "{}")]), Message::Tool { results: vec![given] }]
    };
    let written = |name: &str| {
        words(&format!(
            r#"{{"name":"{name}","description":"d","input_schema":{{"type":"object","properties":{{}}}}}}"#
        ))
    };
    assert_eq!(
        plain(&waiting(&["mail"], messages(false)))[1],
        user(&[
            json!({"type": "tool_result", "tool_use_id": "1", "content": [reference("mail")]}),
            words("From `t` (call 1):"),
            words("so"),
            written("gone"),
        ])
    );
    // None is left.
    assert_eq!(plain(&waiting(&[], messages(false)))[1]["content"][0]["content"][0], words("so"),);
    // A failure may only be text.
    let failed = plain(&waiting(&["mail"], messages(true)));
    let content = failed[1]["content"][0]["content"].as_array().unwrap();
    assert_eq!(content.len(), 2);
    assert!(content.iter().all(|block| block["type"] == "text"), "{failed}");
    assert!(content[1]["text"].as_str().unwrap().contains("mail"), "{failed}");
    // The user's own tools take the place of ours.
    let mut own = waiting(&["mail"], messages(false));
    let extra = Map::from_iter([("tools".to_owned(), json!([]))]);
    own.options = Arc::new(ModelOptions { extra, ..ModelOptions::default() });
    assert!(!String::from_utf8(body(&own)).unwrap().contains("tool_reference"));
}

/// What the API's own search did, as it writes it.
fn searched(names: &[&str]) -> [Value; 2] {
    let references: Vec<Value> = names.iter().map(|name| reference(name)).collect();
    [
        json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_bm25",
            "input": {"query": "mail"}, "caller": {"type": "direct"}}),
        json!({"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content":
            {"type": "tool_search_tool_search_result", "tool_references": references}}),
    ]
}

#[test]
fn refused_what_the_apis_search_found_and_is_gone() {
    let [asked, answered] = searched(&["mail", "gone"]);
    let messages = vec![said(vec![native(asked.clone()), native(answered.clone()), text("so")])];
    let hosted = |deferred: &[&str]| {
        let request = waiting(deferred, messages.clone());
        with(request, |native| native.hosted = Some(HostedSearch::Bm25))
    };
    let all = hosted(&["gone", "mail"]);
    assert_eq!(plain(&all)[0]["content"], json!([asked, answered, words("so")]));
    let some = hosted(&["mail"]);
    let [_, left] = searched(&["mail"]);
    assert_eq!(plain(&some)[0]["content"], json!([asked, left, words("so")]));
    // It may find itself, and what it said goes back as it came.
    let [_, itself] = searched(&["tool_search_tool_bm25", "mail"]);
    let mut found_itself = hosted(&["mail"]);
    let content = vec![native(asked.clone()), native(itself.clone()), text("so")];
    found_itself.messages = vec![Arc::new(said(content))];
    assert_eq!(plain(&found_itself)[0]["content"], json!([asked, itself, words("so")]));
    let mut none = hosted(&["mail"]);
    none.native = None;
    let left = plain(&none)[0]["content"].clone();
    assert_eq!(left, json!([words("so")]));
    let another = with(hosted(&["mail"]), |native| native.hosted = Some(HostedSearch::Regex));
    assert_eq!(plain(&another)[0]["content"], left);
    // The user's own tools may have such a search.
    let extra = Map::from_iter([("tools".to_owned(), json!([]))]);
    none.options = Arc::new(ModelOptions { extra, ..ModelOptions::default() });
    assert_eq!(plain(&none)[0]["content"], json!([asked, answered, words("so")]));
}

#[test]
fn refused_changed_words_of_the_model() {
    let [asked, answered] = searched(&["mail"]);
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let failed = json!({"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content":
        {"type": "tool_search_tool_result_error", "error_code": "unavailable",
            "error_message": "later"}});
    for results in [&answered, &failed] {
        let blocks = [&thinking, &asked, results];
        let content = blocks.map(|block| native(block.clone())).to_vec();
        // Paused, it is the last message; nothing of it may be marked.
        let messages = vec![Message::user("a"), said(content), change(&["mail"], &[])];
        let paused = with(changing(&["mail"], messages), |native| {
            native.hosted = Some(HostedSearch::Bm25);
        });
        let sent = String::from_utf8(body(&paused)).unwrap();
        let end = blocks.map(|block| block.to_string()).join(",");
        assert!(
            sent.ends_with(&format!(r#"{{"role":"assistant","content":[{end}]}}]}}"#)),
            "{sent}"
        );
    }
}

#[test]
fn refused_a_result_for_what_the_api_called_itself() {
    let [asked, answered] = searched(&["mail"]);
    let messages = vec![
        Message::user("a"),
        said(vec![native(asked), native(answered), call("toolu_1", "mail", "{}")]),
        Message::Tool { results: vec![result("toolu_1", vec![Part::text("sent")], false)] },
    ];
    let request = with(waiting(&["mail"], messages), |native| {
        native.hosted = Some(HostedSearch::Bm25);
    });
    let sent = plain(&request);
    let result = json!({"type": "tool_result", "tool_use_id": "toolu_1",
        "content": [words("sent")]});
    assert_eq!(sent[2], user(&[result]));
}

#[test]
fn refused_half_of_what_the_api_called_itself() {
    let [asked, answered] = searched(&["mail"]);
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let content = |messages: Vec<Message>| -> Vec<Value> {
        let request = with(changing(&["mail"], messages), |native| {
            native.hosted = Some(HostedSearch::Bm25);
        });
        let turns = plain(&request).as_array().unwrap().clone();
        turns.into_iter().map(|mut turn| turn["content"].take()).collect()
    };
    let paused = || said(vec![text("a"), native(thinking.clone()), native(asked.clone())]);
    let whole = json!([words("a"), thinking, asked]);
    // The API goes on with it: after a pause, and after results.
    assert_eq!(content(vec![paused()])[0], whole);
    assert_eq!(content(vec![paused(), change(&["mail"], &[])])[0], whole);
    let beside = said(vec![native(asked.clone()), call("1", "read", "{}")]);
    let used = json!({"type": "tool_use", "id": "1", "name": "read", "input": {}});
    let results =
        |text| Message::Tool { results: vec![found("1", vec![Part::text(text)], &["mail"])] };
    let open = content(vec![beside.clone(), results("")]);
    assert_eq!(open[0], json!([asked, used]));
    // What it answered in its next reply belongs to it.
    let next = || said(vec![native(answered.clone()), text("b")]);
    let answered_later = content(vec![paused(), next(), Message::user("c")]);
    assert_eq!(answered_later[..2], [whole, json!([answered, words("b")])]);
    // Once somebody else has spoken, it is over; thinking that led to it goes with it.
    let left = json!([words("a")]);
    assert_eq!(content(vec![paused(), Message::user("b")])[0], left);
    assert_eq!(content(vec![paused(), Message::notice("b")])[0], left);
    assert_eq!(content(vec![beside.clone(), results("more")])[0], json!([used]));
    assert_eq!(content(vec![beside, results(""), change(&["mail"], &[])])[0], json!([used]));
    let nothing_else = said(vec![native(thinking.clone()), native(asked.clone())]);
    assert_eq!(content(vec![nothing_else, Message::user("b")]), [json!([words("b")])]);
    // An answer whose call was cut away.
    assert_eq!(content(vec![next()]), [json!([words("b")])]);
}

#[test]
fn refused_a_tool_that_must_be_called() {
    for request in [waiting(&["mail"], story()), changing(&["mail"], story())] {
        assert_eq!(sent(&request).get("tool_choice"), None);
    }
}

#[test]
fn refused_a_change_that_comes_first() {
    let request = changing(&["mail"], vec![change(&["mail"], &[]), Message::user("a")]);
    assert_eq!(plain(&request), json!([user(&[words("a")]), system(&["mail"], &[])]));
    // With nothing before it, it is not sent at all, and so names no beta.
    let alone = changing(&["mail"], vec![change(&["mail"], &[])]);
    assert_eq!(plain(&alone), json!([]));
    assert!(!changes_tools(&alone));
}

#[test]
fn refused_a_change_between_a_call_and_its_result() {
    let request = changing(
        &["mail"],
        vec![
            Message::user("a"),
            said(vec![call("1", "read", "{}")]),
            change(&["mail"], &[]),
            Message::Tool { results: vec![result("1", vec![], false)] },
            said(vec![text("b")]),
        ],
    );
    assert_eq!(roles(&request), ["user", "assistant", "user", "system", "assistant"]);
}

#[test]
fn refused_a_change_after_the_model_and_before_the_user() {
    let mut messages =
        vec![Message::user("a"), said(vec![text("b")]), change(&["mail"], &["read"])];
    let roles = |messages: &[Message]| roles(&changing(&["mail"], messages.to_vec()));
    assert_eq!(roles(&messages), ["user", "assistant"]);
    messages.push(said(vec![text("c")]));
    assert_eq!(roles(&messages), ["user", "assistant", "assistant"]);
    // What the API would find nothing in is no turn.
    messages.push(Message::user(" "));
    messages.push(said(vec![text("d")]));
    assert_eq!(roles(&messages), ["user", "assistant", "assistant", "assistant"]);
    messages.extend([Message::user("e"), Message::notice("f")]);
    let longer = ["user", "assistant", "assistant", "assistant", "user", "user", "system"];
    assert_eq!(roles(&messages), longer);
    messages.push(said(vec![text("g")]));
    assert_eq!(roles(&messages)[..7], longer);
}

#[test]
fn refused_a_change_of_a_tool_that_is_not_declared() {
    let request = changing(
        &["mail"],
        vec![
            Message::user("a"),
            change(&["gone", "mail"], &["lost", "read"]),
            change(&[], &["lost"]),
        ],
    );
    let told = "<notice>\nNow loaded:\n{\"name\":\"gone\",\"description\":\"d\",\
        \"input_schema\":{\"type\":\"object\",\"properties\":{}}}\n</notice>";
    assert_eq!(
        plain(&request),
        json!([user(&[words("a")]), user(&[words(told)]), system(&["mail"], &["read"])])
    );
}

#[test]
fn changes_in_a_row_are_one_with_the_last_word_about_each_tool() {
    let request = changing(
        &["mail", "wiki"],
        vec![
            Message::user("a"),
            change(&["mail"], &["read"]),
            Message::Host { kind: "k".into(), data: json!(1) },
            change(&["wiki", "read"], &["mail"]),
            said(vec![text("b")]),
            Message::user("c"),
        ],
    );
    assert_eq!(
        plain(&request),
        json!([
            user(&[words("a")]),
            system(&["wiki", "read"], &["mail"]),
            {"role": "assistant", "content": [words("b")]},
            user(&[words("c")]),
        ])
    );
}

#[test]
fn a_tool_that_went_and_is_found_again_comes_back() {
    let mut messages = vec![
        Message::user("a"),
        change(&[], &["mail"]),
        said(vec![call("1", "tool_search", "{}")]),
        Message::Tool { results: vec![found("1", vec![], &["mail", "wiki"])] },
    ];
    let request = changing(&["mail", "wiki"], messages.clone());
    let given = user(&[json!({"type": "tool_result", "tool_use_id": "1",
        "content": [reference("mail"), reference("wiki")]})]);
    assert_eq!(plain(&request)[1], system(&[], &["mail"]));
    assert_eq!(plain(&request)[3], given);
    assert_eq!(plain(&request)[4], system(&["mail"], &[]));
    // It is there now.
    messages.extend([
        said(vec![call("2", "tool_search", "{}")]),
        Message::Tool { results: vec![found("2", vec![], &["mail"])] },
    ]);
    let request = changing(&["mail", "wiki"], messages);
    assert_eq!(plain(&request).as_array().unwrap().len(), 7);
}

#[test]
fn a_model_that_takes_no_changes_is_told_how_to_find_what_came() {
    let messages = vec![Message::user("a"), change(&["mail", "wiki", "gone"], &["read"])];
    let told = |set: fn(&mut Native)| {
        let request = with(waiting(&["mail", "wiki"], messages.clone()), set);
        plain(&request)[1]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let rest = "Now loaded:\n{\"name\":\"gone\",\"description\":\"d\",\
        \"input_schema\":{\"type\":\"object\",\"properties\":{}}}\nNo longer available: read.";
    assert_eq!(
        told(|_| {}),
        format!(
            "<notice>\nNow loaded: mail, wiki. One that you were not shown yet is found with \
             `tool_search` by `select:mail,wiki`.\n{rest}\n</notice>"
        )
    );
    let taking = |arguments: Value| {
        let mut request = waiting(&["mail", "wiki"], messages.clone());
        let schema = json!({"type": "object", "properties": arguments});
        let search = json!({"name": "tool_search", "description": "d", "input_schema": schema});
        request.tools[0] = serde_json::from_str(&search.to_string()).unwrap();
        plain(&request)[1]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let regex = taking(json!({"pattern": {}, "limit": {}}));
    assert!(regex.contains(" with `tool_search` by the pattern `^(mail|wiki)$`.\n"), "{regex}");
    let lazy = taking(json!({"query": {}, "name": {}}));
    assert!(lazy.contains(" with `tool_search` by its `name`.\n"), "{lazy}");
    let hosted = told(|native| {
        native.search = None;
        native.hosted = Some(HostedSearch::Bm25);
    });
    assert!(hosted.contains(" is found with `tool_search_tool_bm25`.\n"), "{hosted}");
    // With nothing to look it up by, it is written out.
    let none = told(|native| native.search = None);
    assert!(none.contains(r#"{"name":"mail","#) && none.contains(r#"{"name":"wiki","#), "{none}");
}

#[test]
fn there_are_never_more_than_four_marks_and_none_on_what_the_api_wrote() {
    let [asked, answered] = searched(&["mail"]);
    let mut messages = story();
    messages.extend([
        said(vec![native(asked), native(answered)]),
        Message::user("b"),
        change(&["wiki"], &[]),
    ]);
    for count in 0..=messages.len() {
        for changes in [false, true] {
            let mut request = waiting(&["issue", "wiki", "mail"], messages[..count].to_vec());
            request.system = "Be brief.".into();
            let native = request.native.as_mut().unwrap();
            (native.changes, native.hosted) = (changes, Some(HostedSearch::Bm25));
            assert!(marks(&request) <= 4, "{count}: {}", sent(&request));
        }
    }
    // A change was the end of the request before, and a result of references is that of this one.
    let request = changing(&["issue", "wiki", "mail"], story());
    let sent = sent(&request);
    let turns = sent["messages"].as_array().unwrap();
    let marked: Vec<&Value> = turns
        .iter()
        .filter(|turn| turn.to_string().contains("cache_control"))
        .map(|turn| &turn["role"])
        .collect();
    assert_eq!(marked, ["system", "user"]);
    let last = turns.last().unwrap()["content"].as_array().unwrap().last().unwrap();
    assert_eq!(
        *last,
        json!({"type": "text", "text": "2 more",
        "cache_control": {"type": "ephemeral"}})
    );
}
