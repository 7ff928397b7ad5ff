//! What changes while the server runs, and who is told.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib_wire::version::meta;
use toolcrib_wire::{RpcError, notification};

use crate::caller::Caller;
use crate::server::Server;

/// Something that has changed.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Tools,
    Prompts,
    Resources,
    Resource(String),
}

impl Change {
    pub(crate) fn method(&self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
            Self::Resource(_) => "notifications/resources/updated",
        }
    }

    /// Whether the filter of a subscription lets it through.
    fn is_wanted(&self, filter: &Value) -> bool {
        match self {
            Self::Tools => filter["toolsListChanged"] == true,
            Self::Prompts => filter["promptsListChanged"] == true,
            Self::Resources => filter["resourcesListChanged"] == true,
            Self::Resource(uri) => {
                let wanted = filter["resourceSubscriptions"].as_array();
                wanted.is_some_and(|wanted| wanted.iter().any(|wanted| wanted == uri))
            }
        }
    }
}

/// `subscriptions/listen`: tells of changes until the client goes.
pub(crate) async fn listen(
    server: &Arc<Server>,
    caller: &Caller,
    params: &Value,
) -> Result<Value, RpcError> {
    let filter = &params["notifications"];
    if !filter.is_object() {
        return Err(RpcError::invalid_params("notifications must be an object"));
    }
    let mut changes = server.changes.subscribe();
    let about = json!({meta::SUBSCRIPTION_ID: caller.id});
    let params = json!({"_meta": about, "notifications": filter});
    caller.out.message(notification("notifications/subscriptions/acknowledged", Some(&params)));
    while let Ok(change) = changes.recv().await {
        if !change.is_wanted(filter) {
            continue;
        }
        let mut params = json!({"_meta": about});
        if let Change::Resource(uri) = &change {
            params["uri"] = uri.as_str().into();
        }
        if !caller.out.message(notification(change.method(), Some(&params))) {
            break;
        }
    }
    Ok(json!({"_meta": about}))
}
