//! What requests without sessions say in their headers, and tools that ask for too much there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use toolcrib_mcp::{Era, Upstream};
use toolcrib_runtime::{Question, Server, Toolset};

use crate::support::{call, invocation, names, until, within};
use crate::web::{Reply, Seen, Web, usual};

/// Answers like any server that speaks the newer way.
fn stateless(seen: &Seen) -> Reply {
    let annotated = |name: &str, header: Value| {
        let property = |kind: &str, header| json!({"type": kind, "x-mcp-header": header});
        let properties = json!({
            "where": property("string", header),
            "deep": {"properties": {"n": property("integer", json!("N"))}},
            "plain": {"type": "string"},
        });
        json!({"name": name, "inputSchema": {"type": "object", "properties": properties}})
    };
    match seen.method() {
        "server/discover" => Reply::json(
            200,
            seen.answer(json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            })),
        ),
        "tools/list" => {
            let tools = [annotated("fine", json!("Region")), annotated("not ok", json!("n"))];
            Reply::json(200, seen.answer(json!({"tools": tools})))
        }
        "subscriptions/listen" => Reply::stream([String::new()], false),
        "tools/call" => usual(seen),
        _ => Reply::json(200, seen.answer(json!({}))),
    }
}

async fn upstream(web: &Web) -> Upstream {
    let mut config = web.config();
    config.era = Some(Era::Stateless);
    Upstream::new(config)
}

fn last(web: &Web, method: &str) -> Seen {
    web.seen().into_iter().rfind(|seen| seen.method() == method).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_repeated_where_the_schema_says() {
    let web = Web::serve(stateless).await;
    let upstream = upstream(&web).await;
    assert_eq!(names(&upstream).await, ["fine"], "the other has a header twice");
    let arguments = json!({"where": " ü", "deep": {"n": 7}, "plain": "x"});
    call(&upstream, "fine", arguments).await.unwrap();
    let seen = last(&web, "tools/call");
    assert_eq!(seen.header("mcp-param-region"), "=?base64?IMO8?=");
    assert_eq!(
        (seen.header("mcp-param-n"), seen.header("mcp-param-plain")),
        ("7".into(), "".into())
    );
    assert_eq!(
        (seen.header("mcp-method"), seen.header("mcp-name")),
        ("tools/call".into(), "fine".into())
    );

    // As they were written, where that is known.
    let mut asked = invocation("fine", json!({}));
    asked.verbatim = Some(to_raw_value(&json!({"deep": {"n": 8}, "where": null})).unwrap().into());
    within(upstream.call(asked)).await.unwrap();
    let seen = last(&web, "tools/call");
    assert_eq!(
        (seen.header("mcp-param-n"), seen.header("mcp-param-region")),
        ("8".into(), "".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_no_header_stands_there_in_base64() {
    let web = Web::serve(stateless).await;
    call(&upstream(&web).await, "ä", json!({})).await.unwrap();
    assert_eq!(last(&web, "tools/call").header("mcp-name"), "=?base64?w6Q=?=");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_requests_say_what_they_are_about() {
    let web = Web::serve(stateless).await;
    let upstream = upstream(&web).await;
    for (method, params, name) in [
        ("prompts/get", json!({"name": "hello", "uri": "no"}), "hello"),
        ("resources/read", json!({"uri": "file:///a%20b", "name": "no"}), "file:///a%20b"),
        ("tasks/get", json!({"taskId": "t-1"}), "t-1"),
        ("resources/list", json!({"name": "no"}), ""),
        ("vendor/method", json!({"name": "no"}), ""),
    ] {
        let question = Question::new(method, Some(to_raw_value(&params).unwrap().into()));
        within(Server::ask(&upstream, question)).await.unwrap();
        let seen = last(&web, method);
        assert_eq!(
            (seen.header("mcp-method"), seen.header("mcp-name")),
            (method.into(), name.into())
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn with_sessions_nothing_is_repeated_but_wrong_tools_are_left_out_all_the_same() {
    let web = Web::serve(|seen| match seen.method() {
        "initialize" => usual(seen),
        "subscriptions/listen" | "server/discover" => Reply::empty(404),
        _ if seen.verb == "GET" => Reply::empty(405),
        _ => stateless(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    assert_eq!(names(&upstream).await, ["fine"]);
    call(&upstream, "fine", json!({"where": "eu"})).await.unwrap();
    let seen = last(&web, "tools/call");
    assert_eq!((seen.header("mcp-param-region"), seen.header("mcp-name")), ("".into(), "".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_names_the_version_it_wants_is_asked_again_once() {
    for (supported, asked) in [("2026-07-28", 2), ("2030-01-01", 1)] {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let web = Web::serve(move |seen| match seen.method() {
            "server/discover" if counted.fetch_add(1, Ordering::SeqCst) == 0 => {
                let error = json!({
                    "code": -32022, "message": "no", "data": {"supported": [supported]},
                });
                Reply::json(400, json!({"jsonrpc": "2.0", "id": null, "error": error}))
            }
            _ => stateless(seen),
        })
        .await;
        let listed = within(upstream(&web).await.list()).await;
        assert_eq!(listed.is_ok(), asked == 2);
        assert_eq!(count.load(Ordering::SeqCst), asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_every_list_are_asked_for() {
    let web = Web::serve(stateless).await;
    let upstream = upstream(&web).await;
    call(&upstream, "fine", json!({})).await.unwrap();
    until("it listens", || web.count("subscriptions/listen") > 0).await;
    let params = last(&web, "subscriptions/listen").body["params"].clone();
    let all = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
    });
    assert_eq!(params["notifications"], all);
}
