//! Resources that are followed: on which connection, for how long, and who is told.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use toolcrib_mcp::{Era, Upstream, UpstreamState};
use toolcrib_runtime::{AskError, Following, News, Party, Server};

use crate::lanes::{act_by, call_by, client};
use crate::support::{Scene, call, is_alive, kill, names, until, within};
use crate::web::{Reply, Web, usual};

const UPDATED: &str = "notifications/resources/updated";

/// A server with resources that speaks with sessions, and has so many connections.
fn server(scene: &Scene, connections: usize) -> Upstream {
    let mut config = scene.server(json!({"rest": true}));
    config.era = Some(Era::Sessions);
    config.connections = Some(connections);
    Upstream::new(config)
}

async fn follow(upstream: &Upstream, party: &Arc<Party>) -> Following {
    within(upstream.follow("mem://a", Some(party))).await.unwrap()
}

/// Has a client's own server say that the resource has changed.
async fn change(upstream: &Upstream, party: &Arc<Party>) {
    let said = json!({"method": UPDATED, "params": {"uri": "mem://a"}});
    call_by(upstream, party, "tell", said).await.unwrap();
}

/// Who is told next that the resource has changed.
async fn told(news: &mut Receiver<News>) -> Vec<u64> {
    loop {
        if let News::Updated { uri, whom } = within(news.recv()).await.unwrap() {
            assert_eq!(&*uri, "mem://a");
            return whom.to_vec();
        }
    }
}

/// Fails if anybody has been told anything.
fn nobody_told(news: &mut Receiver<News>) {
    while let Ok(more) = news.try_recv() {
        assert!(!matches!(more, News::Updated { .. }), "{more:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_follows_what_its_own_calls_change() {
    let scene = Scene::new();
    let upstream = server(&scene, 8);
    let [one, two, other] = [(); 3].map(|()| client(Era::Sessions, true));
    let mut news = upstream.news();
    let (first, _second) = (follow(&upstream, &one).await, follow(&upstream, &two).await);
    let _shared = within(upstream.follow("mem://a", None)).await.unwrap();
    assert_eq!(scene.lines("starts").len(), 3, "two of their own, and one for all");
    change(&upstream, &two).await;
    assert_eq!(told(&mut news).await, [two.id()]);
    change(&upstream, &one).await;
    assert_eq!(told(&mut news).await, [one.id()]);
    let said = json!({"method": UPDATED, "params": {"uri": "mem://a"}});
    call(&upstream, "tell", said).await.unwrap();
    assert_eq!(told(&mut news).await, [0]);
    // Who follows nothing is told nothing, and nobody else is.
    change(&upstream, &other).await;
    act_by(&upstream, &other).await;
    nobody_told(&mut news);

    drop(first);
    until("its server is told", || scene.count("unsubscribe", "mem://a") == 1).await;
    change(&upstream, &one).await;
    change(&upstream, &two).await;
    assert_eq!(told(&mut news).await, [two.id()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_of_a_client_that_follows_is_started_again_and_kept_until_it_leaves() {
    let scene = Scene::new();
    let mut config = scene.server(json!({"rest": true}));
    config.idle_stop = Some(Duration::from_millis(200));
    let upstream = Upstream::new(config);
    let party = client(Era::Sessions, true);
    let following = follow(&upstream, &party).await;
    let mut news = upstream.news();
    kill(scene.pids("starts")[0]);
    assert_eq!(told(&mut news).await, [party.id()], "it was out of sight");
    assert_eq!(scene.count("subscribe", "mem://a"), 2);
    assert_eq!(scene.lines("greetings"), [r#"{"elicitation":{},"x":1}"#; 2], "it is a like one");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let last = scene.pids("starts")[1];
    assert!(is_alive(last), "somebody waits for news");
    change(&upstream, &party).await;
    assert_eq!(told(&mut news).await, [party.id()]);

    party.end();
    until("it has left", || !is_alive(last)).await;
    drop(following);
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(scene.lines("starts").len(), 2, "nobody is there to be told");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lent_tells_of_changes_whichever_it_is() {
    let scene = Scene::new();
    let mut config = scene.server(json!({"rest": true}));
    config.era = Some(Era::Sessions);
    config.idle_stop = Some(Duration::from_millis(300));
    let upstream = Upstream::new(config);
    let party = || client(Era::Stateless, true);
    let (listener, mut news) = (party(), upstream.news());
    let following = follow(&upstream, &listener).await;
    assert_eq!(scene.lines("starts").len(), 1);
    change(&upstream, &party()).await;
    assert_eq!(told(&mut news).await, [listener.id()], "each request is a client of its own");
    // The first is busy, so that the second call has another process.
    let slow = party();
    let busy = call_by(&upstream, &slow, "act", json!({"ms": 1_000}));
    let meanwhile = async {
        until("it runs", || scene.count("executed", "act") == 1).await;
        change(&upstream, &party()).await;
        told(&mut news).await
    };
    let (_, told_of) = tokio::join!(busy, meanwhile);
    assert_eq!(told_of, [listener.id()]);
    assert_eq!((scene.lines("starts").len(), scene.count("subscribe", "mem://a")), (2, 2));
    nobody_told(&mut news);
    let pids = scene.pids("starts");
    until("one is enough", || !is_alive(pids[1])).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(is_alive(pids[0]));

    // One that is ended because a call was given up is replaced.
    let mut hanging = crate::support::invocation("hang", json!({}));
    hanging.caller = toolcrib_runtime::Caller::default().with_party(party());
    let hanging = toolcrib_runtime::Toolset::call(&upstream, hanging);
    assert!(tokio::time::timeout(Duration::from_millis(300), hanging).await.is_err());
    assert_eq!(told(&mut news).await, [listener.id()]);
    assert_eq!(scene.count("subscribe", "mem://a"), 3);
    drop(following);
    until("none is kept", || scene.pids("starts").iter().all(|pid| !is_alive(*pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_are_followed_at_once_need_one_that_is_lent() {
    let scene = Scene::new();
    let upstream = server(&scene, 8);
    let party = client(Era::Stateless, true);
    let uris: Vec<String> = (0..8).map(|number| format!("mem://{number}")).collect();
    let following = uris.iter().map(|uri| within(upstream.follow(uri, Some(&party))));
    let following = join_all(following).await;
    assert!(following.iter().all(Result::is_ok));
    assert_eq!((scene.lines("starts").len(), scene.lines("subscribe").len()), (1, 8));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_part_of_a_resource_counts_as_that() {
    let scene = Scene::new();
    let upstream = server(&scene, 8);
    let party = client(Era::Sessions, true);
    let mut news = upstream.news();
    let _following = follow(&upstream, &party).await;
    for uri in ["mem://ab", "mem://a/b"] {
        let said = json!({"method": UPDATED, "params": {"uri": uri}});
        call_by(&upstream, &party, "tell", said).await.unwrap();
    }
    assert_eq!(told(&mut news).await, [party.id()]);
    act_by(&upstream, &party).await;
    nobody_told(&mut news);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_made_room_comes_back_when_there_is_some() {
    let scene = Scene::new();
    let upstream = server(&scene, 2);
    let [one, two, three] = [(); 3].map(|()| client(Era::Sessions, true));
    let _following = follow(&upstream, &one).await;
    act_by(&upstream, &two).await;
    let pids = scene.pids("starts");
    // Used earlier, but somebody follows something there.
    act_by(&upstream, &three).await;
    until("the second is gone", || !is_alive(pids[1])).await;
    assert!(is_alive(pids[0]));

    let _more = follow(&upstream, &three).await;
    let mut news = upstream.news();
    act_by(&upstream, &two).await;
    until("it had to go", || !is_alive(pids[0])).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(scene.lines("starts").len(), 4, "nobody is sent away for it");
    two.end();
    assert_eq!(told(&mut news).await, [one.id()]);
    change(&upstream, &one).await;
    assert_eq!(told(&mut news).await, [one.id()]);
    assert_eq!(scene.lines("starts").len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_follow_much_are_all_told_after_a_crash() {
    let scene = Scene::new();
    let upstream = server(&scene, 8);
    let parties = [(); 3].map(|()| client(Era::Sessions, true));
    let uris: Vec<String> = (0..20).map(|number| format!("mem://{number}")).collect();
    let pairs = parties.iter().flat_map(|party| uris.iter().map(move |uri| (party, uri)));
    let following = pairs.map(|(party, uri)| within(upstream.follow(uri, Some(party))));
    let following = join_all(following).await;
    assert!(following.iter().all(Result::is_ok));
    let mut news = upstream.news();
    scene.pids("starts").into_iter().for_each(kill);
    let mut left: std::collections::BTreeSet<(u64, String)> =
        parties.iter().flat_map(|it| uris.iter().map(move |uri| (it.id(), uri.clone()))).collect();
    while !left.is_empty() {
        if let News::Updated { uri, whom } = within(news.recv()).await.unwrap() {
            assert!(whom.iter().all(|it| left.remove(&(*it, uri.to_string()))), "{uri} {whom:?}");
        }
    }
}

/// A server over HTTP whose stream of news is given to the test, each time it is opened.
async fn streaming() -> (Web, std::sync::mpsc::Receiver<UnboundedSender<serde_json::Value>>) {
    let (opened, streams) = std::sync::mpsc::channel();
    let opened = std::sync::Mutex::new(opened);
    let web = Web::serve(move |seen| match seen.method() {
        "initialize" => usual(seen).with("mcp-session-id", "7"),
        "resources/subscribe" => Reply::json(200, seen.answer(json!({}))),
        _ if seen.verb == "GET" => {
            let (sender, receiver) = unbounded_channel();
            opened.lock().unwrap().send(sender).unwrap();
            Reply::live(receiver)
        }
        _ => usual(seen),
    });
    (web.await, streams)
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_a_client_follows_in_its_session_and_a_broken_stream_counts_as_a_change() {
    let (web, streams) = streaming().await;
    let upstream = Upstream::new(web.config());
    let party = client(Era::Sessions, true);
    let mut news = upstream.news();
    let _following = follow(&upstream, &party).await;
    let seen = web.seen();
    let at = |what: &str| seen.iter().position(|it| it.method() == what || it.verb == what);
    assert!(at("GET") < at("resources/subscribe"), "the stream is there first");
    let greeting = &seen[at("initialize").unwrap()].body["params"]["capabilities"];
    assert_eq!(greeting["elicitation"], json!({}), "it is the client's own session");
    let stream = streams.recv_timeout(crate::support::LONG).unwrap();
    let updated = json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": "mem://a"}});
    stream.send(updated).unwrap();
    assert_eq!(told(&mut news).await, [party.id()]);
    // What happens until it is opened again is told to nobody.
    drop(stream);
    assert_eq!(told(&mut news).await, [party.id()]);
    assert_eq!(web.count("resources/subscribe"), 1, "the session is the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_is_followed_across_a_crash_and_keeps_the_server_running() {
    let scene = Scene::new();
    let mut config = scene.server(json!({"rest": true}));
    config.idle_stop = Some(Duration::from_millis(200));
    let upstream = Upstream::new(config);
    let one = within(upstream.follow("mem://a", None)).await.unwrap();
    let two = within(upstream.follow("mem://a", None)).await.unwrap();
    assert_eq!(scene.count("subscribe", "mem://a"), 2);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(upstream.status().state, UpstreamState::Running, "somebody waits for news");
    let mut news = upstream.news();
    kill(upstream.status().pid.unwrap());
    loop {
        // What happened meanwhile was told to nobody.
        if let News::Updated { uri, whom } = within(news.recv()).await.unwrap() {
            break assert_eq!((&*uri, &*whom), ("mem://a", &[0][..]));
        }
    }
    until("it is asked for again", || scene.count("subscribe", "mem://a") == 3).await;
    drop(one);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(scene.lines("unsubscribe").len(), 0);
    drop(two);
    until("the server is told", || scene.count("unsubscribe", "mem://a") == 1).await;
    until("it is stopped", || upstream.status().state == UpstreamState::Known).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_sessions_is_told_what_is_followed() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"rest": true, "stateless": true}));
    names(&upstream).await;
    let following = within(upstream.follow("mem://a", None)).await.unwrap();
    let last = || scene.lines("listens").last().cloned().unwrap_or_default();
    until("it is named", || last().contains(r#"["mem://a"]"#)).await;
    assert!(last().contains(r#""toolsListChanged":true"#));
    drop(following);
    until("it no longer is", || !last().contains("mem://a")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_refuses_to_be_followed_is_left_to_be_stopped() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.idle_stop = Some(Duration::from_millis(200));
    let upstream = Upstream::new(config);
    let refused = within(upstream.follow("mem://a", None)).await.unwrap_err();
    assert!(matches!(refused, AskError::Refused(error) if error.code == -32601));
    until("it is stopped", || upstream.status().state == UpstreamState::Known).await;
}
