//! Asking a person whether a tool may run.

use serde_json::Value;
use toolcrib::agent::{Approval, PendingCall};

use crate::input::{Input, Line};
use crate::output::{self, BOLD, number, one_line, undisguised};

/// What is asked, behind what it is about.
const MAY_IT: &str = "[y]es, [a]lways (whatever the arguments), [n]o, ne[v]er, or why not: ";

/// The most characters of one argument that are shown.
const MOST_SHOWN: usize = 2_000;

/// Asks whoever is at the terminal; where nobody is, says so once and lets nothing through.
pub(crate) struct Doorkeeper {
    pub(crate) input: Input,
    /// Whether there is nothing more to say about it.
    has_told: bool,
}

impl Doorkeeper {
    pub(crate) fn new(input: Input, quiet: bool) -> Self {
        Self { input, has_told: quiet }
    }

    /// Asks; nothing if they would rather end the whole run.
    pub(super) async fn ask(&mut self, call: &PendingCall) -> Option<Approval> {
        if !output::is_attended() {
            if !std::mem::replace(&mut self.has_told, true) {
                output::warn(&format!(
                    "`{}` was not run: it needs permission, and nobody can be asked here; --yes \
                     gives it, and so does a rule under [agent] in toolcrib.toml",
                    call.name
                ));
            }
            let why = "it needs permission, and nobody can be asked here";
            return Some(Approval::No(Some(why.to_owned())));
        }
        output::ask(&question(call));
        match self.input.answer(MAY_IT).await {
            Ok(Line::Text(answer)) => Some(approval(&answer)),
            Ok(Line::Interrupted) => None,
            Ok(Line::End) | Err(_) => Some(Approval::No(None)),
        }
    }
}

/// What is asked about: the tool and its arguments.
fn question(call: &PendingCall) -> String {
    let effect = match &call.annotations {
        it if it.is_read_only() => "it says it changes nothing",
        it if it.is_destructive() => "it may change or delete things",
        _ => "it may change things",
    };
    let mut text = format!("{BOLD}{}{BOLD:#} wants to run; {effect}.\n", one_line(&call.name));
    if let Value::Object(arguments) = &call.arguments {
        for (name, value) in arguments {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            text.push_str(&format!("  {}: {}\n", one_line(name), inset(&value)));
        }
    }
    text
}

/// A value of any length, with its later lines set in. What is left out is told of: somebody
/// decides by this.
fn inset(value: &str) -> String {
    let mut text = undisguised(&value.chars().take(MOST_SHOWN).collect::<String>());
    let more = value.chars().count().saturating_sub(MOST_SHOWN);
    if more > 0 {
        text.push_str(&format!("… and {} more characters", number(more as u64)));
    }
    text.replace('\n', "\n    ")
}

/// What an answer means. Anything but the four words is a reason not to.
fn approval(answer: &str) -> Approval {
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" => Approval::Once,
        "a" | "always" => Approval::Always,
        "" | "n" | "no" => Approval::No(None),
        "v" | "never" => Approval::Never,
        _ => Approval::No(Some(answer.trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        for (answer, expected) in [
            ("y", Approval::Once),
            (" YES \n", Approval::Once),
            ("a", Approval::Always),
            ("v", Approval::Never),
            ("n", Approval::No(None)),
            ("", Approval::No(None)),
            ("yes, but only twice", Approval::No(Some("yes, but only twice".to_owned()))),
            ("use the other file", Approval::No(Some("use the other file".to_owned()))),
        ] {
            assert_eq!(approval(answer), expected, "{answer}");
        }
    }

    #[test]
    fn what_is_left_out_of_an_argument_is_told_of() {
        assert_eq!(inset("a\nb\x1b"), "a\n    b\u{fffd}");
        let long = inset(&"x".repeat(MOST_SHOWN + 1_234));
        assert!(long.ends_with("x… and 1,234 more characters"), "{long}");
    }

    #[test]
    fn a_question_shows_what_is_there_in_the_order_it_is_there() {
        let disguised = "ls \u{202e}fr- mr\u{2066} \u{200b}x\u{feff}\u{61c}\u{2060}é 日本";
        assert_eq!(
            inset(disguised),
            "ls \u{fffd}fr- mr\u{fffd} \u{fffd}x\u{fffd}\u{fffd}\u{fffd}é 日本"
        );
        assert_eq!(one_line("a\u{200f}\n\u{2069}b"), "a\u{fffd} \u{fffd}b");
    }
}
