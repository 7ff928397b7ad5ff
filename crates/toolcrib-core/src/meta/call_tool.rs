//! `call_tool` (`deferred_tool_call`): calls any tool by name. The envelope is gone before
//! anything else sees the call.

use serde_json::{Value, json};

use super::args::Args;
use super::{MetaTool, Verb};
use crate::session::Latched;
use crate::{Call, Step};

pub(super) fn define(latched: Latched) -> (String, Value) {
    let source = match latched.preset {
        crate::Preset::Groups => "load_tools",
        crate::Preset::Regex => "tool_search_regex",
        _ => "tool_search",
    };
    let description = format!(
        "Call a tool that is not in your tool list. Its arguments must fit the schema you got from \
         `{source}`; if they don't, you get the schema back and nothing is run. Give `tool_name` \
         first."
    );
    let schema = json!({"type": "object", "properties": {
        "tool_name": {"type": "string", "description": "The name of the tool."},
        "arguments": {"type": "object", "description": "The tool's own arguments.",
            "additionalProperties": true}
    }, "required": ["tool_name", "arguments"]});
    (description, schema)
}

pub(super) fn resolve(verb: Verb<'_>) -> Step {
    let args = match Args::of(verb.call) {
        Ok(args) => args,
        Err(problem) => return verb.mistake(&problem.message),
    };
    let inner = args.get("arguments").cloned();
    // Some models put the name inside the arguments.
    let nested = || Some(inner.as_ref()?.get("tool_name")?.as_str()?.to_owned());
    let Some(name) = args.text(&["tool_name", "name", "tool"]).or_else(nested) else {
        return verb
            .mistake("`tool_name` is required: the name of the tool to call, as found or listed.");
    };
    let arguments = match inner {
        Some(Value::Object(inner))
            if inner.get("arguments").is_some_and(Value::is_object)
                && inner.get("tool_name").is_some_and(|again| *again == name) =>
        {
            inner["arguments"].clone()
        }
        Some(inner) => inner,
        // Others leave the envelope out and put the arguments beside the name.
        None => Value::Object(args.without(&["tool_name", "name", "tool"])),
    };
    let inner = Call { name, arguments, ..verb.call.clone() };
    match MetaTool::named(inner.name.trim()) {
        Some(MetaTool::CallTool) => {
            verb.mistake("Name the tool itself: call_tool can't call itself.")
        }
        _ => verb.engine.resolve(verb.session, verb.view, &inner),
    }
}
