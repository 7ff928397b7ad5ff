//! A gateway of your own, and a client of it: `cargo run -p toolcrib --example 8-gateway --all-features`.

#![allow(clippy::print_stdout)]

use serde_json::json;
use toolcrib::builtins::{Builtin, Options as BuiltinOptions};
use toolcrib::gateway::{Gateway, HttpOptions, Options};
use toolcrib::mcp::{ServerConfig, Upstream};
use toolcrib::{Call, Crib, Mode, Naming, Settings};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Behind: two built-in servers. Functions of your own or MCP servers go here as well.
    let options = BuiltinOptions::default();
    let behind = Crib::builder(Settings::default())
        .naming(Naming::Gateway)
        .toolset(Builtin::Time.open(&options)?)
        .toolset(Builtin::Data.open(&options)?)
        .build()
        .await?;

    let all = behind.catalog().len();

    // In front: MCP over HTTP, on a free port.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let gateway = Gateway::new(behind, Options::default())?;
    let serving = tokio::spawn(async move {
        gateway.serve_http(listener, HttpOptions::default(), std::future::pending()).await
    });

    // A client: any MCP client would do; this one is ours.
    let mut settings = Settings::default();
    settings.mode = Mode::Full;
    let front = Upstream::new(ServerConfig::http("crib", url));
    let client = Crib::builder(settings).toolset(front.clone()).build().await?;
    let chat = client.conversation();
    println!("the client sees {} tools of {all}", chat.prepare()?.tools.len());

    let call = json!({"tool_name": "data__hash_text", "arguments": {"text": "toolcrib"}});
    let outcome = chat.call(Call::new("mcp__crib__call_tool", call)).await?;
    println!("{}", outcome.result.to_text());

    front.shut_down().await;
    serving.abort();
    Ok(())
}
