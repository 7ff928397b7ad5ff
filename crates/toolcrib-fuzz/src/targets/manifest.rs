//! What was remembered of a server, and has been damaged since.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use toolcrib_core::{Naming, Settings};
use toolcrib_fuzz::{Corpus, Hunt};
use toolcrib_gateway::{Endpoint, Gateway, Options};
use toolcrib_mcp::{ServerConfig, Upstreams};
use toolcrib_runtime::{Crib, Manifest, ManifestStore};

use super::{Hunted, runtime};

/// A store with one manifest, whatever is asked for.
struct One(Manifest);

impl ManifestStore for One {
    fn get(&self, _: &str) -> Option<Manifest> {
        Some(self.0.clone())
    }

    fn put(&self, _: &str, _: Manifest) {}
}

fn corpus() -> Corpus {
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/a"}}}}});
    let tool = json!({"name": "read", "title": "Read", "description": "Reads a thing.",
        "inputSchema": schema, "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": true, "destructiveHint": false}, "_meta": {"x": 1}});
    let manifest = json!({
        "server": "s", "protocol_version": "2025-11-25",
        "server_info": {"name": "s", "title": "S", "version": "1"},
        "capabilities": {"tools": {}, "resources": {}}, "instructions": "Hello.",
        "tools": [tool, {"name": "write", "inputSchema": {}}],
        "resources": [{"uri": "a://b", "name": "b"}],
        "resource_templates": [{"uriTemplate": "a://{b}", "name": "t"}],
        "prompts": [{"name": "p", "arguments": [{"name": "a"}]}],
        "eras": {"sessions": true, "stateless": null},
        "listed_at": {"secs_since_epoch": 1_800_000_000, "nanos_since_epoch": 1},
        "holds_for": {"secs": 60, "nanos": 0}, "start_took": null,
    });
    let text = manifest.to_string();
    Corpus::new(
        [text.as_str()],
        ["\"name\":", "\"inputSchema\":", "\"tools\":[", "$ref", "#/$defs/a"],
    )
}

pub(super) fn hunt(hunt: &Hunt, given: Option<Vec<u8>>) -> Hunted {
    let (corpus, runtime) = (corpus(), runtime());
    hunt.run(
        |rng| given.clone().unwrap_or_else(|| corpus.mutated(rng)),
        |input| match serde_json::from_slice(input) {
            Ok(manifest) => runtime.block_on(read(manifest)),
            Err(_) => Ok(()),
        },
    )
}

/// Lists it, and asks a gateway in front of it about what it has.
async fn read(manifest: Manifest) -> Result<(), String> {
    // It is not started, as what it has is known.
    let config = ServerConfig::command("s", "/nowhere/at/all", [""; 0]);
    let upstream = Upstreams::new(One(manifest), 1).open(config);
    let crib = Crib::builder(Settings::default()).naming(Naming::Gateway).build().await;
    let crib = crib.map_err(|error| error.to_string())?;
    crib.add(upstream).await;
    let mut options = Options::default();
    options.start_wait = std::time::Duration::ZERO;
    let gateway = Gateway::new(crib, options).map_err(|error| error.to_string())?;
    for endpoint in [Endpoint::Meta, Endpoint::Full, Endpoint::Server("s".to_owned())] {
        let requests = [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
                "params": {"protocolVersion": "2025-11-25", "capabilities": {}}}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
            json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call",
                "params": {"name": "tool_search", "arguments": {"query": "read a thing"}}}),
            json!({"jsonrpc": "2.0", "id": 4, "method": "tools/call",
                "params": {"name": "load_tools", "arguments": {"group": "s"}}}),
        ];
        let (mut to, their_input) = tokio::io::duplex(1 << 20);
        let (their_output, mut from) = tokio::io::duplex(1 << 20);
        for request in requests {
            let line = format!("{request}\n");
            to.write_all(line.as_bytes()).await.map_err(|error| error.to_string())?;
        }
        drop(to);
        let mut said = String::new();
        let never = std::future::pending();
        let serving = gateway.serve_on(their_input, their_output, endpoint, never);
        let (served, _) = tokio::join!(serving, from.read_to_string(&mut said));
        // Nothing may be known of a server with no tool.
        if served.is_ok() && said.lines().count() < 4 {
            return Err(format!("said {said}"));
        }
    }
    Ok(())
}
