//! What the Messages API answers, where it does so in one piece.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_tokens::Usage;

use super::NAME;
use crate::message::{Said, ToolCall};
use crate::provider::{ProviderError, Reply, StopReason};
use crate::providers::body::excerpt;

/// What a prompt that doesn't fit is told: by the API, and by servers that speak its language.
const TOO_LONG: [&str; 6] = [
    "prompt is too long",
    "input is too long",
    "exceed context limit",
    "exceeds the available context size",
    "exceeds the context window",
    "maximum context length",
];

/// What thinking is told that the API doesn't take back.
const STALE: [&str; 4] = [
    "bound to a different conversation",
    "invalid `signature` in `thinking`",
    "invalid `data` in `redacted_thinking`",
    "`redacted_thinking` blocks in the latest assistant message cannot be modified",
];

/// Reads a whole answer.
pub(super) fn reply(body: &str) -> Result<Reply, ProviderError> {
    #[derive(Deserialize)]
    struct Answer {
        content: Vec<Box<RawValue>>,
        stop_reason: Option<String>,
        stop_details: Option<Value>,
        #[serde(default)]
        usage: Tally,
    }
    if let Some(error) = told(body) {
        return Err(error);
    }
    let answer: Answer = read(body)?;
    let content = answer.content.iter().map(|block| said(block)).collect::<Result<_, _>>()?;
    let reason = answer.stop_reason.ok_or_else(unexplained)?;
    Ok(assemble(content, stop(reason, answer.stop_details), answer.usage))
}

pub(super) fn assemble(mut content: Vec<Said>, stop: StopReason, tally: Tally) -> Reply {
    // A call of the API's own that was cut off is never answered.
    let is_cut = matches!(stop, StopReason::Length | StopReason::ContextFull);
    let is_own_call = |said: &Said| {
        let Said::Native { json, .. } = said else { return false };
        json["type"].as_str().is_some_and(|kind| kind.ends_with("_tool_use"))
    };
    if is_cut && content.last().is_some_and(is_own_call) {
        content.pop();
    }
    content.retain(|said| !matches!(said, Said::Text { text } if text.is_empty()));
    Reply { content, stop, usage: tally.usage() }
}

/// One block of an answer. What isn't text or a call is kept as it came.
pub(super) fn said(block: &RawValue) -> Result<Said, ProviderError> {
    #[derive(Deserialize)]
    struct Kind {
        r#type: String,
    }
    #[derive(Deserialize)]
    struct Text {
        text: String,
    }
    #[derive(Deserialize)]
    struct Call {
        #[serde(default)]
        id: String,
        name: String,
        input: Option<Box<RawValue>>,
    }
    let kind: Kind = read(block.get())?;
    match kind.r#type.as_str() {
        "text" => {
            let Text { text } = read(block.get())?;
            Ok(Said::Text { text })
        }
        "tool_use" => {
            let Call { id, name, input } = read(block.get())?;
            let arguments = input.map_or_else(|| "{}".to_owned(), |input| input.get().to_owned());
            Ok(Said::Call(ToolCall { id, name, arguments }))
        }
        _ => Ok(Said::Native { provider: NAME.to_owned(), json: read(block.get())? }),
    }
}

/// Why an answer ended.
pub(super) fn stop(reason: String, details: Option<Value>) -> StopReason {
    match reason.as_str() {
        "end_turn" | "tool_use" | "stop_sequence" => StopReason::End,
        "max_tokens" => StopReason::Length,
        "model_context_window_exceeded" => StopReason::ContextFull,
        "pause_turn" => StopReason::Paused,
        "refusal" => {
            let details = details.unwrap_or_default();
            StopReason::Refusal(details["explanation"].as_str().map(str::to_owned))
        }
        _ => StopReason::Other(reason),
    }
}

/// The tokens as the API counts them: what was cached is not among the input.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tally {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl Tally {
    /// Takes a later count, which is cumulative and may leave out what hasn't changed.
    pub(super) fn update(&mut self, later: Self) {
        *self = Self {
            input_tokens: later.input_tokens.or(self.input_tokens),
            cache_read_input_tokens: later.cache_read_input_tokens.or(self.cache_read_input_tokens),
            cache_creation_input_tokens: later
                .cache_creation_input_tokens
                .or(self.cache_creation_input_tokens),
            output_tokens: later.output_tokens.or(self.output_tokens),
        };
    }

    fn usage(self) -> Usage {
        Usage {
            read: self.cache_read_input_tokens.unwrap_or(0),
            written: self.cache_creation_input_tokens.unwrap_or(0),
            uncached: self.input_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
        }
    }
}

/// What an HTTP refusal means.
pub(super) fn refusal(status: u16, body: &str) -> ProviderError {
    let parsed = serde_json::from_str::<Value>(body).unwrap_or_default();
    let kind = parsed["error"]["type"].as_str().unwrap_or_default();
    // Servers that only speak the API's language have error forms of their own.
    let places = ["/error/message", "/error", "/message", "/detail"];
    let mut message = match places.iter().find_map(|place| parsed.pointer(place)?.as_str()) {
        Some(message) => excerpt(message),
        None if body.trim().is_empty() => "the server gave no reason".to_owned(),
        None => format!("the server said: {}", excerpt(body)),
    };
    if matches!(status, 404 | 405) && kind.is_empty() {
        message.push_str("; check the base URL");
    }
    error(Some(status), kind, &message)
}

/// Whether it is thinking in the conversation that the API refuses.
pub(super) fn refuses_thinking(error: &ProviderError) -> bool {
    let ProviderError::Rejected(message) = error else { return false };
    let lower = message.to_lowercase();
    STALE.iter().any(|known| lower.contains(known))
}

/// The error that is told in place of an answer, if that's what this is.
pub(super) fn told(data: &str) -> Option<ProviderError> {
    #[derive(Deserialize)]
    struct Told {
        error: Failure,
    }
    #[derive(Deserialize)]
    struct Failure {
        #[serde(default)]
        r#type: String,
        #[serde(default)]
        message: String,
    }
    let Told { error: failure } = serde_json::from_str(data).ok()?;
    Some(error(None, &failure.r#type, &excerpt(&failure.message)))
}

fn error(status: Option<u16>, kind: &str, message: &str) -> ProviderError {
    let status_text = status.map(|status| format!("status {status}"));
    let source: Vec<&str> =
        status_text.as_deref().into_iter().chain((!kind.is_empty()).then_some(kind)).collect();
    let text = if source.is_empty() {
        message.to_owned()
    } else {
        format!("{message} ({})", source.join(", "))
    };
    let lower = message.to_lowercase();
    match (status, kind) {
        (Some(401 | 403), _)
        | (_, "authentication_error" | "permission_error" | "billing_error") => {
            ProviderError::Denied(format!("{text}; check the key and what it may be used for"))
        }
        (Some(429 | 503 | 529), _) | (_, "overloaded_error" | "rate_limit_error") => {
            ProviderError::Busy { message: text, retry_after: None }
        }
        (Some(413), _) | (_, "request_too_large") => ProviderError::ContextTooLong(text),
        _ if TOO_LONG.iter().any(|known| lower.contains(known)) => {
            ProviderError::ContextTooLong(text)
        }
        (Some(..500), _) | (None, "invalid_request_error" | "not_found_error") => {
            ProviderError::Rejected(text)
        }
        _ => ProviderError::Failed(text),
    }
}

pub(super) fn read<T: DeserializeOwned>(json: &str) -> Result<T, ProviderError> {
    serde_json::from_str(json).map_err(|error| {
        let error = excerpt(&error.to_string());
        ProviderError::Broken(format!("the answer is not in the form of the Messages API: {error}"))
    })
}

pub(super) fn unexplained() -> ProviderError {
    ProviderError::Broken("the answer ended without a stop reason".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn busy(message: &str) -> ProviderError {
        ProviderError::Busy { message: message.into(), retry_after: None }
    }

    #[test]
    fn a_whole_answer_becomes_a_reply() {
        let body = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-x",
            "content":[
                {"type":"thinking","thinking":"hm","signature":"Eq=="},
                {"type":"text","text":""},
                {"type":"text","text":"Two calls.","citations":null},
                {"type":"tool_use","id":"toolu_1","name":"add","input":{"a": 1.50},
                    "caller":{"type":"direct"}},
                {"type":"server_tool_use","id":"srvtoolu_1","name":"web_search",
                    "input":{"query":"x"}},
                {"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]},
                {"type":"tool_use","id":"toolu_2","name":"now"}],
            "stop_reason":"tool_use","stop_sequence":null,
            "usage":{"input_tokens":10,"cache_creation_input_tokens":20,
                "cache_read_input_tokens":30,"output_tokens":40,"service_tier":"standard"}}"#;
        let native = |json| Said::Native { provider: "anthropic".into(), json };
        let call = |id: &str, name: &str, arguments: &str| {
            Said::Call(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
        };
        let expected = Reply {
            content: vec![
                native(json!({"type": "thinking", "thinking": "hm", "signature": "Eq=="})),
                Said::Text { text: "Two calls.".into() },
                call("toolu_1", "add", r#"{"a": 1.50}"#),
                native(json!({"type": "server_tool_use", "id": "srvtoolu_1",
                    "name": "web_search", "input": {"query": "x"}})),
                native(json!({"type": "web_search_tool_result",
                    "tool_use_id": "srvtoolu_1", "content": []})),
                call("toolu_2", "now", "{}"),
            ],
            stop: StopReason::End,
            usage: Usage { read: 30, written: 20, uncached: 10, output: 40 },
        };
        assert_eq!(reply(body), Ok(expected));
    }

    #[test]
    fn every_stop_reason_is_told_apart() {
        for (reason, details, expected) in [
            ("end_turn", None, StopReason::End),
            ("tool_use", None, StopReason::End),
            ("stop_sequence", None, StopReason::End),
            ("max_tokens", None, StopReason::Length),
            ("model_context_window_exceeded", None, StopReason::ContextFull),
            ("pause_turn", None, StopReason::Paused),
            ("refusal", None, StopReason::Refusal(None)),
            ("refusal", Some(json!("odd")), StopReason::Refusal(None)),
            (
                "refusal",
                Some(json!({"type": "refusal", "category": "cyber", "explanation": "No."})),
                StopReason::Refusal(Some("No.".into())),
            ),
            ("compaction", None, StopReason::Other("compaction".into())),
        ] {
            assert_eq!(stop(reason.into(), details), expected, "{reason}");
        }
    }

    #[test]
    fn a_whole_answer_that_is_none_is_an_error() {
        let overloaded =
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        assert_eq!(reply(overloaded), Err(busy("Overloaded (overloaded_error)")));
        assert_eq!(reply(r#"{"content":[],"stop_reason":null}"#), Err(unexplained()));
        for broken in [
            "",
            "<html>",
            "[]",
            r#"{"stop_reason":"end_turn"}"#,
            r#"{"content":[{"text":"no type"}],"stop_reason":"end_turn"}"#,
            r#"{"content":[{"type":"text"}],"stop_reason":"end_turn"}"#,
            r#"{"content":[{"type":"tool_use","input":{}}],"stop_reason":"end_turn"}"#,
        ] {
            assert!(matches!(reply(broken), Err(ProviderError::Broken(_))), "{broken}");
        }
    }

    #[test]
    fn refusals_say_what_they_mean() {
        let body = |kind: &str, message: &str| {
            json!({"type": "error", "error": {"type": kind, "message": message},
                "request_id": "req_1"})
            .to_string()
        };
        let invalid = |message: &str| body("invalid_request_error", message);
        for (status, body, expected) in [
            (
                401,
                body("authentication_error", "invalid x-api-key"),
                ProviderError::Denied(
                    "invalid x-api-key (status 401, authentication_error); \
                     check the key and what it may be used for"
                        .into(),
                ),
            ),
            (
                403,
                "".into(),
                ProviderError::Denied(
                    "the server gave no reason (status 403); \
                     check the key and what it may be used for"
                        .into(),
                ),
            ),
            (429, body("rate_limit_error", "slow"), busy("slow (status 429, rate_limit_error)")),
            (529, body("overloaded_error", "full"), busy("full (status 529, overloaded_error)")),
            (
                503,
                "<html>\n <b>no</b>\n".into(),
                busy("the server said: <html> <b>no</b> (status 503)"),
            ),
            (
                500,
                body("api_error", "oops"),
                ProviderError::Failed("oops (status 500, api_error)".into()),
            ),
            (
                413,
                body("request_too_large", "Request exceeds the maximum size"),
                ProviderError::ContextTooLong(
                    "Request exceeds the maximum size (status 413, request_too_large)".into(),
                ),
            ),
            (
                400,
                invalid("prompt is too long: 210000 tokens > 200000 maximum"),
                ProviderError::ContextTooLong(
                    "prompt is too long: 210000 tokens > 200000 maximum \
                     (status 400, invalid_request_error)"
                        .into(),
                ),
            ),
            (
                400,
                invalid(
                    "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
                ),
                ProviderError::ContextTooLong(
                    "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000 \
                     (status 400, invalid_request_error)"
                        .into(),
                ),
            ),
            (
                400,
                invalid("max_tokens: 9 > 8"),
                ProviderError::Rejected(
                    "max_tokens: 9 > 8 (status 400, invalid_request_error)".into(),
                ),
            ),
            (
                404,
                body("not_found_error", "model: claude-y"),
                ProviderError::Rejected("model: claude-y (status 404, not_found_error)".into()),
            ),
            (
                404,
                r#"{"detail":"Not Found"}"#.into(),
                ProviderError::Rejected("Not Found; check the base URL (status 404)".into()),
            ),
        ] {
            assert_eq!(refusal(status, &body), expected);
        }
        let long = "é".repeat(5000);
        for body in [long.clone(), body("api_error", &long)] {
            let told = refusal(502, &body).to_string();
            assert!(told.chars().count() < 600, "{told}");
        }
    }
}
