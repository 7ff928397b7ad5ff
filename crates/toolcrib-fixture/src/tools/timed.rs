//! Tools that take their time and say how it goes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{Call, Outcome, Tool, object, text};
use crate::caller::Sent;

const STEP: Duration = Duration::from_millis(50);

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("test_tool_with_progress", "Tells of its progress", |call| {
            Box::pin(progress(call))
        }),
        Tool::new("test_tool_with_logging", "Writes log messages", |call| Box::pin(logging(call))),
        Tool::new("test_logging_tool", "Writes a log message", |call| Box::pin(logging(call))),
        Tool::new("test_reconnection", "Breaks the connection before it answers", |call| {
            Box::pin(reconnection(call))
        }),
        Tool::new("test_slow", "Takes as long as it is told to", |call| Box::pin(slow(call)))
            .with(object(json!({"ms": {"type": "integer", "minimum": 0}}), &["ms"])),
        Tool::new("test_stopped_calls", "How many calls were stopped before they ended", |call| {
            Box::pin(stopped(call))
        }),
    ]
}

async fn progress(call: Call) -> Outcome {
    call.caller.report(0, 100);
    sleep(STEP).await;
    call.caller.report(50, 100);
    sleep(STEP).await;
    call.caller.report(100, 100);
    Ok(text("Done, with progress."))
}

async fn logging(call: Call) -> Outcome {
    call.caller.log("Tool execution started");
    sleep(STEP).await;
    call.caller.log("Tool processing data");
    sleep(STEP).await;
    call.caller.log("Tool execution completed");
    Ok(text("Done, with log messages."))
}

async fn reconnection(call: Call) -> Outcome {
    call.caller.out.send(Sent::Open);
    sleep(STEP).await;
    call.caller.out.send(Sent::Cut);
    sleep(STEP).await;
    Ok(text("Reconnected."))
}

async fn slow(call: Call) -> Outcome {
    sleep(Duration::from_millis(call.arguments["ms"].as_u64().unwrap_or_default())).await;
    Ok(text("Slow and steady."))
}

async fn stopped(call: Call) -> Outcome {
    Ok(text(call.server.stopped.load(Ordering::Relaxed).to_string()))
}
