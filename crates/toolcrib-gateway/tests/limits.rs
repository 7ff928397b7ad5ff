//! How much one caller may ask for, and that others don't notice.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use support::{Client, LONG, Odd, Served, answer, crib, gateway, text};
use tokio::time::timeout;
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Limits, Options, TokenHash};

fn limits(calls_per_second: Option<f64>, burst: Option<u32>, in_flight: Option<usize>) -> Limits {
    let mut limits = Limits::default();
    limits.calls_per_second = calls_per_second;
    limits.burst = burst;
    limits.in_flight = in_flight;
    limits
}

fn call(served: &Served, token: &str, name: &str) -> reqwest::RequestBuilder {
    served.modern("/mcp/full", "tools/call", json!({"name": name})).bearer_auth(token)
}

#[tokio::test]
async fn whoever_calls_too_often_is_told_when_to_come_again() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    let few = limits(Some(0.5), Some(3), None);
    options.tokens = vec![TokenHash::of("few").limited(few), TokenHash::of("many")];
    let served = Served::start(&gateway, options).await;
    for _ in 0..3 {
        assert_eq!(call(&served, "few", "odd__echo").send().await.unwrap().status(), 200);
    }
    let response = call(&served, "few", "odd__echo").send().await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "2");
    let body: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!((&body["id"], &body["error"]["code"]), (&json!(1), &json!(-32000)));
    let wait = body["error"]["data"]["retryAfterMs"].as_u64().unwrap();
    assert!((1_000..=2_000).contains(&wait), "{wait}");
    // In a session it is the same caller.
    let open = support::rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
    let opened = served.post("/mcp/full").bearer_auth("few").body(open).send().await.unwrap();
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let within = served.within("/mcp/full", &session, "tools/call", json!({"name": "odd__echo"}));
    assert_eq!(answer(within.bearer_auth("few")).await.0, 429);
    // What is no call is not counted, nor are others.
    let list = served.modern("/mcp/full", "tools/list", json!({})).bearer_auth("few");
    assert_eq!(answer(list).await.0, 200);
    assert_eq!(answer(call(&served, "many", "odd__echo")).await.0, 200);
    assert!(gateway.metrics_text().contains("toolcrib_calls_turned_away_total 2"));
}

#[tokio::test]
async fn so_many_calls_of_one_caller_run_at_a_time() {
    let crib = crib().await;
    let odd = Odd::new("odd");
    crib.add(odd.clone()).await;
    let mut options = Options::default();
    options.limits = limits(None, None, Some(2));
    let gateway = Gateway::new(crib, options).unwrap();
    let mut options = HttpOptions::default();
    options.tokens = vec![TokenHash::of("a"), TokenHash::of("b")];
    let served = Served::start(&gateway, options).await;
    let waiting: Vec<_> =
        (0..2).map(|_| tokio::spawn(answer(call(&served, "a", "odd__wait")))).collect();
    for _ in 0..2 {
        timeout(LONG, odd.blocking.notified()).await.unwrap();
    }
    assert_eq!(answer(call(&served, "a", "odd__echo")).await.0, 429);
    assert_eq!(answer(call(&served, "b", "odd__echo")).await.0, 200);
    for call in waiting {
        odd.release.notify_one();
        assert_eq!(text(&timeout(LONG, call).await.unwrap().unwrap().1), "waited");
    }
    assert_eq!(answer(call(&served, "a", "odd__echo")).await.0, 200);
    // Whoever hangs up makes room.
    for _ in 0..3 {
        let gone = tokio::spawn(call(&served, "a", "odd__block").send());
        timeout(LONG, odd.blocking.notified()).await.unwrap();
        gone.abort();
    }
    let quiet = async {
        while !gateway.metrics_text().contains("toolcrib_calls_in_flight 0") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, quiet).await.expect("nothing runs");
    assert_eq!(answer(call(&served, "a", "odd__echo")).await.0, 200);
}

#[tokio::test]
async fn over_stdio_the_error_says_when() {
    let crib = crib().await;
    crib.add(Odd::new("odd")).await;
    let mut options = Options::default();
    options.limits = limits(Some(0.1), Some(1), None);
    let gateway = Gateway::new(crib, options).unwrap();
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    assert!(client.call("odd__echo", json!({})).await["result"].is_object());
    let refused = client.call("odd__echo", json!({})).await;
    assert_eq!(refused["error"]["code"], -32000);
    assert!(refused["error"]["data"]["retryAfterMs"].as_u64().unwrap() > 5_000, "{refused}");
    assert!(client.request("ping", json!({})).await["result"].is_object());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_by_one_caller_leaves_anothers_calls_unharmed() {
    let (gateway, ..) = gateway().await;
    let mut options = HttpOptions::default();
    let few = limits(Some(50.0), None, Some(4));
    options.tokens = vec![TokenHash::of("flood").limited(few), TokenHash::of("calm")];
    let served = std::sync::Arc::new(Served::start(&gateway, options).await);
    let flood: Vec<_> = (0..16)
        .map(|_| {
            let served = served.clone();
            tokio::spawn(async move {
                let mut let_in = 0;
                for _ in 0..40 {
                    let (status, _) = answer(call(&served, "flood", "odd__echo")).await;
                    assert!(status == 200 || status == 429, "{status}");
                    let_in += usize::from(status == 200);
                }
                let_in
            })
        })
        .collect();
    let begun = Instant::now();
    for _ in 0..100 {
        let (status, called) = answer(call(&served, "calm", "odd__echo")).await;
        assert!(status == 200 && called["result"].is_object(), "{called}");
    }
    let let_in: usize = join_all(flood).await.into_iter().map(Result::unwrap).sum();
    // A bucket of fifty, and fifty more each second that it took.
    let most = 51.0 + 50.0 * begun.elapsed().as_secs_f64();
    assert!(let_in > 0 && let_in as f64 <= most, "{let_in} of 640 were let in");
}
