//! One story for every provider and strategy: search, load, call, mistake, unload, fork,
//! sub-agents, cancellation, pictures.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib_agent::{Agent, End, Flow, Hooks, Provider, Reply};
use toolcrib_core::{Policy, PolicyRules, Settings};
use toolcrib_runtime::Crib;

use crate::answer::Saying;
use crate::api::Api;
use crate::server::{Exchange, Server};
use crate::tools::{self, Log};
use crate::way::{self, Way, call, search};

/// What came of it.
pub(crate) struct Story {
    pub(crate) exchanges: Vec<Exchange>,
    /// What the provider made of each answer.
    pub(crate) replies: Vec<Reply>,
    /// What has run.
    pub(crate) log: Vec<(String, Value)>,
}

/// Whether the story has a side story.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Fork {
    Made,
    LeftOut,
}

pub(crate) async fn play(api: Api, way: Way, fork: Fork) -> Story {
    let server = Server::start(api).await;
    let (log, waiting, replies) = (Log::default(), Arc::<Notify>::default(), Heard::default());
    let crib = tools::crib(tools::settings(way.choice()), &log, &waiting).await;
    let provider: Arc<dyn Provider> = api.open(server.base());
    let agent = |model: &'static str, system: &'static str| {
        let agent = Agent::builder(provider.clone(), model, crib.clone())
            .system(system)
            .options(api.options())
            .hooks(replies.clone());
        match way.model(api) {
            Some(known) => agent.known_as(&known),
            None => agent,
        }
    };
    let only = |tools: &[&str]| {
        let allow_tools = Some(tools.iter().map(ToString::to_string).collect());
        Policy::new(PolicyRules { allow_tools, ..Default::default() }).unwrap()
    };
    let reader = agent("small", "You look things up.").policy(only(&["calendar/*"])).build();
    crib.register(reader.into_tool("ask_reader", "Ask who knows the calendar.")).unwrap();
    let poet = agent("tiny", "You write verses.").policy(only(&[])).build();
    crib.register(poet.into_tool("ask_poet", "Ask for a verse.")).unwrap();
    let mut chat = agent("large", "You help a small team.").build().chat();

    let tool = |name: &str, arguments: Value| way::tool(way.strategy(), name, arguments);
    let issue = json!({"title": "Login fails", "body": "Since “Monday”."});

    server.expect(
        "main",
        "search",
        vec![
            Saying::Thinking("An issue is wanted; I need a tool."),
            Saying::Text("I'll look for a tool."),
            search("open an issue"),
        ],
    );
    let both = ["mcp__calendar__list_events", "mcp__calendar__create_event"];
    let load = json!({"group_id": "mcp:calendar", "tool_names": both});
    server.expect("main", "load", vec![call("load_tools", load)]);
    server.expect(
        "main",
        "call",
        vec![Saying::Thinking("Now I can."), tool("mcp__github__create_issue", issue.clone())],
    );
    server.expect("main", "answer", vec![Saying::Text("It is open.")]);
    let answer = chat.send("Open an issue: the login fails.").await;
    assert_eq!((answer.end, answer.text.as_str(), answer.turns), (End::Done, "It is open.", 4));

    // Nobody has shown the model this tool: it guesses.
    let (wrong, right) = (json!({"number": "one"}), json!({"number": 1, "text": "Same here."}));
    server.expect("main", "blind call", vec![tool("mcp__github__add_comment", wrong)]);
    server.expect("main", "corrected call", vec![tool("mcp__github__add_comment", right)]);
    server.expect("main", "answer", vec![Saying::Text("Said so.")]);
    let answer = chat.send("Comment on it.").await;
    let errors: Vec<bool> = answer.calls.iter().map(|call| call.is_error).collect();
    assert_eq!((answer.end, errors), (End::Done, vec![true, false]));

    let unloaded = chat.conversation().unload(["mcp__github__create_issue"]);
    assert_eq!(unloaded, ["mcp__github__create_issue".into()]);
    server.expect("main", "call after unloading", vec![tool("mcp__github__create_issue", issue)]);
    server.expect("main", "answer", vec![Saying::Text("That is two.")]);
    assert_eq!(chat.send("Open it once more.").await.end, End::Done);

    if fork == Fork::Made {
        let mut aside = chat.fork();
        server.expect("fork", "search", vec![search("book a meeting room")]);
        let room = json!({"room": "Blue", "day": "Monday"});
        server.expect("fork", "call", vec![tool("mcp__calendar__book_room", room)]);
        server.expect("fork", "answer", vec![Saying::Text("Booked.")]);
        let answer = aside.send("What if we book a room?").await;
        assert_eq!((answer.end, answer.text.as_str()), (End::Done, "Booked."));
    }

    let task = |task: &str| json!({"task": task});
    server.expect("main", "ask the reader", vec![tool("ask_reader", task("What is on Monday?"))]);
    server.expect("reader", "search", vec![search("issue or event")]);
    let hidden = json!({"label": "bug"});
    server.expect("reader", "hidden call", vec![tool("mcp__github__list_issues", hidden)]);
    let monday = json!({"day": "Monday"});
    server.expect("reader", "call", vec![tool("mcp__calendar__list_events", monday.clone())]);
    server.expect("reader", "answer", vec![Saying::Text("A meeting.")]);
    server.expect("main", "ask the poet", vec![tool("ask_poet", task("Rhyme on meeting."))]);
    server.expect("poet", "answer", vec![Saying::Text("Meeting, greeting.")]);
    server.expect("main", "answer", vec![Saying::Text("A meeting; and a verse.")]);
    let answer = chat.send("What is on Monday? In verse.").await;
    let called: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((answer.end, called), (End::Done, vec!["ask_reader", "ask_poet"]));

    let stop = chat.cancellation();
    server.expect(
        "main",
        "calls to be cancelled",
        vec![tool("mcp__calendar__list_events", monday), tool("wait_for_deploy", json!({}))],
    );
    let stopping = waiting.notified().map(|()| stop.cancel());
    let (answer, ()) = futures::join!(chat.send("Wait for the deployment."), stopping);
    assert_eq!(answer.end, End::Cancelled);
    server.expect("main", "answer", vec![Saying::Text("You stopped me.")]);
    assert_eq!(chat.send("What happened?").await.end, End::Done);

    server.expect(
        "main",
        "parallel calls",
        vec![
            Saying::Text("Both at once."),
            tool("draw_chart", json!({"title": "Issues a day"})),
            tool("mcp__github__list_issues", json!({"label": "bug"})),
        ],
    );
    server.expect("main", "answer", vec![Saying::Text("Fewer every day.")]);
    let answer = chat.send("Draw the issues, and list them.").await;
    assert_eq!((answer.end, answer.calls.len()), (End::Done, 2));

    assert_eq!(chat.conversation().strategy(), Some(way.strategy()));
    let log = log.lock().unwrap().clone();
    Story { exchanges: server.exchanges(), replies: replies.all(), log }
}

/// Answers that end otherwise: cut off, and declined where the API has a way to tell.
pub(crate) async fn play_endings(api: Api) -> Story {
    let server = Server::start(api).await;
    let replies = Heard::default();
    let crib = Crib::builder(Settings::default()).build().await.unwrap();
    let agent = Agent::builder(api.open(server.base()), "large", crib).options(api.options());
    let mut chat = agent.hooks(replies.clone()).build().chat();

    server.expect(
        "main",
        "cut text",
        vec![Saying::Text("Once upon a time there was a"), Saying::Cut],
    );
    assert_eq!(chat.send("Tell me a story.").await.end, End::Length);
    if api != Api::Ollama {
        let words = "That is not for me to tell.";
        server.expect("main", "refusal", vec![Saying::Refusal(words)]);
        let end = End::Refused { reason: Some(words.to_owned()) };
        assert_eq!(chat.send("Tell me a secret.").await.end, end);
    }
    server.expect("main", "answer", vec![Saying::Text("Gladly.")]);
    assert_eq!(chat.send("Then a fable.").await.end, End::Done);
    Story { exchanges: server.exchanges(), replies: replies.all(), log: Vec::new() }
}

/// The provider searches by itself, among tools of which all are declared.
pub(crate) async fn play_hosted(api: Api) -> Story {
    let server = Server::start(api).await;
    let (log, replies) = (Log::default(), Heard::default());
    let mut settings = tools::settings(Way::Native.choice());
    settings.hosted_search = true;
    let crib = tools::crib(settings, &log, &Arc::default()).await;
    let agent = Agent::builder(api.open(server.base()), "large", crib)
        .options(api.options())
        .hooks(replies.clone())
        .known_as(&Way::Native.model(api).unwrap());
    let mut chat = agent.build().chat();

    let found = &["mcp__github__create_issue", "mcp__github__list_issues"];
    let issue = json!({"title": "Login fails", "body": "Since Monday."});
    server.expect(
        "main",
        "search and call",
        vec![
            Saying::Thinking("An issue is wanted; I need a tool."),
            Saying::Found { query: "issue", tools: found },
            call("mcp__github__create_issue", issue.clone()),
        ],
    );
    server.expect("main", "answer", vec![Saying::Text("It is open.")]);
    let answer = chat.send("Open an issue: the login fails.").await;
    assert_eq!((answer.end, answer.calls.len()), (End::Done, 1));
    server.expect("main", "call", vec![call("mcp__github__create_issue", issue)]);
    server.expect("main", "answer", vec![Saying::Text("That is two.")]);
    assert_eq!(chat.send("Once more.").await.end, End::Done);
    let none = Saying::Found { query: "coffee", tools: &[] };
    server.expect("main", "search", vec![none, Saying::Text("There is none.")]);
    assert_eq!(chat.send("Make coffee.").await.end, End::Done);
    server.expect("main", "answer", vec![Saying::Text("You are welcome.")]);
    assert_eq!(chat.send("Thank you anyway.").await.end, End::Done);
    let log = log.lock().unwrap().clone();
    Story { exchanges: server.exchanges(), replies: replies.all(), log }
}

/// Keeps what a provider made of every answer.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Reply>>>);

impl Heard {
    pub(crate) fn all(&self) -> Vec<Reply> {
        self.0.lock().unwrap().clone()
    }
}

impl Hooks for Heard {
    fn after_model_response<'a>(&'a self, reply: &'a mut Reply) -> BoxFuture<'a, Flow> {
        self.0.lock().unwrap().push(reply.clone());
        ready(Flow::Continue).boxed()
    }
}
