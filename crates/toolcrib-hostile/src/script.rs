//! An answer as a list of acts, and how they are performed.

use std::io;
use std::iter::repeat_n;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::io::{AsyncWriteExt, Stdout};
use tokio::sync::{Mutex, Notify, mpsc};
use tokio::time::sleep;
use toolcrib_wire::event;

use crate::faults::{processes, unasked};
use crate::options::Chosen;
use crate::server::Server;

/// Bytes written at a time.
const CHUNK: usize = 64 << 10;

/// What stands in a message for something long, and is repeated there.
pub(crate) const PIECE: &str = "0123456789abcdef";

/// How long what was written over HTTP gets to leave before the connection or the process ends.
const LEAVE: Duration = Duration::from_millis(100);

/// What is done about a message, in order. Nothing at all for most notifications.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) head: Head,
    pub(crate) acts: Vec<Act>,
}

/// What stands before the body, over HTTP.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) status: Option<u16>,
    pub(crate) content_type: Option<String>,
    pub(crate) location: Option<String>,
    /// Whether the session is forgotten.
    pub(crate) forgets: bool,
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Act {
    /// Sends a message.
    Say(String),
    /// Sends a message with so many megabytes in place of [`PIECE`], which are not made
    /// beforehand: the machine is not what a long message is to take from others.
    Stretch(String, u64),
    /// Sends the first half of a message.
    Half(String),
    /// Sends a message byte by byte, with a pause after each.
    Drip(String, Duration),
    /// Writes bytes that are no message.
    Noise(Vec<u8>),
    /// Writes a line of so many bytes.
    Flood(u64),
    /// Writes so many bytes to standard error.
    Stderr(u64),
    /// Waits, unless the request is given up.
    Wait(Duration),
    /// Sends log messages until faults end, so many a second.
    Endless(u64),
    /// Sends a message again and again, as the fault has it.
    Storm(Chosen, String),
    /// Starts so many child processes.
    Spawn(u64),
    /// Does nothing more, and does not end the answer either.
    Never,
    /// Drops the connection.
    Break,
    /// Exits.
    Exit(u64),
    /// Dies by a signal.
    Kill,
}

impl Script {
    pub(crate) fn say(message: String) -> Self {
        Self { head: Head::default(), acts: vec![Act::Say(message)] }
    }

    /// Does this first.
    pub(crate) fn before(&mut self, act: Act) {
        self.acts.insert(0, act);
    }

    /// Says these first.
    pub(crate) fn say_before(&mut self, messages: impl IntoIterator<Item = String>) {
        self.acts.splice(0..0, messages.into_iter().map(Act::Say)).for_each(drop);
    }

    /// Does this last.
    pub(crate) fn after(&mut self, act: Act) {
        self.acts.push(act);
    }

    /// Does this and nothing else.
    pub(crate) fn instead(&mut self, act: Act) {
        self.acts = vec![act];
    }

    /// Changes how the answer itself is given, if there is one.
    pub(crate) fn change(&mut self, how: impl FnOnce(String) -> Act) {
        let answer = self.acts.iter_mut().rev().find_map(|act| {
            let text = match act {
                Act::Say(text) => std::mem::take(text),
                Act::Stretch(text, megabytes) => stretch(text, *megabytes),
                _ => return None,
            };
            Some((act, text))
        });
        if let Some((act, text)) = answer {
            *act = how(text);
        }
    }

    /// Whether it takes a stream of events to perform it over HTTP.
    pub(crate) fn needs_stream(&self) -> bool {
        let is_many = |act: &Act| matches!(act, Act::Endless(_) | Act::Storm(..));
        let is_one = |act: &&Act| {
            matches!(act, Act::Say(_) | Act::Stretch(..) | Act::Half(_) | Act::Drip(..))
        };
        self.acts.iter().any(is_many) || self.acts.iter().filter(is_one).count() > 1
    }
}

/// Where acts are performed.
pub(crate) struct Stage {
    pub(crate) to: To,
    /// Told when the request is given up.
    pub(crate) cancelled: Arc<Notify>,
}

pub(crate) enum To {
    /// Shared with all others who write there.
    Stdout(Arc<Mutex<Stdout>>),
    /// The body of an answer over HTTP.
    Body { chunks: mpsc::Sender<io::Result<Vec<u8>>>, is_stream: bool },
}

impl Stage {
    /// Performs the acts until they are done, or nobody is left to see them.
    pub(crate) async fn perform(&self, server: &Server, acts: Vec<Act>) -> io::Result<()> {
        for act in acts {
            match act {
                Act::Say(message) => self.write(&self.frame(message), None).await?,
                Act::Stretch(message, megabytes) => {
                    let message = String::from_utf8(self.frame(message)).unwrap_or_default();
                    let (before, after) = around_piece(&message);
                    let long = repeat_n(MEGABYTE.as_bytes(), in_memory(megabytes));
                    let pieces = [before.as_bytes()].into_iter().chain(long);
                    self.write_pieces(pieces.chain([after.as_bytes()]), None).await?;
                }
                Act::Half(message) => {
                    let bytes = self.frame(message);
                    self.write(&bytes[..bytes.len() / 2], None).await?;
                }
                Act::Drip(message, pause) => self.write(&self.frame(message), Some(pause)).await?,
                Act::Noise(bytes) => self.write(&bytes, None).await?,
                Act::Flood(bytes) => self.flood(bytes).await?,
                Act::Stderr(bytes) => babble(bytes).await?,
                Act::Wait(time) => self.pause(time).await?,
                Act::Endless(per_second) => {
                    while server.ledger.lasts() {
                        let message = self.frame(unasked::log_message());
                        self.write(&message.repeat(burst(per_second)), None).await?;
                        self.pause(tick(per_second)).await?;
                    }
                }
                Act::Storm(chosen, message) => loop {
                    for _ in 0..burst(chosen.number) {
                        if server.ledger.strike(chosen.fault).is_some() {
                            self.write(&self.frame(message.clone()), None).await?;
                        }
                    }
                    self.pause(tick(chosen.number)).await?;
                },
                Act::Spawn(count) => processes::spawn(server, count),
                Act::Never => {
                    if let To::Body { chunks, .. } = &self.to {
                        chunks.closed().await;
                    }
                    return Ok(());
                }
                Act::Break => {
                    self.let_leave().await;
                    if let To::Body { chunks, .. } = &self.to {
                        let _ = chunks.send(Err(io::ErrorKind::ConnectionAborted.into())).await;
                    }
                    return Ok(());
                }
                Act::Exit(code) => {
                    self.let_leave().await;
                    std::process::exit(i32::try_from(code).unwrap_or(1));
                }
                Act::Kill => {
                    self.let_leave().await;
                    let _ = kill_process(getpid(), Signal::KILL);
                }
            }
        }
        Ok(())
    }

    fn frame(&self, mut message: String) -> Vec<u8> {
        match &self.to {
            To::Stdout(_) => message.push('\n'),
            To::Body { is_stream: true, .. } => message = event(None, &message),
            To::Body { is_stream: false, .. } => {}
        }
        message.into_bytes()
    }

    /// Writes bytes in one go, or one by one. Nobody else's come in between.
    async fn write(&self, bytes: &[u8], pause: Option<Duration>) -> io::Result<()> {
        let pieces = bytes.chunks(if pause.is_some() { 1 } else { CHUNK });
        self.write_pieces(pieces, pause).await
    }

    async fn write_pieces(
        &self,
        pieces: impl Iterator<Item = &[u8]>,
        pause: Option<Duration>,
    ) -> io::Result<()> {
        match &self.to {
            To::Stdout(stdout) => {
                let mut stdout = stdout.lock().await;
                for piece in pieces {
                    stdout.write_all(piece).await?;
                    if let Some(pause) = pause {
                        stdout.flush().await?;
                        sleep(pause).await;
                    }
                }
                stdout.flush().await?;
            }
            To::Body { chunks, .. } => {
                for piece in pieces {
                    chunks.send(Ok(piece.to_vec())).await.map_err(io::Error::other)?;
                    if let Some(pause) = pause {
                        sleep(pause).await;
                    }
                }
            }
        }
        Ok(())
    }

    async fn flood(&self, bytes: u64) -> io::Result<()> {
        let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
        let piece = [b'x'; CHUNK];
        // Whoever writes in between makes it worse, as it would be.
        while left > 0 {
            let now = left.min(CHUNK);
            self.write(&piece[..now], None).await?;
            left -= now;
        }
        self.write(b"\n", None).await
    }

    /// Waits; an error says that nobody waits any more.
    async fn pause(&self, time: Duration) -> io::Result<()> {
        let gone = async {
            match &self.to {
                To::Body { chunks, .. } => chunks.closed().await,
                To::Stdout(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleep(time) => Ok(()),
            () = self.cancelled.notified() => Err(io::ErrorKind::Interrupted.into()),
            () = gone => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    async fn let_leave(&self) {
        if let To::Body { .. } = &self.to {
            sleep(LEAVE).await;
        }
    }
}

/// [`PIECE`] again and again, as much as is written to standard output in one switch of threads.
static MEGABYTE: LazyLock<String> = LazyLock::new(|| PIECE.repeat((1 << 20) / PIECE.len()));

/// A message with so many megabytes in place of [`PIECE`].
pub(crate) fn stretch(message: &str, megabytes: u64) -> String {
    let (before, after) = around_piece(message);
    [before, &MEGABYTE.repeat(in_memory(megabytes)), after].concat()
}

/// What stands before and after [`PIECE`], which comes last of what is alike: an id that a client
/// gave comes before it.
fn around_piece(message: &str) -> (&str, &str) {
    message.rsplit_once(PIECE).unwrap_or((message, ""))
}

fn in_memory(megabytes: u64) -> usize {
    usize::try_from(megabytes).unwrap_or_default()
}

async fn babble(bytes: u64) -> io::Result<()> {
    let line = format!("{}\n", "toolcrib-hostile has a lot to say. ".repeat(29));
    let lines = line.repeat(CHUNK / line.len()).into_bytes();
    let mut stderr = tokio::io::stderr();
    for _ in 0..bytes.div_ceil(lines.len() as u64) {
        stderr.write_all(&lines).await?;
    }
    stderr.flush().await
}

/// How long to wait between bursts: timers are no finer than a millisecond.
fn tick(per_second: u64) -> Duration {
    Duration::from_millis(if per_second >= 100 { 10 } else { 1000 / per_second.max(1) })
}

/// How many messages there are in a burst.
fn burst(per_second: u64) -> usize {
    if per_second == 0 { 0 } else { usize::try_from(per_second / 100).unwrap_or(1).max(1) }
}
