//! Whom a call is for, and how to reach them while it runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib_wire::{Era, Fields, RpcError};

use crate::budget::Room;

/// Whom a call is for. The default is nobody in particular.
#[derive(Clone, Default)]
pub struct Caller {
    meta: Option<Arc<RawValue>>,
    listener: Option<Arc<dyn Listener>>,
    party: Option<Arc<Party>>,
    rest: Option<Arc<RawValue>>,
    retry: Option<Arc<Retry>>,
    log_level: Option<&'static str>,
}

/// Hears what a tool's server says while a call runs, and answers what it asks.
pub trait Listener: Send + Sync + 'static {
    /// A notification that belongs to the call (its progress, say), with its parameters as the
    /// server gave them. Called in the order in which the server spoke, and before the call's
    /// result is returned.
    fn hear(&self, method: &str, params: &RawValue);

    /// Whether progress is of interest: if not, a server need not be asked for it.
    fn wants_progress(&self) -> bool {
        true
    }

    /// The server has let go of the stream it answers on, for whoever waits to come back after a
    /// while. It is waited for in any case: this is for those who have somebody waiting themselves.
    fn let_go(&self, retry: Duration) {
        let _ = retry;
    }

    /// A question of the server's (to sample, to elicit), with its parameters as they came: the
    /// result as JSON, or the error to answer with. Dropping the future takes the question back.
    ///
    /// The default knows no method.
    fn ask(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> BoxFuture<'static, Result<Box<RawValue>, RpcError>> {
        let _ = params;
        let unknown = RpcError::unknown_method(method);
        Box::pin(async { Err(unknown) })
    }

    /// Takes over the room that the call's result takes, just before the result comes. Whoever
    /// passes the result on drops it when that is done. The default is not to keep it.
    fn keep(&self, room: Room) {
        drop(room);
    }
}

/// A client: what it can do, and whether it is still there. Calls of one client share one, unless
/// each of its requests stands for itself.
#[derive(Debug)]
pub struct Party {
    id: u64,
    era: Era,
    principal: u64,
    name: Option<Arc<str>>,
    info: Option<Arc<RawValue>>,
    capabilities: Option<Arc<RawValue>>,
    can_be_asked: bool,
    ended: watch::Sender<bool>,
}

impl Party {
    /// A client of an era. `principal` stands for whoever is behind it: clients of different
    /// principals share nothing. `capabilities` and `info` are as the client gave them.
    pub fn new(
        era: Era,
        principal: u64,
        capabilities: Option<Arc<RawValue>>,
        info: Option<Arc<RawValue>>,
    ) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let declared = capabilities.as_ref().and_then(|raw| Fields::parse(raw.get()));
        let has = |name: &&str| declared.as_ref().is_some_and(|it| it.get(name).is_some());
        Self {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            era,
            principal,
            name: None,
            info,
            can_be_asked: ["elicitation", "sampling", "roots"].iter().any(has),
            capabilities,
            ended: watch::Sender::new(false),
        }
    }

    /// Whose it is, for people to read.
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Its number: no other client of this process has it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// How it speaks.
    pub fn era(&self) -> Era {
        self.era
    }

    /// Who is behind it.
    pub fn principal(&self) -> u64 {
        self.principal
    }

    /// Whose it is, if that is known.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// What it calls itself: `clientInfo`.
    pub fn info(&self) -> Option<&RawValue> {
        self.info.as_deref()
    }

    /// What it can do: `capabilities`.
    pub fn capabilities(&self) -> Option<&RawValue> {
        self.capabilities.as_deref()
    }

    /// Whether a server may have anything to ask it.
    pub fn can_be_asked(&self) -> bool {
        self.can_be_asked
    }

    /// Notes that it has left.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Whether it has left.
    pub fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Waits until it has left.
    pub async fn ended(&self) {
        // The sender is here: there is no error to see.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

/// What a client brings when it repeats a request that had asked for more input.
#[derive(Debug)]
pub struct Retry {
    /// Its answers: `inputResponses`.
    pub responses: Option<Box<RawValue>>,
    /// What the server wanted back: `requestState`.
    pub state: Option<Box<RawValue>>,
}

impl Caller {
    /// A caller that hears what happens during the call.
    pub fn new(listener: impl Listener) -> Self {
        Self { listener: Some(Arc::new(listener)), ..Self::default() }
    }

    /// The same caller, who hears through another what happens during the call.
    pub fn heard_by(mut self, listener: Arc<dyn Listener>) -> Self {
        self.listener = Some(listener);
        self
    }

    /// What the caller says beside the arguments (an object; `_meta` in MCP), to be passed on.
    pub fn with_meta(mut self, meta: Box<RawValue>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// The client that calls.
    pub fn with_party(mut self, party: Arc<Party>) -> Self {
        self.party = Some(party);
        self
    }

    /// Parameters of the request that nobody on the way reads (an object), to be passed on.
    pub fn with_rest(mut self, rest: Box<RawValue>) -> Self {
        self.rest = Some(rest.into());
        self
    }

    /// That the request is a repetition, with the input asked for.
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.retry = Some(Arc::new(retry));
        self
    }

    /// The mildest log messages wanted.
    pub fn with_log_level(mut self, level: &'static str) -> Self {
        self.log_level = Some(level);
        self
    }

    /// What the caller says beside the arguments.
    pub fn meta(&self) -> Option<&RawValue> {
        self.meta.as_deref()
    }

    /// Who wants to hear what happens, if anybody does.
    pub fn listener(&self) -> Option<&Arc<dyn Listener>> {
        self.listener.as_ref()
    }

    /// The client that calls, if it is one.
    pub fn party(&self) -> Option<&Arc<Party>> {
        self.party.as_ref()
    }

    /// Parameters to be passed on as they are.
    pub fn rest(&self) -> Option<&RawValue> {
        self.rest.as_deref()
    }

    /// What a repeated request brings.
    pub fn retry(&self) -> Option<&Retry> {
        self.retry.as_deref()
    }

    /// The mildest log messages wanted, if any are.
    pub fn log_level(&self) -> Option<&'static str> {
        self.log_level
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("listens", &self.listener.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_be_asked_if_it_says_so() {
        let can = |capabilities: Option<&str>| {
            let raw = capabilities.map(|text| RawValue::from_string(text.to_owned()).unwrap());
            Party::new(Era::Sessions, 0, raw.map(Arc::from), None).can_be_asked()
        };
        assert!(can(Some(r#"{"elicitation":{}}"#)) && can(Some(r#"{"x":1,"roots":{}}"#)));
        assert!(!can(Some(r#"{"experimental":{"sampling":{}}}"#)) && !can(Some("7")) && !can(None));
    }

    #[tokio::test]
    async fn the_end_of_a_client_is_seen_before_and_after() {
        let party = Arc::new(Party::new(Era::Stateless, 0, None, None));
        let other = Party::new(Era::Stateless, 0, None, None);
        assert_ne!(party.id(), other.id());
        let waits = tokio::spawn({
            let party = party.clone();
            async move { party.ended().await }
        });
        tokio::task::yield_now().await;
        party.end();
        waits.await.unwrap();
        party.ended().await;
        assert!(party.has_ended());
    }
}
