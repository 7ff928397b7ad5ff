//! How a gateway behaves, and how it is reached over HTTP.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::{Digest, Sha256};
use toolcrib_core::{Policy, Settings};
use toolcrib_runtime::{AuditLog, Budget};

use crate::limits::Limits;
use crate::oauth::OAuth;
use crate::seat::Seat;
use crate::trace::Tracer;

/// How a gateway behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Preset, eager tools and limits. Mode and strategy follow from the endpoint.
    pub settings: Settings,
    /// What clients may see and call.
    pub policy: Policy,
    /// How much each caller may ask for.
    pub limits: Limits,
    /// What the gateway calls itself to clients.
    pub name: String,
    /// The name people read.
    pub title: Option<String>,
    /// Its version.
    pub version: String,
    /// How long a search or a call that found nothing waits for servers that are still starting.
    pub start_wait: Duration,
    /// How many resources, templates or prompts are listed at a time.
    pub page_size: usize,
    /// How many requests of one client run at a time; further ones wait.
    pub requests_in_flight: usize,
    /// The longest message taken in on stdio.
    pub line_bytes: usize,
    /// How long requests that run at the end may take to finish.
    pub drain: Duration,
    /// Room for what servers answer, to be told of in the metrics. It is given to the servers.
    pub results: Option<Budget>,
    /// What follows the calls, for a tracing system.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Who is told what was called by whom, and what was refused.
    pub audit: Option<Arc<dyn AuditLog>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            policy: Policy::default(),
            limits: Limits::default(),
            name: "toolcrib".to_owned(),
            title: Some("Toolcrib".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start_wait: Duration::from_secs(3),
            page_size: 1_000,
            requests_in_flight: 1_000,
            line_bytes: 64 << 20,
            drain: Duration::from_secs(5),
            results: None,
            tracer: None,
            audit: None,
        }
    }
}

/// How a gateway is reached over HTTP, and by whom.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpOptions {
    /// Hashes of the tokens that callers may bring. If there are any, every caller needs one, or
    /// one of `oauth`.
    pub tokens: Vec<TokenHash>,
    /// Who else gives tokens to callers. If anybody does, every caller needs one.
    pub oauth: Option<OAuth>,
    /// Names that requests may be addressed to, besides the loopback's.
    pub allowed_hosts: Vec<String>,
    /// Web pages that may send requests, as origins (`https://example.com`), besides those served
    /// from the loopback.
    pub allowed_origins: Vec<String>,
    /// Whether only this machine can reach the gateway. [`Gateway::serve_http`] finds that out
    /// from the address; a router of one's own is told here.
    ///
    /// [`Gateway::serve_http`]: crate::Gateway::serve_http
    pub loopback: bool,
    /// The longest body taken in.
    pub body_bytes: usize,
    /// How long a connection may take to send the head of a request, and so how long it may lie
    /// idle. Clients that keep connections for long should be the ones to close them.
    pub head_limit: Duration,
    /// How long a request's body may take to come.
    pub body_limit: Duration,
    /// How many connections are open at a time; further ones wait.
    pub connections: usize,
    /// How many requests run at a time; further ones are turned away.
    pub requests_in_flight: usize,
    /// How many sessions there may be.
    pub sessions: usize,
    /// How long a session may be left alone.
    pub session_idle: Duration,
    /// How often a stream with nothing to say shows that it is alive.
    pub keep_alive: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            tokens: Vec::new(),
            oauth: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            loopback: true,
            body_bytes: 4 << 20,
            head_limit: Duration::from_secs(120),
            body_limit: Duration::from_secs(30),
            connections: 10_000,
            requests_in_flight: 10_000,
            sessions: 10_000,
            session_idle: Duration::from_secs(3_600),
            keep_alive: Duration::from_secs(15),
        }
    }
}

/// A bearer token as the gateway knows it: by its SHA-256.
///
/// ```
/// use toolcrib_gateway::TokenHash;
///
/// let hash = TokenHash::of("correct horse").named("ci");
/// assert_eq!(hash.to_string().parse::<TokenHash>()?.named("ci"), hash);
/// # Ok::<_, toolcrib_gateway::NotAHash>(())
/// ```
#[derive(Clone)]
pub struct TokenHash {
    sha256: [u8; 32],
    name: Option<String>,
    policy: Option<Policy>,
    limits: Option<Limits>,
}

/// What is not 64 hex digits. What was given is not repeated: it may be the token itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a token is given by its SHA-256: 64 hex digits, with or without `sha256:` before them")]
pub struct NotAHash;

impl TokenHash {
    /// A token by its SHA-256.
    pub fn new(sha256: [u8; 32]) -> Self {
        Self { sha256, name: None, policy: None, limits: None }
    }

    /// The hash of a token.
    pub fn of(token: &str) -> Self {
        Self::new(Sha256::digest(token.as_bytes()).into())
    }

    /// Whose token it is, for logs.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// What its bearers may see and call, of what the gateway shows at all.
    pub fn narrowed(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// How much its bearers may ask for, whatever others may.
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// The seat of its bearers.
    pub(crate) fn seat(&self, open: &Seat) -> Seat {
        let mut seat = Seat::known(open, [&b"token"[..], &self.sha256]);
        if let Some(name) = &self.name {
            seat = seat.named(name);
        }
        if let Some(policy) = &self.policy {
            seat = seat.narrowed([policy.clone()]);
        }
        match self.limits {
            Some(limits) => seat.limited(limits),
            None => seat,
        }
    }

    /// Compares in the same time wherever the first difference is.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        let pairs = self.sha256.iter().zip(&other.sha256);
        std::hint::black_box(pairs.fold(0, |differing, (a, b)| differing | (a ^ b))) == 0
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &Self) -> bool {
        let print = |token: &Self| token.policy.as_ref().map(Policy::fingerprint);
        self.matches(other)
            && (&self.name, self.limits) == (&other.name, other.limits)
            && print(self) == print(other)
    }
}

impl FromStr for TokenHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let bytes = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| NotAHash)?;
        bytes.try_into().map(Self::new).map_err(|_| NotAHash)
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", HEXLOWER_PERMISSIVE.encode(&self.sha256))
    }
}

/// A short token can be guessed from its hash, so the hash is not shown.
impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenHash").field("name", &self.name).finish_non_exhaustive()
    }
}
