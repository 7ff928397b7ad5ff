//! Servers that fail again and again, and servers that are asked too much.

use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::time::timeout;
use toolcrib_mcp::{Era, Upstream};
use toolcrib_runtime::{Breaker, Caller, Retry, Server, Toolset};

use crate::lanes::client;
use crate::support::{Scene, call, invocation, is_alive, reason, say, until, within};

/// A server whose calls are given up soon.
fn impatient(scene: &Scene) -> Upstream {
    let mut config = scene.server(json!({}));
    config.call_limit = Some(Duration::from_millis(400));
    Upstream::new(config)
}

async fn fail(upstream: &Upstream, times: usize) {
    for _ in 0..times {
        let error = reason(upstream, "hang", json!({})).await;
        assert!(error.contains("did not answer within"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fails_again_and_again_is_left_alone_until_a_call_finds_it_well() {
    let scene = Scene::new();
    let upstream = impatient(&scene);
    within(upstream.check()).await.unwrap();
    let pid = upstream.status().pid.unwrap();
    let mut changes = upstream.changes().unwrap();
    changes.mark_unchanged();
    fail(&upstream, 4).await;
    assert_eq!(upstream.status().breaker, Breaker::Closed);
    fail(&upstream, 1).await;
    let Breaker::Open { remaining, reason: why } = upstream.status().breaker else { panic!() };
    assert!(remaining <= Duration::from_secs(1), "{remaining:?}");
    assert!(why.contains("it failed 5 times in a row"), "{why}");
    assert!(matches!(upstream.health().breaker, Breaker::Open { reason, .. } if reason == why));
    assert!(changes.has_changed().unwrap());
    assert!(within(upstream.list()).await.unwrap().down.unwrap().contains("5 times in a row"));
    let refused = reason(&upstream, "act", json!({})).await;
    assert!(refused.contains("can't be called: it failed 5 times in a row"), "{refused}");
    assert!(refused.contains("tried again in 1 s"), "{refused}");
    assert_eq!(scene.count("executed", "act"), 0);
    until("its process is gone", || !is_alive(pid)).await;

    changes.mark_unchanged();
    within(changes.changed()).await.unwrap();
    assert!(within(upstream.list()).await.unwrap().down.is_none(), "a call may find out");
    // One that fails costs twice the time.
    fail(&upstream, 1).await;
    let Breaker::Open { remaining, .. } = upstream.status().breaker else { panic!() };
    assert!(remaining > Duration::from_secs(1), "{remaining:?}");
    until("the time is up", || {
        matches!(upstream.status().breaker, Breaker::Open { remaining, .. } if remaining.is_zero())
    })
    .await;
    let probing = call(&upstream, "act", json!({"ms": 300}));
    let others = async {
        until("it is being tried", || upstream.status().breaker == Breaker::Probing).await;
        reason(&upstream, "act", json!({})).await
    };
    let (probe, other) = tokio::join!(probing, others);
    assert!(!probe.unwrap().is_error());
    assert!(other.contains("it is being tried again now"), "{other}");
    assert_eq!(upstream.status().breaker, Breaker::Closed);
    say(&upstream, "act").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_started_for_who_follows_can_be_tried_by_a_call() {
    let scene = Scene::new();
    let mut config = scene.server(json!({"rest": true, "slow_start": 1_000}));
    config.call_limit = Some(Duration::from_millis(400));
    let upstream = Upstream::new(config);
    let _following = within(upstream.follow("mem://a", None)).await.unwrap();
    fail(&upstream, 5).await;
    assert!(matches!(upstream.status().breaker, Breaker::Open { .. }));
    until("it is started again", || scene.lines("starts").len() == 2).await;
    assert_ne!(upstream.status().breaker, Breaker::Probing);
    say(&upstream, "act").await;
    assert_eq!(upstream.status().breaker, Breaker::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_failures_in_a_row_count() {
    let scene = Scene::new();
    let upstream = impatient(&scene);
    within(upstream.check()).await.unwrap();
    fail(&upstream, 4).await;
    say(&upstream, "act").await;
    fail(&upstream, 4).await;
    // It said something, if only no.
    assert!(call(&upstream, "refuse", json!({})).await.unwrap().is_error());
    fail(&upstream, 4).await;
    assert_eq!(upstream.status().breaker, Breaker::Closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_without_asking_the_server_says_nothing_of_it() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.call_limit = Some(Duration::from_millis(400));
    config.era = Some(Era::Sessions);
    let upstream = Upstream::new(config);
    within(upstream.check()).await.unwrap();
    fail(&upstream, 4).await;
    // It knows of no such thing, and so it is not asked.
    let state = serde_json::value::to_raw_value("made up").unwrap();
    let mut made_up = invocation("act", json!({}));
    let caller = Caller::default().with_party(client(Era::Stateless, false));
    made_up.caller = caller.with_retry(Retry { responses: None, state: Some(state) });
    let refused = within(upstream.call(made_up)).await.unwrap();
    assert_eq!(refused.refusal().unwrap().code, -32602);
    assert_eq!(upstream.status().breaker, Breaker::Closed, "nor is it a failure");
    fail(&upstream, 1).await;
    assert!(matches!(upstream.status().breaker, Breaker::Open { .. }), "that is five in a row");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_given_up_by_the_caller_count_for_nothing() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    within(upstream.check()).await.unwrap();
    let soon = Duration::from_millis(20);
    for _ in 0..8 {
        assert!(timeout(soon, upstream.call(invocation("hang", json!({})))).await.is_err());
    }
    assert_eq!(upstream.status().breaker, Breaker::Closed);
    say(&upstream, "act").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_counts_once_however_many_calls_it_costs() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    within(upstream.check()).await.unwrap();
    let all = join_all((0..8).map(|_| call(&upstream, "act", json!({"ms": 20_000}))));
    let crash = async {
        until("all run", || scene.count("executed", "act") == 8).await;
        crate::support::kill(upstream.status().pid.unwrap());
    };
    let (results, ()) = tokio::join!(all, crash);
    assert!(results.iter().all(Result::is_err));
    assert_eq!(upstream.status().breaker, Breaker::Closed);
    say(&upstream, "act").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_too_many_is_told_at_once() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.in_flight = 2;
    config.queue = 1;
    let upstream = Upstream::new(config);
    within(upstream.check()).await.unwrap();
    let slow = || call(&upstream, "act", json!({"ms": 700}));
    let waiting = async {
        until("two run", || scene.count("executed", "act") == 2).await;
        let third = slow();
        let fourth = async {
            until("one waits", || upstream.health().waiting == 1).await;
            assert_eq!(upstream.health().running, 2);
            timeout(Duration::from_millis(300), reason(&upstream, "act", json!({}))).await
        };
        tokio::join!(third, fourth)
    };
    let (first, second, (third, fourth)) = tokio::join!(slow(), slow(), waiting);
    assert!([first, second, third].iter().all(Result::is_ok));
    let busy = fourth.expect("at once");
    assert!(busy.contains("Server `fixture` is busy: 1 calls wait"), "{busy}");
    assert_eq!((upstream.health().running, upstream.health().waiting), (0, 0));
}
