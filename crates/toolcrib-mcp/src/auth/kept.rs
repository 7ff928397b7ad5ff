//! What a login brought, as it is kept.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A token is renewed this long before its end, or a tenth of its life if that is less.
const MARGIN_MS: u64 = 60_000;

/// A login at a server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Login {
    /// Random: stands for who logged in, so that what one sees is not shown to another.
    pub(super) id: String,
    pub(super) issuer: String,
    pub(super) resource: String,
    pub(super) token_endpoint: String,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) client: Client,
    pub(super) access_token: String,
    pub(super) refresh_token: Option<String>,
    /// When the access token should be renewed, and when it ends; milliseconds since 1970.
    pub(super) renew_from: Option<u64>,
    pub(super) ends: Option<u64>,
    /// The scopes that were asked for.
    pub(super) asked: Vec<String>,
}

/// Who this program is to an authorization server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    pub(super) method: Method,
}

/// How it proves that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Method {
    ClientSecretBasic,
    ClientSecretPost,
    None,
}

/// A client that an authorization server registered for this program.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Registered {
    pub(super) client: Client,
    pub(super) redirect_uri: String,
    /// Milliseconds since 1970.
    pub(super) ends: Option<u64>,
}

impl Login {
    /// Sets the times of an access token that holds for so many seconds.
    pub(super) fn holds_for(&mut self, seconds: Option<f64>) {
        let life = seconds.map(|seconds| (seconds.clamp(0.0, 1e10) * 1000.0) as u64);
        let now = now();
        self.ends = life.map(|life| now + life);
        self.renew_from = life.map(|life| now + life - MARGIN_MS.min(life / 10));
    }

    /// Whether the access token should be renewed or, where it can't be, has ended.
    pub(super) fn is_due(&self) -> bool {
        let from = self.refresh_token.as_ref().map_or(self.ends, |_| self.renew_from);
        from.is_some_and(|from| from <= now())
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ends.is_some_and(|end| end <= now())
    }
}

impl Registered {
    pub(super) fn has_ended(&self) -> bool {
        self.ends.is_some_and(|end| end <= now())
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("issuer", &self.issuer)
            .field("resource", &self.resource)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("id", &self.id)
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
