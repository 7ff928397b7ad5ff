//! In a file, and so a process, of its own: a tokenizer that another test loads would be there.

mod support;

use std::time::{Duration, Instant};

use serde_json::json;
use support::{Client, Odd, crib};
use toolcrib_gateway::{Endpoint, Gateway, Options};
use toolcrib_tokens::Tokenizer;

#[tokio::test]
async fn nothing_a_client_waits_for_loads_a_tokenizer() {
    let crib = crib().await;
    let mut odd = Odd::new("odd");
    odd.extra_tools = 2_000;
    crib.add(odd).await;
    let mut options = Options::default();
    // A budget of few tokens would have them counted, were bytes not the tighter limit.
    options.settings.catalog_tokens = 100;
    let gateway = Gateway::new(crib, options).unwrap();
    let begun = Instant::now();
    for endpoint in [Endpoint::Meta, Endpoint::Inject] {
        let mut client = Client::open(&gateway, endpoint).await;
        client.request("tools/list", json!({})).await;
        client.request("server/discover", json!({})).await;
        client
            .send("tools/call", json!({"name": "tool_search", "arguments": {"query": "extra"}}))
            .await;
        client.read().await;
        client.send("tools/call", json!({"name": "odd__echo", "arguments": {}})).await;
        client.read().await;
    }
    let served = begun.elapsed();
    let begun = Instant::now();
    assert!(Tokenizer::O200K.count("a").tokens == 1);
    let loaded = begun.elapsed();
    let begun = Instant::now();
    assert!(Tokenizer::O200K.count("b").tokens == 1);
    let counted = begun.elapsed();
    // Had it been loaded before, counting would have taken no longer than it does now.
    assert!(loaded > counted * 20 + Duration::from_millis(5), "{served:?} {loaded:?} {counted:?}");
}
