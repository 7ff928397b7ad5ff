//! Toolsets: things that list tools and call them.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::watch;
use toolcrib_core::{GroupId, ToolName, ToolSpec};

use crate::caller::Caller;
use crate::result::ToolResult;
use crate::server::Server;

/// Lists tools and calls them: an MCP server, the built-ins, a host's functions.
///
/// Concerns such as time limits, counting and audit are wrappers around one; see
/// [`ToolsetExt`](crate::ToolsetExt).
///
/// ```
/// use futures::future::BoxFuture;
/// use toolcrib_core::{GroupId, Schema, ToolName, ToolSpec};
/// use toolcrib_runtime::{CallError, Invocation, Listing, ToolResult, Toolset};
///
/// struct Dice;
///
/// impl Toolset for Dice {
///     fn id(&self) -> GroupId {
///         "dice".into()
///     }
///
///     fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
///         let roll = ToolSpec::new(ToolName::host("roll"), Schema::empty());
///         Box::pin(async { Ok(Listing::new([roll])) })
///     }
///
///     fn call(&self, _: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
///         Box::pin(async { Ok(ToolResult::text("4")) })
///     }
/// }
/// ```
pub trait Toolset: Send + Sync + 'static {
    /// The group its tools form.
    fn id(&self) -> GroupId;

    /// Everything it offers.
    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>>;

    /// Calls a tool. Dropping the future cancels the call.
    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>>;

    /// Changes whenever the list may have. `None` if it never does.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// The server behind it, where that is more than its tools. `None` if there is none.
    fn server(&self) -> Option<&dyn Server> {
        None
    }
}

impl<T: Toolset + ?Sized> Toolset for Arc<T> {
    fn id(&self) -> GroupId {
        (**self).id()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        (**self).list()
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        (**self).call(invocation)
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        (**self).changes()
    }

    fn server(&self) -> Option<&dyn Server> {
        (**self).server()
    }
}

/// What a toolset offers.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The name people read, if it has one.
    pub title: Option<String>,
    /// One line on what it can do.
    pub description: Option<String>,
    /// Its tools.
    pub specs: Vec<ToolSpec>,
    /// Why they can't be called at the moment, if that is so: the list is remembered.
    pub down: Option<String>,
    /// Tools it has that are held back: they are not offered, and nobody is told of them.
    pub held: Vec<ToolName>,
}

impl Listing {
    /// A listing of tools, without title and description.
    pub fn new(specs: impl IntoIterator<Item = ToolSpec>) -> Self {
        Self { specs: specs.into_iter().collect(), ..Self::default() }
    }
}

/// A call of a tool, by its real name with its real arguments.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The tool.
    pub tool: ToolName,
    /// Its arguments, checked against its schema.
    pub arguments: Value,
    /// The same as they were written, where nothing was changed: a number may have more digits
    /// than a value can hold.
    pub verbatim: Option<Arc<RawValue>>,
    /// Whom the call is for.
    pub caller: Caller,
}

impl Invocation {
    /// A call on nobody's behalf.
    pub fn new(tool: ToolName, arguments: Value) -> Self {
        Self { tool, arguments, verbatim: None, caller: Caller::default() }
    }
}

/// Why a call brought no result. Who must act decides the kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The model: it gets the text as the call's result.
    #[error("{0}")]
    Tell(String),
    /// The host: the run can't go on.
    #[error("{0}")]
    Stop(String),
}

/// What a function may return to become a tool's result.
pub trait IntoToolResult {
    /// The result.
    fn into_tool_result(self) -> Result<ToolResult, CallError>;
}

impl IntoToolResult for ToolResult {
    fn into_tool_result(self) -> Result<ToolResult, CallError> {
        Ok(self)
    }
}

impl IntoToolResult for String {
    fn into_tool_result(self) -> Result<ToolResult, CallError> {
        Ok(ToolResult::text(self))
    }
}

impl IntoToolResult for &str {
    fn into_tool_result(self) -> Result<ToolResult, CallError> {
        Ok(ToolResult::text(self))
    }
}

impl IntoToolResult for () {
    fn into_tool_result(self) -> Result<ToolResult, CallError> {
        Ok(ToolResult::text("done"))
    }
}

/// Data: given as text and as structured content.
impl IntoToolResult for Value {
    fn into_tool_result(self) -> Result<ToolResult, CallError> {
        Ok(ToolResult::data(self))
    }
}

/// An error is told to the model.
impl<T: IntoToolResult, E: std::fmt::Display> IntoToolResult for Result<T, E> {
    fn into_tool_result(self) -> Result<ToolResult, CallError> {
        match self {
            Ok(value) => value.into_tool_result(),
            Err(error) => Err(CallError::Tell(error.to_string())),
        }
    }
}
