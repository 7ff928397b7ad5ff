//! What README, docs and help say happens does.

use std::path::Path;

use crate::support::{Folder, SESSION, WEATHER, keys, sample};

const README: &str = include_str!("../../../../README.md");
const CONFIGURATION: &str = include_str!("../../../../docs/configuration.md");
const RECIPES: &str = include_str!("../../../../docs/recipes.md");
const COMING_FROM: &str = include_str!("../../../../docs/coming-from.md");
const GATEWAY: &str = include_str!("../../../../docs/gateway.md");
const AGENT: &str = include_str!("../../../../docs/agent.md");
const POLICY: &str = include_str!("../../../../docs/policy.md");
const SESSIONS: &str = include_str!("../../../../docs/sessions.md");

/// A line without what differs from run to run: how long something took.
fn without_times(line: &str) -> String {
    let line = line.trim();
    let ends_with_time = |inside: &str| inside.ends_with(" ms)") || inside.ends_with(" s)");
    match line.rfind(" (") {
        Some(at) if ends_with_time(&line[at..]) => {
            // What else stands between the brackets is no time.
            let rest = line[at..].rsplit_once(", ").map_or("", |(rest, _)| rest);
            format!("{}{rest}", &line[..at])
        }
        _ => line.to_owned(),
    }
}

#[test]
fn the_demo_of_the_readme_is_what_the_demo_shows() {
    let output = sample().run("demo");
    let shown: Vec<String> = output.stdout.lines().map(without_times).collect();
    let excerpt =
        README.split("```").find(|block| block.contains("\n1  Every definition")).unwrap();
    let mut rest = shown.iter();
    let lines = excerpt.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "…");
    for line in lines {
        let line = without_times(line);
        let found = rest.any(|shown| *shown == line);
        assert!(found, "`{line}` is not where it should be in:\n{}", output.stdout);
    }
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
    let is_of_sessions = words[1] == "sessions" || words.iter().any(|word| word == "--resume");
    if words.iter().any(|word| word == "talk.json") && words[2] == "import" {
        files.push(("talk.json", SESSION));
    }
    let folder = Folder::new(&files);
    if is_of_sessions {
        // The newest of this folder is one of this folder.
        let here = folder.path("").canonicalize().unwrap().display().to_string();
        std::fs::write(folder.path("kept.json"), SESSION.replace("/somewhere", &here)).unwrap();
        folder.text("sessions import kept.json");
    }
    let mut command = folder.command("");
    let is_agent = ["chat", "run"].contains(&&*words[1]);
    let named = words.iter().position(|word| word == "--model").filter(|_| is_agent);
    let kept = |at: &usize| named.is_none_or(|named| ![named, named + 1].contains(at));
    command.args((1..words.len()).filter(kept).map(|at| &words[at]));
    if ["serve", "builtin"].contains(&&*words[1]) {
        // They run until they are stopped, which is not for here: that they are understood is.
        command.arg("--help");
    }
    if is_agent {
        // There is no model here, whichever is named; the rest is as it was typed.
        command.args(["--model", "scripted"]).stdin(std::process::Stdio::null());
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
    let documents = [README, CONFIGURATION, RECIPES, GATEWAY, SESSIONS];
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
        "chat",
        "run",
        "sessions",
        "servers",
        "call",
        "doctor",
        "tools",
        "search",
        "usage",
        "prompt",
        "plan",
        "import",
        "add",
        "remove",
        "client-config",
        "config",
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
    let blocks: Vec<&str> = [CONFIGURATION, POLICY, RECIPES, COMING_FROM, AGENT]
        .iter()
        .flat_map(|document| document.split("```toml\n").skip(1))
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(blocks.len() >= 6, "{blocks:?}");
    for block in blocks {
        let folder = Folder::new(&[("toolcrib.toml", block)]);
        assert!(folder.text("config check").contains(": preset "), "{block}");
    }
}

#[test]
fn every_key_is_documented() {
    let schema = sample().json("config schema");
    let of = |name: &str| format!("/$defs/{name}/properties");
    let groups = ["EagerRules", "PolicyRules", "ServerEntry", "Gateway", "Search", "EndpointEntry"]
        .into_iter()
        .chain(["AgentEntry", "PermissionRule", "Rule", "AuditEntry"]);
    let groups: Vec<String> = groups.map(of).collect();
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
    for file in
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/ARCHITECTURE.md", "docs/agent.md"]
            .into_iter()
            .chain([
                "docs/configuration.md",
                "docs/recipes.md",
                "docs/coming-from.md",
                "docs/gateway.md",
                "docs/sessions.md",
                "docs/policy.md",
            ])
    {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        for target in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let path = target.split('#').next().unwrap();
            let place = root.join(file).parent().unwrap().join(path);
            assert!(target.starts_with("http") || place.exists(), "{file}: {target}");
        }
    }
}
