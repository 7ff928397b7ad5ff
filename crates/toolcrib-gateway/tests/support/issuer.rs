//! An authorization server, as far as a gateway sees one: its metadata, its keys, its tokens.
#![allow(unreachable_pub, reason = "it is a part of the tests' support")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::routing::any;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

/// A key that tokens are signed with.
#[derive(Clone)]
pub struct SigningKey {
    pub id: String,
    pub algorithm: Algorithm,
    pub key: EncodingKey,
}

impl SigningKey {
    pub fn new(id: &str, algorithm: Algorithm) -> Self {
        let key = match algorithm {
            Algorithm::ES256 => {
                let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
                EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref())
            }
            Algorithm::EdDSA => {
                let pair = Ed25519KeyPair::generate().unwrap();
                EncodingKey::from_ed_der(pair.to_pkcs8v1().unwrap().as_ref())
            }
            _ => {
                let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
                let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
                // Within PKCS #8, after what kind of key it is, lies the PKCS #1 that is wanted.
                EncodingKey::from_rsa_der(&der.as_ref()[26..])
            }
        };
        Self { id: id.to_owned(), algorithm, key }
    }

    pub fn public(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.id.clone());
        serde_json::to_value(jwk).unwrap()
    }

    /// A token of this key's.
    pub fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.clone());
        encode(&header, claims, &self.key).unwrap()
    }
}

/// Serves keys on a port of its own.
pub struct Issuer {
    pub url: String,
    pub served: Arc<Offer>,
}

#[derive(Default)]
pub struct Offer {
    url: Mutex<String>,
    pub keys: Mutex<Vec<Value>>,
    /// How often the keys were fetched.
    pub fetched: AtomicUsize,
    pub is_down: AtomicBool,
}

impl Issuer {
    pub async fn start(keys: &[&SigningKey]) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = Arc::new(Offer::default());
        served.url.lock().unwrap().clone_from(&url);
        let issuer = Self { url, served: served.clone() };
        issuer.offer(keys);
        let router = axum::Router::new().fallback(any(offer)).with_state(served);
        tokio::spawn(async move { axum_serve(listener, router).await });
        issuer
    }

    pub fn offer(&self, keys: &[&SigningKey]) {
        *self.served.keys.lock().unwrap() = keys.iter().map(|key| key.public()).collect();
    }

    pub fn fetched(&self) -> usize {
        self.served.fetched.load(Ordering::SeqCst)
    }

    /// What a good token of `sub` says.
    pub fn claims(&self, audience: &str, scope: &str) -> Value {
        json!({"iss": self.url, "sub": "ann", "aud": audience, "exp": now() + 300, "scope": scope})
    }
}

pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

async fn offer(State(offer): State<Arc<Offer>>, uri: Uri) -> (StatusCode, String) {
    if offer.is_down.load(Ordering::SeqCst) {
        return (StatusCode::INTERNAL_SERVER_ERROR, String::new());
    }
    let url = offer.url.lock().unwrap().clone();
    match uri.path() {
        "/.well-known/openid-configuration" => {
            let metadata = json!({"issuer": url, "jwks_uri": format!("{url}/keys")});
            (StatusCode::OK, metadata.to_string())
        }
        "/keys" => {
            offer.fetched.fetch_add(1, Ordering::SeqCst);
            (StatusCode::OK, json!({"keys": *offer.keys.lock().unwrap()}).to_string())
        }
        _ => (StatusCode::NOT_FOUND, String::new()),
    }
}

async fn axum_serve(listener: tokio::net::TcpListener, router: axum::Router) {
    use hyper_util::rt::TokioIo;
    use hyper_util::service::TowerToHyperService;
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(router.clone());
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}
