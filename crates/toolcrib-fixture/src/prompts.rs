//! Prompts, and what their arguments may be completed to.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use toolcrib_wire::RpcError;

use crate::ask::Ask;
use crate::caller::{Caller, Stop};
use crate::server::Server;
use crate::tools::PIXEL;

pub(crate) fn listed(server: &Server) -> Vec<Value> {
    let argument =
        |name: &str, about: &str| json!({"name": name, "description": about, "required": true});
    let mut prompts = vec![
        json!({"name": "test_simple_prompt", "description": "A prompt without arguments"}),
        json!({
            "name": "test_prompt_with_arguments",
            "description": "A prompt with two arguments",
            "arguments": [argument("arg1", "The first"), argument("arg2", "The second")],
        }),
        json!({
            "name": "test_prompt_with_embedded_resource",
            "description": "A prompt with a resource in it",
            "arguments": [argument("resourceUri", "The resource to embed")],
        }),
        json!({"name": "test_prompt_with_image", "description": "A prompt with an image in it"}),
        json!({
            "name": "test_input_required_result_prompt",
            "description": "A prompt that asks for its context first",
        }),
    ];
    if server.has_more_prompts.load(Ordering::Relaxed) {
        prompts.push(
            json!({"name": "test_new_prompt", "description": "A prompt that comes and goes"}),
        );
    }
    prompts
}

pub(crate) async fn get(caller: &Caller, params: &Value) -> Result<Value, Stop> {
    let argument = |name: &str| {
        let given = params["arguments"][name].as_str();
        given.ok_or_else(|| RpcError::invalid_params(format!("Missing argument: {name}")))
    };
    let name = params["name"].as_str().unwrap_or_default();
    let messages = match name {
        "test_simple_prompt" => vec![says("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (one, two) = (argument("arg1")?, argument("arg2")?);
            vec![says(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument("resourceUri")?,
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            });
            let embedded = json!({"type": "resource", "resource": resource});
            vec![message(embedded), says("Please process the embedded resource above.")]
        }
        "test_prompt_with_image" => {
            let image = json!({"type": "image", "data": PIXEL, "mimeType": "image/png"});
            vec![message(image), says("Please analyze the image above.")]
        }
        "test_input_required_result_prompt" => {
            let ask = Ask::text("user_context", "What context should the prompt use?", "context");
            let answers = caller.ask(&[ask]).await?;
            vec![says(&format!("Answer in this context: {}", answers[0]["content"]["context"]))]
        }
        "test_new_prompt" => vec![says("Here for now.")],
        _ => return Err(RpcError::invalid_params(format!("Unknown prompt: {name}")).into()),
    };
    Ok(json!({"messages": messages}))
}

fn message(content: Value) -> Value {
    json!({"role": "user", "content": content})
}

fn says(text: &str) -> Value {
    message(json!({"type": "text", "text": text}))
}

/// `completion/complete`: the words that begin as the argument does.
pub(crate) fn complete(params: &Value) -> Result<Value, RpcError> {
    const WORDS: [&str; 5] = ["paris", "park", "party", "test", "testing"];
    if !matches!(params["ref"]["type"].as_str(), Some("ref/prompt" | "ref/resource")) {
        return Err(RpcError::invalid_params("ref must name a prompt or a resource template"));
    }
    let begun = params["argument"]["value"].as_str().unwrap_or_default();
    let values: Vec<_> = WORDS.iter().filter(|word| word.starts_with(begun)).collect();
    Ok(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}))
}
