//! What a server asks in the course of a call: taken to whoever called, and the answer back.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, timeout};
use toolcrib_runtime::Listener;
use toolcrib_wire::version::meta::PROGRESS_TOKEN;
use toolcrib_wire::{Fields, Id, RpcError, code};

use crate::board::{Board, Table};

/// How long an answer may take: mostly it is a person who gives it.
pub(crate) const ASK_LIMIT: Duration = Duration::from_secs(600);

/// Questions that may be open at a time.
pub(crate) const MOST_OF_CALL: usize = 16;
const MOST_OF_CONNECTION: usize = 64;

/// How long a question that came before any call waits for one: some servers ask as soon as they
/// have been greeted, and the call for which they were started is just behind.
const PATIENCE: Duration = Duration::from_secs(1);

/// A question of a server's.
pub(crate) struct Asked {
    pub(crate) id: Id,
    pub(crate) method: String,
    pub(crate) params: Option<Box<RawValue>>,
    /// The request on whose stream it came.
    pub(crate) during: Option<u64>,
}

/// The questions that are open on a connection.
#[derive(Default)]
pub(crate) struct Questions(HashMap<Id, Open>);

struct Open {
    /// Tells it from an earlier question with the same id.
    serial: u64,
    whose: Whose,
    token: Option<Token>,
    /// Says that the server no longer wants to know; dropped when the call has ended.
    taken_back: oneshot::Sender<()>,
}

/// What progress of an answer is told under: to the client, and to the server.
struct Token {
    ours: u64,
    theirs: Box<RawValue>,
}

enum Whose {
    Call(u64),
    /// That of one of the client's calls, nobody knows which: it is open as long as there is one.
    Client,
    /// Nobody's yet.
    Next(oneshot::Sender<Arc<dyn Listener>>),
}

impl Questions {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops what was asked in the course of a call, which may have been the last.
    pub(crate) fn end_of(&mut self, call: u64, is_last: bool) {
        self.0.retain(|_, open| match open.whose {
            Whose::Call(number) => number != call,
            Whose::Client => !is_last,
            Whose::Next(_) => true,
        });
    }

    /// Gives the questions that wait for a call to the one that begins.
    pub(crate) fn give(&mut self, listener: &Arc<dyn Listener>) {
        for open in self.0.values_mut().filter(|open| matches!(open.whose, Whose::Next(_))) {
            if let Whose::Next(next) = std::mem::replace(&mut open.whose, Whose::Client) {
                // Whoever waited too long is on the way out.
                let _ = next.send(listener.clone());
            }
        }
    }

    /// Whether any of the client's calls may be the one that waits for an answer.
    pub(crate) fn has_of_client(&self) -> bool {
        self.0.values().any(|open| matches!(open.whose, Whose::Client))
    }

    fn count_of_client(&self) -> usize {
        self.0.values().filter(|open| matches!(open.whose, Whose::Client)).count()
    }
}

impl Table {
    /// Takes a question off. A call in whose course it came counts as heard of.
    fn close(&mut self, id: &Id, serial: Option<u64>) -> Option<Open> {
        let open = self.questions.0.get(id)?;
        if serial.is_some_and(|serial| serial != open.serial) {
            return None;
        }
        let open = self.questions.0.remove(id)?;
        match open.whose {
            Whose::Call(call) => {
                if let Some(waiting) = self.waiting.get_mut(&call) {
                    waiting.asks -= 1;
                    waiting.heard = Instant::now();
                }
            }
            Whose::Client => {
                let now = Instant::now();
                self.waiting.values_mut().for_each(|waiting| waiting.heard = now);
            }
            Whose::Next(_) => {}
        }
        Some(open)
    }
}

/// A question on its way.
struct Question {
    board: Arc<Board>,
    id: Id,
    serial: u64,
    whom: Whom,
    taken_back: oneshot::Receiver<()>,
    params: Option<Box<RawValue>>,
}

enum Whom {
    Listener(Arc<dyn Listener>),
    Next(oneshot::Receiver<Arc<dyn Listener>>),
}

impl Drop for Question {
    fn drop(&mut self) {
        self.board.lock().close(&self.id, Some(self.serial));
    }
}

impl Board {
    /// The server no longer wants an answer.
    pub(crate) fn take_back(&self, id: &Id) {
        let open = self.lock().close(id, None);
        if let Some(open) = open {
            let _ = open.taken_back.send(());
        }
    }

    /// What the server calls the progress of an open question that is told under `token` here.
    pub(crate) fn progress_of(&self, token: u64) -> Option<Box<RawValue>> {
        let table = self.lock();
        let mut tokens = table.questions.0.values().filter_map(|open| open.token.as_ref());
        tokens.find(|it| it.ours == token).map(|it| it.theirs.clone())
    }

    /// Notes a question; `None` if it is noted already.
    fn open(self: &Arc<Self>, asked: &mut Asked) -> Result<Option<Question>, RpcError> {
        if asked.during.is_none() && !self.may_be_asked() {
            return Err(nobody(&asked.method));
        }
        let (params, token) = with_own_token(asked.params.take());
        let mut table = self.lock();
        if table.questions.0.contains_key(&asked.id) {
            return Ok(None);
        }
        if table.questions.0.len() >= MOST_OF_CONNECTION {
            return Err(too_many(MOST_OF_CONNECTION));
        }
        let call = table.whose(asked.during, self.is_own());
        let calls = table.calls();
        let is_certain = asked.during.is_some() || calls == 1;
        if !is_certain && table.questions.count_of_client() >= MOST_OF_CALL * calls.max(1) {
            return Err(too_many(MOST_OF_CALL * calls.max(1)));
        }
        let (whose, whom) = match call.and_then(|call| Some((call, table.waiting.get_mut(&call)?)))
        {
            Some((_, waiting)) if waiting.asks >= MOST_OF_CALL => {
                return Err(too_many(MOST_OF_CALL));
            }
            Some((call, waiting)) => {
                let listener = waiting.listener.clone().ok_or_else(|| nobody(&asked.method))?;
                waiting.asks += usize::from(is_certain);
                let whose = if is_certain { Whose::Call(call) } else { Whose::Client };
                (whose, Whom::Listener(listener))
            }
            None if asked.during.is_none() && self.is_own() && self.is_open() => {
                let (sender, receiver) = oneshot::channel();
                (Whose::Next(sender), Whom::Next(receiver))
            }
            None => return Err(nobody(&asked.method)),
        };
        let (sender, taken_back) = oneshot::channel();
        let serial = unique();
        let open = Open { serial, whose, token, taken_back: sender };
        table.questions.0.insert(asked.id.clone(), open);
        drop(table);
        let (board, id) = (self.clone(), asked.id.clone());
        Ok(Some(Question { board, id, serial, whom, taken_back, params }))
    }
}

/// Takes a question to the call it belongs to, and has the answer sent: until it is, the question
/// counts as open. Returns what is to be sent at once if nobody can be asked.
pub(crate) fn serve<Sending: Future<Output = ()> + Send>(
    board: &Arc<Board>,
    mut asked: Asked,
    send: impl FnOnce(String) -> Sending + Send + 'static,
) -> Option<String> {
    let mut question = match board.open(&mut asked) {
        Ok(Some(question)) => question,
        Ok(None) => {
            tracing::debug!(id = %asked.id, "asked twice");
            return None;
        }
        Err(error) => return Some(toolcrib_wire::failure(Some(&asked.id), &error)),
    };
    let board = board.clone();
    tokio::spawn(async move {
        let Asked { id, method, .. } = asked;
        let Some(answer) = question.answer(&method).await else { return };
        if board.end().is_none() {
            send(match answer {
                Ok(result) => toolcrib_wire::response(&id, &result),
                Err(error) => toolcrib_wire::failure(Some(&id), &error),
            })
            .await;
        }
    });
    None
}

impl Question {
    /// The answer; `None` if the server no longer wants one.
    async fn answer(&mut self, method: &str) -> Option<Result<Box<RawValue>, RpcError>> {
        let params = self.params.take();
        let whom = &mut self.whom;
        let asking = async {
            let listener = match whom {
                Whom::Listener(listener) => listener.clone(),
                Whom::Next(next) => match timeout(PATIENCE, next).await {
                    Ok(Ok(listener)) => listener,
                    _ => return Err(nobody(method)),
                },
            };
            match timeout(ASK_LIMIT, listener.ask(method, params.as_deref())).await {
                Ok(answer) => answer,
                Err(_) => Err(late(method)),
            }
        };
        tokio::select! {
            biased;
            taken_back = &mut self.taken_back => match taken_back {
                Ok(()) => None,
                Err(_) => {
                    let text = format!("The call in whose course {method} was asked has ended");
                    Some(Err(RpcError::new(code::INTERNAL_ERROR, text)))
                }
            },
            answer = asking => Some(answer),
        }
    }
}

/// What is said of a question that nobody answered in time.
pub(crate) fn late(method: &str) -> RpcError {
    let text = format!("{method} was not answered within {} s", ASK_LIMIT.as_secs());
    RpcError::new(code::INTERNAL_ERROR, text)
}

fn too_many(most: usize) -> RpcError {
    let text = format!("Too many questions at once: {most} are open");
    RpcError::new(code::INTERNAL_ERROR, text)
}

fn nobody(method: &str) -> RpcError {
    let text = format!("Method not found: {method} (no call that it could belong to is under way)");
    RpcError::new(code::METHOD_NOT_FOUND, text)
}

/// Gives a question whose progress the server wants to hear of a token that no other question has:
/// servers don't know of each other.
fn with_own_token(params: Option<Box<RawValue>>) -> (Option<Box<RawValue>>, Option<Token>) {
    match params.as_deref().and_then(exchange_token) {
        Some((changed, tokens)) => (Some(changed), Some(tokens)),
        None => (params, None),
    }
}

fn exchange_token(params: &RawValue) -> Option<(Box<RawValue>, Token)> {
    if !params.get().contains(PROGRESS_TOKEN) {
        return None;
    }
    let mut fields = Fields::parse(params.get())?;
    let before = fields.get("_meta")?.to_owned();
    let mut meta = Fields::parse(before.get())?;
    let theirs = meta.get(PROGRESS_TOKEN)?.to_owned();
    let ours = unique();
    meta.set(PROGRESS_TOKEN, &ours);
    fields.set("_meta", &meta);
    Some((fields.to_raw(), Token { ours, theirs }))
}

/// A number that nothing else in this process has.
fn unique() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}
