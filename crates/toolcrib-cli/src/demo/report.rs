//! What happened, as data and as it is told.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::output::{BOLD, CYAN, DIM, GREEN, YELLOW, duration, number, one_line, saved};

/// The longest line of a result that is shown, and how many of them.
const MOST_CHARS: usize = 84;
const MOST_LINES: usize = 6;

#[derive(Default, Serialize)]
pub(super) struct Report {
    pub(super) full: Bill,
    pub(super) deferred: Bill,
    pub(super) steps: Vec<Step>,
    pub(super) totals: Totals,
}

/// What a client sends to a model before anything is said. In tokens but for the first two.
#[derive(Clone, Copy, Default, Serialize)]
pub(super) struct Bill {
    pub(super) servers: usize,
    pub(super) tools: usize,
    pub(super) definitions: u64,
    pub(super) instructions: u64,
    pub(super) tokens: u64,
    pub(super) ms: u64,
}

/// A call of the model's, and what came of it.
#[derive(Serialize)]
pub(super) struct Step {
    pub(super) what: What,
    /// The tool of the gateway's that was called.
    pub(super) verb: &'static str,
    /// The tool that was meant by it, if it is one.
    pub(super) tool: Option<&'static str>,
    pub(super) arguments: Map<String, Value>,
    pub(super) result: String,
    pub(super) is_error: bool,
    /// Tokens of the result, if it is there to tell of tools.
    pub(super) tokens: u64,
    pub(super) ms: u64,
    #[serde(skip)]
    pub(super) shown: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Search,
    Load,
    BlindCall,
    RepairedCall,
    Call,
}

#[derive(Default, Serialize)]
pub(super) struct Totals {
    /// Tokens of all definitions.
    pub(super) full: u64,
    /// Tokens of what was sent in their place, from the first request to the last.
    pub(super) sent: u64,
    /// In per cent.
    pub(super) saved: f64,
    pub(super) calls: usize,
    pub(super) ms: u64,
}

impl What {
    fn title(self) -> &'static str {
        match self {
            Self::Search => "3  A search brings the definitions it finds",
            Self::Load => "4  A load brings those of a server",
            Self::BlindCall => "5  A blind call: nothing was looked up, so the arguments are wrong",
            Self::RepairedCall => "   The error says what fits; the same call, repaired from it",
            Self::Call => "6  Real results",
        }
    }
}

pub(super) fn opening(servers: usize) -> String {
    format!(
        "{BOLD}A client, the gateway and {servers} built-in servers, each a process of its own.\
         {BOLD:#}\n{DIM}No key, no network, no configuration. What follows happens now.{DIM:#}\n"
    )
}

pub(super) fn full_bill(bill: &Bill) -> String {
    let Bill { servers, tools, tokens, ms, .. } = *bill;
    format!(
        "\n{BOLD}1  Every definition, as clients send them{BOLD:#}\n{}",
        amount(&format!("{tools} tools of {servers} servers"), tokens, "in every request", ms)
    )
}

pub(super) fn deferred_bill(bill: &Bill, full: &Bill, verbs: &[String]) -> String {
    let Bill { definitions, instructions, tokens, ms, .. } = *bill;
    let mut text = format!("\n{BOLD}2  The same behind the gateway{BOLD:#}\n");
    for (what, tokens) in
        [(&*verbs.join(", "), definitions), ("a catalog, as instructions", instructions)]
    {
        let _ = writeln!(text, "   {what:<44}{:>8}", number(tokens));
    }
    let less = format!("{GREEN}{:.1} % less{GREEN:#}", saved(tokens, full.tokens));
    text + &amount("together", tokens, &less, ms)
}

fn amount(what: &str, tokens: u64, so: &str, ms: u64) -> String {
    let took = duration(Duration::from_millis(ms));
    let tokens = number(tokens);
    format!("   {what:<44}{BOLD}{tokens:>8} tokens{BOLD:#} {so} {DIM}({took}){DIM:#}\n")
}

impl Step {
    pub(super) fn describe(&self, before: Option<What>) -> String {
        let mut text = String::new();
        if before != Some(self.what) {
            let gap = if self.what == What::RepairedCall { "" } else { "\n" };
            let _ = writeln!(text, "{gap}{BOLD}{}{BOLD:#}", self.what.title());
        }
        let name = match self.tool {
            Some(tool) => format!("{} {tool}", self.verb),
            None => self.verb.to_owned(),
        };
        let arguments = clipped(&Value::Object(self.arguments.clone()).to_string());
        let _ = writeln!(text, "   {CYAN}→ {name}{CYAN:#} {arguments}");
        let style = if self.is_error { YELLOW } else { GREEN };
        let lines: Vec<&str> = self.shown.lines().filter(|line| !line.trim().is_empty()).collect();
        for (at, line) in lines.iter().take(MOST_LINES).enumerate() {
            let arrow = if at == 0 { "←" } else { " " };
            let _ = write!(text, "   {style}{arrow}{style:#} {}", clipped(line));
            if at + 1 < lines.len().min(MOST_LINES) {
                text.push('\n');
            }
        }
        let took = duration(Duration::from_millis(self.ms));
        let cost = match self.tokens {
            0 => took,
            tokens => format!("{} tokens, {took}", number(tokens)),
        };
        let _ = writeln!(text, " {DIM}({cost}){DIM:#}");
        text
    }
}

impl Totals {
    pub(super) fn describe(&self) -> String {
        let [full, sent] = [self.full, self.sent].map(number);
        let took = duration(Duration::from_millis(self.ms));
        let saved = self.saved;
        format!(
            "\n{BOLD}Totals{BOLD:#}\n   {full} tokens of definitions, in every request; or {sent} \
             with everything that was\n   looked up on the way: {GREEN}{BOLD}{saved:.1} % \
             saved{BOLD:#}{GREEN:#}, with the same results. {} calls, {took} in all.\n\n\
             {BOLD}Next{BOLD:#}\n   toolcrib import                     take over the servers your \
             clients have\n   toolcrib client-config claude-code  what to paste into a client in \
             return\n",
            self.calls
        )
    }
}

fn clipped(line: &str) -> String {
    let line = one_line(line);
    match line.char_indices().nth(MOST_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
