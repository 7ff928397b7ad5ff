//! Other processes: killed while they write, out of room, or at work on the same session.

use std::collections::hash_map::RandomState;
use std::env;
use std::hash::BuildHasher;
use std::io::{self, BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use toolcrib_runtime::{Access, Extent, JournalChange, SessionError, SessionStore};
use toolcrib_store::SqliteStore;

use super::{create, mark, read, user, write};
use crate::support::integrity;

const PATH: &str = "TOOLCRIB_SESSION_TEST_PATH";
const ID: &str = "TOOLCRIB_SESSION_TEST_ID";

/// The message at a place; some are larger than a page.
fn message(seq: u64) -> String {
    user(&format!("{seq} {}", "words ".repeat((seq as usize * 37) % 1500)))
}

fn call(seq: u64) -> String {
    format!("call-{seq}")
}

fn result(seq: u64) -> String {
    format!(r#"{{"of":{seq}}}"#)
}

/// What the processes below do: one goes on with a session for as long as it can, and says of
/// each change when it is safe. In a process that was not told where, there is nothing to do.
#[tokio::test]
async fn child() {
    let Some(path) = env::var_os(PATH) else { return };
    let store = SqliteStore::open(path).unwrap();
    let (opened, journal) = write(&store, &env::var(ID).unwrap()).await;
    say("open");
    let count = opened.meta.messages;
    for seq in count..count + 10_000 {
        let changes = async {
            journal.began(mark(&call(seq))).await?;
            say(&format!("began {seq}"));
            journal.finished(call(seq), result(seq)).await?;
            say(&format!("finished {seq}"));
            let ledger = JournalChange::Ledger { snapshot: seq.to_string() };
            let message = JournalChange::Append { seq, message: message(seq) };
            journal.write(vec![ledger, message]).await?;
            say(&format!("message {seq}"));
            Ok::<(), toolcrib_runtime::JournalError>(())
        };
        if let Err(error) = changes.await {
            return say(&format!("failed {error}"));
        }
    }
}

/// The harness may be in the middle of a line.
fn say(line: &str) {
    io::stdout().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: Said,
}

/// What a child has said is safe.
#[derive(Debug, Default)]
struct Said {
    is_open: bool,
    changes: usize,
    messages: u64,
    began: Option<u64>,
    finished: Option<u64>,
    failure: Option<String>,
}

impl Other {
    fn start(mut command: Command, path: &Path, id: &str) -> Self {
        let mut process = command
            .args(["--exact", "sessions::processes::child", "--nocapture"])
            .env(PATH, path)
            .env(ID, id)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines, said: Said::default() }
    }

    /// Listens until it has told of so many changes, or has ended.
    fn listen(&mut self, changes: usize) {
        while self.said.changes < changes || !self.said.is_open {
            let Some(Ok(line)) = self.lines.next() else { return };
            let said = &mut self.said;
            let (what, seq) = line.split_once(' ').unwrap_or((&line, ""));
            let seq = seq.parse::<u64>();
            match (what, seq) {
                ("open", _) => said.is_open = true,
                ("failed", _) => said.failure = Some(line),
                ("began", Ok(seq)) => said.began = Some(seq),
                ("finished", Ok(seq)) => said.finished = Some(seq),
                ("message", Ok(seq)) => said.messages = seq + 1,
                _ => continue,
            }
            said.changes += 1;
        }
    }

    /// What it said before it was killed.
    fn kill(mut self) -> Said {
        self.process.kill().unwrap();
        let status = self.process.wait().unwrap();
        assert!(!status.success(), "it was killed, it didn't end: {status}");
        self.listen(usize::MAX);
        self.said
    }
}

fn this() -> Command {
    Command::new(env::current_exe().unwrap())
}

/// Everything that was safe is there, and nothing but what came next besides.
async fn assert_kept(path: &Path, id: &str, said: &Said) {
    let store = SqliteStore::open(path).unwrap();
    let opened = read(&store, id).await;
    let kept = opened.meta.messages;
    assert!(kept == said.messages || kept == said.messages + 1, "{kept} of {said:?}");
    for (seq, found) in opened.messages.iter().enumerate() {
        assert_eq!(*found, message(seq as u64), "message {seq}");
    }
    // The ledger was written together with the last message.
    assert_eq!(opened.ledger, kept.checked_sub(1).map(|last| last.to_string()));
    let is_next = |seq: Option<u64>| seq == Some(kept);
    match opened.calls.as_slice() {
        [] => assert!(!is_next(said.began), "a call is forgotten: {said:?}"),
        [call] => {
            assert_eq!(call.mark, mark(&self::call(kept)));
            if let Some(found) = &call.result {
                assert_eq!(*found, result(kept));
            } else {
                assert!(!is_next(said.finished), "a result is lost: {said:?}");
            }
        }
        more => panic!("{more:?}"),
    }
}

#[tokio::test]
async fn nothing_that_was_safe_is_lost_when_a_process_is_killed_at_any_point() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let id = create(&SqliteStore::open(&path).unwrap()).await.id().to_owned();
    let (mut messages, mut changes) = (0, 0);
    for round in 0..25 {
        let draw = RandomState::new().hash_one(round);
        let mut other = Other::start(this(), &path, &id);
        // Now and then before it has opened anything.
        if round % 8 != 7 {
            other.listen((draw % 60) as usize);
        }
        thread::sleep(Duration::from_micros(draw / 60 % 3000));
        let mut said = other.kill();
        changes += said.changes;
        if said.messages == 0 {
            // It did not get as far as a message.
            said.messages = messages;
        }
        assert_kept(&path, &id, &said).await;
        messages = read(&SqliteStore::open(&path).unwrap(), &id).await.meta.messages;
    }
    assert!(messages > 25 && changes > 100, "{messages} messages, {changes} changes");
    assert_eq!(integrity(&path), "ok");
}

#[tokio::test]
async fn a_session_in_another_process_can_be_read_and_copied_and_taken_over_when_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let id = create(&store).await.id().to_owned();
    store.flush().unwrap();
    let mut other = Other::start(this(), &path, &id);
    other.listen(10);

    let error = store.open(&id, Access::Write).await.unwrap_err();
    let pid = other.process.id();
    assert!(matches!(&error, SessionError::InUse { pid: by, .. } if *by == pid), "{error:?}");
    assert!(matches!(store.delete(&id).await, Err(SessionError::InUse { .. })));
    assert_eq!(store.list("", 9).await.unwrap()[0].in_use_by, Some(pid));
    for _ in 0..20 {
        // Of one moment, while the other goes on.
        let opened = read(&store, &id).await;
        let kept = opened.meta.messages;
        assert!(kept >= 3 && opened.messages.len() as u64 == kept);
        assert_eq!(opened.ledger, Some((kept - 1).to_string()));
    }
    let copy = store.fork(&id, Extent::Whole).await.unwrap();
    let (copied, journal) = write(&store, &copy).await;
    let length = copied.meta.messages;
    journal.append(length, user("on my own")).await.unwrap();
    assert_eq!(copied.messages, (0..length).map(message).collect::<Vec<String>>());

    let said = other.kill();
    assert_kept(&path, &id, &said).await;
    let (opened, journal) = write(&store, &id).await;
    journal.append(opened.meta.messages, user("at once")).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_process_without_room_is_told_and_what_was_safe_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let id = create(&SqliteStore::open(&path).unwrap()).await.id().to_owned();
    // Files may not grow beyond 2048 blocks of 512 or 1024 bytes; writes fail instead of killing.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f 2048; exec "$0" "$@""#]);
    shell.arg(env::current_exe().unwrap());
    let mut other = Other::start(shell, &path, &id);
    other.listen(usize::MAX);
    assert!(other.process.wait().unwrap().success());
    let failure = other.said.failure.as_deref().unwrap_or("there was room for everything");
    assert!(failure.contains("the conversation can't be kept"), "{failure}");
    assert!(other.said.messages > 10, "{:?}", other.said);
    assert_kept(&path, &id, &other.said).await;
    assert_eq!(integrity(&path), "ok");
    let store = SqliteStore::open(&path).unwrap();
    let (opened, journal) = write(&store, &id).await;
    journal.append(opened.meta.messages, user("there is room again")).await.unwrap();
}
