//! Calls of clients without a session that wait for a person.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use toolcrib_mcp::{Era, Upstream, Upstreams};
use toolcrib_runtime::{CallError, Caller, Party, Server, ToolResult, Toolset};

use crate::asks::Person;
use crate::lanes::act_by;
use crate::support::{Scene, invocation, until, within};

/// A client without a session that can be asked, of somebody.
fn client(principal: u64) -> Arc<Party> {
    let capabilities = serde_json::value::to_raw_value(&json!({"elicitation": {}})).unwrap();
    Arc::new(Party::new(Era::Stateless, principal, Some(capabilities.into()), None))
}

async fn elicit(
    upstream: &Upstream,
    person: &Person,
    principal: u64,
    count: u64,
) -> Result<ToolResult, CallError> {
    let mut asked = invocation("elicit", json!({"marker": "who?", "count": count}));
    asked.caller = Caller::new(person.clone()).with_party(client(principal));
    within(upstream.call(asked)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn those_of_one_caller_leave_half_of_the_connections_to_others() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.era = Some(Era::Sessions);
    config.connections = Some(4);
    config.call_limit = Some(Duration::from_secs(20));
    let upstream = Upstream::new(config);
    let (thinks, quick) = (Person::default(), Person::at_once());
    let parked = || {
        let (upstream, thinks) = (upstream.clone(), thinks.clone());
        // Two questions of one call wait in one place.
        tokio::spawn(async move { elicit(&upstream, &thinks, 1, 2).await })
    };
    let waiting = [parked(), parked()];
    until("two wait", || thinks.open() == 4).await;
    let third = elicit(&upstream, &thinks, 1, 1).await.unwrap_err().to_string();
    assert!(third.contains("has a question, but 2 calls of this caller wait"), "{third}");
    assert!(third.contains("`connections = 4`"), "{third}");
    assert!(third.contains("answer those first, or raise `connections`"), "{third}");
    assert_eq!(thinks.open(), 4, "nobody was asked");
    // The same caller can go on calling, and others can even be asked.
    act_by(&upstream, &client(1)).await;
    act_by(&upstream, &client(2)).await;
    let other = elicit(&upstream, &quick, 2, 1).await.unwrap();
    assert!(!other.is_error() && quick.asked().len() == 1);
    assert_eq!(thinks.open(), 4, "those that wait go on to do so");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    until("they have left", || thinks.open() == 0 && upstream.health().running == 0).await;
    let again = elicit(&upstream, &quick, 1, 1).await.unwrap();
    assert!(!again.is_error(), "their places are free");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_that_are_answered_at_once_have_their_turn() {
    let scene = Scene::new();
    let mut config = scene.server(json!({}));
    config.era = Some(Era::Sessions);
    config.connections = Some(4);
    let upstream = Upstream::new(config);
    let person = Person::after(Duration::from_millis(50));
    let calls = (0..8).map(|_| elicit(&upstream, &person, 1, 1));
    let results = futures::future::join_all(calls).await;
    assert!(results.iter().all(|result| result.as_ref().is_ok_and(|it| !it.is_error())));
    assert_eq!(person.asked().len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_of_one_caller_leave_half_of_all_processes_to_others() {
    let scenes = [Scene::new(), Scene::new()];
    let upstreams = Upstreams::default().most_processes(2);
    let [one, two] = scenes.each_ref().map(|scene| {
        let mut config = scene.server(json!({}));
        config.era = Some(Era::Sessions);
        config.connections = Some(8);
        upstreams.open(config)
    });
    let (thinks, quick) = (Person::default(), Person::at_once());
    let first = {
        let thinks = thinks.clone();
        tokio::spawn(async move { elicit(&one, &thinks, 1, 1).await })
    };
    until("one waits", || thinks.open() == 1).await;
    let second = elicit(&two, &thinks, 1, 1).await.unwrap_err().to_string();
    assert!(second.contains("1 calls of this caller to all servers together"), "{second}");
    assert_eq!(thinks.open(), 1, "nobody was asked");
    let other = elicit(&two, &quick, 2, 1).await.unwrap();
    assert!(!other.is_error() && quick.asked().len() == 1);
    first.abort();
}
