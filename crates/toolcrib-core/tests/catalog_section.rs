//! The catalog in the prompt keeps to its budget, in fixed steps, whatever is registered.

mod support;

use support::{Chat, deferring, registry, server};
use toolcrib_core::{Group, Preset, Registry, Settings};
use toolcrib_tokens::Tokenizer;

/// Servers with ten tools each.
fn many(servers: usize) -> Registry {
    let own: Vec<String> = ["create", "delete", "list", "update", "archive"]
        .iter()
        .flat_map(|verb| ["contract", "invoice"].map(|noun| format!("{verb}_{noun}")))
        .collect();
    let tools: Vec<(&str, &str)> = own.iter().map(|name| (&**name, "Does what it says.")).collect();
    registry((0..servers).map(|n| {
        let name = format!("department-{n:03}");
        server(&name, &tools).with_description("Paperwork of one department. And more.")
    }))
}

fn settings(budget: u64) -> Settings {
    let mut settings = deferring(Preset::Crib);
    settings.catalog_tokens = budget;
    settings
}

fn section(settings: Settings, registry: Registry) -> String {
    Chat::new(settings, registry).section()
}

fn tokens(text: &str) -> u64 {
    Tokenizer::O200K.count(text).tokens
}

/// How much is told: every name, some names, ids, some ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    EveryName,
    TellingNames,
    Ids,
    SomeIds,
}

fn step(section: &str) -> Step {
    if section.contains("more groups") {
        Step::SomeIds
    } else if section.contains("Groups, with the number") {
        Step::Ids
    } else if section.contains(", ...") {
        Step::TellingNames
    } else {
        Step::EveryName
    }
}

#[test]
fn the_catalog_degrades_in_four_steps_and_never_exceeds_its_budget() {
    let mut steps = Vec::new();
    for servers in [1, 10, 30, 40, 80, 150, 400] {
        let section = section(settings(2_000), many(servers));
        assert!(tokens(&section) <= 2_000, "{servers} servers: {} tokens", tokens(&section));
        steps.push(step(&section));
    }
    assert!(steps.is_sorted(), "{steps:?}");
    for wanted in [Step::EveryName, Step::TellingNames, Step::Ids, Step::SomeIds] {
        assert!(steps.contains(&wanted), "{wanted:?} in {steps:?}");
    }
}

#[test]
fn a_smaller_budget_never_tells_more() {
    let mut last = (Step::SomeIds, 0);
    for budget in [0, 50, 150, 200, 300, 400, 600, 900, 1_200, 2_000, 4_000] {
        let section = section(settings(budget), many(30));
        let shown = section.matches("department-").count();
        let this = (step(&section), shown);
        assert!(this.0 < last.0 || (this.0 == last.0 && this.1 >= last.1), "{this:?} {last:?}");
        assert!(tokens(&section) <= budget.max(150), "{budget}: {}", tokens(&section));
        last = this;
    }
    assert_eq!(last.0, Step::EveryName);
}

#[test]
fn each_step_says_what_it_leaves_out() {
    let telling = section(settings(2_000), many(40));
    assert_eq!(step(&telling), Step::TellingNames);
    // Five names that between them have every verb and both nouns.
    assert!(
        telling.contains(
            "- `mcp:department-007` — Paperwork of one department. (10 tools)\n  archive_contract, \
             create_invoice, delete_contract, list_contract, update_contract, ..."
        ),
        "{telling}"
    );
    let ids = section(settings(600), many(30));
    assert!(ids.contains("\n\nGroups, with the number of their tools: mcp:department-000 (10), "));
    let some = section(settings(200), many(30));
    let shown = some.matches("mcp:department-").count();
    let rest = format!("and {} more groups. Search to find what they have.", 30 - shown);
    assert!(shown > 0 && some.ends_with(&rest), "{some}");
    let none = section(settings(0), many(30));
    assert!(none.ends_with("\n\nand 30 more groups. Search to find what they have."));
}

#[test]
fn a_catalog_that_just_fits_is_told_in_full() {
    let whole = section(settings(1_000_000), many(10));
    let just = tokens(&whole);
    assert_eq!(section(settings(just), many(10)), whole);
    assert_ne!(section(settings(just - 1), many(10)), whole);
}

#[test]
fn the_section_is_a_function_of_the_catalog_alone() {
    let forward = many(30);
    let backward = registry([]);
    let again = many(30);
    for n in (0..30).rev() {
        // Registered anew, in another order.
        let id = toolcrib_core::GroupId::server(&format!("department-{n:03}"));
        let view = again.catalog().view_all();
        let by_origin = view.by_origin();
        let specs = by_origin[&id].iter().rev().map(|tool| tool.spec().clone());
        let tools = toolcrib_core::ServerTools::new(format!("department-{n:03}"), specs);
        backward.replace_server(tools.with_description("Paperwork of one department. And more."));
    }
    for budget in [100, 600, 2_000, 9_000] {
        let of = |registry: &Registry| {
            let view = registry.catalog().view_all();
            let engine = toolcrib_core::Engine::new(settings(budget)).unwrap();
            let mut session = toolcrib_core::Session::new();
            engine.prepare(&mut session, &view).unwrap().fingerprint()
        };
        assert_eq!(of(&forward), of(&backward), "{budget}");
    }
    // What a conversation loads does not change what the next one is told.
    let mut chat = Chat::new(settings(2_000), many(30));
    let before = chat.section();
    chat.json("load_tools", serde_json::json!({"group_id": "department-003"}));
    assert_eq!(chat.section(), before);
    chat.session = toolcrib_core::Session::new();
    assert_eq!(chat.section(), before);
}

#[test]
fn lists_of_names_fall_back_to_groups_when_too_long() {
    for preset in [Preset::Stubs, Preset::Exact] {
        let mut settings = deferring(preset);
        settings.describe_names = true;
        settings.catalog_tokens = 1_000_000;
        let described = section(settings.clone(), many(30));
        settings.catalog_tokens = tokens(&described) - 1;
        let names = section(settings.clone(), many(30));
        assert!(!names.contains("Does what it says") && names.contains("__create_invoice"));
        settings.catalog_tokens = tokens(&names) - 1;
        let groups = section(settings.clone(), many(30));
        assert_eq!(step(&groups), Step::TellingNames, "{preset}");
        for budget in [5_000, 2_000, 600, 200] {
            settings.catalog_tokens = budget;
            assert!(tokens(&section(settings.clone(), many(30))) <= budget);
        }
    }
}

#[test]
fn a_group_of_unknown_members_is_listed_without_a_number() {
    let registry = || {
        let registry = many(1);
        let group = Group::new("calendar").with_description("Meetings\nand holidays.");
        registry.declare(group).unwrap();
        registry
    };
    let whole = section(settings(2_000), registry());
    let line = "- `calendar` — Meetings and holidays. (load it to see its tools)";
    assert!(whole.lines().any(|told| told == line), "{whole}");
    let ids = section(settings(130), registry());
    assert!(ids.contains(": calendar, mcp:department-000 (10)"), "{ids}");
}

#[test]
fn with_nothing_to_find_there_is_no_section_and_no_verb() {
    for preset in Preset::ALL {
        let mut chat = Chat::new(deferring(preset), registry([]));
        assert_eq!((chat.section().as_str(), chat.tools().len()), ("", 0), "{preset}");
    }
}
