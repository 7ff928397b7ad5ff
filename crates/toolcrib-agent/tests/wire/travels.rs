//! The second story: a conversation that outlives its program, goes from provider to provider and
//! back, and is compacted. What it has loaded goes with it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib_agent::{
    Agent, Answer, Chat, CompactionRules, End, Event, Fate, Input, Message, Part,
};
use toolcrib_core::Strategy;
use toolcrib_runtime::Crib;
use toolcrib_store::SqliteStore;
use toolcrib_tokens::{Model, Models};

use crate::answer::Saying;
use crate::api::Api;
use crate::scenario::{Heard, Story};
use crate::server::{Exchange, Server};
use crate::tools::{self, Log};
use crate::way::{self, Way, call, search};

const CREATE_ISSUE: &str = "mcp__github__create_issue";
const CREATE_EVENT: &str = "mcp__calendar__create_event";
const LIST_EVENTS: &str = "mcp__calendar__list_events";

/// What is loaded at each place that the conversation comes to: a search, what it finds, and
/// arguments for that.
#[derive(Clone, Copy)]
struct Errand(&'static str, &'static str, &'static str);

impl Errand {
    fn arguments(self) -> Value {
        serde_json::from_str(self.2).unwrap()
    }
}

const ABROAD: [Errand; 3] = [
    Errand("close an issue", "mcp__github__close_issue", r#"{"number":1}"#),
    Errand("book a meeting room", "mcp__calendar__book_room", r#"{"room":"Blue","day":"Monday"}"#),
    Errand("publish a release", "mcp__github__create_release", r#"{"tag":"v2"}"#),
];

/// What came of it.
pub(crate) struct Journey {
    pub(crate) story: Story,
    /// Where nothing of the request before need be left: at the first request to another
    /// provider, and at the first after a summary.
    pub(crate) fresh: Vec<usize>,
    /// Where the conversation has come back, with the last request there before it left.
    pub(crate) returns: Vec<(usize, usize)>,
    /// Every definition that the model was served, by the name of the tool.
    pub(crate) served: BTreeMap<String, Vec<String>>,
}

/// What stays the same from program to program.
struct World {
    home: Api,
    way: Way,
    servers: BTreeMap<Api, Server>,
    log: Log,
    replies: Heard,
}

impl World {
    async fn new(home: Api, way: Way) -> Self {
        let first = Server::start(home).await;
        let mut servers = BTreeMap::new();
        for api in Api::ALL.into_iter().filter(|api| *api != home) {
            servers.insert(api, first.beside(api).await);
        }
        servers.insert(home, first);
        Self { home, way, servers, log: Log::default(), replies: Heard::default() }
    }

    async fn crib(&self) -> Crib {
        tools::crib(tools::settings(self.way.choice()), &self.log, &Arc::default()).await
    }

    fn agent(&self, api: Api, crib: &Crib, known: Option<Model>) -> Agent {
        // So little stays that some of what is loaded is written out and some only named.
        let mut rules = CompactionRules::default();
        rules.keep = 400;
        let agent = Agent::builder(api.open(self.servers[&api].base()), "large", crib.clone())
            .system("You help a small team.")
            .options(api.options())
            .hooks(self.replies.clone())
            .compaction(rules);
        match known {
            Some(known) => agent.known_as(&known).build(),
            None => agent.build(),
        }
    }

    fn usual(&self, api: Api, crib: &Crib) -> Agent {
        self.agent(api, crib, self.way.model(api))
    }

    fn expect(&self, api: Api, name: &'static str, said: Vec<Saying>) {
        self.servers[&api].expect("main", name, said);
    }

    /// How many requests there were.
    fn count(&self) -> usize {
        self.replies.all().len()
    }

    /// Asks for something that takes one call of a tool, which is loaded.
    async fn have_called(&self, chat: &mut Chat, api: Api, name: &str, arguments: Value) {
        let ran = self.log.lock().unwrap().len();
        let loaded = chat.conversation().session();
        assert!(loaded.loaded_tools().any(|loaded| **loaded == *name), "{name} is loaded");
        self.expect(api, "call", vec![tool(chat, name, arguments.clone())]);
        self.expect(api, "answer", vec![Saying::Text("Done.")]);
        done(chat.send("Do that, please.").await);
        let log = self.log.lock().unwrap();
        let bare = name.rsplit("__").next().unwrap_or(name).to_owned();
        assert_eq!(log[ran..], [(bare, arguments)]);
    }
}

impl World {
    /// Goes to another provider, calls there what was loaded before, and loads something new.
    async fn visit(&self, chat: &mut Chat, api: Api, crib: &Crib, errand: Errand) {
        let report = chat.move_to(&self.usual(api, crib)).await.unwrap();
        assert_eq!((report.missing, report.changed), (vec![], vec![]));
        let issue = json!({"title": "Another", "body": "It came along."});
        self.have_called(chat, api, CREATE_ISSUE, issue).await;
        let Errand(query, found, _) = errand;
        self.expect(api, "search", vec![Saying::Thinking("What was it called?"), search(query)]);
        self.expect(api, "call", vec![tool(chat, found, errand.arguments())]);
        self.expect(api, "answer", vec![Saying::Text("That, too.")]);
        done(chat.send("And the other thing.").await);
    }
}

/// A call of a tool, the way the conversation has it now.
fn tool(chat: &Chat, name: &str, arguments: Value) -> Saying {
    let strategy = chat.conversation().strategy().unwrap_or(Strategy::Dispatch);
    way::tool(strategy, name, arguments)
}

fn done(answer: Answer) {
    let failed: Vec<_> = answer.calls.iter().filter(|call| call.is_error).collect();
    assert_eq!((answer.end, failed), (End::Done, vec![]));
}

pub(crate) async fn travel(home: Api, way: Way) -> Journey {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let world = World::new(home, way).await;
    let (mut fresh, mut returns) = (Vec::new(), Vec::new());

    let id = begin(&world, &path).await;

    // Another program takes it up, and makes the call that was to be made.
    let (store, crib) = (SqliteStore::open(&path).unwrap(), world.crib().await);
    let here = world.usual(home, &crib);
    let (mut chat, reopened) = here.reopen(&store, &id).await.unwrap();
    assert_eq!((&reopened.report.missing, &reopened.report.notes), (&vec![], &vec![]));
    let [left] = &reopened.interrupted[..] else { panic!("{reopened:?}") };
    assert_eq!(left.fate, Fate::Runs);
    world.expect(home, "answer", vec![Saying::Text("A meeting.")]);
    done(chat.send(Input::none()).await);
    assert_eq!(world.log.lock().unwrap().len(), 2);
    let lunch = json!({"title": "Lunch", "day": "Monday"});
    world.have_called(&mut chat, home, CREATE_EVENT, lunch.clone()).await;

    // Where the strategy it has can go on, and then where not.
    let others: Vec<Api> = Api::ALL.into_iter().filter(|api| *api != home).collect();
    let keeps = |api: &Api| !way.is_native() || way.model(*api).is_some();
    let (near, far): (Vec<Api>, Vec<Api>) = others.into_iter().partition(keeps);
    let mut errands = ABROAD.into_iter();
    for (api, errand) in near.into_iter().zip(errands.by_ref()) {
        let left = world.count() - 1;
        fresh.push(world.count());
        world.visit(&mut chat, api, &crib, errand).await;
        chat.move_to(&here).await.unwrap();
        assert_eq!(chat.conversation().strategy(), Some(way.strategy()));
        returns.push((left, world.count()));
        world.have_called(&mut chat, home, errand.1, errand.arguments()).await;
    }

    let mut seen = chat.history().to_vec();
    let before = loaded(&chat);
    world.expect(home, "summary", vec![Saying::Text(SUMMARY)]);
    let compaction = chat.compact().await.unwrap().unwrap();
    assert_eq!((&*compaction.summary, compaction.after), (SUMMARY, chat.history().len()));
    assert!(compaction.after < compaction.before, "{compaction:?}");
    assert_eq!(loaded(&chat), before);
    fresh.push(world.count());
    let issue = json!({"title": "Yet another", "body": "Before it is looked up."});
    world.have_called(&mut chat, home, CREATE_ISSUE, issue.clone()).await;
    world.expect(home, "search", vec![search("open an issue")]);
    world.expect(home, "call", vec![tool(&chat, CREATE_ISSUE, issue)]);
    world.expect(home, "answer", vec![Saying::Text("As before."), Saying::Costly]);
    done(chat.send("Look it up again.").await);
    seen.extend_from_slice(chat.history());

    // A model with a small window comes, and the conversation is too long for it.
    chat.move_to(&world.agent(home, &crib, Some(small(way, home)))).await.unwrap();
    world.expect(home, "summary", vec![Saying::Thinking("Briefly."), Saying::Text(SUMMARY)]);
    let (summary, before) = (world.count(), chat.history().len());
    world.have_called(&mut chat, home, LIST_EVENTS, json!({"day": "Tuesday"})).await;
    assert!(chat.history().len() < before);
    fresh.push(summary + 1);

    // Without the native form it goes on under dispatch, also at home.
    for (api, errand) in far.into_iter().zip(errands) {
        fresh.push(world.count());
        world.visit(&mut chat, api, &crib, errand).await;
        chat.move_to(&here).await.unwrap();
        assert_eq!(chat.conversation().strategy(), Some(Strategy::Dispatch));
        fresh.push(world.count());
        world.have_called(&mut chat, home, errand.1, errand.arguments()).await;
    }

    // And once more from what was kept.
    let (history, tools) = (chat.history().to_vec(), loaded(&chat));
    drop((chat, crib, store));
    let (store, crib) = (SqliteStore::open(&path).unwrap(), world.crib().await);
    let (mut chat, _) = world.usual(home, &crib).reopen(&store, &id).await.unwrap();
    assert_eq!((chat.history(), loaded(&chat)), (&history[..], tools));
    world.have_called(&mut chat, home, CREATE_EVENT, lunch).await;

    let exchanges = world.servers[&home].exchanges();
    let log = world.log.lock().unwrap().clone();
    let mut served = served(&exchanges);
    let seen = seen.iter().chain(chat.history());
    for (name, definition) in written(seen) {
        served.entry(name).or_default().push(definition);
    }
    let story = Story { exchanges, replies: world.replies.all(), log };
    Journey { story, fresh, returns, served }
}

const SUMMARY: &str = "They opened issues about the login.\n\nThe meeting is on Monday.";

/// Some turns with loads, until the program is gone: in the middle of an answer, when the model
/// has called a tool that has not begun.
async fn begin(world: &World, path: &Path) -> String {
    let (store, crib) = (SqliteStore::open(path).unwrap(), world.crib().await);
    let (home, agent) = (world.home, world.usual(world.home, &crib));
    let mut chat = agent.chat().kept_in(Arc::new(store), BTreeMap::new());
    let issue = json!({"title": "Login fails", "body": "Since Monday."});
    world.expect(home, "search", vec![Saying::Text("I'll look."), search("open an issue")]);
    world.expect(home, "call", vec![way::tool(world.way.strategy(), CREATE_ISSUE, issue)]);
    world.expect(home, "answer", vec![Saying::Text("It is open.")]);
    done(chat.send("Open an issue: the login fails.").await);
    assert_eq!(chat.conversation().strategy(), Some(world.way.strategy()));

    let both = json!({"group_id": "mcp:calendar", "tool_names": [LIST_EVENTS, CREATE_EVENT]});
    world.expect(home, "load", vec![call("load_tools", both)]);
    let monday = json!({"day": "Monday"});
    let thought = Saying::Thinking("Now the calendar.");
    world.expect(home, "call", vec![thought, tool(&chat, LIST_EVENTS, monday)]);
    {
        let mut events = chat.stream("What is on Monday?");
        let mut answers = 0;
        while answers < 2 {
            let event = events.next().await.unwrap();
            let is_answer = |message: &Message| matches!(message, Message::Assistant(_));
            answers +=
                usize::from(matches!(event, Event::Appended { message } if is_answer(&message)));
        }
    }
    assert_eq!(world.log.lock().unwrap().len(), 1);
    chat.session_id().unwrap().to_owned()
}

/// The same model with a window that is soon full.
fn small(way: Way, api: Api) -> Model {
    let like = way.model(api).map_or_else(|| "local".to_owned(), |model| model.name);
    let mut models = Models::embedded();
    let entry = format!("[[model]]\nname = \"small\"\nlike = \"{like}\"\ncontext = 100_000\n");
    models.extend_from_toml(&entry).unwrap();
    models.find("small").unwrap().clone()
}

fn loaded(chat: &Chat) -> Vec<String> {
    chat.conversation().session().loaded_tools().map(ToString::to_string).collect()
}

/// The definitions in the requests' tools arrays, with their names.
fn served(exchanges: &[Exchange]) -> BTreeMap<String, Vec<String>> {
    let mut served: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for exchange in exchanges {
        let body: Value = serde_json::from_str(&exchange.body).unwrap();
        let names = exchange.api.tool_names(&body);
        let tools = names.into_iter().zip(exchange.api.tools(&body));
        for (name, tool) in tools.filter(|(name, _)| name.starts_with("mcp__")) {
            let key = format!("{name} ({})", exchange.api.name());
            served.entry(key).or_default().push(tool.to_string());
        }
    }
    served
}

/// The definitions in a history, as they stand there.
fn written<'a>(history: impl Iterator<Item = &'a Arc<Message>>) -> Vec<(String, String)> {
    #[derive(serde::Deserialize)]
    struct Found<'a> {
        #[serde(borrow, default)]
        tools: Vec<&'a RawValue>,
        #[serde(borrow, default)]
        schemas: Vec<&'a RawValue>,
    }
    let mut written = Vec::new();
    for message in history {
        let results = match &**message {
            Message::Tool { results } => results,
            Message::Tools(change) => {
                let added = change.added.iter().map(|it| it.tool.neutral().get().to_owned());
                written.extend(added);
                continue;
            }
            Message::Notice { text } => {
                let lines = text.lines().filter(|line| line.starts_with('{'));
                written.extend(lines.map(str::to_owned));
                continue;
            }
            _ => continue,
        };
        for result in results {
            let revealed = result.revealed.iter();
            written.extend(revealed.map(|it| it.tool.neutral().get().to_owned()));
            for part in &result.content {
                let Part::Text { text } = part else { continue };
                let Ok(found) = serde_json::from_str::<Found<'_>>(text) else { continue };
                let rows = found.tools.into_iter().chain(found.schemas);
                written.extend(rows.map(|row| row.get().to_owned()));
            }
        }
    }
    // Whether a search has loaded it is no part of what it is.
    #[derive(serde::Deserialize)]
    struct Row<'a> {
        name: String,
        description: String,
        #[serde(borrow, alias = "input_schema")]
        parameters: &'a RawValue,
    }
    let named = |definition: String| {
        let Row { name, description, parameters } = serde_json::from_str(&definition).ok()?;
        Some((name, format!("{description} {parameters}")))
    };
    written.into_iter().filter_map(named).collect()
}
