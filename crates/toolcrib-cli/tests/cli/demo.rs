//! `toolcrib demo`, on a machine with nothing on it.

use std::fs;

use serde_json::Value;

use crate::support::{Folder, sample};

fn demo(args: &str, prepare: impl FnOnce(&Folder, &mut std::process::Command)) -> String {
    let folder = sample();
    fs::create_dir(folder.path("tmp")).unwrap();
    let mut command = folder.command(args);
    command.env("TMPDIR", folder.path("tmp"));
    prepare(&folder, &mut command);
    let output = Folder::output(command);
    assert_eq!((output.code, &*output.stderr), (Some(0), ""), "{}", output.stdout);
    assert_eq!(folder.left_behind(), [""; 0]);
    assert_eq!(fs::read_dir(folder.path("tmp")).unwrap().count(), 0, "something is left behind");
    assert!(!folder.path("home").exists(), "the home folder is none of its business");
    output.stdout
}

#[test]
fn it_shows_every_stage_and_says_what_is_next() {
    let text = demo("demo", |_, _| ());
    let stages = [
        "A client, the gateway and 7 built-in servers",
        "1  Every definition",
        "49 tools of 7 servers",
        "2  The same behind the gateway",
        "tool_search, load_tools, call_tool",
        "% less",
        "3  A search",
        "sqlite__query",
        "4  A load",
        "notes__add_note",
        "5  A blind call",
        "The arguments do not fit `files__write_file`, so nothing was run.",
        "\"path\" is a required property",
        "repaired from it",
        "{\"path\":\"hello.md\",\"content\":",
        "6  Real results",
        "[[\"kettle\",69]]",
        "Totals",
        "% saved",
        "toolcrib import",
        "toolcrib client-config",
    ];
    let mut rest = text.as_str();
    for stage in stages {
        let at = rest.find(stage).unwrap_or_else(|| panic!("`{stage}` in {text}"));
        rest = &rest[at..];
    }
    assert!(!text.contains('\x1b'));
}

#[test]
fn its_numbers_add_up() {
    let value: Value = serde_json::from_str(&demo("demo --json", |_, _| ())).unwrap();
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64).unwrap();
    for bill in ["full", "deferred"] {
        let parts =
            number(&format!("/{bill}/definitions")) + number(&format!("/{bill}/instructions"));
        assert_eq!(number(&format!("/{bill}/tokens")), parts);
    }
    assert_eq!((number("/full/tools"), number("/deferred/tools")), (49, 3));
    // The catalog names every server even though this gateway has started none yet.
    assert!(number("/deferred/instructions") > 300, "{value}");
    let steps = value["steps"].as_array().unwrap();
    let fetched: u64 = steps.iter().map(|step| step["tokens"].as_u64().unwrap()).sum();
    assert_eq!(number("/totals/sent"), number("/deferred/tokens") + fetched);
    assert_eq!(number("/totals/full"), number("/full/tokens"));
    assert_eq!(number("/totals/calls") as usize, steps.len());
    let share = 100.0 * (1.0 - number("/totals/sent") as f64 / number("/totals/full") as f64);
    assert!((value["totals"]["saved"].as_f64().unwrap() - share).abs() < 0.06, "{share}");
    let errors = steps.iter().filter(|step| step["is_error"] == true);
    assert_eq!(errors.map(|step| &step["what"]).collect::<Vec<_>>(), ["blind_call"]);
    assert!(number("/totals/ms") < 60_000);
}

#[test]
fn it_needs_no_home_and_no_configuration_that_can_be_read() {
    demo("demo", |folder, command| {
        fs::create_dir(folder.path("toolcrib")).unwrap();
        for file in ["toolcrib.toml", "toolcrib/toolcrib.toml"] {
            fs::write(folder.path(file), "this is no configuration").unwrap();
        }
        command.env_remove("HOME").env("XDG_CONFIG_HOME", folder.path(""));
    });
}

#[test]
fn it_can_be_stopped() {
    use std::io::{BufRead, BufReader};
    let folder = sample();
    fs::create_dir(folder.path("tmp")).unwrap();
    let mut command = folder.command("demo");
    command.env("TMPDIR", folder.path("tmp")).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let kill = std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(folder.left_behind(), [""; 0]);
    assert_eq!(fs::read_dir(folder.path("tmp")).unwrap().count(), 0, "something is left behind");
}
