//! What the APIs refuse with status 400. A server of the tests refuses it too, so that a mistake
//! anywhere in a story ends it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::Api;
use crate::openai_responses::given;

/// Why a request is refused; `None` if it is not.
pub(crate) fn broken(api: Api, body: &Value, headers: &[(String, String)]) -> Option<String> {
    let checked = match api {
        Api::Anthropic => anthropic(body, headers),
        Api::OpenAiResponses => openai_responses(body),
        Api::OpenAiChat | Api::Ollama => plain(api, body),
    };
    checked.err()
}

/// Goes on if so, and else refuses the request.
fn must(is_so: bool, reason: impl Into<String>) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(reason.into()) }
}

fn list(value: &Value) -> impl DoubleEndedIterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// How often a member stands in a body, at any depth.
fn count(value: &Value, member: &str) -> usize {
    match value {
        Value::Object(members) => {
            let own = usize::from(members.contains_key(member));
            own + members.values().map(|it| count(it, member)).sum::<usize>()
        }
        Value::Array(elements) => elements.iter().map(|it| count(it, member)).sum(),
        _ => 0,
    }
}

const BETA: &str = "mid-conversation-tool-changes-2026-07-01";

fn anthropic(body: &Value, headers: &[(String, String)]) -> Result<(), String> {
    let waits = |tool: &&Value| tool["defer_loading"] == true;
    let is_search = |tool: &Value| text(&tool["type"]).starts_with("tool_search_tool_");
    let tools: Vec<&Value> = list(&body["tools"]).collect();
    let names: BTreeSet<&str> = tools.iter().map(|tool| text(&tool["name"])).collect();
    let waiting: Vec<&&Value> = tools.iter().filter(|tool| waits(tool)).collect();
    must(names.len() == tools.len(), "tools: Tool names must be unique.")?;
    must(
        waiting.is_empty() || waiting.len() < tools.len(),
        "At least one tool must have defer_loading=false.",
    )?;
    must(waiting.len() <= 10_000, "tools: At most 10000 tools may have defer_loading=true.")?;
    for tool in waiting {
        must(!is_search(tool), "tools: The tool search tool can't have defer_loading=true.")?;
        must(
            tool.get("cache_control").is_none(),
            "tools: A tool can't have both defer_loading=true and cache_control.",
        )?;
    }
    must(count(body, "cache_control") <= 4, "A maximum of 4 blocks with cache_control.")?;
    let choice = text(&body["tool_choice"]["type"]);
    must(!matches!(choice, "any" | "tool"), "tool_choice: This model takes `auto` and `none`.")?;
    let messages: Vec<&Value> = list(&body["messages"]).collect();
    for (at, message) in messages.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| messages[at]);
        anthropic_message(message, before, messages.get(at + 1).copied(), &names)?;
    }
    let last = messages.last().map(|message| text(&message["role"]));
    must(last.is_some_and(|role| role != "assistant"), "messages: must end with a user message.")?;
    let changes = messages.iter().any(|message| message["role"] == "system");
    let has_beta = headers.iter().any(|(name, value)| name == "anthropic-beta" && value == BETA);
    must(has_beta || !changes, "messages: role `system` needs a beta header.")
}

fn anthropic_message(
    message: &Value,
    before: Option<&Value>,
    after: Option<&Value>,
    names: &BTreeSet<&str>,
) -> Result<(), String> {
    let role = |message: Option<&Value>| message.map(|it| text(&it["role"]).to_owned());
    let ids = |message: Option<&Value>, kind: &str, member: &str| -> Vec<String> {
        let blocks = message.map(|it| &it["content"]).into_iter().flat_map(list);
        let blocks = blocks.filter(|block| block["type"] == kind);
        blocks.map(|block| text(&block[member]).to_owned()).collect()
    };
    let calls = ids(before, "tool_use", "id");
    let results = ids(Some(message), "tool_result", "tool_use_id");
    let unknown = results.iter().find(|id| !calls.contains(id));
    must(unknown.is_none(), format!("unexpected `tool_use_id` in `tool_result`: {unknown:?}"))?;
    must(
        calls == results,
        "`tool_use` ids were found without `tool_result` blocks immediately after",
    )?;
    let mut words_seen = false;
    for block in list(&message["content"]) {
        let is_blank = block["type"] == "text" && text(&block["text"]).trim().is_empty();
        must(!is_blank, "text content blocks must contain non-whitespace text")?;
        words_seen |= block["type"] == "text";
        must(
            block["type"] != "tool_result" || !words_seen,
            "tool_result blocks must come first in a message",
        )?;
        let inner = list(&block["content"]);
        let refers = inner.filter(|it| it["type"] == "tool_reference");
        let referred: Vec<&str> = refers.map(|it| text(&it["tool_name"])).collect();
        let found = list(&block["content"]["tool_references"]).map(|it| text(&it["tool_name"]));
        for name in referred.iter().copied().chain(found) {
            must(
                names.contains(name),
                format!("Tool reference '{name}' not found in available tools"),
            )?;
        }
        must(
            referred.is_empty() || referred.len() == list(&block["content"]).count(),
            "tool_reference blocks can't be mixed with other content in a tool_result",
        )?;
        let changed = text(&block["tool"]["name"]);
        must(
            block.get("tool").is_none() || names.contains(changed),
            format!("Tool '{changed}' is not declared in tools"),
        )?;
    }
    if role(Some(message)).as_deref() != Some("system") {
        return Ok(());
    }
    let block = before.and_then(|before| list(&before["content"]).next_back());
    let after_search = block.is_some_and(|block| block["type"] == "tool_search_tool_result");
    must(
        role(before).as_deref() == Some("user") || after_search,
        "A system message must follow a user message.",
    )?;
    let next = role(after);
    must(
        next.is_none_or(|role| role == "assistant"),
        "A system message must precede an assistant message or be last.",
    )
}

/// Namespaces of the API's own.
const BUILT_IN: [&str; 6] =
    ["code_interpreter", "computer", "file_search", "image_generation", "shell", "web_search"];

fn openai_responses(body: &Value) -> Result<(), String> {
    let plain = list(&body["tools"]).filter(|tool| tool["type"] == "function");
    let plain: BTreeSet<&str> = plain.map(|tool| text(&tool["name"])).collect();
    let searches = list(&body["tools"]).any(|tool| tool["type"] == "tool_search");
    must(
        body.get("tool_choice").is_none_or(|choice| choice == "auto"),
        "tool_choice: can't name a tool that is only loaded by a search",
    )?;
    let mut spaces = std::collections::BTreeMap::new();
    for tool in given(body) {
        if tool["type"] == "tool_search" {
            must(
                tool.get("defer_loading").is_none(),
                "Unknown parameter: 'tools[0].defer_loading'.",
            )?;
        }
        if tool["type"] != "namespace" {
            continue;
        }
        let name = text(&tool["name"]);
        must(
            !BUILT_IN.contains(&name) && !plain.contains(name),
            format!("User-defined namespace '{name}' collides with a built-in namespace."),
        )?;
        must(
            !text(&tool["description"]).is_empty(),
            format!("Missing required parameter: description of namespace '{name}'."),
        )?;
        must(
            tool.get("defer_loading").is_none(),
            format!("Unknown parameter: defer_loading of namespace '{name}'."),
        )?;
        spaces.extend(list(&tool["tools"]).map(|it| (text(&it["name"]), name)));
    }
    let waits = |tool: &Value| tool["defer_loading"] == true;
    let waiting = list(&body["tools"]).flat_map(|tool| list(&tool["tools"]).chain([tool]));
    must(
        searches || waiting.filter(|tool| waits(tool)).count() == 0,
        "Tools with defer_loading need tool_search.",
    )?;
    let (mut calls, mut open) = (Vec::new(), Vec::new());
    let items: Vec<&Value> = list(&body["input"]).collect();
    for (at, item) in items.iter().enumerate() {
        let id = text(&item["call_id"]);
        match text(&item["type"]) {
            "function_call" => {
                let name = text(&item["name"]);
                let space = spaces.get(name).filter(|_| !plain.contains(name));
                must(
                    space.is_none_or(|space| item["namespace"] == *space),
                    format!(
                        "Missing namespace for function_call '{name}'. (param \
                         input[{at}].namespace)"
                    ),
                )?;
                calls.push((id, "function_call_output"));
                open.push(id);
            }
            "tool_search_call" if item["execution"] == "client" => {
                must(item["arguments"].is_object(), format!("input[{at}].arguments: no object"))?;
                calls.push((id, "tool_search_output"));
                open.push(id);
            }
            kind @ ("function_call_output" | "tool_search_output")
                if item["execution"] != "server" =>
            {
                let has_call = calls.contains(&(id, kind));
                must(has_call, format!("No tool call found for {kind} with call_id {id}."))?;
                open.retain(|it| *it != id);
            }
            "additional_tools" => {
                must(item["role"] == "developer", format!("input[{at}].role: must be developer"))?;
            }
            "reasoning" => {
                let next = items.get(at + 1).map(|next| text(&next["type"]));
                must(
                    next.is_some_and(|next| next != "function_call_output"),
                    "Item of type 'reasoning' was provided without its required following item.",
                )?;
            }
            _ => must(open.is_empty(), format!("No tool output found for {open:?}."))?,
        }
    }
    must(open.is_empty(), format!("No tool output found for {open:?}."))
}

/// APIs that have no form for tools that wait.
fn plain(api: Api, body: &Value) -> Result<(), String> {
    for member in ["defer_loading", "namespace", "tool_reference", "execution"] {
        must(count(body, member) == 0, format!("Unknown parameter: '{member}'."))?;
    }
    let kinds = list(&body["messages"]).flat_map(|message| list(&message["content"]));
    for kind in kinds.map(|piece| text(&piece["type"])) {
        must(matches!(kind, "text" | "image_url"), format!("Invalid value: '{kind}'."))?;
    }
    let names: Vec<&str> =
        list(&body["tools"]).map(|tool| text(&tool["function"]["name"])).collect();
    let unique: BTreeSet<&&str> = names.iter().collect();
    must(unique.len() == names.len(), "tools: names must be unique")?;
    let mut open = 0_usize;
    for message in list(&body["messages"]) {
        let results = usize::from(message["role"] == "tool");
        must(
            results <= open && (open == 0 || results == 1),
            "messages with role 'tool' must follow a message with 'tool_calls', one for each",
        )?;
        open = open - results + list(&message["tool_calls"]).count();
    }
    must(open == 0, format!("{api:?}: calls without results"))
}
