//! What goes into a process and what comes out of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::SendError, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use toolcrib_wire::{Lines, TooLong};

use super::asked_to_end;
use crate::asked;
use crate::board::{Board, Taken};
use crate::connection::{Failure, MOST_MESSAGE_BYTES};
use crate::stderr::Tail;

/// Bytes that may wait to be written. A server that leaves more unread is stuck.
const MOST_QUEUED: usize = 64 << 20;

/// Lines on their way to the process.
#[derive(Clone)]
pub(super) struct Outbox {
    lines: UnboundedSender<Outgoing>,
    queued: Arc<AtomicUsize>,
    board: Arc<Board>,
}

struct Outgoing {
    line: String,
    request: Option<u64>,
}

impl Outbox {
    /// Queues a line. If it can't be written, the request is failed.
    pub(super) fn send(&self, line: String, request: Option<u64>) {
        let bytes = line.len();
        if self.queued.fetch_add(bytes, Ordering::Relaxed) > MOST_QUEUED {
            self.queued.fetch_sub(bytes, Ordering::Relaxed);
            unread(&self.board, request);
        } else if let Err(SendError(unsent)) = self.lines.send(Outgoing { line, request }) {
            unread(&self.board, unsent.request);
        }
    }
}

/// Fails a request that was not written to its end: it can't have been acted on.
fn unread(board: &Board, request: Option<u64>) {
    if let Some(request) = request {
        let reason = "it does not read its standard input".to_owned();
        board.fail(request, Failure::Unsent(reason));
    }
}

/// Writes what is put into the outbox until the process is asked to end, or `gone` tells that it
/// has ended. Whatever is not written by then is failed when the task ends.
pub(super) fn write(
    stdin: ChildStdin,
    board: Arc<Board>,
    mut asked: watch::Receiver<bool>,
    gone: oneshot::Receiver<()>,
) -> (Outbox, JoinHandle<()>) {
    let (lines, mut queue) = unbounded_channel();
    let queued = Arc::<AtomicUsize>::default();
    let outbox = Outbox { lines, queued: queued.clone(), board: board.clone() };
    let writing = tokio::spawn(async move {
        let mut batch = Batch::default();
        tokio::select! {
            () = write_lines(stdin, &mut queue, &mut batch, &queued, &board) => {}
            // The end of its input is how a server is asked to end.
            () = asked_to_end(&mut asked) => {}
            _ = gone => {}
        }
        batch.fail_rest(&board);
        queue.close();
        while let Ok(unsent) = queue.try_recv() {
            unread(&board, unsent.request);
        }
    });
    (outbox, writing)
}

/// Lines that are written at once.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends.
    ends: Vec<(usize, Option<u64>)>,
    written: usize,
}

impl Batch {
    fn add(&mut self, Outgoing { line, request }: Outgoing) {
        self.bytes.extend_from_slice(line.as_bytes());
        self.bytes.push(b'\n');
        self.ends.push((self.bytes.len(), request));
    }

    /// Fails the requests that were not written to their end.
    fn fail_rest(&mut self, board: &Board) {
        for (_, request) in self.ends.drain(..).filter(|(end, _)| *end > self.written) {
            unread(board, request);
        }
    }
}

/// Writes lines, as many at once as there are.
async fn write_lines(
    mut stdin: ChildStdin,
    queue: &mut UnboundedReceiver<Outgoing>,
    batch: &mut Batch,
    queued: &AtomicUsize,
    board: &Board,
) {
    while let Some(first) = queue.recv().await {
        let mut next = Some(first);
        while let Some(outgoing) = next {
            queued.fetch_sub(outgoing.line.len(), Ordering::Relaxed);
            batch.add(outgoing);
            next = if batch.bytes.len() < 1 << 20 { queue.try_recv().ok() } else { None };
        }
        while batch.written < batch.bytes.len() {
            match stdin.write(&batch.bytes[batch.written..]).await {
                Ok(more @ 1..) => batch.written += more,
                Ok(0) | Err(_) => break,
            }
        }
        batch.fail_rest(board);
        batch.written = 0;
        batch.bytes.clear();
        // One large message is no reason to hold on to as much memory.
        batch.bytes.shrink_to(1 << 20);
    }
}

/// Reads messages until there are no more.
pub(super) async fn read(stdout: ChildStdout, board: Arc<Board>, outbox: Outbox, tail: Tail) {
    read_lines(stdout, MOST_MESSAGE_BYTES, |line| match line {
        Ok(line) => match board.take_in(&line, None) {
            Ok(Taken::Nothing) => {}
            Ok(Taken::Reply(reply)) => outbox.send(reply, None),
            Ok(Taken::Asked(asked)) => {
                let back = outbox.clone();
                let send = async move |reply| back.send(reply, None);
                let refusal = asked::serve(&board, asked, send);
                refusal.into_iter().for_each(|refusal| outbox.send(refusal, None));
            }
            // Servers print banners; they are no reason to stop listening.
            Err(()) => tail.push_output(&line),
        },
        Err(too_long) => {
            tail.push_output(&too_long.to_string());
            board.fail_only(Failure::Lost(format!("its answer is too long: {too_long}")));
        }
    })
    .await;
}

/// Keeps what is said on the side.
pub(super) async fn overhear(stderr: ChildStderr, tail: Tail) {
    read_lines(stderr, 64 << 10, |line| match line {
        Ok(line) => tail.push(&line),
        Err(too_long) => tail.push(&too_long.to_string()),
    })
    .await;
}

async fn read_lines(
    mut pipe: impl AsyncRead + Unpin,
    most: usize,
    mut take: impl FnMut(Result<String, TooLong>),
) {
    let mut lines = Lines::new(most);
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = pipe.read(&mut bytes).await.unwrap_or_default();
        // The last line may lack its end.
        lines.push(if count == 0 { b"\n" } else { &bytes[..count] });
        while let Some(line) = lines.next() {
            take(line);
        }
        if count == 0 {
            return;
        }
    }
}
