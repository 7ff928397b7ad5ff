//! Room that answers take until they have been written.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use tokio::sync::Notify;
use toolcrib_runtime::Room;

tokio::task_local! {
    /// Ends the connection that a task serves, where it writes what others wait for the room of.
    pub(crate) static CONNECTION: Arc<Notify>;
}

/// The room that the answer to one request takes. A handle: it is given back with the last clone.
#[derive(Clone, Default)]
pub(crate) struct Held(Arc<Mutex<Vec<Room>>>);

impl Held {
    pub(crate) fn keep(&self, room: Room) {
        self.lock().push(room);
    }

    /// Takes over what another has.
    pub(crate) fn take_over(&self, other: &Self) {
        let theirs = mem::take(&mut *other.lock());
        self.lock().extend(theirs);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Bytes with which the room is given back.
    pub(crate) fn with(&self, bytes: impl Into<Bytes>) -> Bytes {
        let bytes = bytes.into();
        if self.is_empty() {
            return bytes;
        }
        let held = Self::default();
        held.take_over(self);
        // If others wait for the room, the connection that the bytes are written to ends.
        let _ = CONNECTION.try_with(|end| {
            held.lock().iter_mut().for_each(|room| room.may_be_asked_back(end));
        });
        Bytes::from_owner(Written { bytes, _held: held })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Room>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Written {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcrib_runtime::Budget;

    #[tokio::test]
    async fn room_is_given_back_with_the_bytes() {
        let budget = Budget::default();
        let mut room = budget.room();
        room.reach(1 << 20).await.unwrap();
        let (held, parked) = (Held::default(), Held::default());
        parked.keep(room);
        held.take_over(&parked);
        assert!(parked.is_empty() && !held.is_empty());
        let bytes = held.with(b"answer".to_vec());
        drop((held, parked));
        assert_eq!((&bytes[..], budget.used()), (&b"answer"[..], 1 << 20));
        drop(bytes);
        assert_eq!(budget.used(), 0);
        assert_eq!(Held::default().with(b"x".to_vec()), "x");
    }
}
