//! An answer of the Responses API, read as it comes.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::response::{Response, call};
use crate::message::Said;
use crate::provider::{Delta, ProviderError, Reply};
use crate::providers::body::Size;
use crate::providers::http::Reader;
use crate::providers::openai_chat::in_band;

/// What has been read of an answer. The last event repeats all of it, so little is kept.
#[derive(Default)]
pub(super) struct Answer {
    /// Items that are complete, by their place in the output.
    items: Vec<(u64, Value)>,
    calls: Vec<Call>,
    has_told_text: bool,
    /// What `items` and `calls` take.
    kept: Size,
    /// What deltas have taken.
    told: Size,
    is_finished: bool,
    /// What calls of our own search are called by.
    search: Option<Arc<str>>,
}

/// A call that was told of.
struct Call {
    output_index: Option<u64>,
    item_id: Option<String>,
    has_arguments: bool,
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: Option<String>,
    output_index: Option<u64>,
    item_id: Option<String>,
    summary_index: Option<u64>,
    #[serde(default)]
    delta: Value,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(default)]
    error: Value,
}

impl Reader for Answer {
    fn piece(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let data = data.trim();
        if self.is_finished || data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let event: Event<'_> = serde_json::from_str(data).map_err(no_event)?;
        match event.r#type.as_deref().unwrap_or_default() {
            "response.output_text.delta" => {
                if let Some(text) = self.told(&event)? {
                    self.has_told_text = true;
                    out.push(Delta::Text(text));
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                out.extend(self.told(&event)?.map(Delta::Thinking));
            }
            "response.reasoning_summary_part.added" if event.summary_index > Some(0) => {
                out.push(Delta::Thinking("\n\n".into()));
            }
            "response.function_call_arguments.delta" => {
                if let (Some(text), Some(index)) = (self.told(&event)?, self.place(&event, None)) {
                    self.calls[index].has_arguments = true;
                    out.push(Delta::Arguments { index, text });
                }
            }
            "response.output_item.added" => {
                self.item(&event, out)?;
            }
            "response.output_item.done" => {
                if let Some(item) = self.item(&event, out)? {
                    let place = event.output_index.unwrap_or(self.items.len() as u64);
                    self.items.push((place, item));
                }
            }
            "response.completed" | "response.done" => self.finish(response(&event)?, out)?,
            "response.incomplete" => {
                self.finish(response(&event)?.ended_as("incomplete"), out)?;
            }
            "response.failed" => self.finish(response(&event)?.ended_as("failed"), out)?,
            "error" | "" if !event.error.is_null() => return Err(in_band(&event.error)),
            "error" => return Err(in_band(&serde_json::from_str(data).unwrap_or_default())),
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.is_finished {
            return Ok(());
        }
        let message = "the answer broke off before the server said that it was complete";
        Err(ProviderError::Broken(message.into()))
    }

    fn whole(&mut self, body: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        self.finish(Response::read(body)?, out)
    }
}

fn no_event(error: serde_json::Error) -> ProviderError {
    ProviderError::Broken(format!("the server sent what is no event: {error}"))
}

fn response(event: &Event<'_>) -> Result<Response, ProviderError> {
    event.response.map_or_else(|| Ok(Response::default()), |json| Response::read(json.get()))
}

impl Answer {
    /// Nothing yet, of an answer that may call our own search.
    pub(super) fn calling(search: Option<Arc<str>>) -> Self {
        Self { search, ..Self::default() }
    }

    /// The text of a delta, if it has any.
    fn told(&mut self, event: &Event<'_>) -> Result<Option<String>, ProviderError> {
        let text = event.delta.as_str().filter(|text| !text.is_empty());
        self.told.grow(text.map_or(0, str::len))?;
        Ok(text.map(str::to_owned))
    }

    /// Reads the item of an event and tells of it if it is a call, as far as that hasn't been
    /// told.
    fn item(
        &mut self,
        event: &Event<'_>,
        out: &mut Vec<Delta>,
    ) -> Result<Option<Value>, ProviderError> {
        let Some(json) = event.item else { return Ok(None) };
        self.kept.grow(json.get().len())?;
        let item: Value = serde_json::from_str(json.get()).map_err(no_event)?;
        if let Some(read) = call(&item, self.search.as_deref()) {
            let id = item["id"].as_str();
            let index = self.place(event, id).unwrap_or_else(|| {
                let index = self.calls.len();
                out.push(Delta::Call { index, name: read.name });
                self.calls.push(Call {
                    output_index: event.output_index,
                    item_id: id.map(str::to_owned),
                    has_arguments: false,
                });
                index
            });
            // The arguments of a search come as one object, which is empty to begin with.
            let is_whole = item["type"] == "function_call"
                || event.r#type.as_deref() == Some("response.output_item.done");
            if is_whole && !self.calls[index].has_arguments && !read.arguments.is_empty() {
                self.calls[index].has_arguments = true;
                out.push(Delta::Arguments { index, text: read.arguments });
            }
        }
        Ok(Some(item))
    }

    /// The number of the call that an event is about.
    fn place(&self, event: &Event<'_>, id: Option<&str>) -> Option<usize> {
        let id = id.or(event.item_id.as_deref());
        match event.output_index {
            Some(place) => self.calls.iter().position(|it| it.output_index == Some(place)),
            None => self.calls.iter().position(|it| id.is_some() && it.item_id.as_deref() == id),
        }
    }

    fn finish(
        &mut self,
        mut response: Response,
        out: &mut Vec<Delta>,
    ) -> Result<(), ProviderError> {
        if response.output.as_ref().is_none_or(Vec::is_empty) {
            self.items.sort_by_key(|(place, _)| *place);
            response.output = Some(self.items.drain(..).map(|(_, item)| item).collect());
        }
        let reply = response.into_reply(self.search.as_deref())?;
        self.tell_the_rest(&reply, out);
        out.push(Delta::Finished(reply));
        self.is_finished = true;
        Ok(())
    }

    /// Some servers put what was said into the last event only.
    fn tell_the_rest(&self, reply: &Reply, out: &mut Vec<Delta>) {
        let mut calls = 0;
        for said in &reply.content {
            match said {
                Said::Text { text } if !self.has_told_text => out.push(Delta::Text(text.clone())),
                Said::Call(call) => {
                    let index = calls;
                    calls += 1;
                    if index < self.calls.len() {
                        continue;
                    }
                    out.push(Delta::Call { index, name: call.name.clone() });
                    if !call.arguments.is_empty() {
                        out.push(Delta::Arguments { index, text: call.arguments.clone() });
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_tokens::Usage;

    use super::super::NAME;
    use super::*;
    use crate::message::ToolCall;
    use crate::provider::StopReason;

    fn read(events: &[Value]) -> Result<Vec<Delta>, ProviderError> {
        let (mut answer, mut out) = (Answer::calling(Some("find".into())), Vec::new());
        for event in events {
            answer.piece(&event.to_string(), &mut out)?;
        }
        answer.end(&mut out)?;
        Ok(out)
    }

    fn reasoning() -> Value {
        json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAA",
            "summary": [{"type": "summary_text", "text": "Hm"}]})
    }

    fn message(text: &str) -> Value {
        json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}]})
    }

    fn function_call(number: u64, arguments: &str) -> Value {
        json!({"id": format!("fc_{number}"), "type": "function_call", "status": "completed",
            "call_id": format!("call_{number}"), "name": "look", "arguments": arguments})
    }

    fn response(output: Value) -> Value {
        json!({"id": "resp_1", "object": "response", "status": "completed", "error": null,
            "incomplete_details": null, "output": output, "usage": {"input_tokens": 20,
                "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 5}})
    }

    const USED: Usage = Usage { read: 8, written: 0, uncached: 12, output: 5 };

    fn item(stage: &str, place: u64, item: Value) -> Value {
        json!({"type": format!("response.output_item.{stage}"), "sequence_number": 9,
            "output_index": place, "item": item})
    }

    fn delta(kind: &str, place: u64, text: &str) -> Value {
        json!({"type": format!("response.{kind}.delta"), "sequence_number": 9, "item_id": "i",
            "output_index": place, "delta": text})
    }

    /// Everything but the last event.
    fn begun() -> Vec<Value> {
        let other = |kind: &str| {
            json!({"type": kind, "sequence_number": 9, "item_id": "msg_1",
            "output_index": 1, "content_index": 0, "part": {"type": "output_text", "text": ""}})
        };
        vec![
            json!({"type": "response.created", "response": {"status": "in_progress", "output": []}}),
            json!({"type": "response.in_progress", "response": {"status": "in_progress"}}),
            item("added", 0, json!({"id": "rs_1", "type": "reasoning", "summary": []})),
            json!({"type": "response.reasoning_summary_part.added", "item_id": "rs_1",
                "output_index": 0, "summary_index": 0, "part": {"type": "summary_text"}}),
            delta("reasoning_summary_text", 0, "Hm"),
            json!({"type": "response.reasoning_summary_part.added", "item_id": "rs_1",
                "output_index": 0, "summary_index": 1, "part": {"type": "summary_text"}}),
            delta("reasoning_text", 0, "So"),
            item("done", 0, reasoning()),
            item("added", 1, json!({"id": "msg_1", "type": "message", "content": []})),
            other("response.content_part.added"),
            delta("output_text", 1, "Wait"),
            delta("output_text", 1, "."),
            other("response.output_text.done"),
            other("response.content_part.done"),
            item("done", 1, message("Wait.")),
            item("added", 2, function_call(1, "")),
            item("added", 3, function_call(2, "")),
            delta("function_call_arguments", 3, "{"),
            delta("function_call_arguments", 2, r#"{"x""#),
            delta("function_call_arguments", 3, "}"),
            delta("function_call_arguments", 2, ": 1}"),
            json!({"type": "response.function_call_arguments.done", "output_index": 3,
                "arguments": "{}"}),
            item("done", 3, function_call(2, "{}")),
            item("done", 2, function_call(1, r#"{"x": 1}"#)),
            json!({"type": "response.brand_new", "delta": {"any": 1}}),
        ]
    }

    fn output() -> Value {
        json!([
            reasoning(),
            message("Wait."),
            function_call(1, r#"{"x": 1}"#),
            function_call(2, "{}")
        ])
    }

    fn content() -> Vec<Said> {
        let call = |id: &str, arguments: &str| {
            Said::Call(ToolCall { id: id.into(), name: "look".into(), arguments: arguments.into() })
        };
        vec![
            Said::Native { provider: NAME.into(), json: reasoning() },
            Said::Text { text: "Wait.".into() },
            call("call_1", r#"{"x": 1}"#),
            call("call_2", "{}"),
        ]
    }

    fn told() -> Vec<Delta> {
        let call = |index| Delta::Call { index, name: "look".into() };
        let arguments = |index, text: &str| Delta::Arguments { index, text: text.into() };
        vec![
            Delta::Thinking("Hm".into()),
            Delta::Thinking("\n\n".into()),
            Delta::Thinking("So".into()),
            Delta::Text("Wait".into()),
            Delta::Text(".".into()),
            call(0),
            call(1),
            arguments(1, "{"),
            arguments(0, r#"{"x""#),
            arguments(1, "}"),
            arguments(0, ": 1}"),
        ]
    }

    fn finished(events: &[Value]) -> Reply {
        match read(events).unwrap().pop() {
            Some(Delta::Finished(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_is_told_as_it_comes_and_then_whole() {
        let mut events = begun();
        events.push(json!({"type": "response.completed", "response": response(output())}));
        let mut expected = told();
        let reply = Reply { content: content(), stop: StopReason::End, usage: USED };
        expected.push(Delta::Finished(reply));
        assert_eq!(read(&events).unwrap(), expected);
    }

    #[test]
    fn a_last_event_without_output_ends_what_was_seen() {
        for last in [response(Value::Null), response(json!([]))] {
            let mut events = begun();
            events.push(json!({"type": "response.completed", "response": last}));
            let reply = Reply { content: content(), stop: StopReason::End, usage: USED };
            assert_eq!(finished(&events), reply);
        }
        let mut events = begun();
        events.push(json!({"type": "response.completed"}));
        assert_eq!(finished(&events), Reply { content: content(), ..Reply::default() });
    }

    #[test]
    fn the_last_event_is_the_truth() {
        let mut events = begun();
        events.push(
            json!({"type": "response.completed", "response": response(json!([message("No.")]))}),
        );
        assert_eq!(finished(&events).content, [Said::Text { text: "No.".into() }]);
    }

    #[test]
    fn an_answer_cut_anywhere_is_broken() {
        let events = begun();
        for length in 0..=events.len() {
            let outcome = read(&events[..length]);
            assert!(matches!(outcome, Err(ProviderError::Broken(_))), "{length}: {outcome:?}");
        }
    }

    #[test]
    fn nothing_is_told_after_the_end() {
        let last = json!({"type": "response.completed", "response": response(output())});
        let mut events = begun();
        events.extend([last.clone(), last, delta("output_text", 1, "more")]);
        let deltas = read(&events).unwrap();
        assert_eq!(deltas.len(), told().len() + 1);
        let mut answer = Answer::default();
        assert_eq!(answer.piece("[DONE]", &mut Vec::new()), Ok(()));
        assert!(answer.end(&mut Vec::new()).is_err());
    }

    #[test]
    fn the_kind_of_the_last_event_counts() {
        let last = |kind: &str, details: Value| {
            json!({"type": format!("response.{kind}"), "response": {"output": [message("Hi")],
                "incomplete_details": details}})
        };
        let length = last("incomplete", json!({"reason": "max_output_tokens"}));
        assert_eq!(finished(&[length]).stop, StopReason::Length);
        let filter = last("incomplete", json!({"reason": "content_filter"}));
        assert_eq!(finished(&[filter]).stop, StopReason::Refusal(None));
        let failed = read(&[last("failed", json!(null))]);
        assert!(matches!(failed, Err(ProviderError::Failed(_))), "{failed:?}");
    }

    #[test]
    fn a_refusal_ends_with_its_text() {
        let refused = json!([{"id": "msg_1", "type": "message", "role": "assistant",
            "content": [{"type": "refusal", "refusal": "I can't"}]}]);
        let events = [
            delta("refusal", 0, "I can't"),
            json!({"type": "response.completed", "response": response(refused)}),
        ];
        let stop = StopReason::Refusal(Some("I can't".into()));
        let reply = Reply { content: Vec::new(), stop, usage: USED };
        assert_eq!(read(&events).unwrap(), [Delta::Finished(reply)]);
    }

    #[test]
    fn an_error_in_the_stream_ends_it() {
        use ProviderError::{Busy, ContextTooLong, Failed, Rejected};
        let busy = |text: &str| Busy { message: text.into(), retry_after: None };
        for (event, error) in [
            (
                json!({"type": "error", "code": "rate_limit_exceeded", "message": "Slow",
                    "param": null, "sequence_number": 1}),
                busy("Slow"),
            ),
            (
                json!({"type": "error", "error": {"type": "invalid_request_error",
                    "code": "context_length_exceeded", "message": "Long"}}),
                ContextTooLong("Long".into()),
            ),
            (json!({"error": {"message": "No", "code": 400}}), Rejected("No".into())),
            (
                json!({"type": "response.failed", "response": {"status": "failed",
                    "error": {"code": "server_error", "message": "Oops"}}}),
                Failed("Oops".into()),
            ),
        ] {
            let mut events = begun();
            events.push(event.clone());
            assert_eq!(read(&events), Err(error), "{event}");
        }
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let deep = format!(
            r#"{{"type":"response.output_item.done","item":{}{}}}"#,
            "[".repeat(1_000),
            "]".repeat(1_000)
        );
        let misfit = r#"{"type":"response.completed","response":{"output":1}}"#;
        for broken in ["{", "1", misfit, &deep] {
            let outcome = Answer::default().piece(broken, &mut Vec::new());
            assert!(matches!(outcome, Err(ProviderError::Broken(_))), "{broken}: {outcome:?}");
        }
    }

    #[test]
    fn calls_are_found_by_their_item_where_events_have_no_place() {
        let without_place = |mut event: Value| {
            event.as_object_mut().unwrap().remove("output_index");
            event
        };
        let arguments = |id: &str, text: &str| json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": text});
        let events = [
            without_place(item("added", 0, function_call(1, ""))),
            without_place(item("added", 0, function_call(2, ""))),
            arguments("fc_2", "{}"),
            arguments("fc_3", "lost"),
            without_place(item("done", 0, function_call(1, "{\"x\": 1}"))),
            without_place(item("done", 0, function_call(2, "{}"))),
            json!({"type": "response.completed", "response": {"status": "completed"}}),
        ];
        let call = |index| Delta::Call { index, name: "look".into() };
        let reply = Reply { content: content().split_off(2), ..Reply::default() };
        assert_eq!(
            read(&events).unwrap(),
            [
                call(0),
                call(1),
                Delta::Arguments { index: 1, text: "{}".into() },
                Delta::Arguments { index: 0, text: "{\"x\": 1}".into() },
                Delta::Finished(reply),
            ]
        );
    }

    #[test]
    fn a_search_is_told_of_as_a_call() {
        let search = |status: &str, arguments: Value| {
            json!({"id": "tsc_1", "type": "tool_search_call", "status": status,
                "execution": "client", "call_id": "call_1", "arguments": arguments})
        };
        let theirs = json!({"id": "tsc_2", "type": "tool_search_call", "status": "completed",
            "execution": "server", "call_id": null, "arguments": {"paths": ["crm"]}});
        let query = json!({"query": "mail"});
        let output = json!([theirs, search("completed", query.clone()), function_call(2, "{}")]);
        for (begun, last) in [
            (json!({}), response(output.clone())),
            (Value::Null, response(Value::Null)),
            (json!(""), response(json!([]))),
        ] {
            let events = [
                item("added", 0, theirs.clone()),
                item("done", 0, theirs.clone()),
                item("added", 1, search("in_progress", begun)),
                item("done", 1, search("completed", query.clone())),
                item("added", 2, function_call(2, "")),
                delta("function_call_arguments", 2, "{}"),
                item("done", 2, function_call(2, "{}")),
                json!({"type": "response.completed", "response": last}),
            ];
            let arguments = r#"{"query":"mail"}"#;
            let call = |id: &str, name: &str, arguments: &str| {
                let (id, name) = (id.into(), name.into());
                Said::Call(ToolCall { id, name, arguments: arguments.into() })
            };
            let content = vec![
                Said::Native { provider: NAME.into(), json: theirs.clone() },
                call("call_1", "find", arguments),
                call("call_2", "look", "{}"),
            ];
            assert_eq!(
                read(&events).unwrap(),
                [
                    Delta::Call { index: 0, name: "find".into() },
                    Delta::Arguments { index: 0, text: arguments.into() },
                    Delta::Call { index: 1, name: "look".into() },
                    Delta::Arguments { index: 1, text: "{}".into() },
                    Delta::Finished(Reply { content, stop: StopReason::End, usage: USED }),
                ]
            );
        }
    }

    #[test]
    fn a_whole_answer_is_told_in_deltas_too() {
        let mut out = Vec::new();
        Answer::default().whole(&response(output()).to_string(), &mut out).unwrap();
        let call = |index| Delta::Call { index, name: "look".into() };
        let reply = Reply { content: content(), stop: StopReason::End, usage: USED };
        assert_eq!(
            out,
            [
                Delta::Text("Wait.".into()),
                call(0),
                Delta::Arguments { index: 0, text: r#"{"x": 1}"#.into() },
                call(1),
                Delta::Arguments { index: 1, text: "{}".into() },
                Delta::Finished(reply),
            ]
        );
    }

    #[test]
    fn an_answer_without_end_is_given_up() {
        let long = "x".repeat(1_000_000);
        for event in [delta("output_text", 0, &long), item("done", 0, message(&long))] {
            let (mut answer, mut out) = (Answer::default(), Vec::new());
            let event = event.to_string();
            let given_up = (0..40).find(|_| {
                out.clear();
                answer.piece(&event, &mut out).is_err()
            });
            assert!(matches!(given_up, Some(31 | 32)), "{given_up:?}");
        }
    }
}
