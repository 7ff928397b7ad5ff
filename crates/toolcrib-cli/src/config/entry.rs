//! `[servers.NAME]`: an MCP server as the file describes it.

use std::fmt;

use globset::Glob;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolcrib::Definitions;

use super::oauth::OAuthEntry;
use super::secret::{self, Secret};

/// The longest name of a server, in characters.
const LONGEST_NAME: usize = 64;
/// The longest time limit, in seconds: a week.
const LONGEST_LIMIT: f64 = 7.0 * 24.0 * 3600.0;

/// The most connections to a server besides the shared ones.
const MOST_CONNECTIONS: usize = 200;

/// An MCP server: a command to start, or an address to connect to. In `command`, `args`, `env`,
/// `env_file`, `cwd`, `url`, `headers` and `bearer_token`, `${VAR}` and `${VAR:-default}` stand
/// for environment variables.
#[derive(Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerEntry {
    /// The program to start.
    pub(crate) command: Option<String>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) args: Vec<String>,
    /// The folder to start it in, relative to this file. Where toolcrib runs unless given.
    pub(crate) cwd: Option<String>,
    /// A file of `NAME=value` lines with more of its environment, relative to this file.
    pub(crate) env_file: Option<String>,
    /// Variables of toolcrib's own environment to pass on, as names or globs. HOME, LANG, LC_*,
    /// LOGNAME, PATH, SHELL, TERM, TMPDIR, TZ, USER and XDG_* always are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) inherit_env: Vec<String>,
    /// The address of a server that runs already, http or https.
    pub(crate) url: Option<String>,
    /// A token to send it as `Authorization: Bearer …`.
    pub(crate) bearer_token: Option<Secret>,
    /// How to log in, if the server wants that and takes no token of the configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oauth: Option<OAuthEntry>,
    /// Whether the server is used.
    pub(crate) enabled: bool,
    /// Whether all its tools are sent in full.
    pub(crate) eager: bool,
    /// The name its group is listed under. The server's own title unless given.
    pub(crate) group: Option<String>,
    /// One line on what it can do, for the catalog. The server's own unless given.
    pub(crate) description: Option<String>,
    /// Only these of its tools, as names or globs. All of them if there are none.
    pub(crate) include: Vec<String>,
    /// None of these.
    pub(crate) exclude: Vec<String>,
    /// How many seconds it may take to start.
    #[schemars(range(min = 0))]
    pub(crate) start_limit: f64,
    /// How many seconds a call may take. No limit if 0.
    #[schemars(range(min = 0))]
    pub(crate) call_limit: f64,
    /// Stop it when it was not called for so many seconds. Never if 0.
    #[schemars(range(min = 0))]
    pub(crate) idle_stop: f64,
    /// The protocol to speak with it.
    pub(crate) era: Era,
    /// What becomes of its tools whose definitions are not those that were approved. What holds
    /// for all unless given.
    pub(crate) definitions: Option<Definitions>,
    /// Whether what its tools say about their effects counts. If not, each may destroy something.
    pub(crate) trust_annotations: bool,
    /// Which clients of the gateway have connections to it that are their own.
    pub(crate) sessions: Sessions,
    /// How many connections it may have besides the shared ones. 8 unless given, 64 with a `url`.
    #[schemars(range(min = 1, max = 200))]
    pub(crate) connections: Option<usize>,
    /// How many calls may run at a time.
    #[schemars(range(min = 1))]
    pub(crate) in_flight: usize,
    /// How many calls may wait for their turn.
    pub(crate) queue: usize,
    /// More of its environment, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub(crate) env: IndexMap<String, Secret>,
    /// Headers to send with every request, by name.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub(crate) headers: IndexMap<String, Secret>,
    /// Why a server of another program's file can't be used.
    #[serde(skip)]
    pub(crate) unusable: Option<String>,
}

/// Which form of the protocol a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) enum Era {
    /// Found out when it starts.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// Sessions that begin with `initialize`.
    #[serde(rename = "2025")]
    Y2025,
    /// Requests that stand alone, after `server/discover`.
    #[serde(rename = "2026")]
    Y2026,
}

/// Which clients have connections of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sessions {
    /// Those that the server may ask something, and with a `url` all that keep a session.
    #[default]
    Auto,
    /// None: all share one, and no client can be asked.
    Shared,
    /// All that keep a session.
    Own,
}

impl Default for ServerEntry {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            cwd: None,
            env_file: None,
            inherit_env: Vec::new(),
            url: None,
            bearer_token: None,
            oauth: None,
            enabled: true,
            eager: false,
            group: None,
            description: None,
            include: Vec::new(),
            exclude: Vec::new(),
            start_limit: 30.0,
            call_limit: 300.0,
            idle_stop: 600.0,
            era: Era::Auto,
            definitions: None,
            trust_annotations: true,
            sessions: Sessions::Auto,
            connections: None,
            in_flight: 256,
            queue: 1_000,
            env: IndexMap::new(),
            headers: IndexMap::new(),
            unusable: None,
        }
    }
}

impl ServerEntry {
    /// The first thing wrong with it: the key at fault, if it is one key's, and the reason.
    pub(crate) fn fault(&self, name: &str) -> Option<(Option<&'static str>, String)> {
        let at = |key: &'static str, message: String| Some((Some(key), message));
        if let Some(message) = name_fault(name) {
            return Some((None, message));
        }
        match (&self.command, &self.url) {
            (Some(_), Some(_)) => {
                return at("url", "a server has a `command` or a `url`, not both".to_owned());
            }
            (None, None) => {
                return Some((None, "a server needs a `command` or a `url`".to_owned()));
            }
            (Some(command), None) if command.trim().is_empty() => {
                return at("command", "this is empty".to_owned());
            }
            (None, Some(url)) => {
                if let Some(message) = url_fault(url) {
                    return at("url", message);
                }
            }
            (Some(_), None) => {}
        }
        if let Some((key, other)) = self.misplaced() {
            return at(key, format!("this goes with `{other}`, which the server doesn't have"));
        }
        let has_header = self.headers.keys().any(|it| it.eq_ignore_ascii_case("authorization"));
        if self.bearer_token.is_some() && has_header {
            return at("bearer_token", "`headers` has an Authorization already".to_owned());
        }
        if self.oauth.is_some() && (self.bearer_token.is_some() || has_header) {
            let text = "the server has a token already; nobody logs in where there is one";
            return at("oauth", text.to_owned());
        }
        if let Some(message) = self.oauth.as_ref().and_then(OAuthEntry::fault) {
            return at("oauth", message);
        }
        if let Some(name) = self.env.keys().find(|name| !is_variable_name(name)) {
            return at("env", format!("`{name}` can't be the name of a variable"));
        }
        if let Some(name) = self.headers.keys().find(|name| !is_header_name(name)) {
            return at("headers", format!("`{name}` can't be the name of a header"));
        }
        for (key, patterns) in [
            ("include", &self.include),
            ("exclude", &self.exclude),
            ("inherit_env", &self.inherit_env),
        ] {
            if let Some(pattern) = patterns.iter().find(|pattern| Glob::new(pattern).is_err()) {
                return at(key, format!("`{pattern}` is not a valid pattern"));
            }
        }
        if self.connections.is_some_and(|count| !(1..=MOST_CONNECTIONS).contains(&count)) {
            return at("connections", format!("expected 1 to {MOST_CONNECTIONS}"));
        }
        if self.in_flight == 0 {
            return at("in_flight", "expected at least 1".to_owned());
        }
        for (key, limit, least) in [
            ("start_limit", self.start_limit, 0.001),
            ("call_limit", self.call_limit, 0.0),
            ("idle_stop", self.idle_stop, 0.0),
        ] {
            if !(least..=LONGEST_LIMIT).contains(&limit) {
                let least = if least > 0.0 { "more than 0" } else { "0" };
                return at(key, format!("expected seconds, from {least} to {LONGEST_LIMIT}"));
            }
        }
        None
    }

    /// A key that means nothing for this kind of server, and the one it goes with.
    fn misplaced(&self) -> Option<(&'static str, &'static str)> {
        let of_command = [
            ("args", !self.args.is_empty()),
            ("cwd", self.cwd.is_some()),
            ("env", !self.env.is_empty()),
            ("env_file", self.env_file.is_some()),
            ("inherit_env", !self.inherit_env.is_empty()),
        ];
        let of_url = [
            ("headers", !self.headers.is_empty()),
            ("bearer_token", self.bearer_token.is_some()),
            ("oauth", self.oauth.is_some()),
        ];
        let given =
            |keys: &[(&'static str, bool)]| keys.iter().find(|(_, is)| *is).map(|(k, _)| *k);
        match self.command {
            Some(_) => given(&of_url).map(|key| (key, "url")),
            None => given(&of_command).map(|key| (key, "command")),
        }
    }

    /// What is started or connected to, on one line, without secrets.
    pub(crate) fn shown(&self) -> String {
        match (&self.command, &self.url) {
            (Some(command), _) => {
                let words = std::iter::once(command.clone()).chain(secret::mask_args(&self.args));
                words.collect::<Vec<_>>().join(" ")
            }
            (None, Some(url)) => secret::mask_url(url),
            (None, None) => String::new(),
        }
    }

    /// Where the entry holds what is probably a secret, written out.
    pub(crate) fn literal_secrets(&self) -> Vec<String> {
        let literal = |(name, value): (&String, &Secret)| {
            secret::is_literal(name, value).then(|| name.clone())
        };
        let mut names: Vec<String> = self.env.iter().filter_map(literal).collect();
        names.extend(self.headers.iter().filter_map(literal));
        let token = self.bearer_token.iter().filter(|token| !token.is_reference());
        names.extend(token.map(|_| "bearer_token".to_owned()));
        let secret = self.oauth.iter().filter_map(|oauth| oauth.client_secret.as_ref());
        let secret = secret.filter(|secret| !secret.is_reference());
        names.extend(secret.map(|_| "oauth.client_secret".to_owned()));
        let masked = secret::mask_args(&self.args);
        // What stands behind a question mark is hidden to be safe, and seldom a secret.
        let hides = |(arg, shown): (&String, &String)| arg != shown && !shown.ends_with("?…");
        names.extend(self.args.iter().zip(&masked).any(hides).then(|| "args".to_owned()));
        names
    }
}

impl fmt::Debug for ServerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerEntry")
            .field("launch", &self.shown())
            .field("env", &self.env)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a server's name, with one that would do.
pub(crate) fn name_fault(name: &str) -> Option<String> {
    let mut clean: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    clean = clean.chars().take(LONGEST_NAME).collect();
    let what = match name {
        "" => return Some("a server needs a name".to_owned()),
        _ if name == clean => return None,
        _ if name.chars().count() > LONGEST_NAME => "is longer than 64 characters",
        _ if name.contains(char::is_control) => "has a control character",
        _ => "begins or ends with a space",
    };
    let hint = if clean.is_empty() { String::new() } else { format!("; `{clean}` would do") };
    Some(format!("the server's name {what}{hint}"))
}

pub(super) fn url_fault(url: &str) -> Option<String> {
    // What a variable stands for is looked at when it has been replaced.
    if url.starts_with("${") {
        return None;
    }
    let lower = url.to_ascii_lowercase();
    let host = lower.strip_prefix("https://").or(lower.strip_prefix("http://"));
    let is_fine = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'))
        && !url.contains(|c: char| c.is_whitespace() || c.is_control());
    (!is_fine).then(|| "expected an address that starts with http:// or https://".to_owned())
}

/// The same for an address whose variables have been replaced.
pub(super) fn is_url(url: &str) -> bool {
    !url.starts_with("${") && url_fault(url).is_none()
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn is_header_name(name: &str) -> bool {
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    !name.is_empty() && name.chars().all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_another_is_suggested() {
        assert_eq!(name_fault("io.github/x y-1"), None);
        assert_eq!(name_fault("é".repeat(64).as_str()), None);
        assert_eq!(name_fault("").unwrap(), "a server needs a name");
        assert_eq!(
            name_fault("a\nb").unwrap(),
            "the server's name has a control character; `ab` would do"
        );
        assert!(name_fault(&"x".repeat(65)).unwrap().contains("longer than 64"));
        assert!(name_fault(" a").unwrap().ends_with("begins or ends with a space; `a` would do"));
    }

    #[test]
    fn what_is_shown_of_an_entry_holds_no_secret() {
        let entry = ServerEntry {
            command: Some("npx".to_owned()),
            args: ["-y", "x", "--token", "hunter2"].map(str::to_owned).to_vec(),
            env: [("API_KEY".to_owned(), Secret::new("hunter2"))].into(),
            headers: [("X".to_owned(), Secret::new("${X}"))].into(),
            ..ServerEntry::default()
        };
        assert_eq!(entry.shown(), "npx -y x --token …");
        assert_eq!(
            format!("{entry:?}"),
            "ServerEntry { launch: \"npx -y x --token …\", env: {\"API_KEY\": \"(hidden)\"}, \
             headers: {\"X\": \"${X}\"}, .. }"
        );
        assert_eq!(entry.literal_secrets(), ["API_KEY", "args"]);
    }
}
