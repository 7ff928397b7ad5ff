//! An issuer's keys: fetched when they are needed, and kept for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use serde_json::Value;

use crate::oauth::{OAuth, is_loopback, safe_url};

/// How long keys are taken for the issuer's.
const FRESH: Duration = Duration::from_secs(600);

/// How long keys are used if the issuer can't be asked.
const USABLE: Duration = Duration::from_secs(24 * 3_600);

/// How often keys nobody knows make the issuer be asked: anybody can make some up.
const ONCE_A: Duration = Duration::from_secs(60);

/// How soon an issuer that could not be asked is asked again, while there are no keys at all.
const SOON: Duration = Duration::from_secs(5);

const FETCH_LIMIT: Duration = Duration::from_secs(10);
const MOST_BYTES: usize = 1 << 20;
const MOST_KEYS: usize = 100;

/// The issuer's keys. A handle.
#[derive(Clone)]
pub(super) struct Keys(Arc<Issuer>);

struct Issuer {
    name: String,
    jwks_url: Option<String>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    keys: Vec<Arc<Key>>,
    /// When they came.
    got: Option<Instant>,
    /// When the issuer was last asked.
    asked: Option<Instant>,
    /// When it was last asked for a key nobody knew.
    missed: Option<Instant>,
    asking: Option<Shared<BoxFuture<'static, ()>>>,
}

/// A key that signatures can be checked with.
pub(super) struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    pub(super) decoding: DecodingKey,
}

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NoKey {
    /// The issuer has none like this.
    Unknown,
    /// It can't be asked.
    Unreachable,
}

impl Keys {
    pub(super) fn new(oauth: &OAuth) -> Self {
        let (name, jwks_url) = (oauth.issuer.clone(), oauth.jwks_url.clone());
        Self(Arc::new(Issuer { name, jwks_url, known: Mutex::default() }))
    }

    /// The key of an id, for an algorithm.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Arc<Key>, NoKey> {
        let asking = {
            let mut known = self.lock();
            let found = known.find(id, algorithm);
            if let Some(key) = found.clone()
                && known.is_younger_than(FRESH)
            {
                return Ok(key);
            }
            let asking = self.ask(&mut known, found.is_some());
            match found {
                // An issuer that is slow to answer holds nobody up whose key it gave before.
                Some(key) if known.is_younger_than(USABLE) => return Ok(key),
                _ => asking,
            }
        };
        if let Some(asking) = asking {
            asking.await;
        }
        let known = self.lock();
        if !known.is_younger_than(USABLE) {
            return Err(NoKey::Unreachable);
        }
        known.find(id, algorithm).ok_or(NoKey::Unknown)
    }

    /// Asks the issuer, if it is time to; whoever comes meanwhile waits for the same answer.
    fn ask(&self, known: &mut Known, is_found: bool) -> Option<Shared<BoxFuture<'static, ()>>> {
        if known.asking.is_some() {
            return known.asking.clone();
        }
        let now = Instant::now();
        if !known.is_due(now, is_found) {
            return None;
        }
        known.asked = Some(now);
        if known.is_younger_than(FRESH) {
            known.missed = Some(now);
        }
        let keys = self.clone();
        // In a task of its own: whoever asked may go before the answer comes.
        let fetching = tokio::spawn(async move {
            let fetched = tokio::time::timeout(FETCH_LIMIT, keys.0.fetch()).await;
            let mut known = keys.lock();
            match fetched.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
                Ok(fetched) => (known.keys, known.got) = (fetched, Some(Instant::now())),
                Err(reason) => {
                    tracing::warn!(issuer = keys.0.name, reason, "can't get the issuer's keys");
                }
            }
            known.asking = None;
        });
        known.asking = Some(fetching.map(|_| ()).boxed().shared());
        known.asking.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_younger_than(&self, age: Duration) -> bool {
        self.got.is_some_and(|got| got.elapsed() < age)
    }

    /// Whether the issuer should be asked, by somebody whose key is known or not.
    fn is_due(&self, now: Instant, is_found: bool) -> bool {
        let ago = |time: Option<Instant>, least: Duration| {
            time.is_none_or(|time| now.saturating_duration_since(time) >= least)
        };
        match self.got {
            None => ago(self.asked, SOON),
            Some(_) if ago(self.got, FRESH) => ago(self.asked, ONCE_A),
            Some(_) => !is_found && ago(self.missed, ONCE_A),
        }
    }

    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<Arc<Key>> {
        let fits = |key: &&Arc<Key>| key.algorithms.contains(&algorithm);
        match id {
            Some(id) => self.keys.iter().filter(fits).find(|key| key.id.as_deref() == Some(id)),
            // A token that does not say which key it means can mean but one.
            None => {
                let mut fitting = self.keys.iter().filter(fits);
                fitting.next().filter(|_| fitting.next().is_none())
            }
        }
        .cloned()
    }
}

impl Issuer {
    async fn fetch(&self) -> Result<Vec<Arc<Key>>, String> {
        let issuer = safe_url(&self.name)?;
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")));
        let builder = if is_loopback(&issuer) { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|error| format!("no HTTP client: {error}"))?;
        let url = match &self.jwks_url {
            Some(url) => safe_url(url)?,
            None => self.discover(&client, &issuer).await?,
        };
        let text = get(&client, url).await?;
        read(&text).ok_or_else(|| "what it gave are no keys".to_owned())
    }

    /// Where the issuer says its keys are.
    async fn discover(&self, client: &Client, issuer: &Url) -> Result<Url, String> {
        #[derive(Deserialize)]
        struct Metadata {
            issuer: String,
            jwks_uri: String,
        }
        let path = issuer.path().trim_end_matches('/');
        let places = [
            format!("/.well-known/oauth-authorization-server{path}"),
            format!("{path}/.well-known/openid-configuration"),
            format!("/.well-known/openid-configuration{path}"),
        ];
        let mut reason = String::new();
        for place in places {
            let mut url = issuer.clone();
            url.set_path(&place);
            match get(client, url).await.map(|text| serde_json::from_str::<Metadata>(&text)) {
                Ok(Ok(metadata)) if metadata.issuer != self.name => {
                    return Err(format!("it calls itself {:?}: correct `issuer`", metadata.issuer));
                }
                Ok(Ok(metadata)) => {
                    let keys = safe_url(&metadata.jwks_uri)?;
                    // Somebody elsewhere has no business on this machine.
                    return match is_loopback(&keys) && !is_loopback(issuer) {
                        true => Err("its keys can't be on this machine".to_owned()),
                        false => Ok(keys),
                    };
                }
                Ok(Err(error)) => reason = format!("its metadata can't be read: {error}"),
                Err(error) => reason = error,
            }
        }
        Err(reason)
    }
}

/// A document, if it is not too long.
async fn get(client: &Client, url: Url) -> Result<String, String> {
    let failed = |error: reqwest::Error| format!("it can't be asked: {}", error.without_url());
    let mut response = client.get(url.clone()).send().await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(format!("{url} answers with status {}", response.status().as_u16()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if bytes.len() + chunk.len() > MOST_BYTES {
            return Err(format!("{url} gives more than {MOST_BYTES} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).map_err(|_| format!("{url} gives no text"))
}

/// The keys of a set, as far as they are of use here.
fn read(text: &str) -> Option<Vec<Arc<Key>>> {
    let set: Value = serde_json::from_str(text).ok()?;
    let keys = set.get("keys")?.as_array()?.iter();
    let keys = keys.filter_map(|key| Key::of(&serde_json::from_value(key.clone()).ok()?));
    Some(keys.take(MOST_KEYS).map(Arc::new).collect())
}

impl Key {
    fn of(jwk: &Jwk) -> Option<Self> {
        let usual: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &[Algorithm::RS256, Algorithm::PS256],
            AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
                &[Algorithm::ES256]
            }
            AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            _ => return None,
        };
        let is_for_signing =
            jwk.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
        let is_named = |algorithm: &Algorithm| match jwk.common.key_algorithm {
            None => true,
            Some(KeyAlgorithm::RS256) => *algorithm == Algorithm::RS256,
            Some(KeyAlgorithm::PS256) => *algorithm == Algorithm::PS256,
            Some(KeyAlgorithm::ES256) => *algorithm == Algorithm::ES256,
            Some(KeyAlgorithm::EdDSA) => *algorithm == Algorithm::EdDSA,
            Some(_) => false,
        };
        let algorithms: Vec<Algorithm> = usual.iter().copied().filter(is_named).collect();
        if !is_for_signing || algorithms.is_empty() {
            return None;
        }
        let decoding = DecodingKey::from_jwk(jwk).ok()?;
        Some(Self { id: jwk.common.key_id.clone(), algorithms, decoding })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_asked_when_keys_are_old_and_seldom_for_unknown_ones() {
        let now = Instant::now() + Duration::from_secs(100_000);
        let ago = |seconds| Some(now - Duration::from_secs(seconds));
        for (got, asked, missed, is_found, expected) in [
            (None, None, None, false, true),
            (None, ago(1), None, false, false),
            (None, ago(6), None, false, true),
            (ago(599), ago(599), None, true, false),
            (ago(601), ago(601), None, true, true),
            // It was asked in vain a moment ago.
            (ago(700), ago(30), None, true, false),
            (ago(700), ago(61), None, true, true),
            (ago(1), ago(1), None, false, true),
            (ago(1), ago(1), ago(30), false, false),
            (ago(100), ago(61), ago(61), false, true),
        ] {
            let known = Known { got, asked, missed, ..Known::default() };
            assert_eq!(known.is_due(now, is_found), expected, "{got:?} {asked:?} {missed:?}");
        }
    }

    #[tokio::test]
    async fn an_issuer_that_does_not_answer_holds_nobody_up() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut oauth = OAuth::new(format!("http://{}", silent.local_addr().unwrap()));
        oauth.jwks_url = Some(format!("{}/keys", oauth.issuer));
        let keys = Keys::new(&oauth);
        let key = r#"{"keys": [{"kty": "RSA", "kid": "k", "n": "AQAB", "e": "AQAB"}]}"#;
        let old = Instant::now().checked_sub(FRESH * 2);
        *keys.lock() = Known { keys: read(key).unwrap(), got: old, ..Known::default() };
        let find = |id| keys.find(Some(id), Algorithm::RS256);
        assert!(find("k").now_or_never().expect("at once").is_ok());
        let (asked, _) = silent.accept().await.unwrap();
        assert!(find("k").now_or_never().expect("at once").is_ok());
        // Whoever brings another key has to wait: it may be a new one.
        assert!(find("other").now_or_never().is_none());
        drop(asked);
    }

    #[test]
    fn only_keys_of_use_are_taken() {
        let text = r#"{"keys": [
            {"kty": "oct", "kid": "shared", "k": "c2VjcmV0"},
            {"kty": "EC", "crv": "P-384", "kid": "long", "x": "AA", "y": "AA"},
            {"kty": "RSA", "kid": "closing", "use": "enc", "n": "AQAB", "e": "AQAB"},
            {"kty": "RSA", "kid": "other", "alg": "RS512", "n": "AQAB", "e": "AQAB"},
            {"kty": "RSA", "kid": "one", "n": "AQAB", "e": "AQAB"},
            {"kty": "RSA", "kid": "two", "alg": "PS256", "n": "AQAB", "e": "AQAB"},
            {"kty": "new", "kid": "odd"}, 7]}"#;
        let known = Known { keys: read(text).unwrap(), ..Known::default() };
        let id = |id, algorithm| known.find(id, algorithm).and_then(|key| key.id.clone());
        assert_eq!(known.keys.len(), 2);
        assert_eq!(id(Some("one"), Algorithm::RS256).as_deref(), Some("one"));
        assert_eq!(id(Some("two"), Algorithm::RS256), None);
        assert_eq!(id(None, Algorithm::RS256).as_deref(), Some("one"));
        assert_eq!(id(None, Algorithm::PS256), None, "there are two");
        assert!(read("[]").is_none() && read("{}").is_none());
    }
}
