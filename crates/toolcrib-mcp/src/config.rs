//! What is known of a server before it is asked: how to reach it, and its limits.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use toolcrib_wire::Era;

/// How to reach an MCP server, and how to treat it.
///
/// ```
/// use toolcrib_mcp::ServerConfig;
///
/// let files = ServerConfig::command("files", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let docs = ServerConfig::http("docs", "https://example.com/mcp").header("authorization", "Bearer …");
/// # let _ = (files, docs);
/// ```
#[derive(Clone)]
pub struct ServerConfig {
    /// What the server is called here. Its tools carry the name.
    pub name: String,
    /// How to reach it.
    pub launch: Launch,
    /// The name people read, in place of the server's own.
    pub title: Option<String>,
    /// One line on what it can do, in place of the server's own.
    pub description: Option<String>,
    /// Whether all its tools are sent in full.
    pub eager: bool,
    /// Globs of tools to take; all, if there are none.
    pub include: Vec<String>,
    /// Globs of tools to leave out.
    pub exclude: Vec<String>,
    /// How long it may take to start and list its tools.
    pub start_limit: Duration,
    /// How long a call may stay silent.
    pub call_limit: Option<Duration>,
    /// Stop it when it was not called for this long.
    pub idle_stop: Option<Duration>,
    /// How to speak to it; both ways are tried unless told.
    pub era: Option<Era>,
    /// Whether what its tools say about their effects counts. If not, each counts as one that may
    /// destroy something.
    pub trust_annotations: bool,
    /// Which clients have connections of their own.
    pub sessions: Sharing,
    /// How many connections it may have besides the shared ones; 8 unless told, 64 over HTTP.
    pub connections: Option<usize>,
    /// How many calls may run at a time.
    pub in_flight: usize,
    /// How many calls may wait for their turn.
    pub queue: usize,
    /// How to log in, for a server over HTTP that wants it and has no `Authorization` header.
    pub oauth: OAuth,
}

/// How to log in at a server. Nothing of it is needed where the authorization server registers
/// clients by itself.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OAuth {
    /// The authorization server to log in at, by its issuer. Without it, whichever the server
    /// names; with a `client_secret` it is needed, since the secret goes there.
    pub issuer: Option<String>,
    /// The client that was registered for this program.
    pub client_id: Option<String>,
    /// Its secret, if it has one.
    pub client_secret: Option<String>,
    /// The address of a client metadata document: it stands for a registration with authorization
    /// servers that read such documents.
    pub client_metadata_url: Option<String>,
    /// What to ask for besides what the server wants.
    pub scopes: Vec<String>,
    /// The port on this machine that a browser brings the answer to; any that is free, unless
    /// given.
    pub redirect_port: Option<u16>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth")
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .field("has_secret", &self.client_secret.is_some())
            .field("client_metadata_url", &self.client_metadata_url)
            .field("scopes", &self.scopes)
            .field("redirect_port", &self.redirect_port)
            .finish()
    }
}

/// Which clients have connections to a server that are their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// Those that the server may ask something, and over HTTP all that keep a session.
    #[default]
    Auto,
    /// None: all share one, and no client can be asked over a session.
    Shared,
    /// All that keep a session.
    Own,
}

/// How to reach a server.
#[derive(Clone)]
pub enum Launch {
    /// Start a program and speak over its standard input and output.
    Command {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Its environment.
        env: Environment,
        /// Where to run it.
        cwd: Option<PathBuf>,
    },
    /// Speak streamable HTTP.
    Http {
        /// Where.
        url: String,
        /// Sent with every request.
        headers: Vec<(String, String)>,
    },
}

/// The environment of a program.
#[derive(Clone, Default)]
pub struct Environment {
    /// What it gets of this program's own environment; `None` is all of it.
    pub inherited: Option<BTreeMap<String, String>>,
    /// What is set for it besides. These values are taken for secrets: they are kept out of logs
    /// and errors.
    pub own: BTreeMap<String, String>,
}

impl ServerConfig {
    /// A program that speaks MCP over its standard input and output.
    pub fn command<S: Into<String>>(
        name: impl Into<String>,
        command: impl Into<String>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let launch = Launch::Command {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Environment::default(),
            cwd: None,
        };
        Self::new(name.into(), launch)
    }

    /// A server that speaks streamable HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name.into(), Launch::Http { url: url.into(), headers: Vec::new() })
    }

    fn new(name: String, launch: Launch) -> Self {
        Self {
            name,
            launch,
            title: None,
            description: None,
            eager: false,
            include: Vec::new(),
            exclude: Vec::new(),
            start_limit: Duration::from_secs(30),
            call_limit: Some(Duration::from_secs(300)),
            idle_stop: Some(Duration::from_secs(600)),
            era: None,
            oauth: OAuth::default(),
            trust_annotations: true,
            sessions: Sharing::Auto,
            connections: None,
            in_flight: 256,
            queue: 1_000,
        }
    }

    /// How many connections there may be besides the shared ones.
    pub(crate) fn connections(&self) -> usize {
        let usual = match self.launch {
            Launch::Command { .. } => 8,
            Launch::Http { .. } => 64,
        };
        // As many as can be told apart.
        self.connections.unwrap_or(usual).clamp(1, 200)
    }

    /// Sets an environment variable of the program; of no consequence for HTTP.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Launch::Command { env, .. } = &mut self.launch {
            env.own.insert(name.into(), value.into());
        }
        self
    }

    /// Sends a header with every request; of no consequence for a program.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        if let Launch::Http { headers, .. } = &mut self.launch {
            headers.push((name.into(), value.into()));
        }
        self
    }

    /// Stands for the configuration as far as it decides what the server lists, credentials
    /// included.
    pub fn key(&self) -> String {
        #[derive(Serialize)]
        enum Key<'a> {
            Command(&'a str, &'a [String], &'a BTreeMap<String, String>, &'a Option<PathBuf>),
            Http(&'a str, &'a [(String, String)]),
        }
        let launch = match &self.launch {
            Launch::Command { command, args, env, cwd } => {
                Key::Command(command, args, &env.own, cwd)
            }
            Launch::Http { url, headers } => Key::Http(url, headers),
        };
        // Strings and lists of strings: they serialise, but for a path that is no text.
        let text = serde_json::to_vec(&(&self.name, launch, self.era.map(Era::newest)));
        blake3::hash(&text.unwrap_or_default()).to_hex().to_string()
    }
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let launch = match &self.launch {
            Launch::Command { command, .. } => command.clone(),
            Launch::Http { url, .. } => place(url),
        };
        f.debug_struct("ServerConfig")
            .field("name", &self.name)
            .field("launch", &launch)
            .finish_non_exhaustive()
    }
}

/// An address without what may be secret in it.
fn place(url: &str) -> String {
    let Ok(mut url) = url.parse::<reqwest::Url>() else { return "no address".to_owned() };
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_changes_with_whatever_may_change_the_list() {
        let plain = ServerConfig::command("a", "run", ["x"]);
        let other = [
            ServerConfig::command("b", "run", ["x"]),
            ServerConfig::command("a", "run", ["x", ""]),
            ServerConfig::command("a", "run", ["x"]).env("TOKEN", "1"),
            ServerConfig::http("a", "run"),
            ServerConfig { era: Some(Era::Stateless), ..plain.clone() },
        ];
        for other in other {
            assert_ne!(plain.key(), other.key(), "{other:?}");
        }
        let limits = ServerConfig { start_limit: Duration::ZERO, eager: true, ..plain.clone() };
        assert_eq!(plain.key(), limits.key());
    }
}
