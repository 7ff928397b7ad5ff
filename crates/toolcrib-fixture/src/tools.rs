//! The tools: a table in each part, the function of each tool beside it.

mod asking;
mod changing;
mod content;
mod rounds;
mod schemas;
mod tasked;
mod timed;

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use toolcrib_wire::{Era, RpcError};

use crate::caller::{Caller, Stop};
use crate::journal::Begun;
use crate::server::Server;

pub(crate) use content::PIXEL;

/// A call under way.
#[derive(Clone)]
struct Call {
    server: Arc<Server>,
    caller: Arc<Caller>,
    arguments: Value,
}

type Outcome = Result<Value, Stop>;
type Run = fn(Call) -> BoxFuture<'static, Outcome>;

/// Whether a tool goes on as a task.
#[derive(Clone, Copy, PartialEq)]
enum Tasked {
    Never,
    IfKnown,
    Always,
}

struct Tool {
    name: &'static str,
    description: &'static str,
    schema: Value,
    tasked: Tasked,
    run: Run,
}

impl Tool {
    /// A tool without arguments.
    fn new(name: &'static str, description: &'static str, run: Run) -> Self {
        let schema = json!({"type": "object", "properties": {}});
        Self { name, description, schema, tasked: Tasked::Never, run }
    }

    fn with(self, schema: Value) -> Self {
        Self { schema, ..self }
    }

    fn tasked(self, tasked: Tasked) -> Self {
        Self { tasked, ..self }
    }
}

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let parts = [
        content::tools(),
        timed::tools(),
        asking::tools(),
        rounds::tools(),
        schemas::tools(),
        changing::tools(),
        tasked::tools(),
    ];
    parts.into_iter().flatten().collect()
});

/// The tool that is there only at times.
const NEW: &str = "test_new_tool";

fn find(server: &Server, name: &str) -> Option<&'static Tool> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    (name != NEW || server.has_more_tools.load(Ordering::Relaxed)).then_some(tool)
}

pub(crate) fn listed(server: &Server) -> Vec<Value> {
    let shown = TOOLS.iter().filter(|tool| find(server, tool.name).is_some());
    shown
        .map(|tool| {
            let Tool { name, description, schema, .. } = tool;
            json!({"name": name, "description": description, "inputSchema": schema})
        })
        .collect()
}

/// What the arguments of a tool have to look like.
pub(crate) fn schema(server: &Server, name: &str) -> Option<&'static Value> {
    find(server, name).map(|tool| &tool.schema)
}

pub(crate) async fn call(server: &Arc<Server>, caller: Arc<Caller>, params: Value) -> Outcome {
    let name = params["name"].as_str().unwrap_or_default();
    let tool = find(server, name);
    let tool = tool.ok_or_else(|| RpcError::invalid_params(format!("Unknown tool: {name}")))?;
    let arguments = match params.get("arguments") {
        None => json!({}),
        Some(arguments) if arguments.is_object() => arguments.clone(),
        Some(_) => return Err(RpcError::invalid_params("arguments must be an object").into()),
    };
    let call = Call { server: server.clone(), caller, arguments };
    if tool.tasked == Tasked::Always && call.caller.era == Era::Stateless {
        call.caller.need_tasks()?;
    }
    if tool.tasked == Tasked::Never || !call.caller.knows_tasks() {
        let begun = Begun::new(server, tool.name, &call.arguments);
        let outcome = (tool.run)(call).await;
        begun.end();
        return outcome;
    }
    let caller = call.caller.clone();
    let start = |caller| (tool.run)(Call { caller: Arc::new(caller), ..call });
    Ok(server.tasks.start(&caller, start))
}

fn text(text: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}]})
}

fn mistake(what: &str) -> Value {
    json!({"content": [{"type": "text", "text": what}], "isError": true})
}

fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}
