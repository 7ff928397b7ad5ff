//! The cost of the engine at 1,000, 10,000 and 100,000 tools: `cargo bench -p toolcrib-core`.
//!
//! One line per figure. Timings of one run on one core; compare them with each other, not with
//! another machine's. `cargo bench -p toolcrib-core -- 10000` runs one size only.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use toolcrib_core::{
    Call, Engine, Mode, Policy, PolicyRules, Registry, ServerTools, Session, Settings, Step,
    ToolName, ToolSpec,
};

/// Tools per server: about the mean of what real servers offer. Who has a hundred thousand tools
/// has large servers rather than thousands of them.
fn tools_per_server(size: usize) -> usize {
    if size > 25_000 { 100 } else { 25 }
}

const VERBS: [&str; 20] = [
    "create", "list", "get", "update", "delete", "search", "export", "import", "archive",
    "restore", "assign", "merge", "close", "open", "send", "fetch", "validate", "sync", "rename",
    "copy",
];
const NOUNS: [&str; 40] = [
    "issue",
    "pull_request",
    "repository",
    "branch",
    "commit",
    "file",
    "directory",
    "message",
    "channel",
    "user",
    "team",
    "calendar_event",
    "meeting",
    "invoice",
    "payment",
    "customer",
    "order",
    "product",
    "ticket",
    "alert",
    "dashboard",
    "metric",
    "log_entry",
    "database",
    "table",
    "row",
    "query",
    "document",
    "page",
    "comment",
    "task",
    "project",
    "workflow",
    "pipeline",
    "deployment",
    "container",
    "secret",
    "webhook",
    "template",
    "report",
];
const PHRASES: [&str; 10] = [
    "Returns the identifier and the current state",
    "Results are paginated; pass the cursor of the previous page to continue",
    "Requires write access to the workspace",
    "Fields that are left out keep their present values",
    "Use the search tool first if the identifier is not known",
    "Dates are in ISO 8601 form with a time zone",
    "Fails if another change was made in the meantime",
    "Only members of the owning team are notified",
    "The operation is recorded in the audit trail",
    "Supports filtering by label, owner and time of the last change",
];

fn main() {
    let sizes: Vec<usize> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1_000, 10_000, 100_000] } else { sizes };
    for size in sizes {
        measure(size);
    }
}

fn measure(size: usize) {
    let servers = servers(size);
    let before = resident_bytes();
    let started = Instant::now();
    let registry = Registry::default();
    let count = servers.len();
    for (name, specs) in servers {
        registry.replace_server(ServerTools::new(name, specs));
    }
    let built = started.elapsed();
    println!("{size} tools  catalog build, {count} servers one after another  {}", show(built));
    let bytes = resident_bytes().saturating_sub(before) / size;
    println!("{size} tools  memory beside the specs handed in  {bytes} bytes a tool");

    let change = server(7, tools_per_server(size), 1);
    report(size, "replace one server", 100, |_| {
        let (name, specs) = change.clone();
        black_box(registry.replace_server(ServerTools::new(name, specs)));
    });

    let view = registry.catalog().view_all();
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    let engine = Engine::new(settings).unwrap();
    let started = Instant::now();
    let mut session = Session::new();
    engine.prepare(&mut session, &view).unwrap();
    println!("{size} tools  first prepare on a catalog  {}", show(started.elapsed()));
    report(size, "prepare, new conversation", 2_000, |_| {
        black_box(engine.prepare(&mut Session::new(), &view).unwrap());
    });
    report(size, "prepare, dispatch", 10_000, |_| {
        black_box(engine.prepare(&mut session, &view).unwrap());
    });
    let narrow = PolicyRules { deny_tools: vec!["delete_*".into()], ..PolicyRules::default() };
    let narrow = Policy::new(narrow).unwrap();
    report(size, "view under a policy seen before", 1_000, |_| {
        black_box(registry.catalog().view(&narrow));
    });

    let names: Vec<String> =
        view.tools().step_by(97).map(|tool| tool.exposed().to_string()).collect();
    let call = |at: usize| {
        let arguments = json!({"id": "A-17", "title": "Quarterly report", "labels": ["a", "b"],
            "options": {"notify": true, "priority": 3}});
        Call::new(
            "call_tool",
            json!({"tool_name": names[at % names.len()], "arguments": arguments}),
        )
    };
    for at in 0..names.len() {
        run(&engine, &mut session, &view, &call(at));
    }
    report(size, "resolve, loaded and validated", 10_000, |at| {
        black_box(run(&engine, &mut session, &view, &call(at)));
    });
    let mut fresh = Session::new();
    engine.prepare(&mut fresh, &view).unwrap();
    report(size, "resolve, blind with implicit load", names.len().min(1_000), |at| {
        black_box(run(&engine, &mut fresh, &view, &call(at)));
    });

    let queries: Vec<String> = (0..500).map(query).collect();
    for query in queries.iter().take(50) {
        black_box(view.search(query, 5).unwrap());
    }
    report(size, "search, three to six words", 500, |at| {
        black_box(view.search(&queries[at], 5).unwrap());
    });
}

fn run(engine: &Engine, session: &mut Session, view: &toolcrib_core::View, call: &Call) -> Value {
    match engine.resolve(session, view, call) {
        Step::Run(run) => run.arguments,
        other => panic!("{other:?}"),
    }
}

fn report(size: usize, what: &str, rounds: usize, mut work: impl FnMut(usize)) {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|at| {
            let started = Instant::now();
            work(at);
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    println!("{size} tools  {what}  p50 {}  p99 {}", show(p50), show(p99));
}

fn show(time: Duration) -> String {
    match time.as_micros() {
        0..1_000 => format!("{:.1} µs", time.as_nanos() as f64 / 1e3),
        1_000..1_000_000 => format!("{:.2} ms", time.as_micros() as f64 / 1e3),
        _ => format!("{:.2} s", time.as_secs_f64()),
    }
}

fn servers(size: usize) -> Vec<(String, Vec<ToolSpec>)> {
    let tools = tools_per_server(size);
    (0..size / tools).map(|n| server(n, tools, 0)).collect()
}

fn server(n: usize, tools: usize, edition: usize) -> (String, Vec<ToolSpec>) {
    let name = format!("{}-{n}", NOUNS[n * 7 % NOUNS.len()].replace('_', "-"));
    let specs = (0..tools).map(|at| spec(&name, n * tools + at, edition)).collect();
    (name, specs)
}

fn spec(server: &str, n: usize, edition: usize) -> ToolSpec {
    let (verb, noun) = (VERBS[n % VERBS.len()], NOUNS[(n / 3 + n % 7) % NOUNS.len()]);
    let readable = noun.replace('_', " ");
    let phrase = |shift: usize| PHRASES[(n * 13 + shift) % PHRASES.len()];
    let description = format!(
        "{verb} a {readable} in {server}, edition {edition}. {}. {}. {}.",
        phrase(0),
        phrase(3),
        phrase(7)
    );
    let schema = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": format!("Identifier of the {readable}.")},
            "title": {"type": "string", "maxLength": 200, "description": phrase(1)},
            "labels": {"type": "array", "items": {"type": "string"}, "description": phrase(2)},
            "state": {"type": "string", "enum": ["open", "closed", "archived"], "default": "open"},
            "options": {"$ref": "#/$defs/options"},
            "cursor": {"type": ["string", "null"], "description": phrase(4)}
        },
        "required": ["id"],
        "additionalProperties": false,
        "$defs": {"options": {"type": "object", "properties": {
            "notify": {"type": "boolean", "description": phrase(5)},
            "priority": {"type": "integer", "minimum": 0, "maximum": 5},
            "due": {"type": "string", "format": "date-time", "description": phrase(6)}
        }}}
    });
    ToolSpec::new(ToolName::mcp(server, format!("{verb}_{noun}_{n}")), schema)
        .with_description(description)
}

fn query(n: usize) -> String {
    let readable = NOUNS[n * 11 % NOUNS.len()].replace('_', " ");
    let verb = VERBS[n * 3 % VERBS.len()];
    match n % 3 {
        0 => format!("{verb} a {readable}"),
        1 => format!("{verb} {readable} by owner and label"),
        _ => format!("how do I {verb} the {readable} of our team"),
    }
}

/// What the process holds in memory; zero where the system does not say.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or_default() * 4096
}
