//! Servers that die: the next call succeeds, and what may have run is not run twice.

use futures::future::join_all;
use serde_json::json;
use toolcrib_mcp::UpstreamState;
use toolcrib_runtime::Toolset;

use crate::support::{Scene, call, is_alive, kill, reason, say, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_the_next_call_succeeds() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    say(&upstream, "act").await;
    for times in 1..=6 {
        let pid = upstream.status().pid.unwrap();
        kill(pid);
        // What is sent while it dies is lost, and nobody can know whether it was read.
        while is_alive(pid) {
            std::thread::yield_now();
        }
        assert!(say(&upstream, "act").await.starts_with("act"));
        assert_eq!(scene.lines("starts").len(), times + 1);
    }
    assert_eq!(scene.count("executed", "act"), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_run_is_repeated_only_if_that_does_no_harm() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    within(upstream.check()).await.unwrap();
    let pid = upstream.status().pid.unwrap();
    // Repeated calls are quick, so that the test is.
    let slow = |tool| call(&upstream, tool, json!({"ms": 3_000}));
    let all = join_all((0..10).flat_map(|_| [slow("act"), slow("look"), slow("put")]));
    let killing = async {
        until("all are under way", || scene.lines("executed").len() == 30).await;
        kill(pid);
    };
    let (results, ()) = tokio::join!(all, killing);
    for (number, result) in results.iter().enumerate() {
        match (number % 3, result) {
            (0, Err(error)) => {
                let error = error.to_string();
                assert!(error.contains("signal: 9"), "{error}");
                assert!(error.contains("may have taken effect"), "{error}");
            }
            (1 | 2, Ok(result)) => assert!(!result.is_error()),
            (_, other) => panic!("{number}: {other:?}"),
        }
    }
    assert_eq!(scene.count("executed", "act"), 10);
    assert_eq!(scene.count("executed", "look"), 20);
    assert_eq!(scene.count("executed", "put"), 20);
    assert_eq!(scene.lines("starts").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_dies_during_a_call_tells_why() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let error = reason(&upstream, "die", json!({})).await;
    assert!(error.contains("it ended (exit status: 9)"), "{error}");
    assert!(error.contains("its last words: fatal: out of luck"), "{error}");
    assert!(error.contains("may have taken effect"), "{error}");
    assert_eq!(scene.count("executed", "die"), 1);
    assert!(say(&upstream, "act").await.starts_with("act"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_dies_again_and_again_is_given_time() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    for _ in 0..3 {
        reason(&upstream, "die", json!({})).await;
    }
    until("it is noted", || matches!(upstream.status().state, UpstreamState::Failed(_))).await;
    let error = reason(&upstream, "act", json!({})).await;
    assert!(error.contains("out of luck") && error.contains("tried again in"), "{error}");
    assert!(within(upstream.list()).await.unwrap().down.is_some());
    assert_eq!(scene.lines("starts").len(), 3);
    until("it is back", || upstream.status().state == UpstreamState::Running).await;
    assert!(say(&upstream, "act").await.starts_with("act"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_child_holds_the_pipes_is_noticed_all_the_same() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"grandchild": true}));
    say(&upstream, "act").await;
    kill(upstream.status().pid.unwrap());
    // Until then, the child takes what is sent, and it could be the one that answers.
    until("it is noticed", || upstream.status().state == UpstreamState::Known).await;
    assert!(say(&upstream, "act").await.starts_with("act"));
    assert_eq!(scene.lines("starts").len(), 2);
}
