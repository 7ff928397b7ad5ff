//! Keeps calls from a server that fails again and again, until one of them finds it well.

use std::sync::{Arc, Weak};

use tokio::time::{Duration, Instant};
use toolcrib_runtime::Breaker as Shown;

use crate::connection::{Connection, Failure};
use crate::secrets::Secrets;

/// How many calls in a row must fail.
const MOST_STRIKES: u32 = 5;

/// For how long calls are refused, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(300);

/// Whether calls get through to a server.
#[derive(Default)]
pub(super) struct Breaker {
    strikes: u32,
    /// How often it was opened since a call last went well.
    openings: u32,
    stand: Stand,
    reason: String,
    /// The connection whose end was counted last: it ends once, however many calls that costs.
    struck: Weak<Connection>,
}

#[derive(Default)]
enum Stand {
    #[default]
    Closed,
    /// From then on, one call may find out.
    Open(Instant),
    Probing,
}

impl Breaker {
    /// Lets a call through, or says why not. `true`: it is the one that finds out.
    pub(super) fn admit(&mut self) -> Result<bool, String> {
        match self.stand {
            Stand::Closed => Ok(false),
            Stand::Open(until) => {
                let wait = until.saturating_duration_since(Instant::now());
                if wait.is_zero() {
                    self.stand = Stand::Probing;
                    return Ok(true);
                }
                let wait = wait.as_secs_f32().ceil();
                Err(format!("{} (it is tried again in {wait} s)", self.reason))
            }
            Stand::Probing => Err(format!("{} (it is being tried again now)", self.reason)),
        }
    }

    /// The same for who calls nothing, and so finds nothing out: it takes no call's turn.
    pub(super) fn admit_idle(&self) -> Result<(), String> {
        match self.stand {
            Stand::Open(until) if until > Instant::now() => Err(self.reason.clone()),
            Stand::Probing => Err(self.reason.clone()),
            Stand::Open(_) | Stand::Closed => Ok(()),
        }
    }

    /// A call was answered. Says whether that closed it.
    pub(super) fn well(&mut self) -> bool {
        let was_open = !matches!(self.stand, Stand::Closed);
        if was_open || self.strikes > 0 {
            *self = Self::default();
        }
        was_open
    }

    /// A call failed. Says until when calls are refused, if it was one too many.
    pub(super) fn strike(
        &mut self,
        connection: &Arc<Connection>,
        failure: &Failure,
        is_probe: bool,
        secrets: &Secrets,
    ) -> Option<Instant> {
        let is_strike = match failure {
            Failure::Late(_) => true,
            Failure::Lost(_) | Failure::Unrepeatable(_) => {
                let has_ended = !connection.board().is_open();
                let is_known = std::ptr::eq(self.struck.as_ptr(), Arc::as_ptr(connection));
                if has_ended {
                    self.struck = Arc::downgrade(connection);
                }
                !(has_ended && is_known)
            }
            Failure::Refused(_)
            | Failure::Denied { .. }
            | Failure::Unsent(_)
            | Failure::Unread(_) => false,
        };
        match self.stand {
            Stand::Closed if is_strike => self.strikes += 1,
            Stand::Probing if is_strike && is_probe => {}
            // What began before is known by now.
            _ => return None,
        }
        if self.strikes < MOST_STRIKES {
            return None;
        }
        let pause = FIRST_PAUSE.saturating_mul(1 << self.openings.min(9)).min(MOST_PAUSE);
        let until = Instant::now() + pause;
        self.openings += 1;
        self.stand = Stand::Open(until);
        let failure = secrets.hide(&failure.to_string());
        self.reason = format!("it failed {MOST_STRIKES} times in a row, at last: {failure}");
        Some(until)
    }

    /// The call that was to find out ended without having done so: the next one may.
    pub(super) fn undecided(&mut self) {
        if matches!(self.stand, Stand::Probing) {
            self.stand = Stand::Open(Instant::now());
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.stand, Stand::Closed)
    }

    /// Why no call gets through, if that is so.
    pub(super) fn refusal(&self, now: Instant) -> Option<&str> {
        matches!(self.stand, Stand::Open(until) if until > now).then_some(&*self.reason)
    }

    pub(super) fn shown(&self, now: Instant) -> Shown {
        match self.stand {
            Stand::Closed => Shown::Closed,
            Stand::Open(until) => Shown::Open {
                remaining: until.saturating_duration_since(now),
                reason: self.reason.clone(),
            },
            Stand::Probing => Shown::Probing,
        }
    }
}
