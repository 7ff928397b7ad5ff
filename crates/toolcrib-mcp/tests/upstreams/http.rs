//! Servers over HTTP: answers in either form, sessions, streams, and what can go wrong.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_mcp::{Upstream, UpstreamState};
use toolcrib_runtime::{Caller, Listener, Toolset};
use toolcrib_wire::RpcError;

use crate::support::{call, invocation, names, reason, say, until, within};
use crate::web::{Reply, Seen, Web, usual};

/// Notes when it was told that it might be elsewhere for a while.
#[derive(Clone, Default)]
struct Waits(Arc<Mutex<Vec<Duration>>>);

impl Listener for Waits {
    fn hear(&self, _: &str, _: &RawValue) {}

    fn let_go(&self, retry: Duration) {
        self.0.lock().unwrap().push(retry);
    }
}

/// Answers like any server, in a session that a test may end.
fn in_session(session: &AtomicUsize, seen: &Seen) -> Reply {
    let current = session.load(Ordering::SeqCst).to_string();
    match seen.method() {
        "initialize" => usual(seen).with("mcp-session-id", &current),
        _ if seen.header("mcp-session-id") != current => Reply::json(404, json!({})),
        _ => usual(seen),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_spoken_to_and_told_goodbye() {
    let web = Web::serve(|seen| in_session(&AtomicUsize::new(1), seen)).await;
    let upstream = Upstream::new(web.config().header("x-key", "abc"));
    assert_eq!(names(&upstream).await, ["act", "two"]);
    assert_eq!(say(&upstream, "act").await, "act");
    until("asked for news", || web.count("GET") == 1).await;
    for seen in web.seen() {
        let is_first = seen.method() == "initialize";
        assert_eq!(seen.header("x-key"), "abc");
        assert_eq!(seen.header("mcp-session-id"), if is_first { "" } else { "1" });
        let version = if is_first { "" } else { "2025-11-25" };
        assert_eq!(seen.header("mcp-protocol-version"), version);
        assert!(seen.header("accept").contains("text/event-stream"));
        assert_eq!(seen.header("mcp-method"), "", "that is for the newer era");
    }
    within(upstream.shut_down()).await;
    assert_eq!(web.count("DELETE"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_asked_before_the_greeting_has_ended() {
    let is_ready = AtomicUsize::new(0);
    let web = Web::serve(move |seen| match seen.method() {
        "notifications/initialized" => {
            std::thread::sleep(Duration::from_millis(200));
            is_ready.store(1, Ordering::SeqCst);
            usual(seen)
        }
        "tools/list" if is_ready.load(Ordering::SeqCst) == 0 => Reply::empty(500),
        _ => usual(seen),
    })
    .await;
    assert_eq!(names(&Upstream::new(web.config())).await, ["act", "two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_holds_any_more_is_told_goodbye_too() {
    let web = Web::serve(|seen| in_session(&AtomicUsize::new(1), seen)).await;
    let upstream = Upstream::new(web.config());
    say(&upstream, "act").await;
    drop(upstream);
    until("told", || web.count("DELETE") == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_may_come_as_events_with_questions_in_between() {
    let web = Web::serve(|seen| match seen.method() {
        "tools/call" => Reply::events([
            json!({"jsonrpc": "2.0", "id": "q", "method": "ping"}),
            seen.answer(json!({"content": [{"type": "text", "text": "streamed"}], "n": 1})),
        ]),
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    assert_eq!(say(&upstream, "act").await, "streamed");
    until("its question is answered", || {
        web.seen().iter().any(|seen| seen.body["id"] == "q" && seen.body["result"] == json!({}))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stays_open_after_its_answer_holds_nothing_up() {
    let web = Web::serve(|seen| match seen.method() {
        "tools/call" => {
            let answer = seen.answer(json!({"content": [{"type": "text", "text": "here"}]}));
            Reply::stream([format!("data: {answer}\n\n")], false)
        }
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    let calls = join_all((0..20).map(|_| say(&upstream, "act")));
    assert!(within(calls).await.iter().all(|said| said == "here"));
    until("the streams are left", || web.left() == 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_expired_is_begun_anew_and_no_call_is_lost() {
    let session = std::sync::Arc::new(AtomicUsize::new(1));
    let current = session.clone();
    let web = Web::serve(move |seen| in_session(&current, seen)).await;
    let upstream = Upstream::new(web.config());
    assert_eq!(say(&upstream, "act").await, "act");
    for expired in 2..4 {
        session.store(expired, Ordering::SeqCst);
        // None of them may be repeated unless it can't have run.
        let calls = join_all((0..20).map(|_| say(&upstream, "act")));
        assert!(calls.await.iter().all(|said| said == "act"));
        assert_eq!(web.count("initialize"), expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn news_come_on_a_stream_of_their_own() {
    let grown = std::sync::Arc::new(AtomicUsize::new(0));
    let count = grown.clone();
    let web = Web::serve(move |seen| match (&*seen.verb, seen.method()) {
        ("GET", _) => {
            count.store(1, Ordering::SeqCst);
            let notice = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            Reply::stream([": hello\n\n".to_owned(), format!("data: {notice}\n\n")], false)
        }
        (_, "tools/list") if count.load(Ordering::SeqCst) == 1 => {
            let tools = json!([{"name": "new", "inputSchema": {"type": "object"}}]);
            Reply::json(200, seen.answer(json!({"tools": tools})))
        }
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    let mut changes = upstream.changes().unwrap();
    assert_eq!(names(&upstream).await, ["act", "two"]);
    within(changes.wait_for(|count| *count >= 2)).await.unwrap();
    assert_eq!(names(&upstream).await, ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn news_that_are_denied_once_are_asked_for_again() {
    let asked = AtomicUsize::new(0);
    let web = Web::serve(move |seen| match &*seen.verb {
        "GET" => match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::empty(429),
            _ => Reply::stream([": hello\n\n".to_owned()], false),
        },
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    names(&upstream).await;
    until("it listens", || web.count("GET") == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newer_era_has_headers_of_its_own() {
    let web = Web::serve(|seen| match seen.method() {
        "initialize" => {
            let error = json!({"code": -32601, "message": "no such method"});
            Reply::json(404, json!({"jsonrpc": "2.0", "id": seen.body["id"], "error": error}))
        }
        "server/discover" => Reply::json(
            200,
            seen.answer(json!({"supportedVersions": ["2026-07-28"], "capabilities": {}})),
        ),
        "subscriptions/listen" => {
            let notice = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            Reply::stream([format!("data: {notice}\n\n")], false)
        }
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    assert_eq!(say(&upstream, "act").await, "act");
    until("it listens and hears", || web.count("tools/list") == 2).await;
    for seen in web.seen().iter().filter(|seen| seen.method() != "initialize") {
        assert_eq!(seen.header("mcp-protocol-version"), "2026-07-28");
        assert_eq!(seen.header("mcp-method"), seen.method());
        assert_eq!(seen.header("mcp-name"), seen.tool());
        let version = &seen.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(version, "2026-07-28");
    }
    assert_eq!(web.count("GET") + web.count("notifications/initialized"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_is_resumed_where_it_was() {
    let web = Web::serve(|seen| match (&*seen.verb, seen.method()) {
        ("POST", "tools/call") if seen.tool() == "act" => {
            Reply::stream([format!("id: {}\nretry: 10\ndata:\n\n", seen.body["id"])], true)
        }
        ("POST", "tools/call") if seen.tool() == "accident" => {
            Reply::stream([format!("id: {}\ndata:\n\n", seen.body["id"])], true)
        }
        ("POST", "tools/call") => Reply::stream([": nothing to resume from\n\n".to_owned()], true),
        ("GET", _) if !seen.header("last-event-id").is_empty() => {
            let id: u64 = seen.header("last-event-id").parse().unwrap();
            let content = json!([{"type": "text", "text": "resumed"}]);
            Reply::events([json!({"jsonrpc": "2.0", "id": id, "result": {"content": content}})])
        }
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    assert_eq!(say(&upstream, "act").await, "resumed");
    // Whoever waits is told if the server meant it.
    for (tool, let_go) in [("act", vec![Duration::from_millis(10)]), ("accident", vec![])] {
        let waits = Waits::default();
        let mut asked = invocation(tool, json!({}));
        asked.caller = Caller::new(waits.clone());
        within(upstream.call(asked)).await.unwrap();
        assert_eq!(*waits.0.lock().unwrap(), let_go, "{tool}");
    }
    let error = reason(&upstream, "two", json!({})).await;
    assert!(error.contains("the stream ended without an answer"), "{error}");
    assert!(error.contains("may have taken effect"), "{error}");
    assert_eq!(web.count("initialize"), 1, "one broken stream is no broken session");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_turned_away_says_why() {
    for (reply, expected) in [
        (401, "HTTP 401 Unauthorized: it wants credentials; set `bearer_token` or `headers`"),
        (404, "HTTP 404 Not Found: there is no MCP endpoint at this address; correct `url`"),
        (503, "HTTP 503 Service Unavailable"),
        (202, "HTTP 202 Accepted without an answer"),
    ] {
        let web = Web::serve(move |_| Reply::empty(reply)).await;
        let error = within(Upstream::new(web.config()).list()).await.unwrap_err().to_string();
        assert_eq!(error, expected);
    }
    let config = toolcrib_mcp::ServerConfig::http("a", "ftp://host/?key=secret");
    let error = within(Upstream::new(config).list()).await.unwrap_err().to_string();
    assert!(error.contains("neither http nor https") && !error.contains("secret"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_an_answer_whatever_id_it_has() {
    let web = Web::serve(|seen| match seen.method() {
        "tools/call" => {
            let error = json!({"code": -32600, "message": "odd", "data": [1]});
            Reply::json(400, json!({"jsonrpc": "2.0", "id": "server-error", "error": error}))
        }
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    let result = call(&upstream, "act", json!({})).await.unwrap();
    let expected = RpcError::new(-32600, "odd").with_data(&json!([1]));
    assert_eq!(result.refusal(), Some(&expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_is_followed_at_home_and_nowhere_else() {
    let web = Web::serve(|seen| match &*seen.path {
        "/mcp" => Reply::empty(307).with("location", "/mcp/"),
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config().header("authorization", "Bearer abcdefgh"));
    assert_eq!(say(&upstream, "act").await, "act");

    let elsewhere = format!("http://{}/mcp/", web.address());
    let away = Web::serve(move |_| Reply::empty(307).with("location", &elsewhere)).await;
    let stranger = Upstream::new(away.config().header("authorization", "Bearer stranger"));
    let error = within(stranger.list()).await.unwrap_err().to_string();
    assert!(error.contains("it has moved; correct `url`"), "{error}");
    let all = web.seen();
    assert!(all.iter().all(|seen| !seen.header("authorization").contains("stranger")), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_can_not_be_reached_says_so_and_comes_back() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    drop(taken);
    let config = toolcrib_mcp::ServerConfig::http("fixture", format!("http://{address}/mcp"));
    let upstream = Upstream::new(config);
    let error = within(upstream.list()).await.unwrap_err().to_string();
    assert!(error.contains("it can't be reached") && error.contains("refused"), "{error}");
    let web = Web::serve_at(&address, usual).await;
    until("running", || upstream.status().state == UpstreamState::Running).await;
    assert_eq!(names(&upstream).await, ["act", "two"]);
    assert!(web.count("initialize") >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_call_leaves_the_others_alone() {
    let web = Web::serve(|seen| match (seen.method(), seen.tool()) {
        ("tools/call", "two") => Reply::empty(500),
        ("tools/call", _) => {
            let answer = seen.answer(json!({"content": [{"type": "text", "text": "late"}]}));
            let pauses = (0..60).map(|_| ": wait\n\n".to_owned());
            Reply::stream(pauses.chain([format!("data: {answer}\n\n")]), true)
        }
        _ => usual(seen),
    })
    .await;
    let upstream = Upstream::new(web.config());
    within(upstream.check()).await.unwrap();
    let failing = async {
        until("the slow one is under way", || web.count("tools/call") == 1).await;
        reason(&upstream, "two", json!({})).await
    };
    let (slow, error) = tokio::join!(say(&upstream, "act"), failing);
    assert_eq!(slow, "late");
    assert!(error.contains("HTTP 500") && error.contains("may have taken effect"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_is_cancelled() {
    let web = Web::serve(|seen| match seen.method() {
        "tools/call" => Reply::stream([": wait\n\n".to_owned()], false),
        _ => usual(seen),
    })
    .await;
    let mut config = web.config();
    config.call_limit = Some(Duration::from_millis(200));
    let upstream = Upstream::new(config);
    let error = within(upstream.call(invocation("act", json!({})))).await.unwrap_err().to_string();
    assert!(error.contains("did not answer within 200ms"), "{error}");
    until("told", || web.count("notifications/cancelled") == 1).await;
    let seen = web.seen();
    let asked = seen.iter().find(|seen| seen.method() == "tools/call").unwrap();
    let cancelled = seen.iter().find(|seen| seen.method() == "notifications/cancelled").unwrap();
    assert_eq!(cancelled.body["params"]["requestId"], asked.body["id"]);
    until("the stream is left", || web.left() == 1).await;
}
