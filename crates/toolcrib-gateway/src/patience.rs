//! Waiting a little for servers that are still starting: what was not found may be theirs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use toolcrib_core::{Availability, GroupId};

use crate::Gateway;
use crate::seat::Seat;

/// The longest that anybody is willing to wait, whatever is asked for: there is no time beyond the
/// end of the clock.
const MOST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3_600);

/// How long somebody is still willing to wait.
pub(crate) struct Patience {
    gateway: Gateway,
    seat: Arc<Seat>,
    changes: watch::Receiver<u64>,
    until: Instant,
    /// Whether a server was starting when something was last looked for.
    hopes: bool,
}

impl Gateway {
    /// Whether any server is starting that the caller may know of.
    pub(crate) fn is_starting(&self, seat: &Seat) -> bool {
        let catalog = self.catalog();
        let mut starting = catalog.unready().filter(|(_, it)| **it == Availability::Starting);
        starting.any(|(id, _)| self.may_know(seat, &catalog, id))
    }

    /// Whether this server is.
    pub(crate) fn starts(&self, id: &GroupId) -> bool {
        self.catalog().availability(id) == Availability::Starting
    }

    pub(crate) fn patience(&self, seat: &Arc<Seat>) -> Patience {
        Patience {
            seat: seat.clone(),
            gateway: self.clone(),
            changes: self.crib().changes(),
            until: Instant::now() + self.options().start_wait.min(MOST_PATIENCE),
            hopes: false,
        }
    }
}

impl Patience {
    /// To be said before something is looked for, so that no change goes by unnoticed.
    pub(crate) fn look(&mut self) {
        self.changes.mark_unchanged();
        self.hopes = self.gateway.is_starting(&self.seat);
    }

    /// Waits until it is worth looking again; `false` if it no longer is.
    pub(crate) async fn again(&mut self) -> bool {
        self.hopes && matches!(timeout_at(self.until, self.changes.changed()).await, Ok(Ok(())))
    }
}
