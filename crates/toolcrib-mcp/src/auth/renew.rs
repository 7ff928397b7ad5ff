//! A login is renewed: once, however many wait for it, and without a loss.

use std::time::Duration;

use reqwest::header::HeaderValue;
use tokio::time::Instant;

use super::Authorizer;
use super::kept::Login;
use super::token::{self, TokenError, bearer};

/// An authorization server that is in trouble is left alone for this long.
const PAUSE: Duration = Duration::from_secs(5);

/// Why a login could not be renewed.
pub(super) enum Unfit {
    /// Only a person can help.
    Login(String),
    /// Time may.
    Trouble(String),
}

impl Authorizer {
    /// A login other than the one that was used: kept by somebody else meanwhile, or renewed.
    pub(super) async fn renewed(&self, used: Option<HeaderValue>) -> Result<HeaderValue, Unfit> {
        // A task of its own: if the caller gives up half way, a token that was given would be lost.
        let this = self.clone();
        let task = tokio::spawn(async move { this.renew(used).await });
        task.await.unwrap_or_else(|error| Err(Unfit::Trouble(error.to_string())))
    }

    async fn renew(&self, used: Option<HeaderValue>) -> Result<HeaderValue, Unfit> {
        let inner = &*self.0;
        let _gate = inner.gate.lock().await;
        if let Some(header) = self.other_than(used.as_ref()) {
            return Ok(header);
        }
        if let Ok(header) = self.kept_since(used.as_ref()).await? {
            return Ok(header);
        }
        let pause = self.lock().pause.clone();
        if let Some((_, reason)) = pause.filter(|(until, _)| *until > Instant::now()) {
            return Err(Unfit::Trouble(reason));
        }
        let _lock = match inner.vault.lock().await {
            Ok(lock) => Some(lock),
            // What others could renew is of no use any more.
            Err(_) if inner.vault.is_unkept() => None,
            Err(reason) => return Err(Unfit::Trouble(reason)),
        };
        // Another program may have seen to it while this one waited.
        let kept = match self.kept_since(used.as_ref()).await? {
            Ok(header) => return Ok(header),
            Err(kept) => kept,
        };
        match token::renew(&inner.fetch, &kept).await {
            Ok(renewed) => {
                // Before it is used: what it replaces is of no use any more.
                inner.vault.settle(Some(kept), Some(renewed.clone())).await;
                let unsent = || Unfit::Trouble("its token can't be sent".to_owned());
                self.adopt(Some(renewed)).ok_or_else(unsent)
            }
            Err(TokenError::Refused { error, .. }) if is_final(&error) => {
                tracing::info!(server = inner.name, error, "its login has ended");
                if error != "invalid_grant" {
                    let _ = inner.vault.forget_registered(&kept.issuer).await;
                }
                inner.vault.settle(Some(kept), None).await;
                self.adopt(None);
                Err(self.ended())
            }
            Err(error) => {
                let reason = inner.secrets.hide(&error.text());
                let reason = format!("its login can't be renewed: {reason}");
                self.lock().pause = Some((Instant::now() + PAUSE, reason.clone()));
                Err(Unfit::Trouble(reason))
            }
        }
    }

    /// The login in use, if it is another than the one that was used.
    fn other_than(&self, used: Option<&HeaderValue>) -> Option<HeaderValue> {
        let current = self.lock();
        let is_due = current.login.as_ref().is_some_and(|login| login.is_due());
        current.header.clone().filter(|header| !is_due && Some(header) != used)
    }

    /// The same of what is kept: a header to use, or else what there is to renew.
    async fn kept_since(
        &self,
        used: Option<&HeaderValue>,
    ) -> Result<Result<HeaderValue, Login>, Unfit> {
        let Some(kept) = self.0.vault.login().await.map_err(Unfit::Trouble)? else {
            self.adopt(None);
            let name = &self.0.name;
            let text = format!("it wants you to log in: run `toolcrib login {name}`");
            return Err(Unfit::Login(text));
        };
        let is_fresh = !kept.is_due() && bearer(&kept.access_token).as_ref() != used;
        if is_fresh && let Some(header) = self.adopt(Some(kept.clone())) {
            return Ok(Ok(header));
        }
        if kept.refresh_token.is_none() {
            self.adopt(Some(kept));
            return Err(self.ended());
        }
        Ok(Err(kept))
    }

    fn ended(&self) -> Unfit {
        Unfit::Login(format!("its login has ended: run `toolcrib login {}`", self.0.name))
    }
}

/// Whether trying again can't help.
fn is_final(error: &str) -> bool {
    ["invalid_grant", "invalid_client", "unauthorized_client"].contains(&error)
}
