//! A few invented servers, so that every command has something to show.

/// In the form that `--tools` reads: a list of servers with their tools.
pub(crate) const SERVERS: &str = include_str!("../data/sample.json");

/// What to search for when nothing is asked.
pub(crate) const QUERY: &str = "open a pull request";
