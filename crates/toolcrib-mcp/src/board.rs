//! Who waits for what on a connection, and what the server has asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::{Duration, Instant};
use toolcrib_runtime::{Budget, Caller, Listener, Room, aside};
use toolcrib_wire::version::meta;
use toolcrib_wire::{Id, Message};

use crate::asked::{Asked, Questions};
use crate::connection::Failure;

/// Notices that wait for whoever reads them; of more, the oldest are missed.
const MOST_NEWS: usize = 256;

pub(crate) type Answer = Result<Box<RawValue>, Failure>;

/// Those who may wait until the server tells of changes.
const MOST_UNACKNOWLEDGED: usize = 64;

/// Who waits for what. Shared by those who ask and whoever reads from the link.
pub(crate) struct Board {
    table: Mutex<Table>,
    /// Room for what the server answers.
    budget: Budget,
    /// The last number given out.
    last: AtomicU64,
    /// Counts the server's notices that its tools changed.
    pub(crate) tools_changed: watch::Sender<u64>,
    /// What the server tells that belongs to no call.
    pub(crate) news: broadcast::Sender<Noticed>,
    /// All calls are of one client.
    is_own: AtomicBool,
    /// A client was declared that can answer the server's questions.
    may_be_asked: AtomicBool,
    /// Nothing new is sent any more.
    is_deaf: AtomicBool,
    /// Why the connection is of no use any more, once it is not.
    end: OnceLock<String>,
    ended: watch::Sender<bool>,
    /// Who waits until the server tells of changes, by the number of the request for that.
    unacknowledged: Mutex<Vec<(u64, oneshot::Sender<()>)>>,
    /// The request to tell of changes: it waits as long as the connection lasts.
    listening: AtomicU64,
}

/// A notification that belongs to no call.
#[derive(Clone, Debug)]
pub(crate) struct Noticed {
    pub(crate) method: Arc<str>,
    pub(crate) params: Option<Arc<RawValue>>,
}

/// What a message leaves to do.
pub(crate) enum Taken {
    Nothing,
    /// To be sent back.
    Reply(String),
    /// A question that somebody else has to answer.
    Asked(Asked),
}

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) waiting: HashMap<u64, Waiting>,
    pub(crate) questions: Questions,
}

pub(crate) struct Waiting {
    answer: oneshot::Sender<Answer>,
    pub(crate) listener: Option<Arc<dyn Listener>>,
    /// Whoever is behind it.
    principal: Option<u64>,
    /// When the server was last heard of in this matter.
    pub(crate) heard: Instant,
    /// Questions of the server's in this matter that are open.
    pub(crate) asks: usize,
}

impl Table {
    /// The call that something the server says belongs to: that on whose stream it came; without
    /// one, the only call there is, or the newest of those of one client.
    pub(crate) fn whose(&self, during: Option<u64>, is_own: bool) -> Option<u64> {
        let listens = |waiting: &Waiting| waiting.listener.is_some();
        if let Some(number) = during {
            return self.waiting.get(&number).is_some_and(listens).then_some(number);
        }
        let calls = self.waiting.iter().filter(|(_, waiting)| listens(waiting));
        let mut calls = calls.map(|(number, _)| *number);
        let first = calls.next()?;
        if is_own { calls.max().max(Some(first)) } else { calls.next().is_none().then_some(first) }
    }

    /// Takes a request off, and with it the questions asked in its course.
    fn finish(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        if !self.questions.is_empty() {
            let is_last = self.calls() == 0;
            self.questions.end_of(number, is_last);
        }
        Some(waiting)
    }

    /// How many calls there are that something the server says may belong to.
    pub(crate) fn calls(&self) -> usize {
        self.waiting.values().filter(|waiting| waiting.listener.is_some()).count()
    }
}

impl Board {
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            table: Mutex::default(),
            budget,
            last: AtomicU64::default(),
            tools_changed: watch::Sender::default(),
            news: broadcast::Sender::new(MOST_NEWS),
            is_own: AtomicBool::default(),
            may_be_asked: AtomicBool::default(),
            is_deaf: AtomicBool::default(),
            end: OnceLock::default(),
            ended: watch::Sender::default(),
            unacknowledged: Mutex::default(),
            listening: AtomicU64::default(),
        }
    }

    /// Room for a message of the server's.
    pub(crate) fn room(&self) -> Room {
        self.budget.room()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that all calls will be of one client.
    pub(crate) fn dedicate(&self) {
        self.is_own.store(true, Ordering::Relaxed);
    }

    /// Whether all calls are of one client.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Notes that a client was declared whom the server may ask.
    pub(crate) fn expect_questions(&self) {
        self.may_be_asked.store(true, Ordering::Relaxed);
    }

    /// Whether the server may ask what belongs to no call in particular.
    pub(crate) fn may_be_asked(&self) -> bool {
        self.may_be_asked.load(Ordering::Relaxed)
    }

    /// A number for the next request.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that somebody waits, unless nothing can be sent any more.
    pub(crate) fn wait(
        &self,
        number: u64,
        caller: &Caller,
    ) -> Result<oneshot::Receiver<Answer>, Failure> {
        let (answer, answered) = oneshot::channel();
        let (listener, heard) = (caller.listener().cloned(), Instant::now());
        let principal = caller.party().map(|party| party.principal());
        let waiting = Waiting { answer, listener, principal, heard, asks: 0 };
        let mut table = self.lock();
        if let Some(listener) = &waiting.listener {
            table.questions.give(listener);
        }
        table.waiting.insert(number, waiting);
        drop(table);
        // After the insertion: an end that comes in between fails what it finds waiting.
        if !self.is_open() {
            self.lock().finish(number);
            return Err(Failure::Unsent(self.end().unwrap_or("it ended").to_owned()));
        }
        Ok(answered)
    }

    /// When the server was last heard of in this matter; `None` if nobody waits any more. One that
    /// waits for an answer itself is heard of all the time.
    pub(crate) fn heard(&self, number: u64) -> Option<Instant> {
        let table = self.lock();
        let waiting = table.waiting.get(&number)?;
        let is_asked = waiting.listener.is_some() && table.questions.has_of_client();
        Some(if waiting.asks > 0 || is_asked { Instant::now() } else { waiting.heard })
    }

    /// Has somebody told when the server says that it tells of changes, as this request wants it.
    /// Of many who wait the first is not kept waiting.
    pub(crate) fn expect_acknowledged(&self, number: u64, heard: oneshot::Sender<()>) {
        let mut waiting = self.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MOST_UNACKNOWLEDGED {
            waiting.remove(0);
        }
        waiting.push((number, heard));
        self.listening.store(number, Ordering::Relaxed);
    }

    /// The server tells of changes. Every request for that is for all that earlier ones were for.
    fn acknowledged(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Acknowledged {
            #[serde(rename = "_meta")]
            meta: HashMap<String, serde_json::Value>,
        }
        let params = read::<Acknowledged>(params);
        let number = params.and_then(|it| it.meta.get(meta::SUBSCRIPTION_ID)?.as_u64());
        let mut waiting = self.unacknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|(of, _)| number.is_some_and(|number| *of > number));
    }

    /// Whether somebody waits.
    pub(crate) fn waits(&self, number: u64) -> bool {
        self.lock().waiting.contains_key(&number)
    }

    /// Stops waiting; says whether anybody still did.
    pub(crate) fn give_up(&self, number: u64) -> bool {
        self.lock().finish(number).is_some()
    }

    /// Tells whoever waits that the server has let go of the stream it answers on.
    pub(crate) fn let_go(&self, number: u64, retry: Duration) {
        let waiting = self.lock().waiting.get(&number).and_then(|it| it.listener.clone());
        if let Some(listener) = waiting {
            listener.let_go(retry);
        }
    }

    /// Fails one request, if it still waits.
    pub(crate) fn fail(&self, number: u64, failure: Failure) {
        self.answer(number, Err(failure), None);
    }

    fn answer(&self, number: u64, answer: Answer, room: Option<Room>) {
        let waiting = self.lock().finish(number);
        if let Some(waiting) = waiting {
            if let (Some(listener), Some(mut room)) = (&waiting.listener, room) {
                room.belongs_to(waiting.principal);
                listener.keep(room);
            }
            // Nobody waits for it any more: that is their business.
            let _ = waiting.answer.send(answer);
        }
    }

    /// Fails the one request that waits, if it is only one: otherwise nobody knows which.
    pub(crate) fn fail_only(&self, failure: Failure) {
        let mut table = self.lock();
        let listening = self.listening.load(Ordering::Relaxed);
        let mut others = table.waiting.keys().copied().filter(|number| *number != listening);
        let only = others.next().filter(|_| others.next().is_none());
        let only = only.and_then(|number| table.finish(number));
        drop(table);
        if let Some(only) = only {
            let _ = only.answer.send(Err(failure));
        }
    }

    /// Takes in a message, which came in the course of a request if that is known, and may take
    /// room: an answer keeps it. Gives back what is no message.
    pub(crate) async fn take_in(
        self: &Arc<Self>,
        text: String,
        during: Option<u64>,
        room: Option<Room>,
    ) -> Result<Taken, String> {
        let (board, bytes) = (self.clone(), text.len());
        let read = move || board.read(&text, during, room).map_err(|()| text);
        aside(bytes, read).await
    }

    fn read(&self, text: &str, during: Option<u64>, room: Option<Room>) -> Result<Taken, ()> {
        match Message::parse(text) {
            Ok(Message::Response { id, outcome }) => {
                if let Some(number) = id.as_ref().and_then(Id::as_u64) {
                    let answer = outcome.map(ToOwned::to_owned).map_err(Failure::Refused);
                    self.answer(number, answer, room);
                }
                Ok(Taken::Nothing)
            }
            Ok(Message::Notification { method, params }) => {
                self.hear(&method, params, during);
                Ok(Taken::Nothing)
            }
            Ok(Message::Request { id, method, .. }) if method == "ping" => {
                Ok(Taken::Reply(toolcrib_wire::response(&id, &serde_json::json!({}))))
            }
            Ok(Message::Request { id, method, params }) => {
                let (method, params) = (method.into_owned(), params.map(ToOwned::to_owned));
                Ok(Taken::Asked(Asked { id, method, params, during }))
            }
            Err(_) => Err(()),
        }
    }

    fn hear(&self, method: &str, params: Option<&RawValue>, during: Option<u64>) {
        let whose = match method {
            "notifications/tools/list_changed" => return self.suspect(),
            // What is listened to here is no client's own.
            "notifications/subscriptions/acknowledged" => return self.acknowledged(params),
            "notifications/cancelled" => {
                #[derive(Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Cancelled {
                    request_id: Id,
                }
                if let Some(cancelled) = read::<Cancelled>(params) {
                    self.take_back(&cancelled.request_id);
                }
                return;
            }
            "notifications/progress" => {
                #[derive(Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Progress {
                    progress_token: Id,
                }
                let token = read::<Progress>(params).and_then(|it| it.progress_token.as_u64());
                // The token says more than the stream does.
                match token.and_then(|token| self.lock().whose(Some(token), false)) {
                    Some(number) => Some(number),
                    None => return tracing::trace!(method, "of no call"),
                }
            }
            // These are for everybody.
            "notifications/prompts/list_changed"
            | "notifications/resources/list_changed"
            | "notifications/resources/updated" => None,
            _ => self.lock().whose(during, self.is_own()),
        };
        let listener = whose.and_then(|number| {
            let mut table = self.lock();
            let waiting = table.waiting.get_mut(&number)?;
            // Whoever talks without end has not got on by that.
            if method == "notifications/progress" {
                waiting.heard = Instant::now();
            }
            waiting.listener.clone()
        });
        match listener {
            Some(listener) => match params {
                Some(params) => listener.hear(method, params),
                None => listener.hear(method, &nothing()),
            },
            None => {
                let params = params.map(|params| Arc::from(params.to_owned()));
                // It may be that nobody reads them.
                let _ = self.news.send(Noticed { method: method.into(), params });
            }
        }
    }

    /// Notes that the tools may have changed.
    pub(crate) fn suspect(&self) {
        self.tools_changed.send_modify(|count| *count += 1);
    }

    /// Notes that anything may have changed that is listed or followed.
    pub(crate) fn suspect_all(&self) {
        self.suspect();
        for what in ["prompts/list_changed", "resources/list_changed", "resources/updated"] {
            let method = format!("notifications/{what}").into();
            let _ = self.news.send(Noticed { method, params: None });
        }
    }

    /// Whether requests are still taken.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_deaf.load(Ordering::SeqCst)
    }

    /// Takes no more requests. What is on its way may still be answered.
    pub(crate) fn deafen(&self) {
        self.is_deaf.store(true, Ordering::SeqCst);
    }

    /// The connection is of no use any more. What is on its way may still be answered.
    pub(crate) fn retire(&self, reason: &str) {
        self.deafen();
        let _ = self.end.set(reason.to_owned());
        self.ended.send_replace(true);
    }

    /// Ends the connection: whoever waits is told why.
    pub(crate) fn close(&self, reason: &str) {
        self.retire(reason);
        let table = std::mem::take(&mut *self.lock());
        for waiting in table.waiting.into_values() {
            let _ = waiting.answer.send(Err(Failure::Lost(reason.to_owned())));
        }
    }

    /// Why it is of no use any more, once it is not.
    pub(crate) fn end(&self) -> Option<&str> {
        self.end.get().map(String::as_str)
    }

    /// Waits until it is of no use any more.
    pub(crate) async fn ended(&self) {
        // It can't fail: the sender is our own.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(params?.get()).ok()
}

/// Parameters that say nothing.
fn nothing() -> Box<RawValue> {
    toolcrib_wire::Fields::default().to_raw()
}
