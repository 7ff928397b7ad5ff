//! What a person sees of a run: the answer on standard output, the rest beside it.

use std::time::{Duration, Instant};

use toolcrib::agent::{CallResult, Compaction, Event};
use toolcrib::tokens::Usage;

use super::called::{brief, called};
use super::markdown::Markdown;
use crate::args::Context;
use crate::output::{self, DIM, Progress, duration, printable, shortened};

/// From when on it is worth saying what is waited for.
const LONG: Duration = Duration::from_secs(1);

/// Shows what happens during runs.
pub(crate) struct Screen {
    /// Whether the answer is written as it comes.
    streams: bool,
    /// Whether calls are told of.
    tells: bool,
    markdown: Option<Markdown>,
    /// What the model wrote so far, where that is written only once it holds: nobody watches, and
    /// what is void could not be told apart later.
    held: Option<String>,
    /// Whether standard output is at the start of a line.
    at_start: bool,
    /// Whether anything was written since the model was asked.
    has_written: bool,
    /// The calls under way, the first one first.
    calls: Vec<Call>,
    progress: Progress,
    waiting: Option<(String, Instant)>,
    /// What each request took.
    pub(crate) spent: Vec<Usage>,
    /// Why the strategy was chosen that the last conversation to begin has.
    pub(crate) chosen: Option<String>,
}

struct Call {
    id: String,
    name: String,
    arguments: String,
    since: Instant,
}

impl Screen {
    /// With `--json` nothing is shown: what happened is printed in the end.
    pub(crate) fn new(context: &Context) -> Self {
        let tells = !context.json && !context.quiet;
        Self {
            streams: !context.json,
            tells,
            markdown: output::is_styled().then(Markdown::default),
            held: (!output::is_watched()).then(String::new),
            at_start: true,
            has_written: false,
            calls: Vec::new(),
            progress: Progress::new(tells),
            waiting: None,
            spent: Vec::new(),
            chosen: None,
        }
    }

    pub(super) fn show(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::TurnStarted { .. } => self.wait_for("waiting for the model"),
            Event::Thinking { .. } => self.wait_for("the model is thinking"),
            Event::Writing { name } => self.wait_for(&format!("writing a call of {name}")),
            Event::Text { text } => self.take(text)?,
            Event::TurnFinished { usage, kept, .. } => {
                self.spent.push(*usage);
                let held = self.held.as_mut().map(std::mem::take).unwrap_or_default();
                if *kept {
                    self.write(&held)?;
                }
                self.pause()?;
                if std::mem::take(&mut self.has_written) && !kept {
                    self.tell(&format!("{DIM}what it wrote of this answer is void{DIM:#}"));
                }
            }
            Event::Retrying { reason, wait } => {
                self.held.iter_mut().for_each(String::clear);
                self.pause()?;
                let when = match wait.is_zero() {
                    true => "again".to_owned(),
                    false => format!("again in {}", duration(*wait)),
                };
                let void = match std::mem::take(&mut self.has_written) {
                    true => "what it wrote is void; ",
                    false => "",
                };
                let reason = self.fitted(reason);
                self.tell(&format!("{DIM}{void}asking {when}: {reason}{DIM:#}"));
            }
            Event::CallStarted { id, name, arguments } => {
                self.pause()?;
                self.calls.push(Call {
                    id: id.clone(),
                    name: name.clone(),
                    arguments: brief(arguments),
                    since: Instant::now(),
                });
                self.wait_for_calls();
            }
            Event::CallFinished { name, result, took } => {
                self.finished(name, result, *took);
                self.wait_for_calls();
            }
            Event::Chosen { why, .. } => self.chosen = Some(why.clone()),
            Event::Compacted(Compaction { before, after, .. }) => {
                self.pause()?;
                let what = "the older part of the conversation has become a summary";
                self.tell(&format!("{DIM}{what}: {before} messages are {after} now{DIM:#}"));
            }
            Event::Note { text } => {
                self.pause()?;
                self.tell(&format!("{DIM}{}{DIM:#}", output::one_line(text)));
            }
            _ => {}
        }
        Ok(())
    }

    fn finished(&mut self, name: &str, result: &CallResult, took: Duration) {
        let at = self.calls.iter().position(|call| call.id == result.call_id);
        let arguments = at.map(|at| self.calls.remove(at).arguments).unwrap_or_default();
        self.tell(&called(name, &arguments, result, Some(took)));
    }

    fn tell(&self, line: &str) {
        self.progress.clear();
        if self.tells {
            output::aside(line);
        }
    }

    fn fitted(&self, text: &str) -> String {
        shortened(text, output::columns().saturating_sub(24).max(24))
    }

    fn wait_for(&mut self, what: &str) {
        if self.waiting.as_ref().is_none_or(|(before, _)| before != what) {
            self.progress.clear();
            self.waiting = Some((what.to_owned(), Instant::now()));
        }
    }

    fn wait_for_calls(&mut self) {
        self.progress.clear();
        self.waiting = self.calls.first().map(|call| {
            let others = match self.calls.len() - 1 {
                0 => String::new(),
                others => format!(" and {others} more"),
            };
            (format!("running {}{others}", call.name), call.since)
        });
    }

    /// Says what is waited for, if that takes long.
    pub(super) fn tick(&self) {
        if let Some((what, since)) = &self.waiting
            && self.at_start
            && since.elapsed() >= LONG
        {
            self.progress.say(&format!("{what}: {} s", since.elapsed().as_secs()));
        }
    }

    fn take(&mut self, text: &str) -> anyhow::Result<()> {
        match &mut self.held {
            Some(held) => held.push_str(text),
            None => return self.write(text),
        }
        self.wait_for("the model is writing");
        Ok(())
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.waiting = None;
        self.progress.clear();
        if !self.streams || text.is_empty() {
            return Ok(());
        }
        self.has_written = true;
        self.at_start = text.ends_with('\n');
        match &mut self.markdown {
            Some(markdown) => output::styled_piece(&markdown.push(&printable(text))),
            None if output::is_watched() => output::piece(&printable(text)),
            None => output::piece(text),
        }
    }

    /// Ends the line that is being written, so that something else can be said.
    pub(crate) fn pause(&mut self) -> anyhow::Result<()> {
        self.waiting = None;
        self.progress.clear();
        if let Some(markdown) = &mut self.markdown {
            output::styled_piece(&markdown.finish())?;
        }
        if !self.at_start {
            self.at_start = true;
            output::piece("\n")?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> anyhow::Result<()> {
        self.calls.clear();
        self.held.iter_mut().for_each(String::clear);
        self.pause()
    }
}
