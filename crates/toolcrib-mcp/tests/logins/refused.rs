//! What must not be believed, and what must not be shown.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolcrib_mcp::{Logins, OAuth, ServerConfig, Upstreams};

use crate::fake::{Fake, Ways, browse};
use crate::{call, logged_in, reason, works};

/// Why a login fails before any token is asked for.
async fn fault(change: impl FnOnce(&mut Ways, &Fake)) -> (String, Fake) {
    let fake = Fake::start().await;
    let mut ways = fake.ways().clone();
    change(&mut ways, &fake);
    *fake.ways() = ways;
    let upstream = fake.with_browser();
    let reason = upstream.log_in(&[]).await.unwrap_err();
    assert!(fake.seen().tokens.is_empty(), "{reason}");
    assert!(call(&upstream).await.is_err());
    assert!(fake.seen().tokens.is_empty() && fake.store().logins().is_empty());
    (reason, fake)
}

#[tokio::test]
async fn metadata_of_another_is_not_used() {
    let metadata = |value: Value| fault(move |ways, _| ways.metadata = value);
    for (value, expected) in [
        (json!({"issuer": "https://evil.example"}), "is another's"),
        (json!({"code_challenge_methods_supported": ["plain"]}), "PKCE"),
        (json!({"code_challenge_methods_supported": []}), "PKCE"),
        (json!({"token_endpoint": "http://evil.example/token"}), "is not https"),
        (json!({"token_endpoint": "https://169.254.169.254/"}), "must not be asked"),
        (json!({"authorization_endpoint": "file:///bin/sh"}), "is neither http nor https"),
    ] {
        let (reason, fake) = metadata(value).await;
        assert!(reason.contains(expected), "{reason}");
        let seen = fake.seen();
        assert!(seen.authorized.is_empty() && seen.registered.is_empty(), "{reason}");
    }
    for resource in ["https://evil.example/mcp", "http://localhost:1/mcp", "nothing"] {
        let (reason, fake) = fault(|ways, _| ways.resource = Some(resource.to_owned())).await;
        assert!(reason.contains("is that of another server"), "{reason}");
        assert!(fake.seen().authorized.is_empty());
    }
}

#[tokio::test]
async fn an_answer_of_another_is_not_used() {
    let slash = |fake: &Fake| Some(format!("{}/", fake.issuer()));
    for iss in [|_: &Fake| None, |_: &Fake| Some("https://evil.example".to_owned()), slash] {
        let (reason, fake) = fault(|ways, fake| ways.iss = iss(fake)).await;
        assert!(reason.contains("not from its authorization server"), "{reason}");
        assert!(fake.seen().authorized.len() <= 2, "nobody is asked again and again");
    }
    // One that never promised to say who it is may stay silent, but not lie.
    let silent = json!({"authorization_response_iss_parameter_supported": null});
    let metadata = silent.clone();
    let lie = |ways: &mut Ways, _: &Fake| {
        (ways.metadata, ways.iss) = (metadata, Some("https://evil.example".to_owned()));
    };
    fault(lie).await;
    let fake = Fake::start().await;
    fake.ways().metadata = json!({"authorization_response_iss_parameter_supported": false});
    fake.ways().iss = None;
    works(&fake.with_browser()).await;
}

#[tokio::test]
async fn a_server_that_says_nothing_of_logins_is_told_apart() {
    let (reason, _) = fault(|ways, _| ways.has_resource_metadata = false).await;
    assert!(reason.contains("set `bearer_token` or `headers`"), "{reason}");
}

#[tokio::test]
async fn a_server_that_refuses_every_token_is_not_logged_in_to_again_and_again() {
    let fake = Fake::start().await;
    fake.ways().refuses_all = true;
    let upstream = fake.with_browser();
    for _ in 0..3 {
        let reason = match upstream.check().await {
            Err(reason) => reason,
            Ok(()) => panic!("it took a token"),
        };
        assert!(reason.contains("run `toolcrib login fixture`"), "{reason}");
    }
    assert_eq!(fake.seen().authorized.len(), 1);
    let asked = fake.seen().tokens.len();
    assert!(asked <= 4, "{asked}");
}

#[tokio::test]
async fn a_secret_goes_to_nobody_but_the_issuer_it_is_for() {
    let fake = Fake::start().await;
    let logins = Logins::new(fake.store()).shown_by(browse);
    let agreed = OAuth {
        client_id: Some("agreed".to_owned()),
        client_secret: Some("s3cr3t".to_owned()),
        ..OAuth::default()
    };
    let open = |issuer: Option<String>| {
        let oauth = OAuth { issuer, ..agreed.clone() };
        fake.open(logins.clone(), ServerConfig { oauth, ..fake.config() })
    };
    let other = "https://login.example".to_owned();
    for (issuer, text) in [(None, "set `oauth.issuer`"), (Some(other.clone()), "`oauth.issuer` is")]
    {
        let upstream = open(issuer);
        let reason = upstream.log_in(&[]).await.unwrap_err();
        assert!(reason.contains(text) && !reason.contains("s3cr3t"), "{reason}");
        assert!(call(&upstream).await.is_err());
    }
    assert!(fake.seen().tokens.is_empty() && fake.seen().authorized.is_empty());
    open(Some(fake.issuer())).log_in(&[]).await.unwrap();
    assert_eq!(fake.seen().tokens[0]["basic"], "agreed:s3cr3t");
    // Nor is a login of another issuer used, once it is said which one it is.
    let config = open(Some(other)).config().clone();
    let text = reason(&fake.open(Logins::new(fake.store()), config)).await;
    assert!(text.contains("run `toolcrib login fixture`"), "{text}");
    assert_eq!(fake.seen().calls, 0);
}

#[tokio::test]
async fn no_token_is_shown_anywhere() {
    let fake = Fake::start().await;
    let shown = Arc::new(Mutex::new(Vec::new()));
    logged_in(&fake).await;
    let logins = Logins::new(fake.store()).shown_by(browse);
    let upstreams = Upstreams::default();
    upstreams.use_logins(logins.clone());
    let upstream = upstreams.open(fake.config());
    works(&upstream).await;
    let note = |text: String| shown.lock().unwrap().push(text);
    note(format!("{logins:?} {:?} {:?}", upstream.config(), upstream.status()));
    // An authorization server that says back what it was sent.
    for status in [400, 503] {
        fake.end_access();
        let said = format!("what is refresh-token-2, code-1? {}", fake.all_tokens().join(" "));
        fake.ways().token_answer =
            Some((status, json!({"error": "odd", "error_description": said})));
        note(reason(&upstreams.open(fake.config())).await);
    }
    let texts = shown.lock().unwrap().join("\n");
    assert!(texts.contains("***"), "{texts}");
    for token in fake.all_tokens() {
        assert!(!texts.contains(&token), "{token} in {texts}");
    }
}
