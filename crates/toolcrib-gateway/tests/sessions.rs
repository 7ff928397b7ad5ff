//! Sessions over HTTP: how they end, and what reaches those who stay away for a while.

mod support;

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use support::{LONG, Odd, Served, answer, events, gateway, names, rpc, text};
use tokio::time::timeout;
use toolcrib_gateway::{HttpOptions, TokenHash};

fn notices(served: &Served, path: &str, session: &str) -> reqwest::RequestBuilder {
    let get = served.other(Method::GET, path).header("mcp-session-id", session);
    get.header("accept", "text/event-stream")
}

#[tokio::test]
async fn a_change_that_nobody_listened_to_is_told_later() {
    let (gateway, _, crib) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = served.session("/mcp/full").await;
    crib.add(Odd::new("even")).await;
    let mut stream = notices(&served, "/mcp/full", &session).send().await.unwrap();
    assert_eq!(events(&mut stream, 1).await[0]["method"], "notifications/tools/list_changed");
    drop(stream);
    crib.add(Odd::new("third")).await;
    let mut stream = notices(&served, "/mcp/full", &session).send().await.unwrap();
    assert_eq!(events(&mut stream, 1).await[0]["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_session_is_not_left_alone_while_a_call_runs() {
    let (gateway, odd, _) = gateway().await;
    let mut options = HttpOptions::default();
    options.session_idle = Duration::from_secs(1);
    let served = Served::start(&gateway, options).await;
    let session = served.session("/mcp/full").await;
    let call = served.within("/mcp/full", &session, "tools/call", json!({"name": "odd__wait"}));
    let calling = tokio::spawn(answer(call));
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    odd.release.notify_one();
    assert_eq!(text(&calling.await.unwrap().1), "waited");
    let ping = served.within("/mcp/full", &session, "ping", json!({}));
    assert_eq!(answer(ping).await.0, 200);
}

#[tokio::test]
async fn a_session_that_is_deleted_ends_its_calls_and_streams() {
    let (gateway, odd, _) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = served.session("/mcp/full").await;
    let mut stream = notices(&served, "/mcp/full", &session).send().await.unwrap();
    let block =
        || served.within("/mcp/full", &session, "tools/call", json!({"name": "odd__block"}));
    let streaming = tokio::spawn(block().send());
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    let plain = served.other(Method::POST, "/mcp/full").header("mcp-session-id", &session);
    let plain =
        plain.header("content-type", "application/json").header("accept", "application/json");
    let plain = plain.body(rpc(2, "tools/call", json!({"name": "odd__block"})));
    let plain = tokio::spawn(plain.send());
    timeout(LONG, odd.blocking.notified()).await.unwrap();
    let end = served.other(Method::DELETE, "/mcp/full").header("mcp-session-id", &session);
    assert_eq!(end.send().await.unwrap().status(), 204);
    let mut ended = timeout(LONG, streaming).await.unwrap().unwrap().unwrap();
    assert!(events(&mut ended, usize::MAX).await.is_empty());
    let ended = timeout(LONG, plain).await.unwrap().unwrap().unwrap();
    assert_eq!((ended.status().as_u16(), ended.headers().get("content-type")), (204, None));
    assert!(events(&mut stream, usize::MAX).await.is_empty());
    assert_eq!(answer(block()).await.0, 404);
}

#[tokio::test]
async fn a_long_call_shows_that_it_is_alive() {
    let (gateway, odd, _) = gateway().await;
    let mut options = HttpOptions::default();
    options.keep_alive = Duration::from_millis(20);
    let served = Served::start(&gateway, options).await;
    let session = served.session("/mcp/full").await;
    let call = json!({"name": "odd__wait"});
    for request in [
        served.within("/mcp/full", &session, "tools/call", call.clone()),
        served.modern("/mcp/full", "tools/call", call.clone()),
    ] {
        let mut response = timeout(LONG, request.send()).await.unwrap().unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        odd.release.notify_one();
        let seen = events(&mut response, usize::MAX).await;
        assert_eq!((seen.len(), text(&seen[0])), (1, "waited"));
    }
}

#[tokio::test]
async fn a_session_lives_from_initialize_to_delete() {
    let (gateway, ..) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = served.session("/mcp").await;
    assert_eq!(session.len(), 32);
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    let noted = served.post("/mcp").header("mcp-session-id", &session).body(initialized);
    assert_eq!(noted.send().await.unwrap().status(), 202);
    let (status, listed) = answer(served.within("/mcp", &session, "tools/list", json!({}))).await;
    assert_eq!((status, names(&listed["result"]["tools"]).len()), (200, 3));
    let call = json!({"name": "call_tool", "arguments": {"tool_name": "odd__echo", "arguments": {"n": 1}}});
    let (status, called) = answer(served.within("/mcp", &session, "tools/call", call)).await;
    assert_eq!(status, 200);
    assert_eq!(called["result"]["structuredContent"]["arguments"], json!({"n": 1}));
    assert!(called["result"].get("resultType").is_none());
    let without = served.post("/mcp").body(rpc(1, "tools/list", json!({})));
    assert_eq!(answer(without).await.0, 400);
    for (path, id) in [("/mcp", "0".repeat(32)), ("/mcp/full", session.clone())] {
        let unknown = served.within(path, &id, "tools/list", json!({}));
        assert_eq!(answer(unknown).await.0, 404, "{path}");
    }
    let ended = served.other(Method::DELETE, "/mcp").header("mcp-session-id", &session);
    assert_eq!(ended.send().await.unwrap().status(), 204);
    let late = served.within("/mcp", &session, "tools/list", json!({}));
    assert_eq!(answer(late).await.0, 404);
}

#[tokio::test]
async fn loads_of_one_session_are_not_seen_by_another() {
    let (gateway, ..) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let (one, two) = (served.session("/mcp/inject").await, served.session("/mcp/inject").await);
    let load = json!({"name": "tool_search", "arguments": {"query": "select:odd__echo"}});
    let mut response = served.within("/mcp/inject", &one, "tools/call", load).send().await.unwrap();
    let seen = events(&mut response, usize::MAX).await;
    assert_eq!(seen[0]["method"], "notifications/tools/list_changed");
    assert!(seen[1]["result"].is_object());
    for (session, count) in [(&one, 3), (&two, 2)] {
        let list = served.within("/mcp/inject", session, "tools/list", json!({}));
        assert_eq!(names(&answer(list).await.1["result"]["tools"]).len(), count);
    }
}

#[tokio::test]
async fn there_are_only_so_many_sessions() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    options.sessions = 1;
    let served = Served::start(&gateway, options).await;
    let session = served.session("/mcp").await;
    let more = served.post("/mcp").body(rpc(1, "initialize", json!({})));
    assert_eq!(answer(more).await.0, 503);
    let alive = served.within("/mcp", &session, "ping", json!({}));
    assert_eq!(answer(alive).await.0, 200);
}

#[tokio::test]
async fn one_caller_can_not_have_every_session() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    options.sessions = 8;
    options.tokens = vec![TokenHash::of("one"), TokenHash::of("two")];
    let served = Served::start(&gateway, options).await;
    let open = async |token: &str| {
        let initialize = rpc(1, "initialize", json!({"protocolVersion": "2025-11-25"}));
        answer(served.post("/mcp").bearer_auth(token).body(initialize)).await.0
    };
    assert_eq!([open("one").await, open("one").await, open("one").await], [200, 200, 503]);
    assert_eq!(open("two").await, 200);
}

#[tokio::test]
async fn who_stayed_away_gives_way_to_who_comes() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    options.sessions = 1;
    options.session_idle = Duration::from_secs(2);
    let served = Served::start(&gateway, options).await;
    let session = served.session("/mcp").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let other = served.session("/mcp").await;
    let late = served.within("/mcp", &session, "ping", json!({}));
    assert_eq!(answer(late).await.0, 404);
    let alive = served.within("/mcp", &other, "ping", json!({}));
    assert_eq!(answer(alive).await.0, 200);
}

#[tokio::test]
async fn a_session_that_is_left_alone_ends() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    options.session_idle = Duration::from_millis(100);
    let served = Served::start(&gateway, options).await;
    let session = served.session("/mcp").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let late = served.within("/mcp", &session, "ping", json!({}));
    let (status, late) = answer(late).await;
    assert_eq!((status, &late["id"]), (404, &json!(1)));
}

#[tokio::test]
async fn a_session_that_is_left_alone_is_not_kept() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    options.session_idle = Duration::from_millis(200);
    let served = Served::start(&gateway, options).await;
    let open = async || {
        let (_, metrics) = answer(served.other(Method::GET, "/metrics")).await;
        let metrics = metrics.as_str().unwrap().to_owned();
        let line = metrics.lines().find_map(|line| line.strip_prefix("toolcrib_sessions "));
        line.expect("a number of sessions").to_owned()
    };
    let _session = served.session("/mcp").await;
    assert_eq!(open().await, "1");
    let gone = async {
        while open().await != "0" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LONG, gone).await.expect("nobody asks for it, and nobody opens another");
}

#[tokio::test]
async fn a_session_knows_only_versions_with_sessions() {
    let (gateway, ..) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = served.session("/mcp").await;
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    let note = || served.post("/mcp").header("mcp-session-id", &session).body(note.clone());
    let end = || served.other(Method::DELETE, "/mcp").header("mcp-session-id", &session);
    for version in ["2026-07-28", "1999-01-01", "\u{e4}"] {
        for request in [notices(&served, "/mcp", &session), note(), end()] {
            let (status, refused) = answer(request.header("mcp-protocol-version", version)).await;
            assert_eq!((status, &refused["error"]["code"]), (400, &json!(-32022)), "{version}");
        }
    }
    let version = |request: reqwest::RequestBuilder| {
        answer(request.header("mcp-protocol-version", "2025-06-18"))
    };
    assert_eq!((version(note()).await.0, version(end()).await.0), (202, 204));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_calls_cancellations_and_ends_leaves_nothing_running() {
    let (gateway, ..) = gateway().await;
    let served = Arc::new(Served::start(&gateway, HttpOptions::default()).await);
    let clients = (0..16_u64).map(|client| {
        let served = served.clone();
        tokio::spawn(async move {
            for round in 0..8_u64 {
                let session = served.session("/mcp/full").await;
                let block = json!({"name": "odd__block", "_meta": {"progressToken": round}});
                let calls: Vec<_> = (0..4)
                    .map(|id| {
                        let call = served.post("/mcp/full").header("mcp-session-id", &session);
                        tokio::spawn(call.body(rpc(id, "tools/call", block.clone())).send())
                    })
                    .collect();
                let modern = served.modern("/mcp/full", "tools/call", block);
                let modern = tokio::spawn(modern.send());
                for id in 0..(client + round) % 4 {
                    let note = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                        "params": {"requestId": id}});
                    let cancel = served.post("/mcp/full").header("mcp-session-id", &session);
                    cancel.body(note.to_string()).send().await.unwrap();
                }
                if round % 2 == 0 {
                    calls[0].abort();
                }
                modern.abort();
                let end = served.other(Method::DELETE, "/mcp/full");
                assert_eq!(answer(end.header("mcp-session-id", &session)).await.0, 204);
                for call in calls {
                    let _ = timeout(LONG, call).await.unwrap();
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        timeout(LONG, client).await.unwrap().unwrap();
    }
    let quiet = async {
        while !gateway.metrics_text().contains("toolcrib_calls_in_flight 0") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, quiet).await.expect("nothing runs");
}
