//! Processes that stay.

use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};
use toolcrib_wire::Era;

use crate::raw::{BOTH, LONG, Raw};

/// Processes of a group that have not ended, its leader not counted.
fn children(raw: &Raw) -> usize {
    let group = raw.pid().as_raw_nonzero().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    stats
        .filter(|stat| {
            // After the name: state, parent, group.
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let state = fields.next();
            fields.nth(1) == Some(&*group) && state != Some("Z") && !stat.starts_with(&group)
        })
        .count()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn children_are_started_and_end_with_the_group() {
    let mut raw = Raw::greeted(Era::Sessions, &["--children", "12"]);
    raw.echoes();
    assert_eq!(children(&raw), 12);
    // They outlive the server and hold its output open.
    drop(raw.stdin.take());
    raw.ended();
    assert_eq!(children(&raw), 12);
    kill_process_group(raw.pid(), Signal::TERM).unwrap();
    until("the children end", || children(&raw) == 0);
    assert_eq!(raw.rest(), b"");
}

#[test]
fn every_call_starts_more_children() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--children-at-call", "3"]);
        for count in 1..=3 {
            raw.echoes();
            assert_eq!(children(&raw), 3 * count);
        }
    }
    let mut raw = Raw::greeted(Era::Sessions, &["--children", "1", "--children-at-call", "2"]);
    raw.echoes();
    assert_eq!(children(&raw), 3);
}

#[test]
fn it_stays_when_its_input_ends() {
    for era in BOTH {
        let mut raw = Raw::greeted(era, &["--ignore-eof"]);
        drop(raw.stdin.take());
        assert!(raw.is_running());
        // And goes when it is told to.
        raw.signal(Signal::TERM);
        raw.ended();
    }
}

#[test]
fn it_stays_at_sigterm() {
    let mut raw = Raw::greeted(Era::Sessions, &["--ignore-sigterm", "--times", "2"]);
    for _ in 0..2 {
        raw.signal(Signal::TERM);
        assert!(raw.is_running());
        raw.echoes();
    }
    raw.signal(Signal::TERM);
    raw.ended();
    let mut raw = Raw::greeted(Era::Sessions, &["--ignore-sigterm"]);
    drop(raw.stdin.take());
    assert_eq!(raw.ended().code(), Some(0));
}

#[test]
fn it_hangs_at_shutdown_until_it_is_killed_or_the_fault_ends() {
    let mut raw = Raw::greeted(Era::Sessions, &["--hang-at-shutdown"]);
    drop(raw.stdin.take());
    assert!(raw.is_running());
    raw.signal(Signal::TERM);
    assert!(raw.is_running());
    raw.signal(Signal::KILL);
    raw.ended();

    let file = tempfile::NamedTempFile::new().unwrap();
    let until = file.path().to_str().unwrap();
    let mut raw = Raw::greeted(Era::Sessions, &["--hang-at-shutdown", "--until", until]);
    drop(raw.stdin.take());
    assert!(raw.is_running());
    drop(file);
    assert_eq!(raw.ended().code(), Some(0));
}

#[test]
fn what_does_not_read_can_be_ended() {
    let mut raw = Raw::greeted(Era::Sessions, &["--stop-reading"]);
    raw.echoes();
    drop(raw.stdin.take());
    assert!(raw.is_running());
    raw.signal(Signal::TERM);
    raw.ended();
}
