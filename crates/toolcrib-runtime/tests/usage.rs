//! A call that a search led to is kept, and counts for the next search.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::time::sleep;
use toolcrib_core::{Call, Mode, Policy, Preset, Session, Settings};
use toolcrib_runtime::{
    Conversation, Crib, Outcome, ToolResult, Trail, UsageRow, UsageStore, function,
};

/// Keeps counts in memory.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<BTreeMap<(String, String), u32>>>);

impl Kept {
    fn is(&self, expected: &[(&str, &str, u32)]) {
        let kept = self.0.lock().unwrap();
        let kept: Vec<(&str, &str, u32)> =
            kept.iter().map(|((query, tool), count)| (&**query, &**tool, *count)).collect();
        assert_eq!(kept, expected);
    }
}

impl UsageStore for Kept {
    fn record(&self, query: &str, tool: &str) {
        *self.0.lock().unwrap().entry((query.to_owned(), tool.to_owned())).or_default() += 1;
    }

    fn rows(&self) -> Vec<UsageRow> {
        let row = |((query, tool), count): (&(String, String), &u32)| UsageRow {
            query: query.clone(),
            tool: tool.clone(),
            count: *count,
            used_at: SystemTime::now(),
        };
        self.0.lock().unwrap().iter().map(row).collect()
    }

    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

fn settings(preset: Preset) -> Settings {
    let mut settings = Settings::preset(preset);
    settings.mode = Mode::Deferred;
    settings
}

async fn crib(preset: Preset, store: Option<Kept>) -> Crib {
    let tool = |name: &str, about: &str| {
        function(name, about, |at: Value| async move {
            if at.get("fail").is_some() {
                ToolResult::error("no")
            } else {
                ToolResult::text("done")
            }
        })
    };
    let mut builder = Crib::builder(settings(preset))
        .function(tool("copy_page", "Copy a page."))
        .function(tool("copy_sheet", "Copy a page of a sheet."))
        .function(tool("weather", "Tell the weather."));
    if let Some(store) = store {
        builder = builder.usage(store);
    }
    builder.build().await.unwrap()
}

async fn call(chat: &Conversation, name: &str, arguments: Value) -> Outcome {
    chat.call(Call::new(name, arguments)).await.unwrap()
}

async fn search(chat: &Conversation, query: &str) -> Outcome {
    call(chat, "tool_search", json!({"query": query})).await
}

async fn dispatch(chat: &Conversation, tool: &str, arguments: Value) -> Outcome {
    call(chat, "call_tool", json!({"tool_name": tool, "arguments": arguments})).await
}

#[tokio::test]
async fn a_call_that_follows_a_search_is_kept_once() {
    let kept = Kept::default();
    let chat = crib(Preset::Crib, Some(kept.clone())).await.conversation();
    search(&chat, "copy +page").await;
    kept.is(&[]);
    dispatch(&chat, "copy_page", json!({})).await;
    call(&chat, "copy_page", json!({})).await;
    kept.is(&[("copy +page", "copy_page", 1)]);

    search(&chat, "copy +page").await;
    let found = Call::new("copy_page", json!({}));
    let batch = chat.call_all(vec![found.clone(), found]).await;
    assert!(batch.into_iter().all(|outcome| outcome.is_ok()));
    kept.is(&[("copy +page", "copy_page", 2)]);
}

#[tokio::test]
async fn a_search_and_its_call_may_come_in_one_batch() {
    let kept = Kept::default();
    let chat = crib(Preset::Crib, Some(kept.clone())).await.conversation();
    let calls = vec![
        Call::new("tool_search", json!({"query": "tell +weather"})),
        Call::new("call_tool", json!({"tool_name": "weather", "arguments": {}})),
    ];
    chat.call_all(calls).await;
    kept.is(&[("tell +weather", "weather", 1)]);
}

#[tokio::test]
async fn a_tool_that_was_listed_and_then_activated_counts_too() {
    let kept = Kept::default();
    let chat = crib(Preset::Lazy, Some(kept.clone())).await.conversation();
    search(&chat, "+sheet").await;
    call(&chat, "tool_search", json!({"name": "copy_sheet"})).await;
    call(&chat, "copy_sheet", json!({})).await;
    kept.is(&[("+sheet", "copy_sheet", 1)]);
}

#[tokio::test]
async fn what_failed_or_was_not_listed_is_not_kept() {
    let kept = Kept::default();
    let chat = crib(Preset::Crib, Some(kept.clone())).await.conversation();
    dispatch(&chat, "weather", json!({})).await;
    search(&chat, "copy +page").await;
    assert!(dispatch(&chat, "copy_page", json!({"fail": 1})).await.result.is_error());
    dispatch(&chat, "weather", json!({})).await;
    search(&chat, "select:weather").await;
    dispatch(&chat, "weather", json!({})).await;
    search(&chat, "/weath/").await;
    dispatch(&chat, "weather", json!({})).await;
    kept.is(&[]);
    // Mended and called again, it is a choice after all.
    dispatch(&chat, "copy_page", json!({})).await;
    kept.is(&[("copy +page", "copy_page", 1)]);
}

#[tokio::test]
async fn conversations_share_no_trail_unless_it_is_given() {
    let kept = Kept::default();
    let crib = crib(Preset::Crib, Some(kept.clone())).await;
    search(&crib.conversation(), "tell +weather").await;
    dispatch(&crib.conversation(), "weather", json!({})).await;
    kept.is(&[]);

    let trail = Trail::default();
    let next = || crib.converse_on(trail.clone(), Session::new(), Policy::default());
    search(&next(), "tell +weather").await;
    dispatch(&next(), "weather", json!({})).await;
    kept.is(&[("tell +weather", "weather", 1)]);
}

#[tokio::test]
async fn a_query_that_holds_an_address_is_not_kept() {
    let kept = Kept::default();
    let chat = crib(Preset::Crib, Some(kept.clone())).await.conversation();
    search(&chat, "weather at ada@example.com").await;
    dispatch(&chat, "weather", json!({})).await;
    kept.is(&[]);
}

#[tokio::test(start_paused = true)]
async fn what_was_chosen_comes_first_before_long() {
    let first = |outcome: Outcome| -> String {
        let page: Value = serde_json::from_str(&outcome.result.to_text()).unwrap();
        page["tools"][0]["name"].as_str().unwrap().to_owned()
    };
    let query = "copying";
    let plain = crib(Preset::Crib, None).await.conversation();
    let usual = first(search(&plain, query).await);
    let other = if usual == "copy_page" { "copy_sheet" } else { "copy_page" };

    let kept = Kept::default();
    let shared = crib(Preset::Crib, Some(kept.clone())).await;
    for _ in 0..30 {
        let chat = shared.conversation();
        search(&chat, query).await;
        dispatch(&chat, other, json!({})).await;
    }
    sleep(Duration::from_secs(60)).await;
    assert_eq!(first(search(&shared.conversation(), query).await), other);
    // Another engine over the same tools has learned the same.
    let under = shared.under(settings(Preset::Crib)).unwrap();
    assert_eq!(first(search(&under.conversation(), query).await), other);
    // And so has the next program.
    let next = crib(Preset::Crib, Some(kept)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(first(search(&next.conversation(), query).await), other);
}
