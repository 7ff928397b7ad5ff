//! What is answered when all is well, before any fault has its way with it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use toolcrib_wire::version::{SESSION_VERSIONS, STATELESS_VERSION, meta};
use toolcrib_wire::{Era, Id, RpcError, code, failure, notification, response};

use crate::Error;
use crate::catalog::Kind;
use crate::faults;
use crate::limits::Ledger;
use crate::options::{Chosen, Options};
use crate::script::{Act, Script};
use crate::tools::{self, Called};

/// Where in the protocol a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Initialize,
    Discover,
    List,
    Call,
    Listen,
    Other,
}

impl Step {
    /// What `--at` takes.
    pub(crate) const NAMES: [&str; 6] =
        ["initialize", "discover", "handshake", "list", "call", "any"];

    /// The steps that one of these names stands for.
    pub(crate) fn named(name: &str) -> &'static [Self] {
        match name {
            "initialize" => &[Self::Initialize],
            "discover" => &[Self::Discover],
            "handshake" => &[Self::Initialize, Self::Discover],
            "list" => &[Self::List],
            "any" => &[Self::Initialize, Self::Discover, Self::List, Self::Call, Self::Other],
            _ => &[Self::Call],
        }
    }

    fn of(method: &str) -> Self {
        match method {
            "initialize" => Self::Initialize,
            "server/discover" => Self::Discover,
            "tools/list" => Self::List,
            "tools/call" => Self::Call,
            "subscriptions/listen" => Self::Listen,
            _ => Self::Other,
        }
    }
}

/// A request, read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Id,
    pub(crate) method: String,
    pub(crate) params: Value,
    pub(crate) step: Step,
    pub(crate) era: Era,
}

impl Request {
    pub(crate) fn new(id: Id, method: &str, params: Option<&str>) -> Self {
        let params = params.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
        let step = Step::of(method);
        let version = params_version(&params);
        let is_stateless = version.is_some() || step == Step::Discover;
        let era = if is_stateless { Era::Stateless } else { Era::Sessions };
        Self { id, method: method.to_owned(), params, step, era }
    }
}

fn params_version(params: &Value) -> Option<&str> {
    params.get("_meta")?.get(meta::PROTOCOL_VERSION)?.as_str()
}

/// A page of the list of tools. Tools are text: some faults can't be held as a value.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) tools: Vec<String>,
    pub(crate) next: Option<String>,
}

/// The server, over whichever transport.
pub(crate) struct Server {
    pub(crate) ledger: Ledger,
    pub(crate) faults: Vec<Chosen>,
    /// The only era that is spoken.
    pub(crate) only: Option<Era>,
    /// Whether every answer over HTTP is a stream of events.
    pub(crate) events: bool,
    /// How often `counter` was called.
    counter: AtomicU64,
    /// How often tools were listed.
    pub(crate) lists: AtomicU64,
    /// Whether `echo` was last listed with its other schema.
    pub(crate) is_changed: AtomicBool,
    /// Names that faults brought into the list; they can be called.
    invented: Mutex<BTreeSet<String>>,
    /// Whether `notifications/initialized` was heard.
    pub(crate) is_initialized: AtomicBool,
    has_stopped_reading: AtomicBool,
    /// Child processes started so far.
    pub(crate) children: AtomicU64,
}

impl Server {
    pub(crate) fn new(options: Options) -> Result<Self, Error> {
        Ok(Self {
            ledger: Ledger::open(options.limits, options.seed)?,
            faults: options.faults,
            only: options.only,
            events: options.events,
            counter: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            is_changed: AtomicBool::new(false),
            invented: Mutex::default(),
            is_initialized: AtomicBool::new(false),
            has_stopped_reading: AtomicBool::new(false),
            children: AtomicU64::new(0),
        })
    }

    /// The fault, if it was asked for.
    pub(crate) fn chosen(&self, kind: Kind) -> Option<&Chosen> {
        self.faults.iter().find(|chosen| chosen.fault.kind == kind)
    }

    /// Whether a fault that was asked for strikes now.
    pub(crate) fn strikes(&self, kind: Kind) -> bool {
        self.chosen(kind).is_some_and(|chosen| self.ledger.strike(chosen.fault).is_some())
    }

    /// What to do about a request.
    pub(crate) fn answer(&self, request: &Request) -> Script {
        let mut script = match self.result(request) {
            Ok(Answer::Result(text)) => Script::say(respond(&request.id, &text)),
            Ok(Answer::After(time, text)) => {
                let mut script = Script::say(respond(&request.id, &text));
                script.before(Act::Wait(time));
                script
            }
            Ok(Answer::Listen) => self.listen(request),
            Err(error) => Script::say(failure(Some(&request.id), &error)),
        };
        faults::bend(self, request, &mut script);
        if request.step == Step::Call {
            self.ledger.count_call();
        }
        script
    }

    /// What to do about a notification.
    pub(crate) fn hear(&self, method: &str) -> Script {
        if method != "notifications/initialized" {
            return Script::default();
        }
        self.is_initialized.store(true, Ordering::Relaxed);
        if self.strikes(Kind::HangAtInitialized) {
            return Script { acts: vec![Act::Never], ..Script::default() };
        }
        Script::default()
    }

    /// What is told to a client with a session, outside any request.
    pub(crate) fn news(&self) -> Script {
        let acts = match self.chosen(Kind::ListChangedStorm) {
            Some(storm) => vec![Act::Storm(storm.clone(), list_changed(None))],
            None => vec![Act::Never],
        };
        Script { acts, ..Script::default() }
    }

    fn listen(&self, request: &Request) -> Script {
        let meta = json!({meta::SUBSCRIPTION_ID: request.id});
        let asked = request.params.get("notifications").cloned().unwrap_or_default();
        let ack = json!({"notifications": asked, "_meta": meta});
        let ack = notification("notifications/subscriptions/acknowledged", Some(&ack));
        let mut script = Script::say(ack);
        script.after(match self.chosen(Kind::ListChangedStorm) {
            Some(storm) => Act::Storm(storm.clone(), list_changed(Some(&meta))),
            None => Act::Never,
        });
        script
    }

    fn result(&self, request: &Request) -> Result<Answer, RpcError> {
        let unknown = || RpcError::unknown_method(&request.method);
        match (request.step, self.only) {
            (Step::Initialize, Some(Era::Stateless)) => {
                let data = json!({"supported": [STATELESS_VERSION]});
                let text = "There are no sessions here";
                Err(RpcError::new(code::UNSUPPORTED_VERSION, text).with_data(&data))
            }
            (Step::Initialize, _) => Ok(Answer::Result(self.greeting(&request.params))),
            (Step::Discover | Step::Listen, Some(Era::Sessions)) => Err(unknown()),
            (Step::Discover, _) => Ok(Answer::Result(self.discovery())),
            (Step::Listen, _) => Ok(Answer::Listen),
            (Step::List, _) => Ok(Answer::Result(self.list(request))),
            (Step::Call, _) => self.call(request),
            (Step::Other, _) if request.method == "ping" => Ok(Answer::Result("{}".to_owned())),
            (Step::Other, _) => Err(unknown()),
        }
    }

    fn greeting(&self, params: &Value) -> String {
        let asked = params.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        let known = SESSION_VERSIONS.into_iter().find(|version| *version == asked);
        json!({
            "protocolVersion": known.unwrap_or(Era::Sessions.newest()),
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": info(),
            "instructions": INSTRUCTIONS,
        })
        .to_string()
    }

    fn discovery(&self) -> String {
        json!({
            "resultType": "complete",
            "supportedVersions": [STATELESS_VERSION],
            "capabilities": {"tools": {"listChanged": true}},
            "instructions": INSTRUCTIONS,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {meta::SERVER_INFO: info()},
        })
        .to_string()
    }

    fn list(&self, request: &Request) -> String {
        let cursor = request.params.get("cursor").and_then(Value::as_str).unwrap_or_default();
        let mut page = Page { tools: tools::all(), next: None };
        faults::spoil(self, cursor, &mut page);
        self.lists.fetch_add(1, Ordering::Relaxed);
        let mut text = format!(r#"{{"tools":[{}]"#, page.tools.join(","));
        if let Some(next) = page.next {
            text += &format!(r#","nextCursor":{}"#, json!(next));
        }
        if request.era == Era::Stateless {
            text += r#","resultType":"complete","ttlMs":0,"cacheScope":"private""#;
        }
        text.push('}');
        text
    }

    fn call(&self, request: &Request) -> Result<Answer, RpcError> {
        let name = request.params.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = request.params.get("arguments").cloned().unwrap_or_default();
        let is_changed = self.is_changed.load(Ordering::Relaxed);
        let mut called = match name {
            "echo" => tools::echo(&arguments, if is_changed { "message" } else { "text" }),
            "add" => tools::add(&arguments),
            "sleep" => tools::sleep(&arguments),
            "counter" => tools::count(self.counter.fetch_add(1, Ordering::Relaxed) + 1),
            _ if self.is_invented(name) => tools::invented(name),
            _ => {
                return Err(RpcError::invalid_params(format!("Unknown tool: {name}")));
            }
        };
        if request.era == Era::Stateless {
            called.result["resultType"] = json!("complete");
        }
        let Called { result, takes } = called;
        Ok(match takes {
            Duration::ZERO => Answer::Result(result.to_string()),
            takes => Answer::After(takes, result.to_string()),
        })
    }

    /// Lets a tool that a fault lists be called.
    pub(crate) fn invent(&self, name: &str) {
        let mut names = self.invented.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.to_owned());
    }

    fn is_invented(&self, name: &str) -> bool {
        self.invented.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// Has the reader stop before its next read.
    pub(crate) fn stop_reading(&self) {
        self.has_stopped_reading.store(true, Ordering::Relaxed);
    }

    /// Returns at once unless reading has stopped; then when faults end.
    pub(crate) async fn may_read(&self) {
        if self.has_stopped_reading.load(Ordering::Relaxed) {
            self.outlast().await;
            self.has_stopped_reading.store(false, Ordering::Relaxed);
        }
    }

    /// Waits until faults end, as far as `--until` says; without it, for ever.
    pub(crate) async fn outlast(&self) {
        while self.ledger.lasts() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What a request comes to.
enum Answer {
    Result(String),
    After(Duration, String),
    Listen,
}

const INSTRUCTIONS: &str = "A small server to test clients with.";

fn info() -> Value {
    let title = "A server that misbehaves when told to";
    json!({"name": "toolcrib-hostile", "title": title, "version": env!("CARGO_PKG_VERSION")})
}

fn list_changed(meta: Option<&Value>) -> String {
    let params = meta.map(|meta| json!({"_meta": meta}));
    notification("notifications/tools/list_changed", params.as_ref())
}

/// An answer whose result is JSON text, however deep.
pub(crate) fn respond(id: &Id, result: &str) -> String {
    let mut text = response(id, &Value::Null);
    // It ends in `null}`.
    text.truncate(text.len() - "null}".len());
    text + result + "}"
}
