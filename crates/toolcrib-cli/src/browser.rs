//! Bringing a person to a page.

use std::process::{Command, Stdio};
use std::thread;

use crate::config::Environment;

/// Opens a page in the person's browser: the one of `$BROWSER`, or the system's. Says whether
/// there was one to start.
pub(crate) fn open(url: &str, env: &Environment) -> bool {
    // Anything else may be a program to start.
    if !url.starts_with("https://") && !url.starts_with("http://") {
        return false;
    }
    let chosen = env.get("BROWSER").unwrap_or_default();
    let chosen = chosen.split(':').filter(|command| !command.trim().is_empty());
    let system = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    chosen.chain([system]).any(|command| start(command, url))
}

/// The words of a command, with the page in the place of `%s` or behind them.
fn words(command: &str, url: &str) -> Vec<String> {
    let mut words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
    match words.iter().position(|word| word == "%s") {
        Some(at) => words[at] = url.to_owned(),
        None => words.push(url.to_owned()),
    }
    words
}

fn start(command: &str, url: &str) -> bool {
    let words = words(command, url);
    let Some((program, arguments)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(mut child) => {
            // Its end is nobody's business, but somebody has to take note of it.
            thread::spawn(move || child.wait());
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_one_word_of_a_command() {
        let page = "https://a/?b=c&d=e f;g";
        assert_eq!(words("firefox --new-tab", page), ["firefox", "--new-tab", page]);
        assert_eq!(words("run %s --x", page), ["run", page, "--x"]);
    }

    #[test]
    fn only_pages_are_opened() {
        let env = Environment::from([("BROWSER", "true")]);
        assert!(open("https://a/", &env));
        assert!(!open("file:///bin/sh", &env));
        assert!(!open("--version", &env));
    }
}
