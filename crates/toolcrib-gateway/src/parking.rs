//! Calls that wait for answers while no request of their client's is open.
//!
//! A client without a session can't be asked in the middle of a request. When a server asks, the
//! call goes on by itself, its request is answered with the questions, and the same request comes
//! again with the answers and the sealed name of the call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use toolcrib_core::Fingerprint;
use toolcrib_runtime::Party;
use toolcrib_wire::{Fields, RpcError, code};

use crate::Gateway;
use crate::asks::Answer;
use crate::client::Client;
use crate::desk::{Desk, missing};
use crate::ends::Ends;
use crate::limits::Place;
use crate::relay::Hearing;
use crate::seal::Seal;

/// Calls that may wait.
const MOST_PARKED: usize = 1_000;

/// Calls of one caller that may.
const MOST_OF_ONE: usize = 64;

/// How long a call waits for its answers.
const PATIENCE: Duration = Duration::from_secs(600);

/// Questions that come closer together than this are asked as one.
const CLOSE_TOGETHER: Duration = Duration::from_millis(20);

/// What seals of calls are for.
const PURPOSE: &str = "parked";

/// What a server of the session era refuses a call with until addresses have been opened.
const URL_NEEDED: i64 = -32042;

pub(crate) type Outcome = Result<String, RpcError>;

/// A request during which its client may be asked.
pub(crate) struct Round {
    pub(crate) client: Arc<Client>,
    pub(crate) party: Arc<Party>,
    /// What the request is, but for what changes when it comes again.
    pub(crate) subject: Fingerprint,
    /// What it brings, if it comes again.
    pub(crate) back: Option<Back>,
}

/// What a request that comes again brings.
pub(crate) struct Back {
    pub(crate) state: String,
    pub(crate) answers: Option<Box<RawValue>>,
}

/// The calls that wait.
#[derive(Default)]
pub(crate) struct Parking {
    seal: Seal,
    calls: Mutex<HashMap<u128, Parked>>,
}

struct Parked {
    client: Arc<Client>,
    desk: Arc<Desk>,
    awaited: Awaited,
    _expiry: Ends,
}

/// What is waited for with the answers.
enum Awaited {
    /// A call that goes on.
    Result(Work),
    /// Nothing: it begins again.
    Consent(Consent),
}

/// A call under way. Dropping it cancels it.
enum Work {
    /// As part of its first request.
    Begun(BoxFuture<'static, Outcome>),
    /// By itself.
    Apart { task: JoinHandle<Outcome>, _ends: Ends },
}

impl Work {
    async fn done(&mut self) -> Outcome {
        match self {
            Self::Begun(work) => work.await,
            Self::Apart { task, .. } => task.await.unwrap_or_else(|_| {
                Err(RpcError::new(code::INTERNAL_ERROR, "The gateway broke over this request"))
            }),
        }
    }

    fn apart(self) -> Self {
        match self {
            Self::Begun(work) => {
                let task = tokio::spawn(work);
                let _ends = Ends(task.abort_handle());
                Self::Apart { task, _ends }
            }
            apart => apart,
        }
    }
}

/// A call that was refused until a person has opened addresses.
struct Consent {
    refusal: RpcError,
    questions: Vec<BoxFuture<'static, Answer>>,
}

impl Consent {
    /// Whether the person has agreed to all; `None` if something is still open.
    fn given(&mut self) -> Option<bool> {
        let mut agreed = true;
        self.questions.retain_mut(|question| match question.now_or_never() {
            Some(answer) => {
                let answer = answer.ok();
                let fields = answer.as_ref().and_then(|raw| Fields::parse(raw.get()));
                let action = fields.and_then(|fields| fields.read::<String>("action"));
                agreed &= action.as_deref() == Some("accept");
                false
            }
            None => true,
        });
        match agreed {
            true if !self.questions.is_empty() => None,
            agreed => Some(agreed),
        }
    }
}

impl Gateway {
    /// Answers a request of a client without a session: with the result of `begin`'s work, or
    /// with what that asks meanwhile. A request that comes again goes on where it was.
    pub(crate) async fn attend_round(
        &self,
        round: Round,
        place: Option<Place>,
        hearing: Hearing,
        begin: impl FnOnce(Arc<Desk>, Option<Place>) -> BoxFuture<'static, Outcome>,
    ) -> Outcome {
        let (desk, mut work) = match &round.back {
            None => {
                let desk = Desk::new(round.party.clone(), hearing);
                let work = begin(desk.clone(), place);
                (desk, Work::Begun(work))
            }
            Some(back) => {
                let answers = back.answers.as_ref().map(|raw| Fields::parse(raw.get()));
                let answers = match answers {
                    Some(None) => {
                        return Err(RpcError::invalid_params("`inputResponses` must be an object"));
                    }
                    answers => answers.flatten().unwrap_or_default(),
                };
                let parked = self.parking().take(&round.client, round.subject, &back.state)?;
                let Parked { desk, awaited, .. } = parked;
                desk.move_to(round.party.clone(), hearing);
                desk.answer(&answers);
                match awaited {
                    Awaited::Result(work) => (desk, work),
                    Awaited::Consent(mut consent) => match consent.given() {
                        Some(true) => {
                            let place = round.client.seat.enter().map_err(|too_many| {
                                self.metrics().turned_away();
                                too_many.error()
                            })?;
                            let work = begin(desk.clone(), place);
                            (desk, Work::Begun(work))
                        }
                        Some(false) => return Err(consent.refusal),
                        None => return self.park(&round, desk, Awaited::Consent(consent)),
                    },
                }
            }
        };
        loop {
            let mut done = tokio::select! {
                biased;
                done = work.done() => Some(done),
                () = desk.asked() => None,
            };
            if done.is_none() && desk.lacking().is_none() {
                done = tokio::select! {
                    biased;
                    done = work.done() => Some(done),
                    () = sleep(CLOSE_TOGETHER) => None,
                };
            }
            if let Some(error) = desk.lacking() {
                return Err(error);
            }
            match done {
                Some(Err(refusal)) if !addresses(&refusal).is_empty() => {
                    let ask = |params: Box<RawValue>| desk.ask("elicitation/create", Some(&params));
                    let questions = addresses(&refusal).into_iter().map(ask).collect();
                    if let Some(error) = desk.lacking() {
                        return Err(error);
                    }
                    let consent = Awaited::Consent(Consent { refusal, questions });
                    return self.park(&round, desk, consent);
                }
                Some(done) => return done,
                None if desk.is_clear() => {}
                None => return self.park(&round, desk, Awaited::Result(work.apart())),
            }
        }
    }

    /// Lets a call wait, and asks.
    fn park(&self, round: &Round, desk: Arc<Desk>, awaited: Awaited) -> Outcome {
        let requests = desk.requests();
        desk.mute();
        let state = self.parking().keep(round, desk, awaited)?;
        let state = json!(state);
        Ok(format!(
            r#"{{"resultType":"input_required","inputRequests":{requests},"requestState":{state}}}"#
        ))
    }
}

impl Parking {
    /// Keeps a call; its sealed name.
    fn keep(
        self: &Arc<Self>,
        round: &Round,
        desk: Arc<Desk>,
        awaited: Awaited,
    ) -> Result<String, RpcError> {
        let refused = |text: String| Err(RpcError::new(code::INTERNAL_ERROR, text));
        let mut id = [0; 16];
        let sealed = getrandom::fill(&mut id).ok().and_then(|()| {
            let (id, principal) = (u128::from_le_bytes(id), round.client.principal());
            let expires = now() + PATIENCE.as_secs();
            let content = format!("{id:x} {principal:x} {expires} {}", round.subject);
            self.seal.close(PURPOSE, &content)
        });
        let Some(sealed) = sealed else {
            return refused(
                "The server has a question, but this machine gives no random bytes, which a call \
                 needs to wait for the answer: try again"
                    .to_owned(),
            );
        };
        let id = u128::from_le_bytes(id);
        let mut calls = self.lock();
        let principal = round.client.principal();
        let own = calls.values().filter(|call| call.client.principal() == principal).count();
        if own >= MOST_OF_ONE || calls.len() >= MOST_PARKED {
            let most = if own >= MOST_OF_ONE { own } else { calls.len() };
            return refused(format!(
                "The server has a question, but {most} calls wait for answers already: answer \
                 those first"
            ));
        }
        let parking = Arc::downgrade(self);
        let expiry = tokio::spawn(async move {
            sleep(PATIENCE).await;
            let late = parking.upgrade().and_then(|parking| parking.lock().remove(&id));
            if late.is_some() {
                tracing::debug!("a call waited for its answers in vain");
            }
        });
        let _expiry = Ends(expiry.abort_handle());
        calls.insert(id, Parked { client: round.client.clone(), desk, awaited, _expiry });
        Ok(sealed)
    }

    /// Takes a call up again: once, for the same caller and the same request.
    fn take(&self, client: &Client, subject: Fingerprint, state: &str) -> Result<Parked, RpcError> {
        let refused = |text: &str| Err(RpcError::invalid_params(text));
        let content = self.seal.open(PURPOSE, state);
        let parts = content.as_ref().and_then(|content| {
            let mut parts = content.split(' ');
            let id = u128::from_str_radix(parts.next()?, 16).ok()?;
            let principal = u64::from_str_radix(parts.next()?, 16).ok()?;
            let expires = parts.next()?.parse::<u64>().ok()?;
            Some((id, principal, expires, parts.next()?))
        });
        let Some((id, principal, expires, of)) = parts else {
            return refused("`requestState` is not what was given out: call again without it");
        };
        if principal != client.principal() || of != subject.to_string() {
            return refused("`requestState` was given out for another request");
        }
        let found = if now() < expires { self.lock().remove(&id) } else { None };
        let gone = "This call no longer waits for answers: call again without `requestState`";
        found.ok_or_else(|| RpcError::invalid_params(gone))
    }

    /// Cancels what waits for a client that has left.
    pub(crate) fn leave(&self, client: &Arc<Client>) {
        let left = self.lock().extract_if(|_, call| Arc::ptr_eq(&call.client, client)).count();
        if left > 0 {
            tracing::debug!(left, "calls that waited for answers ended with their client");
        }
    }

    /// Cancels everything.
    pub(crate) fn clear(&self) {
        drop(std::mem::take(&mut *self.lock()));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u128, Parked>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a person has to open before a call can be made, each as the question for it.
fn addresses(refusal: &RpcError) -> Vec<Box<RawValue>> {
    if refusal.code != URL_NEEDED {
        return Vec::new();
    }
    let data = refusal.data.as_ref().and_then(|data| Fields::parse(data.get()));
    let wanted: Option<Vec<Fields<'_>>> =
        data.as_ref().and_then(|data| serde_json::from_str(data.get("elicitations")?.get()).ok());
    let question = |mut wanted: Fields<'_>| {
        wanted.set("mode", &"url");
        wanted.to_raw()
    };
    wanted.unwrap_or_default().into_iter().map(question).collect()
}

/// The refusal as a client is told that can't be asked: if it is one for the lack of an opened
/// address, what it would have to declare.
pub(crate) fn without_questions(refusal: RpcError) -> RpcError {
    match addresses(&refusal).is_empty() {
        true => refusal,
        false => missing(&json!({"elicitation": {"url": {}}})),
    }
}

/// Seconds of the clock on the wall.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
