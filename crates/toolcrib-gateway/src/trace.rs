//! Calls as a tracing system sees them.

use std::fmt;

use toolcrib_core::ToolName;
use toolcrib_runtime::Caller;
use toolcrib_wire::Fields;

/// Members of `_meta`, by the W3C's names.
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// Follows calls on behalf of a tracing system, such as OpenTelemetry.
pub trait Tracer: Send + Sync + 'static {
    /// A call begins.
    fn begin(&self, call: &TracedCall<'_>) -> Box<dyn TracedSpan>;
}

/// What is known of a call when it begins.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TracedCall<'a> {
    /// The tool's server; `None` if it has none.
    pub server: Option<&'a str>,
    /// The tool, by its own name.
    pub tool: &'a str,
    /// Where in a trace the caller stands, as `_meta` has it: `traceparent`.
    pub parent: Option<&'a str>,
    /// The same: `tracestate`.
    pub state: Option<&'a str>,
}

impl<'a> TracedCall<'a> {
    /// A call of a tool.
    pub fn new(server: Option<&'a str>, tool: &'a str) -> Self {
        Self { server, tool, parent: None, state: None }
    }
}

/// A call under way. Dropped without an end, it was given up.
pub trait TracedSpan: Send + Sync {
    /// What the tool's server is told, as `traceparent`: its own work belongs below this call.
    fn traceparent(&self) -> Option<String>;

    /// The call has ended: `ok`, `error` (its result says so), `refused` (by its server) or
    /// `failed` (it brought no result).
    fn end(self: Box<Self>, outcome: &'static str);
}

impl fmt::Debug for dyn Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tracer")
    }
}

/// Begins to follow a call; the tool's server is told what it belongs to.
pub(crate) fn begin(
    tracer: &dyn Tracer,
    tool: &ToolName,
    caller: Caller,
) -> (Box<dyn TracedSpan>, Caller) {
    let mut meta = caller.meta().and_then(|meta| Fields::parse(meta.get())).unwrap_or_default();
    let said = |key| meta.get(key).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
    let (parent, state) = (said(TRACEPARENT), said(TRACESTATE));
    let call = TracedCall {
        parent: parent.as_deref(),
        state: state.as_deref(),
        ..TracedCall::new(tool.server(), tool.tool())
    };
    let span = tracer.begin(&call);
    let Some(own) = span.traceparent() else { return (span, caller) };
    meta.set(TRACEPARENT, &own);
    let meta = meta.to_raw();
    (span, caller.with_meta(meta))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::value::RawValue;

    use super::*;

    #[derive(Clone, Default)]
    struct Book(Arc<Mutex<Vec<String>>>);

    impl Tracer for Book {
        fn begin(&self, call: &TracedCall<'_>) -> Box<dyn TracedSpan> {
            let mut lines = self.0.lock().unwrap();
            lines.push(format!(
                "{:?} {} {:?} {:?}",
                call.server, call.tool, call.parent, call.state
            ));
            Box::new(self.clone())
        }
    }

    impl TracedSpan for Book {
        fn traceparent(&self) -> Option<String> {
            Some("ours".to_owned())
        }

        fn end(self: Box<Self>, outcome: &'static str) {
            self.0.lock().unwrap().push(outcome.to_owned());
        }
    }

    #[test]
    fn a_call_stands_below_its_callers_span_and_its_servers_below_it() {
        let book = Book::default();
        let meta = r#"{"traceparent":"theirs","tracestate":"a=1","x":1.0}"#;
        let caller = Caller::default().with_meta(RawValue::from_string(meta.to_owned()).unwrap());
        let (span, caller) = begin(&book, &ToolName::mcp("files", "read"), caller);
        let passed = caller.meta().unwrap().get();
        assert_eq!(passed, r#"{"traceparent":"ours","tracestate":"a=1","x":1.0}"#);
        span.end("ok");
        let expected = [r#"Some("files") read Some("theirs") Some("a=1")"#, "ok"];
        assert_eq!(*book.0.lock().unwrap(), expected);
    }

    #[test]
    fn what_is_no_text_is_no_parent() {
        let book = Book::default();
        let meta = RawValue::from_string(r#"{"traceparent":7}"#.to_owned()).unwrap();
        begin(&book, &ToolName::host("f"), Caller::default().with_meta(meta));
        begin(&book, &ToolName::host("f"), Caller::default());
        assert_eq!(*book.0.lock().unwrap(), ["None f None None", "None f None None"]);
    }
}
