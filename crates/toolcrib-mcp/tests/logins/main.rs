//! Logins at servers that want one, against an authorization server that is made here.
#![allow(clippy::unwrap_used)]

mod fake;
mod refused;
mod renewed;
mod unkept;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::time::{Duration, timeout};
use toolcrib_core::ToolName;
use toolcrib_mcp::{Logins, OAuth, ServerConfig, Upstream, Upstreams};
use toolcrib_runtime::{CallError, Invocation, Manifest, ManifestStore, ToolResult, Toolset};

use fake::{Fake, browse};

const LONG: Duration = Duration::from_secs(30);

async fn call(upstream: &Upstream) -> Result<ToolResult, CallError> {
    let invocation = Invocation::new(ToolName::mcp("fixture", "act"), json!({}));
    timeout(LONG, upstream.call(invocation)).await.expect("it takes too long")
}

async fn works(upstream: &Upstream) {
    let result = call(upstream).await.unwrap();
    assert!(!result.is_error(), "{result:?}");
}

/// The reason of a call that must fail.
async fn reason(upstream: &Upstream) -> String {
    call(upstream).await.unwrap_err().to_string()
}

/// A login that is there already.
async fn logged_in(fake: &Fake) {
    timeout(LONG, fake.with_browser().log_in(&[])).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_login_is_asked_for_once_and_used_by_whoever_comes_later() {
    let fake = Fake::start().await;
    works(&fake.with_browser()).await;
    {
        let seen = fake.seen();
        assert_eq!(seen.registered.len(), 1);
        assert_eq!(seen.registered[0]["application_type"], "native");
        assert_eq!(seen.registered[0]["token_endpoint_auth_method"], "none");
        let query = &seen.authorized[0];
        assert_eq!(query["resource"], fake.url());
        assert_eq!(query["code_challenge_method"], "S256");
        assert_eq!(query["scope"], "read", "what the server wanted, not all that it knows");
        assert_eq!(query["client_id"], "registered");
        assert!(query["redirect_uri"].starts_with("http://127.0.0.1:"));
        assert!(query["state"].len() >= 43);
        let form = &seen.tokens[0];
        assert_eq!(form["resource"], fake.url());
        assert_eq!(form["redirect_uri"], query["redirect_uri"]);
        assert_eq!(form["client_id"], "registered");
        assert_eq!(seen.unkept, 0);
        let root = "/.well-known/oauth-protected-resource".to_owned();
        assert!(!seen.paths.contains(&root), "{:?}", seen.paths);
    }
    works(&fake.alone()).await;
    assert_eq!(fake.seen().authorized.len(), 1);
}

#[tokio::test]
async fn without_anybody_to_ask_the_reason_says_what_to_run() {
    let fake = Fake::start().await;
    let reason = reason(&fake.alone()).await;
    assert!(reason.contains("it wants you to log in: run `toolcrib login fixture`"), "{reason}");
    assert!(fake.seen().paths.is_empty(), "nothing was to be asked");
    // A login of another program is seen without a restart.
    let waiting = fake.alone();
    assert!(call(&waiting).await.is_err());
    logged_in(&fake).await;
    waiting.check().await.unwrap();
    works(&waiting).await;
}

#[tokio::test]
async fn many_callers_ask_one_person() {
    let fake = Fake::start().await;
    let upstream = fake.with_browser();
    let calls = (0..20).map(|_| works(&upstream));
    futures::future::join_all(calls).await;
    let seen = fake.seen();
    assert_eq!((seen.authorized.len(), seen.calls), (1, 20));
}

#[tokio::test]
async fn a_client_is_what_was_agreed_then_what_is_published_then_what_is_registered() {
    let fake = Fake::start().await;
    fake.ways().metadata = json!({"client_id_metadata_document_supported": true});
    let logins = Logins::new(fake.store()).shown_by(browse);
    let client_of = async |oauth: OAuth| {
        let config = ServerConfig { oauth, ..fake.config() };
        fake.open(logins.clone(), config).log_in(&[]).await.unwrap();
        fake.seen().authorized.last().unwrap()["client_id"].clone()
    };
    let document = "https://me.example/client.json".to_owned();
    let published = OAuth { client_metadata_url: Some(document.clone()), ..OAuth::default() };
    let agreed = OAuth {
        client_id: Some("agreed".to_owned()),
        client_secret: Some("s3cr3t:é".to_owned()),
        issuer: Some(fake.issuer()),
        ..published.clone()
    };
    assert_eq!(client_of(agreed).await, "agreed");
    assert_eq!(fake.seen().tokens.last().unwrap()["basic"], "agreed:s3cr3t%3A%C3%A9");
    assert_eq!(client_of(published.clone()).await, document);
    assert!(fake.seen().registered.is_empty());
    fake.ways().metadata = json!({});
    assert_eq!(client_of(published.clone()).await, "registered");
    assert_eq!(client_of(published).await, "registered");
    assert_eq!(fake.seen().registered.len(), 1, "it is kept");
    fake.ways().metadata = json!({"registration_endpoint": null});
    logins_without_registration(&fake).await;
}

async fn logins_without_registration(fake: &Fake) {
    let other = Fake::start().await;
    other.ways().metadata = fake.ways().metadata.clone();
    let reason = other.with_browser().log_in(&[]).await.unwrap_err();
    assert!(reason.contains("set `client_id`"), "{reason}");
}

#[tokio::test]
async fn more_scopes_are_asked_for_when_a_call_needs_them() {
    let fake = Fake::start().await;
    fake.ways().metadata = json!({"scopes_supported": ["read", "offline_access"]});
    fake.ways().call_scope = Some("write".to_owned());
    works(&fake.with_browser()).await;
    let scopes: Vec<String> = fake.seen().authorized.iter().map(|it| it["scope"].clone()).collect();
    assert_eq!(scopes, ["read offline_access", "write read offline_access"]);
    assert_eq!(fake.seen().calls, 1);
}

#[tokio::test]
async fn scopes_that_nobody_grants_are_not_asked_for_for_ever() {
    let fake = Fake::start().await;
    fake.ways().call_scope = Some("write".to_owned());
    fake.ways().grants_nothing = true;
    let upstream = fake.with_browser();
    for _ in 0..3 {
        let reason = reason(&upstream).await;
        assert!(reason.contains("does not allow this (`write` was asked for)"), "{reason}");
    }
    assert_eq!(fake.seen().authorized.len(), 2);
    // A server that wants something else each time.
    for round in 0..5 {
        fake.ways().call_scope = Some(format!("write-{round}"));
        let _ = reason(&upstream).await;
    }
    assert_eq!(fake.seen().authorized.len(), 3);
    let alone = reason(&fake.alone()).await;
    assert!(alone.contains("run `toolcrib login fixture --scope 'write-4'`"), "{alone}");
}

#[tokio::test]
async fn who_logs_out_is_forgotten_on_both_sides() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.alone();
    works(&upstream).await;
    assert_eq!(upstream.log_out().await, Ok(true));
    assert_eq!(upstream.log_out().await, Ok(false));
    assert!(fake.store().logins().is_empty());
    assert_eq!(fake.seen().revoked, ["refresh-token-2"]);
    let reason = reason(&upstream).await;
    assert!(reason.contains("run `toolcrib login fixture`"), "{reason}");
}

/// What servers listed, in memory.
#[derive(Clone, Default)]
struct Lists(Arc<Mutex<HashMap<String, Manifest>>>);

impl ManifestStore for Lists {
    fn get(&self, key: &str) -> Option<Manifest> {
        self.0.lock().unwrap().get(key).cloned()
    }

    fn put(&self, key: &str, manifest: Manifest) {
        self.0.lock().unwrap().insert(key.to_owned(), manifest);
    }
}

#[tokio::test]
async fn a_list_that_one_person_sees_is_not_shown_to_another() {
    let fake = Fake::start().await;
    let lists = Lists::default();
    let open = |logins| {
        let upstreams = Upstreams::new(lists.clone(), 1);
        upstreams.use_logins(logins);
        upstreams.open(fake.config())
    };
    let first = open(Logins::new(fake.store()).shown_by(browse));
    works(&first).await;
    let again = open(Logins::new(fake.store()));
    assert_eq!(again.known(), Some(1));
    first.log_out().await.unwrap();
    assert_eq!(open(Logins::new(fake.store())).known(), None);
    logged_in(&fake).await;
    assert_eq!(open(Logins::new(fake.store())).known(), None);
}

#[tokio::test]
async fn a_token_of_the_configuration_is_used_as_it_is() {
    let fake = Fake::start().await;
    let config = fake.config().header("Authorization", "Bearer mine-is-wrong");
    let upstream = fake.open(Logins::new(fake.store()).shown_by(browse), config);
    let reason = reason(&upstream).await;
    assert!(reason.contains("set `bearer_token` or `headers`"), "{reason}");
    assert!(fake.seen().authorized.is_empty());
    assert!(upstream.log_in(&[]).await.unwrap_err().contains("it takes no login"));
}
