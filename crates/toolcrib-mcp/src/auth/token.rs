//! Tokens, asked for and renewed.

use data_encoding::BASE64;
use reqwest::Url;
use reqwest::header::HeaderValue;
use serde::Deserialize;
use serde_json::Value;

use super::fetch::{Answer, Fetch, encode};
use super::kept::{Client, Login, Method};

/// The longest text of an authorization server that is shown.
const MOST_SAID: usize = 200;

/// Why there is no token.
#[derive(Debug)]
pub(super) enum TokenError {
    /// The authorization server says no: with the error's name, and a text for people.
    Refused { error: String, said: String },
    /// It could not be asked; it may be later.
    Trouble(String),
}

impl TokenError {
    pub(super) fn text(self) -> String {
        match self {
            Self::Refused { said, .. } => format!("its authorization server refused: {said}"),
            Self::Trouble(reason) => reason,
        }
    }
}

/// What an authorization server gives.
#[derive(Deserialize)]
pub(super) struct Tokens {
    access_token: String,
    #[serde(default)]
    token_type: String,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
}

/// Asks for tokens in exchange for what the form holds.
pub(super) async fn ask(
    fetch: &Fetch,
    endpoint: &str,
    client: &Client,
    form: &[(&str, &str)],
) -> Result<Tokens, TokenError> {
    let endpoint = fetch.allow("its token endpoint", endpoint).map_err(TokenError::Trouble)?;
    let answer = post(fetch, &endpoint, client, form).await.map_err(TokenError::Trouble)?;
    if !answer.status.is_success() {
        let said = said(&answer);
        return Err(match error_of(&answer) {
            Some(error) if answer.status.is_client_error() => TokenError::Refused { error, said },
            _ => TokenError::Trouble(format!("its authorization server answered {said}")),
        });
    }
    let tokens: Tokens = serde_json::from_slice(&answer.body)
        .map_err(|_| TokenError::Trouble("its tokens can't be read".to_owned()))?;
    if !tokens.token_type.eq_ignore_ascii_case("bearer") {
        let text = "its authorization server gives out tokens of a kind that is not known here";
        return Err(TokenError::Trouble(text.to_owned()));
    }
    if bearer(&tokens.access_token).is_none() {
        return Err(TokenError::Trouble("its token can't be sent".to_owned()));
    }
    Ok(tokens)
}

/// Renews a login. What it was before is then of no use any more.
pub(super) async fn renew(fetch: &Fetch, login: &Login) -> Result<Login, TokenError> {
    let Some(token) = &login.refresh_token else {
        let (error, said) = ("invalid_grant".to_owned(), "it can't be renewed".to_owned());
        return Err(TokenError::Refused { error, said });
    };
    let form =
        [("grant_type", "refresh_token"), ("refresh_token", token), ("resource", &login.resource)];
    let tokens = ask(fetch, &login.token_endpoint, &login.client, &form).await?;
    let mut renewed = login.clone();
    renewed.take(tokens);
    Ok(renewed)
}

/// Tells the authorization server that a token is no longer needed.
pub(super) async fn revoke(fetch: &Fetch, login: &Login) -> Result<(), String> {
    let Some(endpoint) = &login.revocation_endpoint else { return Ok(()) };
    let endpoint = fetch.allow("its revocation endpoint", endpoint)?;
    let (token, hint) = match &login.refresh_token {
        Some(token) => (token, "refresh_token"),
        None => (&login.access_token, "access_token"),
    };
    let form = [("token", token.as_str()), ("token_type_hint", hint)];
    let answer = post(fetch, &endpoint, &login.client, &form).await?;
    match answer.status.is_success() {
        true => Ok(()),
        false => Err(format!("its authorization server answered {}", said(&answer))),
    }
}

impl Login {
    /// Takes over new tokens. One that is not given anew stays.
    pub(super) fn take(&mut self, tokens: Tokens) {
        self.access_token = tokens.access_token;
        self.refresh_token = tokens.refresh_token.or(self.refresh_token.take());
        // Some write the number as text.
        let seconds = tokens.expires_in.as_ref();
        let as_text = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        self.holds_for(seconds.and_then(|value| value.as_f64().or_else(|| as_text(value))));
    }
}

/// The header that shows a token.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

async fn post(
    fetch: &Fetch,
    endpoint: &Url,
    client: &Client,
    form: &[(&str, &str)],
) -> Result<Answer, String> {
    let mut form = form.to_vec();
    let mut authorization = None;
    match (client.method, &client.secret) {
        (Method::ClientSecretBasic, Some(secret)) => authorization = basic(&client.id, secret),
        (Method::ClientSecretPost, Some(secret)) => {
            form.extend([("client_id", client.id.as_str()), ("client_secret", secret)]);
        }
        _ => form.push(("client_id", &client.id)),
    }
    fetch.post_form(endpoint, &form, authorization).await
}

/// Both are encoded as in a form before they are joined.
fn basic(id: &str, secret: &str) -> Option<HeaderValue> {
    let encoded = |text| encode(&[("", text)]).trim_start_matches('=').to_owned();
    let pair = format!("{}:{}", encoded(id), encoded(secret));
    let mut value =
        HeaderValue::from_str(&format!("Basic {}", BASE64.encode(pair.as_bytes()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn error_of(answer: &Answer) -> Option<String> {
    let body: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(body.get("error")?.as_str()?.to_owned())
}

/// What an authorization server said, in a line.
pub(super) fn said(answer: &Answer) -> String {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let part = |key| body.get(key).and_then(Value::as_str).map(one_line);
    let status = answer.status;
    match (part("error"), part("error_description")) {
        (Some(error), Some(text)) => format!("HTTP {status}, {error} ({text})"),
        (Some(error), None) => format!("HTTP {status}, {error}"),
        _ => format!("HTTP {status}"),
    }
}

/// A text of somebody else's, fit to be shown.
pub(super) fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MOST_SAID).map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_secrets_are_encoded_before_they_are_joined() {
        let value = basic("a:b c", "d&é").unwrap();
        let text = value.to_str().unwrap().trim_start_matches("Basic ");
        assert_eq!(BASE64.decode(text.as_bytes()).unwrap(), b"a%3Ab+c:d%26%C3%A9");
        assert_eq!(format!("{value:?}"), "Sensitive");
    }
}
