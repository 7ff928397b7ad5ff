//! Chats and runs that are kept, and gone on with.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::run::piped;
use crate::support::{Folder, Output, SESSION, SESSION_ID, builtin, sample};

fn talk(folder: &Folder, args: &str, lines: &str) -> Output {
    piped(folder.command(&format!("chat --model scripted {args}")), lines.as_bytes())
}

/// What a talk prints in which nothing may go wrong.
fn said(folder: &Folder, args: &str, lines: &str) -> String {
    let output = talk(folder, args, lines);
    assert_eq!(output.code, Some(0), "{lines}: {}", output.stderr);
    output.stdout
}

fn kept(folder: &Folder) -> Vec<Value> {
    folder.json("sessions --json")["sessions"].as_array().unwrap().clone()
}

/// A session of this folder, with these messages and calls that have begun.
fn session(messages: &Value, calls: &Value) -> String {
    json!({"toolcrib_session": 1, "id": SESSION_ID, "created_at": 0, "title": "t", "name": null,
        "labels": {"model": "scripted"}, "forked_from": null, "messages": messages,
        "ledger": null, "calls": calls})
    .to_string()
}

fn asked(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

#[test]
fn chats_are_kept_unless_told_otherwise_and_runs_when_told() {
    let folder = sample();
    said(&folder, "", "search time\n");
    let sessions = kept(&folder);
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let (row, here) = (&sessions[0], folder.path("").canonicalize().unwrap());
    assert_eq!((&row["messages"], &row["title"]), (&json!(4), &json!("search time")));
    assert_eq!(row["labels"]["model"], "scripted");
    assert_eq!(row["labels"]["folder"], here.to_str().unwrap());
    assert_eq!(row["in_use_by"], json!(null));

    said(&folder, "", "/stats\n");
    said(&folder, "--no-keep", "search time\n");
    folder.text("run search~time --model scripted");
    assert_eq!(kept(&folder).len(), 1, "nothing was said, or it was not to be kept");
    let folder = Folder::new(&[("toolcrib.toml", "[agent]\nkeep = false\n")]);
    said(&folder, "", "search time\n");
    assert!(!folder.path("home/.local/state/toolcrib/sessions.db").exists());
    let value = folder.json("run search~time --model scripted --keep --json");
    assert_eq!(value["session"], kept(&folder)[0]["id"], "{value}");
}

#[test]
fn a_chat_goes_on_with_what_was_said_and_loaded() {
    let folder = sample();
    let first = said(&folder, "", "search time\n/stats\n");
    let output = talk(&folder, "--resume", "/stats\nsearch time\n/stats\n");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let line = |text: &str, word: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(word));
        lines.next().map(str::to_owned).unwrap_or_default()
    };
    for word in ["session ", "tools ", "messages ", "strategy "] {
        assert_eq!(line(&first, word), line(&output.stdout, word), "{word}");
        assert!(!line(&first, word).is_empty(), "{word}: {first}");
    }
    assert!(output.stdout.contains("messages  8\n"), "{}", output.stdout);
    let id = kept(&folder)[0]["id"].as_str().unwrap().to_owned();
    let note = format!("Going on with `search time` ({id}): 4 messages, the last just now.\n");
    assert!(output.stderr.contains(&note), "{}", output.stderr);
    assert_eq!(kept(&folder)[0]["messages"], 8);
    assert!(!talk(&folder, "--resume --quiet", "").stderr.contains("Going on"));
}

#[test]
fn without_an_id_it_is_the_newest_of_this_folder() {
    let folder = Folder::new(&[("talk.json", SESSION)]);
    let message = folder.fails(2, "chat --model scripted --resume");
    assert!(message.contains("no session of this folder is kept"), "{message}");
    folder.text("sessions import talk.json");
    let message = folder.fails(2, "chat --model scripted --resume");
    assert!(message.contains("no session of this folder is kept"), "{message}");
    said(&folder, "", "search a file\n");
    said(&folder, "", "search time\n");
    folder.text("sessions rename 1m3250 newer");
    let output = talk(&folder, "--resume", "");
    assert!(output.stderr.contains("Going on with `search time`"), "{}", output.stderr);
    let output = talk(&folder, "--resume 1m3250", "");
    assert!(output.stderr.contains("Going on with `newer` (1m3250v3v10z)"), "{}", output.stderr);
    let message = folder.fails(2, "chat --model scripted --resume zzz");
    assert!(message.contains("there is no session `zzz`"), "{message}");
}

#[test]
fn a_run_goes_on_with_a_session() {
    let folder = sample();
    let output = folder.run("run search~time --model scripted --keep");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let id = kept(&folder)[0]["id"].as_str().unwrap().to_owned();
    assert!(output.stderr.contains(&format!("Kept as {id}; ")), "{}", output.stderr);
    let value = folder.json(&format!("run search~git --model scripted --resume {id} --json"));
    assert_eq!(value["session"], id.as_str());
    assert_eq!(kept(&folder)[0]["messages"], 8);
    let copy = folder.json(&format!("run search~sql --model scripted --resume {id} --fork --json"));
    assert_ne!(copy["session"], id.as_str());
    let sessions = kept(&folder);
    assert_eq!((&sessions[0]["messages"], &sessions[1]["messages"]), (&json!(12), &json!(8)));
    assert_eq!(sessions[0]["forked_from"], id.as_str());
    let output = piped(folder.command(&format!("run --model scripted --resume {id}")), b"");
    assert_eq!(output.code, Some(2), "{}", output.stderr);
    assert!(output.stderr.contains("is answered; say what to do"), "{}", output.stderr);
}

#[test]
fn what_was_not_answered_is_answered_first() {
    let text = session(&json!([asked("search time")]), &json!([]));
    for command in ["chat", "run"] {
        let folder = Folder::new(&[("talk.json", &text)]);
        folder.text("sessions import talk.json");
        let args = format!("{command} --model scripted --resume 1m3250");
        let output = piped(folder.command(&args), b"");
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(output.stdout.contains("`tool_search`** found"), "{}", output.stdout);
        assert_eq!(kept(&folder)[0]["messages"], 4);
    }
}

#[test]
fn a_call_that_may_have_run_is_not_made_again() {
    let call = |id: &str, name: &str| {
        let arguments = json!({"tool_name": "mcp__files__write_file",
            "arguments": {"path": name, "content": "x"}});
        json!({"type": "call", "id": id, "name": "call_tool", "arguments": arguments.to_string()})
    };
    let messages = json!([asked("call both"), {"role": "assistant",
        "content": [call("call_1", "begun.txt"), call("call_2", "left.txt")]}]);
    let calls = json!([{"at": 2, "call_id": "call_1", "tool": "files/write_file",
        "idempotent": false, "result": null}]);
    let folder = Folder::new(&[("talk.json", &session(&messages, &calls))]);
    folder.text("sessions import talk.json");
    let output = talk(&folder, "--resume 1m3250 --yes", "");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let expected = "warning: a call of `mcp__files__write_file` was under way and may have taken \
                    effect: it is not made again, and the model is told\n";
    assert!(output.stderr.contains(expected), "{}", output.stderr);
    // This is a copy, so what was left may have been made in the original.
    assert_eq!(output.stderr.matches(expected).count(), 2, "{}", output.stderr);
    assert!(!folder.path("begun.txt").exists() && !folder.path("left.txt").exists());
    let shown = folder.text("sessions show 1m3250");
    assert!(shown.contains("It may or may not have taken effect"), "{shown}");
}

#[test]
fn tools_that_have_gone_are_told_of() {
    let folder = Folder::new(&[("toolcrib.toml", &builtin("clock", "time"))]);
    said(&folder, "", "call mcp__clock__current_time {\"timezone\":\"UTC\"}\nsearch time\n");
    fs::write(folder.path("toolcrib.toml"), builtin("other", "data")).unwrap();
    let output = talk(&folder, "--resume", "/stats\n");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let gone = "warning: `mcp__clock__current_time` is no longer loaded: ";
    assert!(output.stderr.contains(gone), "{}", output.stderr);
}

#[test]
fn a_session_is_had_by_one_program_at_a_time() {
    let folder = sample();
    let mut command = folder.command("chat --model scripted --quiet");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    to.write_all(b"search time\n/stats\n").unwrap();
    let mut lines = BufReader::new(from).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "messages  4"));
    let id = kept(&folder)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(kept(&folder)[0]["in_use_by"], child.id());
    assert!(folder.text("sessions").contains("  in use  "));

    let refusal = format!("session `{id}` has been in use by process {} for ", child.id());
    let message = folder.fails(1, "chat --model scripted --resume");
    let so = format!("go on with the copy: `toolcrib chat --resume {id} --fork`\n");
    assert!(message.contains(&refusal) && message.ends_with(&so), "{message}");
    let message = folder.fails(1, &format!("sessions delete {id} --yes"));
    assert!(message.contains(&refusal), "{message}");
    let output = talk(&folder, &format!("--resume {id} --fork"), "search git\n");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains(&format!(", a copy of {id}): 4 messages")), "{}", output.stderr);

    drop(to);
    assert!(child.wait().unwrap().success());
    let sessions = kept(&folder);
    assert_eq!((&sessions[0]["messages"], &sessions[1]["messages"]), (&json!(8), &json!(4)));
    assert_eq!(sessions[1]["in_use_by"], json!(null));
}

#[test]
fn a_conversation_is_renamed_and_copied_while_it_goes_on() {
    let folder = sample();
    let lines = "search time\n/rename clocks and\tsuch\n/fork\nsearch git\n/back\nsearch sql\n";
    let text = said(&folder, "", lines);
    assert!(text.contains("This is called `clocks and such` now.\n"), "{text}");
    let sessions = kept(&folder);
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    let (parent, copy) = (&sessions[0], &sessions[1]);
    assert_eq!((&parent["title"], &parent["messages"]), (&json!("clocks and such"), &json!(8)));
    assert_eq!(copy["messages"], 8);
    let back = format!("in the copy, which is kept as {}.\n", copy["id"].as_str().unwrap());
    assert!(text.contains(&back), "{text}");
    let shown =
        |row: &Value| folder.text(&format!("sessions show {}", row["id"].as_str().unwrap()));
    assert!(shown(copy).contains("› search git") && !shown(copy).contains("› search sql"));
    assert!(shown(parent).contains("› search sql") && !shown(parent).contains("› search git"));

    let output = talk(&folder, "", "/rename early\n");
    assert_eq!(output.code, Some(1));
    assert!(output.stderr.contains("nothing of this conversation is kept"), "{}", output.stderr);
}

#[test]
fn a_chat_that_can_not_be_kept_is_had_anyway() {
    let folder = Folder::new(&[("home/.local/state/toolcrib", "a file where a folder should be")]);
    let output = talk(&folder, "", "search time\n");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stderr.contains("warning: nothing of this is kept: "), "{}", output.stderr);
    assert!(output.stdout.contains("`tool_search`** found"), "{}", output.stdout);
    let message = folder.fails(1, "run search~time --model scripted --keep");
    assert!(message.contains("toolcrib"), "{message}");
}
