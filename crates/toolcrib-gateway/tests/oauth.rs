//! Callers with tokens of an authorization server.
#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "support/issuer.rs"]
mod issuer;
mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use issuer::{Issuer, SigningKey, now};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use reqwest::Method;
use serde_json::{Value, json};
use support::{Odd, Served, answer, crib, events, names};
use tokio::time::timeout;
use toolcrib_core::{Policy, PolicyRules};
use toolcrib_gateway::{Gateway, GatewayError, HttpOptions, OAuth, Options, TokenHash};

/// What callers know the gateway by. Nobody goes there in these tests.
const CRIB: &str = "https://crib.example";

fn denying(tool: &str) -> Policy {
    let rules = PolicyRules { deny_tools: vec![tool.to_owned()], ..PolicyRules::default() };
    Policy::new(rules).unwrap()
}

async fn serve(oauth: OAuth) -> Served {
    let crib = crib().await;
    crib.add(Odd::new("odd")).await;
    let mut options = Options::default();
    options.policy = denying("refuse");
    let gateway = Gateway::new(crib, options).unwrap();
    let mut options = HttpOptions::default();
    options.tokens = vec![TokenHash::of("a-plain-token")];
    options.oauth = Some(oauth);
    Served::start(&gateway, options).await
}

fn oauth(issuer: &Issuer) -> OAuth {
    let mut oauth = OAuth::new(&*issuer.url);
    oauth.url = Some(CRIB.to_owned());
    oauth
}

async fn list(served: &Served, token: &str) -> (u16, Vec<String>) {
    let request = served.modern("/mcp/full", "tools/list", json!({})).bearer_auth(token);
    let (status, listed) = answer(request).await;
    let tools = &listed["result"]["tools"];
    (status, if tools.is_array() { names(tools) } else { Vec::new() })
}

/// Status and challenge of the answer to a token; the body never repeats the token.
async fn refused(served: &Served, token: &str) -> (u16, String) {
    let request = served.modern("/mcp/full", "tools/list", json!({})).bearer_auth(token);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let how = response.headers().get("www-authenticate");
    let how = how.map(|how| how.to_str().unwrap().to_owned()).unwrap_or_default();
    let body = response.text().await.unwrap();
    assert!(!body.contains(token) && !how.contains(token));
    (status, how)
}

fn with(claims: &Value, key: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    claims[key] = value;
    claims
}

#[tokio::test]
async fn tokens_of_every_accepted_algorithm_are_let_in() {
    let keys = [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::EdDSA]
        .map(|algorithm| SigningKey::new(&format!("{algorithm:?}"), algorithm));
    let issuer = Issuer::start(&keys.each_ref()).await;
    let served = serve(oauth(&issuer)).await;
    for key in &keys {
        for audience in [json!(CRIB), json!("https://crib.example/mcp/full"), json!(["x", CRIB])] {
            let claims = with(&issuer.claims(CRIB, ""), "aud", audience);
            let (status, tools) = list(&served, &key.sign(&claims)).await;
            assert!(status == 200 && tools.contains(&"odd__rich".to_owned()), "{claims}");
            assert!(!tools.contains(&"odd__refuse".to_owned()));
        }
    }
    assert_eq!(issuer.fetched(), 1, "keys are kept");
    assert_eq!(list(&served, "a-plain-token").await.0, 200);
}

#[tokio::test]
async fn what_is_not_a_good_token_is_refused() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let issuer = Issuer::start(&[&key]).await;
    let served = serve(oauth(&issuer)).await;
    let good = issuer.claims(CRIB, "");
    assert_eq!(list(&served, &key.sign(&good)).await.0, 200);
    let late = |seconds: u64| json!(now() - seconds);
    let without = |claim: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(claim);
        claims
    };
    for (claims, why) in [
        (with(&good, "exp", late(90)), "it has expired"),
        (with(&good, "nbf", json!(now() + 90)), "it is not valid yet"),
        (with(&good, "aud", json!("https://other.example")), "it is for somebody else"),
        (with(&good, "aud", json!("https://crib.example/mcp/s/odd")), "it is for somebody else"),
        (with(&good, "iss", json!("https://other.example")), "it is another issuer's"),
        (with(&good, "iss", json!([issuer.url])), "it can't be read"),
        (with(&good, "sub", json!("")), "it does not say whose it is"),
        (with(&good, "cnf", json!({"jkt": "x"})), "bound to a key"),
        (without("exp"), "lacks one of"),
        (without("aud"), "lacks one of"),
        (without("sub"), "it can't be read"),
    ] {
        let (status, how) = refused(&served, &key.sign(&claims)).await;
        assert!(status == 401 && how.contains(why), "{claims}: {status} {how}");
        assert!(how.contains(r#"error="invalid_token""#), "{how}");
    }
    // Clocks differ.
    for (claim, time) in [("exp", late(30)), ("nbf", json!(now() + 30))] {
        assert_eq!(list(&served, &key.sign(&with(&good, claim, time))).await.0, 200);
    }
}

#[tokio::test]
async fn nobody_but_the_issuer_can_sign() {
    let key = SigningKey::new("k", Algorithm::RS256);
    let issuer = Issuer::start(&[&key]).await;
    let served = serve(oauth(&issuer)).await;
    let good = issuer.claims(CRIB, "");
    let token = key.sign(&good);
    assert_eq!(list(&served, &token).await.0, 200);
    let encoded =
        |value: &Value| data_encoding::BASE64URL_NOPAD.encode(value.to_string().as_bytes());

    // Without a signature.
    let none = format!("{}.{}.", encoded(&json!({"alg": "none", "kid": "k"})), encoded(&good));
    assert_eq!(refused(&served, &none).await.0, 401);
    // With the public key as a password, in each form it may be had.
    let public = key.public();
    let modulus = data_encoding::BASE64URL_NOPAD.decode(public["n"].as_str().unwrap().as_bytes());
    for secret in [modulus.unwrap(), public.to_string().into_bytes()] {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("k".to_owned());
        let forged = encode(&header, &good, &EncodingKey::from_secret(&secret)).unwrap();
        let (status, how) = refused(&served, &forged).await;
        assert!(status == 401 && how.contains("its algorithm is not accepted"), "{how}");
    }
    // With a key of one's own under the same id, brought along or not.
    let own = SigningKey::new("k", Algorithm::RS256);
    let (status, how) = refused(&served, &own.sign(&good)).await;
    assert!(status == 401 && how.contains("its signature is wrong"), "{how}");
    let mut header = Header::new(Algorithm::RS256);
    header.jwk = Some(serde_json::from_value(own.public()).unwrap());
    header.jku = Some("https://evil.example/keys".to_owned());
    let brought = encode(&header, &good, &own.key).unwrap();
    assert_eq!(refused(&served, &brought).await.0, 401);
    // With other claims under a good signature.
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    parts[1] = encoded(&with(&good, "sub", json!("bob")));
    assert_eq!(refused(&served, &parts.join(".")).await.0, 401);
    // Tokens for something else, and what is none.
    let mut header = Header::new(Algorithm::RS256);
    header.kid = Some("k".to_owned());
    header.typ = Some("logout+jwt".to_owned());
    let other = encode(&header, &good, &key.key).unwrap();
    assert!(refused(&served, &other).await.1.contains("it is no access token"));
    for odd in ["xyzzy", "ab.cd", "ab.cd.ef", "....", &"a".repeat(20_000)] {
        assert_eq!(refused(&served, odd).await.0, 401);
    }
}

#[tokio::test]
async fn a_key_that_is_new_is_asked_for_but_not_time_and_again() {
    let old = SigningKey::new("old", Algorithm::ES256);
    let new = SigningKey::new("new", Algorithm::ES256);
    let issuer = Issuer::start(&[&old]).await;
    let served = serve(oauth(&issuer)).await;
    let claims = issuer.claims(CRIB, "");
    assert_eq!(list(&served, &old.sign(&claims)).await.0, 200);
    issuer.offer(&[&new]);
    assert_eq!(list(&served, &new.sign(&claims)).await.0, 200);
    assert_eq!(issuer.fetched(), 2);
    assert!(refused(&served, &old.sign(&claims)).await.1.contains("not the issuer's"));
    for n in 0..5 {
        let unknown = SigningKey::new(&n.to_string(), Algorithm::ES256);
        assert_eq!(refused(&served, &unknown.sign(&claims)).await.0, 401);
    }
    assert_eq!(issuer.fetched(), 2, "once a minute at most");
}

#[tokio::test]
async fn known_keys_serve_while_the_issuer_is_away() {
    let key = SigningKey::new("k", Algorithm::EdDSA);
    let issuer = Issuer::start(&[&key]).await;
    let served = serve(oauth(&issuer)).await;
    let token = key.sign(&issuer.claims(CRIB, ""));
    issuer.served.is_down.store(true, Ordering::SeqCst);
    let response = served.modern("/mcp", "tools/list", json!({})).bearer_auth(&token).send();
    let response = response.await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["retry-after"]),
        (503, &"5".parse().unwrap())
    );

    issuer.served.is_down.store(false, Ordering::SeqCst);
    let served = serve(oauth(&issuer)).await;
    // Many who come at once ask once.
    let asked = issuer.fetched();
    let all = (0..20).map(|_| list(&served, &token));
    assert!(futures::future::join_all(all).await.iter().all(|(status, _)| *status == 200));
    assert_eq!(issuer.fetched(), asked + 1);
    issuer.served.is_down.store(true, Ordering::SeqCst);
    let unknown = SigningKey::new("u", Algorithm::EdDSA);
    assert_eq!(refused(&served, &unknown.sign(&issuer.claims(CRIB, ""))).await.0, 401);
    assert_eq!(list(&served, &token).await.0, 200);
}

#[tokio::test]
async fn scopes_are_needed_and_say_what_may_be_seen() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let issuer = Issuer::start(&[&key]).await;
    let mut oauth = oauth(&issuer);
    oauth.required_scopes = vec!["mcp".to_owned()];
    oauth.scopes.insert("no-rich".to_owned(), denying("rich"));
    oauth.scopes.insert("no-echo".to_owned(), denying("echo"));
    oauth.scopes.insert("all".to_owned(), Policy::default());
    let served = serve(oauth).await;
    let token = |scope: &str| key.sign(&issuer.claims(CRIB, scope));
    for scope in ["", "other", "mcp", "no-rich", "MCP no-rich", "mcpx no-rich"] {
        let (status, how) = refused(&served, &token(scope)).await;
        assert_eq!(status, 403, "{scope}");
        // One of those that give something is wanted beside the one that all need.
        let wanted = r#"scope="mcp all no-echo no-rich""#;
        assert!(how.contains(r#"error="insufficient_scope""#) && how.contains(wanted), "{how}");
        let place =
            format!(r#"resource_metadata="{CRIB}/.well-known/oauth-protected-resource/mcp/full""#);
        assert!(how.contains(&place), "{how}");
    }
    let seen = async |scope: &str| {
        let (status, tools) = list(&served, &token(scope)).await;
        assert_eq!(status, 200, "{scope}");
        ["echo", "rich", "refuse"].map(|name| tools.contains(&format!("odd__{name}")))
    };
    assert_eq!(seen("mcp no-rich").await, [true, false, false]);
    assert_eq!(seen("no-echo mcp other").await, [false, true, false]);
    assert_eq!(seen("mcp no-echo no-rich").await, [true, true, false]);
    assert_eq!(seen("mcp all").await, [true, true, false]);
    // As other issuers write them.
    let listed = with(&issuer.claims(CRIB, ""), "scp", json!(["mcp", "no-rich"]));
    assert!(!list(&served, &key.sign(&listed)).await.1.contains(&"odd__rich".to_owned()));
    // What may not be seen can't be called either.
    let call = served.modern("/mcp/full", "tools/call", json!({"name": "odd__rich"}));
    let (_, called) = answer(call.bearer_auth(token("mcp no-rich"))).await;
    assert!(called["error"]["message"].as_str().unwrap().contains("Unknown tool"), "{called}");
}

#[tokio::test]
async fn a_session_is_of_one_subject_with_the_same_scopes() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let issuer = Issuer::start(&[&key]).await;
    let mut oauth = oauth(&issuer);
    oauth.scopes.insert("some".to_owned(), denying("rich"));
    oauth.scopes.insert("all".to_owned(), Policy::default());
    let served = serve(oauth).await;
    let token =
        |sub: &str, scope: &str| key.sign(&with(&issuer.claims(CRIB, scope), "sub", json!(sub)));
    let body = support::rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
    let opened = served.post("/mcp/full").bearer_auth(token("ann", "all")).body(body);
    let opened = opened.send().await.unwrap();
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let ask = |token: String| {
        answer(served.within("/mcp/full", &session, "ping", json!({})).bearer_auth(token))
    };
    // A token that was refreshed is another one.
    let refreshed = with(&issuer.claims(CRIB, "all"), "exp", json!(now() + 900));
    assert_eq!(ask(key.sign(&refreshed)).await.0, 200);
    assert_eq!(ask(token("bob", "all")).await.0, 404);
    assert_eq!(ask(token("ann", "some")).await.0, 404, "it would see more than it may");
    assert_eq!(ask("a-plain-token".to_owned()).await.0, 404);
}

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let issuer = Issuer::start(&[&key]).await;
    let served = serve(oauth(&issuer)).await;
    let token = |exp: u64| key.sign(&with(&issuer.claims(CRIB, ""), "exp", json!(exp)));
    let body = support::rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
    let opened = served.post("/mcp/full").bearer_auth(token(now() + 300)).body(body);
    let opened = opened.send().await.unwrap();
    let session = opened.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let call = served.within("/mcp/full", &session, "tools/call", json!({"name": "odd__block"}));
    let mut call = call.bearer_auth(token(now() + 300)).send().await.unwrap();
    let begin = String::from_utf8(call.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    let id = begin.lines().find_map(|line| line.strip_prefix("id: ")).unwrap();
    let get = || {
        let get = served.other(Method::GET, "/mcp/full").header("mcp-session-id", &session);
        get.header("accept", "text/event-stream")
    };
    let resumed = get().header("last-event-id", id);
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = served.modern("/mcp/full", "subscriptions/listen", wanted);
    for (request, said) in [(get(), 0), (listen, 1), (resumed, 0)] {
        // As clocks may differ by a minute, it lasts a few seconds more.
        let ending = token(now() - 55);
        let mut stream = request.bearer_auth(ending).send().await.unwrap();
        assert_eq!(stream.status(), 200);
        let seen = timeout(Duration::from_secs(30), events(&mut stream, usize::MAX)).await;
        assert_eq!(seen.expect("it ends").len(), said);
    }
}

#[tokio::test]
async fn whoever_has_no_token_is_told_where_to_get_one() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let issuer = Issuer::start(&[&key]).await;
    let mut oauth = oauth(&issuer);
    oauth.required_scopes = vec!["mcp".to_owned()];
    oauth.scopes.insert("all".to_owned(), Policy::default());
    let served = serve(oauth).await;
    for (endpoint, place) in
        [("/mcp", "/mcp"), ("/mcp/s/odd", "/mcp/s/odd"), ("/mcp/s/no", "/mcp/s/no")]
    {
        let response = served.post(endpoint).body("{}").send().await.unwrap();
        assert_eq!(response.status(), 401);
        let how = response.headers()["www-authenticate"].to_str().unwrap().to_owned();
        let path = format!("/.well-known/oauth-protected-resource{place}");
        assert!(how.contains(&format!(r#"resource_metadata="{CRIB}{path}""#)), "{how}");
        assert!(how.contains(r#"scope="mcp all""#) && !how.contains("error="), "{how}");
        let metadata = served.other(Method::GET, &path).header("origin", "https://any.example");
        let (status, metadata) = answer(metadata).await;
        assert_eq!(status, 200);
        assert_eq!(metadata["resource"], format!("{CRIB}{place}"));
        assert_eq!(metadata["authorization_servers"], json!([issuer.url]));
        assert_eq!(metadata["scopes_supported"], json!(["all", "mcp"]));
        assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
    }
    let root = answer(served.other(Method::GET, "/.well-known/oauth-protected-resource")).await;
    assert_eq!(root.1["resource"], CRIB);
    let other = "/.well-known/oauth-protected-resource/metrics";
    assert_eq!(answer(served.other(Method::GET, other)).await.0, 404);
    // A token anywhere but in its header is none.
    let token = key.sign(&issuer.claims(CRIB, "mcp all"));
    let query = served.post(&format!("/mcp?access_token={token}")).body("{}");
    assert_eq!(query.send().await.unwrap().status(), 401);
    assert_eq!(list(&served, &token).await.0, 200);
    assert_eq!(answer(served.other(Method::GET, "/metrics")).await.0, 401);
}

#[tokio::test]
async fn nothing_of_a_token_reaches_a_server() {
    let key = SigningKey::new("k", Algorithm::ES256);
    let issuer = Issuer::start(&[&key]).await;
    let served = serve(oauth(&issuer)).await;
    let token = key.sign(&issuer.claims(CRIB, ""));
    let call = served.modern("/mcp/full", "tools/call", json!({"name": "odd__echo"}));
    let (status, called) = answer(call.bearer_auth(&token)).await;
    assert_eq!(status, 200);
    let seen = called["result"]["structuredContent"].to_string();
    assert!(seen.contains("meta") && !seen.contains(&token) && !seen.contains("ann"), "{seen}");
}

#[tokio::test]
async fn tokens_that_could_not_be_checked_are_not_asked_for() {
    let crib = crib().await;
    let gateway = Gateway::new(crib, Options::default()).unwrap();
    for (issuer, url) in [("http://login.example", Some(CRIB)), ("https://login.example", None)] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut options = HttpOptions::default();
        let mut oauth = OAuth::new(issuer);
        oauth.url = url.map(str::to_owned);
        options.oauth = Some(oauth);
        let served = gateway.serve_http(listener, options, std::future::pending()).await;
        assert!(matches!(served, Err(GatewayError::OAuth { .. })), "{served:?}");
    }
    // On an address that others can reach, tokens of an issuer are as good as others.
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let mut options = HttpOptions::default();
    let mut oauth = OAuth::new("https://login.example");
    oauth.url = Some(CRIB.to_owned());
    options.oauth = Some(oauth);
    let served = gateway.serve_http(listener, options, std::future::ready(())).await;
    assert!(served.is_ok(), "{served:?}");
}
