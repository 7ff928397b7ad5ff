//! What conversations cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use toolcrib_agent::{Agent, Event, Scripted, Spent, Turn, TurnCost, Usage};
use toolcrib_store::SqliteStore;
use toolcrib_tokens::Models;

use crate::support::{deferred, dispatched, follow, shop};

const PRICED: &str = "claude-opus-5.5";

fn turns() -> Vec<Turn> {
    vec![
        Turn::call("tool_search", json!({"query": "drill a hole"})),
        Turn::calls([dispatched("drill", json!({"size": 3}))]),
        Turn::text("Done."),
    ]
}

async fn agent(turns: Vec<Turn>, known: Option<&str>) -> Agent {
    let (crib, _) = shop(deferred()).await;
    let agent = Agent::builder(Scripted::new(turns), "scripted", crib).system("You run a shop.");
    match known {
        Some(name) => agent.known_as(Models::embedded().find(name).unwrap()).build(),
        None => agent.build(),
    }
}

fn costs(events: &[Event]) -> Vec<(Usage, TurnCost)> {
    let cost = |event: &Event| match event {
        Event::TurnFinished { usage, cost, .. } => Some((*usage, *cost)),
        _ => None,
    };
    events.iter().filter_map(cost).collect()
}

fn total(usages: impl IntoIterator<Item = Usage>) -> Usage {
    usages.into_iter().fold(Usage::default(), |sum, usage| sum + usage)
}

/// Turns add up to what a conversation has cost.
fn adds_up(turns: &[(Usage, TurnCost)], spent: &Spent) {
    assert_eq!(spent.turns, turns.len() as u64);
    assert_eq!(spent.usage, total(turns.iter().map(|(usage, _)| *usage)));
    let dollars = |of: fn(&TurnCost) -> Option<f64>| -> f64 {
        turns.iter().map(|(_, turn)| of(turn).unwrap()).sum()
    };
    let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-9, "{one} {other}");
    close(dollars(|turn| turn.cost.dollars), spent.cost.dollars.unwrap());
    let full = dollars(|turn| turn.full.unwrap_or(turn.cost).dollars);
    close(full, spent.full.dollars.unwrap());
}

#[tokio::test]
async fn turns_add_up_to_what_a_conversation_has_cost() {
    let all: Vec<Turn> = turns().into_iter().chain(turns()).collect();
    let mut chat = agent(all, Some(PRICED)).await.chat();
    assert_eq!(chat.spent(), &Spent::default());
    let (events, answer) = follow(&mut chat, "Drill a hole.").await;
    let mut told = costs(&events);
    assert_eq!((told.len(), answer.turns), (3, 3));
    assert_eq!(answer.usage, total(told.iter().map(|(usage, _)| *usage)));
    // By the prices of the table: $4 and $20 for a million.
    let (usage, first) = told[0];
    assert_eq!((first.usage, usage.read, usage.written), (usage, 0, 0));
    let expected = (usage.uncached as f64 * 4.0 + usage.output as f64 * 20.0) / 1e6;
    assert!((first.cost.dollars.unwrap() - expected).abs() < 1e-9, "{first:?} {expected}");
    // Without deferral the search would not have been made.
    assert_eq!(first.full.and_then(|full| full.dollars), Some(0.0));
    assert!(told[1].1.full.unwrap().dollars.unwrap() > 0.0);
    adds_up(&told, chat.spent());

    let (events, _) = follow(&mut chat, "Once more.").await;
    told.extend(costs(&events));
    adds_up(&told, chat.spent());
    let spent = chat.spent();
    assert!(spent.is_priced() && spent.saving().is_some() && spent.compared == 6, "{spent:?}");
    assert_eq!(spent.full_turns, 4);
    assert!(spent.to_string().starts_with("6 turns: "), "{spent}");
}

#[tokio::test]
async fn what_a_conversation_has_cost_is_kept_with_it() {
    let store = Arc::new(SqliteStore::open_in_memory().unwrap());
    let mut chat =
        agent(turns(), Some(PRICED)).await.chat().kept_in(store.clone(), BTreeMap::new());
    let (events, _) = follow(&mut chat, "Drill a hole.").await;
    let mut told = costs(&events);
    let (spent, id) = (chat.spent().clone(), chat.session_id().unwrap().to_owned());
    drop(chat);
    let (mut chat, _) = agent(turns(), Some(PRICED)).await.reopen(&*store, &id).await.unwrap();
    assert_eq!(chat.spent(), &spent);
    let (events, _) = follow(&mut chat, "Once more.").await;
    told.extend(costs(&events));
    adds_up(&told, chat.spent());

    // What a summary takes is paid for too.
    let before = chat.spent().clone();
    chat.move_to(&agent(vec!["They drill.".into()], Some(PRICED)).await).await.unwrap();
    let compaction = chat.compact().await.unwrap().unwrap();
    let summary = (compaction.cost.usage, compaction.cost);
    assert!(compaction.cost.cost.dollars.unwrap() > 0.0);
    told.push(summary);
    adds_up(&told, chat.spent());
    assert!(chat.spent().cost.dollars > before.cost.dollars);
}

#[tokio::test]
async fn of_a_model_that_nobody_knows_only_tokens_are_told() {
    let mut chat = agent(turns(), None).await.chat();
    let (events, _) = follow(&mut chat, "Drill a hole.").await;
    let told = costs(&events);
    assert!(told.iter().all(|(_, turn)| turn.cost.dollars.is_none() && turn.full.is_none()));
    let spent = chat.spent();
    assert_eq!(spent.usage, total(told.iter().map(|(usage, _)| *usage)));
    assert_eq!((spent.turns, spent.compared, spent.saving()), (3, 0, None));
    assert!(!spent.is_priced() && spent.usage.output > 0);
    assert!(spent.to_string().contains("at a price that is not known"), "{spent}");

    // A known one that comes later does not make up for that.
    chat.move_to(&agent(turns(), Some(PRICED)).await).await.unwrap();
    let (events, _) = follow(&mut chat, "Once more.").await;
    assert!(costs(&events).iter().all(|(_, turn)| turn.cost.dollars.is_some()));
    let spent = chat.spent();
    assert_eq!((spent.turns, spent.is_priced()), (6, false));
}

#[tokio::test]
async fn a_fork_pays_for_itself() {
    let all: Vec<Turn> = turns().into_iter().chain(["Aside.".into()]).collect();
    let mut chat = agent(all, Some(PRICED)).await.chat();
    follow(&mut chat, "Drill a hole.").await;
    let spent = chat.spent().clone();
    let mut aside = chat.fork();
    let (events, _) = follow(&mut aside, "What if not?").await;
    adds_up(&costs(&events), aside.spent());
    assert_eq!(chat.spent(), &spent);
}
