//! What goes into a process and what comes out of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::SendError, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};
use toolcrib_runtime::{Budget, Room};
use toolcrib_wire::{Id, Lines, RpcError, TooLong, code};

use super::asked_to_end;
use crate::asked;
use crate::board::{Board, Taken};
use crate::connection::{Failure, MOST_MESSAGE_BYTES};
use crate::stderr::Tail;

/// Bytes that may wait to be written. A server that leaves more unread is stuck.
const MOST_QUEUED: usize = 64 << 20;

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

/// How long a large message may stop halfway before its room is given to others.
pub(super) const STALLED: Duration = Duration::from_secs(60);

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

/// Reads messages until there are no more. One for which there is no room is waited with, and so
/// is the process: it can't write on. `in_hand` tells whether there is a message that has come
/// and is not yet taken in; one that has come in part is given up if nothing more of it comes for
/// as long as `stalled` says.
pub(super) async fn read(
    mut stdout: impl AsyncRead + Unpin,
    board: Arc<Board>,
    outbox: Outbox,
    tail: Tail,
    in_hand: Arc<AtomicBool>,
    stalled: Duration,
) {
    let mut lines = Lines::new(MOST_MESSAGE_BYTES);
    let mut bytes = vec![0; CHUNK];
    let mut room = None::<Room>;
    let mut passed_over = None::<PassedOver>;
    loop {
        in_hand.store(false, Ordering::Relaxed);
        let reading = stdout.read(&mut bytes);
        let read = match room {
            None => Ok(reading.await),
            Some(_) => timeout(stalled, reading).await,
        };
        let Ok(count) = read.map(Result::unwrap_or_default) else {
            let failure = Failure::Lost(format!("its answer broke off for {stalled:?}"));
            passed_over = PassedOver::begin(lines.rest(), failure, &board, &outbox, &tail);
            lines.skip();
            room = None;
            continue;
        };
        in_hand.store(true, Ordering::Relaxed);
        if let Some(message) = &mut passed_over
            && message.is_at_its_end(&bytes[..count])
        {
            message.fail(&board, &outbox);
            passed_over = None;
        }
        // The last line may lack its end.
        lines.push(if count == 0 { b"\n" } else { &bytes[..count] });
        while let Some(line) = lines.next() {
            // Only the first can have begun before.
            take(line, room.take(), &board, &outbox, &tail).await;
        }
        if count == 0 {
            return;
        }
        let begun = lines.rest();
        if begun.len() <= Budget::SMALL {
            continue;
        }
        if !may_be_message(begun) {
            tail.push_output(&String::from_utf8_lossy(begun));
            lines.skip();
            continue;
        }
        let taken = room.get_or_insert_with(|| board.room());
        if let Err(why) = taken.reach(begun.len()).await {
            let failure = Failure::Unread(why);
            passed_over = PassedOver::begin(begun, failure, &board, &outbox, &tail);
            lines.skip();
            room = None;
        }
    }
}

/// A message that is passed over, and has not said yet what it answers, or which request it is.
struct PassedOver {
    kind: Kind,
    failure: Failure,
    end: Vec<u8>,
}

/// What a message is, as far as its beginning shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Answer,
    /// Something of the server's own: a request or a notification.
    Own,
    Unknown,
}

impl PassedOver {
    /// As much of the end as it takes to say what a message answers.
    const MOST: usize = 64;

    /// Deals with what has begun so at once, if it says whom it concerns.
    fn begin(
        begun: &[u8],
        failure: Failure,
        board: &Board,
        outbox: &Outbox,
        tail: &Tail,
    ) -> Option<Self> {
        tail.push_output(&failure.to_string());
        let (kind, id) = at_begin(begun);
        let message = Self { kind, failure, end: Vec::new() };
        match (kind, id) {
            (Kind::Unknown, _) | (_, None) => Some(message),
            (_, Some(id)) => {
                message.fail_as(Some(id), board, outbox);
                None
            }
        }
    }

    /// Takes in more of the output; says whether the message ends in it.
    fn is_at_its_end(&mut self, output: &[u8]) -> bool {
        let line = output.split(|byte| *byte == b'\n').next().unwrap_or_default();
        self.end.extend_from_slice(&line[line.len().saturating_sub(Self::MOST)..]);
        self.end.drain(..self.end.len().saturating_sub(Self::MOST));
        output.is_empty() || line.len() < output.len()
    }

    /// It has ended, and so may have said whom it concerns.
    fn fail(&self, board: &Board, outbox: &Outbox) {
        self.fail_as(at_end(&self.end), board, outbox);
    }

    /// Fails the request that it answers; one of the server's own is answered.
    fn fail_as(&self, id: Option<Id>, board: &Board, outbox: &Outbox) {
        match (self.kind, id) {
            (Kind::Own, Some(id)) => {
                let error = RpcError::new(code::INTERNAL_ERROR, "There is no room for the request");
                outbox.send(toolcrib_wire::failure(Some(&id), &error), None);
            }
            // A notification, which nobody waits for.
            (Kind::Own, None) => {}
            (Kind::Answer | Kind::Unknown, Some(id)) => {
                if let Some(number) = id.as_u64() {
                    board.fail(number, self.failure.clone());
                }
            }
            (Kind::Answer | Kind::Unknown, None) => board.fail_only(self.failure.clone()),
        }
    }
}

async fn take(
    line: Result<String, TooLong>,
    mut room: Option<Room>,
    board: &Arc<Board>,
    outbox: &Outbox,
    tail: &Tail,
) {
    if let Some(room) = &mut room {
        room.complete();
    }
    match line {
        Ok(line) => match board.take_in(line, None, room).await {
            Ok(Taken::Nothing) => {}
            Ok(Taken::Reply(reply)) => outbox.send(reply, None),
            Ok(Taken::Asked(asked)) => {
                let back = outbox.clone();
                let send = async move |reply| back.send(reply, None);
                let refusal = asked::serve(board, asked, send);
                refusal.into_iter().for_each(|refusal| outbox.send(refusal, None));
            }
            // Servers print banners; they are no reason to stop listening.
            Err(line) => tail.push_output(&line),
        },
        Err(too_long) => {
            tail.push_output(&too_long.to_string());
            board.fail_only(Failure::Lost(format!("its answer is too long: {too_long}")));
        }
    }
}

/// Whether what begins so can become a message: there is no reason to keep megabytes that can't.
fn may_be_message(begun: &[u8]) -> bool {
    begun.trim_ascii_start().first().is_none_or(|byte| *byte == b'{')
}

/// What a message is and its id, if it begins by saying so.
fn at_begin(begun: &[u8]) -> (Kind, Option<Id>) {
    let head = String::from_utf8_lossy(&begun[..begun.len().min(400)]);
    let mut rest = head.trim_start().strip_prefix('{').unwrap_or_default();
    let mut id = None;
    loop {
        let Some(key) = next::<String>(&mut rest, ':') else { return (Kind::Unknown, id) };
        let kind = match &*key {
            "jsonrpc" if next::<String>(&mut rest, ',').is_some() => continue,
            "id" => match next::<Option<Id>>(&mut rest, ',') {
                Some(own) => {
                    id = own;
                    continue;
                }
                None => Kind::Unknown,
            },
            "result" | "error" => Kind::Answer,
            "method" | "params" => Kind::Own,
            _ => Kind::Unknown,
        };
        return (kind, id);
    }
}

/// The next value of a text, before that sign.
fn next<T: DeserializeOwned>(rest: &mut &str, sign: char) -> Option<T> {
    let text = *rest;
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<T>();
    let value = values.next()?.ok()?;
    *rest = text[values.byte_offset()..].trim_start().strip_prefix(sign)?;
    Some(value)
}

/// The id of a message, if it ends by saying so. What stands before the last bracket is the
/// message's own.
fn at_end(end: &[u8]) -> Option<Id> {
    let end = String::from_utf8_lossy(end);
    let (before, id) = end.trim_end().strip_suffix('}')?.rsplit_once(r#""id""#)?;
    let id = id.trim_start().strip_prefix(':')?;
    serde_json::from_str(id).ok().filter(|_| before.trim_end().ends_with(','))
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
    let mut bytes = vec![0; CHUNK];
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

#[cfg(test)]
mod tests {
    use toolcrib_runtime::{Caller, NoRoom};

    use super::*;
    use crate::config::ServerConfig;
    use crate::secrets::Secrets;

    #[test]
    fn messages_begin_or_end_by_saying_what_they_are() {
        let begins = |text: &str| at_begin(text.as_bytes());
        let number = |number: u64| Some(Id::from(number));
        let text = |text: &str| Some(Id::Text(text.to_owned()));
        for (begun, kind, id) in [
            (r#"{"jsonrpc":"2.0","id":17,"result":{"#, Kind::Answer, number(17)),
            (r#" { "id": 4, "jsonrpc": "2.0", "error" : "#, Kind::Answer, number(4)),
            (r#"{"result":{"id":17,"#, Kind::Answer, None),
            (r#"{"id":null,"error":{"#, Kind::Answer, None),
            (r#"{"jsonrpc":"2.0","id":17,"method":"x","#, Kind::Own, number(17)),
            (r#"{"id":"a b","params":{"#, Kind::Own, text("a b")),
            (r#"{"method":"x","params":{"id":3,"result""#, Kind::Own, None),
            (r#"{"id":17"#, Kind::Unknown, None),
            (r#"{"id":17,"more":1"#, Kind::Unknown, number(17)),
            ("", Kind::Unknown, None),
            ("id", Kind::Unknown, None),
        ] {
            assert_eq!(begins(begun), (kind, id), "{begun}");
        }
        let ends = |text: &str| at_end(text.as_bytes());
        assert_eq!(ends(r#"x"}]},"jsonrpc":"2.0","id":17}"#), number(17));
        assert_eq!(ends("x\"}]}, \"id\" : 4 }\r"), number(4));
        assert_eq!(ends(r#","id":"a b"}"#), text("a b"));
        for other in [r#"{"a":1,"id":17}}"#, r#"{"id":7}"#, r#","id":7}]"#, r#","id":7"#, ""] {
            assert_eq!(ends(other), None, "{other}");
        }
    }

    #[test]
    fn the_end_of_what_is_passed_over_is_kept_however_it_comes() {
        let output = format!("{}{}\n{{\"id\":3}}\n", "x".repeat(200), r#"},"id":12}"#);
        for step in 1..output.len() {
            let failure = Failure::Unread(NoRoom::TooLarge(0));
            let mut message = PassedOver { kind: Kind::Answer, failure, end: Vec::new() };
            let mut pieces = output.as_bytes().chunks(step);
            assert!(pieces.any(|piece| message.is_at_its_end(piece)), "{step}");
            assert_eq!(at_end(&message.end), Some(Id::from(12)), "{step}");
        }
    }

    #[tokio::test]
    async fn half_a_large_message_keeps_its_room_only_for_a_while() {
        let budget = Budget::default();
        let board = Arc::new(Board::new(budget.clone()));
        let answer = board.wait(board.number(), &Caller::default()).unwrap();
        let (lines, _sent) = unbounded_channel();
        let outbox = Outbox { lines, queued: Arc::default(), board: board.clone() };
        let (mut server, stdout) = tokio::io::duplex(1 << 20);
        let config = ServerConfig::command("a", "run", [""; 0]);
        let tail = Tail::new(Secrets::of(&config.launch));
        let stalled = Duration::from_millis(500);
        let reading = read(stdout, board.clone(), outbox, tail, Arc::default(), stalled);
        let reading = tokio::spawn(reading);
        let half = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"x":"{}"#, "x".repeat(200 << 10));
        server.write_all(half.as_bytes()).await.unwrap();
        let failure = answer.await.unwrap().unwrap_err().to_string();
        assert_eq!(failure, "its answer broke off for 500ms");
        assert!(budget.peak() > 100 << 10, "{}", budget.peak());
        // It is given back just after.
        while budget.used() > 0 {
            tokio::task::yield_now().await;
        }
        // What comes later is read again, and the rest of this is not.
        let answer = board.wait(board.number(), &Caller::default()).unwrap();
        server.write_all(b"\"}}\n{\"id\":2,\"result\":7}\n").await.unwrap();
        assert_eq!(answer.await.unwrap().unwrap().get(), "7");
        drop(server);
        reading.await.unwrap();
    }
}
