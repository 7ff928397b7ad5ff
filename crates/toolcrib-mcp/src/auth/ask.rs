//! A person is asked to log in, or logs out.

use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{StatusCode, redirect};
use tokio::time::Instant;

use super::challenge::{Challenge, add};
use super::flow::Flow;
use super::kept::Login;
use super::{Authorizer, Current, LoginPage, Show, token};

/// How often a person is asked within the time below, whatever for.
const MOST_ASKED: usize = 3;
const ASKED_WITHIN: Duration = Duration::from_secs(600);

/// How long a server may take to say that it wants a login.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// Somebody is at it; all who need it wait for the same.
pub(super) type Asking = Shared<BoxFuture<'static, Result<(), String>>>;

impl Current {
    /// Notes that a person is asked now, unless that was too often of late.
    fn may_ask(&mut self) -> bool {
        self.asked.retain(|time| time.elapsed() < ASKED_WITHIN);
        let may = self.asked.len() < MOST_ASKED;
        if may {
            self.asked.push(Instant::now());
        }
        may
    }
}

impl Authorizer {
    /// Has a person log in, if there is one to ask; else `reason` says what to do.
    pub(super) async fn ask(&self, challenge: &Challenge, reason: String) -> Result<(), String> {
        let Some(show) = self.0.show.clone() else { return Err(reason) };
        let asking = {
            let mut current = self.lock();
            if let Some(in_vain) = &current.in_vain {
                return Err(in_vain.clone());
            }
            if current.asking.is_none() && !current.may_ask() {
                return Err(reason);
            }
            let begin = || {
                // A task of its own: a person takes longer than a caller waits.
                let (this, challenge) = (self.clone(), challenge.clone());
                let task = tokio::spawn(async move {
                    let done = this.log_in_and_settle(&challenge, show).await;
                    // Here, and not by those who wait: they may all have gone by now.
                    let mut current = this.lock();
                    current.asking = None;
                    if let Err(why) = &done {
                        let text =
                            format!("{why}; run `toolcrib login {}` to try again", this.0.name);
                        current.in_vain = Some(text);
                    }
                    drop(current);
                    done
                });
                let lost = |_| Err("its login was given up".to_owned());
                task.map(move |done| done.unwrap_or_else(lost)).boxed().shared()
            };
            current.asking.get_or_insert_with(begin).clone()
        };
        asking.await
    }

    /// Has a person log in, and asks for these scopes besides what the server wants.
    pub(crate) async fn log_in(&self, scopes: &[String]) -> Result<(), String> {
        let show = self.0.show.clone().ok_or("there is no way to show a page to log in")?;
        let challenge = self.probe().await?;
        let login = self.log_in_at(&challenge, scopes, show).await?;
        // So that nobody who renews the old one writes over it.
        let _lock = self.0.vault.lock().await?;
        self.0.vault.keep(&login).await?;
        self.adopt(Some(login));
        Ok(())
    }

    /// The same for whoever goes on running: a login that can't be kept at the moment is used.
    async fn log_in_and_settle(&self, challenge: &Challenge, show: Show) -> Result<(), String> {
        let vault = &self.0.vault;
        let before = vault.login().await?;
        let login = self.log_in_at(challenge, &[], show).await?;
        // A person has said yes: whatever can't be done with the store from here on, that counts.
        let _lock = vault.lock().await.ok();
        let before = vault.login().await.unwrap_or(before);
        vault.settle(before, Some(login.clone())).await;
        self.adopt(Some(login));
        Ok(())
    }

    async fn log_in_at(
        &self,
        challenge: &Challenge,
        scopes: &[String],
        show: Show,
    ) -> Result<Login, String> {
        let inner = &*self.0;
        let mut wanted = match inner.vault.login().await? {
            Some(before) => before.asked,
            None => Vec::new(),
        };
        add(&mut wanted, scopes.iter().map(String::as_str));
        let flow = Flow {
            fetch: &inner.fetch,
            vault: &inner.vault,
            config: &inner.config,
            secrets: &inner.secrets,
            server: &inner.url,
            challenge,
            scopes: &wanted,
        };
        let server = inner.name.clone();
        flow.run(|url| show(&LoginPage { server, url: url.to_owned() })).await
    }

    /// Forgets the login, and tells the authorization server. Says whether there was one.
    pub(crate) async fn log_out(&self) -> Result<bool, String> {
        let inner = &*self.0;
        let _lock = inner.vault.lock().await?;
        let Some(login) = inner.vault.login().await? else { return Ok(false) };
        inner.vault.forget().await?;
        self.adopt(None);
        let revoked = token::revoke(&inner.fetch, &login).await;
        revoked.map_err(|reason| {
            let reason = inner.secrets.hide(&reason);
            format!("its login is forgotten here, but may still hold: {reason}")
        })?;
        Ok(true)
    }

    /// What the server says to somebody who is not logged in.
    async fn probe(&self) -> Result<Challenge, String> {
        let builder = reqwest::Client::builder().redirect(redirect::Policy::none());
        let client = builder.timeout(PROBE_LIMIT).build().map_err(|error| error.to_string())?;
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"tools/list"}"#;
        let mut request = client.post(self.0.url.clone()).body(body);
        for (name, value) in &self.0.headers {
            request = request.header(name, value);
        }
        let request = request.header(CONTENT_TYPE, "application/json");
        let request = request.header(ACCEPT, "application/json, text/event-stream");
        let response = request.send().await.map_err(|error| crate::http::why(&error))?;
        let no_headers = HeaderMap::new();
        let is_refused = response.status() == StatusCode::UNAUTHORIZED;
        Ok(Challenge::of(if is_refused { response.headers() } else { &no_headers }))
    }
}
