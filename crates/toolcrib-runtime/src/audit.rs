//! What an audit log is told: who asked for which tool, and what became of it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::{Effects, ToolName};
use toolcrib_wire::Fields;

/// What was decided about a tool that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It may run.
    Allowed,
    /// The policy hides it. The caller was told that it is unknown.
    Denied,
    /// A person was asked and said yes.
    AskedYes,
    /// A person was asked and said no, or nobody could be asked.
    AskedNo,
    /// Its definition waits for approval. The caller was told that it is unknown.
    Held,
}

/// Something an audit log should have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditEvent {
    /// The call: events of one call have one number, and no two calls of this process the same.
    pub call: u64,
    /// The tool, by its real name.
    pub tool: ToolName,
    /// What was decided.
    pub decision: Verdict,
    /// Who asked for it, if that is known.
    pub caller: Option<Arc<str>>,
    /// Where, if there is more than one place.
    pub endpoint: Option<Arc<str>>,
    /// The trace it belongs to.
    pub trace: Option<Arc<str>>,
    /// A hash of its arguments, which may hold secrets themselves.
    pub arguments: Option<String>,
    /// How it ended, if it ran and has.
    pub ending: Option<AuditEnding>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AuditEnding {
    /// Whether in an error, or by being given up.
    pub is_error: bool,
    /// How long it took.
    pub took: Duration,
}

impl AuditEvent {
    /// What was decided about a tool, on nobody's behalf.
    pub fn new(tool: ToolName, decision: Verdict) -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self {
            call: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            tool,
            decision,
            caller: None,
            endpoint: None,
            trace: None,
            arguments: None,
            ending: None,
        }
    }
}

/// Where audit events go.
pub type AuditSink = Arc<dyn Fn(AuditEvent) + Send + Sync>;

/// An audit log that calls can be made to depend on.
pub trait AuditLog: fmt::Debug + Send + Sync + 'static {
    /// A hash of arguments: equal for equal ones, and no help in guessing them.
    fn digest(&self, arguments: &Value) -> String;

    /// Asks, before a call runs, whether it will be in the log; the event has no ending yet. An
    /// error is the reason why the call may not run.
    fn begin<'a>(&'a self, event: &'a AuditEvent) -> BoxFuture<'a, Result<(), String>>;

    /// Takes note. Doesn't wait.
    fn record(&self, event: AuditEvent);
}

/// What is secret about the hashes of arguments, which would otherwise be guessed: few tools take
/// many different ones.
pub struct AuditKey([u8; 32]);

impl AuditKey {
    /// A key of bytes that nobody can guess.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash of arguments, whatever the order of their keys: 32 hexadecimal digits.
    pub fn digest(&self, arguments: &Value) -> String {
        let mut sorted = arguments.clone();
        sorted.sort_all_objects();
        let hash = blake3::keyed_hash(&self.0, sorted.to_string().as_bytes()).to_hex();
        hash[..32].to_owned()
    }
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditKey(…)")
    }
}

/// A log with what holds for all that one request asks for.
#[derive(Clone, Debug)]
pub struct Auditor {
    log: Arc<dyn AuditLog>,
    caller: Option<Arc<str>>,
    endpoint: Arc<str>,
    trace: Option<Arc<str>>,
}

impl Auditor {
    /// For a request of `caller` at `endpoint`. The trace is that of the request's `_meta`.
    pub fn new(
        log: Arc<dyn AuditLog>,
        caller: Option<Arc<str>>,
        endpoint: impl Into<Arc<str>>,
        meta: Option<&RawValue>,
    ) -> Self {
        Self { log, caller, endpoint: endpoint.into(), trace: meta.and_then(trace_of) }
    }

    fn event(&self, tool: &ToolName, decision: Verdict) -> AuditEvent {
        AuditEvent {
            caller: self.caller.clone(),
            endpoint: Some(self.endpoint.clone()),
            trace: self.trace.clone(),
            ..AuditEvent::new(tool.clone(), decision)
        }
    }

    /// Notes what callers asked for and were told is unknown.
    pub fn hidden(&self, effects: &Effects) {
        effects.denied.iter().for_each(|tool| self.refused(tool, Verdict::Denied, None));
        effects.held.iter().for_each(|tool| self.refused(tool, Verdict::Held, None));
    }

    /// Notes a call that does not run.
    pub fn refused(&self, tool: &ToolName, decision: Verdict, arguments: Option<&Value>) {
        let mut event = self.event(tool, decision);
        event.arguments = arguments.map(|arguments| self.log.digest(arguments));
        self.log.record(event);
    }

    /// Notes a call that is about to run. If it can't be noted and must be, the reason comes back
    /// and it may not run.
    pub async fn begin(
        &self,
        tool: &ToolName,
        decision: Verdict,
        arguments: &Value,
    ) -> Result<AuditedCall, String> {
        let mut event = self.event(tool, decision);
        event.arguments = Some(self.log.digest(arguments));
        self.log.begin(&event).await?;
        let log = self.log.clone();
        Ok(AuditedCall { log, event: Some(event), begun: Instant::now(), is_error: true })
    }
}

/// A call under way. It is recorded when dropped, so that one that panics or is given up is too.
#[derive(Debug)]
pub struct AuditedCall {
    log: Arc<dyn AuditLog>,
    event: Option<AuditEvent>,
    begun: Instant,
    is_error: bool,
}

impl AuditedCall {
    /// It has ended.
    pub fn ended(mut self, is_error: bool) {
        self.is_error = is_error;
    }
}

impl Drop for AuditedCall {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            let ending = AuditEnding { is_error: self.is_error, took: self.begun.elapsed() };
            self.log.record(AuditEvent { ending: Some(ending), ..event });
        }
    }
}

/// The trace that a request says it belongs to: the second part of its `traceparent`.
pub(crate) fn trace_of(meta: &RawValue) -> Option<Arc<str>> {
    let parent: String = Fields::parse(meta.get())?.read("traceparent")?;
    let mut parts = parent.split('-');
    let trace =
        parts.nth(1).filter(|it| it.len() == 32 && it.bytes().all(|c| c.is_ascii_hexdigit()));
    trace.map(Arc::from)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use serde_json::json;

    use super::*;

    #[derive(Debug, Default)]
    struct Log {
        events: Mutex<Vec<AuditEvent>>,
        is_full: bool,
    }

    impl AuditLog for Log {
        fn digest(&self, arguments: &Value) -> String {
            AuditKey::new([7; 32]).digest(arguments)
        }

        fn begin<'a>(&'a self, _: &'a AuditEvent) -> BoxFuture<'a, Result<(), String>> {
            let begun = if self.is_full { Err("no room".to_owned()) } else { Ok(()) };
            Box::pin(async { begun })
        }

        fn record(&self, event: AuditEvent) {
            self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        }
    }

    fn auditor(log: &Arc<Log>) -> Auditor {
        let meta = r#"{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#;
        let meta = RawValue::from_string(meta.to_owned()).unwrap();
        Auditor::new(log.clone(), Some("ada".into()), "/mcp", Some(&meta))
    }

    #[tokio::test]
    async fn a_call_is_recorded_whole_also_when_it_is_given_up() {
        let log = Arc::new(Log::default());
        let tool = ToolName::mcp("git", "push");
        let arguments = json!({"branch": "main"});
        let begun = auditor(&log).begin(&tool, Verdict::AskedYes, &arguments).await.unwrap();
        begun.ended(false);
        drop(auditor(&log).begin(&tool, Verdict::Allowed, &arguments).await.unwrap());
        let events = log.events.lock().unwrap();
        let [ended, dropped] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((ended.decision, ended.ending.unwrap().is_error), (Verdict::AskedYes, false));
        assert_eq!(
            (ended.caller.as_deref(), ended.endpoint.as_deref()),
            (Some("ada"), Some("/mcp"))
        );
        assert_eq!(ended.trace.as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
        assert!(dropped.ending.unwrap().is_error && dropped.call != ended.call);
        assert_eq!(ended.arguments, dropped.arguments);
        assert_ne!(ended.arguments, Some(AuditKey::new([8; 32]).digest(&arguments)));
    }

    #[tokio::test]
    async fn what_can_not_be_recorded_does_not_begin() {
        let log = Arc::new(Log { is_full: true, ..Log::default() });
        let tool = ToolName::mcp("git", "push");
        let begun = auditor(&log).begin(&tool, Verdict::Allowed, &json!({})).await;
        assert_eq!(begun.err().as_deref(), Some("no room"));
        assert!(log.events.lock().unwrap().is_empty());
    }

    #[test]
    fn what_was_hidden_is_recorded_by_its_real_name() {
        let log = Arc::new(Log::default());
        let [one, two] = ["a", "b"].map(|own| ToolName::mcp("ops", own));
        let effects =
            Effects { denied: vec![one.clone()], held: vec![two.clone()], ..Effects::default() };
        auditor(&log).hidden(&effects);
        let events = log.events.lock().unwrap();
        let told: Vec<_> = events.iter().map(|it| (it.tool.clone(), it.decision)).collect();
        assert_eq!(told, [(one, Verdict::Denied), (two, Verdict::Held)]);
        assert!(events[0].arguments.is_none() && events[0].ending.is_none());
    }

    #[test]
    fn hashes_go_by_what_arguments_say() {
        let key = AuditKey::new([1; 32]);
        assert_eq!(key.digest(&json!({"a": 1, "b": 2})), key.digest(&json!({"b": 2, "a": 1})));
        assert_ne!(key.digest(&json!({"a": 1})), key.digest(&json!({"a": 2})));
        assert_eq!(format!("{key:?}"), "AuditKey(…)");
    }

    #[test]
    fn a_trace_is_taken_only_if_it_is_one() {
        let of = |text: &str| trace_of(&RawValue::from_string(text.to_owned()).unwrap());
        for wrong in ["{}", "7", r#"{"traceparent":"x"}"#, r#"{"traceparent":"00-zz-1-1"}"#] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
