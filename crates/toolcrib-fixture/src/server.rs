//! What the whole process shares, and which method is answered where.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use serde_json::{Value, json};
use tokio::sync::broadcast;
use toolcrib_wire::version::{SESSION_VERSIONS, STATELESS_VERSION, meta};
use toolcrib_wire::{Era, Id, RpcError, code, failure, response};

use crate::caller::{Caller, Level, Out, Sent, Stop, TASKS};
use crate::changes::{self, Change};
use crate::journal::Journal;
use crate::rounds::{Rounds, Seal};
use crate::session::Session;
use crate::tasks::Tasks;
use crate::{prompts, resources, tools};

/// How long clients may keep lists and resources.
const FRESH_MS: u64 = 60_000;

/// The eras a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Eras {
    /// Both, whichever the client opens with.
    #[default]
    Both,
    /// Only that with sessions, as a server from before 2026-07-28.
    Sessions,
    /// Only that without.
    Stateless,
}

impl Eras {
    pub(crate) fn has(self, era: Era) -> bool {
        match self {
            Self::Both => true,
            Self::Sessions => era == Era::Sessions,
            Self::Stateless => era == Era::Stateless,
        }
    }
}

/// The server, whoever is connected to it.
pub struct Server {
    page_size: Option<usize>,
    pub(crate) eras: Eras,
    pub(crate) seal: Seal,
    pub(crate) tasks: Tasks,
    pub(crate) changes: broadcast::Sender<Change>,
    pub(crate) has_more_tools: AtomicBool,
    pub(crate) has_more_prompts: AtomicBool,
    pub(crate) has_more_resources: AtomicBool,
    /// Calls that were stopped before they ended.
    pub(crate) stopped: AtomicU64,
    pub(crate) journal: Option<Journal>,
}

impl Server {
    /// A server whose lists come in pages of `page_size`, or whole.
    pub fn new(page_size: Option<usize>) -> Self {
        Self {
            page_size,
            eras: Eras::Both,
            seal: Seal::new(),
            tasks: Tasks::default(),
            changes: broadcast::Sender::new(1000),
            has_more_tools: AtomicBool::default(),
            has_more_prompts: AtomicBool::default(),
            has_more_resources: AtomicBool::default(),
            stopped: AtomicU64::default(),
            journal: None,
        }
    }

    /// The same server, which speaks only these eras.
    pub fn speaking(self, eras: Eras) -> Self {
        Self { eras, ..self }
    }

    /// The same server, which notes in a file what becomes of each call: a JSON object a line,
    /// with `what` (`began`, `ended`, `stopped`), `tool`, `arguments` and `pid`.
    pub fn noting(self, path: &Path) -> io::Result<Self> {
        Ok(Self { journal: Some(Journal::open(path)?), ..self })
    }

    /// Opens a session, and answers `initialize`.
    pub(crate) fn initialize(&self, params: &Value) -> (Session, Value) {
        let asked = params["protocolVersion"].as_str().unwrap_or_default();
        let known = SESSION_VERSIONS.into_iter().find(|version| *version == asked);
        let version = known.unwrap_or(Era::Sessions.newest());
        let session = Session::new(version, params["capabilities"].clone());
        let result = json!({
            "protocolVersion": version,
            "capabilities": capabilities(Era::Sessions),
            "serverInfo": about(),
            "instructions": "A server to test with.",
        });
        (session, result)
    }

    /// Answers a request of a session's, to the end.
    pub(crate) async fn answer_session(
        self: Arc<Self>,
        session: Arc<Session>,
        id: Id,
        method: String,
        params: Value,
        out: Out,
    ) {
        let caller = Caller::in_session(session, id.clone(), &params, out.clone());
        let outcome = self.outcome(Arc::new(caller), &method, params).await;
        finish(&out, &id, outcome);
    }

    /// Answers a request that stands on its own, to the end.
    pub(crate) async fn answer_stateless(
        self: Arc<Self>,
        id: Id,
        method: String,
        params: Value,
        out: Out,
    ) {
        let subject = format!("{method} {}", params["name"].as_str().unwrap_or_default());
        let outcome = match Rounds::read(&self.seal, subject, &params) {
            Err(error) => Err(error),
            Ok(rounds) => {
                let caller = Caller::stateless(rounds, id.clone(), &params, out.clone());
                let outcome = self.outcome(Arc::new(caller), &method, params).await;
                outcome.map(|result| stamped(&method, result))
            }
        };
        finish(&out, &id, outcome);
    }

    async fn outcome(
        self: &Arc<Self>,
        caller: Arc<Caller>,
        method: &str,
        params: Value,
    ) -> Result<Value, RpcError> {
        match self.result(caller, method, params).await {
            Ok(result) | Err(Stop::Asks(result)) => Ok(result),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn result(
        self: &Arc<Self>,
        caller: Arc<Caller>,
        method: &str,
        params: Value,
    ) -> Result<Value, Stop> {
        match method {
            "tools/list" => Ok(self.page("tools", tools::listed(self), &params)?),
            "tools/call" => tools::call(self, caller, params).await,
            "resources/list" => Ok(self.page("resources", resources::listed(self), &params)?),
            "resources/templates/list" => {
                Ok(self.page("resourceTemplates", resources::templates(), &params)?)
            }
            "resources/read" => Ok(resources::read(caller.era, &params)?),
            "prompts/list" => Ok(self.page("prompts", prompts::listed(self), &params)?),
            "prompts/get" => prompts::get(&caller, &params).await,
            "completion/complete" => Ok(prompts::complete(&params)?),
            _ => match caller.session() {
                Some(session) => Ok(in_session(session, method, &params)?),
                None => Ok(self.alone(&caller, method, &params).await?),
            },
        }
    }

    /// Methods that only the stateless era has.
    async fn alone(
        self: &Arc<Self>,
        caller: &Caller,
        method: &str,
        params: &Value,
    ) -> Result<Value, RpcError> {
        match method {
            "server/discover" => Ok(json!({
                "supportedVersions": [STATELESS_VERSION],
                "capabilities": capabilities(Era::Stateless),
                "instructions": "A server to test with.",
            })),
            "subscriptions/listen" => changes::listen(self, caller, params).await,
            "tasks/get" | "tasks/update" | "tasks/cancel" => {
                caller.need_tasks()?;
                self.tasks.answer(method, params)
            }
            _ => Err(RpcError::unknown_method(method)),
        }
    }

    fn page(&self, kind: &str, all: Vec<Value>, params: &Value) -> Result<Value, RpcError> {
        let size = self.page_size.unwrap_or(all.len()).max(1);
        let begin = match &params["cursor"] {
            Value::Null => 0,
            cursor => {
                let begin = cursor.as_str().and_then(|cursor| cursor.parse().ok());
                let begin: Option<usize> = begin.filter(|begin| *begin < all.len());
                begin.ok_or_else(|| RpcError::invalid_params("No such cursor"))?
            }
        };
        let items: Vec<_> = all.iter().skip(begin).take(size).collect();
        let mut page = json!({kind: items});
        if begin + size < all.len() {
            page["nextCursor"] = (begin + size).to_string().into();
        }
        Ok(page)
    }
}

/// Methods that only sessions have.
fn in_session(session: &Session, method: &str, params: &Value) -> Result<Value, RpcError> {
    let uri = || params["uri"].as_str().ok_or_else(|| RpcError::invalid_params("No uri"));
    match method {
        "ping" => {}
        "logging/setLevel" => {
            let level = Level::read(&params["level"]);
            session.set_level(level.ok_or_else(|| RpcError::invalid_params("No such level"))?);
        }
        "resources/subscribe" => session.watch(uri()?),
        "resources/unsubscribe" => session.unwatch(uri()?),
        _ => return Err(RpcError::unknown_method(method)),
    }
    Ok(json!({}))
}

fn finish(out: &Out, id: &Id, outcome: Result<Value, RpcError>) {
    out.send(match outcome {
        Ok(result) => Sent::Answer(response(id, &result), None),
        Err(error) => Sent::Answer(failure(Some(id), &error), Some(error.code)),
    });
}

/// Adds what every result has in the stateless era.
fn stamped(method: &str, mut result: Value) -> Value {
    if let Some(result) = result.as_object_mut() {
        result.entry("resultType").or_insert_with(|| "complete".into());
        let about_result = result.entry("_meta").or_insert_with(|| json!({}));
        about_result[meta::SERVER_INFO] = about();
        if method.ends_with("/list") || method == "server/discover" || method == "resources/read" {
            result.entry("ttlMs").or_insert(FRESH_MS.into());
            result.entry("cacheScope").or_insert_with(|| "public".into());
        }
    }
    result
}

fn about() -> Value {
    json!({"name": "toolcrib-fixture", "title": "Fixture", "version": env!("CARGO_PKG_VERSION")})
}

fn capabilities(era: Era) -> Value {
    let mut all = json!({
        "tools": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "prompts": {"listChanged": true},
        "completions": {},
        "logging": {},
    });
    if era == Era::Stateless {
        all["extensions"] = json!({TASKS: {}});
    }
    all
}

/// What is wrong with a request that stands on its own, before it is looked at.
pub(crate) fn check_meta(params: &Value) -> Result<(), RpcError> {
    let about = &params["_meta"];
    let version = about[meta::PROTOCOL_VERSION].as_str();
    let Some(version) = version.filter(|_| about[meta::CLIENT_CAPABILITIES].is_object()) else {
        let (one, other) = (meta::PROTOCOL_VERSION, meta::CLIENT_CAPABILITIES);
        return Err(RpcError::invalid_params(format!("_meta needs {one} and {other}")));
    };
    if version != STATELESS_VERSION {
        return Err(unsupported(version));
    }
    Ok(())
}

/// What a server without sessions says to `initialize`, and to any version but its own.
pub(crate) fn unsupported(version: &str) -> RpcError {
    let data = json!({"supported": [STATELESS_VERSION], "requested": version});
    let text = format!("Unsupported protocol version: {version}");
    RpcError::new(code::UNSUPPORTED_VERSION, text).with_data(&data)
}
