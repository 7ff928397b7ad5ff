//! Starting a server: once, in time, and with a true reason if it can't be done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use toolcrib_mcp::{Launch, ServerConfig, Upstream, UpstreamState, Upstreams};
use toolcrib_runtime::Toolset;

use crate::support::{Memory, Scene, call, is_alive, names, reason, say, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn fifty_calls_at_once_start_one_process() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"slow_start": 100}));
    assert_eq!(upstream.status().state, UpstreamState::Configured);
    let calls = (0..50).map(|_| call(&upstream, "act", json!({})));
    for result in join_all(calls).await {
        assert!(!result.unwrap().is_error());
    }
    assert_eq!(scene.lines("starts").len(), 1);
    assert_eq!(scene.count("executed", "act"), 50);
    assert_eq!(upstream.status().state, UpstreamState::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_goes_on_when_whoever_wanted_it_gives_up() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"slow_start": 200}));
    let impatient = tokio::time::timeout(Duration::from_millis(20), upstream.list()).await;
    assert!(impatient.is_err());
    until("running", || upstream.status().state == UpstreamState::Running).await;
    assert_eq!(scene.lines("starts").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_at_its_start_is_given_up_with_a_reason() {
    for method in ["initialize", "tools/list"] {
        let scene = Scene::new();
        let mut config = scene.server(json!({"hang_at": method}));
        config.start_limit = Duration::from_millis(700);
        let upstream = Upstream::new(config);
        let error = within(upstream.list()).await.unwrap_err().to_string();
        assert!(error.contains("it did not start within 700ms"), "{error}");
        let pid = scene.pids("starts")[0];
        until("its process is gone", || !is_alive(pid)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_delays_no_other_for_long() {
    let scene = Scene::new();
    let upstreams = Upstreams::new((), 1);
    let hanging = upstreams.open(scene.server(json!({"hang_at": "initialize"})));
    let begun = tokio::spawn(async move { hanging.list().await });
    until("the first has begun", || scene.lines("starts").len() == 1).await;
    let good = upstreams.open(scene.server(json!({})));
    let began = Instant::now();
    assert!(!names(&good).await.is_empty());
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    begun.abort();
    within(upstreams.shut_down()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_so_many_start_at_a_time() {
    let scene = Scene::new();
    let upstreams = Upstreams::new((), 2);
    let open = |_| upstreams.open(scene.server(json!({"slow_start": 50})));
    let servers: Vec<Upstream> = (0..6).map(open).collect();
    join_all(servers.iter().map(names)).await;
    let mut starting = 0_i32;
    for event in scene.lines("events") {
        starting += if event == "start" { 1 } else { -1 };
        // A machine so busy that a start takes two seconds lets others go ahead.
        assert!(starting <= 3, "{:?}", scene.lines("events"));
    }
    assert_eq!(scene.lines("starts").len(), 6);
}

#[tokio::test]
async fn what_can_not_be_run_says_what_to_do() {
    let list =
        async |config: ServerConfig| Upstream::new(config).list().await.unwrap_err().to_string();
    let none: [&str; 0] = [];
    let missing = list(ServerConfig::command("a", "no-such-program", none)).await;
    assert!(missing.contains("command `no-such-program` was not found: install it"), "{missing}");
    let missing = list(ServerConfig::command("a", "/no/where/npx", none)).await;
    assert!(missing.contains("install Node.js"), "{missing}");
    let scene = Scene::new();
    std::fs::write(scene.path("plain"), "text").unwrap();
    let plain = scene.path("plain").to_str().unwrap().to_owned();
    let forbidden = list(ServerConfig::command("a", plain, none)).await;
    assert!(forbidden.contains("make it executable"), "{forbidden}");
    let mut elsewhere = scene.server(json!({}));
    if let Launch::Command { cwd, .. } = &mut elsewhere.launch {
        *cwd = Some("/no/such/folder".into());
    }
    let elsewhere = list(elsewhere).await;
    assert!(elsewhere.contains("/no/such/folder does not exist; correct `cwd`"), "{elsewhere}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_exits_at_once_is_given_time_and_comes_back_when_it_is_mended() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"exit_with": "no licence found"}));
    let mut changes = upstream.changes().unwrap();
    let error = within(upstream.list()).await.unwrap_err().to_string();
    assert!(error.contains("exit status: 3"), "{error}");
    assert!(error.contains("its last words: no licence found"), "{error}");
    assert!(!error.contains("tried again"), "{error}");
    let UpstreamState::Failed(state) = upstream.status().state else { panic!() };
    assert_eq!(state, error);
    let again = reason(&upstream, "act", json!({})).await;
    assert!(again.contains("no licence found") && again.contains("tried again in"), "{again}");
    assert_eq!(scene.lines("starts").len(), 1, "it is left alone for a second");
    std::fs::write(scene.path("mended"), "").unwrap();
    until("running", || upstream.status().state == UpstreamState::Running).await;
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert!(within(upstream.list()).await.unwrap().down.is_none());
    assert!(say(&upstream, "act").await.starts_with("act"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_server_that_fails_is_listed_as_down_and_comes_back_by_itself() {
    let scene = Scene::new();
    let upstreams = Upstreams::new(Arc::new(Memory::default()), 4);
    let config = scene.server(json!({"exit_with": "broken"}));
    std::fs::write(scene.path("mended"), "").unwrap();
    let first = upstreams.open(config.clone());
    let known = names(&first).await;
    within(first.shut_down()).await;
    std::fs::remove_file(scene.path("mended")).unwrap();

    let second = upstreams.open(config);
    assert_eq!(second.status().state, UpstreamState::Known);
    let error = reason(&second, "act", json!({})).await;
    assert!(error.starts_with("Server `fixture` can't be called: it ended"), "{error}");
    let listing = within(second.list()).await.unwrap();
    assert_eq!(listing.specs.len(), known.len());
    assert!(listing.down.unwrap().contains("broken"));
    std::fs::write(scene.path("mended"), "").unwrap();
    // Nobody calls it: it is told to be down.
    until("running", || second.status().state == UpstreamState::Running).await;
    assert!(within(second.list()).await.unwrap().down.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_does_not_wait_for_the_next_attempt() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"exit_with": "broken"}));
    for _ in 0..3 {
        let error = within(upstream.check()).await.unwrap_err();
        assert!(error.contains("broken") && !error.contains("tried again"), "{error}");
    }
    std::fs::write(scene.path("mended"), "").unwrap();
    within(upstream.check()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_on_standard_output_is_tolerated() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"noise": true}));
    assert!(say(&upstream, "act").await.starts_with("act"));
    let stderr = upstream.status().stderr;
    assert!(stderr.iter().any(|line| line == "standard output: warming up..."), "{stderr:?}");
    assert!(stderr.iter().any(|line| line.contains("running 1 test")), "{stderr:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_newer_era_is_spoken_to_in_its_way() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"stateless": true, "ttl": 60_000}));
    let said = say(&upstream, "act").await;
    assert!(said.contains(r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#), "{said}");
    assert!(said.contains(r#""io.modelcontextprotocol/clientInfo""#), "{said}");
    let status = upstream.status();
    assert_eq!(status.protocol_version.as_deref(), Some("2026-07-28"));
    assert_eq!(status.version.as_deref(), Some("2"));
    until("it listens", || scene.count("heard", "subscriptions/listen") == 1).await;
    let mut changes = upstream.changes().unwrap();
    changes.mark_unchanged();
    say(&upstream, "grow").await;
    within(changes.changed()).await.unwrap();
    assert!(names(&upstream).await.contains(&"added_0".to_owned()));
}
