//! What becomes of a conversation that a provider won't take as it is, and of tools that have
//! gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use serde_json::{Value, json};
use toolcrib_agent::{Agent, Answer, Chat, End, Event, Message};
use toolcrib_core::Strategy;
use toolcrib_runtime::Crib;
use toolcrib_store::SqliteStore;

use crate::answer::Saying;
use crate::api::Api;
use crate::checks::{every_call_has_its_result, parsed};
use crate::golden;
use crate::server::Server;
use crate::tools::{self, Log};
use crate::way::{self, Way, call, search};

const CREATE_ISSUE: &str = "mcp__github__create_issue";
const LIST_EVENTS: &str = "mcp__calendar__list_events";

const NATIVE: [(Api, Way); 3] = [
    (Api::Anthropic, Way::Native),
    (Api::Anthropic, Way::NativeWithoutChanges),
    (Api::OpenAiResponses, Way::Native),
];

/// What the APIs say when they won't take their own form.
fn refusals(api: Api) -> &'static [&'static str] {
    match api {
        Api::Anthropic => &[
            "tools.2.custom.defer_loading: Extra inputs are not permitted",
            "At least one tool must have defer_loading=false.",
            "Tool reference 'mcp__github__create_issue' not found in available tools",
        ],
        _ => &[
            "Unsupported tool type: tool_search",
            "Missing namespace for function_call 'mcp__github__create_issue'.",
            "User-defined namespace 'github' collides with a built-in namespace.",
        ],
    }
}

fn agent(api: Api, way: Way, server: &Server, crib: &Crib) -> Agent {
    let agent = Agent::builder(api.open(server.base()), "large", crib.clone())
        .system("You help a small team.")
        .options(api.options());
    match way.model(api) {
        Some(known) => agent.known_as(&known).build(),
        None => agent.build(),
    }
}

async fn crib(way: Way, log: &Log) -> Crib {
    tools::crib(tools::settings(way.choice()), log, &Arc::default()).await
}

/// Says something; gives the answer and the notes.
async fn follow(chat: &mut Chat, text: &str) -> (Answer, Vec<String>) {
    let events: Vec<Event> = chat.stream(text).collect().await;
    let mut notes = Vec::new();
    for event in events {
        match event {
            Event::Note { text } => notes.push(text),
            Event::RunFinished(answer) => return (answer, notes),
            _ => {}
        }
    }
    panic!("a run ends with its answer");
}

fn issue() -> Value {
    json!({"title": "Login fails", "body": "Since Monday."})
}

fn is_dispatch(api: Api, body: &str) -> bool {
    let body: Value = serde_json::from_str(body).unwrap();
    api.tool_names(&body).iter().any(|name| name == "call_tool")
}

#[tokio::test]
async fn a_native_form_that_is_refused_gives_way_to_dispatch_for_good() {
    for (api, way) in NATIVE {
        for (number, reason) in refusals(api).iter().enumerate() {
            for after_a_search in [false, true] {
                let server = Server::start(api).await;
                let log = Log::default();
                let (crib, store) =
                    (crib(way, &log).await, Arc::new(SqliteStore::open_in_memory().unwrap()));
                let agent = agent(api, way, &server, &crib);
                let mut chat = agent.chat().kept_in(store.clone(), BTreeMap::new());
                let looks = || server.expect("main", "search", vec![search("open an issue")]);
                if after_a_search {
                    looks();
                }
                server.refuse(reason);
                if !after_a_search {
                    looks();
                }
                // What a search has shown before the refusal need not be searched for again.
                let opens = || way::tool(Strategy::Dispatch, CREATE_ISSUE, issue());
                server.expect("main", "call", vec![opens()]);
                server.expect("main", "answer", vec![Saying::Text("It is open.")]);
                let (answer, notes) = follow(&mut chat, "Open an issue.").await;
                assert_eq!((answer.end, answer.text.as_str()), (End::Done, "It is open."));
                let [note] = &notes[..] else { panic!("{notes:?}") };
                assert!(note.contains(reason) && note.contains("`dispatch`"), "{note}");
                assert_eq!(chat.conversation().strategy(), Some(Strategy::Dispatch));

                let again = || {
                    server.expect("main", "call", vec![opens()]);
                    server.expect("main", "answer", vec![Saying::Text("Done.")]);
                };
                again();
                let (answer, notes) = follow(&mut chat, "Once more.").await;
                assert_eq!((answer.end, notes), (End::Done, vec![]));
                let id = chat.session_id().unwrap().to_owned();
                drop(chat);
                again();
                let (mut chat, _) = agent.reopen(&*store, &id).await.unwrap();
                let (answer, notes) = follow(&mut chat, "And again.").await;
                assert_eq!((answer.end, notes), (End::Done, vec![]));
                assert_eq!(log.lock().unwrap().len(), 3);

                let exchanges = server.exchanges();
                every_call_has_its_result(&exchanges);
                let [refused] = &server.refused()[..] else { panic!("{:?}", server.refused()) };
                assert!(!is_dispatch(api, refused));
                let native = usize::from(after_a_search);
                for exchange in &exchanges[native..] {
                    assert!(is_dispatch(api, &exchange.body), "{}", exchange.step);
                    for own in ["defer_loading", "tool_reference", "namespace", "tool_search_call"]
                    {
                        assert!(!exchange.body.contains(own), "{own} in {}", exchange.body);
                    }
                }
                if after_a_search && number == 0 {
                    let file = format!("{}-{}-refused.json", api.name(), way.name());
                    golden::compare(&file, &golden::requests(&exchanges));
                }
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_that_has_another_reason_is_told_after_one_more_attempt() {
    for (api, way) in NATIVE {
        let server = Server::start(api).await;
        let crib = crib(way, &Log::default()).await;
        let mut chat = agent(api, way, &server, &crib).chat();
        let reason = "This organization may not use the model.";
        server.refuse(reason);
        server.refuse(reason);
        let (answer, notes) = follow(&mut chat, "Hello.").await;
        let End::Failed { reason: told } = &answer.end else { panic!("{:?}", answer.end) };
        assert!(told.contains(reason), "{told}");
        assert_eq!((notes.len(), server.exchanges().len()), (0, 0));
        let attempts: Vec<bool> =
            server.refused().iter().map(|body| is_dispatch(api, body)).collect();
        assert_eq!(attempts, [false, true]);
        // It can be gone on with once the reason is gone, as it was.
        server.expect("main", "answer", vec![Saying::Text("Hello.")]);
        let (answer, notes) = follow(&mut chat, "And now?").await;
        assert_eq!((answer.end, notes), (End::Done, vec![]));
        assert!(!is_dispatch(api, &server.exchanges()[0].body));
    }
}

/// A conversation in which tools of both servers were loaded and called; its session.
async fn begun(api: Api, way: Way, server: &Server, store: &Arc<SqliteStore>) -> Chat {
    let crib = crib(way, &Log::default()).await;
    let mut chat = agent(api, way, server, &crib).chat().kept_in(store.clone(), BTreeMap::new());
    let tool = |name: &str, arguments: Value| way::tool(way.strategy(), name, arguments);
    server.expect("main", "search", vec![search("open an issue")]);
    let events = json!({"group_id": "mcp:calendar", "tool_names": [LIST_EVENTS]});
    let monday = json!({"day": "Monday"});
    server.expect(
        "main",
        "call and load",
        vec![tool(CREATE_ISSUE, issue()), call("load_tools", events)],
    );
    server.expect("main", "call", vec![tool(LIST_EVENTS, monday)]);
    server.expect("main", "answer", vec![Saying::Text("It is open.")]);
    assert_eq!(follow(&mut chat, "Open an issue on Monday.").await.0.end, End::Done);
    chat
}

/// The model calls what is gone, and then what is still there.
async fn calls_both(chat: &mut Chat, server: &Server) {
    let strategy = chat.conversation().strategy().unwrap();
    let tool = |name: &str, arguments: Value| way::tool(strategy, name, arguments);
    server.expect("main", "call of what is gone", vec![tool(CREATE_ISSUE, issue())]);
    let tuesday = json!({"day": "Tuesday"});
    server.expect("main", "call of what is left", vec![tool(LIST_EVENTS, tuesday)]);
    server.expect("main", "answer", vec![Saying::Text("Only half of it.")]);
    let (answer, _) = follow(chat, "Once more, on Tuesday.").await;
    let failed: Vec<bool> = answer.calls.iter().map(|call| call.is_error).collect();
    assert_eq!((answer.end, failed), (End::Done, vec![true, false]));
}

#[tokio::test]
async fn a_conversation_goes_on_without_tools_that_have_gone_here_and_elsewhere() {
    let plain = Api::ALL.into_iter().flat_map(|api| [(api, Way::Dispatch), (api, Way::Inject)]);
    for (api, way) in plain.chain(NATIVE) {
        let server = Server::start(api).await;
        let store = Arc::new(SqliteStore::open_in_memory().unwrap());
        let chat = begun(api, way, &server, &store).await;
        let id = chat.session_id().unwrap().to_owned();
        drop(chat);

        let log = Log::default();
        let crib = tools::crib_without_github(tools::settings(way.choice()), &log).await;
        let (mut chat, reopened) =
            agent(api, way, &server, &crib).reopen(&*store, &id).await.unwrap();
        let missing: Vec<&str> =
            reopened.report.missing.iter().map(|(name, _)| name.as_str()).collect();
        assert!(missing.contains(&CREATE_ISSUE), "{missing:?}");
        calls_both(&mut chat, &server).await;
        for other in Api::ALL.into_iter().filter(|other| *other != api) {
            let abroad = server.beside(other).await;
            chat.move_to(&agent(other, way, &abroad, &crib)).await.unwrap();
            calls_both(&mut chat, &abroad).await;
        }
        let exchanges = server.exchanges();
        every_call_has_its_result(&exchanges);
        assert_eq!(log.lock().unwrap().len(), 4);
        if way.is_native() {
            let file = format!("{}-{}-gone.json", api.name(), way.name());
            golden::compare(&file, &golden::requests(&exchanges));
        }
    }
}

/// What came from elsewhere has references and calls to tools that this conversation knows
/// nothing of.
#[tokio::test]
async fn a_history_from_elsewhere_is_taken_whatever_is_in_it() {
    let store = Arc::new(SqliteStore::open_in_memory().unwrap());
    for (from, way) in NATIVE {
        let first = Server::start(from).await;
        let history: Vec<Arc<Message>> = begun(from, way, &first, &store).await.history().to_vec();
        let native = NATIVE.into_iter().chain(Api::ALL.map(|api| (api, Way::Dispatch)));
        for (to, way) in native {
            let (server, log) = (first.beside(to).await, Log::default());
            let crib = tools::crib_without_github(tools::settings(way.choice()), &log).await;
            let mut chat = agent(to, way, &server, &crib).chat();
            chat.set_history(history.clone());
            let monday = way::tool(way.strategy(), LIST_EVENTS, json!({"day": "Monday"}));
            server.expect("main", "call", vec![monday]);
            server.expect("main", "answer", vec![Saying::Text("A meeting.")]);
            let (answer, _) = follow(&mut chat, "What is on Monday?").await;
            assert_eq!((answer.end, log.lock().unwrap().len()), (End::Done, 1));
            // The definitions that the conversation was given are still in it.
            let exchanges = server.exchanges();
            let body = parsed(&exchanges[exchanges.len() - 2]);
            assert!(body.to_string().contains("Open an issue in a repository."), "{body}");
        }
        every_call_has_its_result(&first.exchanges());
    }
}
