//! Other processes: killed, out of room, or writing at the same time.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use toolcrib_runtime::ManifestStore;
use toolcrib_store::SqliteStore;

use crate::support::{integrity, manifest, text};

const PATH: &str = "TOOLCRIB_STORE_TEST_PATH";
const NAME: &str = "TOOLCRIB_STORE_TEST_NAME";
const COUNT: &str = "TOOLCRIB_STORE_TEST_COUNT";

/// What a child keeps as its `n`th.
fn nth(name: &str, n: usize) -> (String, toolcrib_runtime::Manifest) {
    (format!("{name}-{n}"), manifest(name, n % 40))
}

/// What the processes below do: it keeps manifests and says when each is safe. In a process that
/// was not told where, there is nothing to do.
#[test]
fn child() {
    let Some(path) = env::var_os(PATH) else { return };
    let name = env::var(NAME).unwrap();
    let count = env::var(COUNT).unwrap().parse().unwrap();
    let store = SqliteStore::open(path).unwrap();
    for n in 0..count {
        let (key, manifest) = nth(&name, n);
        store.put(&key, manifest.clone());
        store.put("shared", manifest);
        let line = match store.flush() {
            Ok(()) => format!("\nsafe {n}"),
            Err(error) => format!("\nfailed {error}"),
        };
        writeln!(io::stdout(), "{line}").unwrap();
    }
}

fn spawn(mut command: Command, path: &Path, name: &str, count: usize) -> Child {
    command
        .args(["--exact", "crash::child", "--nocapture"])
        .env(PATH, path)
        .env(NAME, name)
        .env(COUNT, count.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn this() -> Command {
    Command::new(env::current_exe().unwrap())
}

/// The rest of what a child says.
fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok)
}

/// How many manifests a child has said are safe.
fn safe(lines: impl Iterator<Item = String>) -> usize {
    lines.filter(|line| line.starts_with("safe ")).count()
}

fn assert_kept(path: &Path, name: &str, count: usize) {
    let store = SqliteStore::open(path).unwrap();
    for n in 0..count {
        let (key, manifest) = nth(name, n);
        let found = store.get(&key).unwrap_or_else(|| panic!("{key} of {count} is lost"));
        assert_eq!(text(&found), text(&manifest));
    }
}

#[test]
fn nothing_that_was_safe_is_lost_when_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    for (round, enough) in [1, 20, 150].into_iter().enumerate() {
        let name = format!("round{round}");
        let mut child = spawn(this(), &path, &name, usize::MAX);
        let mut lines = lines(&mut child);
        let mut kept = safe(lines.by_ref().take_while(|line| *line != format!("safe {enough}")));
        // It is in the middle of the next one.
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(!status.success(), "it was killed, it didn't end: {status}");
        kept += 1 + safe(lines);
        assert!(kept > enough, "{kept} of {enough}");

        assert_kept(&path, &name, kept);
        assert_eq!(integrity(&path), "ok");
    }
}

#[test]
fn two_processes_may_write_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let mut children = ["one", "two"].map(|name| (name, spawn(this(), &path, name, 150)));
    let store = SqliteStore::open(&path).unwrap();
    while children.iter_mut().any(|(_, child)| child.try_wait().unwrap().is_none()) {
        // A third one reads meanwhile, and finds the last of either whole.
        if let Some(shared) = store.get("shared") {
            assert!(["one", "two"].contains(&shared.server.as_str()));
        }
    }
    for (name, child) in &mut children {
        assert_eq!(safe(lines(child)), 150);
        assert!(child.wait().unwrap().success());
        assert_kept(&path, name, 150);
    }
    assert_eq!(store.manifests().unwrap().len(), 301);
    drop(store);
    assert_eq!(integrity(&path), "ok");
}

#[cfg(unix)]
#[test]
fn a_process_without_room_goes_on_and_what_was_safe_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    // Files may not grow beyond 256 blocks of 512 or 1024 bytes; writes fail instead of killing.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f 256; exec "$0" "$@""#]);
    shell.arg(env::current_exe().unwrap());
    let mut child = spawn(shell, &path, "cramped", 400);
    let lines: Vec<String> = lines(&mut child).collect();
    assert!(child.wait().unwrap().success(), "{lines:#?}");
    let failed = lines.iter().filter(|line| line.starts_with("failed ")).count();
    assert!(failed > 0, "there was room for everything");

    // What failed may be anywhere, so each is looked up by its own number.
    let store = SqliteStore::open(&path).unwrap();
    let mut kept = 0;
    for line in lines.iter().filter_map(|line| line.strip_prefix("safe ")) {
        let (key, manifest) = nth("cramped", line.parse().unwrap());
        assert_eq!(text(&store.get(&key).unwrap()), text(&manifest));
        kept += 1;
    }
    assert!(kept > 0);
    drop(store);
    assert_eq!(integrity(&path), "ok");
}
