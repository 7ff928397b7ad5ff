//! Large answers, and the room that there is for them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_mcp::{Era, ServerConfig, Upstream, UpstreamState, Upstreams};
use toolcrib_runtime::{Breaker, Budget, Caller, Listener, Room, Toolset};

use crate::lanes::client;
use crate::support::{Scene, call, invocation, is_alive, say, until, within};
use crate::web::{Reply, Seen, Web, usual};

const MB: usize = 1 << 20;

/// Somebody who passes results on, and takes their time.
#[derive(Clone, Default)]
struct Slow {
    rooms: Arc<Mutex<Vec<Room>>>,
}

impl Listener for Slow {
    fn hear(&self, _: &str, _: &RawValue) {}

    fn keep(&self, room: Room) {
        self.rooms.lock().unwrap().push(room);
    }
}

fn open(budget: &Budget, config: ServerConfig) -> Upstream {
    let upstreams = Upstreams::default();
    upstreams.use_budget(budget.clone());
    upstreams.open(config)
}

/// What a call says that is answered with so many bytes, more or less.
async fn echo(
    upstream: &Upstream,
    listener: &Slow,
    mark: &str,
    bytes: usize,
) -> Result<String, String> {
    let mut asked = invocation("act", json!({"mark": mark, "fill": "x".repeat(bytes)}));
    asked.caller = Caller::new(listener.clone());
    let result = within(upstream.call(asked)).await.map_err(|error| error.to_string())?;
    Ok(result.to_text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_large_answers_at_once_share_the_room_and_none_is_lost() {
    let budget = Budget::new(8 * MB);
    let scenes: Vec<Scene> = (0..4).map(|_| Scene::new()).collect();
    let servers: Vec<Upstream> =
        scenes.iter().map(|scene| open(&budget, scene.server(json!({})))).collect();
    join_all(servers.iter().map(|server| async { within(server.check()).await.unwrap() })).await;
    let calls = (0..40).map(|number| {
        let (server, mark) = (servers[number % 4].clone(), format!("mark-{number}-"));
        tokio::spawn(async move {
            let slow = Slow::default();
            let text = echo(&server, &slow, &mark, 2 * MB).await.unwrap();
            assert!(text.contains(&mark) && text.len() > 2 * MB);
            assert_eq!(slow.rooms.lock().unwrap().len(), 1);
            tokio::time::sleep(Duration::from_millis(20)).await;
        })
    });
    for call in join_all(calls).await {
        call.unwrap();
    }
    assert!(budget.peak() <= budget.total() && budget.peak() > 3 * MB, "{}", budget.peak());
    assert_eq!((budget.used(), budget.refused()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_that_is_too_large_is_refused_for_that_reason_and_others_are_not() {
    let budget = Budget::new(MB);
    let scene = Scene::new();
    let server = open(&budget, scene.server(json!({})));
    within(server.check()).await.unwrap();
    let slow = Slow::default();
    let other = echo(&server, &slow, "other", 100 << 10);
    let (large, other) = tokio::join!(echo(&server, &slow, "large", 600 << 10), other);
    let reason = large.unwrap_err();
    let told = "Server `fixture` answered, but its answer was not taken: it is larger than 524288 \
                bytes, the most that is taken of one answer (`result_megabytes` decides). The \
                call may have taken effect";
    assert!(reason.starts_with(told), "{reason}");
    assert!(other.unwrap().contains("other"));
    // Whether a message says at its begin or at its end what it answers.
    let waiting = call(&server, "act", json!({"ms": 500}));
    let large = call(&server, "backwards", json!({"fill": "x".repeat(600 << 10)}));
    let (waiting, large) = tokio::join!(waiting, large);
    let reason = large.unwrap_err().to_string();
    assert!(reason.starts_with(told), "{reason}");
    assert!(waiting.unwrap().to_text().starts_with("act"));
    assert_eq!((scene.lines("starts").len(), budget.refused()), (1, 2));
    assert!(say(&server, "act").await.starts_with("act"));
    slow.rooms.lock().unwrap().clear();
    assert_eq!(budget.used(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn where_others_have_the_room_an_answer_waits_and_then_says_so() {
    let budget = Budget::patient(MB, Duration::from_millis(300));
    let scene = Scene::new();
    let server = open(&budget, scene.server(json!({})));
    within(server.check()).await.unwrap();
    let slow = Slow::default();
    for _ in 0..2 {
        echo(&server, &slow, "", 400 << 10).await.unwrap();
    }
    // It is not the server that fails.
    for _ in 0..6 {
        let reason = echo(&server, &slow, "", 400 << 10).await.unwrap_err();
        let told = "the 1048576 bytes there are for answers were taken for 300ms by others";
        assert!(reason.contains(told), "{reason}");
    }
    assert_eq!(server.status().breaker, Breaker::Closed);
    // What is small has its way.
    assert!(say(&server, "act").await.starts_with("act"));
    assert_eq!(scene.lines("starts").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn megabytes_of_noise_take_no_room() {
    let budget = Budget::new(MB);
    let scene = Scene::new();
    let server = open(&budget, scene.server(json!({})));
    within(server.check()).await.unwrap();
    assert_eq!(say(&server, "noise").await, "after noise");
    assert_eq!((budget.peak(), budget.refused()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_request_of_the_server_s_own_that_is_too_large_is_no_answer_to_ours() {
    let budget = Budget::new(MB);
    let scene = Scene::new();
    let server = open(&budget, scene.server(json!({})));
    within(server.check()).await.unwrap();
    let answered = say(&server, "ask_much").await;
    assert!(answered.contains("There is no room for the request"), "{answered}");
    assert_eq!(budget.refused(), 2);
}

/// Takes all room.
async fn crowd(budget: &Budget) -> Vec<Room> {
    let mut rooms = [budget.room(), budget.room()];
    for room in &mut rooms {
        room.reach(budget.total() / 2).await.unwrap();
        room.complete();
    }
    rooms.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_a_connection_that_is_lent_room_is_kept_and_what_is_too_large_ends_nothing() {
    let budget = Budget::new(MB);
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.era = Some(Era::Sessions);
    let (server, slow) = (open(&budget, config), Slow::default());
    let call = async |bytes: usize| {
        let mut asked = invocation("act", json!({"fill": "x".repeat(bytes)}));
        asked.caller = Caller::new(slow.clone()).with_party(client(Era::Stateless, true));
        within(server.call(asked)).await
    };
    call(300 << 10).await.unwrap();
    assert_eq!(slow.rooms.lock().unwrap().len(), 1);
    assert!(budget.used() > 200 << 10);
    let before = scene.lines("starts").len();
    let reason = call(600 << 10).await.unwrap_err().to_string();
    assert!(reason.contains("its answer was not taken"), "{reason}");
    call(1).await.unwrap();
    assert_eq!(scene.lines("starts").len(), before, "it did answer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_that_waits_for_room_outlasts_its_process() {
    let budget = Budget::new(MB);
    let scene = Scene::new();
    let server = open(&budget, scene.server(json!({})));
    within(server.check()).await.unwrap();
    let rooms = crowd(&budget).await;
    let waiting = {
        let server = server.clone();
        tokio::spawn(async move { say(&server, "last").await })
    };
    let pid = scene.pids("starts")[0];
    until("it has ended", || !is_alive(pid)).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!waiting.is_finished());
    drop(rooms);
    assert_eq!(waiting.await.unwrap().len(), 150 << 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_whose_list_finds_no_room_has_not_failed() {
    let budget = Budget::patient(MB, Duration::from_millis(100));
    let scene = Scene::new();
    let server = open(&budget, scene.server(json!({"bulk": 200 << 10})));
    let rooms = crowd(&budget).await;
    for _ in 0..6 {
        let reason = within(server.check()).await.unwrap_err();
        assert!(reason.contains("were taken for 100ms by others"), "{reason}");
    }
    drop(rooms);
    let began = std::time::Instant::now();
    until("it runs", || server.status().state == UpstreamState::Running).await;
    // After six failures in a row it would be left alone for half a minute.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_answer_that_waits_comes_when_there_is_room() {
    let budget = Budget::new(MB);
    let scene = Scene::new();
    let server = open(&budget, scene.server(json!({})));
    within(server.check()).await.unwrap();
    let slow = Slow::default();
    for _ in 0..2 {
        echo(&server, &slow, "", 400 << 10).await.unwrap();
    }
    let waiting = {
        let (server, slow) = (server.clone(), slow.clone());
        tokio::spawn(async move { echo(&server, &slow, "late", 400 << 10).await })
    };
    until("it is called", || scene.count("executed", "act") == 3).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    slow.rooms.lock().unwrap().clear();
    assert!(waiting.await.unwrap().unwrap().contains("late"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn over_http_it_is_the_same_in_either_form() {
    for streams in [false, true] {
        let web = Web::serve(move |seen: &Seen| match seen.method() {
            "tools/call" => {
                let text = seen.body["params"]["arguments"].to_string();
                let answer = seen.answer(json!({"content": [{"type": "text", "text": text}]}));
                if streams { Reply::events([answer]) } else { Reply::json(200, answer) }
            }
            _ => usual(seen),
        })
        .await;
        let budget = Budget::new(4 * MB);
        let (server, slow) = (open(&budget, web.config()), Slow::default());
        within(server.check()).await.unwrap();
        let reason = echo(&server, &slow, "", 3 * MB).await.unwrap_err();
        assert!(reason.contains("it is larger than 2097152 bytes"), "{streams}: {reason}");
        assert_eq!(budget.used(), 0);
        let calls = (0..12).map(|number| {
            let (server, mark) = (server.clone(), format!("mark-{number}-"));
            tokio::spawn(async move {
                let slow = Slow::default();
                let text = echo(&server, &slow, &mark, MB).await.unwrap();
                assert!(text.contains(&mark) && text.len() > MB);
                assert_eq!(slow.rooms.lock().unwrap().len(), 1);
            })
        });
        for call in join_all(calls).await {
            call.unwrap();
        }
        assert!(budget.peak() <= budget.total() && budget.peak() > 3 * MB / 2, "{}", budget.peak());
        assert_eq!((budget.used(), budget.refused()), (0, 1));
        assert_eq!(web.count("tools/call"), 13, "nothing is asked twice");
    }
}
