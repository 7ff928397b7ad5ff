//! Markdown for a terminal, piece by piece as it comes: headings, bold, code, lists, quotes. What
//! it does not know stays as it was written.

use std::fmt::Write as _;

use clap::builder::styling::Style;

use crate::output::{BOLD, CYAN, DIM};

/// Turns Markdown into styled text. No more is held back than it takes to know what a mark means.
#[derive(Debug, Default)]
pub(crate) struct Markdown {
    /// What has come and is not understood yet.
    held: String,
    /// Whether the next character is within a line.
    within: bool,
    heading: bool,
    bold: bool,
    /// How many backticks close the code that is open.
    code: Option<usize>,
    /// The backticks or tildes that close the block of code that is open.
    fence: Option<String>,
    /// The last character that was written on this line.
    last: Option<char>,
}

impl Markdown {
    /// Takes the next piece; gives what can be shown.
    pub(crate) fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        for c in text.chars() {
            self.held.push(c);
            self.step(&mut out, false);
        }
        out
    }

    /// Gives what is left, and begins anew.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.step(&mut out, true);
        if self.within {
            self.end_styles(&mut out);
        }
        *self = Self::default();
        out
    }

    fn step(&mut self, out: &mut String, is_last: bool) {
        while !self.held.is_empty() {
            let before = (self.held.len(), self.within);
            if self.within {
                self.inline(out, is_last)
            } else {
                self.begin(out, is_last)
            }
            if (self.held.len(), self.within) == before {
                return;
            }
        }
    }

    /// The beginning of a line, as far as it takes to know what kind of line it is.
    fn begin(&mut self, out: &mut String, is_last: bool) {
        let held = self.held.clone();
        let body = held.trim_start_matches([' ', '\t']);
        let indent = &held[..held.len() - body.len()];
        let is_whole = is_last || body.contains('\n');
        if let Some(fence) = &self.fence {
            // Within a block of code only its end means anything.
            if !is_whole && (body.is_empty() || body.starts_with(fence) || fence.starts_with(body))
            {
                return;
            }
            if body.trim_end().starts_with(fence.as_str())
                && body.trim().chars().all(|c| fence.starts_with(c))
            {
                let _ = write!(out, "{DIM}{}{DIM:#}", held.trim_end_matches('\n'));
                self.fence = None;
                return self.end_line(out);
            }
            self.within = true;
            let _ = write!(out, "{CYAN}");
            return;
        }
        for mark in ["```", "~~~"] {
            if body.starts_with(mark) {
                if !is_whole {
                    return;
                }
                let run = body.chars().take_while(|c| mark.starts_with(*c)).collect();
                let _ = write!(out, "{DIM}{}{DIM:#}", held.trim_end_matches('\n'));
                self.fence = Some(run);
                return self.end_line(out);
            }
            if !is_whole && mark.starts_with(body) {
                return;
            }
        }
        let marks = body.chars().take_while(|c| *c == '#').count();
        if (1..=6).contains(&marks) {
            match body[marks..].chars().next() {
                None if !is_whole => return,
                Some(' ') => {
                    self.heading = true;
                    let _ = write!(out, "{BOLD}");
                    self.held.drain(..indent.len() + marks + 1);
                    self.within = true;
                    return;
                }
                _ => {}
            }
        }
        let mut chars = body.chars();
        match (chars.next(), chars.next()) {
            (Some('-' | '*' | '+'), Some(' ')) => {
                let _ = write!(out, "{indent}• ");
                self.held.drain(..indent.len() + 2);
            }
            (Some('>'), Some(' ')) => {
                let _ = write!(out, "{indent}{DIM}│{DIM:#} ");
                self.held.drain(..indent.len() + 2);
            }
            (Some('-' | '*' | '+' | '>'), None) if !is_whole => return,
            (None, _) if !is_whole => return,
            _ => {
                out.push_str(indent);
                self.held.drain(..indent.len());
            }
        }
        self.within = true;
    }

    /// The rest of a line.
    fn inline(&mut self, out: &mut String, is_last: bool) {
        let Some(c) = self.held.chars().next() else { return };
        if c == '\n' {
            self.held.remove(0);
            self.end_styles(out);
            out.push('\n');
            (self.within, self.last) = (false, None);
            return;
        }
        if self.fence.is_none() && matches!(c, '`' | '*') {
            let run = self.held.chars().take_while(|mark| *mark == c).count();
            let follower = self.held[run..].chars().next();
            if follower.is_none() && !is_last {
                return;
            }
            if self.mark(c, run, follower, out) {
                self.held.drain(..run);
                return;
            }
            self.last = Some(c);
            out.extend(std::iter::repeat_n(c, run));
            self.held.drain(..run);
            return;
        }
        self.last = Some(c);
        out.push(c);
        self.held.drain(..c.len_utf8());
    }

    /// Opens or closes what a run of marks stands for, if anything.
    fn mark(&mut self, c: char, run: usize, follower: Option<char>, out: &mut String) -> bool {
        let touches = |c: Option<char>| c.is_some_and(|c| !c.is_whitespace());
        match (c, self.code) {
            ('`', None) => {
                self.code = Some(run);
                let _ = write!(out, "{CYAN}");
            }
            ('`', Some(open)) if open == run => {
                self.code = None;
                self.restyle(out);
            }
            ('*', None) if run == 2 && !self.bold && touches(follower) => {
                self.bold = true;
                let _ = write!(out, "{BOLD}");
            }
            ('*', None) if run == 2 && self.bold && touches(self.last) => {
                self.bold = false;
                self.restyle(out);
            }
            _ => return false,
        }
        true
    }

    /// What a style leaves behind that ended.
    fn restyle(&self, out: &mut String) {
        let _ = write!(out, "{}", BOLD.render_reset());
        if self.bold || self.heading {
            let _ = write!(out, "{BOLD}");
        }
    }

    fn end_styles(&mut self, out: &mut String) {
        if self.heading || self.bold || self.code.is_some() || self.fence.is_some() {
            let _ = write!(out, "{}", Style::new().bold().render_reset());
        }
        (self.heading, self.bold, self.code) = (false, false, None);
    }

    /// Ends a line that was written as a whole.
    fn end_line(&mut self, out: &mut String) {
        if self.held.contains('\n') {
            out.push('\n');
        }
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Styles as letters, so that they can be read: B bold, C code, D dim, 0 the end.
    fn shown(text: &str, pieces: usize) -> String {
        let mut markdown = Markdown::default();
        let chars: Vec<char> = text.chars().collect();
        let mut out = String::new();
        for piece in chars.chunks(pieces.max(1)) {
            out += &markdown.push(&piece.iter().collect::<String>());
        }
        out += &markdown.finish();
        out.replace("\x1b[1m", "⟨B⟩")
            .replace("\x1b[36m", "⟨C⟩")
            .replace("\x1b[2m", "⟨D⟩")
            .replace("\x1b[0m", "⟨0⟩")
    }

    #[test]
    fn marks_become_styles_however_the_text_is_cut() {
        for (text, expected) in [
            ("plain\ntext", "plain\ntext"),
            ("a **b c** d", "a ⟨B⟩b c⟨0⟩ d"),
            ("use `x y` now", "use ⟨C⟩x y⟨0⟩ now"),
            ("``a`b``", "⟨C⟩a`b⟨0⟩"),
            ("# Head `x` it\nrest", "⟨B⟩Head ⟨C⟩x⟨0⟩⟨B⟩ it⟨0⟩\nrest"),
            ("- one\n  * two\n-three", "• one\n  • two\n-three"),
            ("> said", "⟨D⟩│⟨0⟩ said"),
            ("1. one", "1. one"),
            ("2 ** 3 * 4", "2 ** 3 * 4"),
            ("#hash", "#hash"),
            ("####### seven", "####### seven"),
            ("**open\nnext", "⟨B⟩open⟨0⟩\nnext"),
            (
                "``` rs\n# x **y**\n\n  `z`\n```\nend",
                "⟨D⟩``` rs⟨0⟩\n⟨C⟩# x **y**⟨0⟩\n⟨C⟩⟨0⟩\n⟨C⟩  `z`⟨0⟩\n⟨D⟩```⟨0⟩\nend",
            ),
            ("é **ü** 日本", "é ⟨B⟩ü⟨0⟩ 日本"),
            ("***\n---\n\n#", "***\n---\n\n#"),
        ] {
            for pieces in [1, 2, 3, 100] {
                assert_eq!(shown(text, pieces), expected, "{text:?} in pieces of {pieces}");
            }
        }
    }

    #[test]
    fn plain_words_are_shown_at_once() {
        let mut markdown = Markdown::default();
        assert_eq!(markdown.push("H"), "H");
        assert_eq!(markdown.push("e"), "e");
        assert_eq!(markdown.push("llo"), "llo");
        assert_eq!(markdown.push(" *"), " ");
        assert_eq!(markdown.push("*wo"), "\x1b[1mwo");
    }
}
