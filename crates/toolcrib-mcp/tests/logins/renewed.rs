//! Logins that are renewed: in time, once, and without a loss.

use futures::future::join_all;
use serde_json::json;
use tokio::time::{Duration, sleep, timeout};
use toolcrib_mcp::Upstream;

use crate::fake::Fake;
use crate::{logged_in, reason, works};

#[tokio::test]
async fn a_token_is_renewed_before_it_ends_and_kept_before_it_is_used() {
    let fake = Fake::start().await;
    fake.ways().lifetime = Some(0.6);
    logged_in(&fake).await;
    let upstream = fake.alone();
    for _ in 0..4 {
        works(&upstream).await;
        sleep(Duration::from_millis(650)).await;
    }
    works(&upstream).await;
    let seen = fake.seen();
    assert!(seen.grants("refresh_token") >= 4, "{}", seen.grants("refresh_token"));
    assert_eq!((seen.unkept, seen.calls), (0, 5));
    let resources = seen.tokens.iter().filter(|form| form["resource"] == fake.url());
    assert_eq!(resources.count(), seen.tokens.len());
}

#[tokio::test]
async fn a_token_that_is_turned_away_is_renewed_and_the_request_repeated_once() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.alone();
    works(&upstream).await;
    fake.end_access();
    works(&upstream).await;
    {
        let seen = fake.seen();
        assert_eq!((seen.calls, seen.grants("refresh_token")), (2, 1));
    }
    let kept = fake.store().logins();
    assert_eq!(kept[0]["refresh_token"], "refresh-token-3", "the new one is kept");
}

#[tokio::test]
async fn a_login_that_has_ended_is_forgotten_and_the_reason_says_what_to_run() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.alone();
    works(&upstream).await;
    fake.end_access();
    fake.end_logins();
    let text = reason(&upstream).await;
    assert!(text.contains("its login has ended: run `toolcrib login fixture`"), "{text}");
    assert!(fake.store().logins().is_empty());
    assert!(reason(&upstream).await.contains("run `toolcrib login fixture`"));
    assert_eq!(fake.seen().grants("refresh_token"), 1, "it is not tried again");
    // Where there is somebody to ask, they are.
    logged_in(&fake).await;
    let asking = fake.with_browser();
    works(&asking).await;
    fake.end_access();
    fake.end_logins();
    works(&asking).await;
}

#[tokio::test]
async fn a_token_without_a_way_to_renew_it_is_used_until_it_is_turned_away() {
    let fake = Fake::start().await;
    fake.ways().renews = false;
    fake.ways().lifetime = None;
    logged_in(&fake).await;
    let upstream = fake.alone();
    works(&upstream).await;
    fake.end_access();
    let text = reason(&upstream).await;
    assert!(text.contains("its login has ended: run `toolcrib login fixture`"), "{text}");
    assert_eq!(fake.seen().grants("refresh_token"), 0);
}

#[tokio::test]
async fn a_token_that_has_ended_and_can_not_be_renewed_asks_for_a_login() {
    let fake = Fake::start().await;
    fake.ways().renews = false;
    fake.ways().lifetime = Some(0.3);
    logged_in(&fake).await;
    let upstream = fake.alone();
    let asked = || {
        let seen = fake.seen();
        (seen.paths.len(), seen.tokens.len())
    };
    let before = asked();
    sleep(Duration::from_millis(350)).await;
    for _ in 0..5 {
        let text = reason(&upstream).await;
        assert!(text.contains("its login has ended: run `toolcrib login fixture`"), "{text}");
    }
    assert_eq!(asked(), before);
    assert_eq!(fake.store().logins().len(), 1, "somebody else may know that it still holds");
    // A login of another program is seen.
    fake.ways().lifetime = Some(3600.0);
    logged_in(&fake).await;
    upstream.check().await.unwrap();
    works(&upstream).await;
}

#[tokio::test]
async fn a_person_is_not_asked_for_a_login_all_the_time() {
    let fake = Fake::start().await;
    fake.ways().renews = false;
    fake.ways().lifetime = Some(0.3);
    let upstream = fake.with_browser();
    for _ in 0..3 {
        works(&upstream).await;
        sleep(Duration::from_millis(350)).await;
    }
    for _ in 0..3 {
        let text = reason(&upstream).await;
        assert!(text.contains("its login has ended: run `toolcrib login fixture`"), "{text}");
    }
    assert_eq!(fake.seen().authorized.len(), 3);
}

/// Twenty callers in each of these programs.
async fn all_at_once(programs: &[Upstream]) {
    let calls = programs.iter().flat_map(|program| (0..20).map(move |_| works(program)));
    join_all(calls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_callers_in_several_programs_renew_a_login_once() {
    let fake = Fake::start().await;
    fake.ways().delay = Duration::from_millis(50);
    logged_in(&fake).await;
    let programs = [fake.alone(), fake.alone(), fake.alone()];
    all_at_once(&programs).await;
    for round in 1..=3 {
        fake.end_access();
        all_at_once(&programs).await;
        assert_eq!(fake.seen().grants("refresh_token"), round);
    }
    assert_eq!(fake.seen().calls, 4 * 60);
    assert_eq!(fake.seen().unkept, 0);
}

#[tokio::test]
async fn a_caller_who_gives_up_half_way_loses_no_token() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.alone();
    works(&upstream).await;
    fake.end_access();
    fake.ways().delay = Duration::from_millis(300);
    // It was given by then, and is still on its way.
    let given_up = timeout(Duration::from_millis(150), works(&upstream)).await;
    assert!(given_up.is_err());
    works(&upstream).await;
    assert_eq!(fake.seen().grants("refresh_token"), 1);
}

#[tokio::test]
async fn an_authorization_server_in_trouble_costs_no_login() {
    let fake = Fake::start().await;
    logged_in(&fake).await;
    let upstream = fake.with_browser();
    works(&upstream).await;
    fake.end_access();
    fake.ways().token_answer = Some((503, json!({"error": "later"})));
    for _ in 0..5 {
        let text = reason(&upstream).await;
        assert!(text.contains("its login can't be renewed") && text.contains("503"), "{text}");
    }
    assert_eq!(fake.seen().grants("refresh_token"), 1, "it is left alone for a while");
    assert_eq!(fake.seen().authorized.len(), 1, "nobody is asked for that");
    assert_eq!(fake.store().logins().len(), 1);
    fake.ways().token_answer = None;
    // Another program has not been told to wait.
    works(&fake.alone()).await;
    works(&upstream).await;
}
