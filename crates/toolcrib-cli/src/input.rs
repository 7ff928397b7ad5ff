//! Lines from a person at a terminal or from a pipe. A thread of their own reads them, so that
//! whoever waits for one can also be told to end.

mod editor;

use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;
use std::sync::mpsc as std_mpsc;
use std::thread;

use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

use crate::output;
use editor::Edited;

/// What stands before the further lines of a message.
const FURTHER: &str = "… ";

/// Has the terminal no longer mark what is pasted, and ends the line.
const LEFT: &str = "\x1b[?2004l\r\n";

/// The kinds of terminal that an editor can do nothing with.
const PLAIN: [&str; 3] = ["dumb", "cons25", "emacs"];

/// What came of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A message: several lines, if they were continued or pasted.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// There will be no more.
    End,
}

/// Where lines come from.
pub(crate) struct Input {
    asked: std_mpsc::Sender<Request>,
    lines: mpsc::UnboundedReceiver<(u64, io::Result<Line>)>,
    number: u64,
    is_edited: bool,
    /// How the terminal was set before an editor had it.
    before: Option<Termios>,
}

struct Request {
    number: u64,
    prompt: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// May be continued, and is remembered.
    Message,
    /// One line, typed after it was asked for.
    Answer,
}

/// How lines are read.
trait Source {
    fn line(&mut self, prompt: &str) -> io::Result<Line>;
    fn remember(&mut self, _message: &str) {}
}

impl Input {
    /// Lines with an editor and a history, which is kept in this file; plain ones where there is
    /// no terminal, or one of a kind that can't do that. The editor completes these words at the
    /// start of a line.
    pub(crate) fn edited(
        words: &'static [&'static str],
        history: Option<PathBuf>,
        terminal: Option<&str>,
    ) -> Self {
        let is_plain = |kind: &str| PLAIN.iter().any(|plain| kind.eq_ignore_ascii_case(plain));
        let is_edited = io::stdin().is_terminal()
            && io::stdout().is_terminal()
            && !terminal.is_some_and(is_plain);
        if !is_edited {
            return Self::plain();
        }
        let open =
            move || -> io::Result<Box<dyn Source>> { Ok(Box::new(Edited::open(words, history)?)) };
        let before = tcgetattr(io::stdin()).ok();
        let mut input = Self::start(open);
        (input.is_edited, input.before) = (is_edited, before);
        input
    }

    /// Lines as they come.
    pub(crate) fn plain() -> Self {
        Self::start(|| Ok(Box::new(Plain)))
    }

    fn start(open: impl FnOnce() -> io::Result<Box<dyn Source>> + Send + 'static) -> Self {
        let (asked, requests) = std_mpsc::channel::<Request>();
        let (sender, lines) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let mut source = open();
            for Request { number, prompt, kind } in requests {
                let line = match &mut source {
                    Ok(source) => read(source.as_mut(), &prompt, kind),
                    Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
                };
                if sender.send((number, line)).is_err() {
                    return;
                }
            }
        });
        Self { asked, lines, number: 0, is_edited: false, before: None }
    }

    /// Whether a person types them.
    pub(crate) fn is_typed(&self) -> bool {
        io::stdin().is_terminal()
    }

    /// Whether they are edited at a terminal.
    pub(crate) fn is_edited(&self) -> bool {
        self.is_edited
    }

    /// Reads a message.
    pub(crate) async fn message(&mut self, prompt: &str) -> io::Result<Line> {
        self.request(prompt, Kind::Message).await
    }

    /// Reads an answer to a question. What was typed before the question is not one.
    pub(crate) async fn answer(&mut self, prompt: &str) -> io::Result<Line> {
        self.request(prompt, Kind::Answer).await
    }

    async fn request(&mut self, prompt: &str, kind: Kind) -> io::Result<Line> {
        self.number += 1;
        let request = Request { number: self.number, prompt: prompt.to_owned(), kind };
        if self.asked.send(request).is_err() {
            return Ok(Line::End);
        }
        // Of a request that was given up, the line may still come.
        loop {
            match self.lines.recv().await {
                Some((number, line)) if number == self.number => return line,
                Some(_) => {}
                None => return Ok(Line::End),
            }
        }
    }
}

/// Somebody may still be typing when the program ends.
impl Drop for Input {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        let is_editing =
            tcgetattr(io::stdin()).is_ok_and(|now| now.local_modes != before.local_modes);
        if is_editing {
            let _ = output::piece(LEFT);
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, before);
        }
    }
}

fn read(source: &mut dyn Source, prompt: &str, kind: Kind) -> io::Result<Line> {
    if kind == Kind::Answer {
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        return source.line(prompt);
    }
    let mut message = String::new();
    loop {
        let prompt = if message.is_empty() { prompt } else { FURTHER };
        let text = match source.line(prompt)? {
            Line::Text(text) => text,
            Line::End if !message.is_empty() => String::new(),
            other => return Ok(other),
        };
        message.push_str(&text);
        match message.strip_suffix('\\') {
            Some(begun) => message = format!("{begun}\n"),
            None => break,
        }
    }
    if !message.trim().is_empty() {
        source.remember(&message);
    }
    Ok(Line::Text(message))
}

/// Lines from a pipe, or from a terminal without an editor.
struct Plain;

impl Source for Plain {
    fn line(&mut self, prompt: &str) -> io::Result<Line> {
        if io::stdin().is_terminal() {
            output::ask(prompt);
        }
        let mut bytes = Vec::new();
        if io::stdin().lock().read_until(b'\n', &mut bytes)? == 0 {
            return Ok(Line::End);
        }
        let text = String::from_utf8_lossy(&bytes);
        Ok(Line::Text(text.trim_end_matches(['\n', '\r']).to_owned()))
    }
}
