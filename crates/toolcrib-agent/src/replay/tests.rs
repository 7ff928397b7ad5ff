use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use toolcrib_core::{
    Approach, Call, Definition, Engine, GroupId, Mode, Preset, Registry, Revealed, ServerTools,
    Session, Settings, Step as Answered, Strategy, StrategyChoice, ToolChange, ToolName, ToolSpec,
    View, plan,
};
use toolcrib_tokens::{Block, Cost, Model, Models, Request as Prompt, Tokenizer, Usage, simulate};

use super::recording::Recording;
use super::telling::{Step, Telling};
use super::*;
use crate::message::{Assistant, CallResult, Part, Said, ToolCall};

const FULL: Approach = Approach::Full;
const INJECT: Approach = Approach::Deferred(Strategy::Inject);
const DISPATCH: Approach = Approach::Deferred(Strategy::Dispatch);
const NATIVE: Approach = Approach::Deferred(Strategy::Native);
const SYSTEM: &str = "You run a shop.";

/// A dollar for a million tokens in, ten for a million out; any prefix is cached.
fn house() -> Model {
    let mut models = Models::default();
    let text = r#"
        [[model]]
        name = "house"
        provider = "anthropic"
        vocabulary = "o200k_base"
        supports = ["defer_loading"]
        price = { input = 1.0, output = 10.0 }
        cache = { write = 1.25, read = 0.1 }
    "#;
    models.extend_from_toml(text).unwrap();
    models.find("house").unwrap().clone()
}

fn shop() -> &'static View {
    static SHOP: LazyLock<View> = LazyLock::new(|| {
        let tools = (0..40).map(|n| {
            let schema = json!({"type": "object", "properties": {
                "size": {"type": "integer", "description": "In millimetres."}}});
            ToolSpec::new(ToolName::mcp("shop", format!("drill_{n}")), schema)
                .with_description(format!("Drills hole number {n} into a piece of metal."))
        });
        let registry = Registry::default();
        registry.replace_server(ServerTools::new("shop", tools));
        registry.catalog().view_all()
    });
    &SHOP
}

/// The name a model knows a tool of the shop by.
fn drill(number: u64) -> String {
    let name = ToolName::mcp("shop", format!("drill_{number}"));
    name.exposed(shop().catalog().naming())
}

fn engine(preset: Preset, strategy: StrategyChoice) -> Engine {
    let mut settings = Settings::preset(preset);
    (settings.mode, settings.strategy) = (Mode::Deferred, strategy);
    Engine::new(settings).unwrap()
}

fn tools() -> &'static ReplayTools {
    static TOOLS: LazyLock<ReplayTools> = LazyLock::new(|| {
        ReplayTools::of(&engine(Preset::Crib, StrategyChoice::Auto), shop()).unwrap()
    });
    &TOOLS
}

/// What an engine answers to a call of a verb.
fn answer(engine: &Engine, session: &mut Session, call: &Call) -> (String, Vec<Arc<str>>) {
    match engine.resolve(session, shop(), call) {
        Answered::Answer(answer) => {
            let tools = session.loaded_tools().cloned().collect();
            (answer.content, tools)
        }
        other => panic!("a verb is answered, not {other:?}"),
    }
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn said(content: Vec<Said>) -> Message {
    Message::Assistant(Assistant { content })
}

fn text(text: &str) -> Said {
    Said::Text { text: text.into() }
}

fn call(id: &str, name: &str, arguments: &Value) -> Said {
    let (id, name, arguments) = (id.into(), name.into(), arguments.to_string());
    Said::Call(ToolCall { id, name, arguments })
}

fn result(id: &str, name: &str, text: &str) -> CallResult {
    let content = vec![Part::text(text)];
    CallResult { call_id: id.into(), name: name.into(), content, ..CallResult::default() }
}

fn results(results: Vec<CallResult>) -> Message {
    Message::Tool { results }
}

fn history(messages: Vec<Message>) -> Vec<Arc<Message>> {
    messages.into_iter().map(Arc::new).collect()
}

fn count(text: &str) -> u64 {
    Tokenizer::O200K.count(text).tokens
}

fn sum<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> u64 {
    tools.into_iter().map(|tool| count(tool.neutral().get())).sum()
}

/// A search that brings two tools, a call of one, an answer; as it goes under a strategy.
fn recorded(strategy: Strategy) -> Vec<Arc<Message>> {
    let choice = match strategy {
        Strategy::Inject => StrategyChoice::Inject,
        _ => StrategyChoice::Dispatch,
    };
    let engine = engine(Preset::Crib, choice);
    let query = json!({"query": format!("select:{},{}", drill(3), drill(4))});
    let found = answer(&engine, &mut Session::new(), &Call::new("tool_search", query.clone())).0;
    let mut found = result("1", "tool_search", &found);
    if strategy == Strategy::Native {
        let reveal = |name: &str| {
            let tool = tools().definition(name).unwrap().clone();
            Revealed { group: GroupId::from("mcp:shop"), tool }
        };
        found.content = vec![Part::text("")];
        found.revealed = vec![reveal(&drill(3)), reveal(&drill(4))];
    }
    let work = match strategy {
        Strategy::Dispatch => {
            let envelope = json!({"tool_name": drill(3), "arguments": {"size": 7}});
            call("2", "call_tool", &envelope)
        }
        _ => call("2", &drill(3), &json!({"size": 7})),
    };
    history(vec![
        user("Drill a hole of seven."),
        said(vec![text("Let me look."), call("1", "tool_search", &query)]),
        results(vec![found]),
        said(vec![work]),
        results(vec![result("2", "call_tool", "drilled")]),
        said(vec![text("It is drilled.")]),
    ])
}

fn priced(history: &[Arc<Message>]) -> Replay {
    replay(history, SYSTEM, tools(), [&house()])
}

fn usage(replay: &Replay, approach: Approach) -> Usage {
    replay.row("house", approach).unwrap().usage
}

/// Prompts of blocks of these lengths, each equal to another of the same name and length.
fn billed(prompts: &[(&[(&str, u64)], u64)]) -> Usage {
    let key = |name: &str| Block::of(name, &Tokenizer::O200K).key;
    let prompt = |(blocks, output): &(&[(&str, u64)], u64)| Prompt {
        blocks: blocks.iter().map(|&(name, tokens)| Block { key: key(name), tokens }).collect(),
        output: *output,
    };
    let prompts: Vec<Prompt> = prompts.iter().map(prompt).collect();
    simulate(&house().cache, &prompts).into_iter().sum()
}

#[test]
fn a_conversation_is_priced_as_by_hand_under_every_approach() {
    let (history, tools) = (recorded(Strategy::Dispatch), tools());
    let replay = priced(&history);
    assert_eq!(replay.notes, [""; 0]);

    let section =
        |approach| ("system", count(&format!("{SYSTEM}\n\n{}", tools.prefix(approach).section)));
    let array = |approach| sum(&tools.prefix(approach).tools);
    let Message::Tool { results } = &*history[2] else { panic!() };
    let [Part::Text { text: rows }] = &results[0].content[..] else { panic!() };
    let asked = ("asked", count("Drill a hole of seven."));
    let (three, four) = (drill(3), drill(4));
    let look = format!(r#"tool_search{{"query":"select:{three},{four}"}}"#);
    let look = count("Let me look.") + count(&look);
    let direct = count(&format!(r#"{three}{{"size":7}}"#));
    let envelope = format!(r#"call_tool{{"tool_name":"{three}","arguments":{{"size":7}}}}"#);
    let envelope = count(&envelope);
    let (came, done) = (("came", count("drilled")), count("It is drilled."));
    let given = sum([&three, &four].map(|name| tools.definition(name).unwrap()));

    let own = ("system", count(SYSTEM));
    let full = ("tools", array(FULL));
    let expected = billed(&[
        (&[full, own, asked], direct),
        (&[full, own, asked, ("call", direct), came], done),
    ]);
    assert_eq!(usage(&replay, FULL), expected);

    let (few, rest) = (("tools", array(DISPATCH)), section(DISPATCH));
    let (looked, found) = (("look", look), ("found", count(rows)));
    let expected = billed(&[
        (&[few, rest, asked], look),
        (&[few, rest, asked, looked, found], envelope),
        (&[few, rest, asked, looked, found, ("call", envelope), came], done),
    ]);
    assert_eq!(usage(&replay, DISPATCH), expected);

    let (few, rest) = (("tools", array(INJECT)), section(INJECT));
    let more = ("more tools", array(INJECT) + given);
    let expected = billed(&[
        (&[few, rest, asked], look),
        (&[more, rest, asked, looked, found], direct),
        (&[more, rest, asked, looked, found, ("call", direct), came], done),
    ]);
    assert_eq!(usage(&replay, INJECT), expected);

    let (few, rest, found) = (("tools", array(NATIVE)), section(NATIVE), ("found", given));
    let expected = billed(&[
        (&[few, rest, asked], look),
        (&[few, rest, asked, looked, found], direct),
        (&[few, rest, asked, looked, found, ("call", direct), came], done),
    ]);
    assert_eq!(usage(&replay, NATIVE), expected);

    let rows = replay.rows.iter().map(|it| (it.row.approach, it.row.calls));
    assert_eq!(rows.collect::<Vec<_>>(), [(FULL, 2), (INJECT, 3), (DISPATCH, 3), (NATIVE, 3)]);
    let cost = |approach| replay.row("house", approach).unwrap().cost;
    // No prompt is long, so that the price of the sum is the sum of prices.
    assert!(same(cost(FULL), usage(&replay, FULL).cost(&house())));
    assert!(same(cost(INJECT), usage(&replay, INJECT).cost(&house())));
}

fn same(a: Cost, b: Cost) -> bool {
    (a.dollars.unwrap() - b.dollars.unwrap()).abs() < 1e-12
}

#[test]
fn it_does_not_matter_which_strategy_a_conversation_was_recorded_under() {
    let [dispatch, inject, native] = [Strategy::Dispatch, Strategy::Inject, Strategy::Native]
        .map(|strategy| priced(&recorded(strategy)));
    for other in [&inject, &native] {
        for approach in [FULL, NATIVE] {
            assert_eq!(usage(other, approach), usage(&dispatch, approach), "{approach}");
        }
        // Answers that have to be put into words again come out a little different.
        let (again, was) = (usage(other, DISPATCH), usage(&dispatch, DISPATCH));
        assert!(again.prompt().abs_diff(was.prompt()) < was.prompt() / 20, "{again:?} {was:?}");
        assert_eq!(again.output, was.output);
    }
}

#[test]
fn what_was_loaded_is_read_off_the_answers_of_every_preset() {
    let all = shop().len();
    for preset in Preset::ALL {
        for choice in [StrategyChoice::Dispatch, StrategyChoice::Inject] {
            let calls = match preset {
                Preset::Crib => vec![
                    Call::new("tool_search", json!({"query": "drill hole number 7"})),
                    Call::new("load_tools", json!({"group_id": "mcp:shop"})),
                ],
                Preset::Regex => vec![Call::new("tool_search_regex", json!({"pattern": "_1."}))],
                Preset::Stubs => vec![Call::new("tool_search", json!({"query": "drill 7"}))],
                Preset::Lazy => vec![
                    Call::new("tool_search", json!({"query": "drill"})),
                    Call::new("tool_search", json!({"name": "drill_7"})),
                ],
                Preset::Groups => vec![Call::new("load_tools", json!({"group_id": "mcp:shop"}))],
                Preset::Exact => {
                    vec![Call::new("tool_search", json!({"query": "drill_7,drill_8"}))]
                }
            };
            let (engine, mut session) = (engine(preset, choice), Session::new());
            let (mut messages, mut loaded) = (Vec::new(), Vec::new());
            for made in calls {
                let (text, now) = answer(&engine, &mut session, &made);
                messages.push(said(vec![call("1", &made.name, &made.arguments)]));
                messages.push(results(vec![result("1", &made.name, &text)]));
                loaded = now;
            }
            assert!(!loaded.is_empty() && loaded.len() <= all);
            loaded.sort();
            let given = Recording::of(&history(messages)).given();
            let names: Vec<Arc<str>> = given.keys().cloned().collect();
            assert_eq!(names, loaded, "{preset} {choice}");
            let catalog = tools();
            for (name, definition) in given {
                if let Some(definition) = definition {
                    assert_eq!(Some(&definition), catalog.definition(&name), "{preset} {choice}");
                } else {
                    assert_eq!(choice, StrategyChoice::Inject, "{preset}");
                }
            }
        }
    }
}

/// A long conversation with a load now and then, made from a seed.
fn rambling(mut seed: u64) -> Vec<Arc<Message>> {
    let mut next = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    let engine = engine(Preset::Crib, StrategyChoice::Dispatch);
    let (mut session, mut messages) = (Session::new(), vec![user("Begin.")]);
    for number in 0..30 {
        let (id, tool) = (number.to_string(), drill(next(40)));
        match next(4) {
            0 => {
                let query = json!({"query": tool, "limit": 1 + next(5)});
                let made = Call::new("tool_search", query.clone());
                let found = answer(&engine, &mut session, &made).0;
                messages.push(said(vec![call(&id, "tool_search", &query)]));
                messages.push(results(vec![result(&id, "tool_search", &found)]));
            }
            1 => {
                let envelope = json!({"tool_name": tool, "arguments": {"size": number}});
                messages.push(said(vec![text("Now."), call(&id, "call_tool", &envelope)]));
                messages.push(results(vec![result(&id, "call_tool", &"done ".repeat(50))]));
            }
            2 => {
                let tool = tools().definition(&tool).unwrap().clone();
                let added = vec![Revealed { group: "mcp:shop".into(), tool }];
                messages.push(Message::Tools(ToolChange { added, removed: Vec::new() }));
            }
            _ => {
                messages.push(said(vec![text("What next?")]));
                messages.push(user("Go on."));
            }
        }
    }
    messages.push(said(vec![text("Done.")]));
    history(messages)
}

#[test]
fn sums_agree_with_a_simulation_of_whole_prompts() {
    let catalog = tools();
    let mut gemini = house();
    gemini.order = Models::embedded().find("gemini").unwrap().order;
    let mut stepping = house();
    (stepping.cache.minimum, stepping.cache.step) = (1_024, 128);
    for seed in 0..6 {
        let recording = Recording::of(&rambling(seed));
        for model in [&house(), &gemini, &stepping] {
            for approach in [FULL, INJECT, DISPATCH, NATIVE] {
                let telling =
                    Telling::of(&recording.entries, SYSTEM, catalog, approach, &model.tokenizer);
                let row = bill::row(&telling, approach, model);
                let usages = simulate(&model.cache, &prompts(&telling, model));
                assert_eq!(row.usage, usages.iter().copied().sum(), "{seed} {approach}");
                let cost: Cost = usages.iter().map(|usage| usage.cost(model)).sum();
                assert!(same(row.cost, cost));
                assert_eq!(row.peak, usages.iter().map(Usage::prompt).max().unwrap());
                assert_eq!(row.calls as usize, usages.len());
            }
        }
    }
}

/// Every prompt of a telling as a whole, one block for each thing said.
fn prompts(telling: &Telling, model: &Model) -> Vec<Prompt> {
    let (mut array, mut said, mut prompts) = ((0, telling.tools), Vec::new(), Vec::new());
    for (at, step) in telling.steps.iter().enumerate() {
        let key = at as u64 + 1_000_000;
        match *step {
            Step::Say(tokens) => said.push(Block { key, tokens }),
            Step::Tools(tokens) => array = (key, tokens),
            Step::Ask(output) => {
                let section = |section: &toolcrib_tokens::Section| match section {
                    toolcrib_tokens::Section::Tools => {
                        vec![Block { key: array.0, tokens: array.1 }]
                    }
                    toolcrib_tokens::Section::System => {
                        vec![Block { key: 1, tokens: telling.system }]
                    }
                    toolcrib_tokens::Section::Messages => said.clone(),
                };
                prompts.push(Prompt {
                    blocks: model.order.iter().flat_map(section).collect(),
                    output,
                });
                said.push(Block { key, tokens: output });
            }
        }
    }
    prompts
}

#[test]
fn dispatch_and_native_send_nothing_twice_and_full_has_the_most_tools() {
    let catalog = tools();
    let verbs = |approach| {
        let all = catalog.prefix(approach).tools.iter();
        sum(all.filter(|tool| catalog.definition(tool.name()).is_none()))
    };
    for seed in 0..8 {
        let history = rambling(seed);
        let replay = priced(&history);
        for approach in [FULL, DISPATCH, NATIVE] {
            assert_eq!(replay.row("house", approach).unwrap().again, 0, "{seed} {approach}");
        }
        assert!(replay.row("house", INJECT).unwrap().again > 0, "{seed}");
        let telling = |approach| {
            let entries = Recording::of(&history).entries;
            Telling::of(&entries, SYSTEM, catalog, approach, &Tokenizer::O200K)
        };
        let full = telling(FULL).tools;
        for approach in [INJECT, DISPATCH, NATIVE] {
            let telling = telling(approach);
            let grown = telling.steps.iter().filter_map(|step| match step {
                Step::Tools(tokens) => Some(*tokens),
                _ => None,
            });
            let most = grown.fold(telling.tools, u64::max);
            assert!(most - verbs(approach) <= full, "{seed} {approach}");
        }
    }
}

#[test]
fn a_history_cut_anywhere_is_a_shorter_one() {
    let whole = rambling(3);
    for from in 0..whole.len() {
        let cut = &whole[from..];
        let replies = |only: bool| {
            let said = cut.iter().filter(|message| match &***message {
                Message::Assistant(said) => {
                    !only || !crate::spending::deferral::only_looks(&said.content)
                }
                _ => false,
            });
            said.count() as u32
        };
        let replay = priced(cut);
        // A cut that leaves no trace of deferral looks like a conversation without.
        let supposed = replay.notes.iter().any(|note| note.starts_with("Recorded with every"));
        let calls = |approach| replay.row("house", approach).unwrap().calls;
        assert_eq!(calls(FULL), replies(true), "from {from}");
        assert!(calls(DISPATCH) == replies(false) || supposed, "from {from}");
    }
}

#[test]
fn a_conversation_recorded_in_full_is_supposed_to_search() {
    let history = history(vec![
        user("Drill."),
        said(vec![call("1", "drill_1", &json!({})), call("2", "drill_2", &json!({}))]),
        results(vec![result("1", "drill_1", "ok"), result("2", "drill_2", "ok")]),
        said(vec![call("3", "drill_1", &json!({}))]),
        results(vec![result("3", "drill_1", "ok")]),
        said(vec![text("Done.")]),
    ]);
    let replay = priced(&history);
    let calls = replay.rows.iter().map(|it| it.row.calls).collect::<Vec<u32>>();
    assert_eq!(calls, [3, 4, 4, 4]);
    assert_eq!(replay.notes.len(), 1);
    let native = usage(&replay, NATIVE);
    let catalog = tools();
    let given = sum(["drill_1", "drill_2"].map(|name| catalog.definition(name).unwrap()));
    assert!(native.prompt() > 3 * given);
}

#[test]
fn tools_that_are_gone_count_as_they_were_recorded() {
    let rows = r#"{"total_matches":2,"tools":[{"name":"lathe","description":"Turns.","parameters":{"type":"object"},"loaded":true}],"not_found":[],"hint":""}"#;
    let listed = r#"{"group_id":"mcp:old","expanded":true,"tool_names":["press"],"remaining":0}"#;
    let history = history(vec![
        user("Turn it."),
        said(vec![call("1", "tool_search", &json!({})), call("2", "load_tools", &json!({}))]),
        results(vec![result("1", "tool_search", rows), result("2", "load_tools", listed)]),
        said(vec![Said::Native { provider: "anthropic".into(), json: json!({}) }, text("So.")]),
    ]);
    let replay = priced(&history);
    assert_eq!(
        replay.notes,
        [
            "No longer in the catalog, counted as they were recorded: lathe.",
            "No longer in the catalog, and not recorded: press.",
            "What the model thought is counted nowhere.",
        ]
    );
    let lathe = r#"{"name":"lathe","description":"Turns.","input_schema":{"type":"object"}}"#;
    let expected = sum(&tools().prefix(FULL).tools) + count(lathe) + count(SYSTEM);
    assert_eq!(usage(&replay, FULL).prompt(), expected + count("Turn it."));
}

#[test]
fn a_notice_with_definitions_is_a_load_by_the_host() {
    let line = tools().definition(&drill(9)).unwrap().neutral().get().to_owned();
    let history = history(vec![
        user("Drill."),
        said(vec![text("Which?")]),
        Message::notice(format!("Now loaded:\n{line}")),
        Message::notice("Now loaded:\nthe van"),
        said(vec![text("Done.")]),
    ]);
    let replay = priced(&history);
    let row = |approach| replay.row("house", approach).unwrap();
    assert!(row(INJECT).again > 0);
    let words = [FULL, DISPATCH].map(|approach| {
        let prefix = tools().prefix(approach);
        let gap = if prefix.section.is_empty() { "" } else { "\n\n" };
        let fixed = sum(&prefix.tools) + count(&format!("{SYSTEM}{gap}{}", prefix.section));
        row(approach).peak - fixed
    });
    assert_eq!(words[1] - words[0], count(&format!("Now loaded:\n{line}")));
}

#[test]
fn a_recorded_conversation_amounts_to_a_scenario() {
    let history = recorded(Strategy::Dispatch);
    let scenario = scenario(&history, SYSTEM, &Tokenizer::O200K);
    let input = count("Drill a hole of seven.") + count("drilled");
    let output = count(&format!(r#"{}{{"size":7}}"#, drill(3))) + count("It is drilled.");
    let expected = Scenario {
        turns: 2,
        loads: 1,
        tools_per_load: 2,
        system: count(SYSTEM),
        history: 0,
        input_per_turn: input.div_ceil(2),
        output_per_turn: output.div_ceil(2),
    };
    assert_eq!(scenario, expected);

    // A forecast for it comes close to what the recording takes.
    let engine = engine(Preset::Crib, StrategyChoice::Auto);
    let footprints = engine.footprints(shop(), 2, &Tokenizer::O200K).unwrap();
    let forecast = plan(&footprints, &scenario, &house());
    for approach in [FULL, INJECT, DISPATCH] {
        let replay = priced(&history);
        let (told, made) =
            (forecast.row(approach).unwrap(), replay.row("house", approach).unwrap());
        assert_eq!(told.calls, made.calls, "{approach}");
        let near = told.usage.prompt() as f64 / made.usage.prompt() as f64;
        assert!((0.8..1.25).contains(&near), "{approach}: {near}");
    }
}

#[test]
fn nothing_recorded_costs_nothing() {
    let replay = priced(&[]);
    assert!(replay.rows.iter().all(|it| it.row.cost == Cost::ZERO && it.row.calls == 0));
    let scenario = scenario(&[], "", &Tokenizer::O200K);
    assert_eq!((scenario.turns, scenario.loads, scenario.input_per_turn), (0, 0, 0));
}

#[test]
fn rows_are_told_in_a_table_and_alike_each_time() {
    let mut small = house();
    (small.name, small.prices, small.context) = ("small".into(), None, Some(1_500));
    small.supports.clear();
    let history = recorded(Strategy::Dispatch);
    let replay = replay(&history, SYSTEM, tools(), [&house(), &small]);
    let table = replay.to_string();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 1 + 4 + 3);
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>().join(" "),
        "model approach calls prompt tokens from cache output cost vs full"
    );
    assert!(lines[1].starts_with("house  full          2  "), "{table}");
    assert!(lines[3].contains(" %") && lines[3].contains("$0.00"), "{table}");
    assert!(lines[5].contains(" eq.") && lines[5].ends_with("too long"), "{table}");
    assert_eq!(table, super::replay(&history, SYSTEM, tools(), [&house(), &small]).to_string());

    let json = serde_json::to_value(&replay).unwrap();
    assert_eq!(json["rows"][0]["approach"], "full");
    assert_eq!(
        (&json["rows"][0]["model"], &json["rows"][0]["calls"]),
        (&json!("house"), &json!(2))
    );
}
