//! Lists: remembered, refreshed, cut short, and read tool by tool.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolcrib_core::Deferral;
use toolcrib_mcp::{Upstream, UpstreamState, Upstreams};
use toolcrib_runtime::Toolset;

use crate::support::{Memory, Scene, names, say, until, within};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_is_listed_without_starting_anything() {
    let scene = Scene::new();
    let store = Arc::new(Memory::default());
    let first = Upstreams::new(store.clone(), 4);
    let known = names(&first.open(scene.server(json!({})))).await;
    within(first.shut_down()).await;

    let second = Upstreams::new(store, 4);
    let upstream = second.open(scene.server(json!({})));
    assert_eq!(names(&upstream).await, known);
    assert_eq!(upstream.known_tools().len(), known.len());
    let status = upstream.status();
    assert_eq!((status.state, status.tools), (UpstreamState::Known, known.len()));
    assert_eq!(status.version.as_deref(), Some("1.2.3"));
    assert_eq!(scene.lines("starts").len(), 1);
    let other = second.open(scene.server(json!({})).env("TOKEN", "another"));
    assert_eq!(other.status().state, UpstreamState::Configured, "credentials are part of the key");
    assert!(say(&upstream, "act").await.starts_with("act"));
    until("listed anew", || scene.count("heard", "tools/list") == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_whose_time_is_up_serves_until_there_is_news() {
    let scene = Scene::new();
    let store = Arc::new(Memory::default());
    let first = Upstreams::new(store.clone(), 4);
    let known = names(&first.open(scene.server(json!({"ttl": 50})))).await;
    within(first.shut_down()).await;
    tokio::time::sleep(Duration::from_millis(60)).await;

    let upstream = Upstreams::new(store, 4).open(scene.server(json!({"ttl": 50})));
    let before = upstream.status().listed_at;
    let listing = upstream.list();
    assert_eq!(within(listing).await.unwrap().specs.len(), known.len());
    until("refreshed by a start", || upstream.status().listed_at > before).await;
    assert_eq!(scene.lines("starts").len(), 2);

    tokio::time::sleep(Duration::from_millis(60)).await;
    let before = upstream.status().listed_at;
    within(upstream.list()).await.unwrap();
    until("refreshed while it runs", || upstream.status().listed_at > before).await;
    assert_eq!(scene.lines("starts").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promise_of_no_time_at_all_starts_nothing() {
    let scene = Scene::new();
    let store = Arc::new(Memory::default());
    let first = Upstreams::new(store.clone(), 4);
    names(&first.open(scene.server(json!({"ttl": 0})))).await;
    within(first.shut_down()).await;
    let upstream = Upstreams::new(store, 4).open(scene.server(json!({"ttl": 0})));
    names(&upstream).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(upstream.status().state, UpstreamState::Known);
    assert_eq!(scene.lines("starts").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_notices_is_one_change() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    names(&upstream).await;
    let mut changes = upstream.changes().unwrap();
    let before = *changes.borrow_and_update();
    let burst = crate::support::call(&upstream, "grow", json!({"count": 100}));
    burst.await.unwrap();
    within(changes.changed()).await.unwrap();
    assert!(names(&upstream).await.contains(&"added_0".to_owned()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(*changes.borrow(), before + 1);
    let asked = scene.count("heard", "tools/list");
    assert!(asked <= 3, "listed {asked} times");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_tool_is_left_out_with_the_reason() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"malformed": true}));
    let listing = within(upstream.list()).await.unwrap();
    assert_eq!(listing.specs.len(), 10);
    assert_eq!(listing.title.as_deref(), Some("Fixture"));
    assert_eq!(listing.description.as_deref(), Some("Tools to test with."));
    let status = upstream.status();
    assert_eq!(status.tools, 10);
    let left_out: Vec<(&str, &str)> =
        status.quarantined.iter().map(|(name, reason)| (&**name, &**reason)).collect();
    let [("schemaless", schemaless), ("tool 3", nameless), ("tool 4", text), ("look", twice)] =
        left_out[..]
    else {
        panic!("{left_out:?}")
    };
    assert!(schemaless.contains("input schema"), "{schemaless}");
    assert!(nameless.contains("no name"), "{nameless}");
    assert!(text.contains("not a tool"), "{text}");
    assert_eq!(twice, "it is listed twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_chosen_by_name_and_sent_in_full_if_wanted() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.include = vec!["a*".into(), "look".into(), "put".into()];
    config.exclude = vec!["*k".into()];
    config.eager = true;
    config.title = Some("Mine".into());
    config.description = Some("My own words.".into());
    let upstream = Upstream::new(config);
    assert_eq!(names(&upstream).await, ["act", "put"]);
    let listing = within(upstream.list()).await.unwrap();
    assert!(listing.specs.iter().all(|spec| spec.deferral() == Deferral::Eager));
    assert_eq!(listing.title.as_deref(), Some("Mine"));
    assert_eq!(listing.description.as_deref(), Some("My own words."));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_repeat_or_never_end_are_cut_short() {
    let scene = Scene::new();
    let repeating = scene.upstream(json!({"pages": "repeat"}));
    assert_eq!(names(&repeating).await, ["tool_0", "tool_1"]);
    let endless = scene.upstream(json!({"pages": "endless"}));
    assert_eq!(names(&endless).await.len(), 1_000);
}
