//! Tools that go on as tasks where the client knows of tasks.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{Call, Outcome, Tasked, Tool, mistake, object, text};
use crate::ask::Ask;
use crate::tasks::broken;

pub(super) fn tools() -> Vec<Tool> {
    let one = |name: &str| object(json!({name: {"type": "string"}}), &[]);
    let slow = json!({"seconds": {"type": "number", "minimum": 0}, "label": {"type": "string"}});
    vec![
        Tool::new("greet", "Greets at once", |call| Box::pin(greet(call))).with(one("name")),
        Tool::new("slow_compute", "Takes some seconds", |call| Box::pin(slow_compute(call)))
            .with(object(slow, &["seconds"]))
            .tasked(Tasked::IfKnown),
        Tool::new("failing_job", "Fails after a second", |_| Box::pin(failing()))
            .tasked(Tasked::Always),
        Tool::new("protocol_error_job", "Breaks down", |_| {
            Box::pin(async { Err(broken().into()) })
        })
        .tasked(Tasked::IfKnown),
        Tool::new("confirm_delete", "Asks before it deletes nothing", |call| {
            Box::pin(confirm(call))
        })
        .with(one("filename"))
        .tasked(Tasked::IfKnown),
        Tool::new("multi_input", "Asks two things at once", |call| Box::pin(two(call)))
            .tasked(Tasked::IfKnown),
        Tool::new("test_tool_with_task", "Asks, then goes on as a task", |call| {
            Box::pin(ask_then_task(call))
        }),
    ]
}

async fn greet(call: Call) -> Outcome {
    Ok(text(format!("Hello, {}!", call.arguments["name"].as_str().unwrap_or("nobody"))))
}

async fn slow_compute(call: Call) -> Outcome {
    let seconds = call.arguments["seconds"].as_f64().unwrap_or_default().clamp(0.0, 3600.0);
    sleep(Duration::from_secs_f64(seconds)).await;
    Ok(text(format!("Computed for {seconds} seconds.")))
}

async fn failing() -> Outcome {
    sleep(Duration::from_secs(1)).await;
    Ok(mistake("This job always fails"))
}

async fn confirm(call: Call) -> Outcome {
    let file = call.arguments["filename"].as_str().unwrap_or("everything");
    let ask = Ask::yes("confirm", &format!("Delete {file}?"), "confirm");
    let answers = call.caller.ask(&[ask]).await?;
    let is_sure = answers[0]["content"]["confirm"] == true;
    Ok(text(if is_sure { "Deleted." } else { "Kept." }))
}

async fn two(call: Call) -> Outcome {
    let asks =
        [Ask::text("first", "The first?", "name"), Ask::text("second", "The second?", "name")];
    let answers = call.caller.ask(&asks).await?;
    Ok(text(format!("{} and {}", answers[0]["content"]["name"], answers[1]["content"]["name"])))
}

async fn ask_then_task(call: Call) -> Outcome {
    let seal = &call.server.seal;
    let ask = Ask::text("user_name", "What is your name?", "name");
    let answers = call.caller.ask_sealed(seal, &[ask]).await?;
    let name = answers[0]["content"]["name"].as_str().unwrap_or("nobody").to_owned();
    let work = async move {
        sleep(Duration::from_millis(200)).await;
        Ok(text(format!("Done for {name}.")))
    };
    if call.caller.knows_tasks() {
        return Ok(call.server.tasks.start(&call.caller, |_| Box::pin(work)));
    }
    work.await
}
