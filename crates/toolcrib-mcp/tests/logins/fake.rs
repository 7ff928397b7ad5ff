//! A server that wants a login and the authorization server it trusts, in one; each does as a
//! test wants it to, and remembers what it was asked.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use axum::routing::any;
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use toolcrib_mcp::{LoginPage, Logins, ServerConfig, Upstream, Upstreams};
use toolcrib_runtime::{Credential, CredentialLock, CredentialStore, StorageError};

/// How the two behave.
#[derive(Clone)]
pub(crate) struct Ways {
    /// How many seconds an access token holds.
    pub(crate) lifetime: Option<f64>,
    pub(crate) renews: bool,
    /// How long the token endpoint takes.
    pub(crate) delay: Duration,
    /// What the token endpoint answers in place of tokens.
    pub(crate) token_answer: Option<(u16, Value)>,
    /// Replaces members of the authorization server's metadata.
    pub(crate) metadata: Value,
    /// The resource in the server's metadata, if it has any; its own unless given.
    pub(crate) resource: Option<String>,
    pub(crate) has_resource_metadata: bool,
    /// What the answer to a login says of who gave it: `None` nothing.
    pub(crate) iss: Option<String>,
    /// The scope that a call needs.
    pub(crate) call_scope: Option<String>,
    /// Whether the server takes no token at all.
    pub(crate) refuses_all: bool,
    /// Whether what is granted is nothing, whatever was asked for.
    pub(crate) grants_nothing: bool,
}

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) registered: Vec<Value>,
    pub(crate) authorized: Vec<HashMap<String, String>>,
    /// Forms sent to the token endpoint, with the `Authorization` among them.
    pub(crate) tokens: Vec<HashMap<String, String>>,
    pub(crate) revoked: Vec<String>,
    /// Requests to the server that were acted on.
    pub(crate) calls: usize,
    /// Paths of documents that were asked for.
    pub(crate) paths: Vec<String>,
    /// Tokens that were used before they were kept.
    pub(crate) unkept: usize,
}

impl Seen {
    pub(crate) fn grants(&self, kind: &str) -> usize {
        self.tokens.iter().filter(|form| form["grant_type"] == kind).count()
    }
}

#[derive(Default)]
struct Given {
    /// Codes, with the proof that must be shown and the scopes.
    codes: HashMap<String, (String, String)>,
    /// Access tokens: their end, and their scopes.
    access: HashMap<String, (Option<Instant>, String)>,
    /// The refresh tokens that hold, with their scopes.
    refresh: HashMap<String, String>,
    count: usize,
    all: Vec<String>,
}

#[derive(Clone)]
pub(crate) struct Fake(Arc<Inner>);

struct Inner {
    port: u16,
    ways: Mutex<Ways>,
    seen: Mutex<Seen>,
    given: Mutex<Given>,
    pub(crate) store: Memory,
}

impl Fake {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let issuer = format!("http://localhost:{port}/as");
        let ways = Ways {
            lifetime: Some(3600.0),
            renews: true,
            delay: Duration::ZERO,
            token_answer: None,
            metadata: json!({}),
            resource: None,
            has_resource_metadata: true,
            iss: Some(issuer),
            call_scope: None,
            refuses_all: false,
            grants_nothing: false,
        };
        let fake = Self(Arc::new(Inner {
            port,
            ways: Mutex::new(ways),
            seen: Mutex::default(),
            given: Mutex::default(),
            store: Memory::default(),
        }));
        let router = Router::new().fallback(any(answer)).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        fake
    }

    pub(crate) fn ways(&self) -> MutexGuard<'_, Ways> {
        self.0.ways.lock().unwrap()
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap()
    }

    pub(crate) fn store(&self) -> Memory {
        self.0.store.clone()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.0.port)
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://localhost:{}/as", self.0.port)
    }

    pub(crate) fn config(&self) -> ServerConfig {
        ServerConfig::http("fixture", self.url())
    }

    /// The server, as a program sees it where nobody can be asked to log in.
    pub(crate) fn alone(&self) -> Upstream {
        self.open(Logins::new(self.store()), self.config())
    }

    /// The server, as a program sees it where a browser says yes to everything.
    pub(crate) fn with_browser(&self) -> Upstream {
        self.open(Logins::new(self.store()).shown_by(browse), self.config())
    }

    pub(crate) fn open(&self, logins: Logins, config: ServerConfig) -> Upstream {
        let upstreams = Upstreams::default();
        upstreams.use_logins(logins);
        upstreams.open(config)
    }

    /// Every access token ends, before its time.
    pub(crate) fn end_access(&self) {
        self.0.given.lock().unwrap().access.clear();
    }

    /// No login can be renewed any more.
    pub(crate) fn end_logins(&self) {
        self.0.given.lock().unwrap().refresh.clear();
    }

    /// Every token that was ever given.
    pub(crate) fn all_tokens(&self) -> Vec<String> {
        self.0.given.lock().unwrap().all.clone()
    }

    fn metadata(&self) -> Value {
        let issuer = self.issuer();
        let mut metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "revocation_endpoint": format!("{issuer}/revoke"),
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": true,
        });
        for (key, value) in self.ways().metadata.as_object().unwrap() {
            metadata[key] = value.clone();
        }
        metadata
    }

    fn authorize(&self, query: HashMap<String, String>) -> Response<Body> {
        let code = {
            let mut given = self.0.given.lock().unwrap();
            given.count += 1;
            let code = format!("code-{}", given.count);
            let scope = query.get("scope").cloned().unwrap_or_default();
            given.codes.insert(code.clone(), (query["code_challenge"].clone(), scope));
            code
        };
        let mut back: reqwest::Url = query["redirect_uri"].parse().unwrap();
        back.query_pairs_mut().append_pair("code", &code).append_pair("state", &query["state"]);
        if let Some(iss) = &self.ways().iss {
            back.query_pairs_mut().append_pair("iss", iss);
        }
        self.seen().authorized.push(query);
        Response::builder()
            .status(302)
            .header("location", back.as_str())
            .body(Body::empty())
            .unwrap()
    }

    fn token(&self, form: &HashMap<String, String>) -> Response<Body> {
        let refused =
            |error: &str| reply(400, &json!({"error": error, "error_description": "not this"}));
        let ways = self.ways().clone();
        if let Some((status, answer)) = &ways.token_answer {
            return reply(*status, answer);
        }
        let mut given = self.0.given.lock().unwrap();
        let scope = match form["grant_type"].as_str() {
            "authorization_code" => {
                let Some((proof, scope)) = given.codes.remove(&form["code"]) else {
                    return refused("invalid_grant");
                };
                let shown = Sha256::digest(form["code_verifier"].as_bytes());
                assert_eq!(BASE64URL_NOPAD.encode(&shown), proof);
                scope
            }
            // Each holds once.
            "refresh_token" => match given.refresh.remove(&form["refresh_token"]) {
                Some(scope) => scope,
                None => return refused("invalid_grant"),
            },
            other => panic!("{other}"),
        };
        let scope = if ways.grants_nothing { String::new() } else { scope };
        given.count += 1;
        let (access, refresh) =
            (format!("access-token-{}", given.count), format!("refresh-token-{}", given.count));
        given.all.extend([access.clone(), refresh.clone()]);
        let end = ways.lifetime.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
        given.access.insert(access.clone(), (end, scope.clone()));
        let mut answer = json!({"access_token": access, "token_type": "bearer", "scope": scope});
        if let Some(seconds) = ways.lifetime {
            answer["expires_in"] = json!(seconds);
        }
        if ways.renews {
            given.refresh.insert(refresh.clone(), scope);
            answer["refresh_token"] = json!(refresh);
        }
        reply(200, &answer)
    }

    /// The server itself.
    fn serve(&self, headers: &HeaderMap, body: &[u8]) -> Response<Body> {
        let ways = self.ways().clone();
        let origin = format!("http://127.0.0.1:{}", self.0.port);
        let place = format!("{origin}/.well-known/oauth-protected-resource/mcp");
        let wants = |status, more: &str| {
            let text = format!("Bearer resource_metadata=\"{place}\"{more}");
            let mut answer = reply(status, &json!({"error": "no"}));
            answer.headers_mut().insert("www-authenticate", text.parse().unwrap());
            answer
        };
        let token = headers.get("authorization").and_then(|it| it.to_str().ok());
        let token = token.and_then(|it| it.strip_prefix("Bearer ")).unwrap_or_default();
        let scope = match self.0.given.lock().unwrap().access.get(token) {
            Some((end, scope)) if end.is_none_or(|end| end > Instant::now()) => scope.clone(),
            _ => return wants(401, ", scope=\"read\""),
        };
        if ways.refuses_all {
            return wants(401, ", error=\"invalid_token\"");
        }
        if !self.0.store.holds(token) {
            self.seen().unkept += 1;
        }
        let message: Value = serde_json::from_slice(body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "serverInfo": {"name": "fake", "version": "1"},
            }),
            "tools/list" => {
                json!({"tools": [{"name": "act", "inputSchema": {"type": "object"}}]})
            }
            "tools/call" => {
                if let Some(wanted) = &ways.call_scope
                    && !scope.split(' ').any(|scope| scope == wanted)
                {
                    return wants(
                        403,
                        &format!(", error=\"insufficient_scope\", scope=\"{wanted}\""),
                    );
                }
                self.seen().calls += 1;
                json!({"content": [{"type": "text", "text": "done"}]})
            }
            _ => return Response::builder().status(202).body(Body::empty()).unwrap(),
        };
        reply(200, &json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    }
}

async fn answer(
    State(fake): State<Fake>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let path = uri.path();
    if path.starts_with("/.well-known") {
        fake.seen().paths.push(path.to_owned());
    }
    match (method.as_str(), path) {
        ("POST", "/mcp") => fake.serve(&headers, &body),
        ("GET", "/.well-known/oauth-protected-resource/mcp") => {
            let ways = fake.ways().clone();
            let resource = ways.resource.unwrap_or_else(|| fake.url());
            let document = json!({
                "resource": resource,
                "authorization_servers": [fake.issuer()],
                "scopes_supported": ["read", "extra"],
            });
            reply(if ways.has_resource_metadata { 200 } else { 404 }, &document)
        }
        ("GET", "/.well-known/oauth-authorization-server/as") => reply(200, &fake.metadata()),
        ("GET", "/as/authorize") => fake.authorize(pairs(uri.query().unwrap_or_default())),
        ("POST", "/as/register") => {
            fake.seen().registered.push(serde_json::from_slice(&body).unwrap());
            reply(201, &json!({"client_id": "registered"}))
        }
        ("POST", "/as/token") => {
            let mut form = pairs(std::str::from_utf8(&body).unwrap());
            if let Some(basic) = headers.get("authorization") {
                let text = basic.to_str().unwrap().trim_start_matches("Basic ");
                let text = BASE64.decode(text.as_bytes()).unwrap();
                form.insert("basic".to_owned(), String::from_utf8(text).unwrap());
            }
            let answer = fake.token(&form);
            fake.seen().tokens.push(form);
            let delay = fake.ways().delay;
            tokio::time::sleep(delay).await;
            answer
        }
        ("POST", "/as/revoke") => {
            let form = pairs(std::str::from_utf8(&body).unwrap());
            fake.seen().revoked.push(form["token"].clone());
            reply(200, &json!({}))
        }
        _ => reply(404, &json!({})),
    }
}

fn pairs(text: &str) -> HashMap<String, String> {
    let url: reqwest::Url = format!("http://x/?{text}").parse().unwrap();
    url.query_pairs().into_owned().collect()
}

fn reply(status: u16, body: &Value) -> Response<Body> {
    let builder = Response::builder().status(status).header("content-type", "application/json");
    builder.body(Body::from(body.to_string())).unwrap()
}

/// A browser whose person says yes to everything.
pub(crate) fn browse(page: &LoginPage) {
    let url = page.url.clone();
    tokio::spawn(async move { reqwest::get(url).await.map(drop) });
}

/// A store in memory. Clones are what several programs see of one store.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    kept: Arc<Mutex<BTreeMap<String, String>>>,
    locked: Arc<Mutex<Vec<String>>>,
    /// Whether nothing can be written.
    is_full: Arc<AtomicBool>,
}

impl Memory {
    fn holds(&self, token: &str) -> bool {
        self.kept.lock().unwrap().values().any(|kept| kept.contains(token))
    }

    pub(crate) fn fill(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), StorageError> {
        match self.is_full.load(Ordering::SeqCst) {
            true => Err(StorageError::new(std::io::Error::from(ErrorKind::StorageFull))),
            false => Ok(()),
        }
    }

    /// What is kept of logins.
    pub(crate) fn logins(&self) -> Vec<Value> {
        let kept = self.kept.lock().unwrap();
        let logins = kept.iter().filter(|(key, _)| key.starts_with("login "));
        logins.map(|(_, text)| serde_json::from_str(text).unwrap()).collect()
    }
}

impl CredentialStore for Memory {
    fn load(&self, key: &str) -> Result<Option<Credential>, StorageError> {
        Ok(self.kept.lock().unwrap().get(key).map(Credential::new))
    }

    fn save(&self, key: &str, credential: &Credential) -> Result<(), StorageError> {
        self.check()?;
        self.kept.lock().unwrap().insert(key.to_owned(), credential.expose().to_owned());
        Ok(())
    }

    fn remove(&self, key: &str) -> Result<(), StorageError> {
        self.check()?;
        self.kept.lock().unwrap().remove(key);
        Ok(())
    }

    fn try_lock(&self, key: &str) -> Result<Option<CredentialLock>, StorageError> {
        struct Held(Memory, String);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.locked.lock().unwrap().retain(|key| *key != self.1);
            }
        }
        let mut locked = self.locked.lock().unwrap();
        if locked.iter().any(|held| held == key) {
            return Ok(None);
        }
        locked.push(key.to_owned());
        Ok(Some(CredentialLock::new(Held(self.clone(), key.to_owned()))))
    }
}
