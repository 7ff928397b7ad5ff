//! What README, docs and help say happens does.

use std::path::Path;

use serde_json::{Value, json};
use toolcrib::{Call, Engine, Policy, Registry, ServerTools, Session, Settings, Step};
use toolcrib::{ToolName, ToolSpec};

use crate::support::{Folder, WEATHER, keys, sample};

const README: &str = include_str!("../../../../README.md");
const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");
const RECIPES: &str = include_str!("../../../../docs/recipes.md");
const COMING_FROM: &str = include_str!("../../../../docs/coming-from.md");
const SAMPLE: &str = include_str!("../../data/sample.json");

/// The sample's servers, as the commands read them.
fn registry() -> Registry {
    let registry = Registry::default();
    let servers: Vec<Value> = serde_json::from_str(SAMPLE).unwrap();
    for server in &servers {
        let name = server["server"].as_str().unwrap();
        let spec = |tool: &Value| {
            ToolSpec::parse(&tool.to_string(), |own| ToolName::mcp(name, own)).unwrap()
        };
        let specs = server["tools"].as_array().unwrap().iter().map(spec);
        registry.replace_server(ServerTools::new(name, specs));
    }
    registry
}

/// The lines of the dialogue that this side speaks, each in the parts between its ellipses.
fn lines(of: &str) -> Vec<Vec<&'static str>> {
    let spoken = README.lines().filter_map(|line| line.strip_prefix(of));
    spoken.map(|line| line.trim().split('…').collect()).collect()
}

#[test]
fn the_dialogue_is_what_the_engine_says() {
    let view = registry().catalog().view(&Policy::default());
    let engine = Engine::new(Settings::default()).unwrap();
    let mut session = Session::new();
    let issue = |arguments: Value| json!({"tool_name": "mcp__issues__create_issue", "arguments": arguments});
    let whole = json!({"project": "APP", "title": "Crash on start"});
    let calls = [
        ("tool_search", json!({"query": "create an issue"})),
        ("call_tool", issue(json!({"title": "Crash on start"}))),
        ("call_tool", issue(whole.clone())),
    ];
    let answers = lines("crib  ");
    let mut steps = calls.map(|(name, arguments)| {
        let written = &lines("model  ");
        let values = arguments.as_object().unwrap().iter();
        let values: Vec<String> = values.map(|(key, value)| format!("{key}={value}")).collect();
        let line = format!("{name}({})", values.join(", "));
        let bare = |text: &str| text.replace(' ', "");
        assert!(written.iter().any(|parts| bare(parts[0]) == bare(&line)), "{line}");
        Some(engine.resolve(&mut session, &view, &Call::new(name, arguments)))
    });
    for (step, parts) in steps.iter().zip(&answers) {
        let Some(Step::Answer(answer)) = step else { panic!("{step:?}") };
        let mut rest = answer.content.as_str();
        for part in parts {
            let at = rest.find(part.trim()).unwrap_or_else(|| panic!("`{part}` in {rest}"));
            rest = &rest[at + part.trim().len()..];
        }
    }
    assert_eq!(answers.len(), 2);
    let Some(Step::Run(run)) = steps[2].take() else { panic!("{:?}", steps[2]) };
    assert_eq!((run.tool.name().tool(), &run.arguments), ("create_issue", &whole));
}

/// Commands that change or show a configuration, and so need one.
const OF_A_CONFIGURATION: [&str; 5] = ["import", "add", "remove", "client-config", "config"];

/// Runs a command line as a reader would copy it, without what it is piped to or commented with.
fn follow(line: &str) {
    let ends = ["  ", " | ", " > ", " #"].map(|end| line.find(end).unwrap_or(line.len()));
    let line = &line[..ends.into_iter().min().unwrap()];
    let words = words(line);
    let mut files = vec![
        ("mcp.json", r#"{"mcpServers": {}}"#),
        ("home/.cursor/mcp.json", r#"{"mcpServers": {}}"#),
        ("folder/weather.json", WEATHER),
        ("servers/weather.json", WEATHER),
        ("q.jsonl", r#"{"id": 1, "query": "alerts"}"#),
    ];
    if OF_A_CONFIGURATION.contains(&&*words[1]) {
        files.push(("toolcrib.toml", "[servers.weather]\ncommand = \"weather\"\n"));
    }
    let folder = Folder::new(&files);
    let mut command = folder.command("");
    command.args(&words[1..]);
    if ["serve", "builtin"].contains(&&*words[1]) {
        // They run until they are stopped, which is not for here: that they are understood is.
        command.arg("--help");
    }
    let output = Folder::output(command);
    assert_eq!(output.code, Some(0), "{line}: {}", output.stderr);
}

/// The words of a command line, as a shell takes them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for c in line.trim().chars() {
        match (c, quote) {
            (c, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            (' ', None) => words.push(String::new()),
            (c, _) => words.last_mut().unwrap().push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn the_commands_of_the_docs_run() {
    let documents = [README, CONFIGURATION, RECIPES];
    let lines: Vec<String> = documents
        .iter()
        .flat_map(|document| document.lines())
        .filter(|line| line.starts_with("toolcrib "))
        // Aligned for the eye; a reader's shell does not mind.
        .map(|line| line.replacen("toolcrib tools  ", "toolcrib tools ", 1))
        .map(|line| line.replacen("toolcrib plan   ", "toolcrib plan ", 1))
        .collect();
    assert!(lines.len() >= 9, "{lines:?}");
    lines.iter().for_each(|line| follow(line));
}

#[test]
fn the_examples_of_every_command_run() {
    for command in [
        "demo",
        "serve",
        "servers",
        "call",
        "doctor",
        "tools",
        "search",
        "prompt",
        "plan",
        "import",
        "add",
        "remove",
        "client-config",
        "config show",
        "config check",
    ] {
        let help = sample().text(&format!("{command} --help"));
        let (_, examples) = help.split_once("Example").unwrap();
        let lines = examples.lines().filter_map(|line| line.strip_prefix("  toolcrib "));
        let lines: Vec<String> = lines.map(|line| format!("toolcrib {line}")).collect();
        assert!(!lines.is_empty(), "{help}");
        lines.iter().for_each(|line| follow(line));
    }
}

#[test]
fn the_configurations_of_the_docs_are_accepted() {
    let blocks: Vec<&str> = [CONFIGURATION, RECIPES, COMING_FROM]
        .iter()
        .flat_map(|document| document.split("```toml\n").skip(1))
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 6, "{blocks:?}");
    for block in blocks {
        let folder = Folder::new(&[("toolcrib.toml", block)]);
        assert!(folder.text("config check").contains("is fine"), "{block}");
    }
}

#[test]
fn every_key_is_documented() {
    let schema = sample().json("config schema");
    let of = |name: &str| format!("/$defs/{name}/properties");
    let groups = ["EagerRules", "PolicyRules", "ServerEntry", "Gateway"].map(of);
    let groups = groups.iter().map(String::as_str).chain(["/properties"]);
    for key in groups.flat_map(|group| keys(schema.pointer(group).unwrap())) {
        // In a table, as a line of an example, or as the head of one.
        let forms =
            [format!("| `{key}` |"), format!("\n{key} ="), format!("{key}]"), format!("[{key}.")];
        assert!(forms.iter().any(|form| CONFIGURATION.contains(form)), "{key}");
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/ARCHITECTURE.md"]
        .into_iter()
        .chain(["docs/configuration.md", "docs/recipes.md", "docs/coming-from.md"])
    {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for target in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let path = target.split('#').next().unwrap();
            let place = root.join(file).parent().unwrap().join(path);
            assert!(target.starts_with("http") || place.exists(), "{file}: {target}");
        }
    }
}
