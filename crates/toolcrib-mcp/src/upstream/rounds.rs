//! Rounds of questions: a server without sessions answers a request with what it wants to know,
//! and is asked again with the answers. A client that keeps a session knows no such rounds: it is
//! asked here, and gets the last answer.

use futures::future::join_all;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::{Duration, sleep, timeout};
use toolcrib_runtime::Caller;
use toolcrib_wire::{Era, Fields, RpcError, code};

use crate::asked::{ASK_LIMIT, MOST_OF_CALL, late};
use crate::connection::{Connection, Failure, Request};

/// How often a server may ask in the course of one request.
const MOST_ROUNDS: u32 = 10;

/// Why a request that brings something back can't go to a server, if that is so: no server with
/// sessions gives anything out.
pub(super) fn misplaced(connection: &Connection, caller: &Caller) -> Option<RpcError> {
    let is_misplaced = caller.retry().is_some() && connection.era() == Era::Sessions;
    let text = "`requestState` is not what was given out: call again without it";
    is_misplaced.then(|| RpcError::invalid_params(text))
}

/// Asks the server, and goes through its rounds if the caller can't.
pub(super) async fn drive(
    connection: &Connection,
    method: &str,
    params: Fields<'_>,
    caller: &Caller,
    limit: Option<Duration>,
) -> Result<Box<RawValue>, Failure> {
    drive_request(connection, Request { method, params, repeated: &[] }, caller, limit).await
}

/// The same for a request that headers may repeat parts of.
pub(super) async fn drive_request(
    connection: &Connection,
    mut request: Request<'_>,
    caller: &Caller,
    limit: Option<Duration>,
) -> Result<Box<RawValue>, Failure> {
    let is_driven = caller.party().is_some_and(|party| party.era() == Era::Sessions)
        && connection.era() == Era::Stateless;
    if !is_driven {
        return connection.send(request, caller, limit).await;
    }
    let mut idle = 0;
    for round in 0..=MOST_ROUNDS {
        let answer = connection.send(request.clone(), caller, limit).await;
        let answer =
            answer.map_err(|failure| if round > 0 { unrepeatable(failure) } else { failure })?;
        let Some(asked) = Input::of(&answer) else { return Ok(answer) };
        if round == MOST_ROUNDS {
            break;
        }
        request.params.remove("inputResponses");
        request.params.remove("requestState");
        match asked.requests.as_deref().map(|raw| Fields::parse(raw.get()).unwrap_or_default()) {
            Some(requests) if !requests.is_empty() => {
                let responses = answers(&requests, caller).await?;
                request.params.set("inputResponses", &responses);
            }
            // It asks for nothing but to be asked again.
            _ => {
                sleep(Duration::from_secs(1 << u32::min(idle, 2))).await;
                idle += 1;
            }
        }
        if let Some(state) = asked.state {
            request.params.set("requestState", &state);
        }
    }
    Err(refused(format!("The server asked for input more than {MOST_ROUNDS} times")))
}

/// What a server wants before it answers.
struct Input {
    requests: Option<Box<RawValue>>,
    state: Option<Box<RawValue>>,
}

impl Input {
    /// What an answer asks for, if it does.
    fn of(answer: &RawValue) -> Option<Self> {
        if !answer.get().contains("input_required") {
            return None;
        }
        let fields = Fields::parse(answer.get())?;
        let kind = fields.read::<String>("resultType")?;
        let get = |name| fields.get(name).map(ToOwned::to_owned);
        (kind == "input_required")
            .then(|| Self { requests: get("inputRequests"), state: get("requestState") })
    }
}

/// Puts all questions to the caller at once.
async fn answers(requests: &Fields<'_>, caller: &Caller) -> Result<Box<RawValue>, Failure> {
    let count = requests.iter().count();
    if count > MOST_OF_CALL {
        let text =
            format!("The server asked {count} questions at once; {MOST_OF_CALL} are passed on");
        return Err(refused(text));
    }
    let asking =
        join_all(requests.iter().map(|(key, raw)| async move {
            answer(raw, caller).await.map(|answer| (key, answer))
        }));
    let answered = match timeout(ASK_LIMIT, asking).await {
        Ok(answered) => answered,
        Err(_) => return Err(Failure::Refused(late("what the server asked"))),
    };
    let mut responses = Fields::default();
    for answered in answered {
        let (key, answer) = answered?;
        responses.set(key, &answer);
    }
    Ok(responses.to_raw())
}

async fn answer(question: &RawValue, caller: &Caller) -> Result<Box<RawValue>, Failure> {
    let question = Fields::parse(question.get()).unwrap_or_default();
    let method = question.read::<String>("method").unwrap_or_default();
    let answer = match caller.listener() {
        Some(listener) => listener.ask(&method, question.get("params")).await,
        None => Err(RpcError::unknown_method(&method)),
    };
    match answer {
        Ok(answer) => Ok(answer),
        // That is an answer, too.
        Err(_) if method == "elicitation/create" => {
            Ok(to_raw_value(&json!({"action": "cancel"})).unwrap_or_default())
        }
        Err(error) => Err(refused(format!("The client refused {method}: {error}"))),
    }
}

/// A failure after questions have been answered: nobody is asked the same again.
fn unrepeatable(failure: Failure) -> Failure {
    match failure {
        Failure::Unsent(reason) | Failure::Lost(reason) => Failure::Unrepeatable(reason),
        other => other,
    }
}

fn refused(text: String) -> Failure {
    Failure::Refused(RpcError::new(code::INTERNAL_ERROR, text))
}
