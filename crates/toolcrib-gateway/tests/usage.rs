//! Whose call follows whose search.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::{Client, Odd, Served, answer, modern};
use toolcrib_core::{Naming, Settings};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options, TokenHash};
use toolcrib_runtime::{Crib, UsageRow, UsageStore};

/// What was kept, in order.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

impl Kept {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl UsageStore for Kept {
    fn record(&self, query: &str, tool: &str) {
        self.0.lock().unwrap().push(format!("{query}: {tool}"));
    }

    fn rows(&self) -> Vec<UsageRow> {
        Vec::new()
    }

    fn clear(&self) {}
}

async fn learning() -> (Gateway, Kept) {
    let kept = Kept::default();
    let builder = Crib::builder(Settings::default()).naming(Naming::Gateway).usage(kept.clone());
    let crib = builder.build().await.unwrap();
    crib.add(Odd::new("odd")).await;
    (Gateway::new(crib, Options::default()).unwrap(), kept)
}

fn search() -> Value {
    json!({"name": "tool_search", "arguments": {"query": "give +arguments back"}})
}

fn echo() -> Value {
    json!({"name": "call_tool", "arguments": {"tool_name": "odd__echo", "arguments": {"n": 1}}})
}

const ECHO: &str = "give +arguments back: odd/echo";

#[tokio::test]
async fn over_stdio_a_call_follows_the_searches_of_its_connection_in_either_era() {
    let (gateway, kept) = learning().await;
    let mut client = Client::open(&gateway, Endpoint::Meta).await;
    client.request("tools/call", search()).await;
    client.request("tools/call", echo()).await;
    assert_eq!(kept.take(), [ECHO]);

    let mut other = Client::open(&gateway, Endpoint::Meta).await;
    other.request("tools/call", echo()).await;
    assert_eq!(kept.take(), [""; 0]);

    let mut client = Client::connect(&gateway, Endpoint::Meta);
    for mut call in [search(), echo()] {
        call["_meta"] = modern();
        client.request("tools/call", call).await;
    }
    assert_eq!(kept.take(), [ECHO]);
}

#[tokio::test]
async fn over_http_a_call_follows_the_searches_of_its_session_or_token() {
    let (gateway, kept) = learning().await;
    let open = Served::start(&gateway, HttpOptions::default()).await;
    let (one, two) = (open.session("/mcp").await, open.session("/mcp").await);
    for (session, call) in [(&one, search()), (&two, echo()), (&one, echo())] {
        answer(open.within("/mcp", session, "tools/call", call)).await;
    }
    assert_eq!(kept.take(), [ECHO]);

    // Here nobody knows who asks.
    for call in [search(), echo()] {
        let (status, _) = answer(open.modern("/mcp", "tools/call", call)).await;
        assert_eq!(status, 200);
    }
    assert_eq!(kept.take(), [""; 0]);

    let mut options = HttpOptions::default();
    options.tokens = ["a", "b"].map(TokenHash::of).to_vec();
    let guarded = Served::start(&gateway, options).await;
    for (token, call) in [("a", search()), ("b", echo()), ("a", echo())] {
        let request = guarded.modern("/mcp", "tools/call", call).bearer_auth(token);
        assert_eq!(answer(request).await.0, 200);
    }
    assert_eq!(kept.take(), [ECHO]);
}

#[tokio::test]
async fn what_is_passed_on_as_it_stands_is_not_looked_at() {
    let (gateway, kept) = learning().await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    client.request("tools/call", json!({"name": "odd__echo", "arguments": {}})).await;
    assert_eq!(kept.take(), [""; 0]);
}
