//! `toolcrib sessions`, on a session that was made elsewhere.

use std::fs;

use serde_json::{Value, json};

use crate::run::piped;
use crate::support::{Folder, SESSION, SESSION_ID, keys, sample};

/// A folder with one session kept.
fn kept() -> Folder {
    let folder = Folder::new(&[("talk.json", SESSION)]);
    let text = folder.text("sessions import talk.json");
    assert_eq!(text, format!("Imported as {SESSION_ID}, with 4 messages.\n"));
    folder
}

fn ids(folder: &Folder, args: &str) -> Vec<String> {
    let list = folder.json(&format!("sessions {args} --json"));
    let rows = list["sessions"].as_array().unwrap().iter();
    rows.map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn where_nothing_is_kept_nothing_is_made() {
    let bare = sample();
    assert_eq!(bare.text("sessions"), "No session is kept yet; `toolcrib chat` begins one.\n");
    assert_eq!(bare.json("sessions --json"), json!({"sessions": []}));
    let message = bare.fails(2, "sessions show 1m3250");
    assert!(message.contains("there is no session `1m3250`; `toolcrib sessions` lists them"));
    assert!(!bare.path("home/.local").exists());
}

#[test]
fn sessions_are_listed_and_found_by_what_was_said() {
    let folder = kept();
    let text = folder.text("sessions");
    let (titles, row) = text.split_once('\n').unwrap();
    let titles: Vec<&str> = titles.split_whitespace().collect();
    assert_eq!(titles, ["ID", "CHANGED", "MESSAGES", "TITLE", "MODEL", "FOLDER"]);
    assert_eq!(
        row,
        format!("{SESSION_ID}  just now         4  Is it raining in Oslo?  scripted  /somewhere\n")
    );
    let list = folder.json("sessions --json");
    let expected = ["id", "title", "messages", "labels", "created_at", "changed_at"];
    let expected: Vec<&str> = expected.into_iter().chain(["forked_from", "in_use_by"]).collect();
    assert_eq!(keys(&list["sessions"][0]), expected);

    for words in ["raining", "UMBRELLA", "1m325"] {
        assert_eq!(ids(&folder, words), [SESSION_ID], "{words}");
    }
    assert_eq!(folder.text("sessions snow"), "No session has `snow` in it.\n");
    let copy = folder.json("sessions fork 1m3250v3v10z --json")["id"].clone();
    assert_eq!(ids(&folder, "--limit 1"), [copy.as_str().unwrap()], "the newest comes first");
    assert!(folder.text("sessions --limit 1").ends_with("There are more; --limit shows them.\n"));
    let message = folder.fails(2, "sessions snow delete 1m3250v3v10z --yes");
    assert!(message.contains("words and --limit are for the list"), "{message}");
}

#[test]
fn a_session_is_shown_as_people_read_it() {
    let folder = kept();
    let text = folder.text("sessions show 1m3250");
    assert_eq!(
        text,
        format!(
            "Is it raining in Oslo?\n{SESSION_ID}, just now, 4 messages, scripted, /somewhere\n\n\
             › Is it raining in Oslo?\n\
             ✓ weather__get_forecast {{\"place\":\"Oslo\"}}\n\
             It is **raining**; take an umbrella.\n"
        )
    );
    let styled = folder.text("sessions show 1m3250 --color always");
    assert!(styled.contains("\x1b[1mraining\x1b[0m"), "{styled:?}");
    let shown = folder.json("sessions show 1m3250 --json");
    assert_eq!(shown["session"]["id"], SESSION_ID);
    let exported: Value = serde_json::from_str(SESSION).unwrap();
    assert_eq!(shown["messages"], exported["messages"]);
    assert_eq!(shown["calls"], json!([]));
}

#[test]
fn what_comes_from_elsewhere_can_not_move_the_cursor() {
    let nasty = SESSION.replace("Oslo", r"Os\u001b[2Jlo").replace("umbrella", r"\u0007\u009b");
    let folder = Folder::new(&[("talk.json", &nasty)]);
    folder.text("sessions import talk.json");
    for args in ["sessions", "sessions show 1m3250"] {
        let text = folder.text(args);
        assert!(!text.contains(['\x1b', '\x07', '\u{9b}']), "{text:?}");
    }
}

#[test]
fn a_session_is_renamed_and_gets_its_first_title_back() {
    let folder = kept();
    let text = folder.text("sessions rename 1m3250 the~release");
    assert_eq!(text, format!("{SESSION_ID} is called `the release` now.\n"));
    assert_eq!(ids(&folder, "release"), [SESSION_ID]);
    let mut command = folder.command("sessions rename 1m3250 --json");
    command.arg("");
    let output = Folder::output(command);
    let row: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(row["title"], "Is it raining in Oslo?");
}

#[test]
fn a_copy_has_as_much_as_was_asked_for() {
    let folder = kept();
    let whole = folder.json("sessions fork 1m3250v3v10z --json");
    let half = folder.json("sessions fork 1m3250v3v10z --at 2 --json");
    assert_eq!((&whole["messages"], &half["messages"]), (&json!(4), &json!(2)));
    assert_eq!(whole["forked_from"], SESSION_ID);
    let output = folder.run(&format!("sessions show {}", half["id"].as_str().unwrap()));
    assert!(output.stdout.contains(": it has not begun\n"), "{}", output.stdout);
    let output = folder.run("sessions fork 1m3250v3v10z");
    let id = output.stdout.strip_suffix(" is a copy, with 4 messages.\n").unwrap();
    assert!(output.stderr.contains(&format!("`toolcrib chat --resume {id}`")), "{}", output.stderr);
    let message = folder.fails(2, "sessions show 1");
    assert!(message.contains("`1` may be ") && message.contains("give more"), "{message}");
}

#[test]
fn an_export_is_the_whole_session_and_for_its_owner() {
    let folder = kept();
    let exported = folder.text("sessions export 1m3250");
    assert_eq!(exported, format!("{SESSION}\n"));
    assert_eq!(folder.text("sessions export 1m3250 copy.json"), "Wrote copy.json.\n");
    assert_eq!(folder.read("copy.json"), exported);
    #[cfg(unix)]
    for name in ["copy.json", "home/.local/state/toolcrib/sessions.db"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(folder.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    let message = folder.fails(2, "sessions export 1m3250 copy.json");
    assert!(message.contains("copy.json is there already"), "{message}");

    // Its id is taken here, and free elsewhere.
    let again = folder.json("sessions import copy.json --json");
    assert_ne!(again["id"], SESSION_ID);
    let elsewhere = sample();
    let output = piped(elsewhere.command("sessions import - --json"), exported.as_bytes());
    let row: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(row["id"], SESSION_ID);
    assert_eq!(elsewhere.text("sessions export 1m3250"), exported);
}

#[test]
fn what_is_no_session_is_refused() {
    let newer = SESSION.replace("\"toolcrib_session\":1", "\"toolcrib_session\":9");
    let files =
        [("no.json", "{}"), ("cut.json", &SESSION[..300]), ("newer.json", &newer), ("t.txt", "hi")];
    let folder = Folder::new(&files);
    for (file, reason) in [
        ("no.json", "this is no exported session"),
        ("cut.json", "this is no exported session"),
        ("t.txt", "this is no exported session"),
        ("newer.json", "exported by a newer version"),
    ] {
        let message = folder.fails(1, &format!("sessions import {file}"));
        assert!(message.contains(reason), "{message}");
    }
    let message = folder.fails(2, "sessions import missing.json");
    assert!(message.contains("can't read missing.json"), "{message}");
    assert_eq!(folder.json("sessions --json"), json!({"sessions": []}));
}

#[test]
fn nothing_is_deleted_unasked() {
    let folder = kept();
    let other = folder.json("sessions fork 1m3250v3v10z --json")["id"].as_str().unwrap().to_owned();
    let message = folder.fails(2, "sessions delete 1m3250");
    assert!(message.contains("nobody can be asked here"), "{message}");
    let message = folder.fails(2, "sessions delete 1m3250 nothing --yes");
    assert!(message.contains("there is no session `nothing`"), "{message}");
    assert_eq!(ids(&folder, "").len(), 2, "one that is wrong keeps the others");
    let text = folder.text(&format!("sessions delete 1m3250 {SESSION_ID} --yes"));
    assert_eq!(text, "Deleted 1 session.\n");
    let gone = folder.json(&format!("sessions delete {other} --yes --json"));
    assert_eq!(gone, json!({"deleted": [other]}));
    assert_eq!(ids(&folder, ""), [""; 0]);
}

#[test]
fn a_file_that_makes_no_sense_is_left_alone() {
    let folder = Folder::new(&[("home/.local/state/toolcrib/sessions.db", "no database at all")]);
    let message = folder.fails(1, "sessions");
    assert!(message.contains("sessions.db"), "{message}");
    assert_eq!(folder.read("home/.local/state/toolcrib/sessions.db"), "no database at all");
}
