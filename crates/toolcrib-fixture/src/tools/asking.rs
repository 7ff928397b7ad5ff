//! Tools that ask the client in the middle of a call.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Call, Outcome, Tool, object, text};
use crate::ask::Ask;
use crate::caller::Sent;

pub(super) fn tools() -> Vec<Tool> {
    let one = |name: &str| object(json!({name: {"type": "string"}}), &[name]);
    vec![
        Tool::new("test_sampling", "Asks the client's model", |call| Box::pin(sampling(call)))
            .with(one("prompt")),
        Tool::new("test_elicitation", "Asks the person", |call| Box::pin(elicitation(call)))
            .with(one("message")),
        Tool::new("test_elicitation_sep1034_defaults", "Asks, with defaults", |call| {
            Box::pin(form(call, defaults()))
        }),
        Tool::new("test_elicitation_sep1330_enums", "Asks to choose", |call| {
            Box::pin(form(call, choices()))
        }),
        Tool::new("test_streaming_elicitation", "Asks on a stream", |call| {
            Box::pin(streaming(call))
        }),
        Tool::new("test_elicitation_then_slow", "Asks, and takes its time", |call| {
            Box::pin(then_slow(call))
        })
        .with(object(json!({"ms": {"type": "integer", "minimum": 0}}), &["ms"])),
        Tool::new("test_missing_capability", "Needs a client that has a model", |call| {
            Box::pin(sampling(call))
        }),
    ]
}

async fn sampling(call: Call) -> Outcome {
    let prompt = call.arguments["prompt"].as_str().unwrap_or("Say something.");
    let answers = call.caller.ask(&[Ask::model("said", prompt, 100)]).await?;
    Ok(text(format!("LLM response: {}", answers[0]["content"]["text"])))
}

async fn elicitation(call: Call) -> Outcome {
    let message = call.arguments["message"].as_str().unwrap_or("Who are you?");
    let schema = object(
        json!({
            "username": {"type": "string", "description": "What to call you"},
            "email": {"type": "string", "description": "Where to write to"},
        }),
        &["username", "email"],
    );
    let answers = call.caller.ask(&[Ask::person("user", message, schema)]).await?;
    Ok(text(format!("User response: {}", said(&answers[0]))))
}

async fn form(call: Call, properties: Value) -> Outcome {
    let ask = Ask::person("form", "Please fill in the form", object(properties, &[]));
    let answers = call.caller.ask(&[ask]).await?;
    Ok(text(format!("Elicitation completed: {}", said(&answers[0]))))
}

async fn streaming(call: Call) -> Outcome {
    call.caller.out.send(Sent::Open);
    let answers = call.caller.ask(&[Ask::text("user_name", "What is your name?", "name")]).await?;
    Ok(text(format!("Hello, {}!", answers[0]["content"]["name"])))
}

async fn then_slow(call: Call) -> Outcome {
    let answers = call.caller.ask(&[Ask::text("user_name", "What is your name?", "name")]).await?;
    sleep(Duration::from_millis(call.arguments["ms"].as_u64().unwrap_or_default())).await;
    Ok(text(format!("Good evening, {}!", answers[0]["content"]["name"])))
}

fn said(answer: &Value) -> String {
    let action = answer["action"].as_str().unwrap_or_default();
    format!("action={action}, content={}", answer["content"])
}

fn defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

fn choices() -> Value {
    let options = ["option1", "option2", "option3"];
    let titled = json!([
        {"const": "value1", "title": "First"},
        {"const": "value2", "title": "Second"},
        {"const": "value3", "title": "Third"},
    ]);
    json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}
