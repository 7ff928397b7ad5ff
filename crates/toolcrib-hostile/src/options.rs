//! What the command line says.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use toolcrib_wire::Era;

use crate::catalog::{Eras, FAULTS, Fault, Transports, Value};
use crate::limits::Limits;
use crate::server::Step;

const ABOUT: &str = "An MCP server that misbehaves on purpose, one flag per fault.

Without a flag it behaves: four tools (echo, add, sleep, counter), both eras of the protocol, over \
standard input and output or, with --http, over streamable HTTP on the loopback. Every flag under \
the headings below is one fault. Flags can be combined, and limits hold for each fault by itself.";

const EXAMPLES: &str = "Examples:
  toolcrib-hostile --hang-at-call --times 3          the first three calls are never answered
  toolcrib-hostile --exit-at-start 7 --until /tmp/x  does not start while /tmp/x exists
  toolcrib-hostile --garbage --at any --chance 20    noise before every fifth answer or so
  toolcrib-hostile --http 0 --http-drop              prints its address; breaks off its answers";

/// What to do.
pub(crate) enum Task {
    Serve(Box<Options>),
    List,
}

/// How to serve.
pub(crate) struct Options {
    /// The port, if over HTTP.
    pub(crate) http: Option<u16>,
    /// Whether every answer over HTTP is a stream of events.
    pub(crate) events: bool,
    /// The only era that is spoken.
    pub(crate) only: Option<Era>,
    pub(crate) seed: u64,
    pub(crate) limits: Limits,
    pub(crate) faults: Vec<Chosen>,
}

/// A fault that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) fault: &'static Fault,
    pub(crate) number: u64,
    pub(crate) text: String,
}

/// Reads the arguments. Where they are wrong, or ask for help, the process ends here.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Task {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(args).unwrap_or_else(|error| error.exit());
    match read(&matches) {
        Ok(task) => task,
        Err(problem) => command.error(ErrorKind::ArgumentConflict, problem).exit(),
    }
}

fn command() -> Command {
    let flag = |name: &'static str, about: &'static str| Arg::new(name).long(name).help(about);
    let mut command = Command::new("toolcrib-hostile")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(EXAMPLES)
        .arg(
            flag("http", "Serve streamable HTTP at http://127.0.0.1:PORT/mcp; 0 for a free port")
                .value_name("PORT")
                .value_parser(value_parser!(u16)),
        )
        .arg(flag("events", "Over HTTP, answer with events only").action(ArgAction::SetTrue))
        .arg(
            flag("era", "Speak one era only [default: both]")
                .value_parser(PossibleValuesParser::new(["sessions", "stateless"])),
        )
        .arg(
            flag("seed", "For whatever is left to chance")
                .value_parser(value_parser!(u64))
                .default_value("1"),
        )
        .arg(flag("list", "Print all faults as JSON and exit").action(ArgAction::SetTrue))
        .next_help_heading("Limits")
        .arg(
            flag("times", "Only the first N times")
                .value_name("N")
                .value_parser(value_parser!(u64)),
        )
        .arg(
            flag("after", "Not before N calls of a tool")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .default_value("0"),
        )
        .arg(
            flag("until", "Only as long as this file exists")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            flag("chance", "Only so often of a hundred times")
                .value_name("PERCENT")
                .value_parser(value_parser!(u64).range(0..=100))
                .default_value("100"),
        )
        .arg(
            flag("at", "Where faults in answers strike")
                .value_name("STEP")
                .value_delimiter(',')
                .value_parser(PossibleValuesParser::new(Step::NAMES))
                .default_value("call"),
        )
        .arg(
            flag(
                "record",
                "Write calls and faults down here, a line each, and count what is there \
                 already, so that --times and --after hold across restarts",
            )
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf)),
        );
    for fault in FAULTS {
        command = command.arg(argument(fault));
    }
    command
}

fn argument(fault: &Fault) -> Arg {
    let mut help = fault.about.to_owned();
    if let Value::Number { default, .. } | Value::Text { default, .. } = fault.value {
        help += &format!(" [default: {default}]");
    }
    help += match fault.transports {
        Transports::Stdio => " (stdio)",
        Transports::Http => " (HTTP)",
        Transports::Both => "",
    };
    let arg = Arg::new(fault.name).long(fault.name).help(help);
    let arg = arg.help_heading(fault.family.title());
    match fault.value {
        Value::None => arg.action(ArgAction::SetTrue),
        Value::Number { name, default, most } => arg
            .value_name(name)
            .num_args(0..=1)
            .default_missing_value(default)
            .value_parser(value_parser!(u64).range(0..=most)),
        Value::Text { name, default } => {
            arg.value_name(name).num_args(0..=1).default_missing_value(default)
        }
    }
}

fn read(matches: &ArgMatches) -> Result<Task, String> {
    if matches.get_flag("list") {
        return Ok(Task::List);
    }
    let http = matches.get_one::<u16>("http").copied();
    let only = match matches.get_one::<String>("era").map(String::as_str) {
        Some("sessions") => Some(Era::Sessions),
        Some(_) => Some(Era::Stateless),
        None => None,
    };
    let mut faults = Vec::new();
    for fault in FAULTS {
        let (mut number, mut text) = (0, String::new());
        let is_chosen = match fault.value {
            Value::None => matches.get_flag(fault.name),
            Value::Number { .. } => match matches.get_one::<u64>(fault.name) {
                Some(given) => {
                    number = *given;
                    true
                }
                None => false,
            },
            Value::Text { .. } => match matches.get_one::<String>(fault.name) {
                Some(given) => {
                    text.clone_from(given);
                    true
                }
                None => false,
            },
        };
        if is_chosen {
            can_happen(fault, http.is_some(), only)?;
            faults.push(Chosen { fault, number, text });
        }
    }
    // What is said comes before how it is said, or there would be nothing left to change.
    faults.sort_by_key(|chosen| !chosen.fault.family.is_of_content());
    let at = matches.get_many::<String>("at").into_iter().flatten();
    Ok(Task::Serve(Box::new(Options {
        http,
        events: matches.get_flag("events"),
        only,
        seed: matches.get_one::<u64>("seed").copied().unwrap_or(1),
        limits: Limits {
            times: matches.get_one::<u64>("times").copied(),
            after: matches.get_one::<u64>("after").copied().unwrap_or(0),
            until: matches.get_one::<PathBuf>("until").cloned(),
            chance: matches.get_one::<u64>("chance").copied().unwrap_or(100),
            at: at.flat_map(|name| Step::named(name)).copied().collect(),
            record: matches.get_one::<PathBuf>("record").cloned(),
        },
        faults,
    })))
}

/// A fault that can never happen would make a test pass for nothing.
fn can_happen(fault: &Fault, is_http: bool, only: Option<Era>) -> Result<(), String> {
    let name = fault.name;
    match (fault.transports, is_http) {
        (Transports::Http, false) => return Err(format!("--{name} needs --http PORT")),
        (Transports::Stdio, true) => {
            return Err(format!("--{name} has no meaning over HTTP; leave out --http"));
        }
        _ => {}
    }
    let era = match (fault.eras, only) {
        (Eras::Sessions, Some(Era::Stateless)) => "sessions",
        (Eras::Stateless, Some(Era::Sessions)) => "stateless",
        _ => return Ok(()),
    };
    Err(format!("--{name} happens with `--era {era}` only"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(args: &[&str]) -> Result<Task, String> {
        let args = std::iter::once("toolcrib-hostile").chain(args.iter().copied());
        read(&command().get_matches_from(args))
    }

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn every_flag_works_without_a_value() {
        for fault in FAULTS {
            let flag = format!("--{}", fault.name);
            let mut args = vec![&*flag];
            if fault.transports == Transports::Http {
                args.extend(["--http", "0"]);
            }
            let Ok(Task::Serve(options)) = task(&args) else { panic!("{flag}") };
            let chosen: Vec<&str> = options.faults.iter().map(|it| it.fault.name).collect();
            assert_eq!(chosen, [fault.name]);
            let Value::Number { default, .. } = fault.value else { continue };
            assert_eq!(options.faults[0].number.to_string(), default, "{flag}");
        }
    }

    #[test]
    fn what_could_never_happen_is_refused() {
        let problem = |args| task(args).err().unwrap();
        assert_eq!(problem(&["--http-drop"]), "--http-drop needs --http PORT");
        assert!(problem(&["--never-read", "--http", "0"]).contains("leave out --http"));
        let args = ["--hang-at-discover", "--era", "sessions"];
        assert!(problem(&args).contains("--era stateless"));
    }
}
