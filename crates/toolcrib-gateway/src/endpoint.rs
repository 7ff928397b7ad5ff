//! What a client sees of the tools.

use std::fmt;
use std::str::FromStr;

/// A way to look at the tools. Each has an address of its own, so that what a client lists never
/// depends on which program it is; only on what it may see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `/mcp`: verbs to find, load and call tools with.
    #[default]
    Meta,
    /// `/mcp/full`: every tool as its server describes it, for clients that defer by themselves.
    Full,
    /// `/mcp/inject`: verbs, and behind them the tools that were loaded. For clients of the
    /// session era that list again when told to.
    Inject,
    /// `/mcp/s/{server}`: one server under its tools' own names.
    Server(String),
}

/// What names no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no endpoint: there are `meta`, `full`, `inject` and `s/SERVER`")]
pub struct UnknownEndpoint(String);

impl FromStr for Endpoint {
    type Err = UnknownEndpoint;

    fn from_str(text: &str) -> Result<Self, UnknownEndpoint> {
        match text {
            "" | "meta" => Ok(Self::Meta),
            "full" => Ok(Self::Full),
            "inject" => Ok(Self::Inject),
            _ => match text.strip_prefix("s/") {
                Some(server) if !server.is_empty() => Ok(Self::Server(server.to_owned())),
                _ => Err(UnknownEndpoint(text.to_owned())),
            },
        }
    }
}

/// The path it is served under.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("/mcp"),
            Self::Full => f.write_str("/mcp/full"),
            Self::Inject => f.write_str("/mcp/inject"),
            Self::Server(server) => write!(f, "/mcp/s/{server}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_read_from_its_short_name() {
        let server = Endpoint::Server("git".to_owned());
        for (text, endpoint) in [("", Endpoint::Meta), ("full", Endpoint::Full), ("s/git", server)]
        {
            assert_eq!(text.parse(), Ok(endpoint));
        }
        for wrong in ["s/", "s", "/mcp", "FULL"] {
            assert!(wrong.parse::<Endpoint>().is_err(), "{wrong}");
        }
    }
}
