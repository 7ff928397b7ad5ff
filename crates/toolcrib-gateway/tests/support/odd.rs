//! A toolset that does whatever a server might.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib_core::{Annotations, GroupId, Schema, ToolName, ToolSpec};
use toolcrib_runtime::{CallError, Invocation, Listing, RpcError, Server, ToolResult, Toolset};

use super::offered::Offered;

/// A result with something of everything, spelled oddly.
pub const RICH: &str = r#"{ "content":[{"type":"text","text":"a","x-new":1.0},{"type":"image","data":"aGk=","mimeType":"image/png"}],"structuredContent":{"n":12345678901234567890123},"_meta":{"k":1},"vendor":[] }"#;

/// A server of the given name with tools that misbehave.
#[derive(Clone)]
pub struct Odd {
    pub name: &'static str,
    pub extra_tools: usize,
    pub cancelled: Arc<AtomicUsize>,
    pub blocking: Arc<Notify>,
    pub release: Arc<Notify>,
    /// The list is given only after this.
    pub gate: Option<Arc<Notify>>,
    /// Tools that it holds back.
    pub held: &'static [&'static str],
    /// What it is beside its tools.
    pub offered: Option<Arc<Offered>>,
}

impl Odd {
    pub fn new(name: &'static str) -> Self {
        let (cancelled, blocking, release) = Default::default();
        let (held, offered) = (&[][..], None);
        Self { name, extra_tools: 0, cancelled, blocking, release, gate: None, held, offered }
    }

    pub fn offering(name: &'static str, offered: &Arc<Offered>) -> Self {
        Self { offered: Some(offered.clone()), ..Self::new(name) }
    }
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Toolset for Odd {
    fn id(&self) -> GroupId {
        GroupId::server(self.name)
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        Box::pin(async {
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            let tool = |name: &str, about: &str| {
                let schema: Schema = json!({"type": "object",
                    "properties": {"n": {"type": "integer"}}, "required": []})
                .into();
                ToolSpec::new(ToolName::mcp(self.name, name), schema).with_description(about)
            };
            let mut tools = vec![
                tool("echo", "Gives the arguments back."),
                tool("rich", "A result with everything in it.").with_extra(
                    r#"{"title":"Rich","outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"x":1},"_meta":{"v":1}}"#,
                ),
                tool("count", "Counts aloud, with progress."),
                tool("block", "Never answers."),
                tool("refuse", "Refuses to be called."),
                tool("wait", "Answers when it is let."),
                tool("fail", "Fails.").with_annotations(Annotations {
                    read_only: Some(true),
                    ..Default::default()
                }),
            ];
            let repeated: Schema = json!({"type": "object",
                "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}})
            .into();
            tools.extend((0..self.extra_tools).map(|n| {
                let name = ToolName::mcp(self.name, format!("extra_{n:05}"));
                ToolSpec::new(name, repeated.clone()).with_description("One more.")
            }));
            let mut listing = Listing::new(tools);
            listing.held = self.held.iter().map(|tool| ToolName::mcp(self.name, *tool)).collect();
            listing.description = Some(format!("The {} server.", self.name));
            Ok(listing)
        })
    }

    fn server(&self) -> Option<&dyn Server> {
        self.offered.as_deref().map(|offered| offered as &dyn Server)
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async move {
            let raw = |text: String| RawValue::from_string(text).unwrap();
            match invocation.tool.tool() {
                "echo" => {
                    let meta = invocation.caller.meta().map(RawValue::get).unwrap_or("null");
                    let meta: Value = serde_json::from_str(meta).unwrap();
                    Ok(ToolResult::data(json!({"arguments": invocation.arguments, "meta": meta})))
                }
                "rich" => Ok(ToolResult::from_json(raw(RICH.to_owned()))),
                "count" => {
                    let n = invocation.arguments["n"].as_u64().unwrap_or(0);
                    for at in 0..n {
                        if let Some(listener) = invocation.caller.listener() {
                            let params =
                                format!(r#"{{"progressToken":0,"progress":{at},"x":1.0}}"#);
                            listener.hear("notifications/progress", &raw(params));
                        }
                        if at % 7 == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                    Ok(ToolResult::text("done"))
                }
                "block" => {
                    let _noted = OnDrop(self.cancelled.clone());
                    self.blocking.notify_one();
                    std::future::pending().await
                }
                "wait" => {
                    self.blocking.notify_one();
                    self.release.notified().await;
                    Ok(ToolResult::text("waited"))
                }
                "refuse" => Ok(ToolResult::refused(
                    RpcError::new(-32042, "not today").with_data(&json!({"why": [1]})),
                )),
                "fail" => Err(CallError::Tell("it failed".to_owned())),
                _ => Ok(ToolResult::text("extra")),
            }
        })
    }
}
