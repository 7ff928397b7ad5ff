//! Strategy `native` where the provider searches: it has what can be seen now, and nothing else.

mod support;

use serde_json::{Value, json};
use support::{Chat, deferring, denying, registry, server, tool};
use toolcrib_core::{
    Fetched, Policy, Preset, Registry, Saved, ServerTools, Session, Strategy, StrategyChoice,
    ToolName,
};

/// A conversation whose provider searches, after its first request.
fn hosted(registry: Registry) -> Chat {
    let mut settings = deferring(Preset::Crib);
    (settings.strategy, settings.hosted_search) = (StrategyChoice::Native, true);
    let mut chat = Chat::unsettled(Policy::default(), settings, registry);
    chat.session.choose(Strategy::Native);
    chat.turn();
    chat.prepare();
    assert!(chat.session.is_hosted());
    chat
}

fn two_servers() -> Registry {
    let tools = [("get", "Gets"), ("put", "Puts")];
    registry([server("db", &tools), server("git", &tools)])
}

fn many(count: usize) -> Registry {
    let specs = (0..count).map(|n| tool(ToolName::mcp("many", format!("t{n:05}")), "One of many"));
    registry([ServerTools::new("many", specs)])
}

fn declared(chat: &mut Chat) -> Vec<String> {
    chat.prepare().deferred.iter().map(|tool| tool.name().to_string()).collect()
}

fn about(chat: &mut Chat, name: &str) -> String {
    let shown = chat.prepare();
    let tool = shown.deferred.iter().find(|tool| **tool.name() == *name);
    tool.expect("it is declared").description().to_owned()
}

fn saved(session: &Session) -> Value {
    serde_json::to_value(session.snapshot()).expect("it serialises")
}

#[test]
fn who_comes_back_under_a_narrower_policy_declares_what_it_admits() {
    let mut chat = hosted(many(1_000));
    chat.run("mcp__many__t00000", json!({}));
    chat.run("mcp__many__t00990", json!({}));
    chat.policy = denying(&["mcp__many__t000*", "mcp__many__t001*"]);
    chat.restart();
    let expected: Vec<String> = (200..1_000).map(|n| format!("mcp__many__t{n:05}")).collect();
    assert_eq!(declared(&mut chat), expected);
    // Also without a restart, and back again: each is where it was at first.
    chat.policy = denying(&["mcp__many__t000*"]);
    chat.turn();
    assert_eq!(declared(&mut chat)[..2], ["mcp__many__t00100", "mcp__many__t00101"]);
    assert_eq!(declared(&mut chat).len(), 900);
}

#[test]
fn on_another_catalog_the_old_one_is_not_declared() {
    let mut chat = hosted(two_servers());
    chat.run("mcp__git__get", json!({}));
    chat.registry = many(30);
    chat.restart();
    let names = declared(&mut chat);
    assert_eq!(names.len(), 30);
    assert!(names.iter().all(|name| name.starts_with("mcp__many__")), "{names:?}");
}

#[test]
fn a_server_that_goes_comes_back_in_its_place_and_what_is_new_is_behind() {
    let mut chat = hosted(two_servers());
    let first = declared(&mut chat);
    assert_eq!(first, ["mcp__db__get", "mcp__db__put", "mcp__git__get", "mcp__git__put"]);
    chat.registry.remove_server("db");
    chat.restart();
    assert_eq!(declared(&mut chat), first[2..]);
    chat.registry.replace_server(server("a", &[("x", "")]));
    chat.registry.replace_server(server("db", &[("get", "Gets"), ("put", "Puts")]));
    chat.restart();
    assert_eq!(declared(&mut chat), [&first[..], &["mcp__a__x".to_owned()]].concat());
}

#[test]
fn what_was_called_keeps_its_form_and_what_was_not_has_its_present_one() {
    let mut chat = hosted(two_servers());
    chat.run("mcp__git__get", json!({}));
    let change = |chat: &Chat, about: &str| {
        chat.registry.replace_server(server("git", &[("get", about), ("put", about)]));
    };
    change(&chat, "Second");
    let [told] = chat.news().try_into().unwrap();
    assert!(told.contains("mcp__git__get") && !told.contains("mcp__git__put"), "{told}");
    assert_eq!(about(&mut chat, "mcp__git__get"), "Gets");
    assert_eq!(about(&mut chat, "mcp__git__put"), "Second");
    // It changes between a request and the call that comes of it.
    change(&chat, "Third");
    chat.run("mcp__git__put", json!({}));
    // The history has its call, loaded or not.
    chat.session.unload(["mcp__git__get"]);
    for _ in 0..2 {
        assert_eq!(about(&mut chat, "mcp__git__get"), "Gets");
        assert_eq!(about(&mut chat, "mcp__git__put"), "Second");
        chat.restart();
    }
    // A new history knows nothing of the old forms of what is loaded.
    let view = chat.view();
    chat.engine.settle_anew(&mut chat.session, &view);
    assert_eq!(about(&mut chat, "mcp__git__put"), "Third");
}

#[test]
fn of_what_only_waits_the_names_are_kept() {
    let mut chat = hosted(many(2_000));
    chat.run("mcp__many__t00007", json!({}));
    let kept = saved(&chat.session);
    assert_eq!(kept["waiting_tools"].as_array().unwrap().len(), 2_000);
    assert_eq!(kept["given_tools"].as_array().unwrap().len(), 1);
    let bytes = kept.to_string().len();
    assert!(bytes < 2_000 * 25, "{bytes} bytes");
    let shown = chat.prepare();
    chat.restart();
    assert_eq!(chat.prepare().deferred, shown.deferred);
    assert_eq!(saved(&chat.session), kept);
}

#[test]
fn who_goes_on_without_the_providers_search_keeps_no_list_for_it() {
    let mut chat = hosted(two_servers());
    let snapshot = chat.session.snapshot().without_native();
    let without = serde_json::to_value(&snapshot).unwrap();
    let (view, snapshot) = (chat.view(), Saved::Snapshot(Box::new(snapshot)));
    let resumed = chat.engine.resume(&view, snapshot, Strategy::Dispatch, Fetched::new());
    chat.session.without_native();
    for kept in [without, saved(&resumed.unwrap().0), saved(&chat.session)] {
        assert!(kept.get("waiting_tools").is_none(), "{kept}");
    }
    assert_eq!(declared(&mut chat), [""; 0]);
}
