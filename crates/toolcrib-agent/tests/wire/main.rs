//! The agent against servers that speak the providers' wire formats, and refuse what the providers
//! would: two scenarios for every provider and strategy, and every request compared with the one in
//! `golden/`, byte for byte. `UPDATE_GOLDEN=1` writes these files anew. `e2e/sdk/run` checks them
//! with the providers' own SDKs.

#![allow(clippy::unwrap_used)]

mod answer;
mod anthropic;
mod api;
mod checks;
mod faults;
mod golden;
mod mistakes;
mod ollama;
mod openai_chat;
mod openai_responses;
mod rules;
mod scenario;
mod server;
mod tools;
mod travels;
mod way;

use std::collections::BTreeMap;

use serde_json::json;

use api::Api;
use checks::{
    Pair, answers_are_read_as_they_were_meant, every_call_has_its_result, goes_on,
    grows_at_its_end, parsed, requests_go_where_they_should,
};
use scenario::{Fork, Story, play, play_endings, play_hosted};
use server::Exchange;
use travels::{Journey, travel};
use way::Way;

/// Both stories for each provider and strategy.
macro_rules! each {
    ($($name:ident: $api:ident, $way:ident;)+) => {
        $(mod $name {
            use super::*;

            #[tokio::test]
            async fn at_home() {
                check(Api::$api, Way::$way).await;
            }

            #[tokio::test]
            async fn on_its_travels() {
                check_journey(Api::$api, Way::$way).await;
            }
        })+
    };
}

each! {
    anthropic_dispatch: Anthropic, Dispatch;
    anthropic_inject: Anthropic, Inject;
    anthropic_native: Anthropic, Native;
    anthropic_native_without_changes: Anthropic, NativeWithoutChanges;
    openai_responses_dispatch: OpenAiResponses, Dispatch;
    openai_responses_inject: OpenAiResponses, Inject;
    openai_responses_native: OpenAiResponses, Native;
    openai_chat_dispatch: OpenAiChat, Dispatch;
    openai_chat_inject: OpenAiChat, Inject;
    ollama_dispatch: Ollama, Dispatch;
    ollama_inject: Ollama, Inject;
}

#[tokio::test]
async fn answers_that_end_otherwise() {
    for api in Api::ALL {
        let story = play_endings(api).await;
        answers_are_read_as_they_were_meant(&story.exchanges, &story.replies);
        pairs(&story).into_iter().for_each(grows_at_its_end);
        compare_with_golden(&format!("{}-endings", api.name()), &story);
    }
}

#[tokio::test]
async fn a_search_of_the_providers_own() {
    for api in [Api::Anthropic, Api::OpenAiResponses] {
        let story = play_hosted(api).await;
        requests_go_where_they_should(&story.exchanges);
        answers_are_read_as_they_were_meant(&story.exchanges, &story.replies);
        every_call_has_its_result(&story.exchanges);
        for (before, after) in pairs(&story) {
            grows_at_its_end((before, after));
            assert_eq!(api.tools(&parsed(before)), api.tools(&parsed(after)));
        }
        // Every tool is declared, and none of ours searches.
        let body = parsed(&story.exchanges[0]);
        let names: Vec<String> = match api {
            Api::Anthropic => api.tool_names(&body).split_off(1),
            _ => openai_responses::declared(&body),
        };
        assert_eq!(names.len(), 30, "{names:?}");
        let run: Vec<&str> = story.log.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(run, ["create_issue", "create_issue"]);
        compare_with_golden(&format!("{}-hosted", api.name()), &story);
    }
}

fn compare_with_golden(name: &str, story: &Story) {
    golden::compare(&format!("{name}.json"), &golden::requests(&story.exchanges));
    let streams = golden::streams(&story.exchanges, &story.replies);
    golden::compare(&format!("streams-{name}.txt"), &streams);
}

async fn check(api: Api, way: Way) {
    let story = play(api, way, Fork::Made).await;
    requests_go_where_they_should(&story.exchanges);
    answers_are_read_as_they_were_meant(&story.exchanges, &story.replies);
    each_call_has_run_once(&story);
    every_call_has_its_result(&story.exchanges);
    let pairs = pairs(&story);
    assert!(pairs.iter().any(|(_, after)| after.step == "call after unloading"));
    pairs.into_iter().for_each(|pair| goes_on(pair, way));
    sub_agents_see_what_they_may(api, way, &story);

    compare_with_golden(&format!("{}-{}", api.name(), way.name()), &story);

    let again = play(api, way, Fork::Made).await;
    assert_eq!(bodies(&again, |_| true), bodies(&story, |_| true), "the same again");
    let alone = play(api, way, Fork::LeftOut).await;
    let of_parent = |exchange: &Exchange| exchange.conversation == "main";
    assert_eq!(bodies(&alone, of_parent), bodies(&story, of_parent), "a fork leaves no trace");
}

async fn check_journey(home: Api, way: Way) {
    let Journey { story, fresh, returns, served } = travel(home, way).await;
    let exchanges = &story.exchanges;
    requests_go_where_they_should(exchanges);
    answers_are_read_as_they_were_meant(exchanges, &story.replies);
    every_call_has_its_result(exchanges);
    // What it goes on as without the native form is what every provider has.
    let way_of = |exchange: &Exchange| {
        let names = exchange.api.tool_names(&parsed(exchange));
        if names.iter().any(|name| name == "call_tool") { Way::Dispatch } else { way }
    };
    let next = (1..exchanges.len()).filter(|at| !fresh.contains(at));
    let next = next.filter(|at| returns.iter().all(|(_, back)| back != at)).map(|at| (at - 1, at));
    let mut compared = 0;
    for (before, after) in next.chain(returns.iter().copied()) {
        let (before, after) = (&exchanges[before], &exchanges[after]);
        assert_eq!((before.api, way_of(before)), (after.api, way_of(after)), "{}", after.step);
        goes_on((before, after), way_of(after));
        compared += 1;
    }
    assert_eq!(compared + fresh.len() + 1, exchanges.len());
    let of_create_issue = served.iter().filter(|(name, _)| name.starts_with("mcp__github__create"));
    assert!(of_create_issue.map(|(_, all)| all.len()).sum::<usize>() > 2, "{served:?}");
    for (name, definitions) in served {
        assert!(definitions.iter().all(|one| *one == definitions[0]), "{name}: {definitions:?}");
    }
    let file = format!("{}-{}-travels.json", home.name(), way.name());
    golden::compare(&file, &golden::requests(exchanges));
}

fn bodies(story: &Story, wanted: impl Fn(&Exchange) -> bool) -> Vec<String> {
    let wanted = story.exchanges.iter().filter(|exchange| wanted(exchange));
    wanted.map(|exchange| exchange.body.clone()).collect()
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

/// Pairs of one request and the next of the same conversation.
fn pairs(story: &Story) -> Vec<Pair<'_>> {
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

fn sub_agents_see_what_they_may(api: Api, way: Way, story: &Story) {
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
                let verbs = if way == Way::Dispatch { 3 } else { 2 };
                assert!(names.len() >= verbs);
                continue;
            }
        }
        seen += 1;
    }
    assert_eq!(seen, 5);
}
