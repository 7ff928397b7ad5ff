//! Calls that go on after they have been answered: the tasks extension of 2026-07-28.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use data_encoding::HEXLOWER;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use toolcrib_wire::{RpcError, code};

use crate::ask::Ask;
use crate::caller::{Caller, Stop};
use crate::session::lock;

/// How long a task is kept, and how often a client should look.
const KEPT: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(200);

/// All tasks.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<HashMap<String, Arc<Task>>>);

/// One call that goes on.
pub(crate) struct Task {
    id: String,
    created: Timestamp,
    state: watch::Sender<State>,
    work: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct State {
    asked: Map<String, Value>,
    answers: Map<String, Value>,
    end: Option<End>,
    updated: Timestamp,
}

enum End {
    Result(Value),
    Error(RpcError),
    Cancelled,
}

impl Tasks {
    /// Starts work and returns what tells the client of it.
    pub(crate) fn start(
        &self,
        caller: &Caller,
        work: impl FnOnce(Caller) -> BoxFuture<'static, Result<Value, Stop>>,
    ) -> Value {
        let mut id = [0; 16];
        let _ = getrandom::fill(&mut id);
        let now = Timestamp::now();
        let state = watch::Sender::new(State { updated: now, ..State::default() });
        let id = HEXLOWER.encode(&id);
        let task = Arc::new(Task { id, created: now, state, work: Mutex::default() });
        let mut tasks = lock(&self.0);
        tasks.retain(|_, task| now.duration_since(task.created).unsigned_abs() < KEPT);
        tasks.insert(task.id.clone(), task.clone());
        let work = work(caller.through(task.clone()));
        let handle = tokio::spawn({
            let task = task.clone();
            async move {
                task.end(match work.await {
                    Ok(result) | Err(Stop::Asks(result)) => End::Result(result),
                    Err(Stop::Failed(error)) => End::Error(error),
                });
            }
        });
        *lock(&task.work) = Some(handle.abort_handle());
        let mut answer = task.told();
        answer["resultType"] = "task".into();
        answer
    }

    /// `tasks/get`, `tasks/update` and `tasks/cancel`.
    pub(crate) fn answer(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        let id = params["taskId"].as_str();
        let task = id.and_then(|id| lock(&self.0).get(id).cloned());
        let task = task.ok_or_else(|| RpcError::invalid_params("No such task"))?;
        match method {
            "tasks/get" => Ok(task.detailed()),
            "tasks/update" => {
                let answers = params["inputResponses"].as_object();
                task.take(answers.ok_or_else(|| RpcError::invalid_params("No inputResponses"))?);
                Ok(json!({}))
            }
            "tasks/cancel" => {
                task.cancel();
                Ok(json!({}))
            }
            _ => Err(RpcError::unknown_method(method)),
        }
    }
}

impl Task {
    /// Waits until all has been answered.
    pub(crate) async fn ask(&self, asks: &[Ask]) -> Vec<Value> {
        self.change(|state| {
            state.asked.extend(asks.iter().map(|ask| (ask.key.to_owned(), ask.to_value())));
        });
        let mut states = self.state.subscribe();
        let answered = states.wait_for(|state| state.asked.is_empty()).await;
        let answers = answered.map(|state| state.answers.clone()).unwrap_or_default();
        asks.iter().map(|ask| answers.get(ask.key).cloned().unwrap_or_default()).collect()
    }

    fn take(&self, answers: &Map<String, Value>) {
        self.change(|state| {
            for (key, answer) in answers {
                if state.asked.shift_remove(key).is_some() {
                    state.answers.insert(key.clone(), answer.clone());
                }
            }
        });
    }

    fn end(&self, end: End) {
        self.change(|state| {
            state.end.get_or_insert(end);
        });
    }

    fn cancel(&self) {
        self.end(End::Cancelled);
        if let Some(work) = lock(&self.work).take() {
            work.abort();
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.state.send_modify(|state| {
            change(state);
            state.updated = Timestamp::now();
        });
    }

    /// What is true of every task.
    fn told(&self) -> Value {
        let state = self.state.borrow();
        let status = match &state.end {
            Some(End::Result(_)) => "completed",
            Some(End::Error(_)) => "failed",
            Some(End::Cancelled) => "cancelled",
            None if state.asked.is_empty() => "working",
            None => "input_required",
        };
        json!({
            "taskId": self.id,
            "status": status,
            "createdAt": self.created.to_string(),
            "lastUpdatedAt": state.updated.to_string(),
            "ttlMs": KEPT.as_millis() as u64,
            "pollIntervalMs": LOOK.as_millis() as u64,
        })
    }

    /// And what its state adds.
    fn detailed(&self) -> Value {
        let mut told = self.told();
        let state = self.state.borrow();
        match &state.end {
            Some(End::Result(result)) => told["result"] = result.clone(),
            Some(End::Error(error)) => {
                told["error"] = json!({"code": error.code, "message": error.message});
            }
            Some(End::Cancelled) => {}
            None if state.asked.is_empty() => {}
            None => told["inputRequests"] = state.asked.clone().into(),
        }
        told
    }
}

/// The failure of a call that breaks down.
pub(crate) fn broken() -> RpcError {
    RpcError::new(code::INTERNAL_ERROR, "This job always breaks down")
}
