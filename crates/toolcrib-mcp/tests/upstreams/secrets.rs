//! Secrets stay out of whatever is shown.

use serde_json::json;
use toolcrib_mcp::Upstream;
use toolcrib_runtime::Toolset;

use crate::support::{Scene, reason, say, until, within};
use crate::web::{Reply, Web};

const SECRET: &str = "sk-very-secret-0123456789";

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_is_never_shown() {
    let scene = Scene::new();
    let upstream = Upstream::new(scene.server(json!({})).env("TOKEN", SECRET));
    let error = reason(&upstream, "die", json!({})).await;
    assert!(error.contains("out of luck with Ok(\"***\")"), "{error}");
    for _ in 0..3 {
        let _ = reason(&upstream, "die", json!({})).await;
    }
    until("it is in trouble", || upstream.status().pid.is_none()).await;
    let shown = [
        format!("{:?}", upstream.status()),
        serde_json::to_string(&upstream.status()).unwrap(),
        format!("{:?}", upstream.config()),
        format!("{:?}", within(upstream.list()).await),
    ];
    assert!(shown[0].contains("***"), "{}", shown[0]);
    for text in shown {
        assert!(!text.contains(SECRET), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_cut_after_secrets_are_hidden() {
    let (scene, secret) = (Scene::new(), "0123456789".repeat(10));
    let upstream = Upstream::new(scene.server(json!({})).env("TOKEN", &secret));
    assert_eq!(say(&upstream, "noise").await, "after noise");
    let shown = format!("{:?}", upstream.status());
    assert!(shown.contains("xxx***") && !shown.contains("0123"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_is_never_shown() {
    let web = Web::serve(|seen| {
        let message = format!("bad credentials: {}", seen.header("authorization"));
        Reply::json(
            401,
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": message}}),
        )
    })
    .await;
    let config = web.config().header("authorization", format!("Bearer {SECRET}"));
    let upstream = Upstream::new(config);
    let error = within(upstream.list()).await.unwrap_err().to_string();
    assert!(error.contains("bad credentials: ***"), "{error}");
    let shown = format!("{:?} {:?}", upstream.status(), upstream.config());
    assert!(!shown.contains(SECRET) && !error.contains(SECRET), "{shown}");
    assert_eq!(web.seen()[0].header("authorization"), format!("Bearer {SECRET}"));
}
