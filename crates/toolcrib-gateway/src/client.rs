//! What belongs to one client: its conversation, and its requests that run.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use futures::FutureExt;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use toolcrib_core::Fingerprint;
use toolcrib_runtime::{Conversation, Party, Trail};
use toolcrib_wire::{Id, RpcError, code};

use crate::approval::Granted;
use crate::asks::Asks;
use crate::follows::Follows;
use crate::methods::respond;
use crate::outbox::Outbox;
use crate::seat::Seat;
use crate::watch::Told;
use crate::{Endpoint, Gateway};

/// Requests of one client that may run, whatever is asked for.
const MOST_TURNS: u32 = 1 << 20;

/// Requests of one client that may wait for their turn.
const MOST_WAITING: u32 = 10_000;

/// A connection over stdio, or a session over HTTP.
pub(crate) struct Client {
    pub(crate) seat: Arc<Seat>,
    pub(crate) endpoint: Endpoint,
    /// The lists it knows.
    pub(crate) told: Told,
    /// The resources it follows.
    pub(crate) follows: Follows,
    /// As many permits as requests may run.
    turns: Semaphore,
    /// As many permits as requests may run or wait; all of them free when none does.
    places: Arc<Semaphore>,
    all_places: u32,
    ledger: OnceLock<Ledger>,
    /// What it searched for lately, where its requests are conversations of their own.
    pub(crate) trail: Trail,
    running: Mutex<Running>,
    /// The mildest log messages it wants, or `ALL_LOGS`.
    logs: AtomicUsize,
    /// Who it is, once it has introduced itself for good.
    present: OnceLock<Present>,
    /// What a person let it call from then on.
    pub(crate) granted: Granted,
    /// What it has been asked.
    pub(crate) asks: Asks,
    /// Where notices go that belong to no request, while it listens.
    notices: Mutex<Weak<Outbox>>,
}

/// Stands for a client that has not said which log messages it wants.
const ALL_LOGS: usize = usize::MAX;

/// A client that is there: others see it end when this is dropped.
struct Present(Arc<Party>);

impl Drop for Present {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[derive(Default)]
struct Running {
    works: HashMap<Id, AbortHandle>,
    /// Nothing more is begun.
    ended: bool,
}

/// The conversation of a client of the session era.
struct Ledger {
    conversation: Conversation,
    /// The tools it was last told of.
    adopted: Mutex<Option<Fingerprint>>,
}

impl Client {
    pub(crate) fn new(seat: Arc<Seat>, endpoint: Endpoint, requests_in_flight: usize) -> Self {
        let turns = u32::try_from(requests_in_flight).map_or(MOST_TURNS, |it| it.min(MOST_TURNS));
        let turns = turns.max(1);
        let all_places = turns + MOST_WAITING;
        Self {
            endpoint,
            told: Told::default(),
            follows: Follows::default(),
            turns: Semaphore::new(turns as usize),
            places: Arc::new(Semaphore::new(all_places as usize)),
            all_places,
            ledger: OnceLock::new(),
            trail: seat.trail(),
            seat,
            running: Mutex::default(),
            logs: AtomicUsize::new(ALL_LOGS),
            present: OnceLock::new(),
            granted: Granted::default(),
            asks: Asks::default(),
            notices: Mutex::default(),
        }
    }

    /// The client's own conversation, with what has changed since it was last used adopted.
    pub(crate) fn conversation(&self, gateway: &Gateway) -> Conversation {
        let ledger = self.ledger.get_or_init(|| {
            let conversation = gateway.converse(&self.seat, &self.endpoint);
            Ledger { conversation, adopted: Mutex::default() }
        });
        let now = ledger.conversation.view().fingerprint();
        let mut adopted = ledger.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        if *adopted != Some(now) {
            *adopted = Some(now);
            // Nobody here reads what the turn would announce: preparing takes it away. What is
            // wrong with the settings is told where they are used.
            ledger.conversation.begin_turn();
            let _ = ledger.conversation.prepare();
        }
        ledger.conversation.clone()
    }

    /// Whose it is.
    pub(crate) fn principal(&self) -> u64 {
        self.seat.principal
    }

    /// Notes who it is. That can be said once.
    pub(crate) fn introduce(&self, party: Party) -> Result<(), RpcError> {
        let again = "The client has introduced itself already: `initialize` comes once";
        let present = Present(Arc::new(party));
        self.present.set(present).map_err(|_| RpcError::new(code::INVALID_REQUEST, again))
    }

    /// Who it is, if it has a session.
    pub(crate) fn party(&self) -> Option<&Arc<Party>> {
        self.present.get().map(|present| &present.0)
    }

    /// Sends notices to this stream from now on. The one before ends: a client that opens another
    /// has lost it.
    pub(crate) fn open_notices(&self, outbox: &Arc<Outbox>) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *notices, Arc::downgrade(outbox));
        drop(notices);
        if let Some(before) = before.upgrade() {
            before.close();
        }
        // Whoever ends the client now finds the stream; whoever did before has not.
        if self.has_ended() {
            outbox.close();
        }
    }

    /// Where notices go, while the client listens.
    pub(crate) fn notices(&self) -> Option<Arc<Outbox>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// The mildest log messages it wants, if it has said so.
    pub(crate) fn logs(&self) -> Option<usize> {
        Some(self.logs.load(Ordering::Relaxed)).filter(|logs| *logs != ALL_LOGS)
    }

    pub(crate) fn set_logs(&self, mildest: usize) {
        self.logs.store(mildest, Ordering::Relaxed);
    }

    /// Runs work on a request, in its turn, and hands over the response; none if the request is
    /// cancelled.
    pub(crate) fn start(
        self: &Arc<Self>,
        id: Id,
        work: impl Future<Output = Result<String, RpcError>> + Send + 'static,
        answer: impl FnOnce(String) + Send + 'static,
    ) -> Result<(), RpcError> {
        let client = self.clone();
        let in_turn = async move {
            let _turn = client.turns.acquire().await;
            work.await
        };
        self.start_aside(id, in_turn, answer)
    }

    /// The same for what only waits, and would hold a turn for good.
    pub(crate) fn start_aside(
        self: &Arc<Self>,
        id: Id,
        work: impl Future<Output = Result<String, RpcError>> + Send + 'static,
        answer: impl FnOnce(String) + Send + 'static,
    ) -> Result<(), RpcError> {
        let refused = |why: &str| Err(RpcError::new(code::INVALID_REQUEST, why));
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return refused("Too many requests are waiting");
        };
        let mut running = self.lock();
        if running.ended {
            return refused("The session has ended");
        }
        if running.works.contains_key(&id) {
            return refused("A request of that id still runs");
        }
        let (client, of) = (self.clone(), id.clone());
        let task = async move {
            let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
                Err(RpcError::new(code::INTERNAL_ERROR, "The gateway broke over this request"))
            });
            if client.finish(&of) {
                answer(respond(&of, result));
            }
            drop(place);
        };
        // Under the lock, so that work which is done at once finds itself here.
        running.works.insert(id, tokio::spawn(task).abort_handle());
        Ok(())
    }

    /// Notes that the request this task works on is done; `false` if it was cancelled. Its id may
    /// stand for another one by then.
    fn finish(&self, id: &Id) -> bool {
        let works = &mut self.lock().works;
        let is_own = works.get(id).is_some_and(|work| Some(work.id()) == tokio::task::try_id());
        is_own && works.remove(id).is_some()
    }

    /// Ends a request, if it still runs.
    pub(crate) fn cancel(&self, id: &Id) {
        if let Some(work) = self.lock().works.remove(id) {
            work.abort();
        }
    }

    /// Ends every request and every question, and begins no more.
    pub(crate) fn end(&self) {
        {
            let mut running = self.lock();
            running.ended = true;
            for (_, work) in running.works.drain() {
                work.abort();
            }
        }
        self.asks.end();
        if let Some(party) = self.party() {
            party.end();
        }
        if let Some(notices) = self.notices() {
            notices.close();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    /// Waits until every request has been answered.
    pub(crate) async fn idle(&self) {
        let _ = self.places.acquire_many(self.all_places).await;
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tokio::sync::oneshot;
    use toolcrib_core::Policy;

    fn client(requests_in_flight: usize) -> Arc<Client> {
        let seat = Arc::new(Seat::open(Policy::default(), Default::default()));
        Arc::new(Client::new(seat, Endpoint::Meta, requests_in_flight))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_id_used_again_after_a_cancellation_gets_its_own_answer() {
        let (client, (told, answers)) = (client(10), mpsc::channel());
        let (release, stubborn) = mpsc::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let (let_go, waits) = oneshot::channel::<()>();
        let tell = |to: &mpsc::Sender<String>| {
            let to = to.clone();
            move |answer| to.send(answer).unwrap()
        };
        // It does not look up, so that it can't be stopped.
        let first = async move {
            let _ = begun.send(());
            let _ = stubborn.recv();
            Ok("1".to_owned())
        };
        client.start(Id::from(7), first, tell(&told)).unwrap();
        has_begun.await.unwrap();
        client.cancel(&Id::from(7));
        let second = async move {
            let _ = waits.await;
            Ok("2".to_owned())
        };
        client.start(Id::from(7), second, tell(&told)).unwrap();
        assert!(client.start(Id::from(7), async { Ok(String::new()) }, tell(&told)).is_err());
        release.send(()).unwrap();
        while client.places.available_permits() < client.all_places as usize - 1 {
            tokio::task::yield_now().await;
        }
        let_go.send(()).unwrap();
        client.idle().await;
        drop(told);
        let answers: Vec<String> = answers.iter().collect();
        assert_eq!(answers, [r#"{"jsonrpc":"2.0","id":7,"result":2}"#]);
    }

    #[tokio::test]
    async fn work_that_breaks_is_answered_and_leaves_its_place() {
        let (client, (told, answer)) = (client(1), oneshot::channel());
        let broken = async { panic!("no") };
        client.start(Id::from(7), broken, |text| told.send(text).unwrap()).unwrap();
        assert!(answer.await.unwrap().contains("-32603"));
        client.idle().await;
    }

    #[tokio::test]
    async fn nothing_begins_after_the_end() {
        let client = client(1);
        client.start(Id::from(7), std::future::pending(), |_| panic!("an answer")).unwrap();
        client.end();
        client.idle().await;
        assert!(client.start(Id::from(8), std::future::pending(), |_| ()).is_err());
    }
}
