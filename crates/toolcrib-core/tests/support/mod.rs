//! What the tests share: short ways to make tools, and a conversation to try them in.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use toolcrib_core::{
    Answer, Call, Engine, GroupId, Mode, Need, Policy, PolicyRules, Presentation, Preset, Registry,
    Run, ServerTools, Session, Settings, Stats, Step, ToolName, ToolSpec, TurnReport, View,
};

/// A tool that takes one string, `text`.
pub(crate) fn tool(name: ToolName, description: &str) -> ToolSpec {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    ToolSpec::new(name, schema).with_description(description)
}

/// A server with these tools, each a name and a description.
pub(crate) fn server(name: &str, tools: &[(&str, &str)]) -> ServerTools {
    let spec = |(own, about): &(&str, &str)| tool(ToolName::mcp(name, *own), about);
    ServerTools::new(name, tools.iter().map(spec))
}

/// A registry with these servers.
pub(crate) fn registry(servers: impl IntoIterator<Item = ServerTools>) -> Registry {
    let registry = Registry::default();
    for server in servers {
        let change = registry.replace_server(server);
        assert_eq!(change.rejected, []);
    }
    registry
}

/// The settings of a preset, always deferring.
pub(crate) fn deferring(preset: Preset) -> Settings {
    let mut settings = Settings::preset(preset);
    settings.mode = Mode::Deferred;
    settings
}

/// A policy that hides the tools these patterns match.
pub(crate) fn denying(patterns: &[&str]) -> Policy {
    let deny_tools = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    Policy::new(PolicyRules { deny_tools, ..PolicyRules::default() }).expect("patterns compile")
}

/// One conversation with an engine, as a driver would lead it.
pub(crate) struct Chat {
    pub(crate) engine: Engine,
    pub(crate) registry: Registry,
    pub(crate) policy: Policy,
    pub(crate) session: Session,
    /// What the loader of each group brings, or why it fails.
    pub(crate) loaders: BTreeMap<GroupId, Result<Vec<ToolSpec>, String>>,
    /// Which loaders were asked, in order.
    pub(crate) asked: Vec<GroupId>,
}

impl Chat {
    /// A conversation whose first turn has begun and whose first request is settled.
    pub(crate) fn new(settings: Settings, registry: Registry) -> Self {
        Self::under(Policy::default(), settings, registry)
    }

    pub(crate) fn under(policy: Policy, settings: Settings, registry: Registry) -> Self {
        let mut chat = Self::unsettled(policy, settings, registry);
        chat.turn();
        chat.prepare();
        chat
    }

    /// A conversation before its first turn.
    pub(crate) fn unsettled(policy: Policy, settings: Settings, registry: Registry) -> Self {
        let engine = Engine::new(settings).expect("the settings are sound");
        Self {
            engine,
            registry,
            policy,
            session: Session::new(),
            loaders: BTreeMap::new(),
            asked: Vec::new(),
        }
    }

    pub(crate) fn view(&self) -> View {
        self.registry.catalog().view(&self.policy)
    }

    pub(crate) fn turn(&mut self) -> TurnReport {
        let view = self.view();
        self.engine.begin_turn(&mut self.session, &view)
    }

    pub(crate) fn prepare(&mut self) -> Presentation {
        let view = self.view();
        self.engine.prepare(&mut self.session, &view).expect("there is something to offer")
    }

    /// The names in the tools array of the next request.
    pub(crate) fn tools(&mut self) -> Vec<String> {
        self.prepare().tools.iter().map(|tool| tool.name().to_string()).collect()
    }

    pub(crate) fn section(&mut self) -> String {
        self.prepare().system_section.to_string()
    }

    /// What comes of a call. Loaders are asked as a driver would ask them.
    pub(crate) fn step(&mut self, name: &str, arguments: Value) -> Step {
        let view = self.view();
        let mut call = Call::new(name, arguments);
        loop {
            match self.engine.resolve(&mut self.session, &view, &call) {
                Step::Need(Need::Group(id)) => {
                    self.asked.push(id.clone());
                    match self.loaders.get(&id).cloned() {
                        Some(Ok(specs)) => {
                            self.engine.supply(&mut self.session, &view, &id, specs);
                        }
                        Some(Err(reason)) => call = call.without_group(id, reason),
                        None => call = call.without_group(id, "no loader"),
                    }
                }
                step => return step,
            }
        }
    }

    /// The answer to a call that runs nothing.
    pub(crate) fn answer(&mut self, name: &str, arguments: Value) -> Answer {
        match self.step(name, arguments) {
            Step::Answer(answer) => answer,
            other => panic!("expected an answer, got {other:?}"),
        }
    }

    /// The answer parsed; it must be JSON, and tell of no mistake.
    pub(crate) fn json(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.answer(name, arguments);
        assert!(!answer.is_error, "{}", answer.content);
        parse(&answer.content)
    }

    /// The answer parsed; it must be JSON, and tell of a mistake.
    pub(crate) fn mistake(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.answer(name, arguments);
        assert!(answer.is_error, "{}", answer.content);
        parse(&answer.content)
    }

    pub(crate) fn run(&mut self, name: &str, arguments: Value) -> Run {
        match self.step(name, arguments) {
            Step::Run(run) => run,
            other => panic!("expected a run, got {other:?}"),
        }
    }

    /// `server/tool` and the arguments of a call that runs.
    pub(crate) fn runs(&mut self, name: &str, arguments: Value) -> (String, Value) {
        let run = self.run(name, arguments);
        (run.tool.name().to_string(), run.arguments)
    }

    pub(crate) fn stats(&mut self) -> Stats {
        let view = self.view();
        self.engine.stats(&mut self.session, &view).expect("there is something to offer")
    }

    /// The hash of section and tools at the next request.
    pub(crate) fn hash(&mut self) -> toolcrib_core::Fingerprint {
        self.prepare().fingerprint()
    }

    /// What the model is told at the next request.
    pub(crate) fn told(&mut self) -> Vec<String> {
        self.prepare().announcements
    }

    /// Begins a turn; says what the model is told of it.
    pub(crate) fn news(&mut self) -> Vec<String> {
        self.turn();
        self.told()
    }

    /// The conversation in another process: kept as JSON and brought back.
    pub(crate) fn restart(&mut self) -> toolcrib_core::ResumeReport {
        let json = serde_json::to_string(&self.session.snapshot()).expect("it serialises");
        let strategy = self.session.strategy().expect("the first request is settled");
        let saved = toolcrib_core::Saved::from_json(&json).expect("it was written by us");
        let view = self.view();
        let resumed = self.engine.resume(&view, saved, strategy, BTreeMap::new());
        let (session, report) = resumed.expect("it can be resumed");
        self.session = session;
        report
    }

    /// The exposed names of what is loaded, in the order of loading.
    pub(crate) fn loaded(&self) -> Vec<String> {
        self.session.loaded_tools().map(ToString::to_string).collect()
    }
}

pub(crate) fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// The strings under `key` of each row, or the strings themselves where the rows are strings.
pub(crate) fn names(rows: &Value) -> Vec<&str> {
    let rows = rows.as_array().expect("a list");
    rows.iter().map(|row| row.as_str().or_else(|| row["name"].as_str()).expect("a name")).collect()
}

/// Compares with `tests/golden/<file>` byte for byte; `UPDATE_GOLDEN=1` writes it anew.
pub(crate) fn golden(file: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    let actual = format!("{actual}\n");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &actual).expect("the golden file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{file} differs; UPDATE_GOLDEN=1 writes it anew");
}

/// As [`golden`], indented for people to read: for results that are JSON.
pub(crate) fn golden_json(file: &str, actual: &str) {
    let pretty = serde_json::to_string_pretty(&parse(actual)).expect("JSON");
    golden(file, &pretty);
    // Indenting and back must lose nothing, so that the file does pin the bytes.
    assert_eq!(serde_json::to_string(&parse(&pretty)).expect("JSON"), actual);
}
