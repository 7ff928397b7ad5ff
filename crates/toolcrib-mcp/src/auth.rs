//! Logins at servers that want one (OAuth 2.1).
//!
//! A request carries the access token of a login. It is renewed before it ends, or when the server
//! turns it away: once, however many callers and programs wait for it. Where there is no login, or
//! one that can't be renewed, a person is asked if there is a way to, or else the reason says what
//! to run.

mod ask;
mod callback;
mod challenge;
mod discover;
mod fetch;
mod flow;
mod kept;
mod register;
mod renew;
mod send;
mod token;
mod vault;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Url;
use reqwest::header::HeaderValue;
use tokio::time::Instant;
use toolcrib_runtime::CredentialStore;

use crate::config::{Launch, OAuth, ServerConfig};
use crate::secrets::Secrets;
use ask::Asking;
use fetch::Fetch;
use kept::Login;
pub(crate) use send::SendError;
use token::bearer;
use vault::{Shelf, Vault};

/// Where logins are kept, and how a person is brought to a page to log in. A handle: clones share
/// everything.
#[derive(Clone)]
pub struct Logins {
    shelf: Shelf,
    show: Option<Show>,
}

type Show = Arc<dyn Fn(&LoginPage) + Send + Sync>;

/// A page at which a person can log in for a server.
#[derive(Clone, Debug)]
pub struct LoginPage {
    /// What the server is called here.
    pub server: String,
    /// The page.
    pub url: String,
}

impl Logins {
    /// Logins that are kept in `store`. Nobody is asked to log in: a server that wants it fails
    /// with the reason.
    pub fn new(store: impl CredentialStore) -> Self {
        Self { shelf: Shelf::new(store), show: None }
    }

    /// Has `show` bring a person to a page when a server wants a login. It should not block.
    pub fn shown_by(self, show: impl Fn(&LoginPage) + Send + Sync + 'static) -> Self {
        Self { show: Some(Arc::new(show)), ..self }
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins").field("asks", &self.show.is_some()).finish_non_exhaustive()
    }
}

/// The login at one server. Clones share it.
#[derive(Clone)]
pub(crate) struct Authorizer(Arc<Inner>);

struct Inner {
    name: String,
    url: Url,
    /// What else is sent with every request.
    headers: Vec<(String, String)>,
    config: OAuth,
    vault: Vault,
    fetch: Fetch,
    show: Option<Show>,
    secrets: Secrets,
    current: Mutex<Current>,
    /// Held by whoever renews the login.
    gate: tokio::sync::Mutex<()>,
}

/// What is known now.
#[derive(Default)]
struct Current {
    login: Option<Arc<Login>>,
    header: Option<HeaderValue>,
    /// Until when the authorization server is left alone, and why.
    pause: Option<(Instant, String)>,
    /// A person is being asked.
    asking: Option<Asking>,
    /// Why no person is asked any more, as long as the login stays what it is.
    in_vain: Option<String>,
    /// When a person was asked, of late.
    asked: Vec<Instant>,
}

impl Authorizer {
    /// The login of a server. `None` if it is no server that has one, or its configuration says
    /// what to send.
    pub(crate) fn new(config: &ServerConfig, logins: &Logins, secrets: &Secrets) -> Option<Self> {
        let Launch::Http { url, headers } = &config.launch else { return None };
        if headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization")) {
            return None;
        }
        let parsed: Url = url.parse().ok()?;
        // In the clear a token would be everybody's.
        if parsed.scheme() != "https" && !fetch::is_local(&parsed) {
            return None;
        }
        let authorizer = Self(Arc::new(Inner {
            name: config.name.clone(),
            fetch: Fetch::new(&parsed),
            vault: Vault::new(&logins.shelf, &config.name, url, config.oauth.issuer.as_deref()),
            url: parsed,
            headers: headers.clone(),
            config: config.oauth.clone(),
            show: logins.show.clone(),
            secrets: secrets.clone(),
            current: Mutex::default(),
            gate: tokio::sync::Mutex::default(),
        }));
        config.oauth.client_secret.iter().for_each(|secret| secrets.learn(secret));
        match authorizer.0.vault.login_now() {
            Ok(login) => drop(authorizer.adopt(login)),
            Err(reason) => tracing::warn!(server = config.name, reason, "its login can't be read"),
        }
        Some(authorizer)
    }

    /// Stands for who is logged in.
    pub(crate) fn login_id(&self) -> Option<String> {
        self.lock().login.as_ref().map(|login| login.id.clone())
    }

    /// Uses a login from now on.
    fn adopt(&self, login: Option<Login>) -> Option<HeaderValue> {
        let header = login.as_ref().and_then(|login| bearer(&login.access_token));
        if let Some(login) = &login {
            let tokens = [Some(&login.access_token), login.refresh_token.as_ref()];
            let tokens = tokens.into_iter().chain([login.client.secret.as_ref()]);
            tokens.flatten().for_each(|secret| self.0.secrets.learn(secret));
        }
        let mut current = self.lock();
        if login.as_ref().map(|it| &it.id) != current.login.as_ref().map(|it| &it.id) {
            current.in_vain = None;
        }
        current.pause = None;
        current.login = login.map(Arc::new);
        current.header.clone_from(&header);
        header
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = self.lock().login.clone();
        f.debug_struct("Authorizer").field("server", &self.0.name).field("login", &login).finish()
    }
}
