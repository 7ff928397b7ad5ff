//! Logins at servers that want one (OAuth 2.1).
//!
//! A request carries the access token of a login. It is renewed before it ends, or when the server
//! turns it away: once, however many callers and programs wait for it. Where there is no login, or
//! one that can't be renewed, a person is asked if there is a way to, or else the reason says what
//! to run.

mod callback;
mod challenge;
mod discover;
mod fetch;
mod flow;
mod kept;
mod register;
mod token;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{RequestBuilder, Response, StatusCode, Url, redirect};
use tokio::time::Instant;
use toolcrib_runtime::CredentialStore;

use crate::config::{Launch, OAuth, ServerConfig};
use crate::secrets::Secrets;
use challenge::{Challenge, add};
use fetch::Fetch;
use flow::Flow;
use kept::{Login, Vault};
use token::{TokenError, bearer};

/// An authorization server that is in trouble is left alone for this long.
const PAUSE: Duration = Duration::from_secs(5);

/// How often a server may want more, within the time below, and a person is asked again.
const MOST_STEPS: usize = 2;
const STEPS_WITHIN: Duration = Duration::from_secs(600);

/// How long a server may take to say that it wants a login.
const PROBE_LIMIT: Duration = Duration::from_secs(10);

/// Where logins are kept, and how a person is brought to a page to log in. A handle: clones share
/// everything.
#[derive(Clone)]
pub struct Logins {
    store: Arc<dyn CredentialStore>,
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
        Self { store: Arc::new(store), show: None }
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
    /// When a person was asked for more.
    steps: Vec<Instant>,
}

type Asking = Shared<BoxFuture<'static, Result<(), String>>>;

/// Why a login could not be renewed.
enum Unfit {
    /// Only a person can help.
    Login(String),
    /// Time may.
    Trouble(String),
}

/// Why a request got no answer.
#[derive(Debug)]
pub(crate) enum SendError {
    /// It was not sent, or no answer came.
    Http(reqwest::Error),
    /// The server wants credentials that can't be had. It did not act on the request.
    Denied { status: StatusCode, reason: String },
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
            vault: Vault::new(logins.store.clone(), &config.name, url),
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

    /// Sends a request with the login. If the server wants another one, that is seen to, with a
    /// person's help if need be, and the request is repeated: it was not acted on.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, SendError> {
        let (client, request) = request.build_split();
        let mut request = request.map_err(SendError::Http)?;
        let mut tries = Tries::default();
        loop {
            let again = request.try_clone();
            let used = match self.header().await {
                Ok(header) => header,
                Err(Unfit::Trouble(reason)) => {
                    return Err(SendError::Denied { status: StatusCode::UNAUTHORIZED, reason });
                }
                // The server's own word may say more of what it wants.
                Err(Unfit::Login(_)) => None,
            };
            if let Some(header) = &used {
                request.headers_mut().insert(AUTHORIZATION, header.clone());
            }
            let response = client.execute(request).await.map_err(SendError::Http)?;
            let status = response.status();
            let challenge = Challenge::of(response.headers());
            let is_refused = status == StatusCode::UNAUTHORIZED;
            let wants_more = status == StatusCode::FORBIDDEN && challenge.wants_more_scopes();
            if !is_refused && !wants_more {
                return Ok(response);
            }
            let settled = match is_refused {
                true => self.refused(&challenge, used.as_ref(), &mut tries).await,
                false => self.wants_more(&challenge, used.as_ref(), &mut tries).await,
            };
            match (settled, again) {
                (Ok(()), Some(again)) => request = again,
                (Ok(()), None) => return Ok(response),
                (Err(reason), _) => return Err(SendError::Denied { status, reason }),
            }
        }
    }

    /// Sends a request with the login as it is, renewed if that is due. Nobody is asked.
    pub(crate) async fn send_as_is(&self, request: RequestBuilder) -> reqwest::Result<Response> {
        match self.header().await {
            Ok(Some(header)) => request.header(AUTHORIZATION, header),
            _ => request,
        }
        .send()
        .await
    }

    /// The header of the login, if there is one; renewed if that is due.
    async fn header(&self) -> Result<Option<HeaderValue>, Unfit> {
        let (header, login) = {
            let current = self.lock();
            (current.header.clone(), current.login.clone())
        };
        let Some(login) = login.filter(|login| login.is_due()) else { return Ok(header) };
        match self.renewed(header.clone()).await {
            Ok(renewed) => Ok(Some(renewed)),
            // It still holds for a moment.
            Err(Unfit::Trouble(_)) if !login.has_ended() => Ok(header),
            // The server decides whether it still holds.
            Err(Unfit::Login(_)) if login.refresh_token.is_none() => Ok(header),
            Err(unfit) => Err(unfit),
        }
    }

    /// What to do about a request that was turned away for its login.
    async fn refused(
        &self,
        challenge: &Challenge,
        used: Option<&HeaderValue>,
        tries: &mut Tries,
    ) -> Result<(), String> {
        let name = &self.0.name;
        let mut reason = match used {
            Some(_) => format!("it refuses its login: run `toolcrib login {name}`"),
            None => format!("it wants you to log in: run `toolcrib login {name}`"),
        };
        if !challenge.is_bearer {
            reason.push_str(", or set `bearer_token` or `headers`");
        }
        if !std::mem::replace(&mut tries.renewed, true) {
            match self.renewed(used.cloned()).await {
                Ok(_) => return Ok(()),
                Err(Unfit::Trouble(reason)) => return Err(reason),
                Err(Unfit::Login(why)) if used.is_some() => reason = why,
                Err(Unfit::Login(_)) => {}
            }
        }
        if tries.logged_in {
            let text =
                format!("it refuses the login that it asked for: run `toolcrib login {name}`");
            self.lock().in_vain = Some(text.clone());
            return Err(text);
        }
        tries.logged_in = true;
        self.ask(challenge, reason).await
    }

    /// What to do about a request that was turned away because the login does not allow it.
    async fn wants_more(
        &self,
        challenge: &Challenge,
        used: Option<&HeaderValue>,
        tries: &mut Tries,
    ) -> Result<(), String> {
        // Somebody may have seen to it already, here or in another program.
        if !std::mem::replace(&mut tries.reread, true) && self.reread(used).await? {
            return Ok(());
        }
        let (name, wanted) = (&self.0.name, challenge.scopes.join(" "));
        let reason = format!(
            "it wants more than its login allows: run `toolcrib login {name} --scope '{wanted}'`"
        );
        {
            let mut current = self.lock();
            let login = current.login.as_ref();
            let asked = login.map(|login| login.asked.clone()).unwrap_or_default();
            if challenge.scopes.iter().all(|scope| asked.contains(scope)) {
                return Err(format!("its login does not allow this (`{wanted}` was asked for)"));
            }
            current.steps.retain(|step| step.elapsed() < STEPS_WITHIN);
            if self.0.show.is_some() && current.steps.len() >= MOST_STEPS {
                return Err(reason);
            }
            current.steps.push(Instant::now());
        }
        self.ask(challenge, reason).await
    }

    /// Takes over what is kept; says whether that is another login than the one that was used.
    async fn reread(&self, used: Option<&HeaderValue>) -> Result<bool, String> {
        if self.lock().header.as_ref() != used {
            return Ok(true);
        }
        let kept = self.0.vault.login().await?;
        Ok(self.adopt(kept).as_ref() != used)
    }

    /// A login other than the one that was used: kept by somebody else meanwhile, or renewed.
    async fn renewed(&self, used: Option<HeaderValue>) -> Result<HeaderValue, Unfit> {
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
        let _lock = inner.vault.lock().await.map_err(Unfit::Trouble)?;
        // Another program may have seen to it while this one waited.
        let kept = match self.kept_since(used.as_ref()).await? {
            Ok(header) => return Ok(header),
            Err(kept) => kept,
        };
        let again = format!("run `toolcrib login {}`", inner.name);
        if kept.refresh_token.is_none() {
            self.adopt(Some(kept));
            return Err(Unfit::Login(format!("its login has ended: {again}")));
        }
        match token::renew(&inner.fetch, &kept).await {
            Ok(renewed) => {
                // Before it is used: what it replaces is of no use any more.
                if let Err(reason) = inner.vault.keep(&renewed).await {
                    tracing::warn!(server = inner.name, reason, "its login can't be kept");
                }
                let unsent = || Unfit::Trouble("its token can't be sent".to_owned());
                self.adopt(Some(renewed)).ok_or_else(unsent)
            }
            Err(TokenError::Refused { error, .. }) if is_final(&error) => {
                tracing::info!(server = inner.name, error, "its login has ended");
                if error != "invalid_grant" {
                    let _ = inner.vault.forget_registered(&kept.issuer).await;
                }
                inner.vault.forget().await.map_err(Unfit::Trouble)?;
                self.adopt(None);
                Err(Unfit::Login(format!("its login has ended: {again}")))
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
        Ok(Err(kept))
    }

    /// Has a person log in, if there is one to ask; else `reason` says what to do.
    async fn ask(&self, challenge: &Challenge, reason: String) -> Result<(), String> {
        let Some(show) = self.0.show.clone() else { return Err(reason) };
        let asking = {
            let mut current = self.lock();
            if let Some(in_vain) = &current.in_vain {
                return Err(in_vain.clone());
            }
            let begin = || {
                // A task of its own: a person takes longer than a caller waits.
                let (this, challenge) = (self.clone(), challenge.clone());
                let task = tokio::spawn(async move {
                    let done = this.log_in_at(&challenge, &[], show).await;
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
        self.log_in_at(&challenge, scopes, show).await
    }

    async fn log_in_at(
        &self,
        challenge: &Challenge,
        scopes: &[String],
        show: Show,
    ) -> Result<(), String> {
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
        let login = flow.run(|url| show(&LoginPage { server, url: url.to_owned() })).await?;
        // So that nobody who renews the old one writes over it.
        let _lock = inner.vault.lock().await?;
        inner.vault.keep(&login).await?;
        self.adopt(Some(login));
        Ok(())
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

/// What was tried for one request. Each is tried once, so none goes on for ever.
#[derive(Default)]
struct Tries {
    renewed: bool,
    reread: bool,
    logged_in: bool,
}

/// Whether trying again can't help.
fn is_final(error: &str) -> bool {
    ["invalid_grant", "invalid_client", "unauthorized_client"].contains(&error)
}
