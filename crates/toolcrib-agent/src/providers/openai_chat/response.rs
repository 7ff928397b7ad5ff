//! What Chat Completions answer: the pieces of a reply, what it took, and errors.

use serde::Deserialize;
use serde_json::Value;
use toolcrib_tokens::Usage;

use crate::provider::{ProviderError, StopReason};
use crate::providers::body::excerpt;

/// A chunk of a stream, or a whole answer, whose one piece is called a message.
///
/// Where servers disagree on a member's type, it is kept as it came.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk {
    pub(super) object: Option<Value>,
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Option<Value>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice {
    pub(super) index: Option<u64>,
    pub(super) delta: Option<Piece>,
    pub(super) message: Option<Piece>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Piece {
    pub(super) content: Value,
    pub(super) refusal: Value,
    pub(super) reasoning_content: Value,
    pub(super) reasoning: Value,
    pub(super) tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallPiece {
    pub(super) index: Option<u64>,
    pub(super) id: Value,
    pub(super) function: Option<FunctionPiece>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionPiece {
    pub(super) name: Value,
    pub(super) arguments: Value,
}

impl Chunk {
    /// Reads one, or says which error came instead.
    pub(super) fn read(json: &str) -> Result<Self, ProviderError> {
        let chunk: Self = serde_json::from_str(json).map_err(|error| {
            ProviderError::Broken(format!("the server sent what is no chat completion: {error}"))
        })?;
        if let Some(error) = &chunk.error {
            return Err(in_band(error));
        }
        // Older vLLM.
        if chunk.object.as_ref().and_then(Value::as_str) == Some("error") {
            return Err(in_band(&serde_json::from_str(json).unwrap_or_default()));
        }
        Ok(chunk)
    }
}

/// Text as a string, or as a list of pieces of which some are text.
pub(super) fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Array(pieces) => {
            pieces.iter().filter_map(|piece| piece.get("text")?.as_str()).collect()
        }
        _ => String::new(),
    }
}

/// A call's arguments: JSON in a string, or, from a few servers, the JSON itself.
pub(super) fn arguments(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        json => json.to_string(),
    }
}

/// Why an answer ended, in the API's word, and what the model said if it refused.
pub(super) fn stop(reason: &str, refusal: Option<String>) -> Result<StopReason, ProviderError> {
    Ok(match reason {
        "length" => StopReason::Length,
        "model_length" => StopReason::ContextFull,
        "content_filter" => StopReason::Refusal(refusal),
        "error" => {
            let message = "the server broke the answer off because of an error of its own";
            return Err(ProviderError::Failed(message.into()));
        }
        _ if refusal.is_some() => StopReason::Refusal(refusal),
        "stop" | "tool_calls" | "function_call" | "eos_token" | "stop_sequence" => StopReason::End,
        other => StopReason::Other(other.into()),
    })
}

/// What an answer took. `input` and `output` are what the API calls them: this one says
/// `prompt_tokens`, the Responses API `input_tokens`. Cached tokens are part of the input.
pub(in crate::providers) fn usage(wire: &Value, input: &str, output: &str) -> Usage {
    let count = |path: String| wire.pointer(&path).and_then(Value::as_u64).unwrap_or(0);
    let read = count(format!("/{input}_tokens_details/cached_tokens"));
    let written = count(format!("/{input}_tokens_details/cache_write_tokens"));
    let all = count(format!("/{input}_tokens"));
    Usage {
        read,
        written,
        uncached: all.saturating_sub(read).saturating_sub(written),
        output: count(format!("/{output}_tokens")),
    }
}

/// What an HTTP refusal means.
pub(in crate::providers) fn refusal(status: u16, body: &str) -> ProviderError {
    let fault = match serde_json::from_str::<Value>(body) {
        Ok(json) => Fault::read(json.get("error").filter(|it| !it.is_null()).unwrap_or(&json)),
        Err(_) => Fault::of_text(body),
    };
    let told = match (fault.message.is_empty(), status) {
        (false, _) => format!("{} (HTTP {status})", fault.message),
        (true, 404) => {
            "nothing is there (HTTP 404); check the base URL, which often ends in `/v1`".into()
        }
        (true, _) => format!("HTTP {status} without a reason"),
    };
    fault.into_error(status, told)
}

/// What an error means that came where an answer should have.
pub(in crate::providers) fn in_band(error: &Value) -> ProviderError {
    let fault = Fault::read(error);
    let told = match (fault.message.is_empty(), fault.names.first()) {
        (false, _) => fault.message.clone(),
        (true, Some(name)) => format!("the server ended the answer with the error `{name}`"),
        (true, None) => "the server ended the answer with an error it gives no reason for".into(),
    };
    let status = fault.status();
    fault.into_error(status, told)
}

/// An error as the servers write it: an object with a message, a type and a code, any of which
/// may be missing; or a string.
#[derive(Debug, Default)]
struct Fault {
    message: String,
    /// Code and type.
    names: Vec<String>,
    /// A code that is a number is an HTTP status.
    code: Option<u16>,
}

impl Fault {
    fn read(error: &Value) -> Self {
        let Value::Object(members) = error else {
            return Self::of_text(error.as_str().unwrap_or_default());
        };
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let mut message = text("message").or_else(|| text("detail")).unwrap_or_default().to_owned();
        // OpenRouter: what the server behind it said.
        if let Some(raw) = error.pointer("/metadata/raw").and_then(Value::as_str) {
            message = format!("{message}: {raw}");
        }
        Self {
            message: excerpt(&message),
            names: ["code", "type"]
                .iter()
                .filter_map(|name| text(name))
                .map(String::from)
                .collect(),
            code: members.get("code").and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok()),
        }
    }

    /// What is no JSON. Of a web page nothing is worth repeating.
    fn of_text(text: &str) -> Self {
        let text = if text.trim_start().starts_with('<') { "" } else { text };
        Self { message: excerpt(text), ..Self::default() }
    }

    /// The HTTP status that would have gone with it.
    fn status(&self) -> u16 {
        if let Some(code @ 400..=599) = self.code {
            return code;
        }
        let named = |words: &[&str]| {
            self.names.iter().any(|name| words.iter().any(|word| name.contains(word)))
        };
        if named(&["rate_limit", "overloaded", "too_many_requests", "slow_down"]) {
            429
        } else if named(&["api_key", "authentication", "permission"]) {
            401
        } else if named(&["invalid", "BadRequest", "policy", "image", "mismatch", "not_found"]) {
            400
        } else {
            500
        }
    }

    fn into_error(self, status: u16, told: String) -> ProviderError {
        let named = |wanted: &str| self.names.iter().any(|name| name == wanted);
        match status {
            402 => ProviderError::Denied(format!("{told}; check the account's credit")),
            _ if named("insufficient_quota") => {
                ProviderError::Denied(format!("{told}; check the account's credit"))
            }
            401 => ProviderError::Denied(format!("{told}; check the API key")),
            403 => ProviderError::Denied(format!("{told}; check what the API key may use")),
            429 | 503 | 529 => ProviderError::Busy { message: told, retry_after: None },
            _ if self.tells_of_the_context() => ProviderError::ContextTooLong(told),
            408 | 500..=599 => ProviderError::Failed(told),
            _ => ProviderError::Rejected(told),
        }
    }

    /// Only OpenAI and llama.cpp have a code for it.
    fn tells_of_the_context(&self) -> bool {
        let coded = ["context_length_exceeded", "exceed_context_size_error"];
        let text = self.message.to_lowercase();
        let has = |words: &str| text.contains(words);
        self.names.iter().any(|name| coded.contains(&name.as_str()))
            || has("maximum context length")
            || has("maximum model length")
            || has("context") && (has("exceed") || has("overflow") || has("greater than"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn busy(message: &str) -> ProviderError {
        ProviderError::Busy { message: message.into(), retry_after: None }
    }

    #[test]
    fn a_refusal_is_told_by_status_code_and_text() {
        use ProviderError::{ContextTooLong, Denied, Failed, Rejected};
        for (status, body, error) in [
            (
                401,
                r#"{"error":{"message":"Incorrect API key provided: sk-proj-abc***xyz. See https://platform.openai.com.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}"#,
                Denied("Incorrect API key provided: *** See https://platform.openai.com. (HTTP 401); check the API key".into()),
            ),
            (401, "", Denied("HTTP 401 without a reason; check the API key".into())),
            (
                403,
                r#"{"error":{"message":"Project has no access to model `m`"}}"#,
                Denied("Project has no access to model `m` (HTTP 403); check what the API key may use".into()),
            ),
            (
                429,
                r#"{"error":{"message":"Rate limit reached for m","type":"tokens","code":"rate_limit_exceeded"}}"#,
                busy("Rate limit reached for m (HTTP 429)"),
            ),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                Denied("You exceeded your current quota (HTTP 429); check the account's credit".into()),
            ),
            (
                402,
                r#"{"error":{"code":402,"message":"Insufficient credits"}}"#,
                Denied("Insufficient credits (HTTP 402); check the account's credit".into()),
            ),
            (503, r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#, busy("Loading model (HTTP 503)")),
            (529, "overloaded", busy("overloaded (HTTP 529)")),
            (500, r#"{"error":{"message":"Oops","type":"server_error"}}"#, Failed("Oops (HTTP 500)".into())),
            (502, "<html><h1>Bad gateway</h1></html>", Failed("HTTP 502 without a reason".into())),
            (
                400,
                r#"{"error":{"message":"Too many tokens","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
                ContextTooLong("Too many tokens (HTTP 400)".into()),
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
                ContextTooLong("the request exceeds the available context size, try increasing it (HTTP 400)".into()),
            ),
            (
                400,
                r#"{"object":"error","message":"This model's maximum context length is 2048 tokens.","type":"BadRequestError","param":null,"code":400}"#,
                ContextTooLong("This model's maximum context length is 2048 tokens. (HTTP 400)".into()),
            ),
            (
                400,
                r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"prompt exceeds the context window","provider_name":"x"}}}"#,
                ContextTooLong("Provider returned error: prompt exceeds the context window (HTTP 400)".into()),
            ),
            (400, r#"{"error":"model is not loaded"}"#, Rejected("model is not loaded (HTTP 400)".into())),
            (422, r#"{"detail":"messages: field required"}"#, Rejected("messages: field required (HTTP 422)".into())),
            (404, "<html>", Rejected("nothing is there (HTTP 404); check the base URL, which often ends in `/v1`".into())),
            (404, r#"{"error":{"message":"The model `m` does not exist"}}"#, Rejected("The model `m` does not exist (HTTP 404)".into())),
        ] {
            assert_eq!(refusal(status, body), error, "{status} {body}");
        }
    }

    #[test]
    fn an_error_in_an_answer_is_told_like_a_refusal() {
        use ProviderError::{ContextTooLong, Denied, Failed, Rejected};
        for (error, told) in [
            (json!({"message": "Slow", "code": "rate_limit_exceeded"}), busy("Slow")),
            (json!({"message": "Full", "type": "overloaded_error"}), busy("Full")),
            (json!({"message": "Slow", "code": 429}), busy("Slow")),
            (json!({"message": "Oops", "code": 502}), Failed("Oops".into())),
            (json!({"message": "Oops", "code": "server_error"}), Failed("Oops".into())),
            (json!({"message": "No", "type": "invalid_request_error"}), Rejected("No".into())),
            (json!({"message": "No", "code": "bio_policy"}), Rejected("No".into())),
            (
                json!({"message": "No", "type": "BadRequestError", "code": 400}),
                Rejected("No".into()),
            ),
            (
                json!({"message": "Who?", "type": "authentication_error"}),
                Denied("Who?; check the API key".into()),
            ),
            (
                json!({"message": "Long", "code": "context_length_exceeded"}),
                ContextTooLong("Long".into()),
            ),
            (json!("it broke"), Failed("it broke".into())),
            (
                json!({"code": "server_error"}),
                Failed("the server ended the answer with the error `server_error`".into()),
            ),
            (
                json!({}),
                Failed("the server ended the answer with an error it gives no reason for".into()),
            ),
        ] {
            assert_eq!(in_band(&error), told, "{error}");
        }
    }

    #[test]
    fn cached_tokens_are_part_of_the_input() {
        let full = json!({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
            "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30}});
        let expected = Usage { read: 64, written: 30, uncached: 6, output: 7 };
        assert_eq!(usage(&full, "prompt", "completion"), expected);
        let bare = json!({"prompt_tokens": 100, "prompt_tokens_details": null});
        let expected = Usage { uncached: 100, ..Usage::default() };
        assert_eq!(usage(&bare, "prompt", "completion"), expected);
    }
}
