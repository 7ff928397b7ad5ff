//! Telling clients that the list of tools has changed.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use toolcrib_core::Fingerprint;
use toolcrib_wire::version::meta::SUBSCRIPTION_ID;
use toolcrib_wire::{Id, notification};

use crate::client::Client;
use crate::methods::Filter;
use crate::outbox::Outbox;
use crate::{Endpoint, Gateway};

/// Changes that come closer together than this are told as one.
const CLOSE_TOGETHER: Duration = Duration::from_millis(100);

/// What is compared to see whether a list has changed.
#[derive(PartialEq)]
enum Version {
    Seen(Fingerprint),
    Listed(Arc<str>),
}

/// Says when the end has come. Nobody left to say so means that it never does.
pub(crate) async fn closed(mut closing: watch::Receiver<bool>) {
    if closing.wait_for(|closing| *closing).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Gateway {
    /// Tells whenever the client's list has changed. It never ends.
    pub(crate) async fn tell_changes(&self, client: &Client, tell: impl Fn()) {
        let mut changes = self.crib().changes();
        let mut known = self.version(client);
        while changes.changed().await.is_ok() {
            sleep(CLOSE_TOGETHER).await;
            changes.mark_unchanged();
            let now = self.version(client);
            if known != now {
                known = now;
                tell();
            }
        }
        std::future::pending::<()>().await;
    }

    fn version(&self, client: &Client) -> Version {
        match &client.endpoint {
            // Written out it may have megabytes.
            Endpoint::Full => Version::Seen(self.view().fingerprint()),
            Endpoint::Inject => {
                let ledger = client.conversation(self);
                Version::Listed(self.list(&Endpoint::Inject, Some(&ledger)))
            }
            endpoint => Version::Listed(self.list(endpoint, None)),
        }
    }

    /// Answers `subscriptions/listen`: tells of changes until the gateway closes; the result is
    /// the response's.
    pub(crate) async fn listen(
        &self,
        client: &Client,
        id: &Id,
        filter: Filter,
        outbox: &Outbox,
        closing: watch::Receiver<bool>,
    ) -> String {
        let meta = json!({SUBSCRIPTION_ID: id});
        let mut agreed = Value::Object(Default::default());
        if filter.tools_list_changed {
            agreed["toolsListChanged"] = true.into();
        }
        let ack = json!({"_meta": meta, "notifications": agreed});
        outbox.send(&notification("notifications/subscriptions/acknowledged", Some(&ack)));
        let changed = json!({"_meta": meta});
        let changed = notification("notifications/tools/list_changed", Some(&changed));
        let telling = async {
            if filter.tools_list_changed {
                self.tell_changes(client, || outbox.note(&changed)).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = telling => {}
            () = closed(closing) => {}
        }
        json!({"resultType": "complete", "_meta": meta}).to_string()
    }
}
