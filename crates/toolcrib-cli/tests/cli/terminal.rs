//! What holds for every command: colours, pipes, help, mistakes.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{Folder, sample};

#[test]
fn colours_are_there_when_asked_for_only() {
    let folder = sample();
    assert!(folder.text("tools --color always").contains('\x1b'));
    assert!(!folder.text("tools --color never").contains('\x1b'));
    assert!(!folder.text("tools").contains('\x1b'));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    // More than a pipe holds, so the rest meets a closed one.
    let list = format!(r#"[{{"name": "long", "description": "{}"}}]"#, "word ".repeat(100_000));
    let folder = Folder::new(&[("long.json", &list)]);
    for args in ["prompt --tools long.json", "prompt --tools long.json --json"] {
        let mut command = folder.command(args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args}");
    }
}

#[test]
fn a_wrong_word_is_answered_with_the_right_ones() {
    let message = sample().fails(2, "tools --preset crab");
    assert!(message.contains("crib") && message.contains("crab"), "{message}");
    assert!(sample().fails(2, "serch x").contains("search"));
}

#[test]
fn every_command_explains_itself_with_examples() {
    for command in [
        "demo",
        "serve",
        "chat",
        "run",
        "builtin",
        "sessions",
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
        "config",
        "config show",
        "config check",
        "config schema",
        "completions",
    ] {
        let help = sample().text(&format!("{command} --help"));
        assert!(help.contains("Example"), "{command}: {help}");
    }
    assert!(sample().text("completions bash").contains("toolcrib"));
    assert!(sample().text("--version").starts_with("toolcrib "));
}
