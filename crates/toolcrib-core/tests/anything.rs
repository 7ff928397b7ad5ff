//! Arbitrary catalogs, sessions and calls: nothing panics, and what must hold holds. Odd cases
//! found once are kept in `tests/corpus/`.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use support::{deferring, denying, parse, tool};
use toolcrib_core::{
    Call, Definition, Effects, Engine, Group, GroupId, Mode, Need, Policy, Presentation, Preset,
    Registry, ServerTools, Session, Settings, Step, Strategy as Delivery, StrategyChoice, ToolName,
    ToolSpec, View,
};

#[derive(Clone, Debug)]
struct World {
    servers: BTreeMap<String, Vec<(String, String, Value)>>,
    hosts: Vec<(String, String)>,
    groups: Vec<(Vec<String>, Option<Vec<String>>)>,
    denied: Vec<String>,
    settings: Settings,
    moves: Vec<Move>,
}

#[derive(Clone, Debug)]
enum Move {
    /// A call of the name at this place among all known ones, mangled or not.
    Known(usize, Mangling, Value),
    /// A call of any name.
    Call(String, Value),
    Turn,
    Preload(String),
    Unload(usize),
    Fork,
    /// The history is replaced.
    Anew,
    Replace(String, Vec<(String, String, Value)>),
}

#[derive(Clone, Copy, Debug)]
enum Mangling {
    None,
    Bare,
    Cut,
    Quoted,
}

fn own_name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(vec![
            "search", "create_issue", "list_issues", "a.b", "a__b", "_x", "x_2", "🦀", "tool_search",
            "null", "call_tool", "getURLById", "with space", "ünï",
        ]).prop_map(str::to_owned),
        1 => "\\PC{1,12}",
        1 => ".{1,8}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => select(vec!["", "Create an issue.", "Search\nfor \"things\" \\ </function>", "a. b. c"])
            .prop_map(str::to_owned),
        1 => ".{0,60}",
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    select(vec![
        json!({"type": "object", "properties": {"text": {"type": "string"}}}),
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
            "additionalProperties": false}),
        json!({"type": "object", "properties": {"next": {"$ref": "#"}, "example": {}}}),
        json!({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
        json!(true),
        json!(false),
        json!({}),
        json!({"type": 7}),
        json!({"$ref": "https://example.com/x"}),
    ])
}

fn spec() -> impl Strategy<Value = (String, String, Value)> {
    (own_name(), text(), schema())
}

fn server_name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(vec!["github", "linear", "a__b", "a", "mcp", "sp ace", "ü"])
            .prop_map(str::to_owned),
        1 => "\\PC{1,10}",
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        query().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((select(KEYS.to_vec()), inner), 0..5).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(key, it)| (key.to_owned(), it)).collect())
            }),
        ]
    })
}

const KEYS: [&str; 13] = [
    "query",
    "limit",
    "max_results",
    "name",
    "pattern",
    "group_id",
    "tool_names",
    "tool_name",
    "arguments",
    "text",
    "n",
    "a",
    "",
];

fn query() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(vec![
            "", " ", "null", "select:", "select:search,nope,", "SELECT: a.b", "/.*/", "/(/", "/a{9}/",
            "+issue", "+", "search", "issue create", ".*", "(a+)+$", "github", "mcp:github", "g0",
            "g1", "{\"query\": \"x\"}", "call_tool", "tool_search", "load_tools", "-1", "3",
        ]).prop_map(str::to_owned),
        1 => own_name(),
        1 => ".{0,30}",
    ]
}

/// Arguments as a model might send them: mostly objects, sometimes text, sometimes nonsense.
fn arguments() -> impl Strategy<Value = Value> {
    let fields = vec((select(KEYS.to_vec()), json_value()), 0..5);
    prop_oneof![
        6 => fields.prop_map(|fields| {
            let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value));
            Value::Object(fields.collect::<Map<_, _>>())
        }),
        2 => (select(KEYS.to_vec()), query()).prop_map(|(key, text)| json!({key: text})),
        1 => json_value().prop_map(|value| Value::String(value.to_string())),
        1 => json_value(),
    ]
}

fn a_move() -> impl Strategy<Value = Move> {
    let verb = select(vec![
        "tool_search",
        "tool_search_regex",
        "load_tools",
        "call_tool",
        "deferred_tool_call",
        "functions.tool_search",
        "tool_serach",
    ]);
    let mangling = select(vec![
        Mangling::None,
        Mangling::None,
        Mangling::Bare,
        Mangling::Cut,
        Mangling::Quoted,
    ]);
    prop_oneof![
        8 => (verb, arguments()).prop_map(|(name, sent)| Move::Call(name.to_owned(), sent)),
        4 => (any::<usize>(), mangling, arguments())
            .prop_map(|(at, mangling, sent)| Move::Known(at, mangling, sent)),
        1 => (query(), arguments()).prop_map(|(name, sent)| Move::Call(name, sent)),
        1 => Just(Move::Turn),
        1 => query().prop_map(Move::Preload),
        1 => any::<usize>().prop_map(Move::Unload),
        1 => Just(Move::Fork),
        1 => Just(Move::Anew),
        1 => (server_name(), vec(spec(), 0..4)).prop_map(|(name, specs)| Move::Replace(name, specs)),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        select(Preset::ALL.to_vec()),
        select(vec![Mode::Auto, Mode::Deferred, Mode::Deferred, Mode::Full]),
        select(vec![
            StrategyChoice::Auto,
            StrategyChoice::Dispatch,
            StrategyChoice::Inject,
            StrategyChoice::Native,
        ]),
        select(vec![0u64, 60, 300, 2_000]),
        select(vec![0usize, 80, 100_000]),
        (0usize..4, 0usize..4, any::<bool>(), 0usize..8),
    )
        .prop_map(
            |(preset, mode, strategy, budget, bytes, (limit, most, describe, threshold))| {
                let mut settings = Settings::preset(preset);
                settings.mode = mode;
                settings.strategy = strategy;
                settings.catalog_tokens = budget;
                settings.result_bytes = bytes;
                (settings.search_limit, settings.search_limit_max) = (limit, most);
                settings.describe_names = describe;
                settings.hosted_search = limit == 0;
                settings.threshold_tools = threshold;
                settings
            },
        )
}

fn world() -> impl Strategy<Value = World> {
    let denied = select(vec![
        "*issue*",
        "github/*",
        "tool_search",
        "load_tools",
        "call_tool",
        "*search*",
        "zzz",
    ]);
    (
        proptest::collection::btree_map(server_name(), vec(spec(), 0..5), 0..4),
        vec((own_name(), text()), 0..3),
        vec((vec(own_name(), 0..3), proptest::option::of(vec(own_name(), 0..3))), 0..3),
        vec(denied, 0..3),
        settings(),
        vec(a_move(), 1..14),
    )
        .prop_map(|(servers, hosts, groups, denied, settings, moves)| World {
            servers,
            hosts,
            groups,
            denied: denied.into_iter().map(str::to_owned).collect(),
            settings,
            moves,
        })
}

/// A conversation played from a world, and all that was said in it.
struct Play {
    registry: Registry,
    policy: Policy,
    engine: Engine,
    session: Session,
    loaders: BTreeMap<GroupId, Result<Vec<ToolSpec>, String>>,
    changed: bool,
    said: Vec<String>,
    /// What would have been kept by the session's mark, but for when things were used.
    marks: BTreeMap<u64, Value>,
}

fn specs(server: &str, tools: &[(String, String, Value)]) -> Vec<ToolSpec> {
    let spec = |(own, about, schema): &(String, String, Value)| {
        ToolSpec::new(ToolName::mcp(server, own.as_str()), schema.clone())
            .with_description(about.as_str())
    };
    tools.iter().map(spec).collect()
}

impl Play {
    fn new(world: &World, reversed: bool) -> Self {
        let registry = Registry::default();
        // Refusals are part of the game: what is refused is not there.
        for (own, about) in &world.hosts {
            let _ = registry.register(tool(ToolName::host(own.as_str()), about));
        }
        let mut loaders = BTreeMap::new();
        for (at, (named, brought)) in world.groups.iter().enumerate() {
            let id = GroupId::from(format!("g{at}"));
            let group = Group::new(id.clone()).with_description("Search and issues.");
            let namespace = format!("n{at}");
            let group = group.with_namespace(namespace.as_str());
            let group = if named.is_empty() { group } else { group.with_tool_names(named) };
            let _ = registry.declare(group);
            let bring =
                |own: &String| tool(ToolName::host_in(namespace.as_str(), own.as_str()), "x");
            let specs = brought.as_ref().map(|own| own.iter().map(bring).collect());
            loaders.insert(id, specs.ok_or_else(|| "it is down\n\"now\"".to_owned()));
        }
        let mut servers: Vec<_> = world.servers.iter().collect();
        if reversed {
            servers.reverse();
        }
        for (name, tools) in servers {
            registry.replace_server(ServerTools::new(name.as_str(), specs(name, tools)));
        }
        let denied: Vec<&str> = world.denied.iter().map(String::as_str).collect();
        let mut session = Session::new();
        if world.settings.strategy == StrategyChoice::Native {
            session.choose(Delivery::Native);
        }
        Self {
            registry,
            policy: denying(&denied),
            engine: Engine::new(world.settings.clone()).expect("sound settings"),
            session,
            loaders,
            changed: false,
            said: Vec::new(),
            marks: BTreeMap::new(),
        }
    }

    fn view(&self) -> View {
        self.registry.catalog().view(&self.policy)
    }

    /// What the next request shows; `None` if the policy leaves nothing to offer.
    fn request(&mut self) -> Option<Presentation> {
        let view = self.view();
        let shown = self.engine.prepare(&mut self.session, &view).ok()?;
        self.said.push(format!("{} {:?}", shown.fingerprint(), shown.announcements));
        let given = shown.deferred.iter().map(|tool| tool.neutral().get().to_owned());
        self.said.extend(given.chain(serde_json::to_string(&shown.change)));
        Some(shown)
    }

    /// Whoever keeps the session when its mark changes keeps all of it.
    fn check_mark(&mut self) {
        let mut kept = serde_json::to_value(self.session.snapshot()).expect("it serialises");
        kept["turn"] = Value::Null;
        for tool in kept["loaded_tools"].as_array_mut().expect("a list") {
            tool["last_used"] = Value::Null;
        }
        let before = self.marks.entry(self.session.mark()).or_insert_with(|| kept.clone());
        assert_eq!(*before, kept);
    }

    /// The exposed names of all tools that may be declared.
    fn seen(&self) -> BTreeSet<String> {
        let brought = self.loaders.values().flatten().flatten().map(ToolSpec::name);
        let brought = brought.filter(|name| self.may_use(name));
        let naming = self.registry.catalog().naming();
        let known = self.known_names().into_iter().map(|(exposed, _)| exposed);
        known.chain(brought.map(|name| name.exposed(naming))).collect()
    }

    fn known_names(&self) -> Vec<(String, String)> {
        let view = self.view();
        let both = |name: &ToolName, exposed: &str| (exposed.to_owned(), name.tool().to_owned());
        view.tools().map(|tool| both(tool.name(), tool.exposed())).collect()
    }

    fn call(&mut self, name: &str, arguments: &Value) -> Effects {
        let view = self.view();
        let mut call = Call::new(name, arguments.clone());
        for _ in 0..20 {
            let step = self.engine.resolve(&mut self.session, &view, &call);
            match step {
                Step::Need(Need::Group(id)) => match self.loaders[&id].clone() {
                    Ok(specs) => {
                        self.engine.supply(&mut self.session, &view, &id, specs);
                    }
                    Err(reason) => call = call.without_group(id, reason),
                },
                Step::Answer(answer) => {
                    if self.session.strategy() != Some(Delivery::Native) {
                        check_text(&answer.content);
                        assert_eq!(answer.effects.revealed, []);
                    }
                    self.said.push(answer.content);
                    return answer.effects;
                }
                Step::Run(run) => {
                    assert!(self.may_use(run.tool.name()), "{} runs", run.tool.name());
                    assert!(run.arguments.is_object());
                    self.said.push(format!("{} {}", run.tool.name(), run.arguments));
                    return run.effects;
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("`{name}` needs more and more");
    }

    /// Whether the view has the tool, or a loader brought it and the policy admits it.
    fn may_use(&self, name: &ToolName) -> bool {
        let in_view = self.view().tools().any(|tool| tool.name() == name);
        let brought = self.loaders.values().flatten().flatten().any(|spec| spec.name() == name);
        let rules = self.policy.rules();
        let denied = rules.deny_tools.iter().any(|pattern| match pattern.as_str() {
            "*issue*" => name.to_string().contains("issue"),
            "*search*" => name.to_string().contains("search"),
            "github/*" => name.server() == Some("github"),
            exact => name.tool() == exact,
        });
        (in_view || brought) && !denied
    }

    fn make(&mut self, next: &Move) -> Effects {
        let view = self.view();
        match next {
            Move::Call(name, arguments) => return self.call(name, arguments),
            Move::Known(at, mangling, arguments) => {
                let known = self.known_names();
                if let Some((exposed, own)) = known.get(at % known.len().max(1)) {
                    let name = match mangling {
                        Mangling::None => exposed.clone(),
                        Mangling::Bare => own.clone(),
                        Mangling::Cut => exposed.chars().skip(1).collect(),
                        Mangling::Quoted => format!(" `{exposed}` "),
                    };
                    return self.call(&name, arguments);
                }
            }
            Move::Turn => {
                let report = self.engine.begin_turn(&mut self.session, &view);
                self.said.push(format!("{report:?}"));
            }
            Move::Preload(name) => {
                let missing = self.engine.preload(&mut self.session, &view, [name]);
                self.said.push(format!("{missing:?}"));
            }
            Move::Unload(at) => {
                let loaded: Vec<String> =
                    self.session.loaded_tools().map(ToString::to_string).collect();
                if !loaded.is_empty() {
                    self.session.unload([&loaded[at % loaded.len()]]);
                }
            }
            Move::Fork => self.session = self.session.fork(),
            Move::Anew => self.engine.settle_anew(&mut self.session, &view),
            Move::Replace(server, tools) => {
                let tools = specs(server, tools);
                self.registry.replace_server(ServerTools::new(server.as_str(), tools));
                self.changed = true;
            }
        }
        Effects::default()
    }
}

/// Answers are JSON, or definitions between tags that are.
fn check_text(content: &str) {
    let Some(rest) = content.strip_prefix("<functions>\n") else {
        let is_json = serde_json::from_str::<Value>(content).is_ok_and(|value| value.is_object());
        // A search that found nothing, in the preset that answers in text.
        let is_hint = content.contains("Nothing else matches.");
        assert!(is_json || is_hint, "{content}");
        return;
    };
    let (block, _) = rest.split_once("</functions>\n").expect("the block is closed");
    for line in block.lines() {
        let line = line.strip_prefix("<function>").and_then(|it| it.strip_suffix("</function>"));
        assert!(parse(line.expect("one definition a line")).is_object());
    }
}

/// A provider that searches has all that can be seen and nothing else, in one order.
fn check_hosted(play: &Play, before: &Presentation, now: &Presentation) {
    let names = |tools: &[Definition]| -> Vec<String> {
        tools.iter().map(|tool| tool.name().to_string()).collect()
    };
    let (was, is, base) = (names(&before.deferred), names(&now.deferred), names(&now.tools));
    let seen = play.seen();
    assert!(is.iter().all(|name| seen.contains(name) && !base.contains(name)), "{is:?}");
    let known = play.known_names();
    assert!(known.iter().all(|(name, _)| is.contains(name) || base.contains(name)), "{is:?}");
    let still = was.iter().filter(|name| is.contains(name));
    let old = is.iter().filter(|name| was.contains(name));
    assert!(still.eq(old), "{was:?} became {is:?}");
}

/// Plays a world and checks what must hold at every step; returns all that was said.
fn play(world: &World, reversed: bool) -> Vec<String> {
    let mut play = Play::new(world, reversed);
    let Some(mut first) = play.request() else {
        // Nothing to offer is an error of the configuration; calls are answered all the same.
        world.moves.iter().for_each(|next| {
            play.make(next);
        });
        return play.said;
    };
    let stays = play.session.strategy() != Some(Delivery::Inject)
        && play.session.is_deferred() == Some(true);
    let mut before = first.clone();
    for next in &world.moves {
        play.check_mark();
        let effects = play.make(next);
        play.check_mark();
        for name in &effects.loaded {
            assert!(play.may_use(name), "{name} was loaded");
        }
        let now = play.request().expect("what was settled stays settled");
        if play.session.is_hosted() {
            check_hosted(&play, &before, &now);
        }
        if matches!(next, Move::Anew) {
            (first, before) = (now.clone(), now);
            continue;
        }
        assert_eq!(now.system_section, first.system_section);
        if !play.session.is_hosted() {
            let given = now.deferred.get(..before.deferred.len());
            assert_eq!(given, Some(&before.deferred[..]), "after {next:?}");
        }
        for revealed in &effects.revealed {
            assert!(now.deferred.contains(&revealed.tool), "after {next:?}");
        }
        if stays {
            assert_eq!(now.fingerprint(), first.fingerprint(), "after {next:?}");
        } else if !matches!(next, Move::Unload(_)) {
            let (old, new) = (&before.tools, &now.tools);
            assert_eq!(new.get(..old.len()), Some(&old[..]), "after {next:?}");
            let news = new.len() - old.len();
            assert!(news >= effects.loaded.len() || play.changed, "after {next:?}");
        }
        before = now;
    }
    play.said
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_conversation_keeps_its_promises_and_is_the_same_twice(world in world()) {
        let said = play(&world, false);
        prop_assert_eq!(said, play(&world, true));
    }
}

/// A case: `{about, preset?, strategy?, mode?, tools: {server: [tool, …]}, calls: [{name,
/// arguments, runs? | mistake? | says?}]}`. The server `host` stands for the host itself.
fn replay(file: &str, case: &Value) {
    let choice = |key: &str| case[key].as_str();
    let preset = choice("preset").map_or(Preset::Crib, |word| word.parse().expect("a preset"));
    let mut settings = deferring(preset);
    if let Some(word) = choice("strategy") {
        settings.strategy = word.parse().expect("a strategy");
    }
    if let Some(word) = choice("mode") {
        settings.mode = word.parse().expect("a mode");
    }
    let registry = Registry::default();
    for (server, tools) in case["tools"].as_object().expect("servers") {
        let name = |own: String| match server.as_str() {
            "host" => ToolName::host(own),
            server => ToolName::mcp(server, own),
        };
        let tools = tools.as_array().expect("tools").iter();
        let specs: Vec<ToolSpec> =
            tools.map(|tool| ToolSpec::parse(&tool.to_string(), name).expect("a tool")).collect();
        if server == "host" {
            registry.register_all(specs).expect("host tools");
        } else {
            registry.replace_server(ServerTools::new(server.as_str(), specs));
        }
    }
    let mut chat = support::Chat::new(settings, registry);
    for call in case["calls"].as_array().expect("calls") {
        let name = call["name"].as_str().expect("a name");
        let told = match chat.step(name, call["arguments"].clone()) {
            Step::Run(run) => json!({"runs": run.tool.name().to_string(), "with": run.arguments}),
            Step::Answer(answer) => {
                check_text(&answer.content);
                let key = if answer.is_error { "mistake" } else { "says" };
                json!({key: answer.content})
            }
            need => panic!("{file}: {need:?}"),
        };
        let text = |key: &str| told[key].as_str().unwrap_or_default();
        for key in ["runs", "mistake", "says"] {
            let wanted = call[key].as_str();
            let fits = wanted.is_none_or(|wanted| text(key).contains(wanted));
            assert!(fits, "{file}: {call} got {told}");
        }
        if let Some(with) = call.get("with") {
            assert_eq!(&told["with"], with, "{file}: {call}");
        }
        chat.prepare();
    }
}

#[test]
fn the_odd_cases_of_the_corpus_end_as_they_should() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus");
    let entries = std::fs::read_dir(folder).expect("the corpus");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    assert!(files.len() >= 20, "{} cases", files.len());
    for path in files {
        let text = std::fs::read_to_string(&path).expect("a case");
        replay(&path.display().to_string(), &parse(&text));
    }
}
