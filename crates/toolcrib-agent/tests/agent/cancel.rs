//! Cancellation, at every point of a run: the history stays valid and can be gone on with.

use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use serde_json::json;
use toolcrib_agent::{
    Answer, Approval, Approver, Chat, End, Event, Message, PendingCall, Permissions, ProviderError,
    Scripted, Turn,
};

use crate::support::*;

/// Cancels when an event fits, and gives the answer.
async fn cancel_at(chat: &mut Chat, text: &str, at: impl Fn(&Event) -> bool) -> Answer {
    let token = chat.cancellation();
    let mut events = chat.stream(text);
    let mut seen = Vec::new();
    while let Some(event) = events.next().await {
        if at(&event) {
            token.cancel();
        }
        seen.push(event);
    }
    drop(events);
    check_pairs(&seen);
    check_history(chat.history());
    match seen.pop() {
        Some(Event::RunFinished(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

/// The conversation can be gone on with.
async fn goes_on(chat: &mut Chat) {
    let (_, answer) = follow(chat, "Go on.").await;
    assert_eq!((&*answer.text, &answer.end), ("Gone on.", &End::Done));
}

#[tokio::test]
async fn while_the_model_writes_what_was_read_is_kept() {
    let long = Turn::text("one two three four five six seven eight nine ten").hang_after(5);
    let stage = agent(deferred(), [long, Turn::text("Gone on.")]).await;
    let mut chat = stage.agent.chat();
    let seen = std::cell::Cell::new(0);
    let answer = cancel_at(&mut chat, "Count.", |event| {
        seen.set(seen.get() + usize::from(matches!(event, Event::Text { .. })));
        seen.get() == 3
    })
    .await;
    assert_eq!(answer.end, End::Cancelled);
    let Message::Assistant(said) = &**chat.history().last().unwrap() else { panic!() };
    assert_eq!(said.text(), "one two three four five ");
    goes_on(&mut chat).await;
}

#[tokio::test]
async fn before_the_model_says_anything_nothing_is_kept() {
    let stage = agent(deferred(), [Turn::hang(), Turn::text("Gone on.")]).await;
    let mut chat = stage.agent.chat();
    let answer =
        cancel_at(&mut chat, "Hello?", |event| matches!(event, Event::TurnStarted { .. })).await;
    assert_eq!(answer.end, End::Cancelled);
    assert_eq!(chat.history().len(), 1);
    goes_on(&mut chat).await;
}

#[tokio::test]
async fn while_tools_run_the_finished_keep_their_results() {
    let calls = [
        dispatched("measure", json!({"name": "bolt"})),
        dispatched("sleep", json!({})),
        ("tool_search", json!({"query": "drill"})),
    ];
    let stage = agent(deferred(), [Turn::calls(calls), Turn::text("Gone on.")]).await;
    let mut chat = stage.agent.chat();
    let answer = cancel_at(
        &mut chat,
        "Three things.",
        |event| matches!(event, Event::CallFinished { name, .. } if name == "tool_search"),
    )
    .await;
    assert_eq!(answer.end, End::Cancelled);
    let results = last_results(chat.history());
    assert_eq!(results[0], "bolt: 7 mm");
    assert!(results[1].contains("may or may not"), "{results:?}");
    assert!(results[2].contains("total_matches"), "{results:?}");
    goes_on(&mut chat).await;
}

#[tokio::test]
async fn calls_that_wait_their_turn_never_run() {
    let calls = [dispatched("weld", json!({"size": 1})), dispatched("weld", json!({"size": 2}))];
    let stage = agent(deferred(), [Turn::calls(calls), Turn::text("Gone on.")]).await;
    let mut chat = stage.agent.chat();
    cancel_at(&mut chat, "Weld twice.", |event| matches!(event, Event::CallStarted { .. })).await;
    assert!(stage.log.lines().is_empty(), "{:?}", stage.log.lines());
    let results = last_results(chat.history());
    assert_eq!(results, ["Cancelled by the user before it ran."; 2]);
    goes_on(&mut chat).await;
}

struct Silent;

impl Approver for Silent {
    fn ask<'a>(&'a self, _: &'a PendingCall) -> BoxFuture<'a, Approval> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn while_a_person_is_asked() {
    let turns = [Turn::calls([dispatched("drill", json!({"size": 1}))]), Turn::text("Gone on.")];
    let stage = agent_with(deferred(), Scripted::new(turns), |builder| {
        builder.permissions(Permissions::ask()).approver(Silent)
    })
    .await;
    let mut chat = stage.agent.chat();
    let answer = cancel_at(&mut chat, "Drill.", |event| matches!(event, Event::Asked { .. })).await;
    assert_eq!(answer.end, End::Cancelled);
    assert!(stage.log.lines().is_empty());
    goes_on(&mut chat).await;
}

#[tokio::test]
async fn while_the_loop_waits_to_ask_again() {
    let busy = ProviderError::Busy {
        message: "too many requests".into(),
        retry_after: Some(Duration::from_secs(3600)),
    };
    let stage = agent(deferred(), [Turn::error(busy), Turn::text("Gone on.")]).await;
    let mut chat = stage.agent.chat();
    let answer =
        cancel_at(&mut chat, "Hello?", |event| matches!(event, Event::Retrying { .. })).await;
    assert_eq!(answer.end, End::Cancelled);
    goes_on(&mut chat).await;
}

#[tokio::test]
async fn a_run_that_is_dropped_leaves_a_history_that_is_mended() {
    let calls = Turn::calls([dispatched("sleep", json!({}))]);
    let stage = agent(deferred(), [calls, Turn::text("Gone on.")]).await;
    let mut chat = stage.agent.chat();
    let mut events = chat.stream("Sleep.");
    while let Some(event) = events.next().await {
        if matches!(event, Event::CallStarted { .. }) {
            break;
        }
    }
    drop(events);
    goes_on(&mut chat).await;
    assert!(last_results(chat.history())[0].contains("interrupted"));
}
