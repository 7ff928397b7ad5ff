//! Telling clients that the list of tools has changed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Version {
    Seen(Fingerprint),
    /// The hash of what is listed.
    Listed(u64),
}

/// The list that somebody was last told of.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<Option<Version>>);

impl Told {
    /// Notes what is told from now on; says whether something else was told before.
    pub(crate) fn replace(&self, now: Version) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.replace(now).is_some_and(|before| before != now)
    }
}

/// Waits for the end: until somebody says so, or nobody is left to.
pub(crate) async fn closed(mut closing: watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

impl Gateway {
    /// Tells whenever the client's list is no longer what was told last, be it from before. It
    /// never ends.
    pub(crate) async fn tell_changes(&self, client: &Client, told: &Told, tell: impl Fn()) {
        let mut changes = self.crib().changes();
        changes.mark_changed();
        while changes.changed().await.is_ok() {
            sleep(CLOSE_TOGETHER).await;
            changes.mark_unchanged();
            if told.replace(self.version(client)) {
                tell();
            }
        }
        std::future::pending::<()>().await;
    }

    /// The client's list as it is now.
    pub(crate) fn version(&self, client: &Client) -> Version {
        let list = match &client.endpoint {
            // Written out it may have megabytes.
            Endpoint::Full => return Version::Seen(self.view().fingerprint()),
            Endpoint::Inject => {
                let ledger = client.conversation(self);
                self.list(&Endpoint::Inject, Some(&ledger))
            }
            endpoint => self.list(endpoint, None),
        };
        let mut hasher = DefaultHasher::new();
        list.hash(&mut hasher);
        Version::Listed(hasher.finish())
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
        // Before the client hears that it will be told.
        let told = Told::default();
        told.replace(self.version(client));
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
                self.tell_changes(client, &told, || outbox.note(&changed)).await;
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
