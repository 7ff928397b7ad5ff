//! Resources: two that stand still, one that is watched, one that comes and goes, and a template.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use toolcrib_wire::{Era, RpcError, code};

use crate::server::Server;
use crate::tools::PIXEL;

/// The resource that says it has changed when asked to.
pub(crate) const WATCHED: &str = "test://watched-resource";

pub(crate) fn listed(server: &Server) -> Vec<Value> {
    let resource = |uri: &str, name: &str, description: &str, kind: &str| json!({"uri": uri, "name": name, "description": description, "mimeType": kind});
    let mut resources = vec![
        resource("test://static-text", "static-text", "A text that stays the same", "text/plain"),
        resource("test://static-binary", "static-binary", "One red pixel", "image/png"),
        resource(WATCHED, "watched-resource", "A text to subscribe to", "text/plain"),
    ];
    if server.has_more_resources.load(Ordering::Relaxed) {
        let about = "A text that comes and goes";
        resources.push(resource("test://new-resource", "new-resource", about, "text/plain"));
    }
    resources
}

pub(crate) fn templates() -> Vec<Value> {
    vec![json!({
        "uriTemplate": "test://template/{id}/data",
        "name": "template-data",
        "description": "Data about any id",
        "mimeType": "application/json",
    })]
}

pub(crate) fn read(era: Era, params: &Value) -> Result<Value, RpcError> {
    let uri = params["uri"].as_str().ok_or_else(|| RpcError::invalid_params("No uri"))?;
    let text = |kind: &str, text: &str| json!({"uri": uri, "mimeType": kind, "text": text});
    let content = match uri {
        "test://static-text" => text("text/plain", "This is the content of the static text."),
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": PIXEL}),
        "test://new-resource" => text("text/plain", "Here for now."),
        WATCHED => text("text/plain", "This may change."),
        _ => {
            let inside =
                uri.strip_prefix("test://template/").and_then(|it| it.strip_suffix("/data"));
            let id = inside.filter(|id| !id.is_empty() && !id.contains('/'));
            let id = id.ok_or_else(|| not_found(era, uri))?;
            let data =
                json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            text("application/json", &data.to_string())
        }
    };
    Ok(json!({"contents": [content]}))
}

fn not_found(era: Era, uri: &str) -> RpcError {
    let code = match era {
        Era::Sessions => code::RESOURCE_NOT_FOUND,
        Era::Stateless => code::INVALID_PARAMS,
    };
    RpcError::new(code, "Resource not found").with_data(&json!({"uri": uri}))
}
