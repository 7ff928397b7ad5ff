//! Tools that return content of each kind.

use serde_json::{Value, json};

use super::{Call, Outcome, Tool, mistake, text};

/// One red pixel, as PNG.
pub(crate) const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// Two samples of silence, as WAV.
const SILENCE: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQIAAACAgA==";

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("test_simple_text", "Returns a text", |_| Box::pin(simple())),
        Tool::new("test_image_content", "Returns an image", |_| Box::pin(image())),
        Tool::new("test_audio_content", "Returns a sound", |_| Box::pin(audio())),
        Tool::new("test_embedded_resource", "Returns a resource", |_| Box::pin(resource())),
        Tool::new("test_resource_link", "Returns a link to a resource", |_| Box::pin(link())),
        Tool::new("test_multiple_content_types", "Returns content of several kinds", |_| {
            Box::pin(several())
        }),
        Tool::new(
            "test_structured_content",
            "Returns what was given, as structured content",
            |call| Box::pin(structured(call)),
        ),
        Tool::new("test_error_handling", "Always fails", |_| Box::pin(fails())),
    ]
}

fn content(blocks: Value) -> Outcome {
    Ok(json!({"content": blocks}))
}

fn pixel() -> Value {
    json!({"type": "image", "data": PIXEL, "mimeType": "image/png"})
}

async fn simple() -> Outcome {
    Ok(text("This is a simple text response for testing."))
}

async fn image() -> Outcome {
    content(json!([pixel()]))
}

async fn audio() -> Outcome {
    content(json!([{"type": "audio", "data": SILENCE, "mimeType": "audio/wav"}]))
}

async fn resource() -> Outcome {
    let resource = json!({
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    });
    content(json!([{"type": "resource", "resource": resource}]))
}

async fn link() -> Outcome {
    content(json!([{"type": "resource_link", "uri": "test://static-text", "name": "static-text"}]))
}

async fn several() -> Outcome {
    let resource = json!({
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": r#"{"test":"data","value":123}"#,
    });
    let words = json!({"type": "text", "text": "Multiple content types test:"});
    content(json!([words, pixel(), {"type": "resource", "resource": resource}]))
}

async fn structured(call: Call) -> Outcome {
    let mut result = text(call.arguments.to_string());
    result["structuredContent"] = call.arguments;
    Ok(result)
}

async fn fails() -> Outcome {
    Ok(mistake("This tool intentionally returns an error for testing"))
}
