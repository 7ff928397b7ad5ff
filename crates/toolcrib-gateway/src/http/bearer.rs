//! Tokens of an authorization server: checked here, and never passed on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use toolcrib_core::{Fingerprint, Policy};
use toolcrib_wire::{RpcError, code};

use super::guard::Admitted;
use super::keys::{Keys, NoKey};
use super::refusal;
use crate::oauth::OAuth;
use crate::seat::Seat;

/// Where what the gateway wants of tokens is said, before the path of an endpoint.
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Signatures that only the issuer can make.
const ALGORITHMS: [Algorithm; 4] =
    [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA];

/// By how many seconds clocks may differ.
const LEEWAY: u64 = 60;

/// The longest token that is looked at.
const MOST_BYTES: usize = 16 << 10;

/// Seats kept. Beyond that the one longest unused gives way.
const MOST_SEATS: usize = 1_024;

pub(super) struct Bearer {
    oauth: OAuth,
    keys: Keys,
    open: Arc<Seat>,
    seats: Mutex<HashMap<Fingerprint, (Arc<Seat>, Instant)>>,
}

/// Why a token is not enough.
#[derive(Debug, PartialEq)]
pub(super) enum Refused {
    /// There is none.
    Missing,
    /// It is not good.
    Invalid(&'static str),
    /// It is good, but not for this.
    Insufficient,
    /// Nobody can tell at the moment.
    Unknown,
}

/// What a token says.
#[derive(Deserialize)]
struct Claims {
    /// Read as text here, so that no list of issuers passes.
    #[serde(rename = "iss")]
    _issuer: String,
    sub: String,
    /// When it ends, in seconds. One that does not say so is refused when it is checked.
    #[serde(default)]
    exp: f64,
    #[serde(default)]
    scope: Option<Scopes>,
    #[serde(default)]
    scp: Option<Scopes>,
    /// The key of its bearer, which would have to be proven.
    #[serde(default)]
    cnf: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scopes {
    Text(String),
    List(Vec<String>),
}

impl Claims {
    fn scopes(&self) -> impl Iterator<Item = &str> {
        let all = self.scope.iter().chain(&self.scp);
        all.flat_map(|scopes| match scopes {
            Scopes::Text(text) => std::slice::from_ref(text),
            Scopes::List(list) => list,
        })
        .flat_map(|text| text.split_ascii_whitespace())
    }
}

impl Bearer {
    pub(super) fn new(oauth: &OAuth, open: &Arc<Seat>) -> Self {
        let (keys, open) = (Keys::new(oauth), open.clone());
        Self { oauth: oauth.clone(), keys, open, seats: Mutex::default() }
    }

    /// Lets in whoever brings this token to the endpoint of this path.
    pub(super) async fn admit(&self, token: &str, path: &str) -> Result<Admitted, Refused> {
        if token.len() > MOST_BYTES {
            return Err(Refused::Invalid("it is too long"));
        }
        let header = decode_header(token).map_err(|error| Refused::Invalid(why(&error)))?;
        check_header(&header).map_err(Refused::Invalid)?;
        let key = self.keys.find(header.kid.as_deref(), header.alg).await;
        let key = key.map_err(|missing| match missing {
            NoKey::Unknown => Refused::Invalid("its key is not the issuer's"),
            NoKey::Unreachable => Refused::Unknown,
        })?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.oauth.issuer]);
        validation.set_audience(&self.audience(path));
        let claims = decode::<Claims>(token, &key.decoding, &validation);
        let claims = claims.map_err(|error| Refused::Invalid(why(&error)))?.claims;
        if claims.cnf.is_some() {
            return Err(Refused::Invalid("it is bound to a key, which can't be proven here"));
        }
        if claims.sub.is_empty() {
            return Err(Refused::Invalid("it does not say whose it is"));
        }
        Ok(Admitted { seat: self.seat_of(&claims)?, until: end_of(&claims) })
    }

    /// The seat of a caller with scopes. It is made when they first come.
    fn seat_of(&self, claims: &Claims) -> Result<Arc<Seat>, Refused> {
        let has = |scope: &String| claims.scopes().any(|given| given == scope);
        let OAuth { issuer, required_scopes, scopes, .. } = &self.oauth;
        let granted: Vec<(&String, &Policy)> = scopes.iter().filter(|(it, _)| has(it)).collect();
        if !required_scopes.iter().all(has) || (granted.is_empty() && !scopes.is_empty()) {
            return Err(Refused::Insufficient);
        }
        let who = [&b"oauth"[..], issuer.as_bytes(), claims.sub.as_bytes()];
        let names = granted.iter().map(|(name, _)| name.as_bytes());
        let key = Fingerprint::of(who.into_iter().chain(names));
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seat, used)) = seats.get_mut(&key) {
            *used = Instant::now();
            return Ok(seat.clone());
        }
        if seats.len() >= MOST_SEATS {
            let oldest = seats.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            oldest.map(|key| seats.remove(&key));
        }
        let mut seat = Seat::known(&self.open, who).named(&format!("oauth:{}", claims.sub));
        // With other scopes they are still the same caller.
        if let Some((other, _)) = seats.values().find(|(it, _)| it.principal == seat.principal) {
            seat = seat.sharing(other);
        }
        if !scopes.is_empty() {
            seat = seat.narrowed(granted.into_iter().map(|(_, policy)| policy.clone()));
        }
        let seat = Arc::new(seat);
        seats.insert(key, (seat.clone(), Instant::now()));
        Ok(seat)
    }

    /// Whom a token may be for.
    fn audience(&self, path: &str) -> Vec<String> {
        let mut all = self.oauth.audience.clone();
        if let Some(base) = self.oauth.base() {
            all.extend([base.to_owned(), format!("{base}/"), format!("{base}{path}")]);
        }
        all
    }

    /// Says how to get a token that is enough.
    pub(super) fn refuse(&self, refused: &Refused, path: &str) -> Response {
        let mut how = vec![r#"Bearer realm="toolcrib""#.to_owned()];
        let (status, text) = match refused {
            Refused::Unknown => {
                let text = "The issuer of tokens can't be asked for its keys at the moment";
                let error = RpcError::new(code::INTERNAL_ERROR, text);
                let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, &error);
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
                return response;
            }
            Refused::Missing => (StatusCode::UNAUTHORIZED, "A bearer token is needed".to_owned()),
            Refused::Invalid(why) => {
                how.push(format!(r#"error="invalid_token", error_description="{why}""#));
                (StatusCode::UNAUTHORIZED, format!("The bearer token is refused: {why}"))
            }
            Refused::Insufficient => {
                how.push(r#"error="insufficient_scope""#.to_owned());
                let scopes = self.scopes_wanted().join(" ");
                let text = format!("The bearer token lacks a scope; wanted: {scopes}");
                (StatusCode::FORBIDDEN, text)
            }
        };
        let scopes = self.scopes_wanted();
        if !scopes.is_empty() {
            how.push(format!(r#"scope="{}""#, scopes.join(" ")));
        }
        if let Some(base) = self.oauth.base() {
            how.push(format!(r#"resource_metadata="{base}{METADATA}{path}""#));
        }
        let mut response = refusal(status, &RpcError::new(code::INVALID_REQUEST, text));
        if let Ok(how) = HeaderValue::from_str(&how.join(", ")) {
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
        }
        response
    }

    /// What a caller should ask for: all that is required, and whatever gives anything.
    fn scopes_wanted(&self) -> Vec<&str> {
        let OAuth { required_scopes, scopes, .. } = &self.oauth;
        let others = scopes.keys().filter(|scope| !required_scopes.contains(scope));
        required_scopes.iter().chain(others).map(String::as_str).collect()
    }

    /// What the gateway wants of tokens, as RFC 9728 has it; `path` is an endpoint's.
    pub(super) fn metadata(&self, path: &str, name: &str) -> Option<Value> {
        let OAuth { issuer, required_scopes, scopes, .. } = &self.oauth;
        let mut supported: Vec<&String> = required_scopes.iter().chain(scopes.keys()).collect();
        supported.sort_unstable();
        supported.dedup();
        let mut metadata = json!({
            "resource": format!("{}{path}", self.oauth.base()?),
            "authorization_servers": [issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": name,
        });
        if !supported.is_empty() {
            metadata["scopes_supported"] = json!(supported);
        }
        Some(metadata)
    }
}

/// When a token is no longer good; `None` if that is too far away to matter.
fn end_of(claims: &Claims) -> Option<tokio::time::Instant> {
    let end = Duration::try_from_secs_f64(claims.exp.max(0.0)).ok()?;
    let end = end.checked_add(Duration::from_secs(LEEWAY))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    tokio::time::Instant::now().checked_add(end.saturating_sub(now))
}

/// Looks at what a token says about itself, before it is believed.
fn check_header(header: &Header) -> Result<(), &'static str> {
    if !ALGORITHMS.contains(&header.alg) {
        return Err("its algorithm is not accepted");
    }
    let kinds = ["jwt", "at+jwt", "application/at+jwt"];
    let kind = header.typ.as_deref().map(str::to_ascii_lowercase);
    if kind.is_some_and(|kind| !kinds.contains(&kind.as_str())) {
        return Err("it is no access token");
    }
    if header.crit.is_some() {
        return Err("it needs something that is not known here");
    }
    Ok(())
}

fn why(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidAudience => "it is for somebody else",
        ErrorKind::InvalidIssuer => "it is another issuer's",
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::InvalidAlgorithm => "its algorithm is not accepted",
        ErrorKind::MissingRequiredClaim(_) => "it lacks one of exp, iss, aud and sub",
        _ => "it can't be read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn claims(scope: &str) -> Claims {
        let claims = json!({"iss": "i", "sub": "ann", "exp": 1e300, "scope": scope});
        serde_json::from_value(claims).unwrap()
    }

    #[test]
    fn a_caller_with_other_scopes_has_no_more_calls() {
        let mut oauth = OAuth::new("https://login.example");
        for scope in ["one", "two"] {
            oauth.scopes.insert(scope.to_owned(), Policy::only_server(scope).unwrap());
        }
        let limits = Limits { in_flight: Some(1), ..Limits::default() };
        let bearer = Bearer::new(&oauth, &Arc::new(Seat::open(Policy::default(), limits)));
        let [one, two] = ["one", "two"].map(|scope| bearer.seat_of(&claims(scope)).unwrap());
        assert!(!one.is_same(&two));
        let place = one.enter().unwrap();
        assert!(two.enter().is_err());
        drop(place);
        assert!(two.enter().is_ok());
    }

    #[tokio::test]
    async fn a_token_that_lasts_for_ages_does_no_harm() {
        assert_eq!(end_of(&claims("")), None);
        let past = Claims { exp: -7.0, ..claims("") };
        assert!(end_of(&past).unwrap() <= tokio::time::Instant::now());
    }
}
