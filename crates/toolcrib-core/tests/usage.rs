//! What was called after a query before is lifted when it is asked again: a little, and never out
//! of its place.

mod support;

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use support::{Chat, deferring, denying, registry, server};
use toolcrib_core::{Answer, Call, Choice, Effects, Preset, Registry, Step, ToolName, Usage, View};

fn offices() -> Registry {
    registry([
        server("chat", &[("post_message", "Post a message."), ("send_message", "Send a message.")]),
        server("mail", &[("send", "Send a message by mail."), ("read", "Read mail.")]),
        server("weather", &[("forecast", "Weather forecast for a place.")]),
    ])
}

fn chosen(query: &str, tool: &str, times: u32) -> Choice {
    Choice { query: query.into(), tool: tool.into(), times, freshness: 1.0 }
}

fn after(choices: impl IntoIterator<Item = Choice>) -> View {
    offices().catalog().view_all().with_usage(Arc::new(Usage::new(choices)))
}

fn ranked(view: &View, query: &str) -> Vec<(String, f32)> {
    let page = view.search(query, 10).expect("a query");
    page.results.iter().map(|row| (row.name.to_string(), row.score)).collect()
}

#[test]
fn what_was_chosen_more_than_once_comes_before_its_like_and_says_why() {
    let plain = offices().catalog().view_all();
    let query = "message";
    let before = ranked(&plain, query);
    let [first, (second, _), ..] = &before[..] else { panic!("{before:?}") };
    let tool = second.replacen("mcp__", "", 1).replacen("__", "/", 1);

    assert_eq!(ranked(&after([chosen(query, &tool, 1)]), query), before);

    let lifted = after([chosen("the messages", &tool, 6)]);
    let best = &ranked(&lifted, query)[0];
    assert_eq!(best.0, *second);
    assert!(best.1 > first.1 && best.1 < 1.15 * first.1, "{} {}", best.1, first.1);

    let why = lifted.explain(query, second).unwrap();
    assert_eq!(why.total, best.1);
    let [lift] = &why.lifts[..] else { panic!("{why}") };
    assert_eq!(lift.reason, "chosen 6 of 6 times after queries like this");
    assert_eq!(plain.explain(query, second).unwrap().lifts, []);
    assert_eq!(lifted.explain(query, &first.0).unwrap().lifts, []);
    assert_eq!(ranked(&lifted.without_usage(), query), before);
}

#[test]
fn a_name_still_comes_first() {
    let view = after([chosen("chat.post_message", "chat/send_message", 1_000_000)]);
    assert_eq!(ranked(&view, "chat.post_message")[0].0, "mcp__chat__post_message");
    assert_eq!(ranked(&view, "post_message")[0].0, "mcp__chat__post_message");
}

#[test]
fn what_does_not_match_is_not_brought_up() {
    let plain = offices().catalog().view_all();
    let view = after([
        chosen("weather forecast", "chat/send_message", 100),
        chosen("weather forecast", "gone/tool", 100),
        chosen("read mail", "mail/read", 100),
    ]);
    let query = "weather +forecast";
    assert_eq!(ranked(&view, query), ranked(&plain, query));
    assert_eq!(ranked(&view, "post a message"), ranked(&plain, "post a message"));
}

#[test]
fn a_good_match_is_not_overtaken_by_a_poor_one() {
    let query = "send message by mail";
    let best = ranked(&offices().catalog().view_all(), query)[0].0.clone();
    assert_eq!(best, "mcp__mail__send");
    let view = after([chosen(query, "chat/post_message", 1_000)]);
    assert_eq!(ranked(&view, query)[0].0, best);
}

#[test]
fn a_hidden_tool_gains_nothing_and_sets_no_measure() {
    let usage = Arc::new(Usage::new([chosen("message", "chat/post_message", 9)]));
    let hidden = offices().catalog().view(&denying(&["post_message"]));
    assert_eq!(ranked(&hidden.clone().with_usage(usage), "message"), ranked(&hidden, "message"));
}

#[test]
fn a_search_by_words_says_what_it_listed_and_others_do_not() {
    let searched = |preset, arguments| -> Effects {
        let mut chat = Chat::new(deferring(preset), offices());
        let Step::Answer(Answer { effects, .. }) = chat.step("tool_search", arguments) else {
            panic!("an answer")
        };
        effects
    };
    let mail = [ToolName::mcp("mail", "read"), ToolName::mcp("mail", "send")];
    for preset in [Preset::Crib, Preset::Stubs, Preset::Lazy] {
        let listed = searched(preset, json!({"query": "read +mail"})).searched.unwrap();
        assert_eq!((&*listed.query, &*listed.tools), ("read +mail", &mail[..]), "{preset:?}");
    }
    for query in ["select:mail.read", "/mail/", "mail/read", " "] {
        let effects = searched(Preset::Crib, json!({"query": query}));
        assert_eq!(effects.searched, None, "{query}");
    }
    assert_eq!(searched(Preset::Exact, json!({"query": "read"})).searched, None);
}

#[test]
fn the_verb_ranks_as_the_view_does() {
    let mut chat = Chat::new(deferring(Preset::Crib), offices());
    let view = after([chosen("message", "chat/send_message", 3)]);
    let call = Call::new("tool_search", json!({"query": "message", "limit": 1}));
    let Step::Answer(answer) = chat.engine.resolve(&mut chat.session, &view, &call) else {
        panic!("an answer")
    };
    assert!(answer.content.contains("mcp__chat__send_message"), "{}", answer.content);
}

proptest! {
    #[test]
    fn an_empty_table_changes_nothing(query in "[a-z ]{0,30}|(send|read|a|message|mail|weather| ){1,8}") {
        let plain = offices().catalog().view_all();
        let with = plain.clone().with_usage(Arc::default());
        prop_assert_eq!(plain.search(&query, 10), with.search(&query, 10));
    }

    #[test]
    fn use_reorders_what_matches_and_adds_nothing(
        query in "(send|read|post|message|mail|weather)( (send|read|post|message|mail|weather)){0,3}",
        tool in prop::sample::select(vec!["chat/post_message", "chat/send_message", "mail/send", "mail/read"]),
        times in 0..50_u32,
    ) {
        let plain = offices().catalog().view_all();
        let view = after([chosen(&query, tool, times)]);
        let (before, lifted) = (plain.search(&query, 10).unwrap(), view.search(&query, 10).unwrap());
        prop_assert_eq!(before.total_matches, lifted.total_matches);
        let best = before.results.first().map_or(0.0, |row| row.score);
        for row in &lifted.results {
            let was = before.results.iter().find(|it| it.name == row.name).unwrap().score;
            // A query that names a tool outright is the best of all, and by more than any lift.
            prop_assert!(row.score >= was && row.score <= was + 0.151 * best, "{} {}", row.score, was);
        }
    }
}
