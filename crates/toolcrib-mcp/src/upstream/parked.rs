//! Calls that wait for the answer of a client without a session. Each holds a connection, or a
//! place among the calls, for as long as a person thinks: so those of one principal may hold half
//! of them, and half of the processes of all servers, and others get through.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Duration, timeout};
use toolcrib_runtime::{Caller, Listener, Room};
use toolcrib_wire::RpcError;

use super::Inner;
use super::lanes::{LaneGuard, LaneKey};

/// How long a question waits for others to be answered before its call is refused: clients that
/// answer by themselves do so at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// The places for calls that wait, by principal.
#[derive(Default)]
pub(super) struct Parked(HashMap<u64, Weak<Semaphore>>);

impl Parked {
    fn places(&mut self, principal: u64, most: usize) -> Arc<Semaphore> {
        if let Some(places) = self.0.get(&principal).and_then(Weak::upgrade) {
            return places;
        }
        self.0.retain(|_, places| places.strong_count() > 0);
        let places = Arc::new(Semaphore::new(most));
        self.0.insert(principal, Arc::downgrade(&places));
        places
    }
}

/// A call's places among those that wait, or how many it had when the time was up.
type Place = Result<Arc<Vec<OwnedSemaphorePermit>>, usize>;
type Coming = BoxFuture<'static, Place>;

/// Asks in the course of a call, as long as the call may wait.
struct Patient {
    listener: Arc<dyn Listener>,
    /// Here, and among the processes of all servers.
    places: Vec<Arc<Semaphore>>,
    /// The place that all its questions share.
    place: Mutex<Option<WeakShared<Coming>>>,
    /// Ends the call, for want of one of its places.
    refuse: Arc<Mutex<Option<oneshot::Sender<usize>>>>,
}

impl Patient {
    fn place(&self) -> Shared<Coming> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = place.as_ref().and_then(WeakShared::upgrade) {
            return there;
        }
        let places = self.places.clone();
        let coming = async move {
            let mut taken = Vec::new();
            let taking = async {
                for places in places {
                    // They are never closed.
                    taken.extend(places.acquire_owned().await);
                }
            };
            let is_in_time = timeout(PATIENCE, taking).await.is_ok();
            if is_in_time { Ok(Arc::new(taken)) } else { Err(taken.len()) }
        };
        let coming = coming.boxed().shared();
        *place = coming.downgrade();
        coming
    }
}

impl Listener for Patient {
    fn hear(&self, method: &str, params: &RawValue) {
        self.listener.hear(method, params);
    }

    fn wants_progress(&self) -> bool {
        self.listener.wants_progress()
    }

    fn let_go(&self, retry: Duration) {
        self.listener.let_go(retry);
    }

    fn keep(&self, room: Room) {
        self.listener.keep(room);
    }

    fn ask(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
        let (place, refuse) = (self.place(), self.refuse.clone());
        let (listener, method) = (self.listener.clone(), method.to_owned());
        let params = params.map(ToOwned::to_owned);
        Box::pin(async move {
            // Both stay until there is an answer: further questions of the call find them.
            let _permits = match place.clone().await {
                Ok(permits) => permits,
                Err(which) => {
                    let refuse = refuse.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let _ = refuse.map(|refuse| refuse.send(which));
                    // The call ends, and this with it.
                    return std::future::pending().await;
                }
            };
            let answer = listener.ask(&method, params.as_deref()).await;
            drop(place);
            answer
        })
    }
}

/// Resolves with the reason when a call may not wait for an answer.
pub(super) struct Refusal {
    refused: Option<oneshot::Receiver<usize>>,
    /// One for each place that there may be none of.
    reasons: Vec<String>,
}

impl Refusal {
    pub(super) async fn reason(mut self) -> String {
        if let Some(refused) = self.refused
            && let Ok(which) = refused.await
            && which < self.reasons.len()
        {
            return self.reasons.swap_remove(which);
        }
        std::future::pending().await
    }
}

impl Inner {
    /// The caller as a server may ask it on this connection: where a call waits for answers
    /// while its client is gone, only so many may.
    pub(super) fn patient(&self, lane: &LaneGuard, caller: &Caller) -> (Caller, Refusal) {
        let is_lent = matches!(lane.key, LaneKey::Leased { .. });
        let (true, Some(party), Some(listener)) = (is_lent, caller.party(), caller.listener())
        else {
            return (caller.clone(), Refusal { refused: None, reasons: Vec::new() });
        };
        let (all, setting) = self.scarce();
        let most = (all / 2).max(1);
        let principal = party.principal();
        let mut places = vec![self.lock().parked.places(principal, most)];
        let mut reasons = vec![format!(
            "has a question, but {most} calls of this caller wait for answers already, which is \
             as many as may with `{setting} = {all}`, so that others get through: answer those \
             first, or raise `{setting}`"
        )];
        if self.is_child() {
            let most = (self.shared.most_processes.load(Ordering::Relaxed) / 2).max(1);
            let mut parked = self.shared.parked.lock().unwrap_or_else(PoisonError::into_inner);
            places.push(parked.places(principal, most));
            reasons.push(format!(
                "has a question, but {most} calls of this caller to all servers together wait for \
                 answers already, each in a process of its own, which is as many as may, so that \
                 others get through: answer those first"
            ));
        }
        let (refuse, refused) = oneshot::channel();
        let patient = Patient {
            listener: listener.clone(),
            places,
            place: Mutex::default(),
            refuse: Arc::new(Mutex::new(Some(refuse))),
        };
        (caller.clone().heard_by(Arc::new(patient)), Refusal { refused: Some(refused), reasons })
    }

    /// What calls that wait would use up first, and the setting for it.
    fn scarce(&self) -> (usize, &'static str) {
        let (connections, in_flight) = (self.config.connections(), self.config.in_flight.max(1));
        match self.is_child() && connections <= in_flight {
            true => (connections, "connections"),
            false => (in_flight, "in_flight"),
        }
    }
}
