//! Who gets which connection, how many there are, and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use toolcrib_mcp::{Era, ServerConfig, Sharing, Upstream, UpstreamState, Upstreams};
use toolcrib_runtime::{
    CallError, Caller, Eras, ManifestStore, Party, Server, ToolResult, Toolset,
};

use crate::support::{Memory, Scene, invocation, is_alive, kill, names, say, until, within};
use crate::web::{Reply, Seen, Web, usual};

/// A client that can be asked, or can't.
pub(crate) fn client(era: Era, can_be_asked: bool) -> Arc<Party> {
    let capabilities = can_be_asked.then(|| json!({"elicitation": {}, "x": 1}));
    let raw = capabilities.map(|value| serde_json::value::to_raw_value(&value).unwrap());
    Arc::new(Party::new(era, 7, raw.map(Arc::from), None))
}

pub(crate) async fn call_by(
    upstream: &Upstream,
    party: &Arc<Party>,
    tool: &str,
    arguments: Value,
) -> Result<ToolResult, CallError> {
    let mut invocation = invocation(tool, arguments);
    invocation.caller = Caller::default().with_party(party.clone());
    within(upstream.call(invocation)).await
}

pub(crate) async fn act_by(upstream: &Upstream, party: &Arc<Party>) {
    let result = call_by(upstream, party, "act", json!({})).await.unwrap();
    assert!(!result.is_error(), "{result:?}");
}

fn alive(scene: &Scene) -> usize {
    scene.pids("starts").iter().filter(|pid| is_alive(**pid)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_client_that_can_be_asked_has_its_own_until_it_leaves() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let (one, two) = (client(Era::Sessions, true), client(Era::Sessions, true));
    let calls = [&one, &two, &one, &two, &one, &two].map(|party| act_by(&upstream, party));
    join_all(calls).await;
    assert_eq!(scene.lines("starts").len(), 2);
    assert_eq!(
        scene.lines("greetings"),
        [r#"{"elicitation":{},"x":1}"#; 2],
        "no other was started"
    );
    assert_eq!(upstream.status().state, UpstreamState::Running);
    assert_eq!(upstream.status().connections, 2);
    one.end();
    until("one is gone", || alive(&scene) == 1).await;
    act_by(&upstream, &two).await;
    let error = call_by(&upstream, &one, "act", json!({})).await.unwrap_err().to_string();
    assert!(error.contains("its client has left"), "{error}");
    within(upstream.shut_down()).await;
    assert_eq!((scene.lines("starts").len(), alive(&scene)), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_cannot_be_asked_share_one() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    act_by(&upstream, &client(Era::Sessions, false)).await;
    act_by(&upstream, &client(Era::Sessions, false)).await;
    say(&upstream, "act").await;
    assert_eq!(scene.lines("greetings"), ["{}"]);

    let mut config = scene.server(json!({}));
    config.sessions = Sharing::Own;
    let apart = Upstream::new(config);
    act_by(&apart, &client(Era::Sessions, false)).await;
    act_by(&apart, &client(Era::Sessions, false)).await;
    assert_eq!(scene.lines("starts").len(), 3);

    let mut config = scene.server(json!({}));
    config.sessions = Sharing::Shared;
    let together = Upstream::new(config);
    for era in [Era::Sessions, Era::Stateless] {
        act_by(&together, &client(era, true)).await;
    }
    assert_eq!(scene.lines("starts").len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_while_its_connection_starts_leaves_no_process() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"hang_at": "initialize"}));
    let party = client(Era::Sessions, true);
    let leaving = async {
        until("it starts", || scene.lines("starts").len() == 1).await;
        party.end();
    };
    let (result, ()) = tokio::join!(call_by(&upstream, &party, "act", json!({})), leaving);
    assert!(result.unwrap_err().to_string().contains("its client has left"));
    until("it is gone", || alive(&scene) == 0).await;
    assert_eq!(upstream.status().state, UpstreamState::Configured, "that is no failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn whether_a_server_can_do_without_sessions_is_found_out_once() {
    let scene = Scene::new();
    let store = Arc::new(Memory::default());
    let first = Upstreams::new(store.clone(), 4);
    let upstream = first.open(scene.server(json!({})));
    let party = client(Era::Stateless, false);
    act_by(&upstream, &party).await;
    act_by(&upstream, &party).await;
    assert_eq!(scene.count("heard", "server/discover"), 1);
    assert_eq!(scene.lines("starts").len(), 2, "one to find out, and one for all");
    until("only that is left", || alive(&scene) == 1).await;
    let known = upstream.offers().eras;
    assert_eq!(known, Eras { sessions: Some(true), stateless: Some(false) });
    within(first.shut_down()).await;

    let upstream = Upstreams::new(store.clone(), 4).open(scene.server(json!({})));
    act_by(&upstream, &party).await;
    assert_eq!(scene.count("heard", "server/discover"), 1, "it is remembered");
    within(upstream.shut_down()).await;

    let key = scene.server(json!({})).key();
    let mut manifest = store.get(&key).unwrap();
    manifest.eras_at = manifest.eras_at.map(|at| at - Duration::from_secs(8 * 24 * 3600));
    store.put(&key, manifest);
    let upstream = Upstreams::new(store, 4).open(scene.server(json!({})));
    act_by(&upstream, &party).await;
    assert_eq!(scene.count("heard", "server/discover"), 2, "for a week");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_never_answers_whether_it_can_is_taken_not_to() {
    let scene = Scene::new();
    let store = Arc::new(Memory::default());
    let config = || scene.server(json!({"hang_at": "server/discover"}));
    let upstream = Upstreams::new(store.clone(), 4).open(config());
    names(&upstream).await;
    act_by(&upstream, &client(Era::Stateless, false)).await;
    act_by(&upstream, &client(Era::Stateless, false)).await;
    assert_eq!(scene.count("heard", "server/discover"), 1);
    until("one is left", || alive(&scene) == 1).await;
    within(upstream.shut_down()).await;

    let upstream = Upstreams::new(store, 4).open(config());
    act_by(&upstream, &client(Era::Stateless, false)).await;
    assert_eq!(scene.count("heard", "server/discover"), 2, "it may have been slow that once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_both_eras_is_spoken_to_in_the_callers() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"both": true}));
    for _ in 0..2 {
        act_by(&upstream, &client(Era::Stateless, true)).await;
        act_by(&upstream, &client(Era::Stateless, false)).await;
        act_by(&upstream, &client(Era::Sessions, false)).await;
        say(&upstream, "act").await;
    }
    assert_eq!(scene.lines("starts").len(), 2);
    assert_eq!(scene.lines("greetings"), ["{}"]);
    assert_eq!(scene.count("heard", "server/discover"), 1);
    let eras = Eras { sessions: Some(true), stateless: Some(true) };
    assert_eq!(upstream.offers().eras, eras);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_sessions_has_one_process_for_all() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"stateless": true}));
    names(&upstream).await;
    for era in [Era::Sessions, Era::Stateless] {
        for can_be_asked in [true, false] {
            act_by(&upstream, &client(era, can_be_asked)).await;
        }
    }
    assert_eq!(scene.lines("starts").len(), 1);

    // The same when a client that can be asked comes first.
    let scene = Scene::new();
    let upstream = scene.upstream(json!({"stateless": true}));
    let party = client(Era::Sessions, true);
    act_by(&upstream, &party).await;
    act_by(&upstream, &party).await;
    until("one is left", || alive(&scene) == 1).await;
    assert_eq!(scene.lines("starts").len(), 2, "one to find out");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lent_has_one_call_at_a_time_and_ends_when_it_is_idle() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.era = Some(Era::Sessions);
    config.connections = Some(2);
    config.idle_stop = Some(Duration::from_millis(400));
    let upstream = Upstream::new(config);
    let calls = (0..5).map(|_| {
        let upstream = upstream.clone();
        // Each request stands for itself.
        async move {
            let party = client(Era::Stateless, true);
            call_by(&upstream, &party, "act", json!({"ms": 100})).await.unwrap()
        }
    });
    let running = async {
        until("two run", || alive(&scene) == 2).await;
        upstream.health()
    };
    let (results, health) = tokio::join!(join_all(calls), running);
    assert!(results.iter().all(|result| !result.is_error()));
    assert_eq!(scene.lines("starts").len(), 2, "the main one was not started");
    assert_eq!(scene.lines("greetings"), [r#"{"elicitation":{},"x":1}"#; 2]);
    assert!(health.connections <= 2, "{health:?}");
    assert_eq!(scene.count("executed", "act"), 5);
    assert_eq!(scene.count("overlaps", "act"), 0, "one call at a time");
    until("both are gone", || alive(&scene) == 0).await;
    assert_eq!(upstream.health().connections, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_idle_makes_room_for_another_client() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.connections = Some(2);
    config.call_limit = Some(Duration::from_millis(1_500));
    let upstream = Upstream::new(config);
    let [one, two, three] = [(); 3].map(|()| client(Era::Sessions, true));
    act_by(&upstream, &one).await;
    act_by(&upstream, &two).await;
    act_by(&upstream, &one).await;
    let pids = scene.pids("starts");
    act_by(&upstream, &three).await;
    until("the second is gone", || !is_alive(pids[1])).await;
    assert!(is_alive(pids[0]), "it was used later");

    // While all are in use, nobody is sent away.
    let busy = |party| call_by(&upstream, party, "hang", json!({}));
    let waiting = async {
        until("both hang", || scene.count("executed", "hang") == 2).await;
        call_by(&upstream, &two, "act", json!({})).await
    };
    let (first, second, third) = tokio::join!(busy(&one), busy(&three), waiting);
    assert!(first.is_err() && second.is_err());
    // Theirs end a moment before: whichever comes first, there is an answer.
    if let Err(error) = third {
        let error = error.to_string();
        assert!(error.contains("it has no free connection (2 in use"), "{error}");
    }
    assert_eq!(scene.lines("greetings").len(), scene.lines("starts").len());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_in_vain_for_a_connection_is_told() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.connections = Some(1);
    config.call_limit = Some(Duration::from_secs(2));
    let upstream = Upstream::new(config);
    let [one, two] = [(); 2].map(|()| client(Era::Sessions, true));
    // Progress keeps it from being late.
    let mut steady = invocation("progress", json!({"ms": 500, "count": 8}));
    steady.caller = Caller::new(Deaf).with_party(one.clone());
    let waiting = async {
        until("it runs", || scene.count("executed", "progress") == 1).await;
        call_by(&upstream, &two, "act", json!({})).await.unwrap_err().to_string()
    };
    let (steady, error) = tokio::join!(within(upstream.call(steady)), waiting);
    assert!(steady.is_ok());
    assert!(error.contains("it has no free connection (1 in use"), "{error}");
    act_by(&upstream, &two).await;
}

struct Deaf;

impl toolcrib_runtime::Listener for Deaf {
    fn hear(&self, _: &str, _: &serde_json::value::RawValue) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_only_so_many_processes_over_all_servers() {
    let scene = Scene::new();
    let upstreams = Upstreams::default().most_processes(2);
    let servers: Vec<Upstream> = (0..3).map(|_| upstreams.open(scene.server(json!({})))).collect();
    let parties: Vec<Arc<Party>> = (0..3).map(|_| client(Era::Sessions, true)).collect();
    for (server, party) in servers.iter().zip(&parties) {
        act_by(server, party).await;
        assert!(alive(&scene) <= 2);
    }
    assert!(!is_alive(scene.pids("starts")[0]), "the longest idle made room");
    say(&servers[0], "act").await;
    assert_eq!(alive(&scene), 3, "what is shared is not counted");
    within(upstreams.shut_down()).await;
    assert_eq!(alive(&scene), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_start_one_after_the_other_too() {
    let scene = Scene::new();
    let upstreams = Upstreams::new((), 1);
    let upstream = upstreams.open(scene.server(json!({"slow_start": 50})));
    let parties: Vec<Arc<Party>> = (0..5).map(|_| client(Era::Sessions, true)).collect();
    join_all(parties.iter().map(|party| act_by(&upstream, party))).await;
    let mut starting = 0_i32;
    for event in scene.lines("events") {
        starting += if event == "start" { 1 } else { -1 };
        // A machine so busy that a start takes two seconds lets others go ahead.
        assert!(starting <= 2, "{:?}", scene.lines("events"));
    }
    assert_eq!(scene.lines("starts").len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_one_connection_is_no_others() {
    let scene = Scene::new();
    let upstream = scene.upstream(json!({}));
    let [one, two] = [(); 2].map(|()| client(Era::Sessions, true));
    act_by(&upstream, &one).await;
    act_by(&upstream, &two).await;
    let pids = scene.pids("starts");
    kill(pids[0]);
    until("it is noticed", || upstream.health().connections == 1).await;
    act_by(&upstream, &two).await;
    act_by(&upstream, &one).await;
    assert!(is_alive(pids[1]));
    assert_eq!(scene.lines("starts").len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_lent_to_a_call_that_was_given_up_is_not_lent_again() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.era = Some(Era::Sessions);
    let upstream = Upstream::new(config);
    let party = client(Era::Stateless, true);
    act_by(&upstream, &party).await;
    act_by(&upstream, &party).await;
    assert_eq!(scene.lines("starts").len(), 1);
    let mut hanging = invocation("hang", json!({}));
    hanging.caller = Caller::default().with_party(party.clone());
    let given_up = tokio::time::timeout(Duration::from_millis(300), upstream.call(hanging)).await;
    assert!(given_up.is_err());
    act_by(&upstream, &party).await;
    assert_eq!(scene.lines("starts").len(), 2);
    until("the first is gone", || alive(&scene) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_starts_that_fail_at_once_are_one_failure() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    drop(taken);
    let mut config = ServerConfig::http("fixture", format!("http://{address}/mcp"));
    config.connections = Some(32);
    let upstream = Upstream::new(config);
    let parties: Vec<Arc<Party>> = (0..32).map(|_| client(Era::Sessions, true)).collect();
    let calls = parties.iter().map(|party| call_by(&upstream, party, "act", json!({})));
    assert!(join_all(calls).await.iter().all(Result::is_err));
    let again = call_by(&upstream, &parties[0], "act", json!({})).await.unwrap_err().to_string();
    let wait = again.split("it is tried again in ").nth(1).and_then(|it| it.split(' ').next());
    // On a busy machine they may not all fail at once.
    assert!(wait.is_none_or(|wait| wait.parse::<u32>().unwrap() <= 8), "{again}");
}

/// Answers in sessions with numbers of their own.
fn in_sessions(seen: &Seen, count: &AtomicUsize) -> Reply {
    match seen.method() {
        "initialize" => {
            let number = count.fetch_add(1, Ordering::SeqCst).to_string();
            usual(seen).with("mcp-session-id", &number)
        }
        "server/discover" => {
            // As servers say it that want a session for whatever they are asked.
            let error = json!({"code": -32000, "message": "Bad Request: no valid session"});
            Reply::json(400, json!({"jsonrpc": "2.0", "id": null, "error": error}))
        }
        _ => usual(seen),
    }
}

/// In which sessions tools were called.
fn sessions(web: &Web) -> Vec<String> {
    let calls = web.seen().into_iter().filter(|seen| seen.method() == "tools/call");
    calls.map(|seen| seen.header("mcp-session-id")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_each_client_has_a_session_until_it_leaves() {
    let count = AtomicUsize::new(0);
    let web = Web::serve(move |seen| in_sessions(seen, &count)).await;
    let mut config = web.config();
    config.connections = Some(2);
    let upstream = Upstream::new(config);
    let [one, two, three] = [(); 3].map(|()| client(Era::Sessions, false));
    for party in [&one, &two, &one, &two] {
        act_by(&upstream, party).await;
    }
    assert_eq!(sessions(&web), ["0", "1", "0", "1"]);
    act_by(&upstream, &three).await;
    assert_eq!(sessions(&web)[4], "2", "there is one for those who have none");
    assert_eq!(web.count("DELETE"), 0, "nobody is sent away who need not be");
    one.end();
    until("it is told goodbye", || web.count("DELETE") == 1).await;
    let bye = web.seen().into_iter().find(|seen| seen.verb == "DELETE").unwrap();
    assert_eq!(bye.header("mcp-session-id"), "0");
    within(upstream.shut_down()).await;
    assert_eq!(web.count("DELETE"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_what_is_lent_serves_many_calls_at_a_time() {
    let count = AtomicUsize::new(0);
    let web = Web::serve(move |seen| in_sessions(seen, &count)).await;
    let upstream = Upstream::new(web.config());
    let parties = [(); 6].map(|()| client(Era::Stateless, true));
    join_all(parties.iter().map(|party| act_by(&upstream, party))).await;
    assert_eq!(sessions(&web), ["0"; 6]);
    assert_eq!((web.count("initialize"), web.count("server/discover")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_without_numbers_of_sessions_all_share_one() {
    let web = Web::serve(usual).await;
    let upstream = Upstream::new(web.config());
    let parties = [(); 3].map(|()| client(Era::Sessions, false));
    for party in &parties {
        act_by(&upstream, party).await;
    }
    assert!(web.count("initialize") <= 2, "the first finds out");
    let asked = client(Era::Sessions, true);
    act_by(&upstream, &asked).await;
    let mut seen = web.seen();
    seen.retain(|seen| seen.method() == "initialize");
    assert_eq!(seen.last().unwrap().body["params"]["capabilities"]["elicitation"], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn over_http_all_connections_share_what_is_open_to_the_host() {
    let count = AtomicUsize::new(0);
    let web = Web::serve(move |seen| in_sessions(seen, &count)).await;
    let upstream = Upstream::new(web.config());
    for _ in 0..10 {
        act_by(&upstream, &client(Era::Sessions, true)).await;
    }
    assert_eq!(web.count("initialize"), 10, "each has a session");
    // One for what is asked, and some for what is said or listened to meanwhile.
    assert!(web.connections() <= 5, "{} connections for 10 sessions", web.connections());
}
