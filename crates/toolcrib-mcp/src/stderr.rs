//! What a server says on the side: the last lines of its standard error.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::secrets::Secrets;

/// Lines kept.
const MOST_LINES: usize = 100;
/// Bytes kept of a line.
const MOST_BYTES: usize = 1_000;

/// The last lines a server wrote to its standard error, or to its standard output without their
/// being messages. A handle: clones share the lines.
#[derive(Clone)]
pub(crate) struct Tail {
    secrets: Secrets,
    lines: Arc<Mutex<Lines>>,
    /// The process whose lines these are.
    process: Option<u64>,
}

#[derive(Default)]
struct Lines {
    lines: VecDeque<Line>,
    /// The process that began last.
    newest: u64,
}

struct Line {
    process: u64,
    text: String,
    is_output: bool,
}

impl Tail {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets, lines: Arc::default(), process: None }
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process begins: what others say explains nothing of this one.
    pub(crate) fn begin(&self) -> Self {
        let mut lines = self.lock();
        lines.newest += 1;
        Self { process: Some(lines.newest), ..self.clone() }
    }

    /// Keeps a line of standard error.
    pub(crate) fn push(&self, line: &str) {
        self.keep(line, false);
    }

    /// Keeps a line of standard output.
    pub(crate) fn push_output(&self, line: &str) {
        self.keep(&format!("standard output: {line}"), true);
    }

    fn keep(&self, line: &str, is_output: bool) {
        // Before it is cut: half a secret would not be known for one.
        let mut text = self.secrets.hide(line);
        text.truncate(text.floor_char_boundary(MOST_BYTES));
        let mut lines = self.lock();
        if lines.lines.len() == MOST_LINES {
            lines.lines.pop_front();
        }
        let process = self.process.unwrap_or(lines.newest);
        lines.lines.push_back(Line { process, text, is_output });
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lock().lines.iter().map(|line| line.text.clone()).collect()
    }

    /// The line that most likely says what went wrong: the last one of this process that is more
    /// than decoration. What is on standard output is mostly a banner, and comes second.
    pub(crate) fn last(&self) -> Option<String> {
        let lines = self.lock();
        let process = self.process.unwrap_or(lines.newest);
        let is_own = |line: &&Line| line.process == process && is_telling(&line.text);
        let own = || lines.lines.iter().rev().filter(is_own);
        let found = own().find(|line| !line.is_output).or_else(|| own().next());
        found.map(|line| line.text.trim().to_owned())
    }
}

fn is_telling(line: &str) -> bool {
    let line = line.trim();
    let is_frame = line.starts_with("at ") || line.starts_with("Node.js v");
    !is_frame && line.chars().filter(|c| c.is_alphanumeric()).count() > 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerConfig;

    #[test]
    fn the_last_telling_line_of_the_process_is_found() {
        let tail = Tail::new(Secrets::default());
        assert_eq!(tail.last(), None);
        tail.push("Error: no such file");
        tail.push("    at open (fs.js:1:2)");
        tail.push("}");
        tail.push("Node.js v24.0.0");
        tail.push_output("Listening");
        assert_eq!(tail.last().as_deref(), Some("Error: no such file"));
        let (first, second) = (tail.begin(), tail.begin());
        assert_eq!(tail.last(), None, "that was another process");
        second.push_output("Listening");
        first.push("out of luck");
        assert_eq!(tail.last().as_deref(), Some("standard output: Listening"));
        assert_eq!(first.last().as_deref(), Some("out of luck"), "each has words of its own");
        assert_eq!(tail.lines().len(), 7);
    }

    #[test]
    fn only_so_much_is_kept_and_no_half_secrets() {
        let config = ServerConfig::command("a", "run", ["x"]).env("T", "the-secret");
        let tail = Tail::new(Secrets::of(&config.launch));
        for _ in 0..300 {
            tail.push(&format!("{}the-secretä", "x".repeat(MOST_BYTES - 5)));
        }
        let lines = tail.lines();
        assert_eq!(lines.len(), MOST_LINES);
        assert!(
            lines.iter().all(|line| line.len() <= MOST_BYTES && line.ends_with("x***ä")
                || line.ends_with("x***")),
            "{}",
            lines[0]
        );
    }
}
