//! Logins that can't be written down: a full disk, or one that may not be written to.

use tokio::time::{Duration, Instant, sleep};
use toolcrib_mcp::{Logins, Upstreams};

use crate::fake::{Fake, browse};
use crate::{LONG, logged_in, reason, works};

/// The refresh token that is kept.
fn kept(fake: &Fake) -> Option<String> {
    let logins = fake.store().logins();
    Some(logins.first()?["refresh_token"].as_str()?.to_owned())
}

async fn soon(what: impl Fn() -> bool) {
    let began = Instant::now();
    while !what() {
        assert!(began.elapsed() < LONG, "it takes too long");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_renewed_login_that_can_not_be_kept_is_not_lost() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.alone();
    works(&upstream).await;
    let before = kept(&fake);
    fake.store().fill(true);
    // Each refresh token holds once, so only one that is remembered renews it again.
    for renewed in 1..=3 {
        fake.end_access();
        works(&upstream).await;
        assert_eq!(fake.seen().grants("refresh_token"), renewed);
    }
    assert_eq!(kept(&fake), before, "nothing could be kept");
    fake.store().fill(false);
    soon(|| kept(&fake) != before).await;
    // Whoever comes later has it, and so has the one who kept it.
    fake.end_access();
    works(&fake.alone()).await;
    works(&upstream).await;
    let seen = fake.seen();
    assert_eq!((seen.grants("refresh_token"), seen.authorized.len()), (4, 1));
}

#[tokio::test]
async fn a_server_that_is_opened_anew_uses_what_could_not_be_kept() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstreams = Upstreams::default();
    upstreams.use_logins(Logins::new(fake.store()));
    works(&upstreams.open(fake.config())).await;
    fake.store().fill(true);
    fake.end_access();
    works(&upstreams.open(fake.config())).await;
    fake.end_access();
    works(&upstreams.open(fake.config())).await;
    assert_eq!(fake.seen().authorized.len(), 1);
}

#[tokio::test]
async fn a_new_login_counts_more_than_one_that_could_not_be_kept() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.alone();
    works(&upstream).await;
    fake.store().fill(true);
    fake.end_access();
    works(&upstream).await;
    fake.end_access();
    fake.store().fill(false);
    logged_in(&fake).await;
    let new = kept(&fake);
    // Long enough for whoever would write over it.
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(kept(&fake), new);
    works(&upstream).await;
    assert_eq!(fake.seen().grants("refresh_token"), 1, "the new one is used as it is");
    assert_eq!(kept(&fake), new);
}

#[tokio::test]
async fn a_login_that_has_ended_and_can_not_be_forgotten_is_not_tried_again() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.alone();
    works(&upstream).await;
    fake.store().fill(true);
    fake.end_access();
    fake.end_logins();
    for _ in 0..3 {
        let text = reason(&upstream).await;
        assert!(text.contains("run `toolcrib login fixture`"), "{text}");
    }
    assert_eq!(fake.seen().grants("refresh_token"), 1);
    fake.store().fill(false);
    soon(|| fake.store().logins().is_empty()).await;
}

#[tokio::test]
async fn a_gateway_goes_on_with_a_login_that_can_not_be_kept() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.open(Logins::new(fake.store()).shown_by(browse), fake.config());
    works(&upstream).await;
    fake.store().fill(true);
    fake.end_access();
    fake.end_logins();
    works(&upstream).await;
    works(&upstream).await;
    assert_eq!(fake.seen().authorized.len(), 2);
    // Who logs in by a command is told that it is of no use.
    let reason = fake.with_browser().log_in(&[]).await.unwrap_err();
    assert!(!reason.is_empty());
    fake.store().fill(false);
    soon(|| kept(&fake).is_some()).await;
}
