//! A toolset whose tools ask their caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{BoxFuture, join_all};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib_core::{GroupId, Schema, ToolName, ToolSpec};
use toolcrib_runtime::{CallError, Invocation, Listing, RpcError, ToolResult, Toolset};

/// A server called `asking`.
#[derive(Clone, Default)]
pub struct Asking {
    /// Calls of `ask` that were begun.
    pub begun: Arc<AtomicUsize>,
    /// Those that were dropped before they ended.
    pub cancelled: Arc<AtomicUsize>,
    pub drop_noted: Arc<Notify>,
    /// Takes the question back.
    pub take_back: Arc<Notify>,
}

struct OnDrop(Asking, bool);

impl Drop for OnDrop {
    fn drop(&mut self) {
        if !self.1 {
            self.0.cancelled.fetch_add(1, Ordering::SeqCst);
            self.0.drop_noted.notify_one();
        }
    }
}

impl Asking {
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Asks round by round, and speaks of progress after each.
    async fn ask(&self, invocation: &Invocation) -> Value {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut noted = OnDrop(self.clone(), false);
        let listener = invocation.caller.listener().unwrap();
        let mut answers = Vec::new();
        let rounds = invocation.arguments["rounds"].as_array().unwrap();
        for (at, round) in rounds.iter().enumerate() {
            let asked = round.as_array().unwrap().iter().map(|question| {
                let params = question.get("params").map(|params| to_raw_value(params).unwrap());
                listener.ask(question["method"].as_str().unwrap(), params.as_deref())
            });
            let answered = tokio::select! {
                answered = join_all(asked) => answered,
                () = self.take_back.notified() => return json!("taken back"),
            };
            answers.extend(answered.into_iter().map(|answer| match answer {
                Ok(raw) => serde_json::from_str::<Value>(raw.get()).unwrap(),
                Err(error) => json!({"code": error.code, "message": error.message}),
            }));
            let progress = format!(r#"{{"progressToken":0,"progress":{}}}"#, at + 1);
            let progress = RawValue::from_string(progress).unwrap();
            listener.hear("notifications/progress", &progress);
        }
        if invocation.arguments["then"] == "wait" {
            std::future::pending::<()>().await;
        }
        noted.1 = true;
        json!({"answers": answers})
    }
}

impl Toolset for Asking {
    fn id(&self) -> GroupId {
        GroupId::server("asking")
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        Box::pin(async {
            let tool = |name: &str| {
                let schema: Schema = json!({"type": "object"}).into();
                ToolSpec::new(ToolName::mcp("asking", name), schema).with_description("Asks.")
            };
            Ok(Listing::new(["ask", "open", "rounds", "seen", "tell"].map(tool)))
        })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async move {
            let caller = &invocation.caller;
            let value = |raw: Option<&RawValue>| {
                raw.map_or(Value::Null, |raw| serde_json::from_str(raw.get()).unwrap())
            };
            Ok(match invocation.tool.tool() {
                "ask" => ToolResult::data(self.ask(&invocation).await),
                // Wants an address opened before the first call.
                "open" => match self.begun.fetch_add(1, Ordering::SeqCst) {
                    0 => {
                        let wanted = json!({"elicitations": [
                            {"mode": "url", "elicitationId": "e", "url": "https://a.example/",
                             "message": "Log in"},
                        ]});
                        let error = RpcError::new(-32042, "open this first").with_data(&wanted);
                        ToolResult::refused(error)
                    }
                    _ => ToolResult::text("opened"),
                },
                // As a server of the stateless era does it.
                "rounds" => match caller.retry() {
                    None => {
                        let asks = r#"{ "resultType":"input_required","inputRequests":{"mine":{"method":"roots/list","x":1.0}},"requestState":"theirs" }"#;
                        ToolResult::from_json(RawValue::from_string(asks.to_owned()).unwrap())
                    }
                    Some(retry) => ToolResult::data(json!({
                        "responses": value(retry.responses.as_deref()),
                        "state": value(retry.state.as_deref()),
                    })),
                },
                "seen" => ToolResult::data(json!({
                    "written": invocation.verbatim.as_deref().map(RawValue::get),
                    "rest": value(caller.rest()),
                    "level": caller.log_level(),
                    "party": caller.party().map(|party| json!({
                        "capabilities": value(party.capabilities()),
                        "info": value(party.info()),
                        "id": party.id(),
                    })),
                })),
                _ => {
                    let listener = caller.listener().unwrap();
                    let raw = |value: Value| to_raw_value(&value).unwrap();
                    listener.hear("notifications/x-vendor", &raw(json!({"a": [1.0]})));
                    for level in ["debug", "error"] {
                        listener.hear("notifications/message", &raw(json!({"level": level})));
                    }
                    ToolResult::text("told")
                }
            })
        })
    }
}
