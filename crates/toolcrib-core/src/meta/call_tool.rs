//! `call_tool` (`deferred_tool_call`): calls any tool by name. The envelope is gone before
//! anything else sees the call.

use serde_json::{Value, json};

use super::args::Args;
use super::{MetaTool, Verb};
use crate::spec::Effect;
use crate::{Call, Step};

pub(super) fn define(effect: Option<Effect>, finder: Option<&str>) -> (String, Value) {
    let source = finder.map_or_else(String::new, |verb| format!(" you got from `{verb}`"));
    let which = effect.map_or_else(String::new, |effect| format!(" and {}", effect.says()));
    let description = format!(
        "Call a tool that is not in your tool list{which}. Its arguments must fit the schema{source}; if \
         they don't, you get the schema back and nothing is run. Give `tool_name` first."
    );
    let schema = json!({"type": "object", "properties": {
        "tool_name": {"type": "string", "description": "The name of the tool."},
        "arguments": {"type": "object", "description": "The tool's own arguments.",
            "additionalProperties": true}
    }, "required": ["tool_name", "arguments"]});
    (description, schema)
}

pub(super) fn resolve(verb: Verb<'_>, by: MetaTool) -> Step {
    let args = match Args::of(verb.call) {
        Ok(args) => args,
        Err(problem) => return verb.mistake(&problem.message),
    };
    let Some((name, arguments)) = unwrap(&args) else {
        return verb
            .mistake("`tool_name` is required: the name of the tool to call, as found or listed.");
    };
    if MetaTool::meant(&name).is_some_and(MetaTool::calls) {
        let own = by.names()[0];
        return verb.mistake(&format!("Name the tool itself: {own} can't call itself."));
    }
    let inner = Call { name, arguments, ..verb.call.clone() };
    verb.engine.resolve_by(Some(by), verb.session, verb.view, &inner)
}

/// The call inside the envelope.
pub(crate) fn opened(call: &Call) -> Option<Call> {
    let (name, arguments) = unwrap(&Args::of(call).ok()?)?;
    Some(Call { name, arguments, ..call.clone() })
}

/// The tool and its arguments, wherever in the envelope the model has put them.
fn unwrap(args: &Args) -> Option<(String, Value)> {
    let inner = args.get("arguments").filter(|inner| !inner.is_null());
    let named = ["tool_name", "name", "tool"]
        .iter()
        .find_map(|key| args.text(&[key]).map(|name| (*key, name)));
    let (key, name) = match named {
        Some(named) => named,
        // Some models put the name, or the whole envelope, inside the arguments.
        None => {
            let mut envelope = inner?.as_object()?.clone();
            let name = envelope.shift_remove("tool_name")?.as_str()?.to_owned();
            let arguments = match envelope.get("arguments") {
                Some(arguments) if arguments.is_object() => arguments.clone(),
                _ => Value::Object(envelope),
            };
            return Some((name, arguments));
        }
    };
    let arguments = match inner {
        Some(twice)
            if twice.get("tool_name").is_some_and(|again| *again == name)
                && twice.get("arguments").is_some_and(Value::is_object) =>
        {
            twice["arguments"].clone()
        }
        Some(inner) => inner.clone(),
        // Others leave the envelope out and put the arguments beside the name.
        None => Value::Object(args.without(&[key, "arguments"])),
    };
    Some((name, arguments))
}
