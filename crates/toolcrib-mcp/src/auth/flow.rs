//! A login: a person says yes in a browser, and what comes back is turned into tokens.

use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use reqwest::Url;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::callback::{Answer, Callback};
use super::challenge::{Challenge, add};
use super::discover::{Authority, Found, find};
use super::fetch::Fetch;
use super::kept::{Client, Login};
use super::token::{TokenError, one_line};
use super::vault::Vault;
use super::{register, token};
use crate::config::OAuth;
use crate::secrets::Secrets;

/// How long a person may take.
const LOGIN_LIMIT: Duration = Duration::from_secs(300);

/// What a login needs.
pub(super) struct Flow<'a> {
    pub(super) fetch: &'a Fetch,
    pub(super) vault: &'a Vault,
    pub(super) config: &'a OAuth,
    pub(super) secrets: &'a Secrets,
    pub(super) server: &'a Url,
    /// What the server said when it turned a request away.
    pub(super) challenge: &'a Challenge,
    /// What to ask for besides: what was granted before stays granted.
    pub(super) scopes: &'a [String],
}

impl Flow<'_> {
    /// Logs in; `show` brings a person to a page.
    pub(super) async fn run(&self, show: impl FnOnce(&str)) -> Result<Login, String> {
        let found = find(self.fetch, self.server, self.challenge).await?;
        let authority = &found.authority;
        let before = self.vault.registered(&authority.issuer).await?;
        let before = before.and_then(|before| Callback::port_of(&before.redirect_uri));
        let callback = Callback::bind(self.config.redirect_port, before).await?;
        let scopes = self.scopes(&found);
        let uri = callback.uri.clone();
        let client =
            register::client(self.fetch, self.vault, self.config, authority, &uri, &scopes).await?;
        let done = self.exchange(&found, client, callback, &scopes, show).await;
        if done.is_err() {
            // The registration may be what is wrong: then the next login gets another.
            let _ = self.vault.forget_registered(&authority.issuer).await;
        }
        done
    }

    async fn exchange(
        &self,
        found: &Found,
        client: Client,
        callback: Callback,
        scopes: &[String],
        show: impl FnOnce(&str),
    ) -> Result<Login, String> {
        let authority = &found.authority;
        let (state, verifier) = (random()?, random()?);
        self.secrets.learn(&verifier);
        let proof = BASE64URL_NOPAD.encode(&Sha256::digest(verifier.as_bytes()));
        let uri = callback.uri.clone();
        let scope = scopes.join(" ");
        let mut page = self.fetch.allow("its page to log in", &authority.authorization_endpoint)?;
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", &uri),
            ("state", &state),
            ("code_challenge", &proof),
            ("code_challenge_method", "S256"),
            ("resource", &found.resource),
        ];
        if !scope.is_empty() {
            query.push(("scope", &scope));
        }
        if scopes.iter().any(|scope| scope == "offline_access") {
            // Without it, OpenID providers give no refresh token.
            query.push(("prompt", "consent"));
        }
        page.query_pairs_mut().extend_pairs(query);
        show(page.as_str());
        let answer = timeout(LOGIN_LIMIT, callback.answer(&state)).await;
        let answer = answer.map_err(|_| format!("nobody logged in within {LOGIN_LIMIT:?}"))?;
        let code = code(answer, authority)?;
        self.secrets.learn(&code);
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &code),
            ("redirect_uri", &uri),
            ("code_verifier", &verifier),
            ("resource", &found.resource),
        ];
        let tokens = token::ask(self.fetch, &authority.token_endpoint, &client, &form).await;
        let tokens = tokens.map_err(|error| self.secrets.hide(&TokenError::text(error)))?;
        let mut login = Login {
            id: random()?,
            issuer: authority.issuer.clone(),
            resource: found.resource.clone(),
            token_endpoint: authority.token_endpoint.clone(),
            revocation_endpoint: authority.revocation_endpoint.clone(),
            client,
            access_token: String::new(),
            refresh_token: None,
            renew_from: None,
            ends: None,
            asked: scopes.to_vec(),
        };
        login.take(tokens);
        Ok(login)
    }

    /// What is asked for: what the server wanted, or else all that it knows.
    fn scopes(&self, found: &Found) -> Vec<String> {
        let mut scopes = self.challenge.scopes.clone();
        add(&mut scopes, self.config.scopes.iter().map(String::as_str));
        if scopes.is_empty() {
            add(&mut scopes, found.scopes.iter().map(String::as_str));
        }
        add(&mut scopes, self.scopes.iter().map(String::as_str));
        let offline = "offline_access";
        if found.authority.scopes_supported.iter().any(|scope| scope == offline) {
            add(&mut scopes, [offline]);
        } else {
            scopes.retain(|scope| scope != offline);
        }
        scopes
    }
}

/// The code of an answer, if it is from whom it was asked for.
fn code(answer: Answer, authority: &Authority) -> Result<String, String> {
    // Compared as it stands. Before anything else is believed: another authorization server may
    // have made all of it.
    let is_theirs = match &answer.issuer {
        Some(issuer) => *issuer == authority.issuer,
        None => !authority.authorization_response_iss_parameter_supported,
    };
    if !is_theirs {
        return Err("the answer is not from its authorization server, and was not used".to_owned());
    }
    if let Some(error) = &answer.error {
        let text = answer.description.as_deref().unwrap_or_default();
        return Err(format!("the login was refused: {} {}", one_line(error), one_line(text)));
    }
    answer.code.ok_or_else(|| "the answer to the login holds no code".to_owned())
}

/// What nobody can guess.
fn random() -> Result<String, String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
    Ok(BASE64URL_NOPAD.encode(&bytes))
}
