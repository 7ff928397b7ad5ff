//! A process and all that it started, from its beginning to its end.

use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Child;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::asked_to_end;
use crate::board::Board;
use crate::guard::Guarded;
use crate::stderr::Tail;

/// How long a server gets to end by itself, and again after it was told to.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait for what an ended process said last. A process it left behind may hold the
/// pipes open, so there must be an end to it.
const SETTLING: Duration = Duration::from_millis(500);

/// How long while a message has come and waits for room, or is being read: longer than either
/// takes.
const IN_HAND: Duration = Duration::from_secs(45);

/// A process that leads a group. What is left of the group ends when this is dropped, be it that
/// the whole runtime goes.
pub(super) struct Process {
    child: Child,
    group: u32,
    _guarded: Guarded,
    _alive: Alive,
}

/// Those who read from a process and write to it.
pub(super) struct Pipes {
    pub(super) reading: JoinHandle<()>,
    /// Whether a message has come that is not yet taken in.
    pub(super) in_hand: Arc<AtomicBool>,
    pub(super) hearing: JoinHandle<()>,
    pub(super) writing: JoinHandle<()>,
    /// Dropped to tell the writer that the process has ended.
    pub(super) gone: oneshot::Sender<()>,
}

/// A place among processes, free again when it is dropped.
pub(crate) type Place = Box<dyn Send + Sync>;

/// Counts the processes that are left.
pub(crate) struct Alive {
    count: Arc<watch::Sender<usize>>,
    _place: Option<Place>,
}

impl Alive {
    pub(crate) fn new(count: &Arc<watch::Sender<usize>>, place: Option<Place>) -> Self {
        count.send_modify(|count| *count += 1);
        Self { count: count.clone(), _place: place }
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.count.send_modify(|count| *count -= 1);
    }
}

impl Process {
    pub(super) fn new(child: Child, group: u32, alive: Alive) -> Self {
        Self { child, group, _guarded: Guarded::new(group), _alive: alive }
    }

    /// Watches over the process in a task of its own, until it ends or is asked to. Returns what
    /// tells that it has.
    pub(super) fn oversee(
        mut self,
        mut asked: watch::Receiver<bool>,
        mut pipes: Pipes,
        board: Arc<Board>,
        tail: Tail,
    ) -> watch::Receiver<bool> {
        let (left, exited) = watch::channel(false);
        tokio::spawn(async move {
            let status = tokio::select! {
                status = self.child.wait() => status.ok(),
                _ = &mut pipes.reading => self.exit(SETTLING).await,
                () = asked_to_end(&mut asked) => self.insist().await,
            };
            // From here on nobody reads what is sent, though the pipe may take it.
            board.deafen();
            let began = Instant::now();
            // Once it is closed, nobody waits for what the process said last.
            let is_awaited = || pipes.in_hand.load(Ordering::Relaxed) && board.end().is_none();
            settle(&mut pipes.reading, || is_awaited() && began.elapsed() < IN_HAND).await;
            settle(&mut pipes.hearing, || false).await;
            // What was never written is told apart from what may have been read.
            drop(pipes.gone);
            let _ = pipes.writing.await;
            let ended = match status {
                Some(status) => format!("it ended ({status})"),
                None => "it closed its standard output".to_owned(),
            };
            let words = tail.last().map(|line| format!("; its last words: {line}"));
            board.close(&format!("{ended}{}", words.unwrap_or_default()));
            drop(self);
            left.send_replace(true);
        });
        exited
    }

    async fn exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        timeout(limit, self.child.wait()).await.ok()?.ok()
    }

    /// Waits for the end of a process whose input was closed, and insists if it doesn't come.
    async fn insist(&mut self) -> Option<ExitStatus> {
        for signal in [Signal::TERM, Signal::KILL] {
            if let Some(status) = self.exit(PATIENCE).await {
                return Some(status);
            }
            self.signal(signal);
        }
        self.exit(PATIENCE).await
    }

    fn signal(&self, signal: Signal) {
        let group = i32::try_from(self.group).ok().and_then(Pid::from_raw);
        if let Some(group) = group {
            // Usually nobody is left to be told.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Gives a task a moment to end by itself, and another as long as it has something to do.
async fn settle(task: &mut JoinHandle<()>, is_busy: impl Fn() -> bool) {
    // One that has ended must not be asked again.
    while !task.is_finished() && timeout(SETTLING, &mut *task).await.is_err() {
        if !is_busy() {
            return task.abort();
        }
    }
}
