//! What Ollama answers: an object of one form, whether it is a line of many or the whole.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_tokens::Usage;

use crate::provider::{ProviderError, StopReason};
use crate::providers::body::excerpt;

/// An answer, or a piece of one.
#[derive(Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    pub(super) message: Said,
    #[serde(default)]
    pub(super) done: bool,
    done_reason: Option<String>,
    prompt_eval_count: Option<u64>,
    eval_count: Option<u64>,
    pub(super) error: Option<Value>,
}

#[derive(Default, Deserialize)]
pub(super) struct Said {
    pub(super) content: Option<String>,
    pub(super) thinking: Option<String>,
    pub(super) tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
pub(super) struct Call {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: Option<Box<RawValue>>,
}

impl Call {
    /// The name, and the arguments as text.
    pub(super) fn into_parts(self) -> (String, String) {
        let Function { name, arguments } = self.function;
        let arguments = arguments.map_or_else(String::new, |raw| {
            // Servers that only look like Ollama may write the object as a string.
            serde_json::from_str::<String>(raw.get()).unwrap_or_else(|_| raw.get().to_owned())
        });
        (name, arguments)
    }
}

impl Answer {
    pub(super) fn parse(json: &str) -> Result<Self, ProviderError> {
        serde_json::from_str(json).map_err(|error| {
            ProviderError::Broken(format!("a piece of the answer is malformed: {error}"))
        })
    }

    pub(super) fn stop(&self) -> StopReason {
        match self.done_reason.as_deref() {
            None | Some("stop" | "") => StopReason::End,
            Some("length") => StopReason::Length,
            Some(other) => StopReason::Other(other.to_owned()),
        }
    }

    /// Ollama doesn't say how much of the prompt it still had.
    pub(super) fn usage(&self) -> Usage {
        Usage {
            uncached: self.prompt_eval_count.unwrap_or(0),
            output: self.eval_count.unwrap_or(0),
            ..Usage::default()
        }
    }
}

/// What an error in the middle of an answer means.
pub(super) fn failure(error: &Value) -> ProviderError {
    let reason = reason(error).unwrap_or_else(|| "Ollama failed without a reason".to_owned());
    if is_about_length(&reason) {
        ProviderError::ContextTooLong(reason)
    } else if is_about_load(&reason) {
        ProviderError::Busy { message: reason, retry_after: None }
    } else {
        ProviderError::Failed(reason)
    }
}

/// What a refusal means.
pub(super) fn refusal(status: u16, body: &str) -> ProviderError {
    let json = serde_json::from_str::<Value>(body).ok();
    let reason = json.as_ref().and_then(|json| reason(json.get("error").unwrap_or(json)));
    let said = reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    let told = |advice: &str| format!("HTTP {status}{said}{advice}");
    match status {
        401 | 403 => ProviderError::Denied(told("; see whether Ollama wants a key, and this one")),
        _ if reason.as_deref().is_some_and(is_about_length) => {
            ProviderError::ContextTooLong(told(""))
        }
        429 | 503 | 529 => ProviderError::Busy { message: told(""), retry_after: None },
        500.. => ProviderError::Failed(told("")),
        404 if reason.as_deref().is_some_and(|it| it.contains("model")) => {
            ProviderError::Rejected(told("; `ollama pull` gets a model, `ollama list` shows them"))
        }
        404 | 405 => {
            ProviderError::Rejected(told("; there is no Ollama there, correct the base URL"))
        }
        _ => ProviderError::Rejected(told("")),
    }
}

fn is_about_length(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    reason.contains("context")
        && ["length", "exceed", "window", "too long"].iter().any(|word| reason.contains(word))
}

fn is_about_load(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    reason.contains("server busy") || reason.contains("rate limit")
}

/// The text of an error, on one line.
fn reason(error: &Value) -> Option<String> {
    let text = error.as_str().or_else(|| error.get("message")?.as_str())?;
    Some(excerpt(text)).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_says_what_is_wrong_and_what_to_do() {
        let busy =
            |message: &str| ProviderError::Busy { message: message.into(), retry_after: None };
        for (status, body, error) in [
            (
                404,
                r#"{"error": "model 'nope' not found"}"#,
                ProviderError::Rejected(
                    "HTTP 404: model 'nope' not found; `ollama pull` gets a model, `ollama list` \
                     shows them"
                        .into(),
                ),
            ),
            (
                404,
                "404 page not found",
                ProviderError::Rejected(
                    "HTTP 404; there is no Ollama there, correct the base URL".into(),
                ),
            ),
            (
                400,
                r#"{"error": "registry.ollama.ai/library/phi does not\nsupport tools"}"#,
                ProviderError::Rejected(
                    "HTTP 400: registry.ollama.ai/library/phi does not support tools".into(),
                ),
            ),
            (
                400,
                r#"{"error": {"message": "the input length exceeds the context length"}}"#,
                ProviderError::ContextTooLong(
                    "HTTP 400: the input length exceeds the context length".into(),
                ),
            ),
            (
                401,
                r#"{"error": "unauthorized"}"#,
                ProviderError::Denied(
                    "HTTP 401: unauthorized; see whether Ollama wants a key, and this one".into(),
                ),
            ),
            (429, "", busy("HTTP 429")),
            (503, r#"{"error": "server busy"}"#, busy("HTTP 503: server busy")),
            (500, "[]", ProviderError::Failed("HTTP 500".into())),
        ] {
            assert_eq!(refusal(status, body), error, "{status} {body}");
        }
    }

    #[test]
    fn an_error_in_the_answer_means_what_it_would_as_a_refusal() {
        assert_eq!(
            failure(&json!("prompt exceeds the context window")),
            ProviderError::ContextTooLong("prompt exceeds the context window".into())
        );
        assert!(matches!(failure(&json!("server busy")), ProviderError::Busy { .. }));
        assert_eq!(
            failure(&json!("llama runner process has terminated")),
            ProviderError::Failed("llama runner process has terminated".into())
        );
        assert_eq!(
            failure(&json!(17)),
            ProviderError::Failed("Ollama failed without a reason".into())
        );
    }
}
