//! Tools in the provider's own form: when that is used, and what a provider is given for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use serde_json::json;
use toolcrib_agent::{
    Agent, Chat, Delta, End, Event, HostedSearch, Message, Native, Provider, ProviderError,
    Request, Scripted, ToolChange, Turn,
};
use toolcrib_core::{Definition, Preset, Settings, Strategy, StrategyChoice};
use toolcrib_store::SqliteStore;
use toolcrib_tokens::{Feature, Models};

use crate::support::{Log, deferred, dispatched, follow, notes, shop};

/// A scripted model behind an API that has a form for tools that wait.
struct Capable(Scripted);

impl Provider for Capable {
    fn name(&self) -> &str {
        "capable"
    }

    fn native(&self) -> Option<Feature> {
        Some(Feature::DeferLoading)
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        self.0.stream(request)
    }
}

fn native() -> Settings {
    let mut settings = deferred();
    settings.strategy = StrategyChoice::Native;
    settings
}

fn known(agent: toolcrib_agent::AgentBuilder, model: &str) -> Agent {
    agent.known_as(Models::embedded().find(model).unwrap()).build()
}

/// A conversation with a model that can, over the shop.
async fn capable(settings: Settings, turns: Vec<Turn>) -> (Chat, Scripted, Log) {
    let (crib, log) = shop(settings).await;
    let model = Scripted::new(turns);
    let agent = Agent::builder(Capable(model.clone()), "opus", crib);
    (known(agent, "claude-opus-5.5").chat(), model, log)
}

fn names<'a>(tools: impl IntoIterator<Item = &'a Definition>) -> Vec<&'a str> {
    tools.into_iter().map(|tool| &**tool.name()).collect()
}

fn in_own_form(request: &Request) -> &Native {
    request.native.as_ref().expect("a request in the provider's own form")
}

#[tokio::test]
async fn a_search_gives_definitions_that_wait_and_the_tool_is_called_by_its_name() {
    let search = |words: &str| Turn::call("tool_search", json!({"query": words, "limit": 1}));
    let turns = vec![
        search("drill a hole"),
        Turn::call("drill", json!({"size": 3})),
        search("mill a slot"),
        Turn::text("Done."),
    ];
    let (mut chat, model, log) = capable(native(), turns).await;
    let (events, answer) = follow(&mut chat, "Drill a hole.").await;
    assert_eq!((answer.end, notes(&events)), (End::Done, vec![]));
    assert_eq!(log.lines(), ["drill 3 begins", "drill 3 ends"]);
    let requests = model.requests();
    for request in &requests {
        assert_eq!(names(&request.tools), ["tool_search", "load_tools"]);
        let native = in_own_form(request);
        assert_eq!((native.search.as_deref(), native.hosted), (Some("tool_search"), None));
        assert!(native.changes);
        assert_eq!((&request.system, &request.tools), (&requests[0].system, &requests[0].tools));
    }
    let deferred: Vec<Vec<&str>> =
        requests.iter().map(|request| names(&in_own_form(request).deferred)).collect();
    assert_eq!(deferred, [vec![], vec!["drill"], vec!["drill"], vec!["drill", "mill"]]);
    let Message::Tool { results } = &**requests[1].messages.last().unwrap() else { panic!() };
    assert_eq!(names(results[0].revealed.iter().map(|it| &it.tool)), ["drill"]);
    let text = serde_json::to_string(&results[0].content).unwrap();
    assert!(!text.contains("millimetres"), "the schema is in no text: {text}");
}

#[tokio::test]
async fn what_has_no_such_form_goes_by_dispatch_and_says_so_once() {
    let turns = || vec![Turn::calls([dispatched("drill", json!({"size": 3}))]), "Done.".into()];
    let plain = Scripted::new(turns());
    let (crib, _) = shop(native()).await;
    let opus = known(Agent::builder(plain.clone(), "opus", crib.clone()), "claude-opus-5.5");
    let unknown = Scripted::new(turns());
    let nobody = Agent::builder(Capable(unknown.clone()), "nobody", crib.clone()).build();
    let old = Scripted::new(turns());
    let older = known(Agent::builder(Capable(old.clone()), "gpt-4.1", crib), "gpt-4.1");
    for (agent, model, name) in
        [(opus, plain, "opus"), (nobody, unknown, "nobody"), (older, old, "gpt-4.1")]
    {
        let mut chat = agent.chat();
        let (events, answer) = follow(&mut chat, "Drill a hole.").await;
        assert_eq!((answer.end, answer.turns), (End::Done, 2));
        let [note] = notes(&events)[..] else { panic!("{:?}", notes(&events)) };
        assert!(note.contains(&format!("`{name}`")) && note.contains("`dispatch`"), "{note}");
        assert_eq!(chat.conversation().strategy(), Some(Strategy::Dispatch));
        for request in model.requests() {
            assert!(request.native.is_none());
            assert_eq!(names(&request.tools), ["tool_search", "load_tools", "call_tool"]);
        }
    }
}

#[tokio::test]
async fn a_conversation_had_natively_goes_on_with_what_has_no_such_form() {
    let turns = vec![Turn::call("tool_search", json!({"query": "drill a hole"})), "Good.".into()];
    let (crib, log) = shop(native()).await;
    let agent = Agent::builder(Capable(Scripted::new(turns)), "opus", crib.clone());
    let agent = known(agent, "claude-opus-5.5");
    let store = Arc::new(SqliteStore::open_in_memory().unwrap());
    let mut chat = agent.chat().kept_in(store.clone(), BTreeMap::new());
    follow(&mut chat, "Find me a drill.").await;
    let id = chat.session_id().unwrap().to_owned();
    let mut aside = chat.fork();
    drop(chat);

    let drills = || vec![Turn::calls([dispatched("drill", json!({"size": 3}))]), "Done.".into()];
    let model = Scripted::new(drills());
    let other = Agent::builder(model.clone(), "other", crib.clone()).build();
    let (mut chat, reopened) = other.reopen(&*store, &id).await.unwrap();
    let [note] = &reopened.report.notes[..] else { panic!("{:?}", reopened.report.notes) };
    assert!(note.contains("`other`") && note.contains("`dispatch`"), "{note}");
    assert_eq!(follow(&mut chat, "Drill.").await.1.end, End::Done);
    assert_eq!(log.lines().len(), 2);
    // What was given before is in the conversation, and the section says how it is called now.
    let request = &model.requests()[0];
    assert!(request.native.is_none() && request.system.contains("call_tool"));
    let revealed = |message: &Arc<Message>| match &**message {
        Message::Tool { results } => results.iter().any(|result| !result.revealed.is_empty()),
        _ => false,
    };
    assert!(request.messages.iter().any(revealed));

    let model = Scripted::new(drills());
    aside.move_to(&Agent::builder(model.clone(), "other", crib).build()).await.unwrap();
    assert_eq!(follow(&mut aside, "Drill.").await.1.end, End::Done);
    assert_eq!((log.lines().len(), model.requests().len()), (4, 2));
}

#[tokio::test]
async fn where_the_choice_is_open_a_model_that_can_has_it_natively_and_is_told_why() {
    let chosen = |events: &[Event]| -> Vec<(Strategy, String)> {
        let chosen = |event: &Event| match event {
            Event::Chosen { strategy, why } => Some((*strategy, why.clone())),
            _ => None,
        };
        events.iter().filter_map(chosen).collect()
    };
    let turns = || vec![Turn::text("Yes."), Turn::text("Still.")];
    let (mut chat, model, _) = capable(deferred(), turns()).await;
    let (events, _) = follow(&mut chat, "Are you there?").await;
    let [(Strategy::Native, why)] = &chosen(&events)[..] else { panic!("{:?}", chosen(&events)) };
    assert!(why.contains("native") && why.len() > 20, "{why}");
    assert!(model.requests()[0].native.is_some());
    // Once is enough.
    let (events, _) = follow(&mut chat, "And now?").await;
    assert_eq!(chosen(&events), []);

    // The same model through an API without the form.
    let (crib, _) = shop(deferred()).await;
    let plain = Scripted::new(turns());
    let agent = known(Agent::builder(plain.clone(), "opus", crib.clone()), "claude-opus-5.5");
    let (events, _) = follow(&mut agent.chat(), "Are you there?").await;
    let [(strategy, why)] = &chosen(&events)[..] else { panic!("{:?}", chosen(&events)) };
    assert!(*strategy != Strategy::Native && why.len() > 20, "{strategy} {why}");
    assert!(plain.requests()[0].native.is_none());
    assert_eq!(notes(&events), [""; 0]);

    // Of a model that nobody knows there is nothing to say.
    let agent = Agent::builder(Scripted::new(turns()), "nobody", crib).build();
    let (events, _) = follow(&mut agent.chat(), "Are you there?").await;
    assert_eq!(chosen(&events), []);
}

/// Which tools came and went in a conversation, message by message.
fn changes(request: &Request) -> Vec<(Vec<&str>, Vec<&str>)> {
    let mut changes = Vec::new();
    for message in &request.messages {
        if let Message::Tools(ToolChange { added, removed }) = &**message {
            let removed = removed.iter().map(|name| &**name).collect();
            changes.push((names(added.iter().map(|it| &it.tool)), removed));
        }
    }
    changes
}

#[tokio::test]
async fn what_the_host_loads_and_unloads_is_a_message_of_its_own() {
    let turns = ["One.", "Two.", "Three.", "Four."].map(Turn::text).to_vec();
    let (mut chat, model, _) = capable(native(), turns).await;
    follow(&mut chat, "Begin.").await;
    assert_eq!(chat.conversation().preload(["drill", "mill"]), [""; 0]);
    follow(&mut chat, "Go on.").await;
    assert_eq!(chat.conversation().unload(["drill"]), ["drill".into()]);
    follow(&mut chat, "Go on.").await;
    // What comes and goes between two requests is no news.
    chat.conversation().preload(["weld"]);
    chat.conversation().unload(["weld"]);
    follow(&mut chat, "Go on.").await;

    let requests = model.requests();
    let told: Vec<_> = requests.iter().map(changes).collect();
    let loaded = (vec!["drill", "mill"], vec![]);
    let unloaded = (vec![], vec!["drill"]);
    assert_eq!(told[0], []);
    assert_eq!(told[1], std::slice::from_ref(&loaded));
    assert_eq!(told[2], [loaded.clone(), unloaded.clone()]);
    assert_eq!(told[3], [loaded, unloaded]);
    // A reference in the history needs its definition, also of a tool that was put out.
    let deferred = names(&in_own_form(&requests[3]).deferred);
    assert!(deferred.starts_with(&["drill", "mill"]), "{deferred:?}");
    for request in &requests {
        assert_eq!(request.tools, requests[0].tools);
    }
}

#[tokio::test]
async fn what_was_loaded_before_the_first_request_is_in_it() {
    let (mut chat, model, log) =
        capable(native(), vec![Turn::call("drill", json!({"size": 3})), "Done.".into()]).await;
    chat.conversation().preload(["drill"]);
    follow(&mut chat, "Drill.").await;
    assert_eq!(log.lines().len(), 2);
    let request = &model.requests()[0];
    let given = names(request.tools.iter().chain(&in_own_form(request).deferred));
    assert!(given.contains(&"drill"), "{given:?}");
}

#[tokio::test]
async fn a_search_of_the_providers_own_has_all_tools_and_none_of_our_verbs() {
    for (preset, search) in
        [(Preset::Crib, HostedSearch::Bm25), (Preset::Regex, HostedSearch::Regex)]
    {
        let mut settings = native();
        settings.hosted_search = true;
        settings.preset = preset;
        let turns = vec![Turn::call("drill", json!({"size": 3})), "Done.".into()];
        let (mut chat, model, log) = capable(settings, turns).await;
        assert_eq!(follow(&mut chat, "Drill.").await.1.end, End::Done);
        assert_eq!(log.lines().len(), 2);
        for request in model.requests() {
            assert_eq!(names(&request.tools), [""; 0]);
            let native = in_own_form(&request);
            assert_eq!((native.search.as_deref(), native.hosted), (None, Some(search)));
            let all = ["drill", "explode", "flood", "measure", "mill", "sleep", "stop", "weld"];
            assert_eq!(names(&native.deferred), all);
        }
    }
}

#[tokio::test]
async fn a_refused_form_is_given_up_for_good_and_a_refusal_that_stays_ends_the_run() {
    let refused = || Turn::error(ProviderError::Rejected("defer_loading: not permitted".into()));
    let drill = || Turn::calls([dispatched("drill", json!({"size": 3}))]);
    let turns = vec![refused(), drill(), "Done.".into(), drill(), "Again.".into()];
    let (mut chat, model, log) = capable(native(), turns).await;
    let (events, answer) = follow(&mut chat, "Drill.").await;
    assert_eq!((answer.end, answer.turns, log.lines().len()), (End::Done, 2, 2));
    let [note] = notes(&events)[..] else { panic!("{:?}", notes(&events)) };
    assert!(note.contains("defer_loading: not permitted"), "{note}");
    let (events, _) = follow(&mut chat, "Once more.").await;
    assert_eq!(notes(&events), [""; 0]);
    let forms: Vec<bool> =
        model.requests().iter().map(|request| request.native.is_some()).collect();
    assert_eq!(forms, [true, false, false, false, false]);

    let (mut chat, model, _) = capable(native(), vec![refused(), refused()]).await;
    let (events, answer) = follow(&mut chat, "Drill.").await;
    let reason = "defer_loading: not permitted".to_owned();
    assert_eq!((answer.end, notes(&events).len()), (End::Failed { reason }, 0));
    assert_eq!(model.requests().len(), 2);
}
