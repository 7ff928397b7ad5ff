//! A response object, which is the whole of an answer.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::NAME;
use crate::message::{Said, ToolCall};
use crate::provider::{ProviderError, Reply, StopReason};
use crate::providers::body::Size;
use crate::providers::openai_chat::{in_band, usage};

/// Members of an item that have no place in a conversation but must go back with it. They are
/// kept before what they belong to, as a piece of the API's own that has no type.
pub(super) const MARKS: [&str; 2] = ["phase", NAMESPACE];

/// Where a tool lives that is called.
pub(super) const NAMESPACE: &str = "namespace";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response {
    status: Option<String>,
    pub(super) output: Option<Vec<Value>>,
    usage: Value,
    incomplete_details: Value,
    error: Value,
}

impl Response {
    pub(super) fn read(json: &str) -> Result<Self, ProviderError> {
        Size::default().grow(json.len())?;
        serde_json::from_str(json).map_err(|error| {
            ProviderError::Broken(format!("the server sent what is no response: {error}"))
        })
    }

    /// The same, ended as the event says that brought it.
    pub(super) fn ended_as(self, status: &str) -> Self {
        Self { status: Some(status.into()), ..self }
    }

    /// What was said. `search` is what calls of our own search are called by, where there is one.
    pub(super) fn into_reply(self, search: Option<&str>) -> Result<Reply, ProviderError> {
        if !self.error.is_null() {
            return Err(in_band(&self.error));
        }
        let mut stop = match self.status.as_deref() {
            None | Some("completed") => StopReason::End,
            Some("incomplete") => match self.incomplete_details["reason"].as_str() {
                Some("max_output_tokens") => StopReason::Length,
                Some("content_filter") => StopReason::Refusal(None),
                reason => StopReason::Other(reason.unwrap_or("incomplete").into()),
            },
            Some("failed") => return Err(in_band(&self.error)),
            Some("cancelled") => {
                return Err(ProviderError::Failed("the server cancelled the answer".into()));
            }
            Some(status) => {
                let message = format!("the server sent an answer that is still `{status}`");
                return Err(ProviderError::Broken(message));
            }
        };
        let mut content = Vec::new();
        let mut refusal = String::new();
        for item in self.output.into_iter().flatten() {
            read_item(item, search, &mut content, &mut refusal);
        }
        if !refusal.is_empty() {
            stop = StopReason::Refusal(Some(refusal));
        }
        Ok(Reply { content, stop, usage: usage(&self.usage, "input", "output") })
    }
}

fn read_item(item: Value, search: Option<&str>, content: &mut Vec<Said>, refusal: &mut String) {
    let said = match item["type"].as_str() {
        Some("message") => {
            let text = match &item["content"] {
                Value::String(text) => text.clone(),
                pieces => {
                    refusal.extend(all(pieces, "refusal"));
                    all(pieces, "text").collect()
                }
            };
            if text.is_empty() {
                return;
            }
            Said::Text { text }
        }
        _ => match call(&item, search) {
            Some(call) => Said::Call(call),
            None => {
                content.push(Said::Native { provider: NAME.into(), json: item });
                return;
            }
        },
    };
    let marks: Map<String, Value> = MARKS
        .iter()
        .filter_map(|name| Some((*name, item.get(name).filter(|mark| !mark.is_null())?)))
        .map(|(name, mark)| (name.to_owned(), mark.clone()))
        .collect();
    if !marks.is_empty() {
        content.push(Said::Native { provider: NAME.into(), json: marks.into() });
    }
    content.push(said);
}

/// One member of all pieces that have it.
fn all<'a>(pieces: &'a Value, member: &'a str) -> impl Iterator<Item = &'a str> {
    pieces.as_array().into_iter().flatten().filter_map(move |piece| piece.get(member)?.as_str())
}

/// The call that an item is, if it is one that we answer: of a function, or of our own search.
pub(super) fn call(item: &Value, search: Option<&str>) -> Option<ToolCall> {
    let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
    let name = match item["type"].as_str()? {
        "function_call" => text("name"),
        "tool_search_call" if item["execution"] == "client" => search?.to_owned(),
        _ => return None,
    };
    let arguments = match &item["arguments"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        json => json.to_string(),
    };
    Some(ToolCall { id: text("call_id"), name, arguments })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_tokens::Usage;

    use super::*;
    use crate::providers::openai_chat::refusal;

    fn reply(response: Value) -> Result<Reply, ProviderError> {
        Response::read(&response.to_string())?.into_reply(Some("find"))
    }

    fn message(pieces: Value) -> Value {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": pieces})
    }

    fn output_text(text: &str) -> Value {
        json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
    }

    fn native(json: Value) -> Said {
        Said::Native { provider: NAME.into(), json }
    }

    #[test]
    fn items_become_what_was_said_in_order() {
        let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": [],
            "encrypted_content": "gAAA"});
        let unknown = json!({"id": "x", "type": "brand_new_call", "n": [1]});
        let mut commented = message(json!([output_text("On "), output_text("it.")]));
        commented["phase"] = json!("commentary");
        let response = json!({
            "id": "resp_1", "object": "response", "status": "completed", "error": null,
            "incomplete_details": null, "output": [
                reasoning, commented, unknown, message(json!([])),
                {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1",
                    "name": "look", "arguments": "{\"a\": 1}", "namespace": null},
                {"type": "function_call", "call_id": "call_2", "name": "look", "arguments": "{}",
                    "namespace": "crm"},
            ],
            "usage": {"input_tokens": 100, "output_tokens": 9, "total_tokens": 109,
                "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30},
                "output_tokens_details": {"reasoning_tokens": 4}},
        });
        let call = |id: &str, arguments: &str| {
            Said::Call(ToolCall { id: id.into(), name: "look".into(), arguments: arguments.into() })
        };
        let content = vec![
            native(reasoning),
            native(json!({"phase": "commentary"})),
            Said::Text { text: "On it.".into() },
            native(unknown),
            call("call_1", "{\"a\": 1}"),
            native(json!({"namespace": "crm"})),
            call("call_2", "{}"),
        ];
        let usage = Usage { read: 64, written: 30, uncached: 6, output: 9 };
        assert_eq!(reply(response), Ok(Reply { content, stop: StopReason::End, usage }));
    }

    #[test]
    fn a_search_that_is_ours_is_a_call_and_the_servers_own_is_kept() {
        let search = |execution: &str, call_id: Value| {
            json!({"id": "tsc_1", "type": "tool_search_call", "status": "completed",
                "execution": execution, "call_id": call_id, "arguments": {"query": "mail"}})
        };
        let (ours, theirs) = (search("client", json!("call_1")), search("server", Value::Null));
        let found = json!({"id": "tso_1", "type": "tool_search_output", "status": "completed",
            "execution": "server", "call_id": null, "tools": []});
        let response = || json!({"output": [theirs, found, ours]});
        let call = Said::Call(ToolCall {
            id: "call_1".into(),
            name: "find".into(),
            arguments: r#"{"query":"mail"}"#.into(),
        });
        let content = vec![native(theirs.clone()), native(found.clone()), call];
        assert_eq!(reply(response()).unwrap().content, content);
        // Where there is no search of ours, nothing is called.
        let untold = Response::read(&response().to_string()).unwrap().into_reply(None).unwrap();
        assert_eq!(untold.content[2], native(ours.clone()));
    }

    #[test]
    fn the_reason_it_ended_is_told() {
        use StopReason::{End, Length, Other, Refusal};
        let cut = |reason: Value| {
            json!({"status": "incomplete", "output": [],
            "incomplete_details": {"reason": reason}})
        };
        for (response, stop) in [
            (json!({"status": "completed", "output": []}), End),
            (json!({}), End),
            (cut(json!("max_output_tokens")), Length),
            (cut(json!("content_filter")), Refusal(None)),
            (cut(json!("steered")), Other("steered".into())),
            (
                json!({"status": "incomplete", "incomplete_details": null}),
                Other("incomplete".into()),
            ),
            (
                json!({"status": "completed", "output": [
                    message(json!([{"type": "refusal", "refusal": "I can't"}]))]}),
                Refusal(Some("I can't".into())),
            ),
        ] {
            let expected = Reply { stop, ..Reply::default() };
            assert_eq!(reply(response.clone()), Ok(expected), "{response}");
        }
    }

    #[test]
    fn what_failed_is_an_error() {
        use ProviderError::{Broken, Busy, ContextTooLong, Failed, Rejected};
        let failed = |code: &str| {
            json!({"status": "failed", "output": [],
            "error": {"code": code, "message": "Sorry"}})
        };
        for (response, error) in [
            (failed("server_error"), Failed("Sorry".into())),
            (failed("rate_limit_exceeded"), Busy { message: "Sorry".into(), retry_after: None }),
            (failed("invalid_prompt"), Rejected("Sorry".into())),
            (failed("image_too_large"), Rejected("Sorry".into())),
            (failed("context_length_exceeded"), ContextTooLong("Sorry".into())),
            (
                json!({"status": "failed"}),
                Failed("the server ended the answer with an error it gives no reason for".into()),
            ),
            (json!({"status": "cancelled"}), Failed("the server cancelled the answer".into())),
            (
                json!({"status": "queued"}),
                Broken("the server sent an answer that is still `queued`".into()),
            ),
            (json!({"error": "no such model"}), Failed("no such model".into())),
        ] {
            assert_eq!(reply(response.clone()), Err(error), "{response}");
        }
        assert!(matches!(reply(json!({"output": 1})), Err(Broken(_))));
    }

    #[test]
    fn a_context_that_is_too_long_is_told_from_other_refusals() {
        let body = r#"{"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":null}}"#;
        assert_eq!(
            refusal(400, body),
            ProviderError::ContextTooLong(
                "Your input exceeds the context window of this model. (HTTP 400)".into()
            )
        );
    }
}
