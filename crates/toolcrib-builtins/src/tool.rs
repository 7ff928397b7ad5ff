//! A typed function as a tool: its schema, its effects, its body.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolcrib_core::{Annotations, Schema, ToolName, ToolSpec};

use crate::error::Failure;

/// What a tool answers: text, or an object that is given as text and as data.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    Text(String),
    Data(Value),
}

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Value> for Answer {
    fn from(data: Value) -> Self {
        Self::Data(data)
    }
}

/// What calling a tool does to the world, as its annotations tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    Reads,
    /// Nothing, but it leaves the machine.
    ReadsOpenWorld,
    /// Adds something each time; destroys nothing.
    Adds,
    /// Adds something; the second time changes no more.
    Ensures,
    /// May overwrite or delete; the second time changes no more.
    Overwrites,
    /// May overwrite or delete, each time anew.
    Changes,
    /// Whatever it is told, here or elsewhere; one call at a time.
    DoesAnything,
}

impl Effect {
    pub(crate) fn is_read_only(self) -> bool {
        matches!(self, Self::Reads | Self::ReadsOpenWorld)
    }

    fn annotations(self) -> Annotations {
        let destructive = matches!(self, Self::Overwrites | Self::Changes | Self::DoesAnything);
        Annotations {
            read_only: Some(self.is_read_only()),
            destructive: Some(destructive),
            idempotent: Some(!matches!(self, Self::Adds | Self::Changes | Self::DoesAnything)),
            open_world: Some(matches!(self, Self::ReadsOpenWorld | Self::DoesAnything)),
        }
    }
}

type Body = dyn Fn(Value) -> BoxFuture<'static, Result<Answer, Failure>> + Send + Sync;

/// One tool of a server.
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) schema: Schema,
    effect: Effect,
    body: Box<Body>,
}

/// The tools of one server, around what they share.
pub(crate) struct Tools<S> {
    shared: Arc<S>,
    tools: Vec<Tool>,
}

impl<S: Send + Sync + 'static> Tools<S> {
    pub(crate) fn new(shared: S) -> Self {
        Self { shared: Arc::new(shared), tools: Vec::new() }
    }

    /// A tool that waits: a process, the network.
    pub(crate) fn waiting<A, R, F>(
        mut self,
        (name, description): (&'static str, &'static str),
        effect: Effect,
        body: fn(Arc<S>, A) -> F,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Into<Answer>,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
    {
        let shared = self.shared.clone();
        let body = move |arguments| match serde_json::from_value(arguments) {
            Ok(arguments) => {
                body(shared.clone(), arguments).map(|done| done.map(Into::into)).boxed()
            }
            Err(error) => futures::future::ready(Err(Failure::Arguments(error))).boxed(),
        };
        let schema = parameters_of::<A>();
        self.tools.push(Tool { name, description, schema, effect, body: Box::new(body) });
        self
    }

    /// A tool that blocks or computes: it gets a thread of its own, and learns when the caller
    /// has gone.
    pub(crate) fn blocking<A, R>(
        mut self,
        (name, description): (&'static str, &'static str),
        effect: Effect,
        body: fn(&S, A, &Stop) -> Result<R, Failure>,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        R: Into<Answer> + 'static,
    {
        let shared = self.shared.clone();
        let body = move |arguments| {
            let shared = shared.clone();
            on_a_thread(move |stop| {
                let arguments = serde_json::from_value(arguments).map_err(Failure::Arguments)?;
                body(&shared, arguments, stop).map(Into::into)
            })
            .boxed()
        };
        let schema = parameters_of::<A>();
        self.tools.push(Tool { name, description, schema, effect, body: Box::new(body) });
        self
    }

    pub(crate) fn into_tools(self) -> Vec<Tool> {
        self.tools
    }
}

impl Tool {
    pub(crate) fn is_read_only(&self) -> bool {
        self.effect.is_read_only()
    }

    /// The tool as a server lists it.
    pub(crate) fn spec(&self, server: &str) -> ToolSpec {
        let spec = ToolSpec::new(ToolName::mcp(server, self.name), self.schema.clone())
            .with_description(self.description)
            .with_annotations(self.effect.annotations());
        if self.effect == Effect::DoesAnything { spec.into_sequential() } else { spec }
    }

    pub(crate) fn call(&self, arguments: Value) -> BoxFuture<'static, Result<Answer, Failure>> {
        // A tool without required parameters may be called without arguments.
        let arguments =
            if arguments.is_null() { Value::Object(Default::default()) } else { arguments };
        (self.body)(arguments)
    }
}

/// When blocking work should end: the caller has gone, or time is up.
pub(crate) struct Stop {
    gone: Arc<AtomicBool>,
    until: Instant,
}

/// How long blocking work may take.
pub(crate) const BLOCKING_SECONDS: u64 = 20;

impl Stop {
    pub(crate) fn is_due(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.is_due() { Err(Failure::TookTooLong(BLOCKING_SECONDS)) } else { Ok(()) }
    }
}

impl Clone for Stop {
    fn clone(&self) -> Self {
        Self { gone: self.gone.clone(), until: self.until }
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs blocking work where it holds nobody up. Dropping the future asks the work to stop.
pub(crate) async fn on_a_thread<R: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<R, Failure> + Send + 'static,
) -> Result<R, Failure> {
    let gone = Arc::new(AtomicBool::new(false));
    let _caller = SetOnDrop(gone.clone());
    let stop = Stop { gone, until: Instant::now() + Duration::from_secs(BLOCKING_SECONDS) };
    let done = tokio::task::spawn_blocking(move || work(&stop)).await;
    done.unwrap_or_else(|_| Err(Failure::invalid("The tool failed unexpectedly.")))
}

/// The schema of a tool's parameters, less what only a compiler wants to know.
fn parameters_of<A: JsonSchema>() -> Schema {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Some(object) = schema.as_object_mut() {
        // The doc comment of the type is not for the model, and a tool of nothing still takes an object.
        object.remove("description");
        object.entry("properties").or_insert_with(|| Value::Object(Default::default()));
    }
    tidy(&mut schema);
    schema.into()
}

/// Drops titles, integer formats and `null`s: a parameter that may be left out says so by not
/// being required.
fn tidy(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("title");
    if object.get("default").is_some_and(Value::is_null) {
        object.remove("default");
    }
    let is_number = |kind: &Value| kind == "integer" || kind == "number";
    if let Some(Value::Array(kinds)) = object.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            object.insert("type".to_owned(), kind);
        }
    }
    if object.get("type").is_some_and(is_number) {
        object.remove("format");
    }
    if let Some(Value::Array(values)) = object.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(only)] = choices.as_mut_slice() {
            let only = std::mem::take(only);
            object.remove("anyOf");
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
    for key in ["properties", "$defs"] {
        if let Some(Value::Object(parts)) = object.get_mut(key) {
            parts.values_mut().for_each(tidy);
        }
    }
    if let Some(Value::String(text)) = object.get_mut("description") {
        // The lines of a doc comment are those of the source.
        *text = text.replace('\n', " ");
    }
    if object.get("items") == Some(&Value::Bool(true)) {
        // The same, in a form that every provider takes.
        object.insert("items".to_owned(), Value::Object(Default::default()));
    }
    for key in ["items", "additionalProperties"] {
        if let Some(part) = object.get_mut(key) {
            tidy(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Unit {
        Day,
        Hour,
    }

    /// Nothing a model should read.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Arguments {
        /// How many.
        count: u32,
        /// Of what.
        unit: Option<Unit>,
        /// How much.
        #[serde(default = "ten")]
        limit: usize,
        /// What for.
        labels: Option<Vec<String>>,
        /// Whatever
        /// else.
        rest: Option<Vec<Value>>,
    }

    fn ten() -> usize {
        10
    }

    #[test]
    fn a_schema_holds_what_a_model_needs_and_no_more() {
        let schema: Value = serde_json::from_str(parameters_of::<Arguments>().get()).unwrap();
        let expected = json!({
            "type": "object",
            "properties": {
                "count": {"description": "How many.", "type": "integer", "minimum": 0},
                "unit": {"description": "Of what.", "type": "string", "enum": ["day", "hour"]},
                "limit": {"description": "How much.", "type": "integer", "minimum": 0, "default": 10},
                "labels": {"description": "What for.", "type": "array", "items": {"type": "string"}},
                "rest": {"description": "Whatever else.", "type": "array", "items": {}},
            },
            "additionalProperties": false,
            "required": ["count"],
        });
        assert_eq!(schema, expected);
    }

    #[tokio::test]
    async fn work_whose_caller_has_gone_is_asked_to_stop() {
        let (started, starts) = tokio::sync::oneshot::channel();
        let (stopped, stops) = tokio::sync::oneshot::channel();
        let work = on_a_thread(move |stop| {
            let _ = started.send(());
            while !stop.gone.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            let _ = stopped.send(());
            Ok(())
        });
        tokio::select! {
            _ = work => panic!("it ended by itself"),
            begun = starts => begun.unwrap(),
        }
        stops.await.unwrap();
    }
}
