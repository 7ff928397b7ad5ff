//! Where logins are kept: a store, and what it could not take yet.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};
use toolcrib_runtime::{Credential, CredentialLock, CredentialStore, StorageError};

use super::kept::{Login, Registered};

/// How long somebody else may take to renew a login.
const LOCK_LIMIT: Duration = Duration::from_secs(30);

/// How soon a store that could not take a login is tried again, and how seldom at last.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(300);

/// The store of all logins. Clones share everything.
#[derive(Clone)]
pub(super) struct Shelf {
    store: Arc<dyn CredentialStore>,
    pending: Arc<Mutex<Pending>>,
}

/// What the store could not take, by its keys: one of each server at most.
#[derive(Default)]
struct Pending {
    unkept: HashMap<Arc<str>, Unkept>,
    /// Those that somebody tries to keep, now and then.
    tried: HashSet<Arc<str>>,
}

/// A login that counts although it is not in the store.
struct Unkept {
    /// `None` if it was to be forgotten.
    login: Option<Login>,
    /// What is there instead. Once anything else is, somebody has seen to it.
    instead: Option<Login>,
}

impl Shelf {
    pub(super) fn new(store: impl CredentialStore) -> Self {
        Self { store: Arc::new(store), pending: Arc::default() }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one server in the store.
#[derive(Clone)]
pub(super) struct Vault {
    shelf: Shelf,
    server: Arc<str>,
    key: Arc<str>,
    /// Logins at any other authorization server are none.
    issuer: Option<Arc<str>>,
}

impl Vault {
    pub(super) fn new(shelf: &Shelf, server: &str, url: &str, issuer: Option<&str>) -> Self {
        let key = format!("login {server} {url}").into();
        Self { shelf: shelf.clone(), server: server.into(), key, issuer: issuer.map(Into::into) }
    }

    /// The login that counts.
    pub(super) async fn login(&self) -> Result<Option<Login>, String> {
        let kept = self.kept().await;
        self.counting(kept)
    }

    /// The same at once, for a start.
    pub(super) fn login_now(&self) -> Result<Option<Login>, String> {
        let kept = self.shelf.store.load(&self.key).map(read).map_err(|error| error.to_string());
        self.counting(self.own(kept))
    }

    /// Keeps a login, or says why that can't be done.
    pub(super) async fn keep(&self, login: &Login) -> Result<(), String> {
        self.write(Some(login)).await?;
        self.shelf.pending().unkept.remove(&self.key);
        Ok(())
    }

    /// Has this login count from now on, or none, in place of the one `before`. If the store can't
    /// take it, it is tried again until it does: what a renewal replaced is of no use any more.
    pub(super) async fn settle(&self, before: Option<Login>, login: Option<Login>) {
        let Err(reason) = self.write(login.as_ref()).await else {
            self.shelf.pending().unkept.remove(&self.key);
            return;
        };
        let text = "its login can't be kept: it holds in memory, and keeping it is tried again";
        tracing::warn!(server = &*self.server, reason, "{text}");
        let is_new = {
            let mut pending = self.shelf.pending();
            let instead = pending.unkept.remove(&self.key).map_or(before, |it| it.instead);
            pending.unkept.insert(self.key.clone(), Unkept { login, instead });
            pending.tried.insert(self.key.clone())
        };
        if is_new {
            tokio::spawn(self.clone().keep_trying());
        }
    }

    /// Whether the login that counts is here alone.
    pub(super) fn is_unkept(&self) -> bool {
        self.shelf.pending().unkept.contains_key(&self.key)
    }

    /// Forgets the login, or says why that can't be done.
    pub(super) async fn forget(&self) -> Result<(), String> {
        self.write(None).await?;
        self.shelf.pending().unkept.remove(&self.key);
        Ok(())
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

    async fn kept(&self) -> Result<Option<Login>, String> {
        let key = self.key.clone();
        self.own(self.work(move |store| store.load(&key)).await.map(read))
    }

    fn own(&self, kept: Result<Option<Login>, String>) -> Result<Option<Login>, String> {
        let is_own = |login: &Login| self.issuer.as_ref().is_none_or(|it| **it == *login.issuer);
        kept.map(|kept| kept.filter(is_own))
    }

    /// What counts while this is kept.
    fn counting(&self, kept: Result<Option<Login>, String>) -> Result<Option<Login>, String> {
        let mut pending = self.shelf.pending();
        match (pending.unkept.get(&self.key), kept) {
            (None, kept) => kept,
            (Some(unkept), Ok(kept)) if kept != unkept.instead => {
                pending.unkept.remove(&self.key);
                Ok(kept)
            }
            (Some(unkept), _) => Ok(unkept.login.clone()),
        }
    }

    async fn keep_trying(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(LAST_PAUSE);
            if let Err(reason) = self.try_again().await {
                tracing::debug!(server = &*self.server, reason, "its login still can't be kept");
            }
            let mut pending = self.shelf.pending();
            if !pending.unkept.contains_key(&self.key) {
                pending.tried.remove(&self.key);
                return;
            }
        }
    }

    async fn try_again(&self) -> Result<(), String> {
        let _lock = self.lock().await?;
        let kept = self.kept().await?;
        let login = self.counting(Ok(kept))?;
        if !self.is_unkept() {
            return Ok(());
        }
        self.write(login.as_ref()).await?;
        let mut pending = self.shelf.pending();
        match pending.unkept.get_mut(&self.key) {
            // It was renewed meanwhile.
            Some(unkept) if unkept.login != login => unkept.instead = login,
            _ => drop(pending.unkept.remove(&self.key)),
        }
        tracing::info!(server = &*self.server, "its login is kept now");
        Ok(())
    }

    async fn write(&self, login: Option<&Login>) -> Result<(), String> {
        match login {
            Some(login) => self.save(self.key.to_string(), login).await,
            None => {
                let key = self.key.clone();
                self.work(move |store| store.remove(&key)).await
            }
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
        let store = self.shelf.store.clone();
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
