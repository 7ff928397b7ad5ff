//! Questions that come up while a request of a client without a session runs. They can't be sent
//! to it: they lie here until the request is answered with them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use toolcrib_runtime::{Listener, Party, Room};
use toolcrib_wire::{Fields, RpcError, code};

use crate::asks::{Answer, can_not, lacking};
use crate::held::Held;
use crate::relay::Hearing;

/// Questions of one request that may lie open.
const MOST_OPEN: usize = 64;

/// What such a client can be asked.
const METHODS: [&str; 3] = ["elicitation/create", "sampling/createMessage", "roots/list"];

/// One request's questions, and where what is said meanwhile goes. It outlasts the request: what
/// the client sends with the answers is a new one.
pub(crate) struct Desk {
    state: Mutex<State>,
    /// Something was laid down.
    news: Notify,
    wants_progress: bool,
}

struct State {
    /// Who is asked: the client as it introduced itself last.
    party: Arc<Party>,
    /// Where to; `None` while no request of the client's is open.
    hearing: Option<Hearing>,
    last: u64,
    open: BTreeMap<u64, Question>,
    /// What the client was to be asked and can't be.
    lacking: Option<RpcError>,
    /// The room that an answer takes which came while no request was open.
    held: Held,
}

/// A question, as a result that asks for input has it.
#[derive(Serialize)]
struct Question {
    method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
    #[serde(skip)]
    answer: oneshot::Sender<Box<RawValue>>,
}

impl Question {
    /// Whether this is an answer to the question at all.
    fn is_answered_by(&self, answer: &RawValue) -> bool {
        let Some(answer) = Fields::parse(answer.get()) else { return false };
        let has = |name: &str| answer.get(name).is_some();
        match self.method.as_str() {
            "elicitation/create" => {
                let action = answer.read::<String>("action");
                matches!(action.as_deref(), Some("accept" | "decline" | "cancel"))
            }
            "sampling/createMessage" => has("role") && has("content"),
            _ => has("roots"),
        }
    }
}

impl Desk {
    pub(crate) fn new(party: Arc<Party>, hearing: Hearing) -> Arc<Self> {
        let wants_progress = hearing.token.is_some();
        let (hearing, open) = (Some(hearing), BTreeMap::new());
        let held = Held::default();
        let state = State { party, hearing, last: 0, open, lacking: None, held };
        Arc::new(Self { state: Mutex::new(state), news: Notify::new(), wants_progress })
    }

    /// Whoever speaks at this desk is heard from now on by a new request of the client's.
    pub(crate) fn move_to(&self, party: Arc<Party>, hearing: Hearing) {
        let mut state = self.lock();
        state.party = party;
        hearing.held.take_over(&state.held);
        state.hearing = Some(hearing);
    }

    /// Nobody hears any more, for now.
    pub(crate) fn mute(&self) {
        self.lock().hearing = None;
    }

    /// Waits until there is something to ask, or something that can't be.
    pub(crate) async fn asked(&self) {
        loop {
            {
                let state = self.lock();
                if !state.open.is_empty() || state.lacking.is_some() {
                    return;
                }
            }
            self.news.notified().await;
        }
    }

    /// The error to end with, if the client was to be asked what it can't be.
    pub(crate) fn lacking(&self) -> Option<RpcError> {
        self.lock().lacking.clone()
    }

    /// Whether nothing is to be asked.
    pub(crate) fn is_clear(&self) -> bool {
        self.lock().open.is_empty()
    }

    /// The open questions as `inputRequests`.
    pub(crate) fn requests(&self) -> Box<RawValue> {
        to_raw_value(&Open(&self.lock().open)).unwrap_or_default()
    }

    /// Hands over the answers that fit. Those to no open question are passed over.
    pub(crate) fn answer(&self, answers: &Fields<'_>) {
        let mut state = self.lock();
        let fits = |id: &u64, question: &Question| {
            answers.get(&key(*id)).is_some_and(|answer| question.is_answered_by(answer))
        };
        let answered = state.open.extract_if(.., |id, question| fits(id, question));
        for (id, question) in answered {
            if let Some(answer) = answers.get(&key(id)) {
                let _ = question.answer.send(answer.to_owned());
            }
        }
    }

    /// Lays down a question.
    pub(crate) fn ask(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
    ) -> BoxFuture<'static, Answer> {
        let laid = self.lay_down(method, params);
        Box::pin(async move {
            let (question, answered) = laid?;
            let answer = answered.await;
            drop(question);
            answer.map_err(|_| RpcError::new(code::INTERNAL_ERROR, "The client did not answer"))
        })
    }

    fn lay_down(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<(Laid, oneshot::Receiver<Box<RawValue>>), RpcError> {
        if !METHODS.contains(&method) {
            return Err(can_not(method));
        }
        let mut state = self.lock();
        if let Some(lacking) = lacking(&state.party, method, params) {
            let error = missing(&lacking);
            // The first is what the call fails for; others may follow from it.
            state.lacking.get_or_insert_with(|| error.clone());
            self.news.notify_one();
            return Err(error);
        }
        if state.open.len() >= MOST_OPEN {
            let text = format!("The client has {MOST_OPEN} questions to answer already");
            return Err(RpcError::new(code::INTERNAL_ERROR, text));
        }
        state.last += 1;
        let (id, (answer, answered)) = (state.last, oneshot::channel());
        let params = params.map(ToOwned::to_owned);
        state.open.insert(id, Question { method: method.to_owned(), params, answer });
        self.news.notify_one();
        Ok((Laid { desk: self.clone(), id }, answered))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Open questions, in the order in which they were asked.
struct Open<'a>(&'a BTreeMap<u64, Question>);

impl Serialize for Open<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(id, question)| (key(*id), question)))
    }
}

/// A question on a desk, until it is answered or taken back.
struct Laid {
    desk: Arc<Desk>,
    id: u64,
}

impl Drop for Laid {
    fn drop(&mut self) {
        self.desk.lock().open.remove(&self.id);
    }
}

/// What a question's answer goes by.
fn key(id: u64) -> String {
    format!("q{id}")
}

/// The request can't go on with a client that does not declare this.
pub(crate) fn missing(capabilities: &Value) -> RpcError {
    let text = "The client declares too little for this request: see requiredCapabilities";
    RpcError::new(code::MISSING_CAPABILITY, text)
        .with_data(&json!({"requiredCapabilities": capabilities}))
}

/// Whoever speaks or asks at a desk.
pub(crate) struct AtDesk(pub(crate) Arc<Desk>);

impl Listener for AtDesk {
    fn hear(&self, method: &str, params: &RawValue) {
        if let Some(hearing) = &self.0.lock().hearing {
            hearing.hear(method, params);
        }
    }

    fn wants_progress(&self) -> bool {
        self.0.wants_progress
    }

    fn ask(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        self.0.ask(method, params)
    }

    fn keep(&self, room: Room) {
        let state = self.0.lock();
        match &state.hearing {
            Some(hearing) => hearing.held.keep(room),
            None => state.held.keep(room),
        }
    }
}
