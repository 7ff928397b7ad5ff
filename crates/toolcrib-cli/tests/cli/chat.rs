//! `toolcrib chat` with lines from a pipe and the model that is none. What it is like at a
//! terminal is tested at one.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use crate::run::piped;
use crate::support::{Folder, Output, builtin, sample};

fn talk(folder: &Folder, args: &str, lines: &str) -> Output {
    piped(folder.command(&format!("chat --model scripted {args}")), lines.as_bytes())
}

/// What a talk prints in which nothing may go wrong.
fn said(folder: &Folder, args: &str, lines: &str) -> String {
    let output = talk(folder, args, lines);
    assert_eq!(output.code, Some(0), "{lines}: {}", output.stderr);
    output.stdout
}

#[test]
fn every_line_is_a_message_and_nothing_else_is_printed() {
    let folder = Folder::new(&[("a.txt", "first"), ("b.txt", "second")]);
    let lines = "call mcp__files__read_text_file {\"path\":\"a.txt\"}\n\n\
                 call mcp__files__read_text_file {\"path\":\"b.txt\"}";
    let output = talk(&folder, "", lines);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let (first, second) = (output.stdout.find("first"), output.stdout.find("second"));
    assert!(first.is_some() && first < second, "{}", output.stdout);
    assert!(!output.stdout.contains(['›', '\x1b']), "{}", output.stdout);
    let calls: Vec<&str> = output.stderr.lines().collect();
    assert_eq!(calls.len(), 2, "{}", output.stderr);
    assert!(calls[1].starts_with(r#"✓ mcp__files__read_text_file {"path":"b.txt"}"#));
}

#[test]
fn colours_are_there_when_asked_for_only() {
    let lines = "search read a file\n";
    let styled = said(&sample(), "--color always", lines);
    assert!(styled.contains("\x1b[36mmcp__files__read_text_file\x1b[0m"), "{styled:?}");
    let plain = said(&sample(), "--color never", lines);
    assert!(plain.contains("`mcp__files__read_text_file`") && !plain.contains('\x1b'), "{plain}");
}

#[test]
fn a_backslash_continues_a_message() {
    let folder = Folder::new(&[("a.txt", "first"), ("b.txt", "second")]);
    let lines = "call mcp__files__read_text_file {\"path\":\"a.txt\"}\\\n\
                 call mcp__files__read_text_file {\"path\":\"b.txt\"}\n/stats\n";
    let text = said(&folder, "", lines);
    // Both calls are in one message: two requests, where two messages would have taken four.
    assert!(text.contains("first") && text.contains("second"), "{text}");
    assert!(text.contains("taken     2 requests:"), "{text}");
}

#[test]
fn bytes_that_are_no_text_are_replaced() {
    let folder = sample();
    let output = piped(
        folder.command("chat --model scripted"),
        b"search \xff\xfe time\nsearch \xc3\n/stats\n",
    );
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("mcp__time__"), "{}", output.stdout);
    assert!(output.stdout.contains("taken     4 requests:"), "{}", output.stdout);
}

#[test]
fn tools_are_listed_found_loaded_and_unloaded() {
    let folder = sample();
    let text = said(&folder, "", "/tools\n/tools what time is it\n");
    assert!(text.contains("mcp:files") && text.contains("mcp:exec"), "{text}");
    assert!(text.contains("mcp__time__current_time"), "{text}");
    let without = Folder::new(&[("toolcrib.toml", "[policy]\ndeny_tools = ['exec/*']\n")]);
    let text = said(&without, "", "/tools\n/tools run a command\n");
    assert!(text.contains("mcp:files") && !text.contains("mcp__exec"), "{text}");

    let lines = "/load files/read_text_file time/current_time\n/stats\n/tools\n\
                 /unload read_text_file\n/stats\n";
    let text = said(&folder, "", lines);
    let expected = "Loaded: mcp__files__read_text_file, mcp__time__current_time\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains(": 2 loaded, ") && text.contains(": 1 loaded, "), "{text}");
    assert!(text.contains("Unloaded: mcp__files__read_text_file\n"), "{text}");

    let output = talk(&folder, "", "/load nonsense\n/unload nonsense\n");
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("there is no tool nonsense; `/tools QUERY` finds tools"));
    assert!(output.stderr.contains("none of these is loaded"), "{}", output.stderr);
}

#[test]
fn a_fork_is_left_without_a_trace() {
    let lines = "search read a file\n/fork\nsearch time\n/stats\n/back\n/stats\n";
    let text = said(&sample(), "", lines);
    let messages: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("messages  ")).collect();
    assert_eq!(messages, ["8", "4"], "{text}");
    let output = talk(&sample(), "", "/back\n");
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("this is no copy: /fork makes one"), "{}", output.stderr);
}

#[test]
fn a_new_strategy_and_a_clear_begin_a_new_conversation() {
    let lines = "search time\n/strategy\n/strategy inject\n/stats\nsearch time\n/strategy\n\
                 /clear\n/stats\n";
    let text = said(&sample(), "", lines);
    assert!(text.contains("Strategy dispatch, which a conversation keeps"), "{text}");
    assert!(text.contains("A new conversation. Strategy inject."), "{text}");
    assert!(text.contains("Strategy inject, which a conversation keeps"), "{text}");
    let messages: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("messages  ")).collect();
    assert_eq!(messages, ["0", "0"], "{text}");
    let text = said(&sample(), "--strategy inject", "/strategy\nsearch time\n/stats\n");
    assert!(text.starts_with("Strategy inject.\n"), "{text}");
    assert!(text.contains("strategy  inject"), "{text}");
    let folder = Folder::new(&[("toolcrib.toml", "strategy = 'inject'\n")]);
    assert_eq!(said(&folder, "", "/strategy\n"), "Strategy inject.\n");
}

#[test]
fn what_a_model_has_no_form_for_is_done_otherwise_and_told() {
    let output = talk(&sample(), "--strategy native", "search time\n/strategy\n");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let told = "so strategy `dispatch` is used in place of `native`\n";
    assert!(output.stderr.contains(told), "{}", output.stderr);
    assert!(output.stdout.contains("Strategy dispatch, which"), "{}", output.stdout);
}

#[test]
fn the_cost_of_a_conversation_is_kept_with_it() {
    let folder = sample();
    assert_eq!(said(&folder, "", "/cost\n"), "0 turns\n");
    let text = said(&folder, "", "search time\n/cost\n");
    let cost = text.lines().find(|line| line.starts_with("2 turns: ")).unwrap();
    assert_eq!(said(&folder, "--resume", "/cost\n").trim_end(), cost);
    let text = said(&folder, "--resume", "search git\n/cost\n");
    assert!(text.contains("\n4 turns: "), "{text}");
}

#[test]
fn a_conversation_is_compacted_when_asked() {
    let folder = sample();
    let nothing = "There is nothing yet that a summary would shorten.\n";
    assert_eq!(said(&folder, "", "/compact\n"), nothing);
    let lines = format!("{}/compact\nsearch git\n/stats\n", "search time\n".repeat(8));
    let text = said(&folder, "", &lines);
    let (_, told) = text.split_once("32 messages have become ").unwrap();
    let left: usize = told.split_once(".\n").unwrap().0.parse().unwrap();
    assert!(left < 32, "{text}");
    let messages = format!("messages  {}\n", left + 4);
    assert!(text.contains(&messages) && text.contains(" loaded, "), "{text}");
    assert!(said(&folder, "--resume", "/stats\n").contains(&messages));
}

#[test]
fn a_mistake_is_told_and_the_talk_goes_on() {
    let output =
        talk(&sample(), "", "/froth\n/strategy natural\n/model gpt-4o\n/model\n/quit\nhi\n");
    assert_eq!(output.code, Some(1));
    for expected in [
        "there is no command /froth",
        "a strategy is dispatch, inject, native or auto",
        "openai needs a key",
    ] {
        assert!(output.stderr.contains(expected), "{expected}: {}", output.stderr);
    }
    assert_eq!(output.stdout, "scripted\n");
    let help = said(&sample(), "", "/help\n");
    assert!(help.contains("/tools [QUERY]") && help.contains("/fork"), "{help}");
}

#[test]
fn another_model_goes_on_with_the_same_conversation() {
    let text = said(&sample(), "", "search time\n/fork\n/model scripted\n/stats\n/back\n");
    assert!(text.contains("From here on scripted answers.\n"), "{text}");
    assert!(text.contains("messages  4\n") && text.contains(": 5 loaded, "), "{text}");
    assert!(text.ends_with("in the copy.\n"), "{text}");
    let text = said(&sample(), "", "/model scripted\n/stats\n");
    assert!(text.contains("messages  0\n"), "{text}");
}

#[test]
fn what_needs_permission_is_left_alone_where_nobody_can_be_asked() {
    let folder = sample();
    let line = "call mcp__files__write_file {\"path\":\"new.txt\",\"content\":\"made\"}\n";
    let output = talk(&folder, "", &line.repeat(2));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(output.stderr.matches("nobody can be asked here").count(), 1, "{}", output.stderr);
    assert!(!folder.path("new.txt").exists());
    said(&folder, "--yes", line);
    assert_eq!(folder.read("new.txt"), "made");
}

#[test]
fn servers_of_the_configuration_are_used_and_ended() {
    let folder = Folder::new(&[("toolcrib.toml", &builtin("clock", "time"))]);
    let text = said(&folder, "", "/tools\ncall mcp__clock__current_time {\"timezone\":\"UTC\"}\n");
    assert!(text.contains("mcp:clock") && !text.contains("mcp:files"), "{text}");
    assert!(text.contains("answered"), "{text}");
    assert_eq!(folder.left_behind(), Vec::<String>::new());
}

#[test]
fn a_chat_is_not_for_scripts() {
    let message = sample().fails(2, "chat --model scripted --json");
    assert!(message.contains("toolcrib run PROMPT --json"), "{message}");
}

#[test]
#[cfg(unix)]
fn being_ended_from_outside_is_no_success() {
    let folder = sample();
    let mut command = folder.command("chat --model scripted");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    child.stdin.as_mut().unwrap().write_all(b"/model\n").unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "scripted\n");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    // Standard input stays open until then.
    let stdin = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(stdin);
}
