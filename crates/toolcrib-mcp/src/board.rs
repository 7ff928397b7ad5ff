//! Who waits for what on a connection.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;
use toolcrib_runtime::Listener;
use toolcrib_wire::{Id, Message, RpcError};

use crate::connection::Failure;

pub(crate) type Answer = Result<Box<RawValue>, Failure>;

/// Who waits for what. Shared by those who ask and whoever reads from the link.
#[derive(Default)]
pub(crate) struct Board {
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// The last number given out.
    last: AtomicU64,
    /// Counts the server's notices that its tools changed.
    pub(crate) tools_changed: watch::Sender<u64>,
    /// Nothing new is sent any more.
    is_deaf: AtomicBool,
    /// Why the connection is of no use any more, once it is not.
    end: OnceLock<String>,
    ended: watch::Sender<bool>,
}

struct Waiting {
    answer: oneshot::Sender<Answer>,
    listener: Option<Arc<dyn Listener>>,
    /// When the server was last heard of in this matter.
    heard: Instant,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for the next request.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Notes that somebody waits, unless nothing can be sent any more.
    pub(crate) fn wait(
        &self,
        number: u64,
        listener: Option<Arc<dyn Listener>>,
    ) -> Result<oneshot::Receiver<Answer>, Failure> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { answer, listener, heard: Instant::now() };
        self.lock().insert(number, waiting);
        // After the insertion: an end that comes in between fails what it finds waiting.
        if !self.is_open() {
            self.lock().remove(&number);
            return Err(Failure::Unsent(self.end().unwrap_or("it ended").to_owned()));
        }
        Ok(answered)
    }

    /// When the server was last heard of in this matter; `None` if nobody waits any more.
    pub(crate) fn heard(&self, number: u64) -> Option<Instant> {
        self.lock().get(&number).map(|waiting| waiting.heard)
    }

    /// Stops waiting; says whether anybody still did.
    pub(crate) fn give_up(&self, number: u64) -> bool {
        self.lock().remove(&number).is_some()
    }

    /// Fails one request, if it still waits.
    pub(crate) fn fail(&self, number: u64, failure: Failure) {
        self.answer(number, Err(failure));
    }

    fn answer(&self, number: u64, answer: Answer) {
        let waiting = self.lock().remove(&number);
        if let Some(waiting) = waiting {
            // Nobody waits for it any more: that is their business.
            let _ = waiting.answer.send(answer);
        }
    }

    /// Fails the one request that waits, if it is only one: otherwise nobody knows which.
    pub(crate) fn fail_only(&self, failure: Failure) {
        let mut waiting = self.lock();
        let only = waiting.keys().next().copied().filter(|_| waiting.len() == 1);
        let only = only.and_then(|number| waiting.remove(&number));
        drop(waiting);
        if let Some(only) = only {
            let _ = only.answer.send(Err(failure));
        }
    }

    /// Takes in a message. Returns what must be answered, if the server asked something.
    pub(crate) fn take_in(&self, text: &str) -> Result<Option<String>, ()> {
        match Message::parse(text) {
            Ok(Message::Response { id, outcome }) => {
                if let Some(number) = id.as_ref().and_then(Id::as_u64) {
                    self.answer(number, outcome.map(ToOwned::to_owned).map_err(Failure::Refused));
                }
                Ok(None)
            }
            Ok(Message::Notification { method, params }) => {
                self.hear(&method, params);
                Ok(None)
            }
            Ok(Message::Request { id, method, .. }) => Ok(Some(match &*method {
                "ping" => toolcrib_wire::response(&id, &serde_json::json!({})),
                _ => toolcrib_wire::failure(Some(&id), &RpcError::unknown_method(&method)),
            })),
            Err(_) => Err(()),
        }
    }

    fn hear(&self, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/tools/list_changed" => self.suspect(),
            "notifications/progress" => {
                #[derive(Deserialize)]
                #[serde(rename_all = "camelCase")]
                struct Progress {
                    progress_token: Id,
                }
                let Some(params) = params else { return };
                let Ok(progress) = serde_json::from_str::<Progress>(params.get()) else { return };
                let Some(token) = progress.progress_token.as_u64() else { return };
                let listener = self.lock().get_mut(&token).and_then(|waiting| {
                    waiting.heard = Instant::now();
                    waiting.listener.clone()
                });
                if let Some(listener) = listener {
                    listener.hear(method, params);
                }
            }
            _ => tracing::trace!(method, "not passed on"),
        }
    }

    /// Notes that the tools may have changed.
    pub(crate) fn suspect(&self) {
        self.tools_changed.send_modify(|count| *count += 1);
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
        let waiting = std::mem::take(&mut *self.lock());
        for waiting in waiting.into_values() {
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
