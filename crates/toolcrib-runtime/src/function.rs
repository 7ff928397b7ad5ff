//! A host's functions as a toolset.

use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};

use futures::FutureExt;
use futures::future::BoxFuture;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;
use toolcrib_core::{Annotations, Deferral, GroupId, Schema, ToolName, ToolSpec, schema_of};

use crate::result::ToolResult;
use crate::toolset::{CallError, IntoToolResult, Invocation, Listing, Toolset};

type Body = dyn Fn(Value) -> BoxFuture<'static, Result<ToolResult, CallError>> + Send + Sync;

/// A tool made from a Rust function.
#[derive(Clone)]
pub struct Function {
    spec: ToolSpec,
    body: Arc<Body>,
}

/// Makes a tool from an async function of one argument. The schema is derived from the argument's
/// type; doc comments on its fields become parameter descriptions.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use toolcrib_runtime::function;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Alert {
///     /// What to say.
///     message: String,
/// }
///
/// let tool = function("send_alert", "Send an alert to the operations team.", |alert: Alert| async move {
///     format!("Alert sent: {}", alert.message)
/// });
/// assert_eq!(tool.spec().description(), "Send an alert to the operations team.");
/// ```
pub fn function<A, F, Fut, R>(name: &str, description: &str, body: F) -> Function
where
    A: DeserializeOwned + JsonSchema,
    F: Fn(A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = R> + Send + 'static,
    R: IntoToolResult + 'static,
{
    // A function of nothing has `()` as its argument, which no JSON object is.
    let schema = schema_of::<A>();
    let takes_nothing = serde_json::from_str::<Value>(schema.get())
        .is_ok_and(|schema| schema.get("type").is_some_and(|kind| kind == "null"));
    let body = move |arguments: Value| -> BoxFuture<'static, Result<ToolResult, CallError>> {
        let arguments = if takes_nothing { Value::Null } else { arguments };
        match serde_json::from_value::<A>(arguments) {
            Ok(arguments) => body(arguments).map(IntoToolResult::into_tool_result).boxed(),
            Err(error) => {
                let told = CallError::Tell(format!("The arguments do not fit: {error}"));
                futures::future::ready(Err(told)).boxed()
            }
        }
    };
    let schema = if takes_nothing { Schema::empty() } else { schema };
    let spec = ToolSpec::new(ToolName::host(name), schema).with_description(description);
    Function { spec, body: Arc::new(body) }
}

impl Function {
    /// Changes the spec: hints, annotations, deferral, another name.
    ///
    /// ```
    /// # use toolcrib_runtime::function;
    /// # use toolcrib_core::Deferral;
    /// let tool = function("now", "The time.", |_: ()| async { "noon" })
    ///     .map_spec(|spec| spec.with_deferral(Deferral::Eager).into_sequential());
    /// # assert!(tool.spec().is_sequential());
    /// ```
    pub fn map_spec(self, change: impl FnOnce(ToolSpec) -> ToolSpec) -> Self {
        Self { spec: change(self.spec), ..self }
    }

    /// Gives the tool a namespace, which its exposed name carries.
    pub fn in_namespace(self, namespace: &str) -> Self {
        let name = ToolName::host_in(namespace, self.spec.name().tool());
        self.map_spec(|spec| spec.renamed(name))
    }

    /// What a model needs to call it.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// Marks a function that changes nothing.
    pub fn read_only(self) -> Self {
        let annotations = Annotations { read_only: Some(true), ..*self.spec.annotations() };
        self.map_spec(|spec| spec.with_annotations(annotations))
    }

    /// Marks a function whose schema is sent in full at any rate.
    pub fn eager(self) -> Self {
        self.map_spec(|spec| spec.with_deferral(Deferral::Eager))
    }
}

/// A host's functions as a toolset. A handle: clones share the functions, and functions may be
/// added while conversations run.
#[derive(Clone)]
pub struct HostTools {
    id: GroupId,
    functions: Arc<RwLock<IndexMap<ToolName, Function>>>,
    changed: Arc<watch::Sender<u64>>,
}

impl HostTools {
    /// No functions yet; they form the group `id`.
    pub fn new(id: impl Into<GroupId>) -> Self {
        let changed = Arc::new(watch::Sender::new(0));
        Self { id: id.into(), functions: Arc::default(), changed }
    }

    /// Adds a function; one of the same name is replaced.
    pub fn with(self, function: Function) -> Self {
        self.insert(function);
        self
    }

    /// Adds a function; one of the same name is replaced.
    pub fn insert(&self, function: Function) {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.insert(function.spec.name().clone(), function);
        drop(functions);
        self.changed.send_modify(|version| *version += 1);
    }

    /// Removes a function; says whether it was there.
    pub fn remove(&self, name: &ToolName) -> bool {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let removed = functions.shift_remove(name).is_some();
        drop(functions);
        self.changed.send_modify(|version| *version += 1);
        removed
    }

    pub(crate) fn clear(&self) {
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        let _dropped_unlocked = std::mem::take(&mut *functions);
        drop(functions);
        self.changed.send_modify(|version| *version += 1);
    }

    pub(crate) fn listing(&self) -> Listing {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        Listing::new(functions.values().map(|function| function.spec.clone()))
    }

    fn body(&self, name: &ToolName) -> Option<Arc<Body>> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.get(name).map(|function| function.body.clone())
    }
}

impl Default for HostTools {
    fn default() -> Self {
        Self::new(GroupId::host())
    }
}

impl Toolset for HostTools {
    fn id(&self) -> GroupId {
        self.id.clone()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        futures::future::ready(Ok(self.listing())).boxed()
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        match self.body(&invocation.tool) {
            Some(body) => body(invocation.arguments),
            None => {
                let gone = CallError::Tell(format!("`{}` is no longer there.", invocation.tool));
                futures::future::ready(Err(gone)).boxed()
            }
        }
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changed.subscribe())
    }
}
