//! A fault ends, and what comes after is well.

use serde_json::json;
use toolcrib_wire::Era;

use crate::raw::{BOTH, Raw, SHORT};

fn is_error(raw: &mut Raw) -> bool {
    raw.call("echo", json!({"text": "hello"})).get("error").is_some()
}

#[test]
fn only_so_many_times() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--error-answers", "--times", "2"]);
        let errors: Vec<bool> = (0..4).map(|_| is_error(&mut raw)).collect();
        assert_eq!(errors, [true, true, false, false]);
    }
}

#[test]
fn not_before_so_many_calls() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--error-answers", "--after", "2", "--times", "1"]);
        let errors: Vec<bool> = (0..4).map(|_| is_error(&mut raw)).collect();
        assert_eq!(errors, [false, false, true, false]);
    }
}

#[test]
fn only_as_long_as_a_file_exists() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("on");
    let until = file.to_str().unwrap();
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--error-answers", "--until", until]);
        assert!(!is_error(&mut raw));
        std::fs::write(&file, "").unwrap();
        assert!(is_error(&mut raw) && is_error(&mut raw));
        std::fs::remove_file(&file).unwrap();
        assert!(!is_error(&mut raw));
    }
}

#[test]
fn whoever_does_not_read_reads_on_when_the_fault_ends() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let until = file.path().to_str().unwrap().to_owned();
    let mut raw = Raw::greeted(Era::Sessions, &["--stop-reading", "--until", &until]);
    raw.echoes();
    let id = raw.ask_call("counter", json!({}));
    assert_eq!(raw.line_within(SHORT), None);
    drop(file);
    assert!(raw.answer(id)["result"].is_object());
}

#[test]
fn chance_is_the_same_for_the_same_seed() {
    let errors = |seed| {
        let args = ["--error-answers", "--chance", "30", "--seed", seed];
        let mut raw = Raw::greeted(Era::Sessions, &args);
        (0..200).map(|_| is_error(&mut raw)).collect::<Vec<bool>>()
    };
    let first = errors("1");
    let count = first.iter().filter(|it| **it).count();
    assert!((30..90).contains(&count), "{count}");
    assert_eq!(errors("1"), first);
    assert_ne!(errors("2"), first);
}

#[test]
fn a_record_counts_across_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("record");
    let record = file.to_str().unwrap();
    let args = ["--exit-at-start", "--times", "2", "--record", record];
    for _ in 0..2 {
        assert_eq!(Raw::start(Era::Sessions, &args).ended().code(), Some(1));
    }
    let mut raw = Raw::greeted(Era::Sessions, &args);
    raw.echoes();
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(written, "exit-at-start\nexit-at-start\ncall\n");
}

#[test]
fn several_faults_at_once_count_each_for_itself() {
    let args = ["--unknown-progress", "1", "--wrong-ids", "--times", "1"];
    let mut raw = Raw::greeted(Era::Sessions, &args);
    let id = raw.ask_call("echo", json!({"text": "hello"}));
    assert_eq!(raw.message()["method"], "notifications/progress");
    assert_ne!(raw.message()["id"], id);
    raw.echoes();
}

#[test]
fn what_is_said_is_wrong_and_how_it_is_said_as_well() {
    let mut raw = Raw::greeted(Era::Sessions, &["--drip", "1", "--wrong-ids"]);
    let id = raw.ask_call("echo", json!({"text": "hello"}));
    assert_ne!(raw.message()["id"], id);
}
