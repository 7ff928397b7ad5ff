//! The audit log of `toolcrib serve`: a file of JSON lines that is only ever added to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use futures::channel::oneshot;
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use toolcrib::{AuditEvent, AuditKey, AuditLog, Verdict};

use crate::config::AuditEntry;
use crate::output::Misuse;

/// The most lines that wait to be written.
const MOST_WAITING: usize = 10_000;

/// An audit log in a file. Dropping it waits until everything is written.
pub(crate) struct AuditFile {
    path: PathBuf,
    required: bool,
    key: AuditKey,
    lines: Option<SyncSender<Line>>,
    /// Lines that could not be written.
    lost: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A line to write, and who waits for it.
struct Line {
    text: String,
    written: Option<Told>,
}

/// Told once whether a line was written.
type Told = Box<dyn FnOnce(Result<(), String>) + Send>;

impl AuditFile {
    /// Opens the file, or makes it: it and the key beside it are for their owner alone.
    pub(crate) fn open(entry: &AuditEntry) -> anyhow::Result<Self> {
        let path = &entry.file;
        let misuse = |error: io::Error| {
            Misuse::new(format!("the audit log {} can't be used: {error}", path.display()))
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(misuse)?;
        }
        let file = open(path).map_err(misuse)?;
        let key = AuditKey::new(key(path).map_err(misuse)?);
        let (lines, waiting) = sync_channel(MOST_WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let desk = Desk { path: path.clone(), file: Some(file), lost: lost.clone() };
        let thread = thread::Builder::new()
            .name("toolcrib-audit".into())
            .spawn(move || desk.work(&waiting))
            .map_err(misuse)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self {
            path: path.clone(),
            required: entry.required,
            key,
            lines: Some(lines),
            lost,
            thread,
        })
    }

    /// Waits until what was recorded so far is written.
    pub(crate) fn flush(&self) {
        let (written, answer) = sync_channel(1);
        // Whoever waits may have gone.
        let told: Told = Box::new(move |result| drop(written.send(result)));
        if self.send(Line { text: String::new(), written: Some(told) }).is_ok() {
            let _ = answer.recv();
        }
    }

    fn send(&self, line: Line) -> Result<(), String> {
        let sent = self.lines.as_ref().map(|lines| lines.try_send(line));
        let path = self.path.display();
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => Err(format!("{path} can't be written fast enough")),
            Some(Err(TrySendError::Disconnected(_))) | None => Err(format!("{path} is closed")),
        }
    }
}

impl std::fmt::Debug for AuditFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl AuditLog for AuditFile {
    fn digest(&self, arguments: &Value) -> String {
        self.key.digest(arguments)
    }

    /// Where calls must be recorded, one may run once a line about it is written.
    fn begin<'a>(&'a self, event: &'a AuditEvent) -> BoxFuture<'a, Result<(), String>> {
        if !self.required {
            return Box::pin(async { Ok(()) });
        }
        let (written, answer) = oneshot::channel();
        // Whoever waits may have gone.
        let told: Told = Box::new(move |result| drop(written.send(result)));
        let sent = self.send(Line { text: line(event), written: Some(told) });
        Box::pin(async {
            sent?;
            answer.await.unwrap_or_else(|_| Err("the audit log is closed".to_owned()))
        })
    }

    fn record(&self, event: AuditEvent) {
        if let Err(reason) = self.send(Line { text: line(&event), written: None }) {
            self.lost.fetch_add(1, Ordering::Relaxed);
            tracing::error!(reason, "a line of the audit log is lost");
        }
    }
}

impl Drop for AuditFile {
    fn drop(&mut self) {
        drop(self.lines.take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(path = %self.path.display(), "the audit log has failed");
        }
    }
}

/// Where the thread works that writes.
struct Desk {
    path: PathBuf,
    file: Option<File>,
    lost: Arc<AtomicU64>,
}

impl Desk {
    fn work(mut self, waiting: &Receiver<Line>) {
        while let Ok(first) = waiting.recv() {
            let batch = std::iter::once(first).chain(waiting.try_iter().take(MOST_WAITING));
            // Taken out first: what is sent after the file was moved stands in the new one.
            let batch: Vec<Line> = batch.collect();
            self.follow_file();
            for line in batch {
                let written = self.tell_of_losses().and_then(|()| self.write(&line.text));
                match (written, line.written) {
                    (Ok(()), Some(tell)) => tell(Ok(())),
                    (Ok(()), None) => {}
                    (Err(error), tell) => {
                        // It may be another file by the next line, or have room again.
                        self.file = None;
                        let reason = format!("{}: {error}", self.path.display());
                        match tell {
                            Some(tell) => tell(Err(reason)),
                            None => {
                                self.lost.fetch_add(1, Ordering::Relaxed);
                                tracing::error!(reason, "a line of the audit log is lost");
                            }
                        }
                    }
                }
            }
        }
    }

    /// Goes on in a new file where somebody has moved the old one away.
    fn follow_file(&mut self) {
        let is_same = |file: &File| {
            let (ours, there) = (file.metadata().ok()?, fs::metadata(&self.path).ok()?);
            Some((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        if self.file.as_ref().and_then(is_same) != Some(true) {
            self.file = None;
        }
    }

    /// One line is one write, so that lines of several programs never mix.
    fn write(&mut self, line: &str) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(open(&self.path)?),
        };
        match file.write(line.as_bytes())? {
            whole if whole == line.len() => Ok(()),
            // The next line begins on a line of its own.
            _ => file.write_all(b"\n").and(Err(io::Error::other("there is no room for a line"))),
        }
    }

    /// Says how many lines are missing before the next.
    fn tell_of_losses(&mut self) -> io::Result<()> {
        let lost = self.lost.load(Ordering::Relaxed);
        if lost == 0 {
            return Ok(());
        }
        let time = jiff::Timestamp::now().to_string();
        let text = serde_json::json!({"time": time, "lost": lost}).to_string();
        self.write(&format!("{text}\n"))?;
        self.lost.fetch_sub(lost, Ordering::Relaxed);
        Ok(())
    }
}

/// What stands on a line of the log.
#[derive(Serialize)]
struct Entry<'a> {
    time: String,
    call: u64,
    tool: String,
    decision: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
}

fn line(event: &AuditEvent) -> String {
    let entry = Entry {
        time: jiff::Timestamp::now().to_string(),
        call: event.call,
        tool: event.tool.to_string(),
        decision: event.decision,
        caller: event.caller.as_deref(),
        endpoint: event.endpoint.as_deref(),
        trace: event.trace.as_deref(),
        arguments: event.arguments.as_deref(),
        is_error: event.ending.map(|ending| ending.is_error),
        took_ms: event.ending.map(|it| u64::try_from(it.took.as_millis()).unwrap_or(u64::MAX)),
    };
    // Strings and numbers: they serialise, and no line break is left in them.
    let mut text = serde_json::to_string(&entry).unwrap_or_default();
    text.push('\n');
    text
}

/// Opens a file to be added to. One that others may read or write is not taken.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if found.permissions().mode() & 0o077 != 0 {
        let shown = path.display();
        return Err(io::Error::other(format!("others can read it: run `chmod 600 {shown}`")));
    }
    Ok(file)
}

/// The key of the hashes, in a file beside the log. It is made once.
fn key(log: &Path) -> io::Result<[u8; 32]> {
    let mut path = log.as_os_str().to_owned();
    path.push(".key");
    let path = PathBuf::from(path);
    if !path.exists() {
        let mut fresh = [0; 32];
        getrandom::fill(&mut fresh).map_err(io::Error::other)?;
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        // Beside it first, so that nobody ever reads half a key; for its owner alone.
        let mut made = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
        made.write_all(&fresh)?;
        made.as_file().sync_all()?;
        match made.persist_noclobber(&path) {
            Ok(_) => return Ok(fresh),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(failed) => return Err(failed.error),
        }
    }
    if fs::metadata(&path)?.permissions().mode() & 0o077 != 0 {
        let shown = path.display();
        return Err(io::Error::other(format!("others can read it: run `chmod 600 {shown}`")));
    }
    fs::read(&path)?
        .try_into()
        .map_err(|_| io::Error::other(format!("the key {} is not 32 bytes long", path.display())))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib::{Auditor, ToolName};

    use super::*;

    fn entry(path: &Path, required: bool) -> AuditEntry {
        AuditEntry { file: path.to_owned(), required }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn auditor(log: &Arc<AuditFile>) -> Auditor {
        Auditor::new(log.clone(), Some("ada\n".into()), "/mcp", None)
    }

    #[tokio::test]
    async fn a_call_is_a_line_and_a_required_one_two() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/audit.jsonl");
        let tool = ToolName::mcp("git", "push");
        for required in [false, true] {
            let log = Arc::new(AuditFile::open(&entry(&path, required)).unwrap());
            let arguments = json!({"force": true});
            let begun = auditor(&log).begin(&tool, Verdict::Allowed, &arguments).await.unwrap();
            let before = if required { lines(&path).len() } else { 0 };
            assert_eq!(before, if required { 2 } else { 0 }, "it is written before the call runs");
            begun.ended(false);
            drop(log);
        }
        let lines = lines(&path);
        assert_eq!(lines.len(), 3);
        let ended = &lines[0];
        assert_eq!(
            (&ended["tool"], &ended["decision"], &ended["caller"], &ended["is_error"]),
            (&json!("git/push"), &json!("allowed"), &json!("ada\n"), &json!(false))
        );
        assert!(ended["took_ms"].is_u64() && ended["time"].as_str().unwrap().ends_with('Z'));
        assert!(!ended.to_string().contains("force"));
        // The key outlasts the program, so that equal arguments can be told.
        assert_eq!(ended["arguments"], lines[2]["arguments"]);
        assert_eq!((&lines[1]["call"], &lines[1]["is_error"]), (&lines[2]["call"], &Value::Null));
        for name in ["audit.jsonl", "audit.jsonl.key"] {
            let mode = fs::metadata(path.with_file_name(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[tokio::test]
    async fn a_required_log_that_can_not_be_written_stops_calls_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = Arc::new(AuditFile::open(&entry(&path, true)).unwrap());
        let tool = ToolName::mcp("git", "push");
        let begin = async || auditor(&log).begin(&tool, Verdict::Allowed, &json!({})).await;
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let reason = begin().await.unwrap_err();
        assert!(reason.contains("audit.jsonl"), "{reason}");
        fs::remove_dir(&path).unwrap();
        begin().await.unwrap().ended(false);
    }

    #[tokio::test]
    async fn a_log_that_is_moved_away_goes_on_in_a_new_file_and_losses_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = Arc::new(AuditFile::open(&entry(&path, false)).unwrap());
        let note = || auditor(&log).refused(&ToolName::mcp("a", "b"), Verdict::Denied, None);
        note();
        // A line is written for sure when the one behind it was waited for.
        let settle = async || {
            let (written, answer) = oneshot::channel();
            let told: Told = Box::new(move |result| written.send(result).unwrap());
            log.send(Line { text: "{}\n".to_owned(), written: Some(told) }).unwrap();
            answer.await.unwrap()
        };
        settle().await.unwrap();
        let old = folder.path().join("audit.jsonl.1");
        fs::rename(&path, &old).unwrap();
        fs::create_dir(&path).unwrap();
        note();
        assert!(settle().await.is_err());
        fs::remove_dir(&path).unwrap();
        note();
        settle().await.unwrap();
        assert_eq!(lines(&old)[0]["decision"], "denied");
        let new = lines(&path);
        assert_eq!((&new[0]["lost"], &new[1]["tool"]), (&json!(1), &json!("a/b")));
    }

    #[test]
    fn a_log_that_others_can_read_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = AuditFile::open(&entry(&path, false)).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }

    #[test]
    fn lines_of_two_programs_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let write = || {
            let log = AuditFile::open(&entry(&path, false)).unwrap();
            for _ in 0..500 {
                log.record(AuditEvent::new(ToolName::mcp("a", "x".repeat(500)), Verdict::Held));
            }
        };
        thread::scope(|scope| {
            [scope.spawn(write), scope.spawn(write)].map(|it| it.join().unwrap())
        });
        assert_eq!(lines(&path).len(), 1_000);
    }
}
