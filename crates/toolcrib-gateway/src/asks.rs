//! Questions of servers to a client with a session, and its answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use toolcrib_runtime::Party;
use toolcrib_wire::{Fields, Id, RpcError, code, notification, request};

use crate::client::Client;
use crate::outbox::Outbox;

/// Questions that one client may have before it.
const MOST_ASKED: usize = 256;

/// What a question is answered with.
pub(crate) type Answer = Result<Box<RawValue>, RpcError>;

/// The questions a client has before it. Their ids are its own, so that nobody else can answer.
#[derive(Default)]
pub(crate) struct Asks(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
    ended: bool,
}

impl Asks {
    /// Answers a question; `false` if nobody waits for that.
    fn answer(&self, id: u64, answer: Answer) -> bool {
        let waiting = self.lock().waiting.remove(&id);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    /// Asks no more, and waits for no answer.
    pub(crate) fn end(&self) {
        let mut open = self.lock();
        open.ended = true;
        open.waiting.clear();
    }

    fn open(&self) -> Result<(u64, oneshot::Receiver<Answer>), RpcError> {
        let mut open = self.lock();
        if open.ended {
            return Err(gone());
        }
        if open.waiting.len() >= MOST_ASKED {
            let text = format!("The client has {MOST_ASKED} questions to answer already");
            return Err(RpcError::new(code::INTERNAL_ERROR, text));
        }
        open.last += 1;
        let (id, (answer, answered)) = (open.last, oneshot::channel());
        open.waiting.insert(id, answer);
        Ok((id, answered))
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question before a client: dropped before it is answered, it is taken back.
struct Asked {
    client: Arc<Client>,
    outbox: Arc<Outbox>,
    id: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.client.asks.lock().waiting.remove(&self.id).is_some() {
            let why = json!({"requestId": self.id, "reason": "The question was taken back"});
            self.client.reach(&self.outbox, &notification("notifications/cancelled", Some(&why)));
        }
    }
}

impl Client {
    /// Asks the client, by the stream of the request that gave rise to the question.
    pub(crate) fn ask(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        method: &str,
        params: Option<&RawValue>,
    ) -> BoxFuture<'static, Answer> {
        let begun = self.begin_ask(outbox, method, params);
        Box::pin(async move {
            let (asked, answered) = begun?;
            let answer = answered.await.unwrap_or_else(|_| Err(gone()));
            drop(asked);
            answer
        })
    }

    fn begin_ask(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(Asked, oneshot::Receiver<Answer>), RpcError> {
        match self.party() {
            Some(party) if lacking(party, method, params).is_none() => {}
            _ => return Err(can_not(method)),
        }
        let (id, answered) = self.asks.open()?;
        let asked = Asked { client: self.clone(), outbox: outbox.clone(), id };
        if self.reach(outbox, &request(&Id::from(id), method, params)) {
            return Ok((asked, answered));
        }
        // There is nothing to take back.
        self.asks.lock().waiting.remove(&id);
        let text = "The client can't be asked: it reads neither a stream of this request's nor \
                    one of notices, or is too far behind with it";
        Err(RpcError::new(code::INTERNAL_ERROR, text))
    }

    /// Takes an answer of the client's; `false` if nobody waits for it.
    pub(crate) fn answered(&self, id: Option<&Id>, outcome: Result<&RawValue, RpcError>) -> bool {
        let outcome = outcome.map(ToOwned::to_owned);
        let taken = id.and_then(Id::as_u64).is_some_and(|id| self.asks.answer(id, outcome));
        if !taken {
            tracing::debug!(?id, "an answer that nobody waits for");
        }
        taken
    }

    /// Sends to the stream of a request, or to the one for notices if the former has gone. What is
    /// kept for who comes back to the former is the last resort.
    fn reach(&self, outbox: &Outbox, message: &str) -> bool {
        let is_abandoned = outbox.is_abandoned();
        (!is_abandoned && outbox.offer(message))
            || self.notices().is_some_and(|notices| notices.offer(message))
            || (is_abandoned && outbox.offer(message))
    }
}

/// What a client would have to declare to be asked this, and has not; `None` if nothing.
pub(crate) fn lacking(party: &Party, method: &str, params: Option<&RawValue>) -> Option<Value> {
    let area = method.split('/').next().unwrap_or_default();
    let declared = party.capabilities().and_then(|raw| Fields::parse(raw.get()));
    let declared = declared.as_ref().and_then(|all| all.get(area));
    let declared = declared.and_then(|raw| Fields::parse(raw.get()));
    let params = params.and_then(|raw| Fields::parse(raw.get())).unwrap_or_default();
    let part = match area {
        "elicitation" => match params.read::<String>("mode").as_deref() {
            Some("url") => Some("url"),
            // Whoever names no way of asking means this one.
            _ => declared.as_ref().filter(|it| !it.is_empty()).map(|_| "form"),
        },
        "sampling" => params.get("tools").map(|_| "tools"),
        _ => None,
    };
    let has = |fields: &Fields<'_>| match part {
        Some("form") => fields.get("form").is_some() || fields.get("url").is_none(),
        Some(part) => fields.get(part).is_some(),
        None => true,
    };
    if declared.as_ref().is_some_and(has) {
        return None;
    }
    Some(match part {
        Some(part) => json!({area: {part: {}}}),
        None => json!({area: {}}),
    })
}

/// Told to a server whose client can't be asked this.
pub(crate) fn can_not(method: &str) -> RpcError {
    let method: String = method.chars().take(100).collect();
    let text = format!("The client can't be asked: it declares nothing that covers {method}");
    RpcError::new(code::METHOD_NOT_FOUND, text)
}

fn gone() -> RpcError {
    RpcError::new(code::INTERNAL_ERROR, "The client has left")
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcrib_wire::Era;

    fn lacks(capabilities: Value, method: &str, params: &str) -> Option<Value> {
        let raw = serde_json::value::to_raw_value(&capabilities).unwrap();
        let party = Party::new(Era::Sessions, 0, Some(raw.into()), None);
        lacking(&party, method, Some(serde_json::from_str(params).unwrap()))
    }

    #[test]
    fn a_client_is_asked_what_it_declares() {
        let (form, url) = (r#"{"message":"?"}"#, r#"{"mode":"url"}"#);
        let elicit = "elicitation/create";
        for (capabilities, method, params, lacking) in [
            (json!({"elicitation": {}}), elicit, form, None),
            (json!({"elicitation": {}}), elicit, url, Some(json!({"elicitation": {"url": {}}}))),
            (json!({"elicitation": {"url": {}}}), elicit, url, None),
            (
                json!({"elicitation": {"url": {}}}),
                elicit,
                form,
                Some(json!({"elicitation": {"form": {}}})),
            ),
            (json!({"elicitation": {"form": {}, "url": {}}}), elicit, form, None),
            (json!({"elicitation": {"x-new": {}}}), elicit, form, None),
            (json!({"sampling": {}}), elicit, form, Some(json!({"elicitation": {}}))),
            (json!({"elicitation": 7}), elicit, form, Some(json!({"elicitation": {}}))),
            (json!({"sampling": {}}), "sampling/createMessage", form, None),
            (
                json!({"sampling": {}}),
                "sampling/createMessage",
                r#"{"tools":[]}"#,
                Some(json!({"sampling": {"tools": {}}})),
            ),
            (json!({"roots": {}}), "roots/list", "{}", None),
            (json!({"tasks": {}}), "tasks/get", "{}", None),
            (json!({}), "newer/thing", "{}", Some(json!({"newer": {}}))),
        ] {
            assert_eq!(lacks(capabilities, method, params), lacking, "{method} {params}");
        }
    }
}
