//! An embedder of the driver's own: asked when it can help, done without when it can't.

mod support;

use serde_json::{Value, json};
use support::{Chat, deferring, registry, server, tool};
use toolcrib_core::{
    Answer, Call, Embedder, Group, Meaning, Need, Preset, Registry, Step, ToolName, text_to_embed,
};

fn office() -> Registry {
    registry([
        server("mail", &[("send_email", "Send a message."), ("list_folders", "List folders.")]),
        server("zoo", &[("feed", "Feed the animals.")]),
    ])
}

fn chat(embedder: Embedder, preset: Preset, registry: Registry) -> Chat {
    let mut settings = deferring(preset);
    settings.embedder = embedder;
    Chat::new(settings, registry)
}

/// Supplies every tool with a vector of two dimensions.
fn supply(registry: &Registry) {
    for waiting in registry.catalog().unembedded() {
        let rows: Vec<[f32; 2]> = waiting.texts().iter().map(|_| [0.6, 0.8]).collect();
        assert!(waiting.supply(2, rows));
    }
}

fn resolve(chat: &mut Chat, call: &Call) -> Step {
    let view = chat.view();
    chat.engine.resolve(&mut chat.session, &view, call)
}

fn answer(chat: &mut Chat, call: &Call) -> Answer {
    match resolve(chat, call) {
        Step::Answer(answer) => answer,
        other => panic!("expected an answer, got {other:?}"),
    }
}

fn search(query: &str) -> Call {
    Call::new("tool_search", json!({"query": query}))
}

#[test]
fn a_search_by_words_asks_for_a_vector_and_is_answered_with_it() {
    for preset in [Preset::Crib, Preset::Stubs, Preset::Lazy] {
        let registry = office();
        supply(&registry);
        let mut chat = chat(Embedder::Supplied, preset, registry);
        let call = search("send +message");
        let step = resolve(&mut chat, &call);
        let Step::Need(need) = step else { panic!("{preset}: {step:?}") };
        assert_eq!(need, Need::Vector("send message".into()));
        let answer = answer(&mut chat, &call.with_vector(vec![1.0, 0.0]));
        assert!(answer.content.contains("mcp__mail__send_email"), "{}", answer.content);
        assert_eq!(answer.effects.notes, [""; 0]);
    }
}

#[test]
fn without_a_vector_the_answer_is_that_of_the_table_and_the_trace_says_why() {
    let registry = office();
    supply(&registry);
    let mut with = chat(Embedder::Supplied, Preset::Crib, registry);
    let mut plain = chat(Embedder::Static, Preset::Crib, office());
    let expected = answer(&mut plain, &search("feed animals"));
    let call = search("feed animals").without_vector("it\nsleeps");
    let got = answer(&mut with, &call);
    assert_eq!((&got.content, got.is_error), (&expected.content, false));
    assert_eq!(got.effects.notes, ["ranked without the embedder's vectors: it sleeps"]);

    let odd = answer(&mut with, &search("feed animals").with_vector(vec![1.0; 3]));
    assert_eq!(
        odd.effects.notes,
        ["ranked without the embedder's vectors: the query's has 3 dimensions, the tools' 2"]
    );
}

#[test]
fn nothing_is_asked_for_until_every_tool_has_its_vector() {
    let registry = office();
    let mut chat = chat(Embedder::Supplied, Preset::Crib, registry);
    let is_answered = |chat: &mut Chat| matches!(resolve(chat, &search("feed")), Step::Answer(_));
    assert!(is_answered(&mut chat));
    let waiting = chat.registry.catalog().unembedded();
    assert!(waiting[0].supply(2, [[0.6, 0.8], [0.8, 0.6]]));
    assert!(is_answered(&mut chat), "one group still has none");
    assert_eq!(chat.view().dimensions(), None);
    assert!(waiting[1].supply(3, [[0.0, 0.6, 0.8]]));
    assert!(is_answered(&mut chat), "the groups' vectors are of different embedders");

    let mut chat = self::chat(Embedder::Supplied, Preset::Crib, office());
    chat.registry.declare(Group::new("crm").with_description("Customers")).unwrap();
    supply(&chat.registry);
    assert_eq!(chat.view().dimensions(), Some(2));
    assert!(!is_answered(&mut chat), "a group without a tool needs no vector");
    // A server that comes later has none yet.
    chat.registry.replace_server(server("late", &[("late", "Late.")]));
    assert!(is_answered(&mut chat));
}

#[test]
fn names_patterns_and_other_embedders_need_no_vector() {
    let registry = office();
    supply(&registry);
    let mut supplied = chat(Embedder::Supplied, Preset::Crib, registry);
    for query in ["select:feed", "/feed/", " "] {
        assert!(matches!(resolve(&mut supplied, &search(query)), Step::Answer(_)), "{query}");
    }
    for (embedder, preset) in [
        (Embedder::Static, Preset::Crib),
        (Embedder::None, Preset::Crib),
        (Embedder::Supplied, Preset::Exact),
    ] {
        let registry = office();
        supply(&registry);
        let mut chat = chat(embedder, preset, registry);
        assert!(matches!(resolve(&mut chat, &search("feed")), Step::Answer(_)), "{embedder:?}");
    }
}

#[test]
fn texts_come_in_the_order_of_the_documents() {
    let catalog = office().catalog();
    let waiting = catalog.unembedded();
    let texts: Vec<(&str, &[String])> =
        waiting.iter().map(|group| (group.group().as_str(), group.texts())).collect();
    let mail = [
        "mail: list folders. List folders. Parameters: text.".to_owned(),
        "mail: send email. Send a message. Parameters: text.".to_owned(),
    ];
    let zoo = ["zoo: feed. Feed the animals. Parameters: text.".to_owned()];
    assert_eq!(texts, [("mcp:mail", &mail[..]), ("mcp:zoo", &zoo[..])]);
}

#[test]
fn vectors_are_taken_once_and_only_if_there_is_one_for_each_tool() {
    let registry = office();
    let waiting = registry.catalog().unembedded();
    assert!(!waiting[0].supply(2, [[0.6, 0.8]]));
    assert!(waiting[0].supply(2, [[0.6, 0.8], [1.0, 0.0]]));
    assert!(!waiting[0].supply(2, [[0.6, 0.8], [1.0, 0.0]]));
    assert_eq!(registry.catalog().unembedded().len(), 1);
}

#[test]
fn vectors_outlive_a_list_that_says_the_same_and_no_other() {
    let registry = office();
    supply(&registry);
    registry.replace_server(server("zoo", &[("feed", "Feed the animals.")]));
    assert!(registry.catalog().unembedded().is_empty());

    registry.replace_server(server("zoo", &[("feed", "Feed the keepers.")]));
    let waiting = registry.catalog().unembedded();
    assert_eq!(waiting.len(), 1);
    // What comes for tools that are gone does no harm.
    registry.replace_server(server("zoo", &[("clean", "Clean the cages.")]));
    waiting[0].supply(2, [[0.6, 0.8]]);
    assert_eq!(registry.catalog().unembedded().len(), 1);
}

#[test]
fn what_a_conversation_has_loaded_can_be_supplied_too() {
    let registry = office();
    registry.declare(Group::new("crm").with_tool_names(["merge"])).unwrap();
    supply(&registry);
    let mut chat = chat(Embedder::Supplied, Preset::Crib, registry);
    chat.loaders.insert("crm".into(), Ok(vec![tool(ToolName::host("merge"), "Merge customers.")]));
    assert!(chat.session.unembedded().is_empty());
    chat.json("load_tools", json!({"group_id": "crm"}));
    let call = search("customers");
    assert!(matches!(resolve(&mut chat, &call), Step::Answer(_)), "its tool has no vector yet");
    let waiting = chat.session.unembedded();
    assert_eq!(waiting[0].texts(), ["crm: merge. Merge customers. Parameters: text."]);
    assert!(waiting[0].supply(2, [[0.6, 0.8]]));
    assert!(matches!(resolve(&mut chat, &call), Step::Need(Need::Vector(_))));
}

#[test]
fn a_view_can_be_searched_with_a_vector_and_by_words_alone() {
    let registry = office();
    supply(&registry);
    let view = registry.catalog().view_all();
    let text = text_to_embed("feed animals").unwrap();
    assert_eq!(&*text, "feed animals");
    for meaning in [Meaning::Static, Meaning::None, Meaning::Vector(&[0.6, 0.8])] {
        let page = view.search_with(meaning, "feed animals", 5).unwrap();
        assert_eq!(&*page.results[0].name, "mcp__zoo__feed", "{meaning:?}");
        let why = view.explain_with(meaning, "feed animals", "mcp__zoo__feed").unwrap();
        assert_eq!(why.total, page.results[0].score, "{meaning:?}");
    }
}

#[test]
fn a_search_through_call_tool_gets_its_vector_as_well() {
    let registry = office();
    supply(&registry);
    let mut chat = chat(Embedder::Supplied, Preset::Crib, registry);
    let inner: Value = json!({"tool_name": "tool_search", "arguments": {"query": "feed"}});
    let call = Call::new("call_tool", inner);
    assert!(matches!(resolve(&mut chat, &call), Step::Need(Need::Vector(_))));
    let answer = answer(&mut chat, &call.with_vector(vec![0.6, 0.8]));
    assert!(answer.content.contains("mcp__zoo__feed"));
}
