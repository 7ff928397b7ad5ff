//! Which strategy `auto` comes to, and why.

mod support;

use support::{denying, registry, server};
use toolcrib_core::{
    Engine, Policy, Preset, Registry, Scenario, Settings, Strategy, StrategyChoice, View,
};
use toolcrib_tokens::{Model, Models};

fn shop(tools: usize) -> Registry {
    let names: Vec<String> = (0..tools).map(|n| format!("note_thing_{n:03}")).collect();
    let tools: Vec<(&str, &str)> =
        names.iter().map(|name| (name.as_str(), "Writes a note about a thing.")).collect();
    registry([server("shop", &tools)])
}

fn view() -> View {
    shop(60).catalog().view_all()
}

fn model(name: &str) -> Model {
    Models::embedded().find(name).expect("the table has it").clone()
}

fn engine(preset: Preset, strategy: StrategyChoice) -> Engine {
    let mut settings = Settings::preset(preset);
    settings.strategy = strategy;
    Engine::new(settings).expect("the settings are sound")
}

#[test]
fn crib_takes_the_cheapest_and_says_why() {
    let engine = engine(Preset::Crib, StrategyChoice::Auto);
    let choose = |model: &Model, native| {
        let chosen = engine.choose(&view(), model, &Scenario::default(), native);
        (chosen.strategy, chosen.why)
    };
    let (strategy, why) = choose(&model("claude-opus-5-5"), true);
    assert_eq!(strategy, Strategy::Native);
    assert!(why.starts_with("native is cheapest: dispatch costs "), "{why}");
    assert!(why.contains("inject costs ") && !why.contains("full"), "{why}");
    // A driver that can't render it, and a model that can't read it.
    for (name, native) in [("claude-opus-5-5", false), ("claude-opus-4-1", true), ("local", true)] {
        let (strategy, why) = choose(&model(name), native);
        assert_eq!(strategy, Strategy::Dispatch, "{name}: {why}");
        assert!(why.starts_with("dispatch is cheapest: inject costs "), "{why}");
    }
    // Nothing is cached, nothing loaded: the shortest prompt wins.
    let uncached = Model { cache: toolcrib_tokens::CacheRules::NONE, ..model("local") };
    let idle = Scenario { loads: 0, ..Scenario::default() };
    assert_eq!(engine.choose(&view(), &uncached, &idle, false).strategy, Strategy::Inject);
}

#[test]
fn what_is_settled_stays_and_the_reason_says_by_whom() {
    let opus = model("claude-opus-5-5");
    let choose = |preset, choice, native| {
        let chosen = engine(preset, choice).choose(&view(), &opus, &Scenario::default(), native);
        chosen.why
    };
    assert_eq!(
        choose(Preset::Stubs, StrategyChoice::Auto, true),
        "inject: what preset `stubs` uses."
    );
    assert_eq!(
        choose(Preset::Groups, StrategyChoice::Auto, true),
        "dispatch: what preset `groups` uses."
    );
    for preset in Preset::ALL {
        assert_eq!(choose(preset, StrategyChoice::Native, true), "native: as the settings say.");
        assert_eq!(choose(preset, StrategyChoice::Inject, true), "inject: as the settings say.");
        assert_eq!(
            choose(preset, StrategyChoice::Native, false),
            "dispatch: the settings ask for native, which this model or its API has not got."
        );
    }
}

#[test]
fn where_call_tool_is_denied_dispatch_is_no_choice() {
    let view = shop(60).catalog().view(&denying(&["call_tool"]));
    let local = model("local");
    let choose = |choice| {
        let engine = engine(Preset::Crib, choice);
        engine.choose(&view, &local, &Scenario::default(), false)
    };
    let open = choose(StrategyChoice::Auto);
    assert_eq!(open.strategy, Strategy::Inject);
    assert!(!open.why.contains("dispatch"), "{}", open.why);
    assert_eq!(choose(StrategyChoice::Dispatch).why, "inject: the policy denies `call_tool`.");
}

#[test]
fn where_nothing_can_be_offered_the_reason_is_given() {
    let view = shop(2_000).catalog().view(&denying(&["tool_search", "load_tools", "call_tool"]));
    let engine = engine(Preset::Crib, StrategyChoice::Auto);
    let chosen = engine.choose(&view, &model("local"), &Scenario::default(), true);
    assert!(chosen.why.contains("the policy denies"), "{}", chosen.why);
}

#[test]
fn a_choice_is_made_for_the_tools_there_are() {
    // The same engine over another catalog measures anew; over the same it comes to the same.
    let engine = engine(Preset::Crib, StrategyChoice::Auto);
    let opus = model("claude-opus-5-5");
    let choose = |view: &View| engine.choose(view, &opus, &Scenario::default(), true);
    let (few, many) = (shop(20).catalog().view_all(), shop(400).catalog().view_all());
    let (first, other) = (choose(&few), choose(&many));
    assert_ne!(first.why, other.why);
    assert_eq!((choose(&few), choose(&many)), (first, other));
    assert_eq!(
        choose(&Registry::default().catalog().view(&Policy::default())).strategy,
        Strategy::Native
    );
}
