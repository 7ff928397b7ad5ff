//! What changes is told: lists, and the resources a client follows.

mod support;

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use support::{Client, LONG, Odd, Offered, Served, answer, crib, events, modern, raw};
use tokio::time::{sleep, timeout};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options};
use toolcrib_runtime::{Crib, News};

async fn two() -> (Gateway, Arc<Offered>, Arc<Offered>, Crib) {
    let crib = crib().await;
    let (one, two) = (Offered::full("one"), Offered::full("two"));
    crib.add(Odd::offering("one", &one)).await;
    crib.add(Odd::offering("two", &two)).await;
    (Gateway::new(crib.clone(), Options::default()).expect("settings that work"), one, two, crib)
}

fn only(name: &str) -> Endpoint {
    Endpoint::Server(name.to_owned())
}

/// Until something holds.
async fn until(holds: impl Fn() -> bool) {
    timeout(LONG, async {
        while !holds() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("it holds in time");
}

/// Waits until the gateway hears a server.
async fn heard(server: &Offered) {
    until(|| server.news.receiver_count() > 0).await;
}

#[tokio::test]
async fn a_session_hears_of_the_resources_it_follows_and_of_no_others() {
    let (gateway, one, two, _) = two().await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    let mut other = Client::open(&gateway, Endpoint::Meta).await;
    for uri in ["crib://one/same://a", "one://b"] {
        let answer = client.request("resources/subscribe", json!({"uri": uri})).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
    let again = client.request("resources/subscribe", json!({"uri": "one://b"})).await;
    assert_eq!(again["result"], json!({}));
    assert_eq!(*one.followed.lock().unwrap(), ["same://a", "one://b"]);
    heard(&one).await;
    heard(&two).await;
    two.updated("same://a");
    one.updated("never:followed");
    one.updated("same://a");
    one.updated("same://a");
    let note = client.read().await;
    assert_eq!(note["method"], "notifications/resources/updated");
    assert_eq!(note["params"], json!({"uri": "crib://one/same://a"}), "as it was asked for");

    let ended = json!({"uri": "crib://one/same://a"});
    assert_eq!(client.request("resources/unsubscribe", ended).await["result"], json!({}));
    assert_eq!(*one.followed.lock().unwrap(), ["one://b"]);
    one.updated("same://a");
    one.updated("one://b");
    assert_eq!(client.read().await["params"], json!({"uri": "one://b"}));
    // Nothing came to the one who follows nothing: the next it reads is an answer.
    other.request("ping", json!({})).await;
    client.close().await;
    drop(client);
    until(|| one.followed.lock().unwrap().is_empty()).await;
}

#[tokio::test]
async fn an_update_that_is_lost_among_many_is_told_all_the_same() {
    let (gateway, one, ..) = two().await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    for uri in ["one://b", "two://b"] {
        client.request("resources/subscribe", json!({"uri": uri})).await;
    }
    heard(&one).await;
    one.updated("one://b");
    // More than can wait, so that the first is gone before anybody hears it.
    for n in 0..200 {
        one.updated(&format!("n:{n}"));
    }
    assert_eq!(client.read().await["params"], json!({"uri": "one://b"}));
    // Nobody missed anything of the other.
    client.request("ping", json!({})).await;
}

#[tokio::test]
async fn an_update_that_came_while_nobody_listened_is_told_to_who_comes_back() {
    let (gateway, one, ..) = two().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let session = served.session("/mcp").await;
    let notices = || {
        let get = served.other(Method::GET, "/mcp").header("mcp-session-id", &session);
        get.header("accept", "text/event-stream").send()
    };
    let first = notices().await.unwrap();
    let uri = json!({"uri": "one://b"});
    let follow = served.within("/mcp", &session, "resources/subscribe", uri.clone());
    assert_eq!(answer(follow).await.1["result"], json!({}));
    drop(first);
    heard(&one).await;
    sleep(Duration::from_millis(200)).await;
    one.updated("one://b");
    let told = events(&mut notices().await.unwrap(), 1).await.remove(0);
    assert_eq!(
        (&told["method"], &told["params"]),
        (&json!("notifications/resources/updated"), &uri)
    );
}

#[tokio::test]
async fn what_can_not_be_followed_says_why() {
    let (gateway, one, ..) = two().await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    for (uri, code) in [("nobody:x", -32002), ("same://a", -32602), ("crib://one/gone:x", -32002)] {
        let answer = client.request("resources/subscribe", json!({"uri": uri})).await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
    }
    let answer = client.request("resources/subscribe", json!({})).await;
    assert_eq!(answer["error"]["code"], -32602);
    let mut own = Client::open(&gateway, only("one")).await;
    for n in 0..1_000 {
        let followed = own.request("resources/subscribe", json!({"uri": format!("n:{n}")})).await;
        assert!(followed["result"].is_object());
    }
    let more = own.request("resources/subscribe", json!({"uri": "n:1000"})).await;
    assert!(more["error"]["message"].as_str().unwrap().contains("1000"), "{more}");
    assert_eq!(one.followed.lock().unwrap().len(), 1_000);
}

#[tokio::test]
async fn lists_that_change_are_told_where_they_do() {
    let (gateway, one, ..) = two().await;
    let mut all = Client::open(&gateway, Endpoint::Meta).await;
    let mut first = Client::open(&gateway, only("one")).await;
    let mut second = Client::open(&gateway, only("two")).await;
    heard(&one).await;
    one.change(|offers| offers.prompts.push(raw(r#"{"name":"new"}"#)));
    one.news.send(News::Prompts).unwrap();
    for client in [&mut all, &mut first] {
        let note = client.read().await;
        assert_eq!(note, json!({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}));
    }
    // A change that is none where it can be compared is not told there.
    one.news.send(News::Resources).unwrap();
    assert_eq!(first.read().await["method"], "notifications/resources/list_changed");
    one.change(|offers| offers.templates.clear());
    one.news.send(News::Resources).unwrap();
    assert_eq!(all.read().await["method"], "notifications/resources/list_changed");
    second.request("ping", json!({})).await;
}

#[tokio::test]
async fn a_server_that_comes_later_is_heard_as_well() {
    let (gateway, _, _, crib) = two().await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    let late = Offered::full("late");
    crib.add(Odd::offering("late", &late)).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        told.push(client.read().await["method"].as_str().unwrap().to_owned());
    }
    told.sort_unstable();
    let expected = ["prompts", "resources", "tools"];
    assert_eq!(told, expected.map(|kind| format!("notifications/{kind}/list_changed")));
    client.request("resources/subscribe", json!({"uri": "late://b"})).await;
    heard(&late).await;
    late.updated("late://b");
    assert_eq!(client.read().await["params"]["uri"], "late://b");
}

#[tokio::test]
async fn the_stateless_era_says_in_one_request_what_it_wants_to_hear() {
    let (gateway, one, two, _) = two().await;
    let served = Served::start(&gateway, HttpOptions::default()).await;
    let wanted = json!({"notifications": {
        "promptsListChanged": true, "resourcesListChanged": false, "new": true,
        "resourceSubscriptions": ["one://b", "crib://two/same://a", "nobody:x", 7]}});
    let listen = served.modern("/mcp/full", "subscriptions/listen", wanted);
    let mut stream = listen.send().await.unwrap();
    let meta = json!({"io.modelcontextprotocol/subscriptionId": 1});
    let ack = &events(&mut stream, 1).await[0];
    assert_eq!(ack["method"], "notifications/subscriptions/acknowledged");
    let agreed = json!({"promptsListChanged": true,
        "resourceSubscriptions": ["one://b", "crib://two/same://a"]});
    assert_eq!(ack["params"], json!({"_meta": meta, "notifications": agreed}));
    // What is said from the acknowledgement on is heard.
    one.updated("same://a");
    two.updated("same://a");
    let note = &events(&mut stream, 1).await[0];
    assert_eq!(note["method"], "notifications/resources/updated");
    assert_eq!(note["params"], json!({"uri": "crib://two/same://a", "_meta": meta}));
    one.change(|offers| {
        offers.resources.clear();
        offers.prompts.clear();
    });
    one.news.send(News::Resources).unwrap();
    one.news.send(News::Prompts).unwrap();
    let note = &events(&mut stream, 1).await[0];
    assert_eq!(note["method"], "notifications/prompts/list_changed");
    assert_eq!(note["params"], json!({"_meta": meta}));
    drop(stream);
    until(|| one.followed.lock().unwrap().is_empty()).await;
}

#[tokio::test]
async fn what_nobody_offers_is_not_agreed_to() {
    let crib = crib().await;
    crib.add(Odd::new("plain")).await;
    let gateway = Gateway::new(crib, Options::default()).unwrap();
    let mut client = Client::connect(&gateway, Endpoint::Meta);
    let all = json!({"toolsListChanged": true, "promptsListChanged": true,
        "resourcesListChanged": true, "resourceSubscriptions": ["a:b"]});
    client.send("subscriptions/listen", json!({"notifications": all, "_meta": modern()})).await;
    let ack: Value = client.read().await;
    assert_eq!(ack["params"]["notifications"], json!({"toolsListChanged": true}));
}

#[tokio::test]
async fn what_a_client_tells_reaches_its_servers_and_what_is_meant_for_it_nobody_else() {
    let (gateway, one, two, _) = two().await;
    let mut all = Client::open(&gateway, Endpoint::Meta).await;
    let mut own = Client::open(&gateway, only("one")).await;
    for client in [&mut all, &mut own] {
        client.notify("notifications/vendor", json!({})).await;
        client.notify("notifications/roots/list_changed", json!({})).await;
        client.request("ping", json!({})).await;
    }
    let told = |server: &Offered| server.told.lock().unwrap().clone();
    let methods = |server| told(server).into_iter().map(|(_, method)| method).collect::<Vec<_>>();
    let roots = "notifications/roots/list_changed";
    assert_eq!(methods(&one), [roots, "notifications/vendor", roots]);
    assert_eq!(methods(&two), [roots]);

    heard(&one).await;
    let (all_id, own_id) = (told(&one)[0].0, told(&one)[1].0);
    let say = |party, method: &str, params: &str| {
        let (method, params) = (method.into(), Some(raw(params)));
        one.news.send(News::For { party, method, params }).unwrap();
    };
    say(all_id, "notifications/tasks/status", r#"{"taskId":"7","x":1.0}"#);
    say(own_id, "notifications/tasks/status", r#"{"taskId":"8"}"#);
    say(0, "notifications/vendor", "{}");
    assert_eq!(all.read().await["params"]["taskId"], "one:7");
    assert_eq!(own.read().await["params"]["taskId"], "8");
    all.request("logging/setLevel", json!({"level": "error"})).await;
    say(all_id, "notifications/message", r#"{"level":"info","data":1}"#);
    say(all_id, "notifications/message", r#"{"level":"alert","data":2}"#);
    assert_eq!(all.read().await["params"]["data"], 2);
}

#[tokio::test]
async fn only_those_are_told_whose_server_says_so() {
    let (gateway, one, ..) = two().await;
    let mut first = Client::open(&gateway, only("one")).await;
    let mut second = Client::open(&gateway, only("one")).await;
    let uri = json!({"uri": "one://b"});
    first.request("resources/subscribe", uri.clone()).await;
    let party = one.followers()[0];
    second.request("resources/subscribe", uri.clone()).await;
    assert_eq!(one.followers().len(), 2, "each is a client of its own");
    heard(&one).await;
    one.news.send(News::Updated { uri: "one://b".into(), whom: [party].into() }).unwrap();
    assert_eq!(first.read().await["params"], uri);
    sleep(Duration::from_millis(200)).await;
    // The next it reads is an answer.
    second.request("ping", json!({})).await;
}
