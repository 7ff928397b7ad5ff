//! What was found, and how it is told.

use std::fmt::Write as _;

use serde::Serialize;

use crate::output::{BOLD, DIM, GREEN, RED, YELLOW, counted, one_line};

#[derive(Default)]
pub(super) struct Report {
    pub(super) checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Serialize)]
pub(super) struct Check {
    kind: Kind,
    name: String,
    ok: bool,
    summary: String,
    findings: Vec<Finding>,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Configuration,
    Server,
    Embedder,
    Cache,
    Environment,
}

#[derive(Serialize)]
struct Finding {
    level: Level,
    what: String,
    fix: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    /// It has to be mended.
    Problem,
    /// It works, and could be better.
    Advice,
}

impl Check {
    pub(super) fn new(kind: Kind, name: impl Into<String>, summary: impl Into<String>) -> Self {
        let (name, summary) = (name.into(), summary.into());
        Self { kind, name, ok: true, summary, findings: Vec::new() }
    }

    /// Something has to be mended.
    pub(super) fn problem(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.ok = false;
        self.findings.push(Finding { level: Level::Problem, what: what.into(), fix: fix.into() });
    }

    /// Something could be better.
    pub(super) fn advice(&mut self, what: impl Into<String>, fix: impl Into<String>) {
        self.findings.push(Finding { level: Level::Advice, what: what.into(), fix: fix.into() });
    }
}

impl Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Whole<'a> {
            ok: bool,
            checks: &'a [Check],
        }
        Whole { ok: self.is_ok(), checks: &self.checks }.serialize(serializer)
    }
}

impl Report {
    pub(super) fn is_ok(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let (mark, style) = match (check.ok, check.findings.is_empty()) {
                (true, true) => ("ok  ", GREEN),
                (true, false) => ("note", YELLOW),
                (false, _) => ("FAIL", RED),
            };
            let (name, summary) = (one_line(&check.name), one_line(&check.summary));
            let _ = writeln!(text, "{style}{mark}{style:#}  {BOLD}{name}{BOLD:#}  {summary}");
            for finding in &check.findings {
                let _ = writeln!(text, "      {}", one_line(&finding.what));
                let _ = writeln!(text, "      {DIM}→ {}{DIM:#}", one_line(&finding.fix));
            }
        }
        let count = |level| {
            let findings = self.checks.iter().flat_map(|check| &check.findings);
            findings.filter(|finding| finding.level == level).count()
        };
        let advice = match count(Level::Advice) {
            0 => String::new(),
            1 => ", 1 piece of advice".to_owned(),
            pieces => format!(", {pieces} pieces of advice"),
        };
        let _ = match count(Level::Problem) {
            0 => writeln!(text, "\n{GREEN}Nothing is wrong{GREEN:#}{advice}."),
            problems => {
                writeln!(text, "\n{RED}{} to mend{RED:#}{advice}.", counted(problems, "problem"))
            }
        };
        text
    }
}
