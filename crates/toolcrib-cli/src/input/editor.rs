//! Lines from a terminal, with an editor.

use std::io;
use std::path::PathBuf;

use rustix::termios::{QueueSelector, tcflush};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::{Line, Source};
use crate::output;

/// How many messages are remembered.
const MOST_REMEMBERED: usize = 1_000;

/// How often in a row what was typed may be no text.
const MOST_BROKEN: usize = 100;

/// An editor, and where what was typed is kept.
pub(super) struct Edited {
    editor: Editor<Words, DefaultHistory>,
    history: Option<PathBuf>,
}

impl Edited {
    pub(super) fn open(words: &'static [&'static str], file: Option<PathBuf>) -> io::Result<Self> {
        let config = Config::builder()
            .max_history_size(MOST_REMEMBERED)
            .map_err(broken)?
            .history_ignore_space(true)
            .build();
        let mut editor = Editor::with_config(config).map_err(broken)?;
        editor.set_helper(Some(Words(words)));
        if let Some(file) = &file {
            if let Some(folder) = file.parent() {
                let _ = std::fs::create_dir_all(folder);
            }
            let _ = editor.load_history(file);
        }
        Ok(Self { editor, history: file })
    }
}

impl Source for Edited {
    fn line(&mut self, prompt: &str) -> io::Result<Line> {
        for _ in 0..MOST_BROKEN {
            match self.editor.readline(prompt) {
                Ok(text) => return Ok(Line::Text(text)),
                Err(ReadlineError::Interrupted) => return Ok(Line::Interrupted),
                Err(ReadlineError::Eof) => return Ok(Line::End),
                // A terminal that has changed its size is read on from.
                Err(ReadlineError::Signal(_)) => {}
                Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
                    output::note("That was no text in UTF-8, so it was left out.");
                }
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(Line::End)
    }

    fn remember(&mut self, message: &str) {
        // A history that can't be kept is no reason to stop talking.
        let _ = self.editor.add_history_entry(message);
        if let Some(file) = &self.history {
            let _ = self.editor.append_history(file);
        }
    }
}

fn broken(error: ReadlineError) -> io::Error {
    match error {
        ReadlineError::Io(error) => error,
        other => io::Error::other(other.to_string()),
    }
}

/// Words that are completed at the start of a line.
struct Words(&'static [&'static str]);

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or_default();
        let fits = self.0.iter().filter(|word| !typed.is_empty() && word.starts_with(typed));
        Ok((0, fits.map(|word| format!("{word} ")).collect()))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}

impl Validator for Words {}

impl Helper for Words {}
