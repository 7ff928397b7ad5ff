//! Questions of servers to clients without sessions: a call waits while its request is answered.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use support::{Asking, Client, LONG, Served, answer, crib, events, modern, rpc};
use tokio::time::timeout;
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options, TokenHash};

async fn gateway() -> (Gateway, Asking) {
    let (crib, asking) = (crib().await, Asking::default());
    crib.add(asking.clone()).await;
    (Gateway::new(crib, Options::default()).unwrap(), asking)
}

fn elicit(marker: &str) -> Value {
    json!({"method": "elicitation/create", "params": {"message": marker, "requestedSchema": {}}})
}

fn roots() -> Value {
    json!({"method": "roots/list"})
}

fn accept(text: &str) -> Value {
    json!({"action": "accept", "content": {"text": text}})
}

/// `_meta` of a client that can be asked these.
fn able(capabilities: Value) -> Value {
    let mut meta = modern();
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    meta
}

/// Parameters of a call that asks these, in these rounds.
fn ask(rounds: &[&[Value]]) -> Value {
    let meta = able(json!({"elicitation": {}, "roots": {}}));
    json!({"name": "asking__ask", "arguments": {"rounds": rounds}, "_meta": meta})
}

/// The same request again, with answers.
fn again(mut params: Value, asked: &Value, answers: Value) -> Value {
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = answers;
    params
}

struct Http<'a>(&'a Served, Option<&'static str>);

impl Http<'_> {
    fn request(&self, params: &Value) -> reqwest::RequestBuilder {
        let request = self.0.post("/mcp/full").header("mcp-protocol-version", "2026-07-28");
        let request = request.header("mcp-method", "tools/call");
        let request = request.header("mcp-name", params["name"].as_str().unwrap());
        let request = match self.1 {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        request.body(rpc(1, "tools/call", params.clone()))
    }

    async fn call(&self, params: &Value) -> Value {
        let (status, answer) = answer(self.request(params)).await;
        let code = answer["error"]["code"].as_i64();
        assert_eq!(status, if code == Some(-32021) { 400 } else { 200 }, "{answer}");
        answer
    }
}

/// Calls over one transport or the other.
enum Way<'a> {
    Stdio(Client),
    Http(Http<'a>),
}

impl Way<'_> {
    async fn call(&mut self, params: &Value) -> Value {
        match self {
            Self::Stdio(client) => client.request("tools/call", params.clone()).await,
            Self::Http(http) => http.call(params).await,
        }
    }
}

fn answers(done: &Value) -> &Value {
    assert_eq!(done["result"]["resultType"], "complete", "{done}");
    &done["result"]["structuredContent"]["answers"]
}

fn assert_refused(answer: &Value) {
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

#[tokio::test]
async fn a_call_waits_for_its_answers_and_goes_on_over_both_transports() {
    let (gateway, asking) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    for way in
        [Way::Stdio(Client::connect(&gateway, Endpoint::Full)), Way::Http(Http(&served, None))]
    {
        let mut way = way;
        let before = asking.begun();
        let params = ask(&[&[elicit("one"), roots()], &[elicit("two")]]);
        let first = way.call(&params).await["result"].clone();
        assert_eq!(first["resultType"], "input_required");
        assert_eq!(first["inputRequests"], json!({"q1": elicit("one"), "q2": roots()}));
        // What is missing or none is asked again; what nobody asked for is passed over.
        let odd = json!({"q1": accept("x"), "q2": 12345, "other": {"action": "accept"}});
        let second = way.call(&again(params.clone(), &first, odd)).await["result"].clone();
        assert_eq!(second["inputRequests"], json!({"q2": roots()}));
        assert_ne!(second["requestState"], first["requestState"]);
        let listed = json!({"roots": [{"uri": "file:///a", "x": 1}]});
        let third = json!({"q2": listed, "q1": accept("changed")});
        let third = way.call(&again(params.clone(), &second, third)).await["result"].clone();
        assert_eq!(third["inputRequests"], json!({"q3": elicit("two")}));
        let last = json!({"q3": {"action": "decline"}});
        let done = way.call(&again(params.clone(), &third, last)).await;
        assert_eq!(answers(&done), &json!([accept("x"), listed, {"action": "decline"}]));
        assert_eq!(asking.begun(), before + 1);
        // Once is enough.
        assert_refused(
            &way.call(&again(params, &third, json!({"q3": {"action": "accept"}}))).await,
        );
        assert_eq!(asking.begun(), before + 1);
    }
    assert_eq!(asking.cancelled(), 0);
}

#[tokio::test]
async fn a_state_serves_its_own_request_and_caller_only() {
    let (gateway, asking) = gateway().await;
    let mut options = HttpOptions::default();
    options.tokens = vec![TokenHash::of("a"), TokenHash::of("b")];
    let served = Served::start(&gateway, options).await;
    let (mine, theirs) = (Http(&served, Some("a")), Http(&served, Some("b")));
    let params = ask(&[&[elicit("x")]]);
    let asked = mine.call(&params).await["result"].clone();
    let given = json!({"q1": accept("y")});
    let good = again(params.clone(), &asked, given.clone());
    assert_refused(&theirs.call(&good).await);
    let other_arguments = again(ask(&[&[elicit("z")]]), &asked, given.clone());
    assert_refused(&mine.call(&other_arguments).await);
    let mut other_tool = good.clone();
    other_tool["name"] = json!("asking__seen");
    assert_refused(&mine.call(&other_tool).await);
    let state = asked["requestState"].as_str().unwrap();
    let mut letters = state.to_owned();
    letters.replace_range(20..21, if &state[20..21] == "A" { "B" } else { "A" });
    for wrong in [
        format!("{state}-TAMPERED"),
        letters,
        state[..state.len() - 4].to_owned(),
        state[..=state.find('.').unwrap()].to_owned(),
    ] {
        let mut tampered = good.clone();
        tampered["requestState"] = json!(wrong);
        assert_refused(&mine.call(&tampered).await);
    }
    let mut no_object = good.clone();
    no_object["inputResponses"] = json!(7);
    assert_refused(&mine.call(&no_object).await);
    // After all that it still waits.
    assert_eq!(answers(&mine.call(&good).await), &json!([accept("y")]));
    assert_refused(&mine.call(&good).await);
    assert_eq!((asking.begun(), asking.cancelled()), (1, 0));
}

#[tokio::test]
async fn what_a_client_lacks_is_named_and_the_call_ends() {
    let (gateway, asking) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let http = Http(&served, None);
    let url = json!({"method": "elicitation/create", "params": {"mode": "url"}});
    for (can, question, required) in [
        (json!({"roots": {}}), elicit("x"), json!({"elicitation": {}})),
        (json!({"elicitation": {}}), url, json!({"elicitation": {"url": {}}})),
    ] {
        let mut params = ask(&[&[question], &[roots()]]);
        params["_meta"] = able(can);
        let refused = http.call(&params).await;
        assert_eq!(refused["error"]["code"], -32021, "{refused}");
        assert_eq!(refused["error"]["data"]["requiredCapabilities"], required);
    }
    timeout(LONG, asking.drop_noted.notified()).await.unwrap();
    // Who declares nothing is never asked, and the server is told.
    let mut params = ask(&[&[elicit("x")]]);
    params["_meta"] = able(json!({}));
    assert_eq!(answers(&http.call(&params).await)[0]["code"], -32601);
}

#[tokio::test]
async fn progress_after_the_answers_goes_to_the_new_request() {
    let (gateway, _) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let http = Http(&served, None);
    let mut params = ask(&[&[elicit("x")]]);
    params["_meta"]["progressToken"] = json!("old");
    let asked = http.call(&params).await["result"].clone();
    params["_meta"]["progressToken"] = json!("new");
    let back = again(params, &asked, json!({"q1": accept("y")}));
    let mut stream = http.request(&back).send().await.unwrap();
    let heard = events(&mut stream, usize::MAX).await;
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert_eq!(heard[0]["params"], json!({"progressToken": "new", "progress": 1}));
    assert_eq!(answers(&heard[1]), &json!([accept("y")]));
}

#[tokio::test]
async fn who_leaves_between_rounds_cancels_nothing_and_during_one_everything() {
    let (gateway, asking) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let http = Http(&served, None);
    let mut params = ask(&[&[elicit("x")]]);
    params["arguments"]["then"] = json!("wait");
    let asked = http.call(&params).await["result"].clone();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(asking.cancelled(), 0);
    let back = again(params.clone(), &asked, json!({"q1": accept("y")}));
    let left = timeout(Duration::from_millis(300), http.request(&back).send()).await;
    assert!(left.is_err());
    timeout(LONG, asking.drop_noted.notified()).await.unwrap();
    assert_refused(&http.call(&back).await);

    let mut client = Client::connect(&gateway, Endpoint::Full);
    params["_meta"]["progressToken"] = json!(1);
    let asked = client.request("tools/call", params.clone()).await["result"].clone();
    let id = client.send("tools/call", again(params, &asked, json!({"q1": accept("y")}))).await;
    assert_eq!(client.read().await["method"], "notifications/progress");
    client.notify("notifications/cancelled", json!({"requestId": id})).await;
    timeout(LONG, asking.drop_noted.notified()).await.unwrap();
    assert_eq!(asking.cancelled(), 2);
}

#[tokio::test]
async fn a_question_that_is_taken_back_lets_the_call_end() {
    let (gateway, asking) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Full);
    let params = ask(&[&[elicit("x")]]);
    let asked = client.request("tools/call", params.clone()).await["result"].clone();
    asking.take_back.notify_one();
    let late = again(params, &asked, json!({"q1": accept("y")}));
    let done = client.request("tools/call", late).await;
    assert_eq!(done["result"]["structuredContent"], "taken back");
}

#[tokio::test]
async fn calls_that_wait_end_with_their_connection_and_with_the_gateway() {
    let (gateway, asking) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Full);
    let params = ask(&[&[elicit("x")]]);
    client.request("tools/call", params.clone()).await;
    client.close().await;
    timeout(LONG, asking.drop_noted.notified()).await.unwrap();
    let mut served = Served::start(&gateway, HttpOptions::default()).await;
    Http(&served, None).call(&params).await;
    assert_eq!(asking.cancelled(), 1);
    served.shut_down();
    timeout(LONG, asking.drop_noted.notified()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_ten_minutes() {
    let (gateway, asking) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Full);
    let params = ask(&[&[elicit("x")]]);
    let early = client.request("tools/call", params.clone()).await["result"].clone();
    tokio::time::sleep(Duration::from_secs(590)).await;
    let late = client.request("tools/call", params.clone()).await["result"].clone();
    let given = json!({"q1": accept("y")});
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(asking.cancelled(), 1);
    assert_refused(
        &client.request("tools/call", again(params.clone(), &early, given.clone())).await,
    );
    let done = client.request("tools/call", again(params, &late, given)).await;
    assert_eq!(answers(&done), &json!([accept("y")]));
}

#[tokio::test]
async fn of_one_caller_sixty_four_calls_may_wait() {
    let (gateway, asking) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Full);
    let params = ask(&[&[elicit("x")]]);
    let mut first = Value::Null;
    for _ in 0..64 {
        first = client.request("tools/call", params.clone()).await["result"].clone();
        assert_eq!(first["resultType"], "input_required");
    }
    let full = client.request("tools/call", params.clone()).await;
    assert_eq!(full["error"]["code"], -32603, "{full}");
    assert!(full["error"]["message"].as_str().unwrap().contains("64 calls wait"), "{full}");
    timeout(LONG, asking.drop_noted.notified()).await.unwrap();
    assert_eq!(asking.cancelled(), 1);
    // One that is answered makes room.
    let done = client
        .request("tools/call", again(params.clone(), &first, json!({"q1": accept("y")})))
        .await;
    assert_eq!(answers(&done), &json!([accept("y")]));
    let room = client.request("tools/call", params).await;
    assert_eq!(room["result"]["resultType"], "input_required");
}

#[tokio::test]
async fn an_address_to_be_opened_first_is_asked_for() {
    let (gateway, asking) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Full);
    let meta = able(json!({"elicitation": {"url": {}}}));
    let params = json!({"name": "asking__open", "_meta": meta});
    let asked = client.request("tools/call", params.clone()).await["result"].clone();
    let question = json!({"method": "elicitation/create", "params":
        {"mode": "url", "elicitationId": "e", "url": "https://a.example/", "message": "Log in"}});
    assert_eq!(asked["inputRequests"], json!({"q1": question}));
    let asked =
        client.request("tools/call", again(params.clone(), &asked, json!({}))).await["result"]
            .clone();
    assert_eq!((asking.begun(), &asked["inputRequests"]), (1, &json!({"q1": question})));
    let opened = json!({"q1": {"action": "accept"}});
    let done = client.request("tools/call", again(params.clone(), &asked, opened.clone())).await;
    assert_eq!(done["result"]["content"][0]["text"], "opened");
    assert_eq!(asking.begun(), 2);
    assert_refused(&client.request("tools/call", again(params.clone(), &asked, opened)).await);

    asking.begun.store(0, std::sync::atomic::Ordering::SeqCst);
    let asked = client.request("tools/call", params.clone()).await["result"].clone();
    let no = json!({"q1": {"action": "decline"}});
    let done = client.request("tools/call", again(params.clone(), &asked, no)).await;
    assert_eq!((done["error"]["code"].as_i64(), asking.begun()), (Some(-32042), 1));

    for (can, code) in [(json!({"elicitation": {}}), -32021), (json!({}), -32021)] {
        asking.begun.store(0, std::sync::atomic::Ordering::SeqCst);
        let params = json!({"name": "asking__open", "_meta": able(can)});
        let refused = client.request("tools/call", params).await;
        assert_eq!(refused["error"]["code"], code, "{refused}");
        let required = &refused["error"]["data"]["requiredCapabilities"];
        assert_eq!(required, &json!({"elicitation": {"url": {}}}));
    }
    asking.begun.store(0, std::sync::atomic::Ordering::SeqCst);
    let mut session = Client::open(&gateway, Endpoint::Full).await;
    let refused = session.request("tools/call", json!({"name": "asking__open"})).await;
    assert_eq!(refused["error"]["code"], -32042);
    assert!(refused["error"]["data"]["elicitations"].is_array());
}

#[tokio::test]
async fn a_server_that_asks_in_rounds_itself_is_passed_on_as_it_stands() {
    let (gateway, _) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Full);
    for can in [json!({"roots": {}}), json!({})] {
        let params = json!({"name": "asking__rounds", "_meta": able(can)});
        let id = client.send("tools/call", params.clone()).await;
        let expected = r#"{ "resultType":"input_required","inputRequests":{"mine":{"method":"roots/list","x":1.0}},"requestState":"theirs" }"#;
        let line = client.read_line().await.unwrap();
        assert_eq!(line, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{expected}}}"#));
        let asked = json!({"requestState": "theirs"});
        let back = again(params.clone(), &asked, json!({"mine": {"roots": []}}));
        let done = client.request("tools/call", back).await;
        assert_eq!(
            done["result"]["structuredContent"],
            json!({"responses": {"mine": {"roots": []}}, "state": "theirs"})
        );
        let mut early = params;
        early["inputResponses"] = json!({"mine": 1});
        let done = client.request("tools/call", early).await;
        assert_eq!(
            done["result"]["structuredContent"],
            json!({"responses": {"mine": 1}, "state": null})
        );
    }
}

#[tokio::test]
async fn each_request_says_itself_who_asks_and_how() {
    let (gateway, _) = gateway().await;
    let mut client = Client::connect(&gateway, Endpoint::Server("asking".into()));
    let mut meta = able(json!({"sampling": {"tools": {}}}));
    meta["io.modelcontextprotocol/logLevel"] = json!("notice");
    let params = json!({"name": "seen", "arguments": {"a": 1}, "_meta": meta, "x": {}});
    let seen = client.request("tools/call", params).await["result"]["structuredContent"].clone();
    assert_eq!(seen["party"]["capabilities"], json!({"sampling": {"tools": {}}}));
    assert_eq!(seen["party"]["info"]["name"], "test");
    assert_eq!((&seen["level"], &seen["rest"]), (&json!("notice"), &json!({"x": {}})));
    assert_eq!(seen["written"], r#"{"a":1}"#);
    let mut verbs = Client::connect(&gateway, Endpoint::Meta);
    let call = json!({"tool_name": "asking__seen", "arguments": {"a": 1}});
    let params = json!({"name": "call_tool", "arguments": call, "_meta": modern()});
    let plain = verbs.request("tools/call", params).await["result"]["structuredContent"].clone();
    assert_eq!((&plain["written"], &plain["level"]), (&Value::Null, &Value::Null));
    assert_ne!(plain["party"]["id"], seen["party"]["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_many_callers_gets_its_own_answers() {
    let (gateway, asking) = gateway().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let served = &served;
    let one = |at: usize| async move {
        let http = Http(served, None);
        for call in 0..4 {
            let marker = format!("{at}-{call}");
            // Half of them are the same request to the letter.
            let shown = if at.is_multiple_of(2) { "same" } else { &marker };
            let params = ask(&[&[elicit(shown)], &[elicit(shown)]]);
            let mut asked = http.call(&params).await["result"].clone();
            for key in ["q1", "q2"] {
                assert_eq!(asked["inputRequests"][key], elicit(shown));
                let given = json!({key: accept(&format!("{marker}{key}"))});
                asked = http.call(&again(params.clone(), &asked, given)).await["result"].clone();
            }
            let expected = json!([accept(&format!("{marker}q1")), accept(&format!("{marker}q2"))]);
            assert_eq!(asked["structuredContent"]["answers"], expected);
        }
    };
    futures::future::join_all((0..12).map(one)).await;
    assert_eq!((asking.begun(), asking.cancelled()), (48, 0));
}

#[tokio::test]
async fn a_call_that_waits_for_answers_keeps_its_place() {
    let (_, asking) = gateway().await;
    let crib = crib().await;
    crib.add(asking.clone()).await;
    let mut options = Options::default();
    options.limits.in_flight = Some(1);
    let gateway = Gateway::new(crib, options).unwrap();
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let http = Http(&served, None);
    let seen = json!({"name": "asking__seen", "arguments": {}, "_meta": modern()});
    let params = ask(&[&[elicit("x")], &[elicit("y")]]);
    let mut asked = http.call(&params).await["result"].clone();
    for at in ["q1", "q2"] {
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        assert_eq!(answer(http.request(&seen)).await.0, 429, "one runs already");
        // Its own answers are let in.
        let given = json!({at: accept(at)});
        asked = http.call(&again(params.clone(), &asked, given)).await["result"].clone();
    }
    assert_eq!(asked["resultType"], "complete", "{asked}");
    assert_eq!(answer(http.request(&seen)).await.0, 200);
    // Where nothing runs until a person has agreed, no place is taken.
    let meta = able(json!({"elicitation": {"url": {}}}));
    let open = json!({"name": "asking__open", "arguments": {}, "_meta": meta});
    asking.begun.store(0, std::sync::atomic::Ordering::SeqCst);
    let asked = http.call(&open).await["result"].clone();
    assert_eq!(answer(http.request(&seen)).await.0, 200);
    let done = http.call(&again(open, &asked, json!({"q1": {"action": "accept"}}))).await;
    assert_eq!(support::text(&done), "opened");
    assert_eq!(answer(http.request(&seen)).await.0, 200);
}
