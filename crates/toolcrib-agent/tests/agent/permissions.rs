//! Permissions: who is asked about what.

use std::sync::Mutex;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::json;
use toolcrib_agent::{
    Agent, Approval, Approver, Event, PendingCall, Permission, Permissions, Rule, Scripted, Turn,
    Verdict,
};

use crate::support::*;

/// Answers from a list, and notes the questions.
struct Person(Mutex<Vec<Approval>>, Log);

impl Person {
    fn saying(answers: impl IntoIterator<Item = Approval>, log: &Log) -> Self {
        let mut answers: Vec<Approval> = answers.into_iter().collect();
        answers.reverse();
        Self(Mutex::new(answers), log.clone())
    }
}

impl Approver for Person {
    fn ask<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Approval> {
        self.1.note(format!("{} {}", call.name, call.arguments));
        ready(self.0.lock().unwrap().pop().expect("it is asked no more often")).boxed()
    }
}

async fn ask(turns: Vec<Turn>, answers: Vec<Approval>) -> (Stage, Log) {
    let questions = Log::default();
    let person = Person::saying(answers, &questions);
    let stage = agent_with(deferred(), Scripted::new(turns), |builder| {
        builder.permissions(Permissions::ask()).approver(person)
    })
    .await;
    (stage, questions)
}

#[tokio::test]
async fn the_real_tool_is_asked_about_and_verbs_and_readers_are_not() {
    let turns = vec![
        Turn::calls([
            ("tool_search", json!({"query": "drill"})),
            dispatched("measure", json!({"name": "bolt"})),
            dispatched("drill", json!({"size": "4"})),
        ]),
        Turn::text("Done."),
    ];
    let (stage, questions) = ask(turns, vec![Approval::Once]).await;
    let (events, answer) = follow(&mut stage.agent.chat(), "Drill.").await;
    assert_eq!(questions.lines(), ["drill {\"size\":4}"]);
    assert!(answer.calls.iter().all(|call| !call.is_error));
    let allowed = events.iter().find_map(|event| match event {
        Event::Answered { allowed, .. } => Some(*allowed),
        _ => None,
    });
    assert_eq!(allowed, Some(true));
}

#[tokio::test]
async fn once_is_once_and_always_is_for_the_conversation() {
    let drills = |n: usize| -> Vec<Turn> {
        let mut turns: Vec<Turn> =
            (0..n).map(|size| Turn::calls([dispatched("drill", json!({"size": size}))])).collect();
        turns.push(Turn::text("Done."));
        turns
    };
    let (stage, questions) = ask(drills(4), vec![Approval::Once, Approval::Always]).await;
    follow(&mut stage.agent.chat(), "Drill.").await;
    assert_eq!(questions.lines().len(), 2);
    assert_eq!(stage.log.lines().len(), 8);

    let (stage, questions) = ask(drills(3), vec![Approval::Never]).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "Drill.").await;
    assert_eq!((questions.lines().len(), stage.log.lines().len()), (1, 0));
    assert!(last_results(chat.history())[0].contains("said no"));
}

#[tokio::test]
async fn a_reason_reaches_the_model() {
    let turns = vec![Turn::calls([dispatched("drill", json!({"size": 9}))]), Turn::text("I see.")];
    let (stage, _) = ask(turns, vec![Approval::No(Some("too big".into()))]).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Drill.").await;
    assert_eq!(last_results(chat.history()), ["`drill` was not run: The user said no: too big"]);
    assert!(answer.calls[0].is_error);
}

#[tokio::test]
async fn answers_are_a_conversations_own_and_a_fork_takes_them_along() {
    let drill = || Turn::calls([dispatched("drill", json!({"size": 1}))]);
    let turns = vec![drill(), Turn::text("1"), drill(), Turn::text("2"), drill(), Turn::text("3")];
    let (stage, questions) = ask(turns, vec![Approval::Always, Approval::Once]).await;
    let mut first = stage.agent.chat();
    follow(&mut first, "Drill.").await;
    follow(&mut first.fork(), "Drill.").await;
    assert_eq!(questions.lines().len(), 1);
    follow(&mut stage.agent.chat(), "Drill.").await;
    assert_eq!(questions.lines().len(), 2);
}

#[tokio::test]
async fn where_nobody_can_be_asked_nothing_runs() {
    let turns = [Turn::calls([dispatched("drill", json!({"size": 1}))]), Turn::text("Done.")];
    let stage = agent_with(deferred(), Scripted::new(turns), |builder| {
        builder.permissions(Permissions::ask())
    })
    .await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "Drill.").await;
    assert!(stage.log.lines().is_empty());
    assert!(last_results(chat.history())[0].contains("nobody can be asked"));
}

#[tokio::test]
async fn the_first_rule_that_fits_decides() {
    let rule = |json: serde_json::Value| serde_json::from_value::<Rule>(json).unwrap();
    let rules = [
        rule(json!({"tools": ["weld"], "then": "deny"})),
        rule(json!({"tools": ["*ill"], "then": "allow"})),
        rule(json!({"read_only": true, "then": "deny"})),
    ];
    let permissions = Permissions::new(rules, Permission::Ask).unwrap();
    let calls = [
        dispatched("weld", json!({"size": 1})),
        dispatched("drill", json!({"size": 1})),
        dispatched("measure", json!({"name": "bolt"})),
        dispatched("explode", json!({})),
    ];
    let questions = Log::default();
    let person = Person::saying([Approval::No(None)], &questions);
    let model = Scripted::new([Turn::calls(calls), Turn::text("Done.")]);
    let stage =
        agent_with(deferred(), model, |builder| builder.permissions(permissions).approver(person))
            .await;
    let (_, answer) = follow(&mut stage.agent.chat(), "All.").await;
    let errors: Vec<bool> = answer.calls.iter().map(|call| call.is_error).collect();
    assert_eq!(errors, [true, false, true, true]);
    assert_eq!(questions.lines(), ["explode {}"]);
    assert!(
        Permissions::new([rule(json!({"tools": ["["], "then": "allow"}))], Permission::Ask)
            .is_err()
    );
}

/// Wants a person to look at large sizes.
struct Careful;

impl toolcrib_agent::Hooks for Careful {
    fn before_tool_call<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Verdict> {
        let is_large = call.arguments["size"].as_u64() > Some(10);
        ready(if is_large { Verdict::Ask } else { Verdict::Pass }).boxed()
    }
}

#[tokio::test]
async fn a_hook_that_asks_is_not_answered_by_an_always_of_before() {
    let drill = |size: u32| Turn::calls([dispatched("drill", json!({"size": size}))]);
    let turns = [drill(1), drill(2), drill(99), Turn::text("Done.")];
    let questions = Log::default();
    let person = Person::saying([Approval::Always, Approval::No(None)], &questions);
    let stage = agent_with(deferred(), Scripted::new(turns), |builder| {
        builder.permissions(Permissions::ask()).approver(person).hooks(Careful)
    })
    .await;
    follow(&mut stage.agent.chat(), "Drill.").await;
    assert_eq!(questions.lines(), ["drill {\"size\":1}", "drill {\"size\":99}"]);
    assert_eq!(stage.log.lines().len(), 4);
}

#[tokio::test]
async fn answers_go_along_to_another_model() {
    let drill = || Turn::calls([dispatched("drill", json!({"size": 1}))]);
    let (stage, questions) =
        ask(vec![drill(), Turn::text("Drilled.")], vec![Approval::Always]).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "Drill.").await;
    let model = Scripted::new([drill(), Turn::text("Again.")]);
    let other = Agent::builder(model.clone(), "other", stage.crib.clone())
        .permissions(Permissions::ask())
        .build();
    let report = chat.move_to(&other).await.unwrap();
    assert!(report.missing.is_empty(), "{report:?}");
    let (_, answer) = follow(&mut chat, "Again.").await;
    assert!(!answer.calls[0].is_error, "{:?}", last_results(chat.history()));
    assert_eq!((questions.lines().len(), model.requests()[0].messages.len()), (1, 5));
}
