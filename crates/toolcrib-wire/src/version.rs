//! The two ways MCP is spoken, and the words of each.

/// How a client and a server speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Revisions up to 2025-11-25: `initialize`, then a session.
    Sessions,
    /// From 2026-07-28: no session; every request says what it needs to.
    Stateless,
}

impl Era {
    /// The era a protocol version belongs to; `None` if the version is unknown.
    pub fn of(version: &str) -> Option<Self> {
        if SESSION_VERSIONS.contains(&version) {
            Some(Self::Sessions)
        } else {
            (version == STATELESS_VERSION).then_some(Self::Stateless)
        }
    }

    /// The newest version of the era.
    pub fn newest(self) -> &'static str {
        match self {
            Self::Sessions => SESSION_VERSIONS[0],
            Self::Stateless => STATELESS_VERSION,
        }
    }
}

/// The versions with sessions, newest first.
pub const SESSION_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The version without.
pub const STATELESS_VERSION: &str = "2026-07-28";

/// Keys of `_meta` that the protocol itself uses.
pub mod meta {
    /// In a request: which version it is in.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// In a request: what the client calls itself.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// In a request: what the client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// In a request: which log messages it wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// In a result: what the server calls itself.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// In a notification: the subscription it belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
    /// In a request: what to name in progress notifications.
    pub const PROGRESS_TOKEN: &str = "progressToken";

    /// Keys that concern one connection and are not passed on to the next.
    pub const HOP_BY_HOP: [&str; 5] =
        [PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL, PROGRESS_TOKEN];
}

/// Names of HTTP headers, in lower case.
pub mod header {
    /// The session, where there is one.
    pub const SESSION_ID: &str = "mcp-session-id";
    /// The protocol version.
    pub const PROTOCOL_VERSION: &str = "mcp-protocol-version";
    /// The method of the request in the body.
    pub const METHOD: &str = "mcp-method";
    /// The tool, prompt or resource the request in the body is about.
    pub const NAME: &str = "mcp-name";
}
