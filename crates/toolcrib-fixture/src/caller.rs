//! The client behind a request.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolcrib_wire::version::meta;
use toolcrib_wire::{Era, Id, RpcError, code, notification};

use crate::ask::Ask;
use crate::rounds::{Rounds, Seal};
use crate::session::Session;
use crate::tasks::Task;

/// The extension for tasks.
pub(crate) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// What goes out while a request runs.
#[derive(Debug)]
pub(crate) enum Sent {
    /// The answer will be a stream, though nothing is on it yet.
    Open,
    /// A notification, or a question to the client.
    Message(String),
    /// The connection is to break here; what follows is for whoever comes back.
    Cut,
    /// The answer, and the code if it is an error.
    Answer(String, Option<i64>),
}

/// Where it goes.
#[derive(Clone, Debug)]
pub(crate) struct Out(mpsc::UnboundedSender<Sent>);

impl Out {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Sent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// For work that nobody listens to.
    pub(crate) fn nowhere() -> Self {
        Self::new().0
    }

    pub(crate) fn send(&self, sent: Sent) -> bool {
        self.0.send(sent).is_ok()
    }

    /// Sends a message; `false` if nobody listens any more.
    pub(crate) fn message(&self, text: String) -> bool {
        self.send(Sent::Message(text))
    }
}

/// How bad something is, as logging has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level(usize);

impl Level {
    const NAMES: [&'static str; 8] =
        ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
    pub(crate) const INFO: Self = Self(1);

    pub(crate) fn read(name: &Value) -> Option<Self> {
        let name = name.as_str()?;
        Self::NAMES.iter().position(|level| *level == name).map(Self)
    }
}

/// How the client can be asked something.
pub(crate) enum Asking {
    /// By a request, over the session.
    Session(Arc<Session>),
    /// By a result that wants the request repeated with answers.
    Rounds(Rounds),
    /// By a task that waits for `tasks/update`.
    Task(Arc<Task>),
}

/// Why a request ends before its result.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It failed.
    Failed(RpcError),
    /// This result asks for input first.
    Asks(Value),
}

impl From<RpcError> for Stop {
    fn from(error: RpcError) -> Self {
        Self::Failed(error)
    }
}

/// The client behind a request, for as long as it runs.
pub(crate) struct Caller {
    pub(crate) era: Era,
    pub(crate) id: Id,
    pub(crate) capabilities: Value,
    pub(crate) out: Out,
    pub(crate) asking: Asking,
    /// The least that is worth a log message; none are wanted without.
    pub(crate) level: Option<Level>,
    pub(crate) progress: Option<Value>,
}

impl Caller {
    pub(crate) fn in_session(session: Arc<Session>, id: Id, params: &Value, out: Out) -> Self {
        Self {
            era: Era::Sessions,
            id,
            capabilities: session.capabilities.clone(),
            level: Some(session.level()),
            asking: Asking::Session(session),
            out,
            progress: params["_meta"].get(meta::PROGRESS_TOKEN).cloned(),
        }
    }

    pub(crate) fn stateless(rounds: Rounds, id: Id, params: &Value, out: Out) -> Self {
        let about = &params["_meta"];
        Self {
            era: Era::Stateless,
            id,
            capabilities: about[meta::CLIENT_CAPABILITIES].clone(),
            level: Level::read(&about[meta::LOG_LEVEL]),
            asking: Asking::Rounds(rounds),
            out,
            progress: about.get(meta::PROGRESS_TOKEN).cloned(),
        }
    }

    /// The same client, asked through a task.
    pub(crate) fn through(&self, task: Arc<Task>) -> Self {
        Self {
            era: self.era,
            id: self.id.clone(),
            capabilities: self.capabilities.clone(),
            out: Out::nowhere(),
            asking: Asking::Task(task),
            level: None,
            progress: None,
        }
    }

    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        match &self.asking {
            Asking::Session(session) => Some(session),
            _ => None,
        }
    }

    pub(crate) fn can(&self, capability: &str) -> bool {
        self.capabilities[capability].is_object()
    }

    pub(crate) fn knows_tasks(&self) -> bool {
        self.era == Era::Stateless && self.capabilities["extensions"][TASKS].is_object()
    }

    pub(crate) fn report(&self, progress: u32, total: u32) {
        if let Some(token) = &self.progress {
            let params = json!({"progressToken": token, "progress": progress, "total": total});
            self.out.message(notification("notifications/progress", Some(&params)));
        }
    }

    pub(crate) fn log(&self, text: &str) {
        if self.level.is_some_and(|least| least <= Level::INFO) {
            let params = json!({"level": "info", "logger": "fixture", "data": text});
            self.out.message(notification("notifications/message", Some(&params)));
        }
    }

    /// Asks the client. In the stateless era the request ends here until it comes with answers.
    pub(crate) async fn ask(&self, asks: &[Ask]) -> Result<Vec<Value>, Stop> {
        self.put(asks, |rounds| rounds.asking(asks)).await
    }

    /// As `ask`, with a state that the client brings back.
    pub(crate) async fn ask_sealed(&self, seal: &Seal, asks: &[Ask]) -> Result<Vec<Value>, Stop> {
        self.put(asks, |rounds| rounds.asking_sealed(seal, asks)).await
    }

    async fn put(
        &self,
        asks: &[Ask],
        asking: impl FnOnce(&Rounds) -> Value,
    ) -> Result<Vec<Value>, Stop> {
        for ask in asks {
            self.need(ask.capability())?;
        }
        match &self.asking {
            Asking::Rounds(rounds) => {
                rounds.answers(asks).ok_or_else(|| Stop::Asks(asking(rounds)))
            }
            Asking::Task(task) => Ok(task.ask(asks).await),
            Asking::Session(session) => {
                let mut answers = Vec::new();
                for ask in asks {
                    answers.push(session.ask(&self.out, ask.method, &ask.params).await?);
                }
                Ok(answers)
            }
        }
    }

    pub(crate) fn need(&self, capability: &str) -> Result<(), RpcError> {
        if self.can(capability) {
            return Ok(());
        }
        Err(missing(self.era, json!({capability: {}})))
    }

    pub(crate) fn need_tasks(&self) -> Result<(), RpcError> {
        if self.knows_tasks() {
            return Ok(());
        }
        Err(missing(self.era, json!({"extensions": {TASKS: {}}})))
    }
}

fn missing(era: Era, capabilities: Value) -> RpcError {
    let text = format!("The client needs these capabilities for that: {capabilities}");
    match era {
        Era::Sessions => RpcError::new(code::INVALID_REQUEST, text),
        Era::Stateless => RpcError::new(code::MISSING_CAPABILITY, text)
            .with_data(&json!({"requiredCapabilities": capabilities})),
    }
}
