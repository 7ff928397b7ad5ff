//! Ends: of the idle, of all, of those whose owner is gone or killed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib_mcp::{Upstream, UpstreamState, Upstreams};
use toolcrib_runtime::Toolset;

use crate::support::{Scene, call, is_alive, kill, names, reason, say, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn one_that_nobody_calls_is_stopped_and_started_again() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.idle_stop = Some(Duration::from_millis(300));
    let upstream = Upstream::new(config);
    say(&upstream, "act").await;
    let pid = scene.pids("starts")[0];
    until("stopped", || upstream.status().state == UpstreamState::Known).await;
    until("its process is gone", || !is_alive(pid)).await;
    assert!(say(&upstream, "act").await.starts_with("act"));
    assert_eq!(scene.lines("starts").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listening_server_of_the_newer_era_is_stopped_too() {
    let scene = Scene::new();
    let mut config = scene.server(json!({"stateless": true}));
    config.idle_stop = Some(Duration::from_millis(300));
    let upstream = Upstream::new(config);
    say(&upstream, "act").await;
    let pid = scene.pids("starts")[0];
    until("its process is gone", || !is_alive(pid)).await;
    assert_eq!(upstream.status().state, UpstreamState::Known);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_under_way_keeps_its_server_running() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.idle_stop = Some(Duration::from_millis(100));
    let upstream = Upstream::new(config);
    call(&upstream, "act", json!({"ms": 1_200})).await.unwrap();
    assert_eq!(scene.lines("starts").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_lost_to_a_stop() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.idle_stop = Some(Duration::from_millis(2));
    let upstream = Upstream::new(config);
    for number in 0..60 {
        // So that some come when it is just about to be stopped.
        tokio::time::sleep(Duration::from_micros(number % 6 * 700)).await;
        assert!(say(&upstream, "act").await.starts_with("act"));
    }
    let is_stopped = || upstream.status().state == UpstreamState::Known;
    until("it is stopped", is_stopped).await;
    say(&upstream, "act").await;
    assert_eq!(scene.count("executed", "act"), 61);
    assert!(scene.lines("starts").len() > 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_takes_the_whole_process_tree() {
    let scene = Scene::new();
    let upstreams = Upstreams::default();
    let one = upstreams.open(scene.server(json!({"grandchild": true})));
    let two = upstreams.open(scene.server(json!({"stubborn": true})));
    say(&one, "act").await;
    say(&two, "act").await;
    let all = [scene.pids("starts"), scene.pids("grandchildren")].concat();
    assert_eq!(all.len(), 3);
    let began = Instant::now();
    within(upstreams.shut_down()).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    until("all are gone", || !all.iter().any(|pid| is_alive(*pid))).await;
    let error = reason(&one, "act", json!({})).await;
    assert!(error.contains("it was shut down"), "{error}");
    let late = upstreams.open(scene.server(json!({})));
    assert!(reason(&late, "act", json!({})).await.contains("it was shut down"));
    assert_eq!(scene.lines("starts").len(), 2, "nothing starts after the end");
    assert!(!names(&one).await.is_empty(), "what is known can still be read");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_does_not_wait_for_a_start_that_hangs() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"hang_at": "initialize"}));
    let waiting = tokio::spawn({
        let upstream = upstream.clone();
        async move { upstream.list().await.unwrap_err().to_string() }
    });
    until("it has begun", || scene.lines("starts").len() == 1).await;
    within(upstream.shut_down()).await;
    assert!(!is_alive(scene.pids("starts")[0]));
    assert!(within(waiting).await.unwrap().contains("it was shut down"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_under_way_is_told_of_the_end() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    within(upstream.check()).await.unwrap();
    let ending = async {
        until("the call is under way", || scene.count("executed", "hang") == 1).await;
        upstream.shut_down().await;
    };
    let (error, ()) = tokio::join!(reason(&upstream, "hang", json!({})), ending);
    assert!(error.contains("it was shut down"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_holds_any_more_leaves_no_process() {
    let scene = Scene::new();
    let running = scene.upstream(json!({"grandchild": true}));
    say(&running, "act").await;
    let newer = scene.upstream(json!({"stateless": true}));
    say(&newer, "act").await;
    let starting = scene.upstream(json!({"hang_at": "initialize"}));
    let _ = tokio::time::timeout(Duration::from_millis(10), starting.list()).await;
    until("all have begun", || scene.lines("starts").len() == 3).await;
    let all = [scene.pids("starts"), scene.pids("grandchildren")].concat();
    assert!(all.iter().all(|pid| is_alive(*pid)));
    let clone = running.clone();
    drop((running, newer, starting));
    assert!(say(&clone, "act").await.starts_with("act"), "a clone holds it too");
    drop(clone);
    until("all are gone", || !all.iter().any(|pid| is_alive(*pid))).await;
}

#[test]
fn a_runtime_that_goes_takes_its_servers_along() {
    let scene = Scene::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let upstream = scene.upstream(json!({"grandchild": true, "stubborn": true}));
    runtime.block_on(say(&upstream, "act"));
    drop(runtime);
    let all = [scene.pids("starts"), scene.pids("grandchildren")].concat();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(until("all are gone", || !all.iter().any(|pid| is_alive(*pid))));
    drop(upstream);
}

/// Not a test by itself: a host that is killed while its servers run.
#[test]
fn the_host() {
    let Ok(text) = std::env::var("TOOLCRIB_HOST") else { return };
    let scene = Scene::new();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let config = scene.server(json!({"grandchild": true, "stubborn": true}));
        let ended = Upstream::new(config.clone());
        say(&ended, "act").await;
        within(ended.shut_down()).await;
        let upstream = Upstream::new(config);
        say(&upstream, "act").await;
        let all = [scene.pids("starts"), scene.pids("grandchildren")].concat();
        let all: Vec<String> = all.iter().map(u32::to_string).collect();
        // Written aside and moved, so that it is never read by halves.
        std::fs::write(format!("{text}.new"), all.join("\n")).unwrap();
        std::fs::rename(format!("{text}.new"), &text).unwrap();
        std::future::pending::<()>().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_killed_leaves_no_process() {
    let scene = Scene::new();
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["ending::the_host", "--exact", "--nocapture"])
        .env("TOOLCRIB_HOST", scene.path("pids"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("its servers run", || scene.path("pids").exists()).await;
    let pids = scene.pids("pids");
    assert_eq!(pids.len(), 4);
    assert_eq!(pids.iter().filter(|pid| is_alive(**pid)).count(), 2);
    kill(host.id());
    host.wait().unwrap();
    until("all are gone", || !pids.iter().any(|pid| is_alive(*pid))).await;
}
