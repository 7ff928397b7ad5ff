//! The agent against servers that speak the providers' wire formats: one scenario for every
//! provider and strategy, and every request compared with the one in `golden/`, byte for byte.
//! `UPDATE_GOLDEN=1` writes these files anew. `e2e/sdk/run` checks them with the providers' own
//! SDKs.

#![allow(clippy::unwrap_used)]

mod answer;
mod anthropic;
mod api;
mod golden;
mod ollama;
mod openai_chat;
mod openai_responses;
mod scenario;
mod server;
mod tools;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toolcrib_agent::Said;
use toolcrib_core::StrategyChoice;

use answer::Saying;
use api::{Api, Token};
use scenario::{Fork, Story, play, play_endings};
use server::Exchange;

/// A test for each provider and strategy.
macro_rules! each {
    ($($name:ident: $api:ident, $strategy:ident;)+) => {
        $(#[tokio::test]
        async fn $name() {
            check(Api::$api, StrategyChoice::$strategy).await;
        })+
    };
}

each! {
    anthropic_dispatch: Anthropic, Dispatch;
    anthropic_inject: Anthropic, Inject;
    openai_responses_dispatch: OpenAiResponses, Dispatch;
    openai_responses_inject: OpenAiResponses, Inject;
    openai_chat_dispatch: OpenAiChat, Dispatch;
    openai_chat_inject: OpenAiChat, Inject;
    ollama_dispatch: Ollama, Dispatch;
    ollama_inject: Ollama, Inject;
}

#[tokio::test]
async fn answers_that_end_otherwise() {
    for api in [Api::Anthropic, Api::OpenAiResponses, Api::OpenAiChat, Api::Ollama] {
        let story = play_endings(api).await;
        answers_are_read_as_they_were_meant(api, &story);
        conversations_grow_at_their_end(api, &story);
        compare_with_golden(&format!("{}-endings", api.name()), &story);
    }
}

fn compare_with_golden(name: &str, story: &Story) {
    golden::compare(&format!("{name}.json"), &golden::requests(&story.exchanges));
    let streams = golden::streams(&story.exchanges, &story.replies);
    golden::compare(&format!("streams-{name}.txt"), &streams);
}

async fn check(api: Api, strategy: StrategyChoice) {
    let story = play(api, strategy, Fork::Made).await;
    requests_go_where_they_should(api, &story);
    answers_are_read_as_they_were_meant(api, &story);
    each_call_has_run_once(&story);
    every_call_has_its_result(api, &story);
    match strategy {
        StrategyChoice::Dispatch => nothing_before_the_end_changes(api, &story),
        _ => tools_are_only_appended(api, &story),
    }
    conversations_grow_at_their_end(api, &story);
    sub_agents_see_what_they_may(api, strategy, &story);

    compare_with_golden(&format!("{}-{strategy}", api.name()), &story);

    let again = play(api, strategy, Fork::Made).await;
    assert_eq!(bodies(&again, |_| true), bodies(&story, |_| true), "the same again");
    let alone = play(api, strategy, Fork::LeftOut).await;
    let of_parent = |exchange: &Exchange| exchange.conversation == "main";
    assert_eq!(bodies(&alone, of_parent), bodies(&story, of_parent), "a fork leaves no trace");
}

fn bodies(story: &Story, wanted: impl Fn(&Exchange) -> bool) -> Vec<String> {
    let wanted = story.exchanges.iter().filter(|exchange| wanted(exchange));
    wanted.map(|exchange| exchange.body.clone()).collect()
}

fn requests_go_where_they_should(api: Api, story: &Story) {
    let expected: Vec<(String, String)> =
        api.headers().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    for exchange in &story.exchanges {
        assert_eq!((&*exchange.path, &exchange.headers), (api.path(), &expected));
    }
}

fn answers_are_read_as_they_were_meant(api: Api, story: &Story) {
    assert_eq!(story.exchanges.len(), story.replies.len());
    for (exchange, reply) in story.exchanges.iter().zip(&story.replies) {
        let mut meant = Vec::new();
        for said in &exchange.answer.said {
            match said {
                Saying::Thinking(_) | Saying::Refusal(_) | Saying::Cut => {}
                Saying::Text(text) => meant.push(json!({"type": "text", "text": text})),
                Saying::Call { number, name, arguments } => meant.push(json!({"type": "call",
                    "id": api.call_id(*number), "name": name, "arguments": arguments})),
            }
        }
        let read = reply.content.iter().filter(|said| !matches!(said, Said::Native { .. }));
        assert_eq!(json!(read.collect::<Vec<&Said>>()), json!(meant), "{}", exchange.step);
        assert_eq!(reply.usage, api.told(exchange.answer.usage()), "{}", exchange.step);
    }
}

/// The blind call is not among them, nor the hidden one.
fn each_call_has_run_once(story: &Story) {
    let run: Vec<&str> = story.log.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        run,
        [
            "create_issue",
            "add_comment",
            "create_issue",
            "book_room",
            "list_events",
            "list_events",
            "wait_for_deploy",
            "draw_chart",
            "list_issues",
        ]
    );
    assert_eq!(story.log[1].1, json!({"number": 1, "text": "Same here."}));
}

fn every_call_has_its_result(api: Api, story: &Story) {
    for exchange in &story.exchanges {
        let messages = api.messages(&parsed(exchange));
        let tokens = messages.iter().flat_map(|message| api.tokens(message));
        let mut open: Vec<String> = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        let mut answered = 0;
        for token in tokens {
            match token {
                Token::Call(id) => {
                    assert_eq!(answered, 0, "a call among the results of others");
                    assert!(api == Api::Ollama || !seen.contains(&id), "{id} twice");
                    seen.push(id.clone());
                    open.push(id);
                }
                Token::Result(id) => {
                    assert_eq!(open.get(answered), Some(&id), "{}", exchange.step);
                    answered += 1;
                    if answered == open.len() {
                        open.clear();
                        answered = 0;
                    }
                }
                Token::Thinking => assert_eq!(answered, 0),
                Token::Other => assert!(open.is_empty(), "{open:?} has no result"),
            }
        }
        assert!(open.is_empty(), "{open:?} has no result");
    }
}

/// Pairs of one request and the next of the same conversation.
fn pairs(story: &Story) -> Vec<(&Exchange, &Exchange)> {
    let mut last: BTreeMap<&str, &Exchange> = BTreeMap::new();
    let mut pairs = Vec::new();
    for exchange in &story.exchanges {
        // A fork goes on from where its parent was.
        let parent = if exchange.conversation == "fork" { "main" } else { exchange.conversation };
        let before = last.get(exchange.conversation).or_else(|| last.get(parent));
        pairs.extend(before.map(|before| (*before, exchange)));
        last.insert(exchange.conversation, exchange);
    }
    pairs
}

fn parsed(exchange: &Exchange) -> Value {
    serde_json::from_str(&exchange.body).unwrap()
}

fn nothing_before_the_end_changes(api: Api, story: &Story) {
    for (before, after) in pairs(story) {
        let head = |exchange: &Exchange| {
            let (head, _) =
                exchange.body.split_once(&format!("\"{}\":[", api.conversation())).unwrap();
            // Where the conversation stands in the middle, the tools come after it.
            (head.to_owned(), parsed(exchange)["tools"].to_string())
        };
        assert_eq!(head(before), head(after), "{}", after.step);
    }
}

fn tools_are_only_appended(api: Api, story: &Story) {
    let mut unloaded = 0;
    for (before, after) in pairs(story) {
        let (mut old, new) = (api.tools(&parsed(before)), api.tools(&parsed(after)));
        // The host has taken one out; it comes back behind the others once it is called.
        if after.step == "call after unloading" {
            let names = api.tool_names(&parsed(before));
            let place = names.iter().position(|name| name == "mcp__github__create_issue").unwrap();
            old.remove(place);
            assert_eq!(new, old);
            unloaded += 1;
        }
        assert!(new.starts_with(&old), "{}", after.step);
        assert_eq!(api.system(&parsed(before)), api.system(&parsed(after)), "{}", after.step);
    }
    assert_eq!(unloaded, 1);
}

fn conversations_grow_at_their_end(api: Api, story: &Story) {
    for (before, after) in pairs(story) {
        let (old, new) = (api.messages(&parsed(before)), api.messages(&parsed(after)));
        assert!(new.len() > old.len() && new.starts_with(&old), "{}", after.step);
    }
}

fn sub_agents_see_what_they_may(api: Api, strategy: StrategyChoice, story: &Story) {
    let mut seen = 0;
    for exchange in &story.exchanges {
        let body = parsed(exchange);
        let (names, system) = (api.tool_names(&body), api.system(&body));
        let system = system.as_str().unwrap_or_default();
        match exchange.conversation {
            "reader" => {
                assert!(system.contains("calendar") && !system.contains("github"), "{system}");
                assert!(!names.iter().any(|name| name.contains("github")), "{names:?}");
            }
            "poet" => {
                assert_eq!((system, body.get("tools")), ("You write verses.", None));
            }
            _ => {
                assert!(system.contains("calendar") && system.contains("github"), "{system}");
                let verbs = if strategy == StrategyChoice::Dispatch { 3 } else { 2 };
                assert!(names.len() >= verbs);
                continue;
            }
        }
        seen += 1;
    }
    assert_eq!(seen, 5);
}
