//! The one place that prints.

use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use clap::builder::styling::{AnsiColor, Style};
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use toolcrib::tokens::TokenCount;

use crate::args::Color;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
pub(crate) const CYAN: Style = AnsiColor::Cyan.on_default();
pub(crate) const RED: Style = AnsiColor::Red.on_default().bold();
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

pub(crate) fn set_color(color: Color) {
    match color {
        Color::Auto => anstream::ColorChoice::Auto,
        Color::Always => anstream::ColorChoice::Always,
        Color::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Writes text that may be styled; colours are left out where they don't belong.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    let mut out = BufWriter::new(anstream::stdout().lock());
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes what a tool said: as it came into a file or a pipe, harmless on a terminal.
pub(crate) fn verbatim(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let text = if out.is_terminal() { &printable(text) } else { text };
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Writes a value as JSON, past the stream that would take escapes out of it.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// Whether a person sees standard output as it is written.
pub(crate) fn is_watched() -> bool {
    io::stdout().is_terminal()
}

/// Whether standard output takes colours.
pub(crate) fn is_styled() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Whether somebody can be asked: they see the question, and can type an answer.
pub(crate) fn is_attended() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// How many characters go on a line of the terminal, and how many do where there is none.
pub(crate) fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).map(|size| size.ws_col);
    match size {
        Ok(0) | Err(_) => 120,
        Ok(columns) => usize::from(columns).max(40),
    }
}

/// Writes a piece of a text that is still being made, and may be styled.
pub(crate) fn styled_piece(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The same as it stands.
pub(crate) fn piece(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a line about what goes on, which may be styled, on standard error.
pub(crate) fn aside(line: &str) {
    say(format_args!("{line}\n"));
}

/// Writes a question on standard error, for which an answer is about to be read.
pub(crate) fn ask(question: &str) {
    say(format_args!("{question}"));
}

/// What can't be said on standard error can't be said at all, so failing to is ignored.
fn say(text: fmt::Arguments<'_>) {
    let _ = anstream::stderr().lock().write_fmt(text);
}

/// Sends the log to standard error, from this level on.
pub(crate) fn log(level: tracing::Level) {
    let stderr = anstream::AutoStream::choice(&std::io::stderr());
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(stderr != anstream::ColorChoice::Never);
    // There is one already: then that one stays.
    let _ = log.try_init();
}

pub(crate) fn note(text: &str) {
    say(format_args!("{DIM}{}{DIM:#}\n", printable(text)));
}

/// Tells somebody who started at a terminal what a client should have.
pub(crate) fn note_of_stdio(quiet: bool) {
    if !quiet && io::stdin().is_terminal() {
        note(
            "This speaks MCP over standard input and output, to a client that starts it; \
             `toolcrib client-config` has what to paste there. Ctrl-D ends it.",
        );
    }
}

pub(crate) fn warn(text: &str) {
    say(format_args!("{YELLOW}warning{YELLOW:#}: {}\n", printable(text)));
}

/// Says what went wrong where that is not the end.
pub(crate) fn complain(text: &str) {
    say(format_args!("{RED}error{RED:#}: {}\n", printable(text)));
}

/// Asks a person; where there is none, the answer is no.
pub(crate) fn confirm(question: &str) -> anyhow::Result<bool> {
    if !is_attended() {
        return Ok(false);
    }
    say(format_args!("{BOLD}{}{BOLD:#} [y/N] ", undisguised(question)));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Replaces the line that stands on the terminal.
pub(crate) fn progress(text: &str) {
    say(format_args!("\r\x1b[K{text}"));
}

/// A line on the terminal that says how far something has come, and is gone with this. Where
/// nobody watches, nothing is written.
pub(crate) struct Progress {
    wanted: bool,
    shown: AtomicBool,
}

impl Progress {
    const WIDTH: usize = 24;
    /// Longer lines would wrap, and could then not be replaced.
    const MOST_TEXT: usize = 40;

    pub(crate) fn new(wanted: bool) -> Self {
        Self { wanted: wanted && io::stderr().is_terminal(), shown: AtomicBool::new(false) }
    }

    /// Whether anybody sees it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    pub(crate) fn bar(&self, done: usize, total: usize, text: &str) {
        let filled = Self::WIDTH * done.min(total) / total.max(1);
        let (full, rest) = ("━".repeat(filled), "─".repeat(Self::WIDTH - filled));
        let text: String = one_line(text).chars().take(Self::MOST_TEXT).collect();
        self.show(&format!("{GREEN}{full}{GREEN:#}{DIM}{rest}{DIM:#} {done}/{total} {text}"));
    }

    pub(crate) fn say(&self, text: &str) {
        let most = Self::WIDTH + Self::MOST_TEXT;
        let text: String = one_line(text).chars().take(most).collect();
        self.show(&format!("{DIM}{text}{DIM:#}"));
    }

    /// Takes the line away until there is something to say again.
    pub(crate) fn clear(&self) {
        if self.shown.swap(false, Ordering::Relaxed) {
            progress("");
        }
    }

    fn show(&self, text: &str) {
        if self.wanted {
            self.shown.store(true, Ordering::Relaxed);
            progress(text);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The user has had enough. There is nothing to add to that.
#[derive(Debug)]
pub(crate) struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Something is wrong, and what was printed says so already.
#[derive(Debug)]
pub(crate) struct Told;

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("see above")
    }
}

impl std::error::Error for Told {}

/// A mistake in how the program was called or configured, rather than in what it was given.
#[derive(Debug)]
pub(crate) struct Misuse(String);

impl Misuse {
    pub(crate) fn new(text: impl ToString) -> Self {
        Self(text.to_string())
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misuse {}

/// Says what went wrong and picks the exit code.
pub(crate) fn fail(error: &anyhow::Error) -> ExitCode {
    let is_closed = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>();
        let json = cause.downcast_ref::<serde_json::Error>();
        io.map(io::Error::kind).or(json.and_then(serde_json::Error::io_error_kind))
            == Some(io::ErrorKind::BrokenPipe)
    };
    // Whoever read our output has seen enough.
    if error.chain().any(is_closed) {
        return ExitCode::SUCCESS;
    }
    if error.is::<Interrupted>() {
        return ExitCode::from(130);
    }
    if error.is::<Told>() {
        return ExitCode::FAILURE;
    }
    complain(&format!("{error:#}"));
    let misused = error.chain().any(|cause| cause.is::<Misuse>());
    ExitCode::from(if misused { 2 } else { 1 })
}

/// Text from a file or server, safe to show: control characters can't reach the terminal.
pub(crate) fn printable(text: &str) -> String {
    let hidden = |c: char| c.is_control() && c != '\n' && c != '\t';
    text.chars().map(|c| if hidden(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The same for what somebody decides by: nothing in it is unseen or changes the order of the rest.
/// In prose such characters have their place.
pub(crate) fn undisguised(text: &str) -> String {
    let is_unseen = |c: char| {
        matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    let shown = |c| if is_unseen(c) { char::REPLACEMENT_CHARACTER } else { c };
    printable(text).chars().map(shown).collect()
}

/// The same on one line.
pub(crate) fn one_line(text: &str) -> String {
    undisguised(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// As much of a text as fits this many characters, on one line.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let line = one_line(text);
    if line.chars().count() <= most {
        return line;
    }
    line.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// A word as a shell would have it written.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A number with its thousands apart.
pub(crate) fn number(number: u64) -> String {
    TokenCount { tokens: number, exact: true }.to_string()
}

/// How long something took, as people say it.
pub(crate) fn duration(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// How long ago, in the largest unit that says something.
pub(crate) fn ago(time: SystemTime, now: SystemTime) -> String {
    let seconds = now.duration_since(time).unwrap_or_default().as_secs();
    match seconds {
        0..60 => "just now".to_owned(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// How many of what: `1 tool`, `2 tools`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {noun}{s}", number(count as u64))
}

/// `part` is how much less than `whole`, in per cent.
pub(crate) fn saved(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * (1.0 - part as f64 / whole as f64) }
}

/// `; did you mean …?` if one of the words is close.
pub(crate) fn suggest<'w>(given: &str, words: impl IntoIterator<Item = &'w str>) -> Option<String> {
    let closeness = |word: &'w str| (strsim::jaro_winkler(given, word), word);
    let (best, word) = words.into_iter().map(closeness).max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best >= 0.75).then(|| format!("; did you mean `{word}`?"))
}

/// A table without borders, in which every row is one line.
pub(crate) struct Rows {
    table: Table,
    styles: Vec<Style>,
}

impl Rows {
    /// Columns whose title ends in `>` are set flush right.
    pub(crate) fn new(titles: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(titles.iter().map(|title| title.trim_end_matches('>')));
        for (column, title) in table.column_iter_mut().zip(titles) {
            column.set_padding((0, 2));
            if title.ends_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self { table, styles: vec![BOLD] }
    }

    pub(crate) fn add<S: AsRef<str>>(&mut self, style: Style, cells: impl IntoIterator<Item = S>) {
        self.table.add_row(cells.into_iter().map(|cell| one_line(cell.as_ref())));
        self.styles.push(style);
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (line, style) in self.table.lines().zip(&self.styles) {
            writeln!(f, "{style}{}{style:#}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_the_largest_unit() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for (seconds, expected) in [
            (0, "just now"),
            (59, "just now"),
            (60, "1 min ago"),
            (7_200, "2 h ago"),
            (900_000, "10 d ago"),
        ] {
            assert_eq!(ago(now - Duration::from_secs(seconds), now), expected);
        }
        assert_eq!(ago(now + Duration::from_secs(9), now), "just now");
    }
}
