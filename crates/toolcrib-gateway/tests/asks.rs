//! Questions of servers to clients with sessions.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use support::{Asking, Client, LONG, Served, answer, crib, events, rpc};
use tokio::time::{sleep, timeout};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options};

async fn gateway() -> (Gateway, Asking) {
    let (crib, asking) = (crib().await, Asking::default());
    crib.add(asking.clone()).await;
    (Gateway::new(crib, Options::default()).unwrap(), asking)
}

fn able() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {"listChanged": true}})
}

fn elicit(marker: &str) -> Value {
    json!({"method": "elicitation/create", "params": {"message": marker, "requestedSchema": {}}})
}

/// A call that asks these, in these rounds.
fn ask(rounds: &[&[Value]]) -> Value {
    json!({"name": "asking__ask", "arguments": {"rounds": rounds}})
}

async fn introduced(gateway: &Gateway, capabilities: Value) -> Client {
    let mut client = Client::connect(gateway, Endpoint::Full);
    let info = json!({"name": "me", "version": "1", "x": [1]});
    let params =
        json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
    client.request("initialize", params).await;
    client
}

fn response(id: &Value, result: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

async fn session(served: &Served, capabilities: Value) -> String {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities});
    let opened = served.post("/mcp/full").body(rpc(0, "initialize", params)).send().await.unwrap();
    opened.headers()["mcp-session-id"].to_str().unwrap().to_owned()
}

async fn post(served: &Served, session: &str, body: String) -> u16 {
    let post = served.post("/mcp/full").header("mcp-session-id", session).body(body);
    post.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_client_on_stdio_is_asked_and_its_answer_comes_back_whole() {
    let (gateway, _) = gateway().await;
    let mut client = introduced(&gateway, able()).await;
    let sample = json!({"method": "sampling/createMessage", "params": {"x-new": [1.5]}});
    let id = client
        .send("tools/call", ask(&[&[elicit("one"), sample], &[json!({"method": "roots/list"})]]))
        .await;
    let (first, second) = (client.read().await, client.read().await);
    assert_eq!(first["method"], "elicitation/create");
    assert_eq!(first["params"]["message"], "one");
    assert_eq!(
        (&second["method"], &second["params"]),
        (&json!("sampling/createMessage"), &json!({"x-new": [1.5]}))
    );
    // In any order, and others in between.
    client.write(&response(&second["id"], json!({"role": "assistant", "new": 1}))).await;
    client.write(&response(&json!(999), json!({}))).await;
    client.write(&response(&json!("x"), json!({}))).await;
    client.request("ping", json!({})).await;
    client.write(&response(&first["id"], json!({"action": "decline"}))).await;
    let third = client.read().await;
    assert_eq!((&third["method"], third.get("params")), (&json!("roots/list"), None));
    let refusal = json!({"code": -1, "message": "no roots"});
    client.write(&json!({"jsonrpc": "2.0", "id": third["id"], "error": refusal}).to_string()).await;
    let done = client.read().await;
    assert_eq!(done["id"], id);
    assert_eq!(
        done["result"]["structuredContent"]["answers"],
        json!([{"action": "decline"}, {"role": "assistant", "new": 1}, refusal])
    );
}

#[tokio::test]
async fn only_what_a_client_declares_is_asked() {
    let (gateway, _) = gateway().await;
    let url = json!({"method": "elicitation/create", "params": {"mode": "url"}});
    for (capabilities, question) in [
        (json!({}), elicit("x")),
        (json!({"elicitation": {}}), url),
        (json!({"elicitation": {}}), json!({"method": "roots/list"})),
    ] {
        let mut client = introduced(&gateway, capabilities).await;
        let done = client.request("tools/call", ask(&[&[question]])).await;
        assert_eq!(done["result"]["structuredContent"]["answers"][0]["code"], -32601, "{done}");
    }
}

#[tokio::test]
async fn a_client_introduces_itself_once_and_servers_see_who_it_is() {
    let (gateway, _) = gateway().await;
    let mut client = introduced(&gateway, able()).await;
    client.request("logging/setLevel", json!({"level": "error"})).await;
    let arguments = r#"{ "n":12345678901234567890123, "f":1.50}"#;
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"asking__seen","arguments":{arguments},"task":{{"ttl":1.0}},"x-vendor":1}}}}"#
    );
    client.write(&call).await;
    let seen = client.read().await["result"]["structuredContent"].clone();
    assert_eq!(seen["written"], arguments);
    assert_eq!(seen["rest"], json!({"task": {"ttl": 1.0}, "x-vendor": 1}));
    assert_eq!(seen["level"], "error");
    assert_eq!(seen["party"]["capabilities"], able());
    assert_eq!(seen["party"]["info"], json!({"name": "me", "version": "1", "x": [1]}));
    let again = client.call("asking__seen", json!({})).await;
    assert_eq!(again["result"]["structuredContent"]["party"]["id"], seen["party"]["id"]);
    assert_eq!(again["result"]["structuredContent"]["rest"], Value::Null);
    let refused = client.request("initialize", json!({"protocolVersion": "2025-11-25"})).await;
    assert_eq!(refused["error"]["code"], -32600);
}

#[tokio::test]
async fn what_is_sent_is_what_was_read() {
    let (gateway, _) = gateway().await;
    let mut client = introduced(&gateway, json!({})).await;
    for (arguments, is_verbatim) in [
        (r#"{"path":"/etc/x","path":"/tmp/ok"}"#, false),
        (r#"{"a":[{"path":1,"p\u0061th":2}]}"#, false),
        (r#"{"a":{"path":1},"b":{"path":2}}"#, true),
    ] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{"name":"asking__seen","arguments":{arguments}}}}}"#
        );
        client.write(&call).await;
        let seen = client.read().await["result"]["structuredContent"].clone();
        let expected = if is_verbatim { json!(arguments) } else { Value::Null };
        assert_eq!(seen["written"], expected, "{arguments}");
    }
}

#[tokio::test]
async fn what_nobody_knows_is_passed_on_and_logs_by_their_level() {
    let (gateway, _) = gateway().await;
    let mut client = introduced(&gateway, json!({})).await;
    client.request("logging/setLevel", json!({"level": "warning"})).await;
    client.send("tools/call", json!({"name": "asking__tell"})).await;
    let vendor = client.read().await;
    assert_eq!(
        (&vendor["method"], &vendor["params"]),
        (&json!("notifications/x-vendor"), &json!({"a": [1.0]}))
    );
    assert_eq!(client.read().await["params"]["level"], "error");
    assert!(client.read().await["result"].is_object());
}

#[tokio::test]
async fn a_question_that_is_taken_back_is_cancelled_at_the_client() {
    let (gateway, asking) = gateway().await;
    let mut client = introduced(&gateway, able()).await;
    client.send("tools/call", ask(&[&[elicit("x")]])).await;
    let question = client.read().await;
    asking.take_back.notify_one();
    let cancelled = client.read().await;
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    assert_eq!(client.read().await["result"]["structuredContent"], "taken back");
}

#[tokio::test]
async fn cancelling_a_call_takes_its_questions_with_it() {
    let (gateway, asking) = gateway().await;
    let mut client = introduced(&gateway, able()).await;
    let id = client.send("tools/call", ask(&[&[elicit("x")]])).await;
    let question = client.read().await;
    client.notify("notifications/cancelled", json!({"requestId": id})).await;
    let cancelled = client.read().await;
    assert_eq!(cancelled["params"]["requestId"], question["id"]);
    timeout(LONG, asking.drop_noted.notified()).await.unwrap();
    // Too late, and heard by nobody.
    client.write(&response(&question["id"], json!({"action": "accept"}))).await;
    assert_eq!(client.request("ping", json!({})).await["result"], json!({}));
}

#[tokio::test]
async fn a_client_that_leaves_ends_its_questions() {
    let (gateway, asking) = gateway().await;
    let mut client = introduced(&gateway, able()).await;
    client.send("tools/call", ask(&[&[elicit("x")]])).await;
    client.read().await;
    client.close().await;
    let begun = Instant::now();
    let done = client.read().await;
    let answer = &done["result"]["structuredContent"]["answers"][0];
    assert_eq!(answer["message"], "The client has left");
    timeout(LONG, client.serving).await.unwrap().unwrap().unwrap();
    // Nobody waits for what can't come.
    assert!(begun.elapsed() < Options::default().drain);

    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = session(&served, able()).await;
    let call = served.within("/mcp/full", &session, "tools/call", ask(&[&[elicit("x")]]));
    let mut stream = call.send().await.unwrap();
    assert_eq!(events(&mut stream, 1).await[0]["params"]["message"], "x");
    let end = served.other(Method::DELETE, "/mcp/full").header("mcp-session-id", &session);
    assert_eq!(end.send().await.unwrap().status(), 204);
    timeout(LONG, asking.drop_noted.notified()).await.unwrap();
}

#[tokio::test]
async fn over_http_a_question_comes_on_the_stream_of_its_call() {
    let (gateway, _) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = session(&served, able()).await;
    let call = served.within("/mcp/full", &session, "tools/call", ask(&[&[elicit("x")]]));
    let mut stream = call.send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let question = events(&mut stream, 1).await.remove(0);
    let accepted = response(&question["id"], json!({"action": "accept"}));
    // Neither from outside a session nor from another one.
    assert_eq!(served.post("/mcp/full").body(accepted.clone()).send().await.unwrap().status(), 202);
    let other = self::session(&served, able()).await;
    assert_eq!(post(&served, &other, accepted.clone()).await, 202);
    assert_eq!(post(&served, "0123", accepted.clone()).await, 404);
    let early = timeout(Duration::from_millis(50), stream.chunk()).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(post(&served, &session, accepted).await, 202);
    let done = events(&mut stream, usize::MAX).await;
    assert_eq!(done[0]["result"]["structuredContent"]["answers"], json!([{"action": "accept"}]));
}

#[tokio::test]
async fn a_client_that_takes_no_events_is_asked_on_its_stream_of_notices_or_not_at_all() {
    let (gateway, _) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = session(&served, able()).await;
    let plain = || {
        let call = served.other(Method::POST, "/mcp/full").header("mcp-session-id", &session);
        let call =
            call.header("content-type", "application/json").header("accept", "application/json");
        call.body(rpc(1, "tools/call", ask(&[&[elicit("x")]])))
    };
    let (status, done) = answer(plain()).await;
    assert_eq!(status, 200);
    assert_eq!(done["result"]["structuredContent"]["answers"][0]["code"], -32603);
    let notices = served.other(Method::GET, "/mcp/full").header("mcp-session-id", &session);
    let mut notices = notices.header("accept", "text/event-stream").send().await.unwrap();
    let calling = tokio::spawn(answer(plain()));
    let question = events(&mut notices, 1).await.remove(0);
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(
        post(&served, &session, response(&question["id"], json!({"action": "cancel"}))).await,
        202
    );
    let (_, done) = calling.await.unwrap();
    assert_eq!(done["result"]["structuredContent"]["answers"], json!([{"action": "cancel"}]));
}

#[tokio::test]
async fn who_lost_the_stream_of_a_call_is_asked_on_the_one_of_notices() {
    let (gateway, _) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = session(&served, able()).await;
    let notices = served.other(Method::GET, "/mcp/full").header("mcp-session-id", &session);
    let mut notices = notices.header("accept", "text/event-stream").send().await.unwrap();
    let rounds = ask(&[&[elicit("one")], &[elicit("two")]]);
    let call = served.within("/mcp/full", &session, "tools/call", rounds);
    let mut stream = call.send().await.unwrap();
    let one = events(&mut stream, 1).await.remove(0);
    drop(stream);
    sleep(Duration::from_millis(100)).await;
    let accepted = |question: &Value| response(&question["id"], json!({"action": "accept"}));
    assert_eq!(post(&served, &session, accepted(&one)).await, 202);
    let two = events(&mut notices, 1).await.remove(0);
    assert_eq!(two["params"]["message"], "two");
    assert_eq!(post(&served, &session, accepted(&two)).await, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_clients_is_asked_its_own_questions() {
    let (gateway, _) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let served = &served;
    let call = |session: String, at: usize, call: u64| async move {
        let marker = format!("{at}-{call}");
        let params = ask(&[&[elicit(&marker)], &[elicit(&format!("{marker}-again"))]]);
        let request = served.post("/mcp/full").header("mcp-session-id", &session);
        let mut stream = request.body(rpc(call, "tools/call", params)).send().await.unwrap();
        for expected in [marker.clone(), format!("{marker}-again")] {
            let question = events(&mut stream, 1).await.remove(0);
            assert_eq!(question["params"]["message"], expected);
            let content = json!({"action": "accept", "content": {"marker": expected}});
            assert_eq!(post(served, &session, response(&question["id"], content)).await, 202);
        }
        let done = events(&mut stream, usize::MAX).await.remove(0);
        let answers = &done["result"]["structuredContent"]["answers"];
        assert_eq!(answers[0]["content"]["marker"], marker);
        assert_eq!(answers[1]["content"]["marker"], format!("{marker}-again"));
    };
    let client = |at: usize| async move {
        let session = session(served, able()).await;
        join_all((0..4).map(|id| call(session.clone(), at, id))).await;
    };
    join_all((0..8).map(client)).await;
}
