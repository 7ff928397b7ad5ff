//! What a login brought, as it is kept.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use toolcrib_runtime::{Credential, CredentialLock, CredentialStore, StorageError};

/// How long somebody else may take to renew a login.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

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

    pub(super) fn is_due(&self) -> bool {
        self.renew_from.is_some_and(|from| from <= now())
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

/// The store, and the place of one server in it.
#[derive(Clone)]
pub(super) struct Vault {
    store: Arc<dyn CredentialStore>,
    key: Arc<str>,
}

impl Vault {
    pub(super) fn new(store: Arc<dyn CredentialStore>, server: &str, url: &str) -> Self {
        Self { store, key: format!("login {server} {url}").into() }
    }

    pub(super) async fn login(&self) -> Result<Option<Login>, String> {
        let key = self.key.clone();
        self.work(move |store| store.load(&key)).await.map(read)
    }

    /// The same at once, for a start.
    pub(super) fn login_now(&self) -> Result<Option<Login>, String> {
        self.store.load(&self.key).map(read).map_err(|error| error.to_string())
    }

    pub(super) async fn keep(&self, login: &Login) -> Result<(), String> {
        self.save(self.key.to_string(), login).await
    }

    pub(super) async fn forget(&self) -> Result<(), String> {
        let key = self.key.clone();
        self.work(move |store| store.remove(&key)).await
    }

    /// What an authorization server registered. It is of no use to any other.
    pub(super) async fn registered(&self, issuer: &str) -> Result<Option<Registered>, String> {
        let key = client_key(issuer);
        self.work(move |store| store.load(&key)).await.map(read)
    }

    pub(super) async fn keep_registered(
        &self,
        issuer: &str,
        it: &Registered,
    ) -> Result<(), String> {
        self.save(client_key(issuer), it).await
    }

    pub(super) async fn forget_registered(&self, issuer: &str) -> Result<(), String> {
        let key = client_key(issuer);
        self.work(move |store| store.remove(&key)).await
    }

    /// Keeps others from renewing this login.
    pub(super) async fn lock(&self) -> Result<CredentialLock, String> {
        let began = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            let key = self.key.clone();
            if let Some(lock) = self.work(move |store| store.try_lock(&key)).await? {
                return Ok(lock);
            }
            if began.elapsed() >= LOCK_LIMIT {
                return Err("another program has been renewing its login for too long".to_owned());
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    async fn save(&self, key: String, value: &impl Serialize) -> Result<(), String> {
        let text = serde_json::to_string(value).map_err(|error| error.to_string())?;
        self.work(move |store| store.save(&key, &Credential::new(text))).await
    }

    /// A disk may be slow.
    async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn CredentialStore) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, String> {
        let store = self.store.clone();
        let done = tokio::task::spawn_blocking(move || work(&*store)).await;
        done.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}

fn client_key(issuer: &str) -> String {
    format!("client {issuer}")
}

/// What can't be read was kept by another version: as good as nothing.
fn read<T: DeserializeOwned>(kept: Option<Credential>) -> Option<T> {
    kept.and_then(|kept| serde_json::from_str(kept.expose()).ok())
}
