//! What exactly one conversation has loaded, and the choices settled at its start.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use support::{Chat, deferring, denying, names, registry, server, tool};
use toolcrib_core::{
    Call, Deferral, EagerReason, Engine, EngineError, Group, GroupId, Loaded, Members, Mode,
    Policy, PolicyRules, Preset, ProviderClass, Registry, Schema, ServerTools, Session, Settings,
    Stats, Step, Strategy, StrategyChoice, TokenStats, ToolName, ToolSpec,
};

fn git() -> ServerTools {
    server("git", &[("blame", "Who wrote it"), ("diff", "What changed"), ("log", "History")])
}

fn chat(strategy: StrategyChoice) -> Chat {
    let mut settings = deferring(Preset::Crib);
    settings.strategy = strategy;
    Chat::new(settings, registry([git(), server("db", &[("query", "Asks")])]))
}

fn load(chat: &mut Chat, group: &str) {
    chat.json("load_tools", json!({"group_id": group}));
}

fn some(names: &[&str]) -> Loaded {
    Loaded::Some(names.iter().map(|name| Arc::from(*name)).collect())
}

/// A server with this many tools.
fn many(count: usize) -> ServerTools {
    let spec = |n| tool(ToolName::mcp("many", format!("tool_{n:03}")), "");
    ServerTools::new("many", (0..count).map(spec))
}

#[test]
fn what_one_conversation_loads_another_over_the_same_registry_has_not() {
    let mut chat = chat(StrategyChoice::Inject);
    let mut other = Session::new();
    load(&mut chat, "mcp:git");
    let view = chat.view();
    let shown = chat.engine.prepare(&mut other, &view).unwrap();
    assert_eq!((chat.tools().len(), shown.tools.len()), (5, 2));
    assert_eq!(other.loaded(&"mcp:git".into()), Loaded::Nothing);
    let search = Call::new("tool_search", json!({"query": "select:mcp__git__log"}));
    let Step::Answer(answer) = chat.engine.resolve(&mut other, &view, &search) else { panic!() };
    assert_eq!(answer.effects.loaded, [ToolName::mcp("git", "log")]);
    assert_eq!(chat.loaded().len(), 3);
}

#[test]
fn a_fork_can_not_change_its_parent() {
    let mut chat = chat(StrategyChoice::Inject);
    load(&mut chat, "mcp:db");
    let (before, tools) = (chat.session.snapshot(), chat.tools());
    let fork = chat.session.fork();
    let parent = std::mem::replace(&mut chat.session, fork);
    load(&mut chat, "mcp:git");
    chat.session.unload(["mcp__db__query"]);
    chat.registry.replace_server(server("late", &[("x", "")]));
    chat.turn();
    assert_ne!(chat.tools(), tools);
    chat.session = parent;
    let json = |snapshot| serde_json::to_string(&snapshot).unwrap();
    assert_eq!(json(chat.session.snapshot()), json(before));
    assert_eq!(chat.tools(), tools);
}

#[test]
fn a_fork_without_loading_sees_the_same_bytes_calls_what_is_loaded_and_loads_nothing() {
    for strategy in [StrategyChoice::Dispatch, StrategyChoice::Inject] {
        let mut chat = chat(strategy);
        load(&mut chat, "mcp:db");
        let before = chat.hash();
        chat.session = chat.session.fork_without_loading();
        assert_eq!(chat.hash(), before);
        let error = |chat: &mut Chat, verb: &str, arguments| {
            chat.mistake(verb, arguments)["error"].as_str().unwrap().to_owned()
        };
        for (verb, arguments) in [
            ("load_tools", json!({"group_id": "mcp:git"})),
            ("tool_search", json!({"query": "history"})),
        ] {
            let expected = format!(
                "{verb} is not available in a forked conversation. Tools that were loaded before \
                 the fork can be called."
            );
            assert_eq!(error(&mut chat, verb, arguments), expected);
        }
        assert_eq!(
            error(&mut chat, "mcp__git__log", json!({})),
            "`mcp__git__log` was not loaded before this conversation was forked, and nothing can be \
             loaded here."
        );
        assert_eq!(chat.runs("mcp__db__query", json!({})).0, "db/query");
        if strategy == StrategyChoice::Dispatch {
            let call = json!({"tool_name": "query", "arguments": {}});
            assert_eq!(chat.runs("call_tool", call).0, "db/query");
        }
        assert_eq!((chat.loaded(), chat.hash()), (vec!["mcp__db__query".to_owned()], before));
    }
}

#[test]
fn a_fork_without_loading_still_calls_a_loaded_tool_whose_schema_changed() {
    let mut chat = chat(StrategyChoice::Dispatch);
    load(&mut chat, "mcp:db");
    chat.session = chat.session.fork_without_loading();
    chat.registry.replace_server(server("db", &[("query", "Asks otherwise")]));
    assert_eq!(chat.news().len(), 1);
    chat.run("mcp__db__query", json!({}));
}

#[test]
fn a_fork_without_loading_asks_no_loader() {
    let mut chat = chat(StrategyChoice::Dispatch);
    chat.registry.declare(Group::new("crm").with_tool_names(["find_customer"])).unwrap();
    chat.turn();
    chat.session = chat.session.fork_without_loading();
    let answer = chat.mistake("find_customer", json!({}));
    assert!(answer["error"].as_str().unwrap().contains("nothing can be loaded here"), "{answer}");
    assert_eq!(chat.asked, []);
}

#[test]
fn preloading_before_the_first_request_puts_tools_into_it() {
    let registry = registry([git()]);
    let mut chat = Chat::unsettled(Policy::default(), deferring(Preset::Crib), registry);
    chat.session.preload(["log", "git.diff", "nothing"]);
    assert_eq!(
        chat.tools(),
        ["tool_search", "load_tools", "call_tool", "mcp__git__diff", "mcp__git__log"]
    );
    assert!(chat.told().is_empty() && chat.loaded().is_empty());
    let view = chat.view();
    let mut other = Session::new();
    let missing = chat.engine.preload(&mut other, &view, ["blame", "nothing"]);
    assert_eq!(missing, ["nothing"]);
    let shown = chat.engine.prepare(&mut other, &view).unwrap();
    assert_eq!(&**shown.tools[3].name(), "mcp__git__blame");
}

#[test]
fn preloading_after_the_first_request_loads_and_under_dispatch_announces_the_schema() {
    for (strategy, grows) in [(StrategyChoice::Dispatch, false), (StrategyChoice::Inject, true)] {
        let mut chat = chat(strategy);
        let before = chat.tools().len();
        let view = chat.view();
        assert!(chat.engine.preload(&mut chat.session, &view, ["git/log"]).is_empty());
        assert_eq!(chat.loaded(), ["mcp__git__log"]);
        let shown = chat.prepare();
        assert_eq!(shown.tools.len(), before + usize::from(grows));
        let schema = "Now loaded:\n{\"name\":\"mcp__git__log\"";
        assert_eq!(shown.announcements.iter().any(|text| text.starts_with(schema)), !grows);
    }
}

#[test]
fn preloading_says_which_names_only_a_loader_could_bring() {
    let mut chat = chat(StrategyChoice::Dispatch);
    chat.registry.declare(Group::new("crm").with_tool_names(["find_customer"])).unwrap();
    let view = chat.view();
    let missing = chat.engine.preload(&mut chat.session, &view, ["find_customer", "log"]);
    assert_eq!(
        (missing, chat.loaded()),
        (vec!["find_customer".into()], vec!["mcp__git__log".into()])
    );
}

#[test]
fn a_group_is_loaded_not_at_all_in_part_or_as_a_whole() {
    let mut chat = chat(StrategyChoice::Inject);
    let id = GroupId::server("git");
    assert_eq!(chat.session.loaded(&id), Loaded::Nothing);
    chat.json("load_tools", json!({"group_id": "git", "tool_names": ["log"]}));
    chat.run("mcp__git__blame", json!({}));
    assert_eq!(chat.session.loaded(&id), some(&["mcp__git__log", "mcp__git__blame"]));
    load(&mut chat, "git");
    assert_eq!(chat.session.loaded(&id), Loaded::All);
    assert_eq!(chat.loaded(), ["mcp__git__log", "mcp__git__blame", "mcp__git__diff"]);
    chat.json("load_tools", json!({"group_id": "git", "tool_names": ["log"]}));
    assert_eq!(chat.session.loaded(&id), Loaded::All);
}

#[test]
fn unloading_takes_tools_out_of_the_array_and_leaves_the_group_in_part() {
    let mut chat = chat(StrategyChoice::Inject);
    let id = GroupId::server("git");
    load(&mut chat, "git");
    assert_eq!(chat.session.unload(["mcp__git__diff", "nothing"]), ["mcp__git__diff".into()]);
    assert_eq!(chat.session.loaded(&id), some(&["mcp__git__blame", "mcp__git__log"]));
    assert_eq!(chat.tools(), ["tool_search", "load_tools", "mcp__git__blame", "mcp__git__log"]);
    let gone = chat.session.unload_group(&id);
    assert_eq!(gone, ["mcp__git__blame".into(), "mcp__git__log".into()]);
    assert_eq!(chat.session.loaded(&id), Loaded::Nothing);
    assert_eq!(chat.tools(), ["tool_search", "load_tools"]);
    assert_eq!(chat.run("mcp__git__log", json!({})).effects.loaded, [ToolName::mcp("git", "log")]);
    assert_eq!(chat.session.unload(["tool_search"]), [] as [Arc<str>; 0]);
}

#[test]
fn a_group_of_tools_registered_elsewhere_keeps_its_own_count() {
    let mut chat = chat(StrategyChoice::Inject);
    chat.registry.register(tool(ToolName::host("plan"), "")).unwrap();
    let members = vec![ToolName::mcp("git", "log"), ToolName::host("plan")];
    chat.registry.declare(Group::new("work").with_members(Members::Named(members))).unwrap();
    let work = GroupId::from("work");
    chat.json("load_tools", json!({"group_id": "work", "tool_names": ["log"]}));
    assert_eq!(chat.session.loaded(&work), some(&["mcp__git__log"]));
    assert_eq!(chat.session.loaded(&"mcp:git".into()), some(&["mcp__git__log"]));
    load(&mut chat, "work");
    assert_eq!(chat.session.loaded(&work), Loaded::All);
    assert_eq!(chat.asked, [], "nothing in it needs a loader");
    chat.session.unload(["plan"]);
    assert_eq!(chat.session.loaded(&work), some(&["mcp__git__log"]));
    load(&mut chat, "work");
    chat.restart();
    assert_eq!(chat.session.unload_group(&work), ["mcp__git__log".into(), "plan".into()]);
    assert_eq!(chat.session.loaded(&"mcp:git".into()), Loaded::Nothing);
}

/// A conversation under inject with a budget of so many tools of equal size.
fn budgeted(tools: u64, strategy: StrategyChoice) -> Chat {
    let registry = registry([many(12)]);
    let each = registry.catalog().view_all().tools().next().expect("there are some").tokens();
    let mut settings = deferring(Preset::Crib);
    settings.strategy = strategy;
    settings.loaded_tokens = Some(each * tools);
    Chat::new(settings, registry)
}

fn call(chat: &mut Chat, numbers: impl IntoIterator<Item = usize>) {
    for n in numbers {
        chat.run(&format!("mcp__many__tool_{n:03}"), json!({}));
    }
}

fn numbers(names: &[Arc<str>]) -> Vec<usize> {
    names.iter().map(|name| name[name.len() - 3..].parse().expect("digits")).collect()
}

#[test]
fn over_the_budget_the_least_recently_used_go_in_a_batch_when_a_turn_begins() {
    let mut chat = budgeted(8, StrategyChoice::Inject);
    call(&mut chat, 0..8);
    assert_eq!(numbers(&chat.turn().evicted), [0; 0], "the budget is just met");
    call(&mut chat, [0, 8]);
    assert_eq!(chat.loaded().len(), 9, "nothing goes in the middle of a turn");
    // A quarter of the budget is made free, so the array does not change every turn.
    assert_eq!(numbers(&chat.turn().evicted), [1, 2, 3]);
    assert_eq!(chat.loaded().len(), 6);
    assert_eq!(chat.tools().len(), 2 + 6);
    assert_eq!(numbers(&chat.turn().evicted), [0; 0]);
    call(&mut chat, [9, 10]);
    assert_eq!(numbers(&chat.turn().evicted), [0; 0]);
    // What was put out can be used again at once.
    call(&mut chat, [1]);
    assert_eq!(numbers(&chat.turn().evicted), [4, 5, 6]);
}

#[test]
fn the_tool_used_last_stays_however_large() {
    let mut chat = budgeted(0, StrategyChoice::Inject);
    call(&mut chat, [3, 1]);
    chat.turn();
    call(&mut chat, [3]);
    assert_eq!(chat.loaded(), ["mcp__many__tool_001", "mcp__many__tool_003"]);
    assert_eq!(numbers(&chat.turn().evicted), [1]);
    assert_eq!(numbers(&chat.turn().evicted), [0; 0]);
}

#[test]
fn under_dispatch_nothing_is_evicted() {
    let mut chat = budgeted(0, StrategyChoice::Dispatch);
    call(&mut chat, 0..5);
    assert_eq!(numbers(&chat.turn().evicted), [0; 0]);
    assert_eq!(chat.loaded().len(), 5);
}

#[test]
fn mcp_switched_off_for_one_conversation_is_off_at_every_surface() {
    let registry = registry([git()]);
    registry.register(tool(ToolName::host("git_notes"), "Notes on history")).unwrap();
    registry.declare(Group::new("mcp:unopened").with_description("history")).unwrap();
    let policy = Policy::default();
    let mut chat = Chat::unsettled(policy, deferring(Preset::Crib), registry);
    chat.session = Session::without_mcp();
    chat.turn();
    let section = chat.section();
    assert!(section.contains("git_notes") && !section.contains("mcp:"), "{section}");
    let view = chat.view();
    let stats = chat.engine.stats(&mut chat.session, &view).unwrap();
    assert_eq!(stats.tool_names, ["git_notes".into()]);
    for query in ["history", "select:log", "/log/", "mcp__git__log", "git.log"] {
        let found = chat.json("tool_search", json!({"query": query}));
        assert!(!found.to_string().contains("mcp__"), "{found}");
    }
    for group in ["mcp:git", "git", "mcp:unopened"] {
        let answer = chat.mistake("load_tools", json!({"group_id": group}));
        assert_eq!(answer["available_groups"], json!(["host"]));
    }
    for name in ["mcp__git__log", "git__log", "log"] {
        let answer = chat.answer("call_tool", json!({"tool_name": name, "arguments": {}}));
        assert_eq!(answer.effects.denied, [ToolName::mcp("git", "log")]);
        assert!(!answer.content.contains("\"mcp__git"), "{}", answer.content);
    }
    assert_eq!(chat.engine.preload(&mut chat.session, &view, ["log"]), ["log"]);
    chat.registry.replace_server(server("late", &[("x", "")]));
    chat.registry.declare(Group::new("mcp:later")).unwrap();
    assert!(chat.news().is_empty());
    chat.registry.remove_mcp();
    chat.restart();
    assert!(chat.told().is_empty());
    // Another conversation over the same registry is not concerned.
    chat.registry.replace_server(git());
    chat.session = Session::new();
    chat.run("mcp__git__log", json!({}));
}

fn is_deferred(settings: &Settings, registry: Registry) -> (Option<bool>, Chat) {
    let chat = Chat::new(settings.clone(), registry);
    (chat.session.is_deferred(), chat)
}

#[test]
fn mode_auto_defers_from_the_threshold_of_tools_on_and_is_decided_once() {
    let settings = Settings::default();
    let (below, mut chat) = is_deferred(&settings, registry([many(14)]));
    assert_eq!(below, Some(false));
    assert_eq!((chat.tools().len(), chat.section()), (14, String::new()));
    chat.registry.replace_server(many(40));
    chat.turn();
    assert_eq!((chat.session.is_deferred(), chat.tools().len()), (Some(false), 40));
    let (at, mut chat) = is_deferred(&settings, registry([many(15)]));
    assert_eq!(at, Some(true));
    chat.registry.replace_server(many(2));
    chat.turn();
    assert_eq!((chat.session.is_deferred(), chat.tools().len()), (Some(true), 3));
}

#[test]
fn mode_auto_counts_a_tool_that_a_group_names_once() {
    let registry = registry([many(14)]);
    let named = (0..14).map(|n| ToolName::mcp("many", format!("tool_{n:03}"))).collect();
    registry.declare(Group::new("all").with_members(Members::Named(named))).unwrap();
    assert_eq!(registry.catalog().view_all().len(), 14);
    assert_eq!(is_deferred(&Settings::default(), registry).0, Some(false));
}

#[test]
fn mode_auto_defers_what_only_a_loader_knows() {
    let unknown = registry([many(1)]);
    unknown.declare(Group::new("crm")).unwrap();
    assert_eq!(is_deferred(&Settings::default(), unknown).0, Some(true));
    let named = registry([many(1)]);
    named.declare(Group::new("crm").with_tool_names(["find"])).unwrap();
    assert_eq!(is_deferred(&Settings::default(), named).0, Some(true));
}

#[test]
fn mode_auto_defers_when_schemas_take_their_share_of_the_active_window() {
    let registry = || registry([many(5)]);
    let tokens: u64 = registry().catalog().view_all().tools().map(|tool| tool.tokens()).sum();
    let with_window = |window| {
        let mut settings = Settings::default();
        settings.context_window = window;
        is_deferred(&settings, registry()).0
    };
    assert_eq!(with_window(tokens * 10), Some(true), "exactly a tenth");
    assert_eq!(with_window((tokens + 1) * 10), Some(false), "just below a tenth");
    assert_eq!(with_window(1_000_000), Some(false));
    let mut settings = Settings::default();
    settings.context_window = 10;
    settings.threshold_context = None;
    assert_eq!(is_deferred(&settings, registry()).0, Some(false), "only the number counts");
}

#[test]
fn full_and_deferred_are_forced() {
    let mut settings = Settings::default();
    settings.mode = Mode::Full;
    assert_eq!(is_deferred(&settings, registry([many(100)])).0, Some(false));
    settings.mode = Mode::Deferred;
    assert_eq!(is_deferred(&settings, registry([many(1)])).0, Some(true));
}

#[test]
fn a_forced_choice_is_not_called_automatic() {
    let automatic = |mode, count| {
        let mut settings = Settings::default();
        settings.mode = mode;
        let mut chat = Chat::new(settings, registry([many(count)]));
        let view = chat.view();
        let stats = chat.engine.stats(&mut chat.session, &view).unwrap();
        (stats.deferred_mode, stats.auto_deferred)
    };
    assert_eq!(automatic(Mode::Auto, 20), (true, true));
    assert_eq!(automatic(Mode::Auto, 2), (false, false));
    assert_eq!(automatic(Mode::Deferred, 20), (true, false));
    assert_eq!(automatic(Mode::Full, 20), (false, false));
}

#[test]
fn with_nothing_to_find_there_is_nothing_to_find_it_with() {
    let mut chat = Chat::new(deferring(Preset::Crib), Registry::default());
    assert_eq!((chat.tools().len(), chat.section()), (0, String::new()));
    let registry = Registry::default();
    let spec = tool(ToolName::host("calc"), "").with_deferral(Deferral::Eager);
    registry.register(spec).unwrap();
    assert_eq!(Chat::new(deferring(Preset::Crib), registry).tools(), ["calc"]);
}

#[test]
fn the_iteration_limit_is_three_times_as_high_while_deferring() {
    let (_, deferring) = is_deferred(&Settings::default(), registry([many(20)]));
    assert_eq!(deferring.engine.iteration_limit(&deferring.session, 25), 75);
    assert_eq!(deferring.engine.iteration_limit(&deferring.session, usize::MAX), usize::MAX);
    let (_, full) = is_deferred(&Settings::default(), registry([many(2)]));
    assert_eq!(full.engine.iteration_limit(&full.session, 25), 25);
    assert_eq!(full.engine.iteration_limit(&Session::new(), 25), 25);
}

#[test]
fn every_eager_rule_puts_its_tools_into_the_first_request_and_says_why() {
    let registry = registry([server(
        "s",
        &[("always", ""), ("flagged", ""), ("preloaded", ""), ("read_file", ""), ("role", "")],
    )]);
    let flagged = tool(ToolName::mcp("s", "flagged"), "").with_deferral(Deferral::Eager);
    registry.remove(&ToolName::mcp("s", "flagged"));
    registry.register(flagged).unwrap();
    registry.register(tool(ToolName::host("own"), "")).unwrap();
    let mut settings = deferring(Preset::Stubs);
    settings.provider_class = ProviderClass::Local;
    settings.eager.always = vec!["s/alw*".into()];
    settings.eager.sets.insert("desk".into(), vec!["role".into()]);
    settings.eager.profiles.insert("seat".into(), vec!["desk".into()]);
    settings.profile = Some("seat".into());
    settings.preload = vec!["s.preloaded".into()];
    registry.register(tool(ToolName::mcp("s", "waits"), "")).unwrap();
    let mut chat = Chat::new(settings, registry);
    let view = chat.view();
    let why: Vec<(&str, Option<String>)> = view
        .tools()
        .map(|it| (it.name().tool(), chat.engine.why_eager(it, &view).map(|why| why.to_string())))
        .collect();
    let because = |text: &str| Some(text.to_owned());
    assert_eq!(
        why,
        [
            ("own", because("preset `stubs` does not defer it")),
            ("always", because("eager.always has `s/alw*`")),
            ("flagged", because("registered as eager")),
            ("preloaded", because("preloaded")),
            ("read_file", because("set `core` for local models has `read_file`")),
            ("role", because("set `desk` of profile `seat` has `role`")),
            ("waits", None),
        ]
    );
    let eager = ["always", "flagged", "preloaded", "read_file", "role"];
    let eager = eager.map(|name| format!("mcp__s__{name}"));
    let expected = ["tool_search".to_owned()].into_iter().chain(eager).chain(["own".to_owned()]);
    assert_eq!(chat.tools(), expected.collect::<Vec<_>>());
    assert!(!chat.section().contains("read_file") && chat.section().contains("mcp__s__waits"));
}

#[test]
fn the_same_rules_differ_by_kind_of_model_and_by_seat() {
    let registry = registry([server("s", &[("read_file", ""), ("big", ""), ("role", "")])]);
    let view = registry.catalog().view_all();
    let eager = |class, profile: Option<&str>| -> Vec<String> {
        let mut settings = deferring(Preset::Crib);
        settings.provider_class = class;
        settings.eager.cloud = vec!["heavy".into()];
        settings.eager.sets.insert("heavy".into(), vec!["big".into()]);
        settings.eager.sets.insert("desk".into(), vec!["role".into()]);
        settings.eager.profiles.insert("seat".into(), vec!["desk".into()]);
        settings.profile = profile.map(Into::into);
        let engine = Engine::new(settings).unwrap();
        let why = |tool: &&Arc<toolcrib_core::Tool>| engine.why_eager(tool, &view).is_some();
        view.tools().filter(why).map(|tool| tool.name().tool().to_owned()).collect()
    };
    assert_eq!(eager(ProviderClass::Local, None), ["read_file"]);
    assert_eq!(eager(ProviderClass::Cloud, None), ["big"]);
    assert_eq!(eager(ProviderClass::Cloud, Some("seat")), ["big", "role"]);
}

#[test]
fn with_every_verb_denied_all_schemas_are_sent_if_they_fit() {
    for (preset, verbs) in [
        (Preset::Crib, vec!["tool_search", "load_tools", "call_tool"]),
        (Preset::Regex, vec!["tool_search_regex"]),
        (Preset::Stubs, vec!["tool_search"]),
        (Preset::Lazy, vec!["tool_search"]),
        (Preset::Groups, vec!["load_tools"]),
        (Preset::Exact, vec!["tool_search"]),
    ] {
        let mut chat = Chat::under(denying(&verbs), deferring(preset), registry([many(3)]));
        assert_eq!(chat.session.is_deferred(), Some(false), "{preset}");
        assert_eq!((chat.tools().len(), chat.section()), (3, String::new()), "{preset}");
        chat.run("mcp__many__tool_001", json!({}));
        let answer = chat.mistake(verbs[0], json!({}));
        assert_eq!(answer["error"], format!("Unknown tool `{}`.", verbs[0]), "{preset}");
    }
}

#[test]
fn with_every_verb_denied_and_too_much_to_send_the_configuration_is_wrong() {
    let mut settings = deferring(Preset::Regex);
    settings.context_window = 1_000;
    let mut chat = Chat::unsettled(denying(&["tool_search_regex"]), settings, registry([many(20)]));
    let view = chat.view();
    let error = chat.engine.prepare(&mut chat.session, &view).unwrap_err();
    let expected = EngineError::NothingToOffer {
        preset: Preset::Regex,
        verb: "tool_search_regex",
        tools: 20,
        percent: 10,
    };
    assert_eq!(error, expected);
    assert!(error.to_string().contains("allow `tool_search_regex`"), "{error}");
    // A call is answered all the same, and the reason is in the trace.
    let answer = chat.answer("mcp__many__tool_001", json!({}));
    assert_eq!((answer.is_error, answer.effects.notes), (true, vec![error.to_string()]));
}

#[test]
fn with_call_tool_denied_what_is_loaded_joins_the_array() {
    for choice in [StrategyChoice::Auto, StrategyChoice::Dispatch] {
        let mut settings = deferring(Preset::Crib);
        settings.strategy = choice;
        let mut chat = Chat::under(denying(&["call_tool"]), settings, registry([git()]));
        assert_eq!(chat.session.strategy(), Some(Strategy::Inject));
        chat.json("tool_search", json!({"query": "select:mcp__git__log"}));
        assert_eq!(chat.tools(), ["tool_search", "load_tools", "mcp__git__log"]);
        // Resuming names what the conversation does use.
        chat.restart();
        assert_eq!(chat.session.strategy(), Some(Strategy::Inject));
    }
}

#[test]
fn denying_everything_leaves_nothing_and_no_verb_comes_back() {
    let nothing = PolicyRules { allow_tools: Some(vec![]), ..PolicyRules::default() };
    for policy in [denying(&["*"]), Policy::new(nothing).unwrap()] {
        for preset in Preset::ALL {
            let registry = registry([git()]);
            registry.declare(Group::new("crm").with_description("history")).unwrap();
            let mut chat = Chat::under(policy.clone(), deferring(preset), registry);
            assert_eq!((chat.tools().len(), chat.section()), (0, String::new()), "{preset}");
            chat.mistake("mcp__git__log", json!({}));
            chat.registry.replace_server(server("late", &[("x", "")]));
            assert!(chat.news().is_empty());
        }
    }
}

#[test]
fn an_allow_list_need_not_name_the_verbs() {
    let rules = PolicyRules { allow_tools: Some(vec!["log".into()]), ..PolicyRules::default() };
    let policy = Policy::new(rules).unwrap();
    let mut chat = Chat::under(policy, deferring(Preset::Crib), registry([git()]));
    assert_eq!(chat.tools(), ["tool_search", "load_tools", "call_tool"]);
}

#[test]
fn stats_say_what_is_loaded_and_what_waits() {
    let registry = registry([server("git", &[("log", "History"), ("blame", "Who")])]);
    registry.register(tool(ToolName::host("calc"), "").with_deferral(Deferral::Eager)).unwrap();
    let named = vec![ToolName::host("notes"), ToolName::mcp("git", "log")];
    registry.declare(Group::new("work").with_members(Members::Named(named))).unwrap();
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    chat.run("mcp__git__log", json!({}));
    let view = chat.view();
    let stats = chat.engine.stats(&mut chat.session, &view).unwrap();
    let shown = chat.prepare();
    let count = |text: &str| toolcrib_tokens::Tokenizer::O200K.count(text).tokens;
    let of = |name: &str| {
        let tool = view.tools().find(|tool| **tool.exposed() == *name).unwrap();
        count(tool.definition().neutral().get())
    };
    let verbs: u64 = shown.tools[..3].iter().map(|verb| count(verb.neutral().get())).sum();
    let (calc, log, blame) = (of("calc"), of("mcp__git__log"), of("mcp__git__blame"));
    let by_group = [("host".to_owned(), calc), ("mcp:git".to_owned(), log + blame)];
    let expected = Stats {
        total_registered: 4,
        loaded: 2,
        deferred: 2,
        deferred_mode: true,
        auto_deferred: false,
        threshold: 15,
        tool_names: ["calc", "mcp__git__blame", "mcp__git__log", "notes"].map(Arc::from).to_vec(),
        tokens: TokenStats {
            active: verbs + calc + log,
            deferred: blame,
            full: calc + log + blame,
            section: count(&shown.system_section),
            by_group: BTreeMap::from(by_group),
        },
    };
    assert_eq!(stats, expected);
    let json = serde_json::to_value(&stats).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    let documented = ["total_registered", "loaded", "deferred", "deferred_mode", "auto_deferred"];
    let documented = documented.into_iter().chain(["threshold", "tool_names", "tokens"]);
    assert_eq!(keys, documented.collect::<Vec<_>>());
}

#[test]
fn a_function_registered_while_deferring_is_loaded_at_once() {
    let alert = || {
        let schema = json!({"type": "object", "properties": {"message": {"type": "string"}}});
        ToolSpec::new(ToolName::host("send_alert"), schema).into_immediate()
    };
    for (strategy, joins) in [(StrategyChoice::Dispatch, false), (StrategyChoice::Inject, true)] {
        let mut chat = chat(strategy);
        chat.registry.register(alert()).unwrap();
        assert_eq!(chat.turn().preloaded, ["send_alert".into()]);
        assert_eq!(chat.loaded(), ["send_alert"]);
        let shown = chat.prepare();
        let definition = r#"{"name":"send_alert","description":"","input_schema":{"type":"object","properties":{"message":{"type":"string"}}}}"#;
        let announced = vec![format!("Now loaded:\n{definition}")];
        assert_eq!(shown.announcements, if joins { vec![] } else { announced });
        assert_eq!(shown.tools.iter().any(|tool| &**tool.name() == "send_alert"), joins);
        assert_eq!(chat.run("send_alert", json!({"message": "x"})).effects.loaded, []);
    }
    // Registered before the conversation began, it waits like any other.
    let registry = registry([git()]);
    registry.register(alert()).unwrap();
    assert_eq!(Chat::new(deferring(Preset::Crib), registry).tools().len(), 3);
}

#[test]
fn a_search_and_the_call_of_what_it_finds_work_in_one_batch_in_either_order() {
    let search = || Call::new("tool_search", json!({"query": "mcp__git__log"}));
    let run = || Call::new("call_tool", json!({"tool_name": "mcp__git__log", "arguments": {}}));
    let direct = || Call::new("mcp__git__log", json!({}));
    let log = ToolName::mcp("git", "log");
    for batch in [[search(), run()], [run(), search()], [search(), direct()], [direct(), search()]]
    {
        let mut chat = chat(StrategyChoice::Dispatch);
        let view = chat.view();
        let effects =
            batch.map(|call| match chat.engine.resolve(&mut chat.session, &view, &call) {
                Step::Answer(answer) => {
                    let found = support::parse(&answer.content);
                    assert_eq!(names(&found["tools"])[0], "mcp__git__log");
                    answer.effects.loaded
                }
                Step::Run(run) => run.effects.loaded,
                Step::Need(need) => panic!("{need:?}"),
            });
        // Whichever comes first loads it.
        assert_eq!(effects[0].first(), Some(&log));
        assert!(!effects[1].contains(&log));
    }
}

#[test]
fn a_call_before_the_first_request_settles_what_that_would_have_settled() {
    let mut chat = Chat::unsettled(Policy::default(), Settings::default(), registry([many(20)]));
    chat.run("call_tool", json!({"tool_name": "mcp__many__tool_003", "arguments": {}}));
    assert_eq!(chat.session.is_deferred(), Some(true));
    assert_eq!(chat.tools(), ["tool_search", "load_tools", "call_tool"]);
}

#[test]
fn settings_that_contradict_themselves_are_refused() {
    let refused = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        Engine::new(settings).unwrap_err().to_string()
    };
    assert_eq!(
        refused(|it| it.threshold_context = Some(1.5)),
        "the context share must lie between 0 and 1, not 1.5"
    );
    assert_eq!(refused(|it| it.profile = Some("x".into())), "eager profile `x` is not defined");
    assert!(refused(|it| it.eager.always = vec!["a{".into()]).contains("`a{`"));
}

#[test]
fn the_reason_a_tool_is_eager_serialises() {
    let reason = EagerReason::Always { pattern: "x*".into() };
    let expected = json!({"because": "always", "pattern": "x*"});
    assert_eq!(serde_json::to_value(reason).unwrap(), expected);
}

#[test]
fn a_call_of_a_tool_whose_server_went_gives_the_true_reason() {
    let mut chat = chat(StrategyChoice::Dispatch);
    chat.run("mcp__git__log", json!({}));
    let error = |chat: &mut Chat, name: &str| {
        chat.mistake(name, json!({}))["error"].as_str().unwrap().to_owned()
    };
    chat.registry.remove_server("git");
    assert_eq!(
        error(&mut chat, "mcp__git__log"),
        "`mcp__git__log` is gone: server `git` no longer offers it."
    );
    let down = toolcrib_core::Availability::Down("exit status 1".into());
    chat.registry.set_availability(GroupId::server("git"), down);
    // Also for a tool that was only listed.
    for name in ["mcp__git__log", "mcp__git__diff", "git.diff"] {
        let expected =
            format!("`{name}` can't be called: server `git` does not answer (exit status 1).");
        assert_eq!(error(&mut chat, name), expected);
    }
    chat.registry.set_availability(GroupId::server("git"), toolcrib_core::Availability::Starting);
    assert_eq!(
        error(&mut chat, "mcp__git__log"),
        "`mcp__git__log` can't be called yet: server `git` is starting."
    );
    chat.registry.replace_server(git());
    chat.run("mcp__git__log", json!({}));
}

#[test]
fn a_tool_of_the_first_request_that_is_gone_is_not_called_unknown() {
    let registry = Registry::default();
    let spec = ToolSpec::new(ToolName::host("calc"), Schema::empty());
    registry.register(spec.with_deferral(Deferral::Eager)).unwrap();
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    chat.registry.remove(&ToolName::host("calc"));
    let answer = chat.mistake("calc", json!({}));
    assert_eq!(answer, json!({"error": "`calc` is gone: it is no longer offered."}));
}

#[test]
fn each_request_has_an_account_of_its_own() {
    let registry = registry([server("git", &[("log", "History"), ("blame", "Who")])]);
    let mut chat = Chat::new(deferring(Preset::Stubs), registry);
    let first = chat.prepare();
    chat.run("mcp__git__log", json!({}));
    let second = chat.prepare();
    let count = |text: &str| toolcrib_tokens::Tokenizer::O200K.count(text).tokens;
    let tools = |shown: &toolcrib_core::Presentation| -> u64 {
        shown.tools.iter().map(|tool| count(tool.neutral().get())).sum()
    };
    assert_eq!(first.tokens().section, count(&first.system_section));
    assert_eq!(first.tokens().tools, tools(&first));
    assert_eq!(second.tokens().tools, tools(&second));
    assert!(second.tokens().tools > first.tokens().tools);
    assert_eq!(second.tokens().announcements, 0);
}

#[test]
fn what_is_loaded_is_told_as_it_is_now_and_only_if_it_is_there() {
    let servers = ["a", "b", "c", "d"].map(|name| server(name, &[("get", "Old")]));
    let mut chat = Chat::new(deferring(Preset::Crib), registry(servers));
    assert_eq!(chat.session.preset(), Some(Preset::Crib));
    assert_eq!(Session::new().preset(), None);
    for name in ["a", "b", "c", "d", "a"] {
        chat.turn();
        chat.run(&format!("mcp__{name}__get"), json!({}));
    }
    chat.registry.replace_server(server("a", &[("get", "New")]));
    chat.registry.remove_server("c");
    chat.policy = denying(&["mcp__d__*"]);
    let view = chat.view();
    let told = |chat: &Chat| -> Vec<(String, String)> {
        let loaded = chat.engine.loaded(&chat.session, &view);
        let told = loaded.into_iter().map(|it| (it.group.to_string(), it.tool));
        told.map(|(group, tool)| (group, tool.description().to_owned())).collect()
    };
    let expected = [("mcp:b", "Old"), ("mcp:a", "New")];
    let expected = expected.map(|(group, about)| (group.to_owned(), about.to_owned()));
    assert_eq!(told(&chat), expected, "the one used last is last");
    chat.engine.settle_anew(&mut chat.session, &view);
    assert_eq!(told(&chat), expected);
    assert_eq!(chat.loaded().len(), 4, "the others may come back");
}
