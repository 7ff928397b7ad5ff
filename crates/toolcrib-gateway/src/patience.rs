//! Waiting a little for servers that are still starting: what was not found may be theirs.

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use toolcrib_core::{Availability, GroupId};

use crate::Gateway;

/// How long somebody is still willing to wait.
pub(crate) struct Patience {
    gateway: Gateway,
    changes: watch::Receiver<u64>,
    until: Instant,
    /// Whether a server was starting when something was last looked for.
    hopes: bool,
}

impl Gateway {
    /// Whether any server is starting.
    pub(crate) fn is_starting(&self) -> bool {
        self.catalog().unready().any(|(_, state)| *state == Availability::Starting)
    }

    /// Whether this server is.
    pub(crate) fn starts(&self, id: &GroupId) -> bool {
        self.catalog().availability(id) == Availability::Starting
    }

    pub(crate) fn patience(&self) -> Patience {
        Patience {
            gateway: self.clone(),
            changes: self.crib().changes(),
            until: Instant::now() + self.options().start_wait,
            hopes: false,
        }
    }
}

impl Patience {
    /// To be said before something is looked for, so that no change goes by unnoticed.
    pub(crate) fn look(&mut self) {
        self.changes.mark_unchanged();
        self.hopes = self.gateway.is_starting();
    }

    /// Waits until it is worth looking again; `false` if it no longer is.
    pub(crate) async fn again(&mut self) -> bool {
        self.hopes && matches!(timeout_at(self.until, self.changes.changed()).await, Ok(Ok(())))
    }
}
