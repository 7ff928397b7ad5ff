//! Strategy `native`: tools reach the model in the provider's own form, and stay declared.

mod support;

use std::sync::Arc;

use serde_json::{Value, json};
use support::{Chat, deferring, denying, registry, server, tool};
use toolcrib_core::{
    Answer, Deferral, Engine, Fetched, Group, Loaded, Mode, Policy, Presentation, Preset, Registry,
    Revealed, Saved, Session, Settings, Strategy, StrategyChoice, ToolChange, ToolName,
};

const SERVERS: [&str; 5] = ["git", "db", "mail", "files", "wiki"];

fn five_servers() -> Registry {
    registry(SERVERS.map(|name| server(name, &[("get", "Gets"), ("put", "Puts")])))
}

fn settings(preset: Preset) -> Settings {
    let mut settings = deferring(preset);
    settings.strategy = StrategyChoice::Native;
    settings.eager.always = vec!["mcp__mail__put".to_owned()];
    settings
}

/// A conversation whose driver can render native, after its first request.
fn chat(settings: Settings, registry: Registry) -> Chat {
    let mut chat = Chat::unsettled(Policy::default(), settings, registry);
    chat.session.choose(Strategy::Native);
    chat.turn();
    chat.prepare();
    chat
}

fn native(preset: Preset) -> Chat {
    chat(settings(preset), five_servers())
}

/// Asks for tools of a server in the way the preset knows.
fn find(chat: &mut Chat, preset: Preset, server: &str, tools: &[&str]) -> Answer {
    let names: Vec<String> = tools.iter().map(|tool| format!("mcp__{server}__{tool}")).collect();
    let (verb, arguments) = match preset {
        Preset::Groups => ("load_tools", json!({"group_id": server, "tool_names": tools})),
        Preset::Crib | Preset::Stubs => {
            ("tool_search", json!({"query": format!("select:{}", names.join(","))}))
        }
        Preset::Exact => ("tool_search", json!({"query": names.join(",")})),
        Preset::Lazy => ("tool_search", json!({"name": names[0]})),
        Preset::Regex => {
            ("tool_search_regex", json!({"pattern": format!("^({})$", names.join("|"))}))
        }
    };
    let answer = chat.answer(verb, arguments);
    assert!(!answer.is_error, "{}", answer.content);
    answer
}

fn revealed(tools: &[Revealed]) -> Vec<&str> {
    tools.iter().map(|it| &**it.tool.name()).collect()
}

fn deferred(shown: &Presentation) -> Vec<&str> {
    shown.deferred.iter().map(|tool| &**tool.name()).collect()
}

fn removed(names: &[&str]) -> ToolChange {
    ToolChange { removed: names.iter().map(|name| Arc::from(*name)).collect(), added: vec![] }
}

fn resume(engine: &Engine, chat: &Chat, json: &str, strategy: Strategy) -> Result<Session, String> {
    let saved = Saved::from_json(json).map_err(|error| error.to_string())?;
    let resumed = engine.resume(&chat.view(), saved, strategy, Fetched::new());
    resumed.map(|(session, _)| session).map_err(|error| error.to_string())
}

fn engine(preset: Preset, strategy: StrategyChoice) -> Engine {
    let mut settings = settings(preset);
    settings.strategy = strategy;
    Engine::new(settings).expect("the settings are sound")
}

fn json_of(session: &Session) -> String {
    serde_json::to_string(&session.snapshot()).expect("it serialises")
}

#[test]
fn who_decides_on_the_strategy() {
    use Strategy::{Dispatch, Inject, Native};
    let settled = |preset, choice, chosen: Option<Strategy>| {
        let mut settings = deferring(preset);
        settings.strategy = choice;
        let mut chat = Chat::unsettled(Policy::default(), settings, five_servers());
        chosen.into_iter().for_each(|chosen| chat.session.choose(chosen));
        chat.prepare();
        chat.session.strategy().unwrap()
    };
    let all = [None, Some(Dispatch), Some(Inject), Some(Native)];
    let row = |preset, choice| all.map(|chosen| settled(preset, choice, chosen));
    for preset in Preset::ALL {
        assert_eq!(row(preset, StrategyChoice::Dispatch), [Dispatch; 4]);
        assert_eq!(row(preset, StrategyChoice::Inject), [Inject; 4]);
        assert_eq!(row(preset, StrategyChoice::Native), [Dispatch, Dispatch, Dispatch, Native]);
        let own = preset.strategy();
        assert_eq!(row(preset, StrategyChoice::Auto), [own, Dispatch, Inject, Native]);
    }
}

#[test]
fn the_model_gets_finders_and_no_dispatcher() {
    let expected: [(Preset, &[&str]); 6] = [
        (Preset::Crib, &["tool_search", "load_tools"]),
        (Preset::Regex, &["tool_search_regex"]),
        (Preset::Stubs, &["tool_search"]),
        (Preset::Lazy, &["tool_search"]),
        (Preset::Groups, &["load_tools"]),
        (Preset::Exact, &["tool_search"]),
    ];
    for (preset, verbs) in expected {
        let mut chat = native(preset);
        let tools: Vec<&str> = verbs.iter().copied().chain(["mcp__mail__put"]).collect();
        assert_eq!(chat.tools(), tools, "{preset}");
        assert!(!chat.section().contains("call_tool"), "{preset}");
        if ![Preset::Lazy].contains(&preset) {
            let verb = chat.prepare().tools[0].description().to_owned();
            assert!(verb.contains("in your tool list: call them by name."), "{preset}: {verb}");
        }
        assert_eq!(
            chat.mistake("call_tool", json!({"tool_name": "mcp__git__get"}))["error"]
                .as_str()
                .unwrap()
                .split('`')
                .nth(1),
            Some("call_tool")
        );
    }
}

#[test]
fn a_finder_reveals_what_it_shows_and_says_nothing_that_need_not_be_said() {
    for preset in Preset::ALL {
        let mut chat = native(preset);
        let answer = find(&mut chat, preset, "git", &["get"]);
        let expected = if preset == Preset::Groups {
            r#"{"group_id":"mcp:git","expanded":true,"tool_names":["mcp__git__get"],"remaining":1}"#
        } else {
            ""
        };
        assert_eq!(answer.content, expected, "{preset}");
        assert_eq!(revealed(&answer.effects.revealed), ["mcp__git__get"], "{preset}");
        assert_eq!(answer.effects.revealed[0].group, "mcp:git".into());
        assert_eq!(answer.effects.loaded, [ToolName::mcp("git", "get")]);
        let shown = chat.prepare();
        assert_eq!(deferred(&shown), ["mcp__git__get"], "{preset}");
        assert_eq!(shown.change, ToolChange::default(), "{preset}: the answer has told it");
        // Found again, it is shown again, in the same bytes.
        let again = find(&mut chat, preset, "git", &["get"]);
        assert_eq!(again.effects.revealed, answer.effects.revealed, "{preset}");
        assert_eq!(again.effects.loaded, []);
        assert_eq!(deferred(&chat.prepare()), ["mcp__git__get"]);
        chat.run("mcp__git__get", json!({"text": "x"}));
    }
}

#[test]
fn tools_of_the_first_request_are_named_and_not_revealed() {
    for preset in Preset::ALL {
        let mut chat = native(preset);
        let answer = find(&mut chat, preset, "mail", &["put"]);
        let remark = "Already in your tool list, to be called directly: mcp__mail__put.";
        assert!(answer.content.contains(remark), "{preset}: {}", answer.content);
        assert_eq!(answer.effects.revealed, []);
        assert_eq!(deferred(&chat.prepare()), [""; 0]);
    }
}

#[test]
fn nothing_found_reads_as_under_dispatch() {
    for preset in Preset::ALL {
        let mut dispatching = settings(preset);
        dispatching.strategy = StrategyChoice::Dispatch;
        let mut chats = [Chat::new(dispatching, five_servers()), native(preset)];
        let (verb, arguments) = match preset {
            Preset::Regex => ("tool_search_regex", json!({"pattern": "zebra"})),
            Preset::Groups => ("load_tools", json!({"group_id": "zebra"})),
            Preset::Lazy => ("tool_search", json!({"name": "zebra"})),
            _ => ("tool_search", json!({"query": "select:zebra"})),
        };
        let [before, native] = chats.each_mut().map(|chat| chat.answer(verb, arguments.clone()));
        assert_eq!((&native.content, native.is_error), (&before.content, before.is_error));
        assert_eq!(native.effects, before.effects, "{preset}");
        assert_ne!(native.content, "");
    }
}

#[test]
fn remarks_tell_what_was_left_out() {
    let mut chat = native(Preset::Crib);
    let query = json!({"query": "select:mcp__git__get,mcp__git__gte,mcp__db__get"});
    let answer = chat.answer("tool_search", query);
    assert!(answer.content.starts_with("Not found: mcp__git__gte. Nearest to `mcp__git__gte`: "));
    assert_eq!(revealed(&answer.effects.revealed), ["mcp__git__get", "mcp__db__get"]);
    let answer = chat.answer("tool_search", json!({"query": "/get/", "limit": 2}));
    assert_eq!(answer.content, "3 more match: say more precisely what you need.");

    let mut small = settings(Preset::Crib);
    small.result_bytes = 1;
    let mut chat = self::chat(small, five_servers());
    let answer = chat.answer("load_tools", json!({"group_id": "git"}));
    assert_eq!(support::parse(&answer.content)["omitted"], json!(["mcp__git__put"]));
    assert_eq!(revealed(&answer.effects.revealed), ["mcp__git__get"]);
    let answer = chat.answer("tool_search", json!({"query": "select:mcp__db__get,mcp__db__put"}));
    assert_eq!(
        answer.content,
        "Left out because their definitions are long; ask for them with select: mcp__db__put."
    );

    let mut chat = native(Preset::Regex);
    let answer = chat.answer("tool_search_regex", json!({"pattern": "get$", "limit": 3}));
    assert_eq!(answer.content, "2 more match: narrow the pattern or raise `limit`.");
    assert_eq!(answer.effects.revealed.len(), 3);
}

#[test]
fn lazy_lists_by_query_without_revealing() {
    let mut chat = native(Preset::Lazy);
    let answer = chat.answer("tool_search", json!({"query": "gets"}));
    assert_eq!(answer.effects.revealed, []);
    assert!(answer.content.contains("mcp__git__get"), "{}", answer.content);
    assert_eq!(deferred(&chat.prepare()), [""; 0]);
}

/// Everything that can happen; `deferred` only grows, and section and tools stay.
#[test]
fn section_and_tools_hash_the_same_and_what_was_given_stays_given() {
    for preset in Preset::ALL {
        let mut chat = native(preset);
        let hash = chat.hash();
        let mut given: Vec<String> = Vec::new();
        let mut check = |chat: &mut Chat, what: &str, more: usize| {
            let shown = chat.prepare();
            assert_eq!(shown.fingerprint(), hash, "{preset}: {what}");
            let now: Vec<String> =
                shown.deferred.iter().map(|tool| tool.neutral().get().to_owned()).collect();
            assert!(now.starts_with(&given), "{preset}: {what}");
            assert_eq!(now.len(), given.len() + more, "{preset}: {what}");
            given = now;
        };
        check(&mut chat, "nothing yet", 0);
        for name in SERVERS {
            find(&mut chat, preset, name, &["get"]);
            check(&mut chat, "a load", 1);
        }
        chat.run("mcp__git__put", json!({}));
        check(&mut chat, "a call of what was not found", 1);
        chat.session.unload(["mcp__git__get"]);
        chat.session.unload_group(&"mcp:db".into());
        check(&mut chat, "unloading", 0);
        find(&mut chat, preset, "git", &["get"]);
        check(&mut chat, "loading again", 0);
        chat.registry.replace_server(server("late", &[("hello", "Says hello")]));
        chat.turn();
        check(&mut chat, "a server that comes late", 0);
        chat.registry.replace_server(server("wiki", &[("get", "Gets otherwise"), ("new", "")]));
        chat.turn();
        check(&mut chat, "a change", 0);
        find(&mut chat, preset, "wiki", &["get"]);
        check(&mut chat, "a changed tool found again", 0);
        chat.registry.remove_server("files");
        chat.turn();
        check(&mut chat, "a server that goes", 0);
        for fork in [chat.session.fork(), chat.session.fork_without_loading()] {
            let parent = std::mem::replace(&mut chat.session, fork);
            chat.turn();
            check(&mut chat, "a fork", 0);
            chat.session = parent;
        }
        chat.restart();
        check(&mut chat, "a restart", 0);
        find(&mut chat, preset, "late", &["hello"]);
        check(&mut chat, "a load after it", 1);
    }
}

#[test]
fn a_changed_tool_keeps_its_declaration_and_the_change_is_told_in_words() {
    let mut chat = native(Preset::Crib);
    find(&mut chat, Preset::Crib, "wiki", &["get"]);
    chat.registry.replace_server(server("wiki", &[("get", "New")]));
    // In the middle of a turn, by the answer that shows the tool; and no second time.
    let answer = find(&mut chat, Preset::Crib, "wiki", &["get"]);
    assert_eq!(answer.effects.revealed[0].tool.description(), "Gets");
    let (remark, definition) = answer.content.split_once('\n').unwrap();
    assert!(remark.starts_with("These have changed since you were first given them."));
    assert_eq!(support::parse(definition)["description"], "New");
    assert_eq!(chat.news(), ["These tools of `mcp:wiki` are no longer available: put."]);
    // At the beginning of a turn, as an announcement.
    chat.registry.replace_server(server("wiki", &[("get", "Newer")]));
    let [told] = chat.news().try_into().unwrap();
    assert!(told.starts_with("These tools have changed.") && told.contains("Newer"), "{told}");
    assert_eq!(chat.prepare().deferred[0].description(), "Gets");
    // The history shows the first form again, so the answer says again what holds.
    let answer = find(&mut chat, Preset::Crib, "wiki", &["get"]);
    assert!(answer.content.contains("Newer"), "{}", answer.content);
    let loaded = chat.answer("load_tools", json!({"group_id": "wiki"}));
    let hint = support::parse(&loaded.content)["hint"].as_str().unwrap().to_owned();
    assert!(hint.starts_with("These have changed") && hint.contains("Newer"), "{hint}");
}

#[test]
fn what_the_host_loads_and_unloads_is_a_change_handed_out_once() {
    let mut chat = native(Preset::Crib);
    let view = chat.view();
    assert_eq!(chat.engine.preload(&mut chat.session, &view, ["git.get", "x"]), ["x"]);
    // It survives until it is handed out.
    chat.restart();
    let shown = chat.prepare();
    assert_eq!(
        (revealed(&shown.change.added), shown.change.removed.len()),
        (vec!["mcp__git__get"], 0)
    );
    assert_eq!(shown.change.added[0].group, "mcp:git".into());
    assert_eq!((deferred(&shown), shown.announcements.len()), (vec!["mcp__git__get"], 0));
    assert_eq!(shown.tokens().announcements, shown.deferred[0].tokens());
    assert_eq!(chat.prepare().change, ToolChange::default());

    chat.session.unload(["mcp__git__get"]);
    chat.restart();
    assert_eq!(chat.prepare().change, removed(&["mcp__git__get"]));
    assert_eq!(chat.prepare().change, ToolChange::default());
    // Loaded again, it is given again: by the host, or by an answer.
    chat.engine.preload(&mut chat.session, &view, ["git.get"]);
    assert_eq!(revealed(&chat.prepare().change.added), ["mcp__git__get"]);
    chat.session.unload_group(&"mcp:git".into());
    assert_eq!(chat.prepare().change, removed(&["mcp__git__get"]));
    let answer = find(&mut chat, Preset::Crib, "git", &["get"]);
    assert_eq!(revealed(&answer.effects.revealed), ["mcp__git__get"]);
    assert_eq!(chat.prepare().change, ToolChange::default());
}

#[test]
fn what_is_undone_before_it_is_told_is_not_told() {
    let mut chat = native(Preset::Crib);
    let view = chat.view();
    let preload = |chat: &mut Chat| chat.engine.preload(&mut chat.session, &view, ["git.get"]);
    preload(&mut chat);
    chat.session.unload(["mcp__git__get"]);
    assert_eq!(chat.prepare().change, ToolChange::default());

    find(&mut chat, Preset::Crib, "git", &["get"]);
    let back: [fn(&mut Chat); 3] = [
        |chat| drop(find(chat, Preset::Crib, "git", &["get"])),
        |chat| drop(chat.run("mcp__git__get", json!({}))),
        |chat| {
            let view = chat.view();
            chat.engine.preload(&mut chat.session, &view, ["git.get"]);
        },
    ];
    for back in back {
        chat.session.unload(["mcp__git__get"]);
        back(&mut chat);
        assert_eq!(chat.prepare().change, ToolChange::default());
    }
    chat.session.unload(["mcp__git__get"]);
    chat.prepare();
    preload(&mut chat);
    find(&mut chat, Preset::Crib, "git", &["get"]);
    assert_eq!(chat.prepare().change, ToolChange::default(), "the answer has given it");
}

#[test]
fn eager_and_immediate_tools_that_come_late_are_a_change() {
    let mut settings = settings(Preset::Crib);
    settings.eager.always.push("hello".to_owned());
    let mut chat = chat(settings, five_servers());
    let hash = chat.hash();
    chat.registry.replace_server(server("late", &[("hello", ""), ("bye", "")]));
    assert_eq!(chat.turn().preloaded, ["mcp__late__hello".into()]);
    let shown = chat.prepare();
    assert_eq!(revealed(&shown.change.added), ["mcp__late__hello"]);
    let told = "New tools are available in `mcp:late`: bye. Get their schemas with `tool_search`.";
    assert_eq!(shown.announcements, [told]);
    assert_eq!(shown.fingerprint(), hash);
}

#[test]
fn the_token_budget_puts_nothing_out() {
    let mut settings = settings(Preset::Crib);
    settings.loaded_tokens = Some(1);
    let mut chat = chat(settings, five_servers());
    SERVERS.iter().for_each(|name| drop(find(&mut chat, Preset::Crib, name, &["get"])));
    assert_eq!(chat.turn().evicted, [] as [Arc<str>; 0]);
    assert_eq!(chat.loaded().len(), 5);
}

#[test]
fn few_tools_are_sent_in_full_and_late_ones_put_behind() {
    let mut settings = settings(Preset::Crib);
    settings.mode = Mode::Auto;
    let mut chat = chat(settings, five_servers());
    assert_eq!((chat.session.is_deferred(), chat.tools().len()), (Some(false), 10));
    chat.registry.replace_server(server("late", &[("hello", "")]));
    chat.turn();
    let shown = chat.prepare();
    assert_eq!((shown.tools.len(), shown.deferred.len()), (11, 0));
    assert!(shown.change.is_empty());
    // Nothing of it was native, so nothing changes without.
    let hash = chat.hash();
    chat.session.without_native();
    assert_eq!(chat.hash(), hash);
}

#[test]
fn what_a_loader_brings_is_revealed() {
    let registry = five_servers();
    registry.declare(Group::new("crm").with_tool_names(["find_customer"])).unwrap();
    let mut chat = chat(settings(Preset::Crib), registry);
    chat.loaders.insert("crm".into(), Ok(vec![tool(ToolName::host("find_customer"), "")]));
    let answer = chat.answer("load_tools", json!({"group_id": "crm"}));
    assert_eq!(revealed(&answer.effects.revealed), ["find_customer"]);
    assert_eq!(chat.session.loaded(&"crm".into()), Loaded::All);
}

#[test]
fn a_native_session_is_resumed_as_such_by_who_asks_for_it() {
    let mut chat = native(Preset::Crib);
    find(&mut chat, Preset::Crib, "git", &["get"]);
    let (json, shown) = (json_of(&chat.session), chat.prepare());
    for choice in [StrategyChoice::Native, StrategyChoice::Auto] {
        let engine = engine(Preset::Crib, choice);
        let mut session = resume(&engine, &chat, &json, Strategy::Native).unwrap();
        assert_eq!(session.strategy(), Some(Strategy::Native));
        assert_eq!(json_of(&session), json);
        assert_eq!(engine.prepare(&mut session, &chat.view()).unwrap(), shown);
        // Who asks for another gets a reason.
        let refused = resume(&engine, &chat, &json, Strategy::Dispatch).unwrap_err();
        assert!(refused.contains("the saved session uses `native`"), "{refused}");
    }
    for choice in [StrategyChoice::Dispatch, StrategyChoice::Inject] {
        let engine = engine(Preset::Crib, choice);
        assert!(resume(&engine, &chat, &json, Strategy::Native).is_err());
    }
}

#[test]
fn a_dispatch_session_goes_on_as_dispatch_where_native_is_preferred() {
    let mut settings = settings(Preset::Stubs);
    settings.strategy = StrategyChoice::Dispatch;
    let mut chat = Chat::new(settings, five_servers());
    find(&mut chat, Preset::Stubs, "git", &["get"]);
    let (json, hash) = (json_of(&chat.session), chat.hash());
    for choice in [StrategyChoice::Native, StrategyChoice::Auto] {
        let engine = engine(Preset::Stubs, choice);
        let mut session = resume(&engine, &chat, &json, Strategy::Dispatch).unwrap();
        assert_eq!(session.strategy(), Some(Strategy::Dispatch));
        let shown = engine.prepare(&mut session, &chat.view()).unwrap();
        assert_eq!((shown.fingerprint(), shown.deferred.len()), (hash, 0));
    }
}

#[test]
fn a_snapshot_of_the_version_before_is_read() {
    let mut chat = Chat::new(deferring(Preset::Crib), five_servers());
    find(&mut chat, Preset::Crib, "git", &["get"]);
    let json = json_of(&chat.session);
    let old = json.replacen("\"version\":2", "\"version\":1", 1);
    assert_ne!(old, json);
    let session = resume(&chat.engine, &chat, &old, Strategy::Dispatch).unwrap();
    assert_eq!(json_of(&session), json);
}

#[test]
fn a_session_that_had_not_begun_is_native_if_it_is_resumed_so() {
    let mut chat = Chat::unsettled(Policy::default(), settings(Preset::Crib), five_servers());
    let json = json_of(&chat.session);
    chat.session = resume(&chat.engine, &chat, &json, Strategy::Native).unwrap();
    chat.prepare();
    assert_eq!(chat.session.strategy(), Some(Strategy::Native));
    // And groups that a host has kept are given at the first request.
    let groups = r#"{"mcp:git": ["get"]}"#;
    chat.session = resume(&chat.engine, &chat, groups, Strategy::Native).unwrap();
    let shown = chat.prepare();
    assert_eq!(deferred(&shown), ["mcp__git__get"]);
    assert_eq!(revealed(&shown.change.added), ["mcp__git__get"]);
}

/// What holds of a conversation that went on without native.
fn goes_on_with_dispatch(chat: &mut Chat, preset: Preset) {
    let shown = chat.prepare();
    assert_eq!(chat.session.strategy(), Some(Strategy::Dispatch));
    assert_eq!(chat.session.is_deferred(), Some(true));
    let dispatcher = if preset == Preset::Groups { "deferred_tool_call" } else { "call_tool" };
    let names: Vec<&str> = shown.tools.iter().map(|tool| &**tool.name()).collect();
    assert!(names.contains(&dispatcher), "{preset}: {names:?}");
    assert_eq!(shown.deferred, []);
    assert_eq!(chat.loaded(), ["mcp__git__get"]);
    let call = json!({"tool_name": "mcp__git__get", "arguments": {}});
    assert_eq!(chat.run(dispatcher, call).effects.loaded, []);
    assert_eq!(chat.run("mcp__git__get", json!({})).effects.loaded, []);
    let answer = find(chat, preset, "db", &["get"]);
    assert_eq!(answer.effects.revealed, []);
    assert!(answer.content.contains("\"properties\""), "{preset}: {}", answer.content);
    assert_eq!(chat.hash(), shown.fingerprint());
}

#[test]
fn a_conversation_goes_on_without_native() {
    for preset in Preset::ALL {
        for choice in [StrategyChoice::Native, StrategyChoice::Auto] {
            let mut settings = settings(preset);
            settings.strategy = choice;
            // Of ten tools two will go, and those left would be too few to begin like this.
            (settings.mode, settings.threshold_tools) = (Mode::Auto, 10);
            let mut chat = self::chat(settings, five_servers());
            find(&mut chat, preset, "git", &["get"]);
            let json = json_of(&chat.session);
            chat.session.without_native();
            chat.registry.remove_server("wiki");
            goes_on_with_dispatch(&mut chat, preset);
            chat.turn();
            assert!(chat.told()[0].contains("`mcp:wiki` are no longer available"));

            let saved: toolcrib_core::Snapshot = serde_json::from_str(&json).unwrap();
            assert_eq!(saved.strategy(), Some(Strategy::Native));
            let saved = Saved::Snapshot(Box::new(saved.without_native()));
            let view = chat.view();
            let resumed = chat.engine.resume(&view, saved, Strategy::Dispatch, Fetched::new());
            chat.session = resumed.unwrap().0;
            goes_on_with_dispatch(&mut chat, preset);
        }
    }
}

#[test]
fn what_changed_meanwhile_is_told_to_who_goes_on_without_native() {
    let mut chat = native(Preset::Crib);
    find(&mut chat, Preset::Crib, "git", &["get"]);
    let snapshot = chat.session.snapshot().without_native();
    chat.registry.replace_server(server("git", &[("get", "New")]));
    let view = chat.view();
    let saved = Saved::Snapshot(Box::new(snapshot));
    let resumed = chat.engine.resume(&view, saved, Strategy::Dispatch, Fetched::new());
    chat.session = resumed.unwrap().0;
    let told = chat.told();
    let last = told.last().unwrap();
    assert!(last.starts_with("These tools have changed.") && last.contains("New"), "{told:?}");
}

#[test]
fn changes_that_were_not_handed_out_are_handed_out_without_native_too() {
    let mut chat = native(Preset::Crib);
    let view = chat.view();
    chat.engine.preload(&mut chat.session, &view, ["git.get"]);
    chat.session.without_native();
    assert_eq!(revealed(&chat.prepare().change.added), ["mcp__git__get"]);
}

#[test]
fn where_call_tool_is_denied_who_goes_on_without_native_injects() {
    let mut chat = Chat::unsettled(denying(&["call_tool"]), settings(Preset::Crib), five_servers());
    chat.session.choose(Strategy::Native);
    chat.prepare();
    assert_eq!(chat.session.strategy(), Some(Strategy::Native));
    find(&mut chat, Preset::Crib, "git", &["get"]);
    chat.session.without_native();
    assert_eq!(chat.tools().last().unwrap(), "mcp__git__get");
    assert_eq!(chat.session.strategy(), Some(Strategy::Inject));
}

#[test]
fn a_change_that_was_not_handed_out_keeps_back_what_is_hidden_or_gone() {
    let mut chat = native(Preset::Crib);
    let view = chat.view();
    chat.engine.preload(&mut chat.session, &view, ["git.get", "db.get", "wiki.get"]);
    chat.policy = denying(&["mcp__git__get"]);
    chat.registry.remove_server("wiki");
    chat.restart();
    assert_eq!(revealed(&chat.prepare().change.added), ["mcp__db__get"]);
    chat.restart();
    assert_eq!(chat.prepare().change, ToolChange::default());
    // It is handed out once it can be, and what is unloaded meanwhile is not.
    chat.policy = Policy::default();
    chat.session.unload(["mcp__wiki__get"]);
    chat.registry.replace_server(server("wiki", &[("get", "Gets")]));
    chat.turn();
    assert_eq!(revealed(&chat.prepare().change.added), ["mcp__git__get"]);
    assert_eq!(chat.prepare().change, ToolChange::default());
}

#[test]
fn after_the_history_is_replaced_no_tool_is_declared_twice_and_changes_are_of_today() {
    let mut chat = native(Preset::Crib);
    let calc = tool(ToolName::host("calc"), "").with_deferral(Deferral::Eager);
    chat.registry.register(calc).unwrap();
    chat.turn();
    assert_eq!(deferred(&chat.prepare()), ["calc"]);
    let view = chat.view();
    chat.engine.preload(&mut chat.session, &view, ["git.get"]);
    chat.registry.replace_server(server("git", &[("get", "New")]));
    let view = chat.view();
    chat.engine.settle_anew(&mut chat.session, &view);
    let shown = chat.prepare();
    // The history may refer to it, so it stays where it is.
    assert!(!shown.tools.iter().any(|tool| &**tool.name() == "calc"));
    assert_eq!(deferred(&shown), ["calc", "mcp__git__get"]);
    assert_eq!(shown.change.added[0].tool, shown.deferred[1]);
    assert_eq!(shown.deferred[1].description(), "New");
}

fn hosting(preset: Preset) -> Settings {
    let mut settings = settings(preset);
    settings.hosted_search = true;
    settings
}

#[test]
fn a_providers_search_gets_every_tool_and_the_model_no_verbs() {
    for preset in Preset::ALL {
        let registry = five_servers();
        registry.declare(Group::new("unopened")).unwrap();
        let mut chat = chat(hosting(preset), registry);
        let shown = chat.prepare();
        assert_eq!(shown.tools.len(), 1, "{preset}: the eager one");
        let names = deferred(&shown);
        assert_eq!(names.len(), 9, "{preset}");
        assert!(names.is_sorted() && !names.contains(&"mcp__mail__put"), "{preset}: {names:?}");
        for word in ["tool_search", "load_tools", "call_tool", "unopened"] {
            assert!(!shown.system_section.contains(word), "{preset}: {}", shown.system_section);
        }
        let has_section = ![Preset::Regex, Preset::Lazy].contains(&preset);
        assert_eq!(shown.system_section.contains("for your tool search to find"), has_section);
        chat.mistake("tool_search", json!({"query": "get"}));
        chat.run("mcp__git__get", json!({}));

        chat.registry.replace_server(server("a", &[("x", "")]));
        chat.turn();
        assert_eq!(chat.prepare().announcements, ["New tools are available in `mcp:a`: x."]);
        chat.restart();
        let later = chat.prepare();
        assert_eq!(later.fingerprint(), shown.fingerprint(), "{preset}");
        assert_eq!(&later.deferred[..9], &shown.deferred[..]);
        assert_eq!(&**later.deferred[9].name(), "mcp__a__x");

        chat.session.without_native();
        assert!(chat.tools().len() > 2, "the verbs are back");
    }
}

#[test]
fn without_a_drivers_consent_there_is_no_providers_search() {
    let mut chat = Chat::new(hosting(Preset::Crib), five_servers());
    assert_eq!(chat.session.strategy(), Some(Strategy::Dispatch));
    assert_eq!(chat.tools()[0], "tool_search");
}

#[test]
fn the_verbs_a_driver_lists_before_it_knows_any_tool_are_those_of_dispatch() {
    let engine = engine(Preset::Crib, StrategyChoice::Native);
    let verbs = engine.verbs(&Policy::default());
    let names: Vec<&str> = verbs.iter().map(|verb| &**verb.name()).collect();
    assert_eq!(names, ["tool_search", "load_tools", "call_tool"]);
}

#[test]
fn a_tool_registered_as_eager_later_is_declared_as_it_came() {
    let mut chat = native(Preset::Crib);
    let calc = tool(ToolName::host("calc"), "").with_deferral(Deferral::Eager);
    chat.registry.register(calc).unwrap();
    chat.turn();
    let shown = chat.prepare();
    let expected: Value = support::parse(shown.deferred[0].neutral().get());
    assert_eq!(expected["name"], "calc");
    assert_eq!(shown.change.added[0].tool, shown.deferred[0]);
}
