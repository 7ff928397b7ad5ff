use proptest::prelude::*;
use serde_json::json;
use toolcrib_tokens::{CacheRules, Feature, Models, Prices, Tokenizer};

use super::*;
use crate::Strategy;
use crate::{Engine, Mode, Preset, Registry, ServerTools, Session, Settings, ToolName, ToolSpec};

const INJECT: Approach = Approach::Deferred(Strategy::Inject);
const DISPATCH: Approach = Approach::Deferred(Strategy::Dispatch);
const NATIVE: Approach = Approach::Deferred(Strategy::Native);

const ANTHROPIC: CacheRules =
    CacheRules { write: 1.25, write_1h: Some(2.0), read: 0.1, minimum: 1_024, step: 1 };
const OPENAI: CacheRules =
    CacheRules { write: 1.0, write_1h: None, read: 0.1, minimum: 1_024, step: 128 };

/// Two turns of 400 tokens in and 100 out; one load, which falls into the second.
const SHORT: Scenario = Scenario {
    turns: 2,
    loads: 1,
    tools_per_load: 1,
    system: 500,
    history: 0,
    input_per_turn: 400,
    output_per_turn: 100,
};

fn model(cache: CacheRules) -> Model {
    let models = Models::embedded();
    Model { cache, ..models.find("anthropic").unwrap().clone() }
}

/// A model with a form of its own for tools that wait.
fn deferring(cache: CacheRules) -> Model {
    Model { supports: vec![Feature::DeferLoading], ..model(cache) }
}

fn footprints() -> Footprints {
    let rounds = |call, result| vec![LoadRound { call, result }];
    Footprints {
        full: Footprint { base: 3_000, ..Footprint::default() },
        inject: Footprint {
            base: 900,
            section: 500,
            loaded: 250,
            rounds: rounds(20, 30),
            envelope: 0,
        },
        dispatch: Footprint {
            base: 1_000,
            section: 500,
            loaded: 0,
            rounds: rounds(20, 280),
            envelope: 10,
        },
        native: None,
        waiting: 30,
    }
}

fn usage(read: u64, written: u64, uncached: u64, output: u64) -> Usage {
    Usage { read, written, uncached, output }
}

/// A row without dollars in an endless window.
fn row(
    approach: Approach,
    calls: u32,
    usage: Usage,
    again: u64,
    input_equivalents: f64,
    peak: u64,
) -> PlanRow {
    let cost = Cost { input_equivalents, dollars: None };
    PlanRow { approach, calls, usage, again, cost, peak, fits: true }
}

#[test]
fn two_turns_and_a_load_under_anthropics_rules() {
    let plan = plan(&footprints(), &SHORT, &model(ANTHROPIC));
    let expected = [
        // Prompts of 3,900 and 4,400.
        row(Approach::Full, 2, usage(3_900, 4_400, 0, 200), 0, 390.0 + 5_500.0, 4_400),
        // 2,300, then 2,800 to search, then all 3,100 anew.
        row(INJECT, 3, usage(2_300, 5_900, 0, 220), 2_800, 230.0 + 7_375.0, 3_100),
        // 2,400, then 2,900 to search, then 3,200 of which the last 300 are new.
        row(DISPATCH, 3, usage(5_300, 3_200, 0, 230), 0, 530.0 + 4_000.0, 3_200),
    ];
    assert_eq!(plan.rows, expected);
    assert_eq!(plan.cheapest, DISPATCH);
}

#[test]
fn two_turns_and_a_load_under_rules_with_steps_and_free_writes() {
    let plan = plan(&footprints(), &SHORT, &model(OPENAI));
    // 3,900 = 30 · 128 + 60; 4,400 = 34 · 128 + 48; 2,400 = 18 · 128 + 96; 2,900 = 22 · 128 + 84;
    // 3,200 = 25 · 128; 2,300 = 17 · 128 + 124; 2,800 = 21 · 128 + 112; 3,100 = 24 · 128 + 28.
    let expected = [
        row(Approach::Full, 2, usage(3_840, 4_352, 108, 200), 60, 384.0 + 4_460.0, 4_400),
        row(INJECT, 3, usage(2_176, 5_760, 264, 220), 2_924, 217.6 + 6_024.0, 3_100),
        row(DISPATCH, 3, usage(5_120, 3_200, 180, 230), 180, 512.0 + 3_380.0, 3_200),
    ];
    for (row, expected) in plan.rows.iter().zip(expected) {
        assert!((row.cost.input_equivalents - expected.cost.input_equivalents).abs() < 1e-6);
        assert_eq!(PlanRow { cost: expected.cost, ..*row }, expected);
    }
}

#[test]
fn native_is_billed_like_dispatch_without_its_envelope_for_models_that_can() {
    let native = Footprint {
        base: 900,
        section: 500,
        loaded: 0,
        rounds: vec![LoadRound { call: 20, result: 260 }],
        envelope: 0,
    };
    let sizes = Footprints { native: Some(native), ..footprints() };
    let planned = plan(&sizes, &SHORT, &deferring(ANTHROPIC));
    // 2,300, then 2,800 to search, then 3,080 of which the last 280 are new.
    let expected = row(NATIVE, 3, usage(5_100, 3_080, 0, 220), 0, 510.0 + 3_850.0, 3_080);
    assert_eq!(planned.rows.last(), Some(&expected));
    assert_eq!((planned.rows.len(), planned.cheapest), (4, NATIVE));
    let said = "native is cheapest: dispatch costs 4 % more, since it sends ~320 tokens more; ";
    assert!(planned.why.starts_with(said), "{}", planned.why);

    let without = plan(&sizes, &SHORT, &model(ANTHROPIC));
    assert_eq!(without.rows, plan(&footprints(), &SHORT, &deferring(ANTHROPIC)).rows);
    assert_eq!((without.row(NATIVE), without.cheapest), (None, DISPATCH));
    let searching = Model { supports: vec![Feature::ToolSearch], ..model(OPENAI) };
    assert!(plan(&sizes, &SHORT, &searching).row(NATIVE).is_some());
}

#[test]
fn a_prompt_too_short_to_be_kept_may_be_the_dearer_one() {
    let rules = CacheRules { minimum: 2_400, ..ANTHROPIC };
    let short = Footprint { base: 900, envelope: 0, ..footprints().dispatch };
    let sizes = Footprints { native: Some(short), ..footprints() };
    let planned = plan(&sizes, &Scenario { loads: 0, ..SHORT }, &deferring(rules));
    assert_eq!(planned.cheapest, DISPATCH);
    let said = "too short to be kept in the cache at first, and has ~2,300 tokens processed again";
    assert!(planned.why.contains(said), "{}", planned.why);
}

#[test]
fn of_equals_native_comes_first_then_dispatch_then_inject() {
    let same = Footprint { base: 2_000, ..Footprint::default() };
    let dearer = Footprint { base: 2_001, ..Footprint::default() };
    let cheapest = |native: &Footprint, dispatch: &Footprint, inject: &Footprint| {
        let sizes = Footprints {
            full: same.clone(),
            inject: inject.clone(),
            dispatch: dispatch.clone(),
            native: Some(native.clone()),
            waiting: 0,
        };
        plan(&sizes, &SHORT, &deferring(ANTHROPIC)).cheapest
    };
    assert_eq!(cheapest(&same, &same, &same), NATIVE);
    assert_eq!(cheapest(&dearer, &same, &same), DISPATCH);
    assert_eq!(cheapest(&dearer, &dearer, &same), INJECT);
    assert_eq!(cheapest(&dearer, &dearer, &dearer), Approach::Full);
}

#[test]
fn where_the_system_prompt_comes_first_inject_still_reads_it() {
    let rules = CacheRules { minimum: 512, ..ANTHROPIC };
    let order = [Section::System, Section::Tools, Section::Messages];
    let plan = plan(&footprints(), &SHORT, &Model { order, ..model(rules) });
    assert_eq!(plan.row(INJECT).unwrap().usage, usage(2_300 + 1_000, 5_900 - 1_000, 0, 220));
}

#[test]
fn dollars_pay_for_the_output_as_well() {
    let prices = Some(Prices { input: 4.0, output: 20.0, long: None });
    let plan = plan(&footprints(), &SHORT, &Model { prices, ..model(ANTHROPIC) });
    let dollars = plan.row(DISPATCH).unwrap().cost.dollars.unwrap();
    assert!((dollars - (4_530.0 * 4.0 + 230.0 * 20.0) / 1e6).abs() < 1e-12);
}

#[test]
fn loads_are_spread_evenly() {
    let at = |turns, loads| load_turns(&Scenario { turns, loads, ..SHORT }).collect::<Vec<_>>();
    assert_eq!(at(20, 4), [2, 7, 12, 17]);
    assert_eq!(at(2, 1), [1]);
    assert_eq!(at(2, 4), [0, 0, 1, 1]);
    assert_eq!(at(3, 0), [0; 0]);
}

#[test]
fn nothing_is_loaded_once_everything_is() {
    let sizes = Footprints { waiting: 3, ..footprints() };
    let scenario = Scenario { turns: 10, loads: 8, tools_per_load: 2, ..SHORT };
    let plan = plan(&sizes, &scenario, &model(ANTHROPIC));
    assert_eq!(plan.scenario.loads, 2);
    assert_eq!(plan.rows.iter().map(|row| row.calls).collect::<Vec<_>>(), [10, 12, 12]);
}

#[test]
fn full_wins_where_tools_are_few_and_says_so() {
    let mut sizes = footprints();
    sizes.full.base = 1_100;
    let plan = plan(&sizes, &Scenario { turns: 8, loads: 4, ..SHORT }, &model(ANTHROPIC));
    assert_eq!(plan.cheapest, Approach::Full);
    assert!(plan.why.starts_with("full is cheapest: dispatch costs "), "{}", plan.why);
    assert!(plan.why.contains("4 more calls to find tools"), "{}", plan.why);
}

#[test]
fn what_does_not_fit_the_window_is_not_the_cheapest() {
    let mut sizes = footprints();
    sizes.full.base = 2_500;
    sizes.dispatch.rounds[0].result = 30;
    let scenario = Scenario { turns: 8, loads: 4, ..SHORT };
    let roomy = plan(&sizes, &scenario, &model(ANTHROPIC));
    assert_eq!(roomy.cheapest, Approach::Full);
    assert_eq!(roomy.row(Approach::Full).unwrap().peak, 6_900);

    let tight = plan(&sizes, &scenario, &Model { context: Some(6_800), ..model(ANTHROPIC) });
    assert!(!tight.row(Approach::Full).unwrap().fits && tight.row(DISPATCH).unwrap().fits);
    assert_eq!(tight.cheapest, DISPATCH);
    let said = "full does not fit: prompts of ~6,900 tokens in a window of 6,800.";
    assert!(tight.why.starts_with(said), "{}", tight.why);
    assert!(tight.why.contains("full would cost less if it fitted"), "{}", tight.why);

    let none = plan(&sizes, &scenario, &Model { context: Some(9), ..model(ANTHROPIC) });
    assert!(none.why.starts_with("No approach fits the window of 9 tokens"), "{}", none.why);
}

#[test]
fn turning_points_are_where_the_cheapest_changes() {
    let scenario = Scenario { turns: 12, loads: 3, ..SHORT };
    let model = model(ANTHROPIC);
    let planned = plan(&footprints(), &scenario, &model);
    assert_eq!(planned.cheapest, DISPATCH);
    let loads = |loads| plan(&footprints(), &Scenario { loads, ..scenario }, &model).cheapest;
    let above = planned.turning_points.iter().find(|point| point.at > scenario.loads).unwrap();
    assert_eq!((above.varied, above.cheapest), (Varied::Loads, Approach::Full));
    assert_eq!((loads(above.at - 1), loads(above.at)), (DISPATCH, Approach::Full));
    let below = planned.turning_points.iter().find(|point| point.at < scenario.loads).unwrap();
    assert_eq!((below.varied, below.at, below.cheapest), (Varied::Loads, 0, INJECT));
    assert_eq!(loads(0), INJECT);
    let said =
        format!("The cheapest would be inject without any load, full from {} loads on", above.at);
    assert!(planned.why.contains(&said), "{}", planned.why);
}

#[test]
fn odd_scenarios_are_planned_without_complaint() {
    let zero = Scenario { turns: 0, loads: 3, ..SHORT };
    let nothing = plan(&footprints(), &zero, &model(ANTHROPIC));
    assert!(nothing.rows.iter().all(|row| row.calls == 0 && row.price() == 0.0));
    assert_eq!(nothing.why, "dispatch is cheapest: full costs the same; inject costs the same.");
    let huge = Scenario { history: u64::MAX, input_per_turn: u64::MAX, ..SHORT };
    let huge = plan(&footprints(), &huge, &model(ANTHROPIC));
    assert_eq!(huge.row(DISPATCH).unwrap().peak, u64::MAX);
    let empty = plan(&Footprints::default(), &Scenario::default(), &model(OPENAI));
    assert_eq!(empty.cheapest, DISPATCH);
}

/// All requests of a conversation, every piece a block of its own.
fn requests(footprint: &Footprint, scenario: &Scenario, model: &Model) -> Vec<Request> {
    let mut key = 10;
    let mut fresh = |tokens| {
        key += 1;
        Block { key, tokens }
    };
    let system = Block { key: 1, tokens: scenario.system + footprint.section };
    let mut tools = fresh(footprint.base);
    let mut messages = vec![fresh(scenario.history)];
    let mut requests = Vec::new();
    let mut loads = 0;
    for turn in 0..scenario.turns {
        messages.push(fresh(scenario.input_per_turn));
        let due = load_turns(scenario).filter(|at| *at == turn).count();
        let rounds = (0..due).flat_map(|_| &footprint.rounds);
        let calls = rounds.map(|round| (round.call, Some(round.result)));
        loads += due;
        let envelope = if loads > 0 { footprint.envelope } else { 0 };
        for (output, result) in calls.chain([(scenario.output_per_turn + envelope, None)]) {
            let blocks = model.order.iter().flat_map(|section| match section {
                Section::Tools => vec![tools],
                Section::System => vec![system],
                Section::Messages => messages.clone(),
            });
            requests.push(Request { blocks: blocks.collect(), output });
            messages.push(fresh(output));
            if let Some(result) = result {
                messages.push(fresh(result));
                // One round a load.
                tools = if footprint.loaded > 0 {
                    fresh(tools.tokens + footprint.loaded)
                } else {
                    tools
                };
            }
        }
    }
    requests
}

prop_compose! {
    fn scenarios()(
        turns in 1u32..12, loads in 0u32..12, tools_per_load in 1u32..4, system in 0u64..5_000,
        history in 0u64..20_000, input_per_turn in 0u64..3_000, output_per_turn in 0u64..900,
    ) -> Scenario {
        Scenario {
            turns, loads, tools_per_load, system, history, input_per_turn, output_per_turn,
        }
    }
}

prop_compose! {
    fn sizes()(
        full in 1u64..60_000, base in 1u64..3_000, section in 0u64..2_000, loaded in 1u64..4_000,
        call in 0u64..60, envelope in 0u64..30,
    ) -> Footprints {
        let rounds = |result| vec![LoadRound { call, result }];
        let deferred = Footprint { base, section, ..Footprint::default() };
        Footprints {
            full: Footprint { base: full, ..Footprint::default() },
            inject: Footprint { loaded, rounds: rounds(40), ..deferred.clone() },
            dispatch: Footprint { rounds: rounds(loaded), envelope, ..deferred.clone() },
            native: Some(Footprint { rounds: rounds(loaded), ..deferred }),
            waiting: 40,
        }
    }
}

fn models() -> impl proptest::strategy::Strategy<Value = Model> {
    let order = [Section::System, Section::Tools, Section::Messages];
    prop_oneof![
        Just(model(ANTHROPIC)),
        Just(model(OPENAI)),
        Just(model(CacheRules::NONE)),
        Just(Model { order, ..model(ANTHROPIC) }),
        Just(deferring(ANTHROPIC)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn billing_against_the_last_prompt_is_billing_against_all(
        sizes in sizes(), scenario in scenarios(), model in models(),
    ) {
        for (approach, footprint) in sizes.each() {
            let bill = Bill::of(footprint, &scenario, &model).row(approach);
            let usages = simulate(&model.cache, &requests(footprint, &scenario, &model));
            let sum = |of: fn(&Usage) -> u64| usages.iter().map(of).sum::<u64>();
            let (read, written) = (sum(|usage| usage.read), sum(|usage| usage.written));
            let all = usage(read, written, sum(|usage| usage.uncached), sum(|usage| usage.output));
            prop_assert_eq!(bill.usage, all);
            prop_assert_eq!(bill.calls as usize, usages.len());
            let sent: u64 = usages[..usages.len() - 1].iter().map(Usage::prompt).sum();
            prop_assert_eq!(bill.again, sent - all.read);
            prop_assert_eq!(bill.peak, usages.iter().map(Usage::prompt).max().unwrap_or(0));
        }
    }

    #[test]
    fn dispatch_reads_every_prompt_again_and_inject_all_but_those_before_a_load(
        sizes in sizes(), scenario in scenarios(), steps in any::<bool>(),
    ) {
        let rules = if steps { OPENAI } else { ANTHROPIC };
        let model = model(rules);
        for (approach, footprint) in sizes.each() {
            let requests = requests(footprint, &scenario, &model);
            let (mut read, mut changes) = (0, 0);
            for pair in requests.windows(2) {
                // Tools come first here: once they change, nothing in front is the same.
                let changed = pair[0].blocks[0] != pair[1].blocks[0];
                let before: u64 = pair[0].blocks.iter().map(|block| block.tokens).sum();
                let whole = before - before % rules.step;
                read += if changed || whole < rules.minimum { 0 } else { whole };
                changes += u32::from(changed);
            }
            prop_assert_eq!(Bill::of(footprint, &scenario, &model).usage.read, read);
            prop_assert_eq!(changes, if approach == INJECT { scenario.loads } else { 0 });
        }
    }

    #[test]
    fn more_tools_make_full_dearer_and_leave_dispatch_alone(
        sizes in sizes(), scenario in scenarios(), model in models(), more in 1u64..50_000,
    ) {
        let mut grown = sizes.clone();
        // By whole steps of the cache, so that no prompt comes to fit them better.
        grown.full.base += more * model.cache.step;
        let (before, after) = (rows(&sizes, &scenario, &model), rows(&grown, &scenario, &model));
        // A prompt that reaches the minimum only now begins to be read at a discount.
        let cached = sizes.full.base >= model.cache.minimum;
        prop_assert!(!cached || after[0].price() > before[0].price());
        prop_assert_eq!(&after[1..], &before[1..]);
    }

    #[test]
    fn the_cheapest_is_no_dearer_than_any_other(
        sizes in sizes(), scenario in scenarios(), model in models(),
    ) {
        let plan = plan(&sizes, &scenario, &model);
        let best = plan.row(plan.cheapest).unwrap().price();
        prop_assert!(plan.rows.iter().all(|row| row.price() >= best));
        for point in &plan.turning_points {
            let there = match point.varied {
                Varied::Loads => Scenario { loads: point.at, ..plan.scenario },
                Varied::Turns => Scenario { turns: point.at, ..plan.scenario },
            };
            prop_assert_eq!(super::plan(&sizes, &there, &model).cheapest, point.cheapest);
            prop_assert_ne!(point.cheapest, plan.cheapest);
        }
    }
}

fn registry(tools: usize) -> Registry {
    let registry = Registry::default();
    let tool = |n: usize| {
        let schema = json!({"type": "object", "properties": {
            "id": {"type": "integer", "description": "The number of the thing."},
            "text": {"type": "string", "description": "What to say about it."}}});
        let name = ToolName::mcp("shop", format!("note_thing_{n:03}"));
        ToolSpec::new(name, schema).with_description("Writes a note about a thing in the shop.")
    };
    registry.replace_server(ServerTools::new("shop", (0..tools).map(tool)));
    registry
}

#[test]
fn footprints_are_those_of_the_prompts_an_engine_prepares() {
    let view = registry(60).catalog().view_all();
    let engine = Engine::new(Settings::default()).unwrap();
    let measured = engine.footprints(&view, 5, &Tokenizer::O200K).unwrap();
    let tool = view.tools().next().unwrap().tokens();
    let near = |tokens: u64, tools: u64| tokens.abs_diff(tools * tool) <= tools;
    assert_eq!(measured.waiting, 60);
    assert!(near(measured.full.base, 60) && measured.full.rounds.is_empty(), "{measured:?}");
    assert!(near(measured.inject.loaded, 5) && measured.inject.envelope == 0, "{measured:?}");
    assert_eq!(measured.dispatch.loaded, 0);
    assert!(measured.dispatch.rounds[0].result >= 5 * (tool - 10), "{measured:?}");
    assert!((3..30).contains(&measured.dispatch.envelope), "{measured:?}");
    // The definitions and nothing around them, and no verb to call through.
    let native = measured.native.unwrap();
    assert!(near(native.rounds[0].result, 5), "{native:?}");
    assert_eq!(
        (native.loaded, native.envelope, native.base),
        (0, 0, {
            let verbs = Settings { mode: Mode::Deferred, ..Settings::default() };
            let mut session = Session::new();
            session.choose(Strategy::Native);
            let shown = Engine::new(verbs).unwrap().prepare(&mut session, &view).unwrap();
            shown.tools.iter().map(|tool| tool.tokens()).sum()
        })
    );
    assert!(native.base < measured.dispatch.base);

    let mut session = Session::new();
    let settings = Settings { mode: Mode::Deferred, ..Settings::default() };
    let shown = Engine::new(settings).unwrap().prepare(&mut session, &view).unwrap();
    let base: u64 = shown.tools.iter().map(|tool| tool.tokens()).sum();
    assert_eq!(measured.dispatch.base, base);
    let section = Tokenizer::O200K.count(&shown.system_section).tokens;
    assert_eq!(measured.dispatch.section, section);
}

#[test]
fn more_tools_that_wait_add_only_to_the_section() {
    let engine = Engine::new(Settings::default()).unwrap();
    let measure = |tools| {
        let view = registry(tools).catalog().view_all();
        engine.footprints(&view, 5, &Tokenizer::O200K).unwrap()
    };
    let (few, many) = (measure(20), measure(600));
    assert!(many.full.base > 25 * few.full.base);
    assert_eq!(many.dispatch.base, few.dispatch.base);
    assert!(many.dispatch.section <= engine.settings().catalog_tokens);
}

#[test]
fn every_preset_can_be_planned() {
    let view = registry(80).catalog().view_all();
    let models = Models::embedded();
    for preset in Preset::ALL {
        let engine = Engine::new(Settings::preset(preset)).unwrap();
        let tools_per_load = engine.tools_per_load(&view);
        // Long enough for every prompt to be kept.
        let scenario = Scenario { loads: 1, tools_per_load, system: 5_000, ..Scenario::default() };
        let plan = engine.plan(&view, &scenario, models.find("claude-opus-5-5").unwrap()).unwrap();
        let Footprints { inject, dispatch, native, .. } = &plan.footprints;
        let native = native.as_ref().unwrap();
        assert!(native.base < dispatch.base && native.loaded == 0, "{preset}: {plan:?}");
        assert_eq!(native.rounds.len(), dispatch.rounds.len());
        let price = |approach| plan.row(approach).unwrap().price();
        assert!(price(NATIVE) < price(DISPATCH), "{preset}: {plan:?}");
        assert!(inject.loaded > 0 && dispatch.loaded == 0, "{preset}: {plan:?}");
        assert!(dispatch.rounds.iter().all(|round| round.result > 10), "{preset}: {plan:?}");
        assert_eq!(dispatch.rounds.len(), if preset == Preset::Lazy { 2 } else { 1 });
    }
}

#[test]
fn without_tools_that_wait_every_approach_is_the_same() {
    let view = registry(0).catalog().view_all();
    let engine = Engine::new(Settings::default()).unwrap();
    let models = Models::embedded();
    let plan = engine.plan(&view, &Scenario::default(), models.find("openai").unwrap()).unwrap();
    assert_eq!(plan.scenario.loads, 0);
    assert_eq!(plan.cheapest, NATIVE);
    let same =
        "native is cheapest: full costs the same; inject costs the same; dispatch costs the same.";
    assert_eq!(plan.why, same);
}
