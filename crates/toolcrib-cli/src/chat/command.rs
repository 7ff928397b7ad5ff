//! What may be typed at the prompt besides messages.

use toolcrib::StrategyChoice;

use crate::output::suggest;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Tools(Option<String>),
    Load(Vec<String>),
    Unload(Vec<String>),
    Stats,
    Cost,
    Compact,
    Strategy(Option<StrategyChoice>),
    Model(Option<String>),
    Rename(String),
    Fork,
    Back,
    Clear,
    Quit,
}

/// What the commands are called.
pub(super) const NAMES: [&str; 14] = [
    "/help",
    "/tools",
    "/load",
    "/unload",
    "/stats",
    "/cost",
    "/compact",
    "/strategy",
    "/model",
    "/rename",
    "/fork",
    "/back",
    "/clear",
    "/quit",
];

pub(super) const HELP: &str = "\
/tools [QUERY]        the servers and what is loaded; or the tools that fit a query
/load NAME…           load tools for the model
/unload NAME…         have it forget them
/stats                what this conversation holds and has taken
/cost                 what this conversation has cost, also in earlier programs
/compact              put a summary in place of its older part
/strategy [WORD]      how schemas arrive: dispatch, inject, native or auto; begins a new conversation
/model [NAME]         ask another model from here on
/rename TITLE         have `toolcrib sessions` list this conversation under another title
/fork                 go on in a copy of this conversation
/back                 return from it, as if nothing had been said there
/clear                begin a new conversation
/quit                 leave, as Ctrl-D does

A backslash at the end of a line continues the message. Ctrl-C cancels what is under way.
";

impl Command {
    /// The command in a line, or what is wrong with it. Nothing if it is a message: also if it
    /// only begins as one, with a path for instance.
    pub(super) fn parse(line: &str) -> Option<Result<Self, String>> {
        let (word, rest) = match line.trim().split_once(char::is_whitespace) {
            Some((word, rest)) => (word, rest.trim()),
            None => (line.trim(), ""),
        };
        let name = word.strip_prefix('/')?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphabetic()) {
            return None;
        }
        let one = || (!rest.is_empty()).then(|| rest.to_owned());
        let several = || match rest.is_empty() {
            true => Err(format!("{word} needs the name of a tool; `/tools QUERY` finds it")),
            false => {
                Ok(rest.split([' ', ',', '\n']).filter(|it| !it.is_empty()).map(str::to_owned))
            }
        };
        Some(match word {
            "/tools" => Ok(Self::Tools(one())),
            "/load" => several().map(|names| Self::Load(names.collect())),
            "/unload" => several().map(|names| Self::Unload(names.collect())),
            "/model" => Ok(Self::Model(one())),
            "/rename" => one().map(Self::Rename).ok_or("/rename needs a title".to_owned()),
            "/strategy" => match rest {
                "" => Ok(Self::Strategy(None)),
                "dispatch" => Ok(Self::Strategy(Some(StrategyChoice::Dispatch))),
                "inject" => Ok(Self::Strategy(Some(StrategyChoice::Inject))),
                "native" => Ok(Self::Strategy(Some(StrategyChoice::Native))),
                "auto" => Ok(Self::Strategy(Some(StrategyChoice::Auto))),
                _ => Err("a strategy is dispatch, inject, native or auto".to_owned()),
            },
            _ if NAMES.contains(&word) && !rest.is_empty() => {
                Err(format!("{word} takes nothing behind it"))
            }
            "/help" => Ok(Self::Help),
            "/stats" => Ok(Self::Stats),
            "/cost" => Ok(Self::Cost),
            "/compact" => Ok(Self::Compact),
            "/fork" => Ok(Self::Fork),
            "/back" => Ok(Self::Back),
            "/clear" => Ok(Self::Clear),
            "/quit" => Ok(Self::Quit),
            _ => {
                let hint = suggest(word, NAMES).unwrap_or_default();
                Err(format!("there is no command {word}{hint} (/help lists them)"))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
        let parse = |line| Command::parse(line);
        for message in ["hello", "", "/", "/etc/hosts is what?", "//", "/2 of them", "a /help"] {
            assert_eq!(parse(message), None, "{message}");
        }
        assert_eq!(parse(" /help "), Some(Ok(Command::Help)));
        assert_eq!(
            parse("/tools read a file"),
            Some(Ok(Command::Tools(Some("read a file".into()))))
        );
        assert_eq!(
            parse("/load a, b  c"),
            Some(Ok(Command::Load(vec!["a".into(), "b".into(), "c".into()])))
        );
        assert_eq!(
            parse("/strategy inject"),
            Some(Ok(Command::Strategy(Some(StrategyChoice::Inject))))
        );
        assert_eq!(parse("/rename a  b "), Some(Ok(Command::Rename("a  b".into()))));
        for (line, reason) in [
            ("/laod x", "there is no command /laod; did you mean `/load`? (/help lists them)"),
            ("/load", "/load needs the name of a tool; `/tools QUERY` finds it"),
            ("/strategy natural", "a strategy is dispatch, inject, native or auto"),
            ("/rename ", "/rename needs a title"),
            ("/fork it", "/fork takes nothing behind it"),
        ] {
            assert_eq!(parse(line), Some(Err(reason.to_owned())));
        }
    }

    #[test]
    fn every_command_is_explained() {
        for name in NAMES.iter().filter(|name| **name != "/help") {
            assert!(HELP.contains(&format!("{name} ")), "{name}");
        }
    }
}
