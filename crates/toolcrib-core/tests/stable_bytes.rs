//! What the model was shown never changes under a conversation, so a prompt cache holds.

mod support;

use std::io::Write;
use std::process::Command;

use serde_json::{Value, json};
use support::{Chat, deferring, registry, server, tool};
use toolcrib_core::{
    Definition, Fingerprint, Group, Mode, Preset, Registry, ServerTools, Settings, Strategy,
    StrategyChoice, ToolName,
};

const SERVERS: [&str; 5] = ["git", "db", "mail", "files", "wiki"];

fn five_servers() -> Vec<ServerTools> {
    SERVERS.map(|name| server(name, &[("get", "Gets"), ("put", "Puts")])).to_vec()
}

fn settings(preset: Preset, strategy: StrategyChoice) -> Settings {
    let mut settings = deferring(preset);
    settings.strategy = strategy;
    settings.eager.always = vec!["mcp__mail__put".to_owned()];
    settings
}

/// Loads one tool in the way the preset knows.
fn load(chat: &mut Chat, preset: Preset, server: &str, tool: &str) {
    let name = format!("mcp__{server}__{tool}");
    let (verb, arguments) = match preset {
        Preset::Crib | Preset::Groups => {
            ("load_tools", json!({"group_id": server, "tool_names": [tool]}))
        }
        Preset::Stubs => ("tool_search", json!({"query": format!("select:{name}")})),
        Preset::Exact => ("tool_search", json!({"query": name})),
        Preset::Lazy => ("tool_search", json!({"name": name})),
        Preset::Regex => ("tool_search_regex", json!({"pattern": format!("^{name}$")})),
    };
    let answer = chat.answer(verb, arguments);
    assert!(!answer.is_error, "{}", answer.content);
}

/// A conversation to which everything happens that can; the hash after each event.
fn eventful(preset: Preset, servers: Vec<ServerTools>) -> Vec<Fingerprint> {
    let registry = registry(servers);
    let mut chat = Chat::new(settings(preset, StrategyChoice::Dispatch), registry);
    let mut hashes = vec![chat.hash()];
    for name in SERVERS {
        load(&mut chat, preset, name, "get");
        hashes.push(chat.hash());
    }
    let call = |name: &str| json!({"tool_name": name, "arguments": {"text": "x"}});
    let dispatcher = if preset == Preset::Groups { "deferred_tool_call" } else { "call_tool" };
    chat.run(dispatcher, call("mcp__git__put"));
    chat.mistake(dispatcher, call("mcp__git__nothing"));
    hashes.push(chat.hash());
    chat.session.unload(["mcp__git__get"]);
    chat.session.unload_group(&"mcp:db".into());
    hashes.push(chat.hash());
    chat.registry.replace_server(server("late", &[("hello", "Says hello")]));
    chat.turn();
    hashes.push(chat.hash());
    chat.registry.replace_server(server("wiki", &[("get", "Gets otherwise"), ("new", "")]));
    chat.turn();
    hashes.push(chat.hash());
    chat.registry.remove_server("files");
    chat.turn();
    hashes.push(chat.hash());
    for fork in [chat.session.fork(), chat.session.fork_without_loading()] {
        let parent = std::mem::replace(&mut chat.session, fork);
        chat.turn();
        chat.step(dispatcher, call("mcp__late__hello"));
        hashes.push(chat.hash());
        chat.session = parent;
    }
    chat.restart();
    hashes.push(chat.hash());
    chat.turn();
    chat.run(dispatcher, call("mcp__late__hello"));
    hashes.push(chat.hash());
    hashes
}

#[test]
fn under_dispatch_section_and_tools_hash_the_same_whatever_happens() {
    for preset in Preset::ALL {
        let hashes = eventful(preset, five_servers());
        assert_eq!(hashes.len(), 15);
        assert_eq!(hashes, vec![hashes[0]; 15], "{preset}");
    }
}

/// Set in the processes that the test below starts: the order in which to register.
const ORDER: &str = "TOOLCRIB_TEST_ORDER";

#[test]
fn two_processes_that_register_in_opposite_order_show_the_same_bytes() {
    if let Ok(order) = std::env::var(ORDER) {
        let mut servers = five_servers();
        if order == "back" {
            servers.reverse();
        }
        for preset in Preset::ALL {
            let hash = eventful(preset, servers.clone())[0];
            writeln!(std::io::stdout(), "shown: {preset} {hash}").unwrap();
        }
        return;
    }
    let this = "two_processes_that_register_in_opposite_order_show_the_same_bytes";
    let hashes = ["forth", "back"].map(|order| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output =
            child.args(["--exact", this, "--nocapture"]).env(ORDER, order).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once("shown: "));
        lines.map(|(_, hash)| hash.to_owned()).collect::<Vec<_>>()
    });
    assert_eq!(hashes[0].len(), Preset::ALL.len());
    assert_eq!(hashes[0], hashes[1]);
}

fn is_strict_prefix(old: &[Definition], new: &[Definition]) -> bool {
    let bytes = |tools: &[Definition]| -> Vec<String> {
        tools.iter().map(|tool| tool.neutral().get().to_owned()).collect()
    };
    old.len() < new.len() && bytes(new).starts_with(&bytes(old))
}

#[test]
fn under_inject_the_old_array_is_a_strict_prefix_of_the_new_after_every_load() {
    for preset in Preset::ALL {
        let mut chat =
            Chat::new(settings(preset, StrategyChoice::Inject), registry(five_servers()));
        let section = chat.section();
        let mut old = chat.prepare().tools;
        let mut grown = |chat: &mut Chat, what: &str| {
            let new = chat.prepare().tools;
            assert!(is_strict_prefix(&old, &new), "{preset}: {what}");
            assert_eq!(chat.section(), section, "{preset}: {what}");
            old = new;
        };
        load(&mut chat, preset, "wiki", "put");
        grown(&mut chat, "a load");
        load(&mut chat, preset, "db", "get");
        grown(&mut chat, "a load that sorts before");
        chat.registry.replace_server(server("wiki", &[("put", "Other"), ("get", "")]));
        chat.turn();
        load(&mut chat, preset, "wiki", "put");
        load(&mut chat, preset, "git", "get");
        grown(&mut chat, "after a loaded tool changed");
        chat.registry.remove_server("db");
        chat.turn();
        load(&mut chat, preset, "git", "put");
        grown(&mut chat, "after a loaded tool's server went");
        chat.run("mcp__files__get", json!({}));
        grown(&mut chat, "a blind call");
        chat.restart();
        load(&mut chat, preset, "files", "put");
        grown(&mut chat, "after a restart");
    }
}

#[test]
fn a_load_that_brings_nothing_new_leaves_the_array_as_it_is() {
    let registry = registry(five_servers());
    let mut chat = Chat::new(settings(Preset::Crib, StrategyChoice::Inject), registry);
    load(&mut chat, Preset::Crib, "git", "get");
    let before = chat.hash();
    load(&mut chat, Preset::Crib, "git", "get");
    chat.run("mcp__git__get", json!({}));
    assert_eq!(chat.hash(), before);
}

#[test]
fn a_server_that_connects_late_is_announced_once_at_the_end() {
    let mut chat = Chat::new(deferring(Preset::Crib), registry([server("git", &[("log", "")])]));
    assert!(chat.told().is_empty());
    chat.registry.replace_server(server("late", &[("hello", ""), ("bye", "")]));
    // Nothing changes in the middle of a turn.
    assert!(chat.told().is_empty());
    let expected = "New tools are available in `mcp:late`: bye, hello. Get their schemas with \
                    `tool_search`.";
    assert_eq!(chat.news(), [expected]);
    assert!(chat.told().is_empty());
    assert!(chat.news().is_empty());
    assert!(!chat.section().contains("late"));
}

#[test]
fn tools_that_go_and_come_back_are_announced_as_such() {
    let servers = || server("git", &[("log", ""), ("blame", "")]);
    let mut chat = Chat::new(deferring(Preset::Crib), registry([servers()]));
    chat.run("mcp__git__log", json!({}));
    chat.registry.remove_server("git");
    assert_eq!(chat.news(), ["These tools of `mcp:git` are no longer available: blame, log."]);
    chat.registry.replace_server(servers());
    assert_eq!(
        chat.news(),
        [
            "New tools are available in `mcp:git`: blame. Get their schemas with `tool_search`.",
            "These tools of `mcp:git` are available again: log.",
        ]
    );
    chat.run("mcp__git__log", json!({}));
}

#[test]
fn a_changed_tool_is_announced_with_its_new_definition_if_the_model_was_shown_the_old() {
    for strategy in [StrategyChoice::Dispatch, StrategyChoice::Inject] {
        let registry = registry([server("git", &[("log", "Old"), ("diff", "Old")])]);
        let mut chat = Chat::new(settings(Preset::Crib, strategy), registry);
        chat.run("mcp__git__log", json!({}));
        chat.registry.replace_server(server("git", &[("log", "New"), ("diff", "New")]));
        let before = chat.prepare().tools;
        let definition = json!({"name": "mcp__git__log", "description": "New", "input_schema":
            {"type": "object", "properties": {"text": {"type": "string"}}}});
        let expected =
            format!("These tools have changed. Their definitions are now:\n{definition}");
        assert_eq!(chat.news(), [expected]);
        assert_eq!(chat.prepare().tools, before);
        // Now that the model has it, nothing is left to tell, nor is a call of it a load.
        assert_eq!(chat.restart().changed, [] as [std::sync::Arc<str>; 0]);
        assert!(chat.told().is_empty());
        assert_eq!(chat.run("mcp__git__log", json!({})).effects.loaded, []);
    }
}

#[test]
fn a_tool_that_comes_back_changed_is_announced_with_its_new_definition() {
    let mut chat =
        Chat::new(deferring(Preset::Regex), registry([server("git", &[("log", "Old")])]));
    chat.run("mcp__git__log", json!({}));
    chat.registry.remove_server("git");
    chat.news();
    chat.registry.replace_server(server("git", &[("log", "New")]));
    let [told] = chat.news().try_into().unwrap();
    assert!(told.starts_with("These tools have changed.") && told.contains("New"), "{told}");
}

#[test]
fn in_full_mode_tools_that_come_late_are_put_behind() {
    let mut settings = Settings::default();
    settings.mode = Mode::Full;
    let mut chat = Chat::new(settings, registry([server("git", &[("log", "")])]));
    let old = chat.prepare();
    chat.registry.replace_server(server("a", &[("x", "")]));
    let report = chat.turn();
    assert_eq!(report.preloaded, ["mcp__a__x".into()]);
    let new = chat.prepare();
    assert!(is_strict_prefix(&old.tools, &new.tools));
    assert_eq!((new.announcements.len(), chat.loaded()), (0, vec!["mcp__a__x".to_owned()]));
    chat.registry.remove_server("git");
    assert_eq!(chat.news(), ["These tools of `mcp:git` are no longer available: log."]);
    assert_eq!(chat.prepare().tools, new.tools);
    // And across a restart, too.
    chat.registry.replace_server(server("b", &[("y", "")]));
    chat.restart();
    assert!(is_strict_prefix(&new.tools, &chat.prepare().tools));
    chat.run("mcp__b__y", json!({}));
}

#[test]
fn an_eager_tool_that_comes_late_is_loaded_at_once() {
    let late = || server("late", &[("hello", ""), ("bye", "")]);
    for (strategy, joins) in [(StrategyChoice::Dispatch, false), (StrategyChoice::Inject, true)] {
        let mut settings = settings(Preset::Crib, strategy);
        settings.eager.always = vec!["hello".to_owned()];
        settings.preload = vec!["late.bye".to_owned()];
        let mut chat = Chat::new(settings, registry([server("git", &[("log", "")])]));
        chat.registry.replace_server(late());
        let report = chat.turn();
        assert_eq!(report.preloaded, ["mcp__late__bye".into(), "mcp__late__hello".into()]);
        let shown = chat.prepare();
        let told: Vec<bool> =
            shown.announcements.iter().map(|it| it.starts_with("Now loaded:\n{")).collect();
        assert_eq!(told, if joins { vec![] } else { vec![true] });
        assert_eq!(shown.tools.last().unwrap().name().contains("late"), joins);
    }
}

#[test]
fn a_group_declared_late_is_announced() {
    let mut chat = Chat::new(deferring(Preset::Groups), registry([server("git", &[("log", "")])]));
    chat.registry.declare(Group::new("crm").with_description("Customers")).unwrap();
    assert_eq!(chat.news(), ["New tool groups are available: crm."]);
    chat.registry.remove_group(&"crm".into());
    assert_eq!(chat.news(), ["These tool groups are no longer available: crm."]);
}

#[test]
fn announcements_name_the_group_that_has_the_tool_not_one_with_a_tool_of_that_name() {
    let mut chat = Chat::new(deferring(Preset::Crib), registry([server("a", &[("find", "")])]));
    chat.registry.register(tool(ToolName::host("find"), "")).unwrap();
    let [told] = chat.news().try_into().unwrap();
    assert!(told.starts_with("New tools are available in `host`: find."), "{told}");
    chat.registry.remove(&ToolName::host("find"));
    assert_eq!(chat.news(), ["These tools of `host` are no longer available: find."]);
}

#[test]
fn the_prefix_is_that_of_the_first_request_even_if_the_turn_began_before_a_change() {
    let registry = registry([server("git", &[("log", "")])]);
    let mut chat = Chat::unsettled(Default::default(), deferring(Preset::Crib), registry);
    chat.turn();
    chat.registry.replace_server(server("late", &[("hello", "")]));
    assert!(chat.section().contains("hello"));
    assert!(chat.news().is_empty(), "what the prefix lists is no news");
}

#[test]
fn conversations_that_begin_on_one_catalog_show_the_same_bytes() {
    let registry = registry(five_servers());
    let mut first = Chat::new(deferring(Preset::Crib), registry);
    load(&mut first, Preset::Crib, "git", "get");
    let hash = first.hash();
    first.session = toolcrib_core::Session::new();
    assert_eq!(first.hash(), hash);
    let registry = Registry::default();
    for servers in five_servers().into_iter().rev() {
        registry.replace_server(servers);
    }
    assert_eq!(Chat::new(deferring(Preset::Crib), registry).hash(), hash);
}

#[test]
fn a_reload_after_compaction_serves_the_same_bytes_and_the_tool_still_runs() {
    let mut chat = Chat::new(deferring(Preset::Crib), registry(five_servers()));
    let ask = |chat: &mut Chat| chat.answer("load_tools", json!({"group_id": "mcp:git"})).content;
    let (hash, first) = (chat.hash(), ask(&mut chat));
    // The history that held the schemas is gone; the ledger and the prefix are not.
    assert_eq!(ask(&mut chat), first);
    assert_eq!(chat.hash(), hash);
    chat.run("call_tool", json!({"tool_name": "mcp__git__get", "arguments": {}}));
    assert_eq!(chat.session.strategy(), Some(Strategy::Dispatch));
    let search =
        |chat: &mut Chat| -> Value { chat.json("tool_search", json!({"query": "wiki get"})) };
    let found = search(&mut chat);
    assert_eq!(search(&mut chat)["tools"], found["tools"]);
}
